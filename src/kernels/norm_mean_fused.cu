/* norm_mean_fused.cu - the composites of norm_mean.cu in one pass over their rows, BF16: the family mean-norm. There is none with
 * fewer roundings: they cost nothing here, where a pass takes as long as its bytes.
 *
 * A warp takes a row, 4 elements a lane and access, which is the order that the mean chain sums in (cuda_four.cuh), and keeps
 * it in registers between its passes. Its next row is on the way meanwhile: a place in shared memory, where 16-byte copies
 * land, is filled again as soon as it has been read. A block, one or two a multiprocessor, makes what all rows share
 * (weights, tanh(gate), 1 + scale) once; behind that no warp waits for another.
 * Easy to get wrong: below 16 rows, and in rows below 128 elements, PyTorch sums in another order, so those are refused;
 * outputs may be inputs, element for element; a copy is made by another lane than reads it; an absent gate or scale is 1,
 * which changes no bit, and vectors beyond a row are zero, which changes no sum of squares. */
#include "kernels/cuda_async.cuh"
#include "kernels/cuda_four.cuh"
#include "kernels/registry.h"

namespace {

using namespace four;

constexpr int LEAST_ROWS = 16, LEAST_COLS = 128;
constexpr int FEW = 8, ZIMAGE = 30, MOST = 32; /* vectors of a lane: rows of 1024, 3840, 4096 */
constexpr int MOST_COLS = MOST * 32 * VEC;

/* What a multiprocessor has registers for: warps of a block, blocks. */
constexpr int warps_of(int keep) { return keep > ZIMAGE ? 8 : 12; }
constexpr int blocks_of(int keep) { return keep > FEW ? 1 : 2; }

struct Args {
    Row y, n, residual, x;
    const Four *w, *gate, *w_next, *scale;
    int64_t rows;
    int vectors; /* of a row */
    float inverse, eps;
};

/* What all rows have at one vector: a weight and what follows it. */
struct alignas(16) Factors {
    Four w, by;
};

__device__ inline Factors factors(const Four *p) {
    uint4 raw = *(const uint4 *)p;
    Factors out;
    memcpy(&out, &raw, sizeof out);
    return out;
}

__device__ inline Four ones() { return fast::filled<2>(fast::both(1.0f)); }

template <int KEEP, bool FULL> __device__ inline bool inside(int j, int lane, int count) { return FULL || lane + 32 * j < count; }

/* Starts to bring a row into shared memory. Every call is one group, also that of no row. */
template <int KEEP, bool FULL> __device__ inline void fetch(Four *kept, const Row &r, int64_t row, const Args &a, int lane) {
    if (row < a.rows) {
        unsigned to = async::place_of(kept) + 2 * sizeof(Four) * lane;
        const Four *from = at(r, row) + 2 * lane;
#pragma unroll
        for (int j = 0; j < KEEP / 2; j++)
            if (inside<KEEP, FULL>(j, lane, a.vectors / 2))
                async::copy<false>(to + 64 * sizeof(Four) * j, from + 64 * j);
    }
    async::commit();
}

/* All groups but the last PENDING are there, for every lane. */
template <int PENDING> __device__ inline void arrived() {
    async::wait<PENDING>();
    __syncwarp();
}

template <int KEEP> __device__ inline float statistics(const Four v[KEEP], const Args &a) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int j = 0; j < KEEP; j++) square(sum, v[j]);
    return finish(sum, a.inverse, a.eps);
}

extern __shared__ float4 shared[]; /* Factors of the gated norm, of the other norm; for each warp a row of x, of the residual */

/* GATED: y = residual + gate * norm of x. NEXT: n = scaled norm, of y or, without it, of x. */
template <int KEEP, bool FULL, bool GATED, bool NEXT>
__global__ void __launch_bounds__(32 * warps_of(KEEP), blocks_of(KEEP)) k_mean_norm(const __grid_constant__ Args a) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Four *gated = (Four *)shared, *next = gated + (GATED ? 2 * a.vectors : 0);
    Four *x = next + (NEXT ? 2 * a.vectors : 0) + warp * a.vectors * (GATED ? 2 : 1), *residual = x + a.vectors;
    int64_t row = blockIdx.x + (int64_t)warp * gridDim.x, step = (int64_t)(blockDim.x / 32) * gridDim.x;
    fast::begin();
    fetch<KEEP, FULL>(x, a.x, row, a, lane);
    if (GATED) fetch<KEEP, FULL>(residual, a.residual, row, a, lane);
    for (int i = threadIdx.x; i < a.vectors; i += blockDim.x) {
        if (GATED) {
            put(gated + 2 * i, constant(a.w + i));
            put(gated + 2 * i + 1, a.gate ? narrow(tanh4(widen(constant(a.gate + i)))) : ones());
        }
        if (NEXT) {
            put(next + 2 * i, constant(a.w_next + i));
            put(next + 2 * i + 1, a.scale ? one_plus(constant(a.scale + i)) : ones());
        }
    }
    __syncthreads();
    for (; row < a.rows; row += step) {
        Four v[KEEP];
        arrived<GATED ? 1 : 0>(); /* x; the residual may still be on its way */
#pragma unroll
        for (int j = 0; j < KEEP; j++) {
            v[j] = fast::filled<2>(fast::both(0.0f));
            if (inside<KEEP, FULL>(j, lane, a.vectors)) v[j] = get(x + lane + 32 * j);
        }
        __syncwarp();
        fetch<KEEP, FULL>(x, a.x, row + step, a, lane);
        float rstd = statistics<KEEP>(v, a);
        if (GATED) {
            Four *y = at(a.y, row) + lane;
            arrived<1>(); /* the residual; x of the next row may still be on its way */
#pragma unroll
            for (int j = 0; j < KEEP; j++) {
                if (!inside<KEEP, FULL>(j, lane, a.vectors)) continue;
                Factors f = factors(gated + 2 * (lane + 32 * j));
                v[j] = plus(get(residual + lane + 32 * j), times(f.by, normed(v[j], rstd, f.w)));
                put(y + 32 * j, v[j]);
            }
            __syncwarp();
            fetch<KEEP, FULL>(residual, a.residual, row + step, a, lane);
            if (NEXT) rstd = statistics<KEEP>(v, a);
        }
        if (NEXT) {
            Four *n = at(a.n, row) + lane;
#pragma unroll
            for (int j = 0; j < KEEP; j++) {
                if (!inside<KEEP, FULL>(j, lane, a.vectors)) continue;
                Factors f = factors(next + 2 * (lane + 32 * j));
                put(n + 32 * j, times(normed(v[j], rstd, f.w), f.by));
            }
        }
    }
}

/* --- guards --- */

bool fits(const char *name, const Tensor &t, const Tensor &like, char *why, size_t size) {
    return fits_rows(name, t, like, "the output", fast::WIDE, why, size);
}

bool fits_shape(const Tensor &y, const Tensor &w, char *why, size_t size) {
    int64_t cols = y.rank ? y.shape[y.rank - 1] : 0;
    if (!w.rank) REFUSE("no weight");
    if (cols < LEAST_COLS || cols % fast::WIDE || cols > MOST_COLS)
        REFUSE("rows of %lld, expected a multiple of %d from %d to %d", (long long)cols, fast::WIDE, LEAST_COLS, MOST_COLS);
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

Row row_of(const Tensor &t) {
    Row out = {};
    if (t.rank) regular(t, fast::WIDE, &out);
    return out;
}

const Four *one(const Tensor &t) { return t.rank ? (const Four *)t.data : NULL; }

Args args_of(const Tensor &like, float eps) {
    Args a = {};
    int64_t cols = like.shape[like.rank - 1];
    a.rows = rows_of(like), a.vectors = (int)(cols / VEC), a.inverse = 1.0f / (float)cols, a.eps = eps;
    return a;
}

/* As many blocks as are resident at once, of as many warps as find places for their rows. */
template <int KEEP, bool FULL, bool GATED, bool NEXT> void launch_kept(Exec *x, const Args &a) {
    auto kernel = k_mean_norm<KEEP, FULL, GATED, NEXT>;
    int device = 0, room = 0, blocks = blocks_of(KEEP) * x->cuda->sm_count;
    (void)cudaGetDevice(&device); /* what fails here fails the launch too */
    (void)cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    int row = a.vectors * (int)sizeof(Four), common = 2 * row * (GATED + NEXT), each = row * (1 + GATED);
    int most = (room - common) / each, warps = most < warps_of(KEEP) ? most : warps_of(KEEP), bytes = common + warps * each;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    fast::launch_early(x, kernel, (unsigned)(a.rows < blocks ? a.rows : blocks), 32 * (unsigned)warps, (size_t)bytes, a);
}

template <bool GATED, bool NEXT> Status launch(Exec *x, const Args &a, const char *op) {
    if (a.vectors <= 32 * FEW) launch_kept<FEW, false, GATED, NEXT>(x, a);
    else if (a.vectors == 32 * ZIMAGE) launch_kept<ZIMAGE, true, GATED, NEXT>(x, a);
    else launch_kept<MOST, false, GATED, NEXT>(x, a);
    return cuda_launched(x, op);
}

Status rmsnorm_scale_fused(Exec *x, const void *args) {
    const RmsNormScale *r = (const RmsNormScale *)args;
    Args a = args_of(r->y, r->eps);
    a.n = row_of(r->y), a.x = row_of(r->x), a.w_next = one(r->w), a.scale = one(r->scale);
    return launch<false, true>(x, a, "rmsnorm_scale");
}

Status residual_norm_fused(Exec *x, const void *args) {
    const ResidualNorm *r = (const ResidualNorm *)args;
    Args a = args_of(r->y, r->eps);
    a.y = row_of(r->y), a.residual = row_of(r->residual), a.x = row_of(r->x), a.w = one(r->w), a.gate = one(r->gate);
    return launch<true, false>(x, a, "residual_norm");
}

Status residual_norm_scale_fused(Exec *x, const void *args) {
    const ResidualNormScale *r = (const ResidualNormScale *)args;
    Args a = args_of(r->y, r->eps);
    a.y = row_of(r->y), a.residual = row_of(r->residual), a.x = row_of(r->x), a.w = one(r->w), a.gate = one(r->gate);
    a.n = row_of(r->n), a.w_next = one(r->w_next), a.scale = one(r->scale);
    return launch<true, true>(x, a, "residual_norm_scale");
}

} /* namespace */

const Impl MEAN_NORM_CUDA[] = {
    {OP_rmsnorm_scale, "cuda_mean", rmsnorm_scale_fused, NULL, rmsnorm_scale_accepts},
    {OP_residual_norm, "cuda_mean", residual_norm_fused, NULL, residual_norm_accepts},
    {OP_residual_norm_scale, "cuda_mean", residual_norm_scale_fused, NULL, residual_norm_scale_accepts},
};
