/* wave.cu - CUDA reference of the ops of wave.h, and the kernel behind conv_transpose1d's product.
 *
 * A block of a filtered snake makes the rows at the double rate that its tile of y sees in shared memory, a thread a
 * channel of every few rows, then filters them: neither rate's signal is written out.
 * Easy to get wrong: tiles overlap at the double rate, and the rows that two of them make must be the same; the maths
 * functions are the exact ones (PyTorch's), never the fast ones. */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"
#include "kernels/wave_check.h"
#include "kernels/wave_pieces.h"

using rows::narrow;
using rows::r;
using rows::widen;

namespace {

constexpr int THREADS = 256, TILE = 64 /* rows of y */, CHANNELS = 32;

__device__ inline int64_t held(int64_t i, int64_t count) { return i < 0 ? 0 : i < count ? i : count - 1; }

unsigned blocks_of(int64_t n) { return (unsigned)((n + THREADS - 1) / THREADS); }

/* --- element by element --- */

template <typename T> struct Mean3F {
    static constexpr int INPUTS = 3;
    __device__ float operator()(float a, float b, float c) const { return (a + b + c) * (1.0f / 3.0f); }
};

template <typename T> struct MagnitudeF {
    static constexpr int INPUTS = 2;
    __device__ float operator()(float a, float b, float) const { return sqrtf(r<T>(r<T>(a * a) + r<T>(b * b))); }
};

Status mean3(Exec *x, const void *args) {
    const Mean3 *a = (const Mean3 *)args;
    TRY(wave_check_mean3(x, a));
    return rows::map<Mean3F>(x, "mean3", a->y, a->a, a->b, a->c);
}

Status magnitude(Exec *x, const void *args) {
    const Magnitude *a = (const Magnitude *)args;
    TRY(wave_check_magnitude(x, a));
    int64_t n = a->y.shape[1];
    return rows::map<MagnitudeF>(x, "magnitude", a->y, tensor_slice(a->x, 1, 0, n), tensor_slice(a->x, 1, n, n),
                                 Tensor{});
}

/* --- filters --- */

template <typename T> struct Up {
    const T *x, *filter;
    int64_t rows, stride;
    int taps, ratio, pad, crop;
};

template <typename T> __device__ inline float up_at(const Up<T> &u, int64_t t, int64_t channel) {
    float sum = 0.0f;
    for (int k = (int)((t + u.crop) % u.ratio); k < u.taps; k += u.ratio) {
        int64_t i = held((t + u.crop - k) / u.ratio - u.pad, u.rows);
        sum += widen<T>(u.filter[k]) * widen<T>(u.x[i * u.stride + channel]);
    }
    return r<T>(r<T>(sum) * (float)u.ratio);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) k_fir_up(T *y, int64_t y_stride, Up<T> u, int64_t count, int channels) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int64_t t = i / channels, channel = i - t * channels;
    y[t * y_stride + channel] = narrow<T>(up_at<T>(u, t, channel));
}

template <typename T> Up<T> up_of(const Tensor &x, const Tensor &filter, int ratio, int pad, int crop) {
    Up<T> u = {};
    u.x = (const T *)x.data, u.filter = (const T *)filter.data;
    u.rows = x.shape[0], u.stride = x.stride[0];
    u.taps = (int)tensor_numel(filter), u.ratio = ratio, u.pad = pad, u.crop = crop;
    return u;
}

template <typename T> Status fir_up_typed(Exec *x, const FirUp *a) {
    int64_t count = a->y.shape[0] * a->y.shape[1];
    k_fir_up<T><<<blocks_of(count), THREADS, 0, x->cuda->stream>>>((T *)a->y.data, a->y.stride[0],
                                                                   up_of<T>(a->x, a->filter, a->ratio, a->pad, a->crop),
                                                                   count, (int)a->y.shape[1]);
    return cuda_launched(x, "fir_up");
}

Status fir_up(Exec *x, const void *args) {
    const FirUp *a = (const FirUp *)args;
    TRY(wave_check_up(x, a));
    return a->x.dtype == BF16 ? fir_up_typed<__nv_bfloat16>(x, a) : fir_up_typed<float>(x, a);
}

/* --- snakes --- */

/* blockDim: channels of a tile, rows at a time; both powers of two. s [2 TILE + taps][blockDim.x]. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    k_snake_filtered(T *y, int64_t y_stride, Up<T> u, const T *alpha, const T *beta, const T *down, int channels) {
    extern __shared__ float s[];
    const int channel = (int)(blockIdx.y * blockDim.x + threadIdx.x), width = (int)blockDim.x, lead = u.taps / 2 - 1;
    const int64_t t0 = (int64_t)blockIdx.x * TILE, left = u.rows - t0, n = left < TILE ? left : TILE, all = 2 * u.rows;
    const int64_t from = held(2 * t0 - lead, all), last = held(2 * (t0 + n - 1) - lead + u.taps - 1, all);
    const bool here = channel < channels;
    if (here) {
        const float by = r<T>(expf(widen<T>(alpha[channel])));
        const float inverse = r<T>(1.0f / r<T>(r<T>(expf(widen<T>(beta[channel]))) + 1e-9f));
        for (int64_t t = from + threadIdx.y; t <= last; t += blockDim.y) {
            float v = up_at<T>(u, t, channel), sine = r<T>(sinf(r<T>(v * by)));
            s[(t - from) * width + threadIdx.x] = r<T>(v + r<T>(inverse * r<T>(sine * sine)));
        }
    }
    __syncthreads();
    if (!here) return;
    for (int64_t t = t0 + threadIdx.y; t < t0 + n; t += blockDim.y) {
        float sum = 0.0f;
        for (int k = 0; k < u.taps; k++)
            sum += widen<T>(down[k]) * s[(held(2 * t + k - lead, all) - from) * width + threadIdx.x];
        y[t * y_stride + channel] = narrow<T>(sum);
    }
}

template <typename T> Status snake_typed(Exec *x, const SnakeFiltered *a) {
    const int channels = (int)a->x.shape[1], taps = (int)tensor_numel(a->up), pad = taps / 2 - 1;
    int width = 1;
    while (width < CHANNELS && width < channels) width *= 2;
    dim3 threads((unsigned)width, (unsigned)(THREADS / width));
    dim3 grid((unsigned)((a->x.shape[0] + TILE - 1) / TILE), (unsigned)((channels + width - 1) / width));
    size_t shared = (size_t)(2 * TILE + taps) * (size_t)width * sizeof(float);
    k_snake_filtered<T><<<grid, threads, shared, x->cuda->stream>>>(
        (T *)a->y.data, a->y.stride[0], up_of<T>(a->x, a->up, 2, pad, 2 * pad + (taps - 2) / 2),
        (const T *)a->alpha.data, (const T *)a->beta.data, (const T *)a->down.data, channels);
    return cuda_launched(x, "snake_filtered");
}

Status snake_filtered(Exec *x, const void *args) {
    const SnakeFiltered *a = (const SnakeFiltered *)args;
    TRY(wave_check_snake(x, a));
    return a->x.dtype == BF16 ? snake_typed<__nv_bfloat16>(x, a) : snake_typed<float>(x, a);
}

/* --- the transposed convolution's second half --- */

struct Collect {
    const float *product;
    int64_t rows, count, y_stride; /* of x; values of y */
    int channels, taps, stride, pad;
};

template <typename T> __global__ void __launch_bounds__(THREADS) k_collect(T *y, const T *bias, Collect c) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.count) return;
    int64_t t = i / c.channels, channel = i - t * c.channels, at = t + c.pad, pitch = (int64_t)c.channels * c.taps;
    float sum = 0.0f;
    for (int j = (int)(at % c.stride); j < c.taps && j <= at; j += c.stride) {
        int64_t row = (at - j) / c.stride;
        if (row < c.rows) sum += c.product[row * pitch + channel * c.taps + j];
    }
    y[t * c.y_stride + channel] = narrow<T>(bias ? r<T>(sum) + widen<T>(bias[channel]) : sum);
}

} /* namespace */

extern "C" Status wave_pieces_collect(Exec *x, const ConvTranspose1d *a, const float *product) {
    Collect c = {};
    c.product = product;
    c.rows = a->x.shape[0], c.count = a->y.shape[0] * a->y.shape[1], c.y_stride = a->y.stride[0];
    c.channels = (int)a->y.shape[1], c.taps = (int)a->w->w.shape[2], c.stride = a->stride, c.pad = a->pad;
    const void *bias = a->w->bias.rank ? a->w->bias.data : NULL;
    cudaStream_t stream = x->cuda->stream;
    if (a->y.dtype == BF16)
        k_collect<__nv_bfloat16>
            <<<blocks_of(c.count), THREADS, 0, stream>>>((__nv_bfloat16 *)a->y.data, (const __nv_bfloat16 *)bias, c);
    else
        k_collect<float><<<blocks_of(c.count), THREADS, 0, stream>>>((float *)a->y.data, (const float *)bias, c);
    return cuda_launched(x, "conv_transpose1d");
}

const Impl WAVE_CUDA[] = {
    {OP_mean3, "cuda", mean3, NULL, NULL},
    {OP_magnitude, "cuda", magnitude, NULL, NULL},
    {OP_fir_up, "cuda", fir_up, NULL, NULL},
    {OP_snake_filtered, "cuda", snake_filtered, NULL, NULL},
};
const int WAVE_CUDA_COUNT = sizeof WAVE_CUDA / sizeof *WAVE_CUDA;
