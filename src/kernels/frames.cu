/* frames.cu - CUDA reference of the ops of frames.h, and pixelnorm_silu of the family ltx-norm (KEEP: only the result is
 * rounded, and h where it is written).
 *
 * Windows: a pixel belongs to a power of two of lanes, as in chan_norm.cu: it is read and computed once, stored once, and a
 * second time and more only where it is a border's or an end's. Channels that become places: a thread takes one vector of a
 * result's channels; the n threads that share a line of x are neighbours, so that its pieces come from the cache.
 * Easy to get wrong: in BF16 a product with the reciprocal has the quotient's bits, since no quotient of two 8-bit numbers lies
 * nearer than 2^-18 to a boundary of rounding; in F32 it has not. s is at most 2^64, so its reciprocal is a normal number. */
#include "kernels/cuda_act.cuh"
#include "kernels/frames_check.h"
#include "kernels/registry.h"

using rows::narrow;
using rows::r;
using rows::widen;

namespace {

constexpr int THREADS = 256, MOST_TURNS = 4, BLOCKS_AN_SM = 8;
constexpr unsigned ALL = 0xffffffffu;

/* --- windows --- */

template <typename T> struct Frames {
    T *y, *h;
    const T *x, *bias, *skip;
    uint32_t pixels, frames, height, width;
    uint32_t y_frames, before, border;
    float eps, share; /* 1 / C */
};

/* r for steps before the last. */
template <typename T, bool KEEP> __device__ inline float inner(float v) { return KEEP ? v : r<T>(v); }

/* h of one element, as it goes on. */
template <typename T, bool KEEP> __device__ inline float joined(const Frames<T> &f, float v, float bias, float skip) {
    if (f.bias) v = inner<T, KEEP>(v + bias);
    if (f.skip) v = inner<T, KEEP>(skip + v);
    return KEEP && f.h ? r<T>(v) : v;
}

struct Root {
    float by, inverse;
};

template <typename T, bool KEEP> __device__ inline Root root_of(const Frames<T> &f, float square) {
    float v = inner<T, KEEP>(square * f.share);
    v = inner<T, KEEP>(sqrtf(inner<T, KEEP>(v + f.eps)));
    return {v, 1.0f / v};
}

template <typename T, bool KEEP> __device__ inline float activated(float h, const Root &s) {
    if (sizeof(T) == 4) {
        float z = h / s.by;
        return act::silu(z);
    }
    if (KEEP) {
        float z = h * s.inverse;
        return __fdividef(z, 1.0f + __expf(-z));
    }
    float z = r<T>(h * s.inverse);
    return z / (1.0f + __expf(-z));
}

/* The k-th place of line i of n in a window, -1: none. Place 0 is its own. */
__device__ inline int place(int k, int i, int n, int border) {
    if (k == 0) return i + border;
    if (!border) return -1;
    return k == 1 ? (i == 1 ? 0 : -1) : (i == n - 2 ? n + 1 : -1);
}

/* Calls store(pixel of y) for every place of a pixel. */
template <typename T, typename F> __device__ inline void spread(const Frames<T> &a, uint32_t pixel, F store) {
    uint32_t line = pixel / a.width, f = line / a.height;
    int x = (int)(pixel - line * a.width), y = (int)(line - f * a.height), h = (int)a.height, w = (int)a.width;
    int64_t out_w = a.width + 2 * a.border, out_h = a.height + 2 * a.border;
    uint32_t first = f ? f + a.before : 0, last = f + 1 < a.frames ? f + a.before : a.y_frames - 1;
    bool edge = a.border && (y == 1 || y == h - 2 || x == 1 || x == w - 2);
    for (uint32_t g = first; g <= last; g++) {
        int64_t frame = (int64_t)g * out_h;
        store((frame + y + a.border) * out_w + x + a.border);
        if (!edge) continue;
        for (int i = 0; i < 9; i++) {
            int row = place(i / 3, y, h, (int)a.border), column = place(i % 3, x, w, (int)a.border);
            if (i && row >= 0 && column >= 0) store((frame + row) * out_w + column);
        }
    }
}

template <typename T, int TURNS, bool NORM, bool KEEP>
__global__ void __launch_bounds__(THREADS) k_window(Frames<T> a, int vectors, int lanes) {
    constexpr int V = 16 / sizeof(T);
    using Vector = rows::Pack<T, V>;
    int lane = threadIdx.x & (lanes - 1);
    uint32_t pixel = (blockIdx.x * THREADS + threadIdx.x) / lanes, step = gridDim.x * (THREADS / lanes);
    Vector bias[TURNS] = {};
#pragma unroll
    for (int t = 0; t < TURNS; t++)
        if (a.bias && lane + t * lanes < vectors) bias[t] = ((const Vector *)a.bias)[lane + t * lanes];
    /* a warp's pixels end together: all lanes take part in the sums */
    uint32_t first = (blockIdx.x * THREADS + (threadIdx.x & ~31u)) / lanes;
    for (; first < a.pixels; first += step, pixel += step) {
        bool here = pixel < a.pixels;
        int64_t at = (int64_t)pixel * vectors + lane;
        Vector v[TURNS], other[TURNS] = {};
        float h[TURNS][V], square = 0.0f;
#pragma unroll
        for (int t = 0; t < TURNS; t++)
            if (here && lane + t * lanes < vectors) {
                v[t] = ((const Vector *)a.x)[at + t * lanes];
                if (a.skip) other[t] = ((const Vector *)a.skip)[at + t * lanes];
            }
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            if (!here || lane + t * lanes >= vectors) continue;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float e = joined<T, KEEP>(a, widen<T>(v[t].v[i]), widen<T>(bias[t].v[i]), widen<T>(other[t].v[i]));
                square += inner<T, KEEP>(e * e);
                h[t][i] = e;
            }
            if (!a.h && NORM) continue;
#pragma unroll
            for (int i = 0; i < V; i++) v[t].v[i] = narrow<T>(h[t][i]);
            if (a.h) ((Vector *)a.h)[at + t * lanes] = v[t];
        }
        if (NORM) {
            for (int far = lanes / 2; far; far /= 2) square += __shfl_xor_sync(ALL, square, far);
            Root s = root_of<T, KEEP>(a, square);
#pragma unroll
            for (int t = 0; t < TURNS; t++) {
                if (!here || lane + t * lanes >= vectors) continue;
#pragma unroll
                for (int i = 0; i < V; i++) v[t].v[i] = narrow<T>(activated<T, KEEP>(h[t][i], s));
            }
        }
        if (!here) continue;
        spread(a, pixel, [&](int64_t to) {
            Vector *out = (Vector *)a.y + to * vectors + lane;
#pragma unroll
            for (int t = 0; t < TURNS; t++)
                if (lane + t * lanes < vectors) out[t * lanes] = v[t];
        });
    }
}

/* A warp a pixel, any number of channels. An element's h is written and read again by one thread. */
template <typename T, bool NORM, bool KEEP>
__global__ void __launch_bounds__(THREADS) k_window_wide(Frames<T> a, int channels) {
    uint32_t pixel = (blockIdx.x * THREADS + threadIdx.x) / 32;
    int lane = threadIdx.x & 31;
    if (pixel >= a.pixels) return;
    int64_t at = (int64_t)pixel * channels;
    float square = 0.0f;
    for (int i = lane; i < channels && (NORM || a.h); i += 32) {
        float e = joined<T, KEEP>(a, widen<T>(a.x[at + i]), a.bias ? widen<T>(a.bias[i]) : 0.0f,
                                  a.skip ? widen<T>(a.skip[at + i]) : 0.0f);
        square += inner<T, KEEP>(e * e);
        if (a.h) a.h[at + i] = narrow<T>(e);
    }
    for (int far = 16; far; far /= 2) square += __shfl_xor_sync(ALL, square, far);
    Root s = root_of<T, KEEP>(a, square);
    for (int i = lane; i < channels; i += 32) {
        float e = a.h ? widen<T>(a.h[at + i])
                      : joined<T, KEEP>(a, widen<T>(a.x[at + i]), a.bias ? widen<T>(a.bias[i]) : 0.0f,
                                        a.skip ? widen<T>(a.skip[at + i]) : 0.0f);
        T v = narrow<T>(NORM ? activated<T, KEEP>(e, s) : e);
        spread(a, pixel, [&](int64_t to) { a.y[to * channels + i] = v; });
    }
}

/* How a pixel of `vectors` is spread over lanes: so that the fewest are idle, and of those spreads the one with the fewest turns:
 * a turn takes 32 registers, and warps under way are worth more here. turns 0: it cannot be. */
struct Lanes {
    int lanes, turns;
};

Lanes lanes_of(int64_t vectors) {
    Lanes best = {};
    int64_t least = INT64_MAX;
    for (int lanes = 1; lanes <= 32; lanes *= 2) {
        int64_t turns = (vectors + lanes - 1) / lanes;
        if (turns > MOST_TURNS || turns * lanes > least) continue;
        least = turns * lanes;
        best = {lanes, (int)turns};
    }
    return best;
}

bool aligned(const Tensor &t) { return !t.rank || (uintptr_t)t.data % 16 == 0; }

template <typename T, bool NORM, bool KEEP> Status launch(Exec *x, OpId op, const Window *a) {
    const int64_t *s = a->x.shape, pixels = s[0] * s[1] * s[2], channels = s[3];
    Frames<T> f = {};
    f.y = (T *)a->y.data, f.x = (const T *)a->x.data;
    f.h = a->h.rank ? (T *)a->h.data : nullptr;
    f.bias = a->bias.rank ? (const T *)a->bias.data : nullptr;
    f.skip = a->skip.rank ? (const T *)a->skip.data : nullptr;
    f.pixels = (uint32_t)pixels, f.frames = (uint32_t)s[0], f.height = (uint32_t)s[1], f.width = (uint32_t)s[2];
    f.y_frames = (uint32_t)a->y.shape[0], f.before = (uint32_t)a->before, f.border = (uint32_t)a->border;
    f.eps = a->eps, f.share = 1.0f / (float)channels;
    cudaStream_t stream = x->cuda->stream;
    bool wide = channels * (int64_t)sizeof(T) % 16 == 0 && aligned(a->y) && aligned(a->h) && aligned(a->x) && aligned(a->bias) &&
                aligned(a->skip);
    int64_t vectors = channels * (int64_t)sizeof(T) / 16;
    Lanes l = wide ? lanes_of(vectors) : Lanes{};
    if (pixels > INT32_MAX / (l.turns ? 1 : 32))
        return fail(x->error, ERR_MODEL, "%s: %lld pixels in one call", ops_info(op)->name, (long long)pixels);
    if (!l.turns) {
        unsigned blocks = (unsigned)((pixels * 32 + THREADS - 1) / THREADS);
        k_window_wide<T, NORM, KEEP><<<blocks, THREADS, 0, stream>>>(f, (int)channels);
        return cuda_launched(x, ops_info(op)->name);
    }
    int64_t wanted = (pixels * l.lanes + THREADS - 1) / THREADS, most = (int64_t)x->cuda->sm_count * BLOCKS_AN_SM;
    unsigned blocks = (unsigned)(wanted < most ? wanted : most);
    int n = (int)vectors;
    if (l.turns == 1) k_window<T, 1, NORM, KEEP><<<blocks, THREADS, 0, stream>>>(f, n, l.lanes);
    else if (l.turns == 2) k_window<T, 2, NORM, KEEP><<<blocks, THREADS, 0, stream>>>(f, n, l.lanes);
    else if (l.turns == 3) k_window<T, 3, NORM, KEEP><<<blocks, THREADS, 0, stream>>>(f, n, l.lanes);
    else k_window<T, 4, NORM, KEEP><<<blocks, THREADS, 0, stream>>>(f, n, l.lanes);
    return cuda_launched(x, ops_info(op)->name);
}

Status frame_window(Exec *x, const void *args) {
    const Window *a = (const Window *)args;
    TRY(frames_check_window(x, OP_frame_window, a));
    if (!tensor_numel(a->x)) return OK;
    return a->x.dtype == BF16 ? launch<__nv_bfloat16, false, false>(x, OP_frame_window, a)
                              : launch<float, false, false>(x, OP_frame_window, a);
}

Status pixelnorm_silu(Exec *x, const void *args) {
    const Window *a = (const Window *)args;
    TRY(frames_check_window(x, OP_pixelnorm_silu, a));
    if (!tensor_numel(a->x)) return OK;
    return a->x.dtype == BF16 ? launch<__nv_bfloat16, true, false>(x, OP_pixelnorm_silu, a)
                              : launch<float, true, false>(x, OP_pixelnorm_silu, a);
}

Status pixelnorm_silu_f32(Exec *x, const void *args) {
    const Window *a = (const Window *)args;
    TRY(frames_check_window(x, OP_pixelnorm_silu, a));
    return tensor_numel(a->x) ? launch<__nv_bfloat16, true, true>(x, OP_pixelnorm_silu, a) : OK;
}

/* --- channels and places --- */

template <typename T> struct Exchange {
    T *y;
    const T *x, *bias, *skip;
    int64_t skip_stride[3];
    uint32_t height, width; /* of the small side */
    uint32_t t, rows, columns, n, drop;
    uint32_t channels; /* of a pixel of the large side */
    uint32_t period;   /* channels of skip in the form of y, or how many of them are one's mean */
};

/* One vector of a pixel's channels; units = small pixels * groups * n. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS) k_to_space(Exchange<T> a, uint64_t units, uint32_t groups) {
    uint64_t unit = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (unit >= units) return;
    uint32_t at, k, group;
    uint64_t rest = unit;
    if (units <= UINT32_MAX) {
        uint32_t low = (uint32_t)unit, q = low / a.n;
        k = low - q * a.n, at = q / groups, group = q - at * groups;
    } else {
        k = (uint32_t)(rest % a.n), rest /= a.n;
        group = (uint32_t)(rest % groups), at = (uint32_t)(rest / groups);
    }
    uint32_t line = at / a.width, j = at - line * a.width, f = line / a.height, i = line - f * a.height;
    uint32_t slow = k / a.columns, d = k - slow * a.columns, frame_part = slow / a.rows, b = slow - frame_part * a.rows;
    int64_t frame = (int64_t)a.t * f + frame_part - a.drop;
    if (frame < 0) return;
    uint32_t first = group * V, around = a.skip ? first % a.period : 0;
    const T *from = a.x + (int64_t)at * a.n * a.channels + (int64_t)first * a.n + k;
    const T *other = a.skip + f * a.skip_stride[0] + i * a.skip_stride[1] + j * a.skip_stride[2] + (int64_t)around * a.n + k;
    float v[V];
#pragma unroll
    for (int c = 0; c < V; c++) {
        v[c] = widen<T>(from[c * a.n]);
        if (a.bias) v[c] = r<T>(v[c] + widen<T>(a.bias[(first + c) * a.n + k]));
        if (a.skip) v[c] += widen<T>(other[c * a.n]);
    }
    int64_t out_h = (int64_t)a.rows * a.height, out_w = (int64_t)a.columns * a.width;
    int64_t to = (frame * out_h + (int64_t)a.rows * i + b) * out_w + (int64_t)a.columns * j + d;
    rows::store<T, V>(a.y + to * a.channels + first, v);
}

/* One element of y. */
template <typename T> __global__ void __launch_bounds__(THREADS) k_to_depth(Exchange<T> a, int64_t count) {
    int64_t unit = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (unit >= count) return;
    int64_t deep = (int64_t)a.n * a.channels, at = unit / deep;
    uint32_t e = (uint32_t)(unit - at * deep), c = e / a.n, k = e - c * a.n;
    int64_t line = at / a.width, j = at - line * a.width, f = line / a.height, i = line - f * a.height;
    int64_t in_h = (int64_t)a.rows * a.height, in_w = (int64_t)a.columns * a.width;
    uint32_t slow = k / a.columns, d = k % a.columns, part = slow / a.rows, b = slow % a.rows;
    int64_t from = ((f * a.t + part) * in_h + i * a.rows + b) * in_w + j * a.columns + d;
    float v = widen<T>(a.x[from * a.channels + c]), mean = 0.0f;
    if (a.bias) v = r<T>(v + widen<T>(a.bias[c]));
    for (uint32_t g = 0; a.skip && g < a.period; g++) {
        uint32_t s = e * a.period + g, sc = s / a.n, sk = s - sc * a.n, sslow = sk / a.columns;
        mean += widen<T>(a.skip[(f * a.t + sslow / a.rows) * a.skip_stride[0] + (i * a.rows + sslow % a.rows) * a.skip_stride[1] +
                                (j * a.columns + sk % a.columns) * a.skip_stride[2] + sc]);
    }
    if (a.skip) v += r<T>(mean * (1.0f / (float)a.period));
    a.y[unit] = narrow<T>(v);
}

template <typename T> Status exchange(Exec *x, OpId op, const Depth *a) {
    bool deep = op == OP_depth_to_space;
    const Tensor &small = deep ? a->x : a->y, &large = deep ? a->y : a->x;
    Exchange<T> p = {};
    p.y = (T *)a->y.data, p.x = (const T *)a->x.data;
    p.bias = a->bias.rank ? (const T *)a->bias.data : nullptr;
    p.skip = a->skip.rank ? (const T *)a->skip.data : nullptr;
    for (int d = 0; d < 3 && a->skip.rank; d++) p.skip_stride[d] = a->skip.stride[d];
    p.height = (uint32_t)small.shape[1], p.width = (uint32_t)small.shape[2];
    p.t = (uint32_t)a->t, p.rows = (uint32_t)a->rows, p.columns = (uint32_t)a->columns, p.drop = (uint32_t)a->drop;
    p.n = p.t * p.rows * p.columns;
    p.channels = (uint32_t)large.shape[3];
    p.period = !a->skip.rank ? 1 : (uint32_t)(deep ? a->skip.shape[3] / p.n : a->skip.shape[3] / a->x.shape[3]);
    int64_t pixels = small.shape[0] * small.shape[1] * small.shape[2];
    cudaStream_t stream = x->cuda->stream;
    if (pixels > INT32_MAX)
        return fail(x->error, ERR_MODEL, "%s: %lld pixels in one call", ops_info(op)->name, (long long)pixels);
    if (!deep) {
        int64_t count = tensor_numel(a->y);
        k_to_depth<T><<<(unsigned)((count + THREADS - 1) / THREADS), THREADS, 0, stream>>>(p, count);
        return cuda_launched(x, ops_info(op)->name);
    }
    constexpr int V = 16 / sizeof(T);
    bool wide = p.channels % V == 0 && (!p.skip || p.period % V == 0) && aligned(a->y);
    uint32_t groups = p.channels / (wide ? V : 1);
    uint64_t units = (uint64_t)pixels * groups * p.n;
    unsigned blocks = (unsigned)((units + THREADS - 1) / THREADS);
    if (wide) k_to_space<T, V><<<blocks, THREADS, 0, stream>>>(p, units, groups);
    else k_to_space<T, 1><<<blocks, THREADS, 0, stream>>>(p, units, groups);
    return cuda_launched(x, ops_info(op)->name);
}

Status depth_either(Exec *x, OpId op, const void *args) {
    const Depth *a = (const Depth *)args;
    TRY(frames_check_depth(x, op, a));
    if (!tensor_numel(a->y)) return OK;
    return a->x.dtype == BF16 ? exchange<__nv_bfloat16>(x, op, a) : exchange<float>(x, op, a);
}

Status depth_to_space(Exec *x, const void *args) { return depth_either(x, OP_depth_to_space, args); }
Status space_to_depth(Exec *x, const void *args) { return depth_either(x, OP_space_to_depth, args); }

} /* namespace */

const Impl FRAMES_CUDA[] = {
    {OP_frame_window, "cuda", frame_window, NULL, NULL},
    {OP_pixelnorm_silu, "cuda", pixelnorm_silu, NULL, NULL},
    {OP_depth_to_space, "cuda", depth_to_space, NULL, NULL},
    {OP_space_to_depth, "cuda", space_to_depth, NULL, NULL},
};
const int FRAMES_CUDA_COUNT = sizeof FRAMES_CUDA / sizeof *FRAMES_CUDA;

const Impl LTX_NORM_CUDA[] = {{OP_pixelnorm_silu, "cuda_f32", pixelnorm_silu_f32, NULL, frames_check_keeps}};
