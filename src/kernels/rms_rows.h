/* rms_rows.h - rmsnorm of BF16 in the order of the mean chain, each row read once: what the CUDA table's rmsnorm runs where it
 * fits. In the bits of norm.cu's general kernel. */
#ifndef KERNELS_RMS_ROWS_H
#define KERNELS_RMS_ROWS_H

#include "ops.h"

bool rms_rows_fits(const RmsNorm *a);
Status rms_rows(Exec *x, const RmsNorm *a); /* only what fits */

#endif
