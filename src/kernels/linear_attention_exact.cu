/* linear_attention_exact.cu - linear_attention of BF16 with the bits of the reference (the family linear-attention): the two
 * products of F32 by kernels of our own, which widen what they read, instead of copies in F32 and a library's.
 *
 * That library adds the products of one sum in their order, one fused multiply-add each, whatever its kernel (it gives the same
 * bits for one clip and for two, by different kernels), so any kernel that does has its bits; first sight compares. A sum
 * over 32760 tokens cannot be cut, so what there is to spread are the E x E sums of each head: a thread takes 4 x 4 of them,
 * and a block of four warps stands alone on its multiprocessor. The sum of the keys and the dot products with it stay what
 * they are.
 * Easy to get wrong: a block's threads may belong to two heads; the state is handed on transposed, [head][j][c]; a token that
 * does not exist must not be added as zeros (-0 + 0 is 0). */
#include "kernels/cuda_rows.cuh"
#include "kernels/linear_attention.h"
#include "kernels/linear_attention_pieces.h"
#include "kernels/registry.h"

#include <cuda_pipeline_primitives.h>
#include <stdio.h>

namespace {

using Bf = __nv_bfloat16;
using rows::narrow;
using rows::r;
using rows::widen;

constexpr int UNIT = 16, LEAST_UNITS = 3, MOST_UNITS = 8; /* widths of heads: 48 to 128 */
constexpr int PIECE = 8;                                  /* elements of 16 bytes */
constexpr int SQUARE = 4;                                 /* a thread's sums of the state, each way */

struct Heads {
    const Bf *data;
    int64_t token, head;
};

struct alignas(16) Eight {
    Bf v[PIECE];
};

/* --- the state: S^T[head][j][c] = sum of v[c] kr[j] --- */

constexpr int THREADS = 128, TOKENS = 16, STAGES = 4, SLOTS = 2; /* SLOTS: heads of a block */

template <int UNITS> struct alignas(16) Stage {
    Bf kr[TOKENS][UNIT * UNITS], v[TOKENS][UNIT * UNITS];
};

/* Which heads a block works on. */
struct Span {
    int first, count;
};

template <int UNITS>
__device__ inline void fill(Stage<UNITS> *slot, const Heads &v, const Heads &kr, const Span &h, int64_t at, int64_t tokens) {
    constexpr int PIECES = 2 * UNITS;
    for (int i = threadIdx.x; i < h.count * TOKENS * PIECES; i += THREADS) {
        int row = i / PIECES, piece = i - row * PIECES, token = row % TOKENS, s = row / TOKENS;
        if (at + token >= tokens) continue;
        int64_t head = h.first + s, first = piece * PIECE;
        const Bf *from_kr = kr.data + (at + token) * kr.token + head * kr.head + first;
        const Bf *from_v = v.data + (at + token) * v.token + head * v.head + first;
        __pipeline_memcpy_async(&slot[s].kr[token][first], from_kr, 16);
        __pipeline_memcpy_async(&slot[s].v[token][first], from_v, 16);
    }
}

__device__ inline void four(float to[SQUARE], const Bf *from) { rows::load<Bf, SQUARE>(to, from); }

template <int UNITS> __device__ inline void add_token(float sum[SQUARE][SQUARE], const Stage<UNITS> &s, int token, int c, int j) {
    float v[SQUARE], k[SQUARE];
    four(v, &s.v[token][c]);
    four(k, &s.kr[token][j]);
#pragma unroll
    for (int a = 0; a < SQUARE; a++)
#pragma unroll
        for (int b = 0; b < SQUARE; b++) sum[a][b] = fmaf(k[a], v[b], sum[a][b]);
}

extern __shared__ __align__(128) unsigned char shared[];

template <int UNITS>
__global__ void __launch_bounds__(THREADS) k_state_in_order(float *state, Heads v, Heads kr, int64_t tokens, int heads) {
    constexpr int E = UNIT * UNITS, SIDE = E / SQUARE, SQUARES = SIDE * SIDE;
    Stage<UNITS>(*stage)[SLOTS] = (Stage<UNITS>(*)[SLOTS])shared;
    int begin = blockIdx.x * THREADS, id = begin + threadIdx.x, last = (begin + THREADS - 1) / SQUARES;
    Span span = {begin / SQUARES, 0};
    span.count = (last < heads ? last : heads - 1) - span.first + 1;
    int head = id / SQUARES, square = id - head * SQUARES, j = square / SIDE * SQUARE, c = square % SIDE * SQUARE;
    bool here = head < heads;
    int slot = here ? head - span.first : 0;
    float sum[SQUARE][SQUARE] = {}; /* [j][c] */
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        fill(stage[s], v, kr, span, (int64_t)s * TOKENS, tokens);
        __pipeline_commit();
    }
    int turn = 0;
    for (int64_t at = 0; at < tokens; at += TOKENS) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads(); /* this stage is there, and nobody reads the one before any more */
        fill(stage[(turn + STAGES - 1) % STAGES], v, kr, span, at + (STAGES - 1) * TOKENS, tokens);
        __pipeline_commit();
        const Stage<UNITS> &now = stage[turn][slot];
        if (at + TOKENS <= tokens) {
#pragma unroll
            for (int t = 0; t < TOKENS; t++) add_token(sum, now, t, c, j);
        } else {
            for (int t = 0; at + t < tokens; t++) add_token(sum, now, t, c, j);
        }
        turn = (turn + 1) % STAGES;
    }
    if (!here) return;
    float *to = state + ((int64_t)head * E + j) * E + c;
#pragma unroll
    for (int a = 0; a < SQUARE; a++) rows::store<float, SQUARE>(to + a * E, sum[a]);
}

/* --- outputs: o = r((S qr) z) --- */

constexpr int GROUPS = 8, TOGETHER = 8, TILE = GROUPS * TOGETHER, TILES = 8; /* tokens of a thread, of a tile; tiles of a block */
constexpr int LINE = TILE + 4;

template <int UNITS> struct alignas(16) Room {
    float state[UNIT * UNITS][UNIT * UNITS]; /* [j][c] */
    float qr[UNIT * UNITS][LINE];            /* [j][token] */
};

struct Outputs {
    Bf *o;
    int64_t o_token, o_head;
    Heads qr;
    const float *state;
    const Bf *dot; /* [head][token] */
    int64_t tokens;
    float eps;
};

/* A thread takes 8 tokens and twice 4 channels, E / 2 apart: a warp's reads of the state are then in one piece. */
template <int UNITS> __global__ void __launch_bounds__(GROUPS * 2 * UNITS) k_outputs_in_order(Outputs a) {
    constexpr int E = UNIT * UNITS, ACROSS = E / 8, WIDTH = GROUPS * ACROSS, HALF = E / 2;
    Room<UNITS> &room = *(Room<UNITS> *)shared;
    int column = threadIdx.x % ACROSS * 4, first = threadIdx.x / ACROSS * TOGETHER;
    const float *state = a.state + (int64_t)blockIdx.y * E * E;
    const Bf *qr = a.qr.data + blockIdx.y * a.qr.head, *dot = a.dot + (int64_t)blockIdx.y * a.tokens;
    for (int i = threadIdx.x; i < E * E / 4; i += WIDTH) ((float4 *)room.state)[i] = ((const float4 *)state)[i];
    for (int tile = 0; tile < TILES; tile++) {
        int64_t token0 = ((int64_t)blockIdx.x * TILES + tile) * TILE;
        if (token0 >= a.tokens) return;
        __syncthreads(); /* of the tile before: everybody has read it */
        for (int i = threadIdx.x; i < TILE * (E / PIECE); i += WIDTH) {
            int token = i % TILE, piece = i / TILE;
            int64_t at = token0 + token < a.tokens ? token0 + token : a.tokens - 1;
            Eight x = *(const Eight *)(qr + at * a.qr.token + piece * PIECE);
#pragma unroll
            for (int k = 0; k < PIECE; k++) room.qr[piece * PIECE + k][token] = widen<Bf>(x.v[k]);
        }
        __syncthreads();
        float u[TOGETHER][8] = {};
#pragma unroll 4
        for (int j = 0; j < E; j++) {
            float s[8], q[TOGETHER];
            rows::load<float, 4>(s, &room.state[j][column]);
            rows::load<float, 4>(s + 4, &room.state[j][HALF + column]);
            rows::load<float, 4>(q, &room.qr[j][first]);
            rows::load<float, 4>(q + 4, &room.qr[j][first + 4]);
#pragma unroll
            for (int t = 0; t < TOGETHER; t++)
#pragma unroll
                for (int c = 0; c < 8; c++) u[t][c] = fmaf(q[t], s[c], u[t][c]);
        }
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            int64_t token = token0 + first + t;
            if (token >= a.tokens) continue;
            float z = r<Bf>(1.0f / r<Bf>(widen<Bf>(dot[token]) + a.eps));
            Bf *to = a.o + token * a.o_token + blockIdx.y * a.o_head + column;
#pragma unroll
            for (int c = 0; c < 8; c++) u[t][c] *= z;
            rows::store<Bf, 4>(to, u[t]);
            rows::store<Bf, 4>(to + HALF, u[t] + 4);
        }
    }
}

/* --- the op --- */

struct Plan {
    int64_t tokens, heads, e;
    int blocks; /* of the sum of the keys */
    size_t sum, part, dot, state, total;
};

size_t piece_of(size_t *total, int64_t count, DType t) {
    size_t at = *total;
    *total += ((size_t)count * dtype_size(t) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    return at;
}

Plan plan_of(const Exec *x, const LinearAttention *a) {
    Plan p = {};
    p.tokens = a->q.shape[0], p.heads = a->q.shape[1], p.e = a->q.shape[2];
    p.blocks = linear_attention_sum_blocks(x->cuda ? x->cuda->sm_count : 1 << 16, p.tokens, p.heads * p.e);
    p.sum = piece_of(&p.total, p.heads * p.e, BF16);
    p.part = piece_of(&p.total, p.blocks * p.heads * p.e, F32);
    p.dot = piece_of(&p.total, p.heads * p.tokens, BF16);
    p.state = piece_of(&p.total, p.heads * p.e * p.e, F32);
    return p;
}

Heads heads_of(const Tensor &t) { return {(const Bf *)t.data, t.stride[0], t.stride[1]}; }

template <typename F> Status with_room(Exec *x, F kernel, size_t bytes) {
    cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return code == cudaSuccess ? OK : fail(x->error, ERR_DEVICE, "linear_attention: %s", cudaGetErrorString(code));
}

template <int UNITS> Status launch(Exec *x, const LinearAttention *a, const Plan &p, char *at) {
    constexpr int E = UNIT * UNITS, SQUARES = E / SQUARE * (E / SQUARE);
    static_assert(SQUARES >= THREADS, "a block has at most two heads");
    cudaStream_t stream = x->cuda->stream;
    size_t stages = sizeof(Stage<UNITS>) * SLOTS * STAGES, room = sizeof(Room<UNITS>);
    TRY(with_room(x, k_state_in_order<UNITS>, stages));
    TRY(with_room(x, k_outputs_in_order<UNITS>, room));
    float *state = (float *)(at + p.state);
    k_state_in_order<UNITS><<<(unsigned)((p.heads * SQUARES + THREADS - 1) / THREADS), THREADS, stages, stream>>>(
        state, heads_of(a->v), heads_of(a->kr), p.tokens, (int)p.heads);
    Outputs out = {(Bf *)a->o.data, a->o.stride[0], a->o.stride[1], heads_of(a->qr), state, (const Bf *)(at + p.dot), p.tokens,
                   a->eps};
    int64_t group = (int64_t)TILE * TILES;
    k_outputs_in_order<UNITS><<<dim3((unsigned)((p.tokens + group - 1) / group), (unsigned)p.heads), GROUPS * 2 * UNITS, room,
                                stream>>>(out);
    return cuda_launched(x, "linear_attention");
}

bool aligned(const Tensor &t, int elements) {
    for (int d = 0; d < 2; d++)
        if (t.shape[d] > 1 && t.stride[d] % elements) return false;
    return (uintptr_t)t.data % (elements * sizeof(Bf)) == 0;
}

bool fits(const LinearAttention *a) {
    const Tensor *t[] = {&a->o, &a->q, &a->k, &a->qr, &a->kr, &a->v};
    for (const Tensor *i : t)
        if (i->rank != 3 || !tensor_same_shape(*i, a->q) || i->dtype != BF16 || i->stride[2] != 1) return false;
    int64_t e = a->q.shape[2], units = e / UNIT;
    bool several = a->q.shape[1] > 1; /* one head's product is no batch: the library cuts its sum */
    return several && e % UNIT == 0 && units >= LEAST_UNITS && units <= MOST_UNITS && a->q.shape[1] <= 65535 &&
           aligned(a->v, PIECE) && aligned(a->kr, PIECE) && aligned(a->qr, PIECE) && aligned(a->o, 4);
}

/* For what is handed over: the reference's. */
size_t scratch(const Exec *x, const void *args) {
    const LinearAttention *a = (const LinearAttention *)args;
    return tensor_numel(a->q) && fits(a) ? plan_of(x, a).total : LINEAR_ATTENTION_CUDA->scratch(x, args);
}

Status linear_attention_exact(Exec *x, const void *args) {
    const LinearAttention *a = (const LinearAttention *)args;
    if (!tensor_numel(a->o) || !fits(a)) return LINEAR_ATTENTION_CUDA->run(x, args);
    Plan p = plan_of(x, a);
    char *at = (char *)arena_push(x->scratch, p.total);
    if (!at) return fail(x->error, ERR_MEMORY, "linear_attention: no scratch of %zu bytes", p.total);
    const int64_t sum[] = {p.heads, p.e}, part[] = {p.blocks, p.heads * p.e}, dot[] = {p.heads, p.tokens};
    Tensor n = tensor_make(at + p.sum, BF16, 2, sum);
    TRY(linear_attention_sum(x, n, tensor_make(at + p.part, F32, 2, part), a->k));
    TRY(linear_attention_dots(x, tensor_make(at + p.dot, BF16, 2, dot), n, a->q));
    switch (p.e / UNIT) {
    case 3: return launch<3>(x, a, p, at);
    case 4: return launch<4>(x, a, p, at);
    case 5: return launch<5>(x, a, p, at);
    case 6: return launch<6>(x, a, p, at);
    case 7: return launch<7>(x, a, p, at);
    default: return launch<MOST_UNITS>(x, a, p, at);
    }
}

bool linear_attention_accepts(const void *args, char *why, size_t size) {
    const Tensor *q = &((const LinearAttention *)args)->q;
    return q->dtype == BF16 || (snprintf(why, size, "q is %s, expected BF16", dtype_name(q->dtype)), false);
}

} /* namespace */

const Impl LINEAR_ATTENTION_EXACT_CUDA[] = {
    {OP_linear_attention, "cuda_in_order", linear_attention_exact, scratch, linear_attention_accepts}};
