/* tune_cuda.h - faster algorithms of cuBLASLt for the products of a model, with the bits of the one that is the reference.
 *
 * Convolutions likewise: the other configurations of cuDNN's heuristic.
 * The reference is the heuristic's first algorithm. A product's bits depend on how often its sum is split over K and on nothing
 * else that was seen, so only candidates of the first one's split count are tried, and a winner must also give its very bytes
 * on the call's own data, twice. `ditto bench --tune` tries; a run with --tuned only looks
 * winners up in the file that tuning wrote (core/tuned.h).
 * Not a search at plan time: without --tune or --tuned nothing of this is there.
 * Easy to get wrong: trying runs the product many times, so its output must be no input; launches are timed with the L2
 * emptied before each, which is what most products of a step find. */
#ifndef KERNELS_TUNE_CUDA_H
#define KERNELS_TUNE_CUDA_H

#include "kernels/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum TuneMode { TUNE_NONE, TUNE_USE, TUNE_TRY } TuneMode;

/* One product that was tried. */
typedef struct TuneResult {
    char label[120];
    int candidates;     /* tried, the first one included */
    double first, best; /* microseconds of the heuristic's first and of the fastest with its bits */
    bool kept;          /* best is another than the first */
} TuneResult;

/* From here on products are tried or looked up. note: one line when the file is not used, "" otherwise. ERR_DEVICE names a
 * missing library. Without HAVE_CUDA: ERR_DEVICE. */
Status tune_cuda_open(Cuda *c, TuneMode mode, const char *file, char *note, size_t size, Error *e);
/* Writes the winners. */
Status tune_cuda_save(const Cuda *c, const char *file, Error *e);
const TuneResult *tune_cuda_results(const Cuda *c, int *count);
int tune_cuda_used(const Cuda *c); /* products that run a winner; 0 without tuning */
void tune_cuda_close(Cuda *c);     /* cuda_close does it */

#ifdef HAVE_CUDA

/* A planned product and what is known of it: everything is lent. With `launch` it is another library's: candidate i runs by
 * launch(self, i), 0 being the reference, and stands in the file as value[i]. */
typedef struct TunePlan {
    const void *key; /* what tells it from other products, byte for byte */
    size_t key_size;
    const char *label;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, y;
    const void *w_data, *x_data;
    void *y_data;
    size_t row_bytes, pitch; /* of y */
    int64_t rows;
    int32_t align_w, align_x, align_y;
    cublasLtMatmulAlgo_t *algo; /* in: the reference's; out: the one to run */
    size_t *workspace;
    bool (*launch)(void *self, int candidate);
    void *self;
    const int32_t *value;
    int candidates;
    int32_t *choice; /* out: the value of the one to run; untouched when it is the reference */
} TunePlan;

enum { TUNE_CANDIDATES = 64 };

/* Tries, or only looks up? */
bool tune_cuda_tries(const Cuda *c);

/* Called once a plan, before its first run. A product that cannot be tried keeps its algorithm. */
Status tune_cuda_plan(Exec *x, const TunePlan *plan);

#endif

#ifdef __cplusplus
}
#endif
#endif
