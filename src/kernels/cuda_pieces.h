/* cuda_pieces.h - our own kernels inside the library-backed CUDA ops: what stands between two products of attention,
 * and a plain convolution for shapes that cuDNN has no engine for. Not ops: arguments are trusted, the ops check.
 *
 * Easy to get wrong: rows of scores are written over in place; the flash pieces leave P unnormalised. */
#ifndef KERNELS_CUDA_PIECES_H
#define KERNELS_CUDA_PIECES_H

#include "kernels/conv_frames.h"
#include "kernels/cuda.h"

#ifdef HAVE_CUDA

#ifdef __cplusplus
extern "C" {
#endif

/* Another op of the same table, its reference. */
static inline Status cuda_pieces_op(Exec *x, OpId op, const void *args) {
    return x->ops->impl[op][x->ops->count[op] - 1]->run(x, args);
}

/* attention_eager between the products: s[heads, tq, tk], contiguous, holds r(q.k) and receives the probabilities: a's scale,
 * cap, bias and mask, then the softmax. head0: first head of s. */
Status cuda_pieces_softmax(Exec *x, Tensor s, const AttentionEager *a, int64_t head0);

/* attention by parts. s F32 [heads, n, tk], contiguous scaled scores of queries q0..q0+n; p (F32: s itself; BF16: another
 * buffer) receives exp(s - max) rounded to p's dtype, sum F32 [heads, n] the sums of the unrounded values. */
Status cuda_pieces_flash(Exec *x, Tensor p, Tensor sum, Tensor s, int64_t q0, bool causal);
/* o [n, heads, E] (any token and head strides) = r(acc / sum), acc F32 [heads, n, E] contiguous. */
Status cuda_pieces_divide(Exec *x, Tensor o, Tensor acc, Tensor sum);

/* y[n, columns, rows] = x[n, rows, columns], two-byte elements, both contiguous but for the rows of x when n is 1. */
Status cuda_pieces_turn(Exec *x, Tensor y, Tensor in);

/* y = r(conv(x)), both contiguous; nothing before or after it. One thread an output: for rare shapes only. */
Status cuda_pieces_conv(Exec *x, const ConvFrames *a);

#ifdef __cplusplus
}
#endif

#endif
#endif
