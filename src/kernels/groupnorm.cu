/* groupnorm.cu - CUDA reference of groupnorm and groupnorm_silu (norm.h), channels last, and groupnorm_silu of the family
 * vae-kl-rewrite (KEEP: neither x + bias nor what SiLU sees is rounded).
 *
 * Partial sums: a block takes a chunk of pixels; each thread sums d and d^2 of one vector of channels in f32, where d is the
 * distance from that channel's value at the chunk's first pixel, so a large mean costs no digits; then neighbouring channels of
 * one group are merged. Statistics: one block a group merges the chunks in double, rounds them and folds them with the affine
 * into p and q. In BF16 it also says where PyTorch's f32 sums might round to another number; those groups, and small ones, are
 * summed again in PyTorch's own order (groupnorm_exact.cuh). Apply: fmaf(p, x', q), by blocks that stay, from the last pixel
 * on, since that is what the cache still holds. Every sum has one order, a function of the shape alone.
 * Easy to get wrong: y may be x, so statistics must be complete before the first element is written; squares of
 * distances above 1.8e19 overflow f32 and give NaN, as in PyTorch; wide vectors are for pictures without gaps between lines. */
#include "kernels/cuda_act.cuh"
#include "kernels/cuda_fast.cuh"
#include "kernels/groupnorm_exact.cuh"
#include "kernels/vae_rewrite.h"

using groupnorm::Walk;
using groupnorm::pixel_at;
using rows::r;
using rows::widen;

namespace {

/* AHEAD: loads in flight a thread. */
constexpr int THREADS = 256, CHUNKS_MAX = 1024, CHUNK_MIN = 64;
constexpr int SUM_AHEAD = 8, APPLY_AHEAD = 4, APPLY_RESIDENT = 3; /* RESIDENT: blocks an SM */

struct Plan {
    int64_t pixels, chunk, chunks;
    size_t partial, channel, moments;
};

Plan plan_of(const GroupNorm *a) {
    Plan p = {};
    int64_t channels = a->x.shape[2];
    p.pixels = a->x.shape[0] * a->x.shape[1];
    p.chunk = (p.pixels + CHUNKS_MAX - 1) / CHUNKS_MAX;
    if (p.chunk < CHUNK_MIN) p.chunk = CHUNK_MIN;
    p.chunks = (p.pixels + p.chunk - 1) / p.chunk;
    p.partial = (size_t)(p.chunks * channels) * sizeof(float2); /* a slot may be one channel */
    p.channel = (size_t)channels * sizeof(float2);
    p.moments = (size_t)a->groups * sizeof(groupnorm::Group);
    return p;
}

/* --- elements --- */

template <typename T, int V> using Raw = rows::Pack<T, V>;

/* x' of one element. */
template <typename T, bool KEEP> __device__ inline float biased(float v, float bias) {
    return KEEP ? v + bias : r<T>(v + bias);
}

/* x' of a vector. */
template <typename T, int V, bool BIAS, bool KEEP>
__device__ inline void take(float *v, const Raw<T, V> &x, const Raw<T, V> &bias) {
#pragma unroll
    for (int i = 0; i < V; i++) {
        v[i] = widen<T>(x.v[i]);
        if (BIAS) v[i] = biased<T, KEEP>(v[i], widen<T>(bias.v[i]));
    }
}

/* By pairs: a sum of BF16 numbers is one instruction with its rounding (cuda_fast.cuh). */
template <bool BIAS> __device__ inline void take_pairs(float *v, const fast::Wide &x, const fast::Wide &bias) {
#pragma unroll
    for (int i = 0; i < fast::WIDE / 2; i++) {
        float2 f = __bfloat1622float2(BIAS ? fast::add(x.p[i], bias.p[i]) : x.p[i]);
        v[2 * i] = f.x, v[2 * i + 1] = f.y;
    }
}

template <typename T, int V> constexpr bool PAIRS = sizeof(T) == 2 && V == fast::WIDE;

/* A vector as it lies in memory, and its bias. */
template <typename T, int V, bool BIAS, bool KEEP> struct Vector {
    Raw<T, V> raw;
    __device__ inline void read(const T *at) {
        if constexpr (PAIRS<T, V>) {
            uint4 bits = *reinterpret_cast<const uint4 *>(at);
            memcpy(&raw, &bits, sizeof raw);
        } else {
            raw = *reinterpret_cast<const Raw<T, V> *>(at);
        }
    }
    __device__ inline void to(float *v, const Raw<T, V> &bias) const {
        if constexpr (PAIRS<T, V> && !(BIAS && KEEP)) {
            fast::Wide x, b;
            memcpy(&x, &raw, sizeof x);
            memcpy(&b, &bias, sizeof b);
            take_pairs<BIAS>(v, x, b);
        } else {
            take<T, V, BIAS, KEEP>(v, raw, bias);
        }
    }
};

template <typename T, int V> __device__ inline Raw<T, V> bias_of(const T *bias, int first) {
    Raw<T, V> b;
#pragma unroll
    for (int i = 0; i < V; i++) b.v[i] = bias[first + i];
    return b;
}

/* p x' + q, and SiLU, rounded and stored. */
template <typename T, int V, bool SILU, bool KEEP> __device__ inline void finish(T *y, float *v, const float *p, const float *q) {
#pragma unroll
    for (int i = 0; i < V; i++) {
        v[i] = fmaf(p[i], v[i], q[i]);
        if (SILU && KEEP) v[i] = act::quotient(v[i], act::exp2_fast(v[i] * -1.4426950408889634f), false);
        else if (SILU && sizeof(T) == 4) v[i] = act::silu(v[i]);
    }
    if constexpr (PAIRS<T, V>) {
        fast::Wide w;
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            w.p[i] = fast::round2(v[2 * i], v[2 * i + 1]);
            if (SILU && !KEEP) w.p[i] = act::silu_of_pair(w.p[i]);
        }
        fast::put(y, w);
    } else {
        if (SILU && !KEEP && sizeof(T) == 2)
#pragma unroll
            for (int i = 0; i < V; i++) v[i] = act::silu_of_bf16(r<T>(v[i]));
        rows::store<T, V>(y, v);
    }
}

/* --- sums --- */

/* What means of partial sums are relative to: x' of the group's first channel at the first pixel. */
template <typename T, bool KEEP> __device__ inline float base_of(const T *x, const T *bias, int first) {
    float v = widen<T>(x[first]);
    return bias ? biased<T, KEEP>(v, widen<T>(bias[first])) : v;
}

/* partial[chunk][slot] = mean of x' less the group's base, and the sum of squared distances from that mean. */
template <typename T, int V, bool BIAS, bool KEEP>
__global__ void __launch_bounds__(THREADS) k_groupnorm_partial(float2 *partial, const T *x, const T *bias, Walk w,
                                                               int64_t chunk) {
    __shared__ float2 shared[THREADS][V];
    int lane = threadIdx.x / w.wide, lanes = THREADS / w.wide, vector = blockIdx.y * w.wide + threadIdx.x % w.wide;
    bool active = lane < lanes && vector < w.vectors;
    fast::begin();
    int64_t first = blockIdx.x * chunk, end = first + chunk < w.pixels ? first + chunk : w.pixels;
    float sum[V] = {}, square[V] = {}, shift[V] = {};
    if (active) {
        Raw<T, V> add = {};
        if (BIAS) add = bias_of<T, V>(bias, vector * V);
        Vector<T, V, BIAS, KEEP> raw[SUM_AHEAD];
        raw[0].read(x + pixel_at<V>(w, first) + vector * V);
        raw[0].to(shift, add);
        auto sums = [&](const Vector<T, V, BIAS, KEEP> &at) {
            float v[V];
            at.to(v, add);
#pragma unroll
            for (int i = 0; i < V; i++) {
                float d = v[i] - shift[i];
                sum[i] += d;
                square[i] = fmaf(d, d, square[i]);
            }
        };
        int64_t p = first + lane;
        for (; p + (SUM_AHEAD - 1) * lanes < end; p += SUM_AHEAD * lanes) {
#pragma unroll
            for (int u = 0; u < SUM_AHEAD; u++) raw[u].read(x + pixel_at<V>(w, p + u * lanes) + vector * V);
#pragma unroll
            for (int u = 0; u < SUM_AHEAD; u++) sums(raw[u]);
        }
        for (; p < end; p += lanes) {
            raw[0].read(x + pixel_at<V>(w, p) + vector * V);
            sums(raw[0]);
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++) shared[threadIdx.x][i] = make_float2(sum[i], square[i]);
    int half = 1;
    while (half < lanes) half *= 2;
    for (half /= 2; half; half /= 2) {
        __syncthreads();
        if (!active || lane >= half || lane + half >= lanes) continue;
#pragma unroll
        for (int i = 0; i < V; i++) {
            float2 other = shared[threadIdx.x + half * w.wide][i];
            sum[i] += other.x;
            square[i] += other.y;
            shared[threadIdx.x][i] = make_float2(sum[i], square[i]);
        }
    }
    if (!active || lane) return;
    double n = (double)(end - first), each = 1 / n, mean[V];
    float base = base_of<T, KEEP>(x, BIAS ? bias : nullptr, vector * V / w.group * w.group);
    int group = vector * V / w.group;
#pragma unroll
    for (int i = 0; i < V; i++) {
        if ((vector * V + i) / w.group != group) {
            group = (vector * V + i) / w.group;
            base = base_of<T, KEEP>(x, BIAS ? bias : nullptr, group * w.group);
        }
        mean[i] = ((double)shift[i] - base) + sum[i] * each;
    }
    for (int s = 0; s < V; s += w.slot) {
        double middle = 0, squares = 0;
#pragma unroll
        for (int i = 0; i < V; i++) middle += i >= s && i < s + w.slot ? mean[i] : 0;
        middle *= 1.0 / w.slot;
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (i < s || i >= s + w.slot) continue;
            double own = square[i] - (double)sum[i] * sum[i] * each, apart = mean[i] - middle;
            squares += (own < 0 ? 0 : own) + n * apart * apart;
        }
        partial[(int64_t)blockIdx.x * (w.channels / w.slot) + (vector * V + s) / w.slot] =
            make_float2((float)middle, (float)squares);
    }
}

/* Over the block, in one order; all threads get the result. */
__device__ inline double block_sum(double v, double *shared) {
    __syncthreads();
    shared[threadIdx.x] = v;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    __syncthreads();
    return shared[0];
}

/* Where an f32 Welford sum of PyTorch's kind may end, and whether all of that rounds to one number. The reach is some four times
 * the root mean square of the sum's roundings and what a mean far from 0 adds; sums of normal numbers ended within a third of
 * it, for means of up to 50 deviations and up to 4 million numbers. */
template <typename T> __device__ inline bool certain(double mean, double var, double eps, double count) {
    if (sizeof(T) == 4) return true; /* nothing is rounded */
    if (count <= groupnorm::ALWAYS) return false;
    const double u = 0x1p-24, pushes = count / groupnorm::LANES, apart = u * mean * u * mean / var;
    double reach = 4 * u * (fabs(mean) * (sqrt(pushes / (3 * groupnorm::LANES)) + 4) + sqrt(var));
    double share = 4 * u * (sqrt(pushes / (9 * groupnorm::LANES)) + 6) + 64 * apart * pushes;
    float low = r<T>((float)(mean - reach)), high = r<T>((float)(mean + reach));
    float few = r<T>((float)(1 / sqrt(var * (1 + share) + eps))), many = r<T>((float)(1 / sqrt(var * (1 - share) + eps)));
    return (low == high && few == many) || !isfinite(mean) || !isfinite(var);
}

/* channel[c] = p and q of the contract, one block a group. KEEP: with the bias in q. */
template <typename T, bool KEEP>
__global__ void __launch_bounds__(THREADS) k_groupnorm_stats(float2 *channel, groupnorm::Group *groups, const float2 *partial,
                                                             const T *x, groupnorm::Affine<T> f, Walk w, int64_t chunk,
                                                             int64_t chunks) {
    __shared__ double shared[THREADS];
    fast::begin();
    int first = blockIdx.x * w.group, slots = w.group / w.slot, row = w.channels / w.slot;
    const float2 *mine = partial + first / w.slot;
    int items = (int)chunks * slots; /* at most CHUNKS_MAX times a group's channels */
    double last = (double)((w.pixels - (chunks - 1) * chunk) * w.slot), full = (double)(chunk * w.slot), sum = 0, squares = 0;
    for (int i = threadIdx.x; i < items; i += THREADS) {
        int k = i / slots;
        sum += (k + 1 < chunks ? full : last) * mine[(int64_t)k * row + (i - k * slots)].x;
    }
    double count = (double)w.pixels * w.group, mean = block_sum(sum, shared) / count;
    for (int i = threadIdx.x; i < items; i += THREADS) {
        int k = i / slots;
        float2 part = mine[(int64_t)k * row + (i - k * slots)];
        double apart = part.x - mean;
        squares += part.y + (k + 1 < chunks ? full : last) * apart * apart;
    }
    double var = block_sum(squares, shared) / count, eps = r<T>(f.eps);
    mean += base_of<T, KEEP>(x, f.bias, first);
    bool known = KEEP || certain<T>(mean, var, eps, count);
    if (threadIdx.x == 0) groups[blockIdx.x].open = !known, groups[blockIdx.x].done = 0;
    if (known)
        groupnorm::fold<T, KEEP>(channel, f, first, w.group, r<T>((float)mean), r<T>((float)(1.0 / sqrt(var + eps))), threadIdx.x,
                                 THREADS);
}

/* --- apply --- */

template <typename T, int V, bool SILU, bool BIAS, bool KEEP>
__global__ void __launch_bounds__(THREADS, APPLY_RESIDENT) k_groupnorm_apply(T *y, Walk to, const T *x, const T *bias, Walk w,
                                                             const float2 *channel, int64_t steps) {
    int lane = threadIdx.x / w.wide, lanes = THREADS / w.wide, vector = blockIdx.y * w.wide + threadIdx.x % w.wide;
    fast::begin();
    if (lane >= lanes || vector >= w.vectors) return;
    constexpr bool ADD = BIAS && !KEEP;
    float p[V], q[V];
    Raw<T, V> add = {};
#pragma unroll
    for (int i = 0; i < V; i++) {
        float2 c = channel[vector * V + i];
        p[i] = c.x;
        q[i] = c.y;
    }
    if (ADD) add = bias_of<T, V>(bias, vector * V);
    /* a block's next pixels are on their way while it finishes the present ones; it begins with the last of all */
    const int64_t step = (int64_t)lanes * APPLY_AHEAD, stride = gridDim.x * step;
    int64_t at = (steps - 1 - blockIdx.x) * step + lane;
    Vector<T, V, ADD, KEEP> next[APPLY_AHEAD];
    auto read = [&](int64_t from) {
#pragma unroll
        for (int u = 0; u < APPLY_AHEAD; u++)
            if (from + u * lanes < w.pixels) next[u].read(x + pixel_at<V>(w, from + u * lanes) + vector * V);
    };
    read(at);
    for (; at >= 0; at -= stride) {
        Vector<T, V, ADD, KEEP> raw[APPLY_AHEAD];
        float v[V];
#pragma unroll
        for (int u = 0; u < APPLY_AHEAD; u++) raw[u] = next[u];
        if (at >= stride) read(at - stride);
#pragma unroll
        for (int u = 0; u < APPLY_AHEAD; u++) {
            if (at + u * lanes >= w.pixels) break;
            raw[u].to(v, add);
            finish<T, V, SILU, KEEP>(y + pixel_at<V>(to, at + u * lanes) + vector * V, v, p, q);
        }
    }
}

int common_divisor(int a, int b) {
    while (b) {
        int c = a % b;
        a = b;
        b = c;
    }
    return a;
}

Walk walk_of(const Tensor &t, int v, int groups) {
    Walk w = {};
    w.pixels = t.shape[0] * t.shape[1];
    w.width = t.shape[1];
    w.pixel = t.shape[1] > 1 ? t.stride[1] : t.shape[2];
    w.line = t.shape[0] > 1 ? t.stride[0] : w.width * w.pixel;
    w.channels = (int)t.shape[2];
    w.vectors = w.channels / v;
    w.wide = w.vectors < THREADS ? w.vectors : THREADS;
    w.group = w.channels / groups;
    w.slot = common_divisor(w.group, v);
    return w;
}

/* Where a call keeps what it found. */
struct Scratch {
    float2 *partial, *channel;
    groupnorm::Group *groups;
};

template <typename T, int V, bool SILU, bool BIAS, bool KEEP> Status launch(Exec *x, const GroupNorm *a, Scratch s) {
    Plan p = plan_of(a);
    Walk w = walk_of(a->x, V, a->groups), to = walk_of(a->y, V, a->groups);
    T *out = (T *)a->y.data;
    const T *in = (const T *)a->x.data, *bias = BIAS ? (const T *)a->bias.data : NULL;
    groupnorm::Affine<T> f = {(const T *)a->w.data, (const T *)a->b.data, bias, a->eps};
    unsigned across = (unsigned)((w.vectors + w.wide - 1) / w.wide);
    int64_t step = (int64_t)(THREADS / w.wide) * APPLY_AHEAD, steps = (w.pixels + step - 1) / step;
    int64_t most = ((int64_t)x->cuda->sm_count * APPLY_RESIDENT + across - 1) / across;
    dim3 blocks((unsigned)(steps < most ? steps : most), across), chunks((unsigned)p.chunks, across);
    fast::launch_early(x, k_groupnorm_partial<T, V, BIAS, KEEP>, chunks, THREADS, 0, s.partial, in, bias, w, p.chunk);
    fast::launch_early(x, k_groupnorm_stats<T, KEEP>, dim3((unsigned)a->groups), THREADS, 0, s.channel, s.groups, s.partial, in,
                       f, w, p.chunk, p.chunks);
    if (sizeof(T) == 2 && !KEEP) groupnorm::launch_exact<T>(x, s.channel, s.groups, in, f, w, a->groups);
    fast::launch_early(x, k_groupnorm_apply<T, V, SILU, BIAS, KEEP>, blocks, THREADS, 0, out, to, in, bias, w, s.channel,
                       steps);
    return cuda_launched(x, SILU ? "groupnorm_silu" : "groupnorm");
}

template <typename T, int V> Status choose(Exec *x, const GroupNorm *a, bool silu, Scratch s) {
    if (a->bias.rank) return silu ? launch<T, V, true, true, false>(x, a, s)
                                  : launch<T, V, false, true, false>(x, a, s);
    return silu ? launch<T, V, true, false, false>(x, a, s)
                : launch<T, V, false, false, false>(x, a, s);
}

template <int V> Status choose_kept(Exec *x, const GroupNorm *a, Scratch s) {
    return a->bias.rank ? launch<__nv_bfloat16, V, true, true, true>(x, a, s)
                        : launch<__nv_bfloat16, V, true, false, true>(x, a, s);
}

/* Can a picture be read V channels at a time, pixel after pixel? */
bool vectorable(const Tensor &t, int v) {
    size_t size = dtype_size(t.dtype);
    Walk w = walk_of(t, 1, 1);
    return w.line == w.width * w.pixel && t.shape[2] % v == 0 && (t.shape[1] == 1 || t.stride[1] % v == 0) &&
           (t.shape[0] == 1 || t.stride[0] % v == 0) && (uintptr_t)t.data % (v * size) == 0;
}

Status check(Exec *x, OpId op, const GroupNorm *a) {
    const char *name = ops_info(op)->name;
    if (a->x.rank != 3 || !tensor_same_shape(a->x, a->y) || a->x.stride[2] != 1 || a->y.stride[2] != 1)
        return fail(x->error, ERR_MODEL, "%s: x and y must be [Y, X, C] of one shape, channels contiguous", name);
    if (a->x.dtype != a->y.dtype || (a->x.dtype != F32 && a->x.dtype != BF16))
        return fail(x->error, ERR_MODEL, "%s: from %s to %s", name, dtype_name(a->x.dtype), dtype_name(a->y.dtype));
    if (a->groups < 1 || a->x.shape[2] % a->groups)
        return fail(x->error, ERR_MODEL, "%s: %lld channels in %d groups", name, (long long)a->x.shape[2], a->groups);
    if (!a->w.rank || !a->b.rank || tensor_numel(a->w) != a->x.shape[2] || tensor_numel(a->b) != a->x.shape[2] ||
        !tensor_contiguous(a->w) || !tensor_contiguous(a->b))
        return fail(x->error, ERR_MODEL, "%s: weight and bias must be vectors of %lld", name, (long long)a->x.shape[2]);
    if (a->w.dtype != a->x.dtype || a->b.dtype != a->x.dtype)
        return fail(x->error, ERR_MODEL, "%s: weight %s and bias %s, expected %s as x", name, dtype_name(a->w.dtype),
                    dtype_name(a->b.dtype), dtype_name(a->x.dtype));
    if (a->bias.rank && (tensor_numel(a->bias) != a->x.shape[2] || !tensor_contiguous(a->bias) || a->bias.dtype != a->x.dtype))
        return fail(x->error, ERR_MODEL, "%s: bias of %lld elements in %s, expected a vector of %lld in %s", name,
                    (long long)tensor_numel(a->bias), dtype_name(a->bias.dtype), (long long)a->x.shape[2],
                    dtype_name(a->x.dtype));
    return OK;
}

Status normalise(Exec *x, OpId op, const GroupNorm *a, bool keep) {
    TRY(check(x, op, a));
    if (!tensor_numel(a->x)) return OK;
    Plan p = plan_of(a);
    Scratch s = {(float2 *)arena_push(x->scratch, p.partial), (float2 *)arena_push(x->scratch, p.channel),
                 (groupnorm::Group *)arena_push(x->scratch, p.moments)};
    if (!s.partial || !s.channel || !s.groups)
        return fail(x->error, ERR_MEMORY, "%s: no scratch of %zu bytes", ops_info(op)->name, p.partial);
    bool silu = op == OP_groupnorm_silu, bf16 = a->x.dtype == BF16;
    bool wide = vectorable(a->x, bf16 ? 8 : 4) && vectorable(a->y, bf16 ? 8 : 4);
    if (keep) return wide ? choose_kept<8>(x, a, s) : choose_kept<1>(x, a, s);
    if (bf16) return wide ? choose<__nv_bfloat16, 8>(x, a, silu, s)
                          : choose<__nv_bfloat16, 1>(x, a, silu, s);
    return wide ? choose<float, 4>(x, a, silu, s) : choose<float, 1>(x, a, silu, s);
}

Status groupnorm_cuda(Exec *x, const void *args) { return normalise(x, OP_groupnorm, (const GroupNorm *)args, false); }
Status groupnorm_silu_cuda(Exec *x, const void *args) {
    return normalise(x, OP_groupnorm_silu, (const GroupNorm *)args, false);
}

} /* namespace */

Status groupnorm_cuda_silu_f32(Exec *x, const void *args) {
    return normalise(x, OP_groupnorm_silu, (const GroupNorm *)args, true);
}

size_t groupnorm_cuda_scratch(const Exec *x, const void *args) {
    (void)x;
    Plan p = plan_of((const GroupNorm *)args);
    return arena_rounded(p.partial) + arena_rounded(p.channel) + arena_rounded(p.moments);
}

const Impl GROUPNORM_CUDA[] = {
    {OP_groupnorm, "cuda", groupnorm_cuda, groupnorm_cuda_scratch, NULL},
    {OP_groupnorm_silu, "cuda", groupnorm_silu_cuda, groupnorm_cuda_scratch, NULL},
};
const int GROUPNORM_CUDA_COUNT = sizeof GROUPNORM_CUDA / sizeof *GROUPNORM_CUDA;
