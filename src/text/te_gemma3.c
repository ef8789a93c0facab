/* te_gemma3.c - see te_gemma3.h. */
#include "text/te_gemma3.h"

#include "core/json.h"
#include "residency.h"
#include "text/te_decoder.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

const char *const TE_GEMMA3_IGNORE[] = {"vision_tower.", "model.vision_tower.", "multi_modal_projector.",
                                        "model.multi_modal_projector.", "lm_head.", "language_model.lm_head.", NULL};

/* --- config --- */

/* One kind of layer: rope_parameters.NAME and, for the full ones, rope_scaling on top of it; *r holds the older keys' values. */
static Status read_rope(const char *path, const Json *j, const char *name, Gemma3Rope *r, Error *e) {
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

static Status read_config(const char *path, const Json *j, Gemma3Config *c, Error *e) {
    *c = (Gemma3Config){.hidden = 2304, .ffn = 9216, .layers = 26, .heads = 8, .kv_heads = 4, .head = 256, .vocab = 262208,
                        .positions = 131072, .window = 4096, .query_scalar = 256, .eps = 1e-6, .sliding = {10000, 1},
                        .full = {1000000, 1}}; /* Gemma3TextConfig's defaults */
    const JsonSize sizes[] = {
        {"hidden_size", &c->hidden},        {"intermediate_size", &c->ffn},        {"num_hidden_layers", &c->layers},
        {"num_attention_heads", &c->heads}, {"num_key_value_heads", &c->kv_heads}, {"head_dim", &c->head},
        {"vocab_size", &c->vocab},          {"max_position_embeddings", &c->positions},
        {"sliding_window", &c->window},     {"query_pre_attn_scalar", &c->query_scalar},
    };
    const char *act = "gelu_pytorch_tanh";
    bool bias = false, both_ways = false;
    TRY(json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e));
    TRY(json_double(j, "rms_norm_eps", &c->eps, path, e));
    TRY(json_string(j, "hidden_activation", &act, path, e));
    TRY(json_bool(j, "attention_bias", &bias, path, e));
    TRY(json_bool(j, "use_bidirectional_attention", &both_ways, path, e));
    TRY(json_double(j, "rope_theta", &c->full.theta, path, e));
    TRY(json_double(j, "rope_local_base_freq", &c->sliding.theta, path, e));
    TRY(read_rope(path, j, "full_attention", &c->full, e));
    TRY(read_rope(path, j, "sliding_attention", &c->sliding, e));
    if (strcmp(act, "gelu_pytorch_tanh") || bias || both_ways || !json_is_null(json_get(j, "attn_logit_softcapping")))
        return fail(e, ERR_MODEL, "%s: expected hidden_activation gelu_pytorch_tanh, no attention_bias, no "
                    "use_bidirectional_attention and no attn_logit_softcapping", path);
    if (!(c->eps > 0) || !isfinite(c->eps))
        return fail(e, ERR_MODEL, "%s: rms_norm_eps %g: expected a number above 0", path, c->eps);
    if (c->heads % c->kv_heads || c->head % 2)
        return fail(e, ERR_MODEL, "%s: expected num_attention_heads %lld a multiple of num_key_value_heads %lld and an even "
                    "head_dim (%lld)", path, (long long)c->heads, (long long)c->kv_heads, (long long)c->head);
    return OK;
}

/* Which layers see a window: layer_types, or all but every sliding_window_pattern-th. */
static Status read_layers(const char *path, const Json *j, Gemma3 *g, Error *e) {
    const Json *types = json_get(j, "layer_types"), *type = types ? types->child : NULL;
    int64_t pattern = 6;
    const JsonSize size[] = {{"sliding_window_pattern", &pattern}};
    TRY(json_sizes(j, size, 1, path, e));
    for (int64_t i = 0; i < g->c.layers; i++) {
        g->layer[i].sliding = (i + 1) % pattern != 0;
        if (json_is_null(types)) continue;
        const char *name = cJSON_IsArray(types) && cJSON_IsString(type) ? type->valuestring : "none";
        g->layer[i].sliding = !strcmp(name, "sliding_attention");
        if (!g->layer[i].sliding && strcmp(name, "full_attention"))
            return fail(e, ERR_MODEL, "%s: layer_types: layer %lld is %.80s, expected sliding_attention or full_attention", path,
                        (long long)i, name);
        type = type->next;
    }
    return OK;
}

static Status read_all(const char *path, const Json *j, void *out, Error *e) {
    Gemma3 *g = out;
    const Json *text = json_get(j, "text_config");
    if (json_is_null(text)) return fail(e, ERR_MODEL, "%s: text_config: missing", path);
    TRY(read_config(path, text, &g->c, e));
    g->layer = calloc((size_t)g->c.layers, sizeof *g->layer);
    return g->layer ? read_layers(path, text, g, e) : fail(e, ERR_MEMORY, "%s: out of memory", path);
}

Status te_gemma3_open(const char *folder, Gemma3 *out, Error *e) {
    *out = (Gemma3){0};
    Status s = json_read_in(folder, "config.json", read_all, out, e);
    if (s != OK) te_gemma3_close(out);
    return s;
}

void te_gemma3_close(Gemma3 *g) {
    free(g->layer);
    *g = (Gemma3){0};
}

void te_gemma3_bind(Gemma3 *g, const WeightFiles *files, Bind *b) {
    static const char OLDER[] = "language_model.model.", NEWER[] = "model.language_model.";
    const Gemma3Config *c = &g->c;
    int64_t d = c->hidden, qd = c->heads * c->head, kd = c->kv_heads * c->head;
    Tensor probe;
    b->prefix = files && weights_find(files, "language_model.model.embed_tokens.weight", &probe) ? OLDER : NEWER;
    bind_matrix(b, &g->token, c->vocab, d, "embed_tokens.weight");
    for (int i = 0; i < (int)c->layers; i++) {
        Gemma3Layer *l = &g->layer[i];
        bind_block(b, i);
        bind_vector(b, &l->norm_in, d, BIND_PLAIN, "layers.%d.input_layernorm.weight", i);
        bind_linear(b, &l->q, qd, d, false, "layers.%d.self_attn.q_proj", i);
        bind_linear(b, &l->k, kd, d, false, "layers.%d.self_attn.k_proj", i);
        bind_linear(b, &l->v, kd, d, false, "layers.%d.self_attn.v_proj", i);
        bind_vector(b, &l->norm_q, c->head, BIND_PLAIN, "layers.%d.self_attn.q_norm.weight", i);
        bind_vector(b, &l->norm_k, c->head, BIND_PLAIN, "layers.%d.self_attn.k_norm.weight", i);
        bind_linear(b, &l->o, d, qd, false, "layers.%d.self_attn.o_proj", i);
        bind_vector(b, &l->norm_attention, d, BIND_PLAIN, "layers.%d.post_attention_layernorm.weight", i);
        bind_vector(b, &l->norm_ffn, d, BIND_PLAIN, "layers.%d.pre_feedforward_layernorm.weight", i);
        bind_linear(b, &l->gate, c->ffn, d, false, "layers.%d.mlp.gate_proj", i);
        bind_linear(b, &l->up, c->ffn, d, false, "layers.%d.mlp.up_proj", i);
        bind_linear(b, &l->down, d, c->ffn, false, "layers.%d.mlp.down_proj", i);
        bind_vector(b, &l->norm_out, d, BIND_PLAIN, "layers.%d.post_feedforward_layernorm.weight", i);
    }
    bind_block(b, -1);
    bind_vector(b, &g->norm, d, BIND_PLAIN, "norm.weight");
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
static Status kind_of(const Gemma3 *g, Exec *x, bool sliding, int64_t rows, int64_t slots, int64_t real, Kind *k) {
    int64_t half = g->c.head / 2, window = sliding ? g->c.window : 0;
    *k = (Kind){.cos = exec_new_as(x, F32, rows, half), .sin = exec_new_as(x, F32, rows, half)};
    const Gemma3Rope *r = sliding ? &g->c.sliding : &g->c.full;
    TRY(te_decoder_rope(x, r->theta, r->factor, slots - rows, k->cos, k->sin));
    if (rows == real && !(sliding && rows >= window)) return OK;
    k->mask = exec_new(x, rows, rows);
    return fill_mask(x, k->mask, rows - real, window);
}

/* --- forward --- */

static Status norm(Exec *x, Tensor y, Tensor in, Tensor w, float eps) {
    return op_rmsnorm(x, &(RmsNorm){.y = y, .x = in, .w = w, .eps = eps, .form = RMS_PLUS_ONE});
}

static Status layer(const Gemma3Layer *l, const Gemma3Config *c, Exec *x, Tensor h, const Kind *kind) {
    size_t mark = arena_mark(x->work);
    int64_t t = h.shape[0], e = c->head;
    float eps = (float)c->eps;
    Tensor n = exec_new(x, t, c->hidden);
    size_t inside = arena_mark(x->work);
    Tensor q = exec_new(x, t, c->heads * e), k = exec_new(x, t, c->kv_heads * e), v = exec_new(x, t, c->kv_heads * e);
    Tensor o = exec_new(x, t, c->heads * e), qs = tensor_split(q, e), ks = tensor_split(k, e);
    TRY(norm(x, n, h, l->norm_in, eps));
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&l->q, &l->k, &l->v}}));
    TRY(op_qk_norm_rope_head(x, &(QkNormRopeHead){.yq = qs, .yk = ks, .q = qs, .k = ks, .wq = l->norm_q, .wk = l->norm_k,
                                                  .cos = kind->cos, .sin = kind->sin, .eps = eps,
                                                  .rope = ROPE_HALF_EAGER, .form = RMS_PLUS_ONE}));
    TRY(op_attention(x, &(Attention){.o = tensor_split(o, e), .q = qs, .k = ks, .v = tensor_split(v, e), .bias = kind->mask,
                                     .scale = (float)pow((double)c->query_scalar, -0.5),
                                     .mask = kind->mask.rank ? MASK_NONE : MASK_CAUSAL}));
    TRY(op_linear(x, &(Linear){.y = n, .x = o, .w = &l->o}));
    TRY(norm(x, n, n, l->norm_attention, eps));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = n}));
    arena_reset(x->work, inside);
    Tensor gate = exec_new(x, t, c->ffn), up = exec_new(x, t, c->ffn);
    TRY(norm(x, n, h, l->norm_ffn, eps));
    TRY(op_linear_many(x, &(LinearMany){.y = {gate, up}, .x = n, .w = {&l->gate, &l->up}}));
    TRY(op_act_mul(x, &(ActMul){.y = gate, .a = gate, .b = up, .kind = ACT_GELU_TANH}));
    TRY(op_linear(x, &(Linear){.y = n, .x = gate, .w = &l->down}));
    TRY(norm(x, n, n, l->norm_out, eps));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = n}));
    arena_reset(x->work, mark);
    return OK;
}

/* E[ids] * r(sqrt(hidden)). Adding -0 keeps the sign of zeros. */
static Status embed(const Gemma3 *g, Exec *x, Tensor ids, Tensor y) {
    float scale = (float)sqrt((double)g->c.hidden);
    if (x->dtype == BF16) scale = bf16_round(scale);
    TRY(op_embed(x, &(Embed){.y = y, .ids = ids, .table = &g->token}));
    return op_affine(x, &(Affine){.y = y, .x = y, .mul = scale, .add = -0.0f});
}

/* Into the stack as state i. */
static Status keep(Exec *x, Tensor states, int64_t i, Tensor h) {
    Tensor y = tensor_slice(states, 2, i, 1);
    y.rank = 2;
    return op_copy(x, &(Copy){.y = y, .x = h});
}

void te_gemma3_room(const Gemma3 *g, Exec *x, int count, int64_t slots, const int64_t *used, Gemma3States *states) {
    int64_t total = 0, at = 0;
    for (int i = 0; i < count; i++) total += x->ops->row_bits ? slots : used[i];
    Tensor all = exec_new(x, total, g->c.hidden, g->c.layers + 1);
    for (int i = 0; i < count; i++) {
        int64_t rows = x->ops->row_bits ? slots : used[i];
        states[i] = (Gemma3States){.t = tensor_slice(all, 0, at, rows), .real = used[i]};
        at += rows;
    }
}

static Status run(const Gemma3 *g, Exec *x, Tensor ids, int64_t slots, const Gemma3States *s) {
    int64_t rows = ids.shape[0];
    Tensor h = exec_new(x, rows, g->c.hidden), shown = tensor_slice(h, 0, rows - s->real, s->real);
    Kind kind[2]; /* full, sliding */
    for (int i = 0; i < 2; i++) TRY(kind_of(g, x, i == 1, rows, slots, s->real, &kind[i]));
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(embed(g, x, ids, h));
    TRY(exec_tap(x, "gemma3.embed", shown));
    TRY(keep(x, s->t, 0, h));
    for (int i = 0; i < (int)g->c.layers; i++) {
        TRY(weights_enter(x, i));
        if (layer(&g->layer[i], &g->c, x, h, &kind[g->layer[i].sliding]) != OK) return because(x->error, "gemma3 layer %d", i);
        TRY(weights_leave(x, i));
        TRY(exec_tapf(x, shown, "gemma3.layer.%d", i));
        if (i + 1 < (int)g->c.layers) TRY(keep(x, s->t, i + 1, h));
    }
    TRY(norm(x, h, h, g->norm, (float)g->c.eps));
    TRY(exec_tap(x, "gemma3.norm", shown));
    TRY(keep(x, s->t, g->c.layers, h));
    return weights_leave(x, WEIGHTS_PART);
}

Status te_gemma3_states(const Gemma3 *g, Exec *x, const int32_t *ids, int64_t slots, const Gemma3States *s) {
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
