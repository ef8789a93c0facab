/* dit_zimage.c - see dit_zimage.h. The joint sequence lives in one [Lx + Lc, D] buffer, image rows first, so that the noise
 * refiner works on a slice of it and nothing is ever concatenated. Patches are strided views of the latents: one copy
 * casts and patchifies. */
#include "models/dit_zimage.h"

#include "core/json.h"
#include "residency.h"

#include <math.h>
#include <stdlib.h>

/* Hard-coded in the class. */
enum { MULTIPLE = 32, PATCH = 2, TIME_WIDTH = 256, TIME_HIDDEN = 1024, ADALN_MAX = 256 };
static const float QK_EPS = 1e-5f, FINAL_EPS = 1e-6f;

/* --- config and weights --- */

/* Keys that the class knows and the published models leave at one value. */
static Status check_fixed(const Json *j, const char *path, const ZimageConfig *c, Error *e) {
    int64_t patch[2] = {PATCH}, frames[2] = {1}, kv = c->heads;
    int patches = 1, f_patches = 1;
    bool qk_norm = true;
    TRY(json_ints(j, "all_patch_size", patch, 2, &patches, path, e));
    TRY(json_ints(j, "all_f_patch_size", frames, 2, &f_patches, path, e));
    TRY(json_sizes(j, &(JsonSize){"n_kv_heads", &kv}, 1, path, e));
    TRY(json_bool(j, "qk_norm", &qk_norm, path, e));
    if (patches != 1 || f_patches != 1 || patch[0] != PATCH || frames[0] != 1)
        return fail(e, ERR_MODEL, "%s: expected all_patch_size [2] and all_f_patch_size [1]", path);
    if (kv != c->heads || !qk_norm)
        return fail(e, ERR_MODEL, "%s: expected n_kv_heads equal to n_heads %lld, and qk_norm", path, (long long)c->heads);
    if (!json_is_null(json_get(j, "siglip_feat_dim")))
        return fail(e, ERR_MODEL, "%s: siglip_feat_dim: a Z-Image Omni model; ditto renders Z-Image text-to-image", path);
    return OK;
}

static Status check_axes(const char *path, const ZimageConfig *c, int axes, int lens, Error *e) {
    int64_t sum = 0, odd = 0;
    bool positive = axes == 3 && lens == 3;
    for (int i = 0; positive && i < 3; i++) {
        sum += c->axes[i], odd |= c->axes[i] & 1;
        positive = c->axes[i] > 0 && c->axes[i] < 4096 && c->lens[i] > 0;
    }
    if (!positive || odd || c->dim % c->heads || sum != c->dim / c->heads)
        return fail(e, ERR_MODEL, "%s: axes_dims: expected three even numbers that add up to dim / n_heads = %lld / %lld, "
                    "and as many axes_lens", path, (long long)c->dim, (long long)c->heads);
    if (!(c->theta > 0) || !isfinite(c->theta) || !isfinite(c->t_scale))
        return fail(e, ERR_MODEL, "%s: expected rope_theta above 0 and a finite t_scale", path);
    return OK;
}

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    ZimageConfig *c = out;
    *c = (ZimageConfig){.channels = 16, .dim = 3840, .layers = 30, .refiners = 2, .heads = 30, .text_dim = 2560,
                        .axes = {32, 48, 48}, .lens = {1024, 512, 512}, .eps = 1e-5, .theta = 256,
                        .t_scale = 1000}; /* the class defaults */
    int axes = 3, lens = 3;
    const JsonSize sizes[] = {
        {"in_channels", &c->channels},      {"dim", &c->dim},       {"n_layers", &c->layers},
        {"n_refiner_layers", &c->refiners}, {"n_heads", &c->heads}, {"cap_feat_dim", &c->text_dim},
    };
    Status s = json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e);
    if (s == OK) s = json_ints(j, "axes_dims", c->axes, 3, &axes, path, e);
    if (s == OK) s = json_ints(j, "axes_lens", c->lens, 3, &lens, path, e);
    if (s == OK) s = json_double(j, "norm_eps", &c->eps, path, e);
    if (s == OK) s = json_double(j, "rope_theta", &c->theta, path, e);
    if (s == OK) s = json_double(j, "t_scale", &c->t_scale, path, e);
    if (s == OK) s = check_fixed(j, path, c, e);
    if (s == OK) s = check_axes(path, c, axes, lens, e);
    return s;
}

Status dit_zimage_open(const char *folder, ZimageDit *out, Error *e) {
    *out = (ZimageDit){0};
    TRY(json_read_in(folder, "config.json", read_config, &out->c, e));
    out->ffn = (int64_t)((double)out->c.dim / 3 * 8);
    out->adaln = out->c.dim < ADALN_MAX ? out->c.dim : ADALN_MAX;
    out->context = calloc((size_t)out->c.refiners, sizeof *out->context);
    out->noise = calloc((size_t)out->c.refiners, sizeof *out->noise);
    out->layer = calloc((size_t)out->c.layers, sizeof *out->layer);
    return out->context && out->noise && out->layer ? OK : fail(e, ERR_MEMORY, "%s: out of memory", folder);
}

void dit_zimage_close(ZimageDit *m) {
    free(m->context);
    free(m->noise);
    free(m->layer);
    *m = (ZimageDit){0};
}

static void bind_blocks(const ZimageDit *m, Bind *b, ZimageBlock *blocks, int64_t count, int first, bool modulated,
                        const char *name) {
    int64_t d = m->c.dim, e = d / m->c.heads;
    for (int i = 0; i < (int)count; i++) {
        ZimageBlock *l = &blocks[i];
        bind_block(b, first + i);
        if (modulated) bind_linear(b, &l->mod, 4 * d, m->adaln, true, "%s.%d.adaLN_modulation.0", name, i);
        bind_vector(b, &l->attention_norm1, d, BIND_PLAIN, "%s.%d.attention_norm1.weight", name, i);
        bind_vector(b, &l->attention_norm2, d, BIND_PLAIN, "%s.%d.attention_norm2.weight", name, i);
        bind_vector(b, &l->ffn_norm1, d, BIND_PLAIN, "%s.%d.ffn_norm1.weight", name, i);
        bind_vector(b, &l->ffn_norm2, d, BIND_PLAIN, "%s.%d.ffn_norm2.weight", name, i);
        bind_vector(b, &l->norm_q, e, BIND_PLAIN, "%s.%d.attention.norm_q.weight", name, i);
        bind_vector(b, &l->norm_k, e, BIND_PLAIN, "%s.%d.attention.norm_k.weight", name, i);
        bind_pack(b, true);
        bind_linear(b, &l->q, d, d, false, "%s.%d.attention.to_q", name, i);
        bind_linear(b, &l->k, d, d, false, "%s.%d.attention.to_k", name, i);
        bind_linear(b, &l->v, d, d, false, "%s.%d.attention.to_v", name, i);
        bind_pack(b, false);
        bind_linear(b, &l->out, d, d, false, "%s.%d.attention.to_out.0", name, i);
        bind_linear(b, &l->w2, d, m->ffn, false, "%s.%d.feed_forward.w2", name, i);
        bind_pack(b, true);
        bind_linear(b, &l->w1, m->ffn, d, false, "%s.%d.feed_forward.w1", name, i);
        bind_linear(b, &l->w3, m->ffn, d, false, "%s.%d.feed_forward.w3", name, i);
        bind_pack(b, false);
    }
    bind_block(b, -1);
}

static void bind_pad(Bind *b, Tensor *t, int64_t d, const char *name) { /* [1, D] on disk */
    bind_vector(b, t, d, BIND_PLAIN, "%s", name);
    BindRow *row = bind_last(b);
    if (row) row->rank = 2, row->shape[0] = 1, row->shape[1] = d;
}

void dit_zimage_bind(ZimageDit *m, const WeightFiles *files, Bind *b) {
    const ZimageConfig *c = &m->c;
    Tensor time = {0}; /* no config states the width of its hidden layer */
    bool known = weights_find(files, "t_embedder.mlp.0.weight", &time) && time.rank == 2;
    m->time_hidden = known ? time.shape[0] : TIME_HIDDEN;
    int64_t d = c->dim, patch = PATCH * PATCH * c->channels;
    int refiners = (int)c->refiners;
    bind_linear(b, &m->time_1, m->time_hidden, TIME_WIDTH, true, "t_embedder.mlp.0");
    bind_linear(b, &m->time_2, m->adaln, m->time_hidden, true, "t_embedder.mlp.2");
    bind_linear(b, &m->x_in, d, patch, true, "all_x_embedder.2-1");
    bind_vector(b, &m->text_norm, c->text_dim, BIND_PLAIN, "cap_embedder.0.weight");
    bind_linear(b, &m->text_in, d, c->text_dim, true, "cap_embedder.1");
    bind_pad(b, &m->x_pad, d, "x_pad_token");
    bind_pad(b, &m->text_pad, d, "cap_pad_token");
    bind_blocks(m, b, m->context, c->refiners, 0, false, "context_refiner");
    bind_blocks(m, b, m->noise, c->refiners, refiners, true, "noise_refiner");
    bind_blocks(m, b, m->layer, c->layers, 2 * refiners, true, "layers");
    bind_linear(b, &m->final_mod, d, m->adaln, true, "all_final_layer.2-1.adaLN_modulation.1");
    bind_linear(b, &m->final, patch, d, true, "all_final_layer.2-1.linear");
}

/* --- one block --- */

/* i-th chunk of a modulation row [1, n D] as a row [D]; absent without one. */
static Tensor chunk(Tensor mod, int64_t d, int i) {
    return mod.rank ? tensor_view(tensor_slice(mod, 1, i * d, d), d) : (Tensor){0};
}

/* c: the time embedding [1, adaln], unused by blocks without modulation. */
static Status block(const ZimageDit *m, Exec *x, const ZimageBlock *l, Tensor h, Tensor c, Tensor cos_table,
                    Tensor sin_table) {
    size_t mark = arena_mark(x->work);
    int64_t t = h.shape[0], d = m->c.dim, e = d / m->c.heads;
    float eps = (float)m->c.eps;
    Tensor mod = {0}, n = exec_new(x, t, d);
    if (c.rank) {
        mod = exec_new(x, 1, 4 * d);
        TRY(op_linear(x, &(Linear){.y = mod, .x = c, .w = &l->mod}));
    }
    size_t inside = arena_mark(x->work);
    Tensor qkv = exec_new(x, t, 3 * d), o = exec_new(x, t, d);
    Tensor q = tensor_slice(qkv, 1, 0, d), k = tensor_slice(qkv, 1, d, d), v = tensor_slice(qkv, 1, 2 * d, d);
    Tensor qs = tensor_split(q, e), ks = tensor_split(k, e);
    TRY(op_rmsnorm_scale(x, &(RmsNormScale){.y = n, .x = h, .w = l->attention_norm1, .scale = chunk(mod, d, 0),
                                            .eps = eps}));
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&l->q, &l->k, &l->v}}));
    TRY(op_qk_norm_rope_head(x, &(QkNormRopeHead){.yq = qs, .yk = ks, .q = qs, .k = ks, .wq = l->norm_q,
                                                  .wk = l->norm_k, .cos = cos_table, .sin = sin_table, .eps = QK_EPS,
                                                  .rope = ROPE_COMPLEX, .form = RMS_TWICE}));
    TRY(op_attention(x, &(Attention){.o = tensor_split(o, e), .q = qs, .k = ks, .v = tensor_split(v, e),
                                     .scale = (float)(1.0 / sqrt((double)e))}));
    TRY(op_linear(x, &(Linear){.y = n, .x = o, .w = &l->out}));
    arena_reset(x->work, inside);
    Tensor both = exec_new(x, t, 2 * m->ffn);
    Tensor gate = tensor_slice(both, 1, 0, m->ffn), up = tensor_slice(both, 1, m->ffn, m->ffn);
    TRY(op_residual_norm_scale(x, &(ResidualNormScale){.y = h, .n = n, .residual = h, .x = n, .w = l->attention_norm2,
                                                       .gate = chunk(mod, d, 1), .w_next = l->ffn_norm1,
                                                       .scale = chunk(mod, d, 2), .eps = eps}));
    TRY(op_linear_many(x, &(LinearMany){.y = {gate, up}, .x = n, .w = {&l->w1, &l->w3}}));
    TRY(op_act_mul(x, &(ActMul){.y = gate, .a = gate, .b = up, .kind = ACT_SILU}));
    TRY(op_linear(x, &(Linear){.y = n, .x = gate, .w = &l->w2}));
    TRY(op_residual_norm(x, &(ResidualNorm){.y = h, .residual = h, .x = n, .w = l->ffn_norm2, .gate = chunk(mod, d, 3),
                                            .eps = eps}));
    arena_reset(x->work, mark);
    return OK;
}

/* `count` blocks on h, the first of them block `first` of the weights; every one is tapped as NAME.<i>. */
static Status run_blocks(const ZimageDit *m, Exec *x, const ZimageBlock *blocks, int64_t count, int64_t first, Tensor h,
                         Tensor c, Tensor cos_table, Tensor sin_table, const char *name) {
    for (int i = 0; i < (int)count; i++) {
        TRY(weights_enter(x, (int)first + i));
        if (block(m, x, &blocks[i], h, c, cos_table, sin_table) != OK)
            return because(x->error, "zimage %s block %d", name, i);
        TRY(weights_leave(x, (int)first + i));
        TRY(exec_tapf(x, h, "zimage.%s.%d", name, i));
    }
    return OK;
}

/* --- once per prompt and size --- */

int64_t dit_zimage_padded(int64_t n) { return (n + MULTIPLE - 1) / MULTIPLE * MULTIPLE; }

/* Positions of one row of [image ; caption]: axis t counts the caption from 1, the image stands after it. */
static void position_of(int64_t row, int64_t image, int64_t padded, int64_t text, int64_t cols, int64_t at[3]) {
    at[0] = at[1] = at[2] = 0; /* image pads */
    if (row >= padded) {
        at[0] = row - padded + 1;
    } else if (row < image) {
        at[0] = text + 1;
        at[1] = row / cols, at[2] = row % cols;
    }
}

/* One axis: cosines and sines [positions, pairs] behind each other. The reference's angles are f32, and its torch.polar
 * takes their cosine with the C library's cosf: rounding a double's instead changes 1 % of the table by a bit. */
static float *axis_table(double theta, int64_t width, int64_t positions) {
    int64_t pairs = width / 2;
    float *table = malloc((size_t)(2 * positions * pairs) * sizeof *table);
    for (int64_t k = 0; table && k < pairs; k++) {
        double frequency = 1.0 / pow(theta, (double)(2 * k) / (double)width);
        for (int64_t p = 0; p < positions; p++) {
            float angle = (float)((double)p * frequency);
            table[p * pairs + k] = cosf(angle);
            table[(positions + p) * pairs + k] = sinf(angle);
        }
    }
    return table;
}

Status dit_zimage_rope(const ZimageDit *m, Exec *x, int64_t text, int64_t rows, int64_t cols, ZimagePrompt *p) {
    int64_t half = m->c.dim / m->c.heads / 2, padded = dit_zimage_padded(rows * cols), lc = dit_zimage_padded(text);
    int64_t n = padded + lc;
    p->cos = exec_new_as(x, F32, n, half);
    p->sin = exec_new_as(x, F32, n, half);
    if (x->dry) return OK;
    const int64_t positions[3] = {lc + 2, rows, cols};
    float *host = malloc((size_t)(2 * n * half) * sizeof *host), *axis[3];
    bool complete = host != NULL;
    for (int a = 0; a < 3; a++) complete &= (axis[a] = axis_table(m->c.theta, m->c.axes[a], positions[a])) != NULL;
    for (int64_t i = 0; complete && i < n; i++) {
        int64_t at[3], column = 0;
        position_of(i, rows * cols, padded, lc, cols, at);
        for (int a = 0; a < 3; a++) {
            size_t pairs = (size_t)m->c.axes[a] / 2;
            const float *c = axis[a] + (size_t)at[a] * pairs;
            memcpy(host + i * half + column, c, pairs * sizeof *c);
            memcpy(host + (n + i) * half + column, c + (size_t)positions[a] * pairs, pairs * sizeof *c);
            column += (int64_t)pairs;
        }
    }
    Status status = complete ? exec_upload(x, p->cos, host)
                             : fail(x->error, ERR_MEMORY, "zimage: out of memory for rotary tables");
    if (status == OK) status = exec_upload(x, p->sin, host + n * half);
    for (int a = 0; a < 3; a++) free(axis[a]);
    free(host);
    return status;
}

/* The learned token into rows [from, end) of h. */
static Status pad_rows(Exec *x, Tensor h, int64_t from, Tensor token) {
    int64_t n = h.shape[0] - from;
    if (!n) return OK;
    Tensor to = tensor_slice(h, 0, from, n), row = token;
    row.shape[0] = n, row.stride[0] = 0;
    return op_copy(x, &(Copy){.y = to, .x = row});
}

/* The pads are embedded too and then overwritten, as the reference does: the number of rows is part of the bits of others,
 * and the shapes depend on the padded length alone, but for two copies. */
Status dit_zimage_prompt(const ZimageDit *m, Exec *x, Tensor embeds, ZimagePrompt *p) {
    size_t mark = arena_mark(x->work);
    int64_t n = embeds.shape[0], lc = p->context.shape[0], lx = p->cos.shape[0] - lc;
    Tensor rows = exec_new(x, lc, m->c.text_dim);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(op_copy(x, &(Copy){.y = tensor_slice(rows, 0, 0, n), .x = embeds}));
    TRY(pad_rows(x, rows, n, tensor_slice(embeds, 0, n - 1, 1)));
    TRY(op_rmsnorm(x, &(RmsNorm){.y = rows, .x = rows, .w = m->text_norm, .eps = (float)m->c.eps, .form = RMS_TWICE}));
    TRY(op_linear(x, &(Linear){.y = p->context, .x = rows, .w = &m->text_in}));
    TRY(exec_tap(x, "zimage.cap_embedder", tensor_slice(p->context, 0, 0, n)));
    TRY(pad_rows(x, p->context, n, m->text_pad));
    TRY(run_blocks(m, x, m->context, m->c.refiners, 0, p->context, (Tensor){0}, tensor_slice(p->cos, 0, lx, lc),
                   tensor_slice(p->sin, 0, lx, lc), "context"));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}

/* --- every step --- */

/* A picture [C, h, w] seen as patches [h/2, w/2, 2, 2, C]. */
static Tensor patches_of(Tensor t) {
    Tensor p = {.data = t.data, .dtype = t.dtype, .rank = 5};
    const int64_t shape[5] = {t.shape[1] / PATCH, t.shape[2] / PATCH, PATCH, PATCH, t.shape[0]};
    const int64_t stride[5] = {PATCH * t.stride[1], PATCH * t.stride[2], t.stride[1], t.stride[2], t.stride[0]};
    memcpy(p.shape, shape, sizeof shape);
    memcpy(p.stride, stride, sizeof stride);
    return p;
}

static Status embed_time(const ZimageDit *m, Exec *x, Tensor c, Tensor t) {
    size_t mark = arena_mark(x->work);
    Tensor wave = exec_new(x, 1, TIME_WIDTH), hidden = exec_new(x, 1, m->time_hidden);
    TRY(op_time_embed(x, &(TimeEmbed){.y = wave, .t = t, .max_period = 10000.0f}));
    TRY(op_linear(x, &(Linear){.y = hidden, .x = wave, .w = &m->time_1}));
    TRY(op_act(x, &(Act){.y = hidden, .x = hidden, .kind = ACT_SILU}));
    TRY(op_linear(x, &(Linear){.y = c, .x = hidden, .w = &m->time_2}));
    arena_reset(x->work, mark);
    return exec_tap(x, "zimage.time", c);
}

/* All rows, though only the image's are read: how a product of few columns is cut, and so its bits, depends on their number.
 * It is a two-thousandth of a step. */
static Status final_layer(const ZimageDit *m, Exec *x, Tensor rows, int64_t image, Tensor c, Tensor patches) {
    size_t mark = arena_mark(x->work);
    int64_t d = m->c.dim;
    Tensor mod = exec_new(x, 1, d), norm = exec_new(x, rows.shape[0], d);
    TRY(op_act(x, &(Act){.y = c, .x = c, .kind = ACT_SILU}));
    TRY(op_linear(x, &(Linear){.y = mod, .x = c, .w = &m->final_mod}));
    TRY(op_ln_modulate(x, &(LnModulate){.y = norm, .x = rows, .scale = chunk(mod, d, 0), .eps = FINAL_EPS}));
    TRY(op_linear(x, &(Linear){.y = patches, .x = norm, .w = &m->final}));
    arena_reset(x->work, mark);
    return exec_tap(x, "zimage.final", tensor_slice(patches, 0, 0, image));
}

Status dit_zimage_run(const ZimageDit *m, Exec *x, const ZimagePrompt *p, Tensor latents, Tensor t, Tensor out) {
    size_t mark = arena_mark(x->work);
    int64_t channels = latents.shape[0], rows = latents.shape[1] / PATCH, cols = latents.shape[2] / PATCH;
    int64_t n = rows * cols, lx = dit_zimage_padded(n), lc = p->context.shape[0], d = m->c.dim, r = m->c.refiners;
    Tensor c = exec_new(x, 1, m->adaln), h = exec_new(x, lx + lc, d);
    Tensor all = exec_new(x, lx + lc, PATCH * PATCH * channels), patches = tensor_slice(all, 0, 0, n);
    Tensor image = tensor_slice(h, 0, 0, lx), tokens = tensor_slice(h, 0, 0, n);
    Tensor grid = tensor_view(patches, rows, cols, PATCH, PATCH, channels);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(embed_time(m, x, c, t));
    TRY(op_copy(x, &(Copy){.y = grid, .x = patches_of(latents)}));
    TRY(op_linear(x, &(Linear){.y = tokens, .x = patches, .w = &m->x_in}));
    TRY(exec_tap(x, "zimage.x_embedder", tokens));
    TRY(pad_rows(x, image, n, m->x_pad));
    TRY(run_blocks(m, x, m->noise, r, r, image, c, tensor_slice(p->cos, 0, 0, lx), tensor_slice(p->sin, 0, 0, lx),
                   "noise"));
    TRY(op_copy(x, &(Copy){.y = tensor_slice(h, 0, lx, lc), .x = p->context}));
    TRY(run_blocks(m, x, m->layer, m->c.layers, 2 * r, h, c, p->cos, p->sin, "layer"));
    TRY(final_layer(m, x, h, n, c, all));
    TRY(weights_leave(x, WEIGHTS_PART));
    TRY(op_copy(x, &(Copy){.y = patches_of(out), .x = grid}));
    arena_reset(x->work, mark);
    return OK;
}
