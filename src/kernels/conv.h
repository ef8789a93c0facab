/* conv.h - contract of the 2-D convolutions of the VAEs. Channels last everywhere.
 *
 * x [Y,X,Cin], y [Y',X',Cout], weight [Cout,kh,kw,Cin] (bind transposes OIHW files), zero padding. F32 or BF16, f32
 * sums. Rounding as PyTorch with cuDNN: r(r(conv) + bias). Promise BOUNDED. y must not alias x.
 * upsample_conv (same args): nearest x2 upsampling of x, then the 3x3 convolution; the upsampled picture need not
 * exist in memory. stride 2 with pad (0,0,1,1) is the encoder's downsampling. */
#ifndef KERNELS_CONV_H
#define KERNELS_CONV_H

#include "core/tensor.h"

struct Weight;

typedef struct Conv2d {
    Tensor y, x;
    const struct Weight *w;
    int32_t stride, pad_top, pad_left, pad_bottom, pad_right;
} Conv2d;

#endif
