/* rope_split.cu - CUDA reference of rope_split (rope_split.h): a thread rotates N neighbouring pairs of one head, N = 4 where
 * strides and addresses allow accesses of 4 elements.
 *
 * Easy to get wrong: both halves of a pair are read before either is written, so that y may be x. */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

using rows::r;

namespace {

constexpr int THREADS = 256, WIDE = 4;
constexpr int64_t GRID_ROWS = 65535;

struct Strides {
    int64_t token, head;
};

__device__ inline float turn(float plain, float with, float s) {
    return ROPE_SPLIT_FMA ? fmaf(s, with, plain) : plain + s * with;
}

/* BETWEEN: the plain product is of the dtype (ROPE_SPLIT_DTYPE). */
template <typename T, int N, bool BETWEEN>
__global__ void __launch_bounds__(THREADS)
    k_rope_split(T *y, const T *x, const float *cos_table, const float *sin_table, Strides sy, Strides sx, Strides sc, Strides ss,
                 int heads, int half) {
    int64_t token = blockIdx.y;
    int each = half / N, at = blockIdx.x * THREADS + threadIdx.x, head = at / each, i = (at - head * each) * N;
    if (head >= heads) return;
    const T *from = x + token * sx.token + head * sx.head + i;
    T *to = y + token * sy.token + head * sy.head + i;
    float x0[N], x1[N], c[N], s[N], y0[N], y1[N];
    rows::load<T, N>(x0, from);
    rows::load<T, N>(x1, from + half);
    rows::load<float, N>(c, cos_table + token * sc.token + head * sc.head + i);
    rows::load<float, N>(s, sin_table + token * ss.token + head * ss.head + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
        float plain0 = x0[k] * c[k], plain1 = x1[k] * c[k];
        if (BETWEEN) plain0 = r<T>(plain0), plain1 = r<T>(plain1);
        y0[k] = turn(plain0, x1[k], -s[k]);
        y1[k] = turn(plain1, x0[k], s[k]);
    }
    rows::store<T, N>(to, y0);
    rows::store<T, N>(to + half, y1);
}

Status check(Exec *x, const RopeSplit *a) {
    const Tensor *table[] = {&a->cos, &a->sin};
    if (a->x.rank != 3 || (a->x.dtype != F32 && a->x.dtype != BF16) || a->y.dtype != a->x.dtype ||
        !tensor_same_shape(a->y, a->x) || a->x.shape[2] % 2 || a->x.stride[2] != 1 || a->y.stride[2] != 1)
        return fail(x->error, ERR_MODEL, "rope_split: x and y must be [tokens, heads, an even head dim], heads contiguous");
    for (int i = 0; i < 2; i++)
        if (table[i]->dtype != F32 || table[i]->rank != 3 || table[i]->shape[0] != a->x.shape[0] ||
            table[i]->shape[1] != a->x.shape[1] || 2 * table[i]->shape[2] != a->x.shape[2] || table[i]->stride[2] != 1)
            return fail(x->error, ERR_MODEL, "rope_split: the tables must be F32 [%lld, %lld, %lld], heads contiguous",
                        (long long)a->x.shape[0], (long long)a->x.shape[1], (long long)a->x.shape[2] / 2);
    return OK;
}

bool wide(const RopeSplit *a) {
    const Tensor *all[] = {&a->y, &a->x, &a->cos, &a->sin};
    if (a->cos.shape[2] % WIDE) return false;
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)all[i]->data % (WIDE * dtype_size(all[i]->dtype)) || all[i]->stride[0] % WIDE || all[i]->stride[1] % WIDE)
            return false;
    return true;
}

Strides strides_of(const Tensor &t) { return {t.stride[0], t.stride[1]}; }

template <typename T, int N, bool BETWEEN> void run(cudaStream_t stream, const RopeSplit *a) {
    int heads = (int)a->x.shape[1], half = (int)a->cos.shape[2];
    unsigned blocks = (unsigned)(((int64_t)heads * (half / N) + THREADS - 1) / THREADS);
    for (int64_t t = 0; t < a->x.shape[0]; t += GRID_ROWS) {
        int64_t left = a->x.shape[0] - t;
        k_rope_split<T, N, BETWEEN><<<dim3(blocks, (unsigned)(left < GRID_ROWS ? left : GRID_ROWS)), THREADS, 0, stream>>>(
            (T *)a->y.data + t * a->y.stride[0], (const T *)a->x.data + t * a->x.stride[0],
            (const float *)a->cos.data + t * a->cos.stride[0], (const float *)a->sin.data + t * a->sin.stride[0],
            strides_of(a->y), strides_of(a->x), strides_of(a->cos), strides_of(a->sin), heads, half);
    }
}

template <typename T, bool BETWEEN> void run_typed(cudaStream_t stream, const RopeSplit *a) {
    if (wide(a)) run<T, WIDE, BETWEEN>(stream, a);
    else run<T, 1, BETWEEN>(stream, a);
}

Status rope_split_cuda(Exec *x, const void *args) {
    const RopeSplit *a = (const RopeSplit *)args;
    TRY(check(x, a));
    if (!tensor_numel(a->y)) return OK;
    if (a->x.dtype == F32) run_typed<float, false>(x->cuda->stream, a);
    else if (a->form == ROPE_SPLIT_DTYPE) run_typed<__nv_bfloat16, true>(x->cuda->stream, a);
    else run_typed<__nv_bfloat16, false>(x->cuda->stream, a);
    return cuda_launched(x, "rope_split");
}

} /* namespace */

const Impl ROPE_SPLIT_CUDA[] = {{OP_rope_split, "cuda", rope_split_cuda, NULL, NULL}};
const int ROPE_SPLIT_CUDA_COUNT = sizeof ROPE_SPLIT_CUDA / sizeof *ROPE_SPLIT_CUDA;
