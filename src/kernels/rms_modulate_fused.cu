/* rms_modulate_fused.cu - rms_modulate and residual_rms_modulate (rms_modulate.h) in one pass over their rows, BF16: the family
 * rms-modulate, EXACT.
 *
 * A warp takes a row, 4 elements a lane and access, which is the order that the mean chain sums in (cuda_four.cuh); the row
 * waits in shared memory between its passes, every lane reads only what it put there.
 * Easy to get wrong: below 16 rows PyTorch sums the mean chain in another order: few rows go to the table's reference; outputs
 * may be inputs, element for element. */
#include "kernels/chain.h"
#include "kernels/cuda_four.cuh"
#include "kernels/registry.h"

namespace {

using namespace four;

constexpr int THREADS = 128, WARPS = THREADS / 32, LEAST_ROWS = 16;
constexpr int BATCH = 4;        /* loads of a lane under way at once, from each input */
constexpr int MOST_COLS = 4096; /* WARPS rows fit 48 KiB */

static_assert(MOST_COLS * WARPS * sizeof(Bf) <= 48 << 10, "shared memory of a block");

struct Modulation { /* NULL: plain */
    const Four *scale, *shift;
};

struct Args {
    Row h, y, y2, residual, x; /* h and residual only where a residual is added; y2 may be absent */
    const Four *gate;          /* NULL: 1 */
    Modulation first, second;
    int64_t rows;
    int vectors; /* of a row */
    float inverse, eps;
};

__device__ inline Four sum_of(Four a, Four b) { return narrow(plus(widen(a), widen(b))); }

__device__ inline void write_modulated(Four *y, const Four *kept, float rstd, const Modulation &m, int vectors, int lane) {
#pragma unroll 4
    for (int i = lane; i < vectors; i += 32) {
        Four n = narrow(scaled(widen(get(kept + i)), rstd));
        if (m.scale) n = sum_of(times(n, one_plus(constant(m.scale + i))), constant(m.shift + i));
        put(y + i, n);
    }
}

extern __shared__ float4 shared[]; /* WARPS rows */

template <bool RESIDUAL> __global__ void __launch_bounds__(THREADS) k_rms_modulate_fused(Args a) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Four *kept = (Four *)shared + warp * a.vectors;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + warp; row < a.rows; row += (int64_t)gridDim.x * WARPS) {
        const Four *x = at(a.x, row), *residual = RESIDUAL ? at(a.residual, row) : NULL;
        Four *h = RESIDUAL ? at(a.h, row) : NULL;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int first = lane; first < a.vectors; first += 32 * BATCH) {
            Four v[BATCH], old[BATCH]; /* h may be the residual: nothing after a store can be loaded ahead of it */
#pragma unroll
            for (int j = 0; j < BATCH; j++)
                if (first + 32 * j < a.vectors) {
                    v[j] = get(x + first + 32 * j);
                    if (RESIDUAL) old[j] = get(residual + first + 32 * j);
                }
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                int i = first + 32 * j;
                if (i >= a.vectors) continue;
                if (RESIDUAL) {
                    v[j] = sum_of(old[j], a.gate ? times(constant(a.gate + i), v[j]) : v[j]);
                    put(h + i, v[j]);
                }
                put(kept + i, v[j]);
                square(sum, v[j]);
            }
        }
        float rstd = finish(sum, a.inverse, a.eps);
        if (a.y2.data) write_modulated(at(a.y2, row), kept, rstd, a.second, a.vectors, lane);
        write_modulated(at(a.y, row), kept, rstd, a.first, a.vectors, lane);
    }
}

bool fits(const char *name, const Tensor &t, const Tensor &like, char *why, size_t size) {
    Row row;
    if (!t.rank) return true;
    if (t.dtype != BF16) REFUSE("%s is %s, expected BF16", name, dtype_name(t.dtype));
    if (!tensor_same_shape(t, like)) REFUSE("%s has another shape than y", name);
    if (!regular(t, VEC, &row)) REFUSE("%s has no rows of one distance, aligned to %d elements", name, VEC);
    return true;
}

bool residual_rms_modulate_accepts(const void *args, char *why, size_t size) {
    const ResidualRmsModulate *a = (const ResidualRmsModulate *)args;
    int64_t cols = a->y.rank ? a->y.shape[a->y.rank - 1] : 0;
    if (cols < VEC || cols % VEC || cols > MOST_COLS)
        REFUSE("rows of %lld, expected a multiple of %d up to %d", (long long)cols, VEC, MOST_COLS);
    return fits("h", a->h, a->y, why, size) && fits("y", a->y, a->y, why, size) && fits("y2", a->y2, a->y, why, size) &&
           fits("residual", a->residual, a->y, why, size) && fits("x", a->x, a->y, why, size) &&
           fits_one("gate", a->gate, cols, why, size) && fits_one("scale", a->scale, cols, why, size) &&
           fits_one("shift", a->shift, cols, why, size) && fits_one("scale2", a->scale2, cols, why, size) &&
           fits_one("shift2", a->shift2, cols, why, size);
}

ResidualRmsModulate without_residual(const RmsModulate *a) {
    ResidualRmsModulate r = {};
    r.y = a->y, r.y2 = a->y2, r.x = a->x, r.scale = a->scale, r.shift = a->shift;
    r.scale2 = a->scale2, r.shift2 = a->shift2, r.eps = a->eps;
    return r;
}

bool rms_modulate_accepts(const void *args, char *why, size_t size) {
    ResidualRmsModulate r = without_residual((const RmsModulate *)args);
    return residual_rms_modulate_accepts(&r, why, size);
}

Row row_of(const Tensor &t) {
    Row out = {};
    if (t.rank) regular(t, VEC, &out);
    return out;
}

const Four *one(const Tensor &t) { return t.rank ? (const Four *)t.data : NULL; }

template <bool RESIDUAL> Status modulate(Exec *x, const ResidualRmsModulate *a, const char *op) {
    int64_t rows = rows_of(a->y), cols = a->y.shape[a->y.rank - 1];
    Args f = {row_of(a->h), row_of(a->y), row_of(a->y2), row_of(a->residual), row_of(a->x), one(a->gate),
              {one(a->scale), one(a->shift)}, {one(a->scale2), one(a->shift2)}, rows, (int)(cols / VEC), 1.0f / (float)cols,
              a->eps};
    size_t bytes = (size_t)WARPS * (size_t)f.vectors * sizeof(Four);
    int64_t blocks = (rows + WARPS - 1) / WARPS, most = (int64_t)((200 << 10) / (bytes + 1024)) * x->cuda->sm_count;
    k_rms_modulate_fused<RESIDUAL><<<(unsigned)(blocks < most ? blocks : most), THREADS, bytes, x->cuda->stream>>>(f);
    return cuda_launched(x, op);
}

/* scale without shift, which the reference refuses, goes there too. */
bool handed_over(const Tensor &y, const Tensor &y2, const Modulation &first, const Modulation &second) {
    return rows_of(y) < LEAST_ROWS || !first.scale != !first.shift || !second.scale != !second.shift ||
           (!y2.rank && second.scale);
}

Status rms_modulate_fused(Exec *x, const void *args) {
    ResidualRmsModulate r = without_residual((const RmsModulate *)args);
    if (handed_over(r.y, r.y2, {one(r.scale), one(r.shift)}, {one(r.scale2), one(r.shift2)}))
        return chain_run(x, OP_rms_modulate, args);
    return modulate<false>(x, &r, "rms_modulate");
}

Status residual_rms_modulate_fused(Exec *x, const void *args) {
    const ResidualRmsModulate *a = (const ResidualRmsModulate *)args;
    if (handed_over(a->y, a->y2, {one(a->scale), one(a->shift)}, {one(a->scale2), one(a->shift2)}))
        return chain_run(x, OP_residual_rms_modulate, args);
    return modulate<true>(x, a, "residual_rms_modulate");
}

} /* namespace */

const Impl RMS_MODULATE_FUSED_CUDA[] = {
    {OP_rms_modulate, "cuda_fused", rms_modulate_fused, NULL, rms_modulate_accepts},
    {OP_residual_rms_modulate, "cuda_fused", residual_rms_modulate_fused, NULL, residual_rms_modulate_accepts},
};
