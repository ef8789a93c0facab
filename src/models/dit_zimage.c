/* dit_zimage.c - see dit_zimage.h. The joint sequence lives in one [items, T, D] buffer, image rows first; of one item the noise
 * refiner works on a slice of it and nothing is ever concatenated, two items lie one behind the other in every part and are
 * copied together. Patches are strided views of the latents: one copy casts and patchifies. */
#include "models/dit_zimage.h"

#include "core/convert.h"
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
        return fail(e, ERR_MODEL, "%s: expected n_kv_heads equal to n_heads %lld, and qk_norm, found %lld and %s", path,
                    (long long)c->heads, (long long)kv, qk_norm ? "true" : "false");
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
        bind_block(b, -1); /* what the block before this one ends with */
        if (modulated) bind_linear(b, &l->mod, 4 * d, m->adaln, true, "%s.%d.adaLN_modulation.0", name, i);
        bind_vector(b, &l->attention_norm1, d, BIND_PLAIN, "%s.%d.attention_norm1.weight", name, i);
        bind_block(b, first + i);
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
    bind_table(b, &m->x_pad, 1, d, "x_pad_token");
    bind_table(b, &m->text_pad, 1, d, "cap_pad_token");
    bind_blocks(m, b, m->context, c->refiners, 0, false, "context_refiner");
    bind_blocks(m, b, m->noise, c->refiners, refiners, true, "noise_refiner");
    bind_blocks(m, b, m->layer, c->layers, 2 * refiners, true, "layers");
    bind_linear(b, &m->final_mod, d, m->adaln, true, "all_final_layer.2-1.adaLN_modulation.1");
    bind_linear(b, &m->final, patch, d, true, "all_final_layer.2-1.linear");
}

/* --- one block --- */

/* i-th chunk of modulation rows [items, n D] as a row [D], the first item's, since all are alike; absent without them. */
static Tensor chunk(Tensor mod, int64_t d, int i) {
    return mod.rank ? tensor_view(tensor_slice(tensor_slice(mod, 0, 0, 1), 1, i * d, d), d) : (Tensor){0};
}

/* Whose rows a block works on: those of each item from `first` on of the T that the tables have. */
typedef struct Span {
    const ZimagePrompt *p;
    int64_t first;
} Span;

/* QK norm, RoPE and attention of item i, whose rows are n of q, k, v and o. */
static Status attend(Exec *x, const ZimageBlock *l, Span at, int i, int64_t n, Tensor q, Tensor k, Tensor v, Tensor o) {
    const ZimagePrompt *p = at.p;
    int64_t total = p->cos.shape[0] / p->items, e = q.shape[2], row = i * total + at.first;
    Tensor *rows[] = {&q, &k, &v, &o}, bias = {0};
    for (int a = 0; a < 4; a++) *rows[a] = tensor_slice(*rows[a], 0, i * n, n);
    if (p->bias.rank) bias = tensor_view(tensor_slice(tensor_slice(p->bias, 0, i, 1), 1, at.first, n), n);
    TRY(op_qk_norm_rope_head(x, &(QkNormRopeHead){.yq = q, .yk = k, .q = q, .k = k, .wq = l->norm_q, .wk = l->norm_k,
                                                  .cos = tensor_slice(p->cos, 0, row, n),
                                                  .sin = tensor_slice(p->sin, 0, row, n), .eps = QK_EPS,
                                                  .rope = ROPE_COMPLEX, .form = RMS_TWICE}));
    return op_attention(x, &(Attention){.o = o, .q = q, .k = k, .v = v, .bias = bias,
                                        .scale = (float)(1.0 / sqrt((double)e))});
}

/* The block's modulation [items, 4 D]; nothing for blocks without. c: the time embedding [items, adaln]. */
static Status modulation(Exec *x, const ZimageBlock *l, Tensor c, Tensor mod) {
    return c.rank ? op_linear(x, &(Linear){.y = mod, .x = c, .w = &l->mod}) : OK;
}

/* From n, which holds the first norm of h, to h and the first norm of `next` (NULL: none) in n: a block ends in one pass with
 * what the next begins with. c: unused by blocks without modulation. */
static Status block(const ZimageDit *m, Exec *x, const ZimageBlock *l, const ZimageBlock *next, Tensor h, Tensor n, Tensor c,
                    Tensor mod, Tensor next_mod, Span at) {
    size_t mark = arena_mark(x->work);
    int64_t t = h.shape[0], d = m->c.dim, e = d / m->c.heads;
    float eps = (float)m->c.eps;
    Tensor qkv = exec_new(x, t, 3 * d), o = exec_new(x, t, d);
    Tensor q = tensor_slice(qkv, 1, 0, d), k = tensor_slice(qkv, 1, d, d), v = tensor_slice(qkv, 1, 2 * d, d);
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&l->q, &l->k, &l->v}}));
    for (int i = 0; i < at.p->items; i++)
        TRY(attend(x, l, at, i, t / at.p->items, tensor_split(q, e), tensor_split(k, e), tensor_split(v, e),
                   tensor_split(o, e)));
    TRY(op_linear(x, &(Linear){.y = n, .x = o, .w = &l->out}));
    arena_reset(x->work, mark);
    Tensor both = exec_new(x, t, 2 * m->ffn);
    Tensor gate = tensor_slice(both, 1, 0, m->ffn), up = tensor_slice(both, 1, m->ffn, m->ffn);
    TRY(op_residual_norm_scale(x, &(ResidualNormScale){.y = h, .n = n, .residual = h, .x = n, .w = l->attention_norm2,
                                                       .gate = chunk(mod, d, 1), .w_next = l->ffn_norm1,
                                                       .scale = chunk(mod, d, 2), .eps = eps}));
    TRY(op_linear_many(x, &(LinearMany){.y = {gate, up}, .x = n, .w = {&l->w1, &l->w3}}));
    TRY(op_act_mul(x, &(ActMul){.y = gate, .a = gate, .b = up, .kind = ACT_SILU}));
    TRY(op_linear(x, &(Linear){.y = n, .x = gate, .w = &l->w2}));
    arena_reset(x->work, mark);
    if (!next)
        return op_residual_norm(x, &(ResidualNorm){.y = h, .residual = h, .x = n, .w = l->ffn_norm2, .gate = chunk(mod, d, 3),
                                                   .eps = eps});
    TRY(modulation(x, next, c, next_mod));
    return op_residual_norm_scale(x, &(ResidualNormScale){.y = h, .n = n, .residual = h, .x = n, .w = l->ffn_norm2,
                                                          .gate = chunk(mod, d, 3), .w_next = next->attention_norm1,
                                                          .scale = chunk(next_mod, d, 0), .eps = eps});
}

/* Rows of the first item of `items`. */
static Tensor first_item(Tensor t, int items) { return tensor_slice(t, 0, 0, t.shape[0] / items); }

/* `count` blocks on h, the first of them block `first` of the weights; every one is tapped as NAME.<i>. */
static Status run_blocks(const ZimageDit *m, Exec *x, const ZimageBlock *blocks, int64_t count, int64_t first, Tensor h,
                         Tensor c, Span at, const char *name) {
    size_t mark = arena_mark(x->work);
    int64_t d = m->c.dim;
    Tensor n = exec_new(x, h.shape[0], d), mod[2] = {{0}, {0}};
    for (int i = 0; c.rank && i < 2; i++) mod[i] = exec_new(x, c.shape[0], 4 * d);
    for (int i = 0; i < (int)count; i++) {
        const ZimageBlock *l = &blocks[i], *next = i + 1 < (int)count ? l + 1 : NULL;
        if (!i) TRY(modulation(x, l, c, mod[0]));
        if (!i) TRY(op_rmsnorm_scale(x, &(RmsNormScale){.y = n, .x = h, .w = l->attention_norm1, .scale = chunk(mod[0], d, 0),
                                                        .eps = (float)m->c.eps}));
        TRY(weights_enter(x, (int)first + i));
        if (block(m, x, l, next, h, n, c, mod[i % 2], mod[(i + 1) % 2], at) != OK)
            return because(x->error, "zimage %s block %d", name, i);
        TRY(weights_leave(x, (int)first + i));
        TRY(exec_tapf(x, first_item(h, at.p->items), "zimage.%s.%d", name, i));
    }
    arena_reset(x->work, mark);
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

/* Tables [items * T, E / 2] of cosines, then of sines; rows behind an item's own stay zero. */
static bool fill_tables(const ZimageDit *m, const ZimagePrompt *p, int64_t rows, int64_t cols, float *host) {
    int64_t half = p->cos.shape[1], n = p->cos.shape[0], total = n / p->items, padded = dit_zimage_padded(rows * cols);
    const int64_t positions[3] = {total - padded + 2, rows, cols};
    float *axis[3];
    bool complete = true;
    for (int a = 0; a < 3; a++) complete &= (axis[a] = axis_table(m->c.theta, m->c.axes[a], positions[a])) != NULL;
    for (int64_t i = 0; complete && i < n; i++) {
        int64_t at[3], column = 0, lc = p->lc[i / total], row = i % total;
        position_of(row, rows * cols, padded, lc, cols, at);
        for (int a = 0; a < 3 && row < padded + lc; a++) {
            size_t pairs = (size_t)m->c.axes[a] / 2;
            const float *c = axis[a] + (size_t)at[a] * pairs;
            memcpy(host + i * half + column, c, pairs * sizeof *c);
            memcpy(host + (n + i) * half + column, c + (size_t)positions[a] * pairs, pairs * sizeof *c);
            column += (int64_t)pairs;
        }
    }
    for (int a = 0; a < 3; a++) free(axis[a]);
    return complete;
}

/* Of a key that is not there: the lowest bf16. Sums with scores stay finite, and its share of a softmax is 0. */
static const float HIDDEN = -0x1.fep127f;

static Status upload_bias(Exec *x, const ZimagePrompt *p, int64_t padded) {
    int64_t total = p->bias.shape[1], n = p->items * total;
    size_t size = dtype_size(x->dtype);
    float *row = malloc((size_t)n * sizeof *row);
    char *narrow = calloc((size_t)(n > p->zero.shape[0] ? n : p->zero.shape[0]), size);
    Status s = row && narrow ? exec_upload(x, p->zero, narrow) : fail(x->error, ERR_MEMORY, "zimage: out of memory for a mask");
    for (int64_t i = 0; s == OK && i < n; i++) row[i] = i % total < padded + p->lc[i / total] ? 0 : HIDDEN;
    if (s == OK) {
        convert_narrow(row, x->dtype, narrow, n);
        s = exec_upload(x, p->bias, narrow);
    }
    free(row);
    free(narrow);
    return s;
}

Status dit_zimage_layout(const ZimageDit *m, Exec *x, const int64_t *text, int items, int64_t rows, int64_t cols,
                         ZimagePrompt *p) {
    int64_t padded = dit_zimage_padded(rows * cols), longest = 0, shortest = INT64_MAX;
    *p = (ZimagePrompt){.items = items};
    for (int i = 0; i < items; i++) {
        p->lc[i] = dit_zimage_padded(text[i]);
        if (p->lc[i] > longest) longest = p->lc[i];
        if (p->lc[i] < shortest) shortest = p->lc[i];
    }
    int64_t total = padded + longest, half = m->c.dim / m->c.heads / 2;
    p->context = exec_new(x, items * longest, m->c.dim);
    p->cos = exec_new_as(x, F32, items * total, half);
    p->sin = exec_new_as(x, F32, items * total, half);
    if (shortest < longest) {
        p->bias = exec_new(x, items, total);
        p->zero = exec_new(x, m->c.dim);
    }
    if (x->dry) return OK;
    int64_t n = tensor_numel(p->cos);
    float *host = calloc((size_t)(2 * n), sizeof *host);
    Status s = host && fill_tables(m, p, rows, cols, host)
                   ? exec_upload(x, p->cos, host)
                   : fail(x->error, ERR_MEMORY, "zimage: out of memory for rotary tables");
    if (s == OK) s = exec_upload(x, p->sin, host + n);
    free(host);
    return s == OK && p->bias.rank ? upload_bias(x, p, padded) : s;
}

/* One row into rows [from, end) of h. */
static Status pad_rows(Exec *x, Tensor h, int64_t from, Tensor token) {
    int64_t n = h.shape[0] - from;
    if (!n) return OK;
    Tensor to = tensor_slice(h, 0, from, n), row = tensor_view(token, 1, h.shape[1]);
    row.shape[0] = n, row.stride[0] = 0;
    return op_copy(x, &(Copy){.y = to, .x = row});
}

/* The pads are embedded too and then overwritten, as the reference does: the number of rows is part of the bits of others,
 * and the shapes depend on the padded length alone, but for two copies. */
Status dit_zimage_prompt(const ZimageDit *m, Exec *x, const Tensor *embeds, ZimagePrompt *p) {
    size_t mark = arena_mark(x->work);
    int64_t lc = p->context.shape[0] / p->items, lx = p->cos.shape[0] / p->items - lc, all = p->lc[0] + p->lc[1];
    Tensor rows = exec_new(x, all, m->c.text_dim), h = p->zero.rank ? exec_new(x, all, m->c.dim) : p->context;
    TRY(weights_enter(x, WEIGHTS_PART));
    for (int64_t i = 0, at = 0; i < p->items; at += p->lc[i++]) {
        int64_t n = embeds[i].shape[0];
        Tensor own = tensor_slice(rows, 0, at, p->lc[i]);
        TRY(op_copy(x, &(Copy){.y = tensor_slice(own, 0, 0, n), .x = embeds[i]}));
        TRY(pad_rows(x, own, n, tensor_slice(embeds[i], 0, n - 1, 1)));
    }
    TRY(op_rmsnorm(x, &(RmsNorm){.y = rows, .x = rows, .w = m->text_norm, .eps = (float)m->c.eps, .form = RMS_TWICE}));
    TRY(op_linear(x, &(Linear){.y = h, .x = rows, .w = &m->text_in}));
    TRY(exec_tap(x, "zimage.cap_embedder", tensor_slice(h, 0, 0, embeds[0].shape[0])));
    for (int64_t i = 0, at = 0; i < p->items; at += p->lc[i++])
        TRY(pad_rows(x, tensor_slice(h, 0, at, p->lc[i]), embeds[i].shape[0], m->text_pad));
    for (int64_t i = 0, at = 0; p->zero.rank && i < p->items; at += p->lc[i++]) {
        Tensor own = tensor_slice(p->context, 0, i * lc, lc);
        TRY(op_copy(x, &(Copy){.y = tensor_slice(own, 0, 0, p->lc[i]), .x = tensor_slice(h, 0, at, p->lc[i])}));
        TRY(pad_rows(x, own, p->lc[i], p->zero));
    }
    TRY(run_blocks(m, x, m->context, m->c.refiners, 0, p->context, (Tensor){0}, (Span){p, lx}, "context"));
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

/* A row for every item. */
static Status embed_time(const ZimageDit *m, Exec *x, Tensor c, Tensor t) {
    size_t mark = arena_mark(x->work);
    int64_t items = c.shape[0];
    Tensor wave = exec_new(x, items, TIME_WIDTH), hidden = exec_new(x, items, m->time_hidden);
    TRY(op_time_embed(x, &(TimeEmbed){.y = tensor_slice(wave, 0, 0, 1), .t = t, .max_period = 10000.0f}));
    TRY(pad_rows(x, wave, 1, tensor_slice(wave, 0, 0, 1)));
    TRY(op_linear(x, &(Linear){.y = hidden, .x = wave, .w = &m->time_1}));
    TRY(op_act(x, &(Act){.y = hidden, .x = hidden, .kind = ACT_SILU}));
    TRY(op_linear(x, &(Linear){.y = c, .x = hidden, .w = &m->time_2}));
    arena_reset(x->work, mark);
    return exec_tap(x, "zimage.time", tensor_slice(c, 0, 0, 1));
}

/* All rows, though only the image's are read: how a product of few columns is cut, and so its bits, depends on their number.
 * It is a two-thousandth of a step. */
static Status final_layer(const ZimageDit *m, Exec *x, Tensor rows, int64_t image, Tensor c, Tensor patches) {
    size_t mark = arena_mark(x->work);
    int64_t d = m->c.dim;
    Tensor mod = exec_new(x, c.shape[0], d), norm = exec_new(x, rows.shape[0], d);
    TRY(op_act(x, &(Act){.y = c, .x = c, .kind = ACT_SILU}));
    TRY(op_linear(x, &(Linear){.y = mod, .x = c, .w = &m->final_mod}));
    TRY(op_ln_modulate(x, &(LnModulate){.y = norm, .x = rows, .scale = chunk(mod, d, 0), .eps = FINAL_EPS}));
    TRY(op_linear(x, &(Linear){.y = patches, .x = norm, .w = &m->final}));
    arena_reset(x->work, mark);
    return exec_tap(x, "zimage.final", tensor_slice(patches, 0, 0, image));
}

/* Rows [at, at + n) of patches, as the grid of an image. */
static Tensor grid_of(Tensor rows, int64_t at, Tensor latents) {
    int64_t h = latents.shape[1] / PATCH, w = latents.shape[2] / PATCH;
    return tensor_view(tensor_slice(rows, 0, at, h * w), h, w, PATCH, PATCH, latents.shape[0]);
}

/* The refined image [items * Lx, D]: as with the caption, pads are embedded and overwritten. */
static Status embed_image(const ZimageDit *m, Exec *x, const ZimagePrompt *p, Tensor latents, Tensor c, Tensor image) {
    size_t mark = arena_mark(x->work);
    int64_t n = latents.shape[1] / PATCH * (latents.shape[2] / PATCH), lx = image.shape[0] / p->items, r = m->c.refiners;
    Tensor rows = exec_new(x, p->items * lx, PATCH * PATCH * latents.shape[0]);
    for (int64_t i = 0; i < p->items; i++) {
        Tensor own = tensor_slice(rows, 0, i * lx, lx);
        TRY(op_copy(x, &(Copy){.y = grid_of(own, 0, latents), .x = patches_of(latents)}));
        TRY(pad_rows(x, own, n, tensor_slice(own, 0, n - 1, 1)));
    }
    TRY(op_linear(x, &(Linear){.y = image, .x = rows, .w = &m->x_in}));
    TRY(exec_tap(x, "zimage.x_embedder", tensor_slice(image, 0, 0, n)));
    for (int64_t i = 0; i < p->items; i++) TRY(pad_rows(x, tensor_slice(image, 0, i * lx, lx), n, m->x_pad));
    arena_reset(x->work, mark);
    return run_blocks(m, x, m->noise, r, r, image, c, (Span){p, 0}, "noise");
}

Status dit_zimage_run(const ZimageDit *m, Exec *x, const ZimagePrompt *p, Tensor latents, Tensor t, Tensor out) {
    size_t mark = arena_mark(x->work);
    int64_t channels = latents.shape[0], n = latents.shape[1] / PATCH * (latents.shape[2] / PATCH), d = m->c.dim;
    int64_t total = p->cos.shape[0] / p->items, lc = p->context.shape[0] / p->items, lx = total - lc;
    Tensor c = exec_new(x, p->items, m->adaln), h = exec_new(x, p->items * total, d);
    Tensor patches = exec_new(x, p->items * total, PATCH * PATCH * channels);
    size_t inside = arena_mark(x->work);
    Tensor image = p->items > 1 ? exec_new(x, p->items * lx, d) : tensor_slice(h, 0, 0, lx);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(embed_time(m, x, c, t));
    TRY(embed_image(m, x, p, latents, c, image));
    for (int64_t i = 0; i < p->items; i++) {
        Tensor rows = tensor_slice(h, 0, i * total, total), caption = tensor_slice(p->context, 0, i * lc, p->lc[i]);
        if (p->items > 1)
            TRY(op_copy(x, &(Copy){.y = tensor_slice(rows, 0, 0, lx), .x = tensor_slice(image, 0, i * lx, lx)}));
        TRY(op_copy(x, &(Copy){.y = tensor_slice(rows, 0, lx, p->lc[i]), .x = caption}));
        if (p->zero.rank) TRY(pad_rows(x, rows, lx + p->lc[i], p->zero));
    }
    arena_reset(x->work, inside);
    TRY(run_blocks(m, x, m->layer, m->c.layers, 2 * m->c.refiners, h, c, (Span){p, 0}, "layer"));
    TRY(final_layer(m, x, h, n, c, patches));
    TRY(weights_leave(x, WEIGHTS_PART));
    for (int64_t i = 0; i < p->items; i++) {
        Tensor own = p->items > 1 ? tensor_view(tensor_slice(out, 0, i, 1), channels, latents.shape[1], latents.shape[2]) : out;
        TRY(op_copy(x, &(Copy){.y = patches_of(own), .x = grid_of(patches, i * total, latents)}));
    }
    arena_reset(x->work, mark);
    return OK;
}
