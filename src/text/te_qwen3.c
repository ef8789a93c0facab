/* te_qwen3.c - see te_qwen3.h. */
#include "text/te_qwen3.h"

#include "core/json.h"
#include "residency.h"
#include "text/te_decoder.h"

#include <math.h>
#include <stdlib.h>

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    Qwen3Config *c = out;
    *c = (Qwen3Config){.hidden = 4096, .ffn = 22016, .layers = 32, .heads = 32, .kv_heads = 32, .head = 128,
                       .vocab = 151936, .positions = 32768, .eps = 1e-6, .theta = 10000}; /* Qwen3Config's defaults */
    const JsonSize sizes[] = {
        {"hidden_size", &c->hidden},         {"intermediate_size", &c->ffn},        {"num_hidden_layers", &c->layers},
        {"num_attention_heads", &c->heads},  {"num_key_value_heads", &c->kv_heads}, {"head_dim", &c->head},
        {"vocab_size", &c->vocab},           {"max_position_embeddings", &c->positions},
    };
    const char *act = "silu";
    bool bias = false, sliding = false;
    Status s = json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e);
    if (s == OK) s = json_double(j, "rms_norm_eps", &c->eps, path, e);
    if (s == OK) s = json_string(j, "hidden_act", &act, path, e);
    if (s == OK) s = json_bool(j, "attention_bias", &bias, path, e);
    if (s == OK) s = json_bool(j, "use_sliding_window", &sliding, path, e);
    if (s == OK) s = te_decoder_theta(j, path, &c->theta, e);
    if (s == OK && (strcmp(act, "silu") || bias || sliding))
        s = fail(e, ERR_MODEL, "%s: expected hidden_act silu, no attention_bias and no use_sliding_window, "
                 "found %.40s, %s and %s",
                 path, act, bias ? "true" : "false", sliding ? "true" : "false");
    if (s == OK && (c->heads % c->kv_heads || c->head % 2 || c->layers < 2))
        s = fail(e, ERR_MODEL, "%s: expected num_attention_heads %lld a multiple of num_key_value_heads %lld, an even "
                 "head_dim (%lld) and at least 2 layers", path, (long long)c->heads, (long long)c->kv_heads,
                 (long long)c->head);
    return s;
}

Status te_qwen3_open(const char *folder, Qwen3 *out, Error *e) {
    *out = (Qwen3){0};
    TRY(json_read_in(folder, "config.json", read_config, &out->c, e));
    out->run = out->c.layers - 1;
    out->layer = calloc((size_t)out->run, sizeof *out->layer);
    return out->layer ? OK : fail(e, ERR_MEMORY, "%s: out of memory", folder);
}

void te_qwen3_close(Qwen3 *q) {
    free(q->layer);
    *q = (Qwen3){0};
}

void te_qwen3_bind(Qwen3 *q, const WeightFiles *files, Bind *b) {
    const Qwen3Config *c = &q->c;
    int64_t d = c->hidden, qd = c->heads * c->head, kd = c->kv_heads * c->head;
    Tensor probe;
    b->prefix = weights_find(files, "embed_tokens.weight", &probe) ? "" : "model.";
    bind_matrix(b, &q->token, c->vocab, d, "embed_tokens.weight");
    for (int i = 0; i < (int)q->run; i++) {
        Qwen3Layer *l = &q->layer[i];
        bind_block(b, i);
        bind_vector(b, &l->norm1, d, BIND_PLAIN, "layers.%d.input_layernorm.weight", i);
        bind_linear(b, &l->q, qd, d, false, "layers.%d.self_attn.q_proj", i);
        bind_linear(b, &l->k, kd, d, false, "layers.%d.self_attn.k_proj", i);
        bind_linear(b, &l->v, kd, d, false, "layers.%d.self_attn.v_proj", i);
        bind_linear(b, &l->o, d, qd, false, "layers.%d.self_attn.o_proj", i);
        bind_vector(b, &l->norm_q, c->head, BIND_PLAIN, "layers.%d.self_attn.q_norm.weight", i);
        bind_vector(b, &l->norm_k, c->head, BIND_PLAIN, "layers.%d.self_attn.k_norm.weight", i);
        bind_vector(b, &l->norm2, d, BIND_PLAIN, "layers.%d.post_attention_layernorm.weight", i);
        bind_linear(b, &l->gate, c->ffn, d, false, "layers.%d.mlp.gate_proj", i);
        bind_linear(b, &l->up, c->ffn, d, false, "layers.%d.mlp.up_proj", i);
        bind_linear(b, &l->down, d, c->ffn, false, "layers.%d.mlp.down_proj", i);
    }
    bind_block(b, -1);
}

/* --- forward --- */

static Status layer(const Qwen3Layer *l, const Qwen3Config *c, Exec *x, Tensor h, Tensor cos_table, Tensor sin_table) {
    size_t mark = arena_mark(x->work);
    int64_t t = h.shape[0], e = c->head;
    float eps = (float)c->eps;
    Tensor n = exec_new(x, t, c->hidden);
    size_t inside = arena_mark(x->work);
    Tensor q = exec_new(x, t, c->heads * e), k = exec_new(x, t, c->kv_heads * e), v = exec_new(x, t, c->kv_heads * e);
    Tensor o = exec_new(x, t, c->heads * e), qs = tensor_split(q, e), ks = tensor_split(k, e);
    TRY(op_rmsnorm(x, &(RmsNorm){.y = n, .x = h, .w = l->norm1, .eps = eps, .form = RMS_TWICE}));
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&l->q, &l->k, &l->v}}));
    TRY(op_qk_norm_rope_head(x, &(QkNormRopeHead){.yq = qs, .yk = ks, .q = qs, .k = ks, .wq = l->norm_q,
                                                  .wk = l->norm_k, .cos = cos_table, .sin = sin_table, .eps = eps,
                                                  .rope = ROPE_HALF_EAGER, .form = RMS_TWICE}));
    TRY(op_attention_eager(x, &(AttentionEager){.o = tensor_split(o, e), .q = qs, .k = ks, .v = tensor_split(v, e),
                                                .scale = (float)(1.0 / sqrt((double)e)), .mask = MASK_CAUSAL}));
    TRY(op_linear(x, &(Linear){.y = n, .x = o, .w = &l->o}));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = n}));
    arena_reset(x->work, inside);
    Tensor gate = exec_new(x, t, c->ffn), up = exec_new(x, t, c->ffn);
    TRY(op_rmsnorm(x, &(RmsNorm){.y = n, .x = h, .w = l->norm2, .eps = eps, .form = RMS_TWICE}));
    TRY(op_linear_many(x, &(LinearMany){.y = {gate, up}, .x = n, .w = {&l->gate, &l->up}}));
    TRY(op_act_mul(x, &(ActMul){.y = gate, .a = gate, .b = up, .kind = ACT_SILU}));
    TRY(op_linear(x, &(Linear){.y = n, .x = gate, .w = &l->down}));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = n}));
    arena_reset(x->work, mark);
    return OK;
}

Status te_qwen3_encode(const Qwen3 *q, Exec *x, Tensor ids, Tensor y) {
    size_t mark = arena_mark(x->work);
    int64_t t = ids.shape[0], half = q->c.head / 2, real = y.shape[0];
    Tensor wanted = y;
    if (t > real) y = exec_new(x, t, q->c.hidden);
    Tensor cos_table = exec_new_as(x, F32, t, half), sin_table = exec_new_as(x, F32, t, half);
    TRY(te_decoder_rope(x, q->c.theta, 1, 0, cos_table, sin_table));
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(op_embed(x, &(Embed){.y = y, .ids = ids, .table = &q->token}));
    TRY(exec_tap(x, "qwen3.embed", tensor_slice(y, 0, 0, real)));
    for (int i = 0; i < (int)q->run; i++) {
        TRY(weights_enter(x, i));
        if (layer(&q->layer[i], &q->c, x, y, cos_table, sin_table) != OK) return because(x->error, "qwen3 layer %d", i);
        TRY(weights_leave(x, i));
        TRY(exec_tapf(x, tensor_slice(y, 0, 0, real), "qwen3.layer.%d", i));
    }
    TRY(weights_leave(x, WEIGHTS_PART));
    if (t > real) TRY(op_copy(x, &(Copy){.y = wanted, .x = tensor_slice(y, 0, 0, real)}));
    arena_reset(x->work, mark);
    return OK;
}
