/* rms_modulate.h - contract of the composites around LTX-2's norms: the weightless norm of a block with its modulation, the gated
 * residual before it, and the norm of queries and keys with the rotation behind it.
 *
 * All are chains of other ops of the table, bit for bit, and that is their reference (rms_modulate.c); rows are the last
 * dimension, contiguous. F32 or BF16. Promise EXACT, as the ops' they are made of.
 * Easy to get wrong: the block's norm rounds before it is modulated (three more roundings), the norm of queries and keys
 * rounds once, weight included; both modulations of cross-modal attention are of one normed row. */
#ifndef KERNELS_RMS_MODULATE_H
#define KERNELS_RMS_MODULATE_H

#include "core/tensor.h"

/* n = rmsnorm{x, no weight, RMS_TWICE, eps} (norm.h); y = modulate{n, scale, shift}, y2 = modulate{n, scale2, shift2}
 * (elementwise.h). scale, shift, scale2, shift2: one row [D] each. Both of a pair may be absent: then y = n; without y2 there
 * is no second pair. y may alias x, y2 aliases nothing. */
typedef struct RmsModulate { Tensor y, y2, x, scale, shift, scale2, shift2; float eps; } RmsModulate;

/* h = residual_gate{residual, x, gate} (elementwise.h; the gate one row or absent), y and y2 = rms_modulate of h. h may alias
 * residual, y may alias x. */
typedef struct ResidualRmsModulate {
    Tensor h, y, y2, residual, x, gate, scale, shift, scale2, shift2;
    float eps;
} ResidualRmsModulate;

/* Queries, and keys that the same angles turn (absent where they have others): yq = rope_split{rmsnorm{q, wq, RMS_ONCE, eps}},
 * yk likewise. q, yq, k, yk [T,D], the norm over whole rows, then `heads` heads of a row rotated by F32 cos, sin [T, D/2]
 * (rope_split.h) in this form; without them the norm alone. wq, wk [D]. Rows may be strided, yq may alias q and yk k. */
typedef struct NormRopeSplit { Tensor yq, yk, q, k, wq, wk, cos, sin; float eps; int32_t heads, form; } NormRopeSplit;

#endif
