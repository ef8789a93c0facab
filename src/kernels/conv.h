/* conv.h - contract of the 2-D convolutions of the VAEs. Channels last everywhere.
 *
 * x [Y,X,Cin], y [Y',X',Cout], weight [Cout,kh,kw,Cin] (bind transposes OIHW files), zero padding. F32 or BF16, f32
 * sums. c = r(conv); CONV_BIAS: c = r(c + bias), as PyTorch with cuDNN rounds; CONV_RAW leaves the bias to the op that
 * reads y. With skip [Y',X',Cout], a resnet's other path: y = r(skip' + c), skip' = r(skip + skip_bias), skip_bias [Cout]
 * being what skip's own convolution has left (absent: skip' = skip); else y = c. Promise BOUNDED: the sums' order is
 * free, bias and skip are EXACT given c. y aliases neither x nor skip; skip may be x.
 * upsample_conv (same args): nearest x2 upsampling of x, then the 3x3 convolution; the upsampled picture need not
 * exist in memory. stride 2 with pad (0,0,1,1) is the encoder's downsampling. */
#ifndef KERNELS_CONV_H
#define KERNELS_CONV_H

#include "core/tensor.h"

struct Weight;

typedef enum ConvForm { CONV_BIAS, CONV_RAW } ConvForm;

typedef struct Conv2d {
    Tensor y, x, skip, skip_bias;
    const struct Weight *w;
    int32_t stride, pad_top, pad_left, pad_bottom, pad_right, form;
} Conv2d;

/* The depthwise half of a gated convolution, frame by frame: x [F,Y,X,2C], weight [2C,3,3,1] with bias [2C], y [F,Y,X,C]
 *   d = r(r(sum) + bias), y = r(d[..C] * r(silu(d[C..])))
 * where sum is one f32 fma a tap from 0, rows first, taps outside the frame left out (PyTorch's depthwise kernel on CUDA).
 * silu as in act (elementwise.h). Promise EXACT. y aliases nothing. */
typedef struct Dwconv3Glu {
    Tensor y, x;
    const struct Weight *w;
} Dwconv3Glu;

#endif
