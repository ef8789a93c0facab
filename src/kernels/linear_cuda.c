/* linear_cuda.c - CUDA reference of linear.h by cuBLASLt, and the choice of algorithms for the variants that replace it
 * (linear_cuda_fused.c).
 *
 * One call per weight, the first algorithm of the heuristic: with the bias epilogue and a workspace limit of 1 MiB,
 * without bias 32 MiB. These limits decide between split-K and none at small M, and so the bits: they are PyTorch's
 * (its unbiased products go through cublasGemmEx, which gives the bits of this call). Algorithm and descriptors are
 * kept per shape, leading dimensions and alignment. F32 multiplies in plain f32 (no TF32), as PyTorch does.
 * A bias that is rounded apart is a pass over y behind the product: the convolutions', where y is contiguous.
 * Easy to get wrong: cuBLASLt is column-major, so A is the weight (transposed), B is x, and M and N change places;
 * pointers of slices may be less aligned than the heuristic's default assumption of 256 bytes: it is told. Strides it is
 * not told at first: the reference is the algorithm of the contiguous product. */
#include "kernels/linear_cuda.h"

#include "kernels/conv_pieces.h"
#include "kernels/cuda_pieces.h"
#include "kernels/cuda_plans.h"
#include "kernels/registry.h"
#include "kernels/tune_cuda.h"

#ifdef HAVE_CUDA

#include <stdio.h>
#include <stdlib.h>

enum { KEY_LINEAR = 1, WEIGHT_ALIGN = 16 };

typedef struct Key {
    int64_t m, n, k, ldw, ldx, ldy, part[LINEAR_MANY_MAX];
    int32_t kind, way, dtype, bias, align_w, align_x, align_y, align_bias;
} Key;

typedef struct Plan {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    bool none; /* no algorithm does it; the rest is not there */
    bool tuned; /* tune_cuda.h had it */
} Plan;

/* From the heuristic, best first. */
enum { CANDIDATES = 16 };
typedef struct Candidates {
    cublasLtMatmulHeuristicResult_t at[CANDIDATES];
    int count;
} Candidates;

static void plan_drop(Cuda *c, const Plan *p) {
    if (p->product) c->libs.cublasLtMatmulDescDestroy_(p->product);
    cublasLtMatrixLayout_t layouts[] = {p->w, p->x, p->y};
    for (int i = 0; i < 3; i++)
        if (layouts[i]) c->libs.cublasLtMatrixLayoutDestroy_(layouts[i]);
}

static void plan_free(Cuda *c, void *value) {
    plan_drop(c, value);
    free(value);
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
        cublasLtEpilogue_t epilogue = key->way == LINEAR_GELU ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
        LT(cublasLtMatmulDescSetAttribute_(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        LT(cublasLtMatmulDescSetAttribute_(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
    LT(cublasLtMatrixLayoutCreate_(&p->w, type, (uint64_t)key->k, (uint64_t)key->n, key->ldw));
    LT(cublasLtMatrixLayoutCreate_(&p->x, type, (uint64_t)key->k, (uint64_t)key->m, key->ldx));
    LT(cublasLtMatrixLayoutCreate_(&p->y, type, (uint64_t)key->n, (uint64_t)key->m, key->ldy));
    return OK;
}

static Status prefer(Exec *x, const Key *key, cublasLtMatmulPreference_t wish) {
    uint64_t limit = key->bias && key->way != LINEAR_GELU ? CUDA_LT_WORKSPACE : CUDA_BLAS_WORKSPACE; /* the reference's */
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
    return OK;
}

/* Whether an algorithm that was found for other layouts or another M does for p's, in the workspace there is. */
static bool suits(Exec *x, const Plan *p, cublasLtMatmulHeuristicResult_t *at) {
    cublasLtMatmulHeuristicResult_t found;
    cublasStatus_t code = x->cuda->libs.cublasLtMatmulAlgoCheck_(x->cuda->lt, p->product, p->w, p->x, p->y, p->y, &at->algo,
                                                                 &found);
    if (code != CUBLAS_STATUS_SUCCESS || found.workspaceSize > CUDA_BLAS_WORKSPACE) return false;
    at->workspaceSize = found.workspaceSize;
    return true;
}

/* `wanted` candidates for the layouts of p. */
static Status ask_layouts(Exec *x, const Key *key, const Plan *p, cublasLtMatmulPreference_t wish, int wanted,
                          Candidates *out) {
    LT(cublasLtMatmulAlgoGetHeuristic_(x->cuda->lt, p->product, p->w, p->x, p->y, p->y, wish, wanted, out->at, &out->count));
    int kept = 0;
    for (int i = 0; i < out->count; i++)
        if (out->at[i].state == CUBLAS_STATUS_SUCCESS) out->at[kept++] = out->at[i];
    out->count = kept;
    return OK;
}

/* The same for contiguous rows, as far as they do for p's. */
static Status ask_contiguous(Exec *x, const Key *key, const void *bias, const Plan *p, cublasLtMatmulPreference_t wish,
                             int wanted, Candidates *out) {
    Key tight = *key;
    Plan plain = {0};
    tight.ldx = key->k, tight.ldy = key->n;
    Status s = describe(x, &tight, &plain, bias);
    if (s == OK) s = ask_layouts(x, &tight, &plain, wish, wanted, out);
    plan_drop(x->cuda, &plain);
    int kept = 0;
    for (int i = 0; s == OK && i < out->count; i++)
        if (suits(x, p, &out->at[i])) out->at[kept++] = out->at[i];
    out->count = kept;
    return s;
}

static Status ask(Exec *x, const Key *key, const void *bias, const Plan *p, int wanted, Candidates *out) {
    cublasLtMatmulPreference_t wish = NULL;
    out->count = 0;
    LT(cublasLtMatmulPreferenceCreate_(&wish));
    Status s = prefer(x, key, wish);
    if (s == OK && (key->ldx != key->k || key->ldy != key->n)) s = ask_contiguous(x, key, bias, p, wish, wanted, out);
    if (s == OK && !out->count) s = ask_layouts(x, key, p, wish, wanted, out);
    x->cuda->libs.cublasLtMatmulPreferenceDestroy_(wish);
    return s;
}

static uint32_t splits(Exec *x, const cublasLtMatmulAlgo_t *algo) {
    uint32_t n = 0;
    size_t written;
    cublasStatus_t code = x->cuda->libs.cublasLtMatmulAlgoConfigGetAttribute_(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &n,
                                                                              sizeof n, &written);
    return code == CUBLAS_STATUS_SUCCESS ? n : 0;
}

static Status plan_of(Exec *x, const Key *key, const void *bias, Plan **out);

/* Alignment of an address so many bytes behind one of this alignment. */
static int32_t behind(int32_t align, int64_t bytes) {
    while (bytes % align) align /= 2;
    return align;
}

/* How often the reference splits K for every part of a packed weight; 0: not alike, or unknown. */
static Status common_split(Exec *x, const Key *key, const void *bias, uint32_t *out) {
    int64_t size = (int64_t)dtype_size((DType)key->dtype), at = 0;
    *out = 0;
    for (int i = 0; i < LINEAR_MANY_MAX && key->part[i]; at += key->part[i++]) {
        Key part = *key;
        Plan *p;
        part.way = LINEAR_FIRST;
        part.n = key->part[i];
        memset(part.part, 0, sizeof part.part);
        part.align_w = behind(key->align_w, at * key->k * size);
        part.align_y = behind(key->align_y, at * size);
        if (key->bias) part.align_bias = behind(key->align_bias, at * size);
        TRY(plan_of(x, &part, bias ? (const char *)bias + at * size : NULL, &p));
        uint32_t n = splits(x, &p->algo);
        if (i && n != *out) n = 0;
        *out = n;
        if (!n) return OK;
    }
    return OK;
}

static Status choose(Exec *x, const Key *key, const void *bias, Plan *p) {
    Candidates found;
    uint32_t split = 0;
    int i = 0;
    if (key->way == LINEAR_ROWS) {
        Key row = *key;
        Plan *one;
        row.way = LINEAR_FIRST;
        row.m = 1, row.ldx = key->k, row.ldy = key->n;
        TRY(plan_of(x, &row, bias, &one));
        found.count = 1;
        found.at[0].algo = one->algo;
        if (!suits(x, p, &found.at[0])) found.count = 0;
    } else if (key->way == LINEAR_PACKED) {
        TRY(common_split(x, key, bias, &split));
        found.count = 0;
        if (split) TRY(ask(x, key, bias, p, CANDIDATES, &found));
        while (i < found.count && splits(x, &found.at[i].algo) != split) i++;
    } else {
        TRY(ask(x, key, bias, p, 1, &found));
    }
    p->none = i >= found.count;
    if (p->none && key->way == LINEAR_FIRST)
        return lt_fail(x, key, "cublasLtMatmulAlgoGetHeuristic: no algorithm", CUBLAS_STATUS_NOT_SUPPORTED);
    if (p->none) return OK;
    p->algo = found.at[i].algo;
    p->workspace = found.at[i].workspaceSize;
    return OK;
}

/* The plan of this problem, made when it is met for the first time. bias: NULL, or an address of the key's alignment. */
static Status plan_of(Exec *x, const Key *key, const void *bias, Plan **out) {
    *out = cuda_plans_find(x->cuda->plans, key, sizeof *key);
    if (*out) return OK;
    Plan *p = calloc(1, sizeof *p);
    if (!p) return fail(x->error, ERR_MEMORY, "out of memory");
    Status s = describe(x, key, p, bias);
    if (s == OK) s = choose(x, key, bias, p);
    if (s != OK) {
        plan_free(x->cuda, p);
        return s;
    }
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

/* Once a plan: another algorithm of the same bits, where one is known or looked for. */
static Status tune(Exec *x, const Key *key, Plan *p, Tensor y, Tensor in, const Weight *w) {
    char label[120];
    size_t size = dtype_size(y.dtype);
    p->tuned = true;
    static const char *const WAYS[] = {[LINEAR_FIRST] = "", [LINEAR_PACKED] = ", packed", [LINEAR_ROWS] = ", rows alone",
                                       [LINEAR_GELU] = ", GELU"};
    snprintf(label, sizeof label, "M %lld, K %lld, N %lld, %s%s%s", (long long)key->m, (long long)key->k, (long long)key->n,
             dtype_name(y.dtype), key->bias ? ", bias" : "", WAYS[key->way]);
    const TunePlan plan = {.key = key, .key_size = sizeof *key, .label = label, .product = p->product, .w = p->w, .x = p->x,
                           .y = p->y, .w_data = w->w.data, .x_data = in.data, .y_data = y.data,
                           .row_bytes = (size_t)key->n * size, .pitch = (size_t)key->ldy * size, .rows = key->m,
                           .align_w = key->align_w, .align_x = key->align_x, .align_y = key->align_y, .algo = &p->algo,
                           .workspace = &p->workspace};
    return tune_cuda_plan(x, &plan);
}

Status linear_cuda_product(Exec *x, Tensor y, Tensor in, const Weight *w, bool fused, const LinearHow *how, bool *done) {
    Key key;
    memset(&key, 0, sizeof key);
    int64_t rows;
    *done = true;
    key.kind = KEY_LINEAR;
    key.way = (int32_t)how->way;
    memcpy(key.part, how->part, sizeof key.part);
    key.n = columns(&y);
    key.k = columns(&in);
    if (!as_rows(&in, &rows, &key.ldx) || !as_rows(&y, &key.m, &key.ldy) || rows != key.m) {
        *done = how->way == LINEAR_FIRST || how->way == LINEAR_GELU;
        if (!*done) return OK;
        int d = 0; /* rows without one distance: a product for each index of the first real dimension */
        while (d < y.rank - 2 && y.shape[d] == 1) d++;
        if (y.rank != in.rank || d >= y.rank - 2 || y.shape[d] != in.shape[d])
            return fail(x->error, ERR_MODEL, "%s: linear: rows of x and y overlap or lie differently", name_of(w));
        for (int64_t i = 0; i < y.shape[d] && *done; i++)
            TRY(linear_cuda_product(x, tensor_slice(y, d, i, 1), tensor_slice(in, d, i, 1), w, fused, how, done));
        return OK;
    }
    size_t size = dtype_size(y.dtype);
    if (!key.k) { /* an empty sum */
        *done = how->way == LINEAR_FIRST;
        if (!*done) return OK;
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
    Plan *p;
    TRY(plan_of(x, &key, bias, &p));
    *done = !p->none;
    if (p->none) return OK;
    if (fused) {
        cublasStatus_t code = x->cuda->libs.cublasLtMatmulDescSetAttribute_(
            p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
        if (code != CUBLAS_STATUS_SUCCESS) return lt_fail(x, &key, "set the bias pointer", code);
    }
    if (x->cuda->tune && !p->tuned) TRY(tune(x, &key, p, y, in, w));
    const float one = 1, zero = 0;
    cublasStatus_t code = x->cuda->libs.cublasLtMatmul_(x->cuda->lt, p->product, &one, w->w.data, p->w, in.data, p->x,
                                                        &zero, y.data, p->y, y.data, p->y, &p->algo, x->cuda->workspace,
                                                        p->workspace, x->cuda->stream);
    return code == CUBLAS_STATUS_SUCCESS ? OK : lt_fail(x, &key, "cublasLtMatmul", code);
}

Status linear_cuda_check(Exec *x, Tensor in, const Weight *w, Tensor y) {
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

Status linear_cuda_bias(Exec *x, Tensor y, const Weight *w) {
    if (!tensor_contiguous(y) || !tensor_contiguous(w->bias))
        return cuda_pieces_op(x, OP_add, &(Add){.y = y, .a = y, .b = w->bias});
    return conv_pieces_post(x, tensor_view(y, 1, row_count(&y), columns(&y)), w->bias, (Tensor){0}, (Tensor){0});
}

static Status product(Exec *x, Tensor y, Tensor in, const Weight *w, int bias_mode) {
    const LinearHow reference = {.way = LINEAR_FIRST};
    bool done, bias = w->bias.rank != 0, after = bias && bias_mode != BIAS_FUSED;
    TRY(linear_cuda_check(x, in, w, y));
    if (!tensor_numel(y)) return OK;
    TRY(cuda_need_lt(x->cuda, x->error));
    TRY(linear_cuda_product(x, y, in, w, bias && !after, &reference, &done));
    if (after) TRY(linear_cuda_bias(x, y, w));
    return cuda_launched(x, "linear");
}

/* --- the ops --- */

static Status linear(Exec *x, const void *args) {
    const Linear *a = args;
    return product(x, a->y, a->x, a->w, a->bias_mode);
}

static Status linear_many(Exec *x, const void *args) {
    const LinearMany *a = args;
    if (linear_cuda_turns(a)) return linear_cuda_turned(x, a);
    for (int i = 0; i < LINEAR_MANY_MAX && a->w[i]; i++) TRY(product(x, a->y[i], a->x, a->w[i], a->bias_mode));
    return OK;
}

static size_t linear_many_scratch(const Exec *x, const void *args) {
    (void)x;
    return linear_cuda_turned_scratch(args);
}

static Status linear_rows(Exec *x, const void *args) {
    const Linear *a = args;
    if (a->x.rank != 2 || a->y.rank != 2) return fail(x->error, ERR_MODEL, "%s: linear_rows takes matrices", name_of(a->w));
    TRY(linear_cuda_check(x, a->x, a->w, a->y));
    for (int64_t i = 0; i < a->y.shape[0]; i++)
        TRY(product(x, tensor_slice(a->y, 0, i, 1), tensor_slice(a->x, 0, i, 1), a->w, a->bias_mode));
    return OK;
}

static Status linear_gelu(Exec *x, const void *args) {
    const Linear *a = args;
    TRY(linear(x, args));
    return cuda_pieces_op(x, OP_act, &(Act){.y = a->y, .x = a->y, .kind = ACT_GELU_TANH});
}

static Status linear_many_gelu(Exec *x, const void *args) {
    const LinearManyGelu *a = args;
    int last = 0;
    for (int i = 0; i < LINEAR_MANY_MAX && a->w[i]; i++) TRY(product(x, a->y[last = i], a->x, a->w[i], a->bias_mode));
    return cuda_pieces_op(x, OP_act, &(Act){.y = a->g, .x = a->y[last], .kind = ACT_GELU_TANH});
}

bool linear_cuda_plain(Tensor x, const Weight *w, char *why, size_t size) {
    if (!cuda_takes_weight(w, x.dtype, why, size)) return false;
    if ((uintptr_t)w->w.data % WEIGHT_ALIGN || (w->bias.rank && (uintptr_t)w->bias.data % WEIGHT_ALIGN))
        return snprintf(why, size, "%s: not aligned to %d bytes", name_of(w), WEIGHT_ALIGN), false;
    return true;
}

static bool linear_accepts(const void *args, char *why, size_t size) {
    const Linear *a = args;
    return linear_cuda_plain(a->x, a->w, why, size);
}

static bool all_plain(Tensor x, const Weight *const *w, char *why, size_t size) {
    for (int i = 0; i < LINEAR_MANY_MAX && w[i]; i++)
        if (!linear_cuda_plain(x, w[i], why, size)) return false;
    return true;
}

static bool linear_many_accepts(const void *args, char *why, size_t size) {
    const LinearMany *a = args;
    return all_plain(a->x, a->w, why, size);
}

static bool linear_many_gelu_accepts(const void *args, char *why, size_t size) {
    const LinearManyGelu *a = args;
    return all_plain(a->x, a->w, why, size);
}

const Impl LINEAR_CUDA[] = {
    {OP_linear, "cuda", linear, NULL, linear_accepts},
    {OP_linear_rows, "cuda", linear_rows, NULL, linear_accepts},
    {OP_linear_many, "cuda", linear_many, linear_many_scratch, linear_many_accepts},
    {OP_linear_gelu, "cuda", linear_gelu, NULL, linear_accepts},
    {OP_linear_many_gelu, "cuda", linear_many_gelu, NULL, linear_many_gelu_accepts},
};
const int LINEAR_CUDA_COUNT = sizeof LINEAR_CUDA / sizeof *LINEAR_CUDA;

#endif
