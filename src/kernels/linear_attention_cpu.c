/* linear_attention_cpu.c - the CPU table's norm_relu_rope and linear_attention.
 *
 * norm_relu_rope is the table's rmsnorm and relu, and a rotation behind them. linear_attention gives a head to a thread: one
 * walk over the tokens for the state and the sum of the keys, a second one for the outputs, BLOCK tokens at a time.
 * Easy to get wrong: sums that the contract leaves free are made in double where they are not products of matrices, so that
 * the error of this table does not enter comparisons. */
#include "kernels/gemm_cpu.h"
#include "kernels/registry.h"
#include "kernels/rows.h"

#include <stdio.h>

enum { BLOCK = 256, HEAD_MAX = 512 };

/* --- queries and keys --- */

static Status want_tables(Exec *x, const NormReluRope *a) {
    const Tensor *table[] = {&a->cos, &a->sin};
    for (int i = 0; i < 2; i++)
        if (table[i]->dtype != F32 || table[i]->rank != 2 || table[i]->shape[0] != a->x.shape[0] ||
            table[i]->stride[1] != 1 || !tensor_same_shape(*table[i], a->cos) || !table[i]->shape[1] ||
            2 * table[i]->shape[1] > HEAD_MAX || a->x.shape[1] % (2 * table[i]->shape[1]))
            return fail(x->error, ERR_MODEL, "norm_relu_rope: the RoPE tables must be F32 [%lld, half a head] for rows of %lld",
                        (long long)a->x.shape[0], (long long)a->x.shape[1]);
    return OK;
}

/* Pairs (2i, 2i+1): products and sums rounded apart. */
static void rotate(float *v, int64_t pairs, const float *c, const float *s) {
    for (int64_t i = 0; i < pairs; i++) {
        float x0 = v[2 * i], x1 = v[2 * i + 1];
        v[2 * i] = x0 * c[i] - x1 * s[i];
        v[2 * i + 1] = x1 * c[i] + x0 * s[i];
    }
}

static Status norm_relu_rope_cpu(Exec *x, const void *args) {
    const NormReluRope *a = args;
    if (a->x.rank != 2) return fail(x->error, ERR_MODEL, "norm_relu_rope: x must be [tokens, width]");
    TRY(rows_want_like(x, OP_norm_relu_rope, "yr", a->yr, a->x));
    TRY(want_tables(x, a));
    const RmsNorm norm = {.y = a->y, .x = a->x, .w = a->w, .eps = a->eps, .form = RMS_TWICE};
    TRY(ops_reference(x->ops, OP_rmsnorm)->run(x, &norm));
    TRY(ops_reference(x->ops, OP_act)->run(x, &(Act){.y = a->y, .x = a->y, .kind = ACT_RELU}));
    int64_t half = a->cos.shape[1], heads = a->x.shape[1] / (2 * half), tokens = a->x.shape[0];
#pragma omp parallel for schedule(static) if (tokens * a->x.shape[1] >= ROWS_PARALLEL_AT)
    for (int64_t t = 0; t < tokens; t++) {
        float c[HEAD_MAX / 2], s[HEAD_MAX / 2], v[HEAD_MAX];
        rows_load(c, &a->cos, (Span){t, 0, half});
        rows_load(s, &a->sin, (Span){t, 0, half});
        for (int64_t h = 0; h < heads; h++) {
            Span head = {t, h * 2 * half, 2 * half};
            rows_load(v, &a->y, head);
            rotate(v, half, c, s);
            rows_store(&a->yr, head, v);
        }
    }
    return OK;
}

/* --- linear attention --- */

typedef struct Plan {
    int64_t tokens, heads, e;
    int threads;
    bool parts; /* S as two BF16 numbers */
    size_t state, sum, a, b, c, per_thread; /* offsets into a thread's scratch, bytes */
} Plan;

static Plan plan(const LinearAttention *a) {
    Plan p = {.tokens = a->q.shape[0], .heads = a->q.shape[1], .e = a->q.shape[2], .threads = gemm_threads()};
    p.state = gemm_piece(&p.per_thread, p.e * p.e);
    p.sum = gemm_piece(&p.per_thread, p.e);
    p.a = gemm_piece(&p.per_thread, BLOCK * p.e);
    p.b = gemm_piece(&p.per_thread, BLOCK * p.e);
    p.c = gemm_piece(&p.per_thread, BLOCK * p.e);
    return p;
}

static Status check(Exec *x, const LinearAttention *a) {
    static const char *const NAMES[] = {"o", "q", "k", "qr", "kr", "v"};
    const Tensor *t = &a->o;
    TRY(rows_want_float(x, OP_linear_attention, "q", a->q));
    if (a->q.rank != 3 || a->q.shape[2] > HEAD_MAX)
        return fail(x->error, ERR_MODEL, "linear_attention: q must be [tokens, heads, head dim], at most %d wide", HEAD_MAX);
    for (int i = 0; i < 6; i++) {
        TRY(rows_want_like(x, OP_linear_attention, NAMES[i], t[i], a->q));
        if (t[i].stride[2] != 1)
            return fail(x->error, ERR_MODEL, "linear_attention: %s: the head dimension must be contiguous", NAMES[i]);
    }
    return OK;
}

static const char *head_row(const Tensor *t, int64_t token, int64_t head) {
    return (const char *)t->data + (token * t->stride[0] + head * t->stride[1]) * (int64_t)dtype_size(t->dtype);
}

static void widen_rows(float *to, const Tensor *t, int64_t first, int64_t n, int64_t head, int64_t e) {
    for (int64_t i = 0; i < n; i++) gemm_widen(to + i * e, head_row(t, first + i, head), t->dtype, F32, e);
}

static float round_to(float v, DType t) { return t == BF16 ? bf16_round(v) : v; }

/* S[c][j] = sum v[t][c] kr[t][j], and n. */
static void gather(const Plan *p, const LinearAttention *a, int64_t head, char *scratch) {
    float *state = (float *)(void *)(scratch + p->state), *rows = (float *)(void *)(scratch + p->a);
    float *columns = (float *)(void *)(scratch + p->b), *n = (float *)(void *)(scratch + p->sum);
    int64_t e = p->e;
    double sum[HEAD_MAX] = {0};
    for (int64_t t0 = 0; t0 < p->tokens; t0 += BLOCK) {
        int64_t m = gemm_min(BLOCK, p->tokens - t0);
        widen_rows(rows, &a->k, t0, m, head, e);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < e; j++) sum[j] += (double)rows[i * e + j];
        widen_rows(rows, &a->v, t0, m, head, e);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < e; j++) columns[j * BLOCK + i] = rows[i * e + j];
        widen_rows(rows, &a->kr, t0, m, head, e);
        gemm_nn(e, e, m, 1, columns, BLOCK, rows, e, t0 ? 1 : 0, state, e);
    }
    for (int64_t j = 0; j < e; j++) n[j] = round_to((float)sum[j], a->k.dtype);
    for (int64_t i = 0; p->parts && i < e * e; i++) {
        float high = bf16_round(state[i]);
        state[i] = high + bf16_round(state[i] - high);
    }
}

static void spread(const Plan *p, const LinearAttention *a, int64_t head, char *scratch) {
    const float *state = (float *)(void *)(scratch + p->state), *n = (float *)(void *)(scratch + p->sum);
    float *q = (float *)(void *)(scratch + p->a), *qr = (float *)(void *)(scratch + p->b);
    float *u = (float *)(void *)(scratch + p->c);
    int64_t e = p->e;
    DType t = a->o.dtype;
    for (int64_t t0 = 0; t0 < p->tokens; t0 += BLOCK) {
        int64_t m = gemm_min(BLOCK, p->tokens - t0);
        widen_rows(q, &a->q, t0, m, head, e);
        widen_rows(qr, &a->qr, t0, m, head, e);
        gemm_nt(m, e, e, 1, qr, e, state, e, 0, u, e);
        for (int64_t i = 0; i < m; i++) {
            double dot = 0;
            for (int64_t j = 0; j < e; j++) dot += (double)n[j] * (double)q[i * e + j];
            float z = round_to(1.0f / round_to(round_to((float)dot, t) + a->eps, t), t);
            for (int64_t j = 0; j < e; j++) u[i * e + j] *= z;
            int64_t at = (t0 + i) * a->o.stride[0] + head * a->o.stride[1];
            gemm_narrow((char *)a->o.data + at * (int64_t)dtype_size(t), t, u + i * e, e);
        }
    }
}

static Status attend(Exec *x, const LinearAttention *a, bool parts) {
    TRY(check(x, a));
    if (!tensor_numel(a->o)) return OK;
    Plan p = plan(a);
    p.parts = parts;
    char *scratch = arena_push(x->scratch, p.per_thread * (size_t)p.threads);
    if (!scratch) return fail(x->error, ERR_MEMORY, "linear_attention: no scratch");
#pragma omp parallel for schedule(dynamic, 1) num_threads(p.threads)
    for (int64_t h = 0; h < p.heads; h++) {
        char *mine = scratch + p.per_thread * (size_t)gemm_thread();
        gather(&p, a, h, mine);
        spread(&p, a, h, mine);
    }
    return OK;
}

static Status linear_attention_cpu(Exec *x, const void *args) { return attend(x, args, false); }
static Status linear_attention_parts(Exec *x, const void *args) { return attend(x, args, true); }

static size_t linear_attention_scratch(const Exec *x, const void *args) {
    (void)x;
    Plan p = plan(args);
    return p.per_thread * (size_t)p.threads;
}

static bool parts_accepts(const void *args, char *why, size_t size) {
    const LinearAttention *a = args;
    if (a->q.dtype == BF16) return true;
    snprintf(why, size, "q is %s, expected BF16: F32 has no products of BF16 numbers", dtype_name(a->q.dtype));
    return false;
}

const Impl LINEAR_ATTENTION_CPU[] = {
    {OP_norm_relu_rope, "cpu", norm_relu_rope_cpu, NULL, NULL},
    {OP_linear_attention, "cpu", linear_attention_cpu, linear_attention_scratch, NULL},
};
const int LINEAR_ATTENTION_CPU_COUNT = sizeof LINEAR_ATTENTION_CPU / sizeof *LINEAR_ATTENTION_CPU;

const Impl LINEAR_ATTENTION_PARTS_CPU[] = {
    {OP_linear_attention, "cpu_parts", linear_attention_parts, linear_attention_scratch, parts_accepts}};
