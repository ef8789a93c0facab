/* ltx2_connectors.c - see ltx2_connectors.h. */
#include "models/ltx2_connectors.h"

#include "core/json.h"
#include "models/blocks.h"
#include "residency.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double PI = 3.14159265358979323846;
static const float EPS = 1e-6f; /* all norms'; none of them is in the config */
static const float RANGE_SCALE = 8;
static const char *const NAMES[] = {"video", "audio"};
enum { MLP = 4 }; /* width of the MLP over the connector's */

/* --- config --- */

static Status read_connector(const char *path, const Json *j, Ltx2ConnectorWhich which, Ltx2Connector *c, Error *e) {
    static const char *const KEYS[][5] = {
        {"video_connector_num_attention_heads", "video_connector_attention_head_dim", "video_connector_num_layers",
         "video_connector_num_learnable_registers", "video_gated_attn"},
        {"audio_connector_num_attention_heads", "audio_connector_attention_head_dim", "audio_connector_num_layers",
         "audio_connector_num_learnable_registers", "audio_gated_attn"}};
    const char *const *key = KEYS[which];
    *c = (Ltx2Connector){.heads = 30, .head = 128, .layers = 2, .registers = 128};
    const JsonSize sizes[] = {{key[0], &c->heads}, {key[1], &c->head}, {key[2], &c->layers}, {key[3], &c->registers}};
    const Json *registers = json_get(j, key[3]);
    TRY(json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e));
    TRY(json_bool(j, key[4], &c->gated, path, e));
    if (registers && json_is_null(registers)) return fail(e, ERR_MODEL, "%s: %s: null: expected registers", path, key[3]);
    if (c->head % 2) return fail(e, ERR_MODEL, "%s: %s: found %lld, expected an even number", path, key[1], (long long)c->head);
    c->width = c->heads * c->head;
    return OK;
}

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    Ltx2Connectors *c = out;
    bool causal = false, precise = true;
    const char *rope = "interleaved"; /* the class's default; published models say split */
    int64_t hidden[] = {4096, 2048};
    c->channels = 3840, c->states = 49, c->base = 4096, c->theta = 10000;
    const JsonSize sizes[] = {{"caption_channels", &c->channels},    {"text_proj_in_factor", &c->states},
                              {"connector_rope_base_seq_len", &c->base}, {"video_hidden_dim", &hidden[0]},
                              {"audio_hidden_dim", &hidden[1]}};
    TRY(json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e));
    TRY(json_double(j, "rope_theta", &c->theta, path, e));
    TRY(json_bool(j, "rope_double_precision", &precise, path, e));
    TRY(json_bool(j, "causal_temporal_positioning", &causal, path, e)); /* the class keeps it and does nothing with it */
    TRY(json_string(j, "rope_type", &rope, path, e));
    TRY(json_bool(j, "per_modality_projections", &c->apart, path, e));
    TRY(json_bool(j, "proj_bias", &c->bias, path, e));
    for (int k = 0; k < LTX2_CONNECTORS_COUNT; k++) {
        TRY(read_connector(path, j, (Ltx2ConnectorWhich)k, &c->one[k], e));
        int64_t want = c->apart ? hidden[k] : c->channels;
        if (c->one[k].width != want)
            return fail(e, ERR_MODEL, "%s: %s connector: %lld heads of %lld do not make %s %lld", path, NAMES[k],
                        (long long)c->one[k].heads, (long long)c->one[k].head, c->apart ? "its hidden_dim" : "caption_channels",
                        (long long)want);
    }
    if (strcmp(rope, "split") || !precise)
        return fail(e, ERR_MODEL, "%s: rope_type \"%s\", rope_double_precision %s: expected split and true", path, rope,
                    precise ? "true" : "false");
    if (!(c->theta > 0) || !isfinite(c->theta))
        return fail(e, ERR_MODEL, "%s: rope_theta %g: expected a number above 0", path, c->theta);
    return OK;
}

Status ltx2_connectors_open(const char *folder, Ltx2Connectors *out, Error *e) {
    return json_read_in(folder, "config.json", ltx2_connectors_read, out, e);
}

Status ltx2_connectors_read(const char *path, const Json *j, void *to, Error *e) {
    Ltx2Connectors *out = to;
    *out = (Ltx2Connectors){0};
    TRY(read_config(path, j, out, e));
    for (int k = 0; k < LTX2_CONNECTORS_COUNT; k++) {
        out->one[k].block = calloc((size_t)out->one[k].layers, sizeof *out->one[k].block);
        if (out->one[k].block) continue;
        ltx2_connectors_close(out);
        return fail(e, ERR_MEMORY, "%s: out of memory", path);
    }
    return OK;
}

void ltx2_connectors_close(Ltx2Connectors *c) {
    for (int k = 0; k < LTX2_CONNECTORS_COUNT; k++) free(c->one[k].block);
    *c = (Ltx2Connectors){0};
}

int64_t ltx2_connectors_width(const Ltx2Connectors *c, Ltx2ConnectorWhich which) { return c->one[which].width; }

int64_t ltx2_connectors_registers(const Ltx2Connectors *c) {
    int64_t a = c->one[0].registers, b = c->one[1].registers, n = a;
    while (n % b) n += a;
    return n;
}

static void bind_block_of(Bind *b, const Ltx2Connector *c, const char *name, int i) {
    Ltx2ConnectorBlock *l = &c->block[i];
    int64_t d = c->width;
#define AT "%s_connector.transformer_blocks.%d."
    bind_linear(b, &l->q, d, d, true, AT "attn1.to_q", name, i);
    bind_linear(b, &l->k, d, d, true, AT "attn1.to_k", name, i);
    bind_linear(b, &l->v, d, d, true, AT "attn1.to_v", name, i);
    bind_vector(b, &l->norm_q, d, BIND_PLAIN, AT "attn1.norm_q.weight", name, i);
    bind_vector(b, &l->norm_k, d, BIND_PLAIN, AT "attn1.norm_k.weight", name, i);
    if (c->gated) bind_linear(b, &l->gate, c->heads, d, true, AT "attn1.to_gate_logits", name, i);
    bind_linear(b, &l->o, d, d, true, AT "attn1.to_out.0", name, i);
    bind_linear(b, &l->up, MLP * d, d, true, AT "ff.net.0.proj", name, i);
    bind_linear(b, &l->down, d, MLP * d, true, AT "ff.net.2", name, i);
#undef AT
}

void ltx2_connectors_bind(Ltx2Connectors *c, Bind *b) {
    int64_t in = c->channels * c->states;
    int block = 0;
    bind_block(b, -1);
    if (!c->apart) bind_linear(b, &c->proj, c->channels, in, c->bias, "text_proj_in");
    for (int k = 0; k < LTX2_CONNECTORS_COUNT; k++) {
        Ltx2Connector *one = &c->one[k];
        bind_block(b, -1);
        if (c->apart) bind_linear(b, &one->proj, one->width, in, c->bias, "%s_text_proj_in", NAMES[k]);
        bind_matrix(b, &one->registers_table, one->registers, one->width, "%s_connector.learnable_registers", NAMES[k]);
        for (int i = 0; i < (int)one->layers; i++) {
            bind_block(b, block++);
            bind_block_of(b, one, NAMES[k], i);
        }
    }
    bind_block(b, -1);
}

/* --- states to rows of the connectors' width --- */

/* The states of all texts as the matrix that a projection reads. */
static Status matrix_of(Exec *x, int count, const Gemma3States *states, Tensor *out) {
    int64_t rows = 0, row = states[0].t.shape[1] * states[0].t.shape[2];
    const char *at = states[0].t.data;
    for (int i = 0; i < count; i++) {
        const Tensor *t = &states[i].t;
        if (!tensor_contiguous(*t) || (const char *)t->data != at || t->shape[1] * t->shape[2] != row)
            return fail(x->error, ERR_MODEL, "connectors: the hidden states of %d texts are not one block", count);
        at += tensor_bytes(*t);
        rows += t->shape[0];
    }
    const int64_t shape[] = {rows, row};
    *out = tensor_make(states[0].t.data, states[0].t.dtype, 2, shape);
    return OK;
}

static Status show(Exec *x, int count, const Gemma3States *states, Tensor z, const char *name) {
    for (int64_t i = 0, end = 0; i < count; i++) {
        end += states[i].t.shape[0];
        TRY(exec_tapf(x, tensor_slice(z, 0, end - states[i].real, states[i].real), "connectors.text%s.%d", name, (int)i));
    }
    return OK;
}

/* z[k]: [all rows, width] of the work arena. */
static Status project(const Ltx2Connectors *c, Exec *x, int count, const Gemma3States *states, Tensor z[LTX2_CONNECTORS_COUNT]) {
    Tensor all;
    TRY(matrix_of(x, count, states, &all));
    for (int i = 0; i < count; i++) {
        Tensor t = states[i].t;
        int32_t pads = (int32_t)(t.shape[0] - states[i].real);
        if (c->apart) TRY(op_stack_rms_norm(x, &(StackRmsNorm){.y = t, .x = t, .eps = EPS, .first = pads}));
        else TRY(op_stack_range_norm(x, &(StackRangeNorm){.y = t, .x = t, .eps = EPS, .scale = RANGE_SCALE, .first = pads}));
    }
    for (int k = 0; k < LTX2_CONNECTORS_COUNT; k++)
        if (k == 0 || c->apart) z[k] = exec_new(x, all.shape[0], c->one[k].width);
        else z[k] = z[0];
    if (!c->apart) {
        TRY(op_linear(x, &(Linear){.y = z[0], .x = all, .w = &c->proj}));
        return show(x, count, states, z[0], "");
    }
    size_t mark = arena_mark(x->work);
    Tensor scaled = exec_new(x, all.shape[0], all.shape[1]);
    for (int k = 0; k < LTX2_CONNECTORS_COUNT; k++) {
        float by = (float)sqrt((double)c->one[k].width / (double)c->channels);
        TRY(op_affine(x, &(Affine){.y = scaled, .x = all, .mul = by, .add = -0.0f}));
        TRY(op_linear(x, &(Linear){.y = z[k], .x = scaled, .w = &c->one[k].proj}));
        TRY(show(x, count, states, z[k], k ? ".audio" : ".video"));
    }
    arena_reset(x->work, mark);
    return OK;
}

/* h [count * slots, width]: of each text its tokens, then the registers of the slots that are left. */
static Status fill(const Ltx2Connector *c, Exec *x, int count, int64_t slots, const Gemma3States *states, Tensor z, Tensor h) {
    size_t mark = arena_mark(x->work);
    int32_t *host = x->dry ? NULL : malloc((size_t)slots * sizeof *host);
    if (!x->dry && !host) return fail(x->error, ERR_MEMORY, "connectors: out of memory");
    for (int64_t p = 0; host && p < slots; p++) host[p] = (int32_t)(p % c->registers);
    Tensor ids = exec_new_as(x, I32, slots);
    Status s = exec_upload(x, ids, host);
    free(host);
    for (int64_t i = 0, end = 0; s == OK && i < count; i++) {
        int64_t n = states[i].real;
        end += states[i].t.shape[0];
        s = op_copy(x, &(Copy){.y = tensor_slice(h, 0, i * slots, n), .x = tensor_slice(z, 0, end - n, n)});
        if (s == OK && n < slots)
            s = op_embed(x, &(Embed){.y = tensor_slice(h, 0, i * slots + n, slots - n), .ids = tensor_slice(ids, 0, n, slots - n),
                                     .table = &c->registers_table});
    }
    arena_reset(x->work, mark);
    return s;
}

/* --- the transformers --- */

/* What all blocks of a connector see. */
typedef struct Shared {
    int count;
    int64_t slots;
    RopeSplitForm form;
    Tensor cos, sin; /* F32 [slots, width/2] */
    Tensor zeros;    /* [slots]: the mask that the reference passes */
} Shared;

/* Frequencies over the whole half width, theta^(i / (n - 1)) pi / 2, in double; angles in f32, from -1 for slot 0 to 1 for slot
 * `base`. */
static Status rope(const Ltx2Connectors *c, Exec *x, Shared *s) {
    size_t mark = arena_mark(x->work);
    int64_t half = s->cos.shape[1], middle = half / 2;
    float *host = x->dry ? NULL : malloc((size_t)(s->slots * half) * sizeof *host);
    if (!x->dry && !host) return fail(x->error, ERR_MEMORY, "connectors: out of memory for rotary tables");
    double step = half > 1 ? 1.0 / (double)(half - 1) : 0;
    for (int64_t i = 0; host && i < half; i++) {
        double power = i < middle ? step * (double)i : 1 - step * (double)(half - 1 - i); /* torch.linspace, from both ends */
        float frequency = (float)(pow(c->theta, half > 1 ? power : 0) * PI / 2);
        for (int64_t p = 0; p < s->slots; p++)
            host[p * half + i] = ((float)p / (float)c->base * 2.0f - 1.0f) * frequency;
    }
    Tensor angles = exec_new_as(x, F32, s->slots, half);
    Status status = exec_upload(x, angles, host);
    free(host);
    TRY(status);
    TRY(blocks_cos_sin(x, angles, s->cos, s->sin, s->form == ROPE_SPLIT_DTYPE));
    arena_reset(x->work, mark);
    return OK;
}

static Status zeros_of(Exec *x, Tensor t) {
    void *host = x->dry ? NULL : calloc(1, tensor_bytes(t));
    if (!x->dry && !host) return fail(x->error, ERR_MEMORY, "connectors: out of memory");
    Status s = exec_upload(x, t, host);
    free(host);
    return s;
}

static Status norm(Exec *x, Tensor y, Tensor in) {
    return op_rmsnorm(x, &(RmsNorm){.y = y, .x = in, .eps = EPS, .form = RMS_ONCE});
}

static Status attend(const Ltx2ConnectorBlock *l, const Ltx2Connector *c, Exec *x, const Shared *s, Tensor q, Tensor k, Tensor v,
                     Tensor o) {
    float scale = (float)(1 / sqrt((double)c->head));
    for (int i = 0; i < s->count; i++) {
        Tensor qi = tensor_slice(q, 0, i * s->slots, s->slots), ki = tensor_slice(k, 0, i * s->slots, s->slots);
        Tensor vi = tensor_slice(v, 0, i * s->slots, s->slots), oi = tensor_slice(o, 0, i * s->slots, s->slots);
        TRY(op_norm_rope_split(x, &(NormRopeSplit){.yq = qi, .yk = ki, .q = qi, .k = ki, .wq = l->norm_q, .wk = l->norm_k,
                                                   .cos = s->cos, .sin = s->sin, .eps = EPS, .heads = (int32_t)c->heads,
                                                   .form = s->form}));
        TRY(op_attention(x, &(Attention){.o = tensor_split(oi, c->head), .q = tensor_split(qi, c->head),
                                         .k = tensor_split(ki, c->head), .v = tensor_split(vi, c->head), .bias = s->zeros,
                                         .scale = scale, .mask = MASK_NONE}));
    }
    return OK;
}

static Status block(const Ltx2ConnectorBlock *l, const Ltx2Connector *c, Exec *x, const Shared *s, Tensor h) {
    size_t mark = arena_mark(x->work);
    int64_t rows = h.shape[0], d = c->width;
    Tensor n = exec_new(x, rows, d);
    size_t inside = arena_mark(x->work);
    Tensor q = exec_new(x, rows, d), k = exec_new(x, rows, d), v = exec_new(x, rows, d), o = exec_new(x, rows, d), gate = {0};
    TRY(norm(x, n, h));
    if (c->gated) {
        gate = exec_new(x, rows, c->heads);
        TRY(op_linear(x, &(Linear){.y = gate, .x = n, .w = &l->gate}));
    }
    TRY(op_linear_many(x, &(LinearMany){.y = {q, k, v}, .x = n, .w = {&l->q, &l->k, &l->v}}));
    TRY(attend(l, c, x, s, q, k, v, o));
    Tensor heads = tensor_split(o, c->head);
    if (c->gated) TRY(op_head_gate(x, &(HeadGate){.y = heads, .x = heads, .logits = gate}));
    TRY(op_linear(x, &(Linear){.y = n, .x = o, .w = &l->o}));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = n}));
    arena_reset(x->work, inside);
    Tensor wide = exec_new(x, rows, MLP * d);
    TRY(norm(x, n, h));
    TRY(op_linear_gelu(x, &(Linear){.y = wide, .x = n, .w = &l->up}));
    TRY(op_linear(x, &(Linear){.y = n, .x = wide, .w = &l->down}));
    TRY(op_add(x, &(Add){.y = h, .a = h, .b = n}));
    arena_reset(x->work, mark);
    return OK;
}

static Status connect(const Ltx2Connectors *c, Exec *x, Ltx2ConnectorWhich which, int first, Shared *s, Tensor h) {
    const Ltx2Connector *one = &c->one[which];
    size_t mark = arena_mark(x->work);
    s->cos = exec_new_as(x, F32, s->slots, one->width / 2);
    s->sin = exec_new_as(x, F32, s->slots, one->width / 2);
    TRY(rope(c, x, s));
    for (int i = 0; i < (int)one->layers; i++) {
        TRY(weights_enter(x, first + i));
        if (block(&one->block[i], one, x, s, h) != OK) return because(x->error, "%s connector, block %d", NAMES[which], i);
        TRY(weights_leave(x, first + i));
        TRY(exec_tapf(x, h, "connectors.%s.%d", NAMES[which], i));
    }
    TRY(norm(x, h, h));
    arena_reset(x->work, mark);
    return exec_tapf(x, h, "connectors.%s", NAMES[which]);
}

Status ltx2_connectors_run(const Ltx2Connectors *c, Exec *x, int count, int64_t slots, const Gemma3States *states,
                           const Tensor context[LTX2_CONNECTORS_COUNT]) {
    size_t mark = arena_mark(x->work);
    Tensor z[LTX2_CONNECTORS_COUNT];
    Shared s = {.count = count, .slots = slots, .form = c->form};
    int first = 0;
    if (slots % ltx2_connectors_registers(c) || states[0].t.shape[1] != c->channels || states[0].t.shape[2] != c->states)
        return fail(x->error, ERR_MODEL, "connectors: %lld slots of %lld channels, %lld states: expected a multiple of %lld, "
                    "%lld and %lld", (long long)slots, (long long)states[0].t.shape[1], (long long)states[0].t.shape[2],
                    (long long)ltx2_connectors_registers(c), (long long)c->channels, (long long)c->states);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(project(c, x, count, states, z));
    s.zeros = exec_new(x, slots);
    TRY(zeros_of(x, s.zeros));
    for (int k = 0; k < LTX2_CONNECTORS_COUNT; k++) {
        TRY(fill(&c->one[k], x, count, slots, states, z[k], context[k]));
        TRY(connect(c, x, (Ltx2ConnectorWhich)k, first, &s, context[k]));
        first += (int)c->one[k].layers;
    }
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
