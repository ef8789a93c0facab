/* linear_attention_pieces.h - our own kernels between the library products of linear attention on CUDA. Not ops: arguments
 * are trusted, the ops check.
 *
 * Easy to get wrong: the number of blocks of the sum is part of its order, and so of the bits (PyTorch 2.11's reduction over
 * rows of contiguous columns). */
#ifndef KERNELS_LINEAR_ATTENTION_PIECES_H
#define KERNELS_LINEAR_ATTENTION_PIECES_H

#include "kernels/cuda.h"

#ifdef HAVE_CUDA

#ifdef __cplusplus
extern "C" {
#endif

int linear_attention_sum_blocks(int sm_count, int64_t tokens, int64_t columns);
/* n [H E] = r(sum over tokens of k [T,H,E]), any token and head strides; part: F32 [blocks, H E] of room. */
Status linear_attention_sum(Exec *x, Tensor n, Tensor part, Tensor k);
/* dot [H,T] = r(n . q), n [H,E], q [T,H,E] with any token and head strides: the library's product. */
Status linear_attention_dots(Exec *x, Tensor dot, Tensor n, Tensor q);
/* o [T,H,E] (any token and head strides) = r(u * r(1 / r(dot + eps))), u F32 [H,E,T], dot [H,T] of o's dtype. */
Status linear_attention_normalise(Exec *x, Tensor o, Tensor u, Tensor dot, float eps);

#ifdef __cplusplus
}
#endif

#endif
#endif
