/* test_ltx2_mutants.c - do the goldens of LTX-2's transformer notice? As test_sana_mutants.c: every tensor of 2.0 and of 2.3
 * perturbed by 10 % of its rms, tensors and their rows exchanged, configs and passes changed (f32), and ops with one rounding or
 * step wrong (bf16, blocks fed with the reference's input). Each fault must raise some stage above its limit and at least
 * tenfold.
 *
 * Easy to get wrong: the norms of text attention's q and k may be exchanged (their weights only meet as a product). */
#include "fault_steps.h"
#include "golden_bench.h"
#include "golden_ltx2_dit.h"

enum { OLDER = CASE_20, NEWER = CASE_23 }; /* what faults of the checkpoints are tried in */
_Static_assert((int)LTX2_CASE_COUNT <= (int)BENCH_RUNS, "a run for each case");

static void take(Bench *b, int run) {
    const Ltx2Case *c = &LTX2_CASES[run];
    b->run = run, b->name = c->name;
    snprintf(b->clean, sizeof b->clean, "%s/clean%d", b->folder, c->newer);
    snprintf(b->model, sizeof b->model, "%s/model%d", b->folder, c->newer);
}

static Status measure(Bench *b, const char *model, bool bf16) {
    return golden_ltx2_dit(&b->g, model, bf16 ? BF16 : F32, &LTX2_CASES[b->run]);
}

/* --- the checkpoint --- */

static void rows(Bench *b, int run, const char *tensor, int64_t i, int64_t j, int64_t n) {
    take(b, run);
    bench_rows(b, tensor, i, j, n);
}

static void exchanged(Bench *b) {
#define L "transformer_blocks.0."
#define R "transformer_blocks.1."
    static const char *const SWAPS[][2] = {
        {L "attn1.to_q.weight", L "attn1.to_k.weight"},         {L "attn1.to_k.weight", L "attn1.to_v.weight"},
        {L "attn1.to_v.weight", L "attn1.to_out.0.weight"},     {L "attn1.norm_q.weight", L "attn1.norm_k.weight"},
        {L "attn2.to_q.weight", L "attn2.to_k.weight"},         {L "attn2.to_k.weight", L "attn2.to_v.weight"},
        {L "attn1.to_q.weight", L "attn2.to_q.weight"},         {L "audio_attn1.to_q.weight", L "audio_attn2.to_q.weight"},
        {L "audio_to_video_attn.to_k.weight", L "audio_to_video_attn.to_v.weight"},
        {L "video_to_audio_attn.to_k.weight", L "video_to_audio_attn.to_v.weight"},
        {L "audio_to_video_attn.norm_q.weight", L "video_to_audio_attn.norm_q.weight"},
        {L "audio_to_video_attn.norm_k.weight", L "video_to_audio_attn.norm_k.weight"},
        {L "scale_shift_table", R "scale_shift_table"},
        {L "video_a2v_cross_attn_scale_shift_table", R "video_a2v_cross_attn_scale_shift_table"},
        {"av_cross_attn_video_a2v_gate.linear.weight", L "attn1.to_q.weight"},
    };
    take(b, OLDER);
    bench_swaps(b, SWAPS, sizeof SWAPS / sizeof *SWAPS);
    for (int64_t i = 0; i < 9; i++) /* shift, scale, gate: self attention, feed-forward, text */
        for (int64_t j = i + 1; j < 9; j++) {
            rows(b, NEWER, L "scale_shift_table", i, j, 1);
            rows(b, NEWER, R "audio_scale_shift_table", i, j, 1);
            rows(b, NEWER, "time_embed.linear.weight", 40 * i, 40 * j, 40);
        }
    for (int64_t i = 0; i < 5; i++) /* scale, shift, twice, gate: between the streams */
        for (int64_t j = i + 1; j < 5; j++) {
            rows(b, OLDER, L "video_a2v_cross_attn_scale_shift_table", i, j, 1);
            rows(b, OLDER, R "audio_a2v_cross_attn_scale_shift_table", i, j, 1);
            if (j < 4) rows(b, OLDER, "av_cross_attn_video_scale_shift.linear.weight", 40 * i, 40 * j, 40);
        }
    rows(b, NEWER, L "prompt_scale_shift_table", 0, 1, 1);
    rows(b, NEWER, "audio_prompt_adaln.linear.weight", 0, 20, 20);
    rows(b, OLDER, "scale_shift_table", 0, 1, 1);
    rows(b, OLDER, "audio_scale_shift_table", 0, 1, 1);
    rows(b, OLDER, L "attn1.norm_q.weight", 0, 20, 20);   /* a norm of heads, not of rows */
    rows(b, NEWER, R "attn1.to_gate_logits.weight", 0, 1, 1); /* gates of other heads */
    rows(b, NEWER, R "audio_to_video_attn.to_gate_logits.bias", 0, 1, 1);
#undef L
#undef R
}

/* --- configs and passes --- */

static void configs(Bench *b) {
    static const struct { int run; const char *key, *value, *refusal; } FAULTS[] = {
        {OLDER, "norm_eps", "0.01", NULL},
        {OLDER, "rope_theta", "9000.0", NULL},
        {OLDER, "pos_embed_max_pos", "21", NULL},
        {OLDER, "base_height", "2049", NULL},
        {OLDER, "base_width", "2049", NULL},
        {OLDER, "causal_offset", "0", NULL},
        {OLDER, "vae_scale_factors", "[4, 32, 32]", NULL},
        {OLDER, "vae_scale_factors", "[8, 16, 32]", NULL},
        {OLDER, "vae_scale_factors", "[8, 32, 16]", NULL},
        {OLDER, "audio_pos_embed_max_pos", "31", NULL},
        {OLDER, "audio_scale_factor", "5", NULL},
        {OLDER, "audio_sampling_rate", "16001", NULL},
        {OLDER, "audio_hop_length", "161", NULL},
        {OLDER, "cross_attn_timestep_scale_multiplier", "1000", NULL},
        {OLDER, "timestep_scale_multiplier", "500", NULL},
        {OLDER, "caption_channels", "25", "caption_projection"},
        {OLDER, "num_layers", "1", "transformer_blocks.1"},
        {OLDER, "in_channels", "7", "proj_in"},
        {OLDER, "audio_out_channels", "7", "audio_proj_out"},
        {OLDER, "gated_attn", "true", "to_gate_logits"},
        {OLDER, "use_prompt_embeddings", "false", "caption_projection"},
        {NEWER, "audio_gated_attn", "false", "audio_attn1.to_gate_logits"},
        {NEWER, "use_prompt_embeddings", "true", "caption_projection"},
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        take(b, FAULTS[i].run);
        bench_config(b, FAULTS[i].key, FAULTS[i].value, FAULTS[i].refusal);
    }
    static const char *const ONE_HEAD[][2] = {{"num_attention_heads", "1"}, {"attention_head_dim", "40"},
                                              {"audio_num_attention_heads", "1"}, {"audio_attention_head_dim", "20"}};
    take(b, OLDER);
    for (int i = 0; i < 4; i++) mutate_json(b->model, b->config, ONE_HEAD[i][0], ONE_HEAD[i][1]);
    bench_configured(b, "one head", NULL);
    take(b, CASE_23_STG);
    bench_config(b, "perturbed_attn", "false", NULL);
}

static void passes(Bench *b) {
    static const struct { int name; const char *what; Ltx2Case c; } FAULTS[] = {
        {CASE_23_GIVEN, "the tokens' own times between the streams", {"23given", .newer = true, .given = true}},
        {CASE_20_GIVEN, "the other stream's sigma between the streams", {"20given", .given = true, .cross = true}},
        {CASE_23_GIVEN, "one time for all tokens", {"23given", .newer = true, .cross = true}},
        {CASE_23_STG, "nothing perturbed", {"23stg", .newer = true, .only = true}},
        {CASE_23_STG, "isolated instead of perturbed", {"23stg", .newer = true, .only = true, .apart = true}},
        {CASE_23_APART, "not isolated", {"23apart", .newer = true, .only = true}},
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        take(b, FAULTS[i].name);
        bench_clear(b);
        expect_at(golden_ltx2_dit(&b->g, b->clean, F32, &FAULTS[i].c) == OK, FAULTS[i].what, b->g.error.text, 0);
        bench_judge(b, false, FAULTS[i].what);
    }
}

/* --- ops: x [rows, columns] of BF16 unless said --- */

static Status qk_twice(Exec *x, const void *args) {
    RmsNorm a = *(const RmsNorm *)args;
    a.form = RMS_TWICE;
    return fault_call(x, OP_rmsnorm, &a);
}
static Status rms_eps(Exec *x, const void *args) {
    RmsNorm a = *(const RmsNorm *)args;
    a.eps = 1e-1f;
    return fault_call(x, OP_rmsnorm, &a);
}
static Status qk_each_head(Exec *x, const void *args) {
    NormRopeSplit a = *(const NormRopeSplit *)args;
    const Tensor in[] = {a.q, a.k}, out[] = {a.yq, a.yk}, w[] = {a.wq, a.wk};
    for (int i = 0; i < 2 && in[i].rank; i++) {
        int64_t e = in[i].shape[1] / a.heads;
        for (int64_t h = 0; h < a.heads; h++) {
            const RmsNorm n = {.y = tensor_slice(out[i], 1, h * e, e), .x = tensor_slice(in[i], 1, h * e, e),
                               .w = tensor_slice(w[i], 0, h * e, e), .eps = a.eps, .form = RMS_ONCE};
            TRY(fault_call(x, OP_rmsnorm, &n));
        }
        Tensor y = tensor_split(out[i], e);
        if (!a.cos.rank) continue;
        const RopeSplit r = {y, y, tensor_split(a.cos, e / 2), tensor_split(a.sin, e / 2), a.form};
        TRY(fault_call(x, OP_rope_split, &r));
    }
    return OK;
}
static Status qk_not_rotated(Exec *x, const void *args) {
    NormRopeSplit a = *(const NormRopeSplit *)args;
    a.cos = a.sin = (Tensor){0};
    return fault_call(x, OP_norm_rope_split, &a);
}

/* Of rope_split. */
enum { BACKWARDS = 1, NEIGHBOURS = 2, ONE_TABLE = 4, COSINE_ROUNDED = 8 };
static Status turn(const RopeSplit *a, int how) {
    int64_t half = a->cos.shape[2], heads = a->x.shape[1];
    for (int64_t t = 0; t < a->x.shape[0]; t++)
        for (int64_t h = 0; h < heads; h++) {
            float y[64];
            for (int64_t i = 0; i < half; i++) {
                int64_t p = how & NEIGHBOURS ? 2 * i : i, q = how & NEIGHBOURS ? p + 1 : i + half;
                int64_t from = t * a->cos.stride[0] + (how & ONE_TABLE ? 0 : h) * a->cos.stride[1] + i;
                float c = ((const float *)a->cos.data)[from], s = ((const float *)a->sin.data)[from];
                float x0 = fault_get(a->x, t, h * a->x.stride[1] + p), x1 = fault_get(a->x, t, h * a->x.stride[1] + q);
                if (how & BACKWARDS) s = -s;
                float p0 = x0 * c, p1 = x1 * c;
                if (how & COSINE_ROUNDED) p0 = bf16_round(p0), p1 = bf16_round(p1);
                y[p] = fmaf(-s, x1, p0), y[q] = fmaf(s, x0, p1);
            }
            for (int64_t j = 0; j < 2 * half; j++) fault_set(a->y, t, h * a->y.stride[1] + j, y[j]);
        }
    return OK;
}
#define TURN(name, how) static Status name(Exec *x, const void *a) { return (void)x, turn(a, how); }
TURN(turn_right, 0)
TURN(turn_back, BACKWARDS)
TURN(turn_pairs, NEIGHBOURS)
TURN(turn_alike, ONE_TABLE)
TURN(turn_rounded, COSINE_ROUNDED)

/* Of modulate. */
enum { ONE_KEPT = 1, PRODUCT_KEPT = 2, NO_ONE = 4, EXCHANGED = 8 };
static Status modulate(const Modulate *a, int how) {
    for (int64_t t = 0; t < a->x.shape[0]; t++)
        for (int64_t j = 0; j < a->x.shape[1]; j++) {
            float scale = fault_get(how & EXCHANGED ? a->shift : a->scale, t, j);
            float shift = fault_get(how & EXCHANGED ? a->scale : a->shift, t, j), one = scale + (how & NO_ONE ? 0 : 1);
            float v = fault_get(a->x, t, j) * (how & ONE_KEPT ? one : bf16_round(one));
            fault_set(a->y, t, j, (how & PRODUCT_KEPT ? v : bf16_round(v)) + shift);
        }
    return OK;
}
#define MODULATE(name, how) static Status name(Exec *x, const void *a) { return (void)x, modulate(a, how); }
MODULATE(modulate_right, 0)
MODULATE(one_kept, ONE_KEPT)
MODULATE(product_kept, PRODUCT_KEPT)
MODULATE(no_one, NO_ONE)
MODULATE(exchanged_mods, EXCHANGED)

/* The norm's rounding left out: straight to the modulation in f32. */
static Status norm_kept(Exec *x, const void *args) {
    const ResidualRmsModulate *a = args;
    const ResidualGate gate = {a->h, a->residual, a->x, a->gate};
    TRY(fault_call(x, OP_residual_gate, &gate));
    for (int second = a->y2.rank ? 1 : 0; second >= 0; second--) {
        Tensor y = second ? a->y2 : a->y, scale = second ? a->scale2 : a->scale, shift = second ? a->shift2 : a->shift;
        int64_t d = y.shape[1];
        for (int64_t t = 0; t < y.shape[0]; t++) {
            double sum = 0;
            for (int64_t j = 0; j < d; j++) sum += (double)fault_get(a->h, t, j) * (double)fault_get(a->h, t, j);
            float rstd = (float)(1 / sqrt(sum / (double)d + (double)a->eps));
            for (int64_t j = 0; j < d; j++) {
                float v = fault_get(a->h, t, j) * rstd;
                if (scale.rank) v = bf16_round(v * bf16_round(1 + fault_get(scale, 0, j))) + fault_get(shift, 0, j);
                fault_set(y, t, j, v);
            }
        }
    }
    return OK;
}
/* The two uses between the streams exchanged. */
static Status other_way(Exec *x, const void *args) {
    ResidualRmsModulate a = *(const ResidualRmsModulate *)args;
    Tensor scale = a.scale, shift = a.shift;
    if (a.y2.rank) a.scale = a.scale2, a.shift = a.shift2, a.scale2 = scale, a.shift2 = shift;
    return fault_call(x, OP_residual_rms_modulate, &a);
}

static Status gate_kept(Exec *x, const void *args) {
    const ResidualGate *a = args;
    (void)x;
    for (int64_t t = 0; t < a->x.shape[0]; t++)
        for (int64_t j = 0; j < a->x.shape[1]; j++) {
            float v = fault_get(a->x, t, j) * (a->gate.rank ? fault_get(a->gate, 0, j) : 1);
            fault_set(a->y, t, j, fault_get(a->residual, t, j) + v);
        }
    return OK;
}

/* Of head_gate. */
enum { NOT_TWICE = 1, SIGMOID_KEPT = 2, NEXT_HEAD = 4 };
static Status gates(const HeadGate *a, int how) {
    int64_t heads = a->x.shape[1];
    for (int64_t t = 0; t < a->x.shape[0]; t++)
        for (int64_t h = 0; h < heads; h++) {
            float l = fault_get(a->logits, t, how & NEXT_HEAD ? (h + 1) % heads : h), s = 1 / (1 + expf(-l));
            float gate = (how & NOT_TWICE ? 1.0f : 2.0f) * (how & SIGMOID_KEPT ? s : bf16_round(s));
            for (int64_t j = 0; j < a->x.shape[2]; j++)
                fault_set(a->y, t, h * a->y.stride[1] + j, fault_get(a->x, t, h * a->x.stride[1] + j) * gate);
        }
    return OK;
}
#define GATES(name, how) static Status name(Exec *x, const void *a) { return (void)x, gates(a, how); }
GATES(gates_right, 0)
GATES(not_twice, NOT_TWICE)
GATES(sigmoid_kept, SIGMOID_KEPT)
GATES(next_head, NEXT_HEAD)

static Status last_key(Exec *x, const void *args) {
    Attention a = *(const Attention *)args;
    a.k = tensor_slice(a.k, 0, 0, a.k.shape[0] - 1), a.v = tensor_slice(a.v, 0, 0, a.v.shape[0] - 1);
    if (a.bias.rank) a.bias = tensor_slice(a.bias, 0, 0, a.bias.shape[0] - 1);
    return fault_call(x, OP_attention, &a);
}
static Status audio_scale(Exec *x, const void *args) { /* of the video's heads everywhere */
    Attention a = *(const Attention *)args;
    a.scale = (float)(1 / sqrt(20.0));
    return fault_call(x, OP_attention, &a);
}
static Status causal(Exec *x, const void *args) {
    Attention a = *(const Attention *)args;
    if (a.q.shape[0] == a.k.shape[0]) a.mask = MASK_CAUSAL;
    return fault_call(x, OP_attention, &a);
}
static Status gelu_by(Exec *x, const void *args, int kind) {
    const Linear *a = args;
    TRY(fault_call(x, OP_linear, a));
    return fault_call(x, OP_act, &(Act){.y = a->y, .x = a->y, .kind = kind});
}
static Status gelu_erf(Exec *x, const void *args) { return gelu_by(x, args, ACT_GELU_ERF); }
static Status gelu_none(Exec *x, const void *args) { return gelu_by(x, args, ACT_NONE); }
static Status bias_after(Exec *x, const void *args) {
    Linear a = *(const Linear *)args;
    a.bias_mode = BIAS_AFTER;
    return fault_call(x, OP_linear, &a);
}
static Status many_bias_after(Exec *x, const void *args) {
    LinearMany a = *(const LinearMany *)args;
    a.bias_mode = BIAS_AFTER;
    return fault_call(x, OP_linear_many, &a);
}
static Status mean_kept(Exec *x, const void *args) { /* an RMS norm at the end too */
    const LnModulate *a = args;
    const RmsModulate r = {.y = a->y, .x = a->x, .scale = a->scale, .shift = a->shift, .eps = a->eps};
    return fault_call(x, OP_rms_modulate, &r);
}
static Status no_silu(Exec *x, const void *args) {
    Act a = *(const Act *)args;
    if (a.kind == ACT_SILU) a.kind = ACT_NONE;
    return fault_call(x, OP_act, &a);
}
static Status sine_for_cosine(Exec *x, const void *args) {
    const CosSin *a = args;
    const CosSin turned = {.cos = a->sin, .sin = a->cos, .x = a->x};
    return fault_call(x, OP_cos_sin, &turned);
}

static void faulty_ops(Bench *b) {
#define F(name, what, op, run) {name, what, {OP_##op, "fault", run, NULL, NULL}}
    static const struct { int name; const char *what; Impl impl; } FAULTS[] = {
        F(CASE_20, "QK norm rounds twice", rmsnorm, qk_twice),
        F(CASE_20, "norms' eps 1e-1", rmsnorm, rms_eps),
        F(CASE_20, "QK norm of each head", norm_rope_split, qk_each_head),
        F(CASE_20, "no RoPE", norm_rope_split, qk_not_rotated),
        F(CASE_20, "RoPE backwards", rope_split, turn_back),
        F(CASE_20, "RoPE of neighbours", rope_split, turn_pairs),
        F(CASE_20, "RoPE with the first head's angles", rope_split, turn_alike),
        F(CASE_20, "x cos rounded to bf16", rope_split, turn_rounded),
        F(CASE_20, "1 + scale not rounded", modulate, one_kept),
        F(CASE_20, "norm (1 + scale) not rounded", modulate, product_kept),
        F(CASE_20, "scale without 1", modulate, no_one),
        F(CASE_20, "shift and scale swapped", modulate, exchanged_mods),
        F(CASE_23, "kv of the text: norm (1 + scale) not rounded", modulate, product_kept),
        F(CASE_20, "norm not rounded", residual_rms_modulate, norm_kept),
        F(CASE_20, "a2v and v2a exchanged", residual_rms_modulate, other_way),
        F(CASE_20, "gate x not rounded", residual_gate, gate_kept),
        F(CASE_20, "no gates", residual_gate, fault_no_gate),
        F(CASE_23, "gates of heads not doubled", head_gate, not_twice),
        F(CASE_23, "sigmoid not rounded", head_gate, sigmoid_kept),
        F(CASE_23, "the next head's gate", head_gate, next_head),
        F(CASE_23_STG, "perturbed: the next head's gate", head_gate, next_head),
        F(CASE_20, "last key not seen", attention, last_key),
        F(CASE_20, "one scale of scores for both streams", attention, audio_scale),
        F(CASE_20, "causal", attention, causal),
        F(CASE_20, "GELU with erf", linear_gelu, gelu_erf),
        F(CASE_23, "no GELU", linear_gelu, gelu_none),
        F(CASE_20, "biases behind a rounding", linear, bias_after),
        F(CASE_20, "biases of q, k, v behind a rounding", linear_many, many_bias_after),
        F(CASE_20, "last norm: shift and scale swapped", ln_modulate, fault_shift_for_scale),
        F(CASE_20, "last norm keeps the mean", ln_modulate, mean_kept),
        F(CASE_20, "sine before cosine", time_embed, fault_sines_first),
        F(CASE_20, "no SiLU", act, no_silu),
        F(CASE_20, "tables: sine for cosine", cos_sin, sine_for_cosine),
    };
#undef F
    static const Impl RIGHT[] = { /* the stand-ins without a fault must be the ops: else their faults prove nothing */
        {OP_rope_split, "right", turn_right, NULL, NULL}, {OP_modulate, "right", modulate_right, NULL, NULL},
        {OP_head_gate, "right", gates_right, NULL, NULL}};
    take(b, NEWER);
    bench_right(b, RIGHT, sizeof RIGHT / sizeof *RIGHT);
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        take(b, FAULTS[i].name);
        bench_fault(b, true, FAULTS[i].what, &FAULTS[i].impl);
    }
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    if (bench_open(&b) != OK) return printf("%s\n", b.g.error.text), 1;
    b.file = LTX2_FILE, b.measure = measure;
    for (int i = 0; i < 2; i++) {
        take(&b, i ? NEWER : OLDER);
        ltx2_write(b.clean, i);
        mutate_copy_folder(b.clean, b.model);
    }
    for (int i = 0; i < LTX2_CASE_COUNT; i++) {
        take(&b, i);
        for (int bf16 = 0; bf16 <= LTX2_CASES[i].half; bf16++) bench_keep(&b, bf16);
    }
    take(&b, OLDER);
    expect(bench_tensors(&b, NULL) == 54 + 2 * 72);
    take(&b, NEWER);
    expect(bench_tensors(&b, NULL) == 58 + 2 * 86);
    exchanged(&b);
    configs(&b);
    passes(&b);
    faulty_ops(&b);
    return bench_close(&b);
}
