/* ab_stages.h - the stages of one run as a table: read from a dump folder, or collected while a pipeline runs.
 *
 * In the order of a run (stages_order); a name that is no stage's comes last. Checked to be whole: every step from the first
 * to the last has the same stages, as many as the sigmas say. Knows nothing of another run.
 * Easy to get wrong: steps keep their number in the whole schedule, so the first of a run that began from an image may not
 * be 0; a folder that diffusers filled may lack what its pipeline never shows (masks), and that is no fault. */
#ifndef AB_STAGES_H
#define AB_STAGES_H

#include "compare_parts.h"

typedef struct AbStage {
    SafetensorsEntry entry;      /* without extents of 1 in front, so that [1, T, D] and [T, D] are one shape */
    const unsigned char *values; /* may be unaligned */
    char *name;                  /* the entry's */
    void *own;                   /* values of a run; else they are the file's */
    Safetensors file;
    int order, step; /* step -1: belongs to none */
} AbStage;

typedef struct AbStages {
    AbStage *stage;
    int count, room;
    int steps; /* of the whole schedule, by the sigmas; 0: not known */
    int first; /* step that is there; -1: none */
} AbStages;

/* DIR/NAME.safetensors, one tensor NAME each. ERR_USAGE names what is missing or does not belong together, ERR_MODEL a damaged
 * file, ERR_IO one that cannot be read. ab_stages_free in any case. */
Status ab_stages_read(const char *folder, AbStages *out, Error *e);
/* A copy; then, after the last, the order. */
Status ab_stages_add(AbStages *s, const char *name, DType dtype, int rank, const int64_t *shape, const void *values, Error *e);
void ab_stages_sort(AbStages *s);
const AbStage *ab_stages_find(const AbStages *s, const char *name);
void ab_stages_free(AbStages *s);

#endif
