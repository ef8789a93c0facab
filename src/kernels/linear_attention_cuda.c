/* linear_attention_cuda.c - CUDA reference of linear_attention by cuBLAS: the calls that PyTorch's matmuls become, with our
 * kernels for the sum of the keys and the normaliser (linear_attention.cu).
 *
 * BF16 queries, keys and values are widened to F32 first, as diffusers does, and the state is made and applied by products of
 * F32 without TF32. Their copies take turns in two buffers of scratch.
 * Easy to get wrong: cuBLAS is column-major, so a [T,H,E] view is an E x T matrix a head, T tokens apart. */
#include "kernels/cuda_pieces.h"
#include "kernels/linear_attention_pieces.h"
#include "kernels/registry.h"

#ifdef HAVE_CUDA

#include <stdio.h>

typedef struct Room {
    int blocks; /* of the sum over tokens */
    size_t sum, part, dot, state, a, b, total; /* offsets, bytes */
} Room;

/* SMs are counted when there is a GPU; a plan without one takes the most blocks that the sum can have. */
static Room room_of(const Exec *x, const LinearAttention *a) {
    int64_t tokens = a->q.shape[0], heads = a->q.shape[1], e = a->q.shape[2], width = heads * e;
    Room r = {.blocks = linear_attention_sum_blocks(x->cuda ? x->cuda->sm_count : 1 << 16, tokens, width)};
    r.sum = arena_piece(&r.total, width, a->q.dtype);
    r.part = arena_piece(&r.total, r.blocks * width, F32);
    r.dot = arena_piece(&r.total, heads * tokens, a->q.dtype);
    r.state = arena_piece(&r.total, heads * e * e, F32);
    r.b = arena_piece(&r.total, tokens * width, F32); /* values, then what S gives */
    if (a->q.dtype != F32) r.a = arena_piece(&r.total, tokens * width, F32); /* rotated keys, then rotated queries */
    return r;
}

static size_t scratch(const Exec *x, const void *args) { return room_of(x, args).total; }

static Status check(Exec *x, const LinearAttention *a) {
    static const char *const NAMES[] = {"o", "q", "k", "qr", "kr", "v"};
    const Tensor *t = &a->o;
    for (int i = 0; i < 6; i++) {
        if (t[i].rank != 3 || !tensor_same_shape(t[i], a->q) || t[i].dtype != a->q.dtype || t[i].stride[2] != 1)
            return fail(x->error, ERR_MODEL, "linear_attention: %s must be [tokens, heads, head dim] like q, heads contiguous",
                        NAMES[i]);
        if (t[i].shape[0] > 1 && t[i].stride[0] < t[i].shape[2])
            return fail(x->error, ERR_MODEL, "linear_attention: %s: tokens overlap", NAMES[i]);
    }
    if (a->q.dtype != F32 && a->q.dtype != BF16)
        return fail(x->error, ERR_MODEL, "linear_attention: %s: expected F32 or BF16", dtype_name(a->q.dtype));
    return OK;
}

/* Distance of tokens as a leading dimension: with one token it means nothing. */
static int leading(const Tensor *t) { return (int)(t->shape[0] > 1 ? t->stride[0] : t->shape[1] * t->shape[2]); }

static Status blas_fail(Exec *x, const char *what, cublasStatus_t code) {
    return code == CUBLAS_STATUS_SUCCESS ? OK
           : fail(x->error, ERR_DEVICE, "linear_attention: %s: %s", what, x->cuda->libs.cublasGetStatusName_(code));
}

/* t in F32: as it is, or copied to `to`. */
static Status wide(Exec *x, Tensor *t, void *to) {
    if (t->dtype == F32) return OK;
    Tensor copy = tensor_make(to, F32, 3, t->shape);
    TRY(cuda_pieces_op(x, OP_copy, &(Copy){.y = copy, .x = *t}));
    *t = copy;
    return OK;
}

Status linear_attention_dots(Exec *x, Tensor dot, Tensor n, Tensor q) {
    const float one = 1, zero = 0;
    cudaDataType_t type = q.dtype == BF16 ? CUDA_R_16BF : CUDA_R_32F;
    int tokens = (int)q.shape[0], e = (int)q.shape[2];
    TRY(cuda_need_blas(x->cuda, x->error));
    return blas_fail(x, "cublasGemmStridedBatchedEx",
                     x->cuda->libs.cublasGemmStridedBatchedEx_(
                         x->cuda->blas, CUBLAS_OP_T, CUBLAS_OP_N, tokens, 1, e, &one, q.data, type,
                         leading(&q), q.stride[1], n.data, type, e, e, &zero, dot.data, type, tokens, tokens,
                         (int)q.shape[1], CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

/* S[h][c][j] = sum over tokens of v[c] kr[j]. */
static Status state_of(Exec *x, Tensor state, const Tensor *kr, const Tensor *v) {
    const float one = 1, zero = 0;
    int tokens = (int)v->shape[0], e = (int)v->shape[2];
    return blas_fail(x, "cublasSgemmStridedBatched",
                     x->cuda->libs.cublasSgemmStridedBatched_(
                         x->cuda->blas, CUBLAS_OP_N, CUBLAS_OP_T, e, e, tokens, &one, kr->data, leading(kr),
                         kr->stride[1], v->data, leading(v), v->stride[1], &zero, state.data, e,
                         (int64_t)e * e, (int)v->shape[1]));
}

/* u[h][c][t] = S qr. */
static Status apply(Exec *x, Tensor u, const Tensor *qr, Tensor state) {
    const float one = 1, zero = 0;
    int tokens = (int)qr->shape[0], e = (int)qr->shape[2];
    return blas_fail(x, "cublasSgemmStridedBatched",
                     x->cuda->libs.cublasSgemmStridedBatched_(
                         x->cuda->blas, CUBLAS_OP_T, CUBLAS_OP_N, tokens, e, e, &one, qr->data, leading(qr),
                         qr->stride[1], state.data, e, (int64_t)e * e, &zero, u.data, tokens,
                         (int64_t)tokens * e, (int)qr->shape[1]));
}

static Status linear_attention(Exec *x, const void *args) {
    const LinearAttention *a = args;
    TRY(check(x, a));
    if (!tensor_numel(a->o)) return OK;
    TRY(cuda_need_blas(x->cuda, x->error));
    Room r = room_of(x, a);
    char *at = arena_push(x->scratch, r.total);
    if (!at) return fail(x->error, ERR_MEMORY, "linear_attention: no scratch of %zu bytes", r.total);
    int64_t tokens = a->q.shape[0], heads = a->q.shape[1], e = a->q.shape[2];
    Tensor n = tensor_of(at + r.sum, a->q.dtype, heads, e), part = tensor_of(at + r.part, F32, r.blocks, heads * e);
    Tensor dot = tensor_of(at + r.dot, a->q.dtype, heads, tokens), state = tensor_of(at + r.state, F32, heads, e, e);
    Tensor u = tensor_of(at + r.b, F32, heads, e, tokens), v = a->v, kr = a->kr, qr = a->qr;
    TRY(linear_attention_sum(x, n, part, a->k));
    TRY(linear_attention_dots(x, dot, n, a->q));
    TRY(wide(x, &v, at + r.b));
    TRY(wide(x, &kr, at + r.a));
    TRY(state_of(x, state, &kr, &v));
    TRY(wide(x, &qr, at + r.a));
    TRY(apply(x, u, &qr, state));
    return linear_attention_normalise(x, a->o, u, dot, a->eps);
}

const Impl LINEAR_ATTENTION_CUDA[] = {{OP_linear_attention, "cuda", linear_attention, scratch, NULL}};
const int LINEAR_ATTENTION_CUDA_COUNT = sizeof LINEAR_ATTENTION_CUDA / sizeof *LINEAR_ATTENTION_CUDA;

#endif
