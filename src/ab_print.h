/* ab_print.h - what a comparison says: a line a stage, a row a prompt, what came of all, as text or as one JSON object.
 *
 * Decides nothing. Easy to get wrong: times of folders are not known, and a ratio of first runs would hold what making them
 * ready took, so it is printed only after a warm-up. */
#ifndef AB_PRINT_H
#define AB_PRINT_H

#include "ab_sides.h"
#include "ab_walk.h"

/* One prompt's result. */
typedef struct AbResult {
    bool equal, has_latents, has_pixels;
    double latents, pixels; /* PSNR */
    bool timed[2];
    double seconds[2][AB_PHASES];
} AbResult;

typedef struct AbPrint {
    Sink sink;
    const AbSide *side; /* [2] */
    int count;          /* prompts */
    bool stages;        /* a line each, also of several prompts */
    bool warm;
    Json *prompts;
} AbPrint;

void ab_print_begin(AbPrint *p);
/* shot: reference, output. */
Status ab_print_prompt(AbPrint *p, int k, const AbWalk *w, const AbShot *const shot[2], const AbResult *r, Error *e);
/* result[count]. sheet NULL: none was written. */
void ab_print_end(AbPrint *p, const AbResult *result, const char *sheet, int factor);
/* The object, with the verdict; and all of it on its way. ERR_IO, ERR_MEMORY. */
Status ab_print_flush(AbPrint *p, const Verdict *v, FILE *out, Error *e);

#endif
