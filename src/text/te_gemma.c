/* te_gemma.c - see te_gemma.h. */
#include "text/te_gemma.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

Status te_gemma_config(const char *path, const Json *j, GemmaConfig *c, Error *e) {
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
    if (strcmp(act, "gelu_pytorch_tanh") || bias || both_ways)
        return fail(e, ERR_MODEL, "%s: expected hidden_activation gelu_pytorch_tanh, no attention_bias and no "
                    "use_bidirectional_attention, found %.40s, %s and %s", path, act, bias ? "true" : "false",
                    both_ways ? "true" : "false");
    if (!(c->eps > 0) || !isfinite(c->eps))
        return fail(e, ERR_MODEL, "%s: rms_norm_eps %g: expected a number above 0", path, c->eps);
    if (c->heads % c->kv_heads || c->head % 2)
        return fail(e, ERR_MODEL, "%s: expected num_attention_heads %lld a multiple of num_key_value_heads %lld and an even "
                    "head_dim (%lld)", path, (long long)c->heads, (long long)c->kv_heads, (long long)c->head);
    return OK;
}

Status te_gemma_layers(const char *path, const Json *j, int64_t pattern, Gemma *g, Error *e) {
    const Json *types = json_get(j, "layer_types"), *type = types ? types->child : NULL;
    g->layer = calloc((size_t)g->c.layers, sizeof *g->layer);
    if (!g->layer) return fail(e, ERR_MEMORY, "%s: out of memory", path);
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

void te_gemma_close(Gemma *g) {
    free(g->layer);
    *g = (Gemma){0};
}

void te_gemma_bind(Gemma *g, bool head_norms, Bind *b) {
    const GemmaConfig *c = &g->c;
    int64_t d = c->hidden, qd = c->heads * c->head, kd = c->kv_heads * c->head;
    bind_matrix(b, &g->token, c->vocab, d, "embed_tokens.weight");
    for (int i = 0; i < (int)c->layers; i++) {
        GemmaLayer *l = &g->layer[i];
        bind_block(b, i);
        bind_vector(b, &l->norm_in, d, BIND_PLAIN, "layers.%d.input_layernorm.weight", i);
        bind_linear(b, &l->q, qd, d, false, "layers.%d.self_attn.q_proj", i);
        bind_linear(b, &l->k, kd, d, false, "layers.%d.self_attn.k_proj", i);
        bind_linear(b, &l->v, kd, d, false, "layers.%d.self_attn.v_proj", i);
        if (head_norms) {
            bind_vector(b, &l->norm_q, c->head, BIND_PLAIN, "layers.%d.self_attn.q_norm.weight", i);
            bind_vector(b, &l->norm_k, c->head, BIND_PLAIN, "layers.%d.self_attn.k_norm.weight", i);
        }
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

/* Adding -0 keeps the sign of zeros. */
Status te_gemma_embed(const Gemma *g, Exec *x, Tensor ids, Tensor y) {
    float scale = (float)sqrt((double)g->c.hidden);
    if (x->dtype == BF16) scale = bf16_round(scale);
    TRY(op_embed(x, &(Embed){.y = y, .ids = ids, .table = &g->token}));
    return op_affine(x, &(Affine){.y = y, .x = y, .mul = scale, .add = -0.0f});
}

Status te_gemma_norm(const Gemma *g, Exec *x, Tensor y, Tensor in, Tensor w) {
    return op_rmsnorm(x, &(RmsNorm){.y = y, .x = in, .w = w, .eps = (float)g->c.eps, .form = RMS_PLUS_ONE});
}

Status te_gemma_layer(const Gemma *g, int i, Exec *x, Tensor h, GemmaAttend *attend, const void *with) {
    size_t mark = arena_mark(x->work);
    const GemmaConfig *c = &g->c;
    const GemmaLayer *l = &g->layer[i];
    int64_t t = h.shape[0], e = c->head;
    Tensor n = exec_new(x, t, c->hidden);
    size_t inside = arena_mark(x->work);
    Tensor q = exec_new(x, t, c->heads * e), k = exec_new(x, t, c->kv_heads * e), v = exec_new(x, t, c->kv_heads * e);
    Tensor o = exec_new(x, t, c->heads * e);
    TRY(te_gemma_norm(g, x, n, h, l->norm_in));
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&l->q, &l->k, &l->v}}));
    TRY(attend(g, l, x, tensor_split(o, e), tensor_split(q, e), tensor_split(k, e), tensor_split(v, e), with));
    TRY(op_linear(x, &(Linear){.y = n, .x = o, .w = &l->o}));
    TRY(te_gemma_norm(g, x, n, n, l->norm_attention));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = n}));
    arena_reset(x->work, inside);
    Tensor gate = exec_new(x, t, c->ffn), up = exec_new(x, t, c->ffn);
    TRY(te_gemma_norm(g, x, n, h, l->norm_ffn));
    TRY(op_linear_many(x, &(LinearMany){.y = {gate, up}, .x = n, .w = {&l->gate, &l->up}}));
    TRY(op_act_mul(x, &(ActMul){.y = gate, .a = gate, .b = up, .kind = ACT_GELU_TANH}));
    TRY(op_linear(x, &(Linear){.y = n, .x = gate, .w = &l->down}));
    TRY(te_gemma_norm(g, x, n, n, l->norm_out));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = n}));
    arena_reset(x->work, mark);
    return OK;
}
