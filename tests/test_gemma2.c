/* test_gemma2.c - SANA-Video's text encoder, drawn from a seed, against transformers stage by stage (golden.h says how a stage
 * is judged; f32 here to 1e-6 of the largest value), and what its config refuses. Then whether these goldens notice: every
 * tensor that is perturbed by 10 % of its rms, tensors exchanged, configs changed (f32), ops with one rounding or step wrong
 * (bf16). Each fault must raise some stage above its limit and at least tenfold.
 *
 * GOLDEN_VERBOSE=1 prints every stage and fault. Easy to get wrong: run from the repository root. */
#include "fault_steps.h"
#include "golden_bench.h"
#include "golden_gemma2.h"

static Status measure(Bench *b, const char *folder, bool bf16) { return golden_gemma2(&b->g, folder, bf16 ? BF16 : F32); }

/* --- the checkpoint --- */

static void tensors(Bench *b) {
    expect(bench_tensors(b, NULL) == 2 + 4 * 11);
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
    bench_swaps(b, SWAPS, sizeof SWAPS / sizeof *SWAPS);
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
        bench_configured(b, what, refusal);
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

static void faulty_ops(Bench *b) {
#define F(what, op, run) {what, {OP_##op, "fault", run, NULL, NULL}}
    static const BenchFault FAULTS[] = {
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
        F("RoPE in one rounding", qk_norm_rope_head, fault_rope_once),
        F("RoPE interleaved pairs", qk_norm_rope_head, fault_rope_pairs),
        F("scale of the embeddings not rounded", affine, fault_scale_unrounded),
        F("embeddings not scaled", affine, fault_unscaled),
        F("GELU by erf", act_mul, fault_gelu_erf),
        F("GELU not rounded before the product", act_mul, fault_gelu_unrounded),
    };
#undef F
    bench_faults(b, FAULTS, sizeof FAULTS / sizeof *FAULTS);
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    if (bench_open(&b) != OK) return printf("%s\n", b.g.error.text), 1;
    b.name = "gemma2", b.file = GEMMA2_FILE, b.measure = measure, b.f32_limit = 1e-6 / GOLDEN_F32;
    gemma2_write(b.clean);
    mutate_copy_folder(b.clean, b.model);
    b.g.ops.row_bits = true; /* padding runs too, where no real token sees it */
    bench_clean(&b, false, "f32 padded");
    bench_clean(&b, true, "bf16 padded");
    b.g.ops.row_bits = false;
    bench_clean(&b, false, "f32");
    bench_clean(&b, true, "bf16");
    tensors(&b);
    configs(&b);
    faulty_ops(&b);
    return bench_close(&b);
}
