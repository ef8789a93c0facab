/* test_ltx2_connectors.c - LTX-2's text connectors of 2.0 and 2.3, drawn from a seed, against diffusers stage by stage (golden.h
 * says how a stage is judged, golden_bench.h what f32 may miss): two texts of different length as one batch, all slots and the
 * real rows alone; each text by itself; what the config refuses. Then whether these goldens notice faults (golden_bench.h).
 *
 * GOLDEN_VERBOSE=1 prints every stage and fault. Easy to get wrong: run from the repository root. */
#include "fault_steps.h"
#include "golden_bench.h"
#include "golden_ltx2_text.h"

static const char *const VERSIONS[] = {"2.0", "2.3"}, *const GOLDENS[] = {"ltx2text_20", "ltx2text_23"};

static Status measure(Bench *b, const char *folder, bool bf16) {
    return golden_connectors(&b->g, folder, b->name, bf16 ? BF16 : F32);
}

/* --- one text alone --- */

static Status alone(Bench *b, GoldenWeights *w, Ltx2Connectors *m) {
    Golden *g = &b->g;
    Gemma3States s[CONNECTORS_TEXTS];
    char name[60];
    snprintf(name, sizeof name, "%s_f32", b->name);
    TRY(golden_start(g, name, F32));
    TRY(ltx2_connectors_open(b->model, m, &g->error));
    TRY(weights_open(b->model, &w->files, &g->error));
    ltx2_connectors_bind(m, &w->bind);
    TRY(golden_bind(g, w, F32, NULL));
    g->x.tap = NULL;
    for (int i = 0; i < CONNECTORS_TEXTS; i++) {
        size_t mark = arena_mark(&g->work);
        Tensor context[LTX2_CONNECTORS_COUNT];
        for (int k = 0; k < LTX2_CONNECTORS_COUNT; k++) context[k] = exec_new(&g->x, CONNECTORS_SLOTS, m->one[k].width);
        connectors_states(g, m, s); /* anew: a run overwrites them */
        TRY(ltx2_connectors_run(m, &g->x, 1, CONNECTORS_SLOTS, &s[i], context));
        g->item = i;
        golden_result(g, "connectors.video", context[0]);
        golden_result(g, "connectors.audio", context[1]);
        g->item = 0;
        arena_reset(&g->work, mark);
    }
    return OK;
}

static void texts_alone(Bench *b) {
    GoldenWeights w = {.bind.prefix = ""};
    Ltx2Connectors m = {0};
    size_t mark = arena_mark(&b->g.work);
    b->g.stages = 0, b->g.worst = 0;
    expect_at(alone(b, &w, &m) == OK, "one text alone", b->g.error.text, 0);
    arena_reset(&b->g.work, mark);
    golden_unbind(&w);
    golden_stop(&b->g);
    expect(ltx2_connectors_width(&m, LTX2_CONNECTOR_AUDIO) == m.one[1].heads * m.one[1].head);
    expect(ltx2_connectors_registers(&m) == 8);
    ltx2_connectors_close(&m);
    expect(b->g.stages == 2 && b->g.worst <= BENCH_F32_LIMIT);
}

/* --- refusals --- */

static void configs(Bench *b) {
    static const struct { const char *key, *value, *refusal; } FAULTS[] = {
        {"connector_rope_base_seq_len", "32", NULL},
        {"rope_theta", "200.0", NULL},
        {"rope_type", "\"interleaved\"", "rope_type \"interleaved\""},
        {"rope_double_precision", "false", "rope_double_precision false"},
        {"rope_theta", "-1.0", "rope_theta"},
        {"video_connector_num_learnable_registers", "null", "video_connector_num_learnable_registers: null"},
        {"audio_connector_attention_head_dim", "3", "audio_connector_attention_head_dim: found 3"},
        {"video_connector_num_attention_heads", "5", "video connector: 5 heads"},
        {"audio_connector_num_layers", "0", "audio_connector_num_layers"},
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++)
        bench_config(b, FAULTS[i].key, FAULTS[i].value, FAULTS[i].refusal);
}

/* --- ops --- */

/* The stack's norms with one step otherwise. */
typedef enum StackFault { SUM_WIDE, RANGE_WIDE, MEAN_ROUNDED, ROUND_EACH, ALL_ROWS, ALL_LAYERS, UNSCALED } StackFault;

static float stack_get(const Tensor *t, int64_t i) {
    uint16_t h;
    memcpy(&h, (const char *)t->data + 2 * i, 2);
    return bf16_to_f32(h);
}

static Status range_fault(const void *args, StackFault how) {
    const StackRangeNorm *a = args;
    int64_t d = a->x.shape[1], layers = a->x.shape[2], count = a->x.shape[0] * d, from = how == ALL_ROWS ? 0 : a->first * d;
    float mean[8], range[8];
    for (int64_t l = 0; l < layers; l++) {
        double sum = 0;
        float low = INFINITY, high = -INFINITY;
        for (int64_t i = from; i < count; i++)
            for (int64_t k = how == ALL_LAYERS ? 0 : l; k <= (how == ALL_LAYERS ? layers - 1 : l); k++) {
                float v = stack_get(&a->x, i * layers + k);
                sum += (double)v / (how == ALL_LAYERS ? (double)layers : 1), low = fminf(low, v), high = fmaxf(high, v);
            }
        mean[l] = (how == SUM_WIDE ? (float)sum : bf16_round((float)sum)) / ((float)(count - from) + a->eps);
        if (how == MEAN_ROUNDED) mean[l] = bf16_round(mean[l]);
        range[l] = how == RANGE_WIDE ? high - low + a->eps : bf16_round(bf16_round(high - low) + a->eps);
    }
    for (int64_t i = 0; i < count * layers; i++) {
        float v = stack_get(&a->x, i) - mean[i % layers];
        if (how == ROUND_EACH) v = bf16_round(v);
        v /= range[i % layers];
        if (how == ROUND_EACH) v = bf16_round(v);
        if (how != UNSCALED) v *= a->scale;
        golden_put(a->y.data, BF16, i, i / layers < a->first * d ? 0 : (double)v);
    }
    return OK;
}
static Status sum_wide(Exec *x, const void *a) { return (void)x, range_fault(a, SUM_WIDE); }
static Status range_wide(Exec *x, const void *a) { return (void)x, range_fault(a, RANGE_WIDE); }
static Status mean_rounded(Exec *x, const void *a) { return (void)x, range_fault(a, MEAN_ROUNDED); }
static Status round_each(Exec *x, const void *a) { return (void)x, range_fault(a, ROUND_EACH); }
static Status all_rows(Exec *x, const void *a) { return (void)x, range_fault(a, ALL_ROWS); }
static Status all_layers(Exec *x, const void *a) { return (void)x, range_fault(a, ALL_LAYERS); }
static Status unscaled(Exec *x, const void *a) { return (void)x, range_fault(a, UNSCALED); }

/* In f32 with one rounding; over the layers; without the root. */
typedef enum RmsFault { RMS_WIDE, RMS_LAYERS, RMS_SQUARES } RmsFault;

static Status rms_fault(const void *args, RmsFault how) {
    const StackRmsNorm *a = args;
    int64_t tokens = a->x.shape[0], d = a->x.shape[1], layers = a->x.shape[2];
    bool across = how == RMS_LAYERS;
    int64_t outer = across ? d : layers, inner = across ? layers : d;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t o = 0; o < outer; o++) {
            double sum = 0;
#define AT(i) (t * d * layers + (across ? o * layers + (i) : (i) * layers + o))
            for (int64_t i = 0; i < inner; i++) {
                float v = stack_get(&a->x, AT(i));
                sum += how == RMS_SQUARES ? (double)bf16_round(v * v) : (double)v * (double)v;
            }
            double by = 1 / sqrt(sum / (double)inner + (double)a->eps);
            if (how == RMS_SQUARES) by = (double)bf16_round((float)by); /* the mean not rounded */
            for (int64_t i = 0; i < inner; i++)
                golden_put(a->y.data, BF16, AT(i), t < a->first ? 0 : (double)stack_get(&a->x, AT(i)) * by);
#undef AT
        }
    return OK;
}
static Status rms_wide(Exec *x, const void *a) { return (void)x, rms_fault(a, RMS_WIDE); }
static Status rms_layers(Exec *x, const void *a) { return (void)x, rms_fault(a, RMS_LAYERS); }
static Status rms_squares(Exec *x, const void *a) { return (void)x, rms_fault(a, RMS_SQUARES); }

/* Registers by their place behind the text; without them. */
static Status register_behind(Exec *x, const void *args) {
    Embed a = *(const Embed *)args;
    int32_t ids[CONNECTORS_SLOTS];
    for (int64_t i = 0; i < a.ids.shape[0]; i++) ids[i] = (int32_t)(i % a.table->w.shape[0]);
    a.ids.data = ids;
    return fault_call(x, OP_embed, &a);
}
static Status register_none(Exec *x, const void *args) {
    const Embed *a = args;
    (void)x;
    memset(a->y.data, 0, tensor_bytes(a->y));
    return OK;
}

/* One side of the op. */
typedef struct Side { Tensor y, x, w; } Side;

static Status rotate(Exec *x, const NormRopeSplit *a, Tensor y) {
    int64_t e = y.shape[1] / a->heads;
    return fault_call(x, OP_rope_split, &(RopeSplit){.y = tensor_split(y, e), .x = tensor_split(y, e),
                                                     .cos = tensor_split(a->cos, e / 2), .sin = tensor_split(a->sin, e / 2)});
}

static Status norm_by_head(Exec *x, const void *args) {
    const NormRopeSplit *a = args;
    const Side side[] = {{a->yq, a->q, a->wq}, {a->yk, a->k, a->wk}};
    for (int k = 0; k < 2; k++) {
        int64_t e = a->q.shape[1] / a->heads;
        for (int32_t h = 0; h < a->heads; h++)
            TRY(fault_call(x, OP_rmsnorm, &(RmsNorm){.y = tensor_slice(side[k].y, 1, h * e, e),
                                                     .x = tensor_slice(side[k].x, 1, h * e, e),
                                                     .w = tensor_slice(side[k].w, 0, h * e, e), .eps = a->eps,
                                                     .form = RMS_ONCE}));
        TRY(rotate(x, a, side[k].y));
    }
    return OK;
}
static Status norm_twice(Exec *x, const void *args) {
    const NormRopeSplit *a = args;
    const Side side[] = {{a->yq, a->q, a->wq}, {a->yk, a->k, a->wk}};
    for (int k = 0; k < 2; k++) {
        TRY(fault_call(x, OP_rmsnorm, &(RmsNorm){.y = side[k].y, .x = side[k].x, .w = side[k].w, .eps = a->eps,
                                                 .form = RMS_TWICE}));
        TRY(rotate(x, a, side[k].y));
    }
    return OK;
}

/* The rotation: of neighbours; all heads as the first; rounded between. */
typedef enum TurnFault { PAIRS, FIRST_HEAD, ROUNDED, BACKWARDS } TurnFault;

static void turn(const NormRopeSplit *a, Tensor y, TurnFault how) {
    int64_t e = y.shape[1] / a->heads, half = e / 2;
    const float *c = a->cos.data, *s = a->sin.data;
    for (int64_t t = 0; t < y.shape[0]; t++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < half; i++) {
                int64_t at = t * a->cos.stride[0] + (how == FIRST_HEAD ? 0 : h * half) + i;
                int64_t j0 = h * e + (how == PAIRS ? 2 * i : i), j1 = h * e + (how == PAIRS ? 2 * i + 1 : i + half);
                float x0 = fault_get(y, t, j0), x1 = fault_get(y, t, j1), sn = how == BACKWARDS ? -s[at] : s[at];
                float p0 = x0 * c[at], p1 = x1 * c[at], q0 = x1 * sn, q1 = x0 * sn;
                if (how == ROUNDED) p0 = bf16_round(p0), p1 = bf16_round(p1), q0 = bf16_round(q0), q1 = bf16_round(q1);
                fault_set(y, t, j0, p0 - q0);
                fault_set(y, t, j1, p1 + q1);
            }
}

static Status turn_fault(Exec *x, const void *args, TurnFault how) {
    const NormRopeSplit *a = args;
    const Side side[] = {{a->yq, a->q, a->wq}, {a->yk, a->k, a->wk}};
    for (int k = 0; k < 2; k++) {
        TRY(fault_call(x, OP_rmsnorm, &(RmsNorm){.y = side[k].y, .x = side[k].x, .w = side[k].w, .eps = a->eps,
                                                 .form = RMS_ONCE}));
        turn(a, side[k].y, how);
    }
    return OK;
}
static Status turn_pairs(Exec *x, const void *a) { return turn_fault(x, a, PAIRS); }
static Status turn_first(Exec *x, const void *a) { return turn_fault(x, a, FIRST_HEAD); }
static Status turn_rounded(Exec *x, const void *a) { return turn_fault(x, a, ROUNDED); }
static Status turn_back(Exec *x, const void *a) { return turn_fault(x, a, BACKWARDS); }

static Status causal(Exec *x, const void *args) {
    Attention a = *(const Attention *)args;
    a.bias = (Tensor){0}, a.mask = MASK_CAUSAL;
    return fault_call(x, OP_attention, &a);
}
static Status registers_masked(Exec *x, const void *args) { /* of a text of 3 tokens */
    Attention a = *(const Attention *)args;
    a.k = tensor_slice(a.k, 0, 0, 3), a.v = tensor_slice(a.v, 0, 0, 3), a.bias = (Tensor){0};
    return fault_call(x, OP_attention, &a);
}
static Status gate_once(Exec *x, const void *args) { /* without the factor of 2 */
    const HeadGate *a = args;
    TRY(fault_call(x, OP_head_gate, a));
    for (int64_t i = 0; i < a->y.shape[0]; i++)
        for (int64_t j = 0; j < a->y.shape[1] * a->y.shape[2]; j++) fault_set(a->y, i, j, fault_get(a->y, i, j) * 0.5f);
    return OK;
}
static Status gate_wide(Exec *x, const void *args) { /* its sigmoid not rounded */
    const HeadGate *a = args;
    (void)x;
    for (int64_t i = 0; i < a->y.shape[0]; i++)
        for (int64_t j = 0; j < a->y.shape[1] * a->y.shape[2]; j++) {
            float by = 2 / (1 + expf(-fault_get(a->logits, i, j / a->y.shape[2])));
            fault_set(a->y, i, j, fault_get(a->x, i, j) * by);
        }
    return OK;
}
static Status gate_next(Exec *x, const void *args) { /* of the head beside it */
    const HeadGate *a = args;
    int64_t heads = a->y.shape[1];
    for (int64_t h = 0; h < heads; h++) {
        HeadGate one = {.y = tensor_slice(a->y, 1, h, 1), .x = tensor_slice(a->x, 1, h, 1),
                        .logits = tensor_slice(a->logits, 1, (h + 1) % heads, 1)};
        TRY(fault_call(x, OP_head_gate, &one));
    }
    return OK;
}
static Status block_norm_eps(Exec *x, const void *args) {
    RmsNorm a = *(const RmsNorm *)args;
    a.eps = 1e-2f;
    return fault_call(x, OP_rmsnorm, &a);
}
static Status gelu_wide(Exec *x, const void *args) { /* the product not rounded before it */
    const Linear *a = args;
    int64_t n = a->y.shape[1], k = a->x.shape[1];
    (void)x;
    for (int64_t i = 0; i < a->y.shape[0]; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = (double)fault_get(a->w->bias, 0, j);
            for (int64_t c = 0; c < k; c++) {
                float w;
                memcpy(&w, (const char *)a->w->w.data + (j * k + c) * 4, 4);
                s += (double)fault_get(a->x, i, c) * (double)bf16_round(w);
            }
            fault_set(a->y, i, j, (float)(0.5 * s * (1 + tanh(0.7978845608028654 * (s + 0.044715 * s * s * s)))));
        }
    return OK;
}

#define F(what, op, run) {what, {OP_##op, "fault", run, NULL, NULL}}
static void faulty_ops(Bench *b) {
    static const BenchFault BOTH[] = {
        F("registers by their place behind the text", embed, register_behind),
        F("no registers", embed, register_none),
        F("QK norm of each head", norm_rope_split, norm_by_head),
        F("QK norm rounds twice", norm_rope_split, norm_twice),
        F("RoPE of neighbours", norm_rope_split, turn_pairs),
        F("RoPE of all heads as the first", norm_rope_split, turn_first),
        F("RoPE rounded between", norm_rope_split, turn_rounded),
        F("RoPE backwards", norm_rope_split, turn_back),
        F("causal", attention, causal),
        F("registers masked", attention, registers_masked),
        F("norms with eps 1e-2", rmsnorm, block_norm_eps),
        F("GELU of an unrounded product", linear_gelu, gelu_wide),
    };
    static const BenchFault FIRST[] = {
        F("sum of the mean not rounded", stack_range_norm, sum_wide),
        F("range not rounded", stack_range_norm, range_wide),
        F("mean rounded", stack_range_norm, mean_rounded),
        F("difference and quotient rounded", stack_range_norm, round_each),
        F("mean and range of padding too", stack_range_norm, all_rows),
        F("mean and range of all layers", stack_range_norm, all_layers),
        F("no scale of 8", stack_range_norm, unscaled),
    };
    static const BenchFault SECOND[] = {
        F("root mean square in one rounding", stack_rms_norm, rms_wide),
        F("root mean square over the layers", stack_rms_norm, rms_layers),
        F("mean square not rounded", stack_rms_norm, rms_squares),
        F("no scale by the widths", affine, fault_unscaled),
        F("gate without its factor of 2", head_gate, gate_once),
        F("gate's sigmoid not rounded", head_gate, gate_wide),
        F("gate of the head beside", head_gate, gate_next),
    };
    bench_faults(b, BOTH, sizeof BOTH / sizeof *BOTH);
    if (b->run) bench_faults(b, SECOND, sizeof SECOND / sizeof *SECOND);
    else bench_faults(b, FIRST, sizeof FIRST / sizeof *FIRST);
}
#undef F

static void version(Bench *b, int k) {
    b->run = k, b->name = GOLDENS[k];
    connectors_write(b->clean, VERSIONS[k]);
    mutate_copy_folder(b->clean, b->model);
    b->g.ops.row_bits = false;
    bench_clean(b, false, "real rows, f32");
    bench_clean(b, true, "real rows, bf16");
    texts_alone(b);
    b->g.ops.row_bits = true;
    bench_clean(b, false, "f32");
    bench_clean(b, true, "bf16");
    texts_alone(b);
    int blocks = 3, rest = k ? 6 : 3; /* registers, projections */
    expect(bench_tensors(b, NULL) == blocks * (k ? 16 : 14) + rest);
    static const char *const SWAPS[][2] = {
        {"video_connector.transformer_blocks.0.attn1.to_k.weight", "video_connector.transformer_blocks.0.attn1.to_v.weight"},
        {"audio_connector.transformer_blocks.0.attn1.norm_q.weight", "audio_connector.transformer_blocks.0.attn1.norm_k.weight"},
    };
    bench_swaps(b, &SWAPS[k], 1);
    configs(b);
    faulty_ops(b);
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    if (bench_open(&b) != OK) return printf("%s\n", b.g.error.text), 1;
    b.file = CONNECTORS_FILE, b.measure = measure, b.f32_limit = BENCH_F32_LIMIT;
    for (int k = 0; k < 2; k++) version(&b, k);
    return bench_close(&b);
}
