/* batch_jobs.h - the jobs of a file: one JSON object a line, or one prompt a line, as options on top of the command line's.
 *
 * A name that ends with .txt is a file of prompts, one that ends with .jsonl, .ndjson or .json is one of objects, and any
 * other is what its first character that is no white space says ('{': objects). Lines without characters are skipped; in a
 * file of prompts every other line is a prompt as it stands. A line end may be CR LF, the last may be missing, and a byte
 * order mark before the first line is skipped.
 * An object's keys are long names of options, with '-' or '_'; a value is a string, a number or true/false, and null leaves the
 * default. Numbers above 2^53 (seeds) are written as strings.
 * Knows no model and no folder: a job that the model refuses is found later. A bad line is no error here: it becomes a job
 * whose `bad` says why.
 * Easy to get wrong: jobs are numbered from 1 without the skipped lines, and `line` counts them all. */
#ifndef BATCH_JOBS_H
#define BATCH_JOBS_H

#include "cli.h"
#include "core/json.h"

typedef struct BatchJob {
    int number, line;
    Job job;                             /* as asked for, not resolved */
    PipelineOptions open;       /* of its pipeline, without the folder */
    const char *model, *output; /* model as -m; output NULL: the job has none of its own */
    bool no_metadata, seed_given;
    bool clips; /* its model makes them; batch.c finds out for jobs without a name */
    int count;  /* pictures or clips */
    Mp4Codec codec; /* of video files, as OutputOptions */
    int crf;
    bool drawn; /* seed holds the one that was drawn for its first picture */
    uint64_t seed;
    Error *bad;     /* malloc'd; NULL: the job can be read */
    Json *tree;     /* strings point into it; NULL in a file of prompts */
    Inject *inject; /* malloc'd; names from defaults on are malloc'd too */
    int inherited;  /* how many of them are the command line's */
} BatchJob;

typedef struct BatchJobs {
    BatchJob *job;
    int count;
    char *text; /* the file */
} BatchJobs;

/* ERR_IO, ERR_MEMORY; ERR_USAGE: no job in it. batch_jobs_free in any case. Strings of defaults outlive the jobs. */
Status batch_jobs_read(const char *path, const Cli *defaults, BatchJobs *out, Error *e);
/* The same from memory: text is malloc'd and taken over, text[size] is 0; path is its name. */
Status batch_jobs_parse(char *text, size_t size, const char *path, const Cli *defaults, BatchJobs *out,
                        Error *e);
void batch_jobs_free(BatchJobs *jobs);

#endif
