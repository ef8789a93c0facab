/* test_gemma3.c - LTX-2's text encoder, drawn from a seed, against transformers stage by stage (golden.h says how a stage is
 * judged, golden_bench.h what f32 may miss), the real rows alone and behind padding, under both names that files have;
 * and what its config refuses. Then whether these goldens notice faults (golden_bench.h).
 *
 * GOLDEN_VERBOSE=1 prints every stage and fault. Easy to get wrong: run from the repository root. */
#include "fault_steps.h"
#include "golden_bench.h"
#include "golden_ltx2_text.h"

static Status measure(Bench *b, const char *folder, bool bf16) { return golden_gemma3(&b->g, folder, bf16 ? BF16 : F32); }

/* --- names --- */

/* All names of the weights' file under the other prefix, which is as long. */
static void rename_tensors(Bench *b) {
    static const char NEW[] = "model.language_model.", OLD[] = "language_model.model.";
    char path[1200], *bytes, *at;
    size_t size, n = sizeof NEW - 1, changed = 0;
    Error e = {0};
    snprintf(path, sizeof path, "%s/%s", b->model, GEMMA3_FILE);
    if (file_read(path, &bytes, &size, &e) != OK) mutate_stop(path, e.text);
    uint64_t header;
    memcpy(&header, bytes, 8);
    for (at = bytes + 8; at + n < bytes + 8 + header; at++)
        if (!memcmp(at, NEW, n)) memcpy(at, OLD, n), changed++;
    expect(changed == 2 + 5 * 13);
    mutate_write(path, bytes, size);
    free(bytes);
}

/* --- configs --- */

/* A key of text_config replaced or, where the file lacks it, added; with a second one removed. */
static void edit(Bench *b, const char *key, const char *value, const char *removed) {
    char path[1200], *text;
    size_t size;
    Error e = {0};
    snprintf(path, sizeof path, "%s/config.json", b->model);
    if (file_read(path, &text, &size, &e) != OK) mutate_stop(path, e.text);
    cJSON *j = cJSON_Parse(text), *t = cJSON_GetObjectItemCaseSensitive(j, "text_config"), *v = cJSON_Parse(value);
    free(text);
    if (!t || !v) mutate_stop(path, key);
    if (cJSON_GetObjectItemCaseSensitive(t, key)) cJSON_ReplaceItemInObjectCaseSensitive(t, key, v);
    else cJSON_AddItemToObject(t, key, v);
    if (removed) cJSON_DeleteItemFromObjectCaseSensitive(t, removed);
    text = cJSON_Print(j);
    mutate_write(path, text, strlen(text));
    free(text);
    cJSON_Delete(j);
}

#define ROPE(full, local) "{\"full_attention\": " full ", \"sliding_attention\": " local "}"
#define FULL "{\"rope_theta\": 1000.0, \"rope_type\": \"linear\", \"factor\": 4.0}"
#define LOCAL "{\"rope_theta\": 100.0, \"rope_type\": \"default\"}"

static void configs(Bench *b) {
    static const struct { const char *key, *value, *refusal; } FAULTS[] = {
        {"sliding_window", "4", NULL},
        {"sliding_window", "6", NULL},
        {"sliding_window", "4096", NULL},
        {"query_pre_attn_scalar", "14", NULL},
        {"rms_norm_eps", "0.01", NULL},
        {"rope_parameters", ROPE("{\"rope_theta\": 1000.0}", LOCAL), NULL},
        {"rope_parameters", ROPE(LOCAL, LOCAL), NULL},
        {"rope_parameters", ROPE(FULL, FULL), NULL},
        {"rope_parameters", ROPE("{\"rope_theta\": 10000.0, \"rope_type\": \"linear\", \"factor\": 4.0}", LOCAL), NULL},
        {"layer_types", "[\"full_attention\", \"sliding_attention\", \"full_attention\", \"sliding_attention\", "
                        "\"full_attention\"]", NULL},
        {"sliding_window_pattern", "3", ""}, /* layer_types says it already */
        {"layer_types", "[\"sliding_attention\", \"full_attention\"]", "layer_types: layer 2"},
        {"layer_types", "[\"chunked_attention\"]", "layer_types: layer 0 is chunked_attention"},
        {"rope_parameters", ROPE("{\"rope_theta\": 1000.0, \"rope_type\": \"yarn\"}", LOCAL), "rope_type \"yarn\""},
        {"rope_parameters", ROPE("{\"rope_theta\": 1.0}", LOCAL), "full_attention: rope_theta"},
        {"rope_parameters", ROPE("{\"rope_type\": \"linear\", \"factor\": 0.5}", LOCAL), "factor 0.5"},
        {"num_key_value_heads", "3", "num_key_value_heads"},
        {"head_dim", "13", "head_dim"},
        {"hidden_activation", "\"silu\"", "hidden_activation"},
        {"attention_bias", "true", "attention_bias"},
        {"use_bidirectional_attention", "true", "use_bidirectional_attention"},
        {"attn_logit_softcapping", "50.0", "attn_logit_softcapping"},
        {"rms_norm_eps", "0.0", "rms_norm_eps"},
        {"hidden_size", "0", "hidden_size"},
        {"max_position_embeddings", "299", "slots"},
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        edit(b, FAULTS[i].key, FAULTS[i].value, NULL);
        const char *refusal = FAULTS[i].refusal;
        if (!refusal || *refusal) {
            bench_configured(b, FAULTS[i].key, refusal);
            continue;
        }
        expect_at(bench_measure(b, b->model, false) == OK, FAULTS[i].key, b->g.error.text, (int)i);
        expect_at(b->g.worst <= BENCH_F32_LIMIT, FAULTS[i].key, "changed", (int)i);
        bench_put_back(b, b->config);
    }
}

/* The same model as older configs say it. */
static void older(Bench *b) {
    edit(b, "rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 4.0}", "rope_parameters");
    edit(b, "rope_theta", "1000.0", NULL);
    edit(b, "rope_local_base_freq", "100.0", NULL);
    edit(b, "layer_types", "null", NULL); /* every third is a full one: of these five that leaves the last wrong */
    edit(b, "sliding_window_pattern", "3", NULL);
    expect(bench_measure(b, b->model, false) == OK);
    for (int k = 0; k < b->g.stages; k++) /* the f32 goldens begin behind the last layer */
        expect(strcmp(b->g.stage[k].name, "gemma3.norm") || b->g.stage[k].metric > BENCH_F32_LIMIT);
    edit(b, "layer_types", "[\"sliding_attention\", \"sliding_attention\", \"full_attention\", \"sliding_attention\", "
                           "\"full_attention\"]", NULL);
    bench_clean(b, false, "older config");
    bench_put_back(b, b->config);
    Gemma m;
    Error e = {0};
    edit(b, "layer_types", "null", NULL);
    expect(te_gemma3_open(b->model, &m, &e) == OK); /* without either key every sixth is full */
    for (int i = 0; i < 5; i++) expect(m.layer[i].sliding);
    te_gemma_close(&m);
    char path[1200];
    snprintf(path, sizeof path, "%s/config.json", b->model);
    mutate_write(path, "{\"model_type\": \"gemma3\"}", 24);
    expect(te_gemma3_open(b->model, &m, &e) == ERR_MODEL && strstr(e.text, "text_config"));
    bench_put_back(b, b->config);
}

/* --- ops --- */

/* Rows normed in f32, then: the norm rounded before its weight; 1 + w rounded; w alone. */
typedef enum NormFault { ROUND_FIRST, ROUND_PLUS, NO_PLUS } NormFault;

static void norm_row(char *y, float *v, int64_t n, Tensor w, float eps, NormFault how) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += (double)v[j] * (double)v[j];
    float s = (float)(1 / sqrt((double)((float)(sum / (double)n) + eps)));
    for (int64_t j = 0; j < n; j++) {
        float u = v[j] * s, by = fault_get(w, 0, j) + (how == NO_PLUS ? 0.0f : 1.0f);
        if (how == ROUND_FIRST) u = bf16_round(u);
        if (how == ROUND_PLUS) by = bf16_round(by);
        golden_put(y, BF16, j, (double)(u * by));
    }
}

static Status norm_fault(const void *args, NormFault how) {
    const RmsNorm *a = args;
    float v[256];
    for (int64_t i = 0; i < a->x.shape[0]; i++) {
        for (int64_t j = 0; j < a->x.shape[1]; j++) v[j] = fault_get(a->x, i, j);
        norm_row((char *)a->y.data + i * a->y.stride[0] * 2, v, a->x.shape[1], a->w, a->eps, how);
    }
    return OK;
}
static Status norm_first(Exec *x, const void *a) { return (void)x, norm_fault(a, ROUND_FIRST); }
static Status norm_plus(Exec *x, const void *a) { return (void)x, norm_fault(a, ROUND_PLUS); }
static Status norm_no_plus(Exec *x, const void *a) { return (void)x, norm_fault(a, NO_PLUS); }

/* The norm of the heads by itself, wrong; then the rotation. */
static Status heads_fault(Exec *x, const void *args, NormFault how) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    for (int k = 0; k < 2; k++) {
        Tensor from = k ? a.k : a.q, to = k ? a.yk : a.yq;
        int64_t e = from.shape[2];
        float v[64];
        for (int64_t i = 0; i < from.shape[0]; i++)
            for (int64_t h = 0; h < from.shape[1]; h++) {
                for (int64_t j = 0; j < e; j++) v[j] = fault_get(from, i, h * from.stride[1] + j);
                norm_row((char *)to.data + (i * to.stride[0] + h * to.stride[1]) * 2, v, e, k ? a.wk : a.wq, a.eps, how);
            }
    }
    a.q = a.yq, a.k = a.yk, a.form = RMS_NONE, a.wq = a.wk = (Tensor){0};
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static Status heads_first(Exec *x, const void *a) { return heads_fault(x, a, ROUND_FIRST); }
static Status heads_no_plus(Exec *x, const void *a) { return heads_fault(x, a, NO_PLUS); }
static Status heads_unnormed(Exec *x, const void *args) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.form = RMS_NONE, a.wq = a.wk = (Tensor){0};
    return fault_call(x, OP_qk_norm_rope_head, &a);
}

/* Angles of the positions 0, 1, ...: of the rows instead of the slots. */
static Status from_zero(Exec *x, const void *args) {
    const CosSin *a = args;
    int64_t rows = a->x.shape[0], n = a->x.shape[1];
    float *v = a->x.data;
    for (int64_t i = rows - 1; rows > 1 && i >= 0; i--)
        for (int64_t j = 0; j < n; j++) v[i * n + j] -= v[j];
    return fault_call(x, OP_cos_sin, a);
}
static Status turned(Exec *x, const void *args) {
    CosSin a = *(const CosSin *)args;
    Tensor t = a.cos;
    a.cos = a.sin, a.sin = t;
    return fault_call(x, OP_cos_sin, &a);
}

static Status no_window(Exec *x, const void *args) {
    Attention a = *(const Attention *)args;
    a.bias = (Tensor){0}, a.mask = MASK_CAUSAL;
    return fault_call(x, OP_attention, &a);
}
static Status not_causal(Exec *x, const void *args) {
    Attention a = *(const Attention *)args;
    a.bias = (Tensor){0}, a.mask = MASK_NONE;
    return fault_call(x, OP_attention, &a);
}
/* Eager attention's roundings: of the scores, and of the normalised probabilities. */
static Status eager(Exec *x, const void *args) {
    const Attention *a = args;
    int64_t t = a->q.shape[0], heads = a->q.shape[1], group = heads / a->k.shape[1], e = a->q.shape[2];
    float p[64];
    (void)x;
    for (int64_t i = 0; i < t; i++)
        for (int64_t h = 0; h < heads; h++) {
            float top = -INFINITY, sum = 0;
            for (int64_t j = 0; j < t; j++) {
                double s = 0;
                for (int64_t c = 0; c < e; c++)
                    s += (double)fault_get(a->q, i, h * a->q.stride[1] + c) *
                         (double)fault_get(a->k, j, h / group * a->k.stride[1] + c);
                p[j] = bf16_round(bf16_round((float)s) * a->scale);
                if (a->bias.rank ? fault_get(a->bias, i, j) < -1 : j > i) p[j] = -INFINITY;
                top = fmaxf(top, p[j]);
            }
            for (int64_t j = 0; j < t; j++) sum += p[j] = expf(p[j] - top);
            for (int64_t c = 0; c < e; c++) {
                double o = 0;
                for (int64_t j = 0; j < t; j++)
                    o += (double)bf16_round(p[j] / sum) * (double)fault_get(a->v, j, h / group * a->v.stride[1] + c);
                golden_put((char *)a->o.data + (i * a->o.stride[0] + h * a->o.stride[1]) * 2, BF16, c, o);
            }
        }
    return OK;
}
static Status wrong_group(Exec *x, const void *args) {
    Attention a = *(const Attention *)args;
    a.k = tensor_slice(a.k, 1, 0, 1), a.v = tensor_slice(a.v, 1, 0, 1);
    return fault_call(x, OP_attention, &a);
}

/* The stack's states are written one late. */
static Status keep_late(Exec *x, const void *args) {
    Copy a = *(const Copy *)args;
    if (a.y.rank == 2 && a.y.stride[1] == 6) a.y.data = (char *)a.y.data + 2;
    return fault_call(x, OP_copy, &a);
}

static void faulty_ops(Bench *b) {
#define F(what, op, run) {what, {OP_##op, "fault", run, NULL, NULL}}
    static const BenchFault FAULTS[] = {
        F("norm rounded before its weight", rmsnorm, norm_first),
        F("1 + weight rounded", rmsnorm, norm_plus),
        F("weight for 1 + weight", rmsnorm, norm_no_plus),
        F("QK norm rounded before its weight", qk_norm_rope_head, heads_first),
        F("QK norm: weight for 1 + weight", qk_norm_rope_head, heads_no_plus),
        F("QK norm: its weight alone", qk_norm_rope_head, fault_heads_once),
        F("no QK norm", qk_norm_rope_head, heads_unnormed),
        F("RoPE in one rounding", qk_norm_rope_head, fault_rope_once),
        F("RoPE interleaved pairs", qk_norm_rope_head, fault_rope_pairs),
        F("positions from 0", cos_sin, from_zero),
        F("cosines for sines", cos_sin, turned),
        F("no window", attention, no_window),
        F("no causal mask", attention, not_causal),
        F("eager attention", attention, eager),
        F("all query heads read one key head", attention, wrong_group),
        F("scale of the embeddings not rounded", affine, fault_scale_unrounded),
        F("embeddings not scaled", affine, fault_unscaled),
        F("GELU by erf", act_mul, fault_gelu_erf),
        F("GELU not rounded before the product", act_mul, fault_gelu_unrounded),
        F("states written one late", copy, keep_late),
    };
#undef F
    bench_faults(b, FAULTS, sizeof FAULTS / sizeof *FAULTS);
}

/* Padding that is seen, where it runs. */
static Status padding_seen(Exec *x, const void *args) {
    Attention a = *(const Attention *)args;
    size_t n = (size_t)tensor_numel(a.bias);
    if (!a.bias.rank) return fault_call(x, OP_attention, &a);
    uint16_t *v = a.bias.data, *kept = malloc(n * sizeof *v);
    if (!kept) return ERR_MEMORY;
    memcpy(kept, v, n * sizeof *v);
    for (int64_t i = 0, t = a.bias.shape[0]; i < t; i++)
        for (int64_t j = 0; j <= i; j++) v[i * t + j] = 0;
    Status s = fault_call(x, OP_attention, &a);
    memcpy(v, kept, n * sizeof *v);
    free(kept);
    return s;
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    if (bench_open(&b) != OK) return printf("%s\n", b.g.error.text), 1;
    b.name = "gemma3", b.file = GEMMA3_FILE, b.measure = measure, b.f32_limit = BENCH_F32_LIMIT;
    gemma3_write(b.clean);
    mutate_copy_folder(b.clean, b.model);
    b.g.ops.row_bits = true; /* padding runs too, and no real token sees it */
    bench_clean(&b, false, "f32 padded");
    bench_clean(&b, true, "bf16 padded");
    static const BenchFault SEEN = {"padding seen", {OP_attention, "fault", padding_seen, NULL, NULL}};
    bench_faults(&b, &SEEN, 1);
    b.g.ops.row_bits = false;
    rename_tensors(&b);
    bench_clean(&b, true, "older names");
    bench_put_back(&b, b.file);
    bench_clean(&b, true, "bf16");
    bench_clean(&b, false, "f32");
    expect(bench_tensors(&b, NULL) == 2 + 5 * 13);
#define L "model.language_model.layers.1."
    static const char *const SWAPS[][2] = {
        {L "self_attn.k_proj.weight", L "self_attn.v_proj.weight"},
        {L "self_attn.q_norm.weight", L "self_attn.k_norm.weight"},
        {L "mlp.gate_proj.weight", L "mlp.up_proj.weight"},
        {L "input_layernorm.weight", L "post_attention_layernorm.weight"},
        {L "post_attention_layernorm.weight", L "pre_feedforward_layernorm.weight"},
        {L "pre_feedforward_layernorm.weight", L "post_feedforward_layernorm.weight"},
        {L "self_attn.q_proj.weight", "model.language_model.layers.2.self_attn.q_proj.weight"},
        {"model.language_model.norm.weight", "model.language_model.layers.4.post_feedforward_layernorm.weight"},
    };
#undef L
    bench_swaps(&b, SWAPS, sizeof SWAPS / sizeof *SWAPS);
    configs(&b);
    older(&b);
    bench_clean(&b, false, "f32 again");
    faulty_ops(&b);
    return bench_close(&b);
}
