/* noise.h - the noise that a seed gives, shown or written: `ditto noise`.
 *
 * Of a shape: one draw of rng.h. Of a model: what its noise() draws for a job, caught as the stage of that name, so it is
 * the file that --dump would write and that --inject noise=FILE takes.
 * Easy to get wrong: the dtype is part of the draw (rng.h), and which one a model draws in is the model's own choice. */
#ifndef NOISE_H
#define NOISE_H

#include "pipeline.h"

typedef struct NoiseOptions {
    uint64_t seed;
    int rank;
    int64_t shape[TENSOR_MAX_RANK]; /* without a pipeline */
    DType dtype;                    /* the same; BF16 or F32 */
    const char *output;             /* safetensors file; NULL: none */
    bool overwrite, json;
} NoiseOptions;

/* Shape, dtype, SHA-256, mean, standard deviation and first values to out. p NULL: of the shape; else of the job, on the
 * CPU whatever the pipeline's device. */
Status noise_print(const NoiseOptions *o, Pipeline *p, Job *job, FILE *out, Error *e);

#endif
