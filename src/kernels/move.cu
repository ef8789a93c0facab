/* move.cu - CUDA reference of move.h: copies, casts, gathers, packing. One element a thread unless both sides are
 * contiguous in 16-byte pieces; these ops are a fraction of a step. */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

#include <stdio.h>

namespace {

constexpr int THREADS = 256;

static unsigned blocks_for(int64_t n) { return (unsigned)((n + THREADS - 1) / THREADS); }

/* --- copy --- */

template <typename To, typename From, int N>
__global__ void k_copy(rows::View y, rows::View in, rows::Walk w) {
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (i >= w.rows * w.cols) return;
    int64_t row = i / w.cols, col = i - row * w.cols;
    const From *from = (const From *)in.data + rows::offset(in, w, row) + col * in.last;
    To *to = (To *)y.data + rows::offset(y, w, row) + col * y.last;
    float v[N];
    if (N > 1) {
        rows::load<From, N>(v, from);
        rows::store<To, N>(to, v);
    } else {
        *to = rows::narrow<To>(rows::widen<From>(*from));
    }
}

/* Integers only move onto themselves: bytes, no conversion. */
template <typename T> __global__ void k_copy_raw(rows::View y, rows::View in, rows::Walk w) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= w.rows * w.cols) return;
    int64_t row = i / w.cols, col = i - row * w.cols;
    ((T *)y.data)[rows::offset(y, w, row) + col * y.last] = ((const T *)in.data)[rows::offset(in, w, row) + col * in.last];
}

template <typename To, typename From> void launch_copy(Exec *x, rows::View y, rows::View in, const rows::Walk &w) {
    constexpr int N = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
    int64_t n = w.rows * w.cols;
    if (rows::vectorable<To>(y, w, N) && rows::vectorable<From>(in, w, N))
        k_copy<To, From, N><<<blocks_for(n / N), THREADS, 0, x->cuda->stream>>>(y, in, w);
    else k_copy<To, From, 1><<<blocks_for(n), THREADS, 0, x->cuda->stream>>>(y, in, w);
}

template <typename To> bool copy_from(Exec *x, DType from, rows::View y, rows::View in, const rows::Walk &w) {
    switch (from) {
    case F32: launch_copy<To, float>(x, y, in, w); return true;
    case BF16: launch_copy<To, __nv_bfloat16>(x, y, in, w); return true;
    case F16: launch_copy<To, __half>(x, y, in, w); return true;
    default: return false;
    }
}

Status copy_cuda(Exec *x, const void *args) {
    Copy a = *(const Copy *)args;
    if (!tensor_same_shape(a.y, a.x)) return fail(x->error, ERR_MODEL, "copy: shapes differ");
    Tensor *both[] = {&a.y, &a.x};
    rows::flatten(2, both);
    rows::Walk w = rows::walk_of(a.y);
    if (!w.rows || !w.cols) return OK;
    rows::View y = rows::view_of(a.y, w), in = rows::view_of(a.x, w);
    unsigned blocks = blocks_for(w.rows * w.cols);
    bool done = false;
    if (a.y.dtype == F32) done = copy_from<float>(x, a.x.dtype, y, in, w);
    else if (a.y.dtype == BF16) done = copy_from<__nv_bfloat16>(x, a.x.dtype, y, in, w);
    else if (a.y.dtype == F16) done = copy_from<__half>(x, a.x.dtype, y, in, w);
    else if (a.y.dtype == a.x.dtype && dtype_size(a.y.dtype) == 1)
        k_copy_raw<uint8_t><<<blocks, THREADS, 0, x->cuda->stream>>>(y, in, w), done = true;
    else if (a.y.dtype == a.x.dtype && dtype_size(a.y.dtype) == 4)
        k_copy_raw<uint32_t><<<blocks, THREADS, 0, x->cuda->stream>>>(y, in, w), done = true;
    if (!done)
        return fail(x->error, ERR_MODEL, "copy: cannot copy %s to %s", dtype_name(a.x.dtype), dtype_name(a.y.dtype));
    return cuda_launched(x, "copy");
}

/* --- gathers --- */

template <typename To, typename From>
__global__ void k_embed(To *y, int64_t y_row, const int32_t *ids, const From *table, int64_t d, int64_t vocab,
                        bool to_bf16) {
    int64_t id = ids[blockIdx.x];
    bool known = id >= 0 && id < vocab; /* the pipeline checks ids; outside the table rows are zero, never a fault */
    for (int64_t i = threadIdx.x; i < d; i += blockDim.x) {
        float v = known ? rows::widen<From>(table[id * d + i]) : 0.0f;
        if (to_bf16) v = rows::r<__nv_bfloat16>(v);
        y[blockIdx.x * y_row + i] = rows::narrow<To>(v);
    }
}

template <typename To> bool embed_from(Exec *x, const Embed *a) {
    const Weight *t = a->table;
    unsigned tokens = (unsigned)a->ids.shape[0];
    int64_t d = t->w.shape[1], vocab = t->w.shape[0];
    const int32_t *ids = (const int32_t *)a->ids.data;
    bool round = t->round == BF16;
    cudaStream_t s = x->cuda->stream;
    To *y = (To *)a->y.data;
#define LAUNCH(From)                                                                                     \
    k_embed<<<tokens, THREADS, 0, s>>>(y, a->y.stride[0], ids, (const From *)t->w.data, d, vocab, round)
    switch (t->w.dtype) {
    case F32: LAUNCH(float); return true;
    case BF16: LAUNCH(__nv_bfloat16); return true;
    case F16: LAUNCH(__half); return true;
    default: return false;
    }
#undef LAUNCH
}

Status embed_cuda(Exec *x, const void *args) {
    const Embed *a = (const Embed *)args;
    if (!a->ids.shape[0]) return OK;
    bool done = a->y.dtype == BF16 ? embed_from<__nv_bfloat16>(x, a) : a->y.dtype == F32 && embed_from<float>(x, a);
    if (!done)
        return fail(x->error, ERR_MODEL, "embed: cannot gather %s rows of %s", dtype_name(a->table->w.dtype), a->table->name);
    return cuda_launched(x, "embed");
}

template <typename To, typename From>
__global__ void k_rel_bias(To *y, const From *table, int64_t queries, int64_t keys, int heads, int buckets, float log_span,
                           int64_t sh, int64_t sq, int64_t sk, bool to_bf16) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= queries * keys) return;
    int64_t q = i / keys, k = i - q * keys;
    int n = buckets / 2, exact = n / 2;
    int64_t distance = k > q ? k - q : q - k;
    int bucket = (int)distance;
    if (distance >= exact) {
        int far = exact + (int)(logf((float)distance / (float)exact) * log_span * (float)(n - exact));
        bucket = far < n - 1 ? far : n - 1;
    }
    bucket += k > q ? n : 0;
    for (int h = 0; h < heads; h++) {
        float v = rows::widen<From>(table[(int64_t)bucket * heads + h]);
        y[h * sh + q * sq + k * sk] = rows::narrow<To>(to_bf16 ? rows::r<__nv_bfloat16>(v) : v);
    }
}

template <typename To> bool rel_bias_from(Exec *x, const RelBias *a) {
    const Weight *t = a->table;
    int64_t q = a->y.shape[1], k = a->y.shape[2];
    int heads = (int)t->w.shape[1], buckets = (int)t->w.shape[0];
    /* PyTorch divides a tensor by a Python number: a multiplication by the f32 reciprocal on CUDA */
    float span = 1.0f / (float)log((double)a->max_distance / (double)(buckets / 4));
    const int64_t *s = a->y.stride;
    To *y = (To *)a->y.data;
    bool round = t->round == BF16;
#define LAUNCH(From)                                                                                     \
    k_rel_bias<<<blocks_for(q * k), THREADS, 0, x->cuda->stream>>>(y, (const From *)t->w.data, q, k, heads, buckets, span, \
                                                                   s[0], s[1], s[2], round)
    switch (t->w.dtype) {
    case F32: LAUNCH(float); return true;
    case BF16: LAUNCH(__nv_bfloat16); return true;
    case F16: LAUNCH(__half); return true;
    default: return false;
    }
#undef LAUNCH
}

Status rel_bias_cuda(Exec *x, const void *args) {
    const RelBias *a = (const RelBias *)args;
    bool done = a->y.dtype == BF16 ? rel_bias_from<__nv_bfloat16>(x, a) : a->y.dtype == F32 && rel_bias_from<float>(x, a);
    if (!done) return fail(x->error, ERR_MODEL, "rel_bias: table %s is %s", a->table->name, dtype_name(a->table->w.dtype));
    return cuda_launched(x, "rel_bias");
}

/* --- FLUX packing: the same index map both ways --- */

template <typename T>
__global__ void k_pack(T *packed, int64_t token_stride, int64_t channel_stride, T *plain, int64_t sc, int64_t sy, int64_t sx,
                       int64_t channels, int64_t height, int64_t width, bool unpack) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= channels * height * width) return;
    int64_t c = i % channels, px = i / channels % width, py = i / (channels * width);
    T *a = packed + ((py >> 1) * (width / 2) + (px >> 1)) * token_stride + (c * 4 + (py & 1) * 2 + (px & 1)) * channel_stride;
    T *b = plain + c * sc + py * sy + px * sx;
    if (unpack) *b = *a;
    else *a = *b;
}

Status pack_run(Exec *x, Tensor packed, Tensor plain, bool channels_last, const char *op) {
    int dc = channels_last ? 2 : 0, dy = channels_last ? 0 : 1, dx = channels_last ? 1 : 2;
    int64_t c = plain.shape[dc], h = plain.shape[dy], w = plain.shape[dx], n = c * h * w;
    if (packed.dtype != plain.dtype || (dtype_size(plain.dtype) != 2 && dtype_size(plain.dtype) != 4))
        return fail(x->error, ERR_MODEL, "%s: dtypes %s and %s", op, dtype_name(packed.dtype), dtype_name(plain.dtype));
    if (!n) return OK;
#define LAUNCH(T)                                                                                        \
    k_pack<<<blocks_for(n), THREADS, 0, x->cuda->stream>>>((T *)packed.data, packed.stride[0], packed.stride[1], \
                                                           (T *)plain.data, plain.stride[dc], plain.stride[dy],  \
                                                           plain.stride[dx], c, h, w, channels_last)
    if (dtype_size(plain.dtype) == 2) LAUNCH(uint16_t);
    else LAUNCH(uint32_t);
#undef LAUNCH
    return cuda_launched(x, op);
}

Status pack_cuda(Exec *x, const void *args) {
    const Pack *a = (const Pack *)args;
    return pack_run(x, a->y, a->x, false, "pack");
}

Status unpack_cuda(Exec *x, const void *args) {
    const Unpack *a = (const Unpack *)args;
    return pack_run(x, a->x, a->y, true, "unpack");
}

/* A GPU's tables are copies at aligned addresses (weights_bind). */
bool table_aligned(const Weight *t, char *why, size_t size) {
    bool fine = (uintptr_t)t->w.data % dtype_size(t->w.dtype) == 0;
    if (!fine) snprintf(why, size, "%s: table at an address that is no multiple of its element size", t->name);
    return fine;
}
bool embed_accepts(const void *args, char *why, size_t size) {
    return table_aligned(((const Embed *)args)->table, why, size);
}
bool rel_bias_accepts(const void *args, char *why, size_t size) {
    return table_aligned(((const RelBias *)args)->table, why, size);
}

} /* namespace */

const Impl MOVE_CUDA[] = {
    {OP_copy, "cuda", copy_cuda, NULL, NULL},         {OP_embed, "cuda", embed_cuda, NULL, embed_accepts},
    {OP_rel_bias, "cuda", rel_bias_cuda, NULL, rel_bias_accepts}, {OP_pack, "cuda", pack_cuda, NULL, NULL},
    {OP_unpack, "cuda", unpack_cuda, NULL, NULL},
};
const int MOVE_CUDA_COUNT = sizeof MOVE_CUDA / sizeof *MOVE_CUDA;
