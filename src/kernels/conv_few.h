/* conv_few.h - conv2d from 32, 64 or 128 channels to the three of a picture, and from 16 to a multiple of 32: the last
 * convolution of a decoder and its first; a part of the family vae-kl-rewrite, not an op. */
#ifndef KERNELS_CONV_FEW_H
#define KERNELS_CONV_FEW_H

#include "kernels/cuda.h"

#ifdef HAVE_CUDA
#ifdef __cplusplus
extern "C" {
#endif

/* 3x3, stride 1, a border of one pixel; BF16, x, y and the weight contiguous, no skip, one picture. */
bool conv_few_fits(const Conv2d *a);
Status conv_few_run(Exec *x, const Conv2d *a); /* fits: checked by the caller */

#ifdef __cplusplus
}
#endif
#endif

#endif
