/* verify.h - a picture made again from the parameters that it carries: `ditto verify FILE`.
 *
 * Says whether the pixels are equal, and what of the environment is not as recorded: program, build, device, libraries,
 * families of fused kernels. Not a proof that the model's files are the same: that is selftest's.
 * Easy to get wrong: what a parameter means is the pipeline's, so a picture that records one this program does not know, or
 * stages that were put in from files, is refused rather than made without it. */
#ifndef VERIFY_H
#define VERIFY_H

#include "pipeline.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct VerifyOptions {
    const char *file;
    const char *folder; /* the model's, resolved */
    const char *text_encoder; /* as PipelineOptions */
    const char *image;  /* which the picture began from, when it began from one; else NULL */
    const char *device; /* NULL: as recorded */
    size_t vram;
    bool json, quiet;
    const volatile int *interrupted;
} VerifyOptions;

/* The -m of the run that made the picture, malloc'd. ERR_IO: not a PNG with ditto's parameters; ERR_USAGE: it records none. */
Status verify_model(const char *file, char **model, Error *e);

/* Numbers and differences to out, words for people to err. OK: equal; ERR_SOME: not; ERR_USAGE: it cannot be made again;
 * other codes as rendering gives them. */
Status verify_run(const VerifyOptions *o, FILE *out, FILE *err, Error *e);

#endif
