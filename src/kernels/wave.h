/* wave.h - contract of what the vocoders do to signals beside their convolutions along time (those are conv.h's, by pictures of
 * one column or, dilated, of several). Signals are [time, channels], channels last and contiguous, rows at any one distance.
 *
 * F32 or BF16, all of a call's tensors of one dtype; r(...) rounds to it (identity for F32); maths in f32.
 * Easy to get wrong: what lies outside a signal is zero to a transposed convolution, and the outermost value to the filters of
 * a change of rate; those multiply by the ratio after their sum was rounded. */
#ifndef KERNELS_WAVE_H
#define KERNELS_WAVE_H

#include "core/tensor.h"

struct Weight;

enum { WAVE_TAPS = 64 }; /* of a filter, at most */

/* y[t,c] = r(r(sum) + bias[c]), the sum over all i, j and input channels n with i stride + j - pad = t of x[i,n] w[n,c,j]:
 * PyTorch's ConvTranspose1d. x [T,N], y [(T - 1) stride - 2 pad + k, C], weight [N,C,k] as files have it. BOUNDED: the order of
 * the sum is free. */
typedef struct ConvTranspose1d {
    Tensor y, x;
    const struct Weight *w;
    int32_t stride, pad;
} ConvTranspose1d;

/* y = r((a + b + c) fl32(1/3)), the sum in f32 from the left: the mean of a stack of three as PyTorch's CUDA kernel takes it.
 * All of one shape. EXACT. */
typedef struct Mean3 { Tensor y, a, b, c; } Mean3;

/* y[t] = r(ratio r(sum of f[j] x[(t + crop - j) / ratio - pad])), over the j that divide, x's index held to 0 .. T - 1: x [T,C]
 * at `ratio` times its rate, y [ratio T, C]. filter [K] of x's dtype. diffusers' UpSample1d: pad = K/ratio - 1 and
 * crop = pad ratio + (K - ratio)/2 of its Kaiser filters. BOUNDED. */
typedef struct FirUp {
    Tensor y, x, filter;
    int32_t ratio, pad, crop;
} FirUp;

/* An anti-aliased snake (diffusers' AntiAliasAct1d of a SnakeBeta): u = fir_up(x) of ratio 2 with filter `up` (Kaiser's pad and
 * crop), then at the double rate
 *   s = r(u + r(i r(v v))), v = r(sin(r(u r(exp(alpha[c]))))), i = r(1 / r(r(exp(beta[c])) + 1e-9)),
 * then y[t] = r(sum of down[j] s[2 t + j - (K/2 - 1)]), s's index held to 0 .. 2T - 1. up, down [K], K even;
 * alpha, beta [C]; all of x's dtype. exp and sin of BF16 are the recorded tables on the CPU table (kernels/unary.h).
 * y aliases nothing. BOUNDED: the order of the two sums is free. */
typedef struct SnakeFiltered { Tensor y, x, alpha, beta, up, down; } SnakeFiltered;

/* y[t,k] = r(sqrt(r(r(a a) + r(b b)))), a = x[t,k], b = x[t, n + k]: x [T,2n], y [T,n]. EXACT. */
typedef struct Magnitude { Tensor y, x; } Magnitude;

#endif
