/* conv_few.h - the family conv-few (BOUNDED): a decoder's first and last convolutions by kernels that read a picture once.
 * They move bytes and hardly compute; libraries take them for products of matrices, most of whose columns are padding.
 *
 *   conv2d: from 32, 64 or 128 channels to the three of a picture, and from 16 to a multiple of 32;
 *   conv3d: from 96 channels to three, a kernel of three frames: Wan's last.
 * The contract's roundings at the contract's places; only the order of a sum is not the library's. Every other shape is for
 * what stands behind in the table.
 * This header: what the family's guards and launches share. */
#ifndef KERNELS_CONV_FEW_H
#define KERNELS_CONV_FEW_H

#include "kernels/cuda.h"

#ifdef HAVE_CUDA
#ifdef __cplusplus
extern "C" {
#endif

/* 3x3, stride 1, a border of one pixel; BF16, x, y and the weight contiguous, no skip, one picture. */
bool conv_few_picture_fits(const Conv2d *a);
Status conv_few_picture(Exec *x, const Conv2d *a); /* fits: checked by the caller */

/* 3x3x3, stride 1, a border of one pixel and no frames of zeros; the rest alike. */
bool conv_few_clip_fits(const Conv3d *a);
Status conv_few_clip(Exec *x, const Conv3d *a);

#ifdef __cplusplus
}
#endif
#endif

#endif
