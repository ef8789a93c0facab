/* conv.h - contract of the convolutions of the VAEs, and of what feeds the causal ones. Channels last everywhere.
 *
 * conv2d: x [Y,X,Cin], y [Y',X',Cout], weight [Cout,kh,kw,Cin] (bind transposes OIHW files), zero padding; or x [F,Y,X,Cin],
 * y [F,Y',X',Cout]: each frame alone. F32 or BF16, f32 sums. c = r(conv); CONV_BIAS: c = r(c + bias), as PyTorch with cuDNN
 * rounds; CONV_RAW leaves the bias to the op that reads y. With skip (y's shape), a resnet's other path: y = r(skip' + c),
 * skip' = r(skip + skip_bias), skip_bias [Cout] being what skip's own convolution has left (absent: skip' = skip); else y = c.
 * Promise BOUNDED: the sums' order is free, bias and skip are EXACT given c. y aliases neither x nor skip; skip may be x.
 * A NaN or an infinity of x makes the sums that have it no numbers, and may do so to others up to six pixels away: cuDNN's
 * engines by transforms work on tiles, in PyTorch's convolutions too.
 * tf32: products of F32 may round their inputs to TF32 (10 bits behind the point), as PyTorch's convolutions do on CUDA; the
 * CPU table does not. stride 2 with pad (0,0,1,1) is the encoder's downsampling.
 * upsample_conv (same args): nearest x2 upsampling of x, then the 3x3 convolution; the upsampled picture need not
 * exist in memory.
 * conv3d: x [F,Y,X,Cin], y [F',Y',X',Cout], weight [Cout,kt,kh,kw,Cin]: F' = (F + 2 pad_t - kt) / stride_t + 1: pad_t frames
 * of zeros before the first and behind the last; what else lies there is part of x (roll, below; frame_window, frames.h); pad
 * zeros at all four sides of a frame; stride 1 there. All else as conv2d. */
#ifndef KERNELS_CONV_H
#define KERNELS_CONV_H

#include "core/tensor.h"

struct Weight;

typedef enum ConvForm { CONV_BIAS, CONV_RAW } ConvForm;

typedef struct Conv2d {
    Tensor y, x, skip, skip_bias;
    const struct Weight *w;
    int32_t stride, pad_top, pad_left, pad_bottom, pad_right, form, tf32;
} Conv2d;

typedef struct Conv3d {
    Tensor y, x, skip, skip_bias;
    const struct Weight *w;
    int32_t stride_t, pad, form, tf32, pad_t;
} Conv3d;

/* The history of a causal convolution. cache [H,Y,X,C]: the last H frames that the convolution has seen; fresh: it has seen
 * none, zeros stand for them and cache is not read. window [H + F,Y,X,C] holds F new frames behind room for H. roll copies
 * the history into that room, then the last H frames of window into cache: window is the convolution's x, cache ready for the
 * next call. Both contiguous, of one dtype, apart from each other. Promise EXACT. */
typedef struct Roll { Tensor window, cache; int32_t fresh; } Roll;

/* The depthwise half of a gated convolution, frame by frame: x [F,Y,X,2C], weight [2C,3,3,1] with bias [2C], y [F,Y,X,C]
 *   d = r(r(sum of x') + bias), y = r(d[..C] * r(silu(d[C..])))
 * where sum is one f32 fma a tap from 0, rows first, taps outside the frame left out (PyTorch's depthwise kernel on CUDA).
 * before [2C]: the bias that the product in front has left to its reader, with SiLU behind it, x' = r(silu(r(x + before)));
 * absent: x' = x. silu as in act (elementwise.h). Promise EXACT. y aliases nothing. */
typedef struct Dwconv3Glu {
    Tensor y, x, before;
    const struct Weight *w;
} Dwconv3Glu;

#endif
