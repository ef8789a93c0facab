/* norm_relu_rope_fast.cu - norm_relu_rope of BF16 in one pass over its rows (the family norm-relu-rope): mean-chain norm in two
 * roundings, ReLU, rotation.
 *
 * A warp takes a row, 4 elements a lane and access, which is the order that the mean chain sums in (cuda_four.cuh); the row
 * waits in shared memory between its two passes, and the next one is fetched while this one is written. A vector is two
 * pairs, and heads are multiples of four wide, so a lane rotates what it normed.
 * Easy to get wrong: below 16 rows, and in rows below 128 elements, PyTorch sums in another order: those are the reference's;
 * y may be x, which is read before it is written; the rotation has no fused multiply-add. */
#include "kernels/chain.h"
#include "kernels/cuda_four.cuh"
#include "kernels/registry.h"

#include <cuda_pipeline_primitives.h>

namespace {

using namespace four;

constexpr int THREADS = 128, WARPS = THREADS / 32, LEAST_ROWS = 16, LEAST_COLS = 128;
constexpr int MOST_BLOCKS = 16, ROOM = 200 << 10; /* resident on a multiprocessor; bytes of its shared memory to count on */
constexpr int MOST_COLS = 4096; /* WARPS rows fit 48 KiB */

static_assert(MOST_COLS * WARPS * sizeof(Bf) <= 48 << 10, "shared memory of a block");

struct Turns {
    Row y, yr, x;
    const Four *w;
    const float *cos, *sin;
    int64_t cos_row, sin_row, rows;
    int vectors, quads; /* of a row, of a head */
    float inverse, eps;
};

/* NaN passes, and a zero has no sign. */
__device__ inline float relu(float v) { return v <= 0.0f ? 0.0f : v; }
__device__ inline Four relu(Four v) {
    float4 f = widen(v);
    return narrow(make_float4(relu(f.x), relu(f.y), relu(f.z), relu(f.w)));
}

__device__ inline Four turned(Four v, float2 c, float2 s) {
    float4 f = widen(v);
    return narrow(make_float4(f.x * c.x - f.y * s.x, f.y * c.x + f.x * s.x, f.z * c.y - f.w * s.y, f.w * c.y + f.z * s.y));
}

__device__ inline void fetch(Four *kept, const Four *x, int vectors, int lane) {
    for (int i = lane; i < vectors; i += 32) __pipeline_memcpy_async(&kept[i], &x[i], sizeof(Four));
    __pipeline_commit();
}

extern __shared__ float4 shared[]; /* WARPS rows */

__global__ void __launch_bounds__(THREADS) k_norm_relu_rope(Turns a) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, step = 32 % a.quads;
    Four *kept = (Four *)shared + warp * a.vectors;
    int64_t row = (int64_t)blockIdx.x * WARPS + warp;
    if (row < a.rows) fetch(kept, at(a.x, row), a.vectors, lane);
    for (; row < a.rows; row += (int64_t)gridDim.x * WARPS) {
        const float2 *cosine = (const float2 *)(a.cos + row * a.cos_row), *sine = (const float2 *)(a.sin + row * a.sin_row);
        Four *y = at(a.y, row), *yr = at(a.yr, row);
        __pipeline_wait_prior(0);
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 6
        for (int i = lane; i < a.vectors; i += 32) square(sum, get(kept + i));
        float rstd = finish(sum, a.inverse, a.eps);
        int place = lane % a.quads; /* of a vector in its head */
#pragma unroll 6
        for (int i = lane; i < a.vectors; i += 32) {
            Four v = relu(normed(get(kept + i), rstd, constant(a.w + i)));
            put(y + i, v);
            put(yr + i, turned(v, __ldg(cosine + place), __ldg(sine + place)));
            place += step;
            if (place >= a.quads) place -= a.quads;
        }
        int64_t next = row + (int64_t)gridDim.x * WARPS;
        if (next < a.rows) fetch(kept, at(a.x, next), a.vectors, lane);
    }
}

bool fits(const Tensor &t, Row *out) { return t.rank == 2 && regular(t, VEC, out); }

bool arrange(const NormReluRope *a, Turns *t) {
    const Tensor *tables[] = {&a->cos, &a->sin};
    int64_t d = a->y.rank == 2 ? a->y.shape[1] : 0;
    if (d < LEAST_COLS || d > MOST_COLS || d % VEC || a->y.shape[0] < LEAST_ROWS || !tensor_same_shape(a->y, a->x) ||
        !tensor_same_shape(a->y, a->yr) || !fits(a->y, &t->y) || !fits(a->yr, &t->yr) || !fits(a->x, &t->x))
        return false;
    if (a->w.rank != 1 || a->w.shape[0] != d || a->w.stride[0] != 1 || (uintptr_t)a->w.data % (VEC * sizeof(Bf))) return false;
    for (const Tensor *s : tables)
        if (s->rank != 2 || s->dtype != F32 || s->shape[0] != a->y.shape[0] || s->stride[1] != 1 || s->stride[0] % 2 ||
            s->shape[1] != a->cos.shape[1] || !s->shape[1] || s->shape[1] % 2 || d % (2 * s->shape[1]) || (uintptr_t)s->data % 8)
            return false;
    t->w = (const Four *)a->w.data;
    t->cos = (const float *)a->cos.data, t->sin = (const float *)a->sin.data;
    t->cos_row = a->cos.stride[0], t->sin_row = a->sin.stride[0];
    t->rows = a->y.shape[0];
    t->vectors = (int)(d / VEC), t->quads = (int)(a->cos.shape[1] / 2);
    t->inverse = 1.0f / (float)d, t->eps = a->eps;
    return true;
}

Status norm_relu_rope_fast(Exec *x, const void *args) {
    const NormReluRope *a = (const NormReluRope *)args;
    Turns t = {};
    if (!tensor_numel(a->y) || !arrange(a, &t)) return chain_run(x, OP_norm_relu_rope, args);
    size_t room = (size_t)(t.vectors * WARPS) * sizeof(Four);
    int64_t resident = ROOM / (int64_t)(room + 1024), blocks = (t.rows + WARPS - 1) / WARPS;
    int64_t most = (int64_t)x->cuda->sm_count * (resident < MOST_BLOCKS ? resident : MOST_BLOCKS); /* no second wave */
    k_norm_relu_rope<<<(unsigned)(blocks < most ? blocks : most), THREADS, room, x->cuda->stream>>>(t);
    return cuda_launched(x, "norm_relu_rope");
}

bool norm_relu_rope_accepts(const void *args, char *why, size_t size) {
    const NormReluRope *a = (const NormReluRope *)args;
    const Tensor *all[] = {&a->y, &a->yr, &a->x, &a->w};
    for (const Tensor *t : all)
        if (t->dtype != BF16) REFUSE("%s, expected BF16", dtype_name(t->dtype));
    return true;
}

} /* namespace */

const Impl NORM_RELU_ROPE_FAST_CUDA[] = {{OP_norm_relu_rope, "cuda_fast", norm_relu_rope_fast, NULL, norm_relu_rope_accepts}};
