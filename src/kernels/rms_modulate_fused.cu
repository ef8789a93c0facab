/* rms_modulate_fused.cu - the composites of rms_modulate.h in one pass over their rows, BF16: the families rms-modulate and
 * norm-rope-split, EXACT.
 *
 * rms_modulate and residual_rms_modulate: a warp takes a row, 4 elements a lane and access, which is the order that the mean
 * chain sums in (cuda_four.cuh); the row waits in shared memory between its passes, every lane reads only what it put there.
 * norm_rope_split: 128 threads take a row and hold it in registers, in the order of norm.cu's RMS_ONCE; the partner of an
 * element, half a head away, is in another lane of the same warp.
 * Easy to get wrong: below 16 rows PyTorch sums the mean chain in another order: few rows go to the table's reference, as do
 * widths and heads that have no kernel here; outputs may be inputs, element for element. */
#include "kernels/chain.h"
#include "kernels/cuda_four.cuh"
#include "kernels/registry.h"

namespace {

using namespace four;

constexpr int THREADS = 128, WARPS = THREADS / 32, LEAST_ROWS = 16;
constexpr int BATCH = 4;        /* loads of a lane under way at once, from each input */
constexpr int MOST_COLS = 4096; /* WARPS rows fit 48 KiB */

static_assert(MOST_COLS * WARPS * sizeof(Bf) <= 48 << 10, "shared memory of a block");

/* --- norm and modulation --- */

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

/* --- norm of queries and keys, rotation --- */

struct Side {
    Row y, x;
    const Four *w;
};

struct Turned {
    Side side[2]; /* q, k */
    const float *cos, *sin; /* NULL: not rotated */
    int64_t cos_row, sin_row;
    float eps;
};

__device__ inline Four other_lane(Four v, int by) {
    unsigned long long raw;
    memcpy(&raw, &v, sizeof raw);
    raw = __shfl_xor_sync(ALL, raw, by);
    memcpy(&v, &raw, sizeof v);
    return v;
}

/* The row's sum in every thread: lanes by shuffles, then warps 2 and 3 into 0 and 1, then 1 into 0, as norm.cu. */
__device__ inline float block_sum(float mine) {
    __shared__ float part[WARPS];
#pragma unroll
    for (int by = 16; by; by /= 2) mine = mine + __shfl_down_sync(ALL, mine, by);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = mine;
    __syncthreads();
    static_assert(WARPS == 4, "the tree below");
    return (part[0] + part[2]) + (part[1] + part[3]);
}

/* One of a pair: own c + (low: -s, high: s) other, as rope_split.cu. */
__device__ inline float turn(float own, float other, float c, float s) {
    return ROPE_SPLIT_FMA ? fmaf(s, other, own * c) : own * c + s * other;
}

/* PER: vectors of a thread, EACH: of half a head. blockIdx.x: token, and q or k: the second finds the tables in a cache. The
 * arguments are a constant of the grid, so that the side is looked up in place, not in a copy of every thread's own. */
template <int PER, int EACH>
__global__ void __launch_bounds__(THREADS) k_norm_rope_split(const __grid_constant__ Turned a, int sides) {
    int64_t token = blockIdx.x / sides;
    Side s = a.side[blockIdx.x % sides];
    const Four *in = at(s.x, token);
    Four *out = at(s.y, token), v[PER];
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < PER; j++) v[j] = get(in + threadIdx.x + THREADS * j);
#pragma unroll
    for (int j = 0; j < PER; j++) {
        float4 e = widen(v[j]);
        sum = fmaf(e.w, e.w, fmaf(e.z, e.z, fmaf(e.y, e.y, fmaf(e.x, e.x, sum))));
    }
    float rstd = rsqrtf(block_sum(sum) / (float)(PER * THREADS * VEC) + a.eps);
#pragma unroll
    for (int j = 0; j < PER; j++) {
        int i = threadIdx.x + THREADS * j;
        Four n = narrow(times(widen(constant(s.w + i)), scaled(widen(v[j]), rstd)));
        if (a.cos) {
            float4 own = widen(n), other = widen(other_lane(n, EACH));
            bool high = i & EACH; /* halves alternate, EACH vectors each */
            int64_t angle = (i / (2 * EACH) * EACH + i % EACH) * (int64_t)VEC;
            float4 c = *(const float4 *)(a.cos + token * a.cos_row + angle);
            float4 t = *(const float4 *)(a.sin + token * a.sin_row + angle);
            if (!high) t = make_float4(-t.x, -t.y, -t.z, -t.w);
            n = narrow(make_float4(turn(own.x, other.x, c.x, t.x), turn(own.y, other.y, c.y, t.y),
                                   turn(own.z, other.z, c.z, t.z), turn(own.w, other.w, c.w, t.w)));
        }
        put(out + i, n);
    }
}

constexpr int LANE_ROW = THREADS * VEC; /* elements that a block takes at once */

/* Has a kernel here: widths of 2 or 4 accesses of a block and more, heads of 64 and 128. Anything else, and the other form of the
 * rotation: the reference. */
bool has_kernel(const NormRopeSplit *a) {
    int64_t d = a->q.shape[1], e = a->heads > 0 ? d / a->heads : 0;
    return a->form == ROPE_SPLIT_ONCE && (d == 4 * LANE_ROW || d == 8 * LANE_ROW) && a->heads > 0 && d % a->heads == 0 &&
           (e == 64 || e == 128) && !a->cos.rank == !a->sin.rank && !a->yk.rank == !a->k.rank && a->wq.rank &&
           !a->k.rank == !a->wk.rank;
}

bool norm_rope_split_accepts(const void *args, char *why, size_t size) {
    const NormRopeSplit *a = (const NormRopeSplit *)args;
    const Tensor *tables[] = {&a->cos, &a->sin};
    if (a->q.rank != 2) REFUSE("q is no matrix");
    int64_t cols = a->q.shape[1];
    if (!fits("yq", a->yq, a->q, why, size) || !fits("q", a->q, a->q, why, size) || !fits("yk", a->yk, a->q, why, size) ||
        !fits("k", a->k, a->q, why, size) || !fits_one("wq", a->wq, cols, why, size) || !fits_one("wk", a->wk, cols, why, size))
        return false;
    for (const Tensor *t : tables)
        if (t->rank && (t->rank != 2 || t->dtype != F32 || t->shape[0] != a->q.shape[0] || 2 * t->shape[1] != cols ||
                        t->stride[1] != 1 || t->stride[0] % 4 || (uintptr_t)t->data % 16))
            REFUSE("the tables are not F32 rows of %lld that start at multiples of 16 bytes", (long long)cols / 2);
    return true;
}

template <int PER> void turned(cudaStream_t stream, const Turned &t, int64_t tokens, int sides, int64_t e) {
    unsigned blocks = (unsigned)(tokens * sides);
    if (e == 128) k_norm_rope_split<PER, 16><<<blocks, THREADS, 0, stream>>>(t, sides);
    else k_norm_rope_split<PER, 8><<<blocks, THREADS, 0, stream>>>(t, sides);
}

Status norm_rope_split_fused(Exec *x, const void *args) {
    const NormRopeSplit *a = (const NormRopeSplit *)args;
    if (!has_kernel(a)) return chain_run(x, OP_norm_rope_split, args);
    int64_t tokens = a->q.shape[0], d = a->q.shape[1];
    if (!tokens) return OK;
    Turned t = {{{row_of(a->yq), row_of(a->q), one(a->wq)}, {row_of(a->yk), row_of(a->k), one(a->wk)}},
                a->cos.rank ? (const float *)a->cos.data : NULL, a->sin.rank ? (const float *)a->sin.data : NULL,
                a->cos.rank ? a->cos.stride[0] : 0, a->sin.rank ? a->sin.stride[0] : 0, a->eps};
    int sides = a->k.rank ? 2 : 1;
    if (d == 4 * LANE_ROW) turned<4>(x->cuda->stream, t, tokens, sides, d / a->heads);
    else turned<8>(x->cuda->stream, t, tokens, sides, d / a->heads);
    return cuda_launched(x, "norm_rope_split");
}

} /* namespace */

const Impl RMS_MODULATE_FUSED_CUDA[] = {
    {OP_rms_modulate, "cuda_fused", rms_modulate_fused, NULL, rms_modulate_accepts},
    {OP_residual_rms_modulate, "cuda_fused", residual_rms_modulate_fused, NULL, residual_rms_modulate_accepts},
};
const Impl NORM_ROPE_SPLIT_FUSED_CUDA[] = {
    {OP_norm_rope_split, "cuda_fused", norm_rope_split_fused, NULL, norm_rope_split_accepts},
};
