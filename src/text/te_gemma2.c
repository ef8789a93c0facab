/* te_gemma2.c - see te_gemma2.h. */
#include "text/te_gemma2.h"

#include "core/json.h"
#include "residency.h"
#include "text/te_decoder.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

static Status read_config(const char *path, const Json *j, Gemma2Config *c, Error *e) {
    *c = (Gemma2Config){.hidden = 2304, .ffn = 9216, .layers = 26, .heads = 8, .kv_heads = 4, .head = 256, .vocab = 256000,
                        .positions = 8192, .window = 4096, .query_scalar = 256, .eps = 1e-6, .theta = 10000,
                        .softcap = 50}; /* Gemma2Config's defaults */
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
    TRY(json_double(j, "attn_logit_softcapping", &c->softcap, path, e));
    TRY(json_string(j, "hidden_activation", &act, path, e));
    TRY(json_bool(j, "attention_bias", &bias, path, e));
    TRY(json_bool(j, "use_bidirectional_attention", &both_ways, path, e));
    TRY(te_decoder_theta(j, path, &c->theta, e));
    const Json *cap = json_get(j, "attn_logit_softcapping");
    if (cap && json_is_null(cap)) c->softcap = 0; /* null is none, absent the default */
    if (strcmp(act, "gelu_pytorch_tanh") || bias || both_ways)
        return fail(e, ERR_MODEL, "%s: expected hidden_activation gelu_pytorch_tanh, no attention_bias and no "
                    "use_bidirectional_attention", path);
    if (!(c->softcap >= 0) || !isfinite(c->softcap) || !(c->eps > 0) || !isfinite(c->eps))
        return fail(e, ERR_MODEL, "%s: attn_logit_softcapping %g, rms_norm_eps %g: expected numbers above 0", path, c->softcap,
                    c->eps);
    if (c->heads % c->kv_heads || c->head % 2)
        return fail(e, ERR_MODEL, "%s: expected num_attention_heads %lld a multiple of num_key_value_heads %lld and an even "
                    "head_dim (%lld)", path, (long long)c->heads, (long long)c->kv_heads, (long long)c->head);
    return OK;
}

/* Which layers see a window: layer_types, or every other one from the first. */
static Status read_layers(const char *path, const Json *j, Gemma2 *g, Error *e) {
    const Json *types = json_get(j, "layer_types"), *type = types ? types->child : NULL;
    for (int64_t i = 0; i < g->c.layers; i++) {
        g->layer[i].sliding = i % 2 == 0;
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
    Gemma2 *g = out;
    TRY(read_config(path, j, &g->c, e));
    g->layer = calloc((size_t)g->c.layers, sizeof *g->layer);
    return g->layer ? read_layers(path, j, g, e) : fail(e, ERR_MEMORY, "%s: out of memory", path);
}

Status te_gemma2_open(const char *folder, Gemma2 *out, Error *e) {
    *out = (Gemma2){0};
    Status s = json_read_in(folder, "config.json", read_all, out, e);
    if (s != OK) te_gemma2_close(out);
    return s;
}

void te_gemma2_close(Gemma2 *g) {
    free(g->layer);
    *g = (Gemma2){0};
}

void te_gemma2_bind(Gemma2 *g, const WeightFiles *files, Bind *b) {
    const Gemma2Config *c = &g->c;
    int64_t d = c->hidden, qd = c->heads * c->head, kd = c->kv_heads * c->head;
    Tensor probe;
    b->prefix = !files || weights_find(files, "embed_tokens.weight", &probe) ? "" : "model.";
    bind_matrix(b, &g->token, c->vocab, d, "embed_tokens.weight");
    for (int i = 0; i < (int)c->layers; i++) {
        Gemma2Layer *l = &g->layer[i];
        bind_block(b, i);
        bind_vector(b, &l->norm_in, d, BIND_PLAIN, "layers.%d.input_layernorm.weight", i);
        bind_linear(b, &l->q, qd, d, false, "layers.%d.self_attn.q_proj", i);
        bind_linear(b, &l->k, kd, d, false, "layers.%d.self_attn.k_proj", i);
        bind_linear(b, &l->v, kd, d, false, "layers.%d.self_attn.v_proj", i);
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

/* --- forward --- */

static Status norm(Exec *x, Tensor y, Tensor in, Tensor w, float eps) {
    return op_rmsnorm(x, &(RmsNorm){.y = y, .x = in, .w = w, .eps = eps, .form = RMS_PLUS_ONE});
}

static Status layer(const Gemma2Layer *l, const Gemma2Config *c, Exec *x, Tensor h, Tensor cos_table, Tensor sin_table) {
    size_t mark = arena_mark(x->work);
    int64_t t = h.shape[0], e = c->head;
    float eps = (float)c->eps;
    Tensor n = exec_new(x, t, c->hidden);
    size_t inside = arena_mark(x->work);
    Tensor q = exec_new(x, t, c->heads * e), k = exec_new(x, t, c->kv_heads * e), v = exec_new(x, t, c->kv_heads * e);
    Tensor o = exec_new(x, t, c->heads * e), qs = tensor_split(q, e), ks = tensor_split(k, e);
    TRY(norm(x, n, h, l->norm_in, eps));
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&l->q, &l->k, &l->v}}));
    TRY(op_qk_norm_rope_head(x, &(QkNormRopeHead){.yq = qs, .yk = ks, .q = qs, .k = ks, .cos = cos_table, .sin = sin_table,
                                                  .rope = ROPE_HALF_EAGER, .form = RMS_NONE}));
    TRY(op_attention_eager(x, &(AttentionEager){.o = tensor_split(o, e), .q = qs, .k = ks, .v = tensor_split(v, e),
                                                .scale = (float)pow((double)c->query_scalar, -0.5),
                                                .mask = MASK_CAUSAL, .softcap = (float)c->softcap,
                                                .window = l->sliding && c->window < t ? (int32_t)c->window : 0}));
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
static Status embed(const Gemma2 *g, Exec *x, Tensor ids, Tensor y) {
    float scale = (float)sqrt((double)g->c.hidden);
    if (x->dtype == BF16) scale = bf16_round(scale);
    TRY(op_embed(x, &(Embed){.y = y, .ids = ids, .table = &g->token}));
    return op_affine(x, &(Affine){.y = y, .x = y, .mul = scale, .add = -0.0f});
}

Status te_gemma2_encode(const Gemma2 *g, Exec *x, Tensor ids, Tensor y) {
    size_t mark = arena_mark(x->work);
    int64_t t = ids.shape[0], half = g->c.head / 2, real = y.shape[0];
    Tensor h = exec_new(x, t, g->c.hidden), shown = tensor_slice(h, 0, 0, real);
    Tensor cos_table = exec_new_as(x, F32, t, half), sin_table = exec_new_as(x, F32, t, half);
    TRY(te_decoder_rope(x, g->c.theta, 1, 0, cos_table, sin_table));
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(embed(g, x, ids, h));
    TRY(exec_tap(x, "gemma2.embed", shown));
    for (int i = 0; i < (int)g->c.layers; i++) {
        TRY(weights_enter(x, i));
        if (layer(&g->layer[i], &g->c, x, h, cos_table, sin_table) != OK) return because(x->error, "gemma2 layer %d", i);
        TRY(weights_leave(x, i));
        TRY(exec_tapf(x, shown, "gemma2.layer.%d", i));
    }
    Tensor last = t > real ? h : y; /* all rows, since the order of a norm's sum may depend on how many there are */
    TRY(norm(x, last, h, g->norm, (float)g->c.eps));
    if (t > real) TRY(op_copy(x, &(Copy){.y = y, .x = shown}));
    TRY(weights_leave(x, WEIGHTS_PART));
    TRY(exec_tap(x, "gemma2.norm", y));
    arena_reset(x->work, mark);
    return OK;
}
