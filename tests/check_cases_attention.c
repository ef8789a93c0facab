/* check_cases_attention.c - cases of attention, attention_eager, self_attention and linear_attention.
 *
 * The reference is the formula in double. A plain same-precision computation with the contract's roundings is run
 * beside it; its worst error, relative to sum(p |v|), doubled, plus half an ulp of the result and four roundings of
 * an f32, is what an implementation may miss the reference by. For attention twice the worst error of its scores in that row
 * comes on top: a probability is wrong by as much, relatively, as its score is absolutely, and where two keys share a row with
 * scores of a hundred, one order of the sum is a draw that says nothing of another. */
#include "check.h"

#include <math.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

static const float MASKED = -1000; /* a bias below masks its key */
static const double HIDDEN = -0x1.fep127; /* the lowest bf16: what Z-Image masks with, SANA-Video with -10000 */

typedef struct Problem {
    const Buf *q, *k, *v, *bias;
    int64_t tq, tk, heads, kv_heads, e;
    double scale, softcap; /* softcap 0: none */
    int64_t window;        /* 0: none */
    bool causal, eager;
    bool row, all; /* bias is one row for all heads and queries; or [tq, tk] for all heads */
    DType t;
} Problem;

static bool drops(const Problem *p, int64_t i, int64_t j) {
    return (p->causal && j > i) || (p->window && j <= i - p->window);
}

static float capped(const Problem *p, float s) {
    float cap = (float)p->softcap;
    s = (float)check_round((double)(s * (1.0f / cap)), p->t);
    s = p->t == BF16 ? (float)check_unary(UNARY_TANH, (double)s) : tanhf(s);
    return (float)check_round((double)(s * cap), p->t);
}

static double bias_of(const Problem *p, int64_t head, int64_t i, int64_t j) {
    return (double)p->bias->v[p->row ? j : p->all ? i * p->tk + j : (head * p->tq + i) * p->tk + j];
}

/* One query row of one head in double: scores [tk], p [tk] and, per element, the sum and the sum of magnitudes. */
static void exact_row(const Problem *p, int64_t head, int64_t i, double *score, double *prob, double *out, double *size) {
    int64_t kv = head / (p->heads / p->kv_heads);
    const float *q = p->q->v + (i * p->heads + head) * p->e;
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < p->tk; j++) {
        const float *k = p->k->v + (j * p->kv_heads + kv) * p->e;
        double s = 0;
        for (int64_t d = 0; d < p->e; d++) s += (double)q[d] * (double)k[d];
        s *= p->scale;
        if (p->softcap > 0) s = p->softcap * tanh(s / p->softcap);
        if (p->bias) s += bias_of(p, head, i, j);
        score[j] = prob[j] = drops(p, i, j) ? -INFINITY : s;
        top = fmax(top, prob[j]);
    }
    for (int64_t j = 0; j < p->tk; j++) sum += prob[j] = exp(prob[j] - top);
    for (int64_t d = 0; d < p->e; d++) {
        out[d] = 0;
        size[d] = 0x1p-120;
        for (int64_t j = 0; j < p->tk; j++) {
            double x = prob[j] / sum * (double)p->v->v[(j * p->kv_heads + kv) * p->e + d];
            out[d] += x;
            size[d] += fabs(x);
        }
    }
}

/* The same in f32 loops, narrowed where the contract narrows. Returns the largest error of a score that counts: a key
 * that the bias masks has a probability of 0 in any precision. */
static double naive_row(const Problem *p, int64_t head, int64_t i, const double *score, float *prob, float *out) {
    int64_t kv = head / (p->heads / p->kv_heads);
    const float *q = p->q->v + (i * p->heads + head) * p->e;
    float top = -INFINITY, sum = 0;
    double worst = 0;
    for (int64_t j = 0; j < p->tk; j++) {
        const float *k = p->k->v + (j * p->kv_heads + kv) * p->e;
        float s = 0;
        for (int64_t d = 0; d < p->e; d++) s += q[d] * k[d];
        if (p->eager) s = (float)check_round((double)s, p->t);
        s *= (float)p->scale;
        if (p->eager) s = (float)check_round((double)s, p->t);
        if (p->softcap > 0) s = capped(p, s);
        if (p->bias) s = (float)check_r((double)s + bias_of(p, head, i, j), p->row || p->all ? F32 : p->t);
        prob[j] = drops(p, i, j) ? -INFINITY : s;
        top = fmaxf(top, prob[j]);
        if (isfinite(prob[j]) && isfinite(score[j]) && !((p->row || p->all) && bias_of(p, head, i, j) < MASKED))
            worst = fmax(worst, fabs((double)prob[j] - score[j]));
    }
    for (int64_t j = 0; j < p->tk; j++) sum += prob[j] = expf(prob[j] - top);
    for (int64_t j = 0; j < p->tk; j++)
        prob[j] = (float)check_round((double)(p->eager ? prob[j] / sum : prob[j]), p->t);
    for (int64_t d = 0; d < p->e; d++) {
        float o = 0;
        for (int64_t j = 0; j < p->tk; j++) o += prob[j] * p->v->v[(j * p->kv_heads + kv) * p->e + d];
        out[d] = p->eager ? o : o / sum;
    }
    return worst;
}

static void expect_attention(Case *c, Buf *o, const Problem *p) {
    /* whole rows of (query, head), all of them or a sample of a few hundred */
    int64_t all = p->tq * p->heads, rows = all;
    while (rows > 16 && rows * p->tk * p->e > 2000000) rows = (rows + 1) / 2;
    if (rows < all) {
        o->skipped = check_alloc(c, (size_t)o->n);
        memset(o->skipped, 1, (size_t)o->n);
    }
    int64_t *row = check_alloc(c, (size_t)rows * sizeof *row);
    double *prob = check_alloc(c, (size_t)p->tk * 8), *ref = check_alloc(c, (size_t)(rows * p->e) * 8);
    double *size = check_alloc(c, (size_t)(rows * p->e) * 8), *score = check_alloc(c, (size_t)p->tk * 8);
    double *score_error = check_alloc(c, (size_t)rows * 8);
    float *prob_f = check_alloc(c, (size_t)p->tk * 4), *naive = check_alloc(c, (size_t)(rows * p->e) * 4);
    for (int64_t r = 0; r < rows; r++) {
        row[r] = rows == all ? r : r == 0 ? all - 1 : check_below(c, all);
        exact_row(p, row[r] % p->heads, row[r] / p->heads, score, prob, ref + r * p->e, size + r * p->e);
        score_error[r] = naive_row(p, row[r] % p->heads, row[r] / p->heads, score, prob_f, naive + r * p->e);
        if (p->eager && p->t != F32) score_error[r] = 0; /* its scores are rounded, and that rounding is the contract's */
    }
    double error = 2 * check_naive_error(rows * p->e, ref, naive, size) + 4 * CHECK_U;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < p->e; d++) {
            int64_t i = r * p->e + d, at = row[r] * p->e + d;
            double room = (error + 2 * score_error[r]) * size[i];
            check_within(o, at, check_r(ref[i], p->t), room + 2 * check_half_ulp(fabs(ref[i]) + room, p->t));
            if (o->skipped) o->skipped[at] = 0;
        }
}

static const int64_t SIZES[][5] = {/* Tq, Tk, H, Hk, E */
                                   {1, 1, 1, 1, 64},      {77, 77, 12, 12, 64},  {13, 13, 3, 3, 24},
                                   {600, 600, 1, 1, 128}, {33, 65, 4, 2, 128},   {64, 64, 24, 24, 128},
                                   {5, 130, 2, 1, 16},    {256, 256, 1, 1, 512}, {129, 129, 8, 2, 96},
                                   {130, 7, 2, 2, 40},
                                   /* wide heads: tails of keys and queries, shared keys, heads of three and a half slices */
                                   {150, 333, 1, 1, 512}, {70, 129, 2, 1, 384},  {65, 64, 1, 1, 288},
                                   {130, 257, 2, 2, 480}};
enum { SIZE_COUNT = 14 };

static void make_inputs(Case *c, Problem *p, Tensor *o, Tensor *q, Tensor *k, Tensor *v, Buf **out) {
    const int64_t *s = SIZES[c->index % SIZE_COUNT];
    *p = (Problem){.t = c->index / SIZE_COUNT % 2 ? BF16 : F32, .heads = s[2], .kv_heads = s[3], .e = s[4]};
    p->tq = check_dim(c, s[0], 19);
    p->tk = check_dim(c, s[1], s[0] == s[1] ? 19 : 23);
    Layout lq = check_layout(c), lk = check_layout(c), lo = check_layout(c);
    check_label(c, "%s, queries %lld keys %lld heads %lld/%lld of %lld, q %s, k v %s", dtype_name(p->t),
                (long long)p->tq, (long long)p->tk, (long long)s[2], (long long)s[3], (long long)s[4],
                check_layout_name(lq), check_layout_name(lk));
    Buf *bq = check_in(c, "q", q, p->t, lq, SHAPE(p->tq, p->heads, p->e));
    Buf *bk = check_in(c, "k", k, p->t, lk, SHAPE(p->tk, p->kv_heads, p->e));
    Buf *bv = check_in(c, "v", v, p->t, lk, SHAPE(p->tk, p->kv_heads, p->e));
    *out = check_out(c, "o", o, p->t, lo, SHAPE(p->tq, p->heads, p->e));
    p->q = bq, p->k = bk, p->v = bv;
    p->scale = 1 / sqrt((double)p->e);
}

/* Logits of standard deviation 3, values around 0.3 so that a lost row or a wrong normalisation shows. */
static void fill_inputs(Case *c, const Problem *p, double scale) {
    double deviation = sqrt(3 / (scale * sqrt((double)p->e)));
    check_fill(c, (Buf *)(uintptr_t)p->q, 0, deviation);
    check_fill(c, (Buf *)(uintptr_t)p->k, 0, deviation);
    check_fill(c, (Buf *)(uintptr_t)p->v, 0.3, 1);
}

static void make_attention(Case *c) {
    ARGS(Attention);
    Problem p;
    Buf *o;
    make_inputs(c, &p, &a->o, &a->q, &a->k, &a->v, &o);
    p.causal = c->index / SIZE_COUNT / 2 % 2 && p.tq == p.tk;
    a->scale = (float)p.scale;
    a->mask = p.causal ? MASK_CAUSAL : MASK_NONE;
    check_label(c, "%s", p.causal ? ", causal" : "");
    fill_inputs(c, &p, p.scale);
    if (c->index / SIZE_COUNT / 4 == 1) { /* a query of NaN, and a logit far above the others */
        Buf *q = (Buf *)(uintptr_t)p.q;
        q->v[check_below(c, q->n)] = NAN;
        for (int64_t d = 0; d < p.e; d++) q->v[(q->n / p.e - 1) * p.e + d] *= 16;
    }
    if (c->index / SIZE_COUNT >= 16) { /* a mask of pairs: causal, behind padding that stands in front; or an ordinary bias */
        Buf *bias = check_in(c, "bias", &a->bias, p.t, check_below(c, 2) ? LAYOUT_DENSE : LAYOUT_PADDED, SHAPE(p.tq, p.tk));
        bool plain = c->index / SIZE_COUNT >= 18;
        int64_t first = check_below(c, p.tk);
        check_fill(c, bias, 0, 2);
        for (int64_t i = 0; !plain && i < p.tq; i++)
            for (int64_t j = 0; j < p.tk; j++)
                bias->v[i * p.tk + j] = j < first || j > i + p.tk - p.tq ? (float)check_round(-3.38e38, p.t) : 0;
        a->mask = MASK_NONE;
        p.causal = false, p.all = true, p.bias = bias;
        check_label(c, ", %s", plain ? "bias of pairs" : "mask of pairs");
    } else if (c->index / SIZE_COUNT >= 8) { /* a mask of keys, the last ones or any; then a bias of ordinary size */
        Buf *bias = check_in(c, "bias", &a->bias, p.t, LAYOUT_DENSE, SHAPE(p.tk));
        bool plain = c->index / SIZE_COUNT >= 12, tail = check_below(c, 2);
        check_fill(c, bias, 0, 2);
        float masked = (float)check_round(c->index % 2 ? HIDDEN : -10000, p.t);
        for (int64_t j = 0; !plain && j < p.tk; j++)
            bias->v[j] = j && (tail ? j > p.tk / 2 : check_below(c, 2)) ? masked : 0;
        a->mask = MASK_NONE;
        p.causal = false, p.row = true, p.bias = bias;
        check_label(c, ", %s", plain ? "bias of keys" : "mask of keys");
    }
    expect_attention(c, o, &p);
}

static void make_attention_eager(Case *c) {
    ARGS(AttentionEager);
    Problem p;
    Buf *o;
    make_inputs(c, &p, &a->o, &a->q, &a->k, &a->v, &o);
    /* CLIP: scale and causal; T5: bias, no scale; plain: VAE; Gemma-2: a cap, a window in every other layer */
    int form = c->index / SIZE_COUNT / 2 % 5;
    p.eager = true;
    p.causal = (form == 0 || form >= 3) && p.tq == p.tk;
    if (form == 1) p.scale = 1;
    if (form >= 3) p.softcap = 4;
    if (form == 4 && p.causal) p.window = 1 + check_below(c, p.tk + 3);
    a->softcap = (float)p.softcap;
    a->window = (int32_t)p.window;
    a->scale = (float)p.scale;
    a->mask = p.causal ? MASK_CAUSAL : MASK_NONE;
    check_label(c, "%s%s", p.causal ? ", causal" : form == 1 ? ", bias" : "", form >= 3 ? ", soft cap" : "");
    if (p.window) check_label(c, ", window %lld", (long long)p.window);
    fill_inputs(c, &p, p.scale);
    if (form == 1) {
        Buf *bias = check_in(c, "bias", &a->bias, p.t, check_layout(c), SHAPE(p.heads, p.tq, p.tk));
        check_fill(c, bias, 0, 2);
        p.bias = bias;
    }
    expect_attention(c, o, &p);
}

/* --- self_attention --- */

enum { SELF_WEIGHTS = 4 }; /* q, k, v, out */

static Status self_chain(Exec *x, const void *args) {
    const SelfAttention *a = args;
    int64_t t = a->x.shape[0], c = a->x.shape[1];
    Tensor q = exec_new(x, t, c), k = exec_new(x, t, c), v = exec_new(x, t, c), o = exec_new(x, t, c);
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = a->x, .w = {a->wq, a->wk, a->wv}, .bias_mode = BIAS_TURNED}));
    TRY(op_attention(x, &(Attention){.o = tensor_view(o, t, 1, c), .q = tensor_view(q, t, 1, c), .k = tensor_view(k, t, 1, c),
                                     .v = tensor_view(v, t, 1, c), .scale = a->scale}));
    TRY(op_linear(x, &(Linear){.y = q, .x = o, .w = a->wo, .bias_mode = a->out_bias}));
    return op_add(x, &(Add){.y = a->y, .a = a->residual, .b = q});
}

/* y[rows,c] = x w^T + b in double; and in f32, rounded once, or (after) before the bias too. */
static void project(const double *x, const Buf *w, const Buf *b, int64_t rows, int64_t c, double *y) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < c; n++) {
            double sum = (double)b->v[n];
            for (int64_t k = 0; k < c; k++) sum += x[i * c + k] * (double)w->v[n * c + k];
            y[i * c + n] = sum;
        }
}

static void project_f32(const float *x, const Buf *w, const Buf *b, int64_t rows, int64_t c, bool after, DType t, float *y) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < c; n++) {
            float sum = 0;
            for (int64_t k = 0; k < c; k++) sum += x[i * c + k] * w->v[n * c + k];
            if (after) sum = (float)check_round((double)sum, t);
            y[i * c + n] = (float)check_r((double)(sum + b->v[n]), t);
        }
}

/* The formula in double beside the contract's chain in f32 loops: whatever the association, twice that chain's largest
 * error may not be passed. The reference's bits are pinned by the chain of ops. */
static void expect_self_attention(Case *c, Buf *y, const Buf *x, const Buf *residual, Buf *const *w, Buf *const *b, int64_t rows,
                                  int64_t ch, int32_t out_bias) {
    int64_t n = rows * ch;
    DType t = y->view.dtype;
    double *exact[5], *in = check_alloc(c, (size_t)n * 8), *prob = check_alloc(c, (size_t)rows * 8), worst = 0;
    float *naive[5], *prob_f = check_alloc(c, (size_t)rows * 4);
    for (int i = 0; i < 5; i++) exact[i] = check_alloc(c, (size_t)n * 8), naive[i] = check_alloc(c, (size_t)n * 4);
    for (int64_t i = 0; i < n; i++) in[i] = (double)x->v[i];
    for (int i = 0; i < 3; i++) {
        project(in, w[i], b[i], rows, ch, exact[i]);
        project_f32(x->v, w[i], b[i], rows, ch, true, t, naive[i]);
    }
    double scale = 1 / sqrt((double)ch);
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0, top = -INFINITY;
        float sum_f = 0, top_f = -INFINITY;
        for (int64_t j = 0; j < rows; j++) {
            double s = 0;
            float f = 0;
            for (int64_t d = 0; d < ch; d++) {
                s += exact[0][i * ch + d] * exact[1][j * ch + d];
                f += naive[0][i * ch + d] * naive[1][j * ch + d];
            }
            prob[j] = s * scale, prob_f[j] = f * (float)scale;
            top = fmax(top, prob[j]), top_f = fmaxf(top_f, prob_f[j]);
        }
        for (int64_t j = 0; j < rows; j++) {
            sum += prob[j] = exp(prob[j] - top);
            prob_f[j] = expf(prob_f[j] - top_f);
            sum_f += prob_f[j];
            prob_f[j] = (float)check_round((double)prob_f[j], t);
        }
        for (int64_t d = 0; d < ch; d++) {
            double o = 0;
            float f = 0;
            for (int64_t j = 0; j < rows; j++) o += prob[j] * exact[2][j * ch + d], f += prob_f[j] * naive[2][j * ch + d];
            exact[3][i * ch + d] = o / sum;
            naive[3][i * ch + d] = (float)check_r((double)(f / sum_f), t);
        }
    }
    project(exact[3], w[3], b[3], rows, ch, exact[4]);
    project_f32(naive[3], w[3], b[3], rows, ch, out_bias == BIAS_AFTER, t, naive[4]);
    for (int64_t i = 0; i < n; i++) {
        exact[4][i] += (double)residual->v[i];
        worst = fmax(worst, fabs(check_r((double)naive[4][i] + (double)residual->v[i], t) - exact[4][i]));
    }
    for (int64_t i = 0; i < n; i++)
        check_within(y, i, check_r(exact[4][i], t),
                     2 * worst + 16 * CHECK_U * fabs(exact[4][i]) + check_half_ulp(exact[4][i], t));
}

static void make_self_attention(Case *c) {
    static const int64_t sizes[][2] = {{1, 8}, {16, 32}, {35, 24}, {64, 64}, {77, 128}, {40, 512}};
    enum { SIZES_SELF = 6 };
    static const char *const NAMES[][2] = {{"wq", "bq"}, {"wk", "bk"}, {"wv", "bv"}, {"wo", "bo"}};
    ARGS(SelfAttention);
    DType t = c->index / SIZES_SELF % 2 ? F32 : BF16;
    int64_t rows = check_dim(c, sizes[c->index % SIZES_SELF][0], 19), ch = check_dim(c, sizes[c->index % SIZES_SELF][1], 64);
    Layout layout = check_below(c, 3) ? LAYOUT_DENSE : LAYOUT_PADDED;
    check_label(c, "%s, %lld pixels of %lld channels, residual %s", dtype_name(t), (long long)rows, (long long)ch,
                check_layout_name(layout));
    Buf *x = check_in(c, "x", &a->x, t, LAYOUT_DENSE, SHAPE(rows, ch));
    Buf *residual = check_in(c, "residual", &a->residual, t, layout, SHAPE(rows, ch)), *y = residual;
    Buf *w[SELF_WEIGHTS], *b[SELF_WEIGHTS];
    for (int i = 0; i < SELF_WEIGHTS; i++) {
        w[i] = check_weight(c, i, t, t, LAYOUT_DENSE, SHAPE(ch, ch));
        b[i] = check_bias(c, i, t, ch);
        w[i]->name = NAMES[i][0], b[i]->name = NAMES[i][1];
        /* scores of deviation 3, a bias that shows */
        check_fill(c, w[i], 0, (i < 2 ? sqrt(3.0) : 1) / sqrt((double)ch));
        check_fill(c, b[i], 0.2, 0.5);
    }
    a->wq = &c->weight[0], a->wk = &c->weight[1], a->wv = &c->weight[2], a->wo = &c->weight[3];
    a->scale = (float)(1 / sqrt((double)ch));
    a->out_bias = c->index >= 24 ? BIAS_AFTER : BIAS_FUSED;
    if (a->out_bias == BIAS_AFTER) check_label(c, ", last bias after a rounding");
    if (check_below(c, 3) == 0) check_in_place(c, residual, &a->y), check_label(c, ", in place");
    else y = check_out(c, "y", &a->y, t, layout, SHAPE(rows, ch));
    if (!c->keeps && y != residual) c->twin = self_chain;
    check_fill(c, x, 0, 1);
    check_fill(c, residual, 0.5, 1);
    expect_self_attention(c, y, x, residual, w, b, rows, ch, a->out_bias);
}

/* --- linear attention --- */

/* Sums over tokens of one head in double, their sizes, and what plain f32 loops make of them. */
typedef struct Gathered {
    double *n, *n_size, *state, *state_size;
    float *n_naive, *state_naive;
} Gathered;

static void gather_head(const Buf *k, const Buf *kr, const Buf *v, int64_t head, Gathered *g) {
    int64_t tokens = k->view.shape[0], heads = k->view.shape[1], e = k->view.shape[2];
    for (int64_t i = 0; i < e; i++) g->n[i] = 0, g->n_size[i] = 0x1p-120, g->n_naive[i] = 0;
    for (int64_t i = 0; i < e * e; i++) g->state[i] = 0, g->state_size[i] = 0x1p-120, g->state_naive[i] = 0;
    for (int64_t t = 0; t < tokens; t++) {
        const float *ks = k->v + (t * heads + head) * e, *rs = kr->v + (t * heads + head) * e,
                    *vs = v->v + (t * heads + head) * e;
        for (int64_t i = 0; i < e; i++) {
            g->n[i] += (double)ks[i], g->n_size[i] += fabs((double)ks[i]), g->n_naive[i] += ks[i];
            for (int64_t j = 0; j < e; j++) {
                double product = (double)vs[i] * (double)rs[j];
                g->state[i * e + j] += product;
                g->state_size[i * e + j] += fabs(product);
                g->state_naive[i * e + j] += vs[i] * rs[j];
            }
        }
    }
}

/* The rounded normaliser as an interval: [0] low, [1] the value, [2] high. */
static void normaliser(const Gathered *g, const float *q, int64_t e, double eps, double n_error, DType t, double *z) {
    double dot[3] = {0}, size = 0;
    for (int64_t j = 0; j < e; j++) {
        double room = n_error * g->n_size[j], at[3];
        for (int s = 0; s < 3; s++) at[s] = check_r(g->n[j] + (s - 1) * room, t) * (double)q[j];
        dot[0] += fmin(at[0], at[2]), dot[1] += at[1], dot[2] += fmax(at[0], at[2]);
        size += fmax(fabs(at[0]), fabs(at[2]));
    }
    double reach = (double)(e + 4) * CHECK_U * size; /* any order of an f32 sum */
    for (int s = 0; s < 3; s++) {
        double d = check_r(check_r(dot[s] + (s - 1) * reach, t) + eps, t);
        z[2 - s] = check_r(1 / d, t);
    }
}

/* What a variant of the family may be off besides, in units of the sums' size: S in two parts of 8 digits each, 2^-18. On a
 * GPU each step of a tensor core (16 products and the sum so far) cuts what is below 2^-23 of its largest term, so less than
 * 17 times that, in the steps of the state and in those of both products with it. */
static double parts_error(const Case *c, int64_t tokens, int64_t e) {
    if (!c->keeps) return 0;
    int64_t steps = (tokens + 15) / 16 + 2 * ((e + 15) / 16);
    return 0x1p-18 + (c->gpu ? 17 * 0x1p-23 * (double)steps : 0);
}

static void make_linear_attention(Case *c) {
    static const int64_t sizes[][3] = {/* tokens, heads, E */
                                       {1, 1, 16}, {18, 2, 16}, {77, 3, 24}, {300, 1, 112}, {130, 2, 112}, {1000, 2, 32},
                                       {257, 1, 7}, {5, 20, 112}, {150, 3, 112}, {263, 5, 48}, {145, 2, 80},
                                       {33, 2, 128}};
    enum { COUNT = 12 };
    ARGS(LinearAttention);
    const int64_t *s = sizes[c->index % COUNT];
    DType t = c->index / COUNT % 2 ? BF16 : F32;
    int64_t tokens = check_dim(c, s[0], 19), heads = s[1], e = s[2];
    Layout lq = check_layout(c), lr = check_layout(c), lo = check_layout(c);
    check_label(c, "%s, %lld tokens, %lld heads of %lld, q %s, rotated %s, o %s", dtype_name(t),
                (long long)tokens, (long long)heads, (long long)e, check_layout_name(lq),
                check_layout_name(lr), check_layout_name(lo));
    Buf *q = check_in(c, "q", &a->q, t, lq, SHAPE(tokens, heads, e)),
        *k = check_in(c, "k", &a->k, t, lq, SHAPE(tokens, heads, e));
    Buf *qr = check_in(c, "qr", &a->qr, t, lr, SHAPE(tokens, heads, e)),
        *kr = check_in(c, "kr", &a->kr, t, lr, SHAPE(tokens, heads, e));
    Buf *v = check_in(c, "v", &a->v, t, lq, SHAPE(tokens, heads, e)),
        *o = check_out(c, "o", &a->o, t, lo, SHAPE(tokens, heads, e));
    a->eps = c->index / COUNT / 2 == 1 ? 0.5f : 1e-15f;
    Buf *all[] = {q, k, qr, kr, v};
    for (int i = 0; i < 5; i++) check_fill(c, all[i], i < 2 ? 0.5 : i == 4 ? 0.3 : 0, 1);
    for (int i = 0; i < 2; i++) /* behind a ReLU */
        for (int64_t j = 0; j < all[i]->n; j++) all[i]->v[j] = all[i]->v[j] > 0 ? all[i]->v[j] : 0;
    Gathered g = {.n = check_alloc(c, (size_t)e * 8), .n_size = check_alloc(c, (size_t)e * 8),
                  .state = check_alloc(c, (size_t)(e * e) * 8), .state_size = check_alloc(c, (size_t)(e * e) * 8),
                  .n_naive = check_alloc(c, (size_t)e * 4), .state_naive = check_alloc(c, (size_t)(e * e) * 4)};
    double *ref = check_alloc(c, (size_t)(tokens * e) * 8), *size = check_alloc(c, (size_t)(tokens * e) * 8);
    float *naive = check_alloc(c, (size_t)(tokens * e) * 4);
    for (int64_t h = 0; h < heads; h++) {
        gather_head(k, kr, v, h, &g);
        for (int64_t i = 0; i < tokens * e; i++) {
            const float *rs = qr->v + (i / e * heads + h) * e;
            ref[i] = 0, size[i] = 0x1p-120, naive[i] = 0;
            for (int64_t j = 0; j < e; j++) {
                ref[i] += g.state[i % e * e + j] * (double)rs[j];
                size[i] += g.state_size[i % e * e + j] * fabs((double)rs[j]);
                naive[i] += g.state_naive[i % e * e + j] * rs[j];
            }
        }
        double n_error = 2 * check_naive_error(e, g.n, g.n_naive, g.n_size) + 4 * CHECK_U;
        double error = 2 * check_naive_error(tokens * e, ref, naive, size) + 8 * CHECK_U + parts_error(c, tokens, e);
        for (int64_t i = 0; i < tokens; i++) {
            double z[3];
            normaliser(&g, q->v + (i * heads + h) * e, e, (double)a->eps, n_error, t, z);
            for (int64_t j = 0; j < e; j++) {
                double room = error * size[i * e + j], lo_u = ref[i * e + j] - room, hi_u = ref[i * e + j] + room;
                double low = fmin(fmin(lo_u * z[0], lo_u * z[2]), fmin(hi_u * z[0], hi_u * z[2]));
                double high = fmax(fmax(lo_u * z[0], lo_u * z[2]), fmax(hi_u * z[0], hi_u * z[2]));
                double more = t == F32 ? 4 * CHECK_U * fmax(fabs(low), fabs(high)) : 0; /* n, d, z and the product round in f32 */
                check_between(o, (i * heads + h) * e + j, check_r(ref[i * e + j] * z[1], t), check_r(low - more, t),
                              check_r(high + more, t));
            }
        }
    }
}

const CaseSet CHECK_ATTENTION[] = {
    {OP_attention, SIZE_COUNT * 20, make_attention},
    {OP_attention_eager, SIZE_COUNT * 10, make_attention_eager},
    {OP_self_attention, 48, make_self_attention},
    {OP_linear_attention, 12 * 4, make_linear_attention},
};
const int CHECK_ATTENTION_COUNT = sizeof CHECK_ATTENTION / sizeof *CHECK_ATTENTION;
