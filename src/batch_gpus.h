/* batch_gpus.h - one process a GPU: the same command for a part of the file each, their results merged on standard output.
 *
 * A child sees its GPU alone (CUDA_VISIBLE_DEVICES) and does one shard of this process's shard. Lines of the children's
 * standard output are passed on whole, those of their standard error with "gpu N: " before them. Without keep_going the first
 * child that fails ends the others, which still write what they have rendered.
 * Easy to get wrong: numbers in the list count what this process may see, so they go through CUDA_VISIBLE_DEVICES when that is
 * set already. */
#ifndef BATCH_GPUS_H
#define BATCH_GPUS_H

#include "core/status.h"

#include <stdbool.h>
#include <stdio.h>

enum { BATCH_GPUS_MOST = 64 };

typedef struct BatchGpus {
    const char *program; /* to run */
    int argc;
    char *const *argv;        /* of this process: PROGRAM batch ... */
    char *const *environment; /* NULL-ended */
    const char *visible;      /* CUDA_VISIBLE_DEVICES; NULL: not set */
    const char *list;         /* --gpus */
    int there;                /* GPUs that this process sees */
    int shard, shards;        /* of this process */
    bool keep_going;
    const volatile int *interrupted;
} BatchGpus;

/* The number of GPUs in `list`, each once and below `there`. ERR_USAGE. */
Status batch_gpus_count(const char *list, int there, int gpu[BATCH_GPUS_MOST], int *count, Error *e);
/* ERR_SOME: pictures failed somewhere; else the first child's code that is not 0. */
Status batch_gpus_run(const BatchGpus *g, FILE *out, FILE *err, Error *e);

#endif
