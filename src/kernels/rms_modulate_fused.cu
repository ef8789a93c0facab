/* rms_modulate_fused.cu - rms_modulate and residual_rms_modulate (rms_modulate.h) in one pass over their rows, BF16: the family
 * rms-modulate, EXACT.
 *
 * The mean chain (cuda_four.cuh) has 128 sums a row, each over every 128th element: four of each lane of PyTorch's warp, one for
 * each place in its vectors. On Hopper 128 threads have one each; a block holds two rows, whole in 16-byte pieces, keeps scale,
 * shift and gate in registers for all rows that it takes, and has the next ones brought meanwhile (cuda_ring.cuh). Other cards,
 * and rows that start at odd multiples of 8 bytes: a warp takes a row, 4 elements a lane and access; the row waits in shared
 * memory between its passes, every lane reads only what it put there.
 * Easy to get wrong: below 16 rows, and in rows below 128 elements, PyTorch sums in another order: those go to the table's
 * reference; outputs may be inputs, element for element; an absent scale is 0, an absent shift -0.0, an absent gate 1.0, which
 * change no bit; the last turn may have one row. */
#include "kernels/chain.h"
#include "kernels/cuda_four.cuh"
#include "kernels/cuda_ring.cuh"
#include "kernels/registry.h"

namespace {

using namespace four;

constexpr int THREADS = 128, WARPS = THREADS / 32, LEAST_ROWS = 16, LEAST_COLS = 128;
constexpr int BATCH = 4;        /* loads of a lane under way at once, from each input */
constexpr int MOST_COLS = 4096; /* WARPS rows fit 48 KiB, and 512 threads have 8 elements each */

static_assert(MOST_COLS * WARPS * sizeof(Bf) <= 48 << 10, "shared memory of a block");

/* --- a warp a row --- */

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

/* --- a block two rows a turn --- */

constexpr int PAIR = 2, CHAINS = 128; /* rows of a turn, sums of a row */

using fast::Wide; /* 8 elements: every thread has one piece of each row */

__device__ inline Bf *piece(const void *row) { return (Bf *)row + threadIdx.x * fast::WIDE; }

/* The thread's piece of what all rows have in common; NULL: `absent` everywhere. */
__device__ inline Wide common(const Four *row, float absent, bool inside) {
    return row && inside ? fast::get<4>(piece(row)) : fast::filled<4>(fast::both(absent));
}

struct Factors { /* r(1 + scale), shift */
    Wide scale, shift;
};

__device__ inline Factors factors(const Modulation &m, bool inside) {
    Factors f = {common(m.scale, 0.0f, inside), common(m.shift, -0.0f, inside)};
    for (int j = 0; j < 4; j++) f.scale.p[j] = fast::one_plus(f.scale.p[j]);
    return f;
}

__device__ inline Wide normed(const Wide &v, float rstd) {
    Wide n;
    for (int j = 0; j < 4; j++) n.p[j] = fast::round2(__low2float(v.p[j]) * rstd, __high2float(v.p[j]) * rstd);
    return n;
}

/* b + a v, both roundings. */
__device__ inline Wide modulated(const Wide &v, const Wide &a, const Wide &b) {
    Wide out;
    for (int j = 0; j < 4; j++) out.p[j] = fast::add(b.p[j], fast::mul(a.p[j], v.p[j]));
    return out;
}

/* A slot: two rows of x, then two of the residual. */
template <bool RESIDUAL> __device__ inline void bring_rows(Bf *slot, const Args &a, int turn, uint64_t *arrived) {
    int64_t first = (int64_t)turn * PAIR;
    int rows = a.rows - first < PAIR ? 1 : PAIR, cols = a.vectors * VEC;
    unsigned bytes = (unsigned)a.vectors * sizeof(Four);
    copies::expect(arrived, bytes * (unsigned)(RESIDUAL ? 2 * rows : rows));
    for (int r = 0; r < PAIR && r < rows; r++) {
        copies::bring(slot + r * cols, at(a.x, first + r), bytes, arrived);
        if (RESIDUAL) copies::bring(slot + (PAIR + r) * cols, at(a.residual, first + r), bytes, arrived);
    }
}

/* The thread's sum of a row's squares, and in the first of four threads PyTorch's sum of a lane. */
__device__ inline float lane_sum(const Bf *row, int cols) {
    float sum = 0.0f;
#pragma unroll 16
    for (int c = threadIdx.x % CHAINS; c < cols; c += CHAINS) {
        float e = __bfloat162float(row[c]);
        sum = sum + e * e;
    }
    float y = __shfl_down_sync(ALL, sum, 1), z = __shfl_down_sync(ALL, sum, 2), w = __shfl_down_sync(ALL, sum, 3);
    return ((sum + y) + z) + w;
}

/* SECOND: y2 is there. A block has a thread for every piece, and for every sum. */
template <int BLOCK, bool RESIDUAL, bool SECOND>
__global__ void __launch_bounds__(BLOCK, ring::resident(BLOCK)) k_rms_modulate_ring(const __grid_constant__ Args a, int slots) {
    static_assert(BLOCK >= PAIR * CHAINS, "sums without a thread");
    __shared__ uint64_t arrived[ring::MOST_SLOTS];
    __shared__ float lanes[2][PAIR][32]; /* of this turn, of the one before it */
    int cols = a.vectors * VEC, each = cols * PAIR * (RESIDUAL ? 2 : 1), turns = (int)((a.rows + PAIR - 1) / PAIR);
    int mine = threadIdx.x / CHAINS; /* the row of the thread's sum */
    bool inside = (int)threadIdx.x * fast::WIDE < cols;
    if (threadIdx.x == 0) copies::prepare(arrived, ring::MOST_SLOTS);
    fast::begin();
    if (threadIdx.x == 0)
#pragma unroll 1
        for (int i = 0, turn = blockIdx.x; i < slots && turn < turns; i++, turn += gridDim.x)
            bring_rows<RESIDUAL>((Bf *)shared + i * each, a, turn, arrived + i);
    Wide gate = common(a.gate, 1.0f, inside);
    Factors first = factors(a.first, inside), second = factors(a.second, inside);
    __syncthreads(); /* arrived is ready for all */
    copies::Place place = {0, 0};
    for (int turn = blockIdx.x, odd = 0; turn < turns; turn += gridDim.x, odd ^= 1, copies::advance(place, slots)) {
        Bf *slot = (Bf *)shared + place.slot * each;
        int64_t row = (int64_t)turn * PAIR;
        bool live[PAIR] = {inside, inside && row + 1 < a.rows};
        Wide v[PAIR];
        copies::await(arrived + place.slot, place.parity);
#pragma unroll
        for (int r = 0; r < PAIR; r++) {
            if (!live[r]) continue;
            v[r] = fast::get<4>(piece(slot + r * cols));
            if (!RESIDUAL) continue;
            v[r] = modulated(v[r], gate, fast::get<4>(piece(slot + (PAIR + r) * cols)));
            fast::put<4>(piece(slot + r * cols), v[r]);
        }
        if (RESIDUAL) copies::publish(), __syncthreads();
#pragma unroll
        for (int r = 0; r < PAIR; r++) /* behind the fence of publish, which would wait for it */
            if (RESIDUAL && live[r]) fast::put<4>(piece(at(a.h, row + r)), v[r]);
        if (mine < PAIR) {
            float sum = lane_sum(slot + mine * cols, cols);
            if (threadIdx.x % 4 == 0) lanes[odd][mine][threadIdx.x % CHAINS / 4] = sum;
        }
        __syncthreads(); /* behind it the slot has been read */
        int ahead = turn + slots * (int)gridDim.x;
        if (threadIdx.x == 0 && ahead < turns) bring_rows<RESIDUAL>(slot, a, ahead, arrived + place.slot);
#pragma unroll
        for (int r = 0; r < PAIR; r++) {
            float rstd = finish(make_float4(lanes[odd][r][threadIdx.x % 32], 0.0f, 0.0f, 0.0f), a.inverse, a.eps);
            if (!live[r]) continue;
            Wide n = normed(v[r], rstd);
            if (SECOND) fast::put<4>(piece(at(a.y2, row + r)), modulated(n, second.scale, second.shift));
            fast::put<4>(piece(at(a.y, row + r)), modulated(n, first.scale, first.shift));
        }
    }
}

/* --- guards and launches --- */

bool residual_rms_modulate_accepts(const void *args, char *why, size_t size) {
    const ResidualRmsModulate *a = (const ResidualRmsModulate *)args;
    int64_t cols = a->y.rank ? a->y.shape[a->y.rank - 1] : 0;
    if (cols < VEC || cols % VEC || cols > MOST_COLS)
        REFUSE("rows of %lld, expected a multiple of %d up to %d", (long long)cols, VEC, MOST_COLS);
    const struct { const char *name; const Tensor &t; } rows[] = {
        {"h", a->h}, {"y", a->y}, {"y2", a->y2}, {"residual", a->residual}, {"x", a->x}};
    for (auto &r : rows)
        if (!fits_rows(r.name, r.t, a->y, "y", VEC, why, size)) return false;
    return fits_one("gate", a->gate, cols, why, size) && fits_one("scale", a->scale, cols, why, size) &&
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

template <int BLOCK, bool RESIDUAL> void launch_ring(const Exec *x, const Args &f) {
    auto kernel = f.y2.data ? k_rms_modulate_ring<BLOCK, RESIDUAL, true> : k_rms_modulate_ring<BLOCK, RESIDUAL, false>;
    size_t bytes = (size_t)f.vectors * sizeof(Four) * PAIR * (RESIDUAL ? 2 : 1);
    ring::launch(x, kernel, f, (f.rows + PAIR - 1) / PAIR, bytes, BLOCK);
}

/* 16 bytes at a time, everywhere. */
bool ring_fits(const Exec *x, const Args &f) {
    for (const Row &r : {f.h, f.y, f.y2, f.residual, f.x})
        if (!ring::brings(r)) return false;
    for (const Four *p : {f.gate, f.first.scale, f.first.shift, f.second.scale, f.second.shift})
        if ((uintptr_t)p % 16) return false;
    return x->cuda->sm >= 90 && f.vectors % 2 == 0 && f.rows <= INT32_MAX;
}

template <bool RESIDUAL> Status modulate(Exec *x, const ResidualRmsModulate *a, const char *op) {
    int64_t rows = rows_of(a->y), cols = a->y.shape[a->y.rank - 1];
    Args f = {row_of(a->h), row_of(a->y), row_of(a->y2), row_of(a->residual), row_of(a->x), one(a->gate),
              {one(a->scale), one(a->shift)}, {one(a->scale2), one(a->shift2)}, rows, (int)(cols / VEC), 1.0f / (float)cols,
              a->eps};
    size_t bytes = (size_t)WARPS * (size_t)f.vectors * sizeof(Four);
    int64_t blocks = (rows + WARPS - 1) / WARPS, most = (int64_t)((200 << 10) / (bytes + 1024)) * x->cuda->sm_count;
    if (ring_fits(x, f)) cols > 256 * fast::WIDE ? launch_ring<512, RESIDUAL>(x, f) : launch_ring<256, RESIDUAL>(x, f);
    else k_rms_modulate_fused<RESIDUAL><<<(unsigned)(blocks < most ? blocks : most), THREADS, bytes, x->cuda->stream>>>(f);
    return cuda_launched(x, op);
}

/* scale without shift, which the reference refuses, goes there too. */
bool handed_over(const Tensor &y, const Tensor &y2, const Modulation &first, const Modulation &second) {
    return rows_of(y) < LEAST_ROWS || y.shape[y.rank - 1] < LEAST_COLS || !first.scale != !first.shift ||
           !second.scale != !second.shift || (!y2.rank && second.scale);
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
