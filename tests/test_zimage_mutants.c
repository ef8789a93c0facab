/* test_zimage_mutants.c - do Z-Image's goldens notice? As test_mutants.c: every tensor that runs perturbed by 10 % of its
 * rms, tensors exchanged, configs changed (f32), and ops with one rounding or step wrong (bf16, blocks fed with the
 * reference's input). Each fault must raise some stage above its limit and at least tenfold.
 *
 * Easy to get wrong: tensors of the encoder's last layer and its final norm never run and are left out. */
#include "expect.h"
#include "fault.h"
#include "golden_zimage.h"
#include "mutate.h"

#include <omp.h>

#define TE_FILE "text_encoder/model.safetensors"
#define DIT_FILE "transformer/diffusion_pytorch_model.safetensors"

typedef struct Bench {
    Golden g;
    char folder[500], model[600];
    GoldenStage clean[2][2][GOLDEN_STAGES]; /* by part (DiT, encoder) and dtype (F32, BF16) */
    int count[2][2];
} Bench;

static Status measure(Bench *b, const char *model, bool te, bool bf16) {
    char name[32];
    b->g.stages = 0, b->g.worst = 0;
    snprintf(name, sizeof name, "%s_%s", te ? "qwen3" : "zdit", bf16 ? "bf16" : "f32");
    return golden_zimage(&b->g, model, te, bf16 ? BF16 : F32, name);
}

static void judge(const Bench *b, bool te, bool bf16, const char *what) {
    double best = -1, got = 0, was = 0;
    for (int i = 0; i < b->g.stages; i++)
        for (int k = 0; k < b->count[te][bf16]; k++) {
            const GoldenStage *now = &b->g.stage[i], *before = &b->clean[te][bf16][k];
            double factor = now->metric <= 1 ? 0 : before->metric > 0 ? now->metric / before->metric : INFINITY;
            if (strcmp(now->name, before->name) || factor < best) continue;
            best = factor, got = now->metric, was = before->metric;
        }
    expect_at(best >= 10, what, te ? "qwen3" : "zimage", 0);
    if (best < 10 || getenv("GOLDEN_VERBOSE"))
        printf("%-6s %s: metric %.3g, without the fault %.3g\n", te ? "qwen3" : "zimage", what, got, was);
}

/* --- the checkpoint --- */

static void put_back(const Bench *b, const char *file) {
    char from[1200], to[1200], *bytes;
    size_t size;
    Error e = {0};
    snprintf(from, sizeof from, ZIMAGE_MODEL "/%s", file);
    snprintf(to, sizeof to, "%s/%s", b->model, file);
    if (file_read(from, &bytes, &size, &e) != OK) mutate_stop(from, e.text);
    mutate_write(to, bytes, size);
    free(bytes);
}

static void tensor_fault(Bench *b, bool te, const char *a, const char *other, int64_t i, int64_t j, int64_t n) {
    MutateFile m = {0};
    char what[300];
    const char *file = te ? TE_FILE : DIT_FILE;
    snprintf(what, sizeof what, "%s %s %lld %lld", a, other ? other : n ? "rows exchanged" : "perturbed", (long long)i,
             (long long)j);
    mutate_open(&m, b->model, file);
    if (other) mutate_swap(&m, a, other);
    else if (n) mutate_swap_rows(&m, a, i, j, n);
    else mutate_perturb(&m, a);
    mutate_save(&m);
    Status s = measure(b, b->model, te, false);
    if (s != OK) printf("%s: %s\n", what, b->g.error.text);
    expect_at(s == OK, what, "must run", 0);
    judge(b, te, false, what);
    put_back(b, file);
}

static void every_tensor(Bench *b, bool te) {
    MutateFile m = {0};
    int count = 0;
    mutate_open(&m, ZIMAGE_MODEL, te ? TE_FILE : DIT_FILE);
    for (int i = 0; i < m.st.count; i++) {
        const char *name = m.st.entry[i].name;
        if (te && (strstr(name, "layers.3.") || !strcmp(name, "model.norm.weight"))) continue;
        tensor_fault(b, te, name, NULL, 0, 0, 0);
        count++;
    }
    safetensors_close(&m.st);
    free(m.bytes);
    expect(count == (te ? 34 : 101));
    printf("%d tensors perturbed\n", count);
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
    for (size_t i = 0; i < sizeof SWAPS / sizeof *SWAPS; i++) tensor_fault(b, false, SWAPS[i][0], SWAPS[i][1], 0, 0, 0);
    const char *mod[] = {L "adaLN_modulation.0.weight", L "adaLN_modulation.0.bias"};
    for (int i = 0; i < 2; i++) { /* scale, gate, scale, gate of 48 rows each */
        tensor_fault(b, false, mod[i], NULL, 0, 48, 48);
        tensor_fault(b, false, mod[i], NULL, 0, 96, 48);
        tensor_fault(b, false, mod[i], NULL, 48, 144, 48);
        tensor_fault(b, false, mod[i], NULL, 96, 144, 48);
    }
    tensor_fault(b, false, "t_embedder.mlp.2.weight", NULL, 0, 24, 24);
    tensor_fault(b, false, "all_final_layer.2-1.linear.weight", NULL, 0, 6, 6);
#define Q "model.layers.1."
    static const char *const TE_SWAPS[][2] = {
        {Q "self_attn.k_proj.weight", Q "self_attn.v_proj.weight"}, {Q "self_attn.q_norm.weight", Q "self_attn.k_norm.weight"},
        {Q "mlp.gate_proj.weight", Q "mlp.up_proj.weight"}, {Q "input_layernorm.weight", Q "post_attention_layernorm.weight"},
    };
    for (size_t i = 0; i < sizeof TE_SWAPS / sizeof *TE_SWAPS; i++)
        tensor_fault(b, true, TE_SWAPS[i][0], TE_SWAPS[i][1], 0, 0, 0);
    tensor_fault(b, true, Q "self_attn.q_proj.weight", NULL, 16, 32, 16); /* which heads share keys */
    tensor_fault(b, true, Q "self_attn.k_proj.weight", NULL, 0, 16, 16);
#undef L
#undef A
#undef Q
}

static void configs(Bench *b) {
    static const struct { bool te; const char *key, *value, *refusal; } FAULTS[] = {
        {false, "rope_theta", "10000.0", NULL}, {false, "axes_dims", "[6, 4, 6]", NULL}, {false, "norm_eps", "0.01", NULL},
        {false, "axes_dims", "[4, 6, 4]", "axes_dims"}, {false, "n_kv_heads", "1", "n_kv_heads"},
        {false, "all_patch_size", "[4]", "all_patch_size"}, {false, "qk_norm", "false", "qk_norm"},
        {false, "cap_feat_dim", "41", "cap_embedder"}, {true, "rope_theta", "10000.0", NULL},
        {true, "rms_norm_eps", "0.01", NULL}, {true, "num_key_value_heads", "3", "num_key_value_heads"},
        {true, "hidden_act", "\"gelu\"", "hidden_act"}, {true, "attention_bias", "true", "attention_bias"},
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        const char *file = FAULTS[i].te ? "text_encoder/config.json" : "transformer/config.json";
        mutate_json(b->model, file, FAULTS[i].key, FAULTS[i].value);
        Status s = measure(b, b->model, FAULTS[i].te, false);
        if (FAULTS[i].refusal) {
            expect_at(s == ERR_MODEL && strstr(b->g.error.text, FAULTS[i].refusal), FAULTS[i].key, b->g.error.text, 0);
        } else {
            expect_at(s == OK, FAULTS[i].key, b->g.error.text, 0);
            judge(b, FAULTS[i].te, false, FAULTS[i].key);
        }
        put_back(b, file);
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

static Status qk_once(Exec *x, const void *args) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.form = RMS_ONCE;
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static Status qk_at_once(Exec *x, const void *args) { /* halves with one rounding */
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.rope = ROPE_HALF;
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
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
static Status rms_once(Exec *x, const void *args) {
    RmsNorm a = *(const RmsNorm *)args;
    a.form = RMS_ONCE;
    return fault_call(x, OP_rmsnorm, &a);
}
static Status sines_first(Exec *x, const void *args) {
    TimeEmbed a = *(const TimeEmbed *)args;
    TRY(fault_call(x, OP_time_embed, &a));
    for (int64_t j = 0; j < 128; j++) {
        float c = fault_get(a.y, 0, j);
        fault_set(a.y, 0, j, fault_get(a.y, 0, j + 128));
        fault_set(a.y, 0, j + 128, c);
    }
    return OK;
}

static void faulty_ops(Bench *b) {
#define F(te, what, op, run) {te, what, {OP_##op, "fault", run, NULL, NULL}}
    static const struct { bool te; const char *what; Impl impl; } FAULTS[] = {
        F(false, "gate without tanh", residual_norm, no_tanh),
        F(false, "norm of a sublayer not rounded", residual_norm, residual_first),
        F(false, "tanh(gate) not rounded", residual_norm, residual_tanh),
        F(false, "gated norm not rounded", residual_norm, residual_product),
        F(false, "weighted norm not rounded before its gate", residual_norm, residual_weighted),
        F(false, "scale for 1 + scale", rmsnorm_scale, scale_no_plus),
        F(false, "norm not rounded before its weight", rmsnorm_scale, scale_first),
        F(false, "1 + scale not rounded", rmsnorm_scale, scale_plus),
        F(false, "weighted norm not rounded before its scale", rmsnorm_scale, scale_weighted),
        F(false, "QK norm rounds once", qk_norm_rope_head, qk_once),
        F(false, "RoPE half-split pairs", qk_norm_rope_head, qk_pairs),
        F(false, "QK norm eps 1e-2", qk_norm_rope_head, qk_eps),
        F(false, "pad tokens not attended", attention, pads_masked),
        F(false, "caption norm rounds once", rmsnorm, rms_once),
        F(false, "sine before cosine", time_embed, sines_first),
        F(true, "QK norm rounds once", qk_norm_rope_head, qk_once),
        F(true, "RoPE in one rounding", qk_norm_rope_head, qk_at_once),
        F(true, "RoPE interleaved pairs", qk_norm_rope_head, qk_pairs),
        F(true, "no causal mask", attention_eager, not_causal),
        F(true, "eager scores not rounded", attention_eager, flash),
        F(true, "norm rounds once", rmsnorm, rms_once),
    };
#undef F
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        fault_mount(&b->g, &FAULTS[i].impl);
        expect_at(measure(b, ZIMAGE_MODEL, FAULTS[i].te, true) == OK, FAULTS[i].what, b->g.error.text, 0);
        judge(b, FAULTS[i].te, true, FAULTS[i].what);
    }
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    omp_set_num_threads(1); /* tiny tensors: threads only wait for each other */
    if (golden_open(&b.g) != OK) return printf("%s\n", b.g.error.text), 1;
    expect_folder(b.folder, sizeof b.folder);
    snprintf(b.model, sizeof b.model, "%s/model", b.folder);
    mutate_copy_folder(ZIMAGE_MODEL, b.model);
    for (int te = 0; te < 2; te++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            expect(measure(&b, ZIMAGE_MODEL, te, bf16) == OK && b.g.worst <= 1);
            memcpy(b.clean[te][bf16], b.g.stage, sizeof b.g.stage);
            b.count[te][bf16] = b.g.stages;
        }
    for (int te = 0; te < 2; te++) every_tensor(&b, te);
    exchanged(&b);
    configs(&b);
    faulty_ops(&b);
    golden_close(&b.g);
    expect_cleanup(b.folder);
    return expect_done();
}
