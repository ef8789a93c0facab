/* batch_items.h - the pictures of a batch: one for each job and seed, with its name, and the order in which they are made.
 *
 * Names lie in the batch's folder: a job's own output, or the command line's -o with the job's number in place of its counter
 * (default %04d.png, which models of clips refuse); several pictures of one job get -1, -2, ... as for generate.
 * Made one after the other are pictures of one pipeline (model, device, dtype, memory), inside it those of one quality, inside
 * it those of one shape (size, text length, passes, steps); each group stands where its first picture stands in the file.
 * Easy to get wrong: a picture's place in the file (index) decides its shard, never its place in the order. */
#ifndef BATCH_ITEMS_H
#define BATCH_ITEMS_H

#include "batch_jobs.h"
#include "core/sha256.h"
#include "names.h"

typedef enum BatchState { BATCH_WAITS, BATCH_KEPT, BATCH_DONE, BATCH_FAILED } BatchState;

typedef struct BatchItem {
    BatchJob *of;
    int index, picture; /* in the file; of its job; both from 0 */
    char *name, *path;  /* relative to the folder, and with it; malloc'd, NULL: the job is bad */
    NamesKind kind;     /* as its name says */
    Job job;            /* resolved, with the picture's own seed */
    char digest[SHA256_TEXT];
    bool replace; /* what has its name may be overwritten */
    BatchState state;
    int pipeline, quality, shape;              /* groups */
    int64_t rows;                              /* PipelineTexts.rows */
    double plan, text, denoise, decode, write; /* seconds */
    char sha256[SHA256_TEXT];                  /* when kept or done */
} BatchItem;

typedef struct BatchItems {
    BatchItem *item;
    int count;
} BatchItems;

/* All pictures of the file; jobs that are bad become one without a name. output: the command line's -o or NULL. A name
 * that cannot be makes its job bad; ERR_USAGE: two pictures of one name, or dumps of one folder. Then those of other
 * shards are left out. */
Status batch_items_make(BatchJobs *jobs, const char *folder, const char *output, int shard, int shards,
                        BatchItems *out, Error *e);
void batch_items_free(BatchItems *items);
/* Whether two jobs may share a pipeline. */
bool batch_items_same_pipeline(const BatchJob *a, const BatchJob *b);
/* Numbers pipelines by their first picture, and puts their pictures together. */
void batch_items_group(BatchItems *items);
/* Puts the resolved pictures from first on, all of one pipeline, in order. */
void batch_items_order(BatchItem *first, int count);
/* Inside one quality and shape: those with equal rows together. */
void batch_items_order_rows(BatchItem *first, int count);
/* Removes files that ended runs left under temporary names of these pictures. */
void batch_items_sweep(const BatchItems *items, const char *folder);

#endif
