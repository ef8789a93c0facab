/* elementwise.cu - CUDA reference of elementwise.h. The same formulas as the CPU table, with PyTorch's own f32 functions
 * (expf, tanhf, erff as the CUDA maths library has them), one kernel an op.
 *
 * Easy to get wrong: a division by a constant in PyTorch is a multiplication by its f32 reciprocal. */
#include "kernels/cuda_act.cuh"
#include "kernels/registry.h"

using rows::r;

namespace {

/* --- activations --- */

using act::activate;

template <typename T> struct ActF {
    static constexpr int INPUTS = 1;
    int kind;
    float slope;
    __device__ float operator()(float a, float, float) const { return activate<T>(a, kind, slope); }
};

template <typename T> struct ActMulF {
    static constexpr int INPUTS = 2;
    int kind;
    __device__ float operator()(float a, float b, float) const { return activate<T>(a, kind) * b; }
};

Status act_cuda(Exec *x, const void *args) {
    const Act *a = (const Act *)args;
    return rows::map<ActF>(x, "act", a->y, a->x, Tensor{}, Tensor{}, a->kind, a->slope);
}

Status act_mul_cuda(Exec *x, const void *args) {
    const ActMul *a = (const ActMul *)args;
    return rows::map<ActMulF>(x, "act_mul", a->y, a->a, a->b, Tensor{}, a->kind);
}

/* --- sums --- */

template <typename T> struct AddF {
    static constexpr int INPUTS = 2;
    __device__ float operator()(float a, float b, float) const { return a + b; }
};

template <typename T> struct GateF {
    static constexpr int INPUTS = 3;
    bool gated;
    __device__ float operator()(float residual, float v, float gate) const {
        return residual + (gated ? r<T>(gate * v) : v);
    }
};

Status add_cuda(Exec *x, const void *args) {
    const Add *a = (const Add *)args;
    return rows::map<AddF>(x, "add", a->y, a->a, a->b, Tensor{});
}

Status residual_gate_cuda(Exec *x, const void *args) {
    const ResidualGate *a = (const ResidualGate *)args;
    return rows::map<GateF>(x, "residual_gate", a->y, a->residual, a->x, a->gate, a->gate.rank != 0);
}

template <typename T> struct ModulateF {
    static constexpr int INPUTS = 3;
    bool shifted;
    __device__ float operator()(float v, float scale, float shift) const {
        float scaled = v * r<T>(1.0f + scale);
        return shifted ? r<T>(scaled) + shift : scaled;
    }
};

Status modulate_cuda(Exec *x, const void *args) {
    const Modulate *a = (const Modulate *)args;
    return rows::map<ModulateF>(x, "modulate", a->y, a->x, a->scale, a->shift, a->shift.rank != 0);
}

/* --- step values read from device memory --- */

template <typename T> struct CfgF {
    static constexpr int INPUTS = 2;
    const float *scale;
    __device__ float operator()(float pos, float neg, float) const { return neg + r<T>(*scale * r<T>(pos - neg)); }
};

template <typename T> struct EulerF {
    static constexpr int INPUTS = 2;
    const float *dt;
    __device__ float operator()(float v, float velocity, float) const { return v + r<T>(velocity * r<T>(*dt)); }
};

Status cfg_combine_cuda(Exec *x, const void *args) {
    const CfgCombine *a = (const CfgCombine *)args;
    return rows::map<CfgF>(x, "cfg_combine", a->y, a->pos, a->neg, Tensor{}, (const float *)a->scale.data);
}

Status euler_step_cuda(Exec *x, const void *args) {
    const EulerStep *a = (const EulerStep *)args;
    return rows::map<EulerF>(x, "euler_step", a->y, a->x, a->v, Tensor{}, (const float *)a->dt.data);
}

template <typename T> struct AffineF {
    static constexpr int INPUTS = 1;
    float mul, add;
    __device__ float operator()(float v, float, float) const { return r<T>(v * mul) + add; }
};

Status affine_cuda(Exec *x, const void *args) {
    const Affine *a = (const Affine *)args;
    return rows::map<AffineF>(x, "affine", a->y, a->x, Tensor{}, Tensor{}, a->mul, a->add);
}

template <typename T> struct KlSampleF {
    static constexpr int INPUTS = 3;
    float shift, scale;
    __device__ float operator()(float mean, float logvar, float noise) const {
        float half = r<T>(0.5f * (logvar < -30.0f ? -30.0f : logvar > 20.0f ? 20.0f : logvar)); /* NaN passes */
        float drawn = r<T>(mean + r<T>(r<T>(expf(half)) * noise));
        return r<T>(drawn - shift) * scale;
    }
};

template <typename T> struct ScaleNoiseF {
    static constexpr int INPUTS = 2;
    float sigma;
    __device__ float operator()(float v, float noise, float) const {
        float s = r<T>(sigma);
        return r<T>(s * noise) + r<T>(r<T>(1.0f - s) * v);
    }
};

Status kl_sample_cuda(Exec *x, const void *args) {
    const KlSample *a = (const KlSample *)args;
    return rows::map<KlSampleF>(x, "kl_sample", a->y, a->mean, a->logvar, a->noise, a->shift, a->scale);
}

Status scale_noise_cuda(Exec *x, const void *args) {
    const ScaleNoise *a = (const ScaleNoise *)args;
    return rows::map<ScaleNoiseF>(x, "scale_noise", a->y, a->x, a->noise, Tensor{}, a->sigma);
}

template <typename T> __global__ void k_time_embed(T *y, const float *t, int half, float log_period) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= half) return;
    /* exponent = (-ln(period) * i) / half: PyTorch divides by a host scalar, that is, multiplies by its reciprocal */
    float f = expf(-log_period * (float)i * (1.0f / (float)half)), a = *t * f;
    y[i] = rows::narrow<T>(cosf(a));
    y[half + i] = rows::narrow<T>(sinf(a));
}

Status time_embed_cuda(Exec *x, const void *args) {
    const TimeEmbed *a = (const TimeEmbed *)args;
    int half = (int)(a->y.shape[a->y.rank - 1] / 2), blocks = (half + 127) / 128;
    float log_period = (float)log((double)a->max_period);
    const float *t = (const float *)a->t.data;
    if (a->y.dtype == BF16)
        k_time_embed<<<blocks, 128, 0, x->cuda->stream>>>((__nv_bfloat16 *)a->y.data, t, half, log_period);
    else
        k_time_embed<<<blocks, 128, 0, x->cuda->stream>>>((float *)a->y.data, t, half, log_period);
    return cuda_launched(x, "time_embed");
}

/* --- to the outside --- */

/* Numbers of a thread where they lie without gaps: a division an element would cost more than its bytes. */
constexpr int DENSE = 8;

bool dense(const Tensor &t) { return tensor_contiguous(t) && (uintptr_t)t.data % 16 == 0; }

template <typename T> __device__ inline uint8_t byte_of(float v) {
    v = r<T>(r<T>(0.5f * v) + 0.5f);
    v = v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; /* NaN gives 0 */
    return (uint8_t)rintf(255.0f * v);
}

template <typename T> __global__ void k_to_rgb8(rows::View y, rows::View in, rows::Walk w) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= w.rows * w.cols) return;
    int64_t row = i / w.cols, col = i % w.cols;
    ((uint8_t *)y.data)[rows::offset(y, w, row) + col * y.last] =
        byte_of<T>(rows::widen<T>(((const T *)in.data)[rows::offset(in, w, row) + col * in.last]));
}

template <typename T> __global__ void k_to_rgb8_dense(uint8_t *y, const T *in, int64_t n) {
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * DENSE;
    if (i + DENSE <= n) {
        float v[DENSE];
        rows::Pack<uint8_t, DENSE> out;
        rows::load<T, DENSE>(v, in + i);
#pragma unroll
        for (int k = 0; k < DENSE; k++) out.v[k] = byte_of<T>(v[k]);
        *reinterpret_cast<rows::Pack<uint8_t, DENSE> *>(y + i) = out;
    } else {
        for (; i < n; i++) y[i] = byte_of<T>(rows::widen<T>(in[i]));
    }
}

Status to_rgb8_cuda(Exec *x, const void *args) {
    const ToRgb8 *a = (const ToRgb8 *)args;
    rows::Walk w = rows::walk_of(a->y);
    rows::View y = rows::view_of(a->y, w), in = rows::view_of(a->x, w);
    unsigned blocks = (unsigned)((w.rows * w.cols + 255) / 256), few = (blocks + DENSE - 1) / DENSE;
    int64_t n = w.rows * w.cols;
    if (!blocks) return OK;
    if (dense(a->y) && dense(a->x)) {
        uint8_t *to = (uint8_t *)y.data;
        if (a->x.dtype == BF16)
            k_to_rgb8_dense<<<few, 256, 0, x->cuda->stream>>>(to, (const __nv_bfloat16 *)in.data, n);
        else k_to_rgb8_dense<<<few, 256, 0, x->cuda->stream>>>(to, (const float *)in.data, n);
    } else if (a->x.dtype == BF16) k_to_rgb8<__nv_bfloat16><<<blocks, 256, 0, x->cuda->stream>>>(y, in, w);
    else k_to_rgb8<float><<<blocks, 256, 0, x->cuda->stream>>>(y, in, w);
    return cuda_launched(x, "to_rgb8");
}

template <typename T> __global__ void k_count_nonfinite(int32_t *y, rows::View in, rows::Walk w) {
    int count = 0;
    int64_t n = w.rows * w.cols, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t row = i / w.cols, col = i % w.cols;
        count += !isfinite(rows::widen<T>(((const T *)in.data)[rows::offset(in, w, row) + col * in.last]));
    }
    count = __reduce_add_sync(0xffffffffu, count);
    if (count && threadIdx.x % 32 == 0) atomicAdd(y, count); /* integers: the order does not matter */
}

/* Vectors, then what is left of n. */
template <typename T> __global__ void k_count_nonfinite_dense(int32_t *y, const T *in, int64_t n) {
    int count = 0;
    int64_t vectors = n / DENSE, step = (int64_t)gridDim.x * blockDim.x, first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = first; i < vectors; i += step) {
        float v[DENSE];
        rows::load<T, DENSE>(v, in + i * DENSE);
#pragma unroll
        for (int k = 0; k < DENSE; k++) count += !isfinite(v[k]);
    }
    for (int64_t i = vectors * DENSE + first; i < n; i += step) count += !isfinite(rows::widen<T>(in[i]));
    count = __reduce_add_sync(0xffffffffu, count);
    if (count && threadIdx.x % 32 == 0) atomicAdd(y, count); /* integers: the order does not matter */
}

Status count_nonfinite_cuda(Exec *x, const void *args) {
    const CountNonfinite *a = (const CountNonfinite *)args;
    Tensor t = a->x;
    Tensor *one[] = {&t};
    rows::flatten(1, one);
    rows::Walk w = rows::walk_of(t);
    rows::View in = rows::view_of(t, w);
    cudaMemsetAsync(a->y.data, 0, sizeof(int32_t), x->cuda->stream);
    int64_t n = w.rows * w.cols, blocks = (n + 255) / 256;
    if (!n) return cuda_launched(x, "count_nonfinite");
    unsigned grid = (unsigned)(blocks < 4 * x->cuda->sm_count ? blocks : 4 * x->cuda->sm_count);
    int32_t *to = (int32_t *)a->y.data;
    if (dense(t)) {
        if (t.dtype == BF16)
            k_count_nonfinite_dense<<<grid, 256, 0, x->cuda->stream>>>(to, (const __nv_bfloat16 *)t.data, n);
        else k_count_nonfinite_dense<<<grid, 256, 0, x->cuda->stream>>>(to, (const float *)t.data, n);
    } else if (t.dtype == BF16) k_count_nonfinite<__nv_bfloat16><<<grid, 256, 0, x->cuda->stream>>>(to, in, w);
    else k_count_nonfinite<float><<<grid, 256, 0, x->cuda->stream>>>(to, in, w);
    return cuda_launched(x, "count_nonfinite");
}

} /* namespace */

const Impl ELEMENTWISE_CUDA[] = {
    {OP_act, "cuda", act_cuda, NULL, NULL},
    {OP_act_mul, "cuda", act_mul_cuda, NULL, NULL},
    {OP_add, "cuda", add_cuda, NULL, NULL},
    {OP_residual_gate, "cuda", residual_gate_cuda, NULL, NULL},
    {OP_modulate, "cuda", modulate_cuda, NULL, NULL},
    {OP_time_embed, "cuda", time_embed_cuda, NULL, NULL},
    {OP_cfg_combine, "cuda", cfg_combine_cuda, NULL, NULL},
    {OP_euler_step, "cuda", euler_step_cuda, NULL, NULL},
    {OP_affine, "cuda", affine_cuda, NULL, NULL},
    {OP_kl_sample, "cuda", kl_sample_cuda, NULL, NULL},
    {OP_scale_noise, "cuda", scale_noise_cuda, NULL, NULL},
    {OP_to_rgb8, "cuda", to_rgb8_cuda, NULL, NULL},
    {OP_count_nonfinite, "cuda", count_nonfinite_cuda, NULL, NULL},
};
const int ELEMENTWISE_CUDA_COUNT = sizeof ELEMENTWISE_CUDA / sizeof *ELEMENTWISE_CUDA;
