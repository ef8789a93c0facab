/* head_gate.cu - CUDA reference of head_gate and cos_sin (head_gate.h), with PyTorch's own f32 functions as the CUDA maths
 * library has them.
 *
 * Easy to get wrong: an angle is read before either of its results is written. */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

using rows::r;

namespace {

constexpr int THREADS = 256;

template <typename T> struct HeadGateF {
    static constexpr int INPUTS = 2;
    __device__ float operator()(float v, float logit, float) const {
        return v * r<T>(2.0f * r<T>(1.0f / (1.0f + expf(-logit))));
    }
};

Status head_gate_cuda(Exec *x, const void *args) {
    const HeadGate *a = (const HeadGate *)args;
    Tensor gate = a->logits;
    if (a->x.rank != 3 || gate.rank != 2 || gate.dtype != a->x.dtype || a->y.dtype != a->x.dtype ||
        !tensor_same_shape(a->y, a->x) || gate.shape[0] != a->x.shape[0] || gate.shape[1] != a->x.shape[1] ||
        a->x.stride[2] != 1 || a->y.stride[2] != 1)
        return fail(x->error, ERR_MODEL, "head_gate: x and y must be [tokens, heads, head dim], heads contiguous, logits "
                    "[tokens, heads] of their dtype");
    gate.rank = 3; /* one value a head, for all of its elements */
    gate.shape[2] = 1, gate.stride[2] = 1;
    return rows::map<HeadGateF>(x, "head_gate", a->y, a->x, gate, Tensor{});
}

__global__ void __launch_bounds__(THREADS) k_cos_sin(float *c, float *s, const float *angle, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    float a = angle[i];
    c[i] = cosf(a);
    s[i] = sinf(a);
}

Status cos_sin_cuda(Exec *x, const void *args) {
    const CosSin *a = (const CosSin *)args;
    const Tensor *all[] = {&a->cos, &a->sin, &a->x};
    for (int i = 0; i < 3; i++)
        if (all[i]->dtype != F32 || !tensor_same_shape(*all[i], a->x) || !tensor_contiguous(*all[i]))
            return fail(x->error, ERR_MODEL, "cos_sin: x, cos and sin must be contiguous F32 tensors of one shape");
    int64_t n = tensor_numel(a->x);
    if (!n) return OK;
    k_cos_sin<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, x->cuda->stream>>>(
        (float *)a->cos.data, (float *)a->sin.data, (const float *)a->x.data, n);
    return cuda_launched(x, "cos_sin");
}

} /* namespace */

const Impl HEAD_GATE_CUDA[] = {
    {OP_head_gate, "cuda", head_gate_cuda, NULL, NULL},
    {OP_cos_sin, "cuda", cos_sin_cuda, NULL, NULL},
};
const int HEAD_GATE_CUDA_COUNT = sizeof HEAD_GATE_CUDA / sizeof *HEAD_GATE_CUDA;
