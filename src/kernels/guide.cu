/* guide.cu - CUDA reference of guide_x0 and velocity_x0 (guide.h): guidance of a step in one pass, and back to a velocity.
 *
 * A standard deviation is summed in double, twice: the mean first, then the squares of the distances from it, block by block
 * in a fixed order, as the CPU table does but for the order. Easy to get wrong: outputs may lie on inputs, so both deviations
 * are complete before the product starts; nothing here may depend on which block ends first. */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

namespace {

constexpr int THREADS = 256, PARTS = 128; /* partial sums of one tensor */

__device__ inline float *at(const rows::View &t, const rows::Walk &w, int64_t row, int64_t col) {
    return (float *)t.data + rows::offset(t, w, row) + col * t.last;
}

__device__ inline float kept(float v, bool bf16) { return bf16 ? rows::r<__nv_bfloat16>(v) : v; }

struct Guide {
    rows::View y, c, x, cond, other[3];
    float by[3];
    bool bf16; /* GUIDE_OFFICIAL_BF16 */
};

__global__ void __launch_bounds__(THREADS) k_guide_x0(Guide g, rows::Walk w, const float *sigma) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= w.rows * w.cols) return;
    int64_t row = i / w.cols, col = i - row * w.cols;
    float s = *sigma, x = *at(g.x, w, row, col), c = kept(x - *at(g.cond, w, row, col) * s, g.bf16), y = c;
#pragma unroll
    for (int k = 0; k < 3; k++)
        y += g.other[k].data ? g.by[k] * (c - kept(x - *at(g.other[k], w, row, col) * s, g.bf16)) : 0.0f;
    *at(g.y, w, row, col) = y;
    if (g.c.data) *at(g.c, w, row, col) = c;
}

Status want(Exec *x, const char *op, Tensor t, Tensor like, bool optional) {
    if (optional && !t.rank) return OK;
    if (t.dtype == F32 && tensor_same_shape(t, like)) return OK;
    return fail(x->error, ERR_MODEL, "%s: all tensors must be F32 of one shape", op);
}

Status want_sigma(Exec *x, const char *op, Tensor t) {
    if (t.dtype == F32 && t.rank == 1 && t.shape[0] == 1) return OK;
    return fail(x->error, ERR_MODEL, "%s: sigma must be F32 [1]", op);
}

Status guide_x0_cuda(Exec *x, const void *args) {
    const GuideX0 *a = (const GuideX0 *)args;
    Tensor t[] = {a->y, a->c, a->x, a->cond, a->neg, a->perturbed, a->isolated}, *all[7];
    for (int i = 0; i < 7; i++) {
        TRY(want(x, "guide_x0", t[i], a->x, i == 1 || i > 3));
        all[i] = &t[i];
    }
    TRY(want_sigma(x, "guide_x0", a->sigma));
    rows::flatten(7, all);
    rows::Walk w = rows::walk_of(t[0]);
    Guide g = {};
    g.y = rows::view_of(t[0], w), g.c = rows::view_of(t[1], w), g.x = rows::view_of(t[2], w), g.cond = rows::view_of(t[3], w);
    for (int k = 0; k < 3; k++) g.other[k] = rows::view_of(t[4 + k], w);
    g.by[0] = a->cfg, g.by[1] = a->stg, g.by[2] = a->modality;
    g.bf16 = a->form == GUIDE_OFFICIAL_BF16;
    unsigned blocks = (unsigned)((w.rows * w.cols + THREADS - 1) / THREADS);
    if (!blocks) return OK;
    k_guide_x0<<<blocks, THREADS, 0, x->cuda->stream>>>(g, w, (const float *)a->sigma.data);
    return cuda_launched(x, "guide_x0");
}

/* --- standard deviation --- */

/* The sum of the block's values in thread 0. */
__device__ inline double block_sum(double v) {
    __shared__ double shared[THREADS];
    __syncthreads();
    shared[threadIdx.x] = v;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    return shared[0];
}

/* The sum of one tensor's parts, by thread 0 of a block; every block gets the same bits. */
__device__ inline double total(const double *parts) {
    double sum = 0;
    for (int i = 0; i < PARTS; i++) sum += parts[i];
    return sum;
}

/* to[which][block]: the block's elements, or with means the squares of their distances from them. Grid (PARTS, 2). */
__global__ void __launch_bounds__(THREADS)
    k_sums(double *to, rows::View a, rows::View b, rows::Walk w, const double *means) {
    const rows::View &t = blockIdx.y ? b : a;
    __shared__ double mean;
    if (threadIdx.x == 0) mean = means ? total(means + blockIdx.y * PARTS) / (double)(w.rows * w.cols) : 0.0;
    __syncthreads();
    double sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < w.rows * w.cols; i += (int64_t)PARTS * THREADS) {
        int64_t row = i / w.cols;
        double v = (double)*at(t, w, row, i - row * w.cols) - mean;
        sum += means ? v * v : v;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) to[blockIdx.y * PARTS + blockIdx.x] = sum;
}

struct Back {
    rows::View y, x, x0, clean, mask; /* the last two may be absent */
    float rescale, rest;
    bool official, bf16;
};

/* squares: of like, then of x0; NULL where nothing is rescaled. */
__global__ void __launch_bounds__(THREADS)
    k_velocity_x0(Back b, rows::Walk w, const float *sigma, const double *squares) {
    __shared__ float deviation[2];
    if (squares && threadIdx.x < 2)
        deviation[threadIdx.x] = (float)sqrt(total(squares + threadIdx.x * PARTS) / ((double)(w.rows * w.cols) - 1.0));
    __syncthreads();
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= w.rows * w.cols) return;
    int64_t row = i / w.cols, col = i - row * w.cols;
    float g = *at(b.x0, w, row, col), x = *at(b.x, w, row, col);
    if (b.official) {
        if (squares) g = g * (b.rescale * (deviation[0] / deviation[1]) + b.rest);
        g = kept(g, b.bf16);
    } else if (squares) {
        g = b.rescale * (g * (deviation[0] / deviation[1])) + b.rest * g;
    }
    if (b.clean.data) {
        float mask = *at(b.mask, w, row, col);
        g = kept(g * (1.0f - mask) + *at(b.clean, w, row, col) * mask, b.bf16);
    }
    *at(b.y, w, row, col) = kept((x - g) / *sigma, b.bf16);
}

size_t velocity_x0_scratch(const Exec *x, const void *args) {
    (void)x, (void)args;
    return 4 * PARTS * sizeof(double);
}

Status velocity_x0_cuda(Exec *x, const void *args) {
    const VelocityX0 *a = (const VelocityX0 *)args;
    bool rescales = a->rescale != 0;
    Tensor t[] = {a->y, a->x, a->x0, rescales ? a->like : a->x0}, *all[4];
    for (int i = 0; i < 4; i++) {
        TRY(want(x, "velocity_x0", t[i], a->x, false));
        all[i] = &t[i];
    }
    TRY(want_sigma(x, "velocity_x0", a->sigma));
    double *sums = (double *)arena_push(x->scratch, velocity_x0_scratch(x, args)), *squares = sums + 2 * PARTS;
    if (!sums) return fail(x->error, ERR_MEMORY, "velocity_x0: no scratch");
    const Tensor &m = a->mask;
    TRY(want(x, "velocity_x0", a->clean, a->x, true));
    if (a->clean.rank && (a->x.rank != 2 || m.rank != 2 || m.dtype != F32 || m.shape[0] != a->x.shape[0] || m.shape[1] != 1))
        return fail(x->error, ERR_MODEL, "velocity_x0: mask must be [T,1] beside clean [T,C]");
    if (!a->clean.rank) rows::flatten(4, all);
    rows::Walk w = rows::walk_of(t[0]);
    Back b = {};
    b.y = rows::view_of(t[0], w), b.x = rows::view_of(t[1], w), b.x0 = rows::view_of(t[2], w);
    if (a->clean.rank) b.clean = rows::view_of(a->clean, w), b.mask = rows::view_of(m, w);
    b.rescale = a->rescale, b.rest = a->rest;
    b.official = a->form != GUIDE_DIFFUSERS, b.bf16 = a->form == GUIDE_OFFICIAL_BF16;
    rows::View like = rows::view_of(t[3], w);
    unsigned blocks = (unsigned)((w.rows * w.cols + THREADS - 1) / THREADS);
    if (!blocks) return OK;
    if (rescales) {
        k_sums<<<dim3(PARTS, 2), THREADS, 0, x->cuda->stream>>>(sums, like, b.x0, w, NULL);
        k_sums<<<dim3(PARTS, 2), THREADS, 0, x->cuda->stream>>>(squares, like, b.x0, w, sums);
    }
    k_velocity_x0<<<blocks, THREADS, 0, x->cuda->stream>>>(b, w, (const float *)a->sigma.data, rescales ? squares : NULL);
    return cuda_launched(x, "velocity_x0");
}

} /* namespace */

const Impl GUIDE_CUDA[] = {
    {OP_guide_x0, "cuda", guide_x0_cuda, NULL, NULL},
    {OP_velocity_x0, "cuda", velocity_x0_cuda, velocity_x0_scratch, NULL},
};
const int GUIDE_CUDA_COUNT = sizeof GUIDE_CUDA / sizeof *GUIDE_CUDA;
