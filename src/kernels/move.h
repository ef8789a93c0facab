/* move.h - contract of the ops that only move numbers: copies, casts, gathers, packing. Promise EXACT; a cast rounds
 * to nearest even. Any strides unless said. */
#ifndef KERNELS_MOVE_H
#define KERNELS_MOVE_H

#include "core/tensor.h"

struct Weight;

/* y = x, same shape, any strides, dtypes F32, BF16, F16 (U8 and I32 only onto themselves). */
typedef struct Copy { Tensor y, x; } Copy;

/* y[T,D] = table[ids[t]]. ids I32 [T]. An id outside the table is ERR_MODEL on the CPU (naming id and rows); the
 * pipeline checks ids before they reach a GPU. The table is a Weight [rows, D], rounded to Weight.round. */
typedef struct Embed { Tensor y, ids; const struct Weight *table; } Embed;

/* T5 relative position bias: y[H,Q,K] = table[bucket(k - q), h], bidirectional, table Weight [buckets, H].
 * n = buckets/2; base = n if k > q; r = |k - q|; r < n/2: base + r; else base + min(n - 1,
 * n/2 + (int)(logf(r / (n/2)) / logf(max_distance / (n/2)) * (n - n/2))), f32 as transformers computes it. */
typedef struct RelBias { Tensor y; const struct Weight *table; int32_t max_distance; } RelBias;

/* FLUX packing. pack: y[(h/2)(w/2), 4C] from x[C,h,w]; token (y>>1)(w/2) + (x>>1), channel c*4 + (y&1)*2 + (x&1). */
typedef struct Pack { Tensor y, x; } Pack;
/* unpack: y[h,w,C] (channels last) from x[(h/2)(w/2), 4C]: the inverse, into the VAE's layout. */
typedef struct Unpack { Tensor y, x; } Unpack;

#endif
