/* dit_sana_video.c - see dit_sana_video.h. The residual stream is one [tokens, D] buffer, rows contiguous from the patch
 * embedding on (SanaVideoGrid.turned replays what diffusers does instead). All frames below each other are one picture
 * [F h, w, C], whose patches are the tokens in their order: the embedding is a convolution of that picture, and the temporal
 * convolution one of the picture [F, rows * cols, D]. */
#include "models/dit_sana_video.h"

#include "core/file.h"
#include "core/json.h"
#include "residency.h"

#include <math.h>
#include <stdlib.h>

/* Hard-coded in the class. */
enum { TIME_WIDTH = 256, AXES = 3 };
static const float QK_EPS = 1e-5f, CAPTION_EPS = 1e-5f, FINAL_EPS = 1e-6f, ATTENTION_EPS = 1e-15f, MASKED = -10000.0f;
static const double THETA = 10000;

/* Rows of a modulation [6,D]; of the last one, [2,D], the first two. */
enum { SHIFT_ATTENTION, SCALE_ATTENTION, GATE_ATTENTION, SHIFT_FFN, SCALE_FFN, GATE_FFN, MODS };

/* --- config and weights --- */

/* Keys that the class knows and the published models leave at one value. */
static Status check_fixed(const Json *j, const char *path, const SanaVideoConfig *c, Error *e) {
    int64_t out = c->channels, cross = c->heads * c->head_dim, patch[AXES] = {1, 2, 2};
    int patches = AXES;
    bool affine = false, guidance = false;
    const char *norm = "rms_norm_across_heads";
    TRY(json_sizes(j, &(JsonSize){"out_channels", &out}, 1, path, e));
    TRY(json_sizes(j, &(JsonSize){"cross_attention_dim", &cross}, 1, path, e));
    TRY(json_ints(j, "patch_size", patch, AXES, &patches, path, e));
    TRY(json_bool(j, "norm_elementwise_affine", &affine, path, e));
    TRY(json_bool(j, "guidance_embeds", &guidance, path, e));
    TRY(json_string(j, "qk_norm", &norm, path, e));
    if (out != c->channels)
        return fail(e, ERR_MODEL, "%s: out_channels: found %lld, expected in_channels %lld", path, (long long)out,
                    (long long)c->channels);
    if (cross != c->heads * c->head_dim || c->cross_heads * c->cross_head_dim != cross)
        return fail(e, ERR_MODEL, "%s: expected cross_attention_dim and num_cross_attention_heads * cross_attention_head_dim "
                    "equal to num_attention_heads * attention_head_dim %lld", path, (long long)(c->heads * c->head_dim));
    if (patches != AXES || patch[0] != 1 || patch[1] != patch[2])
        return fail(e, ERR_MODEL, "%s: patch_size: expected [1, n, n]", path);
    if (affine || guidance || strcmp(norm, "rms_norm_across_heads") != 0)
        return fail(e, ERR_MODEL, "%s: expected norm_elementwise_affine false, guidance_embeds false and qk_norm "
                    "\"rms_norm_across_heads\", found %s, %s and \"%.40s\"", path, affine ? "true" : "false",
                    guidance ? "true" : "false", norm);
    return OK;
}

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    SanaVideoConfig *c = out;
    *c = (SanaVideoConfig){.channels = 16, .heads = 20, .head_dim = 112, .layers = 20, .cross_heads = 20,
                           .cross_head_dim = 112, .text_dim = 2304, .patch = 2, .positions = 1024, .sample = 30,
                           .mlp_ratio = 2.5, .eps = 1e-6}; /* the class defaults */
    const JsonSize sizes[] = {
        {"in_channels", &c->channels},         {"num_attention_heads", &c->heads},
        {"attention_head_dim", &c->head_dim},  {"num_layers", &c->layers},
        {"num_cross_attention_heads", &c->cross_heads}, {"cross_attention_head_dim", &c->cross_head_dim},
        {"caption_channels", &c->text_dim},    {"rope_max_seq_len", &c->positions},
        {"sample_size", &c->sample},
    };
    int64_t patch[AXES] = {1, 2, 2};
    int patches = AXES;
    Status s = json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e);
    if (s == OK) s = json_double(j, "mlp_ratio", &c->mlp_ratio, path, e);
    if (s == OK) s = json_double(j, "norm_eps", &c->eps, path, e);
    if (s == OK) s = json_bool(j, "attention_bias", &c->bias, path, e);
    if (s == OK) s = json_ints(j, "patch_size", patch, AXES, &patches, path, e);
    if (s == OK) s = check_fixed(j, path, c, e);
    c->patch = patch[1];
    if (s == OK && (c->patch < 1 || c->patch > 16))
        s = fail(e, ERR_MODEL, "%s: patch_size: found %lld, expected 1 to 16", path, (long long)c->patch);
    if (s == OK && (c->head_dim % 2 || c->head_dim < 6)) /* its axes: head_dim / 6 pairs of rows and of columns, the rest time */
        s = fail(e, ERR_MODEL, "%s: attention_head_dim: found %lld, expected an even number of at least 6", path,
                 (long long)c->head_dim);
    if (s == OK && !(c->mlp_ratio > 0 && c->mlp_ratio < 1024))
        s = fail(e, ERR_MODEL, "%s: mlp_ratio: found %g, expected a number above 0", path, c->mlp_ratio);
    return s;
}

Status dit_sana_video_open(const char *folder, SanaVideoDit *out, Error *e) {
    *out = (SanaVideoDit){0};
    TRY(json_read_in(folder, "config.json", read_config, &out->c, e));
    out->d = out->c.heads * out->c.head_dim;
    out->ffn = (int64_t)(out->c.mlp_ratio * (double)out->d);
    if (out->ffn < 1) return fail(e, ERR_MODEL, "%s: mlp_ratio %g leaves no channels", folder, out->c.mlp_ratio);
    out->block = calloc((size_t)out->c.layers, sizeof *out->block);
    return out->block ? OK : fail(e, ERR_MEMORY, "%s: out of memory", folder);
}

void dit_sana_video_close(SanaVideoDit *m) {
    free(m->block);
    *m = (SanaVideoDit){0};
}

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__}

static void bind_block_of(const SanaVideoDit *m, Bind *b, SanaVideoBlock *l, int i) {
    int64_t d = m->d, wide = 2 * m->ffn;
#define BLOCK "transformer_blocks.%d."
    bind_block(b, i);
    bind_pack(b, true);
    bind_linear(b, &l->q, d, d, m->c.bias, BLOCK "attn1.to_q", i);
    bind_linear(b, &l->k, d, d, m->c.bias, BLOCK "attn1.to_k", i);
    bind_linear(b, &l->v, d, d, m->c.bias, BLOCK "attn1.to_v", i);
    bind_pack(b, false);
    bind_vector(b, &l->norm_q, d, BIND_PLAIN, BLOCK "attn1.norm_q.weight", i);
    bind_vector(b, &l->norm_k, d, BIND_PLAIN, BLOCK "attn1.norm_k.weight", i);
    bind_linear(b, &l->out, d, d, true, BLOCK "attn1.to_out.0", i);
    bind_linear(b, &l->cross_q, d, d, true, BLOCK "attn2.to_q", i);
    bind_vector(b, &l->cross_norm_q, d, BIND_PLAIN, BLOCK "attn2.norm_q.weight", i);
    bind_linear(b, &l->cross_out, d, d, true, BLOCK "attn2.to_out.0", i);
    bind_filter(b, &l->inverted, BIND_SQUEEZE, DIMS(wide, d, 1, 1), false, BLOCK "ff.conv_inverted", i);
    bind_vector(b, &l->inverted_bias, wide, BIND_PLAIN, BLOCK "ff.conv_inverted.bias", i);
    bind_filter(b, &l->depth, BIND_OIHW_OHWI, DIMS(wide, 1, 3, 3), true, BLOCK "ff.conv_depth", i);
    bind_filter(b, &l->point, BIND_SQUEEZE, DIMS(d, m->ffn, 1, 1), false, BLOCK "ff.conv_point", i);
    bind_filter(b, &l->temporal, BIND_OIHW_OHWI, DIMS(d, d, 3, 1), false, BLOCK "ff.conv_temp", i);
    bind_block(b, -1); /* the modulation is needed by the block before too, the caption's part once a prompt for all blocks */
    bind_table(b, &l->table, MODS, d, BLOCK "scale_shift_table", i);
    bind_pack(b, true);
    bind_linear(b, &l->cross_k, d, d, true, BLOCK "attn2.to_k", i);
    bind_linear(b, &l->cross_v, d, d, true, BLOCK "attn2.to_v", i);
    bind_pack(b, false);
    bind_vector(b, &l->cross_norm_k, d, BIND_PLAIN, BLOCK "attn2.norm_k.weight", i);
#undef BLOCK
}

void dit_sana_video_bind(SanaVideoDit *m, Bind *b) {
    const SanaVideoConfig *c = &m->c;
    int64_t d = m->d;
    bind_filter(b, &m->patch, BIND_FRAME_OHWI, DIMS(d, c->channels, 1, c->patch, c->patch), true, "patch_embedding");
    blocks_mlp_bind(b, &m->time, TIME_WIDTH, d, "time_embed.emb.timestep_embedder");
    bind_linear(b, &m->time_mod, MODS * d, d, true, "time_embed.linear");
    bind_linear(b, &m->caption_1, d, c->text_dim, true, "caption_projection.linear_1");
    bind_linear(b, &m->caption_2, d, d, true, "caption_projection.linear_2");
    bind_vector(b, &m->caption_norm, d, BIND_PLAIN, "caption_norm.weight");
    for (int i = 0; i < (int)c->layers; i++) bind_block_of(m, b, &m->block[i], i);
    bind_table(b, &m->table, 2, d, "scale_shift_table");
    bind_linear(b, &m->final, c->patch * c->patch * c->channels, d, true, "proj_out");
}

/* --- once per prompt --- */

void dit_sana_video_prompt_room(const SanaVideoDit *m, Exec *x, int64_t rows, SanaVideoPrompt *p) {
    p->kv = exec_new(x, m->c.layers, rows, 2 * m->d);
    p->bias = exec_new(x, rows);
}

static Status mask(Exec *x, Tensor bias, int64_t real) {
    int64_t n = bias.shape[0];
    if (x->dry) return OK;
    char *host = malloc(tensor_bytes(bias));
    if (!host) return fail(x->error, ERR_MEMORY, "sana_video: out of memory for a mask of %lld", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        float v = i < real ? 0 : MASKED;
        uint16_t half = bf16_from_f32(v);
        if (bias.dtype == F32) memcpy(host + i * 4, &v, 4);
        else memcpy(host + i * 2, &half, 2);
    }
    Status s = exec_upload(x, bias, host);
    free(host);
    return s;
}

/* Block i's keys or values of the caption [rows, D]. */
static Tensor caption_part(const SanaVideoPrompt *p, int64_t i, int which) {
    int64_t rows = p->kv.shape[1], d = p->kv.shape[2] / 2;
    return tensor_slice(tensor_view(tensor_slice(p->kv, 0, i, 1), rows, 2 * d), 1, which * d, d);
}

Status dit_sana_video_prompt(const SanaVideoDit *m, Exec *x, Tensor embeds, int64_t real, SanaVideoPrompt *p) {
    size_t mark = arena_mark(x->work);
    int64_t rows = embeds.shape[0];
    Tensor hidden = exec_new(x, rows, m->d), caption = exec_new(x, rows, m->d);
    TRY(mask(x, p->bias, real));
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(op_linear_gelu(x, &(Linear){.y = hidden, .x = embeds, .w = &m->caption_1}));
    TRY(op_linear(x, &(Linear){.y = caption, .x = hidden, .w = &m->caption_2}));
    TRY(op_rmsnorm(x, &(RmsNorm){.y = caption, .x = caption, .w = m->caption_norm, .eps = CAPTION_EPS, .form = RMS_TWICE}));
    TRY(exec_tap(x, "sana.caption", caption));
    for (int64_t i = 0; i < m->c.layers; i++) {
        const SanaVideoBlock *l = &m->block[i];
        Tensor k = caption_part(p, i, 0), v = caption_part(p, i, 1);
        TRY(op_linear_many(x, &(LinearMany){.y = {k, v}, .x = caption, .w = {&l->cross_k, &l->cross_v}}));
        TRY(op_rmsnorm(x, &(RmsNorm){.y = k, .x = k, .w = l->cross_norm_k, .eps = QK_EPS, .form = RMS_TWICE}));
    }
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}

/* --- once per size --- */

/* One axis: cosines [positions, pairs], behind them the sines. */
static float *axis_table(int64_t width, int64_t positions) {
    int64_t pairs = width / 2;
    float *table = malloc((size_t)(2 * positions * pairs + 1) * sizeof *table);
    for (int64_t p = 0; table && p < positions; p++)
        blocks_rope_row(&width, 1, &(double){(double)p}, THETA, table + p * pairs, table + (positions + p) * pairs);
    return table;
}

Status dit_sana_video_rope(const SanaVideoDit *m, Exec *x, SanaVideoGrid *g) {
    int64_t side = 2 * (m->c.head_dim / 6), half = m->c.head_dim / 2, n = g->frames * g->rows * g->cols;
    const int64_t width[AXES] = {m->c.head_dim - 2 * side, side, side}, count[AXES] = {g->frames, g->rows, g->cols};
    g->cos = exec_new_as(x, F32, n, half);
    g->sin = exec_new_as(x, F32, n, half);
    if (x->dry) return OK;
    float *host = malloc((size_t)(2 * n * half) * sizeof *host), *axis[AXES];
    bool complete = host != NULL;
    for (int a = 0; a < AXES; a++) complete &= (axis[a] = axis_table(width[a], count[a])) != NULL;
    for (int64_t i = 0; complete && i < n; i++) {
        const int64_t at[AXES] = {i / (g->rows * g->cols), i / g->cols % g->rows, i % g->cols};
        float *c = host + i * half, *s = host + (n + i) * half;
        for (int a = 0; a < AXES; a++) {
            int64_t pairs = width[a] / 2;
            memcpy(c, axis[a] + at[a] * pairs, (size_t)pairs * sizeof *c);
            memcpy(s, axis[a] + (count[a] + at[a]) * pairs, (size_t)pairs * sizeof *s);
            c += pairs, s += pairs;
        }
    }
    Status status = complete ? exec_upload(x, g->cos, host)
                             : fail(x->error, ERR_MEMORY, "sana_video: out of memory for rotary tables");
    if (status == OK) status = exec_upload(x, g->sin, host + n * half);
    for (int a = 0; a < AXES; a++) free(axis[a]);
    free(host);
    return status;
}

/* --- once per step --- */

void dit_sana_video_time_room(const SanaVideoDit *m, Exec *x, int64_t clean, SanaVideoTime *t) {
    *t = (SanaVideoTime){.clean = clean};
    for (int i = clean ? 0 : 1; i < 2; i++) {
        t->embedded[i] = exec_new(x, 1, m->d);
        t->mod[i] = exec_new(x, 1, MODS * m->d);
    }
}

Status dit_sana_video_time(const SanaVideoDit *m, Exec *x, Tensor t, Tensor zero, SanaVideoTime *time) {
    size_t mark = arena_mark(x->work);
    Tensor wave = exec_new(x, 1, TIME_WIDTH), active = exec_new(x, 1, m->d);
    TRY(weights_enter(x, WEIGHTS_PART));
    for (int i = time->clean ? 0 : 1; i < 2; i++) {
        TRY(op_time_embed(x, &(TimeEmbed){.y = wave, .t = i ? t : zero, .max_period = 10000.0f}));
        TRY(blocks_mlp(&m->time, x, time->embedded[i], wave));
        TRY(op_act(x, &(Act){.y = active, .x = time->embedded[i], .kind = ACT_SILU}));
        TRY(op_linear(x, &(Linear){.y = time->mod[i], .x = active, .w = &m->time_mod}));
    }
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    TRY(exec_tap(x, "sana.embedded", time->embedded[1]));
    return exec_tap(x, "sana.time", time->mod[1]);
}

/* --- one block --- */

/* Tokens that share a time: those of the given frames (0), and the others (1). */
typedef struct Spans {
    int64_t start[2], count[2];
    Tensor mod[2];  /* [layers, 6, D] */
    Tensor last[2]; /* [2,D] */
} Spans;

static Status spans_of(const SanaVideoDit *m, Exec *x, const SanaVideoGrid *g, const SanaVideoTime *time, Spans *s) {
    int64_t d = m->d, layers = m->c.layers, frame = g->rows * g->cols, given = time->clean * frame;
    *s = (Spans){.start = {0, given}, .count = {given, g->frames * frame - given}};
    for (int k = 0; k < 2; k++) {
        if (!s->count[k]) continue;
        Tensor mod = tensor_view(time->mod[k], MODS, d);
        s->mod[k] = exec_new(x, layers, MODS, d);
        s->last[k] = exec_new(x, 2, d);
        for (int64_t i = 0; i < layers; i++)
            TRY(op_add(x, &(Add){.y = tensor_view(tensor_slice(s->mod[k], 0, i, 1), MODS, d), .a = mod, .b = m->block[i].table}));
        TRY(op_add(x, &(Add){.y = s->last[k], .a = m->table, .b = tensor_view(time->embedded[k], d)}));
    }
    return OK;
}

/* Vectors of a span: row `row` of block i, or of the last norm behind the blocks. */
static Tensor mod_row(const SanaVideoDit *m, const Spans *s, int k, int64_t i, int row) {
    Tensor all = i < m->c.layers ? tensor_slice(s->mod[k], 0, i, 1) : s->last[k];
    return tensor_view(tensor_slice(tensor_view(all, i < m->c.layers ? MODS : 2, m->d), 0, row, 1), m->d);
}

static Tensor span(const Spans *s, int k, Tensor t) { return tensor_slice(t, 0, s->start[k], s->count[k]); }

/* What modulates a norm: rows SHIFT, then SCALE. */
typedef struct Norm {
    int64_t block;
    int shift;
} Norm;

static float eps_of(const SanaVideoDit *m, Norm to) { return to.block < m->c.layers ? (float)m->c.eps : FINAL_EPS; }

static Status modulated(const SanaVideoDit *m, Exec *x, const Spans *s, Tensor y, Tensor h, Norm to) {
    for (int k = 0; k < 2; k++)
        if (s->count[k])
            TRY(op_ln_modulate(x, &(LnModulate){.y = span(s, k, y), .x = span(s, k, h), .eps = eps_of(m, to),
                                                .scale = mod_row(m, s, k, to.block, to.shift + 1),
                                                .shift = mod_row(m, s, k, to.block, to.shift)}));
    return OK;
}

static Status gated(const SanaVideoDit *m, Exec *x, const Spans *s, int64_t i, Tensor h, Tensor update) {
    for (int k = 0; k < 2; k++)
        if (s->count[k])
            TRY(op_residual_gate(x, &(ResidualGate){.y = span(s, k, h), .residual = span(s, k, h), .x = span(s, k, update),
                                                    .gate = mod_row(m, s, k, i, GATE_ATTENTION)}));
    return OK;
}

/* h takes the update, gated by row `gate` of block i (-1: as it is); n is its norm for what comes next. n may be the update. */
static Status joined(const SanaVideoDit *m, Exec *x, const Spans *s, int64_t i, Tensor h, Tensor update, int gate, Tensor n,
                     Norm to) {
    for (int k = 0; k < 2; k++)
        if (s->count[k])
            TRY(op_residual_gate_ln_modulate(
                x, &(ResidualGateLnModulate){.h = span(s, k, h), .y = span(s, k, n), .residual = span(s, k, h),
                                             .x = span(s, k, update), .gate = gate < 0 ? (Tensor){0} : mod_row(m, s, k, i, gate),
                                             .scale = mod_row(m, s, k, to.block, to.shift + 1),
                                             .shift = mod_row(m, s, k, to.block, to.shift), .eps = eps_of(m, to)}));
    return OK;
}

/* n: the modulated norm in, the update out. */
static Status self_attention(const SanaVideoDit *m, Exec *x, const SanaVideoBlock *l, const SanaVideoGrid *g, Tensor n) {
    size_t mark = arena_mark(x->work);
    int64_t t = n.shape[0], d = m->d, e = m->c.head_dim;
    Tensor qkv = exec_new(x, t, 3 * d), rotated = exec_new(x, t, 2 * d), o = exec_new(x, t, d);
    Tensor q = tensor_slice(qkv, 1, 0, d), k = tensor_slice(qkv, 1, d, d), v = tensor_slice(qkv, 1, 2 * d, d);
    Tensor qr = tensor_slice(rotated, 1, 0, d), kr = tensor_slice(rotated, 1, d, d);
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&l->q, &l->k, &l->v}}));
    TRY(op_norm_relu_rope(x, &(NormReluRope){.y = q, .yr = qr, .x = q, .w = l->norm_q, .cos = g->cos, .sin = g->sin,
                                             .eps = QK_EPS}));
    TRY(op_norm_relu_rope(x, &(NormReluRope){.y = k, .yr = kr, .x = k, .w = l->norm_k, .cos = g->cos, .sin = g->sin,
                                             .eps = QK_EPS}));
    TRY(op_linear_attention(x, &(LinearAttention){.o = tensor_split(o, e), .q = tensor_split(q, e), .k = tensor_split(k, e),
                                                  .qr = tensor_split(qr, e), .kr = tensor_split(kr, e),
                                                  .v = tensor_split(v, e), .eps = ATTENTION_EPS}));
    TRY(op_linear(x, &(Linear){.y = n, .x = o, .w = &l->out, .bias_mode = BIAS_AFTER}));
    arena_reset(x->work, mark);
    return OK;
}

/* Block 0's queries come from the patch embedding's transposed rows in the reference, with their bias apart. n: the update. */
static Status cross_attention(const SanaVideoDit *m, Exec *x, const SanaVideoBlock *l, const SanaVideoPrompt *p, int64_t i,
                              Tensor h, Tensor n) {
    size_t mark = arena_mark(x->work);
    int64_t t = h.shape[0], d = m->d, e = m->c.cross_head_dim;
    Tensor q = exec_new(x, t, d), o = exec_new(x, t, d);
    TRY(op_linear(x, &(Linear){.y = q, .x = h, .w = &l->cross_q, .bias_mode = i ? BIAS_FUSED : BIAS_AFTER}));
    TRY(op_rmsnorm(x, &(RmsNorm){.y = q, .x = q, .w = l->cross_norm_q, .eps = QK_EPS, .form = RMS_TWICE}));
    TRY(op_attention(x, &(Attention){.o = tensor_split(o, e), .q = tensor_split(q, e),
                                     .k = tensor_split(caption_part(p, i, 0), e),
                                     .v = tensor_split(caption_part(p, i, 1), e), .bias = p->bias,
                                     .scale = (float)(1.0 / sqrt((double)e))}));
    TRY(op_linear(x, &(Linear){.y = n, .x = o, .w = &l->cross_out}));
    arena_reset(x->work, mark);
    return OK;
}

/* The gated convolution: y from its modulated norm n, whose memory it uses. */
static Status gated_convolution(const SanaVideoDit *m, Exec *x, const SanaVideoBlock *l, const SanaVideoGrid *g, Tensor n,
                                Tensor y) {
    size_t mark = arena_mark(x->work);
    int64_t t = n.shape[0], d = m->d, f = m->ffn, place = g->rows * g->cols;
    Tensor wide = exec_new(x, t, 2 * f), narrow = exec_new(x, t, f);
    TRY(op_linear(x, &(Linear){.y = wide, .x = n, .w = &l->inverted}));
    TRY(op_dwconv3_glu(x, &(Dwconv3Glu){.y = tensor_view(narrow, g->frames, g->rows, g->cols, f),
                                        .x = tensor_view(wide, g->frames, g->rows, g->cols, 2 * f),
                                        .before = l->inverted_bias, .w = &l->depth}));
    TRY(op_linear(x, &(Linear){.y = n, .x = narrow, .w = &l->point}));
    Tensor in = tensor_view(n, g->frames, place, d);
    TRY(op_conv2d(x, &(Conv2d){.y = tensor_view(y, g->frames, place, d), .x = in, .skip = in, .w = &l->temporal, .stride = 1,
                               .pad_top = 1, .pad_bottom = 1, .form = CONV_RAW}));
    arena_reset(x->work, mark);
    return OK;
}

/* n: h's norm for this block's attention, then for what comes next. turned: where h lies channel by channel, absent elsewhere. */
static Status block(const SanaVideoDit *m, Exec *x, int64_t i, const SanaVideoGrid *g, const SanaVideoPrompt *p, const Spans *s,
                    Tensor h, Tensor n, Tensor turned) {
    const SanaVideoBlock *l = &m->block[i];
    size_t mark = arena_mark(x->work);
    TRY(self_attention(m, x, l, g, n));
    TRY(gated(m, x, s, i, turned.rank ? turned : h, n));
    if (turned.rank) TRY(op_copy(x, &(Copy){.y = h, .x = turned}));
    TRY(cross_attention(m, x, l, p, i, h, n));
    TRY(joined(m, x, s, i, h, n, -1, n, (Norm){i, SHIFT_FFN}));
    Tensor y = exec_new(x, h.shape[0], m->d);
    TRY(gated_convolution(m, x, l, g, n, y));
    TRY(joined(m, x, s, i, h, y, GATE_FFN, n, (Norm){i + 1, SHIFT_ATTENTION}));
    arena_reset(x->work, mark);
    return OK;
}

/* --- the whole --- */

/* Frames [C,F,h,w] below each other, one picture [C, F h, w]. */
static Tensor below(Tensor t) { return tensor_view(t, t.shape[0], t.shape[1] * t.shape[2], t.shape[3]); }

/* That picture as patches [F h / p, w / p, p, p, C]. */
static Tensor patches_of(Tensor t, int64_t p) {
    Tensor out = {.data = t.data, .dtype = t.dtype, .rank = 5};
    const int64_t shape[5] = {t.shape[1] / p, t.shape[2] / p, p, p, t.shape[0]};
    const int64_t stride[5] = {p * t.stride[1], p * t.stride[2], t.stride[1], t.stride[2], t.stride[0]};
    memcpy(out.shape, shape, sizeof shape);
    memcpy(out.stride, stride, sizeof stride);
    return out;
}

static Status embed(const SanaVideoDit *m, Exec *x, const SanaVideoGrid *g, Tensor latents, Tensor h) {
    size_t mark = arena_mark(x->work);
    Tensor from = tensor_channels_last(below(latents));
    Tensor picture = exec_new(x, from.shape[0], from.shape[1], from.shape[2]);
    TRY(op_copy(x, &(Copy){.y = picture, .x = from}));
    TRY(op_conv2d(x, &(Conv2d){.y = tensor_view(h, g->frames * g->rows, g->cols, m->d), .x = picture, .w = &m->patch,
                               .stride = (int32_t)m->c.patch, .form = CONV_BIAS}));
    arena_reset(x->work, mark);
    return exec_tap(x, "sana.x_embedder", h);
}

/* n: the last norm. */
static Status last(const SanaVideoDit *m, Exec *x, const SanaVideoGrid *g, Tensor n, Tensor out) {
    size_t mark = arena_mark(x->work);
    int64_t p = m->c.patch;
    Tensor patches = exec_new(x, n.shape[0], p * p * m->c.channels);
    TRY(op_linear(x, &(Linear){.y = patches, .x = n, .w = &m->final}));
    TRY(exec_tap(x, "sana.final", patches));
    TRY(op_copy(x, &(Copy){.y = patches_of(below(out), p),
                           .x = tensor_view(patches, g->frames * g->rows, g->cols, p, p, m->c.channels)}));
    arena_reset(x->work, mark);
    return OK;
}

Status dit_sana_video_run(const SanaVideoDit *m, Exec *x, const SanaVideoGrid *g, const SanaVideoPrompt *p,
                          const SanaVideoTime *time, Tensor latents, Tensor out) {
    size_t mark = arena_mark(x->work);
    int64_t tokens = g->frames * g->rows * g->cols;
    Tensor h = exec_new(x, tokens, m->d), n = exec_new(x, tokens, m->d);
    Spans s;
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(spans_of(m, x, g, time, &s));
    TRY(embed(m, x, g, latents, h));
    Tensor turned = {0};
    if (g->turned) { /* a convolution of planes, and LayerNorm's copy of them */
        turned = exec_new(x, tokens, m->d);
        turned.stride[0] = 1, turned.stride[1] = tokens;
        TRY(op_copy(x, &(Copy){.y = turned, .x = h}));
        TRY(op_copy(x, &(Copy){.y = h, .x = turned}));
    }
    TRY(modulated(m, x, &s, n, h, (Norm){0, SHIFT_ATTENTION}));
    for (int i = 0; i < (int)m->c.layers; i++) {
        TRY(weights_enter(x, i));
        if (block(m, x, i, g, p, &s, h, n, i ? (Tensor){0} : turned) != OK) return because(x->error, "sana_video block %d", i);
        TRY(weights_leave(x, i));
        TRY(exec_tapf(x, h, "sana.block.%d", i));
    }
    TRY(last(m, x, g, n, out));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
