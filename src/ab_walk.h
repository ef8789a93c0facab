/* ab_walk.h - two tables of stages, stage by stage: how far each is from its reference, and which is the first that differs.
 *
 * A stage differs when a bit of it does, or its dtype; elements that differ are counted by bits, by value where the dtypes are
 * not the same. PSNR has the range of the reference as its peak, 255 for `pixels` and `image`; infinite where no value differs.
 * Not a judgement: limits are ab_run's. Easy to get wrong: stages only the output has are named and no difference (a reference
 * of diffusers has no masks where its pipeline shows none); stages only the reference has are one. */
#ifndef AB_WALK_H
#define AB_WALK_H

#include "ab_stages.h"

typedef struct AbRow {
    const AbStage *a, *b; /* reference, output; NULL: has none */
    TensorNumbers n;      /* where both are there */
} AbRow;

typedef struct AbWalk {
    AbRow *row; /* in the order of a run */
    int rows;
    const AbRow *first;           /* that differs; NULL: none */
    const AbRow *latents, *pixels; /* the last; NULL: one of the two has none */
    const AbRow *missing;         /* the first that only the reference has; NULL: none */
    bool equal;                   /* every bit and every dtype of all rows, none missing */
} AbWalk;

/* name: of reference and output in messages. ERR_USAGE: other numbers of steps, a stage of another shape or without values, or
 * none that both have. The tables outlive *out; ab_walk_free in any case. */
Status ab_walk(const AbStages *a, const AbStages *b, const char *const name[2], AbWalk *out, Error *e);
void ab_walk_free(AbWalk *w);

#endif
