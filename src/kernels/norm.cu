/* norm.cu - CUDA reference of norm.h: LayerNorm, adaLN, RMS norms, QK norm with RoPE.
 *
 * Reduction orders are PyTorch 2.11's, so that the bits are: 128 threads a row, thread t takes the 4-element vectors
 * t, t + 128, ..., warps merge by shuffle-down, then warps 2 and 3 into 0 and 1, then 1 into 0 (LayerNorm,
 * torch.nn.RMSNorm); the mean chain of T5's norm has one warp a row and four accumulators from 16 rows on, a row-count
 * dependent order below, and reads no vectors in rows below 128 elements.
 * Easy to get wrong: Welford merges are not symmetric; var is a true division; rsqrtf, not 1/sqrtf. */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

using rows::r;

namespace {

constexpr int WARPS = 4, THREADS = 32 * WARPS, VEC = 4;
constexpr int NARROW = 128; /* of the mean chain */
constexpr unsigned ALL = 0xffffffffu;

/* --- rows of 4-element vectors --- */

struct Row {
    int64_t d;
    bool wide; /* aligned and d % 4 == 0 */
};

template <typename T> __device__ inline int read(float v[VEC], const T *row, int64_t vec, const Row &w) {
    if (w.wide) {
        rows::load<T, VEC>(v, row + vec * VEC);
        return VEC;
    }
    int n = 0;
    for (; n < VEC && vec * VEC + n < w.d; n++) v[n] = rows::widen<T>(row[vec * VEC + n]);
    return n;
}

template <typename T> __device__ inline void write(T *row, int64_t vec, const float v[VEC], int n) {
    if (n == VEC && (uintptr_t)(row + vec * VEC) % (VEC * sizeof(T)) == 0) {
        rows::store<T, VEC>(row + vec * VEC, v);
        return;
    }
    for (int i = 0; i < n; i++) row[vec * VEC + i] = rows::narrow<T>(v[i]);
}

/* --- statistics --- */

struct Welford {
    float mean, s, n;
};

__device__ inline void push(Welford &w, float v) {
    float delta = v - w.mean;
    w.n += 1.0f;
    w.mean = fmaf(delta, 1.0f / w.n, w.mean);
    w.s = fmaf(delta, v - w.mean, w.s);
}

/* own and other as PyTorch's kernel orders them: not symmetric in the last bit. */
__device__ inline Welford merge(Welford own, Welford other) {
    const Welford &a = other, &b = own;
    float n = a.n + b.n;
    if (n == 0.0f) return {0.0f, 0.0f, 0.0f};
    float inverse = 1.0f / n, fa = a.n * inverse, fb = b.n * inverse, delta = b.mean - a.mean;
    Welford out;
    out.mean = fmaf(a.mean, fa, b.mean * fb);
    out.s = fmaf(delta * delta * a.n, fb, a.s + b.s);
    out.n = n;
    return out;
}

__device__ inline Welford shuffle_down(Welford w, int by) {
    return {__shfl_down_sync(ALL, w.mean, by), __shfl_down_sync(ALL, w.s, by), __shfl_down_sync(ALL, w.n, by)};
}

/* The row's statistics in every thread of a THREADS block. */
template <typename S, typename Merge, typename Shuffle>
__device__ inline S block_reduce(S mine, S *shared, Merge merge_two, Shuffle down) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int by = 16; by; by /= 2) mine = merge_two(mine, down(mine, by));
    for (int upper = WARPS; upper > 1; upper /= 2) {
        if (lane == 0 && warp >= upper / 2 && warp < upper) shared[warp - upper / 2] = mine;
        __syncthreads();
        if (lane == 0 && warp < upper / 2) mine = merge_two(mine, shared[warp]);
        __syncthreads();
    }
    if (threadIdx.x == 0) shared[0] = mine;
    __syncthreads();
    S all = shared[0];
    __syncthreads();
    return all;
}

/* Calls body(values, count, vec) for every vector of this thread. */
template <typename T, typename F> __device__ inline void each(const T *row, const Row &w, F body) {
    int64_t vectors = (w.d + VEC - 1) / VEC;
    for (int64_t v = threadIdx.x; v < vectors; v += THREADS) {
        float x[VEC];
        int n = read<T>(x, row, v, w);
        body(x, n, v);
    }
}

template <typename T> __device__ inline void layer_stats(const T *row, const Row &w, float eps, float *mean, float *rstd) {
    __shared__ Welford shared[WARPS];
    Welford mine = {0.0f, 0.0f, 0.0f};
    each(row, w, [&](const float *x, int n, int64_t) {
        for (int i = 0; i < n; i++) push(mine, x[i]);
    });
    Welford all = block_reduce(mine, shared, [](Welford own, Welford other) { return merge(own, other); },
                               [](Welford a, int by) { return shuffle_down(a, by); });
    *mean = all.mean;
    *rstd = rsqrtf(all.s / (float)w.d + eps);
}

__device__ inline float block_sum(float mine) {
    __shared__ float shared[WARPS];
    return block_reduce(mine, shared, [](float own, float other) { return own + other; },
                        [](float a, int by) { return __shfl_down_sync(ALL, a, by); });
}

/* --- LayerNorm and adaLN: one block a row; the second read of the row comes from the L1 --- */

template <typename T>
__global__ void __launch_bounds__(THREADS)
    k_layernorm(rows::View y, rows::View x, const T *weight, const T *bias, rows::Walk w, Row row, float eps) {
    const T *in = (const T *)x.data + rows::offset(x, w, blockIdx.x);
    T *out = (T *)y.data + rows::offset(y, w, blockIdx.x);
    float mean, rstd;
    layer_stats(in, row, eps, &mean, &rstd);
    each(in, row, [&](float *v, int n, int64_t vec) {
        for (int i = 0; i < n; i++)
            v[i] = fmaf(rows::widen<T>(weight[vec * VEC + i]), rstd * (v[i] - mean), rows::widen<T>(bias[vec * VEC + i]));
        write(out, vec, v, n);
    });
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    k_ln_modulate(rows::View y, rows::View x, rows::View scale, rows::View shift, rows::Walk w, Row row, float eps) {
    const T *in = (const T *)x.data + rows::offset(x, w, blockIdx.x);
    T *out = (T *)y.data + rows::offset(y, w, blockIdx.x);
    const T *a = (const T *)scale.data + rows::offset(scale, w, blockIdx.x);
    const T *b = shift.data ? (const T *)shift.data + rows::offset(shift, w, blockIdx.x) : NULL;
    float mean, rstd;
    layer_stats(in, row, eps, &mean, &rstd);
    each(in, row, [&](float *v, int n, int64_t vec) {
        float s[VEC], t[VEC] = {};
        read<T>(s, a, vec, row);
        if (b) read<T>(t, b, vec, row);
        for (int i = 0; i < n; i++) {
            v[i] = r<T>(r<T>(rstd * (v[i] - mean)) * r<T>(1.0f + s[i]));
            if (b) v[i] += t[i];
        }
        write(out, vec, v, n);
    });
}

/* --- RMS norms --- */

template <typename T>
__global__ void __launch_bounds__(THREADS)
    k_rms_once(rows::View y, rows::View x, const T *weight, rows::Walk w, Row row, float eps) {
    const T *in = (const T *)x.data + rows::offset(x, w, blockIdx.x);
    T *out = (T *)y.data + rows::offset(y, w, blockIdx.x);
    float sum = 0.0f;
    each(in, row, [&](const float *v, int n, int64_t) {
        for (int i = 0; i < n; i++) sum = fmaf(v[i], v[i], sum);
    });
    float rstd = rsqrtf(block_sum(sum) / (float)row.d + eps);
    each(in, row, [&](float *v, int n, int64_t vec) {
        for (int i = 0; i < n; i++) {
            v[i] = rstd * v[i];
            if (weight) v[i] = rows::widen<T>(weight[vec * VEC + i]) * v[i];
        }
        write(out, vec, v, n);
    });
}

/* x.float().pow(2).mean(-1) of PyTorch, then rsqrt, then RMS_TWICE's two rounded products or RMS_PLUS_ONE's one. blockDim
 * (W, H): W threads a row, H rows a block. W = 32 from 16 rows on; below that up to 512, halved through shared memory down to
 * a warp. Rows below NARROW elements are not read as vectors: thread t of `stride` takes elements t, t + stride, ..., in turn
 * into the four accumulators. */
template <typename T>
__global__ void k_rms_mean(rows::View y, rows::View x, const T *weight, rows::Walk w, Row row, float eps, int form, int stride) {
    extern __shared__ float shared[];
    int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    bool live = i < w.rows;
    const T *in = (const T *)x.data + (live ? rows::offset(x, w, i) : 0);
    T *out = (T *)y.data + (live ? rows::offset(y, w, i) : 0);
    int width = blockDim.x, lane = threadIdx.x;
    int64_t vectors = (row.d + VEC - 1) / VEC;
    float a[VEC] = {};
    if (row.d < NARROW) {
        for (int i = lane, k = 0; live && lane < stride && i < row.d; i += stride, k = (k + 1) % VEC) {
            float e = rows::widen<T>(in[i]);
#pragma unroll
            for (int j = 0; j < VEC; j++)
                if (j == k) a[j] = a[j] + e * e;
        }
    } else {
        for (int64_t v = lane; live && v < vectors; v += width) {
            float e[VEC];
            int n = read<T>(e, in, v, row);
            for (int k = 0; k < n; k++) a[k] = a[k] + e[k] * e[k];
        }
    }
    float sum = ((a[0] + a[1]) + a[2]) + a[3];
    float *mine = shared + threadIdx.y * width;
    mine[lane] = sum;
    for (int half = width / 2; half >= 32; half /= 2) {
        __syncthreads();
        if (lane < half) mine[lane] = sum = sum + mine[lane + half];
    }
    __syncthreads();
    if (lane < 32) {
        for (int by = 16; by; by /= 2) sum = sum + __shfl_down_sync(ALL, sum, by);
        if (lane == 0) mine[0] = rsqrtf(sum * (1.0f / (float)row.d) + eps);
    }
    __syncthreads();
    float rstd = mine[0];
    for (int64_t v = lane; live && v < vectors; v += width) {
        float e[VEC];
        int n = read<T>(e, in, v, row);
        for (int k = 0; k < n; k++) {
            e[k] = e[k] * rstd;
            if (form == RMS_TWICE) e[k] = r<T>(e[k]);
            if (form == RMS_PLUS_ONE) e[k] = e[k] * (1.0f + rows::widen<T>(weight[v * VEC + k]));
            else if (weight) e[k] = rows::widen<T>(weight[v * VEC + k]) * e[k];
        }
        write(out, v, e, n);
    }
}

/* --- QK norm and RoPE: a warp per (token, head). The order is RMS_ONCE's: what warp i of a 128-thread row would sum
 * (vectors 32 i .. 32 i + 31) is summed apart, then 2 and 3 into 0 and 1, then 1 into 0. --- */

constexpr int MAX_HEAD = THREADS * VEC, SLICES = MAX_HEAD / (32 * VEC);

struct Heads {
    char *y, *x, *w;
    int64_t heads, y_token, y_head, x_token, x_head;
};

struct Tables {
    const float *cos, *sin;
    int64_t cos_row, sin_row;
    int form;
};

/* Element p of a rotated head; v holds the normed head in f32. */
__device__ inline float rotated(const float *v, int p, int e, const float *c, const float *s, int form) {
    int half = e / 2;
    if (form == ROPE_INTERLEAVED) {
        float co = c[p / 2], si = s[p / 2];
        return p % 2 ? v[p] * co + v[p - 1] * si : v[p] * co - v[p + 1] * si;
    }
    int i = p < half ? p : p - half;
    return p < half ? v[p] * c[i] - v[p + half] * s[i] : v[p] * c[i] + v[p - half] * s[i];
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    k_qk_norm_rope(Heads q, Heads k, int64_t tokens, Row row, float eps, Tables tables) {
    __shared__ float heads[WARPS][MAX_HEAD];
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, per_token = q.heads + k.heads;
    if (i >= tokens * per_token) return;
    int64_t token = i / per_token, head = i - token * per_token;
    Heads h = head < q.heads ? q : k;
    if (head >= q.heads) head -= q.heads;
    const T *in = (const T *)h.x + token * h.x_token + head * h.x_head;
    T *out = (T *)h.y + token * h.y_token + head * h.y_head;
    int lane = threadIdx.x % 32, e = (int)row.d;
    float *normed = heads[threadIdx.x / 32], part[SLICES] = {};
    for (int slice = 0; slice * 32 * VEC < e; slice++) {
        int vec = slice * 32 + lane;
        if (vec * VEC >= e) continue;
        float v[VEC];
        int n = read<T>(v, in, vec, row);
        for (int j = 0; j < n; j++) {
            part[slice] = fmaf(v[j], v[j], part[slice]);
            normed[vec * VEC + j] = v[j];
        }
    }
    for (int slice = 0; slice * 32 * VEC < e; slice++)
        for (int by = 16; by; by /= 2) part[slice] = part[slice] + __shfl_down_sync(ALL, part[slice], by);
    float sum = __shfl_sync(ALL, (part[0] + part[2]) + (part[1] + part[3]), 0);
    float rstd = rsqrtf(sum / (float)e + eps);
    __syncwarp();
    for (int p = lane; p < e; p += 32) {
        float v = rstd * normed[p];
        if (h.w) v = rows::widen<T>(((const T *)h.w)[p]) * v;
        normed[p] = r<T>(v);
    }
    __syncwarp();
    const float *c = tables.cos + token * tables.cos_row, *s = tables.sin + token * tables.sin_row;
    for (int vec = lane; vec * VEC < e; vec += 32) {
        float v[VEC];
        int n = e - vec * VEC < VEC ? e - vec * VEC : VEC;
        for (int j = 0; j < n; j++)
            v[j] = tables.form == ROPE_NONE ? normed[vec * VEC + j] : rotated(normed, vec * VEC + j, e, c, s, tables.form);
        write(out, vec, v, n);
    }
}

/* --- launches --- */

template <typename T> Row row_of(const rows::Walk &w, std::initializer_list<rows::View> views) {
    Row out = {w.cols, true};
    for (const rows::View &v : views) out.wide = out.wide && rows::vectorable<T>(v, w, VEC);
    return out;
}

Status want(Exec *x, const char *op, Tensor y, std::initializer_list<Tensor> others) {
    if (y.dtype != F32 && y.dtype != BF16)
        return fail(x->error, ERR_MODEL, "%s: dtype %s: expected F32 or BF16", op, dtype_name(y.dtype));
    for (const Tensor &t : others)
        if (t.rank && (t.dtype != y.dtype || t.stride[t.rank - 1] != 1))
            return fail(x->error, ERR_MODEL, "%s: arguments must share a dtype and have contiguous rows", op);
    return OK;
}

template <typename T> void layernorm_typed(Exec *x, const LayerNorm *a) {
    rows::Walk w = rows::walk_of(a->y);
    rows::View y = rows::view_of(a->y, w), in = rows::view_of(a->x, w);
    k_layernorm<T><<<(unsigned)w.rows, THREADS, 0, x->cuda->stream>>>(y, in, (const T *)a->w.data, (const T *)a->b.data, w,
                                                                      row_of<T>(w, {y, in}), a->eps);
}

Status layernorm_cuda(Exec *x, const void *args) {
    const LayerNorm *a = (const LayerNorm *)args;
    TRY(want(x, "layernorm", a->y, {a->x, a->w, a->b}));
    if (!a->w.rank || !a->b.rank) return fail(x->error, ERR_MODEL, "layernorm: needs weight and bias");
    if (!tensor_numel(a->y)) return OK;
    if (a->y.dtype == BF16) layernorm_typed<__nv_bfloat16>(x, a);
    else layernorm_typed<float>(x, a);
    return cuda_launched(x, "layernorm");
}

template <typename T> void ln_modulate_typed(Exec *x, const LnModulate *a) {
    rows::Walk w = rows::walk_of(a->y);
    rows::View y = rows::view_of(a->y, w), in = rows::view_of(a->x, w);
    rows::View scale = rows::view_of(a->scale, w), shift = rows::view_of(a->shift, w);
    k_ln_modulate<T><<<(unsigned)w.rows, THREADS, 0, x->cuda->stream>>>(y, in, scale, shift, w,
                                                                        row_of<T>(w, {y, in, scale, shift}), a->eps);
}

Status ln_modulate_cuda(Exec *x, const void *args) {
    const LnModulate *a = (const LnModulate *)args;
    TRY(want(x, "ln_modulate", a->y, {a->x, a->scale, a->shift}));
    if (!tensor_numel(a->y)) return OK;
    if (a->y.dtype == BF16) ln_modulate_typed<__nv_bfloat16>(x, a);
    else ln_modulate_typed<float>(x, a);
    return cuda_launched(x, "ln_modulate");
}

int64_t power_below(int64_t n, int64_t most) {
    int64_t p = 1;
    while (p * 2 <= n && p * 2 <= most) p *= 2;
    return p;
}

template <typename T> void rmsnorm_typed(Exec *x, const RmsNorm *a) {
    rows::Walk w = rows::walk_of(a->y);
    rows::View y = rows::view_of(a->y, w), in = rows::view_of(a->x, w);
    Row row = row_of<T>(w, {y, in});
    const T *weight = (const T *)a->w.data;
    if (a->form == RMS_ONCE) {
        k_rms_once<T><<<(unsigned)w.rows, THREADS, 0, x->cuda->stream>>>(y, in, weight, w, row, a->eps);
        return;
    }
    /* PyTorch's block shape; fewer than a warp: lanes beyond add zeros */
    int64_t p = power_below(w.cols < NARROW ? w.cols : w.cols / VEC, 512), fill = 512 / (p < 32 ? p : 32);
    int64_t height = power_below(w.rows, 512) < fill ? power_below(w.rows, 512) : fill;
    int64_t stride = p < 512 / height ? p : 512 / height, width = stride < 32 ? 32 : stride;
    if (width == 32) height = 4; /* any will do */
    dim3 grid((unsigned)((w.rows + height - 1) / height)), block((unsigned)width, (unsigned)height);
    size_t shared = (size_t)(width * height) * sizeof(float);
    k_rms_mean<T><<<grid, block, shared, x->cuda->stream>>>(y, in, weight, w, row, a->eps, a->form, (int)stride);
}

Status rmsnorm_cuda(Exec *x, const void *args) {
    const RmsNorm *a = (const RmsNorm *)args;
    TRY(want(x, "rmsnorm", a->y, {a->x, a->w}));
    if (a->form < RMS_ONCE || a->form > RMS_PLUS_ONE || (a->form == RMS_PLUS_ONE && !a->w.rank))
        return fail(x->error, ERR_MODEL, "rmsnorm: form %d is unknown, or needs a weight", (int)a->form);
    if (!tensor_numel(a->y)) return OK;
    if (a->y.dtype == BF16) rmsnorm_typed<__nv_bfloat16>(x, a);
    else rmsnorm_typed<float>(x, a);
    return cuda_launched(x, "rmsnorm");
}

Heads heads_of(Tensor y, Tensor x, Tensor w) {
    if (!y.rank) return Heads{};
    return Heads{(char *)y.data, (char *)x.data, (char *)w.data, y.shape[1], y.stride[0], y.stride[1], x.stride[0], x.stride[1]};
}

template <typename T> bool heads_wide(const Heads &h, int64_t e) {
    uint64_t bytes = VEC * sizeof(T);
    return !h.x || (e % VEC == 0 && (uintptr_t)h.x % bytes == 0 && h.x_token % VEC == 0 && h.x_head % VEC == 0);
}

template <typename T> void qk_typed(Exec *x, const QkNormRopeHead *a) {
    Heads q = heads_of(a->yq, a->q, a->wq), k = heads_of(a->yk, a->k, a->wk);
    int64_t tokens = a->yq.shape[0], warps = tokens * (q.heads + k.heads);
    Row row = {a->yq.shape[2], heads_wide<T>(q, a->yq.shape[2]) && heads_wide<T>(k, a->yq.shape[2])};
    k_qk_norm_rope<T><<<(unsigned)((warps + WARPS - 1) / WARPS), THREADS, 0, x->cuda->stream>>>(
        q, k, tokens, row, a->eps,
        Tables{(const float *)a->cos.data, (const float *)a->sin.data, a->cos.stride[0], a->sin.stride[0], a->rope});
}

bool qk_norm_rope_head_accepts(const void *args, char *why, size_t size) {
    const QkNormRopeHead *a = (const QkNormRopeHead *)args;
    if (a->form == RMS_ONCE && a->rope <= ROPE_HALF) return true;
    snprintf(why, size, "norm form %d with RoPE form %d has no CUDA kernel", (int)a->form, (int)a->rope);
    return false;
}

Status qk_norm_rope_head_cuda(Exec *x, const void *args) {
    const QkNormRopeHead *a = (const QkNormRopeHead *)args;
    TRY(want(x, "qk_norm_rope_head", a->yq, {a->yk, a->q, a->k, a->wq, a->wk}));
    int64_t e = a->yq.shape[2];
    if (e > MAX_HEAD || (a->rope != ROPE_NONE && e % 2))
        return fail(x->error, ERR_MODEL, "qk_norm_rope_head: head dim %lld: expected an even number up to %d", (long long)e,
                    MAX_HEAD);
    if (a->rope != ROPE_NONE && (!a->cos.rank || !a->sin.rank || a->cos.stride[1] != 1 || a->sin.stride[1] != 1))
        return fail(x->error, ERR_MODEL, "qk_norm_rope_head: RoPE needs cos and sin tables with contiguous rows");
    if (!tensor_numel(a->yq)) return OK;
    if (a->yq.dtype == BF16) qk_typed<__nv_bfloat16>(x, a);
    else qk_typed<float>(x, a);
    return cuda_launched(x, "qk_norm_rope_head");
}

} /* namespace */

const Impl NORM_CUDA[] = {
    {OP_layernorm, "cuda", layernorm_cuda, NULL, NULL},
    {OP_ln_modulate, "cuda", ln_modulate_cuda, NULL, NULL},
    {OP_rmsnorm, "cuda", rmsnorm_cuda, NULL, NULL},
    {OP_qk_norm_rope_head, "cuda", qk_norm_rope_head_cuda, NULL, qk_norm_rope_head_accepts},
};
const int NORM_CUDA_COUNT = sizeof NORM_CUDA / sizeof *NORM_CUDA;
