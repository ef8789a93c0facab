/* te_gemma3.c - see te_gemma3.h. */
#include "text/te_gemma3.h"

#include "residency.h"
#include "text/te_decoder.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

const char *const TE_GEMMA3_IGNORE[] = {"vision_tower.", "model.vision_tower.", "multi_modal_projector.",
                                        "model.multi_modal_projector.", "lm_head.", "language_model.lm_head.", NULL};

/* --- config --- */

/* One kind of layer: rope_parameters.NAME and, for the full ones, rope_scaling on top of it; *r holds the older keys' values. */
static Status read_rope(const char *path, const Json *j, const char *name, GemmaRope *r, Error *e) {
    const Json *from[] = {json_get(json_get(j, "rope_parameters"), name),
                          strcmp(name, "full_attention") ? NULL : json_get(j, "rope_scaling")};
    const char *type = "default";
    for (int i = 0; i < 2; i++) {
        if (json_is_null(from[i])) continue;
        TRY(json_string(from[i], "rope_type", &type, path, e));
        TRY(json_double(from[i], "rope_theta", &r->theta, path, e));
        if (!strcmp(type, "linear")) TRY(json_double(from[i], "factor", &r->factor, path, e));
    }
    if (strcmp(type, "default") && strcmp(type, "linear"))
        return fail(e, ERR_MODEL, "%s: %s: rope_type \"%s\": expected default or linear", path, name, type);
    if (!(r->theta > 1) || !isfinite(r->theta) || !(r->factor >= 1) || !isfinite(r->factor))
        return fail(e, ERR_MODEL, "%s: %s: rope_theta %g, factor %g: expected a number above 1, and one of at least 1", path,
                    name, r->theta, r->factor);
    return OK;
}

static Status read_config(const char *path, const Json *j, GemmaConfig *c, Error *e) {
    *c = (GemmaConfig){.hidden = 2304, .ffn = 9216, .layers = 26, .heads = 8, .kv_heads = 4, .head = 256, .vocab = 262208,
                        .positions = 131072, .window = 4096, .query_scalar = 256, .eps = 1e-6, .sliding = {10000, 1},
                        .full = {1000000, 1}}; /* Gemma3TextConfig's defaults */
    TRY(te_gemma_config(path, j, c, e));
    TRY(json_double(j, "rope_theta", &c->full.theta, path, e));
    TRY(json_double(j, "rope_local_base_freq", &c->sliding.theta, path, e));
    TRY(read_rope(path, j, "full_attention", &c->full, e));
    TRY(read_rope(path, j, "sliding_attention", &c->sliding, e));
    if (!json_is_null(json_get(j, "attn_logit_softcapping")))
        return fail(e, ERR_MODEL, "%s: attn_logit_softcapping: expected none", path);
    return OK;
}

static Status read_all(const char *path, const Json *j, void *out, Error *e) {
    Gemma *g = out;
    const Json *text = json_get(j, "text_config");
    int64_t pattern = 6;
    const JsonSize size[] = {{"sliding_window_pattern", &pattern}};
    if (json_is_null(text)) return fail(e, ERR_MODEL, "%s: text_config: missing", path);
    TRY(read_config(path, text, &g->c, e));
    TRY(json_sizes(text, size, 1, path, e));
    return te_gemma_layers(path, text, pattern, g, e);
}

Status te_gemma3_open(const char *folder, Gemma *out, Error *e) {
    *out = (Gemma){0};
    Status s = json_read_in(folder, "config.json", read_all, out, e);
    if (s != OK) te_gemma_close(out);
    return s;
}

void te_gemma3_bind(Gemma *g, const WeightFiles *files, Bind *b) {
    static const char OLDER[] = "language_model.model.", NEWER[] = "model.language_model.";
    Tensor probe;
    b->prefix = files && weights_find(files, "language_model.model.embed_tokens.weight", &probe) ? OLDER : NEWER;
    te_gemma_bind(g, true, b);
}

/* --- tables of one text --- */

/* Of one kind of layer. */
typedef struct Kind {
    Tensor cos, sin; /* F32 [R, head/2], values of the dtype */
    Tensor mask;     /* [R,R] of the dtype: what is added to the scores; absent: causal and nothing else */
} Kind;

/* The least finite number, not minus infinity: padding sees nothing, and its rows must not become NaNs that the others then
 * multiply with 0. */
static Status fill_mask(Exec *x, Tensor mask, int64_t pads, int64_t window) {
    int64_t n = mask.shape[0];
    const float least = -FLT_MAX;
    const uint16_t least_half = 0xff7f;
    size_t size = dtype_size(mask.dtype);
    char *host = x->dry ? NULL : calloc((size_t)(n * n), size);
    if (!x->dry && !host) return fail(x->error, ERR_MEMORY, "out of memory for a mask of %lld tokens", (long long)n);
    for (int64_t i = 0; host && i < n; i++)
        for (int64_t j = 0; j < n; j++)
            if (j < pads || j > i || (window && j <= i - window))
                memcpy(host + (size_t)(i * n + j) * size, size == 4 ? (const void *)&least : &least_half, size);
    Status s = exec_upload(x, mask, host);
    free(host);
    return s;
}

/* A mask is made where transformers makes one: behind padding, and for windows that the text reaches. */
static Status kind_of(const Gemma *g, Exec *x, bool sliding, int64_t rows, int64_t slots, int64_t real, Kind *k) {
    int64_t half = g->c.head / 2, window = sliding ? g->c.window : 0;
    *k = (Kind){.cos = exec_new_as(x, F32, rows, half), .sin = exec_new_as(x, F32, rows, half)};
    const GemmaRope *r = sliding ? &g->c.sliding : &g->c.full;
    TRY(te_decoder_rope(x, r->theta, r->factor, slots - rows, k->cos, k->sin));
    if (rows == real && !(sliding && rows >= window)) return OK;
    k->mask = exec_new(x, rows, rows);
    return fill_mask(x, k->mask, rows - real, window);
}

/* --- forward --- */

static Status attend(const Gemma *g, const GemmaLayer *l, Exec *x, Tensor o, Tensor q, Tensor k, Tensor v, const void *with) {
    const Kind *kind = (const Kind *)with + l->sliding;
    TRY(op_qk_norm_rope_head(x, &(QkNormRopeHead){.yq = q, .yk = k, .q = q, .k = k, .wq = l->norm_q, .wk = l->norm_k,
                                                  .cos = kind->cos, .sin = kind->sin, .eps = (float)g->c.eps,
                                                  .rope = ROPE_HALF_EAGER, .form = RMS_PLUS_ONE}));
    return op_attention(x, &(Attention){.o = o, .q = q, .k = k, .v = v, .bias = kind->mask,
                                        .scale = (float)pow((double)g->c.query_scalar, -0.5),
                                        .mask = kind->mask.rank ? MASK_NONE : MASK_CAUSAL});
}

/* Into the stack as state i. */
static Status keep(Exec *x, Tensor states, int64_t i, Tensor h) {
    Tensor y = tensor_slice(states, 2, i, 1);
    y.rank = 2;
    return op_copy(x, &(Copy){.y = y, .x = h});
}

void te_gemma3_room(const Gemma *g, Exec *x, int count, int64_t slots, const int64_t *used, Gemma3States *states) {
    int64_t total = 0, at = 0;
    for (int i = 0; i < count; i++) total += x->ops->row_bits ? slots : used[i];
    Tensor all = exec_new(x, total, g->c.hidden, g->c.layers + 1);
    for (int i = 0; i < count; i++) {
        int64_t rows = x->ops->row_bits ? slots : used[i];
        states[i] = (Gemma3States){.t = tensor_slice(all, 0, at, rows), .real = used[i]};
        at += rows;
    }
}

static Status run(const Gemma *g, Exec *x, Tensor ids, int64_t slots, const Gemma3States *s) {
    int64_t rows = ids.shape[0];
    Tensor h = exec_new(x, rows, g->c.hidden), shown = tensor_slice(h, 0, rows - s->real, s->real);
    Kind kind[2]; /* full, sliding */
    for (int i = 0; i < 2; i++) TRY(kind_of(g, x, i == 1, rows, slots, s->real, &kind[i]));
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(te_gemma_embed(g, x, ids, h));
    TRY(exec_tap(x, "gemma3.embed", shown));
    TRY(keep(x, s->t, 0, h));
    for (int i = 0; i < (int)g->c.layers; i++) {
        TRY(weights_enter(x, i));
        if (te_gemma_layer(g, i, x, h, attend, kind) != OK) return because(x->error, "gemma3 layer %d", i);
        TRY(weights_leave(x, i));
        TRY(exec_tapf(x, shown, "gemma3.layer.%d", i));
        if (i + 1 < (int)g->c.layers) TRY(keep(x, s->t, i + 1, h));
    }
    TRY(te_gemma_norm(g, x, h, h, g->norm));
    TRY(exec_tap(x, "gemma3.norm", shown));
    TRY(keep(x, s->t, g->c.layers, h));
    return weights_leave(x, WEIGHTS_PART);
}

Status te_gemma3_states(const Gemma *g, Exec *x, const int32_t *ids, int64_t slots, const Gemma3States *s) {
    size_t mark = arena_mark(x->work);
    int64_t rows = s->t.shape[0];
    if (s->real < 1 || s->real > rows || rows > slots || slots > g->c.positions)
        return fail(x->error, ERR_MODEL, "gemma3: %lld tokens in %lld rows of %lld slots, of %lld positions", (long long)s->real,
                    (long long)rows, (long long)slots, (long long)g->c.positions);
    Tensor on_device = exec_new_as(x, I32, rows);
    TRY(exec_upload(x, on_device, ids + (slots - rows)));
    TRY(run(g, x, on_device, slots, s));
    arena_reset(x->work, mark);
    return OK;
}
