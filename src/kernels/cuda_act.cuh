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

} /* namespace act */

#endif
