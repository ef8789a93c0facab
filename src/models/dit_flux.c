/* dit_flux.c - see dit_flux.h. The joint sequence lives in one [T + S, D] buffer, text rows first, so that text and
 * image are slices of it and nothing is ever concatenated. */
#include "models/dit_flux.h"

#include "core/json.h"
#include "residency.h"

#include <math.h>
#include <stdlib.h>

enum { TEXT, IMAGE };
static const float EPS = 1e-6f; /* hard-coded in the class for all its norms */

/* --- config and weights --- */

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    FluxConfig *c = out;
    *c = (FluxConfig){.in_channels = 64, .layers = 19, .single_layers = 38, .head_dim = 128, .heads = 24,
                      .text_dim = 4096, .pooled_dim = 768, .axes = {16, 56, 56}}; /* the class defaults */
    int64_t patch = 1;
    int axes = 3;
    const JsonSize sizes[] = {
        {"in_channels", &c->in_channels},        {"num_layers", &c->layers},
        {"num_single_layers", &c->single_layers}, {"attention_head_dim", &c->head_dim},
        {"num_attention_heads", &c->heads},      {"joint_attention_dim", &c->text_dim},
        {"pooled_projection_dim", &c->pooled_dim}, {"patch_size", &patch},
    };
    Status s = json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e);
    c->out_channels = c->in_channels; /* absent or null in published files */
    if (s == OK) s = json_sizes(j, &(JsonSize){"out_channels", &c->out_channels}, 1, path, e);
    if (s == OK) s = json_bool(j, "guidance_embeds", &c->guidance, path, e);
    if (s == OK) s = json_ints(j, "axes_dims_rope", c->axes, 3, &axes, path, e);
    if (s == OK && patch != 1) s = fail(e, ERR_MODEL, "%s: patch_size: found %lld, expected 1", path, (long long)patch);
    if (s == OK && (axes != 3 || c->axes[0] + c->axes[1] + c->axes[2] != c->head_dim ||
                    (c->axes[0] | c->axes[1] | c->axes[2]) & 1 || c->axes[0] < 0 || c->axes[1] < 0 || c->axes[2] < 0))
        s = fail(e, ERR_MODEL, "%s: axes_dims_rope: expected three even numbers that add up to attention_head_dim %lld",
                 path, (long long)c->head_dim);
    if (s == OK && c->out_channels != c->in_channels)
        s = fail(e, ERR_MODEL, "%s: in_channels %lld with out_channels %lld is a FLUX.1 Fill or Control model; ditto "
                 "renders FLUX.1 text-to-image", path, (long long)c->in_channels, (long long)c->out_channels);
    return s;
}

Status dit_flux_open(const char *folder, FluxDit *out, Error *e) {
    *out = (FluxDit){0};
    TRY(json_read_in(folder, "config.json", read_config, &out->c, e));
    out->d = out->c.heads * out->c.head_dim;
    out->block = calloc((size_t)out->c.layers, sizeof *out->block);
    out->single = calloc((size_t)out->c.single_layers, sizeof *out->single);
    return out->block && out->single ? OK : fail(e, ERR_MEMORY, "%s: out of memory", folder);
}

void dit_flux_close(FluxDit *m) {
    free(m->block);
    free(m->single);
    *m = (FluxDit){0};
}

static void bind_stream(Bind *b, FluxStream *s, int64_t d, int64_t e, int i, int stream) {
    const bool image = stream == IMAGE;
    const char *norm = image ? "norm1" : "norm1_context", *ff = image ? "ff" : "ff_context";
    bind_linear(b, &s->mod, 6 * d, d, true, "transformer_blocks.%d.%s.linear", i, norm);
    bind_pack(b, true);
    bind_linear(b, &s->q, d, d, true, "transformer_blocks.%d.attn.%s", i, image ? "to_q" : "add_q_proj");
    bind_linear(b, &s->k, d, d, true, "transformer_blocks.%d.attn.%s", i, image ? "to_k" : "add_k_proj");
    bind_linear(b, &s->v, d, d, true, "transformer_blocks.%d.attn.%s", i, image ? "to_v" : "add_v_proj");
    bind_pack(b, false);
    bind_vector(b, &s->norm_q, e, BIND_PLAIN, "transformer_blocks.%d.attn.norm_%sq.weight", i, image ? "" : "added_");
    bind_vector(b, &s->norm_k, e, BIND_PLAIN, "transformer_blocks.%d.attn.norm_%sk.weight", i, image ? "" : "added_");
    bind_linear(b, &s->out, d, d, true, "transformer_blocks.%d.attn.%s", i, image ? "to_out.0" : "to_add_out");
    bind_linear(b, &s->ff_in, 4 * d, d, true, "transformer_blocks.%d.%s.net.0.proj", i, ff);
    bind_linear(b, &s->ff_out, d, 4 * d, true, "transformer_blocks.%d.%s.net.2", i, ff);
}

void dit_flux_bind(FluxDit *m, Bind *b) {
    int64_t d = m->d, e = m->c.head_dim;
    blocks_mlp_bind(b, &m->time, 256, d, "time_text_embed.timestep_embedder");
    if (m->c.guidance) blocks_mlp_bind(b, &m->guidance, 256, d, "time_text_embed.guidance_embedder");
    blocks_mlp_bind(b, &m->pooled, m->c.pooled_dim, d, "time_text_embed.text_embedder");
    bind_linear(b, &m->x_in, d, m->c.in_channels, true, "x_embedder");
    bind_linear(b, &m->text_in, d, m->c.text_dim, true, "context_embedder");
    for (int i = 0; i < (int)m->c.layers; i++) {
        bind_block(b, i);
        for (int s = 0; s < 2; s++) bind_stream(b, &m->block[i][s], d, e, i, s);
    }
    for (int i = 0; i < (int)m->c.single_layers; i++) {
        FluxSingle *s = &m->single[i];
        bind_block(b, (int)m->c.layers + i);
        bind_linear(b, &s->mod, 3 * d, d, true, "single_transformer_blocks.%d.norm.linear", i);
        bind_pack(b, true);
        bind_linear(b, &s->q, d, d, true, "single_transformer_blocks.%d.attn.to_q", i);
        bind_linear(b, &s->k, d, d, true, "single_transformer_blocks.%d.attn.to_k", i);
        bind_linear(b, &s->v, d, d, true, "single_transformer_blocks.%d.attn.to_v", i);
        bind_linear(b, &s->mlp, 4 * d, d, true, "single_transformer_blocks.%d.proj_mlp", i);
        bind_pack(b, false);
        bind_vector(b, &s->norm_q, e, BIND_PLAIN, "single_transformer_blocks.%d.attn.norm_q.weight", i);
        bind_vector(b, &s->norm_k, e, BIND_PLAIN, "single_transformer_blocks.%d.attn.norm_k.weight", i);
        bind_linear(b, &s->out, d, 5 * d, true, "single_transformer_blocks.%d.proj_out", i);
    }
    bind_block(b, -1);
    bind_linear(b, &m->mod_out, 2 * d, d, true, "norm_out.linear");
    bind_linear(b, &m->out, m->c.out_channels, d, true, "proj_out");
}

/* --- once per prompt and size --- */

/* Row i of both tables from rows that are there: axes 0 and 1 of row `down`, axis 2 of row `across`. Sines and cosines for
 * every row would take longer than the upload, and the device waits for them. */
static void rope_copy(const FluxDit *m, float *host, int64_t n, int64_t i, int64_t down, int64_t across) {
    int64_t half = m->c.head_dim / 2, first = (m->c.axes[0] + m->c.axes[1]) / 2;
    for (int k = 0; k < 2; k++, host += n * half) {
        memcpy(host + i * half, host + down * half, (size_t)first * sizeof *host);
        memcpy(host + i * half + first, host + across * half + first, (size_t)(half - first) * sizeof *host);
    }
}

Status dit_flux_rope(const FluxDit *m, Exec *x, int64_t text, int64_t rows, int64_t cols, FluxPrompt *p) {
    int64_t half = m->c.head_dim / 2, n = text + rows * cols;
    p->cos = exec_new_as(x, F32, n, half);
    p->sin = exec_new_as(x, F32, n, half);
    if (x->dry) return OK;
    float *host = malloc((size_t)(2 * n * half) * sizeof *host);
    if (!host) return fail(x->error, ERR_MEMORY, "flux: out of memory for rotary tables");
    for (int64_t i = 0; i < n; i++) { /* text tokens stand at the origin of every axis */
        int64_t token = i - text, row = token < 0 ? 0 : token / cols, col = token < 0 ? 0 : token % cols;
        float *at = host + i * half;
        if (token < 0 && i) rope_copy(m, host, n, i, 0, 0);
        else if (row && col) rope_copy(m, host, n, i, text + row * cols, text + col);
        else blocks_rope_row(m->c.axes, 3, (double[]){0, (double)row, (double)col}, 10000.0, at, at + n * half);
    }
    Status status = exec_upload(x, p->cos, host);
    if (status == OK) status = exec_upload(x, p->sin, host + n * half);
    free(host);
    return status;
}

Status dit_flux_prompt(const FluxDit *m, Exec *x, Tensor embeds, Tensor pooled, FluxPrompt *p) {
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(op_linear(x, &(Linear){.y = p->context, .x = embeds, .w = &m->text_in}));
    TRY(blocks_mlp(&m->pooled, x, p->pooled, pooled));
    TRY(weights_leave(x, WEIGHTS_PART));
    return exec_tap(x, "flux.context_embedder", p->context);
}

/* --- modulation: once for a stretch of steps --- */

static Status embed_scalar(const BlocksMlp *mlp, Exec *x, Tensor y, Tensor t) {
    size_t mark = arena_mark(x->work);
    Tensor wave = exec_new(x, 1, 256);
    TRY(op_time_embed(x, &(TimeEmbed){.y = wave, .t = t, .max_period = 10000.0f}));
    TRY(blocks_mlp(mlp, x, y, wave));
    arena_reset(x->work, mark);
    return OK;
}

/* temb [1, D]: timestep, guidance and pooled text. */
static Status conditioning(const FluxDit *m, Exec *x, const FluxPrompt *p, Tensor t, Tensor guidance, Tensor temb) {
    size_t mark = arena_mark(x->work);
    TRY(embed_scalar(&m->time, x, temb, t));
    if (m->c.guidance) {
        Tensor g = exec_new(x, 1, m->d);
        TRY(embed_scalar(&m->guidance, x, g, guidance));
        TRY(op_add(x, &(Add){.y = temb, .a = temb, .b = g}));
    }
    TRY(op_add(x, &(Add){.y = temb, .a = temb, .b = p->pooled}));
    arena_reset(x->work, mark);
    return exec_tap(x, "flux.temb", temb);
}

/* Columns of a modulation row: of stream s of double block i; of single block i; of norm_out. */
static int64_t double_mod(const FluxDit *m, int i, int s) { return (2 * i + s) * 6 * m->d; }
static int64_t single_mod(const FluxDit *m, int i) { return double_mod(m, (int)m->c.layers, 0) + i * 3 * m->d; }
static int64_t out_mod(const FluxDit *m) { return single_mod(m, (int)m->c.single_layers); }
int64_t dit_flux_mod_width(const FluxDit *m) { return out_mod(m) + 2 * m->d; }

static Status modulate(Exec *x, Tensor mods, Tensor silu_temb, const Weight *w, int64_t at, const char *site) {
    exec_site(x, site);
    return op_linear_rows(x, &(Linear){.y = tensor_slice(mods, 1, at, w->w.shape[0]), .x = silu_temb, .w = w});
}

Status dit_flux_modulate(const FluxDit *m, Exec *x, const FluxPrompt *p, int prompts, Tensor t, Tensor guidance, Tensor mods) {
    size_t mark = arena_mark(x->work);
    int64_t steps = t.shape[0];
    Tensor temb = exec_new(x, prompts * steps, m->d);
    TRY(weights_enter(x, WEIGHTS_PART));
    for (int64_t i = 0; i < prompts * steps; i++)
        TRY(conditioning(m, x, &p[i / steps], tensor_slice(t, 0, i % steps, 1), guidance, tensor_slice(temb, 0, i, 1)));
    TRY(op_act(x, &(Act){.y = temb, .x = temb, .kind = ACT_SILU}));
    for (int i = 0; i < (int)m->c.layers; i++) {
        TRY(weights_enter(x, i));
        for (int s = 0; s < 2; s++)
            TRY(modulate(x, mods, temb, &m->block[i][s].mod, double_mod(m, i, s), "flux.double.mod"));
        TRY(weights_leave(x, i));
    }
    for (int i = 0; i < (int)m->c.single_layers; i++) {
        TRY(weights_enter(x, (int)m->c.layers + i));
        TRY(modulate(x, mods, temb, &m->single[i].mod, single_mod(m, i), "flux.single.mod"));
        TRY(weights_leave(x, (int)m->c.layers + i));
    }
    TRY(modulate(x, mods, temb, &m->mod_out, out_mod(m), "flux.norm_out.mod"));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}

/* --- every step --- */

/* i-th vector of those that begin at column `at`, as a row [D]. */
static Tensor chunk(const FluxDit *m, const FluxPrompt *p, int64_t at, int i) {
    return tensor_view(tensor_slice(p->mod, 1, at + i * m->d, m->d), m->d);
}

/* Where the modulation of a stream's first norm in block `next` begins: double and single blocks count through, norm_out
 * comes behind the last; it alone has scale before shift. */
static int64_t next_mod(const FluxDit *m, int next, int s, int *shift, int *scale) {
    int single = next - (int)m->c.layers;
    bool last = single == (int)m->c.single_layers;
    *shift = last, *scale = !last;
    return single < 0 ? double_mod(m, next, s) : last ? out_mod(m) : single_mod(m, single);
}

/* Rows of norm hold a product: gated into h, then turned into what block `next` begins with, while h is at hand. Text rows
 * are not normed for norm_out. */
static Status finish(const FluxDit *m, Exec *x, const FluxPrompt *p, Tensor h, Tensor norm, Tensor gate, int next, int s) {
    int shift, scale;
    int64_t at = next_mod(m, next, s, &shift, &scale);
    if (s == TEXT && at == out_mod(m))
        return op_residual_gate(x, &(ResidualGate){.y = h, .residual = h, .x = norm, .gate = gate});
    return op_residual_gate_ln_modulate(x, &(ResidualGateLnModulate){.h = h, .y = norm, .residual = h, .x = norm, .gate = gate,
                                                                     .scale = chunk(m, p, at, scale),
                                                                     .shift = chunk(m, p, at, shift), .eps = EPS});
}

/* norm, as finish left it or first_norm made it, is the block's own first norm, and the next one's afterwards. */
static Status double_block(const FluxDit *m, Exec *x, int block, const FluxPrompt *p, Tensor h, Tensor norm, int64_t text) {
    size_t mark = arena_mark(x->work);
    int64_t n = h.shape[0], d = m->d, e = m->c.head_dim;
    const FluxStream *stream = m->block[block];
    const int64_t start[2] = {0, text}, count[2] = {text, n - text};
    const int64_t mod[2] = {double_mod(m, block, TEXT), double_mod(m, block, IMAGE)};
    Tensor qkv = exec_new(x, n, 3 * d), o = exec_new(x, n, d);
    Tensor q = tensor_slice(qkv, 1, 0, d), k = tensor_slice(qkv, 1, d, d), v = tensor_slice(qkv, 1, 2 * d, d);
    for (int s = 0; s < 2; s++) {
#define ROWS(t) tensor_slice(t, 0, start[s], count[s])
#define SITE(name) exec_site(x, s == IMAGE ? "flux.double.img_" name : "flux.double.txt_" name)
        Tensor qs = ROWS(q), ks = ROWS(k);
        SITE("qkv");
        TRY(op_linear_many(x, &(LinearMany){.y = {qs, ks, ROWS(v)}, .x = ROWS(norm),
                                            .w = {&stream[s].q, &stream[s].k, &stream[s].v}}));
        qs = tensor_split(qs, e), ks = tensor_split(ks, e);
        SITE("qk_norm");
        TRY(op_qk_norm_rope_head(x, &(QkNormRopeHead){.yq = qs, .yk = ks, .q = qs, .k = ks, .wq = stream[s].norm_q,
                                                      .wk = stream[s].norm_k, .cos = ROWS(p->cos), .sin = ROWS(p->sin),
                                                      .eps = EPS, .rope = ROPE_INTERLEAVED}));
    }
    exec_site(x, "flux.double.attention");
    TRY(op_attention(x, &(Attention){.o = tensor_split(o, e), .q = tensor_split(q, e), .k = tensor_split(k, e),
                                     .v = tensor_split(v, e), .scale = (float)(1.0 / sqrt((double)e))}));
    for (int s = 0; s < 2; s++) {
        SITE("out");
        TRY(op_linear(x, &(Linear){.y = ROWS(norm), .x = ROWS(o), .w = &stream[s].out}));
    }
    arena_reset(x->work, mark);
    Tensor ff = exec_new(x, n, 4 * d);
    for (int s = 0; s < 2; s++) {
        SITE("norm2");
        TRY(op_residual_gate_ln_modulate(x, &(ResidualGateLnModulate){
            .h = ROWS(h), .y = ROWS(norm), .residual = ROWS(h), .x = ROWS(norm), .gate = chunk(m, p, mod[s], 2),
            .shift = chunk(m, p, mod[s], 3), .scale = chunk(m, p, mod[s], 4), .eps = EPS}));
        SITE("ff_in");
        TRY(op_linear_gelu(x, &(Linear){.y = ROWS(ff), .x = ROWS(norm), .w = &stream[s].ff_in}));
        SITE("ff_out");
        TRY(op_linear(x, &(Linear){.y = ROWS(norm), .x = ROWS(ff), .w = &stream[s].ff_out}));
        SITE("gate2");
        TRY(finish(m, x, p, ROWS(h), ROWS(norm), chunk(m, p, mod[s], 5), block + 1, s));
#undef SITE
#undef ROWS
    }
    arena_reset(x->work, mark);
    return OK;
}

static Status single_block(const FluxDit *m, Exec *x, int block, const FluxPrompt *p, Tensor h, Tensor norm, int64_t text) {
    size_t mark = arena_mark(x->work);
    const FluxSingle *b = &m->single[block];
    int64_t n = h.shape[0], d = m->d, e = m->c.head_dim, mod = single_mod(m, block);
    Tensor wide = exec_new(x, n, 7 * d); /* q, k, v and the MLP before its activation */
    Tensor q = tensor_slice(wide, 1, 0, d), k = tensor_slice(wide, 1, d, d), v = tensor_slice(wide, 1, 2 * d, d);
    Tensor up = tensor_slice(wide, 1, 3 * d, 4 * d);
    Tensor joint = exec_new(x, n, 5 * d); /* attention output beside the MLP: what proj_out takes */
    Tensor attended = tensor_slice(joint, 1, 0, d), mlp = tensor_slice(joint, 1, d, 4 * d);
    exec_site(x, "flux.single.qkv_mlp");
    TRY(op_linear_many_gelu(x, &(LinearManyGelu){.y = {q, k, v, up}, .g = mlp, .x = norm,
                                                 .w = {&b->q, &b->k, &b->v, &b->mlp}}));
    Tensor qs = tensor_split(q, e), ks = tensor_split(k, e);
    exec_site(x, "flux.single.qk_norm");
    TRY(op_qk_norm_rope_head(x, &(QkNormRopeHead){.yq = qs, .yk = ks, .q = qs, .k = ks, .wq = b->norm_q,
                                                  .wk = b->norm_k, .cos = p->cos, .sin = p->sin, .eps = EPS,
                                                  .rope = ROPE_INTERLEAVED}));
    exec_site(x, "flux.single.attention");
    TRY(op_attention(x, &(Attention){.o = tensor_split(attended, e), .q = qs, .k = ks, .v = tensor_split(v, e),
                                     .scale = (float)(1.0 / sqrt((double)e))}));
    exec_site(x, "flux.single.out");
    TRY(op_linear(x, &(Linear){.y = norm, .x = joint, .w = &b->out}));
    int next = (int)m->c.layers + block + 1;
    Tensor gate = chunk(m, p, mod, 2);
    arena_reset(x->work, mark);
    exec_site(x, "flux.single.gate");
    if (block + 1 < (int)m->c.single_layers) return finish(m, x, p, h, norm, gate, next, IMAGE);
    TRY(finish(m, x, p, tensor_slice(h, 0, 0, text), tensor_slice(norm, 0, 0, text), gate, next, TEXT));
    exec_site(x, "flux.norm_out");
    return finish(m, x, p, tensor_slice(h, 0, text, n - text), tensor_slice(norm, 0, text, n - text), gate, next, IMAGE);
}

/* What the first block begins with. */
static Status first_norm(const FluxDit *m, Exec *x, const FluxPrompt *p, Tensor h, Tensor norm, int64_t text) {
    const int64_t start[2] = {0, text}, count[2] = {text, h.shape[0] - text};
    for (int s = 0; s < 2; s++) {
        int shift, scale;
        int64_t at = next_mod(m, 0, s, &shift, &scale);
        exec_site(x, s == IMAGE ? "flux.double.img_norm1" : "flux.double.txt_norm1");
        TRY(op_ln_modulate(x, &(LnModulate){.y = tensor_slice(norm, 0, start[s], count[s]),
                                            .x = tensor_slice(h, 0, start[s], count[s]), .scale = chunk(m, p, at, scale),
                                            .shift = chunk(m, p, at, shift), .eps = EPS}));
    }
    return OK;
}

Status dit_flux_velocity(const FluxDit *m, Exec *x, const FluxPrompt *p, Tensor latents, Tensor velocity) {
    size_t mark = arena_mark(x->work);
    int64_t text = p->context.shape[0], s = latents.shape[0], d = m->d;
    Tensor h = exec_new(x, text + s, d), norm = exec_new(x, text + s, d);
    Tensor text_rows = tensor_slice(h, 0, 0, text), image_rows = tensor_slice(h, 0, text, s);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(op_copy(x, &(Copy){.y = text_rows, .x = p->context}));
    exec_site(x, "flux.x_embedder");
    TRY(op_linear(x, &(Linear){.y = image_rows, .x = latents, .w = &m->x_in}));
    TRY(exec_tap(x, "flux.x_embedder", image_rows));
    TRY(first_norm(m, x, p, h, norm, text));
    for (int i = 0; i < (int)m->c.layers; i++) {
        TRY(weights_enter(x, i));
        if (double_block(m, x, i, p, h, norm, text) != OK) return because(x->error, "flux double block %d", i);
        TRY(weights_leave(x, i));
        TRY(exec_tapf(x, text_rows, "flux.double.%d.text", i));
        TRY(exec_tapf(x, image_rows, "flux.double.%d.image", i));
    }
    for (int i = 0; i < (int)m->c.single_layers; i++) {
        TRY(weights_enter(x, (int)m->c.layers + i));
        if (single_block(m, x, i, p, h, norm, text) != OK) return because(x->error, "flux single block %d", i);
        TRY(weights_leave(x, (int)m->c.layers + i));
        TRY(exec_tapf(x, h, "flux.single.%d", i));
    }
    Tensor out = tensor_slice(norm, 0, text, s);
    TRY(exec_tap(x, "flux.norm_out", out));
    exec_site(x, "flux.proj_out");
    TRY(op_linear(x, &(Linear){.y = velocity, .x = out, .w = &m->out}));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
