/* linear_attention_fast.cu - linear_attention of BF16 on the tensor cores (the family linear-attention-bf16,
 * linear_attention.h): queries, keys and values are never widened in memory, and both products have f32 accumulators.
 *
 * Three kernels behind the sum of the keys, which is the reference's: state (a block takes one head and a share of the tokens;
 * a warp 16 channels of v against all of kr), the sum of the shares as two BF16 parts, and outputs (a warp takes 16 tokens of
 * one head: S qr, the normaliser, their product). Bytes: k, v, kr, qr and q once, o once.
 * Easy to get wrong: v and kr lie token by token, which is the transpose of both operands: as matrices they are column- and
 * row-major; tokens beyond the share are zeros in shared memory, whatever lies behind them. */
#include "kernels/cuda_fast.cuh"
#include "kernels/linear_attention.h"
#include "kernels/linear_attention_pieces.h"

#include <cuda_pipeline_primitives.h>
#include <mma.h>
#include <stdio.h>

namespace wmma = nvcuda::wmma;

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
constexpr int WARPS = 8, TURNS = 4;
constexpr unsigned ALL = 0xffffffffu;

/* A row of a [E] or [E,E] matrix in shared memory: off by 16 bytes from the banks of its neighbours. */
template <int TILES> struct Width {
    static constexpr int E = SIDE * TILES, ROW = E + PIECE, SUMS = E + 4;
};

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
    __shared__ Stage<TILES> stage[2];
    int warp = threadIdx.x / 32;
    int64_t at = blockIdx.x * share, end = at + share < tokens ? at + share : tokens;
    v.data += blockIdx.y * v.head, kr.data += blockIdx.y * kr.head;
    wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> sum[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++) wmma::fill_fragment(sum[n], 0.0f);
    fill(stage[0], v, kr, at, end);
    __pipeline_commit();
    for (int turn = 0; at < end; at += STEP, turn ^= 1) {
        if (at + STEP < end) fill(stage[turn ^ 1], v, kr, at + STEP, end);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < STEP; k += SIDE) {
            wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, Bf, wmma::col_major> a;
            wmma::load_matrix_sync(a, &stage[turn].v[k][SIDE * warp], ROW);
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, Bf, wmma::row_major> b;
                wmma::load_matrix_sync(b, &stage[turn].kr[k][SIDE * n], ROW);
                wmma::mma_sync(sum[n], a, b, sum[n]);
            }
        }
        __syncthreads();
    }
    part += ((int64_t)blockIdx.x * gridDim.y + blockIdx.y) * E * E + (int64_t)SIDE * warp * E;
#pragma unroll
    for (int n = 0; n < TILES; n++) wmma::store_matrix_sync(part + SIDE * n, sum[n], E, wmma::mem_row_major);
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

/* A warp's own room: rotated queries first, sums over them. */
template <int TILES> struct alignas(32) Mine {
    union {
        Bf qr[SIDE][Width<TILES>::ROW];
        float u[SIDE][Width<TILES>::SUMS];
    };
};

template <int TILES> struct alignas(32) Room {
    Bf high[Width<TILES>::E][Width<TILES>::ROW], low[Width<TILES>::E][Width<TILES>::ROW];
    Mine<TILES> mine[WARPS];
};

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

extern __shared__ __align__(128) unsigned char shared[];

template <int TILES> __global__ void __launch_bounds__(32 * WARPS) k_outputs(Outputs a) {
    constexpr int E = Width<TILES>::E, ROW = Width<TILES>::ROW, SUMS = Width<TILES>::SUMS, PIECES = 2 * TILES;
    Room<TILES> &room = *(Room<TILES> *)shared;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Mine<TILES> &mine = room.mine[warp];
    const Bf *n = a.n + (int64_t)blockIdx.y * E;
    a.q.data += blockIdx.y * a.q.head, a.qr.data += blockIdx.y * a.qr.head, a.o += blockIdx.y * a.o_head;
    const Heads high = {a.high + (int64_t)blockIdx.y * E * E, E, 0}, low = {a.low + (int64_t)blockIdx.y * E * E, E, 0};
    for (int i = threadIdx.x; i < E * PIECES; i += 32 * WARPS) {
        int row = i / PIECES, piece = i - row * PIECES;
        bring(&room.high[row][piece * PIECE], high, row, piece, true);
        bring(&room.low[row][piece * PIECE], low, row, piece, true);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t token0 = ((int64_t)(blockIdx.x * TURNS + turn) * WARPS + warp) * SIDE;
        for (int i = lane; i < SIDE * PIECES; i += 32) {
            int row = i / PIECES, piece = i - row * PIECES;
            bring(&mine.qr[row][piece * PIECE], a.qr, token0 + row, piece, token0 + row < a.tokens);
        }
        __pipeline_commit();
        float z = normaliser<TILES>(a, n, token0 + lane / 2, lane);
        __pipeline_wait_prior(0);
        __syncthreads(); /* the state too, in the first turn */
        wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> u[TILES];
#pragma unroll
        for (int c = 0; c < TILES; c++) wmma::fill_fragment(u[c], 0.0f);
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, Bf, wmma::row_major> x;
            wmma::load_matrix_sync(x, &mine.qr[0][SIDE * j], ROW);
#pragma unroll
            for (int c = 0; c < TILES; c++) {
                wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, Bf, wmma::col_major> s;
                wmma::load_matrix_sync(s, &room.low[SIDE * c][SIDE * j], ROW);
                wmma::mma_sync(u[c], x, s, u[c]);
                wmma::load_matrix_sync(s, &room.high[SIDE * c][SIDE * j], ROW);
                wmma::mma_sync(u[c], x, s, u[c]);
            }
        }
        __syncwarp();
#pragma unroll
        for (int c = 0; c < TILES; c++) wmma::store_matrix_sync(&mine.u[0][SIDE * c], u[c], SUMS, wmma::mem_row_major);
        __syncwarp();
        for (int i = lane; i < SIDE * PIECES; i += 32) { /* a multiple of 32: all lanes take part */
            int row = i / PIECES, piece = i - row * PIECES;
            float by = __shfl_sync(ALL, z, 2 * row);
            const float *from = &mine.u[row][piece * PIECE];
            fast::Wide out;
#pragma unroll
            for (int k = 0; k < PIECE / 2; k++) out.p[k] = fast::round2(from[2 * k] * by, from[2 * k + 1] * by);
            if (token0 + row < a.tokens) fast::put<4>(a.o + (token0 + row) * a.o_token + piece * PIECE, out);
        }
        __syncwarp();
    }
}

/* --- the op --- */

struct Plan {
    int64_t tokens, heads, e, share;
    int shares, blocks;                                  /* blocks: of the sum of the keys */
    size_t sum, sum_part, part, high, low, total;        /* offsets, bytes */
};

size_t piece_of(size_t *total, int64_t count, DType t) {
    size_t at = *total;
    *total += ((size_t)count * dtype_size(t) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    return at;
}

Plan plan_of(const Exec *x, const LinearAttention *a) {
    Plan p = {};
    p.tokens = a->q.shape[0], p.heads = a->q.shape[1], p.e = a->q.shape[2];
    int64_t most = p.heads < BLOCKS ? BLOCKS / p.heads : 1, stages = (p.tokens + STEP - 1) / STEP;
    int64_t each = (stages + most - 1) / most; /* stages of a share */
    p.share = each * STEP;
    p.shares = (int)((stages + each - 1) / each);
    p.blocks = linear_attention_sum_blocks(x->cuda ? x->cuda->sm_count : 1 << 16, p.tokens, p.heads * p.e);
    p.sum = piece_of(&p.total, p.heads * p.e, BF16);
    p.sum_part = piece_of(&p.total, p.blocks * p.heads * p.e, F32);
    p.part = piece_of(&p.total, p.shares * p.heads * p.e * p.e, F32);
    p.high = piece_of(&p.total, p.heads * p.e * p.e, BF16);
    p.low = piece_of(&p.total, p.heads * p.e * p.e, BF16);
    return p;
}

size_t scratch(const Exec *x, const void *args) {
    return tensor_numel(((const LinearAttention *)args)->q) ? plan_of(x, (const LinearAttention *)args).total : 0;
}

Heads heads_of(const Tensor &t) { return {(const Bf *)t.data, t.stride[0], t.stride[1]}; }

template <int TILES> Status launch(Exec *x, const LinearAttention *a, const Plan &p, char *at) {
    cudaStream_t stream = x->cuda->stream;
    float *part = (float *)(at + p.part);
    Bf *high = (Bf *)(at + p.high), *low = (Bf *)(at + p.low);
    int64_t count = p.heads * p.e * p.e, group = (int64_t)SIDE * WARPS * TURNS;
    k_state<TILES><<<dim3((unsigned)p.shares, (unsigned)p.heads), SIDE * 2 * TILES, 0, stream>>>(
        part, heads_of(a->v), heads_of(a->kr), p.tokens, p.share);
    k_parts<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(high, low, part, p.shares, count);
    cudaError_t code = cudaFuncSetAttribute(k_outputs<TILES>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)sizeof(Room<TILES>));
    if (code != cudaSuccess) return fail(x->error, ERR_DEVICE, "linear_attention: %s", cudaGetErrorString(code));
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
