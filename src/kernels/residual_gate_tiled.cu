/* residual_gate_tiled.cu - see residual_gate_tiled.h. Residual and result are [D, T] in memory and stay so; only x, [T, D],
 * turns, through a tile in shared memory. All reads and writes are of whole segments.
 *
 * Two forms: 64 x 64 elements moved as pairs (4 bytes a lane) where addresses allow it, else 32 x 32 single ones.
 * Easy to get wrong: a tile row has one word more than it needs, so that columns do not share a bank; a pair of the tile
 * is two columns of one token, a pair of the residual two tokens of one column. */
#include "kernels/residual_gate_tiled.h"

#include "kernels/cuda_fast.cuh"

using namespace fast;

namespace {

constexpr int LANES = 32, WARPS = 8, THREADS = LANES * WARPS;

struct Turned {
    char *y, *residual, *x, *gate;
    int64_t y_batch, y_column, residual_batch, residual_column, x_batch, x_token; /* strides in elements */
    unsigned tokens, columns;
};

/* A tile of one element a lane. */
__global__ void __launch_bounds__(THREADS) k_residual_gate_tiled(Turned a) {
    __shared__ Bf tile[LANES][LANES + 2]; /* 17 words a row */
    unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    unsigned token0 = blockIdx.x * LANES, column0 = blockIdx.y * LANES;
    const Bf *in = (const Bf *)a.x + blockIdx.z * a.x_batch;
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
    if (pairs) k_residual_gate_tiled_pairs<<<grid, THREADS, 0, x->cuda->stream>>>(a);
    else k_residual_gate_tiled<<<grid, THREADS, 0, x->cuda->stream>>>(a);
    return cuda_launched(x, "residual_gate");
}
