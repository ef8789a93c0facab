/* batch_run.h - the work of a batch once its jobs are known: which are finished already, which the model refuses, and the
 * rendering, pipeline by pipeline.
 *
 * Of a pipeline's pictures the texts of a group are encoded first and kept on the host, then the group is rendered: encoders
 * and transformer change places once a group. The pixels go to writer threads (batch_writer.h), which compress them, sum them,
 * write them under a temporary name, put them into the journal, and then give them their name.
 * Easy to get wrong: without --keep-going the first failure ends the batch, but pictures that are rendered by then are still
 * written. */
#ifndef BATCH_RUN_H
#define BATCH_RUN_H

#include "batch_items.h"
#include "batch_journal.h"
#include "batch_lines.h"
#include "batch_writer.h"
#include "hub.h"
#include "output.h"

/* Seconds by the host's clock. The window is from the first denoising step's beginning to the last one's end; `given` is what
 * of it passed in encoders, steps and decoders: a device is idle for at least the rest. */
typedef struct BatchClock {
    double start, opened;                    /* opened: spent on opening models */
    double window_from, window_to;           /* 0: no step yet */
    double given, given_before, given_after; /* so far; at both ends of the window */
    double waited;                           /* for the writers */
    double step_from, step_to;               /* of the picture in hand */
} BatchClock;

typedef struct Batch {
    const Cli *cli;
    const HubEnv *hub;
    BatchItems items;
    BatchJournal *journal; /* NULL: a dry run in a folder that is not there */
    BatchWriter *writer;
    BatchLines lines;
    pthread_mutex_t saving; /* one journal line and its rename at a time */
    BatchClock clock;
    Pipeline *pipeline;    /* the open one */
    char *folder;          /* its own; malloc'd */
    const BatchJob *open;  /* some job of it */
    char profile[128];     /* of the open one, for the pictures' metadata */
    char *reports;         /* JSON of the closed pipelines, with commas between; malloc'd */
    const BatchItem *step; /* in hand */
    const volatile int *interrupted;
} Batch;

/* Makes the pipeline that the job wants the open one. */
Status batch_run_open(Batch *b, const BatchJob *job, Error *e);
/* Renders what waits. OK also when pictures failed. */
Status batch_run_render(Batch *b, Error *e);
/* Closes the open pipeline, with its part of the report. */
Status batch_run_close(Batch *b, Error *e);
/* How the file is to be written. Latents of an earlier run are no obstacle to one that resumes. */
OutputOptions batch_run_output(const Batch *b, const BatchItem *item);
/* Whether a failure has ended the batch. */
bool batch_run_stopped(Batch *b);

#endif
