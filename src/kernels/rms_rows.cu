/* rms_rows.cu - rmsnorm in the order of the mean chain, each row read once, BF16: the family rms-rows. A warp takes a row, 4
 * elements a lane and access (cuda_four.cuh), and keeps it in registers from its one reading to its writing: all of a row's loads
 * are under way at once.
 *
 * Easy to get wrong: below 16 rows, and in rows below 128 elements, PyTorch sums in another order: those are not taken; y may
 * be x. */
#include "kernels/cuda_four.cuh"
#include "kernels/registry.h"

namespace {

using namespace four;

constexpr int THREADS = 128, WARPS = THREADS / 32, LEAST_ROWS = 16, LEAST_COLS = 128;
constexpr int FEW = 8, SOME = 18, MOST = 32; /* vectors of a lane: rows of 1024, 2304, 4096 */

struct Rows {
    Row y, x;
    const Four *w; /* NULL: no weight */
    int64_t rows;
    int vectors; /* of a row */
    float inverse, eps;
};

template <bool PLUS_ONE> __device__ inline Four weighed(Four v, float rstd, const Four *w) {
    float4 n = scaled(widen(v), rstd);
    if (PLUS_ONE) return narrow(times(n, plus(make_float4(1.0f, 1.0f, 1.0f, 1.0f), widen(constant(w)))));
    return times(narrow(n), constant(w));
}

template <int KEEP, bool PLUS_ONE> __global__ void __launch_bounds__(THREADS) k_rms_rows(Rows a) {
    int lane = threadIdx.x % 32;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= a.rows) return;
    const Four *x = at(a.x, row) + lane;
    Four *y = at(a.y, row) + lane, kept[KEEP];
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (lane + 32 * i < a.vectors) kept[i] = get(x + 32 * i);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < KEEP; i++)
        if (lane + 32 * i < a.vectors) square(sum, kept[i]);
    float rstd = finish(sum, a.inverse, a.eps);
#pragma unroll
    for (int i = 0; i < KEEP; i++) {
        if (lane + 32 * i >= a.vectors) continue;
        put(y + 32 * i, a.w ? weighed<PLUS_ONE>(kept[i], rstd, a.w + lane + 32 * i) : narrow(scaled(widen(kept[i]), rstd)));
    }
}

template <int KEEP> void launch(Exec *x, const Rows &rows, bool plus_one) {
    unsigned blocks = fast::blocks_for(rows.rows, WARPS);
    if (plus_one) k_rms_rows<KEEP, true><<<blocks, THREADS, 0, x->cuda->stream>>>(rows);
    else k_rms_rows<KEEP, false><<<blocks, THREADS, 0, x->cuda->stream>>>(rows);
}

Rows rows_for(const RmsNorm *a) {
    Rows r = {};
    regular(a->y, VEC, &r.y), regular(a->x, VEC, &r.x);
    int64_t cols = a->y.shape[a->y.rank - 1];
    r.w = a->w.rank ? (const Four *)a->w.data : NULL;
    r.rows = rows_of(a->y), r.vectors = (int)(cols / VEC);
    r.inverse = 1.0f / (float)cols, r.eps = a->eps;
    return r;
}

bool accepts(const void *args, char *why, size_t size) {
    const RmsNorm *a = (const RmsNorm *)args;
    int64_t cols = a->y.rank ? a->y.shape[a->y.rank - 1] : 0;
    Row row;
    if (a->form != RMS_TWICE && a->form != RMS_PLUS_ONE) REFUSE("norm form %d", (int)a->form);
    if (a->y.dtype != BF16 || a->x.dtype != BF16) REFUSE("%s, expected BF16", dtype_name(a->y.dtype));
    if (cols < LEAST_COLS || cols % VEC || cols > MOST * 32 * VEC)
        REFUSE("rows of %lld, expected a multiple of %d from %d to %d", (long long)cols, VEC, LEAST_COLS, MOST * 32 * VEC);
    if (rows_of(a->y) < LEAST_ROWS) REFUSE("%lld rows, expected at least %d", (long long)rows_of(a->y), LEAST_ROWS);
    if (!tensor_same_shape(a->y, a->x) || !regular(a->y, VEC, &row) || !regular(a->x, VEC, &row))
        REFUSE("no rows of one distance, aligned to %d elements", VEC);
    return fits_one("w", a->w, cols, why, size);
}

Status rms_rows(Exec *x, const void *args) {
    const RmsNorm *a = (const RmsNorm *)args;
    Rows rows = rows_for(a);
    bool plus_one = a->form == RMS_PLUS_ONE;
    int each = (rows.vectors + 31) / 32; /* vectors of a lane */
    if (each <= FEW) launch<FEW>(x, rows, plus_one);
    else if (each <= SOME) launch<SOME>(x, rows, plus_one);
    else launch<MOST>(x, rows, plus_one);
    return cuda_launched(x, "rmsnorm");
}

} /* namespace */

const Impl RMS_ROWS_CUDA[] = {{OP_rmsnorm, "cuda_rows", rms_rows, NULL, accepts}};
