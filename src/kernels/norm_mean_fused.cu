/* norm_mean_fused.cu - the composites of norm_mean.cu in one pass over their rows, BF16: the family mean-norm. There is none with
 * fewer roundings: they cost nothing here, where a pass takes as long as its bytes.
 *
 * A warp takes a row, 4 elements a lane and access, which is the order that the mean chain sums in (cuda_four.cuh). The row
 * waits in shared memory between its passes; every lane reads only what it put there.
 * Easy to get wrong: below 16 rows, and in rows below 128 elements, PyTorch sums in another order, so those are refused;
 * outputs may be inputs, element for element. */
#include "kernels/cuda_four.cuh"
#include "kernels/registry.h"

#include <cuda_pipeline_primitives.h>

namespace {

using namespace four;

constexpr int THREADS = 128, WARPS = THREADS / 32, LEAST_ROWS = 16, LEAST_COLS = 128;
constexpr int BATCH = 6;        /* loads of a lane under way at once */
constexpr int MOST_COLS = 4096; /* WARPS rows and the gate fit 48 KiB */

static_assert(MOST_COLS * (WARPS + 1) * sizeof(Bf) <= 48 << 10, "shared memory of a block");

struct Shape {
    int64_t rows;
    int vectors; /* of a row */
    float inverse, eps;
};

/* Starts to bring the lane's vectors of a row into shared memory; __pipeline_wait_prior(0) ends it. */
__device__ inline void fetch(Four *kept, const Four *x, const Shape &s, int lane) {
    for (int i = lane; i < s.vectors; i += 32) __pipeline_memcpy_async(&kept[i], &x[i], sizeof(Four));
    __pipeline_commit();
}

__device__ inline float statistics(const Four *kept, const Shape &s, int lane) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 6
    for (int i = lane; i < s.vectors; i += 32) square(sum, get(kept + i));
    return finish(sum, s.inverse, s.eps);
}

__device__ inline Four scale_of(Four v, float rstd, Four w, bool scales, Four scale) {
    Four n = normed(v, rstd, w);
    return scales ? times(n, one_plus(scale)) : n;
}

__device__ inline void write_scaled(Four *y, const Four *kept, const Shape &s, const Four *w, const Four *scale, int lane) {
    float rstd = statistics(kept, s, lane);
#pragma unroll 6
    for (int i = lane; i < s.vectors; i += 32)
        put(y + i, scale_of(get(kept + i), rstd, constant(w + i), scale != NULL, constant((scale ? scale : w) + i)));
}

extern __shared__ float4 shared[]; /* WARPS rows, then the gate */

__global__ void __launch_bounds__(THREADS) k_rmsnorm_scale(Row y, Row x, const Four *w, const Four *scale, Shape s) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Four *kept = (Four *)shared + warp * s.vectors;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + warp; row < s.rows; row += (int64_t)gridDim.x * WARPS) {
        fetch(kept, at(x, row), s, lane);
        __pipeline_wait_prior(0);
        write_scaled(at(y, row), kept, s, w, scale, lane);
    }
}

/* --- residual + tanh(gate) * norm, and the next norm of it when n is there --- */

struct Gated {
    Row y, n, residual, x;
    const Four *w, *gate, *w_next, *scale;
};

/* tanh(gate) is made once a block. */
template <bool NEXT> __global__ void __launch_bounds__(THREADS) k_residual_norm(Gated a, Shape s) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t row = (int64_t)blockIdx.x * WARPS + warp;
    Four *kept = (Four *)shared + warp * s.vectors, *gate = (Four *)shared + WARPS * s.vectors;
    if (row < s.rows) fetch(kept, at(a.x, row), s, lane);
    for (int i = threadIdx.x; a.gate && i < s.vectors; i += THREADS) put(gate + i, narrow(tanh4(widen(constant(a.gate + i)))));
    __syncthreads();
    for (; row < s.rows; row += (int64_t)gridDim.x * WARPS) {
        const Four *residual = at(a.residual, row);
        Four *y = at(a.y, row);
        __pipeline_wait_prior(0);
        float rstd = statistics(kept, s, lane);
        for (int first = lane; first < s.vectors; first += 32 * BATCH) {
            Four old[BATCH]; /* y may be the residual: nothing after a store can be loaded ahead of it */
#pragma unroll
            for (int j = 0; j < BATCH; j++)
                if (first + 32 * j < s.vectors) old[j] = get(residual + first + 32 * j);
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                int i = first + 32 * j;
                if (i >= s.vectors) continue;
                Four n = normed(get(kept + i), rstd, constant(a.w + i));
                Four sum = narrow(plus(widen(old[j]), widen(a.gate ? times(get(gate + i), n) : n)));
                put(y + i, sum);
                if (NEXT) put(kept + i, sum);
            }
        }
        if (NEXT) write_scaled(at(a.n, row), kept, s, a.w_next, a.scale, lane);
        int64_t next = row + (int64_t)gridDim.x * WARPS;
        if (next < s.rows) fetch(kept, at(a.x, next), s, lane);
    }
}

/* --- guards --- */

bool fits(const char *name, const Tensor &t, const Tensor &like, char *why, size_t size) {
    Row row;
    if (t.dtype != BF16) REFUSE("%s is %s, expected BF16", name, dtype_name(t.dtype));
    if (!tensor_same_shape(t, like)) REFUSE("%s has another shape than the output", name);
    if (!regular(t, VEC, &row)) REFUSE("%s has no rows of one distance, aligned to %d elements", name, VEC);
    return true;
}

bool fits_shape(const Tensor &y, const Tensor &w, char *why, size_t size) {
    int64_t cols = y.rank ? y.shape[y.rank - 1] : 0;
    if (!w.rank) REFUSE("no weight");
    if (cols < LEAST_COLS || cols % VEC || cols > MOST_COLS)
        REFUSE("rows of %lld, expected a multiple of %d from %d to %d", (long long)cols, VEC, LEAST_COLS, MOST_COLS);
    if (rows_of(y) < LEAST_ROWS) REFUSE("%lld rows, expected at least %d", (long long)rows_of(y), LEAST_ROWS);
    return true;
}

bool rmsnorm_scale_accepts(const void *args, char *why, size_t size) {
    const RmsNormScale *a = (const RmsNormScale *)args;
    return fits_shape(a->y, a->w, why, size) && fits("y", a->y, a->y, why, size) && fits("x", a->x, a->y, why, size) &&
           fits_one("w", a->w, a->y.shape[a->y.rank - 1], why, size) &&
           fits_one("scale", a->scale, a->y.shape[a->y.rank - 1], why, size);
}

bool residual_norm_accepts(const void *args, char *why, size_t size) {
    const ResidualNorm *a = (const ResidualNorm *)args;
    return fits_shape(a->y, a->w, why, size) && fits("y", a->y, a->y, why, size) && fits("x", a->x, a->y, why, size) &&
           fits("residual", a->residual, a->y, why, size) && fits_one("w", a->w, a->y.shape[a->y.rank - 1], why, size) &&
           fits_one("gate", a->gate, a->y.shape[a->y.rank - 1], why, size);
}

bool residual_norm_scale_accepts(const void *args, char *why, size_t size) {
    const ResidualNormScale *a = (const ResidualNormScale *)args;
    ResidualNorm first = {};
    first.y = a->y, first.residual = a->residual, first.x = a->x, first.w = a->w, first.gate = a->gate;
    return residual_norm_accepts(&first, why, size) && fits_shape(a->n, a->w_next, why, size) &&
           fits("n", a->n, a->y, why, size) &&
           fits_one("w_next", a->w_next, a->y.shape[a->y.rank - 1], why, size) &&
           fits_one("scale", a->scale, a->y.shape[a->y.rank - 1], why, size);
}

/* --- launches --- */

/* As many blocks as are resident at once: the gate is made once in each. */
unsigned grid_for(const Exec *x, const Shape &s, size_t bytes) {
    int64_t blocks = (s.rows + WARPS - 1) / WARPS, most = (int64_t)((200 << 10) / (bytes + 1024)) * x->cuda->sm_count;
    return (unsigned)(blocks < most ? blocks : most);
}

Shape shape_of(const Tensor &y, float eps) {
    int64_t cols = y.shape[y.rank - 1];
    return Shape{rows_of(y), (int)(cols / VEC), 1.0f / (float)cols, eps};
}

Row row_of(const Tensor &t) {
    Row out = {};
    if (t.rank) regular(t, VEC, &out);
    return out;
}

const Four *one(const Tensor &t) { return t.rank ? (const Four *)t.data : NULL; }

size_t rows_bytes(const Shape &s) { return (size_t)WARPS * s.vectors * sizeof(Four); }

Status rmsnorm_scale_fused(Exec *x, const void *args) {
    const RmsNormScale *a = (const RmsNormScale *)args;
    Shape s = shape_of(a->y, a->eps);
    size_t bytes = rows_bytes(s);
    k_rmsnorm_scale<<<grid_for(x, s, bytes), THREADS, bytes, x->cuda->stream>>>(row_of(a->y), row_of(a->x), one(a->w),
                                                                                one(a->scale), s);
    return cuda_launched(x, "rmsnorm_scale");
}

template <bool NEXT> Status gated_fused(Exec *x, const Gated &a, const Shape &s, const char *op) {
    size_t bytes = rows_bytes(s) + (a.gate ? (size_t)s.vectors * sizeof(Four) : 0);
    k_residual_norm<NEXT><<<grid_for(x, s, bytes), THREADS, bytes, x->cuda->stream>>>(a, s);
    return cuda_launched(x, op);
}

Status residual_norm_fused(Exec *x, const void *args) {
    const ResidualNorm *a = (const ResidualNorm *)args;
    Gated g = {row_of(a->y), Row{}, row_of(a->residual), row_of(a->x), one(a->w), one(a->gate), NULL, NULL};
    return gated_fused<false>(x, g, shape_of(a->y, a->eps), "residual_norm");
}

Status residual_norm_scale_fused(Exec *x, const void *args) {
    const ResidualNormScale *a = (const ResidualNormScale *)args;
    Gated g = {row_of(a->y),  row_of(a->n),    row_of(a->residual), row_of(a->x),
               one(a->w),     one(a->gate),    one(a->w_next),      one(a->scale)};
    return gated_fused<true>(x, g, shape_of(a->y, a->eps), "residual_norm_scale");
}

} /* namespace */

const Impl MEAN_NORM_CUDA[] = {
    {OP_rmsnorm_scale, "cuda_mean", rmsnorm_scale_fused, NULL, rmsnorm_scale_accepts},
    {OP_residual_norm, "cuda_mean", residual_norm_fused, NULL, residual_norm_accepts},
    {OP_residual_norm_scale, "cuda_mean", residual_norm_scale_fused, NULL, residual_norm_scale_accepts},
};
