/* bench.h - `ditto bench`: times of one phase of a picture, as JSON, measured on the device where it can.
 *
 *   step    one denoising step as the loop runs it: the transformer, the check for NaN, the scheduler
 *   decode  from the last latents to the picture's bytes on the host
 *   load    the transformer's weights from their files (page cache) to the device
 *   picture from a new prompt to the bytes of the PNG or MP4 on the host, all steps; by the host's clock. Without libav's
 *           encoder a clip's time ends with its frames and sound on the host: "end" says which
 *   text    the text encoders alone, on a new prompt, until the embeddings are on the host; by the host's clock
 * --tune: instead of timing, tries other algorithms for the products of one picture (kernels/tune_cuda.h).
 * Not a judge: scripts/bench.sh sets the numbers beside the reference's.
 * With `profile` ops are timed one by one too, in the runs that count; the phase then takes longer by the marks.
 * Easy to get wrong: a GPU that is busy runs at another clock than one that just woke up; hence the warm-up runs, and
 * `serve`, with which another program can alternate its own runs with these. */
#ifndef BENCH_H
#define BENCH_H

#include "pipeline.h"

#include <stdio.h>

enum { BENCH_MOST = 200, BENCH_WARMUP = 50 }; /* runs, and those before them that do not count */

typedef struct BenchOptions {
    const char *what;            /* NULL: none given */
    const char *folder, *text_encoder, *device; /* as PipelineOptions */
    DType dtype, vae_dtype;
    size_t vram;
    Quality quality;
    const char *families; /* NULL: all of the quality's */
    bool no_graphs;       /* as PipelineOptions */
    int width, height, frames;   /* 0: the model's */
    int steps;                   /* of picture; 0: the model's */
    int upscale;                 /* as Job */
    const double *guide;         /* [GUIDE_KINDS], as Job; below 0, or NULL: the model's */
    int runs, warmup;
    bool serve;
    bool profile;                /* times of the ops too (optimes.h), as a table on err */
    FILE *err;                   /* for people */
    const char *tuned, *verdicts; /* as PipelineOptions */
    bool tune;                   /* bench_tune, not a phase */
    struct Device *on;           /* as PipelineOptions */
    const volatile int *interrupted;
} BenchOptions;

/* Median, min and max of `runs` runs as one JSON object a line on out. serve: says {"ready":true} once the model was used,
 * then measures once for each line on in, until it ends. ERR_USAGE: no such phase. */
Status bench_run(const BenchOptions *o, FILE *in, FILE *out, Error *e);

#endif
