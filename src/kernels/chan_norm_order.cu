/* chan_norm_order.cu - CUDA reference of chan_rmsnorm and chan_rmsnorm_silu (norm.h): the squares of a pixel are summed in the
 * order in which PyTorch's reduction sums over the channels of a contiguous channels-first tensor.
 *
 * That order (Reduce.cuh: setReduceConfig, thread_reduce_impl, block_y_reduce; 512 threads a block, four accumulators a thread,
 * outputs read in vectors where their number allows it): `height` threads share a pixel. Thread y takes the channels y, y +
 * height, ... into four accumulators in turn, each by fused multiply-adds; ((a0 + a1) + a2) + a3; then the upper half of the
 * threads is added to the lower until one is left. At a decoder's sizes height is 4, so channel c belongs to chain c mod 16: a
 * lane that holds every second (BF16; F32: every fourth) vector of 16 bytes of a pixel has whole chains. Other shapes: a warp a
 * pixel, any height.
 * Easy to get wrong: height depends on the number of pixels of the call, not on the channels alone; y may be x: a pixel is read
 * before it is written, by the same lanes. Not PyTorch's order: one pixel alone, and more than 1023 channels, where PyTorch also
 * splits a sum over blocks. */
#include "kernels/chan_norm.h"
#include "kernels/cuda_act.cuh"
#include "kernels/cuda_fast.cuh"

using namespace fast;
using rows::narrow;
using rows::r;
using rows::widen;

namespace {

constexpr int THREADS = 256, CHAINS = 16, UNROLL = 4, MOST_HEIGHT = 512;
constexpr unsigned ALL = 0xffffffffu;

/* --- what follows the sum --- */

struct Divisor {
    float by, inverse;
    bool plain; /* x / by is x inverse, corrected */
};

/* Of a length, the root of a sum of squares; at least 1e-12, NaN stays. */
__device__ inline Divisor divisor_of(float square) {
    float l = sqrtf(square), by = l < 1e-12f ? 1e-12f : l;
    return {by, 1.0f / by, by < 0x1p100f};
}

template <typename T> __device__ inline float silu_rounded(float z) { return act::silu_of_bf16(z); }
template <> __device__ inline float silu_rounded<float>(float z) { return act::silu(z); }

/* Quotients as divisions give them: x r, r = 1 / length, corrected once by the exact remainder, is that where nothing over- or
 * underflows (Markstein). Otherwise, which is rare, all N are divided; so are zeros, whose sign the remainder would take. */
template <int N> __device__ inline void divide(float (&v)[N], const Divisor &d) {
    float n[N];
    bool plain = d.plain;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float q = v[i] * d.inverse;
        plain = plain && fabsf(q) >= 0x1p-60f;
        n[i] = fmaf(fmaf(-q, d.by, v[i]), d.inverse, q);
    }
    if (plain) {
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = n[i];
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = v[i] / d.by;
    }
}

template <typename T, bool SILU> __device__ inline float scaled(float n, float scale, float gamma) {
    float z = r<T>(r<T>(r<T>(n) * scale) * gamma);
    return SILU ? silu_rounded<T>(z) : z;
}

/* --- vectors of 16 bytes --- */

template <typename T> struct Vector;

template <> struct Vector<float> {
    static constexpr int V = 4;
    float4 v;
    __device__ void take(const float *from) { v = *(const float4 *)from; }
    __device__ void put(float *to) const { *(float4 *)to = v; }
    __device__ void add(const Vector &b) { v = {v.x + b.v.x, v.y + b.v.y, v.z + b.v.z, v.w + b.v.w}; }
    __device__ void widened(float (&e)[V]) const { e[0] = v.x, e[1] = v.y, e[2] = v.z, e[3] = v.w; }
    template <bool SILU> __device__ void finish(const float (&n)[V], float scale, const Vector &g) {
        v = {scaled<float, SILU>(n[0], scale, g.v.x), scaled<float, SILU>(n[1], scale, g.v.y),
             scaled<float, SILU>(n[2], scale, g.v.z), scaled<float, SILU>(n[3], scale, g.v.w)};
    }
};

template <> struct Vector<Bf> {
    static constexpr int V = WIDE;
    Wide v;
    __device__ void take(const Bf *from) { v = fast::get<WIDE / 2>(from); }
    __device__ void put(Bf *to) const { fast::put(to, v); }
    __device__ void add(const Vector &b) {
#pragma unroll
        for (int i = 0; i < V / 2; i++) v.p[i] = fast::add(v.p[i], b.v.p[i]);
    }
    __device__ void widened(float (&e)[V]) const {
#pragma unroll
        for (int i = 0; i < V / 2; i++) e[2 * i] = __low2float(v.p[i]), e[2 * i + 1] = __high2float(v.p[i]);
    }
    template <bool SILU> __device__ void finish(const float (&n)[V], float scale, const Vector &g) {
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            Pair z = round2(n[2 * i], n[2 * i + 1]);
            z = mul(round2(__low2float(z) * scale, __high2float(z) * scale), g.v.p[i]);
            v.p[i] = SILU ? act::silu_of_pair(z) : z;
        }
    }
};

/* --- whole chains in a lane --- */

/* Every lane of a pixel gets the sum of its chains; chain k is element k % V of lane k / V. */
template <int V> __device__ inline float joined(const float (&sum)[V]) {
    float part[UNROLL];
#pragma unroll
    for (int y = 0; y < UNROLL; y++) {
        part[y] = __shfl_sync(ALL, sum[y % V], y / V, CHAINS / V);
#pragma unroll
        for (int i = 1; i < UNROLL; i++) {
            constexpr int W = CHAINS / V;
            int chain = UNROLL * i + y;
            part[y] += __shfl_sync(ALL, sum[chain % V], chain / V, W);
        }
    }
    return (part[0] + part[2]) + (part[1] + part[3]);
}

/* TURNS: sixteenths of the channels. */
template <typename T, int TURNS, bool SILU>
__global__ void __launch_bounds__(THREADS, TURNS > 6 ? 1 : 2)
    k_chan_norm_order(T *y, const T *x, const T *gamma, const T *bias, int64_t pixels, float scale) {
    constexpr int V = Vector<T>::V, LANES = CHAINS / V;
    int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, pixel = thread / LANES, first = (thread & ~31) / LANES;
    int64_t step = (int64_t)gridDim.x * THREADS / LANES;
    int lane = threadIdx.x % LANES * V; /* its first channel */
    /* a warp's pixels end together: all lanes take part in the sums */
    for (; first < pixels; first += step, pixel += step) {
        Vector<T> v[TURNS];
        float sum[V] = {}, e[V];
        bool here = pixel < pixels;
        int64_t at = pixel * (CHAINS * TURNS) + lane;
#pragma unroll
        for (int t = 0; t < TURNS; t++)
            if (here) v[t].take(x + at + t * CHAINS);
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            if (!here) continue;
            if (bias) {
                Vector<T> b;
                b.take(bias + lane + t * CHAINS);
                v[t].add(b);
            }
            v[t].widened(e);
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] = fmaf(e[i], e[i], sum[i]);
        }
        Divisor d = divisor_of(joined<V>(sum));
        if (!here) continue;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            Vector<T> g;
            g.take(gamma + lane + t * CHAINS);
            v[t].widened(e);
            divide(e, d);
            v[t].template finish<SILU>(e, scale, g);
            v[t].put(y + at + t * CHAINS);
        }
    }
}

/* --- a warp a pixel --- */

template <typename T> struct Pixel {
    const T *at, *bias;
    int64_t stride, channels;
    __device__ float operator[](int64_t c) const {
        float e = widen<T>(at[c * stride]);
        return bias ? r<T>(e + widen<T>(bias[c])) : e;
    }
};

template <typename T> __device__ float chain_sum(const Pixel<T> &p, int64_t first, int64_t step) {
    float a[UNROLL] = {};
    for (int64_t c = first; c < p.channels;)
#pragma unroll
        for (int i = 0; i < UNROLL && c < p.channels; i++, c += step) a[i] = fmaf(p[c], p[c], a[i]);
    return ((a[0] + a[1]) + a[2]) + a[3];
}

/* The order above for any height, a power of two up to MOST_HEIGHT: lane l has the threads l, l + 32, ... */
template <typename T> __device__ float square_of(const Pixel<T> &p, int height, int lane) {
    constexpr int MOST = MOST_HEIGHT / 32;
    float part[MOST];
#pragma unroll
    for (int j = 0; j < MOST; j++) part[j] = lane + 32 * j < height ? chain_sum(p, lane + 32 * j, height) : 0.0f;
#pragma unroll
    for (int half = MOST / 2; half; half /= 2)
        if (height > 32 * half)
#pragma unroll
            for (int j = 0; j < half; j++) part[j] += part[j + half];
    for (int half = (height < 32 ? height : 32) / 2; half; half /= 2) part[0] += __shfl_down_sync(ALL, part[0], half);
    return __shfl_sync(ALL, part[0], 0);
}

template <typename T, bool SILU>
__global__ void __launch_bounds__(THREADS)
    k_chan_norm_row(rows::View y, rows::View in, const T *gamma, const T *bias, rows::Walk w, float scale, int height) {
    int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    int lane = threadIdx.x & 31;
    if (row >= w.rows) return;
    const Pixel<T> p = {(const T *)in.data + rows::offset(in, w, row), bias, in.last, w.cols};
    T *to = (T *)y.data + rows::offset(y, w, row);
    Divisor d = divisor_of(square_of(p, height, lane));
    for (int64_t i = lane; i < w.cols; i += 32)
        to[i * y.last] = narrow<T>(scaled<T, SILU>(p[i] / d.by, scale, widen<T>(gamma[i])));
}

/* --- choosing --- */

int64_t power_below(int64_t n, int64_t most) {
    int64_t p = 1;
    while (2 * p <= n && 2 * p <= most) p *= 2;
    return p;
}

/* How many threads of PyTorch's share a pixel. */
int height_of(int64_t channels, int64_t pixels) {
    int64_t vector = pixels % 4 == 0 ? 4 : pixels % 2 == 0 ? 2 : 1, most = 512 / vector;
    int64_t width = power_below(pixels / vector, most < 32 ? most : 32), height = power_below(channels, most / width);
    return channels >= (height * 16 < 256 ? height * 16 : 256) ? (int)height : 1;
}

template <typename T, int TURNS, bool SILU> void launch(Exec *x, const ChanRmsNorm *a, int64_t pixels, float scale) {
    constexpr int LANES = CHAINS / Vector<T>::V;
    int64_t wanted = (pixels * LANES + THREADS - 1) / THREADS, most = (int64_t)x->cuda->sm_count * (TURNS > 6 ? 2 : 4);
    k_chan_norm_order<T, TURNS, SILU><<<(unsigned)(wanted < most ? wanted : most), THREADS, 0, x->cuda->stream>>>(
        (T *)a->y.data, (const T *)a->x.data, (const T *)a->w.data, a->bias.rank ? (const T *)a->bias.data : NULL, pixels, scale);
}

bool whole(const ChanRmsNorm *a) {
    const Tensor *all[] = {&a->y, &a->x, &a->w, &a->bias};
    for (const Tensor *t : all)
        if (t->rank && (!tensor_contiguous(*t) || (uintptr_t)t->data % 16)) return false;
    return true;
}

template <typename T, bool SILU> Status run(Exec *x, const ChanRmsNorm *a) {
    int64_t channels = a->w.shape[0], pixels = tensor_numel(a->x) / channels;
    float scale = (float)sqrt((double)channels);
    int height = height_of(channels, pixels);
    bool chains = height == UNROLL && whole(a);
    if (chains && channels == 96) launch<T, 6, SILU>(x, a, pixels, scale);
    else if (chains && channels == 192) launch<T, 12, SILU>(x, a, pixels, scale);
    else if (chains && channels == 384) launch<T, 24, SILU>(x, a, pixels, scale);
    else {
        rows::Walk w = rows::walk_of(a->y);
        unsigned blocks = (unsigned)((w.rows * 32 + THREADS - 1) / THREADS);
        k_chan_norm_row<T, SILU><<<blocks, THREADS, 0, x->cuda->stream>>>(
            rows::view_of(a->y, w), rows::view_of(a->x, w), (const T *)a->w.data,
            a->bias.rank ? (const T *)a->bias.data : NULL, w, scale, height);
    }
    return cuda_launched(x, SILU ? "chan_rmsnorm_silu" : "chan_rmsnorm");
}

} /* namespace */

Status chan_norm_in_order(Exec *x, const ChanRmsNorm *a, bool silu) {
    if (a->x.dtype == BF16) return silu ? run<Bf, true>(x, a) : run<Bf, false>(x, a);
    return silu ? run<float, true>(x, a) : run<float, false>(x, a);
}
