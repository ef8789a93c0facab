/* conv_pieces.cu - see conv_pieces.h. Everything here moves as many bytes as it must and computes next to nothing.
 *
 * What follows a convolution goes from the last pixel to the first: the convolution has left its end in the cache, and the next
 * norm's sums begin where this ends.
 * Easy to get wrong: 64-bit divisions cost more than the bytes they find: flat indices are 32 bits wide where they fit, and
 * pictures are walked line by line elsewhere (a line fits 32 bits). */
#include "kernels/conv_pieces.h"
#include "kernels/cuda_fast.cuh"

using rows::load;
using rows::narrow;
using rows::r;
using rows::store;
using rows::widen;

namespace {

constexpr int THREADS = 256, EACH = 4;
constexpr int64_t LINES = 32768; /* of a grid */

unsigned blocks_for(int64_t n, int64_t per_block) { return (unsigned)((n + per_block - 1) / per_block); }

/* What is added to a convolution's output; NULL: absent. */
template <typename T> struct After {
    const T *bias, *skip, *skip_bias;
};

/* V elements of a picture from element `at` on, channels from c on. */
template <typename T, int V> __device__ inline void add_after(float *v, const After<T> &f, int64_t at, int c) {
    if (f.bias) {
        float b[V];
        load<T, V>(b, f.bias + c);
#pragma unroll
        for (int i = 0; i < V; i++) v[i] = r<T>(v[i] + b[i]);
    }
    if (!f.skip) return;
    float s[V];
    load<T, V>(s, f.skip + at);
    if (f.skip_bias) {
        float b[V];
        load<T, V>(b, f.skip_bias + c);
#pragma unroll
        for (int i = 0; i < V; i++) s[i] = r<T>(s[i] + b[i]);
    }
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = s[i] + v[i];
}

template <typename T, int V, typename I>
__global__ void __launch_bounds__(THREADS) k_conv_post(T *y, After<T> f, I vectors, int row) {
    fast::begin();
    I first = (I)(gridDim.x - 1 - blockIdx.x) * (THREADS * EACH) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        I i = first + (I)k * THREADS;
        if (i >= vectors) return;
        float v[V];
        load<T, V>(v, y + (int64_t)i * V);
        add_after<T, V>(v, f, (int64_t)i * V, (int)(i % (I)row) * V);
        store<T, V>(y + (int64_t)i * V, v);
    }
}

/* One unit of bytes (a pixel has `row` of them) to its four places. Blocks in y take lines of the input. */
template <typename U>
__global__ void __launch_bounds__(THREADS) k_double(U *y, const U *in, int64_t line, int64_t pixel, int height, int width,
                                                    int row) {
    int i = blockIdx.x * THREADS + threadIdx.x, px = i / row, c = i - px * row;
    if (px >= width) return;
    int64_t out = (int64_t)2 * width * row;
    for (int py = blockIdx.y; py < height; py += gridDim.y) {
        U v = in[py * line + px * pixel + c];
        U *to = y + (int64_t)2 * py * out + (int64_t)2 * px * row + c;
        to[0] = to[row] = v;
        to[out] = to[out + row] = v;
    }
}

/* Taps that meet at place t of phase a: from the first, how many. */
__device__ inline void meeting(int a, int t, int *first, int *count) {
    *first = a ? 2 * t : t;
    *count = a == t ? 1 : 2;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) k_phase_taps(T *w, const T *k, int out, int in, int64_t count) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int64_t filter = i / in;
    int c = (int)(i - filter * in), place = (int)(filter % 4), o = (int)(filter / 4 % out), phase = (int)(filter / 4 / out);
    int row, rows, column, columns;
    meeting(phase / 2, place / 2, &row, &rows);
    meeting(phase % 2, place % 2, &column, &columns);
    float sum = 0.0f;
    for (int x = 0; x < columns; x++) {
        const T *at = k + ((int64_t)(o * 3 + row) * 3 + column + x) * in + c;
        float both = widen<T>(at[0]);
        if (rows == 2) both += widen<T>(at[3 * in]);
        sum = x ? sum + both : both;
    }
    w[i] = narrow<T>(sum);
}

/* Blocks in y take lines of the output. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS) k_phase_spread(T *y, const T *in, After<T> f, int height, int width, int row) {
    int i = blockIdx.x * THREADS + threadIdx.x, px = i / row, c = (i - px * row) * V;
    fast::begin();
    if (px >= width) return;
    for (int py = height - 1 - (int)blockIdx.y; py >= 0; py -= (int)gridDim.y) {
        int64_t place = (int64_t)((py + 1) / 2) * (width / 2 + 1) + (px + 1) / 2, at = ((int64_t)py * width * row + i) * V;
        float v[V];
        load<T, V>(v, in + (place * 4 + 2 * (py & 1) + (px & 1)) * row * V + c);
        add_after<T, V>(v, f, at, c);
        store<T, V>(y + at, v);
    }
}

dim3 lines_of(int64_t height, int64_t units) {
    return dim3(blocks_for(units, THREADS), (unsigned)(height < LINES ? height : LINES));
}

template <typename T> After<T> after_of(Tensor bias, Tensor skip, Tensor skip_bias) {
    return {bias.rank ? (const T *)bias.data : nullptr, skip.rank ? (const T *)skip.data : nullptr,
            skip_bias.rank ? (const T *)skip_bias.data : nullptr};
}

/* Can all be read `bytes` at a time? */
bool aligned(int64_t channels, DType t, size_t bytes, const Tensor *const *all, int count) {
    if ((size_t)channels * dtype_size(t) % bytes) return false;
    for (int i = 0; i < count; i++)
        if (all[i]->rank && (uintptr_t)all[i]->data % bytes) return false;
    return true;
}

template <typename T, int V> void launch_post(Exec *x, Tensor y, After<T> f) {
    int64_t vectors = tensor_numel(y) / V;
    int row = (int)(y.shape[2] / V);
    unsigned blocks = blocks_for(vectors, THREADS * EACH);
    T *to = (T *)y.data;
    if (vectors < (int64_t)1 << 31)
        fast::launch_early(x, k_conv_post<T, V, uint32_t>, dim3(blocks), THREADS, 0, to, f, (uint32_t)vectors, row);
    else fast::launch_early(x, k_conv_post<T, V, int64_t>, dim3(blocks), THREADS, 0, to, f, vectors, row);
}

template <typename U> void launch_double(Exec *x, Tensor y, Tensor in) {
    int64_t per = (int64_t)(sizeof(U) / dtype_size(in.dtype)), row = in.shape[2] / per;
    int64_t pixel = in.shape[1] > 1 ? in.stride[1] : in.shape[2], line = in.shape[0] > 1 ? in.stride[0] : 0;
    k_double<U><<<lines_of(in.shape[0], in.shape[1] * row), THREADS, 0, x->cuda->stream>>>(
        (U *)y.data, (const U *)in.data, line / per, pixel / per, (int)in.shape[0], (int)in.shape[1], (int)row);
}

} /* namespace */

Status conv_pieces_post(Exec *x, Tensor y, Tensor bias, Tensor skip, Tensor skip_bias) {
    const Tensor *all[] = {&y, &bias, &skip, &skip_bias};
    bool wide = aligned(y.shape[2], y.dtype, 16, all, 4);
    if (!tensor_numel(y)) return OK;
    if (y.dtype == BF16) {
        After<__nv_bfloat16> f = after_of<__nv_bfloat16>(bias, skip, skip_bias);
        if (wide) launch_post<__nv_bfloat16, 8>(x, y, f);
        else launch_post<__nv_bfloat16, 1>(x, y, f);
    } else {
        After<float> f = after_of<float>(bias, skip, skip_bias);
        if (wide) launch_post<float, 4>(x, y, f);
        else launch_post<float, 1>(x, y, f);
    }
    return cuda_launched(x, "convolution: bias and skip");
}

Status conv_pieces_double(Exec *x, Tensor y, Tensor in) {
    const Tensor *all[] = {&y, &in};
    size_t size = dtype_size(in.dtype);
    int64_t units = (int64_t)(16 / size);
    bool wide = aligned(in.shape[2], in.dtype, 16, all, 2) && (in.shape[1] == 1 || in.stride[1] % units == 0) &&
                (in.shape[0] == 1 || in.stride[0] % units == 0);
    if (!tensor_numel(in)) return OK;
    if (wide) launch_double<uint4>(x, y, in);
    else if (size == 2) launch_double<uint16_t>(x, y, in);
    else launch_double<uint32_t>(x, y, in);
    return cuda_launched(x, "upsampling");
}

Status conv_pieces_taps(Exec *x, Tensor w, Tensor k) {
    int64_t count = tensor_numel(w);
    k_phase_taps<__nv_bfloat16><<<blocks_for(count, THREADS), THREADS, 0, x->cuda->stream>>>(
        (__nv_bfloat16 *)w.data, (const __nv_bfloat16 *)k.data, (int)k.shape[0], (int)k.shape[3], count);
    return cuda_launched(x, "upsample_conv: taps");
}

Status conv_pieces_spread(Exec *x, Tensor y, Tensor in, Tensor bias, Tensor skip, Tensor skip_bias) {
    const Tensor *all[] = {&y, &in, &bias, &skip, &skip_bias};
    After<__nv_bfloat16> f = after_of<__nv_bfloat16>(bias, skip, skip_bias);
    bool wide = aligned(y.shape[2], BF16, 16, all, 5);
    int row = (int)(y.shape[2] / (wide ? 8 : 1)), height = (int)y.shape[0], width = (int)y.shape[1];
    dim3 blocks = lines_of(height, (int64_t)width * row);
    __nv_bfloat16 *to = (__nv_bfloat16 *)y.data;
    const __nv_bfloat16 *from = (const __nv_bfloat16 *)in.data;
    if (wide) fast::launch_early(x, k_phase_spread<__nv_bfloat16, 8>, blocks, THREADS, 0, to, from, f, height, width, row);
    else fast::launch_early(x, k_phase_spread<__nv_bfloat16, 1>, blocks, THREADS, 0, to, from, f, height, width, row);
    return cuda_launched(x, "upsample_conv: phases");
}
