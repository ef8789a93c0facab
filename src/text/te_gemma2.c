/* te_gemma2.c - see te_gemma2.h. */
#include "text/te_gemma2.h"

#include "residency.h"
#include "text/te_decoder.h"

#include <math.h>

static Status read_config(const char *path, const Json *j, GemmaConfig *c, Error *e) {
    *c = (GemmaConfig){.hidden = 2304, .ffn = 9216, .layers = 26, .heads = 8, .kv_heads = 4, .head = 256, .vocab = 256000,
                       .positions = 8192, .window = 4096, .query_scalar = 256, .eps = 1e-6, .softcap = 50,
                       .full = {10000, 1}}; /* Gemma2Config's defaults */
    const Json *cap = json_get(j, "attn_logit_softcapping");
    TRY(te_gemma_config(path, j, c, e));
    TRY(json_double(j, "attn_logit_softcapping", &c->softcap, path, e));
    TRY(te_decoder_theta(j, path, &c->full.theta, e));
    c->sliding = c->full;
    if (cap && json_is_null(cap)) c->softcap = 0; /* null is none, absent the default */
    if (!(c->softcap >= 0) || !isfinite(c->softcap))
        return fail(e, ERR_MODEL, "%s: attn_logit_softcapping %g: expected a number above 0", path, c->softcap);
    return OK;
}

static Status read_all(const char *path, const Json *j, void *out, Error *e) {
    Gemma *g = out;
    TRY(read_config(path, j, &g->c, e));
    return te_gemma_layers(path, j, 2, g, e);
}

Status te_gemma2_open(const char *folder, Gemma *out, Error *e) {
    *out = (Gemma){0};
    Status s = json_read_in(folder, "config.json", read_all, out, e);
    if (s != OK) te_gemma_close(out);
    return s;
}

void te_gemma2_bind(Gemma *g, const WeightFiles *files, Bind *b) {
    Tensor probe;
    b->prefix = !files || weights_find(files, "embed_tokens.weight", &probe) ? "" : "model.";
    te_gemma_bind(g, false, b);
}

/* --- forward --- */

typedef struct Rotary { Tensor cos, sin; } Rotary;

static Status attend(const Gemma *g, const GemmaLayer *l, Exec *x, Tensor o, Tensor q, Tensor k, Tensor v, const void *with) {
    const Rotary *r = with;
    const GemmaConfig *c = &g->c;
    TRY(op_qk_norm_rope_head(x, &(QkNormRopeHead){.yq = q, .yk = k, .q = q, .k = k, .cos = r->cos, .sin = r->sin,
                                                  .rope = ROPE_HALF_EAGER, .form = RMS_NONE}));
    return op_attention_eager(x, &(AttentionEager){.o = o, .q = q, .k = k, .v = v,
                                                   .scale = (float)pow((double)c->query_scalar, -0.5),
                                                   .mask = MASK_CAUSAL, .softcap = (float)c->softcap,
                                                   .window = l->sliding && c->window < q.shape[0] ? (int32_t)c->window : 0});
}

Status te_gemma2_encode(const Gemma *g, Exec *x, Tensor ids, Tensor y) {
    size_t mark = arena_mark(x->work);
    int64_t t = ids.shape[0], half = g->c.head / 2, real = y.shape[0];
    Tensor h = exec_new(x, t, g->c.hidden), shown = tensor_slice(h, 0, 0, real);
    const Rotary rotary = {exec_new_as(x, F32, t, half), exec_new_as(x, F32, t, half)};
    TRY(te_decoder_rope(x, g->c.full.theta, 1, 0, rotary.cos, rotary.sin));
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(te_gemma_embed(g, x, ids, h));
    TRY(exec_tap(x, "gemma2.embed", shown));
    for (int i = 0; i < (int)g->c.layers; i++) {
        TRY(weights_enter(x, i));
        if (te_gemma_layer(g, i, x, h, attend, &rotary) != OK) return because(x->error, "gemma2 layer %d", i);
        TRY(weights_leave(x, i));
        TRY(exec_tapf(x, shown, "gemma2.layer.%d", i));
    }
    Tensor last = t > real ? h : y; /* all rows, since the order of a norm's sum may depend on how many there are */
    TRY(te_gemma_norm(g, x, last, h, g->norm));
    if (t > real) TRY(op_copy(x, &(Copy){.y = y, .x = shown}));
    TRY(weights_leave(x, WEIGHTS_PART));
    TRY(exec_tap(x, "gemma2.norm", y));
    arena_reset(x->work, mark);
    return OK;
}
