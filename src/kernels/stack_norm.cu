/* stack_norm.cu - CUDA reference of stack_range_norm and stack_rms_norm (stack_norm.h), in the order of PyTorch's reduction over
 * dimensions that are not the fastest (Reduce.cuh): a block has a column of threads for each layer of up to 32; thread y of
 * block c takes the elements y + h c + h C j of its layer into accumulator j mod 4; ((a0 + a1) + a2) + a3; the column halves;
 * with C above 1, thread y of one block then adds the results of the blocks y, y + h, ... and the column halves again.
 *
 * Easy to get wrong: padding keeps its places in that order (PyTorch sums zeros there), so the elements are counted from the
 * first token although the padding is not read; C depends on the number of SMs, but for LTX-2's 1024 x 3840 it does not. */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

using rows::narrow;
using rows::r;
using rows::widen;

namespace {

constexpr int MOST_THREADS = 512, WARP = 32, ACCUMULATORS = 4, MAP_THREADS = 256, EACH = 8;

/* How PyTorch cuts `inputs` elements for each of `outputs` sums that lie side by side. */
struct Cut {
    int width, height; /* of a block: sums, threads a sum */
    int blocks;        /* C */
};

int power_below(int64_t n) {
    int p = 1;
    while (2 * (int64_t)p <= n && p < MOST_THREADS) p *= 2;
    return p;
}

int64_t quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* outputs must not be a multiple of 2: then sums would be made 2 or 4 a thread. */
Cut cut_of(int sms, int64_t outputs, int64_t inputs) {
    int across = power_below(outputs), along = power_below(inputs);
    Cut c = {};
    c.width = across < WARP ? across : WARP;
    c.height = along < MOST_THREADS / c.width ? along : MOST_THREADS / c.width;
    c.width = across < MOST_THREADS / c.height ? across : MOST_THREADS / c.height;
    c.blocks = 1;
    int threads = c.width * c.height;
    if (inputs < (c.height * 16 < 256 ? c.height * 16 : 256)) {
        c.height = 1;
        return c;
    }
    int64_t each = quotient(inputs, c.height), grid = quotient(outputs, c.width), fill = (int64_t)sms * (2048 / threads);
    if (each >= 256 && grid <= fill) {
        int64_t most = quotient(fill, grid), enough = quotient(each, 16), least = quotient(each, 256);
        if (most > enough) most = enough;
        c.blocks = (int)(most < least ? least : most);
    }
    return c;
}

/* In line 0 afterwards: the column's values joined in halves. */
template <typename F> __device__ inline float halve(float v, float *shared, F join) {
    for (int half = blockDim.y / 2; half; half /= 2) {
        shared[threadIdx.y * blockDim.x + threadIdx.x] = v;
        __syncthreads();
        if (threadIdx.y < half) v = join(v, shared[(threadIdx.y + half) * blockDim.x + threadIdx.x]);
        __syncthreads();
    }
    return v;
}

struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };
struct Low { __device__ float operator()(float a, float b) const { return a <= b || isnan(a) ? a : b; } };
struct High { __device__ float operator()(float a, float b) const { return a >= b || isnan(a) ? a : b; } };

/* --- mean and range --- */

/* part[0..2][block][layer]: sum, smallest, largest. from: the first element that is no padding, count: elements of a layer. */
template <typename T> __global__ void k_parts(float *part, const T *x, int64_t from, int64_t count, int layers) {
    __shared__ float shared[MOST_THREADS];
    int layer = blockIdx.x * blockDim.x + threadIdx.x;
    bool mine = layer < layers;
    int64_t step = (int64_t)blockDim.y * gridDim.y, at = threadIdx.y + (int64_t)blockDim.y * blockIdx.y;
    float sum[ACCUMULATORS] = {}, low = INFINITY, high = -INFINITY;
    if (from > at) at += (from - at) / (ACCUMULATORS * step) * (ACCUMULATORS * step); /* zeros: whole turns of the accumulators */
    for (; mine && at < count; at += ACCUMULATORS * step)
#pragma unroll
        for (int j = 0; j < ACCUMULATORS; j++) {
            int64_t i = at + j * step;
            if (i < from || i >= count) continue;
            float v = widen<T>(x[i * layers + layer]);
            sum[j] += v;
            low = Low()(low, v);
            high = High()(high, v);
        }
    float all = halve(((sum[0] + sum[1]) + sum[2]) + sum[3], shared, Sum());
    low = halve(low, shared, Low());
    high = halve(high, shared, High());
    if (threadIdx.y || !mine) return;
    int64_t out = (int64_t)blockIdx.y * layers + layer, plane = (int64_t)gridDim.y * layers;
    part[out] = all;
    part[out + plane] = low;
    part[out + 2 * plane] = high;
}

/* stat[layer]: mean, stat[layers + layer]: range. real: n D. */
template <typename T> __global__ void k_stats(float *stat, const float *part, int blocks, int layers, int64_t real, float eps) {
    __shared__ float shared[MOST_THREADS];
    int layer = blockIdx.x * blockDim.x + threadIdx.x;
    bool mine = layer < layers;
    int64_t plane = (int64_t)blocks * layers;
    float sum = 0.0f, low = INFINITY, high = -INFINITY;
    for (int b = threadIdx.y; mine && b < blocks; b += blockDim.y) {
        int64_t at = (int64_t)b * layers + layer;
        sum = sum + part[at];
        low = Low()(low, part[at + plane]);
        high = High()(high, part[at + 2 * plane]);
    }
    sum = halve(sum, shared, Sum());
    low = halve(low, shared, Low());
    high = halve(high, shared, High());
    if (threadIdx.y || !mine) return;
    stat[layer] = r<T>(sum) / ((float)real + eps);
    stat[layers + layer] = r<T>(r<T>(high - low) + eps);
}

/* EACH neighbours a thread; from: as above, in elements of the whole stack. */
template <typename T>
__global__ void __launch_bounds__(MAP_THREADS)
    k_by_range(T *y, const T *x, const float *stat, int64_t from, int64_t n, int layers, float scale) {
    int64_t first = ((int64_t)blockIdx.x * MAP_THREADS + threadIdx.x) * EACH;
    int layer = (int)(first % layers);
    for (int k = 0; k < EACH && first + k < n; k++) {
        int64_t i = first + k;
        float v = i < from ? 0.0f : ((widen<T>(x[i]) - stat[layer]) / stat[layers + layer]) * scale;
        y[i] = narrow<T>(v);
        layer = layer + 1 == layers ? 0 : layer + 1;
    }
}

/* --- mean square --- */

template <typename T>
__global__ void __launch_bounds__(MOST_THREADS)
    k_rms(T *y, const T *x, int64_t outputs, int64_t pads, int d, int layers, float inverse, float eps) {
    __shared__ float shared[MOST_THREADS];
    int64_t out = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    bool mine = out < outputs;
    int64_t at = mine ? out / layers * d * layers + out % layers : 0;
    const T *from = x + at;
    T *to = y + at;
    float sum[ACCUMULATORS] = {};
    for (int i = threadIdx.y; mine && i < d; i += ACCUMULATORS * blockDim.y)
#pragma unroll
        for (int j = 0; j < ACCUMULATORS; j++) {
            int k = i + j * blockDim.y;
            if (k >= d) continue;
            float v = widen<T>(from[(int64_t)k * layers]);
            sum[j] += r<T>(v * v);
        }
    float all = halve(((sum[0] + sum[1]) + sum[2]) + sum[3], shared, Sum());
    if (threadIdx.y == 0) shared[threadIdx.x] = r<T>(rsqrtf(r<T>(r<T>(all * inverse) + eps)));
    __syncthreads();
    float by = shared[threadIdx.x];
    for (int i = threadIdx.y; mine && i < d; i += blockDim.y)
        to[(int64_t)i * layers] = narrow<T>(out < pads ? 0.0f : widen<T>(from[(int64_t)i * layers]) * by);
}

/* --- the ops --- */

Status check(Exec *x, const char *name, const Tensor &y, const Tensor &in, int32_t first) {
    if (in.rank != 3 || (in.dtype != F32 && in.dtype != BF16) || y.dtype != in.dtype || !tensor_same_shape(y, in) ||
        !tensor_contiguous(in) || !tensor_contiguous(y))
        return fail(x->error, ERR_MODEL, "%s: x and y must be contiguous [tokens, channels, layers]", name);
    if (first < 0 || first >= in.shape[0])
        return fail(x->error, ERR_MODEL, "%s: %d tokens of padding among %lld", name, (int)first, (long long)in.shape[0]);
    return OK;
}

/* SMs are counted when there is a GPU; a plan without one takes the most blocks that the sum can have. */
Cut range_cut(const Exec *x, const Tensor &in) {
    return cut_of(x->cuda ? x->cuda->sm_count : 1 << 16, in.shape[2], in.shape[0] * in.shape[1]);
}

size_t range_scratch(const Exec *x, const void *args) {
    const StackRangeNorm *a = (const StackRangeNorm *)args;
    return (size_t)(3 * (int64_t)range_cut(x, a->x).blocks + 2) * (size_t)a->x.shape[2] * sizeof(float);
}

template <typename T> void range_typed(cudaStream_t stream, const StackRangeNorm *a, Cut cut, float *part) {
    int64_t d = a->x.shape[1], count = a->x.shape[0] * d, n = tensor_numel(a->x);
    int layers = (int)a->x.shape[2];
    float *stat = part + 3 * (int64_t)cut.blocks * layers;
    const T *in = (const T *)a->x.data;
    dim3 threads(cut.width, cut.height), grid((unsigned)quotient(layers, cut.width), (unsigned)cut.blocks);
    k_parts<T><<<grid, threads, 0, stream>>>(part, in, a->first * d, count, layers);
    k_stats<T><<<grid.x, threads, 0, stream>>>(stat, part, cut.blocks, layers, count - a->first * d, a->eps);
    k_by_range<T><<<(unsigned)quotient(n, MAP_THREADS * EACH), MAP_THREADS, 0, stream>>>((T *)a->y.data, in, stat,
                                                                                     a->first * d * layers, n, layers, a->scale);
}

Status stack_range_norm_cuda(Exec *x, const void *args) {
    const StackRangeNorm *a = (const StackRangeNorm *)args;
    TRY(check(x, "stack_range_norm", a->y, a->x, a->first));
    if (!tensor_numel(a->x)) return OK;
    float *part = (float *)arena_push(x->scratch, range_scratch(x, args));
    if (!part) return fail(x->error, ERR_MEMORY, "stack_range_norm: no scratch of %zu bytes", range_scratch(x, args));
    if (a->x.dtype == BF16) range_typed<__nv_bfloat16>(x->cuda->stream, a, range_cut(x, a->x), part);
    else range_typed<float>(x->cuda->stream, a, range_cut(x, a->x), part);
    return cuda_launched(x, "stack_range_norm");
}

template <typename T> void rms_typed(cudaStream_t stream, const StackRmsNorm *a, Cut cut) {
    int64_t outputs = a->x.shape[0] * a->x.shape[2];
    int d = (int)a->x.shape[1], layers = (int)a->x.shape[2];
    float inverse = (float)outputs / (float)tensor_numel(a->x);
    k_rms<T><<<(unsigned)quotient(outputs, cut.width), dim3(cut.width, cut.height), 0, stream>>>(
        (T *)a->y.data, (const T *)a->x.data, outputs, (int64_t)a->first * layers, d, layers, inverse, a->eps);
}

Status stack_rms_norm_cuda(Exec *x, const void *args) {
    const StackRmsNorm *a = (const StackRmsNorm *)args;
    TRY(check(x, "stack_rms_norm", a->y, a->x, a->first));
    if (!tensor_numel(a->x)) return OK;
    Cut cut = cut_of(x->cuda->sm_count, a->x.shape[0] * a->x.shape[2], a->x.shape[1]);
    if (a->x.dtype == BF16) rms_typed<__nv_bfloat16>(x->cuda->stream, a, cut);
    else rms_typed<float>(x->cuda->stream, a, cut);
    return cuda_launched(x, "stack_rms_norm");
}

} /* namespace */

const Impl STACK_NORM_CUDA[] = {
    {OP_stack_range_norm, "cuda", stack_range_norm_cuda, range_scratch, NULL},
    {OP_stack_rms_norm, "cuda", stack_rms_norm_cuda, NULL, NULL},
};
const int STACK_NORM_CUDA_COUNT = sizeof STACK_NORM_CUDA / sizeof *STACK_NORM_CUDA;
