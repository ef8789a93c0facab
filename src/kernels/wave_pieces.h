/* wave_pieces.h - our own kernel behind the product of conv_transpose1d on CUDA. Not an op: arguments are trusted, the
 * op checks. */
#ifndef KERNELS_WAVE_PIECES_H
#define KERNELS_WAVE_PIECES_H

#include "kernels/cuda.h"

#ifdef HAVE_CUDA

#ifdef __cplusplus
extern "C" {
#endif

/* y of a from product F32 [T, C k]: what falls on a value of y is summed, rounded, and the bias added and rounded. */
Status wave_pieces_collect(Exec *x, const ConvTranspose1d *a, const float *product);

#ifdef __cplusplus
}
#endif

#endif
#endif
