/* chan_norm.h - the family wan-norm (BOUNDED): chan_rmsnorm_silu of BF16 with one rounding, y = r(silu(z)), z = (x + bias) /
 * max(|x + bias|, 1e-12) sqrt(C) w in f32, the products in any order; exponential and quotient within 9 units of f32, and 2 |z|
 * more where z < 0: what is rounded off the exponent; below -80, where the exponential leaves f32, anything from there to 0. */
#ifndef KERNELS_CHAN_NORM_H
#define KERNELS_CHAN_NORM_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* BF16 alone: in F32 there is no rounding to leave out. */
bool chan_norm_keeps_accepts(const void *args, char *why, size_t size);

#ifdef HAVE_CUDA
/* chan_rmsnorm or chan_rmsnorm_silu of checked args that are not empty, by their contract (chan_norm_order.cu). */
Status chan_norm_in_order(Exec *x, const ChanRmsNorm *a, bool silu);
/* chan_rmsnorm_silu of such args in BF16 by the family's (chan_norm_keep.cu). */
Status chan_norm_keep(Exec *x, const ChanRmsNorm *a);
#endif

#ifdef __cplusplus
}
#endif

#endif
