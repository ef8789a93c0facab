/* dit_ltx2_block.c - one block of the LTX-2 transformer (dit_ltx2_parts.h): self attention, text attention, attention between the
 * streams, feed-forward, each of both streams.
 *
 * A stream's work row n holds, in turn, the modulated norm that goes into a sublayer and the update that comes out of it.
 * Easy to get wrong: gates of heads are made of the same modulated norm as the queries; keys and values of video-to-audio
 * attention come from the video stream as it was before audio-to-video changed it, hence the second modulation y2. */
#include "models/dit_ltx2_parts.h"

#include <math.h>

static const Tensor NONE = {0};

bool dit_ltx2_block_rows(const Ltx2Grid *g, Ltx2Which s, int64_t samples, Ltx2Rows *r) {
    int64_t tokens = g->tokens[s];
    if (s == LTX2_AUDIO || g->spans <= 1) { /* one time: all samples at once */
        if (r->count) return false;
        *r = (Ltx2Rows){.count = samples * tokens, .value = s == LTX2_VIDEO && g->spans ? g->span[0].value : 0};
        return true;
    }
    if (r->count && ++r->span == g->spans) r->span = 0, r->sample++;
    if (r->sample == samples) return false;
    const Ltx2Span *span = &g->span[r->span];
    r->start = r->sample * tokens + span->start, r->count = span->count, r->value = span->value;
    return true;
}

/* What all sublayers of a pass have in common. */
typedef struct Walker {
    const Ltx2Dit *m;
    Exec *x;
    int i; /* the block */
    const Ltx2Grid *g;
    const Ltx2Prompt *p;
    const Ltx2Times *t;
    const Ltx2Pass *pass;
    const Tensor *h;
} Walker;

static Tensor part(Tensor t, const Ltx2Rows *r) { return tensor_slice(t, 0, r->start, r->count); }

/* Row of the block's modulation; absent for -1. */
static Tensor mod(const Walker *w, Ltx2Which s, int value, int64_t row) {
    if (row < 0) return NONE;
    Tensor t = tensor_slice(tensor_slice(w->t->mod[s][value], 0, w->i, 1), 1, row, 1);
    return tensor_view(t, t.shape[2]);
}

/* Rows of a modulation that a step of the stream needs; -1: none. */
typedef struct Rows { int64_t gate, scale, shift, scale2, shift2; } Rows;

/* h += gate n, then n (and n2, where it is there) = the modulated norm of h; without `update` the norm alone. */
static Status step(const Walker *w, Ltx2Which s, bool update, Rows rows, Tensor n, Tensor n2) {
    float eps = (float)w->m->c.eps;
    Ltx2Rows r = {0};
    while (dit_ltx2_block_rows(w->g, s, w->pass->count, &r)) {
        Tensor h = part(w->h[s], &r), y = part(n, &r), y2 = n2.rank ? part(n2, &r) : n2;
        Tensor scale = mod(w, s, r.value, rows.scale), shift = mod(w, s, r.value, rows.shift);
        Tensor scale2 = mod(w, s, r.value, rows.scale2), shift2 = mod(w, s, r.value, rows.shift2);
        if (!update)
            TRY(op_rms_modulate(w->x, &(RmsModulate){.y = y, .y2 = y2, .x = h, .scale = scale, .shift = shift,
                                                     .scale2 = scale2, .shift2 = shift2, .eps = eps}));
        else
            TRY(op_residual_rms_modulate(w->x, &(ResidualRmsModulate){
                .h = h, .y = y, .y2 = y2, .residual = h, .x = y, .gate = mod(w, s, r.value, rows.gate), .scale = scale,
                .shift = shift, .scale2 = scale2, .shift2 = shift2, .eps = eps}));
    }
    return OK;
}

static Status gated(const Walker *w, Ltx2Which s, int64_t gate, Tensor n) {
    Ltx2Rows r = {0};
    while (dit_ltx2_block_rows(w->g, s, w->pass->count, &r)) {
        Tensor h = part(w->h[s], &r);
        TRY(op_residual_gate(w->x, &(ResidualGate){.y = h, .residual = h, .x = part(n, &r), .gate = mod(w, s, r.value, gate)}));
    }
    return OK;
}

/* --- attention --- */

/* Queries or keys of all samples, in place: normed and, with tables, rotated. k, wk: what the same tables turn besides, or
 * absent. */
static Status norm_rope(const Walker *w, int64_t heads, Tensor q, Tensor wq, Tensor k, Tensor wk, Tensor cos_table,
                        Tensor sin_table) {
    int64_t samples = cos_table.rank ? w->pass->count : 1, tokens = q.shape[0] / samples;
    for (int64_t b = 0; b < samples; b++) {
        Tensor qs = tensor_slice(q, 0, b * tokens, tokens), ks = k.rank ? tensor_slice(k, 0, b * tokens, tokens) : k;
        TRY(op_norm_rope_split(w->x, &(NormRopeSplit){.yq = qs, .yk = ks, .q = qs, .k = ks, .wq = wq, .wk = wk,
                                                      .cos = cos_table, .sin = sin_table, .eps = dit_ltx2_qk_eps(),
                                                      .heads = (int32_t)heads, .form = w->g->form}));
    }
    return OK;
}

/* o = attention of each sample; q, k, v, o [samples * tokens, heads * E]. */
static Status attend(const Walker *w, Tensor o, Tensor q, Tensor k, Tensor v, Tensor bias, int64_t heads) {
    int64_t samples = w->pass->count, tq = q.shape[0] / samples, tk = k.shape[0] / samples, e = q.shape[1] / heads;
    for (int64_t b = 0; b < samples; b++)
        TRY(op_attention(w->x, &(Attention){.o = tensor_split(tensor_slice(o, 0, b * tq, tq), e),
                                            .q = tensor_split(tensor_slice(q, 0, b * tq, tq), e),
                                            .k = tensor_split(tensor_slice(k, 0, b * tk, tk), e),
                                            .v = tensor_split(tensor_slice(v, 0, b * tk, tk), e), .bias = bias,
                                            .scale = (float)(1.0 / sqrt((double)e))}));
    return OK;
}

/* n, which was the queries' input, becomes out(o), o gated head by head where the stream is. */
static Status project(const Walker *w, Ltx2Which s, const Ltx2Attention *a, Tensor o, Tensor n) {
    size_t mark = arena_mark(w->x->work);
    if (w->m->c.stream[s].gated) {
        Tensor logits = exec_new(w->x, n.shape[0], a->heads), heads = tensor_split(o, o.shape[1] / a->heads);
        TRY(op_linear(w->x, &(Linear){.y = logits, .x = n, .w = &a->gate}));
        TRY(op_head_gate(w->x, &(HeadGate){.y = heads, .x = heads, .logits = logits}));
    }
    TRY(op_linear(w->x, &(Linear){.y = n, .x = o, .w = &a->out}));
    arena_reset(w->x->work, mark);
    return OK;
}

static Status self_attention(const Walker *w, Ltx2Which s, Tensor n) {
    const Ltx2Attention *a = &w->m->block[w->i][s].self;
    size_t mark = arena_mark(w->x->work);
    int64_t rows = n.shape[0], d = w->m->stream[s].d;
    Tensor o = exec_new(w->x, rows, d);
    const Ltx2Pass *pass = w->pass;
    if ((w->m->c.perturbed || pass->always) && pass->perturbed && pass->perturbed[w->i] && !pass->spared[s]) {
        TRY(op_linear(w->x, &(Linear){.y = o, .x = n, .w = &a->v}));
    } else {
        Tensor qkv = exec_new(w->x, rows, 3 * d);
        Tensor q = tensor_slice(qkv, 1, 0, d), k = tensor_slice(qkv, 1, d, d), v = tensor_slice(qkv, 1, 2 * d, d);
        TRY(op_linear_many(w->x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&a->q, &a->k, &a->v}}));
        TRY(norm_rope(w, a->heads, q, a->norm_q, k, a->norm_k, w->g->cos[s], w->g->sin[s]));
        TRY(attend(w, o, q, k, v, NONE, a->heads));
    }
    TRY(project(w, s, a, o, n));
    arena_reset(w->x->work, mark);
    return OK;
}

/* Keys and values of the stream's context: the prompt's where it has them, else made from the context, modulated. */
static Status text_kv(const Walker *w, Ltx2Which s, Tensor *kv) {
    const Ltx2Prompt *p = w->p;
    const Ltx2Attention *a = &w->m->block[w->i][s].text;
    int64_t d = w->m->stream[s].d, first = w->pass->first * p->rows, rows = w->pass->count * p->rows;
    if (p->kv[s].rank) {
        Tensor all = tensor_view(tensor_slice(p->kv[s], 0, w->i, 1), p->samples * p->rows, 2 * d);
        *kv = tensor_slice(all, 0, first, rows);
        return OK;
    }
    int64_t prompt = dit_ltx2_own_rows(&w->m->c) + LTX2_CROSS_ROWS;
    *kv = exec_new(w->x, rows, 2 * d);
    Tensor k = tensor_slice(*kv, 1, 0, d), v = tensor_slice(*kv, 1, d, d);
    size_t mark = arena_mark(w->x->work);
    Tensor context = exec_new(w->x, rows, d);
    TRY(op_modulate(w->x, &(Modulate){.y = context, .x = tensor_slice(p->context[s], 0, first, rows),
                                      .scale = mod(w, s, 0, prompt + LTX2_SCALE_PROMPT),
                                      .shift = mod(w, s, 0, prompt + LTX2_SHIFT_PROMPT)}));
    TRY(op_linear_many(w->x, &(LinearMany){.y = {k, v}, .x = context, .w = {&a->k, &a->v}}));
    arena_reset(w->x->work, mark);
    return norm_rope(w, a->heads, k, a->norm_k, NONE, NONE, NONE, NONE);
}

static Status text_attention(const Walker *w, Ltx2Which s, Tensor n) {
    const Ltx2Attention *a = &w->m->block[w->i][s].text;
    size_t mark = arena_mark(w->x->work);
    int64_t d = w->m->stream[s].d;
    Tensor q = exec_new(w->x, n.shape[0], d), o = exec_new(w->x, n.shape[0], d), kv;
    TRY(text_kv(w, s, &kv));
    TRY(op_linear(w->x, &(Linear){.y = q, .x = n, .w = &a->q}));
    TRY(norm_rope(w, a->heads, q, a->norm_q, NONE, NONE, NONE, NONE));
    TRY(attend(w, o, q, tensor_slice(kv, 1, 0, d), tensor_slice(kv, 1, d, d), w->p->bias, a->heads));
    TRY(project(w, s, a, o, n));
    arena_reset(w->x->work, mark);
    return OK;
}

/* Queries of stream s from n, keys and values of the other stream from `from`. */
static Status cross_attention(const Walker *w, Ltx2Which s, Tensor n, Tensor from) {
    const Ltx2Attention *a = &w->m->block[w->i][s].cross;
    const Ltx2Grid *g = w->g;
    Ltx2Which other = dit_ltx2_other(s);
    size_t mark = arena_mark(w->x->work);
    int64_t d = w->m->stream[LTX2_AUDIO].d; /* on both sides */
    Tensor q = exec_new(w->x, n.shape[0], d), o = exec_new(w->x, n.shape[0], d), kv = exec_new(w->x, from.shape[0], 2 * d);
    Tensor k = tensor_slice(kv, 1, 0, d), v = tensor_slice(kv, 1, d, d);
    TRY(op_linear(w->x, &(Linear){.y = q, .x = n, .w = &a->q}));
    TRY(op_linear_many(w->x, &(LinearMany){.y = {k, v}, .x = from, .w = {&a->k, &a->v}}));
    TRY(norm_rope(w, a->heads, q, a->norm_q, NONE, NONE, g->cross_cos[s], g->cross_sin[s]));
    TRY(norm_rope(w, a->heads, k, a->norm_k, NONE, NONE, g->cross_cos[other], g->cross_sin[other]));
    TRY(attend(w, o, q, k, v, NONE, a->heads));
    TRY(project(w, s, a, o, n));
    arena_reset(w->x->work, mark);
    return OK;
}

/* --- the block --- */

static Status feed_forward(const Walker *w, Ltx2Which s, Tensor n) {
    const Ltx2BlockStream *l = &w->m->block[w->i][s];
    size_t mark = arena_mark(w->x->work);
    Tensor wide = exec_new(w->x, n.shape[0], LTX2_FF * w->m->stream[s].d);
    TRY(op_linear_gelu(w->x, &(Linear){.y = wide, .x = n, .w = &l->ff_in}));
    TRY(op_linear(w->x, &(Linear){.y = n, .x = wide, .w = &l->ff_out}));
    arena_reset(w->x->work, mark);
    return OK;
}

/* Self and text attention of a stream: n holds the text's update afterwards. */
static Status attentions(const Walker *w, Ltx2Which s, Tensor n) {
    bool text = w->m->c.text_mod;
    TRY(step(w, s, false, (Rows){-1, LTX2_SCALE_SELF, LTX2_SHIFT_SELF, -1, -1}, n, NONE));
    TRY(self_attention(w, s, n));
    TRY(step(w, s, true, (Rows){LTX2_GATE_SELF, text ? LTX2_SCALE_TEXT : -1, text ? LTX2_SHIFT_TEXT : -1, -1, -1}, n, NONE));
    return text_attention(w, s, n);
}

/* The attention between the streams, from the texts' updates in n to their own. */
static Status between(const Walker *w, const Tensor n[LTX2_STREAMS]) {
    size_t mark = arena_mark(w->x->work);
    int64_t own = dit_ltx2_own_rows(&w->m->c), gate = w->m->c.text_mod ? LTX2_GATE_TEXT : -1;
    Tensor seen[LTX2_STREAMS]; /* of each stream by the other */
    for (int s = 0; s < LTX2_STREAMS; s++) seen[s] = exec_new(w->x, n[s].shape[0], n[s].shape[1]);
    const Rows a2v = {gate, own + LTX2_SCALE_A2V, own + LTX2_SHIFT_A2V, own + LTX2_SCALE_V2A, own + LTX2_SHIFT_V2A};
    const Rows v2a = {gate, own + LTX2_SCALE_V2A, own + LTX2_SHIFT_V2A, own + LTX2_SCALE_A2V, own + LTX2_SHIFT_A2V};
    TRY(step(w, LTX2_VIDEO, true, a2v, n[LTX2_VIDEO], seen[LTX2_VIDEO]));
    TRY(step(w, LTX2_AUDIO, true, v2a, n[LTX2_AUDIO], seen[LTX2_AUDIO]));
    TRY(cross_attention(w, LTX2_VIDEO, n[LTX2_VIDEO], seen[LTX2_AUDIO]));
    TRY(cross_attention(w, LTX2_AUDIO, n[LTX2_AUDIO], seen[LTX2_VIDEO]));
    arena_reset(w->x->work, mark);
    return OK;
}

Status dit_ltx2_block_run(const Ltx2Dit *m, Exec *x, int i, const Ltx2Grid *g, const Ltx2Prompt *p, const Ltx2Times *t,
                          const Ltx2Pass *pass, const Tensor h[LTX2_STREAMS]) {
    const Walker w = {m, x, i, g, p, t, pass, h};
    size_t mark = arena_mark(x->work);
    int64_t gate = m->c.text_mod ? LTX2_GATE_TEXT : -1;
    Tensor n[LTX2_STREAMS];
    for (int s = 0; s < LTX2_STREAMS; s++) n[s] = exec_new(x, h[s].shape[0], h[s].shape[1]);
    for (int s = 0; s < LTX2_STREAMS; s++) TRY(attentions(&w, (Ltx2Which)s, n[s]));
    if (!pass->isolated) {
        TRY(between(&w, n));
        gate = dit_ltx2_own_rows(&m->c) + LTX2_GATE_CROSS;
    }
    for (int s = 0; s < LTX2_STREAMS; s++) {
        TRY(step(&w, (Ltx2Which)s, true, (Rows){gate, LTX2_SCALE_FF, LTX2_SHIFT_FF, -1, -1}, n[s], NONE));
        TRY(feed_forward(&w, (Ltx2Which)s, n[s]));
        TRY(gated(&w, (Ltx2Which)s, LTX2_GATE_FF, n[s]));
    }
    arena_reset(x->work, mark);
    return OK;
}
