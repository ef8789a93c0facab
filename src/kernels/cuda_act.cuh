/* cuda_act.cuh - the activations of elementwise.h on the device, one text for the reference and the fast kernels.
 *
 * PyTorch's own f32 functions (expf, tanhf, erff of the CUDA maths library), rounded where the contract says so.
 * Easy to get wrong: silu is x / (1 + e^-x), not x times a reciprocal. */
#ifndef KERNELS_CUDA_ACT_CUH
#define KERNELS_CUDA_ACT_CUH

#include "kernels/cuda_rows.cuh"

namespace act {

using rows::r;

__device__ inline float silu(float v) { return v / (1.0f + expf(-v)); }
__device__ inline float gelu_tanh(float v) {
    return 0.5f * v * (1.0f + tanhf(0.79788456080286535588f * (v + 0.044715f * v * v * v)));
}
__device__ inline float gelu_erf(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678118654752440f)); }

template <typename T> __device__ inline float gelu_new(float v) {
    float u = r<T>(r<T>(v * v) * v); /* torch.pow(x, 3.0) */
    u = r<T>(0.044715f * u);
    u = r<T>(v + u);
    u = r<T>(0.79788456080286535588f * u);
    u = r<T>(tanhf(u));
    u = r<T>(1.0f + u);
    return r<T>(r<T>(0.5f * v) * u);
}

template <typename T> __device__ inline float activate(float v, int kind, float slope = 0.0f) {
    switch (kind) {
    case ACT_SILU: return r<T>(silu(v));
    case ACT_GELU_TANH: return r<T>(gelu_tanh(v));
    case ACT_GELU_ERF: return r<T>(gelu_erf(v));
    case ACT_GELU_NEW: return gelu_new<T>(v);
    case ACT_QUICK_GELU: return r<T>(v * r<T>(1.0f / (1.0f + expf(-r<T>(1.702f * v)))));
    case ACT_RELU: return v <= 0.0f ? 0.0f : v; /* NaN passes */
    case ACT_TANH: return r<T>(tanhf(v));
    case ACT_LEAKY_RELU: return v > 0.0f ? v : r<T>(v * slope);
    case ACT_CLAMP: return v < -1.0f ? -1.0f : v > 1.0f ? 1.0f : v; /* NaN passes */
    case ACT_LOG_FLOOR: return r<T>(logf(r<T>(v < 1e-5f ? 1e-5f : v)));
    default: return v;
    }
}

/* --- SiLU of numbers that are BF16 already --- */

__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float reciprocal_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* v / (1 + e) with both sides quartered, so that the reciprocal of the largest finite sum is no subnormal. */
__device__ inline float quotient(float v, float e, bool exact) {
    float t = fmaf(e, 0.25f, 0.25f), s = reciprocal_fast(t);
    /* one Newton step: the reciprocal rounded to nearest. Of an infinite t it stays 0. */
    if (exact) s = fmaf(s, fmaf(-fminf(t, 3.402823466e38f), s, 1.0f), s);
    return 0.25f * v * s;
}

/* The bits of BF16(v / (1 + expf(-v))) for every BF16 v: e is PyTorch's to within 2^-22 and its rounding, the reciprocal is
 * exact; by enumeration no v but four comes near enough to a boundary for that to tell, and for those four the product with
 * the reciprocal rounds as the quotient does, whatever neighbour of e^-v e is. */
__device__ inline float silu_of_bf16(float v) { return quotient(v, exp2_fast(v * -1.4426950408889634f), true); }
__device__ inline __nv_bfloat162 silu_of_pair(__nv_bfloat162 v) {
    return __floats2bfloat162_rn(silu_of_bf16(__low2float(v)), silu_of_bf16(__high2float(v)));
}

} /* namespace act */

#endif
