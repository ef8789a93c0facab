/* attention.h - contract of the attention ops.
 *
 * q [Tq,H,E], k [Tk,Hk,E], v [Tk,Hk,E], o [Tq,H,E]: views with any token and head strides, E contiguous, one dtype
 * (F32 or BF16). H is a multiple of Hk (grouped queries: head h reads k/v head h / (H/Hk)). o must alias nothing.
 * Promise BOUNDED against fp64: error at most twice that of the naive computation in the same precision. */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

#include "core/tensor.h"

struct Weight;

typedef enum AttentionMask { MASK_NONE, MASK_CAUSAL } AttentionMask;

/* o = r(softmax(scale q.k^T + bias) v): the flash form, f32 scores, no rounding between (PyTorch's SDPA). For BF16 the
 * probabilities are rounded to bf16 before the second product, as cuDNN does. scale is 1/sqrt(E) computed in double. bias:
 * of q's dtype, for all heads, one row [Tk] for all queries or [Tq,Tk] with contiguous rows, added in f32 (a mask: 0 or a
 * large negative number, finite so that a query without keys gives numbers), or absent; with it mask is MASK_NONE. The order
 * of the sums is free; the CUDA reference keeps to that of PyTorch's kernels: cuDNN's own, and for BF16 heads of 257 to 512
 * that are multiples of 32, without bias, the one in attention_wide.h. */
typedef struct Attention { Tensor o, q, k, v, bias; float scale; int32_t mask; } Attention;

/* The eager form of transformers: s = r(r(q.k^T) * scale) (scale 1: no second rounding happens), with softcap (above 0)
 * s = r(r(tanh(r(s * fl32(1 / softcap)))) * softcap) (PyTorch on CUDA divides by a host number so), with bias
 * s = r(s + bias[h,q,k]), MASK_CAUSAL drops keys after the query and, with window (above 0), all but the last `window` of the
 * others; softmax in f32, r, product with v, r. bias [H,Tq,Tk] or absent. tanh as in Act: the recorded table in BF16. A window
 * without MASK_CAUSAL is ERR_MODEL. Softmax rows are EXACT given the scores. */
typedef struct AttentionEager {
    Tensor o, q, k, v, bias;
    float scale;
    int32_t mask;
    float softcap;
    int32_t window;
} AttentionEager;

/* The mid block of the VAEs: one head as wide as the channels, over all pixels. x (normed), residual, y [T,C],
 * weights [C,C] with biases:
 *   q, k, v = linear_many{x, wq / wk / wv, BIAS_TURNED} (PyTorch sees a transposed picture there), o = attention{q, k, v},
 *   y = r(residual + linear{o, wo, out_bias}): BIAS_FUSED (0) where PyTorch runs a linear layer, BIAS_AFTER where it runs a
 *   1x1 convolution (Wan).
 * Literally that chain of the table's references. y may alias residual, not x. */
typedef struct SelfAttention {
    Tensor y, x, residual;
    const struct Weight *wq, *wk, *wv, *wo;
    float scale;
    int32_t out_bias;
} SelfAttention;

#endif
