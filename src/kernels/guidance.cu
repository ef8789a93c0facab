/* guidance.cu - CUDA reference of what Z-Image does to velocities beside the plain form of guidance: cfg_extrapolate,
 * norm_limit, negate (elementwise.h).
 *
 * norm_limit: each norm is summed in double, block by block in a fixed order, and rounded to f32 once, as the CPU table does.
 * Easy to get wrong: y may be x, so the norms are complete before the product starts; nothing here may depend on which
 * block ends first. */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

using rows::r;

namespace {

template <typename T> struct ExtrapolateF {
    static constexpr int INPUTS = 2;
    const float *scale;
    __device__ float operator()(float pos, float neg, float) const { return pos + r<T>(*scale * r<T>(pos - neg)); }
};

template <typename T> struct NegateF {
    static constexpr int INPUTS = 1;
    __device__ float operator()(float v, float, float) const { return -v; }
};

Status cfg_extrapolate_cuda(Exec *x, const void *args) {
    const CfgCombine *a = (const CfgCombine *)args;
    return rows::map<ExtrapolateF>(x, "cfg_extrapolate", a->y, a->pos, a->neg, Tensor{}, (const float *)a->scale.data);
}

Status negate_cuda(Exec *x, const void *args) {
    const Negate *a = (const Negate *)args;
    return rows::map<NegateF>(x, "negate", a->y, a->x, Tensor{}, Tensor{});
}

/* --- norm_limit --- */

constexpr int THREADS = 256, PARTS = 128; /* partial sums of one tensor */

/* The sum of the block's values in thread 0: halved through shared memory. */
__device__ inline double block_sum(double v) {
    __shared__ double shared[THREADS];
    shared[threadIdx.x] = v;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    return shared[0];
}

/* parts[which][block]: squares of the elements that are the block's. Grid (PARTS, 2). */
__global__ void __launch_bounds__(THREADS) k_squares(double *parts, rows::View a, rows::View b, rows::Walk w) {
    const rows::View &t = blockIdx.y ? b : a;
    double sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < w.rows * w.cols; i += (int64_t)PARTS * THREADS) {
        int64_t row = i / w.cols;
        double v = ((const float *)t.data)[rows::offset(t, w, row) + (i - row * w.cols) * t.last];
        sum += v * v; /* exact, so a contracted sum would be the same */
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.y * PARTS + blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    k_norm_limit(rows::View y, rows::View x, rows::Walk w, const double *parts, float limit) {
    __shared__ double sums[2];
    if (threadIdx.x < 2) {
        double sum = 0;
        for (int i = 0; i < PARTS; i++) sum += parts[threadIdx.x * PARTS + i];
        sums[threadIdx.x] = sum;
    }
    __syncthreads();
    float have = (float)sqrt(sums[0]), most = limit * (float)sqrt(sums[1]), by = have > most ? most / have : 1.0f;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= w.rows * w.cols) return;
    int64_t row = i / w.cols, col = i - row * w.cols;
    float v = ((const float *)x.data)[rows::offset(x, w, row) + col * x.last];
    ((float *)y.data)[rows::offset(y, w, row) + col * y.last] = v * by;
}

size_t norm_limit_scratch(const Exec *x, const void *args) {
    (void)x, (void)args;
    return 2 * PARTS * sizeof(double);
}

Status norm_limit_cuda(Exec *x, const void *args) {
    const NormLimit *a = (const NormLimit *)args;
    if (a->x.dtype != F32 || a->y.dtype != F32 || a->like.dtype != F32)
        return fail(x->error, ERR_MODEL, "norm_limit: x is %s, expected F32", dtype_name(a->x.dtype));
    if (!tensor_same_shape(a->y, a->x) || !tensor_same_shape(a->like, a->x))
        return fail(x->error, ERR_MODEL, "norm_limit: x, y and like must have one shape");
    double *parts = (double *)arena_push(x->scratch, norm_limit_scratch(x, args));
    if (!parts) return fail(x->error, ERR_MEMORY, "norm_limit: no scratch");
    Tensor ty = a->y, tx = a->x, like = a->like, *all[] = {&ty, &tx, &like};
    rows::flatten(3, all);
    rows::Walk w = rows::walk_of(ty);
    rows::View y = rows::view_of(ty, w), in = rows::view_of(tx, w), other = rows::view_of(like, w);
    unsigned blocks = (unsigned)((w.rows * w.cols + THREADS - 1) / THREADS);
    if (!blocks) return OK;
    k_squares<<<dim3(PARTS, 2), THREADS, 0, x->cuda->stream>>>(parts, in, other, w);
    k_norm_limit<<<blocks, THREADS, 0, x->cuda->stream>>>(y, in, w, parts, a->limit);
    return cuda_launched(x, "norm_limit");
}

} /* namespace */

const Impl GUIDANCE_CUDA[] = {
    {OP_cfg_extrapolate, "cuda", cfg_extrapolate_cuda, NULL, NULL},
    {OP_norm_limit, "cuda", norm_limit_cuda, norm_limit_scratch, NULL},
    {OP_negate, "cuda", negate_cuda, NULL, NULL},
};
const int GUIDANCE_CUDA_COUNT = sizeof GUIDANCE_CUDA / sizeof *GUIDANCE_CUDA;
