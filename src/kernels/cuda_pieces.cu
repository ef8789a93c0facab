/* cuda_pieces.cu - see cuda_pieces.h.
 *
 * Rows of the eager softmax follow PyTorch's order: one warp a row, lane l holds elements l, l + 32, ...; the lane sums
 * serially, then a butterfly with 16, 8, 4, 2, 1. Rows of more than 2,048 elements take a block of 1,024 threads in the same
 * way, thread t with elements t, t + 1024, ..., and the warps' sums meet in such a butterfly too. Easy to get wrong: a row is
 * read three times and written in the last pass only, each element by the lane that read it, so writing over the scores is
 * safe. */
#include "kernels/cuda_pieces.h"
#include "kernels/cuda_rows.cuh"

using rows::narrow;
using rows::r;
using rows::widen;

namespace {

constexpr int WARP = 32, WARPS = 4, THREADS = 256;
constexpr int LONG_THREADS = 1024, WARP_MOST = 2048; /* of the eager softmax */
constexpr int ROW_THREADS = 512, ROW_MOST = 8; /* rows of up to 512 * 8 * 4 scores stay in registers */

unsigned blocks_for(int64_t n, int64_t per_block) { return (unsigned)((n + per_block - 1) / per_block); }

/* Maximum or sum over the warp, the same value in all lanes. fmaxf skips NaNs: they show up in the sum. */
__device__ inline float warp_max(float v) {
#pragma unroll
    for (int w = WARP / 2; w; w /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, w));
    return v;
}

__device__ inline float warp_sum(float v) {
#pragma unroll
    for (int w = WARP / 2; w; w /= 2) v += __shfl_xor_sync(0xffffffffu, v, w);
    return v;
}

/* --- attention_eager --- */

struct EagerRow {
    int64_t head_stride, query_stride; /* of the bias, in elements */
    int64_t rows, n, tq, head0;
    float scale, softcap, inverse; /* inverse of the cap; softcap 0: none */
    int64_t window;                /* 0: none */
    bool causal;
};

/* Element j of a row after scaling, cap, bias and mask. */
template <typename T>
__device__ inline float eager_score(const T *s, const T *bias, const EagerRow &p, int64_t query, int64_t j) {
    float v = widen<T>(s[j]);
    if (p.scale != 1.0f) v = r<T>(v * p.scale);
    if (p.softcap > 0.0f) v = r<T>(r<T>(tanhf(r<T>(v * p.inverse))) * p.softcap);
    if (bias) v = r<T>(v + widen<T>(bias[j]));
    return (p.causal && j > query) || (p.window && j <= query - p.window) ? -INFINITY : v;
}

template <typename T> __global__ void __launch_bounds__(WARP * WARPS) k_softmax_rows(T *scores, const T *bias, EagerRow p) {
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= p.rows) return;
    int lane = threadIdx.x % WARP;
    int64_t head = row / p.tq, query = row % p.tq;
    T *s = scores + row * p.n;
    if (bias) bias += (p.head0 + head) * p.head_stride + query * p.query_stride;
    float top = -INFINITY, sum = 0.0f;
    for (int64_t j = lane; j < p.n; j += WARP) top = fmaxf(top, eager_score<T>(s, bias, p, query, j));
    top = warp_max(top);
    for (int64_t j = lane; j < p.n; j += WARP) sum += expf(eager_score<T>(s, bias, p, query, j) - top);
    sum = warp_sum(sum);
    for (int64_t j = lane; j < p.n; j += WARP) s[j] = narrow<T>(expf(eager_score<T>(s, bias, p, query, j) - top) / sum);
}

template <typename T> __global__ void __launch_bounds__(LONG_THREADS) k_softmax_long_rows(T *scores, const T *bias, EagerRow p) {
    __shared__ float wide[WARP];
    int64_t row = blockIdx.x, head = row / p.tq, query = row % p.tq;
    int lane = threadIdx.x % WARP;
    T *s = scores + row * p.n;
    if (bias) bias += (p.head0 + head) * p.head_stride + query * p.query_stride;
    float top = -INFINITY, sum = 0.0f;
    for (int64_t j = threadIdx.x; j < p.n; j += LONG_THREADS) top = fmaxf(top, eager_score<T>(s, bias, p, query, j));
    top = warp_max(top);
    if (!lane) wide[threadIdx.x / WARP] = top;
    __syncthreads();
    top = warp_max(wide[lane]);
    for (int64_t j = threadIdx.x; j < p.n; j += LONG_THREADS) sum += expf(eager_score<T>(s, bias, p, query, j) - top);
    sum = warp_sum(sum);
    __syncthreads();
    if (!lane) wide[threadIdx.x / WARP] = sum;
    __syncthreads();
    sum = warp_sum(wide[lane]);
    for (int64_t j = threadIdx.x; j < p.n; j += LONG_THREADS)
        s[j] = narrow<T>(expf(eager_score<T>(s, bias, p, query, j) - top) / sum);
}

template <typename T> void softmax_rows(T *scores, const T *bias, const EagerRow &p, cudaStream_t stream) {
    if (p.n > WARP_MOST) k_softmax_long_rows<T><<<(unsigned)p.rows, LONG_THREADS, 0, stream>>>(scores, bias, p);
    else k_softmax_rows<T><<<blocks_for(p.rows, WARPS), WARP * WARPS, 0, stream>>>(scores, bias, p);
}

/* --- attention by parts --- */

/* Over the block of N threads; `wide` has one float a warp. All threads get the result. */
template <int N, typename F> __device__ inline float block_reduce(float v, float *wide, F combine, float (*warp)(float)) {
    v = warp(v);
    if (threadIdx.x % WARP == 0) wide[threadIdx.x / WARP] = v;
    __syncthreads();
    v = wide[0];
    for (int i = 1; i < N / WARP; i++) v = combine(v, wide[i]);
    __syncthreads();
    return v;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) k_flash_rows(T *out, float *sums, const float *scores, int64_t n, int64_t tk,
                                                        int64_t q0, bool causal) {
    __shared__ float wide[THREADS / WARP];
    int64_t row = blockIdx.x, seen = causal && q0 + row % n + 1 < tk ? q0 + row % n + 1 : tk;
    const float *s = scores + row * tk;
    T *p = out + row * tk;
    float top = -INFINITY, sum = 0.0f;
    for (int64_t j = threadIdx.x; j < seen; j += THREADS) top = fmaxf(top, s[j]);
    top = block_reduce<THREADS>(top, wide, [](float a, float b) { return fmaxf(a, b); }, warp_max);
    for (int64_t j = threadIdx.x; j < tk; j += THREADS) {
        float e = j < seen ? expf(s[j] - top) : 0.0f;
        sum += e;
        p[j] = narrow<T>(e);
    }
    sum = block_reduce<THREADS>(sum, wide, [](float a, float b) { return a + b; }, warp_sum);
    if (threadIdx.x == 0) sums[row] = sum;
}

/* The same for whole rows of `quads` vectors of 4, read once: N vectors a thread. */
template <typename T, int N>
__global__ void __launch_bounds__(ROW_THREADS) k_flash_rows_once(T *out, float *sums, const float *scores, int quads) {
    __shared__ float wide[ROW_THREADS / WARP];
    const float *s = scores + (int64_t)blockIdx.x * quads * 4;
    T *p = out + (int64_t)blockIdx.x * quads * 4;
    float v[N][4], top = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) {
        int i = threadIdx.x + k * ROW_THREADS;
        if (i < quads) rows::load<float, 4>(v[k], s + 4 * i);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (i >= quads) v[k][c] = -INFINITY;
            top = fmaxf(top, v[k][c]);
        }
    }
    top = block_reduce<ROW_THREADS>(top, wide, [](float a, float b) { return fmaxf(a, b); }, warp_max);
#pragma unroll
    for (int k = 0; k < N; k++) {
        int i = threadIdx.x + k * ROW_THREADS;
        if (i >= quads) continue;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            v[k][c] = expf(v[k][c] - top);
            sum += v[k][c];
        }
        rows::store<T, 4>(p + 4 * i, v[k]);
    }
    sum = block_reduce<ROW_THREADS>(sum, wide, [](float a, float b) { return a + b; }, warp_sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <typename T> void flash_once(cudaStream_t stream, unsigned rows, T *p, float *sums, const float *s, int quads) {
    int each = (quads + ROW_THREADS - 1) / ROW_THREADS;
    if (each <= 1) k_flash_rows_once<T, 1><<<rows, ROW_THREADS, 0, stream>>>(p, sums, s, quads);
    else if (each <= 2) k_flash_rows_once<T, 2><<<rows, ROW_THREADS, 0, stream>>>(p, sums, s, quads);
    else if (each <= 4) k_flash_rows_once<T, 4><<<rows, ROW_THREADS, 0, stream>>>(p, sums, s, quads);
    else k_flash_rows_once<T, ROW_MOST><<<rows, ROW_THREADS, 0, stream>>>(p, sums, s, quads);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) k_flash_divide(T *o, int64_t token, int64_t head, const float *acc,
                                                          const float *sums, int64_t n, int64_t e, int64_t count) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int64_t row = i / e;
    o[row % n * token + row / n * head + i % e] = narrow<T>(acc[i] / sums[row]);
}

/* --- transposition --- */

constexpr int TILE = 64, TILE_ROWS = THREADS / TILE;

__global__ void __launch_bounds__(THREADS) k_turn(uint16_t *y, const uint16_t *in, int64_t rows,
                                                  int64_t columns, int64_t stride) {
    __shared__ uint16_t tile[TILE][TILE + 2]; /* an odd number of words a row */
    int64_t row = (int64_t)blockIdx.x * TILE, column = (int64_t)blockIdx.y * TILE;
    int across = threadIdx.x % TILE;
    y += blockIdx.z * rows * columns;
    in += blockIdx.z * rows * columns;
    for (int i = threadIdx.x / TILE; i < TILE; i += TILE_ROWS)
        if (row + i < rows && column + across < columns) tile[i][across] = in[(row + i) * stride + column + across];
    __syncthreads();
    for (int i = threadIdx.x / TILE; i < TILE; i += TILE_ROWS)
        if (column + i < columns && row + across < rows) y[(column + i) * rows + row + across] = tile[across][i];
}

/* --- convolution --- */

struct ConvShape {
    int frames, height, width, channels, out_height, out_width, out_channels, kt, kh, kw, stride_t, stride, top, left, early;
};

template <typename T>
__global__ void __launch_bounds__(THREADS) k_conv_plain(T *y, const T *in, const T *w, ConvShape p, int64_t count) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int64_t pixel = i / p.out_channels, n = i % p.out_channels, line = pixel / p.out_width, frame = line / p.out_height;
    int y0 = (int)(line % p.out_height) * p.stride - p.top, x0 = (int)(pixel % p.out_width) * p.stride - p.left;
    float sum = 0.0f;
    for (int dt = 0; dt < p.kt; dt++) {
        int64_t f = frame * p.stride_t + dt - p.early;
        if (f < 0 || f >= p.frames) continue;
        for (int dy = 0; dy < p.kh; dy++)
            for (int dx = 0; dx < p.kw; dx++) {
                int iy = y0 + dy, ix = x0 + dx;
                if (iy < 0 || iy >= p.height || ix < 0 || ix >= p.width) continue;
                const T *a = in + ((f * p.height + iy) * p.width + ix) * p.channels;
                const T *b = w + (((n * p.kt + dt) * p.kh + dy) * p.kw + dx) * p.channels;
                for (int c = 0; c < p.channels; c++) sum = fmaf(widen<T>(a[c]), widen<T>(b[c]), sum);
            }
    }
    y[i] = narrow<T>(sum);
}

} /* namespace */

Status cuda_pieces_softmax(Exec *x, Tensor s, const AttentionEager *a, int64_t head0) {
    Tensor bias = a->bias;
    EagerRow p = {};
    p.rows = s.shape[0] * s.shape[1];
    p.tq = s.shape[1];
    p.n = s.shape[2];
    p.head0 = head0;
    p.scale = a->scale;
    p.causal = a->mask == MASK_CAUSAL;
    p.softcap = a->softcap;
    p.inverse = a->softcap > 0.0f ? 1.0f / a->softcap : 0.0f;
    p.window = a->window;
    if (bias.rank) {
        p.head_stride = bias.stride[0];
        p.query_stride = bias.stride[1];
    }
    if (!p.rows || !p.n) return OK;
    const void *b = bias.rank ? bias.data : NULL;
    cudaStream_t stream = x->cuda->stream;
    if (s.dtype == BF16) softmax_rows((__nv_bfloat16 *)s.data, (const __nv_bfloat16 *)b, p, stream);
    else softmax_rows((float *)s.data, (const float *)b, p, stream);
    return cuda_launched(x, "attention_eager: softmax");
}

Status cuda_pieces_flash(Exec *x, Tensor p, Tensor sum, Tensor s, int64_t q0, bool causal) {
    unsigned blocks = (unsigned)(s.shape[0] * s.shape[1]);
    int64_t n = s.shape[1], tk = s.shape[2];
    const float *from = (const float *)s.data;
    float *sums = (float *)sum.data;
    cudaStream_t stream = x->cuda->stream;
    bool once = !causal && tk % 4 == 0 && tk <= 4 * ROW_THREADS * ROW_MOST && (uintptr_t)from % 16 == 0 &&
                (uintptr_t)p.data % 16 == 0;
    if (once && p.dtype == BF16) flash_once(stream, blocks, (__nv_bfloat16 *)p.data, sums, from, (int)(tk / 4));
    else if (once) flash_once(stream, blocks, (float *)p.data, sums, from, (int)(tk / 4));
    else if (p.dtype == BF16)
        k_flash_rows<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)p.data, sums, from, n, tk, q0, causal);
    else k_flash_rows<<<blocks, THREADS, 0, stream>>>((float *)p.data, sums, from, n, tk, q0, causal);
    return cuda_launched(x, "attention: softmax");
}

Status cuda_pieces_divide(Exec *x, Tensor o, Tensor acc, Tensor sum) {
    int64_t n = o.shape[0], e = o.shape[2], count = n * o.shape[1] * e;
    const float *from = (const float *)acc.data, *sums = (const float *)sum.data;
    unsigned blocks = blocks_for(count, THREADS);
    cudaStream_t stream = x->cuda->stream;
    if (o.dtype == BF16)
        k_flash_divide<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)o.data, o.stride[0], o.stride[1], from, sums, n, e,
                                                       count);
    else
        k_flash_divide<<<blocks, THREADS, 0, stream>>>((float *)o.data, o.stride[0], o.stride[1], from, sums, n, e, count);
    return cuda_launched(x, "attention: divide");
}

Status cuda_pieces_turn(Exec *x, Tensor y, Tensor in) {
    int64_t rows = in.shape[1], columns = in.shape[2], stride = rows > 1 ? in.stride[1] : columns;
    if (!tensor_numel(in)) return OK;
    dim3 blocks(blocks_for(rows, TILE), blocks_for(columns, TILE), (unsigned)in.shape[0]);
    k_turn<<<blocks, THREADS, 0, x->cuda->stream>>>((uint16_t *)y.data, (const uint16_t *)in.data, rows, columns, stride);
    return cuda_launched(x, "transposition");
}

Status cuda_pieces_conv(Exec *x, const ConvFrames *a) {
    const int64_t *k = a->kernel.shape;
    Tensor y = a->y, in = a->x, w = a->kernel;
    ConvShape p = {(int)in.shape[0], (int)in.shape[1], (int)in.shape[2],   (int)in.shape[3], (int)y.shape[1],
                   (int)y.shape[2],  (int)y.shape[3],  (int)k[1],          (int)k[2],        (int)k[3],
                   (int)a->stride_t, (int)a->stride,   (int)a->pad_top,    (int)a->pad_left, (int)a->pad_t};
    int64_t count = tensor_numel(y);
    if (!count) return OK;
    unsigned blocks = blocks_for(count, THREADS);
    cudaStream_t stream = x->cuda->stream;
    if (y.dtype == BF16)
        k_conv_plain<<<blocks, THREADS, 0, stream>>>((__nv_bfloat16 *)y.data, (const __nv_bfloat16 *)in.data,
                                                     (const __nv_bfloat16 *)w.data, p, count);
    else k_conv_plain<<<blocks, THREADS, 0, stream>>>((float *)y.data, (const float *)in.data, (const float *)w.data, p, count);
    return cuda_launched(x, ops_info(a->op)->name);
}
