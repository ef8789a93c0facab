/* cuda_rows.cuh - how the CUDA table walks tensors: rows of the last dimension, up to four leading dimensions with any
 * strides, values widened to f32 in registers and rounded where the contract writes r(...).
 *
 * Device counterpart of rows.h, for .cu files only. Easy to get wrong: r() must be called after every operation the
 * contract rounds; --fmad=false forbids contraction, so every fused multiply-add is an explicit fmaf. */
#ifndef KERNELS_CUDA_ROWS_CUH
#define KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace rows {

constexpr int LEAD = TENSOR_MAX_RANK - 1;

/* A tensor as base address and element strides over the leading dimensions of a Walk. */
struct View {
    char *data;
    int64_t lead[LEAD]; /* 0 where broadcast */
    int64_t last;
};

/* Extents of the leading dimensions (right aligned, missing ones 1) and the row length. */
struct Walk {
    int64_t extent[LEAD];
    int64_t rows, cols;
    int outer; /* the first dimension that is not 1: no division is needed for it */
};

static inline Walk walk_of(const Tensor &y) {
    Walk w = {};
    w.rows = 1;
    w.outer = LEAD;
    for (int i = 0; i < LEAD; i++) {
        int d = y.rank - 1 - LEAD + i;
        w.extent[i] = d >= 0 ? y.shape[d] : 1;
        w.rows *= w.extent[i];
        if (w.extent[i] != 1 && i < w.outer) w.outer = i;
    }
    w.cols = y.shape[y.rank - 1];
    return w;
}

/* t aligned at the end with w; extents of 1 and missing dimensions broadcast. */
static inline View view_of(const Tensor &t, const Walk &w) {
    View v = {};
    if (!t.rank) return v;
    v.data = (char *)t.data;
    for (int i = 0; i < LEAD; i++) {
        int d = t.rank - 1 - LEAD + i;
        v.lead[i] = d >= 0 && t.shape[d] != 1 ? t.stride[d] : 0;
    }
    v.last = t.shape[t.rank - 1] == 1 && w.cols != 1 ? 0 : t.stride[t.rank - 1];
    return v;
}

/* Contiguous tensors of one shape become one row: no tails at the end of short rows. */
static inline void flatten(int count, Tensor *const *tensors) {
    int64_t n = 0;
    for (int i = 0; i < count; i++) {
        if (!tensors[i]->rank) continue;
        if (!tensor_contiguous(*tensors[i]) || (n && !tensor_same_shape(*tensors[i], *tensors[0]))) return;
        n = tensor_numel(*tensors[i]);
    }
    for (int i = 0; i < count; i++)
        if (tensors[i]->rank) *tensors[i] = tensor_make(tensors[i]->data, tensors[i]->dtype, 1, &n);
}

/* By recursion, not by a loop: a loop's index that equals w.outer becomes w.outer, and indexed by a variable the views would be
 * copied to memory of every thread's own. */
template <int I = LEAD - 1> __device__ inline int64_t offset(const View &v, const Walk &w, int64_t row) {
    if constexpr (I < 0) {
        return 0;
    } else {
        if (w.outer > I) return 0;
        if (w.outer == I) return row * v.lead[I];
        if (w.extent[I] == 1) return offset<I - 1>(v, w, row);
        int64_t next = w.rows <= INT32_MAX ? (int64_t)((uint32_t)row / (uint32_t)w.extent[I]) : row / w.extent[I];
        return (row - next * w.extent[I]) * v.lead[I] + offset<I - 1>(v, w, next);
    }
}

/* --- element types --- */

template <typename T> __device__ inline float widen(T v);
template <> __device__ inline float widen<float>(float v) { return v; }
template <> __device__ inline float widen<__nv_bfloat16>(__nv_bfloat16 v) { return __bfloat162float(v); }
template <> __device__ inline float widen<__half>(__half v) { return __half2float(v); }

template <typename T> __device__ inline T narrow(float v);
template <> __device__ inline float narrow<float>(float v) { return v; }
template <> __device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }
template <> __device__ inline __half narrow<__half>(float v) { return __float2half_rn(v); }

/* r(...) of the contracts. */
template <typename T> __device__ inline float r(float v) { return widen<T>(narrow<T>(v)); }

/* N consecutive elements: one access of up to 16 bytes when the address allows it. */
template <typename T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack {
    T v[N];
};

template <typename T, int N> __device__ inline void load(float *to, const T *from) {
    Pack<T, N> p = *reinterpret_cast<const Pack<T, N> *>(from);
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = widen<T>(p.v[i]);
}

template <typename T, int N> __device__ inline void store(T *to, const float *from) {
    Pack<T, N> p;
#pragma unroll
    for (int i = 0; i < N; i++) p.v[i] = narrow<T>(from[i]);
    *reinterpret_cast<Pack<T, N> *>(to) = p;
}

/* Can every row of v be read N elements at a time? */
template <typename T> static inline bool vectorable(const View &v, const Walk &w, int n) {
    if (!v.data) return true;
    if (v.last != 1 || w.cols % n || (uintptr_t)v.data % (n * sizeof(T) > 16 ? 16 : n * sizeof(T))) return false;
    for (int i = 0; i < LEAD; i++)
        if (v.lead[i] % n) return false;
    return true;
}

/* --- element-wise map --- */

constexpr int MAP_THREADS = 256;
constexpr int MAP_INPUTS = 3;

template <typename T, int N, typename F>
__global__ void __launch_bounds__(MAP_THREADS) k_map(View y, View a, View b, View c, Walk w, unsigned pieces, F f) {
    unsigned block_row = blockIdx.x / pieces;
    int64_t row = block_row, col = ((int64_t)(blockIdx.x - block_row * pieces) * blockDim.x + threadIdx.x) * N;
    if (col >= w.cols) return;
    const View *in[MAP_INPUTS] = {&a, &b, &c};
    float v[MAP_INPUTS][N], out[N];
#pragma unroll
    for (int i = 0; i < MAP_INPUTS; i++) {
        if (i >= F::INPUTS || !in[i]->data) continue;
        const T *at = (const T *)in[i]->data + offset(*in[i], w, row) + col * in[i]->last;
        if (N > 1 && in[i]->last) {
            load<T, N>(v[i], at);
        } else {
#pragma unroll
            for (int k = 0; k < N; k++) v[i][k] = widen<T>(*at); /* N = 1, or one value for the whole row */
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++) out[k] = f(v[0][k], v[1][k], v[2][k]);
    T *to = (T *)y.data + offset(y, w, row) + col * y.last;
    if (N > 1) store<T, N>(to, out);
    else *to = narrow<T>(out[0]);
}

template <typename T, typename F> static inline Status map_typed(Exec *x, const char *op, Tensor y, Tensor *in, F f) {
    Tensor *all[] = {&y, &in[0], &in[1], &in[2]};
    flatten(1 + F::INPUTS, all);
    Walk w = walk_of(y);
    if (!w.rows || !w.cols) return OK;
    View vy = view_of(y, w), v[MAP_INPUTS] = {};
    constexpr int N = 16 / sizeof(T);
    bool wide = vectorable<T>(vy, w, N);
    for (int i = 0; i < F::INPUTS; i++) {
        v[i] = view_of(in[i], w);
        wide = wide && (vectorable<T>(v[i], w, N) || (v[i].data && v[i].last == 0));
    }
    int64_t units = wide ? w.cols / N : w.cols; /* of a row, cut into pieces of whole warps and nearly the same size */
    unsigned pieces = (unsigned)((units + MAP_THREADS - 1) / MAP_THREADS), blocks = (unsigned)w.rows * pieces;
    unsigned threads = (unsigned)((units + pieces - 1) / pieces + 31) / 32 * 32;
    if (wide) k_map<T, N, F><<<blocks, threads, 0, x->cuda->stream>>>(vy, v[0], v[1], v[2], w, pieces, f);
    else k_map<T, 1, F><<<blocks, threads, 0, x->cuda->stream>>>(vy, v[0], v[1], v[2], w, pieces, f);
    return cuda_launched(x, op);
}

/* F<T> has INPUTS and float operator()(float, float, float) const; absent inputs hold anything. */
template <template <typename> class F, typename... A>
static inline Status map(Exec *x, const char *op, Tensor y, Tensor a, Tensor b, Tensor c, A... args) {
    Tensor in[MAP_INPUTS] = {a, b, c};
    if (y.dtype == BF16) return map_typed<__nv_bfloat16>(x, op, y, in, F<__nv_bfloat16>{args...});
    if (y.dtype == F32) return map_typed<float>(x, op, y, in, F<float>{args...});
    return fail(x->error, ERR_MODEL, "%s: dtype %s: expected F32 or BF16", op, dtype_name(y.dtype));
}

} /* namespace rows */

#endif
