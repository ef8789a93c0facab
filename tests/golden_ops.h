/* golden_ops.h - runs each op on the inputs of tests/golden/ops/NAME.safetensors (bf16, made by scripts/dump_ops.py with
 * PyTorch's own expressions and CUDA's formulas) and counts output elements that differ in bits from the reference.
 *
 * Tensors are named like the fields of the args structs. Shared by test_golden_ops.c and test_mutants.c, which puts
 * faulty variants in front of the table. Allowance per file: 0 elements for exact ops; 1e-3 of the elements (at
 * least one), each by one ulp, where an f32 rsqrt, exp, cos or an order of summation stands before the rounding.
 * Easy to get wrong: an element off by more than one ulp never passes, and counts as a whole file of errors. */
#ifndef GOLDEN_OPS_H
#define GOLDEN_OPS_H

#include "golden.h"

typedef struct GoldenOp {
    const char *name;
    OpId op;
    bool rows;              /* the 1e-3 allowance */
    int32_t kind;           /* of act and rms forms */
} GoldenOp;

static const GoldenOp GOLDEN_OPS[] = {
    {"act_silu", OP_act, false, ACT_SILU},
    {"act_gelu_tanh", OP_act, false, ACT_GELU_TANH},
    {"act_gelu_erf", OP_act, false, ACT_GELU_ERF},
    {"act_gelu_new", OP_act, false, ACT_GELU_NEW},
    {"act_quick_gelu", OP_act, false, ACT_QUICK_GELU},
    {"act_mul_gelu_new", OP_act_mul, false, ACT_GELU_NEW},
    {"act_mul_silu", OP_act_mul, false, ACT_SILU},
    {"add", OP_add, false, 0},
    {"add_row", OP_add, false, 0},
    {"residual_gate", OP_residual_gate, false, 0},
    {"residual_gate_full", OP_residual_gate, false, 0},
    {"layernorm_72", OP_layernorm, true, 0},
    {"layernorm_516", OP_layernorm, true, 0},
    {"ln_modulate_72", OP_ln_modulate, true, 0},
    {"ln_modulate_516", OP_ln_modulate, true, 0},
    {"rmsnorm_once_72", OP_rmsnorm, true, RMS_ONCE},
    {"rmsnorm_once_516", OP_rmsnorm, true, RMS_ONCE},
    {"rmsnorm_twice_72", OP_rmsnorm, true, RMS_TWICE},
    {"rmsnorm_twice_516", OP_rmsnorm, true, RMS_TWICE},
    {"qk_norm_rope_head", OP_qk_norm_rope_head, true, 0},
    {"softmax", OP_attention_eager, true, 0},
    {"softmax_causal", OP_attention_eager, true, 0},
    {"time_embed", OP_time_embed, true, 0},
    {"cfg_combine", OP_cfg_combine, false, 0},
    {"euler_step", OP_euler_step, false, 0},
    {"affine", OP_affine, false, 0},
    {"to_rgb8", OP_to_rgb8, false, 0},
    {"pack", OP_pack, false, 0},
    {"unpack", OP_unpack, false, 0},
    {"rel_bias", OP_rel_bias, false, 0},
    {"groupnorm", OP_groupnorm, true, 0},
    {"groupnorm_silu", OP_groupnorm_silu, true, 0},
};
enum { GOLDEN_OP_COUNT = sizeof GOLDEN_OPS / sizeof *GOLDEN_OPS };

typedef struct GoldenCount { int64_t elements, differ, far; } GoldenCount; /* far: by more than one ulp */

/* Order of bf16 bit patterns as integers: neighbours differ by 1, -0 and +0 by 0. */
static inline int32_t golden_ordinal(uint16_t b) { return b & 0x8000 ? -(int32_t)(b & 0x7fff) : (int32_t)b; }

static inline void golden_count(const Golden *g, Tensor have, const char *name, int64_t item, GoldenCount *c) {
    Tensor want = golden_find(g, name);
    int64_t n = tensor_numel(have);
    if (!want.rank || want.dtype != have.dtype || (item + 1) * n > tensor_numel(want)) {
        c->far += n ? n : 1;
        return;
    }
    for (int64_t i = 0; i < n; i++, c->elements++) {
        size_t size = dtype_size(have.dtype);
        const char *a = (char *)have.data + (size_t)i * size, *b = (char *)want.data + (size_t)(item * n + i) * size;
        if (!memcmp(a, b, size)) continue;
        uint16_t x = 0, y = 0;
        memcpy(&x, a, size), memcpy(&y, b, size);
        bool nan = have.dtype == BF16 && (x & 0x7fff) > 0x7f80 && (y & 0x7fff) > 0x7f80;
        c->differ += !nan;
        c->far += !nan && (have.dtype != BF16 || abs(golden_ordinal(x) - golden_ordinal(y)) > 1);
    }
}

static inline const char *golden_text(const Golden *g, const char *key) {
    const char *text = "";
    Error e = {0};
    json_string(g->file.metadata, key, &text, "metadata", &e);
    return text;
}

static inline double golden_meta(const Golden *g, const char *key) {
    const char *text = golden_text(g, key);
    return *text ? strtod(text, NULL) : (double)NAN;
}

static inline Tensor golden_like(Golden *g, Tensor t) { return exec_tensor(&g->x, t.dtype, t.rank, t.shape); }

static inline Status golden_op_run(Golden *g, const GoldenOp *o, GoldenCount *c) {
#define T(name) golden_find(g, name)
    Exec *x = &g->x;
    Tensor in = T("x"), a = T("a"), y = in.rank ? golden_like(g, in) : a.rank ? golden_like(g, a) : (Tensor){0};
    float eps = (float)golden_meta(g, "eps");
    switch (o->op) {
    case OP_act: TRY(op_act(x, &(Act){.y = y, .x = in, .kind = o->kind})); break;
    case OP_act_mul: TRY(op_act_mul(x, &(ActMul){y, a, T("b"), o->kind})); break;
    case OP_add: TRY(op_add(x, &(Add){y, a, T("b")})); break;
    case OP_residual_gate: TRY(op_residual_gate(x, &(ResidualGate){y, T("residual"), in, T("gate")})); break;
    case OP_layernorm: TRY(op_layernorm(x, &(LayerNorm){y, in, T("w"), T("b"), eps})); break;
    case OP_ln_modulate: TRY(op_ln_modulate(x, &(LnModulate){y, in, T("scale"), T("shift"), eps})); break;
    case OP_rmsnorm: TRY(op_rmsnorm(x, &(RmsNorm){y, in, T("w"), eps, o->kind})); break;
    case OP_affine:
        TRY(op_affine(x, &(Affine){y, in, (float)golden_meta(g, "mul"), (float)golden_meta(g, "add")}));
        break;
    case OP_groupnorm:
    case OP_groupnorm_silu:
        TRY(op_run(x, o->op, &(GroupNorm){y, in, T("w"), T("b"), T("bias"), eps, (int32_t)golden_meta(g, "groups")}));
        break;
    case OP_pack: {
        y = exec_new(x, in.shape[1] / 2 * (in.shape[2] / 2), 4 * in.shape[0]);
        TRY(op_pack(x, &(Pack){y, in}));
        break;
    }
    case OP_unpack: {
        Tensor want = T("y");
        y = golden_like(g, want);
        TRY(op_unpack(x, &(Unpack){y, in}));
        break;
    }
    case OP_to_rgb8: {
        y = exec_tensor(x, U8, in.rank, in.shape);
        TRY(op_to_rgb8(x, &(ToRgb8){y, in}));
        break;
    }
    case OP_qk_norm_rope_head: {
        Tensor q = T("q"), k = T("k"), yq = golden_like(g, q), yk = golden_like(g, k);
        TRY(op_qk_norm_rope_head(x, &(QkNormRopeHead){yq, yk, q, k, T("wq"), T("wk"), T("cos"), T("sin"), eps,
                                                      ROPE_INTERLEAVED, RMS_ONCE}));
        golden_count(g, yq, "yq", 0, c);
        golden_count(g, yk, "yk", 0, c);
        return OK;
    }
    case OP_attention_eager: { /* k = v = identity: scores are q, the result is the softmax rows */
        Tensor q = T("q"), k = T("k"), v = T("v"), bias = T("bias");
        int64_t n = q.shape[0];
        q = tensor_view(q, n, 1, n), k = tensor_view(k, n, 1, n), v = tensor_view(v, n, 1, n);
        y = exec_new(x, n, 1, n);
        if (bias.rank) bias = tensor_view(bias, 1, n, n);
        int32_t mask = strcmp(golden_text(g, "mask"), "causal") ? MASK_NONE : MASK_CAUSAL;
        TRY(op_attention_eager(x, &(AttentionEager){.o = y, .q = q, .k = k, .v = v, .bias = bias,
                                                     .scale = (float)golden_meta(g, "scale"), .mask = mask}));
        golden_count(g, y, "o", 0, c);
        return OK;
    }
    case OP_time_embed: {
        Tensor t = T("t");
        y = exec_new(x, 1, 256);
        for (int64_t i = 0; i < t.shape[0]; i++) {
            TRY(op_time_embed(x, &(TimeEmbed){y, tensor_slice(t, 0, i, 1), (float)golden_meta(g, "max_period")}));
            golden_count(g, y, "y", i, c);
        }
        return OK;
    }
    case OP_cfg_combine: {
        Tensor neg = T("neg"), scale = T("scale");
        y = golden_like(g, neg);
        for (int64_t i = 0; i < scale.shape[0]; i++) {
            TRY(op_cfg_combine(x, &(CfgCombine){y, T("pos"), neg, tensor_slice(scale, 0, i, 1)}));
            golden_count(g, y, "y", i, c);
        }
        return OK;
    }
    case OP_euler_step: {
        Tensor dt = T("dt");
        for (int64_t i = 0; i < dt.shape[0]; i++) {
            TRY(op_euler_step(x, &(EulerStep){y, in, T("v"), tensor_slice(dt, 0, i, 1)}));
            golden_count(g, y, "y", i, c);
        }
        return OK;
    }
    case OP_rel_bias: { /* the file holds some rows of queries */
        Tensor rows = T("rows"), table = T("table");
        int64_t n = (int64_t)golden_meta(g, "positions"), h = table.shape[1], k = 0;
        Weight w = {.w = table, .round = BF16, .name = "table"};
        Tensor all = exec_new(x, h, n, n), some = exec_new(x, h, rows.shape[0], n);
        TRY(op_rel_bias(x, &(RelBias){all, &w, (int32_t)golden_meta(g, "max_distance")}));
        for (int64_t i = 0; i < h; i++)
            for (int64_t r = 0; r < rows.shape[0]; r++, k++)
                memcpy((char *)some.data + (size_t)(k * n) * 2,
                       (char *)all.data + (size_t)((i * n + (int64_t)golden_at(rows.data, I32, r)) * n) * 2, (size_t)n * 2);
        golden_count(g, some, "y", 0, c);
        return OK;
    }
    default: return fail(x->error, ERR_MODEL, "%s: no golden runner", o->name);
    }
    golden_count(g, y, "y", 0, c);
    return OK;
#undef T
}

/* Differing elements of one file over its allowance (0 when none differ and none may). 1 is the limit. */
static inline Status golden_op(Golden *g, const GoldenOp *o, GoldenCount *c, double *metric) {
    char path[256];
    g->error = (Error){0};
    *c = (GoldenCount){0};
    snprintf(path, sizeof path, GOLDEN_DIR "/ops/%s.safetensors", o->name);
    safetensors_close(&g->file);
    TRY(safetensors_open(path, &g->file, &g->error));
    g->x.dtype = BF16;
    size_t mark = arena_mark(&g->work);
    Status s = golden_op_run(g, o, c);
    arena_reset(&g->work, mark);
    TRY(s);
    double room = o->rows ? fmax(1, 1e-3 * (double)c->elements) : 0;
    double bad = c->far ? (double)(c->elements + c->far) : (double)c->differ;
    *metric = bad == 0 ? 0 : room > 0 ? bad / room : 1 + bad;
    return OK;
}

#endif
