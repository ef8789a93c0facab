/* linear_cuda.c - CUDA reference of linear.h: linear, linear_many, linear_gelu by cuBLASLt.
 *
 * One call per weight, the first algorithm of the heuristic: with the bias epilogue and a workspace limit of 1 MiB,
 * without bias 32 MiB. These limits decide between split-K and none at small M, and so the bits: they are PyTorch's
 * (its unbiased products go through cublasGemmEx, which gives the bits of this call). Algorithm and descriptors are
 * kept per shape, leading dimensions and alignment. F32 multiplies in plain f32 (no TF32), as PyTorch does.
 * Easy to get wrong: cuBLASLt is column-major, so A is the weight (transposed), B is x, and M and N change places;
 * pointers of slices may be less aligned than the heuristic's default assumption of 256 bytes: it is told. */
#include "kernels/cuda_pieces.h"
#include "kernels/cuda_plans.h"
#include "kernels/registry.h"

#ifdef HAVE_CUDA

#include <stdio.h>
#include <stdlib.h>

enum { KEY_LINEAR = 1, WEIGHT_ALIGN = 16 };

typedef struct Key {
    int64_t m, n, k, ldw, ldx, ldy;
    int32_t kind, dtype, bias, align_w, align_x, align_y, align_bias, padding;
} Key;

typedef struct Plan {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
} Plan;

static void plan_free(Cuda *c, void *value) {
    Plan *p = value;
    if (p->product) c->libs.cublasLtMatmulDescDestroy_(p->product);
    cublasLtMatrixLayout_t layouts[] = {p->w, p->x, p->y};
    for (int i = 0; i < 3; i++)
        if (layouts[i]) c->libs.cublasLtMatrixLayoutDestroy_(layouts[i]);
    free(p);
}

static Status lt_fail(Exec *x, const Key *k, const char *call, cublasStatus_t code) {
    return fail(x->error, ERR_DEVICE, "linear: M %lld, K %lld, N %lld, %s%s: %s: %s", (long long)k->m, (long long)k->k,
                (long long)k->n, dtype_name((DType)k->dtype), k->bias ? ", bias" : "", call,
                x->cuda->libs.cublasLtGetStatusName_(code));
}

#define LT(call)                                                                                         \
    do {                                                                                                 \
        cublasStatus_t code_ = x->cuda->libs.call;                                                       \
        if (code_ != CUBLAS_STATUS_SUCCESS) return lt_fail(x, key, #call, code_);                        \
    } while (0)

static Status describe(Exec *x, const Key *key, Plan *p, const void *bias) {
    cudaDataType_t type = key->dtype == BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cublasOperation_t t = CUBLAS_OP_T, n = CUBLAS_OP_N;
    LT(cublasLtMatmulDescCreate_(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT(cublasLtMatmulDescSetAttribute_(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t));
    LT(cublasLtMatmulDescSetAttribute_(p->product, CUBLASLT_MATMUL_DESC_TRANSB, &n, sizeof n));
    if (bias) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        LT(cublasLtMatmulDescSetAttribute_(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        LT(cublasLtMatmulDescSetAttribute_(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
    LT(cublasLtMatrixLayoutCreate_(&p->w, type, (uint64_t)key->k, (uint64_t)key->n, key->ldw));
    LT(cublasLtMatrixLayoutCreate_(&p->x, type, (uint64_t)key->k, (uint64_t)key->m, key->ldx));
    LT(cublasLtMatrixLayoutCreate_(&p->y, type, (uint64_t)key->n, (uint64_t)key->m, key->ldy));
    return OK;
}

static Status prefer(Exec *x, const Key *key, cublasLtMatmulPreference_t wish, const Plan *p,
                     cublasLtMatmulHeuristicResult_t *found) {
    uint64_t limit = key->bias ? CUDA_LT_WORKSPACE : CUDA_BLAS_WORKSPACE;
    /* Split sums must meet in f32. For aligned rows this changes no choice; for others the library would also add
     * partial sums that were rounded to bf16. */
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t w = (uint32_t)key->align_w, in = (uint32_t)key->align_x, out = (uint32_t)key->align_y;
    LT(cublasLtMatmulPreferenceSetAttribute_(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit));
    LT(cublasLtMatmulPreferenceSetAttribute_(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    LT(cublasLtMatmulPreferenceSetAttribute_(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &w, sizeof w));
    LT(cublasLtMatmulPreferenceSetAttribute_(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &in, sizeof in));
    LT(cublasLtMatmulPreferenceSetAttribute_(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out));
    LT(cublasLtMatmulPreferenceSetAttribute_(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out));
    int count = 0;
    LT(cublasLtMatmulAlgoGetHeuristic_(x->cuda->lt, p->product, p->w, p->x, p->y, p->y, wish, 1, found, &count));
    if (!count) return lt_fail(x, key, "cublasLtMatmulAlgoGetHeuristic: no algorithm", CUBLAS_STATUS_NOT_SUPPORTED);
    if (found->state != CUBLAS_STATUS_SUCCESS) return lt_fail(x, key, "the heuristic's first algorithm", found->state);
    return OK;
}

static Status plan_make(Exec *x, const Key *key, const void *bias, Plan **out) {
    Plan *p = calloc(1, sizeof *p);
    if (!p) return fail(x->error, ERR_MEMORY, "out of memory");
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t found;
    Status s = describe(x, key, p, bias);
    if (s == OK) {
        cublasStatus_t code = x->cuda->libs.cublasLtMatmulPreferenceCreate_(&wish);
        s = code == CUBLAS_STATUS_SUCCESS ? prefer(x, key, wish, p, &found)
                                          : lt_fail(x, key, "cublasLtMatmulPreferenceCreate", code);
    }
    if (wish) x->cuda->libs.cublasLtMatmulPreferenceDestroy_(wish);
    if (s != OK) {
        plan_free(x->cuda, p);
        return s;
    }
    p->algo = found.algo;
    p->workspace = found.workspaceSize;
    *out = p;
    return cuda_plans_add(x->cuda, x->cuda->plans, key, sizeof *key, p, plan_free, x->error);
}

/* Power of two up to 256 that the address is a multiple of. */
static int32_t alignment(const void *p) {
    int32_t a = 256;
    while (a > 1 && (uintptr_t)p % (uintptr_t)a) a /= 2;
    return a;
}

/* --- shapes --- */

/* t as a matrix of rows: their number and distance. False when no single distance exists. */
static bool as_rows(const Tensor *t, int64_t *rows, int64_t *ld) {
    *rows = 1;
    *ld = t->shape[t->rank - 1];
    for (int d = t->rank - 2; d >= 0; d--) {
        if (t->shape[d] == 1) continue;
        if (*rows == 1) *ld = t->stride[d];
        else if (t->stride[d] != *rows * *ld) return false;
        *rows *= t->shape[d];
    }
    return *ld >= t->shape[t->rank - 1];
}

static const char *name_of(const Weight *w) { return w->name ? w->name : "weight"; }
static int64_t columns(const Tensor *t) { return t->shape[t->rank - 1]; }
static int64_t row_count(const Tensor *t) { return columns(t) ? tensor_numel(*t) / columns(t) : 0; }

static Status multiply(Exec *x, Tensor y, Tensor in, const Weight *w, bool fused) {
    Key key;
    memset(&key, 0, sizeof key);
    int64_t rows;
    key.kind = KEY_LINEAR;
    key.n = columns(&y);
    key.k = columns(&in);
    if (!as_rows(&in, &rows, &key.ldx) || !as_rows(&y, &key.m, &key.ldy) || rows != key.m) {
        int d = 0; /* rows without one distance: a product for each index of the first real dimension */
        while (d < y.rank - 2 && y.shape[d] == 1) d++;
        if (y.rank != in.rank || d >= y.rank - 2 || y.shape[d] != in.shape[d])
            return fail(x->error, ERR_MODEL, "%s: linear: rows of x and y overlap or lie differently", name_of(w));
        for (int64_t i = 0; i < y.shape[d]; i++)
            TRY(multiply(x, tensor_slice(y, d, i, 1), tensor_slice(in, d, i, 1), w, fused));
        return OK;
    }
    size_t size = dtype_size(y.dtype);
    if (!key.k) { /* an empty sum */
        cudaError_t code = cudaMemset2DAsync(y.data, (size_t)key.ldy * size, 0, (size_t)key.n * size, (size_t)key.m,
                                             x->cuda->stream);
        if (code != cudaSuccess) return fail(x->error, ERR_DEVICE, "linear: cudaMemset2DAsync: %s", cudaGetErrorString(code));
        return fused ? cuda_pieces_op(x, OP_add, &(Add){.y = y, .a = y, .b = w->bias}) : OK;
    }
    const void *bias = fused ? w->bias.data : NULL;
    key.ldw = w->w.shape[0] > 1 ? w->w.stride[0] : key.k;
    key.dtype = y.dtype;
    key.bias = fused;
    key.align_w = alignment(w->w.data);
    key.align_x = alignment(in.data);
    key.align_y = alignment(y.data);
    key.align_bias = fused ? alignment(bias) : 0;
    Plan *p = cuda_plans_find(x->cuda->plans, &key, sizeof key);
    if (!p) TRY(plan_make(x, &key, bias, &p));
    if (fused) {
        cublasStatus_t code = x->cuda->libs.cublasLtMatmulDescSetAttribute_(
            p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
        if (code != CUBLAS_STATUS_SUCCESS) return lt_fail(x, &key, "set the bias pointer", code);
    }
    const float one = 1, zero = 0;
    cublasStatus_t code = x->cuda->libs.cublasLtMatmul_(x->cuda->lt, p->product, &one, w->w.data, p->w, in.data, p->x,
                                                        &zero, y.data, p->y, y.data, p->y, &p->algo, x->cuda->workspace,
                                                        p->workspace, x->cuda->stream);
    return code == CUBLAS_STATUS_SUCCESS ? OK : lt_fail(x, &key, "cublasLtMatmul", code);
}

static Status check(Exec *x, Tensor in, const Weight *w, Tensor y) {
    const char *name = name_of(w);
    if (in.rank < 1 || y.rank < 1 || (in.dtype != F32 && in.dtype != BF16) || y.dtype != in.dtype)
        return fail(x->error, ERR_MODEL, "%s: linear from %s to %s", name, dtype_name(in.dtype), dtype_name(y.dtype));
    if (w->w.rank != 2 || w->w.shape[1] != columns(&in) || w->w.stride[1] != 1)
        return fail(x->error, ERR_MODEL, "%s: linear of %lld columns, weight has %lld", name, (long long)columns(&in),
                    w->w.rank ? (long long)columns(&w->w) : 0ll);
    if (columns(&y) != w->w.shape[0] || row_count(&y) != row_count(&in))
        return fail(x->error, ERR_MODEL, "%s: output is %lld x %lld, product is %lld x %lld", name,
                    (long long)row_count(&y), (long long)columns(&y), (long long)row_count(&in),
                    (long long)w->w.shape[0]);
    if (in.stride[in.rank - 1] != 1 || y.stride[y.rank - 1] != 1)
        return fail(x->error, ERR_MODEL, "%s: linear needs contiguous rows", name);
    if (w->bias.rank && tensor_numel(w->bias) != w->w.shape[0])
        return fail(x->error, ERR_MODEL, "%s: bias has %lld elements, want %lld", name,
                    (long long)tensor_numel(w->bias), (long long)w->w.shape[0]);
    return OK;
}

static Status product(Exec *x, Tensor y, Tensor in, const Weight *w, int bias_mode) {
    TRY(check(x, in, w, y));
    if (!tensor_numel(y)) return OK;
    TRY(cuda_need_lt(x->cuda, x->error));
    bool bias = w->bias.rank != 0, after = bias && bias_mode == BIAS_AFTER;
    TRY(multiply(x, y, in, w, bias && !after));
    if (after) TRY(cuda_pieces_op(x, OP_add, &(Add){.y = y, .a = y, .b = w->bias}));
    return cuda_launched(x, "linear");
}

/* --- the ops --- */

static Status linear(Exec *x, const void *args) {
    const Linear *a = args;
    return product(x, a->y, a->x, a->w, a->bias_mode);
}

static Status linear_many(Exec *x, const void *args) {
    const LinearMany *a = args;
    for (int i = 0; i < LINEAR_MANY_MAX && a->w[i]; i++) TRY(product(x, a->y[i], a->x, a->w[i], a->bias_mode));
    return OK;
}

static Status linear_gelu(Exec *x, const void *args) {
    const Linear *a = args;
    TRY(linear(x, args));
    return cuda_pieces_op(x, OP_act, &(Act){.y = a->y, .x = a->y, .kind = ACT_GELU_TANH});
}

/* Weights of a GPU are in the compute dtype (weights_bind): a fact of the plan, so refused here and not mid-way. */
static bool plain(Tensor x, const Weight *w, char *why, size_t size) {
    const char *name = name_of(w);
    if (w->scale.rank || w->lora) snprintf(why, size, "%s: no scales or LoRA on the CUDA table yet", name);
    else if (w->w.dtype != x.dtype || w->round != x.dtype || (w->bias.rank && w->bias.dtype != x.dtype))
        snprintf(why, size, "%s: weight %s rounded to %s, bias %s: expected %s as x", name, dtype_name(w->w.dtype),
                 dtype_name(w->round), w->bias.rank ? dtype_name(w->bias.dtype) : "none", dtype_name(x.dtype));
    else if ((uintptr_t)w->w.data % WEIGHT_ALIGN || (w->bias.rank && (uintptr_t)w->bias.data % WEIGHT_ALIGN))
        snprintf(why, size, "%s: not aligned to %d bytes", name, WEIGHT_ALIGN);
    else return true;
    return false;
}

static bool linear_accepts(const void *args, char *why, size_t size) {
    const Linear *a = args;
    return plain(a->x, a->w, why, size);
}

static bool linear_many_accepts(const void *args, char *why, size_t size) {
    const LinearMany *a = args;
    for (int i = 0; i < LINEAR_MANY_MAX && a->w[i]; i++)
        if (!plain(a->x, a->w[i], why, size)) return false;
    return true;
}

const Impl LINEAR_CUDA[] = {
    {OP_linear, "cuda", linear, NULL, linear_accepts},
    {OP_linear_many, "cuda", linear_many, NULL, linear_many_accepts},
    {OP_linear_gelu, "cuda", linear_gelu, NULL, linear_accepts},
};
const int LINEAR_CUDA_COUNT = sizeof LINEAR_CUDA / sizeof *LINEAR_CUDA;

#endif
