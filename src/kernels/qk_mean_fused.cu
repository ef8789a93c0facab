/* qk_mean_fused.cu - QK norm in two roundings and RoPE in one pass over heads of 128, BF16: the family qk-mean-norm-rope.
 *
 * A head is one vector of 4 in each of 32 lanes to the mean chain (cuda_four.cuh), for any number of heads. Here 16 lanes hold
 * it, vectors 2l and 2l + 1, one access of 16 bytes: the shuffles by 16, 8, 4, 2 become 8, 4, 2, 1 lanes, and the two sums of a
 * lane meet last. The first exchange lets the lower 8 lanes go on with the even vectors' sum, the upper with the odd ones': a
 * shuffle a step instead of two. A warp takes up to TOGETHER pairs of heads of one token, q's or k's, all loaded before the first
 * is summed; q and k are views with any token and head strides, so that they may be slices of one product's rows. The forms
 * with one rounding are norm.cu's.
 * Easy to get wrong: sums are exchanged, never shifted, so every lane has the same bits only because a sum of two does not
 * depend on their order; the complex form has its fused multiply-adds, the others have none. */
#include "kernels/cuda_four.cuh"
#include "kernels/registry.h"

namespace {

using namespace four;
using fast::WIDE;
using fast::Wide;

constexpr int THREADS = 128, WARPS = THREADS / 32;
constexpr int HEAD = 128, LANES = HEAD / WIDE, BESIDE = 32 / LANES; /* lanes of a head, heads of a warp at a time */
constexpr int TOGETHER = 8, HEADS = TOGETHER * BESIDE;              /* loads of a lane, heads of a warp */

struct Side {
    char *y, *x;
    const Bf *w;
    int heads, groups; /* of HEADS */
    int64_t y_token, y_head, x_token, x_head;
};

struct Args {
    Side side[2]; /* q, k */
    const float *cos, *sin;
    int64_t cos_row, sin_row, tokens;
    float eps;
};

/* --- the norm --- */

/* A vector's sum of squares, each rounded before it is added. */
__device__ inline float squares(Two low, Two high) {
    float2 a = __bfloat1622float2(low), b = __bfloat1622float2(high);
    return ((a.x * a.x + a.y * a.y) + b.x * b.x) + b.y * b.y;
}

/* rsqrt(mean of squares + eps) of the head whose LANES lanes this one belongs to. */
__device__ inline float scale_of(const Wide &v, float eps) {
    float even = squares(v.p[0], v.p[1]), odd = squares(v.p[2], v.p[3]);
    bool upper = threadIdx.x & (LANES / 2);
    float sum = (upper ? odd : even) + __shfl_xor_sync(ALL, upper ? even : odd, LANES / 2);
#pragma unroll
    for (int by = LANES / 4; by; by /= 2) sum = sum + __shfl_xor_sync(ALL, sum, by);
    sum = sum + __shfl_xor_sync(ALL, sum, LANES / 2);
    return rsqrtf(sum * (1.0f / (float)HEAD) + eps);
}

/* --- rotation --- */

/* Of this lane's elements: of pairs (2i, 2i + 1), or of each element against its partner half a head away, the sine with the
 * half's sign. */
template <int FORM> struct Angles {
    static constexpr int COUNT = FORM == ROPE_NONE ? 0 : FORM == ROPE_HALF_EAGER ? 2 : 1;
    float4 c[COUNT ? COUNT : 1], s[COUNT ? COUNT : 1];
    __device__ Angles(const Args &a, int64_t token, int lane) {
        int first = FORM == ROPE_HALF_EAGER ? lane % (LANES / 2) * WIDE : lane * (WIDE / 2);
        const float *cosine = a.cos + token * a.cos_row + first, *sine = a.sin + token * a.sin_row + first;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            c[i] = *(const float4 *)(cosine + 4 * i);
            s[i] = *(const float4 *)(sine + 4 * i);
            if (FORM == ROPE_HALF_EAGER && lane < LANES / 2) s[i] = make_float4(-s[i].x, -s[i].y, -s[i].z, -s[i].w);
        }
    }
};

/* One pair of elements. */
template <int FORM> __device__ inline Two product(Two v, float c, float s) {
    float2 x = __bfloat1622float2(v);
    if (FORM == ROPE_COMPLEX) return fast::round2(fmaf(x.x, c, -(x.y * s)), fmaf(x.x, s, x.y * c));
    return fast::round2(x.x * c - x.y * s, x.y * c + x.x * s);
}
__device__ inline Two eager_sum(Two x, Two other, float c0, float c1, float s0, float s1) {
    float2 a = __bfloat1622float2(x), b = __bfloat1622float2(other);
    return fast::add(fast::round2(a.x * c0, a.y * c1), fast::round2(b.x * s0, b.y * s1));
}

template <int FORM> __device__ inline void rotate(Wide &v, const Angles<FORM> &a) {
    if constexpr (FORM == ROPE_HALF_EAGER) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 &c = a.c[i / 2], &s = a.s[i / 2];
            Two other = __shfl_xor_sync(ALL, v.p[i], LANES / 2);
            v.p[i] = i % 2 ? eager_sum(v.p[i], other, c.z, c.w, s.z, s.w) : eager_sum(v.p[i], other, c.x, c.y, s.x, s.y);
        }
    } else if constexpr (FORM != ROPE_NONE) {
        v = Wide{{product<FORM>(v.p[0], a.c[0].x, a.s[0].x), product<FORM>(v.p[1], a.c[0].y, a.s[0].y),
                  product<FORM>(v.p[2], a.c[0].z, a.s[0].z), product<FORM>(v.p[3], a.c[0].w, a.s[0].w)}};
    }
}

/* The arguments are a constant of the grid, so that the side is looked up in place, not in a copy of every thread's own. */
template <int FORM> __global__ void __launch_bounds__(THREADS, 7) k_qk_norm_rope(const __grid_constant__ Args a) {
    unsigned groups = (unsigned)(a.side[0].groups + a.side[1].groups), group = blockIdx.x % groups;
    int64_t token = (int64_t)(blockIdx.x / groups) * WARPS + threadIdx.x / 32;
    int lane = threadIdx.x % LANES, beside = threadIdx.x % 32 / LANES, which = group >= (unsigned)a.side[0].groups;
    const Side &s = a.side[which];
    int first = ((int)group - (which ? a.side[0].groups : 0)) * HEADS, left = s.heads - first; /* all of a warp's: left */
    fast::begin();
    if (token >= a.tokens) return;
    const Bf *x = (const Bf *)s.x + token * s.x_token + (first + beside) * s.x_head + lane * WIDE;
    Bf *y = (Bf *)s.y + token * s.y_token + (first + beside) * s.y_head + lane * WIDE;
    Wide v[TOGETHER];
#pragma unroll
    for (int j = 0; j < TOGETHER; j++)
        v[j] = BESIDE * j + beside < left ? fast::get<4>(x + BESIDE * j * s.x_head) : fast::filled<4>(fast::both(0.0f));
    Angles<FORM> angles(a, token, lane);
    Wide w = fast::get<4>(s.w + lane * WIDE);
#pragma unroll
    for (int j = 0; j < TOGETHER; j++) {
        if (BESIDE * j >= left) break; /* the same for the whole warp */
        float rstd = scale_of(v[j], a.eps);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 e = __bfloat1622float2(v[j].p[i]);
            v[j].p[i] = fast::mul(fast::round2(e.x * rstd, e.y * rstd), w.p[i]);
        }
        rotate<FORM>(v[j], angles);
        if (BESIDE * j + beside < left) fast::put(y + BESIDE * j * s.y_head, v[j]);
    }
}

bool fits_heads(const char *name, const Tensor &y, const Tensor &x, const Tensor &w, char *why, size_t size) {
    const Tensor *both[] = {&y, &x};
    for (const Tensor *t : both)
        if (t->rank != 3 || t->dtype != BF16 || t->shape[2] != HEAD || t->stride[2] != 1 || t->stride[0] % WIDE ||
            t->stride[1] % WIDE || (uintptr_t)t->data % (WIDE * sizeof(Bf)))
            REFUSE("%s is not [tokens, heads, %d] of BF16, aligned to %d elements", name, HEAD, WIDE);
    if (w.rank != 1 || (uintptr_t)w.data % (WIDE * sizeof(Bf))) REFUSE("%s has no weight, aligned to %d elements", name, WIDE);
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

Side side_of(const Tensor &y, const Tensor &x, const Tensor &w) {
    return Side{(char *)y.data, (char *)x.data, (const Bf *)w.data, (int)y.shape[1], (int)fast::blocks_for(y.shape[1], HEADS),
                y.stride[0], y.stride[1], x.stride[0], x.stride[1]};
}

Status qk_fused(Exec *x, const void *args) {
    const QkNormRopeHead *q = (const QkNormRopeHead *)args;
    Args a = {{side_of(q->yq, q->q, q->wq), side_of(q->yk, q->k, q->wk)}, NULL, NULL, 0, 0, q->yq.shape[0], q->eps};
    if (q->rope != ROPE_NONE) {
        a.cos = (const float *)q->cos.data, a.sin = (const float *)q->sin.data;
        a.cos_row = q->cos.stride[0], a.sin_row = q->sin.stride[0];
    }
    unsigned blocks = fast::blocks_for(a.tokens, WARPS) * (unsigned)(a.side[0].groups + a.side[1].groups);
    if (!blocks) return OK;
    switch (q->rope) {
    case ROPE_NONE: fast::launch_early(x, k_qk_norm_rope<ROPE_NONE>, blocks, THREADS, 0, a); break;
    case ROPE_HALF_EAGER: fast::launch_early(x, k_qk_norm_rope<ROPE_HALF_EAGER>, blocks, THREADS, 0, a); break;
    case ROPE_COMPLEX: fast::launch_early(x, k_qk_norm_rope<ROPE_COMPLEX>, blocks, THREADS, 0, a); break;
    default: fast::launch_early(x, k_qk_norm_rope<ROPE_INTERLEAVED>, blocks, THREADS, 0, a); break;
    }
    return cuda_launched(x, "qk_norm_rope_head");
}

} /* namespace */

const Impl QK_MEAN_NORM_CUDA[] = {{OP_qk_norm_rope_head, "cuda_mean_rope", qk_fused, NULL, qk_accepts}};
