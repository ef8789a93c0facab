/* verdicts.h - what first sight (gate.h) found out about fused variants, kept between runs: a variant that has shown the
 * reference's bits for a signature on this very machine, with these libraries and this build, need not show them again.
 *
 * A file of core/tuned.h. Its machine is profile_machine(): lines of any other GPU, driver, library or build are never
 * believed. A variant that gave other bits stays distrusted as long as machine and build are the same. Not the decision what
 * a verdict means: the gate and fusion_mount take it, and both work without.
 * Easy to get wrong: nothing here may fail a picture. A file that cannot be used is said in one line, `note`, and replaced by
 * the next save; one that cannot be written leaves a line in `unsaved`. Saving merges with what other processes wrote
 * meanwhile. */
#ifndef VERDICTS_H
#define VERDICTS_H

#include "core/tuned.h"
#include "fusion.h"

enum { VERDICTS_MOST = 4096 }; /* entries of a file; the oldest ones of other machines and builds leave first */

typedef enum Verdict { VERDICT_NONE, VERDICT_SAME, VERDICT_OTHER } Verdict;

typedef struct Verdicts {
    Tuned known;  /* of the file, and of this process */
    Tuned fresh;  /* of this process, not yet in the file */
    char *path;
    int believed; /* signatures that were taken from the file instead of being looked at */
    int found;    /* by this process */
    char note[600], unsaved[600];
} Verdicts;

/* Reads the file, if there is one. Only ERR_MEMORY is an error; verdicts_close in any case. */
Status verdicts_open(Verdicts *v, const char *path, const char *machine, Error *e);
void verdicts_close(Verdicts *v);
/* v may be NULL: nothing is known. signature: ops_signature. */
Verdict verdicts_find(const Verdicts *v, const Family *family, const Impl *impl, uint64_t signature);
Status verdicts_put(Verdicts *v, const Family *family, const Impl *impl, uint64_t signature, bool same, Error *e);
/* Adds to the file what is not yet in it, under a lock beside it that other processes respect; the file is replaced as a whole.
 * Failures go to `unsaved`; what was not saved is tried again next time. */
void verdicts_save(Verdicts *v);

#endif
