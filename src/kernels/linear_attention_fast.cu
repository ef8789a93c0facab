/* linear_attention_fast.cu - linear_attention of BF16 on the tensor cores (the family linear-attention-bf16,
 * linear_attention.h): queries, keys and values are never widened in memory, and both products have f32 accumulators.
 *
 * Three kernels behind the sum of the keys, which is the reference's: state (a block takes one head and a share of the tokens;
 * a warp 16 channels of v against all of kr), the sum of the shares as two BF16 parts, and outputs (a warp takes 16 tokens of
 * one head: S qr, the normaliser, their product). Bytes: k, v, kr, qr and q once, o once.
 * Easy to get wrong: v and kr lie token by token, which is the transpose of both operands; tokens beyond the share are zeros in
 * shared memory, whatever lies behind them. */
#include "kernels/cuda_fast.cuh"
#include "kernels/linear_attention.h"
#include "kernels/linear_attention_pieces.h"

#include <cuda_pipeline_primitives.h>
#include <stdio.h>

namespace {

using Bf = __nv_bfloat16;
using rows::narrow;
using rows::r;
using rows::widen;

constexpr int SIDE = 16;      /* of a tensor core's matrices */
constexpr int MOST_TILES = 8; /* heads of at most 128 */
constexpr int PIECE = 8;      /* elements of 16 bytes */
constexpr int STEP = 32;      /* tokens of a stage */
constexpr int BLOCKS = 264;   /* of the state: two for each multiprocessor of an H200. Part of the sum's order. */
constexpr int STAGES = 4;     /* of the state's ring */
constexpr int WARPS = 8, TURNS = 4;
constexpr unsigned ALL = 0xffffffffu;

/* A row of a [E] or [E,E] matrix in shared memory: off by 16 bytes from the banks of its neighbours. */
template <int TILES> struct Width {
    static constexpr int E = SIDE * TILES, ROW = E + PIECE;
};

extern __shared__ __align__(128) unsigned char shared[];

/* --- products of 16 x 16 matrices: a warp's part of the accumulators is rows lane / 4 and 8 more, columns lane % 4 * 2 and one
 * more of each half of 8 --- */

struct Square {
    unsigned r[4];
};
struct Sums {
    float left[4], right[4];
};

/* Where a lane points to when a warp reads a 16 x 16 square of rows ROW apart: its quarters go to r[0..3] in the order top left,
 * bottom left, top right, bottom right, or with the middle two changed over. */
__device__ inline const Bf *down_first(const Bf *from, int row, int lane) {
    return from + (lane / 8 % 2 * 8 + lane % 8) * row + lane / 16 * 8;
}
__device__ inline const Bf *across_first(const Bf *from, int row, int lane) {
    return from + (lane / 16 * 8 + lane % 8) * row + lane / 8 % 2 * 8;
}

__device__ inline Square read(const Bf *from) {
    Square x;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.r[0]), "=r"(x.r[1]), "=r"(x.r[2]), "=r"(x.r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(from))
                 : "memory");
    return x;
}
/* Each quarter transposed. */
__device__ inline Square read_turned(const Bf *from) {
    Square x;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.r[0]), "=r"(x.r[1]), "=r"(x.r[2]), "=r"(x.r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(from))
                 : "memory");
    return x;
}

__device__ inline void multiply(float sum[4], const Square &a, unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}
/* sum += a b; b's quarters: its left half's upper and lower, its right half's. */
__device__ inline void multiply(Sums &sum, const Square &a, const Square &b) {
    multiply(sum.left, a, b.r[0], b.r[1]);
    multiply(sum.right, a, b.r[2], b.r[3]);
}

struct Heads {
    const Bf *data;
    int64_t token, head;
};

/* 16 bytes of a row into shared memory, or zeros. */
__device__ inline void bring(Bf *to, const Heads &from, int64_t token, int piece, bool there) {
    __pipeline_memcpy_async(to, from.data + (there ? token : 0) * from.token + piece * PIECE, 16, there ? 0 : 16);
}

/* --- the state: part[share][head][c][j] = sum of v[c] kr[j] --- */

template <int TILES> struct alignas(32) Stage {
    Bf v[STEP][Width<TILES>::ROW], kr[STEP][Width<TILES>::ROW];
};

template <int TILES> __device__ inline void fill(Stage<TILES> &s, const Heads &v, const Heads &kr, int64_t at, int64_t end) {
    constexpr int PIECES = 2 * TILES;
    for (int i = threadIdx.x; i < STEP * PIECES; i += SIDE * 2 * TILES) {
        int row = i / PIECES, piece = i - row * PIECES;
        bool there = at + row < end;
        bring(&s.v[row][piece * PIECE], v, at + row, piece, there);
        bring(&s.kr[row][piece * PIECE], kr, at + row, piece, there);
    }
}

template <int TILES>
__global__ void __launch_bounds__(SIDE * 2 * TILES) k_state(float *part, Heads v, Heads kr, int64_t tokens, int64_t share) {
    constexpr int E = Width<TILES>::E, ROW = Width<TILES>::ROW;
    Stage<TILES> *stage = (Stage<TILES> *)shared;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t at = blockIdx.x * share, end = at + share < tokens ? at + share : tokens;
    v.data += blockIdx.y * v.head, kr.data += blockIdx.y * kr.head;
    Sums sum[TILES] = {};
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (at + i * STEP < end) fill(stage[i], v, kr, at + i * STEP, end);
        __pipeline_commit();
    }
    for (int turn = 0; at < end; at += STEP, turn = (turn + 1) % STAGES) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads(); /* this stage is there, and nobody reads the one before any more */
        if (at + (STAGES - 1) * STEP < end)
            fill(stage[(turn + STAGES - 1) % STAGES], v, kr, at + (STAGES - 1) * STEP, end);
        __pipeline_commit();
#pragma unroll
        for (int k = 0; k < STEP; k += SIDE) { /* both lie token by token, which is the transpose of what is multiplied */
            Square a = read_turned(across_first(&stage[turn].v[k][SIDE * warp], ROW, lane));
#pragma unroll
            for (int n = 0; n < TILES; n++)
                multiply(sum[n], a, read_turned(down_first(&stage[turn].kr[k][SIDE * n], ROW, lane)));
        }
    }
    part += ((int64_t)blockIdx.x * gridDim.y + blockIdx.y) * E * E + (int64_t)(SIDE * warp + lane / 4) * E + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) { /* rows, 8 apart */
            *(float2 *)(part + i * 8 * E + SIDE * n) = make_float2(sum[n].left[2 * i], sum[n].left[2 * i + 1]);
            *(float2 *)(part + i * 8 * E + SIDE * n + 8) = make_float2(sum[n].right[2 * i], sum[n].right[2 * i + 1]);
        }
}

/* S = high + low, to 2^-18. */
__global__ void __launch_bounds__(256) k_parts(Bf *high, Bf *low, const float *part, int shares, int64_t count) {
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    float sum = part[i];
    for (int s = 1; s < shares; s++) sum += part[s * count + i];
    high[i] = narrow<Bf>(sum);
    low[i] = narrow<Bf>(sum - r<Bf>(sum));
}

/* --- outputs --- */

struct Outputs {
    Bf *o;
    int64_t o_token, o_head;
    Heads q, qr;
    const Bf *high, *low, *n; /* [head][c][j] twice, [head][j] */
    int64_t tokens;
    float eps;
};

/* A warp's own room: rotated queries, half of its outputs. */
template <int TILES> struct alignas(32) Mine {
    Bf qr[SIDE][Width<TILES>::ROW], o[SIDE / 2][Width<TILES>::ROW];
};

template <int TILES> struct alignas(32) Room {
    Bf high[Width<TILES>::E][Width<TILES>::ROW], low[Width<TILES>::E][Width<TILES>::ROW];
    Mine<TILES> mine[WARPS];
};

template <int TILES>
__device__ inline void bring_queries(Mine<TILES> &mine, const Heads &qr, int64_t token0, int64_t tokens, int lane) {
    constexpr int PIECES = 2 * TILES;
    for (int i = lane; i < SIDE * PIECES; i += 32) {
        int row = i / PIECES, piece = i - row * PIECES;
        bring(&mine.qr[row][piece * PIECE], qr, token0 + row, piece, token0 + row < tokens);
    }
}

/* r(1 / r(r(n . q) + eps)) of token lane / 2, in both of its lanes. */
template <int TILES> __device__ inline float normaliser(const Outputs &a, const Bf *n, int64_t token, int lane) {
    float dot = 0.0f;
    const Bf *q = a.q.data + (token < a.tokens ? token : 0) * a.q.token;
    int first = lane % 2 * TILES;
#pragma unroll
    for (int p = 0; p < TILES; p++) {
        fast::Wide x = fast::get<4>(q + (first + p) * PIECE), y = fast::get<4>(n + (first + p) * PIECE);
#pragma unroll
        for (int i = 0; i < PIECE / 2; i++) {
            dot = fmaf(__low2float(y.p[i]), __low2float(x.p[i]), dot);
            dot = fmaf(__high2float(y.p[i]), __high2float(x.p[i]), dot);
        }
    }
    dot += __shfl_xor_sync(ALL, dot, 1);
    return r<Bf>(1.0f / r<Bf>(r<Bf>(dot) + a.eps));
}

template <int TILES> __global__ void __launch_bounds__(32 * WARPS) k_outputs(Outputs a) {
    constexpr int E = Width<TILES>::E, ROW = Width<TILES>::ROW, PIECES = 2 * TILES;
    Room<TILES> &room = *(Room<TILES> *)shared;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Mine<TILES> &mine = room.mine[warp];
    const Bf *n = a.n + (int64_t)blockIdx.y * E;
    a.q.data += blockIdx.y * a.q.head, a.qr.data += blockIdx.y * a.qr.head, a.o += blockIdx.y * a.o_head;
    const Heads high = {a.high + (int64_t)blockIdx.y * E * E, E, 0}, low = {a.low + (int64_t)blockIdx.y * E * E, E, 0};
    int64_t token0 = ((int64_t)blockIdx.x * TURNS * WARPS + warp) * SIDE;
    for (int i = threadIdx.x; i < E * PIECES; i += 32 * WARPS) {
        int row = i / PIECES, piece = i - row * PIECES;
        bring(&room.high[row][piece * PIECE], high, row, piece, true);
        bring(&room.low[row][piece * PIECE], low, row, piece, true);
    }
    bring_queries(mine, a.qr, token0, a.tokens, lane);
    __pipeline_commit();
    float z = normaliser<TILES>(a, n, token0 + lane / 2, lane);
    __pipeline_wait_prior(0);
    __syncthreads(); /* the state */
    for (int turn = 0; turn < TURNS; turn++, token0 += WARPS * SIDE) {
        __pipeline_wait_prior(0);
        __syncwarp();
        Square x[TILES];
        Sums u[TILES] = {};
#pragma unroll
        for (int j = 0; j < TILES; j++) x[j] = read(down_first(&mine.qr[0][SIDE * j], ROW, lane));
        __syncwarp(); /* the queries are in registers: the next ones may come */
        if (turn + 1 < TURNS) bring_queries(mine, a.qr, token0 + WARPS * SIDE, a.tokens, lane);
        __pipeline_commit();
        float upper = __shfl_sync(ALL, z, lane / 4 * 2), lower = __shfl_sync(ALL, z, lane / 4 * 2 + SIDE);
        if (turn + 1 < TURNS) z = normaliser<TILES>(a, n, token0 + WARPS * SIDE + lane / 2, lane);
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int c = 0; c < TILES; c++) {
                multiply(u[c], x[j], read(across_first(&room.low[SIDE * c][SIDE * j], ROW, lane)));
                multiply(u[c], x[j], read(across_first(&room.high[SIDE * c][SIDE * j], ROW, lane)));
            }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Bf *to = &mine.o[lane / 4][lane % 4 * 2];
            float by = half ? lower : upper;
#pragma unroll
            for (int c = 0; c < TILES; c++) {
                const float *left = u[c].left + 2 * half, *right = u[c].right + 2 * half;
                fast::put<1>(to + SIDE * c, {fast::round2(left[0] * by, left[1] * by)});
                fast::put<1>(to + SIDE * c + 8, {fast::round2(right[0] * by, right[1] * by)});
            }
            __syncwarp();
            for (int i = lane; i < SIDE / 2 * PIECES; i += 32) {
                int row = i / PIECES, piece = i - row * PIECES;
                int64_t token = token0 + half * (SIDE / 2) + row;
                if (token < a.tokens)
                    fast::put<4>(a.o + token * a.o_token + piece * PIECE, fast::get<4>(&mine.o[row][piece * PIECE]));
            }
            __syncwarp();
        }
    }
}

/* --- the op --- */

struct Plan {
    int64_t tokens, heads, e, share;
    int shares, blocks;                                  /* blocks: of the sum of the keys */
    size_t sum, sum_part, part, high, low, total;        /* offsets, bytes */
};

Plan plan_of(const Exec *x, const LinearAttention *a) {
    Plan p = {};
    p.tokens = a->q.shape[0], p.heads = a->q.shape[1], p.e = a->q.shape[2];
    int64_t most = p.heads < BLOCKS ? BLOCKS / p.heads : 1, stages = (p.tokens + STEP - 1) / STEP;
    int64_t each = (stages + most - 1) / most; /* stages of a share */
    p.share = each * STEP;
    p.shares = (int)((stages + each - 1) / each);
    p.blocks = linear_attention_sum_blocks(x->cuda ? x->cuda->sm_count : 1 << 16, p.tokens, p.heads * p.e);
    p.sum = arena_piece(&p.total, p.heads * p.e, BF16);
    p.sum_part = arena_piece(&p.total, p.blocks * p.heads * p.e, F32);
    p.part = arena_piece(&p.total, p.shares * p.heads * p.e * p.e, F32);
    p.high = arena_piece(&p.total, p.heads * p.e * p.e, BF16);
    p.low = arena_piece(&p.total, p.heads * p.e * p.e, BF16);
    return p;
}

size_t scratch(const Exec *x, const void *args) {
    return tensor_numel(((const LinearAttention *)args)->q) ? plan_of(x, (const LinearAttention *)args).total : 0;
}

Heads heads_of(const Tensor &t) { return {(const Bf *)t.data, t.stride[0], t.stride[1]}; }

template <typename F> Status with_room(Exec *x, F kernel, size_t bytes) {
    cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return code == cudaSuccess ? OK : fail(x->error, ERR_DEVICE, "linear_attention: %s", cudaGetErrorString(code));
}

template <int TILES> Status launch(Exec *x, const LinearAttention *a, const Plan &p, char *at) {
    cudaStream_t stream = x->cuda->stream;
    float *part = (float *)(at + p.part);
    Bf *high = (Bf *)(at + p.high), *low = (Bf *)(at + p.low);
    int64_t count = p.heads * p.e * p.e, group = (int64_t)SIDE * WARPS * TURNS;
    TRY(with_room(x, k_state<TILES>, STAGES * sizeof(Stage<TILES>)));
    TRY(with_room(x, k_outputs<TILES>, sizeof(Room<TILES>)));
    k_state<TILES><<<dim3((unsigned)p.shares, (unsigned)p.heads), SIDE * 2 * TILES, STAGES * sizeof(Stage<TILES>), stream>>>(
        part, heads_of(a->v), heads_of(a->kr), p.tokens, p.share);
    k_parts<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(high, low, part, p.shares, count);
    Outputs out = {(Bf *)a->o.data, a->o.stride[0], a->o.stride[1], heads_of(a->q), heads_of(a->qr), high, low,
                   (const Bf *)(at + p.sum), p.tokens, a->eps};
    k_outputs<TILES><<<dim3((unsigned)((p.tokens + group - 1) / group), (unsigned)p.heads), 32 * WARPS, sizeof(Room<TILES>),
                       stream>>>(out);
    return cuda_launched(x, "linear_attention");
}

bool in_pieces(const LinearAttention *a) {
    const Tensor *t[] = {&a->o, &a->q, &a->qr, &a->kr, &a->v};
    for (const Tensor *i : t)
        if ((uintptr_t)i->data % 16) return false;
    return true;
}

Status linear_attention_fast(Exec *x, const void *args) {
    const LinearAttention *a = (const LinearAttention *)args;
    if (!tensor_numel(a->o)) return OK;
    if (!in_pieces(a)) return LINEAR_ATTENTION_CUDA->run(x, args);
    Plan p = plan_of(x, a);
    char *at = (char *)arena_push(x->scratch, p.total);
    if (!at) return fail(x->error, ERR_MEMORY, "linear_attention: no scratch of %zu bytes", p.total);
    const int64_t sum[] = {p.heads, p.e}, part[] = {p.blocks, p.heads * p.e};
    TRY(linear_attention_sum(x, tensor_make(at + p.sum, BF16, 2, sum), tensor_make(at + p.sum_part, F32, 2, part), a->k));
    switch (p.e / SIDE) {
    case 1: return launch<1>(x, a, p, at);
    case 2: return launch<2>(x, a, p, at);
    case 3: return launch<3>(x, a, p, at);
    case 4: return launch<4>(x, a, p, at);
    case 5: return launch<5>(x, a, p, at);
    case 6: return launch<6>(x, a, p, at);
    case 7: return launch<7>(x, a, p, at);
    default: return launch<MOST_TILES>(x, a, p, at);
    }
}

bool linear_attention_accepts(const void *args, char *why, size_t size) {
    static const char *const NAMES[] = {"o", "q", "k", "qr", "kr", "v"};
    const LinearAttention *a = (const LinearAttention *)args;
    const Tensor *t[] = {&a->o, &a->q, &a->k, &a->qr, &a->kr, &a->v};
    for (int i = 0; i < 6; i++) {
        if (t[i]->dtype != BF16) return snprintf(why, size, "%s is %s, expected BF16", NAMES[i], dtype_name(t[i]->dtype)), false;
        if (t[i]->rank != 3 || !tensor_same_shape(*t[i], a->q) || t[i]->stride[2] != 1)
            return snprintf(why, size, "%s is not [tokens, heads, head dim] like q", NAMES[i]), false;
        for (int d = 0; d < 2; d++)
            if (t[i]->shape[d] > 1 && t[i]->stride[d] % PIECE)
                return snprintf(why, size, "%s: heads do not start at multiples of %d elements", NAMES[i], PIECE), false;
    }
    int64_t e = a->q.shape[2];
    if (!e || e % SIDE || e > SIDE * MOST_TILES || a->q.shape[1] > 65535)
        return snprintf(why, size, "heads of %lld, expected multiples of %d up to %d", (long long)e, SIDE, SIDE * MOST_TILES),
               false;
    return true;
}

} /* namespace */

const Impl LINEAR_ATTENTION_FAST_CUDA[] = {
    {OP_linear_attention, "cuda_parts", linear_attention_fast, scratch, linear_attention_accepts}};
