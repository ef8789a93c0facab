/* groupnorm.cu - CUDA reference of groupnorm and groupnorm_silu (norm.h), channels last, and groupnorm_silu of the family
 * vae-kl-rewrite (KEEP: neither x + bias nor what SiLU sees is rounded).
 *
 * Three launches. Partial sums: a block takes a chunk of pixels; each thread sums d and d^2 of one vector of channels in
 * f32, where d is the distance from that channel's value at the chunk's first pixel, so a large mean costs no digits; then
 * neighbouring channels of one group are merged. Statistics: one block a group merges the chunks in double and folds them
 * with the affine into p and q. Apply: fmaf(p, x', q). Nothing is atomic and every sum has one order, a function of the
 * shape alone.
 * Easy to get wrong: y may be x, so statistics must be complete before the first element is written; squares of
 * distances above 1.8e19 overflow f32 and give NaN, as in PyTorch; SiLU of a rounded BF16 value has the bits of the exact
 * exponential with the fast one, as long as the division is exact (checked for all 65,536 values). */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"
#include "kernels/vae_rewrite.h"

using rows::load;
using rows::r;
using rows::store;
using rows::widen;

namespace {

/* AHEAD: loads in flight a thread. Three blocks an SM of the apply kernel, two of the sums', are enough to fill the memory. */
constexpr int THREADS = 256, CHUNKS_MAX = 1024, CHUNK_MIN = 64;
constexpr int SUM_AHEAD = 4, APPLY_AHEAD = 2, APPLY_MAX = 16, APPLY_BLOCKS = 2112;

/* A picture as the kernels walk it: `vectors` of V channels, `wide` of them side by side in a block, which then holds
 * THREADS / wide pixels at a time. */
struct Walk {
    int64_t pixels, line, width; /* line, pixel: strides in elements; width: pixels of a line */
    int64_t pixel;
    int channels, vectors, wide;
    int group, slot; /* channels of a group; of the pieces of it that one thread merges */
};

struct Plan {
    int64_t pixels, chunk, chunks;
    size_t partial, channel;
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
    return p;
}

size_t rounded(size_t bytes) { return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN; }

__device__ inline int64_t pixel_at(const Walk &w, int64_t p) {
    if (w.line == w.width * w.pixel) return p * w.pixel;
    int64_t y = p / w.width;
    return y * w.line + (p - y * w.width) * w.pixel;
}

/* x' of one element. */
template <typename T, bool KEEP> __device__ inline float biased(float v, float bias) {
    return KEEP ? v + bias : r<T>(v + bias);
}

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
    int64_t first = blockIdx.x * chunk, end = first + chunk < w.pixels ? first + chunk : w.pixels;
    float sum[V] = {}, square[V] = {}, shift[V] = {}, add[V] = {};
    if (active) {
        const T *at = x + vector * V;
        load<T, V>(shift, at + pixel_at(w, first));
#pragma unroll
        for (int i = 0; BIAS && i < V; i++) {
            add[i] = widen<T>(bias[vector * V + i]);
            shift[i] = biased<T, KEEP>(shift[i], add[i]);
        }
        auto take = [&](const float *v) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                float d = (BIAS ? biased<T, KEEP>(v[i], add[i]) : v[i]) - shift[i];
                sum[i] += d;
                square[i] = fmaf(d, d, square[i]);
            }
        };
        int64_t p = first + lane;
        float v[SUM_AHEAD][V];
        for (; p + (SUM_AHEAD - 1) * lanes < end; p += SUM_AHEAD * lanes) {
#pragma unroll
            for (int u = 0; u < SUM_AHEAD; u++) load<T, V>(v[u], at + pixel_at(w, p + u * lanes));
#pragma unroll
            for (int u = 0; u < SUM_AHEAD; u++) take(v[u]);
        }
        for (; p < end; p += lanes) {
            load<T, V>(v[0], at + pixel_at(w, p));
            take(v[0]);
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
    double n = (double)(end - first), mean[V];
    float base = base_of<T, KEEP>(x, BIAS ? bias : nullptr, vector * V / w.group * w.group);
    int group = vector * V / w.group;
#pragma unroll
    for (int i = 0; i < V; i++) {
        if ((vector * V + i) / w.group != group) {
            group = (vector * V + i) / w.group;
            base = base_of<T, KEEP>(x, BIAS ? bias : nullptr, group * w.group);
        }
        mean[i] = ((double)shift[i] - base) + sum[i] / n;
    }
    for (int s = 0; s < V; s += w.slot) {
        double middle = 0, squares = 0;
#pragma unroll
        for (int i = 0; i < V; i++) middle += i >= s && i < s + w.slot ? mean[i] : 0;
        middle /= w.slot;
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (i < s || i >= s + w.slot) continue;
            double own = square[i] - (double)sum[i] * sum[i] / n, apart = mean[i] - middle;
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

/* channel[c] = p and q of the contract, one block a group. KEEP: with the bias in q. */
template <typename T, bool KEEP>
__global__ void __launch_bounds__(THREADS) k_groupnorm_stats(float2 *channel, const float2 *partial, const T *x, const T *bias,
                                                             const T *weight, const T *shift, Walk w, int64_t chunk,
                                                             int64_t chunks, float eps) {
    __shared__ double shared[THREADS];
    int first = blockIdx.x * w.group, slots = w.group / w.slot, row = w.channels / w.slot;
    const float2 *mine = partial + first / w.slot;
    int64_t items = chunks * slots;
    double last = (double)((w.pixels - (chunks - 1) * chunk) * w.slot), full = (double)(chunk * w.slot), sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < items; i += THREADS) {
        int64_t k = i / slots;
        sum += (k + 1 < chunks ? full : last) * mine[k * row + (i - k * slots)].x;
    }
    double count = (double)w.pixels * w.group, mean = block_sum(sum, shared) / count;
    for (int64_t i = threadIdx.x; i < items; i += THREADS) {
        int64_t k = i / slots;
        float2 part = mine[k * row + (i - k * slots)];
        double apart = part.x - mean;
        squares += part.y + (k + 1 < chunks ? full : last) * apart * apart;
    }
    double var = block_sum(squares, shared) / count + r<T>(eps);
    float m = r<T>((float)(base_of<T, KEEP>(x, bias, first) + mean)), s = r<T>((float)(1.0 / sqrt(var)));
    for (int c = first + threadIdx.x; c < first + w.group; c += THREADS) {
        float p = s * widen<T>(weight[c]), q = fmaf(-p, m, widen<T>(shift[c]));
        if (KEEP && bias) q = fmaf(p, widen<T>(bias[c]), q);
        channel[c] = make_float2(p, q);
    }
}

/* The bits of v / (1 + expf(-v)) for every BF16 v. */
template <typename T> __device__ inline float silu(float v) { return v / (1.0f + expf(-v)); }
template <> __device__ inline float silu<__nv_bfloat16>(float v) { return v / (1.0f + __expf(-v)); }

template <typename T, int V, bool SILU, bool BIAS, bool KEEP>
__global__ void __launch_bounds__(THREADS, 3) k_groupnorm_apply(T *y, Walk to, const T *x, const T *bias, Walk w,
                                                             const float2 *channel, int each) {
    int lane = threadIdx.x / w.wide, lanes = THREADS / w.wide, vector = blockIdx.y * w.wide + threadIdx.x % w.wide;
    if (lane >= lanes || vector >= w.vectors) return;
    float p[V], q[V];
    T add[V]; /* packed: registers are short */
#pragma unroll
    for (int i = 0; i < V; i++) {
        float2 c = channel[vector * V + i];
        p[i] = c.x;
        q[i] = c.y;
        if (BIAS && !KEEP) add[i] = bias[vector * V + i];
    }
    auto finish = [&](float *v) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (BIAS && !KEEP) v[i] = r<T>(v[i] + widen<T>(add[i]));
            v[i] = fmaf(p[i], v[i], q[i]);
            if (SILU && KEEP) v[i] = __fdividef(v[i], 1.0f + expf(-v[i]));
            else if (SILU) v[i] = silu<T>(r<T>(v[i]));
        }
    };
    int64_t at = (int64_t)blockIdx.x * lanes * each + lane, end = at + (int64_t)lanes * each;
    if (end > w.pixels) end = w.pixels;
    float v[APPLY_AHEAD][V];
    for (; at + (APPLY_AHEAD - 1) * lanes < end; at += APPLY_AHEAD * lanes) {
#pragma unroll
        for (int u = 0; u < APPLY_AHEAD; u++) load<T, V>(v[u], x + pixel_at(w, at + u * lanes) + vector * V);
#pragma unroll
        for (int u = 0; u < APPLY_AHEAD; u++) {
            finish(v[u]);
            store<T, V>(y + pixel_at(to, at + u * lanes) + vector * V, v[u]);
        }
    }
    for (; at < end; at += lanes) {
        load<T, V>(v[0], x + pixel_at(w, at) + vector * V);
        finish(v[0]);
        store<T, V>(y + pixel_at(to, at) + vector * V, v[0]);
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

template <typename T, int V, bool SILU, bool BIAS, bool KEEP>
Status launch(Exec *x, const GroupNorm *a, float2 *partial, float2 *channel) {
    Plan p = plan_of(a);
    Walk w = walk_of(a->x, V, a->groups), to = walk_of(a->y, V, a->groups);
    cudaStream_t stream = x->cuda->stream;
    const T *in = (const T *)a->x.data, *bias = BIAS ? (const T *)a->bias.data : NULL;
    unsigned across = (unsigned)((w.vectors + w.wide - 1) / w.wide);
    int64_t lanes = THREADS / w.wide, each = w.pixels * across / (lanes * APPLY_BLOCKS);
    each = each < APPLY_AHEAD ? APPLY_AHEAD : each > APPLY_MAX ? APPLY_MAX : each / APPLY_AHEAD * APPLY_AHEAD;
    dim3 blocks((unsigned)((w.pixels + lanes * each - 1) / (lanes * each)), across);
    k_groupnorm_partial<T, V, BIAS, KEEP><<<dim3((unsigned)p.chunks, across), THREADS, 0, stream>>>(partial, in, bias, w,
                                                                                                    p.chunk);
    k_groupnorm_stats<T, KEEP><<<(unsigned)a->groups, THREADS, 0, stream>>>(
        channel, partial, in, bias, (const T *)a->w.data, (const T *)a->b.data, w, p.chunk, p.chunks, a->eps);
    k_groupnorm_apply<T, V, SILU, BIAS, KEEP><<<blocks, THREADS, 0, stream>>>((T *)a->y.data, to, in, bias, w, channel,
                                                                              (int)each);
    return cuda_launched(x, SILU ? "groupnorm_silu" : "groupnorm");
}

template <typename T, int V> Status choose(Exec *x, const GroupNorm *a, bool silu, float2 *partial, float2 *channel) {
    if (a->bias.rank) return silu ? launch<T, V, true, true, false>(x, a, partial, channel)
                                  : launch<T, V, false, true, false>(x, a, partial, channel);
    return silu ? launch<T, V, true, false, false>(x, a, partial, channel)
                : launch<T, V, false, false, false>(x, a, partial, channel);
}

template <int V> Status choose_kept(Exec *x, const GroupNorm *a, float2 *partial, float2 *channel) {
    return a->bias.rank ? launch<__nv_bfloat16, V, true, true, true>(x, a, partial, channel)
                        : launch<__nv_bfloat16, V, true, false, true>(x, a, partial, channel);
}

/* Can a picture be read V channels at a time? */
bool vectorable(const Tensor &t, int v) {
    size_t size = dtype_size(t.dtype);
    return t.shape[2] % v == 0 && (t.shape[1] == 1 || t.stride[1] % v == 0) && (t.shape[0] == 1 || t.stride[0] % v == 0) &&
           (uintptr_t)t.data % (v * size) == 0;
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
    float2 *partial = (float2 *)arena_push(x->scratch, p.partial), *channel = (float2 *)arena_push(x->scratch, p.channel);
    if (!partial || !channel) return fail(x->error, ERR_MEMORY, "%s: no scratch of %zu bytes", ops_info(op)->name, p.partial);
    bool silu = op == OP_groupnorm_silu, bf16 = a->x.dtype == BF16;
    bool wide = vectorable(a->x, bf16 ? 8 : 4) && vectorable(a->y, bf16 ? 8 : 4);
    if (keep) return wide ? choose_kept<8>(x, a, partial, channel) : choose_kept<1>(x, a, partial, channel);
    if (bf16) return wide ? choose<__nv_bfloat16, 8>(x, a, silu, partial, channel)
                          : choose<__nv_bfloat16, 1>(x, a, silu, partial, channel);
    return wide ? choose<float, 4>(x, a, silu, partial, channel) : choose<float, 1>(x, a, silu, partial, channel);
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
    return rounded(p.partial) + rounded(p.channel);
}

const Impl GROUPNORM_CUDA[] = {
    {OP_groupnorm, "cuda", groupnorm_cuda, groupnorm_cuda_scratch, NULL},
    {OP_groupnorm_silu, "cuda", groupnorm_silu_cuda, groupnorm_cuda_scratch, NULL},
};
const int GROUPNORM_CUDA_COUNT = sizeof GROUPNORM_CUDA / sizeof *GROUPNORM_CUDA;
