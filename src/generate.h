/* generate.h - the generate subcommand around the pipeline: seeds, names, metadata, progress, results.
 *
 * Prints through the two streams it is given and nowhere else: results to out (a path or a JSON object a line, flushed
 * after each picture), everything for people to err.
 * Easy to get wrong: all names are checked before the model is rendered, and each picture is written as soon as it is
 * made, so an interrupt or a failure keeps the pictures before it. */
#ifndef GENERATE_H
#define GENERATE_H

#include "cli.h"

/* folder: the model's resolved folder (from -m). terminal: err is one. */
Status generate_run(const Cli *cli, const char *folder, FILE *out, FILE *err, bool terminal,
                    const volatile int *interrupted, Error *e);

/* The pieces that batch shares. Refusals before any work: of the report's name; of a job's files. */
Job generate_job(const Cli *cli); /* as asked for, not resolved; strings stay the command line's */
/* What of the command line a pipeline is opened with. The caller adds model, interrupted and what is its own. */
PipelineOptions generate_pipeline(const Cli *cli);
/* Whether pipelines of the two, of one folder, would be the same. */
bool generate_same_pipeline(const PipelineOptions *a, const PipelineOptions *b);
Status generate_check_side_files(const Cli *cli, Error *e);
Status generate_check_job(const Job *job, bool overwrite, Error *e);
/* NULL: none. */
Status generate_make_dump(const char *folder, Error *e);

#endif
