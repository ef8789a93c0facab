/* swiglu_fused.cu - act_mul with SiLU in BF16, 8 elements an access: rows of one distance, for the family activation.
 *
 * Rows may be strided: the two halves of one product's rows. expf's fast form before a true division gives every BF16 number
 * the reference's bits: recorded for all 65,536 of them, and checkop goes through them. Easy to get wrong: a fast division
 * does not. */
#include "kernels/swiglu_fused.h"

#include "kernels/cuda_four.cuh"

namespace {

using namespace four;

using fast::Wide;
using fast::WIDE;

constexpr int THREADS = 256;

__device__ inline Wide wide_of(uint4 raw) {
    Wide out;
    memcpy(&out, &raw, sizeof out);
    return out;
}

__device__ inline float silu(float v) { return v / (1.0f + __expf(-v)); }

__global__ void __launch_bounds__(THREADS) k_swiglu(Row y, Row a, Row b, int64_t cols, unsigned pieces) {
    unsigned row = blockIdx.x / pieces;
    int64_t col = ((int64_t)(blockIdx.x - row * pieces) * THREADS + threadIdx.x) * WIDE;
    if (col >= cols) return;
    Wide p = wide_of(__ldcs((const uint4 *)((const Bf *)a.data + row * a.stride + col))); /* read once */
    Wide u = wide_of(__ldcs((const uint4 *)((const Bf *)b.data + row * b.stride + col)));
    uint4 out;
#pragma unroll
    for (int i = 0; i < WIDE / 2; i++) {
        float2 v = __bfloat1622float2(p.p[i]);
        p.p[i] = fast::mul(fast::round2(silu(v.x), silu(v.y)), u.p[i]);
    }
    memcpy(&out, &p, sizeof out);
    __stcg((uint4 *)((Bf *)y.data + row * y.stride + col), out);
}

} /* namespace */

bool swiglu_fused_fits(const ActMul *a) {
    const Tensor *all[] = {&a->y, &a->a, &a->b};
    Row row;
    if (a->kind != ACT_SILU) return false;
    for (const Tensor *t : all)
        if (!t->rank || t->dtype != BF16 || !tensor_same_shape(*t, a->y) || t->shape[t->rank - 1] % WIDE ||
            !regular(*t, WIDE, &row))
            return false;
    return true;
}

Status swiglu_fused(Exec *x, const ActMul *a) {
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
