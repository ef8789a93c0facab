/* te_t5.c - see te_t5.h. */
#include "text/te_t5.h"

#include "core/json.h"
#include "residency.h"

#include <stdlib.h>

static Status read_act(const Json *j, const char *path, T5Config *c, Error *e) {
    const char *proj = "relu", *act = NULL;
    TRY(json_string(j, "feed_forward_proj", &proj, path, e));
    if (strncmp(proj, "gated-", 6))
        return fail(e, ERR_MODEL, "%s: feed_forward_proj: found \"%s\", expected a gated form (T5 v1.1)", path, proj);
    TRY(json_string(j, "dense_act_fn", &act, path, e));
    if (!act) act = strcmp(proj, "gated-gelu") ? proj + 6 : "gelu_new"; /* T5Config: gated-gelu means gelu_new */
    if (!strcmp(act, "gelu_new")) c->act = ACT_GELU_NEW;
    else if (!strcmp(act, "gelu_pytorch_tanh")) c->act = ACT_GELU_TANH;
    else if (!strcmp(act, "gelu")) c->act = ACT_GELU_ERF;
    else if (!strcmp(act, "silu")) c->act = ACT_SILU;
    else if (!strcmp(act, "relu")) c->act = ACT_RELU;
    else return fail(e, ERR_MODEL, "%s: dense_act_fn: found \"%s\", expected gelu_new, gelu_pytorch_tanh, gelu, silu "
                                   "or relu", path, act);
    return OK;
}

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    T5Config *c = out;
    *c = (T5Config){.model = 512, .kv = 64, .heads = 8, .ffn = 2048, .layers = 6, .vocab = 32128, .buckets = 32,
                    .max_distance = 128, .eps = 1e-6}; /* T5Config's defaults */
    const JsonSize sizes[] = {
        {"d_model", &c->model},     {"d_kv", &c->kv},           {"num_heads", &c->heads},
        {"d_ff", &c->ffn},          {"num_layers", &c->layers}, {"vocab_size", &c->vocab},
        {"relative_attention_num_buckets", &c->buckets},        {"relative_attention_max_distance", &c->max_distance},
    };
    Status s = json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e);
    if (s == OK) s = json_double(j, "layer_norm_epsilon", &c->eps, path, e);
    if (s == OK) s = read_act(j, path, c, e);
    return s;
}

Status te_t5_open(const char *folder, T5 *out, Error *e) {
    *out = (T5){0};
    TRY(json_read_in(folder, "config.json", read_config, &out->c, e));
    out->block = calloc((size_t)out->c.layers, sizeof *out->block);
    return out->block ? OK : fail(e, ERR_MEMORY, "%s: out of memory", folder);
}

void te_t5_close(T5 *t) {
    free(t->block);
    *t = (T5){0};
}

void te_t5_bind(T5 *t, const WeightFiles *files, Bind *b) {
    int64_t d = t->c.model, inner = t->c.heads * t->c.kv, f = t->c.ffn;
    Tensor probe;
    bool shared = weights_find(files, "shared.weight", &probe); /* a file may hold either name, or both */
    bind_matrix(b, &t->shared, t->c.vocab, d, "%s", shared ? "shared.weight" : "encoder.embed_tokens.weight");
    bind_matrix(b, &t->bias, t->c.buckets, t->c.heads,
                "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    for (int i = 0; i < (int)t->c.layers; i++) {
        T5Block *l = &t->block[i];
        bind_block(b, i);
        bind_vector(b, &l->norm1, d, BIND_PLAIN, "encoder.block.%d.layer.0.layer_norm.weight", i);
        bind_linear(b, &l->q, inner, d, false, "encoder.block.%d.layer.0.SelfAttention.q", i);
        bind_linear(b, &l->k, inner, d, false, "encoder.block.%d.layer.0.SelfAttention.k", i);
        bind_linear(b, &l->v, inner, d, false, "encoder.block.%d.layer.0.SelfAttention.v", i);
        bind_linear(b, &l->o, d, inner, false, "encoder.block.%d.layer.0.SelfAttention.o", i);
        bind_vector(b, &l->norm2, d, BIND_PLAIN, "encoder.block.%d.layer.1.layer_norm.weight", i);
        bind_linear(b, &l->wi_0, f, d, false, "encoder.block.%d.layer.1.DenseReluDense.wi_0", i);
        bind_linear(b, &l->wi_1, f, d, false, "encoder.block.%d.layer.1.DenseReluDense.wi_1", i);
        bind_linear(b, &l->wo, d, f, false, "encoder.block.%d.layer.1.DenseReluDense.wo", i);
    }
    bind_block(b, -1);
    bind_vector(b, &t->final, d, BIND_PLAIN, "encoder.final_layer_norm.weight");
}

static Status block(const T5Block *l, const T5Config *c, Exec *x, Tensor h, Tensor bias) {
    size_t mark = arena_mark(x->work);
    int64_t t = h.shape[0], inner = c->heads * c->kv;
    float eps = (float)c->eps;
    Tensor n = exec_new(x, t, c->model);
    size_t inside = arena_mark(x->work);
    Tensor q = exec_new(x, t, inner), k = exec_new(x, t, inner), v = exec_new(x, t, inner), o = exec_new(x, t, inner);
    TRY(op_rmsnorm(x, &(RmsNorm){.y = n, .x = h, .w = l->norm1, .eps = eps, .form = RMS_TWICE}));
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&l->q, &l->k, &l->v}}));
    TRY(op_attention_eager(x, &(AttentionEager){.o = tensor_split(o, c->kv), .q = tensor_split(q, c->kv),
                                                .k = tensor_split(k, c->kv), .v = tensor_split(v, c->kv),
                                                .bias = bias, .scale = 1.0f}));
    TRY(op_linear(x, &(Linear){.y = n, .x = o, .w = &l->o}));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = n}));
    arena_reset(x->work, inside);
    Tensor gate = exec_new(x, t, c->ffn), up = exec_new(x, t, c->ffn);
    TRY(op_rmsnorm(x, &(RmsNorm){.y = n, .x = h, .w = l->norm2, .eps = eps, .form = RMS_TWICE}));
    TRY(op_linear_many(x, &(LinearMany){.y = {gate, up}, .x = n, .w = {&l->wi_0, &l->wi_1}}));
    TRY(op_act_mul(x, &(ActMul){.y = gate, .a = gate, .b = up, .kind = c->act}));
    TRY(op_linear(x, &(Linear){.y = n, .x = gate, .w = &l->wo}));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = n}));
    arena_reset(x->work, mark);
    return OK;
}

Status te_t5_encode(const T5 *t, Exec *x, Tensor ids, Tensor y) {
    size_t mark = arena_mark(x->work);
    int64_t n = ids.shape[0];
    Tensor bias = exec_new(x, t->c.heads, n, n);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(op_rel_bias(x, &(RelBias){.y = bias, .table = &t->bias, .max_distance = (int32_t)t->c.max_distance}));
    TRY(exec_tap(x, "t5.bias", bias));
    TRY(op_embed(x, &(Embed){.y = y, .ids = ids, .table = &t->shared}));
    TRY(exec_tap(x, "t5.embed", y));
    for (int i = 0; i < (int)t->c.layers; i++) {
        TRY(weights_enter(x, i));
        if (block(&t->block[i], &t->c, x, y, bias) != OK) return because(x->error, "t5 block %d", i);
        TRY(weights_leave(x, i));
        TRY(exec_tapf(x, y, "t5.block.%d", i));
    }
    TRY(op_rmsnorm(x, &(RmsNorm){.y = y, .x = y, .w = t->final, .eps = (float)t->c.eps, .form = RMS_TWICE}));
    TRY(weights_leave(x, WEIGHTS_PART));
    TRY(exec_tap(x, "t5.final", y));
    arena_reset(x->work, mark);
    return OK;
}
