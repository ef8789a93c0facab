/* test_zimage_mutants.c - do Z-Image's goldens notice? As test_mutants.c: every tensor that runs perturbed by 10 % of its
 * rms, tensors exchanged, configs changed (f32), and ops with one rounding or step wrong (bf16, blocks fed with the
 * reference's input). Each fault must raise some stage above its limit and at least tenfold.
 *
 * Easy to get wrong: tensors of the encoder's last layer and its final norm never run and are left out. */
#include "fault_steps.h"
#include "golden_bench.h"
#include "golden_zimage.h"

enum { DIT, TE }; /* the runs */

static void part(Bench *b, int run) {
    b->run = run;
    b->name = run == TE ? "qwen3" : "zimage";
    b->file = run == TE ? "text_encoder/model.safetensors" : "transformer/diffusion_pytorch_model.safetensors";
    b->config = run == TE ? "text_encoder/config.json" : "transformer/config.json";
}

static Status measure(Bench *b, const char *model, bool bf16) {
    char name[32];
    snprintf(name, sizeof name, "%s_%s", b->run == TE ? "qwen3" : "zdit", bf16 ? "bf16" : "f32");
    return golden_zimage(&b->g, model, b->run == TE, bf16 ? BF16 : F32, name);
}

/* --- the checkpoint --- */

static bool never_runs(const Bench *b, const char *tensor) {
    return b->run == TE && (strstr(tensor, "layers.3.") || !strcmp(tensor, "model.norm.weight"));
}

static void exchanged(Bench *b) {
#define L "layers.0."
#define A L "attention."
    static const char *const SWAPS[][2] = {
        {A "to_q.weight", A "to_k.weight"}, {A "to_k.weight", A "to_v.weight"}, {A "to_v.weight", A "to_out.0.weight"},
        {A "norm_q.weight", A "norm_k.weight"}, {L "feed_forward.w1.weight", L "feed_forward.w3.weight"},
        {L "attention_norm1.weight", L "attention_norm2.weight"}, {L "attention_norm1.weight", L "ffn_norm1.weight"},
        {L "attention_norm2.weight", L "ffn_norm2.weight"}, {L "ffn_norm1.weight", L "ffn_norm2.weight"},
        {"x_pad_token", "cap_pad_token"}, {A "to_q.weight", "layers.1.attention.to_q.weight"},
        {"context_refiner.0.attention.to_q.weight", "context_refiner.1.attention.to_q.weight"},
    };
    part(b, DIT);
    bench_swaps(b, SWAPS, sizeof SWAPS / sizeof *SWAPS);
    const char *mod[] = {L "adaLN_modulation.0.weight", L "adaLN_modulation.0.bias"};
    for (int i = 0; i < 2; i++) { /* scale, gate, scale, gate of 48 rows each */
        bench_rows(b, mod[i], 0, 48, 48);
        bench_rows(b, mod[i], 0, 96, 48);
        bench_rows(b, mod[i], 48, 144, 48);
        bench_rows(b, mod[i], 96, 144, 48);
    }
    bench_rows(b, "t_embedder.mlp.2.weight", 0, 24, 24);
    bench_rows(b, "all_final_layer.2-1.linear.weight", 0, 6, 6);
#define Q "model.layers.1."
    static const char *const TE_SWAPS[][2] = {
        {Q "self_attn.k_proj.weight", Q "self_attn.v_proj.weight"}, {Q "self_attn.q_norm.weight", Q "self_attn.k_norm.weight"},
        {Q "mlp.gate_proj.weight", Q "mlp.up_proj.weight"}, {Q "input_layernorm.weight", Q "post_attention_layernorm.weight"},
    };
    part(b, TE);
    bench_swaps(b, TE_SWAPS, sizeof TE_SWAPS / sizeof *TE_SWAPS);
    bench_rows(b, Q "self_attn.q_proj.weight", 16, 32, 16); /* which heads share keys */
    bench_rows(b, Q "self_attn.k_proj.weight", 0, 16, 16);
#undef L
#undef A
#undef Q
}

static void configs(Bench *b) {
    static const struct { int run; const char *key, *value, *refusal; } FAULTS[] = {
        {DIT, "rope_theta", "10000.0", NULL}, {DIT, "axes_dims", "[6, 4, 6]", NULL}, {DIT, "norm_eps", "0.01", NULL},
        {DIT, "axes_dims", "[4, 6, 4]", "axes_dims"}, {DIT, "n_kv_heads", "1", "n_kv_heads"},
        {DIT, "all_patch_size", "[4]", "all_patch_size"}, {DIT, "qk_norm", "false", "qk_norm"},
        {DIT, "cap_feat_dim", "41", "cap_embedder"}, {TE, "rope_theta", "10000.0", NULL},
        {TE, "rms_norm_eps", "0.01", NULL}, {TE, "num_key_value_heads", "3", "num_key_value_heads"},
        {TE, "hidden_act", "\"gelu\"", "hidden_act"}, {TE, "attention_bias", "true", "attention_bias"},
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        part(b, FAULTS[i].run);
        bench_config(b, FAULTS[i].key, FAULTS[i].value, FAULTS[i].refusal);
    }
}

/* --- ops --- */

enum { NO_TANH = 1, FIRST = 2, TANH = 4, PRODUCT = 8, NO_PLUS = 16, PLUS = 32, WEIGHTED = 64 }; /* left out or unrounded */

static float rms_of(Tensor x, int64_t row, float eps) {
    double sum = 0;
    for (int64_t j = 0; j < x.shape[1]; j++) sum += (double)fault_get(x, row, j) * (double)fault_get(x, row, j);
    return (float)(1 / sqrt(sum / (double)x.shape[1] + (double)eps));
}

static float keep(float v, int how, int bit) { return how & bit ? v : bf16_round(v); }

static Status residual(const ResidualNorm *a, int how) {
    for (int64_t i = 0; i < a->x.shape[0]; i++) {
        float s = rms_of(a->x, i, a->eps);
        for (int64_t j = 0; j < a->x.shape[1]; j++) {
            float v = keep(fault_get(a->x, i, j) * s, how, FIRST) * fault_get(a->w, 0, j);
            v = keep(v, how, WEIGHTED);
            if (a->gate.rank) {
                float g = fault_get(a->gate, 0, j);
                v = keep(v * (how & NO_TANH ? g : keep(tanhf(g), how, TANH)), how, PRODUCT);
            }
            fault_set(a->y, i, j, fault_get(a->residual, i, j) + v);
        }
    }
    return OK;
}

static Status scaled(const RmsNormScale *a, int how) {
    for (int64_t i = 0; i < a->x.shape[0]; i++) {
        float s = rms_of(a->x, i, a->eps);
        for (int64_t j = 0; j < a->x.shape[1]; j++) {
            float v = keep(fault_get(a->x, i, j) * s, how, FIRST) * fault_get(a->w, 0, j);
            v = keep(v, how, WEIGHTED);
            if (a->scale.rank) v *= how & NO_PLUS ? fault_get(a->scale, 0, j) : keep(1 + fault_get(a->scale, 0, j), how, PLUS);
            fault_set(a->y, i, j, v);
        }
    }
    return OK;
}

#define RESIDUAL(name, how) static Status name(Exec *x, const void *a) { return (void)x, residual(a, how); }
#define SCALED(name, how) static Status name(Exec *x, const void *a) { return (void)x, scaled(a, how); }
RESIDUAL(no_tanh, NO_TANH)
RESIDUAL(residual_first, FIRST)
RESIDUAL(residual_tanh, TANH)
RESIDUAL(residual_product, PRODUCT)
RESIDUAL(residual_weighted, WEIGHTED)
SCALED(scale_no_plus, NO_PLUS)
SCALED(scale_first, FIRST)
SCALED(scale_plus, PLUS)
SCALED(scale_weighted, WEIGHTED)

static Status qk_pairs(Exec *x, const void *args) { /* the other pairing */
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.rope = a.rope == ROPE_COMPLEX ? ROPE_HALF_EAGER : ROPE_COMPLEX;
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static Status qk_eps(Exec *x, const void *args) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.eps = 1e-2f;
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static Status pads_masked(Exec *x, const void *args) { /* the last 8 rows are caption pads in context and layers */
    Attention a = *(const Attention *)args;
    a.k = tensor_slice(a.k, 0, 0, a.k.shape[0] - 8), a.v = tensor_slice(a.v, 0, 0, a.v.shape[0] - 8);
    return fault_call(x, OP_attention, &a);
}
static Status not_causal(Exec *x, const void *args) {
    AttentionEager a = *(const AttentionEager *)args;
    a.mask = MASK_NONE;
    return fault_call(x, OP_attention_eager, &a);
}
static Status flash(Exec *x, const void *args) { /* scores and probabilities as SDPA keeps them */
    const AttentionEager *a = args;
    return fault_call(x, OP_attention,
                      &(Attention){.o = a->o, .q = a->q, .k = a->k, .v = a->v, .scale = a->scale, .mask = a->mask});
}

static void faulty_ops(Bench *b) {
#define F(part, what, op, fault) {part, what, {OP_##op, "fault", fault, NULL, NULL}}
    static const struct { int run; const char *what; Impl impl; } FAULTS[] = {
        F(DIT, "gate without tanh", residual_norm, no_tanh),
        F(DIT, "norm of a sublayer not rounded", residual_norm, residual_first),
        F(DIT, "tanh(gate) not rounded", residual_norm, residual_tanh),
        F(DIT, "gated norm not rounded", residual_norm, residual_product),
        F(DIT, "weighted norm not rounded before its gate", residual_norm, residual_weighted),
        F(DIT, "scale for 1 + scale", rmsnorm_scale, scale_no_plus),
        F(DIT, "norm not rounded before its weight", rmsnorm_scale, scale_first),
        F(DIT, "1 + scale not rounded", rmsnorm_scale, scale_plus),
        F(DIT, "weighted norm not rounded before its scale", rmsnorm_scale, scale_weighted),
        F(DIT, "QK norm rounds once", qk_norm_rope_head, fault_heads_once),
        F(DIT, "RoPE half-split pairs", qk_norm_rope_head, qk_pairs),
        F(DIT, "QK norm eps 1e-2", qk_norm_rope_head, qk_eps),
        F(DIT, "pad tokens not attended", attention, pads_masked),
        F(DIT, "caption norm rounds once", rmsnorm, fault_rms_once),
        F(DIT, "sine before cosine", time_embed, fault_sines_first),
        F(TE, "QK norm rounds once", qk_norm_rope_head, fault_heads_once),
        F(TE, "RoPE in one rounding", qk_norm_rope_head, fault_rope_once),
        F(TE, "RoPE interleaved pairs", qk_norm_rope_head, qk_pairs),
        F(TE, "no causal mask", attention_eager, not_causal),
        F(TE, "eager scores not rounded", attention_eager, flash),
        F(TE, "norm rounds once", rmsnorm, fault_rms_once),
    };
#undef F
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        part(b, FAULTS[i].run);
        bench_fault(b, true, FAULTS[i].what, &FAULTS[i].impl);
    }
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    if (bench_open(&b) != OK) return printf("%s\n", b.g.error.text), 1;
    snprintf(b.clean, sizeof b.clean, "%s", ZIMAGE_MODEL);
    mutate_copy_folder(b.clean, b.model);
    b.measure = measure;
    for (int run = DIT; run <= TE; run++) {
        part(&b, run);
        for (int bf16 = 0; bf16 < 2; bf16++) bench_keep(&b, bf16);
        int count = bench_tensors(&b, never_runs);
        expect(count == (run == TE ? 34 : 101));
        printf("%d tensors perturbed\n", count);
    }
    exchanged(&b);
    configs(&b);
    faulty_ops(&b);
    return bench_close(&b);
}
