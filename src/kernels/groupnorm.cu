/* groupnorm.cu - CUDA reference of groupnorm and groupnorm_silu (norm.h), channels last.
 *
 * Three launches. Partial sums: a block takes a chunk of pixels; each thread sums d and d^2 of one vector of channels in
 * f32, where d is the distance from that channel's value at the first pixel, so a large mean costs no digits.
 * Statistics: one block a group merges the chunks of its channels (count, mean, squares) in double. Apply: ((x - mean) *
 * rstd) * w + b. Nothing is atomic and every sum has one order, a function of the shape alone.
 * Easy to get wrong: y may be x, so statistics must be complete before the first element is written; squares of
 * distances above 1.8e19 overflow f32 and give NaN, as in PyTorch. */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

using rows::load;
using rows::narrow;
using rows::r;
using rows::store;
using rows::widen;

namespace {

constexpr int THREADS = 256, CHUNKS_MAX = 1024, CHUNK_MIN = 64, APPLY_PIXELS = 8;

/* A picture as the kernels walk it: `vectors` of V channels, `wide` of them side by side in a block, which then holds
 * THREADS / wide pixels at a time. */
struct Walk {
    int64_t pixels, line, width; /* line, pixel: strides in elements; width: pixels of a line */
    int64_t pixel;
    int channels, vectors, wide;
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
    p.partial = (size_t)(p.chunks * channels) * sizeof(float2);
    p.channel = (size_t)channels * sizeof(float2);
    return p;
}

size_t rounded(size_t bytes) { return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN; }

__device__ inline int64_t pixel_at(const Walk &w, int64_t p) {
    if (w.line == w.width * w.pixel) return p * w.pixel;
    int64_t y = p / w.width;
    return y * w.line + (p - y * w.width) * w.pixel;
}

/* partial[chunk][channel] = sum of d, sum of d^2. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS) k_groupnorm_partial(float2 *partial, const T *x, Walk w, int64_t chunk) {
    __shared__ float2 shared[THREADS][V];
    int lane = threadIdx.x / w.wide, lanes = THREADS / w.wide, vector = blockIdx.y * w.wide + threadIdx.x % w.wide;
    bool active = lane < lanes && vector < w.vectors;
    float sum[V] = {}, square[V] = {};
    if (active) {
        const T *at = x + vector * V;
        float shift[V], v[V];
        load<T, V>(shift, at);
        int64_t end = (blockIdx.x + 1) * chunk;
        if (end > w.pixels) end = w.pixels;
        for (int64_t p = blockIdx.x * chunk + lane; p < end; p += lanes) {
            load<T, V>(v, at + pixel_at(w, p));
#pragma unroll
            for (int i = 0; i < V; i++) {
                float d = v[i] - shift[i];
                sum[i] += d;
                square[i] = fmaf(d, d, square[i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++) shared[threadIdx.x][i] = make_float2(sum[i], square[i]);
    __syncthreads();
    if (!active || lane) return;
    for (int l = 1; l < lanes; l++)
#pragma unroll
        for (int i = 0; i < V; i++) {
            float2 other = shared[threadIdx.x + l * w.wide][i];
            sum[i] += other.x;
            square[i] += other.y;
        }
#pragma unroll
    for (int i = 0; i < V; i++)
        partial[(int64_t)blockIdx.x * w.channels + vector * V + i] = make_float2(sum[i], square[i]);
}

struct Moments {
    double n, mean, squares;
};

__device__ inline Moments merge(Moments a, Moments b) {
    if (b.n == 0) return a;
    if (a.n == 0) return b;
    double n = a.n + b.n, delta = b.mean - a.mean;
    return {n, a.mean + delta * (b.n / n), a.squares + b.squares + delta * delta * (a.n * (b.n / n))};
}

/* channel[c] = mean and 1/sqrt(var + eps) of c's group, one block a group. */
template <typename T>
__global__ void __launch_bounds__(THREADS) k_groupnorm_stats(float2 *channel, const float2 *partial, const T *x,
                                                             Walk w, int64_t chunk, int64_t chunks, int group, double eps) {
    __shared__ Moments shared[THREADS];
    int64_t items = chunks * group;
    int first = blockIdx.x * group;
    Moments mine = {0, 0, 0};
    for (int64_t i = threadIdx.x; i < items; i += THREADS) {
        int64_t k = i / group;
        int c = first + (int)(i - k * group);
        float2 sums = partial[k * w.channels + c];
        double n = (double)(k + 1 < chunks ? chunk : w.pixels - k * chunk), s = sums.x;
        mine = merge(mine, {n, widen<T>(x[c]) + s / n, sums.y - s * s / n});
    }
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] = merge(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    double var = shared[0].squares / shared[0].n;
    float2 result = make_float2((float)shared[0].mean, (float)(1.0 / sqrt((var < 0 ? 0 : var) + eps)));
    for (int c = threadIdx.x; c < group; c += THREADS) channel[first + c] = result;
}

template <typename T, int V, bool SILU>
__global__ void __launch_bounds__(THREADS) k_groupnorm_apply(T *y, Walk to, const T *x, Walk w, const float2 *channel,
                                                             const T *weight, const T *bias) {
    int lane = threadIdx.x / w.wide, lanes = THREADS / w.wide, vector = blockIdx.y * w.wide + threadIdx.x % w.wide;
    if (lane >= lanes || vector >= w.vectors) return;
    float mean[V], rstd[V], scale[V], shift[V], v[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        float2 c = channel[vector * V + i];
        mean[i] = c.x;
        rstd[i] = c.y;
        scale[i] = widen<T>(weight[vector * V + i]);
        shift[i] = widen<T>(bias[vector * V + i]);
    }
    int64_t p = (int64_t)blockIdx.x * lanes * APPLY_PIXELS + lane;
#pragma unroll 4
    for (int k = 0; k < APPLY_PIXELS && p < w.pixels; k++, p += lanes) {
        load<T, V>(v, x + pixel_at(w, p) + vector * V);
#pragma unroll
        for (int i = 0; i < V; i++) {
            v[i] = (v[i] - mean[i]) * rstd[i] * scale[i] + shift[i];
            if (SILU) {
                v[i] = r<T>(v[i]);
                v[i] = v[i] / (1.0f + expf(-v[i]));
            }
        }
        store<T, V>(y + pixel_at(to, p) + vector * V, v);
    }
}

Walk walk_of(const Tensor &t, int v) {
    Walk w = {};
    w.pixels = t.shape[0] * t.shape[1];
    w.width = t.shape[1];
    w.pixel = t.shape[1] > 1 ? t.stride[1] : t.shape[2];
    w.line = t.shape[0] > 1 ? t.stride[0] : w.width * w.pixel;
    w.channels = (int)t.shape[2];
    w.vectors = w.channels / v;
    w.wide = w.vectors < THREADS ? w.vectors : THREADS;
    return w;
}

template <typename T, int V> Status launch(Exec *x, const GroupNorm *a, bool silu, float2 *partial, float2 *channel) {
    Plan p = plan_of(a);
    Walk w = walk_of(a->x, V), to = walk_of(a->y, V);
    cudaStream_t stream = x->cuda->stream;
    const T *in = (const T *)a->x.data, *weight = (const T *)a->w.data, *bias = (const T *)a->b.data;
    T *out = (T *)a->y.data;
    unsigned across = (unsigned)((w.vectors + w.wide - 1) / w.wide);
    int64_t per_block = (int64_t)(THREADS / w.wide) * APPLY_PIXELS;
    dim3 blocks((unsigned)((w.pixels + per_block - 1) / per_block), across);
    k_groupnorm_partial<T, V><<<dim3((unsigned)p.chunks, across), THREADS, 0, stream>>>(partial, in, w, p.chunk);
    k_groupnorm_stats<T><<<(unsigned)a->groups, THREADS, 0, stream>>>(channel, partial, in, w, p.chunk, p.chunks,
                                                                     w.channels / a->groups, (double)a->eps);
    if (silu) k_groupnorm_apply<T, V, true><<<blocks, THREADS, 0, stream>>>(out, to, in, w, channel, weight, bias);
    else k_groupnorm_apply<T, V, false><<<blocks, THREADS, 0, stream>>>(out, to, in, w, channel, weight, bias);
    return cuda_launched(x, silu ? "groupnorm_silu" : "groupnorm");
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
    return OK;
}

Status normalise(Exec *x, OpId op, const GroupNorm *a) {
    TRY(check(x, op, a));
    if (!tensor_numel(a->x)) return OK;
    Plan p = plan_of(a);
    float2 *partial = (float2 *)arena_push(x->scratch, p.partial), *channel = (float2 *)arena_push(x->scratch, p.channel);
    if (!partial || !channel) return fail(x->error, ERR_MEMORY, "%s: no scratch of %zu bytes", ops_info(op)->name, p.partial);
    bool silu = op == OP_groupnorm_silu, bf16 = a->x.dtype == BF16;
    bool wide = vectorable(a->x, bf16 ? 8 : 4) && vectorable(a->y, bf16 ? 8 : 4);
    if (bf16) return wide ? launch<__nv_bfloat16, 8>(x, a, silu, partial, channel)
                          : launch<__nv_bfloat16, 1>(x, a, silu, partial, channel);
    return wide ? launch<float, 4>(x, a, silu, partial, channel) : launch<float, 1>(x, a, silu, partial, channel);
}

Status groupnorm_cuda(Exec *x, const void *args) { return normalise(x, OP_groupnorm, (const GroupNorm *)args); }
Status groupnorm_silu_cuda(Exec *x, const void *args) { return normalise(x, OP_groupnorm_silu, (const GroupNorm *)args); }

size_t groupnorm_scratch(const Exec *x, const void *args) {
    (void)x;
    Plan p = plan_of((const GroupNorm *)args);
    return rounded(p.partial) + rounded(p.channel);
}

} /* namespace */

const Impl GROUPNORM_CUDA[] = {
    {OP_groupnorm, "cuda", groupnorm_cuda, groupnorm_scratch, NULL},
    {OP_groupnorm_silu, "cuda", groupnorm_silu_cuda, groupnorm_scratch, NULL},
};
const int GROUPNORM_CUDA_COUNT = sizeof GROUPNORM_CUDA / sizeof *GROUPNORM_CUDA;
