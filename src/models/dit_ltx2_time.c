/* dit_ltx2_time.c - the LTX-2 transformer's modulations of a step (dit_ltx2_parts.h): small products, over and done before the
 * blocks begin.
 *
 * Tokens of one time share a modulation, so it is made for the few distinct times. How a product of few rows is cut is part of
 * its bits, so there are as many rows as the reference has, all alike: one a sample. Where tokens have times of their own, it has
 * one a token; those products are whole, as they are from some 28 rows on, and MANY rows stand for them.
 * Easy to get wrong: the last norm takes the embedding itself, everything else its SiLU; cross-modal modulation has a time of
 * its own, and so has that of text keys and values (the stream's sigma, whatever its tokens have). */
#include "models/dit_ltx2_parts.h"

enum { WIDTH = 256, /* of the sinusoids; hard-coded in the class */
       MANY = 64 };

/* One module's times: t F32 [n], all of them `over` times. */
typedef struct Times { Tensor t; int64_t over; } Times;

static int64_t rows_of(const Times *t) { return t->over * t->t.shape[0]; }

/* y [rows, k D] of the module; embedded: NULL, or where its embedding [rows, D] goes. */
static Status modulator(Exec *x, const Ltx2Modulator *l, int64_t d, const Times *t, Tensor *embedded, Tensor y) {
    size_t mark = arena_mark(x->work);
    int64_t rows = rows_of(t), n = t->t.shape[0];
    Tensor wave = exec_new(x, rows, WIDTH), own = embedded ? *embedded : exec_new(x, rows, d), active = exec_new(x, rows, d);
    for (int64_t i = 0; i < n; i++)
        TRY(op_time_embed(x, &(TimeEmbed){.y = tensor_slice(wave, 0, i, 1), .t = tensor_slice(t->t, 0, i, 1),
                                          .max_period = 10000.0f}));
    if (t->over > 1) {
        Tensor from = tensor_view(tensor_slice(wave, 0, 0, n), 1, n * WIDTH), rest = tensor_slice(wave, 0, n, rows - n);
        from.shape[0] = t->over - 1, from.stride[0] = 0;
        TRY(op_copy(x, &(Copy){.y = tensor_view(rest, t->over - 1, n * WIDTH), .x = from}));
    }
    TRY(blocks_mlp(&l->embed, x, own, wave));
    TRY(op_act(x, &(Act){.y = active, .x = own, .kind = ACT_SILU}));
    TRY(op_linear(x, &(Linear){.y = y, .x = active, .w = &l->linear}));
    arena_reset(x->work, mark);
    return OK;
}

/* Row k of a module's y into rows [first, first + count) of the joined [mods, D]. */
static Status join(Exec *x, Tensor all, int64_t first, int64_t count, Tensor y, int64_t k) {
    Tensor row = tensor_view(tensor_slice(y, 0, k, 1), count, all.shape[1]);
    return op_copy(x, &(Copy){.y = tensor_slice(all, 0, first, count), .x = row});
}

static Status scaled(Exec *x, Tensor t, double by, Tensor *out) {
    *out = t;
    if (by == 1) return OK;
    *out = exec_new_as(x, F32, t.shape[0]);
    return op_affine(x, &(Affine){.y = *out, .x = t, .mul = (float)by});
}

static Status stream(const Ltx2Dit *m, Exec *x, const Ltx2Grid *g, const Ltx2Prompt *p, const Ltx2Step *step, int64_t samples,
                     Ltx2Which s, Ltx2Times *out) {
    const Ltx2Stream *l = &m->stream[s];
    int64_t d = l->d, own = dit_ltx2_own_rows(&m->c), prompt = own + LTX2_CROSS_ROWS;
    Tensor mine = s == LTX2_VIDEO ? step->video : step->audio, gate_time, none = {0};
    int64_t many = (MANY + mine.shape[0] - 1) / mine.shape[0];
    const Times tokens = {mine, s == LTX2_VIDEO && g->spans && many > samples ? many : samples};
    const Times cross = step->cross ? (Times){step->sigma[dit_ltx2_other(s)], samples} : tokens;
    Times gate = cross, sigma = {step->sigma[s], samples};
    TRY(scaled(x, cross.t, m->c.gate_factor, &gate_time));
    gate.t = gate_time;
    Tensor embedded = exec_new(x, rows_of(&tokens), d), y_own = exec_new(x, rows_of(&tokens), own * d);
    Tensor y_cross = exec_new(x, rows_of(&cross), LTX2_CROSS * d), y_gate = exec_new(x, rows_of(&gate), d);
    Tensor y_prompt = m->c.text_mod ? exec_new(x, rows_of(&sigma), LTX2_PROMPT_ROWS * d) : none;
    Tensor all = exec_new(x, m->mods, d);
    TRY(modulator(x, &l->time, d, &tokens, &embedded, y_own));
    TRY(modulator(x, &l->cross, d, &cross, NULL, y_cross));
    TRY(modulator(x, &l->cross_gate, d, &gate, NULL, y_gate));
    if (m->c.text_mod) TRY(modulator(x, &l->prompt, d, &sigma, NULL, y_prompt));
    for (int k = 0; k < out->values[s]; k++) {
        /* with a time of its own there is one row a sample, all alike: any will do */
        int64_t at = cross.t.shape[0] == 1 ? 0 : k;
        TRY(join(x, all, 0, own, y_own, k));
        TRY(join(x, all, own, LTX2_CROSS, y_cross, at));
        TRY(join(x, all, own + LTX2_GATE_CROSS, 1, y_gate, at));
        if (m->c.text_mod) TRY(join(x, all, prompt, LTX2_PROMPT_ROWS, y_prompt, 0));
        int64_t layers = m->c.layers, width = m->mods * d;
        TRY(op_add(x, &(Add){.y = tensor_view(out->mod[s][k], layers, width), .a = tensor_view(p->table[s], layers, width),
                             .b = tensor_view(all, width)}));
        TRY(op_add(x, &(Add){.y = out->last[s][k], .a = l->table, .b = tensor_view(tensor_slice(embedded, 0, k, 1), d)}));
    }
    return exec_tap(x, s == LTX2_VIDEO ? "ltx2.time.video" : "ltx2.time.audio", tensor_slice(y_own, 0, 0, 1));
}

Status dit_ltx2_time_make(const Ltx2Dit *m, Exec *x, const Ltx2Grid *g, const Ltx2Prompt *p, const Ltx2Step *step,
                          int64_t samples, Ltx2Times *out) {
    out->values[LTX2_VIDEO] = (int)step->video.shape[0];
    out->values[LTX2_AUDIO] = (int)step->audio.shape[0];
    for (int s = 0; s < LTX2_STREAMS; s++)
        for (int k = 0; k < out->values[s]; k++) {
            out->mod[s][k] = exec_new(x, m->c.layers, m->mods, m->stream[s].d);
            out->last[s][k] = exec_new(x, 2, m->stream[s].d);
        }
    size_t mark = arena_mark(x->work);
    for (int s = 0; s < LTX2_STREAMS; s++) TRY(stream(m, x, g, p, step, samples, (Ltx2Which)s, out));
    arena_reset(x->work, mark);
    return OK;
}
