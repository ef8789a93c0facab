/* linear_cuda.h - products by cuBLASLt as the CUDA table's variants share them: which algorithm, and the call.
 *
 * Bits depend on the algorithm's split of K and on nothing else that was seen (5,628 products against PyTorch; 954
 * candidates of the heuristic), so a replacement of the reference's call keeps them when its split is the reference's.
 * Easy to get wrong: the reference of a strided output is the contiguous product, which is what PyTorch runs. */
#ifndef KERNELS_LINEAR_CUDA_H
#define KERNELS_LINEAR_CUDA_H

#include "kernels/cuda.h"

#ifdef HAVE_CUDA

#ifdef __cplusplus
extern "C" {
#endif

typedef enum LinearWay {
    LINEAR_FIRST,  /* the heuristic's first algorithm: the reference */
    LINEAR_PACKED, /* the first that splits K as the reference does for each part of the weight */
    LINEAR_ROWS,   /* the reference's for one row, for all rows */
    LINEAR_GELU,   /* bias and gelu_tanh in the epilogue, on the f32 sum */
} LinearWay;

typedef struct LinearHow {
    LinearWay way;
    int64_t part[LINEAR_MANY_MAX]; /* LINEAR_PACKED: rows of each part of the weight, then zeros */
} LinearHow;

/* y = x w^T, plus w's bias inside the product when `fused`. Arguments are those the ops have checked. *done false, and
 * nothing ran: there is no such algorithm for these shapes (never for LINEAR_FIRST). */
Status linear_cuda_product(Exec *x, Tensor y, Tensor in, const Weight *w, bool fused, const LinearHow *how, bool *done);

/* y = r(y + w's bias), which there is: behind a product, at the speed of a copy where y is contiguous. */
Status linear_cuda_bias(Exec *x, Tensor y, const Weight *w);

/* linear_many with BIAS_TURNED in BF16 (linear_cuda_turned.c): is a such a call, and bytes of x->scratch that it takes. */
bool linear_cuda_turns(const LinearMany *a);
size_t linear_cuda_turned_scratch(const LinearMany *a);
Status linear_cuda_turned(Exec *x, const LinearMany *a);

/* Weights of a GPU are in the compute dtype (weights_bind): a fact of the plan, so refused by guards and not mid-way. */
bool linear_cuda_plain(Tensor x, const Weight *w, char *why, size_t size);
/* Shapes and dtypes of one product, as the contract states them. */
Status linear_cuda_check(Exec *x, Tensor in, const Weight *w, Tensor y);

#ifdef __cplusplus
}
#endif

#endif
#endif
