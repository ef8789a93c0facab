/* attention_cuda.h, attention's cuDNN graphs: apart from the op so that they can be built where there is no GPU. */
#ifndef KERNELS_ATTENTION_CUDA_H
#define KERNELS_ATTENTION_CUDA_H

#include "kernels/cuda_dnn.h"

#ifdef HAVE_CUDA

typedef enum AttentionGraph {
    ATTENTION_UNIFIED,   /* one SDPA node: no mask, equal head counts, cuDNN 9.13.1 and newer */
    ATTENTION_COMPOSITE, /* products, softmax and mask as nodes; the matcher needs the log-sum-exp among them */
} AttentionGraph;

/* Ids of the graph's real tensors and by-value scalars. */
enum { ATTENTION_ID_Q = 1, ATTENTION_ID_K, ATTENTION_ID_V, ATTENTION_ID_O, ATTENTION_ID_SCALE, ATTENTION_ID_LOW };

/* Adds a's graph to g; failures stay in g. */
void attention_cuda_graph(CudaDnn *g, const Attention *a, AttentionGraph form);
/* attention in any order of sums, by the fastest way: wide heads by parts. The reference's scratch is enough for it. */
Status attention_cuda_parts(Exec *x, const void *args);
/* Builds the plan of a call of attention, if cuDNN is to run it; nothing when it exists. From any thread, with a handle of
 * its own. */
Status attention_cuda_prepare(Cuda *c, cudnnHandle_t handle, const Attention *a, Error *e);

#endif
#endif
