/* norm_rope_split_fused.cu - the norm of queries and keys and the rotation behind it (rms_modulate.h) in one pass over their
 * rows, BF16: the family norm-rope-split, EXACT.
 *
 * 128 threads take a row and hold it in registers, in the order of norm.cu's RMS_ONCE; the partner of an element, half a head
 * away, is in another lane of the same warp. On Hopper two such halves make a block: query and key of one token, which so read
 * the tables once, or two tokens where there is but one of them. Rows and tables, half of all bytes read, come together, ahead of
 * their turn (cuda_ring.cuh): loaded when the sum is known they were a second wait for memory in every row. Other cards, and rows
 * that start at odd multiples of 8 bytes: a block a row.
 * Easy to get wrong: the last turn may have one token; a table's row has as many bytes as a row, with half the numbers;
 * outputs may be inputs, element for element; widths and heads that have no kernel here go to the table's reference. */
#include "kernels/chain.h"
#include "kernels/cuda_four.cuh"
#include "kernels/cuda_ring.cuh"
#include "kernels/registry.h"

namespace {

using namespace four;

constexpr int THREADS = 128, WARPS = THREADS / 32; /* of a row */

struct Side {
    Row y, x;
    const Four *w;
};

struct Turned {
    Side side[2]; /* q, k */
    const float *cos, *sin; /* NULL: not rotated */
    int64_t cos_row, sin_row;
    int tokens, sides;
    float eps;
};

/* --- a thread's part of a row: the vectors t, t + 128, ... --- */

__device__ inline Four other_lane(Four v, int by) {
    unsigned long long raw;
    memcpy(&raw, &v, sizeof raw);
    raw = __shfl_xor_sync(ALL, raw, by);
    memcpy(&v, &raw, sizeof v);
    return v;
}

/* One of a pair: own c + (low: -s, high: s) other, as rope_split.cu. */
__device__ inline float turn(float own, float other, float c, float s) {
    return ROPE_SPLIT_FMA ? fmaf(s, other, own * c) : own * c + s * other;
}

/* Both lanes of a pair call it. EACH: vectors of half a head; halves alternate. */
template <int EACH> __device__ inline Four rotated(Four n, float4 c, float4 s, int thread) {
    float4 own = widen(n), other = widen(other_lane(n, EACH));
    if (!(thread & EACH)) s = make_float4(-s.x, -s.y, -s.z, -s.w);
    return narrow(make_float4(turn(own.x, other.x, c.x, s.x), turn(own.y, other.y, c.y, s.y), turn(own.z, other.z, c.z, s.z),
                              turn(own.w, other.w, c.w, s.w)));
}

/* Where in a table's row the angles of vector thread + 128 j are. */
template <int EACH> __device__ inline int angle(int thread, int j) {
    static_assert(THREADS % (2 * EACH) == 0, "128 vectors further it is whole heads further");
    return (thread / (2 * EACH) * EACH + thread % EACH + THREADS / 2 * j) * VEC;
}

__device__ inline Four normed_once(Four v, float rstd, Four w) { return narrow(times(widen(w), scaled(widen(v), rstd))); }

/* The thread's sum, one chain, and its warp's, in lane 0. */
template <int PER> __device__ inline float warp_sum(const Four v[PER]) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        float4 e = widen(v[j]);
        sum = fmaf(e.w, e.w, fmaf(e.z, e.z, fmaf(e.y, e.y, fmaf(e.x, e.x, sum))));
    }
#pragma unroll
    for (int by = 16; by; by /= 2) sum = sum + __shfl_down_sync(ALL, sum, by);
    return sum;
}

/* From the sums of a row's warps: 2 and 3 into 0 and 1, then 1 into 0, as norm.cu. */
template <int PER> __device__ inline float rstd_of(const float part[WARPS], float eps) {
    static_assert(WARPS == 4, "the tree below");
    return rsqrtf(((part[0] + part[2]) + (part[1] + part[3])) / (float)(PER * THREADS * VEC) + eps);
}

/* --- a block a row --- */

/* PER: vectors of a thread. blockIdx.x: token, and q or k: the second finds the tables in a cache. The arguments are a constant
 * of the grid, so that the side is looked up in place, not in a copy of every thread's own. */
template <int PER, int EACH> __global__ void __launch_bounds__(THREADS) k_norm_rope_split(const __grid_constant__ Turned a) {
    __shared__ float part[WARPS];
    int64_t token = blockIdx.x / a.sides;
    Side s = a.side[blockIdx.x % a.sides];
    int thread = threadIdx.x;
    const Four *in = at(s.x, token) + thread;
    Four *out = at(s.y, token) + thread, v[PER];
#pragma unroll
    for (int j = 0; j < PER; j++) v[j] = get(in + THREADS * j);
    float sum = warp_sum<PER>(v);
    if (thread % 32 == 0) part[thread / 32] = sum;
    __syncthreads();
    float rstd = rstd_of<PER>(part, a.eps);
#pragma unroll
    for (int j = 0; j < PER; j++) {
        Four n = normed_once(v[j], rstd, constant(s.w + thread + THREADS * j));
        if (a.cos) {
            int i = angle<EACH>(thread, j);
            const float *c = a.cos + token * a.cos_row + i, *t = a.sin + token * a.sin_row + i;
            n = rotated<EACH>(n, *(const float4 *)c, *(const float4 *)t, thread);
        }
        put(out + THREADS * j, n);
    }
}

/* --- two rows a turn --- */

/* A slot: the rows of both halves of a block, then cosines and sines of its one or two tokens; all pieces have these bytes. */
template <int PER> constexpr unsigned PIECE = PER * THREADS * sizeof(Four);

__host__ __device__ inline int tokens_of_turn(const Turned &a) { return 3 - a.sides; }
__host__ __device__ inline int turns_of(const Turned &a) { return (a.tokens + tokens_of_turn(a) - 1) / tokens_of_turn(a); }

template <int PER, bool TABLES> __device__ inline void bring_turn(char *slot, const Turned &a, int turn, uint64_t *arrived) {
    int most = tokens_of_turn(a), first = turn * most, tokens = min(a.tokens - first, most), rows = a.sides * tokens;
    copies::expect(arrived, PIECE<PER> * (unsigned)(TABLES ? rows + 2 * tokens : rows));
    for (int i = 0; i < 2 && i < rows; i++) {
        const Four *from = a.sides == 2 ? at(a.side[i].x, first) : at(a.side[0].x, first + i);
        copies::bring(slot + i * PIECE<PER>, from, PIECE<PER>, arrived);
    }
    for (int i = 0; TABLES && i < 2 && i < tokens; i++) {
        copies::bring(slot + (2 + 2 * i) * PIECE<PER>, a.cos + (int64_t)(first + i) * a.cos_row, PIECE<PER>, arrived);
        copies::bring(slot + (3 + 2 * i) * PIECE<PER>, a.sin + (int64_t)(first + i) * a.sin_row, PIECE<PER>, arrived);
    }
}

extern __shared__ float4 shared[]; /* the slots */

/* EACH: 0 without tables. */
template <int PER, int EACH>
__global__ void __launch_bounds__(2 * THREADS, ring::resident(2 * THREADS))
    k_norm_rope_ring(const __grid_constant__ Turned a, int slots) {
    __shared__ uint64_t arrived[ring::MOST_SLOTS];
    __shared__ float part[2 * WARPS];
    int thread = threadIdx.x % THREADS, half = threadIdx.x / THREADS, most = tokens_of_turn(a), mine = most == 2 ? half : 0;
    unsigned bytes = PIECE<PER> * (unsigned)(EACH ? 2 + 2 * most : 2);
    int turns = turns_of(a);
    const Side &s = a.side[most == 2 ? 0 : half];
    Four w[PER];
    if (threadIdx.x == 0) copies::prepare(arrived, ring::MOST_SLOTS);
    fast::begin();
    if (threadIdx.x == 0)
#pragma unroll 1
        for (int i = 0, turn = blockIdx.x; i < slots && turn < turns; i++, turn += gridDim.x)
            bring_turn<PER, (EACH > 0)>((char *)shared + i * bytes, a, turn, arrived + i);
#pragma unroll
    for (int j = 0; j < PER; j++) w[j] = constant(s.w + thread + THREADS * j);
    __syncthreads(); /* arrived is ready for all */
    copies::Place place = {0, 0};
    for (int turn = blockIdx.x; turn < turns; turn += gridDim.x, copies::advance(place, slots)) {
        char *slot = (char *)shared + place.slot * bytes;
        const Four *in = (const Four *)(slot + half * PIECE<PER>) + thread;
        const float *cosine = (const float *)(slot + (2 + 2 * mine) * PIECE<PER>), *sine = cosine + PIECE<PER> / sizeof(float);
        int token = turn * most + mine;
        bool live = token < a.tokens;
        Four *out = at(s.y, token) + thread, v[PER];
        copies::await(arrived + place.slot, place.parity);
#pragma unroll
        for (int j = 0; j < PER; j++) v[j] = get(in + THREADS * j);
        float sum = warp_sum<PER>(v);
        if (thread % 32 == 0) part[threadIdx.x / 32] = sum;
        __syncthreads();
        float rstd = rstd_of<PER>(part + half * WARPS, a.eps);
#pragma unroll
        for (int j = 0; j < PER; j++) {
            Four n = normed_once(v[j], rstd, w[j]);
            if constexpr (EACH > 0) {
                int i = angle<EACH>(thread, j);
                n = rotated<EACH>(n, *(const float4 *)(cosine + i), *(const float4 *)(sine + i), thread);
            }
            if (live) put(out + THREADS * j, n);
        }
        __syncthreads(); /* slot and part have been read */
        int ahead = turn + slots * (int)gridDim.x;
        if (threadIdx.x == 0 && ahead < turns) bring_turn<PER, (EACH > 0)>(slot, a, ahead, arrived + place.slot);
    }
}

/* --- guards and launches --- */

constexpr int LANE_ROW = THREADS * VEC; /* elements that a block takes at once */
constexpr int64_t MOST_TOKENS = 1 << 30;

/* Has a kernel here: widths of 2 or 4 accesses of a block and more, heads of 64 and 128. Anything else, and the other form of the
 * rotation: the reference. */
bool has_kernel(const NormRopeSplit *a) {
    int64_t d = a->q.shape[1], e = a->heads > 0 ? d / a->heads : 0;
    return a->form == ROPE_SPLIT_ONCE && (d == 4 * LANE_ROW || d == 8 * LANE_ROW) && a->heads > 0 && d % a->heads == 0 &&
           (e == 64 || e == 128) && !a->cos.rank == !a->sin.rank && !a->yk.rank == !a->k.rank && a->wq.rank &&
           !a->k.rank == !a->wk.rank && a->q.shape[0] < MOST_TOKENS;
}

bool accepts(const void *args, char *why, size_t size) {
    const NormRopeSplit *a = (const NormRopeSplit *)args;
    const Tensor *tables[] = {&a->cos, &a->sin};
    if (a->q.rank != 2) REFUSE("q is no matrix");
    int64_t cols = a->q.shape[1];
    const struct { const char *name; const Tensor &t; } sides[] = {{"yq", a->yq}, {"q", a->q}, {"yk", a->yk}, {"k", a->k}};
    for (auto &side : sides)
        if (!fits_rows(side.name, side.t, a->q, "q", VEC, why, size)) return false;
    if (!fits_one("wq", a->wq, cols, why, size) || !fits_one("wk", a->wk, cols, why, size)) return false;
    for (const Tensor *t : tables)
        if (t->rank && (t->rank != 2 || t->dtype != F32 || t->shape[0] != a->q.shape[0] || 2 * t->shape[1] != cols ||
                        t->stride[1] != 1 || t->stride[0] % 4 || (uintptr_t)t->data % 16))
            REFUSE("the tables are not F32 rows of %lld that start at multiples of 16 bytes", (long long)cols / 2);
    return true;
}

template <int PER, int EACH> void launch(const Exec *x, const Turned &t) {
    auto kernel = t.cos ? k_norm_rope_ring<PER, EACH> : k_norm_rope_ring<PER, 0>;
    size_t bytes = PIECE<PER> * (size_t)(t.cos ? 2 + 2 * tokens_of_turn(t) : 2);
    if (x->cuda->sm >= 90 && ring::brings(t.side[0].x) && ring::brings(t.side[1].x))
        ring::launch(x, kernel, t, turns_of(t), bytes, 2 * THREADS);
    else k_norm_rope_split<PER, EACH><<<(unsigned)(t.tokens * t.sides), THREADS, 0, x->cuda->stream>>>(t);
}

Side side_of(const Tensor &y, const Tensor &x, const Tensor &w) {
    Side s = {};
    if (!x.rank) return s;
    regular(y, VEC, &s.y), regular(x, VEC, &s.x);
    s.w = (const Four *)w.data;
    return s;
}

Status norm_rope_split_fused(Exec *x, const void *args) {
    const NormRopeSplit *a = (const NormRopeSplit *)args;
    if (!has_kernel(a)) return chain_run(x, OP_norm_rope_split, args);
    int64_t d = a->q.shape[1];
    if (!a->q.shape[0]) return OK;
    Turned t = {{side_of(a->yq, a->q, a->wq), side_of(a->yk, a->k, a->wk)},
                a->cos.rank ? (const float *)a->cos.data : NULL,
                a->sin.rank ? (const float *)a->sin.data : NULL,
                a->cos.rank ? a->cos.stride[0] : 0,
                a->sin.rank ? a->sin.stride[0] : 0,
                (int)a->q.shape[0],
                a->k.rank ? 2 : 1,
                a->eps};
    bool long_heads = d / a->heads == 128;
    if (d == 4 * LANE_ROW) long_heads ? launch<4, 16>(x, t) : launch<4, 8>(x, t);
    else long_heads ? launch<8, 16>(x, t) : launch<8, 8>(x, t);
    return cuda_launched(x, "norm_rope_split");
}

} /* namespace */

const Impl NORM_ROPE_SPLIT_FUSED_CUDA[] = {
    {OP_norm_rope_split, "cuda_fused", norm_rope_split_fused, NULL, accepts},
};
