/* attention_cpu.c - the CPU table's attention and attention_eager.
 *
 * attention walks the keys in blocks with a running maximum, sum and output (the flash form), so that the scores of a
 * unit (one head, one block of queries) never exceed BLOCK_Q x BLOCK_K whatever the number of tokens: the VAE's 16,384
 * tokens at one head of 512 need no T x T matrix. attention_eager keeps whole rows of scores, because its contract
 * rounds them between the steps. q, k and v blocks are widened to f32 by the thread that multiplies them.
 * Easy to get wrong: for BF16 attention rounds the unnormalised exp(s - running maximum), sums the unrounded values
 * and divides at the end; attention_eager rounds the normalised probability. The causal mask is aligned at the first
 * query and first key. A row whose scores are all -inf gives NaN, as a softmax over nothing does. */
#include "kernels/attention_check.h"
#include "kernels/exp_cpu.h"
#include "kernels/gemm_cpu.h"
#include "kernels/registry.h"
#include "kernels/unary.h"
#include "ops.h"

enum { BLOCK_Q = 96, BLOCK_K = 512, LANES = 32 };

typedef struct Plan {
    int64_t heads, group, tq, tk, e; /* group: query heads per key head */
    int64_t block_q, blocks, block_k;
    int threads;
    size_t q, kv, scores, out, max, sum, per_thread; /* offsets into a thread's scratch, bytes */
} Plan;

static Plan plan(Tensor q, Tensor k, bool whole_rows) {
    Plan p = {.heads = q.shape[1], .tq = q.shape[0], .tk = k.shape[0], .e = q.shape[2], .threads = gemm_threads()};
    p.group = k.shape[1] ? p.heads / k.shape[1] : 1;
    p.block_q = gemm_part(p.tq, BLOCK_Q);
    p.blocks = gemm_ceil(p.tq, p.block_q);
    p.block_k = gemm_part(p.tk, BLOCK_K);
    p.q = gemm_piece(&p.per_thread, p.block_q * p.e);
    p.kv = gemm_piece(&p.per_thread, p.block_k * p.e);
    p.scores = gemm_piece(&p.per_thread, p.block_q * (whole_rows ? p.tk : p.block_k));
    p.out = gemm_piece(&p.per_thread, p.block_q * p.e);
    p.max = gemm_piece(&p.per_thread, p.block_q);
    p.sum = gemm_piece(&p.per_thread, p.block_q);
    return p;
}

/* Rows [t0, t0 + n) of one head as f32: in place when they can be used as they lie, else widened into buffer. */
static const float *head_block(const Tensor *t, int64_t head, int64_t t0, int64_t n, float *buffer, int64_t *ld) {
    int64_t e = t->shape[2];
    const char *from = (const char *)t->data +
                       (t0 * t->stride[0] + head * t->stride[1]) * (int64_t)dtype_size(t->dtype);
    if (t->dtype == F32 && t->stride[0] >= e) {
        *ld = t->stride[0];
        return (const float *)(const void *)from;
    }
    *ld = e;
    for (int64_t i = 0; i < n; i++)
        gemm_widen(buffer + i * e, from + i * t->stride[0] * (int64_t)dtype_size(t->dtype), t->dtype, F32, e);
    return buffer;
}

static float row_max(const float *s, int64_t n) { /* NaNs are skipped; they show up in the sum */
    float lane[LANES];
    for (int j = 0; j < LANES; j++) lane[j] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = s[i + j] > lane[j] ? s[i + j] : lane[j];
    for (; i < n; i++) lane[0] = s[i] > lane[0] ? s[i] : lane[0];
    for (int w = LANES / 2; w; w /= 2)
        for (int j = 0; j < w; j++) lane[j] = lane[j + w] > lane[j] ? lane[j + w] : lane[j];
    return lane[0];
}

/* s = exp(s - max); returns the sum of the f32 values. */
static float row_exp(float *s, int64_t n, float max) {
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float p = exp_f32(s[i + j] - max);
            s[i + j] = p;
            lane[j] += p;
        }
    for (int j = 0; i < n; i++, j++) lane[j] += s[i] = exp_f32(s[i] - max);
    for (int w = LANES / 2; w; w /= 2)
        for (int j = 0; j < w; j++) lane[j] += lane[j + w];
    return lane[0];
}

static void row_scale(float *v, int64_t n, float by) {
    for (int64_t i = 0; i < n; i++) v[i] *= by;
}

static void row_round(float *v, int64_t n) {
    for (int64_t i = 0; i < n; i++) v[i] = bf16_round(v[i]);
}

/* bias: of a [Tk] bias, widened; a [Tq,Tk] one is read row by row. */
static void add_bias(const Attention *a, const float *bias, int64_t query, int64_t k0, float *row, int64_t m) {
    float wide[BLOCK_K];
    if (!bias && !a->bias.rank) return;
    if (!bias) {
        int64_t at = query * a->bias.stride[0] + k0;
        gemm_widen(wide, (const char *)a->bias.data + at * (int64_t)dtype_size(a->bias.dtype), a->bias.dtype, F32, m);
    }
    const float *from = bias ? bias + k0 : wide;
    for (int64_t j = 0; j < m; j++) row[j] += from[j];
}

static void flash_unit(const Plan *p, const Attention *a, const float *bias, int64_t head, int64_t q0, char *scratch) {
    float *q_buffer = (float *)(void *)(scratch + p->q), *kv = (float *)(void *)(scratch + p->kv);
    float *s = (float *)(void *)(scratch + p->scores), *out = (float *)(void *)(scratch + p->out);
    float *max = (float *)(void *)(scratch + p->max), *sum = (float *)(void *)(scratch + p->sum);
    int64_t n = gemm_min(p->block_q, p->tq - q0), e = p->e, ldq, ld;
    bool causal = a->mask == MASK_CAUSAL, half = a->q.dtype == BF16;
    const float *q = head_block(&a->q, head, q0, n, q_buffer, &ldq);
    for (int64_t i = 0; i < n; i++) max[i] = -INFINITY, sum[i] = 0;
    memset(out, 0, (size_t)(n * e) * sizeof *out);
    int64_t keys = causal ? gemm_min(p->tk, q0 + n) : p->tk;
    for (int64_t k0 = 0; k0 < keys; k0 += p->block_k) {
        int64_t m = gemm_min(p->block_k, keys - k0);
        const float *k = head_block(&a->k, head / p->group, k0, m, kv, &ld);
        gemm_nt(n, m, e, a->scale, q, ldq, k, ld, 0, s, m);
        for (int64_t i = 0; i < n; i++) {
            float *row = s + i * m;
            if (causal)
                for (int64_t j = gemm_max(q0 + i + 1 - k0, 0); j < m; j++) row[j] = -INFINITY;
            add_bias(a, bias, q0 + i, k0, row, m);
            float block = row_max(row, m), top = block > max[i] ? block : max[i];
            float finite = top == -INFINITY ? 0 : top; /* nothing seen yet: exp(-inf - 0) is the 0 wanted */
            float keep = exp_f32(max[i] - finite);
            if (keep != 1) row_scale(out + i * e, e, keep);
            sum[i] = sum[i] * keep + row_exp(row, m, finite);
            max[i] = top;
            if (half) row_round(row, m);
        }
        const float *v = head_block(&a->v, head / p->group, k0, m, kv, &ld);
        gemm_nn(n, e, m, 1, s, m, v, ld, 1, out, e);
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < e; j++) out[i * e + j] /= sum[i];
        int64_t at = (q0 + i) * a->o.stride[0] + head * a->o.stride[1];
        gemm_narrow((char *)a->o.data + at * (int64_t)dtype_size(a->o.dtype), a->o.dtype, out + i * e, e);
    }
}

static Status attention(Exec *x, const void *args) {
    const Attention *a = args;
    TRY(attention_check(x, OP_attention, a->o, a->q, a->k, a->v));
    TRY(attention_check_bias(x, a));
    Plan p = plan(a->q, a->k, false);
    size_t total = p.per_thread * (size_t)p.threads, at = a->bias.rank == 1 ? gemm_piece(&total, p.tk) : 0;
    char *scratch = arena_push(x->scratch, total);
    if (!scratch) return fail(x->error, ERR_MEMORY, "attention: no scratch");
    float *bias = a->bias.rank == 1 ? (float *)(void *)(scratch + at) : NULL;
    if (bias) gemm_widen(bias, a->bias.data, a->bias.dtype, F32, p.tk);
    int64_t units = p.heads * p.blocks;
#pragma omp parallel for schedule(dynamic, 1) num_threads(p.threads)
    for (int64_t u = 0; u < units; u++) /* last queries first: under a causal mask they are the longest */
        flash_unit(&p, a, bias, u / p.blocks, (p.blocks - 1 - u % p.blocks) * p.block_q,
                   scratch + p.per_thread * (size_t)gemm_thread());
    return OK;
}

static size_t attention_scratch(const Exec *x, const void *args) {
    const Attention *a = args;
    (void)x;
    Plan p = plan(a->q, a->k, false);
    size_t total = p.per_thread * (size_t)p.threads;
    if (a->bias.rank == 1) gemm_piece(&total, p.tk);
    return total;
}

static void row_tanh(float *v, int64_t n, const uint16_t *table) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], 4);
        v[i] = table ? bf16_to_f32(table[bits >> 16]) : tanhf(v[i]);
    }
}

/* One row of scores through scaling, cap, bias, mask and softmax, with the contract's roundings. cap: tanh of BF16. */
static void eager_row(const AttentionEager *a, int64_t head, int64_t query, float *s, int64_t n, float *wide,
                      const uint16_t *cap) {
    bool half = a->q.dtype == BF16;
    if (half) row_round(s, n);
    if (a->scale != 1.0f) {
        row_scale(s, n, a->scale);
        if (half) row_round(s, n);
    }
    if (a->softcap > 0) {
        row_scale(s, n, 1.0f / a->softcap);
        if (half) row_round(s, n);
        row_tanh(s, n, half ? cap : NULL);
        row_scale(s, n, a->softcap);
        if (half) row_round(s, n);
    }
    if (a->bias.rank) {
        int64_t at = head * a->bias.stride[0] + query * a->bias.stride[1];
        const char *from = (const char *)a->bias.data + at * (int64_t)dtype_size(a->bias.dtype);
        for (int64_t j0 = 0; j0 < n; j0 += BLOCK_K) {
            int64_t m = gemm_min(BLOCK_K, n - j0);
            gemm_widen(wide, from + j0 * (int64_t)dtype_size(a->bias.dtype), a->bias.dtype, F32, m);
            for (int64_t j = 0; j < m; j++) s[j0 + j] += wide[j];
        }
        if (half) row_round(s, n);
    }
    if (a->mask == MASK_CAUSAL)
        for (int64_t j = query + 1; j < n; j++) s[j] = -INFINITY;
    if (a->window > 0)
        for (int64_t j = gemm_min(query - a->window, n - 1); j >= 0; j--) s[j] = -INFINITY;
    float sum = row_exp(s, n, row_max(s, n));
    for (int64_t j = 0; j < n; j++) s[j] /= sum;
    if (half) row_round(s, n);
}

static void eager_unit(const Plan *p, const AttentionEager *a, int64_t head, int64_t q0, char *scratch,
                       const uint16_t *cap) {
    float *q_buffer = (float *)(void *)(scratch + p->q), *kv = (float *)(void *)(scratch + p->kv);
    float *s = (float *)(void *)(scratch + p->scores), *out = (float *)(void *)(scratch + p->out);
    float wide[BLOCK_K];
    int64_t n = gemm_min(p->block_q, p->tq - q0), e = p->e, ldq, ld;
    const float *q = head_block(&a->q, head, q0, n, q_buffer, &ldq);
    for (int64_t k0 = 0; k0 < p->tk; k0 += p->block_k) {
        int64_t m = gemm_min(p->block_k, p->tk - k0);
        const float *k = head_block(&a->k, head / p->group, k0, m, kv, &ld);
        gemm_nt(n, m, e, 1, q, ldq, k, ld, 0, s + k0, p->tk);
    }
    for (int64_t i = 0; i < n; i++) eager_row(a, head, q0 + i, s + i * p->tk, p->tk, wide, cap);
    for (int64_t k0 = 0; k0 < p->tk; k0 += p->block_k) {
        int64_t m = gemm_min(p->block_k, p->tk - k0);
        const float *v = head_block(&a->v, head / p->group, k0, m, kv, &ld);
        gemm_nn(n, e, m, 1, s + k0, p->tk, v, ld, k0 ? 1 : 0, out, e);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (q0 + i) * a->o.stride[0] + head * a->o.stride[1];
        gemm_narrow((char *)a->o.data + at * (int64_t)dtype_size(a->o.dtype), a->o.dtype, out + i * e, e);
    }
}

static Status attention_eager(Exec *x, const void *args) {
    const AttentionEager *a = args;
    TRY(attention_check(x, OP_attention_eager, a->o, a->q, a->k, a->v));
    Plan p = plan(a->q, a->k, true);
    if (a->bias.rank && (a->bias.rank != 3 || a->bias.shape[0] != p.heads || a->bias.shape[1] != p.tq ||
                         a->bias.shape[2] != p.tk || a->bias.stride[2] != 1 || a->bias.dtype != a->q.dtype))
        return fail(x->error, ERR_MODEL, "attention_eager: bias must be [%lld, %lld, %lld] of the dtype of q",
                    (long long)p.heads, (long long)p.tq, (long long)p.tk);
    if (!(a->softcap >= 0) || a->window < 0 || (a->window && a->mask != MASK_CAUSAL))
        return fail(x->error, ERR_MODEL, "attention_eager: softcap %g and window %d: expected none below 0, and a window only "
                    "under a causal mask", (double)a->softcap, (int)a->window);
    if (a->softcap > 0 && a->q.dtype == BF16 && !x->unary)
        return fail(x->error, ERR_MODEL, "attention_eager: the tables of the BF16 functions are not open");
    const uint16_t *cap = x->unary ? x->unary->table[UNARY_TANH] : NULL;
    char *scratch = arena_push(x->scratch, p.per_thread * (size_t)p.threads);
    if (!scratch) return fail(x->error, ERR_MEMORY, "attention_eager: no scratch");
    int64_t units = p.heads * p.blocks;
#pragma omp parallel for schedule(dynamic, 1) num_threads(p.threads)
    for (int64_t u = 0; u < units; u++)
        eager_unit(&p, a, u / p.blocks, u % p.blocks * p.block_q, scratch + p.per_thread * (size_t)gemm_thread(),
                   cap);
    return OK;
}

static size_t attention_eager_scratch(const Exec *x, const void *args) {
    const AttentionEager *a = args;
    (void)x;
    Plan p = plan(a->q, a->k, true);
    return p.per_thread * (size_t)p.threads;
}

const Impl ATTENTION_CPU[] = {
    {OP_attention, "cpu", attention, attention_scratch, NULL},
    {OP_attention_eager, "cpu", attention_eager, attention_eager_scratch, NULL},
};
const int ATTENTION_CPU_COUNT = sizeof ATTENTION_CPU / sizeof *ATTENTION_CPU;
