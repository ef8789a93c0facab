/* head_gate.h - contract of two small ops without a reduction: gates of attention's heads (LTX-2.3), and angles to cosines and
 * sines (rotary tables that PyTorch computes on the device).
 *
 * Promise EXACT among CUDA variants and with PyTorch on CUDA. On the CPU sigmoid comes from the recorded table (BF16); cosines
 * and sines from the C library, an f32 ulp or two from CUDA's.
 * Easy to get wrong: angles reach thousands of turns, so the reduction of the argument must be the full one. */
#ifndef KERNELS_HEAD_GATE_H
#define KERNELS_HEAD_GATE_H

#include "core/tensor.h"

/* y = r(x * r(2 * r(sigmoid(logits)))), a gate for each token and head. x, y [T,H,E], any token and head strides, E contiguous;
 * logits [T,H]. F32 or BF16, one dtype. y may alias x. */
typedef struct HeadGate { Tensor y, x, logits; } HeadGate;

/* cos = cosf(x), sin = sinf(x), F32, one shape, contiguous. cos or sin may alias x. */
typedef struct CosSin { Tensor cos, sin, x; } CosSin;

#endif
