/* linear_attention.h - contract of attention without a softmax: queries and keys of one sign, a state of E x E numbers a head
 * instead of scores (SANA-Video's SanaLinearAttnProcessor3_0).
 *
 * F32 or BF16; r(...) rounds to the dtype (identity for F32). Rotated and unrotated queries and keys both take part: the
 * state sees the rotated ones, the normaliser the others, which are of one sign.
 * Easy to get wrong: the rotation comes after the ReLU; the normaliser is rounded at every step, so in BF16 it has 8 digits. */
#ifndef KERNELS_LINEAR_ATTENTION_H
#define KERNELS_LINEAR_ATTENTION_H

#include "core/tensor.h"

/* Queries or keys: y = relu(rmsnorm{x, w, eps, RMS_TWICE}) over whole rows (norm.h), x, y [T,D], w [D]; yr = y with its heads
 * rotated, ROPE_INTERLEAVED (norm.h), by F32 cos, sin [T,E/2], D a multiple of E. y may alias x, yr nothing. Rows may be
 * strided. Promise EXACT, as the norms'. */
typedef struct NormReluRope { Tensor y, yr, x, w, cos, sin; float eps; } NormReluRope;

/* o, q, k, qr, kr, v [T,H,E], any token and head strides, E contiguous; for each head
 *   n = r(sum over tokens of k), z = r(1 / r(r(n . q) + eps)), S = sum over tokens of v kr^T, o = r((S qr) z)
 * the sums of n and of the products in f32; S and S qr stay f32, and so does their product with z (diffusers takes q, k, v
 * to f32 there: no TF32). Promise BOUNDED against fp64 with the same roundings. o aliases nothing.
 *
 * The family linear-attention-bf16 (BOUNDED, BF16 alone): the same, but S reaches the second product as two BF16 numbers,
 * r(S) + r(S - r(S)), so within 2^-18; all products are of BF16 numbers with f32 sums, which a tensor core may truncate. */
typedef struct LinearAttention { Tensor o, q, k, qr, kr, v; float eps; } LinearAttention;

#endif
