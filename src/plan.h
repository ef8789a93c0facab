/* plan.h - how a job uses memory, worked out before the first byte is allocated: work and scratch from a dry run, weights
 * from their layouts, and how the parts share a device that cannot hold them all.
 *
 * On a device that reads host memory (cpu) matrices stay in their files and nothing is shared. On any other device the plan
 * takes the first that fits its limit: KEEP, every part stays for good; else SWAP for the parts that fit alone; else STREAM,
 * with as few bytes per step through the two slots as fit. Where none of these fits the model's more frugal decodes are tried in
 * turn (ModelOps.thrifts): they may cost bits, the others do not. It decides nothing during the run: residency.h obeys it.
 * Easy to get wrong: the limit counts everything that the process holds on the device, not only what the plan reserves. */
#ifndef PLAN_H
#define PLAN_H

#include "model.h"
#include "residency.h"

enum { PLAN_BLOCKS = 256 }; /* a part with more blocks than that never streams */

typedef enum PlanMode { PLAN_KEEP, PLAN_SWAP, PLAN_STREAM } PlanMode;

typedef struct PlanPart {
    const char *name;
    PlanMode mode;
    int blocks, streamed;          /* how many it has, how many run through the slots */
    bool stream[PLAN_BLOCKS];      /* which */
    bool unused;                   /* this job does without it: all sizes are 0 */
    size_t whole, mapped;          /* bytes on the device when nothing streams; read in the files */
    size_t region, least;          /* on the device as decided; the least that is possible */
} PlanPart;

struct Plan {
    PlanPart part[MODEL_MAX_PARTS];
    int parts;
    bool maps;                     /* of the device */
    bool given;                    /* the limit is the user's */
    size_t limit;                  /* SIZE_MAX: none */
    size_t work, scratch, held;    /* on the device; held: Device.held */
    int thrift;                    /* Run.thrift that the job must run with */
    size_t result, process;        /* on the host: the pixels; the program, its libraries and tables */
    size_t peak, smallest;         /* on the device; smallest limit that would do */
    bool fits;
};

/* Runs the job dry and decides; run->thrift is not read. With run->families it runs twice: the first time to see every call,
 * then, with the families mounted that all those calls accept, for the sizes. vram: the limit, 0: `room` and what the device
 * holds already. room: Device.room before anything of the pool was reserved. */
Status plan_make(Model *m, ResidencyPool *pool, const Run *run, size_t vram, size_t room,
                 const volatile int *interrupted, Plan *out, Error *e);
/* ERR_MEMORY when the job does not fit: the parts, their sizes, and what would do. */
Status plan_check(const Plan *plan, Error *e);
/* Bytes left for the parts' regions. */
size_t plan_room(const Plan *plan);
/* The most memory the job will hold: on the device, or on a device that is the host's memory in the whole process, with
 * what it reads of mapped files. */
size_t plan_peak(const Plan *plan);
/* Memory table, then residency. */
void plan_print(const Plan *plan, FILE *out);
/* Residency alone, a line a part. */
void plan_explain(const Plan *plan, FILE *out);

#endif
