/* elementwise.h - contract of the ops without a reduction: activations, residuals, time embedding, CFG, solver step,
 * latent scaling, RGB conversion.
 *
 * Tensors are F32 or BF16, all of an op's float tensors of one dtype unless said; any strides whose last dimension
 * is contiguous; outputs may alias the input of the same shape element for element. All maths in f32 with separate
 * roundings to the dtype wherever "r(...)" is written (identity for F32); no fma except where fmaf is written.
 * Promise EXACT. Unary functions on BF16 go through the 65,536-entry tables recorded on the GPU (kernels/unary.h). */
#ifndef KERNELS_ELEMENTWISE_H
#define KERNELS_ELEMENTWISE_H

#include "core/tensor.h"

typedef enum ActKind {
    ACT_NONE,
    ACT_SILU,       /* r(x / (1 + exp(-x))) */
    ACT_GELU_TANH,  /* r(0.5 x (1 + tanh(k (x + 0.044715 x^3)))), one op, f32 inside */
    ACT_GELU_ERF,   /* r(0.5 x (1 + erf(x / sqrt 2))) */
    ACT_GELU_NEW,   /* op by op as transformers' NewGELUActivation: r(0.5x) * r(1 + r(tanh(r(k r(x + r(0.044715 r(x^3))))))) */
    ACT_QUICK_GELU, /* r(x * r(sigmoid(r(1.702 x)))) */
    ACT_RELU,
    ACT_TANH,
    ACT_LEAKY_RELU, /* x where x > 0, else r(x * slope); act alone, as all that follow */
    ACT_CLAMP,      /* held to -1 to 1 */
    ACT_LOG_FLOOR,  /* r(log(r(max(x, 1e-5)))): a magnitude's logarithm */
} ActKind;

/* y = act(x). slope: of ACT_LEAKY_RELU. */
typedef struct Act { Tensor y, x; int32_t kind; float slope; } Act;
/* y = r(act(a) * b), act(a) rounded first; kinds up to ACT_TANH. */
typedef struct ActMul { Tensor y, a, b; int32_t kind; } ActMul;
/* y = r(a + b). b has a's shape, or is one row [D] for all. */
typedef struct Add { Tensor y, a, b; } Add;

/* y = r(residual + r(gate * x)); without gate r(residual + x). gate: one row [D]; per token [T,1]; or full [T,D].
 * y takes residual's strides (a transposed residual, strides (1, T), stays transposed). */
typedef struct ResidualGate { Tensor y, residual, x, gate; } ResidualGate;

/* y = r(r(x * r(1 + scale)) + shift), adaLN's second half. scale, shift: one row [D]; per frame [N,1,D] for x [N,T,D]; or
 * per token [T,D]; shift may be absent. */
typedef struct Modulate { Tensor y, x, scale, shift; } Modulate;

/* Sinusoidal embedding, cosines first: y[0,i] = r(cos(t f_i)), y[0,half+i] = r(sin(t f_i)),
 * f_i = exp(r(-ln(max_period) i) * fl32(1/half)) (PyTorch on CUDA divides by a host number so), all f32 as diffusers'
 * get_timestep_embedding(flip_sin_to_cos=True, downscale_freq_shift=0). y [1, 2 half]; t F32 [1] in StepParams: the
 * timestep after the model's own roundings. */
typedef struct TimeEmbed { Tensor y, t; float max_period; } TimeEmbed;

/* y = r(neg + r(scale * r(pos - neg))); scale F32 [1] in StepParams. */
typedef struct CfgCombine { Tensor y, pos, neg, scale; } CfgCombine;

/* cfg_extrapolate, same args: y = r(pos + r(scale * r(pos - neg))), Z-Image's form: its scale is the usual one less 1. */

/* y = x * r(m / |x|) where |x| > m = r(limit * |like|), else y = x: guidance that must not grow (cfg_normalization).
 * Euclidean norms over all elements, rounded to f32; F32 only. BOUNDED: the order of the sums is free. */
typedef struct NormLimit { Tensor y, x, like; float limit; } NormLimit;

/* y = -x, the sign bit alone. */
typedef struct Negate { Tensor y, x; } Negate;

/* Flow-match Euler step. BF16: y = r(x + r(v * r(dt))): dt is rounded to bf16 first, the sum is f32 (a zero-dim
 * tensor does not promote in PyTorch). F32: y = x + v*dt, two roundings. dt F32 [1] in StepParams. */
typedef struct EulerStep { Tensor y, x, v, dt; } EulerStep;

typedef enum DpmCoefficient {
    DPM_SIGMA,
    DPM_SAMPLE, /* sigma' / sigma, the next step's over this one's */
    DPM_DATA,   /* (1 - sigma') (exp(-h) - 1): negative */
    DPM_HALF,   /* half of it; 0: a step of first order */
    DPM_RATIO,  /* 1 / r0 */
    DPM_COEFFICIENTS
} DpmCoefficient;
/* A step of DPM-Solver++ 2M (sched_dpm.h makes k), F32 only, every product and difference rounded: the data prediction
 * m = x - k[SIGMA] v; y = k[SAMPLE] x - k[DATA] m; and where k[HALF] is not 0, y = that - k[HALF] (k[RATIO] (m - last)), last
 * being the m of the step before; otherwise last is not read. k F32 [DPM_COEFFICIENTS] in StepParams. y may alias x, m may
 * alias last. */
typedef struct DpmStep { Tensor y, m, x, v, last, k; } DpmStep;

/* y = r(r(x * mul) + add): latents before the VAE decoder (mul = fl32(1/scaling_factor), add = shift_factor). */
typedef struct Affine { Tensor y, x; float mul, add; } Affine;

typedef enum ChanForm {
    CHAN_DIVIDE_ADD,        /* y = r(r(x / a) + b) */
    CHAN_SUBTRACT_MULTIPLY, /* y = r(r(x - b) * a) */
    CHAN_MULTIPLY_ADD,      /* y = r(r(x * a) + b) */
    CHAN_SUBTRACT_DIVIDE,   /* y = r(r(x - b) / a) */
} ChanForm;
/* Latents of a video VAE, channel by channel: a, b [C] of y's dtype; x F32 or of y's dtype, first rounded to it. The
 * first two with a = r(1 / r(std)), b = r(mean), the others with a = r(std), b = r(mean): into the decoder and out of the encoder
 * as diffusers' pipelines do it for Wan's VAE, and for LTX-2's. */
typedef struct ChanAffine { Tensor y, x, a, b; int32_t form; } ChanAffine;

/* A draw from the KL encoder's posterior, scaled as the transformer takes it:
 * y = r(r(r(mean + r(std * noise)) - shift) * scale), std = r(exp(r(0.5 * min(max(logvar, -30), 20)))): diffusers'
 * DiagonalGaussianDistribution.sample(), then shift_factor and scaling_factor. exp as in Act: the recorded table in BF16. */
typedef struct KlSample { Tensor y, mean, logvar, noise; float shift, scale; } KlSample;

/* y = r(r(s * noise) + r(r(1 - s) * x)), s = r(sigma): where a run that begins from a picture starts
 * (FlowMatchEulerDiscreteScheduler.scale_noise, whose sigmas take the dtype of the latents). */
typedef struct ScaleNoise { Tensor y, x, noise; float sigma; } ScaleNoise;

/* y U8 [Y,X,3] = round_half_even(255 * clamp(r(r(0.5 x) + 0.5), 0, 1)); x [Y,X,3], or any shape and strides
 * of both. NaN gives 0. */
typedef struct ToRgb8 { Tensor y, x; } ToRgb8;

/* y I32 [1] = number of NaN and infinite elements of x. */
typedef struct CountNonfinite { Tensor y, x; } CountNonfinite;

#endif
