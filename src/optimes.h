/* optimes.h - `--profile`: the device's time for every op, by variant and shape.
 *
 * An OpTimer of an Exec: a mark before and one behind each run (CUDA events; where a device has no marks the host's clock,
 * which is exact where ops end before they return). Marks are read when they are collected, never between ops. Results of
 * a run do not change; its time does, by two marks an op.
 * Not for captured graphs: marks inside a capture time nothing, so whoever captures must not while a timer is set.
 * Easy to get wrong: rates are those of the useful work (opcost.h), whatever a variant really moves. */
#ifndef OPTIMES_H
#define OPTIMES_H

#include "ops.h"

#include <stdio.h>

typedef struct OpTimes OpTimes;
struct cJSON;

/* One op by one variant at one shape in one phase. */
typedef struct OpTime {
    const char *phase;
    OpId op;
    const Impl *impl;
    uint64_t signature;
    char shape[160];     /* opcost_shape */
    uint64_t count;
    double seconds;      /* of all of them */
    double bytes, flops; /* of one */
} OpTime;

Status optimes_open(OpTimes **out, Error *e);
void optimes_close(OpTimes *t); /* NULL is fine */
OpTimer *optimes_timer(OpTimes *t);
/* What is timed from here on; a literal. NULL (as opened): nothing. */
void optimes_phase(OpTimes *t, const char *phase);
/* Waits for the device and adds up what was marked. Before it, the rows lack the latest runs. */
Status optimes_collect(OpTimes *t, Error *e);
/* Begins anew: rows and what is pending are dropped. */
void optimes_forget(OpTimes *t);
/* Longest total first, as of the last collection. */
const OpTime *optimes_rows(OpTimes *t, int *count);
/* A table. runs: of the phase (steps, pictures), for the sum of one; 0: not said. */
void optimes_print(OpTimes *t, int runs, FILE *out);
/* The same as a JSON array; NULL when memory is out. */
struct cJSON *optimes_json(OpTimes *t);

#endif
