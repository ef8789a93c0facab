/* swiglu_fused.h - act_mul with SiLU on BF16 rows of one distance each (the two halves of one product's rows), 8 elements an
 * access: what the family activation runs where it fits. In the reference's bits. */
#ifndef KERNELS_SWIGLU_FUSED_H
#define KERNELS_SWIGLU_FUSED_H

#include "ops.h"

bool swiglu_fused_fits(const ActMul *a);
Status swiglu_fused(Exec *x, const ActMul *a); /* only what fits */

#endif
