/* linear_attention_exact.cu - linear_attention of BF16 with the bits of the reference (the family linear-attention): the two
 * products of F32 by kernels of our own, which widen what they read, instead of copies in F32 and a library's.
 *
 * That library adds the products of one sum in their order, one fused multiply-add each, whatever its kernel (it gives the same
 * bits for one clip and for two, by different kernels), so any kernel that does has its bits; first sight compares. A sum
 * over 32760 tokens cannot be cut, so what there is to spread are the E x E sums of each head: a lane takes 4 x 4 of them, a
 * warp 32 channels of v (counted through all heads) by 16 of kr, and one warp is all that a scheduler gets. So a warp waits for
 * nobody: it has a ring of its own in shared memory, filled far ahead, and there is no barrier of the block. The sum of the
 * keys and the dot products with it stay what they are.
 * Easy to get wrong: a warp's channels may belong to two heads; the state is handed on transposed, [head][j][c]; a token that
 * does not exist must not be added as zeros (-0 + 0 is 0); vectors of BF16 are read as words, or they are read in halves. */
#include "kernels/cuda_async.cuh"
#include "kernels/cuda_fast.cuh"
#include "kernels/linear_attention.h"
#include "kernels/linear_attention_pieces.h"

#include <stddef.h>
#include <stdio.h>
#include <type_traits>

namespace {

using Bf = __nv_bfloat16;
using async::high;
using async::low;
using rows::r;
using rows::widen;

constexpr int UNIT = 16, LEAST_UNITS = 3, MOST_UNITS = 8; /* widths of heads: 48 to 128 */
constexpr int PIECE = 8;                                  /* elements of 16 bytes */

struct Heads {
    const Bf *data;
    int64_t token, head;
};

extern __shared__ __align__(128) unsigned char shared[];

/* --- the state: S^T[head][j][c] = sum of v[c] kr[j] --- */

constexpr int WARPS = 4, SQUARE = 4;          /* a lane's sums, each way */
constexpr int ACROSS = 32, DOWN = 16;         /* a warp's: channels of v, channels of kr */
constexpr int TOKENS = 16, STAGES = 8;        /* of a stage; of a warp's ring */
constexpr int SLOTS = 8, AT_ONCE = 32 / SLOTS; /* pieces of a token, one a lane; tokens that a warp fetches in one go */

/* A token for one warp: v, then kr of the first and of the second head that v's channels belong to. */
struct Token {
    uint2 v[ACROSS / SQUARE], kr[2][DOWN / SQUARE];
};
static_assert(sizeof(Token) == SLOTS * PIECE * sizeof(Bf), "a lane has one piece");

constexpr unsigned STAGE = sizeof(Token) * TOKENS, RING = STAGE * STAGES; /* bytes; RING is a power of two */
static_assert((RING & (RING - 1)) == 0, "places in a ring are masked");

/* A lane's piece of each token: where it comes from, how many of its tokens are left, where it goes in a stage. */
struct Source {
    const char *next;
    int64_t step; /* bytes to AT_ONCE tokens on */
    int left;
    unsigned to;
};

template <int UNITS>
__device__ inline Source source_of(const Heads &v, const Heads &kr, int c0, int j0, int tokens, int heads, int lane) {
    constexpr int E = UNIT * UNITS, PIECES = ACROSS / PIECE, EACH = DOWN / PIECE;
    int slot = lane % SLOTS, row = lane / SLOTS, which = (slot - PIECES) / EACH, c = c0 + slot * PIECE;
    bool is_v = slot < PIECES;
    int first = c0 / E, head = is_v ? c / E : first + which;
    bool there = head < heads && (is_v || which == 0 || head == (c0 + ACROSS - 1) / E);
    int at = is_v ? c - head * E : j0 + (slot - PIECES) % EACH * PIECE;
    int64_t token = is_v ? v.token : kr.token, stride = is_v ? v.head : kr.head;
    const Bf *data = (is_v ? v.data : kr.data) + row * token + head * stride + at;
    return {(const char *)data, token * AT_ONCE * (int64_t)sizeof(Bf), there ? tokens - row : 0,
            (unsigned)(row * sizeof(Token) + slot * PIECE * sizeof(Bf))};
}

/* The next TOKENS tokens, as far as they exist: through the L1, where the block's other warps find what they share. */
__device__ inline void fill(unsigned stage, Source &s) {
#pragma unroll
    for (int i = 0; i < TOKENS / AT_ONCE; i++) {
        if (i * AT_ONCE < s.left) async::copy<true>(stage + s.to + i * AT_ONCE * (unsigned)sizeof(Token), s.next);
        s.next += s.step;
    }
    s.left -= TOKENS;
    async::commit();
}

/* sum[j][c] of one token more. */
__device__ inline void add_token(float sum[SQUARE][SQUARE], uint2 v, uint2 kr) {
    const float c[SQUARE] = {low(v.x), high(v.x), low(v.y), high(v.y)};
    const float j[SQUARE] = {low(kr.x), high(kr.x), low(kr.y), high(kr.y)};
#pragma unroll
    for (int a = 0; a < SQUARE; a++)
#pragma unroll
        for (int b = 0; b < SQUARE; b++) sum[a][b] = fmaf(j[a], c[b], sum[a][b]);
}

template <int UNITS>
__global__ void __launch_bounds__(32 * WARPS) k_state_in_order(float *state, Heads v, Heads kr, int tokens, int heads) {
    constexpr int E = UNIT * UNITS;
    static_assert(E % DOWN == 0 && E > ACROSS, "a warp's channels belong to at most two heads");
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, id = blockIdx.x * WARPS + warp;
    int c0 = id / UNITS * ACROSS, j0 = id % UNITS * DOWN;
    if (c0 >= heads * E) return;
    /* Neighbours in bit 0 share v, neighbours in bit 1 share kr: such reads of a warp become one. */
    int across = lane / 2 % 8, down = lane % 2 + lane / 16 * 2;
    int channel = c0 + across * SQUARE, head = channel / E;
    unsigned ring = async::place_of(shared) + warp * RING;
    unsigned my_v = ring + (unsigned)offsetof(Token, v) + across * (unsigned)sizeof(uint2);
    unsigned my_kr = ring + (unsigned)offsetof(Token, kr) + ((head - c0 / E) * (DOWN / SQUARE) + down) * (unsigned)sizeof(uint2);
    Source source = source_of<UNITS>(v, kr, c0, j0, tokens, heads, lane);
    float sum[SQUARE][SQUARE] = {}; /* [j][c] */
#pragma unroll 1
    for (unsigned s = 0; s < STAGES - 1; s++) fill(ring + s * STAGE, source);
    async::wait<STAGES - 2>();
    __syncwarp();
    uint2 next_v = async::two_words(my_v), next_kr = async::two_words(my_kr);
    unsigned now = 0;
    for (int left = tokens; left >= TOKENS; left -= TOKENS) {
        unsigned then = (now + STAGE) & (RING - 1), last = (now + RING - STAGE) & (RING - 1);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (t == TOKENS / 2) { /* the next stage is there, and no lane reads the one before this any more */
                async::wait<STAGES - 3>();
                __syncwarp();
                fill(ring + last, source);
            }
            unsigned next = t + 1 < TOKENS ? now + (t + 1) * (unsigned)sizeof(Token) : then;
            uint2 this_v = next_v, this_kr = next_kr;
            next_v = async::two_words(my_v + next), next_kr = async::two_words(my_kr + next);
            add_token(sum, this_v, this_kr);
        }
        now = then;
    }
    for (int t = 0; t < tokens % TOKENS; t++, now += (unsigned)sizeof(Token))
        add_token(sum, async::two_words(my_v + now), async::two_words(my_kr + now));
    if (head >= heads) return;
    float *to = state + ((int64_t)head * E + j0 + down * SQUARE) * E + channel - head * E;
#pragma unroll
    for (int a = 0; a < SQUARE; a++) rows::store<float, SQUARE>(to + a * E, sum[a]);
}

/* --- outputs: o = r((S qr) z) --- */

constexpr int GROUPS = 16, TOGETHER = 8, TILE = GROUPS * TOGETHER; /* TOGETHER: tokens of a thread */
constexpr int TILES = 4;                                           /* of a block */
constexpr int COLUMNS = 16, WIDTH = GROUPS * COLUMNS;

template <int UNITS> struct alignas(16) Room {
    float state[UNIT * UNITS][UNIT * UNITS]; /* [j][c] */
    float qr[UNIT * UNITS][TILE];            /* [j][place of token] */
    float z[TILE];
};

/* Tokens lie in another order in each piece of j, so that those who write a token's pieces do not meet in one bank. Four tokens
 * from a multiple of four on stay together. */
__device__ inline int place(int token, int piece) { return token ^ (piece % 8 * 4); }

/* A thread's channels: fours, a pair and a single one, as many as UNITS takes, each kind in one run over the 16 threads. */
template <int UNITS, typename F> __device__ inline void each_channel(int column, F f) {
    constexpr int FOURS = UNITS / 4 * 4;
#pragma unroll
    for (int i = 0; i < FOURS; i += 4) f(std::integral_constant<int, 4>{}, i, COLUMNS * i + 4 * column);
    if (UNITS & 2) f(std::integral_constant<int, 2>{}, FOURS, COLUMNS * FOURS + 2 * column);
    if (UNITS & 1) f(std::integral_constant<int, 1>{}, UNITS - 1, COLUMNS * (UNITS - 1) + column);
}

struct Outputs {
    Bf *o;
    int64_t o_token, o_head;
    Heads qr;
    const float *state;
    const Bf *dot; /* [head][token] */
    int64_t tokens;
    float eps;
};

template <int UNITS>
__device__ inline void fetch(Room<UNITS> &room, const Outputs &a, const Bf *qr, const Bf *dot, int64_t token0) {
    constexpr int PIECES = 2 * UNITS;
    if (threadIdx.x < TILE && token0 + threadIdx.x < a.tokens)
        room.z[threadIdx.x] = r<Bf>(1.0f / r<Bf>(widen<Bf>(dot[token0 + threadIdx.x]) + a.eps));
    for (int i = threadIdx.x; i < TILE * PIECES; i += WIDTH) {
        int token = i / PIECES, piece = i - token * PIECES, at = place(token, piece);
        int64_t from = token0 + token < a.tokens ? token0 + token : a.tokens - 1;
        uint4 x = *(const uint4 *)(qr + from * a.qr.token + piece * PIECE);
        const unsigned word[] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int k = 0; k < PIECE / 2; k++) {
            room.qr[piece * PIECE + 2 * k][at] = low(word[k]);
            room.qr[piece * PIECE + 2 * k + 1][at] = high(word[k]);
        }
    }
}

/* n numbers, rounded, in one access. */
template <int n> __device__ inline void put(Bf *to, const float *v) {
    if constexpr (n == 1) {
        *to = rows::narrow<Bf>(*v);
    } else {
        fast::Pairs<n / 2> p;
#pragma unroll
        for (int i = 0; i < n / 2; i++) p.p[i] = fast::round2(v[2 * i], v[2 * i + 1]);
        fast::put<n / 2>(to, p);
    }
}

/* A thread takes 8 tokens and UNITS channels. */
template <int UNITS> __global__ void __launch_bounds__(WIDTH, UNITS < MOST_UNITS ? 2 : 1) k_outputs_in_order(Outputs a) {
    constexpr int E = UNIT * UNITS;
    Room<UNITS> &room = *(Room<UNITS> *)shared;
    int lane = threadIdx.x % 32; /* as in the state: neighbours in bit 0 share channels, those in bit 1 tokens */
    int column = lane / 2, first = (threadIdx.x / 32 * 2 + lane % 2) * TOGETHER;
    const float *state = a.state + (int64_t)blockIdx.y * E * E;
    const Bf *qr = a.qr.data + blockIdx.y * a.qr.head, *dot = a.dot + (int64_t)blockIdx.y * a.tokens;
    for (int i = threadIdx.x; i < E * E / 4; i += WIDTH) ((float4 *)room.state)[i] = ((const float4 *)state)[i];
    for (int tile = 0; tile < TILES; tile++) {
        int64_t token0 = ((int64_t)blockIdx.x * TILES + tile) * TILE;
        if (token0 >= a.tokens) return;
        __syncthreads(); /* of the tile before: everybody has read it */
        fetch(room, a, qr, dot, token0);
        __syncthreads();
        float u[TOGETHER][UNITS] = {};
#pragma unroll 1
        for (int piece = 0; piece < E / PIECE; piece++) {
            const float *q = room.qr[piece * PIECE], *q0 = q + place(first, piece), *q1 = q + place(first + 4, piece);
#pragma unroll
            for (int k = 0; k < PIECE; k++) {
                float s[UNITS], v[TOGETHER];
                each_channel<UNITS>(column, [&](auto n, int i, int c) {
                    rows::load<float, n.value>(s + i, &room.state[piece * PIECE + k][c]);
                });
                rows::load<float, 4>(v, q0 + k * TILE);
                rows::load<float, 4>(v + 4, q1 + k * TILE);
#pragma unroll
                for (int t = 0; t < TOGETHER; t++)
#pragma unroll
                    for (int c = 0; c < UNITS; c++) u[t][c] = fmaf(v[t], s[c], u[t][c]);
            }
        }
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            int64_t token = token0 + first + t;
            if (token >= a.tokens) continue;
            float z = room.z[first + t];
            Bf *to = a.o + token * a.o_token + blockIdx.y * a.o_head;
#pragma unroll
            for (int c = 0; c < UNITS; c++) u[t][c] *= z;
            each_channel<UNITS>(column, [&](auto n, int i, int c) { put<n.value>(to + c, u[t] + i); });
        }
    }
}

/* --- the op --- */

struct Plan {
    int64_t tokens, heads, e;
    int blocks; /* of the sum of the keys */
    size_t sum, part, dot, state, total;
};

Plan plan_of(const Exec *x, const LinearAttention *a) {
    Plan p = {};
    p.tokens = a->q.shape[0], p.heads = a->q.shape[1], p.e = a->q.shape[2];
    p.blocks = linear_attention_sum_blocks(x->cuda ? x->cuda->sm_count : 1 << 16, p.tokens, p.heads * p.e);
    p.sum = arena_piece(&p.total, p.heads * p.e, BF16);
    p.part = arena_piece(&p.total, p.blocks * p.heads * p.e, F32);
    p.dot = arena_piece(&p.total, p.heads * p.tokens, BF16);
    p.state = arena_piece(&p.total, p.heads * p.e * p.e, F32);
    return p;
}

Heads heads_of(const Tensor &t) { return {(const Bf *)t.data, t.stride[0], t.stride[1]}; }

template <typename F> Status with_room(Exec *x, F kernel, size_t bytes) {
    cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return code == cudaSuccess ? OK : fail(x->error, ERR_DEVICE, "linear_attention: %s", cudaGetErrorString(code));
}

template <int UNITS> Status launch(Exec *x, const LinearAttention *a, const Plan &p, char *at) {
    cudaStream_t stream = x->cuda->stream;
    size_t rings = (size_t)RING * WARPS, room = sizeof(Room<UNITS>);
    TRY(with_room(x, k_state_in_order<UNITS>, rings));
    TRY(with_room(x, k_outputs_in_order<UNITS>, room));
    float *state = (float *)(at + p.state);
    int64_t warps = (p.heads * p.e + ACROSS - 1) / ACROSS * UNITS, group = (int64_t)TILE * TILES;
    k_state_in_order<UNITS><<<(unsigned)((warps + WARPS - 1) / WARPS), 32 * WARPS, rings, stream>>>(
        state, heads_of(a->v), heads_of(a->kr), (int)p.tokens, (int)p.heads);
    Outputs out = {(Bf *)a->o.data, a->o.stride[0], a->o.stride[1], heads_of(a->qr), state, (const Bf *)(at + p.dot), p.tokens,
                   a->eps};
    k_outputs_in_order<UNITS><<<dim3((unsigned)((p.tokens + group - 1) / group), (unsigned)p.heads), WIDTH, room, stream>>>(out);
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
    if (a->q.shape[0] > INT32_MAX / 2) return false;
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
