/* qk_mean_fused.cu - QK norm in two roundings and RoPE in one pass over heads of 128, BF16: the family qk-mean-norm-rope.
 *
 * A warp takes a few heads of one token, all loaded before the first is summed; q and k are views with any token and head
 * strides, so that they may be slices of one product's rows. A head is one vector a lane, so the order of its sum is the
 * mean chain's for any number of heads (cuda_four.cuh). The forms with one rounding are norm.cu's.
 * Easy to get wrong: the complex form has its fused multiply-adds, the others have none. */
#include "kernels/cuda_four.cuh"
#include "kernels/registry.h"

namespace {

using namespace four;

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int HEAD = 128, TOGETHER = 6; /* heads of a warp */

struct Heads {
    char *y, *x;
    const Four *w;
    int heads;
    int64_t y_token, y_head, x_token, x_head;
};

struct Tables {
    const float *cos, *sin;
    int64_t cos_row, sin_row;
};

__device__ inline float2 complex_product(float x0, float x1, float c, float s) {
    return make_float2(fmaf(x0, c, -(x1 * s)), fmaf(x0, s, x1 * c));
}
__device__ inline float2 plain_product(float x0, float x1, float c, float s) {
    return make_float2(x0 * c - x1 * s, x1 * c + x0 * s);
}
__device__ inline Two eager_sum(Two x, Two other, float2 c, float2 s) { /* s has the sign of the half */
    float2 a = __bfloat1622float2(x), b = __bfloat1622float2(other);
    return __hadd2_rn(__floats2bfloat162_rn(a.x * c.x, a.y * c.y), __floats2bfloat162_rn(b.x * s.x, b.y * s.y));
}

/* The four elements of a lane, rotated; c and s: those of its pairs. */
template <int FORM> __device__ inline Four rotated(Four v, const float4 &c, const float4 &s) {
    if (FORM == ROPE_NONE) return v;
    if (FORM == ROPE_HALF_EAGER) { /* partners are 16 lanes away */
        Four other;
        other.p[0] = __shfl_xor_sync(ALL, v.p[0], 16);
        other.p[1] = __shfl_xor_sync(ALL, v.p[1], 16);
        return {{eager_sum(v.p[0], other.p[0], make_float2(c.x, c.y), make_float2(s.x, s.y)),
                 eager_sum(v.p[1], other.p[1], make_float2(c.z, c.w), make_float2(s.z, s.w))}};
    }
    float4 x = widen(v);
    float2 a = FORM == ROPE_COMPLEX ? complex_product(x.x, x.y, c.x, s.x) : plain_product(x.x, x.y, c.x, s.x);
    float2 b = FORM == ROPE_COMPLEX ? complex_product(x.z, x.w, c.y, s.y) : plain_product(x.z, x.w, c.y, s.y);
    return narrow(make_float4(a.x, a.y, b.x, b.y));
}

template <int FORM> __device__ inline void angles(float4 *c, float4 *s, const Tables &t, int64_t token, int lane) {
    if (FORM == ROPE_NONE) return;
    const float *cosine = t.cos + token * t.cos_row, *sine = t.sin + token * t.sin_row;
    if (FORM == ROPE_HALF_EAGER) {
        *c = *(const float4 *)(cosine + 4 * (lane % 16));
        *s = *(const float4 *)(sine + 4 * (lane % 16));
        if (lane < 16) *s = make_float4(-s->x, -s->y, -s->z, -s->w);
    } else {
        float2 a = *(const float2 *)(cosine + 2 * lane), b = *(const float2 *)(sine + 2 * lane);
        *c = make_float4(a.x, a.y, 0.0f, 0.0f);
        *s = make_float4(b.x, b.y, 0.0f, 0.0f);
    }
}

template <int FORM>
__global__ void __launch_bounds__(THREADS)
    k_qk_norm_rope(Heads q, Heads k, int64_t tokens, int groups, float eps, Tables tables) {
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, token = i / groups;
    if (token >= tokens) return;
    int lane = threadIdx.x % 32, first = (int)(i - token * groups) * TOGETHER, all = q.heads + k.heads;
    Four v[TOGETHER];
    float4 c, s;
#pragma unroll
    for (int j = 0; j < TOGETHER; j++) {
        int h = first + j < all ? first + j : all - 1; /* beyond the last: the last again, not written */
        const Bf *x = h < q.heads ? (const Bf *)q.x + token * q.x_token + h * q.x_head
                                  : (const Bf *)k.x + token * k.x_token + (h - q.heads) * k.x_head;
        v[j] = get((const Four *)x + lane);
    }
    angles<FORM>(&c, &s, tables, token, lane);
    Four wq = constant(q.w + lane), wk = constant(k.w + lane);
#pragma unroll
    for (int j = 0; j < TOGETHER; j++) {
        int h = first + j;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        square(sum, v[j]);
        float rstd = finish(sum, 1.0f / (float)HEAD, eps);
        Four w = {{h < q.heads ? wq.p[0] : wk.p[0], h < q.heads ? wq.p[1] : wk.p[1]}}; /* the whole would go through memory */
        Four out = rotated<FORM>(normed(v[j], rstd, w), c, s);
        if (h >= all) continue;
        Bf *y = h < q.heads ? (Bf *)q.y + token * q.y_token + h * q.y_head
                            : (Bf *)k.y + token * k.y_token + (h - q.heads) * k.y_head;
        put((Four *)y + lane, out);
    }
}

bool fits_heads(const char *name, const Tensor &y, const Tensor &x, const Tensor &w, char *why, size_t size) {
    const Tensor *both[] = {&y, &x};
    for (const Tensor *t : both)
        if (t->rank != 3 || t->dtype != BF16 || t->shape[2] != HEAD || t->stride[2] != 1 || t->stride[0] % VEC ||
            t->stride[1] % VEC || (uintptr_t)t->data % (VEC * sizeof(Bf)))
            REFUSE("%s is not [tokens, heads, %d] of BF16, aligned to %d elements", name, HEAD, VEC);
    if (w.rank != 1) REFUSE("%s has no weight", name);
    return fits_one(name, w, HEAD, why, size);
}

bool qk_accepts(const void *args, char *why, size_t size) {
    const QkNormRopeHead *a = (const QkNormRopeHead *)args;
    if (a->form != RMS_TWICE || a->rope == ROPE_HALF) REFUSE("norm form %d with RoPE form %d", (int)a->form, (int)a->rope);
    if (!fits_heads("q", a->yq, a->q, a->wq, why, size) || !fits_heads("k", a->yk, a->k, a->wk, why, size)) return false;
    const Tensor *tables[] = {&a->cos, &a->sin};
    for (const Tensor *t : tables)
        if (a->rope != ROPE_NONE && (t->rank != 2 || t->stride[1] != 1 || t->stride[0] % 4 || (uintptr_t)t->data % 16))
            REFUSE("the RoPE tables are not aligned to 16 bytes");
    return true;
}

Heads heads_of(const Tensor &y, const Tensor &x, const Tensor &w) {
    return Heads{(char *)y.data, (char *)x.data, (const Four *)w.data, (int)y.shape[1], y.stride[0], y.stride[1], x.stride[0],
                 x.stride[1]};
}

Status qk_fused(Exec *x, const void *args) {
    const QkNormRopeHead *a = (const QkNormRopeHead *)args;
    Heads q = heads_of(a->yq, a->q, a->wq), k = heads_of(a->yk, a->k, a->wk);
    int64_t tokens = a->yq.shape[0];
    int groups = (q.heads + k.heads + TOGETHER - 1) / TOGETHER;
    unsigned blocks = (unsigned)((tokens * groups + WARPS - 1) / WARPS);
    if (!blocks) return OK;
    Tables t = {(const float *)a->cos.data, (const float *)a->sin.data, a->cos.stride[0], a->sin.stride[0]};
    cudaStream_t stream = x->cuda->stream;
#define LAUNCH(FORM) k_qk_norm_rope<FORM><<<blocks, THREADS, 0, stream>>>(q, k, tokens, groups, a->eps, t)
    if (a->rope == ROPE_COMPLEX) LAUNCH(ROPE_COMPLEX);
    else if (a->rope == ROPE_HALF_EAGER) LAUNCH(ROPE_HALF_EAGER);
    else if (a->rope == ROPE_INTERLEAVED) LAUNCH(ROPE_INTERLEAVED);
    else LAUNCH(ROPE_NONE);
#undef LAUNCH
    return cuda_launched(x, "qk_norm_rope_head");
}

} /* namespace */

const Impl QK_MEAN_NORM_CUDA[] = {{OP_qk_norm_rope_head, "cuda_mean_rope", qk_fused, NULL, qk_accepts}};
