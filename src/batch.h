/* batch.h - the batch subcommand: many pictures from a file of jobs, unattended, by one process or several.
 *
 * The parts: batch_jobs (the file), batch_items (pictures, names, order), batch_journal (what is finished), batch_check
 * (refusals), batch_run (the work), batch_writer and batch_save (files beside the rendering), batch_lines (what is said),
 * batch_gpus (a process a GPU).
 * Easy to get wrong: all jobs are read, resolved and their names checked before the first one runs. */
#ifndef BATCH_H
#define BATCH_H

#include "cli.h"
#include "hub.h"

/* terminal: err is one. With --keep-going ERR_SOME says that pictures failed; without, the error is the first one's. */
Status batch_run(const Cli *cli, const HubEnv *hub, FILE *out, FILE *err, bool terminal,
                 const volatile int *interrupted, Error *e);

/* Values of a job array's environment variables: SLURM_ARRAY_TASK_ID, _MIN, _COUNT and _STEP (NULL: 1). Sets cli->shard and
 * shards. ERR_USAGE names what is missing or does not fit. */
Status batch_slurm(Cli *cli, const char *id, const char *min, const char *count, const char *step, Error *e);

#endif
