/* te_clip.c - see te_clip.h. */
#include "text/te_clip.h"

#include "core/json.h"
#include "residency.h"

#include <math.h>
#include <stdlib.h>

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    ClipConfig *c = out;
    *c = (ClipConfig){.hidden = 512, .ffn = 2048, .layers = 12, .heads = 8, .positions = 77, .vocab = 49408,
                      .eos_id = 49407, .eps = 1e-5}; /* CLIPTextConfig's defaults */
    const char *act = "quick_gelu";
    const JsonSize sizes[] = {
        {"hidden_size", &c->hidden}, {"intermediate_size", &c->ffn},     {"num_hidden_layers", &c->layers},
        {"num_attention_heads", &c->heads}, {"max_position_embeddings", &c->positions}, {"vocab_size", &c->vocab},
    };
    Status s = json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e);
    if (s == OK) s = json_int(j, "eos_token_id", &c->eos_id, path, e);
    if (s == OK) s = json_double(j, "layer_norm_eps", &c->eps, path, e);
    if (s == OK) s = json_string(j, "hidden_act", &act, path, e);
    if (s == OK && c->hidden % c->heads)
        s = fail(e, ERR_MODEL, "%s: hidden_size %lld is not a multiple of num_attention_heads %lld", path,
                 (long long)c->hidden, (long long)c->heads);
    if (s == OK) {
        if (!strcmp(act, "quick_gelu")) c->act = ACT_QUICK_GELU;
        else if (!strcmp(act, "gelu")) c->act = ACT_GELU_ERF;
        else s = fail(e, ERR_MODEL, "%s: hidden_act: found \"%s\", expected quick_gelu or gelu", path, act);
    }
    return s;
}

Status te_clip_open(const char *folder, Clip *out, Error *e) {
    *out = (Clip){0};
    TRY(json_read_in(folder, "config.json", read_config, &out->c, e));
    out->layer = calloc((size_t)out->c.layers, sizeof *out->layer);
    return out->layer ? OK : fail(e, ERR_MEMORY, "%s: out of memory", folder);
}

void te_clip_close(Clip *c) {
    free(c->layer);
    *c = (Clip){0};
}

void te_clip_bind(Clip *c, const WeightFiles *files, Bind *b) {
    int64_t d = c->c.hidden, f = c->c.ffn;
    Tensor probe;
    b->prefix = weights_find(files, "text_model.final_layer_norm.weight", &probe) ? "text_model." : "";
    bind_matrix(b, &c->token, c->c.vocab, d, "embeddings.token_embedding.weight");
    bind_matrix(b, &c->position, c->c.positions, d, "embeddings.position_embedding.weight");
    for (int i = 0; i < (int)c->c.layers; i++) {
        ClipLayer *l = &c->layer[i];
        bind_vector(b, &l->norm1_w, d, BIND_PLAIN, "encoder.layers.%d.layer_norm1.weight", i);
        bind_vector(b, &l->norm1_b, d, BIND_PLAIN, "encoder.layers.%d.layer_norm1.bias", i);
        bind_vector(b, &l->norm2_w, d, BIND_PLAIN, "encoder.layers.%d.layer_norm2.weight", i);
        bind_vector(b, &l->norm2_b, d, BIND_PLAIN, "encoder.layers.%d.layer_norm2.bias", i);
        bind_linear(b, &l->q, d, d, true, "encoder.layers.%d.self_attn.q_proj", i);
        bind_linear(b, &l->k, d, d, true, "encoder.layers.%d.self_attn.k_proj", i);
        bind_linear(b, &l->v, d, d, true, "encoder.layers.%d.self_attn.v_proj", i);
        bind_linear(b, &l->o, d, d, true, "encoder.layers.%d.self_attn.out_proj", i);
        bind_linear(b, &l->fc1, f, d, true, "encoder.layers.%d.mlp.fc1", i);
        bind_linear(b, &l->fc2, d, f, true, "encoder.layers.%d.mlp.fc2", i);
    }
    bind_vector(b, &c->final_w, d, BIND_PLAIN, "final_layer_norm.weight");
    bind_vector(b, &c->final_b, d, BIND_PLAIN, "final_layer_norm.bias");
}

int64_t te_clip_pooled_row(const Clip *c, const int32_t *ids, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 0; i < count; i++) {
        if (c->c.eos_id == 2) {
            if (ids[i] > ids[best]) best = i; /* strictly: the first of equal maxima stays */
        } else if (ids[i] == c->c.eos_id) {
            return i;
        }
    }
    return best;
}

static Status layer(const ClipLayer *l, const ClipConfig *c, Exec *x, Tensor h) {
    size_t mark = arena_mark(x->work);
    int64_t t = h.shape[0], d = c->hidden, e = d / c->heads;
    Tensor n = exec_new(x, t, d), q = exec_new(x, t, d), k = exec_new(x, t, d), v = exec_new(x, t, d);
    Tensor f = exec_new(x, t, c->ffn);
    TRY(op_layernorm(x, &(LayerNorm){.y = n, .x = h, .w = l->norm1_w, .b = l->norm1_b, .eps = (float)c->eps}));
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&l->q, &l->k, &l->v}}));
    TRY(op_attention_eager(x, &(AttentionEager){.o = tensor_split(n, e), .q = tensor_split(q, e),
                                                .k = tensor_split(k, e), .v = tensor_split(v, e),
                                                .scale = (float)(1.0 / sqrt((double)e)), .mask = MASK_CAUSAL}));
    TRY(op_linear(x, &(Linear){.y = q, .x = n, .w = &l->o}));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = q}));
    TRY(op_layernorm(x, &(LayerNorm){.y = n, .x = h, .w = l->norm2_w, .b = l->norm2_b, .eps = (float)c->eps}));
    TRY(op_linear(x, &(Linear){.y = f, .x = n, .w = &l->fc1}));
    TRY(op_act(x, &(Act){.y = f, .x = f, .kind = c->act}));
    TRY(op_linear(x, &(Linear){.y = q, .x = f, .w = &l->fc2}));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = q}));
    arena_reset(x->work, mark);
    return OK;
}

Status te_clip_encode(const Clip *c, Exec *x, Tensor ids, int64_t pooled_row, Tensor pooled) {
    size_t mark = arena_mark(x->work);
    int64_t t = ids.shape[0], d = c->c.hidden;
    Tensor h = exec_new(x, t, d), p = exec_new(x, t, d), positions = exec_new_as(x, I32, t);
    int32_t *order = malloc((size_t)t * sizeof *order);
    if (!order) return fail(x->error, ERR_MEMORY, "clip: out of memory");
    for (int64_t i = 0; i < t; i++) order[i] = (int32_t)i;
    Status s = exec_upload(x, positions, order);
    free(order);
    TRY(s);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(op_embed(x, &(Embed){.y = h, .ids = ids, .table = &c->token}));
    TRY(op_embed(x, &(Embed){.y = p, .ids = positions, .table = &c->position}));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = p}));
    TRY(exec_tap(x, "clip.embed", h));
    for (int i = 0; i < (int)c->c.layers; i++) {
        if (layer(&c->layer[i], &c->c, x, h) != OK) return because(x->error, "clip layer %d", i);
        TRY(exec_tapf(x, h, "clip.layer.%d", i));
    }
    TRY(op_layernorm(x, &(LayerNorm){.y = p, .x = h, .w = c->final_w, .b = c->final_b, .eps = (float)c->c.eps}));
    TRY(weights_leave(x, WEIGHTS_PART));
    TRY(exec_tap(x, "clip.final", p));
    TRY(op_copy(x, &(Copy){.y = pooled, .x = tensor_slice(p, 0, pooled_row, 1)}));
    arena_reset(x->work, mark);
    return OK;
}
