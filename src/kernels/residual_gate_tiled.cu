/* residual_gate_tiled.cu - see residual_gate_tiled.h. Residual and result are [D, T] in memory and stay so; only x, [T, D],
 * turns, through a tile in shared memory. All reads and writes are of whole segments.
 *
 * Three forms, by what addresses allow: 64 x 64 elements in accesses of 16 bytes, the same moved as pairs (4 bytes a lane), else
 * 32 x 32 single ones.
 * Easy to get wrong: a tile row has one word more than it needs, so that columns do not share a bank; a pair of the tile
 * is two columns of one token, a pair of the residual two tokens of one column. */
#include "kernels/residual_gate_tiled.h"

#include "kernels/cuda_fast.cuh"

#include <cuda_pipeline.h>

using namespace fast;

namespace {

constexpr int LANES = 32, WARPS = 8, THREADS = LANES * WARPS;

struct Turned {
    char *y, *residual, *x, *gate;
    int64_t y_batch, y_column, residual_batch, residual_column, x_batch, x_token; /* strides in elements */
    unsigned tokens, columns;
    unsigned across, down; /* wide tiles along the tokens and along the columns */
};

/* A tile of one element a lane. */
__global__ void __launch_bounds__(THREADS) k_residual_gate_tiled(Turned a) {
    __shared__ Bf tile[LANES][LANES + 2]; /* 17 words a row */
    unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    unsigned token0 = blockIdx.x * LANES, column0 = blockIdx.y * LANES;
    const Bf *in = (const Bf *)a.x + blockIdx.z * a.x_batch;
    begin();
    for (unsigned i = warp; i < LANES; i += WARPS)
        if (token0 + i < a.tokens && column0 + lane < a.columns)
            tile[i][lane] = in[(token0 + i) * a.x_token + column0 + lane];
    __syncthreads();
    const Bf *residual = (const Bf *)a.residual + blockIdx.z * a.residual_batch;
    Bf *y = (Bf *)a.y + blockIdx.z * a.y_batch;
    for (unsigned i = warp; i < LANES; i += WARPS) {
        unsigned column = column0 + i, token = token0 + lane;
        if (column >= a.columns || token >= a.tokens) continue;
        Pair v = __bfloat162bfloat162(tile[lane][i]);
        if (a.gate) v = mul(__bfloat162bfloat162(((const Bf *)a.gate)[column]), v);
        v = add(__bfloat162bfloat162(residual[column * a.residual_column + token]), v);
        y[column * a.y_column + token] = __low2bfloat16(v);
    }
}

__device__ inline unsigned word_at(const void *p, int64_t element) {
    return *reinterpret_cast<const unsigned *>((const Bf *)p + element);
}
__device__ inline Pair pair_of(unsigned word) {
    Pair p;
    memcpy(&p, &word, sizeof p);
    return p;
}

/* A tile of two elements a lane: 64 tokens by 32 words of two columns. */
constexpr int SIDE = 2 * LANES, READS = SIDE / WARPS, WORDS = LANES / WARPS;

__global__ void __launch_bounds__(THREADS) k_residual_gate_tiled_pairs(Turned a) {
    __shared__ unsigned tile[SIDE][LANES + 1];
    unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    unsigned token0 = blockIdx.x * SIDE, column0 = blockIdx.y * SIDE;
    const Bf *in = (const Bf *)a.x + blockIdx.z * a.x_batch;
    const Bf *residual = (const Bf *)a.residual + blockIdx.z * a.residual_batch;
    Bf *y = (Bf *)a.y + blockIdx.z * a.y_batch;
    unsigned token = token0 + 2 * lane, kept[WORDS][2];
    unsigned from_x[READS];
    begin();
#pragma unroll
    for (int i = 0; i < READS; i++) {
        unsigned t = token0 + warp + i * WARPS, column = column0 + 2 * lane;
        from_x[i] = t < a.tokens && column < a.columns ? word_at(in, t * a.x_token + column) : 0;
    }
#pragma unroll
    for (int i = 0; i < WORDS; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            unsigned column = column0 + 2 * (warp + i * WARPS) + j;
            bool inside = token < a.tokens && column < a.columns;
            kept[i][j] = inside ? word_at(residual, column * a.residual_column + token) : 0;
        }
#pragma unroll
    for (int i = 0; i < READS; i++) tile[warp + i * WARPS][lane] = from_x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        unsigned w = warp + i * WARPS, even = tile[2 * lane][w], odd = tile[2 * lane + 1][w];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            unsigned column = column0 + 2 * w + j;
            if (token >= a.tokens || column >= a.columns) continue;
            Pair v = pair_of(__byte_perm(even, odd, j ? 0x7632 : 0x5410));
            if (a.gate) v = mul(__bfloat162bfloat162(((const Bf *)a.gate)[column]), v);
            v = add(pair_of(kept[i][j]), v);
            put(y + column * a.y_column + token, Pairs<1>{{v}});
        }
    }
}

/* A tile of 16-byte accesses: x as it lies in shared memory, its 8 x 8 corners turned by the load into registers.
 * One load of four corners gives a lane eight tokens of one column: corner m is made of the rows 8q + 2m and 8q + 2m + 1
 * (q < 4), of which lane 4c + q gets column c. */
constexpr int T = 64, C = 64; /* tokens and columns of a tile: multiples of 32 and 64 */
constexpr unsigned BAND = 8;  /* columns of tiles that run side by side: lines of x and of the residual come in long pieces */

__device__ inline unsigned unit_of(unsigned token, unsigned unit) { /* no two of a load in one bank */
    return token * (C / 8) + (unit ^ ((token & 1) | (token >> 3 & 3) << 1));
}

__device__ inline Wide turned_corners(const uint4 *from) {
    unsigned r[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(from)));
    return Wide{{pair_of(r[0]), pair_of(r[1]), pair_of(r[2]), pair_of(r[3])}};
}

__global__ void __launch_bounds__(THREADS) k_residual_gate_tiled_wide(Turned a) {
    constexpr unsigned UNITS = C / 8, EACH = T * UNITS / THREADS, CORNERS = T / 32; /* fours of corners */
    static_assert(UNITS >= 8 && EACH * THREADS == T * UNITS && T % 32 == 0, "whole accesses for every lane");
    __shared__ uint4 tile[T * UNITS];
    unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    unsigned strip = blockIdx.x / (a.across * BAND), in_strip = blockIdx.x % (a.across * BAND);
    unsigned wide = min(BAND, a.down - strip * BAND);
    unsigned token0 = in_strip / wide * T, column0 = (strip * BAND + in_strip % wide) * C;
    const Bf *in = (const Bf *)a.x + blockIdx.z * a.x_batch;
    const Bf *residual = (const Bf *)a.residual + blockIdx.z * a.residual_batch;
    Bf *y = (Bf *)a.y + blockIdx.z * a.y_batch;
    begin();
#pragma unroll
    for (unsigned i = 0; i < EACH; i++) {
        unsigned at = threadIdx.x + i * THREADS, t = at / UNITS, u = at % UNITS;
        if (token0 + t < a.tokens && column0 + u * 8 < a.columns)
            __pipeline_memcpy_async(&tile[unit_of(t, u)], in + (token0 + t) * a.x_token + column0 + u * 8, sizeof(uint4));
    }
    Wide kept[EACH];
#pragma unroll
    for (unsigned i = 0; i < EACH; i++) {
        unsigned job = warp + i * WARPS, column = column0 + job / CORNERS * 8 + lane / 4;
        unsigned token = token0 + job % CORNERS * 32 + lane % 4 * 8;
        if (column < a.columns && token < a.tokens) kept[i] = get<4>(residual + column * a.residual_column + token);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < EACH; i++) {
        unsigned job = warp + i * WARPS, unit = job / CORNERS, first = job % CORNERS * 32;
        unsigned column = column0 + unit * 8 + lane / 4, token = token0 + first + lane % 4 * 8;
        Wide v = turned_corners(&tile[unit_of(first + (lane % 8 / 2) * 8 + lane / 8 * 2 + lane % 2, unit)]);
        if (column >= a.columns || token >= a.tokens) continue;
        Pair gate = a.gate ? __bfloat162bfloat162(((const Bf *)a.gate)[column]) : both(1.0f);
#pragma unroll
        for (int k = 0; k < WIDE / 2; k++) v.p[k] = add(kept[i].p[k], mul(gate, v.p[k]));
        put(y + column * a.y_column + token, v);
    }
}

/* Is every access of 16 bytes a whole one? */
bool wide_fits(const Turned &a) {
    int64_t all = a.y_batch | a.y_column | a.residual_batch | a.residual_column | a.x_batch | a.x_token | a.tokens | a.columns;
    return all % WIDE == 0 && (((uintptr_t)a.y | (uintptr_t)a.residual | (uintptr_t)a.x) & 15) == 0;
}

void launch_wide(Exec *x, Turned a, unsigned batch) {
    a.across = blocks_for(a.tokens, T), a.down = blocks_for(a.columns, C);
    launch_early(x, k_residual_gate_tiled_wide, dim3(a.across * a.down, 1, batch), THREADS, 0, a);
}

bool turned(const Tensor &t) {
    return t.rank >= 2 && t.rank <= 3 && t.stride[t.rank - 2] == 1 && t.shape[t.rank - 2] > 1 &&
           t.stride[t.rank - 1] >= t.shape[t.rank - 2];
}
int64_t batch_of(const Tensor &t) { return t.rank == 3 ? t.stride[0] : 0; }

} /* namespace */

bool residual_gate_tiled_fits(const ResidualGate *a) {
    const Tensor *y = &a->y, *g = &a->gate;
    if (!turned(*y) || !turned(a->residual) || a->x.rank != y->rank || a->x.stride[y->rank - 1] != 1) return false;
    int64_t columns = y->shape[y->rank - 1], tokens = y->shape[y->rank - 2], batch = y->rank == 3 ? y->shape[0] : 1;
    if (g->rank && (tensor_numel(*g) != columns || g->shape[g->rank - 1] != columns || g->stride[g->rank - 1] != 1)) return false;
    return columns > 1 && tokens <= INT32_MAX / 2 && (columns + LANES - 1) / LANES <= 65535 && batch <= 65535;
}

Status residual_gate_tiled(Exec *x, const ResidualGate *args) {
    int r = args->y.rank;
    Turned a = {};
    a.y = (char *)args->y.data, a.residual = (char *)args->residual.data;
    a.x = (char *)args->x.data, a.gate = args->gate.rank ? (char *)args->gate.data : NULL;
    a.y_batch = batch_of(args->y), a.y_column = args->y.stride[r - 1];
    a.residual_batch = batch_of(args->residual), a.residual_column = args->residual.stride[r - 1];
    a.x_batch = batch_of(args->x), a.x_token = args->x.stride[r - 2];
    a.tokens = (unsigned)args->y.shape[r - 2], a.columns = (unsigned)args->y.shape[r - 1];
    unsigned batch = r == 3 ? (unsigned)args->y.shape[0] : 1;
    int64_t odd = a.y_batch | a.y_column | a.residual_batch | a.residual_column | a.x_batch | a.x_token | a.tokens | a.columns;
    bool pairs = !(odd & 1) && (((uintptr_t)a.y | (uintptr_t)a.residual | (uintptr_t)a.x) & 3) == 0;
    unsigned side = pairs ? SIDE : LANES;
    dim3 grid(blocks_for(a.tokens, side), blocks_for(a.columns, side), batch);
    if (wide_fits(a)) launch_wide(x, a, batch);
    else if (pairs) launch_early(x, k_residual_gate_tiled_pairs, grid, THREADS, 0, a);
    else launch_early(x, k_residual_gate_tiled, grid, THREADS, 0, a);
    return cuda_launched(x, "residual_gate");
}
