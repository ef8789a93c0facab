/* dit_ltx2.c - the LTX-2 transformer: its config, what a prompt fixes, and the way from latents to velocities (dit_ltx2.h).
 * Weights' names are in dit_ltx2_bind.c, rotary tables in dit_ltx2_rope.c, modulations in dit_ltx2_time.c, the block in
 * dit_ltx2_block.c.
 *
 * Easy to get wrong: the class default of rope_type is the one that no published model has. */
#include "models/dit_ltx2_parts.h"

#include "core/json.h"
#include "residency.h"

#include <math.h>
#include <stdlib.h>

static const float FINAL_EPS = 1e-6f; /* hard-coded in the class */

/* --- config --- */

/* Keys that the class knows and the published models leave at one value. */
static Status check_ones(const Json *j, const char *path, Error *e) {
    static const char *const ONES[] = {"patch_size", "patch_size_t", "audio_patch_size", "audio_patch_size_t"};
    for (size_t i = 0; i < sizeof ONES / sizeof *ONES; i++) {
        int64_t v = 1;
        TRY(json_sizes(j, &(JsonSize){ONES[i], &v}, 1, path, e));
        if (v != 1) return fail(e, ERR_MODEL, "%s: %s: found %lld, expected 1", path, ONES[i], (long long)v);
    }
    return OK;
}

static Status check_flags(const Json *j, const char *path, Error *e) {
    const struct { const char *key; bool fallback, want; const char *what; } FLAGS[] = {
        {"ff_bias", true, true, ": an LTX-2.5 model; ditto renders LTX-2 and LTX-2.3"},
        {"use_prompt_adaln_single", true, true, ": an LTX-2.5 model; ditto renders LTX-2 and LTX-2.3"},
        {"use_keyframes_abs_pos_embedding", false, false, ": an LTX-2.5 model; ditto renders LTX-2 and LTX-2.3"},
        {"audio_ff_bias", true, true, ""},         {"attention_bias", true, true, ""},
        {"attention_out_bias", true, true, ""},    {"rope_double_precision", true, true, ""},
        {"norm_elementwise_affine", false, false, ""},
    };
    for (size_t i = 0; i < sizeof FLAGS / sizeof *FLAGS; i++) {
        bool v = FLAGS[i].fallback;
        TRY(json_bool(j, FLAGS[i].key, &v, path, e));
        if (v != FLAGS[i].want)
            return fail(e, ERR_MODEL, "%s: %s: found %s, expected %s%s", path, FLAGS[i].key, v ? "true" : "false",
                        v ? "false" : "true", FLAGS[i].what);
    }
    return OK;
}

static Status check_names(const Json *j, const char *path, Error *e) {
    const struct { const char *key, *fallback, *want; } NAMES[] = {
        {"activation_fn", "gelu-approximate", "gelu-approximate"},
        {"qk_norm", "rms_norm_across_heads", "rms_norm_across_heads"},
        {"rope_type", "interleaved", "split"},
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const char *v = NAMES[i].fallback;
        TRY(json_string(j, NAMES[i].key, &v, path, e));
        if (strcmp(v, NAMES[i].want) != 0)
            return fail(e, ERR_MODEL, "%s: %s: found \"%s\", expected \"%s\"", path, NAMES[i].key, v, NAMES[i].want);
    }
    return OK;
}

static Status read_streams(const Json *j, const char *path, Ltx2Config *c, Error *e) {
    Ltx2StreamConfig *v = &c->stream[LTX2_VIDEO], *a = &c->stream[LTX2_AUDIO];
    *v = (Ltx2StreamConfig){.channels = 128, .heads = 32, .head_dim = 128};
    *a = (Ltx2StreamConfig){.channels = 128, .heads = 32, .head_dim = 64};
    int64_t cross = 4096, audio_cross = 2048;
    const JsonSize sizes[] = {
        {"in_channels", &v->channels},           {"audio_in_channels", &a->channels},
        {"num_attention_heads", &v->heads},      {"audio_num_attention_heads", &a->heads},
        {"attention_head_dim", &v->head_dim},    {"audio_attention_head_dim", &a->head_dim},
        {"cross_attention_dim", &cross},         {"audio_cross_attention_dim", &audio_cross},
    };
    TRY(json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e));
    v->out_channels = json_get(j, "out_channels") ? v->channels : 128; /* null: as in_channels */
    a->out_channels = json_get(j, "audio_out_channels") ? a->channels : 128;
    const JsonSize outs[] = {{"out_channels", &v->out_channels}, {"audio_out_channels", &a->out_channels}};
    TRY(json_sizes(j, outs, 2, path, e));
    TRY(json_bool(j, "gated_attn", &v->gated, path, e));
    TRY(json_bool(j, "audio_gated_attn", &a->gated, path, e));
    if (v->heads != a->heads || v->head_dim % 2 || a->head_dim % 2 || cross != v->heads * v->head_dim ||
        audio_cross != a->heads * a->head_dim)
        return fail(e, ERR_MODEL, "%s: expected as many audio_num_attention_heads as num_attention_heads %lld, heads of even "
                    "widths, and cross_attention_dim and audio_cross_attention_dim of all heads together", path,
                    (long long)v->heads);
    return OK;
}

static Status read_positions(const Json *j, const char *path, Ltx2Config *c, Error *e) {
    int scales = LTX2_AXES;
    int64_t time = 1000, gate_time = 1000;
    const JsonSize sizes[] = {
        {"pos_embed_max_pos", &c->most[0]},     {"base_height", &c->most[1]},           {"base_width", &c->most[2]},
        {"audio_scale_factor", &c->audio_scale}, {"audio_pos_embed_max_pos", &c->audio_most},
        {"audio_sampling_rate", &c->sampling_rate}, {"audio_hop_length", &c->hop},
        {"timestep_scale_multiplier", &time},   {"cross_attn_timestep_scale_multiplier", &gate_time},
    };
    TRY(json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e));
    TRY(json_int(j, "causal_offset", &c->causal_offset, path, e));
    TRY(json_ints(j, "vae_scale_factors", c->scale, LTX2_AXES, &scales, path, e));
    TRY(json_double(j, "rope_theta", &c->theta, path, e));
    bool positive = scales == LTX2_AXES;
    for (int a = 0; positive && a < LTX2_AXES; a++) positive = c->scale[a] > 0 && c->scale[a] < 4096;
    if (!positive || c->causal_offset < -4096 || c->causal_offset > 4096 || !(c->theta > 0) || !isfinite(c->theta))
        return fail(e, ERR_MODEL, "%s: expected three vae_scale_factors above 0, a small causal_offset and a rope_theta above 0",
                    path);
    c->gate_factor = (double)gate_time / (double)time;
    return OK;
}

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    Ltx2Config *c = out;
    bool text = false, audio_text = false;
    *c = (Ltx2Config){.layers = 48, .caption = 3840, .projects_caption = true, .scale = {8, 32, 32}, .most = {20, 2048, 2048},
                      .audio_scale = 4, .audio_most = 20, .sampling_rate = 16000, .hop = 160, .causal_offset = 1, .eps = 1e-6,
                      .theta = 10000}; /* the class defaults */
    const JsonSize sizes[] = {{"num_layers", &c->layers}, {"caption_channels", &c->caption}};
    TRY(check_flags(j, path, e));
    TRY(check_names(j, path, e));
    TRY(check_ones(j, path, e));
    TRY(json_sizes(j, sizes, 2, path, e));
    TRY(json_bool(j, "use_prompt_embeddings", &c->projects_caption, path, e));
    TRY(json_bool(j, "cross_attn_mod", &text, path, e));
    TRY(json_bool(j, "audio_cross_attn_mod", &audio_text, path, e));
    TRY(json_bool(j, "perturbed_attn", &c->perturbed, path, e));
    TRY(json_double(j, "norm_eps", &c->eps, path, e));
    if (text != audio_text)
        return fail(e, ERR_MODEL, "%s: expected audio_cross_attn_mod as cross_attn_mod", path);
    c->text_mod = text;
    TRY(read_streams(j, path, c, e));
    return read_positions(j, path, c, e);
}

Status dit_ltx2_open(const char *folder, Ltx2Dit *out, Error *e) {
    return json_read_in(folder, "config.json", dit_ltx2_read, out, e);
}

Status dit_ltx2_read(const char *path, const Json *j, void *to, Error *e) {
    Ltx2Dit *out = to;
    *out = (Ltx2Dit){0};
    TRY(read_config(path, j, &out->c, e));
    out->mods = dit_ltx2_own_rows(&out->c) + LTX2_CROSS_ROWS + (out->c.text_mod ? LTX2_PROMPT_ROWS : 0);
    for (int s = 0; s < LTX2_STREAMS; s++) out->stream[s].d = out->c.stream[s].heads * out->c.stream[s].head_dim;
    out->block = calloc((size_t)out->c.layers, sizeof *out->block);
    return out->block ? OK : fail(e, ERR_MEMORY, "%s: out of memory", path);
}

void dit_ltx2_close(Ltx2Dit *m) {
    free(m->block);
    *m = (Ltx2Dit){0};
}

int64_t dit_ltx2_context(const Ltx2Dit *m, Ltx2Which s) { return m->c.projects_caption ? m->c.caption : m->stream[s].d; }

/* --- once per prompt --- */

/* 2.0: keys and values of the text do not depend on the time. */
static bool keeps_kv(const Ltx2Dit *m) { return !m->c.text_mod; }

void dit_ltx2_prompt_room(const Ltx2Dit *m, Exec *x, int64_t samples, int64_t rows, Ltx2Prompt *p) {
    *p = (Ltx2Prompt){.samples = samples, .rows = rows, .bias = exec_new(x, rows)};
    for (int s = 0; s < LTX2_STREAMS; s++) {
        int64_t d = m->stream[s].d;
        p->table[s] = exec_new(x, m->c.layers, m->mods, d);
        if (keeps_kv(m)) p->kv[s] = exec_new(x, m->c.layers, samples * rows, 2 * d);
        else p->context[s] = exec_new(x, samples * rows, d);
    }
}

static Status zeros(Exec *x, Tensor t) {
    if (x->dry) return OK;
    void *host = calloc(1, tensor_bytes(t));
    if (!host) return fail(x->error, ERR_MEMORY, "ltx2: out of memory for a mask");
    Status s = exec_upload(x, t, host);
    free(host);
    return s;
}

/* The blocks' tables one behind the other, so that a step adds to all of them at once. */
static Status tables(const Ltx2Dit *m, Exec *x, Ltx2Prompt *p) {
    int64_t own = dit_ltx2_own_rows(&m->c);
    for (int64_t i = 0; i < m->c.layers; i++)
        for (int s = 0; s < LTX2_STREAMS; s++) {
            const Ltx2BlockStream *l = &m->block[i][s];
            Tensor all = tensor_view(tensor_slice(p->table[s], 0, i, 1), m->mods, m->stream[s].d);
            TRY(op_copy(x, &(Copy){.y = tensor_slice(all, 0, 0, own), .x = l->table}));
            TRY(op_copy(x, &(Copy){.y = tensor_slice(all, 0, own, LTX2_CROSS_ROWS), .x = l->cross_table}));
            if (m->c.text_mod)
                TRY(op_copy(x, &(Copy){.y = tensor_slice(all, 0, own + LTX2_CROSS_ROWS, LTX2_PROMPT_ROWS),
                                       .x = l->prompt_table}));
        }
    return OK;
}

/* Keys and values of every block. */
static Status caption_kv(const Ltx2Dit *m, Exec *x, const Tensor context[LTX2_STREAMS], Ltx2Prompt *p) {
    for (int i = 0; i < (int)m->c.layers; i++) {
        TRY(weights_enter(x, i));
        for (int s = 0; s < LTX2_STREAMS; s++) {
            const Ltx2Attention *a = &m->block[i][s].text;
            int64_t rows = p->samples * p->rows, d = m->stream[s].d;
            Tensor kv = tensor_view(tensor_slice(p->kv[s], 0, i, 1), rows, 2 * d);
            Tensor k = tensor_slice(kv, 1, 0, d), v = tensor_slice(kv, 1, d, d);
            TRY(op_linear_many(x, &(LinearMany){.y = {k, v}, .x = context[s], .w = {&a->k, &a->v}}));
            TRY(op_norm_rope_split(x, &(NormRopeSplit){.yq = k, .q = k, .wq = a->norm_k, .eps = dit_ltx2_qk_eps(),
                                                       .heads = (int32_t)a->heads}));
        }
        TRY(weights_leave(x, i));
    }
    return OK;
}

Status dit_ltx2_prompt(const Ltx2Dit *m, Exec *x, const Tensor context[LTX2_STREAMS], Ltx2Prompt *p) {
    size_t mark = arena_mark(x->work);
    Tensor seen[LTX2_STREAMS];
    TRY(weights_enter(x, WEIGHTS_PART));
    if (p->bias.rank) TRY(zeros(x, p->bias));
    TRY(tables(m, x, p));
    for (int s = 0; s < LTX2_STREAMS; s++) {
        const Ltx2Stream *l = &m->stream[s];
        int64_t rows = p->samples * p->rows;
        seen[s] = keeps_kv(m) ? m->c.projects_caption ? exec_new(x, rows, l->d) : context[s] : p->context[s];
        if (m->c.projects_caption) {
            size_t inside = arena_mark(x->work);
            Tensor hidden = exec_new(x, rows, l->d);
            TRY(op_linear_gelu(x, &(Linear){.y = hidden, .x = context[s], .w = &l->caption.linear_1}));
            TRY(op_linear(x, &(Linear){.y = seen[s], .x = hidden, .w = &l->caption.linear_2}));
            arena_reset(x->work, inside);
        } else if (seen[s].data != context[s].data) {
            TRY(op_copy(x, &(Copy){.y = seen[s], .x = context[s]}));
        }
        TRY(exec_tap(x, s == LTX2_VIDEO ? "ltx2.caption.video" : "ltx2.caption.audio", seen[s]));
    }
    if (keeps_kv(m)) TRY(caption_kv(m, x, seen, p));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}

/* --- every pass --- */

static Status embed(const Ltx2Dit *m, Exec *x, Ltx2Which s, int64_t samples, Tensor latents, Tensor h) {
    size_t mark = arena_mark(x->work);
    int64_t tokens = latents.shape[0];
    Tensor rows = exec_new(x, samples * tokens, latents.shape[1]);
    for (int64_t b = 0; b < samples; b++)
        TRY(op_copy(x, &(Copy){.y = tensor_slice(rows, 0, b * tokens, tokens), .x = latents}));
    TRY(op_linear(x, &(Linear){.y = h, .x = rows, .w = &m->stream[s].in}));
    arena_reset(x->work, mark);
    return exec_tap(x, s == LTX2_VIDEO ? "ltx2.x_embedder.video" : "ltx2.x_embedder.audio", h);
}

static Status last(const Ltx2Dit *m, Exec *x, Ltx2Which s, const Ltx2Grid *g, const Ltx2Times *t, int64_t samples, Tensor h,
                   Tensor out) {
    size_t mark = arena_mark(x->work);
    Tensor n = exec_new(x, h.shape[0], h.shape[1]), v = exec_new(x, h.shape[0], m->c.stream[s].out_channels);
    Ltx2Rows r = {0};
    while (dit_ltx2_block_rows(g, s, samples, &r)) {
        Tensor mod = t->last[s][r.value];
        TRY(op_ln_modulate(x, &(LnModulate){.y = tensor_slice(n, 0, r.start, r.count), .x = tensor_slice(h, 0, r.start, r.count),
                                            .scale = tensor_view(tensor_slice(mod, 0, 1, 1), mod.shape[1]),
                                            .shift = tensor_view(tensor_slice(mod, 0, 0, 1), mod.shape[1]), .eps = FINAL_EPS}));
    }
    TRY(exec_tap(x, s == LTX2_VIDEO ? "ltx2.norm.video" : "ltx2.norm.audio", n));
    TRY(op_linear(x, &(Linear){.y = v, .x = n, .w = &m->stream[s].out}));
    TRY(op_copy(x, &(Copy){.y = tensor_view(out, v.shape[0], v.shape[1]), .x = v}));
    arena_reset(x->work, mark);
    return OK;
}

static Status check_step(Exec *x, const Ltx2Grid *g, const Ltx2Prompt *p, const Ltx2Step *step, const Ltx2Pass *pass) {
    int64_t times = step->video.shape[0], at = 0;
    bool fits = step->video.rank == 1 && times <= LTX2_TIMES && step->audio.rank == 1 && step->audio.shape[0] == 1;
    for (int i = 0; i < g->spans; i++) {
        const Ltx2Span *s = &g->span[i];
        fits &= s->start == at && s->count > 0 && s->value >= 0 && s->value < times;
        at += s->count;
    }
    if (g->spans) fits &= at == g->tokens[LTX2_VIDEO];
    if (!fits) return fail(x->error, ERR_MODEL, "ltx2: the spans of tokens do not fit their times or the grid");
    if (pass->first < 0 || pass->count < 1 || pass->first + pass->count > p->samples)
        return fail(x->error, ERR_MODEL, "ltx2: a pass of %lld prompts from the %lld-th, of %lld", (long long)pass->count,
                    (long long)pass->first, (long long)p->samples);
    return OK;
}

Status dit_ltx2_run(const Ltx2Dit *m, Exec *x, const Ltx2Grid *g, const Ltx2Prompt *p, const Ltx2Step *step,
                    const Ltx2Pass *pass, const Tensor latents[LTX2_STREAMS], const Tensor out[LTX2_STREAMS]) {
    size_t mark = arena_mark(x->work);
    Tensor h[LTX2_STREAMS];
    Ltx2Times times;
    int first = keeps_kv(m) ? (int)m->c.layers : 0; /* of the blocks that are bound, those of the prompt come first */
    TRY(check_step(x, g, p, step, pass));
    for (int s = 0; s < LTX2_STREAMS; s++) h[s] = exec_new(x, pass->count * g->tokens[s], m->stream[s].d);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(dit_ltx2_time_make(m, x, g, p, step, pass->count, &times));
    for (int s = 0; s < LTX2_STREAMS; s++) TRY(embed(m, x, (Ltx2Which)s, pass->count, latents[s], h[s]));
    for (int i = 0; i < (int)m->c.layers; i++) {
        TRY(weights_enter(x, first + i));
        if (dit_ltx2_block_run(m, x, i, g, p, &times, pass, h) != OK) return because(x->error, "ltx2 block %d", i);
        TRY(weights_leave(x, first + i));
        TRY(exec_tapf(x, h[LTX2_VIDEO], "ltx2.block.%d.video", i));
        TRY(exec_tapf(x, h[LTX2_AUDIO], "ltx2.block.%d.audio", i));
    }
    for (int s = 0; s < LTX2_STREAMS; s++) TRY(last(m, x, (Ltx2Which)s, g, &times, pass->count, h[s], out[s]));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
