/* norm.h - contract of the normalisations and of the composites that start with one.
 *
 * Rows are the last dimension, contiguous; other dimensions may be strided. F32 or BF16, statistics in f32.
 * r(...) rounds to the dtype (identity for F32). Promise EXACT among CUDA variants and with eager PyTorch on the
 * reference profile (reduction order: LIBRARIES, "Norms"); the CPU table sums in its own order and may differ in at
 * most 1e-3 of the elements by one bf16 ulp. groupnorm is BOUNDED. Outputs may alias x where shapes agree. */
#ifndef KERNELS_NORM_H
#define KERNELS_NORM_H

#include "core/tensor.h"

/* y = r(fma(w, n, b)), n = (x - mean) rsqrt(var + eps), var = mean((x - mean)^2). w, b [D]. */
typedef struct LayerNorm { Tensor y, x, w, b; float eps; } LayerNorm;

/* adaLN: y = r(r(r(n) * r(1 + scale)) + shift), n as above without affine. scale, shift: one row [D], or [T,D]; shift
 * may be absent. */
typedef struct LnModulate { Tensor y, x, scale, shift; float eps; } LnModulate;

/* A gated residual and the adaLN after it: h = residual_gate(residual, x, gate) (elementwise.h), y = ln_modulate(h), with
 * all roundings of both. h takes residual's place and may alias it; y may alias x. */
typedef struct ResidualGateLnModulate { Tensor h, y, residual, x, gate, scale, shift; float eps; } ResidualGateLnModulate;

typedef enum RmsForm {
    RMS_ONCE,  /* torch.nn.RMSNorm: r(w * (x * rsqrt(mean(x^2) + eps))) */
    RMS_TWICE, /* T5LayerNorm: r(r(x * rsqrt(mean(x^2) + eps)) * w) */
    RMS_PLUS_ONE, /* Gemma's: r((x * rsqrt(mean(x^2) + eps)) * (1 + w)), the sum in f32; w is not optional */
    RMS_NONE,  /* no norm, no weight: for qk_norm_rope_head alone */
} RmsForm;
/* w [D] or absent. */
typedef struct RmsNorm { Tensor y, x, w; float eps; int32_t form; } RmsNorm;

/* y = r(r(r(n) * w) * r(1 + scale)), n = x * rsqrt(mean(x^2) + eps): RMS_TWICE, then adaLN's scale (Z-Image). scale: one
 * row [D]; absent: plain RMS_TWICE. w [D]. */
typedef struct RmsNormScale { Tensor y, x, w, scale; float eps; } RmsNormScale;

/* y = r(residual + r(r(tanh(gate)) * r(r(n) * w))), n as above of x: a sublayer's output normed, gated and added. gate: one
 * row [D], before its tanh (BF16: the recorded table); absent: y = r(residual + r(r(n) * w)). w [D]. y may alias
 * residual. */
typedef struct ResidualNorm { Tensor y, residual, x, w, gate; float eps; } ResidualNorm;

/* residual_norm, and rmsnorm_scale of what it gave: y as there, n = rmsnorm_scale{y, w_next, scale}; the two ops one after
 * the other, bit for bit. y may alias residual, n may alias x. */
typedef struct ResidualNormScale { Tensor y, n, residual, x, w, gate, w_next, scale; float eps; } ResidualNormScale;

typedef enum RopeForm {
    ROPE_NONE,
    ROPE_INTERLEAVED, /* pairs (2i, 2i+1): y0 = x0 c - x1 s, y1 = x1 c + x0 s; f32 products and sum rounded
                         separately (no fma), one rounding to the dtype */
    ROPE_HALF,        /* pairs (i, i + E/2) */
    ROPE_HALF_EAGER,  /* the same pairs as eager transformers rotates them: y0 = r(r(x0 c) + r(-x1 s)), y1 = r(r(x1 c) +
                         r(x0 s)); the tables hold values of the dtype */
    ROPE_COMPLEX,     /* pairs (2i, 2i+1) as one complex product of PyTorch on CUDA, which the compiler contracts: y0 =
                         r(fma(x0, c, -(x1 s))), y1 = r(fma(x0, s, x1 c)) (read from the machine code of its operator) */
} RopeForm;
/* Per-head QK norm, then RoPE: q [T,H,E], k [T,Hk,E] (any token and head strides), yq, yk likewise (rows of a joint
 * buffer). n = the norm of `form` with wq, wk [E], rounded (RMS_NONE: q and k as they are, wq and wk absent); then RoPE with
 * F32 cos, sin [T, E/2] (absent: ROPE_NONE). */
typedef struct QkNormRopeHead { Tensor yq, yk, q, k, wq, wk, cos, sin; float eps; int32_t rope, form; } QkNormRopeHead;

/* x, y [Y,X,C] channels last; C/groups channels a group, statistics over Y, X and the group of x' = r(x + bias), bias [C]
 * being what a convolution has left to its reader (CONV_RAW); absent: x' = x. PyTorch's CUDA kernels keep eps and the
 * statistics in the input's dtype and then fold them in f32 (group_norm_kernel.cu: RowwiseMoments, ComputeFusedParams):
 *   m = r(mean), s = r(1 / sqrt(var + r(eps))), p = s * w, q = fmaf(-p, m, b); y = r(fmaf(p, x', q))
 * w, b [C] of x's dtype. groupnorm_silu (same args): y = r(silu(r(fmaf(p, x', q)))). The order of the sums
 * is free; the CUDA reference in BF16 gives the m and s of PyTorch's (groupnorm_exact.cuh). */
typedef struct GroupNorm { Tensor y, x, w, b, bias; float eps; int32_t groups; } GroupNorm;

/* The norm of Wan's VAE, over the channels of each pixel; x, y [..,C], w (gamma) [C]; x' = r(x + bias) as in groupnorm:
 *   n = r(x' / max(sqrt(sum x'^2), 1e-12)) (F.normalize, in f32), y = r(r(n * fl32(sqrt C)) * w).
 * chan_rmsnorm_silu (same args): y = r(silu(r(r(n * fl32(sqrt C)) * w))). BOUNDED: the order of the sum is free; the CUDA
 * reference sums as PyTorch's reduction over dimension 1 does (chan_norm_order.cu). */
typedef struct ChanRmsNorm { Tensor y, x, w, bias; } ChanRmsNorm;

#endif
