/* ab_sides.h - one side of a comparison: a folder of stages, or a run with its own options on top of the common ones.
 *
 * A run's pipeline may be shared with the other side (ab_sides_shared) or be its own; a folder holds one run or, as DIR/0001,
 * DIR/0002 ..., one for each prompt. Compares nothing.
 * Easy to get wrong: runs are `fresh`, since the other side's text embeddings would stand in for this side's; every stage is
 * copied to the host as it passes, equally on both sides, and what is compared is compared later, or times would hold it. */
#ifndef AB_SIDES_H
#define AB_SIDES_H

#include "ab_stages.h"
#include "cli.h"
#include "hub.h"
#include "progress.h"

enum { AB_TEXT, AB_DENOISE, AB_DECODE, AB_ALL, AB_PHASES };

/* What a side gives for one prompt. */
typedef struct AbShot {
    AbStages stages;
    Json *meta; /* its parameters (ab_meta.h); NULL: not known */
    char *where; /* the folder; NULL: a run */
    bool timed;
    double seconds[AB_PHASES];
} AbShot;
void ab_shot_free(AbShot *s);

/* Of what a side makes; 0: not known, of a reference that lacks the stages. */
typedef struct AbSize {
    int steps, width, height;
} AbSize;
AbSize ab_size_of(const AbShot *s);
/* ERR_USAGE: [0] is known and another than [1]. */
Status ab_size_check(const AbSize size[2], const char *const name[2], Error *e);

typedef struct AbSide {
    const char *name;   /* "a", "b"; of folders "reference", "output" */
    const char *folder; /* of stages; NULL: a run */
    bool many;          /* folder/0001, ... */
    int folders;        /* then: how many, without a gap */
    const char *options; /* as typed; NULL: none */
    Cli cli;            /* of a run */
    char *words;        /* what strings of cli point into */
    int inherited;      /* injected stages that are the command line's */
    char *model;        /* folder */
    Pipeline *pipeline; /* NULL: not open */
} AbSide;

/* What all shots of a comparison share. */
typedef struct AbScene {
    const char *const *prompt; /* NULL: the command line's, or the reference's own */
    int count;
    uint64_t seed; /* drawn, where none is given */
    FILE *err;     /* for people; NULL: quiet */
    ProgressLine *line;
    const volatile int *interrupted;
} AbScene;

/* ERR_USAGE: options that cannot be read or that no side of its own may have. close it in any case. */
Status ab_side_folder(AbSide *s, const char *name, const char *folder, Error *e);
Status ab_side_run(AbSide *s, const char *name, const Cli *common, const char *options, Error *e);
void ab_side_close(AbSide *s);

/* The model's folder; then the pipeline. dtype: where the options give none. */
Status ab_side_find(AbSide *s, const HubEnv *env, Error *e);
Status ab_side_open(AbSide *s, const volatile int *interrupted, Error *e);
/* One pipeline can serve both. */
bool ab_sides_shared(const AbSide *a, const AbSide *b);

/* What the run of prompt k, from 0, will be. p: the pipeline. reference: its parameters are the defaults; NULL: none. Strings
 * are the side's and the reference's. */
Status ab_side_job(AbSide *s, const Pipeline *p, const AbScene *scene, int k, const AbShot *reference, Job *job, Error *e);
/* Prompt k. p: the pipeline, of a run. */
Status ab_side_shoot(AbSide *s, Pipeline *p, const AbScene *scene, int k, const AbShot *reference, AbShot *out, Error *e);
/* Prompt 0, rendered and thrown away. */
Status ab_side_warm(AbSide *s, Pipeline *p, const AbScene *scene, const AbShot *reference, Error *e);

#endif
