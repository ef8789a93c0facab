/* linear_attention.cu - our own kernels of the CUDA table's linear attention (linear_attention_pieces.h), and its
 * norm_relu_rope: the table's rmsnorm and ReLU, then a rotation, as PyTorch runs them.
 *
 * Not fast, but for what a fused variant cannot change: the order of the sum over tokens, which is PyTorch's.
 * Easy to get wrong: that order depends on the number of SMs; the outputs of the second product lie [head, channel, token]. */
#include "kernels/cuda_pieces.h"
#include "kernels/cuda_rows.cuh"
#include "kernels/linear_attention_pieces.h"
#include "kernels/registry.h"

using rows::narrow;
using rows::r;
using rows::widen;

namespace {

constexpr int THREADS = 256;

unsigned blocks_for(int64_t n, int64_t per_block) { return (unsigned)((n + per_block - 1) / per_block); }

/* --- the sum over tokens --- */

constexpr int LANES = 32, LINES = 4, EACH = 4, PARTIALS = 4, GROUP = LANES * EACH;

/* A thread's values of its four columns, halved over the four lines of the block: in line 0 afterwards. */
__device__ inline void halve(float v[EACH]) {
    __shared__ float shared[LINES][LANES][EACH];
    for (int half = LINES / 2; half; half /= 2) {
        for (int i = 0; i < EACH; i++) shared[threadIdx.y][threadIdx.x][i] = v[i];
        __syncthreads();
        if (threadIdx.y < half)
            for (int i = 0; i < EACH; i++) v[i] = v[i] + shared[threadIdx.y + half][threadIdx.x][i];
        __syncthreads();
    }
}

/* v += EACH columns of a token; WIDE: they lie together. */
template <typename T, bool WIDE> __device__ inline void add_token(float v[EACH], const T *token, const int64_t offset[EACH]) {
    float e[EACH];
    if (WIDE) rows::load<T, EACH>(e, token + offset[0]);
#pragma unroll
    for (int i = 0; i < EACH; i++) v[i] = v[i] + (WIDE ? e[i] : widen<T>(token[offset[i]]));
}

/* part[block.y][column]: line y of block c takes the tokens y + 4 c + 4 C j into accumulator j mod 4. */
template <typename T, bool WIDE>
__global__ void k_token_sums(float *part, const T *k, int64_t tokens, int columns, int e, int64_t token_stride,
                             int64_t head_stride) {
    int column = blockIdx.x * GROUP + threadIdx.x * EACH;
    int64_t offset[EACH];
    float sum[PARTIALS][EACH] = {}, v[EACH];
    for (int i = 0; i < EACH; i++) {
        int c = column + i < columns ? column + i : 0;
        offset[i] = c / e * head_stride + c % e;
    }
    int64_t step = (int64_t)LINES * gridDim.y, at = threadIdx.y + (int64_t)LINES * blockIdx.y;
    for (; at + (PARTIALS - 1) * step < tokens; at += PARTIALS * step)
#pragma unroll
        for (int j = 0; j < PARTIALS; j++) add_token<T, WIDE>(sum[j], k + (at + j * step) * token_stride, offset);
#pragma unroll
    for (int j = 0; j < PARTIALS; j++)
        if (at + j * step < tokens) add_token<T, WIDE>(sum[j], k + (at + j * step) * token_stride, offset);
    for (int i = 0; i < EACH; i++) v[i] = ((sum[0][i] + sum[1][i]) + sum[2][i]) + sum[3][i];
    halve(v);
    for (int i = 0; i < EACH && threadIdx.y == 0; i++)
        if (column + i < columns) part[(int64_t)blockIdx.y * columns + column + i] = v[i];
}

/* n = r(sum of the blocks' results): line y adds those of the blocks y, y + 4, ... */
template <typename T> __global__ void k_block_sums(T *n, const float *part, int blocks, int columns) {
    int column = blockIdx.x * GROUP + threadIdx.x * EACH;
    float v[EACH] = {};
    for (int b = threadIdx.y; b < blocks; b += LINES)
        for (int i = 0; i < EACH; i++)
            if (column + i < columns) v[i] = v[i] + part[(int64_t)b * columns + column + i];
    halve(v);
    for (int i = 0; i < EACH && threadIdx.y == 0; i++)
        if (column + i < columns) n[column + i] = narrow<T>(v[i]);
}

/* --- outputs --- */

constexpr int TILE = 32, TILE_LINES = 8;

/* o[token][head][c] = r(u[head][c][token] * z), z = r(1 / r(dot[head][token] + eps)). */
template <typename T>
__global__ void k_normalise(T *o, int64_t o_token, int64_t o_head, const float *u, const T *dot,
                            int64_t tokens, int e, float eps) {
    __shared__ float tile[TILE][TILE + 1];
    int64_t head = blockIdx.z, token0 = (int64_t)blockIdx.x * TILE;
    int c0 = blockIdx.y * TILE;
    for (int i = threadIdx.y; i < TILE; i += TILE_LINES)
        if (c0 + i < e && token0 + threadIdx.x < tokens)
            tile[i][threadIdx.x] = u[(head * e + c0 + i) * tokens + token0 + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < TILE; i += TILE_LINES) {
        int64_t token = token0 + i;
        if (token >= tokens || c0 + (int)threadIdx.x >= e) continue;
        float z = r<T>(1.0f / r<T>(widen<T>(dot[head * tokens + token]) + eps));
        o[token * o_token + head * o_head + c0 + threadIdx.x] = narrow<T>(tile[threadIdx.x][i] * z);
    }
}

/* --- norm, ReLU, RoPE --- */

template <typename T>
__global__ void __launch_bounds__(THREADS)
    k_turn(T *yr, const T *y, int64_t yr_row, int64_t y_row, int width, int half, const float *cos_table,
           const float *sin_table, int64_t cos_row, int64_t sin_row) {
    int64_t token = blockIdx.y;
    int pair = blockIdx.x * THREADS + threadIdx.x;
    if (2 * pair >= width) return;
    float c = cos_table[token * cos_row + pair % half], s = sin_table[token * sin_row + pair % half];
    float x0 = widen<T>(y[token * y_row + 2 * pair]), x1 = widen<T>(y[token * y_row + 2 * pair + 1]);
    yr[token * yr_row + 2 * pair] = narrow<T>(x0 * c - x1 * s);
    yr[token * yr_row + 2 * pair + 1] = narrow<T>(x1 * c + x0 * s);
}

constexpr int64_t GRID_ROWS = 65535;

template <typename T> void turn_typed(cudaStream_t stream, const NormReluRope *a) {
    int width = (int)a->y.shape[1], half = (int)a->cos.shape[1];
    int64_t tokens = a->y.shape[0];
    for (int64_t t = 0; t < tokens; t += GRID_ROWS) {
        unsigned n = (unsigned)(tokens - t < GRID_ROWS ? tokens - t : GRID_ROWS);
        k_turn<T><<<dim3(blocks_for(width / 2, THREADS), n), THREADS, 0, stream>>>(
            (T *)a->yr.data + t * a->yr.stride[0], (const T *)a->y.data + t * a->y.stride[0], a->yr.stride[0], a->y.stride[0],
            width, half, (const float *)a->cos.data + t * a->cos.stride[0], (const float *)a->sin.data + t * a->sin.stride[0],
            a->cos.stride[0], a->sin.stride[0]);
    }
}

Status want(Exec *x, const NormReluRope *a) {
    const Tensor *rows_of[] = {&a->y, &a->yr, &a->x}, *tables[] = {&a->cos, &a->sin};
    for (int i = 0; i < 3; i++)
        if (rows_of[i]->rank != 2 || rows_of[i]->dtype != a->x.dtype || !tensor_same_shape(*rows_of[i], a->x) ||
            rows_of[i]->stride[1] != 1)
            return fail(x->error, ERR_MODEL, "norm_relu_rope: x, y and yr must be [tokens, width] of one dtype, rows contiguous");
    for (int i = 0; i < 2; i++)
        if (tables[i]->rank != 2 || tables[i]->dtype != F32 || tables[i]->stride[1] != 1 ||
            tables[i]->shape[0] != a->x.shape[0] || !tensor_same_shape(*tables[i], a->cos) || !tables[i]->shape[1] ||
            a->x.shape[1] % (2 * tables[i]->shape[1]))
            return fail(x->error, ERR_MODEL, "norm_relu_rope: the RoPE tables must be F32 [%lld, half a head] for rows of %lld",
                        (long long)a->x.shape[0], (long long)a->x.shape[1]);
    return OK;
}

Status norm_relu_rope_cuda(Exec *x, const void *args) {
    const NormReluRope *a = (const NormReluRope *)args;
    TRY(want(x, a));
    if (!tensor_numel(a->y)) return OK;
    RmsNorm norm = {};
    norm.y = a->y, norm.x = a->x, norm.w = a->w, norm.eps = a->eps, norm.form = RMS_TWICE;
    TRY(cuda_pieces_op(x, OP_rmsnorm, &norm));
    Act relu = {};
    relu.y = a->y, relu.x = a->y, relu.kind = ACT_RELU;
    TRY(cuda_pieces_op(x, OP_act, &relu));
    if (a->y.dtype == BF16) turn_typed<__nv_bfloat16>(x->cuda->stream, a);
    else turn_typed<float>(x->cuda->stream, a);
    return cuda_launched(x, "norm_relu_rope");
}

} /* namespace */

int linear_attention_sum_blocks(int sm_count, int64_t tokens, int64_t columns) {
    int64_t groups = (columns + GROUP - 1) / GROUP, fill = (int64_t)sm_count * 16, n = (fill + groups - 1) / groups;
    int64_t most = (tokens + 63) / 64, least = (tokens + 1023) / 1024;
    if (n > most) n = most;
    return (int)(n < least ? least : n);
}

Status linear_attention_sum(Exec *x, Tensor n, Tensor part, Tensor k) {
    int64_t tokens = k.shape[0];
    int columns = (int)(k.shape[1] * k.shape[2]), e = (int)k.shape[2], blocks = (int)part.shape[0];
    dim3 threads(LANES, LINES), grid(blocks_for(columns, GROUP), (unsigned)blocks);
    float *sums = (float *)part.data;
    cudaStream_t stream = x->cuda->stream;
    bool wide = e % EACH == 0 && (k.shape[1] == 1 || k.stride[1] % EACH == 0) && (tokens == 1 || k.stride[0] % EACH == 0) &&
                (uintptr_t)k.data % (EACH * dtype_size(k.dtype)) == 0;
    if (k.dtype == BF16) {
        auto kernel = wide ? k_token_sums<__nv_bfloat16, true> : k_token_sums<__nv_bfloat16, false>;
        kernel<<<grid, threads, 0, stream>>>(sums, (const __nv_bfloat16 *)k.data, tokens, columns, e, k.stride[0], k.stride[1]);
        k_block_sums<<<grid.x, threads, 0, stream>>>((__nv_bfloat16 *)n.data, sums, blocks, columns);
    } else {
        auto kernel = wide ? k_token_sums<float, true> : k_token_sums<float, false>;
        kernel<<<grid, threads, 0, stream>>>(sums, (const float *)k.data, tokens, columns, e, k.stride[0], k.stride[1]);
        k_block_sums<<<grid.x, threads, 0, stream>>>((float *)n.data, sums, blocks, columns);
    }
    return cuda_launched(x, "linear_attention: sum of the keys");
}

Status linear_attention_normalise(Exec *x, Tensor o, Tensor u, Tensor dot, float eps) {
    int64_t tokens = o.shape[0];
    int e = (int)o.shape[2];
    dim3 grid(blocks_for(tokens, TILE), blocks_for(e, TILE), (unsigned)o.shape[1]), threads(TILE, TILE_LINES);
    const float *from = (const float *)u.data;
    cudaStream_t stream = x->cuda->stream;
    if (o.dtype == BF16)
        k_normalise<<<grid, threads, 0, stream>>>((__nv_bfloat16 *)o.data, o.stride[0], o.stride[1], from,
                                                  (const __nv_bfloat16 *)dot.data, tokens, e, eps);
    else
        k_normalise<<<grid, threads, 0, stream>>>((float *)o.data, o.stride[0], o.stride[1], from,
                                                  (const float *)dot.data, tokens, e, eps);
    return cuda_launched(x, "linear_attention: normaliser");
}

const Impl NORM_RELU_ROPE_CUDA[] = {{OP_norm_relu_rope, "cuda", norm_relu_rope_cuda, NULL, NULL}};
const int NORM_RELU_ROPE_CUDA_COUNT = sizeof NORM_RELU_ROPE_CUDA / sizeof *NORM_RELU_ROPE_CUDA;
