/* chan_norm.cu - CUDA reference of chan_rmsnorm, chan_rmsnorm_silu (norm.h), chan_affine (elementwise.h) and roll (conv.h), and
 * chan_rmsnorm_silu of the family wan-norm (KEEP: only the result is rounded).
 *
 * Whole vectors go by a few lanes a pixel (chan_norm.cuh), gamma and bias in registers over all pixels of a thread; BF16 with
 * SiLU by chan_norm_silu.cu. Other shapes take a warp a row, an element a lane.
 * SiLU of a rounded BF16 value: cuda_act.cuh. */
#include "kernels/chan_norm.cuh"
#include "kernels/conv_frames.h"
#include "kernels/cuda_act.cuh"
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

using rows::narrow;
using rows::r;
using rows::widen;
using namespace chan_norm;

namespace {

constexpr int THREADS = 256, BLOCKS_AN_SM = 8;
constexpr unsigned ALL = 0xffffffffu;

/* --- arithmetic of one element --- */

template <typename T> __device__ inline float silu_rounded(float z) { return act::silu_of_bf16(z); }
template <> __device__ inline float silu_rounded<float>(float z) { return z / (1.0f + expf(-z)); }

/* x' of an element. */
template <typename T, bool KEEP> __device__ inline float biased(float v, float bias) {
    return KEEP ? v + bias : r<T>(v + bias);
}

template <typename T, bool SILU, bool KEEP>
__device__ inline float normed(float v, const Divisor &d, float scale, float gamma) {
    if (KEEP) {
        float z = v * (d.inverse * scale) * gamma;
        return __fdividef(z, 1.0f + __expf(-z));
    }
    float z = r<T>(r<T>(r<T>(divided(v, d)) * scale) * gamma);
    return SILU ? silu_rounded<T>(z) : z;
}

/* --- a few lanes a pixel --- */

template <typename T, int TURNS, bool SILU, bool BIAS>
__global__ void __launch_bounds__(THREADS) k_chan_norm(T *y, const T *x, const T *gamma, const T *bias, int64_t pixels,
                                                       int vectors, int lanes, float scale) {
    constexpr int V = 16 / sizeof(T);
    using Vector = rows::Pack<T, V>;
    int lane = threadIdx.x & (lanes - 1);
    int64_t pixel = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / lanes, step = (int64_t)gridDim.x * THREADS / lanes;
    Vector g[TURNS], add[TURNS];
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        g[t] = ((const Vector *)gamma)[lane + t * lanes];
        if (BIAS) add[t] = ((const Vector *)bias)[lane + t * lanes];
    }
    /* a warp's pixels end together: all lanes take part in the sums */
    int64_t first = ((int64_t)blockIdx.x * THREADS + (threadIdx.x & ~31)) / lanes;
    for (; first < pixels; first += step, pixel += step) {
        Vector v[TURNS];
        float square = 0.0f;
        bool here = pixel < pixels;
        const Vector *from = (const Vector *)x + pixel * vectors;
#pragma unroll
        for (int t = 0; t < TURNS; t++)
            if (here) v[t] = from[lane + t * lanes];
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            if (!here) continue;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float e = widen<T>(v[t].v[i]);
                if (BIAS) e = biased<T, false>(e, widen<T>(add[t].v[i]));
                square = fmaf(e, e, square);
            }
        }
        for (int other = lanes / 2; other; other /= 2) square += __shfl_xor_sync(ALL, square, other);
        Divisor d = divisor(length_of(square));
        Vector *to = (Vector *)y + pixel * vectors;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            if (!here) continue;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float e = widen<T>(v[t].v[i]);
                if (BIAS) e = biased<T, false>(e, widen<T>(add[t].v[i]));
                v[t].v[i] = narrow<T>(normed<T, SILU, false>(e, d, scale, widen<T>(g[t].v[i])));
            }
            to[lane + t * lanes] = v[t];
        }
    }
}

/* --- a warp a row, any strides of the leading dimensions --- */

template <typename T, bool SILU, bool KEEP>
__global__ void __launch_bounds__(THREADS) k_chan_norm_row(rows::View y, rows::View in, const T *gamma, const T *bias,
                                                           rows::Walk w, float scale) {
    int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    int lane = threadIdx.x & 31;
    if (row >= w.rows) return;
    const T *from = (const T *)in.data + rows::offset(in, w, row);
    T *to = (T *)y.data + rows::offset(y, w, row);
    float square = 0.0f;
    for (int64_t i = lane; i < w.cols; i += 32) {
        float e = widen<T>(from[i * in.last]);
        if (bias) e = biased<T, KEEP>(e, widen<T>(bias[i]));
        square = fmaf(e, e, square);
    }
    for (int other = 16; other; other /= 2) square += __shfl_xor_sync(ALL, square, other);
    Divisor d = divisor(length_of(square));
    for (int64_t i = lane; i < w.cols; i += 32) {
        float e = widen<T>(from[i * in.last]);
        if (bias) e = biased<T, KEEP>(e, widen<T>(bias[i]));
        to[i * y.last] = narrow<T>(normed<T, SILU, KEEP>(e, d, scale, widen<T>(gamma[i])));
    }
}

/* --- choosing --- */

template <typename T, int TURNS, bool SILU> Status launch(Exec *x, const ChanRmsNorm *a, Spread s, float scale) {
    int64_t c = a->w.shape[0], pixels = tensor_numel(a->x) / c, wanted = (pixels * s.lanes + THREADS - 1) / THREADS;
    int64_t most = (int64_t)x->cuda->sm_count * BLOCKS_AN_SM;
    unsigned blocks = (unsigned)(wanted < most ? wanted : most);
    int vectors = (int)(c * (int64_t)sizeof(T) / 16);
    const T *from = (const T *)a->x.data, *gamma = (const T *)a->w.data, *bias = a->bias.rank ? (const T *)a->bias.data : NULL;
    cudaStream_t stream = x->cuda->stream;
    if (bias)
        k_chan_norm<T, TURNS, SILU, true><<<blocks, THREADS, 0, stream>>>((T *)a->y.data, from, gamma, bias, pixels, vectors,
                                                                         s.lanes, scale);
    else
        k_chan_norm<T, TURNS, SILU, false><<<blocks, THREADS, 0, stream>>>((T *)a->y.data, from, gamma, bias, pixels, vectors,
                                                                          s.lanes, scale);
    return cuda_launched(x, SILU ? "chan_rmsnorm_silu" : "chan_rmsnorm");
}

template <typename T, bool SILU, bool KEEP> Status by_rows(Exec *x, const ChanRmsNorm *a) {
    float scale = (float)sqrt((double)a->w.shape[0]);
    rows::Walk w = rows::walk_of(a->y);
    unsigned blocks = (unsigned)((w.rows * 32 + THREADS - 1) / THREADS);
    k_chan_norm_row<T, SILU, KEEP><<<blocks, THREADS, 0, x->cuda->stream>>>(
        rows::view_of(a->y, w), rows::view_of(a->x, w), (const T *)a->w.data, a->bias.rank ? (const T *)a->bias.data : NULL, w,
        scale);
    return cuda_launched(x, SILU ? "chan_rmsnorm_silu" : "chan_rmsnorm");
}

template <typename T, bool SILU> Status choose(Exec *x, const ChanRmsNorm *a) {
    Spread s = spread_of(a);
    float scale = (float)sqrt((double)a->w.shape[0]);
    if (s.turns == 1) return launch<T, 1, SILU>(x, a, s, scale);
    if (s.turns == 2) return launch<T, 2, SILU>(x, a, s, scale);
    if (s.turns == 3) return launch<T, 3, SILU>(x, a, s, scale);
    if (s.turns == 4) return launch<T, 4, SILU>(x, a, s, scale);
    return by_rows<T, SILU, false>(x, a);
}

bool vector_of(const Tensor &t, const Tensor &like) {
    return t.dtype == like.dtype && tensor_numel(t) == like.shape[like.rank - 1] && tensor_contiguous(t);
}

Status check(Exec *x, OpId op, const ChanRmsNorm *a) {
    const char *name = ops_info(op)->name;
    if (!a->x.rank || !tensor_same_shape(a->x, a->y) || a->x.dtype != a->y.dtype || (a->x.dtype != F32 && a->x.dtype != BF16))
        return fail(x->error, ERR_MODEL, "%s: x and y must be F32 or BF16 of one shape", name);
    if (!a->w.rank || !vector_of(a->w, a->x) || (a->bias.rank && !vector_of(a->bias, a->x)))
        return fail(x->error, ERR_MODEL, "%s: weight and bias must be vectors of %lld in %s", name,
                    (long long)a->x.shape[a->x.rank - 1], dtype_name(a->x.dtype));
    return OK;
}

Status chan_rmsnorm(Exec *x, const void *args) {
    const ChanRmsNorm *a = (const ChanRmsNorm *)args;
    TRY(check(x, OP_chan_rmsnorm, a));
    if (!tensor_numel(a->x)) return OK;
    return a->x.dtype == BF16 ? choose<__nv_bfloat16, false>(x, a) : choose<float, false>(x, a);
}

Status chan_rmsnorm_silu(Exec *x, const void *args) {
    const ChanRmsNorm *a = (const ChanRmsNorm *)args;
    TRY(check(x, OP_chan_rmsnorm_silu, a));
    if (!tensor_numel(a->x)) return OK;
    if (a->x.dtype == F32) return choose<float, true>(x, a);
    return chan_norm_silu_fits(a) ? chan_norm_silu(x, a, false) : by_rows<__nv_bfloat16, true, false>(x, a);
}

Status chan_rmsnorm_silu_f32(Exec *x, const void *args) {
    const ChanRmsNorm *a = (const ChanRmsNorm *)args;
    TRY(check(x, OP_chan_rmsnorm_silu, a));
    if (!tensor_numel(a->x)) return OK;
    return chan_norm_silu_fits(a) ? chan_norm_silu(x, a, true) : by_rows<__nv_bfloat16, true, true>(x, a);
}

/* --- chan_affine --- */

template <typename T, typename From>
__global__ void __launch_bounds__(THREADS) k_chan_affine(rows::View y, rows::View in, const T *a, const T *b, rows::Walk w,
                                                         int form) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= w.rows * w.cols) return;
    int64_t row = i / w.cols, col = i - row * w.cols;
    float v = r<T>(widen<From>(((const From *)in.data)[rows::offset(in, w, row) + col * in.last]));
    float by = widen<T>(a[col]), add = widen<T>(b[col]);
    if (form == CHAN_DIVIDE_ADD) v = r<T>(v / by) + add;
    else if (form == CHAN_MULTIPLY_ADD) v = r<T>(v * by) + add;
    else v = form == CHAN_SUBTRACT_MULTIPLY ? r<T>(v - add) * by : r<T>(v - add) / by;
    ((T *)y.data)[rows::offset(y, w, row) + col * y.last] = narrow<T>(v);
}

Status chan_affine(Exec *x, const void *args) {
    const ChanAffine *a = (const ChanAffine *)args;
    DType t = a->y.dtype;
    if (!tensor_same_shape(a->x, a->y) || (t != F32 && t != BF16) || (a->x.dtype != t && a->x.dtype != F32) ||
        !vector_of(a->a, a->y) || !vector_of(a->b, a->y))
        return fail(x->error, ERR_MODEL, "chan_affine: x must have y's shape, and dtype or F32; a and b its channels");
    rows::Walk w = rows::walk_of(a->y);
    rows::View y = rows::view_of(a->y, w), in = rows::view_of(a->x, w);
    unsigned blocks = (unsigned)((w.rows * w.cols + THREADS - 1) / THREADS);
    cudaStream_t stream = x->cuda->stream;
    if (!blocks) return OK;
    if (t == F32)
        k_chan_affine<float, float><<<blocks, THREADS, 0, stream>>>(y, in, (const float *)a->a.data, (const float *)a->b.data,
                                                                   w, a->form);
    else if (a->x.dtype == F32)
        k_chan_affine<__nv_bfloat16, float><<<blocks, THREADS, 0, stream>>>(
            y, in, (const __nv_bfloat16 *)a->a.data, (const __nv_bfloat16 *)a->b.data, w, a->form);
    else
        k_chan_affine<__nv_bfloat16, __nv_bfloat16><<<blocks, THREADS, 0, stream>>>(
            y, in, (const __nv_bfloat16 *)a->a.data, (const __nv_bfloat16 *)a->b.data, w, a->form);
    return cuda_launched(x, "chan_affine");
}

/* --- roll --- */

Status roll(Exec *x, const void *args) {
    const Roll *a = (const Roll *)args;
    TRY(conv_frames_check_roll(x, a));
    size_t history = tensor_bytes(a->cache), all = tensor_bytes(a->window);
    cudaStream_t stream = x->cuda->stream;
    cudaError_t code = a->fresh ? cudaMemsetAsync(a->window.data, 0, history, stream)
                                : cudaMemcpyAsync(a->window.data, a->cache.data, history, cudaMemcpyDeviceToDevice, stream);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(a->cache.data, (const char *)a->window.data + (all - history), history, cudaMemcpyDeviceToDevice,
                               stream);
    return code == cudaSuccess ? OK : fail(x->error, ERR_DEVICE, "roll: %s", cudaGetErrorString(code));
}

} /* namespace */

const Impl CHAN_NORM_CUDA[] = {
    {OP_chan_rmsnorm, "cuda", chan_rmsnorm, NULL, NULL},
    {OP_chan_rmsnorm_silu, "cuda", chan_rmsnorm_silu, NULL, NULL},
    {OP_chan_affine, "cuda", chan_affine, NULL, NULL},
    {OP_roll, "cuda", roll, NULL, NULL},
};
const int CHAN_NORM_CUDA_COUNT = sizeof CHAN_NORM_CUDA / sizeof *CHAN_NORM_CUDA;

const Impl WAN_NORM_CUDA[] = {{OP_chan_rmsnorm_silu, "cuda_f32", chan_rmsnorm_silu_f32, NULL, chan_norm_keeps_accepts}};
