/* groupnorm_exact.cuh - the statistics of a group in PyTorch's own order (RowwiseMomentsCUDAKernel, read from its machine
 * code), for the groups whose rounded statistics depend on it; and what groupnorm.cu shares with it.
 *
 * The group's numbers lie channel after channel, pixels in order. Lane t of 512 (of 32, when there are fewer than 512 numbers)
 * takes t, t + 512, ... serially: delta = v - mean; mean = mean + delta / n; m2 = fma(delta, v - mean, m2). Merges of own (A)
 * and other (B): delta = meanB - meanA, q = nB / (nA + nB), mean = fma(delta, q, meanA), m2 = fma(delta delta nA, q, m2A + m2B),
 * products left to right; an empty side leaves the other. Shuffle-down 16, 8, 4, 2, 1 in each warp, then among the warps'
 * results. m = r(mean), s = r(rsqrtf(m2 / n + r(eps))). A block is one warp, so that a group's lanes spread over 16 SMs; the
 * block that ends last merges: which one that is changes nothing.
 * Easy to get wrong: our pictures have channels last, so a lane's next number is a pixel away, not the next in memory. */
#ifndef KERNELS_GROUPNORM_EXACT_CUH
#define KERNELS_GROUPNORM_EXACT_CUH

#include "kernels/cuda_fast.cuh"

namespace groupnorm {

using rows::r;
using rows::widen;

constexpr int WARP = 32, LANES = 512, WARPS = LANES / WARP, AHEAD = 8;
constexpr double ALWAYS = 64 * LANES; /* groups of so many numbers cost less than the doubt */

/* A picture as the kernels walk it: `vectors` of V channels, `wide` of them side by side in a block, which then holds
 * THREADS / wide pixels at a time. */
struct Walk {
    int64_t pixels, line, width; /* line, pixel: strides in elements; width: pixels of a line */
    int64_t pixel;
    int channels, vectors, wide;
    int group, slot; /* channels of a group; of the pieces of it that one thread merges */
};

/* V > 1: no gaps between lines. */
template <int V> __device__ inline int64_t pixel_at(const Walk &w, int64_t p) {
    if (V > 1 || w.line == w.width * w.pixel) return p * w.pixel;
    int64_t y = p / w.width;
    return y * w.line + (p - y * w.width) * w.pixel;
}

struct Welford {
    float mean, m2, n;
};

/* open: the statistics are still to be found here. done: blocks that are through. */
struct Group {
    Welford warp[WARPS];
    int open, done;
};

template <typename T> struct Affine {
    const T *weight, *shift, *bias; /* bias: NULL, or of the convolution before */
    float eps;
};

/* channel[c] = p and q of the contract for a group's channels, by `threads` threads. KEEP: with the bias in q. */
template <typename T, bool KEEP>
__device__ inline void fold(float2 *channel, const Affine<T> &f, int first, int count, float m, float s,
                            int thread, int threads) {
    for (int c = first + thread; c < first + count; c += threads) {
        float p = s * widen<T>(f.weight[c]), q = fmaf(-p, m, widen<T>(f.shift[c]));
        if (KEEP && f.bias) q = fmaf(p, widen<T>(f.bias[c]), q);
        channel[c] = make_float2(p, q);
    }
}

__device__ inline Welford merged(const Welford &a, const Welford &b) {
    if (a.n == 0.0f) return b;
    if (b.n == 0.0f) return a;
    float delta = b.mean - a.mean, n = a.n + b.n, q = b.n / n;
    return {fmaf(delta, q, a.mean), fmaf(delta * delta * a.n, q, a.m2 + b.m2), n};
}

/* Lane 0 gets the warp's. */
__device__ inline Welford reduced(Welford v) {
#pragma unroll
    for (int by = WARP / 2; by; by /= 2)
        v = merged(v, {__shfl_down_sync(0xffffffffu, v.mean, by), __shfl_down_sync(0xffffffffu, v.m2, by),
                       __shfl_down_sync(0xffffffffu, v.n, by)});
    return v;
}

/* delta / n by the sequence that the compiler makes of it, with what depends on n alone ahead of it. */
__device__ inline void push(Welford &a, float v, float n, float each) {
    float delta = v - a.mean, q = delta * each;
    q = fmaf(each, fmaf(-n, q, delta), q);
    a.mean = q + a.mean;
    a.m2 = fmaf(delta, v - a.mean, a.m2);
}

template <typename T>
__global__ void __launch_bounds__(WARP)
    k_groupnorm_exact(float2 *channel, Group *groups, const T *x, Affine<T> f, Walk w) {
    Group *mine = groups + blockIdx.y;
    fast::begin();
    if (!mine->open) return;
    const int64_t count = w.pixels * w.group;
    const int lanes = count < LANES ? WARP : LANES, warps = lanes / WARP, lane = threadIdx.x;
    if (blockIdx.x >= warps) return;
    const int first = blockIdx.y * w.group;
    Welford a = {0.0f, 0.0f, 0.0f};
    int64_t at = blockIdx.x * WARP + lane, pixel = at;
    int c = 0, n = 0;
    while (at < count) {
        float v[AHEAD];
        int got = 0;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (at >= count) break;
            while (pixel >= w.pixels) pixel -= w.pixels, c++;
            v[u] = widen<T>(x[pixel_at<1>(w, pixel) + first + c]);
            if (f.bias) v[u] = r<T>(v[u] + widen<T>(f.bias[first + c]));
            at += lanes, pixel += lanes, got++;
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (u < got) {
                float now = (float)(++n);
                push(a, v[u], now, 1.0f / now);
            }
    }
    a.n = (float)n;
    a = reduced(a);
    int before = 0;
    if (lane == 0) {
        mine->warp[blockIdx.x] = a;
        __threadfence();
        before = atomicAdd(&mine->done, 1);
    }
    if (__shfl_sync(0xffffffffu, before, 0) + 1 < warps) return;
    __threadfence();
    if (warps > 1) {
        const volatile Welford *all = mine->warp;
        a = {0.0f, 0.0f, 0.0f};
        if (lane < warps) a = {all[lane].mean, all[lane].m2, all[lane].n};
        a = reduced(a);
    }
    float m = r<T>(a.mean), s = r<T>(rsqrtf(a.m2 / a.n + r<T>(f.eps)));
    fold<T, false>(channel, f, first, w.group, __shfl_sync(0xffffffffu, m, 0), __shfl_sync(0xffffffffu, s, 0),
                   lane, WARP);
}

template <typename T>
static inline void launch_exact(const Exec *exec, float2 *channel, Group *groups, const T *x,
                                const Affine<T> &f, const Walk &w, int count) {
    fast::launch_early(exec, k_groupnorm_exact<T>, dim3(WARPS, (unsigned)count), WARP, 0, channel, groups, x, f, w);
}

} /* namespace groupnorm */

#endif
