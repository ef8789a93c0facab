/* norm_mean.cu - CUDA reference of the composites around the mean-chain RMS norm (RMS_TWICE): rmsnorm_scale, residual_norm,
 * residual_norm_scale, and QK norm with RoPE in every form. Each is the unfused chain: the table's rmsnorm, then element-wise
 * kernels with PyTorch's own steps, so that what a fused variant is compared with at first sight shares none of its code.
 *
 * Not fast: norm_mean_fused.cu is. norm.cu's one-kernel QK norm stands before this one in the table.
 * Easy to get wrong: y may be the residual, so the normed rows go through scratch; the complex product is contracted by
 * PyTorch's build while the rest of its kernels are not, and only there may fmaf stand. */
#include "kernels/cuda_pieces.h"
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

using rows::r;

namespace {

/* --- element-wise steps --- */

template <typename T> struct ScaleF { /* r(v * r(1 + scale)) */
    static constexpr int INPUTS = 2;
    __device__ float operator()(float v, float scale, float) const { return v * r<T>(1.0f + scale); }
};

template <typename T> struct TanhGateF { /* r(residual + r(r(tanh(gate)) * v)) */
    static constexpr int INPUTS = 3;
    __device__ float operator()(float residual, float v, float gate) const { return residual + r<T>(r<T>(tanhf(gate)) * v); }
};

/* --- the chains --- */

Status want(Exec *x, const char *op, Tensor y, std::initializer_list<Tensor> rows, std::initializer_list<Tensor> one) {
    if (y.dtype != F32 && y.dtype != BF16)
        return fail(x->error, ERR_MODEL, "%s: dtype %s: expected F32 or BF16", op, dtype_name(y.dtype));
    for (const Tensor &t : rows)
        if (t.dtype != y.dtype || !tensor_same_shape(t, y) || t.stride[t.rank - 1] != 1)
            return fail(x->error, ERR_MODEL, "%s: x, y and residual must share shape and dtype and have contiguous rows", op);
    for (const Tensor &t : one)
        if (t.rank && (t.dtype != y.dtype || tensor_numel(t) != y.shape[y.rank - 1] || t.stride[t.rank - 1] != 1))
            return fail(x->error, ERR_MODEL, "%s: w, gate and scale must be single rows of x's dtype", op);
    return OK;
}

Status norm_twice(Exec *x, Tensor y, Tensor in, Tensor w, float eps) {
    RmsNorm a = {};
    a.y = y, a.x = in, a.w = w, a.eps = eps, a.form = RMS_TWICE;
    return cuda_pieces_op(x, OP_rmsnorm, &a);
}

Status rmsnorm_scale_cuda(Exec *x, const void *args) {
    const RmsNormScale *a = (const RmsNormScale *)args;
    TRY(want(x, "rmsnorm_scale", a->y, {a->x}, {a->w, a->scale}));
    if (!a->w.rank) return fail(x->error, ERR_MODEL, "rmsnorm_scale: needs a weight");
    TRY(norm_twice(x, a->y, a->x, a->w, a->eps));
    return a->scale.rank ? rows::map<ScaleF>(x, "rmsnorm_scale", a->y, a->y, a->scale, Tensor{}) : OK;
}

size_t normed_bytes(Tensor x) {
    return arena_rounded((size_t)tensor_numel(x) * dtype_size(x.dtype));
}

size_t residual_norm_scratch(const Exec *x, const void *args) {
    (void)x;
    return normed_bytes(((const ResidualNorm *)args)->x);
}

Status residual_norm_cuda(Exec *x, const void *args) {
    const ResidualNorm *a = (const ResidualNorm *)args;
    TRY(want(x, "residual_norm", a->y, {a->x, a->residual}, {a->w, a->gate}));
    if (!a->w.rank) return fail(x->error, ERR_MODEL, "residual_norm: needs a weight");
    if (!tensor_numel(a->y)) return OK;
    void *at = arena_push(x->scratch, normed_bytes(a->x));
    if (!at) return fail(x->error, ERR_MEMORY, "residual_norm: no scratch of %zu bytes", normed_bytes(a->x));
    Tensor normed = tensor_make(at, a->x.dtype, a->x.rank, a->x.shape);
    TRY(norm_twice(x, normed, a->x, a->w, a->eps));
    if (a->gate.rank) return rows::map<TanhGateF>(x, "residual_norm", a->y, a->residual, normed, a->gate);
    Add sum = {};
    sum.y = a->y, sum.a = a->residual, sum.b = normed;
    return cuda_pieces_op(x, OP_add, &sum);
}

size_t residual_norm_scale_scratch(const Exec *x, const void *args) {
    (void)x;
    return normed_bytes(((const ResidualNormScale *)args)->x);
}

Status residual_norm_scale_cuda(Exec *x, const void *args) {
    const ResidualNormScale *a = (const ResidualNormScale *)args;
    ResidualNorm first = {};
    first.y = a->y, first.residual = a->residual, first.x = a->x, first.w = a->w, first.gate = a->gate, first.eps = a->eps;
    TRY(residual_norm_cuda(x, &first));
    RmsNormScale then = {};
    then.y = a->n, then.x = a->y, then.w = a->w_next, then.scale = a->scale, then.eps = a->eps;
    return rmsnorm_scale_cuda(x, &then);
}

/* --- RoPE, in place on normed heads: a thread a pair --- */

constexpr int THREADS = 256;

struct Angles {
    const float *cos, *sin;
    int64_t cos_row, sin_row;
};

template <typename T>
__global__ void __launch_bounds__(THREADS)
    k_rope(T *y, int64_t token_stride, int64_t head_stride, int64_t heads, int half, int64_t pairs, Angles angles, int form) {
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= pairs) return;
    int64_t row = at / half, token = row / heads;
    int i = (int)(at - row * half);
    bool adjacent = form == ROPE_INTERLEAVED || form == ROPE_COMPLEX;
    T *p0 = y + token * token_stride + (row - token * heads) * head_stride + (adjacent ? 2 * i : i);
    T *p1 = p0 + (adjacent ? 1 : half);
    float c = angles.cos[token * angles.cos_row + i], s = angles.sin[token * angles.sin_row + i];
    float x0 = rows::widen<T>(*p0), x1 = rows::widen<T>(*p1), y0, y1;
    if (form == ROPE_COMPLEX) {
        y0 = fmaf(x0, c, -(x1 * s));
        y1 = fmaf(x0, s, x1 * c);
    } else if (form == ROPE_HALF_EAGER) {
        y0 = r<T>(x0 * c) + r<T>(-x1 * s);
        y1 = r<T>(x1 * c) + r<T>(x0 * s);
    } else {
        y0 = x0 * c - x1 * s;
        y1 = x1 * c + x0 * s;
    }
    *p0 = rows::narrow<T>(y0);
    *p1 = rows::narrow<T>(y1);
}

Status heads_chain(Exec *x, const QkNormRopeHead *a, Tensor y, Tensor in, Tensor w) {
    if (!tensor_numel(y)) return OK;
    if (a->form == RMS_NONE) {
        Copy copy = {};
        copy.y = y, copy.x = in;
        if (y.data != in.data) TRY(cuda_pieces_op(x, OP_copy, &copy));
    } else {
        RmsNorm norm = {};
        norm.y = y, norm.x = in, norm.w = w, norm.eps = a->eps, norm.form = a->form;
        TRY(cuda_pieces_op(x, OP_rmsnorm, &norm));
    }
    if (a->rope == ROPE_NONE) return OK;
    int half = (int)(y.shape[2] / 2);
    int64_t pairs = y.shape[0] * y.shape[1] * half;
    Angles angles = {(const float *)a->cos.data, (const float *)a->sin.data, a->cos.stride[0], a->sin.stride[0]};
    unsigned blocks = (unsigned)((pairs + THREADS - 1) / THREADS);
    if (y.dtype == BF16)
        k_rope<<<blocks, THREADS, 0, x->cuda->stream>>>((__nv_bfloat16 *)y.data, y.stride[0], y.stride[1], y.shape[1], half,
                                                        pairs, angles, a->rope);
    else
        k_rope<<<blocks, THREADS, 0, x->cuda->stream>>>((float *)y.data, y.stride[0], y.stride[1], y.shape[1], half, pairs,
                                                        angles, a->rope);
    return cuda_launched(x, "qk_norm_rope_head");
}

Status qk_norm_rope_head_cuda(Exec *x, const void *args) {
    const QkNormRopeHead *a = (const QkNormRopeHead *)args;
    const Tensor *all[] = {&a->yq, &a->q, &a->yk, &a->k};
    bool weightless = !a->wq.rank && !a->wk.rank;
    if (a->form < RMS_ONCE || a->form > RMS_NONE || (a->form == RMS_NONE && !weightless) ||
        a->rope < ROPE_NONE || a->rope > ROPE_COMPLEX)
        return fail(x->error, ERR_MODEL, "qk_norm_rope_head: norm form %d with RoPE form %d is unknown", (int)a->form,
                    (int)a->rope);
    for (int i = 0; i < 4; i++)
        if (all[i]->rank != 3 || all[i]->dtype != a->yq.dtype || all[i]->stride[2] != 1 ||
            !tensor_same_shape(*all[i], *all[i / 2 * 2]) || all[i]->shape[2] != a->yq.shape[2])
            return fail(x->error, ERR_MODEL, "qk_norm_rope_head: q, k and outputs must be [tokens, heads, head dim] of one "
                        "dtype, heads contiguous");
    const Tensor *tables[] = {&a->cos, &a->sin};
    for (int i = 0; i < 2 && a->rope != ROPE_NONE; i++)
        if (tables[i]->rank != 2 || tables[i]->dtype != F32 || tables[i]->stride[1] != 1 || a->yk.shape[0] != a->yq.shape[0] ||
            tables[i]->shape[0] != a->yq.shape[0] || 2 * tables[i]->shape[1] != a->yq.shape[2])
            return fail(x->error, ERR_MODEL, "qk_norm_rope_head: RoPE needs F32 tables of [%lld, %lld / 2] with contiguous rows",
                        (long long)a->yq.shape[0], (long long)a->yq.shape[2]);
    TRY(heads_chain(x, a, a->yq, a->q, a->wq));
    return heads_chain(x, a, a->yk, a->k, a->wk);
}

} /* namespace */

const Impl NORM_MEAN_CUDA[] = {
    {OP_rmsnorm_scale, "cuda", rmsnorm_scale_cuda, NULL, NULL},
    {OP_residual_norm, "cuda", residual_norm_cuda, residual_norm_scratch, NULL},
    {OP_residual_norm_scale, "cuda", residual_norm_scale_cuda, residual_norm_scale_scratch, NULL},
    {OP_qk_norm_rope_head, "cuda_chain", qk_norm_rope_head_cuda, NULL, NULL},
};
const int NORM_MEAN_CUDA_COUNT = sizeof NORM_MEAN_CUDA / sizeof *NORM_MEAN_CUDA;
