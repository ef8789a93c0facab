/* rope_split.h - contract of the rotation by halves whose angles differ from head to head (LTX-2's "split" RoPE).
 *
 * The norm of queries and keys goes over the whole row there, so it is an op of its own (rmsnorm) and this one follows it.
 * Not the rotations with one table for all heads: those are qk_norm_rope_head's (norm.h).
 * Easy to get wrong: the second product is a fused multiply-add (diffusers calls addcmul_, and PyTorch's kernel writes
 * fma(tensor1, tensor2, input) for a value of 1, on the CPU and on CUDA); diffusers has everything in f32, with one rounding at
 * the end, Lightricks' own code works in the model's dtype. */
#ifndef KERNELS_ROPE_SPLIT_H
#define KERNELS_ROPE_SPLIT_H

#include "core/tensor.h"

/* ROPE_SPLIT_ONCE is diffusers' (apply_split_rotary_emb raises to f32). ROPE_SPLIT_DTYPE is that of Lightricks' package ltx-core
 * (1.2): queries, keys and tables are of the model's dtype there, so the plain product is stored and rounded before the second
 * one is added. The caller's tables then hold values of the dtype. In F32 both are the same. */
typedef enum RopeSplitForm { ROPE_SPLIT_ONCE, ROPE_SPLIT_DTYPE } RopeSplitForm;

/* Pairs (i, i + E/2) of each head: y0 = r(fma(-s, x1, x0 c)), y1 = r(fma(s, x0, x1 c)), the plain products rounded to f32;
 * ROPE_SPLIT_DTYPE: y0 = r(fma(-s, x1, r(x0 c))), y1 = r(fma(s, x0, r(x1 c))).
 * x, y [T,H,E], F32 or BF16, any token and head strides, E contiguous; cos, sin F32 [T,H,E/2] likewise: a contiguous table
 * [T, H * E/2] split into heads (tensor_split). y may alias x. Promise EXACT. */
typedef struct RopeSplit { Tensor y, x, cos, sin; int32_t form; } RopeSplit;

/* Whether the second product is contracted. One place for both tables: 0 would be x c - s x1 with two roundings. */
enum { ROPE_SPLIT_FMA = 1 };

#endif
