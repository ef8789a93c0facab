/* stack_norm.h - contract of the norms over a stack of hidden states, one beside the other: what LTX-2 does with a text encoder
 * before it projects (diffusers' per_layer_masked_mean_norm and per_token_rms_norm).
 *
 * x, y [T,D,L], contiguous, F32 or BF16: token, channel, layer, the layer fastest, so that [T, D L] is what the projection
 * reads. The first `first` tokens are padding (it stands on the left): they count in no statistic and y is 0 there, whatever x
 * holds. y may alias x. r(...) rounds to the dtype (identity for F32). 0 <= first < T.
 * Promise EXACT among CUDA variants and with eager PyTorch on the reference profile, whose order of sums the CUDA table keeps;
 * the CPU table sums in double, and where that changes a rounded statistic all that depends on it moves with it.
 * Easy to get wrong: the mean and the quotient are f32 in a BF16 model, the range and its eps are not. */
#ifndef KERNELS_STACK_NORM_H
#define KERNELS_STACK_NORM_H

#include "core/tensor.h"

/* Each layer l by its mean and range over all n real tokens and channels:
 *   y = r(((x - mean) / range) * scale), mean = r(sum x) / (n D + eps), range = r(r(max x - min x) + eps)
 * the sums in f32, and all f32 that is not written as rounded. The reduction order is that of one prompt (a sum over two
 * dimensions that gives L numbers). */
typedef struct StackRangeNorm { Tensor y, x; float eps, scale; int32_t first; } StackRangeNorm;

/* Each token and layer by the root of its mean square over the channels, all in the dtype:
 *   y = r(x * r(rsqrt(r(r(mean of r(x x)) + eps)))), rsqrt as in Act: the recorded table in BF16. */
typedef struct StackRmsNorm { Tensor y, x; float eps; int32_t first; } StackRmsNorm;

#endif
