/* swiglu_fused.cu - act_mul with SiLU in BF16, 8 elements an access: the family swiglu.
 *
 * Rows may be strided: the two halves of one product's rows. expf's fast form before a true division gives every BF16 number
 * the reference's bits: recorded for all 65,536 of them, and checkop goes through them. Easy to get wrong: a fast division
 * does not. */
#include "kernels/cuda_four.cuh"
#include "kernels/registry.h"

namespace {

using namespace four;

constexpr int THREADS = 256;
constexpr int WIDE = 8;
struct alignas(16) Eight {
    Two v[WIDE / 2];
};

__device__ inline float silu(float v) { return v / (1.0f + __expf(-v)); }

__global__ void __launch_bounds__(THREADS) k_swiglu(Row y, Row a, Row b, int64_t cols, unsigned pieces) {
    unsigned row = blockIdx.x / pieces;
    int64_t col = ((int64_t)(blockIdx.x - row * pieces) * THREADS + threadIdx.x) * WIDE;
    if (col >= cols) return;
    Eight p = bits_as<Eight>(__ldcs((const uint4 *)((const Bf *)a.data + row * a.stride + col))); /* read once */
    Eight u = bits_as<Eight>(__ldcs((const uint4 *)((const Bf *)b.data + row * b.stride + col)));
#pragma unroll
    for (int i = 0; i < WIDE / 2; i++) {
        float2 v = __bfloat1622float2(p.v[i]);
        p.v[i] = times(__floats2bfloat162_rn(silu(v.x), silu(v.y)), u.v[i]);
    }
    __stcg((uint4 *)((Bf *)y.data + row * y.stride + col), bits_as<uint4>(p));
}

bool swiglu_accepts(const void *args, char *why, size_t size) {
    const ActMul *a = (const ActMul *)args;
    const Tensor *all[] = {&a->y, &a->a, &a->b};
    Row row;
    if (a->kind != ACT_SILU) REFUSE("activation %d, expected SiLU", (int)a->kind);
    for (const Tensor *t : all)
        if (!t->rank || t->dtype != BF16 || !tensor_same_shape(*t, a->y) || t->shape[t->rank - 1] % WIDE ||
            !regular(*t, WIDE, &row))
            REFUSE("not BF16 rows of one distance, aligned to %d elements", WIDE);
    return true;
}

Status swiglu_fused(Exec *x, const void *args) {
    const ActMul *a = (const ActMul *)args;
    Tensor ty = a->y, ta = a->a, tb = a->b, *all[] = {&ty, &ta, &tb};
    rows::flatten(3, all);
    Row y, in, by;
    regular(ty, WIDE, &y), regular(ta, WIDE, &in), regular(tb, WIDE, &by);
    int64_t cols = ty.shape[ty.rank - 1], per_block = (int64_t)THREADS * WIDE;
    unsigned pieces = (unsigned)((cols + per_block - 1) / per_block), blocks = (unsigned)rows_of(ty) * pieces;
    if (!blocks) return OK;
    k_swiglu<<<blocks, THREADS, 0, x->cuda->stream>>>(y, in, by, cols, pieces);
    return cuda_launched(x, "act_mul");
}

} /* namespace */

const Impl SWIGLU_CUDA[] = {{OP_act_mul, "cuda_swiglu", swiglu_fused, NULL, swiglu_accepts}};
