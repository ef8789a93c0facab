/* test_gemma2.c - SANA-Video's text encoder, drawn from a seed, against transformers stage by stage (golden.h says how a stage
 * is judged; f32 here to 1e-6 of the largest value), and what its config refuses. Then whether these goldens notice: every
 * tensor that is perturbed by 10 % of its rms, tensors exchanged, configs changed (f32), ops with one rounding or step wrong
 * (bf16). Each fault must raise some stage above its limit and at least tenfold.
 *
 * GOLDEN_VERBOSE=1 prints every stage and fault. Easy to get wrong: run from the repository root. */
#include "expect.h"
#include "fault.h"
#include "golden_gemma2.h"

#include <omp.h>

static const double F32_LIMIT = 1e-6 / 1e-4; /* of GOLDEN_F32's allowance */

typedef struct Bench {
    Golden g;
    char folder[500], model[600];
    GoldenStage clean[2][GOLDEN_STAGES]; /* F32, BF16 */
    int count[2];
} Bench;

static Status measure(Bench *b, bool bf16) {
    b->g.stages = 0, b->g.worst = 0;
    return golden_gemma2(&b->g, b->model, bf16 ? BF16 : F32);
}

static void clean_run(Bench *b, bool bf16, const char *name) {
    Status s = measure(b, bf16);
    double limit = bf16 ? 1 : F32_LIMIT;
    if (s != OK) printf("%s: %s\n", name, b->g.error.text);
    expect(s == OK && b->g.stages > 0);
    for (int k = 0; k < b->g.stages; k++) {
        bool good = b->g.stage[k].metric <= limit;
        expect_at(good, b->g.stage[k].name, name, 0);
        if (getenv("GOLDEN_VERBOSE") || !good)
            printf("%-12s %-16s %.4f of the allowance\n", name, b->g.stage[k].name, b->g.stage[k].metric / limit);
    }
    for (int k = 0; k < b->g.file.count; k++) { /* every golden output was compared */
        bool seen = !strchr(b->g.file.entry[k].name, '.') || strchr(b->g.file.entry[k].name, '@');
        for (int j = 0; j < b->g.stages; j++) seen |= !strcmp(b->g.stage[j].name, b->g.file.entry[k].name);
        expect_at(seen, b->g.file.entry[k].name, name, 0);
    }
}

/* --- faults --- */

static void judge(const Bench *b, bool bf16, const char *what) {
    double best = -1, got = 0, was = 0, limit = bf16 ? 1 : F32_LIMIT;
    for (int i = 0; i < b->g.stages; i++)
        for (int k = 0; k < b->count[bf16]; k++) {
            const GoldenStage *now = &b->g.stage[i], *before = &b->clean[bf16][k];
            double factor = now->metric <= limit ? 0 : before->metric > 0 ? now->metric / before->metric : INFINITY;
            if (strcmp(now->name, before->name) || factor < best) continue;
            best = factor, got = now->metric, was = before->metric;
        }
    expect_at(best >= 10, what, bf16 ? "bf16" : "f32", 0);
    if (best < 10 || getenv("GOLDEN_VERBOSE")) printf("%s: metric %.3g, without the fault %.3g\n", what, got, was);
}

static void tensor_fault(Bench *b, const char *a, const char *other) {
    MutateFile m = {0};
    char what[300];
    snprintf(what, sizeof what, "%.120s %.120s", a, other ? other : "perturbed");
    mutate_open(&m, b->model, GEMMA2_FILE);
    if (other) mutate_swap(&m, a, other);
    else mutate_perturb(&m, a);
    mutate_save(&m);
    expect_at(measure(b, false) == OK, what, b->g.error.text, 0);
    judge(b, false, what);
    gemma2_write(b->model);
}

static void tensors(Bench *b) {
    MutateFile m = {0};
    char names[64][96];
    mutate_open(&m, b->model, GEMMA2_FILE);
    int count = m.st.count;
    expect(count == 2 + 4 * 11);
    for (int i = 0; i < count && i < 64; i++) snprintf(names[i], sizeof names[i], "%s", m.st.entry[i].name);
    safetensors_close(&m.st);
    free(m.bytes);
    for (int i = 0; i < count && i < 64; i++) tensor_fault(b, names[i], NULL);
#define L "layers.1."
    static const char *const SWAPS[][2] = {
        {L "self_attn.k_proj.weight", L "self_attn.v_proj.weight"},
        {L "mlp.gate_proj.weight", L "mlp.up_proj.weight"},
        {L "input_layernorm.weight", L "post_attention_layernorm.weight"},
        {L "post_attention_layernorm.weight", L "pre_feedforward_layernorm.weight"},
        {L "pre_feedforward_layernorm.weight", L "post_feedforward_layernorm.weight"},
        {L "post_attention_layernorm.weight", L "post_feedforward_layernorm.weight"},
        {L "self_attn.q_proj.weight", "layers.2.self_attn.q_proj.weight"},
        {"norm.weight", "layers.3.post_feedforward_layernorm.weight"},
    };
#undef L
    for (size_t i = 0; i < sizeof SWAPS / sizeof *SWAPS; i++) tensor_fault(b, SWAPS[i][0], SWAPS[i][1]);
}

static void configs(Bench *b) {
    static const struct { const char *key, *value, *refusal; } FAULTS[] = {
        {"attn_logit_softcapping", "50.0", NULL},
        {"attn_logit_softcapping", "null", NULL},
        {"sliding_window", "5", NULL},
        {"sliding_window", "7", NULL},
        {"sliding_window", "4096", NULL},
        {"query_pre_attn_scalar", "14", NULL},
        {"rms_norm_eps", "0.01", NULL},
        {"rope_parameters", "{\"rope_theta\": 10000.0, \"rope_type\": \"default\"}", NULL},
        {"rope_parameters", "{\"rope_theta\": 100.0, \"rope_type\": \"linear\"}", "rope_type"},
        {"rope_parameters", "{\"rope_theta\": NaN}", "rope_theta"},
        {"attn_logit_softcapping", "-1.0", "attn_logit_softcapping"},
        {"num_key_value_heads", "3", "num_key_value_heads"},
        {"head_dim", "13", "head_dim"},
        {"hidden_activation", "\"silu\"", "hidden_activation"},
        {"attention_bias", "true", "attention_bias"},
        {"rms_norm_eps", "0.0", "rms_norm_eps"},
        {"hidden_size", "0", "hidden_size"},
    };
    static const struct { const char *layers, *refusal; } TYPES[] = {
        {"[\"full_attention\", \"sliding_attention\", \"full_attention\", \"sliding_attention\"]", NULL},
        {"[\"sliding_attention\", \"full_attention\"]", "layer_types: layer 2"},
        {"[\"sliding_attention\", \"chunked_attention\", \"x\", \"y\"]", "layer_types: layer 1 is chunked_attention"},
        {"\"sliding_attention\"", "layer_types: layer 0"},
    };
    char text[4000];
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS + sizeof TYPES / sizeof *TYPES; i++) {
        bool type = i >= sizeof FAULTS / sizeof *FAULTS;
        size_t k = type ? i - sizeof FAULTS / sizeof *FAULTS : i;
        const char *what = type ? "layer_types" : FAULTS[k].key, *refusal = type ? TYPES[k].refusal : FAULTS[k].refusal;
        if (type || strstr(FAULTS[k].value, "NaN")) { /* a key that the file lacks, or a value that cJSON does not read */
            char path[1200], *all;
            size_t size;
            Error e = {0};
            snprintf(path, sizeof path, "%s/config.json", b->model);
            if (file_read(path, &all, &size, &e) != OK) mutate_stop(path, e.text);
            snprintf(text, sizeof text, "{\"%s\": %s, \"rope_theta\": 100.0, %s", what, type ? TYPES[k].layers : FAULTS[k].value,
                     strstr(all, "\"vocab_size\""));
            if (!type) { /* the old key under another name */
                char *old = strstr(strchr(text, '}'), "\"rope_parameters\"");
                if (!old) mutate_stop(path, "rope_parameters");
                old[1] = 'x';
            }
            free(all);
            mutate_write(path, text, strlen(text));
        } else {
            mutate_json(b->model, "config.json", FAULTS[k].key, FAULTS[k].value);
        }
        Status s = measure(b, false);
        if (refusal) {
            expect_at(s == ERR_MODEL && strstr(b->g.error.text, refusal), what, b->g.error.text, (int)i);
        } else {
            expect_at(s == OK, what, b->g.error.text, (int)i);
            judge(b, false, what);
        }
        gemma2_write(b->model);
    }
}

/* --- ops --- */

/* Rows normed in f32, then: the norm rounded before its weight; 1 + w rounded; w alone. */
typedef enum NormFault { ROUND_FIRST, ROUND_PLUS, NO_PLUS } NormFault;

static Status norm_fault(const void *args, NormFault how) {
    const RmsNorm *a = args;
    for (int64_t i = 0; i < a->x.shape[0]; i++) {
        double sum = 0;
        for (int64_t j = 0; j < a->x.shape[1]; j++) sum += (double)fault_get(a->x, i, j) * (double)fault_get(a->x, i, j);
        float s = (float)(1 / sqrt((double)((float)(sum / (double)a->x.shape[1]) + a->eps)));
        for (int64_t j = 0; j < a->x.shape[1]; j++) {
            float v = fault_get(a->x, i, j) * s, w = fault_get(a->w, 0, j) + (how == NO_PLUS ? 0.0f : 1.0f);
            if (how == ROUND_FIRST) v = bf16_round(v);
            if (how == ROUND_PLUS) w = bf16_round(w);
            golden_put((char *)a->y.data + i * a->y.stride[0] * 2, BF16, j, (double)(v * w));
        }
    }
    return OK;
}
static Status norm_first(Exec *x, const void *a) { return (void)x, norm_fault(a, ROUND_FIRST); }
static Status norm_plus(Exec *x, const void *a) { return (void)x, norm_fault(a, ROUND_PLUS); }
static Status norm_no_plus(Exec *x, const void *a) { return (void)x, norm_fault(a, NO_PLUS); }

static Status no_cap(Exec *x, const void *args) {
    AttentionEager a = *(const AttentionEager *)args;
    a.softcap = 0;
    return fault_call(x, OP_attention_eager, &a);
}
static Status no_window(Exec *x, const void *args) {
    AttentionEager a = *(const AttentionEager *)args;
    a.window = 0;
    return fault_call(x, OP_attention_eager, &a);
}
static Status not_causal(Exec *x, const void *args) {
    AttentionEager a = *(const AttentionEager *)args;
    a.mask = MASK_NONE, a.window = 0;
    return fault_call(x, OP_attention_eager, &a);
}

/* The scores of the contract but for one step: unrounded between, or capped after the scale of the other side. */
typedef enum ScoreFault { UNROUNDED, QUOTIENT, TANH, CAP_FIRST } ScoreFault;

static Status score_fault(const void *args, ScoreFault how) {
    const AttentionEager *a = args;
    int64_t t = a->q.shape[0], heads = a->q.shape[1], group = heads / a->k.shape[1], e = a->q.shape[2];
    float p[64];
    for (int64_t i = 0; i < t; i++)
        for (int64_t h = 0; h < heads; h++) {
            float top = -INFINITY, sum = 0;
            for (int64_t j = 0; j <= i; j++) {
                double s = 0;
                for (int64_t c = 0; c < e; c++)
                    s += (double)fault_get(a->q, i, h * a->q.stride[1] + c) *
                         (double)fault_get(a->k, j, h / group * a->k.stride[1] + c);
                float v = how == UNROUNDED ? (float)s : bf16_round((float)s);
                if (how != CAP_FIRST) v *= a->scale;
                if (how != UNROUNDED) v = bf16_round(v);
                v /= a->softcap;
                if (how != UNROUNDED && how != QUOTIENT) v = bf16_round(v);
                v = tanhf(v);
                if (how != UNROUNDED && how != TANH) v = bf16_round(v);
                v *= a->softcap;
                if (how == CAP_FIRST) v *= a->scale;
                if (how != UNROUNDED) v = bf16_round(v);
                p[j] = a->window && j <= i - a->window ? -INFINITY : v;
                top = fmaxf(top, p[j]);
            }
            for (int64_t j = 0; j <= i; j++) sum += p[j] = expf(p[j] - top);
            for (int64_t c = 0; c < e; c++) {
                double o = 0;
                for (int64_t j = 0; j <= i; j++)
                    o += (double)bf16_round(p[j] / sum) * (double)fault_get(a->v, j, h / group * a->v.stride[1] + c);
                golden_put((char *)a->o.data + (i * a->o.stride[0] + h * a->o.stride[1]) * 2, BF16, c, o);
            }
        }
    return OK;
}
static Status scores_unrounded(Exec *x, const void *a) { return (void)x, score_fault(a, UNROUNDED); }
static Status quotient_unrounded(Exec *x, const void *a) { return (void)x, score_fault(a, QUOTIENT); }
static Status tanh_unrounded(Exec *x, const void *a) { return (void)x, score_fault(a, TANH); }
static Status cap_first(Exec *x, const void *a) { return (void)x, score_fault(a, CAP_FIRST); }

static Status rope_at_once(Exec *x, const void *args) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.rope = ROPE_HALF;
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static Status rope_pairs(Exec *x, const void *args) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.rope = ROPE_INTERLEAVED;
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static Status scale_unrounded(Exec *x, const void *args) {
    Affine a = *(const Affine *)args;
    a.mul = sqrtf((float)a.x.shape[1]);
    return fault_call(x, OP_affine, &a);
}
static Status unscaled(Exec *x, const void *args) {
    Affine a = *(const Affine *)args;
    a.mul = 1;
    return fault_call(x, OP_affine, &a);
}
static Status gelu_erf(Exec *x, const void *args) {
    ActMul a = *(const ActMul *)args;
    a.kind = ACT_GELU_ERF;
    return fault_call(x, OP_act_mul, &a);
}
static Status gate_unrounded(Exec *x, const void *args) {
    const ActMul *a = args;
    (void)x;
    for (int64_t i = 0; i < a->a.shape[0]; i++)
        for (int64_t j = 0; j < a->a.shape[1]; j++) {
            double v = (double)fault_get(a->a, i, j), g = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
            golden_put((char *)a->y.data + i * a->y.stride[0] * 2, BF16, j, g * (double)fault_get(a->b, i, j));
        }
    return OK;
}

static void faulty_ops(Bench *b) {
#define F(what, op, run) {what, {OP_##op, "fault", run, NULL, NULL}}
    static const struct { const char *what; Impl impl; } FAULTS[] = {
        F("norm rounded before its weight", rmsnorm, norm_first),
        F("1 + weight rounded", rmsnorm, norm_plus),
        F("weight for 1 + weight", rmsnorm, norm_no_plus),
        F("no soft cap", attention_eager, no_cap),
        F("no window", attention_eager, no_window),
        F("no causal mask", attention_eager, not_causal),
        F("scores not rounded", attention_eager, scores_unrounded),
        F("score over the cap not rounded", attention_eager, quotient_unrounded),
        F("tanh of the cap not rounded", attention_eager, tanh_unrounded),
        F("cap before the scale", attention_eager, cap_first),
        F("RoPE in one rounding", qk_norm_rope_head, rope_at_once),
        F("RoPE interleaved pairs", qk_norm_rope_head, rope_pairs),
        F("scale of the embeddings not rounded", affine, scale_unrounded),
        F("embeddings not scaled", affine, unscaled),
        F("GELU by erf", act_mul, gelu_erf),
        F("GELU not rounded before the product", act_mul, gate_unrounded),
    };
#undef F
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        fault_mount(&b->g, &FAULTS[i].impl);
        expect_at(measure(b, true) == OK, FAULTS[i].what, b->g.error.text, 0);
        judge(b, true, FAULTS[i].what);
    }
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    omp_set_num_threads(1); /* tiny tensors: threads only wait for each other */
    if (golden_open(&b.g) != OK) return printf("%s\n", b.g.error.text), 1;
    expect_folder(b.folder, sizeof b.folder);
    snprintf(b.model, sizeof b.model, "%s/text_encoder", b.folder);
    gemma2_write(b.model);
    b.g.ops.row_bits = true; /* padding runs too, where no real token sees it */
    clean_run(&b, false, "f32 padded");
    clean_run(&b, true, "bf16 padded");
    b.g.ops.row_bits = false;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        clean_run(&b, bf16, bf16 ? "bf16" : "f32");
        memcpy(b.clean[bf16], b.g.stage, sizeof b.g.stage);
        b.count[bf16] = b.g.stages;
    }
    tensors(&b);
    configs(&b);
    faulty_ops(&b);
    golden_close(&b.g);
    expect_cleanup(b.folder);
    return expect_done();
}
