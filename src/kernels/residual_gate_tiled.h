/* residual_gate_tiled.h - the gated residual whose residual lies transposed in memory; a part of residual_gate's fast
 * variant, not an op. */
#ifndef KERNELS_RESIDUAL_GATE_TILED_H
#define KERNELS_RESIDUAL_GATE_TILED_H

#include "kernels/cuda.h"

/* residual and y [T,D] or [B,T,D] with strides (.., 1, s), BF16, x with contiguous rows, gate absent or one row [D]. */
bool residual_gate_tiled_fits(const ResidualGate *a);
Status residual_gate_tiled(Exec *x, const ResidualGate *a); /* fits: checked by the caller */

#endif
