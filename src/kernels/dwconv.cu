/* dwconv.cu - CUDA reference of dwconv3_glu: frame by frame, where a bias goes before it the table's add and act into scratch,
 * the depthwise convolution with its bias into scratch, then the table's act_mul. Frames' worth of scratch, whatever the length
 * of the clip.
 *
 * Easy to get wrong: one fma a tap, in the order of the rows, from 0; taps outside the frame take no part. */
#include "kernels/conv_frames.h"
#include "kernels/cuda_pieces.h"
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

using rows::narrow;
using rows::r;
using rows::widen;

namespace {

constexpr int THREADS = 256, SIDE = 3;

struct Frame {
    int height, width, channels;
    int64_t row, column; /* strides of x */
};

/* d [Y,X,C], contiguous: a thread an element. */
template <typename T>
__global__ void __launch_bounds__(THREADS) k_dwconv3(T *d, const T *x, const T *w, const T *bias, Frame f) {
    int c = blockIdx.x * THREADS + threadIdx.x, px = blockIdx.y, py = blockIdx.z;
    if (c >= f.channels) return;
    float sum = 0.0f;
    for (int ky = 0; ky < SIDE; ky++)
        for (int kx = 0; kx < SIDE; kx++) {
            int iy = py + ky - 1, ix = px + kx - 1;
            if (iy < 0 || iy >= f.height || ix < 0 || ix >= f.width) continue;
            sum = fmaf(widen<T>(x[iy * f.row + ix * f.column + c]), widen<T>(w[(c * SIDE + ky) * SIDE + kx]), sum);
        }
    d[((int64_t)py * f.width + px) * f.channels + c] = narrow<T>(r<T>(sum) + widen<T>(bias[c]));
}

Status check(Exec *x, const Dwconv3Glu *a) {
    TRY(conv_frames_check_dwconv(x, a));
    if (a->x.shape[1] > 65535 || a->x.shape[2] > 65535)
        return fail(x->error, ERR_MODEL, "%s: dwconv3_glu: frames of %lld x %lld are too large",
                    a->w->name ? a->w->name : "weight", (long long)a->x.shape[1], (long long)a->x.shape[2]);
    return OK;
}

size_t dwconv3_glu_scratch(const Exec *x, const void *args) {
    const Dwconv3Glu *a = (const Dwconv3Glu *)args;
    const Tensor *t = &a->x;
    (void)x;
    size_t bytes = (size_t)(t->shape[1] * t->shape[2] * t->shape[3]) * dtype_size(t->dtype);
    return arena_rounded(bytes) * (a->before.rank ? 2 : 1);
}

/* in: the frames that are read; of x itself, or one alone. */
template <typename T> void convolve(cudaStream_t stream, Tensor d, const Dwconv3Glu *a, Tensor in, int64_t frame) {
    Frame f = {(int)in.shape[1], (int)in.shape[2], (int)in.shape[3], in.stride[1], in.stride[2]};
    dim3 grid((unsigned)((f.channels + THREADS - 1) / THREADS), (unsigned)f.width, (unsigned)f.height);
    k_dwconv3<T><<<grid, THREADS, 0, stream>>>((T *)d.data, (const T *)in.data + frame * in.stride[0], (const T *)a->w->w.data,
                                               (const T *)a->w->bias.data, f);
}

Status dwconv3_glu_cuda(Exec *x, const void *args) {
    const Dwconv3Glu *a = (const Dwconv3Glu *)args;
    TRY(check(x, a));
    if (!tensor_numel(a->y)) return OK;
    int64_t c = a->y.shape[3];
    const int64_t shape[] = {1, a->x.shape[1], a->x.shape[2], 2 * c};
    Tensor d = arena_tensor(x->scratch, a->x.dtype, 3, shape + 1), made = {};
    if (d.data && a->before.rank) made = arena_tensor(x->scratch, a->x.dtype, 4, shape);
    if (!d.data || (a->before.rank && !made.data))
        return fail(x->error, ERR_MEMORY, "dwconv3_glu: no scratch of %zu bytes", dwconv3_glu_scratch(x, args));
    for (int64_t i = 0; i < a->y.shape[0]; i++) {
        if (a->before.rank) {
            Add add = {};
            Act act = {};
            add.y = made, add.a = tensor_slice(a->x, 0, i, 1), add.b = a->before;
            act.y = act.x = made, act.kind = ACT_SILU;
            TRY(cuda_pieces_op(x, OP_add, &add));
            TRY(cuda_pieces_op(x, OP_act, &act));
        }
        const Tensor &in = a->before.rank ? made : a->x;
        int64_t frame = a->before.rank ? 0 : i;
        if (a->x.dtype == BF16) convolve<__nv_bfloat16>(x->cuda->stream, d, a, in, frame);
        else convolve<float>(x->cuda->stream, d, a, in, frame);
        TRY(cuda_launched(x, "dwconv3_glu"));
        Tensor y = tensor_slice(a->y, 0, i, 1);
        ActMul glu = {};
        glu.y = y, glu.kind = ACT_SILU;
        for (int k = 0; k < 3; k++) glu.y.shape[k] = y.shape[k + 1], glu.y.stride[k] = y.stride[k + 1];
        glu.y.rank = 3;
        glu.a = tensor_slice(d, 2, c, c), glu.b = tensor_slice(d, 2, 0, c);
        TRY(cuda_pieces_op(x, OP_act_mul, &glu));
    }
    return OK;
}

bool dwconv3_glu_accepts(const void *args, char *why, size_t size) {
    const Dwconv3Glu *a = (const Dwconv3Glu *)args;
    return cuda_takes_weight(a->w, a->x.dtype, why, size);
}

} /* namespace */

const Impl DWCONV_CUDA[] = {{OP_dwconv3_glu, "cuda", dwconv3_glu_cuda, dwconv3_glu_scratch, dwconv3_glu_accepts}};
const int DWCONV_CUDA_COUNT = sizeof DWCONV_CUDA / sizeof *DWCONV_CUDA;
