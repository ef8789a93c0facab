/* chan_norm.cu - CUDA reference of chan_rmsnorm, chan_rmsnorm_silu (norm.h), chan_affine (elementwise.h) and roll (conv.h), and
 * chan_rmsnorm_silu of the family wan-norm: what is asked of arguments, and which kernel runs. The norms themselves:
 * chan_norm_order.cu, chan_norm_keep.cu. */
#include "kernels/chan_norm.h"
#include "kernels/conv_frames.h"
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

using rows::narrow;
using rows::r;
using rows::widen;

namespace {

constexpr int THREADS = 256;

/* --- the norm --- */

bool vector_of(const Tensor &t, const Tensor &like) {
    return t.dtype == like.dtype && tensor_numel(t) == like.shape[like.rank - 1] && tensor_contiguous(t);
}

Status check(Exec *x, OpId op, const ChanRmsNorm *a) {
    const char *name = ops_info(op)->name;
    if (!a->x.rank || !tensor_same_shape(a->x, a->y) || a->x.dtype != a->y.dtype || (a->x.dtype != F32 && a->x.dtype != BF16))
        return fail(x->error, ERR_MODEL, "%s: x and y must be F32 or BF16 of one shape", name);
    if (!a->w.rank || !vector_of(a->w, a->x) || (a->bias.rank && !vector_of(a->bias, a->x)))
        return fail(x->error, ERR_MODEL, "%s: weight and bias must be vectors of %lld in %s", name,
                    (long long)a->x.shape[a->x.rank - 1], dtype_name(a->x.dtype));
    return OK;
}

Status chan_rmsnorm(Exec *x, const void *args) {
    const ChanRmsNorm *a = (const ChanRmsNorm *)args;
    TRY(check(x, OP_chan_rmsnorm, a));
    return tensor_numel(a->x) ? chan_norm_in_order(x, a, false) : OK;
}

Status chan_rmsnorm_silu(Exec *x, const void *args) {
    const ChanRmsNorm *a = (const ChanRmsNorm *)args;
    TRY(check(x, OP_chan_rmsnorm_silu, a));
    return tensor_numel(a->x) ? chan_norm_in_order(x, a, true) : OK;
}

Status chan_rmsnorm_silu_f32(Exec *x, const void *args) {
    const ChanRmsNorm *a = (const ChanRmsNorm *)args;
    TRY(check(x, OP_chan_rmsnorm_silu, a));
    return tensor_numel(a->x) ? chan_norm_keep(x, a) : OK;
}

/* --- chan_affine --- */

template <typename T, typename From>
__global__ void __launch_bounds__(THREADS) k_chan_affine(rows::View y, rows::View in, const T *a, const T *b, rows::Walk w,
                                                         int form) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= w.rows * w.cols) return;
    int64_t row = i / w.cols, col = i - row * w.cols;
    float v = r<T>(widen<From>(((const From *)in.data)[rows::offset(in, w, row) + col * in.last]));
    float by = widen<T>(a[col]), add = widen<T>(b[col]);
    if (form == CHAN_DIVIDE_ADD) v = r<T>(v / by) + add;
    else if (form == CHAN_MULTIPLY_ADD) v = r<T>(v * by) + add;
    else v = form == CHAN_SUBTRACT_MULTIPLY ? r<T>(v - add) * by : r<T>(v - add) / by;
    ((T *)y.data)[rows::offset(y, w, row) + col * y.last] = narrow<T>(v);
}

Status chan_affine(Exec *x, const void *args) {
    const ChanAffine *a = (const ChanAffine *)args;
    DType t = a->y.dtype;
    if (!tensor_same_shape(a->x, a->y) || (t != F32 && t != BF16) || (a->x.dtype != t && a->x.dtype != F32) ||
        !vector_of(a->a, a->y) || !vector_of(a->b, a->y))
        return fail(x->error, ERR_MODEL, "chan_affine: x must have y's shape, and dtype or F32; a and b its channels");
    rows::Walk w = rows::walk_of(a->y);
    rows::View y = rows::view_of(a->y, w), in = rows::view_of(a->x, w);
    unsigned blocks = (unsigned)((w.rows * w.cols + THREADS - 1) / THREADS);
    cudaStream_t stream = x->cuda->stream;
    if (!blocks) return OK;
    if (t == F32)
        k_chan_affine<float, float><<<blocks, THREADS, 0, stream>>>(y, in, (const float *)a->a.data, (const float *)a->b.data,
                                                                   w, a->form);
    else if (a->x.dtype == F32)
        k_chan_affine<__nv_bfloat16, float><<<blocks, THREADS, 0, stream>>>(
            y, in, (const __nv_bfloat16 *)a->a.data, (const __nv_bfloat16 *)a->b.data, w, a->form);
    else
        k_chan_affine<__nv_bfloat16, __nv_bfloat16><<<blocks, THREADS, 0, stream>>>(
            y, in, (const __nv_bfloat16 *)a->a.data, (const __nv_bfloat16 *)a->b.data, w, a->form);
    return cuda_launched(x, "chan_affine");
}

/* --- roll --- */

Status roll(Exec *x, const void *args) {
    const Roll *a = (const Roll *)args;
    TRY(conv_frames_check_roll(x, a));
    size_t history = tensor_bytes(a->cache), all = tensor_bytes(a->window);
    cudaStream_t stream = x->cuda->stream;
    cudaError_t code = a->fresh ? cudaMemsetAsync(a->window.data, 0, history, stream)
                                : cudaMemcpyAsync(a->window.data, a->cache.data, history, cudaMemcpyDeviceToDevice, stream);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(a->cache.data, (const char *)a->window.data + (all - history), history, cudaMemcpyDeviceToDevice,
                               stream);
    return code == cudaSuccess ? OK : fail(x->error, ERR_DEVICE, "roll: %s", cudaGetErrorString(code));
}

} /* namespace */

const Impl CHAN_NORM_CUDA[] = {
    {OP_chan_rmsnorm, "cuda", chan_rmsnorm, NULL, NULL},
    {OP_chan_rmsnorm_silu, "cuda", chan_rmsnorm_silu, NULL, NULL},
    {OP_chan_affine, "cuda", chan_affine, NULL, NULL},
    {OP_roll, "cuda", roll, NULL, NULL},
};
const int CHAN_NORM_CUDA_COUNT = sizeof CHAN_NORM_CUDA / sizeof *CHAN_NORM_CUDA;

const Impl WAN_NORM_CUDA[] = {{OP_chan_rmsnorm_silu, "cuda_f32", chan_rmsnorm_silu_f32, NULL, chan_norm_keeps_accepts}};
