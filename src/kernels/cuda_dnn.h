/* cuda_dnn.h - cuDNN graphs from plain C: tensors, operations, heuristics, plan, execution.
 *
 * A CudaDnn is built by a sequence of calls that cannot fail one by one: the first failure is kept (which call, which
 * attribute, which status), later calls do nothing, cuda_dnn_plan() reports it. Everything made belongs to the graph
 * and goes with it. Without a handle a graph can be built and finalized on a machine without a GPU: that is how its
 * descriptors are tested. Not an autotuner: the first configuration that builds is taken, for its bits;
 * others are built when one asks for them.
 * Easy to get wrong: virtual tensors need ids of their own too; the heuristics announce more results than they deliver. */
#ifndef KERNELS_CUDA_DNN_H
#define KERNELS_CUDA_DNN_H

#include "kernels/cuda.h"

#ifdef HAVE_CUDA

typedef struct CudaDnn CudaDnn;
typedef cudnnBackendDescriptor_t CudaDnnDesc;
typedef enum CudaDnnKind { DNN_REAL, DNN_VIRTUAL, DNN_BY_VALUE } CudaDnnKind;

enum { CUDA_DNN_RANK = 4, CUDA_DNN_POINTERS = 8 };

/* handle may be NULL (no GPU). format: the problem, for messages. NULL: out of memory, e is set. */
CudaDnn *cuda_dnn_begin(const CudaLibs *l, cudnnHandle_t handle, Error *e, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void cuda_dnn_free(CudaDnn *g);

/* Rank CUDA_DNN_RANK, or any rank; strides in elements, 16-byte alignment. Ids start at 1 and are unique in the graph. */
CudaDnnDesc cuda_dnn_tensor(CudaDnn *g, int64_t id, cudnnDataType_t t, CudaDnnKind kind, const int64_t *dims,
                            const int64_t *strides);
CudaDnnDesc cuda_dnn_tensor_of(CudaDnn *g, int64_t id, cudnnDataType_t t, CudaDnnKind kind, int rank, const int64_t *dims,
                               const int64_t *strides);
/* b and t may be NULL (unary; no select). axis: of GEN_INDEX, else -1. math: compute type. */
void cuda_dnn_pointwise(CudaDnn *g, cudnnPointwiseMode_t mode, cudnnDataType_t math, int64_t axis, CudaDnnDesc x,
                        CudaDnnDesc b, CudaDnnDesc t, CudaDnnDesc y);
void cuda_dnn_reduce(CudaDnn *g, cudnnReduceTensorOp_t op, CudaDnnDesc x, CudaDnnDesc y);
void cuda_dnn_matmul(CudaDnn *g, CudaDnnDesc a, CudaDnnDesc b, CudaDnnDesc c);
/* The unified attention node, cuDNN 9.13.1 and newer. */
void cuda_dnn_sdpa(CudaDnn *g, CudaDnnDesc q, CudaDnnDesc k, CudaDnnDesc v, CudaDnnDesc o, CudaDnnDesc scale);
/* dims: of space, and with three of time before it: strides and pads (pre: front, top, left; post: back, bottom, right) for
 * each. f32 sums. */
void cuda_dnn_conv(CudaDnn *g, CudaDnnDesc x, CudaDnnDesc w, CudaDnnDesc y, int dims, const int64_t *strides,
                   const int64_t *pre, const int64_t *post);

/* Finalizes the graph, and with a handle builds the first configuration of the heuristic that needs at most
 * `workspace` bytes and whose engine has none of the numerical notes in `refuse` (bits 1 << CUDNN_NUMERICAL_NOTE_*).
 * OK without a plan (cuda_dnn_ready): cuDNN has no engine for this graph, and *why, when not
 * NULL, says so; ERR_DEVICE: a call failed. */
Status cuda_dnn_plan(CudaDnn *g, unsigned refuse, size_t workspace, char *why, size_t why_size);
/* Of a graph with a plan: builds plans of more configurations, in the heuristic's order and under the same conditions, at most
 * `most` with its own, which is the first; config[i]: their places in the heuristic's list. Returns how many. */
int cuda_dnn_others(CudaDnn *g, unsigned refuse, size_t workspace, int32_t *config, int most, Error *e);
/* From now on runs take the plan of that configuration; false: it cannot be built, and nothing changes. */
bool cuda_dnn_take(CudaDnn *g, int32_t config, unsigned refuse, size_t workspace, Error *e);
/* A mark of the caller's: has it been tuned? */
bool *cuda_dnn_tuned(CudaDnn *g);
/* Has it a plan? A graph without one is worth keeping: it says that none exists. */
bool cuda_dnn_ready(const CudaDnn *g);
/* pointers[i] belongs to ids[i]: device addresses; host addresses for by-value scalars. workspace: as many bytes as the
 * plan was limited to. */
Status cuda_dnn_run(Exec *x, CudaDnn *g, void *workspace, int count, const int64_t *ids, void *const *pointers);

/* For cuda_plans_add. */
void cuda_dnn_destroy(Cuda *c, void *graph);

#endif
#endif
