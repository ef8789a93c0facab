/* selftest.h - `ditto selftest`: are these the files, and does this machine compute what was recorded from them?
 *
 * First the SHA-256 of every file of the model folder, against its manifest (filesums.h). Then one denoise step of a
 * fixed job, with the SHA-256 of every stage, against the folder's record (FILESUMS_STAGES).
 * A record holds a table for each profile (profile.h) on which it was made: stages that do not depend on the device (ids,
 * sigmas, noise) are compared with any of them, the others only with the same profile's.
 * Easy to get wrong: without a manifest or record nothing is compared, only printed; both are said. */
#ifndef SELFTEST_H
#define SELFTEST_H

#include "pipeline.h"

#include <stdio.h>

typedef struct SelftestOptions {
    const char *folder, *device; /* as PipelineOptions */
    DType dtype;
    size_t vram;
    bool sync;
    const char *manifest;        /* NULL: the folder's own, if there is one */
    bool record, overwrite;      /* write the folder's manifest and record */
    bool quiet;
    const volatile int *interrupted;
} SelftestOptions;

/* Prints both tables to out, remarks to err. ERR_MODEL: a file is missing or has other bytes (no step is run then);
 * ERR_SOME: a stage differs; the text names the first one. */
Status selftest_run(const SelftestOptions *o, FILE *out, FILE *err, Error *e);

#endif
