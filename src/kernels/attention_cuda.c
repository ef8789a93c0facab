/* attention_cuda.c - CUDA reference of attention.h.
 *
 * attention, BF16 with a head dimension up to 256 that is a multiple of 8: cuDNN, PyTorch's own choice on Hopper, first
 * configuration of its heuristic (the others have other bits and half the speed). Wider heads, which occur in VAEs: a kernel
 * in the order of the one that PyTorch takes for them (attention_wide.h). Everything else (F32; odd head dimensions and
 * strides; older cards; small shapes that cuDNN declines) goes by parts over blocks of queries: product with f32 scores,
 * softmax, product with f32 sums, division. That is also the fast way for wide heads, for variants that are free in the order.
 * attention_eager: the batched cuBLAS products that transformers' matmuls become, with K and V repeated for grouped queries
 * as there, and our softmax between.
 * Easy to get wrong: scratch is sized before a GPU is touched, so the choice of the way is made from the arguments
 * alone; grouped queries are batches whose K and V have stride 0. */
#include "kernels/attention_cuda.h"
#include "kernels/attention_check.h"
#include "kernels/attention_wide.h"
#include "kernels/cuda_pieces.h"
#include "kernels/cuda_plans.h"
#include "kernels/registry.h"

#ifdef HAVE_CUDA

#include <math.h>
#include <stdio.h>

enum {
    KEY_ATTENTION = 2,
    UNIFIED_SINCE = 91301,       /* cudnnGetVersion() */
    E_MAX = 256, E_STEP = 8,     /* what the flash engines take */
    NARROW = 128,                /* heads of other engines */
    PARTS_SCORES = 64 << 20,     /* bytes of f32 scores of one block of queries */
    PARTS_WIDE = 256 << 20,      /* the same for heads that no flash engine takes: products of fewer rows leave SMs idle */
    PARTS_SMALL = 16 << 20,      /* problems of at most this many bytes of scores may leave cuDNN */
    EAGER_SCORES = 256 << 20,    /* bytes of scores of one pass over heads */
    EAGER_REPEATED = 32 << 20,   /* bytes of K repeated for its query heads */
};

/* --- cuDNN graphs --- */

/* [1, H, T, E] of a [T, H, E] view. Strides of extents of 1 mean nothing and may be anything: made plausible. */
static void dims_of(const Tensor *t, int64_t *dims, int64_t *strides) {
    int64_t tokens = t->shape[0], heads = t->shape[1], e = t->shape[2];
    int64_t head = heads > 1 ? t->stride[1] : e, token = tokens > 1 ? t->stride[0] : heads * e;
    int64_t span = tokens * token > heads * head ? tokens * token : heads * head;
    const int64_t d[] = {1, heads, tokens, e}, s[] = {span, head, token, 1};
    memcpy(dims, d, sizeof d);
    memcpy(strides, s, sizeof s);
}

static CudaDnnDesc real(CudaDnn *g, int64_t id, const Tensor *t, bool transposed) {
    int64_t dims[CUDA_DNN_RANK], strides[CUDA_DNN_RANK];
    dims_of(t, dims, strides);
    if (transposed) { /* [1, H, E, T] */
        int64_t tokens = dims[2], token = strides[2];
        dims[2] = dims[3], strides[2] = strides[3];
        dims[3] = tokens, strides[3] = token;
    }
    return cuda_dnn_tensor(g, id, CUDNN_DATA_BFLOAT16, DNN_REAL, dims, strides);
}

static CudaDnnDesc scalar(CudaDnn *g, int64_t id) {
    const int64_t ones[] = {1, 1, 1, 1};
    return cuda_dnn_tensor(g, id, CUDNN_DATA_FLOAT, DNN_BY_VALUE, ones, ones);
}

/* A virtual [1, H, rows, cols]. */
static CudaDnnDesc inner(CudaDnn *g, int64_t *id, cudnnDataType_t t, int64_t heads, int64_t rows, int64_t cols) {
    const int64_t dims[] = {1, heads, rows, cols}, strides[] = {heads * rows * cols, rows * cols, cols, 1};
    return cuda_dnn_tensor(g, (*id)++, t, DNN_VIRTUAL, dims, strides);
}

static void composite(CudaDnn *g, const Attention *a) {
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    int64_t h = a->q.shape[1], tq = a->q.shape[0], tk = a->k.shape[0], id = ATTENTION_ID_BIAS + 1;
#define FULL(type) inner(g, &id, type, h, tq, tk)
#define COLUMN() inner(g, &id, f32, h, tq, 1)
    CudaDnnDesc q = real(g, ATTENTION_ID_Q, &a->q, false), k = real(g, ATTENTION_ID_K, &a->k, true);
    CudaDnnDesc v = real(g, ATTENTION_ID_V, &a->v, false), o = real(g, ATTENTION_ID_O, &a->o, false);
    CudaDnnDesc product = FULL(f32), s = FULL(f32);
    cuda_dnn_matmul(g, q, k, product);
    cuda_dnn_pointwise(g, CUDNN_POINTWISE_MUL, f32, -1, product, scalar(g, ATTENTION_ID_SCALE), NULL, s);
    if (a->bias.rank) {
        bool rows = a->bias.rank == 2;
        int64_t row = rows ? a->bias.stride[0] : tk;
        const int64_t dims[] = {1, 1, rows ? tq : 1, tk}, strides[] = {rows ? tq * row : tk, rows ? tq * row : tk, row, 1};
        CudaDnnDesc bias = cuda_dnn_tensor(g, ATTENTION_ID_BIAS, CUDNN_DATA_BFLOAT16, DNN_REAL, dims, strides);
        CudaDnnDesc biased = FULL(f32);
        cuda_dnn_pointwise(g, CUDNN_POINTWISE_ADD, f32, -1, s, bias, NULL, biased);
        s = biased;
    }
    if (a->mask == MASK_CAUSAL) {
        CudaDnnDesc row = FULL(CUDNN_DATA_INT32), column = FULL(CUDNN_DATA_INT32), seen = FULL(CUDNN_DATA_BOOLEAN);
        CudaDnnDesc masked = FULL(f32);
        cuda_dnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2, s, NULL, NULL, row);
        cuda_dnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3, s, NULL, NULL, column);
        cuda_dnn_pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, column, NULL, seen);
        cuda_dnn_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, f32, -1, s, scalar(g, ATTENTION_ID_LOW), seen, masked);
        s = masked;
    }
    CudaDnnDesc max = COLUMN(), less = FULL(f32), e = FULL(f32), sum = COLUMN(), log = COLUMN(), stats = COLUMN();
    CudaDnnDesc p = FULL(CUDNN_DATA_BFLOAT16);
    cuda_dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, max);
    cuda_dnn_pointwise(g, CUDNN_POINTWISE_SUB, f32, -1, s, max, NULL, less);
    cuda_dnn_pointwise(g, CUDNN_POINTWISE_EXP, f32, -1, less, NULL, NULL, e);
    cuda_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    cuda_dnn_pointwise(g, CUDNN_POINTWISE_LOG, f32, -1, sum, NULL, NULL, log); /* without these two: no engine */
    cuda_dnn_pointwise(g, CUDNN_POINTWISE_ADD, f32, -1, max, log, NULL, stats);
    cuda_dnn_pointwise(g, CUDNN_POINTWISE_DIV, f32, -1, e, sum, NULL, p);
    cuda_dnn_matmul(g, p, v, o);
#undef FULL
#undef COLUMN
}

void attention_cuda_graph(CudaDnn *g, const Attention *a, AttentionGraph form) {
    if (form == ATTENTION_COMPOSITE) {
        composite(g, a);
        return;
    }
    CudaDnnDesc q = real(g, ATTENTION_ID_Q, &a->q, false), k = real(g, ATTENTION_ID_K, &a->k, false);
    CudaDnnDesc v = real(g, ATTENTION_ID_V, &a->v, false), o = real(g, ATTENTION_ID_O, &a->o, false);
    cuda_dnn_sdpa(g, q, k, v, o, scalar(g, ATTENTION_ID_SCALE));
}

typedef struct Key {
    int64_t tq, tk, h, hk, e, token[4], head[4]; /* strides of q, k, v, o */
    int64_t bias_row; /* stride of the rows of a [Tq,Tk] bias; 0: one row, or none */
    int32_t kind, causal, biased, none;
} Key;

/* The graph of a, planned at first use. cuDNN may have no engine for it: then it is not ready. */
static Status flash_plan(Cuda *c, cudnnHandle_t handle, const Attention *a, CudaDnn **out, char *why, size_t size, Error *e) {
    Key key;
    memset(&key, 0, sizeof key);
    key.kind = KEY_ATTENTION;
    key.causal = a->mask == MASK_CAUSAL;
    key.biased = a->bias.rank;
    if (a->bias.rank == 2) key.bias_row = a->bias.stride[0];
    key.tq = a->q.shape[0], key.tk = a->k.shape[0];
    key.h = a->q.shape[1], key.hk = a->k.shape[1], key.e = a->q.shape[2];
    const Tensor *all[] = {&a->q, &a->k, &a->v, &a->o};
    for (int i = 0; i < 4; i++) key.token[i] = all[i]->stride[0], key.head[i] = all[i]->stride[1];
    *out = cuda_plans_claim(c->plans, &key, sizeof key);
    if (*out) return OK; /* perhaps the knowledge that there is none */
    AttentionGraph form = a->mask == MASK_NONE && !key.biased && key.h == key.hk && c->libs.cudnnGetVersion_() >= UNIFIED_SINCE
                              ? ATTENTION_UNIFIED : ATTENTION_COMPOSITE;
    CudaDnn *g = cuda_dnn_begin(&c->libs, handle, e, "attention %lldx%lldx%lldx%lld%s%s", (long long)key.h,
                                (long long)key.tq, (long long)key.tk, (long long)key.e,
                                key.causal ? " causal" : key.biased ? " biased" : "",
                                form == ATTENTION_UNIFIED ? "" : " (composite)");
    Status s = g ? OK : ERR_MEMORY;
    if (s == OK) {
        attention_cuda_graph(g, a, form);
        s = cuda_dnn_plan(g, 0, CUDA_BLAS_WORKSPACE, why, size);
    }
    if (s != OK) {
        cuda_dnn_free(g);
        cuda_plans_give_up(c->plans, &key, sizeof key);
        return s;
    }
    *out = g;
    return cuda_plans_add(c, c->plans, &key, sizeof key, g, cuda_dnn_destroy, e);
}

static Status flash_run(Exec *x, const Attention *a, CudaDnn *g) {
    bool biased = a->bias.rank != 0; /* never causal then */
    const int64_t ids[] = {ATTENTION_ID_Q, ATTENTION_ID_K, ATTENTION_ID_V, ATTENTION_ID_O, ATTENTION_ID_SCALE,
                           biased ? ATTENTION_ID_BIAS : ATTENTION_ID_LOW};
    float scale = a->scale, low = -INFINITY;
    void *pointers[] = {a->q.data, a->k.data, a->v.data, a->o.data, &scale, biased ? a->bias.data : &low};
    return cuda_dnn_run(x, g, x->cuda->workspace, biased || a->mask == MASK_CAUSAL ? 6 : 5, ids, pointers);
}

/* --- products per head by cuBLAS --- */

static cudaDataType_t blas_type(DType t) { return t == BF16 ? CUDA_R_16BF : CUDA_R_32F; }

/* Heads as batches: `outer` products of `batch` heads each; inside one K and V are shared when there are groups. */
typedef struct Heads {
    int64_t outer, batch, k_step; /* k_step: 1 when each head of the batch has its own K and V, else 0 */
} Heads;

static Heads heads_of(const Tensor *q, const Tensor *k) {
    int64_t h = q->shape[1], hk = k->shape[1];
    return h == hk ? (Heads){1, h, 1} : (Heads){hk, h / hk, 0};
}

static char *head_at(const Tensor *t, int64_t token, int64_t head) {
    return (char *)t->data + (token * t->stride[0] + head * t->stride[1]) * (int64_t)dtype_size(t->dtype);
}

/* Distance of tokens as a leading dimension: with one token it means nothing. */
static int leading(const Tensor *t) { return (int)(t->shape[0] > 1 ? t->stride[0] : t->shape[2]); }

typedef struct Gemm { /* column-major, as cuBLAS has it: c[m,n] = alpha a b, `batch` times */
    cublasOperation_t op_a;
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int lda, ldb, ldc;
    int64_t step_a, step_b, step_c, batch;
    DType in, out;
    float alpha;
} Gemm;

static Status gemm(Exec *x, const char *op, const Gemm *g) {
    const float zero = 0;
    cublasStatus_t code = x->cuda->libs.cublasGemmStridedBatchedEx_(
        x->cuda->blas, g->op_a, CUBLAS_OP_N, (int)g->m, (int)g->n, (int)g->k, &g->alpha, g->a, blas_type(g->in), g->lda,
        g->step_a, g->b, blas_type(g->in), g->ldb, g->step_b, &zero, g->c, blas_type(g->out), g->ldc, g->step_c,
        (int)g->batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (code == CUBLAS_STATUS_SUCCESS) return OK;
    return fail(x->error, ERR_DEVICE,
                "%s: cublasGemmStridedBatchedEx m %lld, n %lld, k %lld, ld %d %d %d, %lld batches, %s to %s: %s", op,
                (long long)g->m, (long long)g->n, (long long)g->k, g->lda, g->ldb, g->ldc, (long long)g->batch,
                dtype_name(g->in), dtype_name(g->out), x->cuda->libs.cublasGetStatusName_(code));
}

/* s[batch, n, tk] = alpha q.k for queries q0..q0+n of `batch` heads from `head` (key head `key_head`). */
static Status scores(Exec *x, const char *op, const Tensor *q, const Tensor *k, int64_t head, int64_t key_head,
                     int64_t k_step, int64_t q0, float alpha, Tensor s) {
    int64_t tk = k->shape[0], n = s.shape[1];
    return gemm(x, op, &(Gemm){.op_a = CUBLAS_OP_T, .m = tk, .n = n, .k = q->shape[2], .a = head_at(k, 0, key_head),
                               .lda = leading(k), .step_a = k_step * k->stride[1], .b = head_at(q, q0, head),
                               .ldb = leading(q), .step_b = q->stride[1], .c = s.data, .ldc = (int)tk, .step_c = n * tk,
                               .batch = s.shape[0], .in = q->dtype, .out = s.dtype, .alpha = alpha});
}

/* c[batch, n, E] (its own strides) = p[batch, n, tk] v. */
static Status mix(Exec *x, const char *op, Tensor p, const Tensor *v, int64_t key_head, int64_t k_step, void *c,
                  DType out, int ldc, int64_t step_c) {
    int64_t tk = v->shape[0], n = p.shape[1], e = v->shape[2];
    return gemm(x, op, &(Gemm){.op_a = CUBLAS_OP_N, .m = e, .n = n, .k = tk, .a = head_at(v, 0, key_head),
                               .lda = leading(v), .step_a = k_step * v->stride[1], .b = p.data, .ldb = (int)tk,
                               .step_b = n * tk, .c = c, .ldc = ldc, .step_c = step_c, .batch = p.shape[0],
                               .in = v->dtype, .out = out, .alpha = 1});
}

/* --- attention by parts --- */

typedef struct Parts {
    Heads heads;
    int64_t rows; /* queries of a block */
    size_t scores, probabilities, out, sums, bias, total;
} Parts;

static size_t piece(size_t *total, int64_t count, DType t) {
    size_t bytes = arena_rounded((size_t)count * dtype_size(t));
    *total += bytes;
    return bytes;
}

static Parts parts_of(const Attention *a) {
    Parts p = {.heads = heads_of(&a->q, &a->k)};
    int64_t tq = a->q.shape[0], tk = a->k.shape[0], batch = p.heads.batch;
    int64_t row = batch * tk * (int64_t)sizeof(float);
    p.rows = row ? (a->q.shape[2] > E_MAX ? PARTS_WIDE : PARTS_SCORES) / row : tq;
    if (p.rows < 1) p.rows = 1;
    if (p.rows > tq) p.rows = tq;
    p.scores = piece(&p.total, batch * p.rows * tk, F32);
    if (a->q.dtype == BF16) p.probabilities = piece(&p.total, batch * p.rows * tk, BF16);
    p.out = piece(&p.total, batch * p.rows * a->q.shape[2], F32);
    p.sums = piece(&p.total, batch * p.rows, F32);
    if (a->bias.rank && a->bias.dtype != F32) p.bias = piece(&p.total, a->bias.rank == 2 ? tq * tk : tk, F32);
    return p;
}

static Status parts_run(Exec *x, const Attention *a) {
    TRY(cuda_need_blas(x->cuda, x->error));
    Parts p = parts_of(a);
    char *at = arena_push(x->scratch, p.total);
    if (!at) return fail(x->error, ERR_MEMORY, "attention: no scratch of %zu bytes", p.total);
    int64_t tq = a->q.shape[0], tk = a->k.shape[0], e = a->q.shape[2], batch = p.heads.batch;
    void *probabilities = a->q.dtype == BF16 ? at + p.scores : at;
    char *out = at + p.scores + p.probabilities, *sums = out + p.out;
    Tensor bias = a->bias;
    if (p.bias) {
        bias = tensor_make(sums + p.sums, F32, bias.rank, bias.shape);
        TRY(cuda_pieces_op(x, OP_copy, &(Copy){.y = bias, .x = a->bias}));
    }
    for (int64_t g = 0; g < p.heads.outer; g++)
        for (int64_t q0 = 0; q0 < tq; q0 += p.rows) {
            int64_t n = tq - q0 < p.rows ? tq - q0 : p.rows;
            Tensor s = tensor_of(at, F32, batch, n, tk), sum = tensor_of(sums, F32, batch, n);
            Tensor pr = tensor_of(probabilities, a->q.dtype, batch, n, tk), acc = tensor_of(out, F32, batch, n, e);
            TRY(scores(x, "attention", &a->q, &a->k, g * batch, g, p.heads.k_step, q0, a->scale, s));
            Tensor b = bias.rank == 2 ? tensor_slice(bias, 0, q0, n) : bias;
            if (b.rank) TRY(cuda_pieces_op(x, OP_add, &(Add){.y = s, .a = s, .b = b}));
            TRY(cuda_pieces_flash(x, pr, sum, s, q0, a->mask == MASK_CAUSAL));
            TRY(mix(x, "attention", pr, &a->v, g, p.heads.k_step, acc.data, F32, (int)e, n * e));
            Tensor o = tensor_slice(tensor_slice(a->o, 0, q0, n), 1, g * batch, batch);
            TRY(cuda_pieces_divide(x, o, acc, sum));
        }
    return OK;
}

/* --- the ops --- */

/* What the flash engines can address. Decided from the arguments alone. */
static bool flash_serves(const Attention *a) {
    const Tensor *all[] = {&a->q, &a->k, &a->v, &a->o};
    if (a->q.dtype != BF16 || a->q.shape[2] % E_STEP || a->q.shape[2] > E_MAX) return false;
    if (a->bias.rank && (uintptr_t)a->bias.data % 16) return false;
    if (a->bias.rank == 2 && a->bias.stride[0] % E_STEP) return false;
    if (a->bias.rank == 2 && a->q.shape[2] <= NARROW) return false; /* there cuDNN 9.19 leaves zeros in rows of masked tiles */
    for (int i = 0; i < 4; i++) {
        if ((uintptr_t)all[i]->data % 16) return false;
        if (all[i]->shape[0] > 1 && all[i]->stride[0] % E_STEP) return false;
        if (all[i]->shape[1] > 1 && all[i]->stride[1] % E_STEP) return false;
    }
    return true;
}

/* May cuDNN decline? Then scratch for the other way stands ready: where it is small, and for heads above 128, which only
 * Hopper and newer take. */
static bool parts_ready(const Attention *a) {
    int64_t bytes = a->q.shape[0] * a->q.shape[1] * a->k.shape[0] * (int64_t)sizeof(float);
    return !flash_serves(a) || bytes <= PARTS_SMALL || a->q.shape[2] > 128;
}

static Status check(Exec *x, OpId op, Tensor o, Tensor q, Tensor k, Tensor v) {
    const Tensor *all[] = {&o, &q, &k, &v};
    TRY(attention_check(x, op, o, q, k, v));
    for (int i = 0; i < 4; i++)
        if (all[i]->shape[0] > 1 && all[i]->stride[0] < all[i]->shape[2])
            return fail(x->error, ERR_MODEL, "%s: tokens overlap: their distance is %lld, a head has %lld", ops_info(op)->name,
                        (long long)all[i]->stride[0], (long long)all[i]->shape[2]);
    return OK;
}

static Status attention(Exec *x, const void *args) {
    const Attention *a = args;
    TRY(check(x, OP_attention, a->o, a->q, a->k, a->v));
    TRY(attention_check_bias(x, a));
    if (!tensor_numel(a->o)) return OK;
    if (!a->bias.rank && attention_wide_serves(x->cuda, a)) return attention_wide_run(x, a);
    if (!flash_serves(a)) return parts_run(x, a);
    CudaDnn *g = NULL;
    char why[512] = "";
    TRY(cuda_need_dnn(x->cuda, x->error));
    TRY(flash_plan(x->cuda, x->cuda->dnn, a, &g, why, sizeof why, x->error));
    if (cuda_dnn_ready(g)) return flash_run(x, a, g);
    if (parts_ready(a)) return parts_run(x, a);
    return fail(x->error, ERR_DEVICE, "%s", *why ? why : "attention: cuDNN has no engine for this shape");
}

Status attention_cuda_parts(Exec *x, const void *args) {
    const Attention *a = args;
    TRY(check(x, OP_attention, a->o, a->q, a->k, a->v));
    return !tensor_numel(a->o) ? OK : flash_serves(a) ? attention(x, args) : parts_run(x, a);
}

Status attention_cuda_prepare(Cuda *c, cudnnHandle_t handle, const Attention *a, Error *e) {
    CudaDnn *g;
    char why[512];
    return flash_serves(a) ? flash_plan(c, handle, a, &g, why, sizeof why, e) : OK;
}

static size_t attention_scratch(const Exec *x, const void *args) {
    (void)x;
    return parts_ready(args) ? parts_of(args).total : 0;
}

/* Grouped queries: K and V repeated for each query head, [H][Tk][E], as transformers does, so that one batched product is the
 * whole attention and the very call that PyTorch makes. Long contexts keep to a product a group. */
static bool eager_repeats(const AttentionEager *a) {
    return a->q.shape[1] != a->k.shape[1] &&
           a->k.shape[0] * a->q.shape[1] * a->k.shape[2] * (int64_t)dtype_size(a->k.dtype) <= EAGER_REPEATED;
}

static Tensor repeated_view(const AttentionEager *a, void *data) {
    int64_t tk = a->k.shape[0], h = a->q.shape[1], e = a->k.shape[2];
    return (Tensor){.data = data, .dtype = a->k.dtype, .rank = 3, .shape = {tk, h, e}, .stride = {e, tk * e, 1}};
}

/* to: [Tk, H, E]; from: [Tk, Hk, E], each head for H / Hk of to's. */
static Status repeat_heads(Exec *x, Tensor to, const Tensor *from) {
    int64_t hk = from->shape[1], group = to.shape[1] / hk;
    Tensor y = {.data = to.data, .dtype = to.dtype, .rank = 4, .shape = {to.shape[0], hk, group, to.shape[2]},
                .stride = {to.stride[0], group * to.stride[1], to.stride[1], 1}};
    Tensor in = {.data = from->data, .dtype = from->dtype, .rank = 4, .shape = {to.shape[0], hk, group, to.shape[2]},
                 .stride = {from->stride[0], from->stride[1], 0, 1}};
    return cuda_pieces_op(x, OP_copy, &(Copy){.y = y, .x = in});
}

/* Query heads of one pass: all, unless their scores pass the bound; a group stays together. */
static int64_t eager_batch(const AttentionEager *a, Heads h) {
    int64_t head = a->q.shape[0] * a->k.shape[0] * (int64_t)dtype_size(a->q.dtype);
    int64_t fit = head ? EAGER_SCORES / head : h.batch;
    return fit < 1 ? 1 : fit < h.batch ? fit : h.batch;
}

typedef struct Eager {
    Heads heads;
    size_t scores, repeated, total; /* bytes: of scores, and of K as of V */
} Eager;

static Eager eager_of(const AttentionEager *a) {
    Eager p = {.heads = eager_repeats(a) ? (Heads){1, a->q.shape[1], 1} : heads_of(&a->q, &a->k)};
    p.scores = piece(&p.total, eager_batch(a, p.heads) * a->q.shape[0] * a->k.shape[0], a->q.dtype);
    for (int i = 0; i < 2 && eager_repeats(a); i++)
        p.repeated = piece(&p.total, a->k.shape[0] * a->q.shape[1] * a->k.shape[2], a->k.dtype);
    return p;
}

static size_t attention_eager_scratch(const Exec *x, const void *args) {
    (void)x;
    return eager_of(args).total;
}

static Status attention_eager(Exec *x, const void *args) {
    const AttentionEager *a = args;
    TRY(check(x, OP_attention_eager, a->o, a->q, a->k, a->v));
    int64_t tq = a->q.shape[0], tk = a->k.shape[0];
    if (a->bias.rank && (a->bias.rank != 3 || a->bias.shape[0] != a->q.shape[1] || a->bias.shape[1] != tq ||
                         a->bias.shape[2] != tk || a->bias.stride[2] != 1 || a->bias.dtype != a->q.dtype))
        return fail(x->error, ERR_MODEL, "attention_eager: bias must be [%lld, %lld, %lld] of the dtype of q",
                    (long long)a->q.shape[1], (long long)tq, (long long)tk);
    if (!(a->softcap >= 0) || a->window < 0 || (a->window && a->mask != MASK_CAUSAL))
        return fail(x->error, ERR_MODEL, "attention_eager: softcap %g and window %d: expected none below 0, and a window only "
                    "under a causal mask", (double)a->softcap, (int)a->window);
    if (!tensor_numel(a->o)) return OK;
    TRY(cuda_need_blas(x->cuda, x->error));
    Eager p = eager_of(a);
    Heads h = p.heads;
    Tensor k = a->k, v = a->v;
    int64_t batch = eager_batch(a, h);
    char *at = arena_push(x->scratch, p.total);
    if (!at) return fail(x->error, ERR_MEMORY, "attention_eager: no scratch of %zu bytes", p.total);
    if (p.repeated) {
        k = repeated_view(a, at + p.scores);
        v = repeated_view(a, at + p.scores + p.repeated);
        TRY(repeat_heads(x, k, &a->k));
        TRY(repeat_heads(x, v, &a->v));
    }
    for (int64_t g = 0; g < h.outer; g++)
        for (int64_t b = 0; b < h.batch; b += batch) {
            int64_t count = h.batch - b < batch ? h.batch - b : batch, head = g * h.batch + b;
            int64_t key_head = h.k_step ? head : g;
            Tensor s = tensor_of(at, a->q.dtype, count, tq, tk);
            TRY(scores(x, "attention_eager", &a->q, &k, head, key_head, h.k_step, 0, 1, s));
            TRY(cuda_pieces_softmax(x, s, a, head));
            TRY(mix(x, "attention_eager", s, &v, key_head, h.k_step, head_at(&a->o, 0, head), a->o.dtype,
                    leading(&a->o), a->o.stride[1]));
        }
    return OK;
}

const Impl ATTENTION_CUDA[] = {
    {OP_attention, "cuda", attention, attention_scratch, NULL},
    {OP_attention_eager, "cuda", attention_eager, attention_eager_scratch, NULL},
};
const int ATTENTION_CUDA_COUNT = sizeof ATTENTION_CUDA / sizeof *ATTENTION_CUDA;

#endif
