/* pipeline_parts.h - what the files of the pipeline share: the pipeline's inside, and a job made ready for it. For pipeline*.c
 * alone; see pipeline.h.
 *
 *   pipeline.c          opening, what a job resolves to, the plan and what it makes of the device, the run
 *   pipeline_prepare.c  what a job needs before any device: its image, noise levels, tokens
 *   pipeline_tell.c     a job in words: --dry-run, texts that are cut, tokens, meta.json
 *
 * Easy to get wrong: Prepared points into itself (its run is made of its own tokens, schedules and texts): never copy one. */
#ifndef PIPELINE_PARTS_H
#define PIPELINE_PARTS_H

#include "gate.h"
#include "graph.h"
#include "kernels/cuda.h"
#include "kernels/unary.h"
#include "model.h"
#include "plan.h"
#include "stages.h"
#include "verdicts.h"

struct Pipeline {
    char *folder;
    char title[128];
    Model *model;
    Device own, *device; /* device: &own, or the caller's */
    size_t vram;         /* limit that was asked for; 0: none */
    size_t room;         /* of the device when it was opened */
    Unary unary; /* cpu */
    Cuda *cuda;  /* cuda */
    Memo memo;
    ResidencyPool pool;
    Arena work, scratch;
    Plan plan; /* of the last picture, when planned */
    bool planned, sync;
    OpTimer *timer;
    char *tuned, tuned_note[600];
    const Family *families;
    int family_count;
    Gate gate;
    Verdicts verdicts;
    char *verdict_file; /* not opened yet; NULL: none, or it is */
    char no_verdicts[700];
    bool noted;
    Graphs graphs; /* of the denoising steps, for the arenas as they are */
    Device host; /* probes of the CPU table run here: their memory is none of the plan's */
    const volatile int *interrupted;
};

/* A job, and what its run points at. */
typedef struct Prepared {
    Tokens tokens[2];
    Schedule schedule[MODEL_MAX_ROUNDS];
    const char *text[2];
    FamilySet set;
    uint8_t *image;
    Error probe_error;
    Exec device_exec;
    Run run;
} Prepared;

/* Everything of a job that needs no device. Fills *r in any case; pipeline_unprepare frees it. stages may be NULL. */
Status pipeline_prepare(Pipeline *p, const Job *job, Stages *stages, Prepared *r, Error *e);
void pipeline_unprepare(Prepared *r);
/* The prompt, or the negative one, as the model's own pipeline reads it. */
Status pipeline_tokenize(const Model *m, const Job *job, bool negative, Tokens *out, Error *e);
/* Binds the parts that the job needs and measures its run; the device is left as it is. */
Status pipeline_make_plan(Pipeline *p, const Prepared *r, Plan *plan, Error *e);
/* meta.json of a --dump; nothing without one. */
Status pipeline_write_meta(Pipeline *p, const Job *job, Stages *stages, Error *e);

#endif
