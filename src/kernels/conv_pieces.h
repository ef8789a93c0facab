/* conv_pieces.h - our own kernels around cuDNN's convolutions: the pass that adds bias and skip (a bias behind a product too),
 * nearest x2 upsampling, and what upsampling by phases needs (vae_rewrite.h). Not ops: arguments are trusted, the ops check.
 *
 * Pictures are contiguous [Y,X,C] unless said; 16 bytes a thread where channels and addresses allow it.
 * Easy to get wrong: the pass works in place on the convolution's output, so bias and skip must not be part of it. */
#ifndef KERNELS_CONV_PIECES_H
#define KERNELS_CONV_PIECES_H

#include "kernels/cuda.h"

#ifdef HAVE_CUDA

#ifdef __cplusplus
extern "C" {
#endif

/* y = r(skip' + r(y + bias)), skip' = r(skip + skip_bias); each of the three may be absent. Rounding as conv.h. */
Status conv_pieces_post(Exec *x, Tensor y, Tensor bias, Tensor skip, Tensor skip_bias);
/* y [2 Y, 2 X, C] = every pixel of in [Y,X,C] (any line and pixel strides) four times. */
Status conv_pieces_double(Exec *x, Tensor y, Tensor in);
/* w [4 Cout,2,2,Cin] from k [Cout,3,3,Cin], BF16: the taps of the four phases, summed in f32, rows first, rounded once. */
Status conv_pieces_taps(Exec *x, Tensor w, Tensor k);
/* y [2 Y, 2 X, C] from in [Y+1, X+1, 4 C]: pixel (2i + a, 2j + b) is phase 2a + b at place (i + a, j + b); then bias and
 * skip as above. BF16. */
Status conv_pieces_spread(Exec *x, Tensor y, Tensor in, Tensor bias, Tensor skip, Tensor skip_bias);

#ifdef __cplusplus
}
#endif

#endif
#endif
