/* elementwise_cpu.c - the meaning of the ops of elementwise.h: widen a span, one plain loop per operation, round where
 * the contract writes r(...), narrow. Not tuned beyond loops that vectorise.
 *
 * Easy to get wrong: constants are f32 (PyTorch multiplies a bf16 tensor by a Python number in f32); a BF16 unary
 * function is a table lookup, never a formula. F32 activations are as exact as an f32 formula, but no GPU's bits. */
#include "kernels/exp_cpu.h"
#include "kernels/registry.h"
#include "kernels/rows.h"
#include "kernels/unary.h"

#include <math.h>

static const float SQRT_2_OVER_PI = 0.79788456080286535588f;
static const float SQRT_HALF = 0.70710678118654752440f;

/* --- activations --- */

static void lookup(float *v, int64_t n, const uint16_t *table) {
    for (int64_t j = 0; j < n; j++) {
        uint32_t bits;
        memcpy(&bits, &v[j], 4);
        v[j] = bf16_to_f32(table[bits >> 16]);
    }
}

/* 0.5x * (1 + tanh(k (x + 0.044715 x^3))), rounded after every operation as eager transformers does. */
static void gelu_new(const Exec *x, float *v, int64_t n, DType t) {
    float u[ROWS_SPAN];
    for (int64_t j = 0; j < n; j++) u[j] = t == BF16 ? v[j] : v[j] * v[j] * v[j];
    if (t == BF16) lookup(u, n, x->unary->table[UNARY_POW3]);
    for (int64_t j = 0; j < n; j++) u[j] *= 0.044715f;
    rows_round(u, n, t);
    for (int64_t j = 0; j < n; j++) u[j] += v[j];
    rows_round(u, n, t);
    for (int64_t j = 0; j < n; j++) u[j] *= SQRT_2_OVER_PI;
    rows_round(u, n, t);
    if (t == BF16) lookup(u, n, x->unary->table[UNARY_TANH]);
    else for (int64_t j = 0; j < n; j++) u[j] = tanhf(u[j]);
    for (int64_t j = 0; j < n; j++) u[j] += 1.0f;
    rows_round(u, n, t);
    for (int64_t j = 0; j < n; j++) v[j] *= 0.5f;
    rows_round(v, n, t);
    for (int64_t j = 0; j < n; j++) v[j] *= u[j];
    rows_round(v, n, t);
}

static void quick_gelu(const Exec *x, float *v, int64_t n, DType t) {
    float u[ROWS_SPAN];
    for (int64_t j = 0; j < n; j++) u[j] = v[j] * 1.702f;
    rows_round(u, n, t);
    if (t == BF16) lookup(u, n, x->unary->table[UNARY_SIGMOID]);
    else for (int64_t j = 0; j < n; j++) u[j] = 1.0f / (1.0f + exp_f32(-u[j]));
    for (int64_t j = 0; j < n; j++) v[j] *= u[j];
    rows_round(v, n, t);
}

static void log_floor(const Exec *x, float *v, int64_t n, DType t) {
    for (int64_t j = 0; j < n; j++) v[j] = v[j] < 1e-5f ? 1e-5f : v[j]; /* NaN passes */
    rows_round(v, n, t);
    if (t == BF16) lookup(v, n, x->unary->table[UNARY_LOG]);
    else for (int64_t j = 0; j < n; j++) v[j] = logf(v[j]);
}

static void act_span(const Exec *x, int32_t kind, float slope, float *v, int64_t n, DType t) {
    bool bf16 = t == BF16;
    switch (kind) {
    case ACT_SILU:
        if (bf16) lookup(v, n, x->unary->table[UNARY_SILU]);
        else for (int64_t j = 0; j < n; j++) v[j] = silu_f32(v[j]);
        break;
    case ACT_GELU_TANH:
        if (bf16) {
            lookup(v, n, x->unary->table[UNARY_GELU_TANH]);
        } else {
            for (int64_t j = 0; j < n; j++) v[j] = gelu_tanh_f32(v[j]);
        }
        break;
    case ACT_GELU_ERF:
        if (bf16) lookup(v, n, x->unary->table[UNARY_GELU_ERF]);
        else for (int64_t j = 0; j < n; j++) v[j] = 0.5f * v[j] * (1.0f + erff(v[j] * SQRT_HALF));
        break;
    case ACT_GELU_NEW: gelu_new(x, v, n, t); break;
    case ACT_QUICK_GELU: quick_gelu(x, v, n, t); break;
    case ACT_RELU:
        for (int64_t j = 0; j < n; j++) v[j] = v[j] <= 0.0f ? 0.0f : v[j]; /* NaN passes */
        break;
    case ACT_TANH:
        if (bf16) lookup(v, n, x->unary->table[UNARY_TANH]);
        else for (int64_t j = 0; j < n; j++) v[j] = tanhf(v[j]);
        break;
    case ACT_LEAKY_RELU:
        for (int64_t j = 0; j < n; j++) v[j] = v[j] > 0.0f ? v[j] : v[j] * slope;
        break;
    case ACT_CLAMP:
        for (int64_t j = 0; j < n; j++) v[j] = v[j] < -1.0f ? -1.0f : v[j] > 1.0f ? 1.0f : v[j]; /* NaN passes */
        break;
    case ACT_LOG_FLOOR: log_floor(x, v, n, t); break;
    default: break;
    }
}

static Status want_act(Exec *x, OpId op, int32_t kind, DType t) {
    if (kind < ACT_NONE || kind > (op == OP_act ? ACT_LOG_FLOOR : ACT_TANH))
        return fail(x->error, ERR_MODEL, "%s: activation %d is unknown", ops_info(op)->name, (int)kind);
    if (t == BF16 && !x->unary)
        return fail(x->error, ERR_MODEL, "%s: the tables of the BF16 functions are not open", ops_info(op)->name);
    return OK;
}

static Status act_cpu(Exec *x, const void *args) {
    Act a = *(const Act *)args;
    TRY(rows_want_float(x, OP_act, "x", a.x));
    TRY(rows_want_like(x, OP_act, "y", a.y, a.x));
    TRY(want_act(x, OP_act, a.kind, a.x.dtype));
    rows_flatten(2, (Tensor *const[]){&a.y, &a.x});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        act_span(x, a.kind, a.slope, v, s.n, a.x.dtype);
        rows_store(&a.y, s, v);
    }
    return OK;
}

static Status act_mul_cpu(Exec *x, const void *args) {
    ActMul a = *(const ActMul *)args;
    TRY(rows_want_float(x, OP_act_mul, "a", a.a));
    TRY(rows_want_like(x, OP_act_mul, "y", a.y, a.a));
    TRY(rows_want_like(x, OP_act_mul, "b", a.b, a.a));
    TRY(want_act(x, OP_act_mul, a.kind, a.a.dtype));
    rows_flatten(3, (Tensor *const[]){&a.y, &a.a, &a.b});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], b[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.a, s);
        rows_load(b, &a.b, s);
        act_span(x, a.kind, 0, v, s.n, a.a.dtype);
        for (int64_t j = 0; j < s.n; j++) v[j] *= b[j];
        rows_store(&a.y, s, v);
    }
    return OK;
}

/* --- sums --- */

static Status add_cpu(Exec *x, const void *args) {
    Add a = *(const Add *)args;
    TRY(rows_want_float(x, OP_add, "a", a.a));
    TRY(rows_want_like(x, OP_add, "y", a.y, a.a));
    TRY(rows_want_row(x, OP_add, "b", &a.b, a.a));
    rows_flatten(3, (Tensor *const[]){&a.y, &a.a, &a.b});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], b[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.a, s);
        rows_load(b, &a.b, s);
        for (int64_t j = 0; j < s.n; j++) v[j] += b[j];
        rows_store(&a.y, s, v);
    }
    return OK;
}

static Status residual_gate_cpu(Exec *x, const void *args) {
    ResidualGate a = *(const ResidualGate *)args;
    bool gated = a.gate.rank != 0;
    TRY(rows_want_float(x, OP_residual_gate, "x", a.x));
    TRY(rows_want_like(x, OP_residual_gate, "y", a.y, a.x));
    TRY(rows_want_like(x, OP_residual_gate, "residual", a.residual, a.x));
    if (gated) TRY(rows_want_row(x, OP_residual_gate, "gate", &a.gate, a.x));
    else rows_flatten(3, (Tensor *const[]){&a.y, &a.residual, &a.x});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], b[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        if (gated) {
            rows_load(b, &a.gate, s);
            for (int64_t j = 0; j < s.n; j++) v[j] *= b[j];
            rows_round(v, s.n, a.x.dtype);
        }
        rows_load(b, &a.residual, s);
        for (int64_t j = 0; j < s.n; j++) v[j] += b[j];
        rows_store(&a.y, s, v);
    }
    return OK;
}

static Status modulate_cpu(Exec *x, const void *args) {
    Modulate a = *(const Modulate *)args;
    DType t = a.x.dtype;
    TRY(rows_want_float(x, OP_modulate, "x", a.x));
    TRY(rows_want_like(x, OP_modulate, "y", a.y, a.x));
    TRY(rows_want_row(x, OP_modulate, "scale", &a.scale, a.x));
    if (a.shift.rank) TRY(rows_want_row(x, OP_modulate, "shift", &a.shift, a.x));
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        rows_modulate(v, &a.scale, &a.shift, s, t);
        rows_store(&a.y, s, v);
    }
    return OK;
}

/* --- the sampler's ops: step values come from F32 [1] tensors --- */

static Status step_value(Exec *x, OpId op, const char *arg, Tensor t, float *out) {
    if (t.dtype != F32 || tensor_numel(t) != 1)
        return fail(x->error, ERR_MODEL, "%s: %s is %s with %lld elements, expected F32 [1]", ops_info(op)->name, arg,
                    dtype_name(t.dtype), (long long)tensor_numel(t));
    memcpy(out, t.data, 4);
    return OK;
}

static Status time_embed_cpu(Exec *x, const void *args) {
    TimeEmbed a = *(const TimeEmbed *)args;
    float t;
    TRY(rows_want_float(x, OP_time_embed, "y", a.y));
    TRY(step_value(x, OP_time_embed, "t", a.t, &t));
    int64_t width = a.y.shape[a.y.rank - 1], half = width / 2;
    if (tensor_numel(a.y) != width || width % 2)
        return fail(x->error, ERR_MODEL, "time_embed: y has %lld elements, expected one row of even width",
                    (long long)tensor_numel(a.y));
    float scale = (float)-log((double)a.max_period);
    float inverse = 1.0f / (float)half;
    for (int64_t first = 0; first < half; first += ROWS_SPAN) {
        float c[ROWS_SPAN], s[ROWS_SPAN];
        int64_t n = half - first < ROWS_SPAN ? half - first : ROWS_SPAN;
        for (int64_t j = 0; j < n; j++) {
            float angle = t * expf(scale * (float)(first + j) * inverse);
            c[j] = cosf(angle);
            s[j] = sinf(angle);
        }
        rows_store(&a.y, (Span){0, first, n}, c);
        rows_store(&a.y, (Span){0, half + first, n}, s);
    }
    return OK;
}

/* Both published forms: the scaled difference added to neg (combine) or to pos (extrapolate). */
static Status cfg(Exec *x, OpId op, const void *args, bool from_pos) {
    CfgCombine a = *(const CfgCombine *)args;
    float scale;
    TRY(rows_want_float(x, op, "pos", a.pos));
    TRY(rows_want_like(x, op, "y", a.y, a.pos));
    TRY(rows_want_like(x, op, "neg", a.neg, a.pos));
    TRY(step_value(x, op, "scale", a.scale, &scale));
    rows_flatten(3, (Tensor *const[]){&a.y, &a.pos, &a.neg});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], b[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.pos, s);
        rows_load(b, &a.neg, s);
        if (from_pos) {
            for (int64_t j = 0; j < s.n; j++) b[j] = v[j] - b[j];
            rows_round(b, s.n, a.y.dtype);
            for (int64_t j = 0; j < s.n; j++) b[j] *= scale;
            rows_round(b, s.n, a.y.dtype);
            for (int64_t j = 0; j < s.n; j++) v[j] += b[j];
        } else {
            for (int64_t j = 0; j < s.n; j++) v[j] -= b[j];
            rows_round(v, s.n, a.y.dtype);
            for (int64_t j = 0; j < s.n; j++) v[j] *= scale;
            rows_round(v, s.n, a.y.dtype);
            for (int64_t j = 0; j < s.n; j++) v[j] += b[j];
        }
        rows_store(&a.y, s, v);
    }
    return OK;
}

static Status cfg_combine_cpu(Exec *x, const void *args) { return cfg(x, OP_cfg_combine, args, false); }
static Status cfg_extrapolate_cpu(Exec *x, const void *args) { return cfg(x, OP_cfg_extrapolate, args, true); }

/* Euclidean norm: squares of f32 are exact in double, the sum runs in order, one rounding to f32 at the end. */
static float norm_of(Tensor t) {
    Walk w = rows_walk(t);
    double sum = 0;
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &t, s);
        for (int64_t j = 0; j < s.n; j++) sum += (double)v[j] * (double)v[j];
    }
    return (float)sqrt(sum);
}

static Status norm_limit_cpu(Exec *x, const void *args) {
    NormLimit a = *(const NormLimit *)args;
    TRY(rows_want_like(x, OP_norm_limit, "y", a.y, a.x));
    TRY(rows_want_like(x, OP_norm_limit, "like", a.like, a.x));
    if (a.x.dtype != F32) return fail(x->error, ERR_MODEL, "norm_limit: x is %s, expected F32", dtype_name(a.x.dtype));
    rows_flatten(3, (Tensor *const[]){&a.y, &a.x, &a.like});
    float most = a.limit * norm_of(a.like), have = norm_of(a.x), by = have > most ? most / have : 1.0f;
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        for (int64_t j = 0; j < s.n; j++) v[j] *= by;
        rows_store(&a.y, s, v);
    }
    return OK;
}

static Status negate_cpu(Exec *x, const void *args) {
    Negate a = *(const Negate *)args;
    TRY(rows_want_float(x, OP_negate, "x", a.x));
    TRY(rows_want_like(x, OP_negate, "y", a.y, a.x));
    rows_flatten(2, (Tensor *const[]){&a.y, &a.x});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        for (int64_t j = 0; j < s.n; j++) v[j] = -v[j];
        rows_store(&a.y, s, v);
    }
    return OK;
}

static Status euler_step_cpu(Exec *x, const void *args) {
    EulerStep a = *(const EulerStep *)args;
    float dt;
    TRY(rows_want_float(x, OP_euler_step, "x", a.x));
    TRY(rows_want_like(x, OP_euler_step, "y", a.y, a.x));
    TRY(rows_want_like(x, OP_euler_step, "v", a.v, a.x));
    TRY(step_value(x, OP_euler_step, "dt", a.dt, &dt));
    rows_round(&dt, 1, a.x.dtype);
    rows_flatten(3, (Tensor *const[]){&a.y, &a.x, &a.v});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], b[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.v, s);
        rows_load(b, &a.x, s);
        for (int64_t j = 0; j < s.n; j++) v[j] *= dt;
        rows_round(v, s.n, a.x.dtype);
        for (int64_t j = 0; j < s.n; j++) v[j] += b[j];
        rows_store(&a.y, s, v);
    }
    return OK;
}

/* --- around the VAE --- */

static Status affine_cpu(Exec *x, const void *args) {
    Affine a = *(const Affine *)args;
    TRY(rows_want_float(x, OP_affine, "x", a.x));
    TRY(rows_want_like(x, OP_affine, "y", a.y, a.x));
    rows_flatten(2, (Tensor *const[]){&a.y, &a.x});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        for (int64_t j = 0; j < s.n; j++) v[j] *= a.mul;
        rows_round(v, s.n, a.x.dtype);
        for (int64_t j = 0; j < s.n; j++) v[j] += a.add;
        rows_store(&a.y, s, v);
    }
    return OK;
}

static Status kl_sample_cpu(Exec *x, const void *args) {
    KlSample a = *(const KlSample *)args;
    DType t = a.mean.dtype;
    TRY(rows_want_float(x, OP_kl_sample, "mean", a.mean));
    TRY(rows_want_like(x, OP_kl_sample, "y", a.y, a.mean));
    TRY(rows_want_like(x, OP_kl_sample, "logvar", a.logvar, a.mean));
    TRY(rows_want_like(x, OP_kl_sample, "noise", a.noise, a.mean));
    TRY(want_act(x, OP_kl_sample, ACT_NONE, t));
    rows_flatten(4, (Tensor *const[]){&a.y, &a.mean, &a.logvar, &a.noise});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], b[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.logvar, s);
        for (int64_t j = 0; j < s.n; j++) v[j] = 0.5f * (v[j] < -30.0f ? -30.0f : v[j] > 20.0f ? 20.0f : v[j]); /* NaN passes */
        rows_round(v, s.n, t);
        if (t == BF16) lookup(v, s.n, x->unary->table[UNARY_EXP]);
        else for (int64_t j = 0; j < s.n; j++) v[j] = exp_f32(v[j]);
        rows_load(b, &a.noise, s);
        for (int64_t j = 0; j < s.n; j++) v[j] *= b[j];
        rows_round(v, s.n, t);
        rows_load(b, &a.mean, s);
        for (int64_t j = 0; j < s.n; j++) v[j] = b[j] + v[j];
        rows_round(v, s.n, t);
        for (int64_t j = 0; j < s.n; j++) v[j] -= a.shift;
        rows_round(v, s.n, t);
        for (int64_t j = 0; j < s.n; j++) v[j] *= a.scale;
        rows_store(&a.y, s, v);
    }
    return OK;
}

static Status scale_noise_cpu(Exec *x, const void *args) {
    ScaleNoise a = *(const ScaleNoise *)args;
    DType t = a.x.dtype;
    TRY(rows_want_float(x, OP_scale_noise, "x", a.x));
    TRY(rows_want_like(x, OP_scale_noise, "y", a.y, a.x));
    TRY(rows_want_like(x, OP_scale_noise, "noise", a.noise, a.x));
    rows_flatten(3, (Tensor *const[]){&a.y, &a.x, &a.noise});
    float sigma = a.sigma, rest;
    rows_round(&sigma, 1, t);
    rest = 1.0f - sigma;
    rows_round(&rest, 1, t);
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], b[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.noise, s);
        rows_load(b, &a.x, s);
        for (int64_t j = 0; j < s.n; j++) v[j] *= sigma;
        rows_round(v, s.n, t);
        for (int64_t j = 0; j < s.n; j++) b[j] *= rest;
        rows_round(b, s.n, t);
        for (int64_t j = 0; j < s.n; j++) v[j] += b[j];
        rows_store(&a.y, s, v);
    }
    return OK;
}

static Status to_rgb8_cpu(Exec *x, const void *args) {
    ToRgb8 a = *(const ToRgb8 *)args;
    TRY(rows_want_float(x, OP_to_rgb8, "x", a.x));
    if (a.y.dtype != U8 || !tensor_same_shape(a.y, a.x))
        return fail(x->error, ERR_MODEL, "to_rgb8: y must be U8 in the shape of x");
    rows_flatten(2, (Tensor *const[]){&a.y, &a.x});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        for (int64_t j = 0; j < s.n; j++) v[j] *= 0.5f;
        rows_round(v, s.n, a.x.dtype);
        for (int64_t j = 0; j < s.n; j++) v[j] += 0.5f;
        rows_round(v, s.n, a.x.dtype);
        uint8_t *y = rows_at(&a.y, s.row, s.first);
        int64_t stride = a.y.stride[a.y.rank - 1];
        for (int64_t j = 0; j < s.n; j++) {
            float unit = v[j] > 0.0f ? (v[j] < 1.0f ? v[j] : 1.0f) : 0.0f; /* NaN fails the first test */
            y[j * stride] = (uint8_t)rintf(255.0f * unit);
        }
    }
    return OK;
}

static Status count_nonfinite_cpu(Exec *x, const void *args) {
    CountNonfinite a = *(const CountNonfinite *)args;
    TRY(rows_want_float(x, OP_count_nonfinite, "x", a.x));
    if (a.y.dtype != I32 || tensor_numel(a.y) != 1)
        return fail(x->error, ERR_MODEL, "count_nonfinite: y must be I32 [1]");
    rows_flatten(1, (Tensor *const[]){&a.x});
    Walk w = rows_walk(a.x);
    int64_t found = 0;
#pragma omp parallel for schedule(static) reduction(+ : found) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        int32_t here = 0;
        for (int64_t j = 0; j < s.n; j++) {
            uint32_t bits;
            memcpy(&bits, &v[j], 4);
            here += (bits & 0x7f800000u) == 0x7f800000u;
        }
        found += here;
    }
    int32_t count = found > INT32_MAX ? INT32_MAX : (int32_t)found;
    memcpy(a.y.data, &count, 4);
    return OK;
}

#define IMPL(op_name) {.op = OP_##op_name, .name = "cpu", .run = op_name##_cpu}
const Impl ELEMENTWISE_CPU[] = {
    IMPL(act),        IMPL(act_mul), IMPL(add),     IMPL(residual_gate),   IMPL(time_embed), IMPL(cfg_combine),
    IMPL(euler_step), IMPL(affine),  IMPL(to_rgb8), IMPL(count_nonfinite), IMPL(cfg_extrapolate),
    IMPL(norm_limit), IMPL(negate),  IMPL(kl_sample), IMPL(scale_noise),   IMPL(modulate),
};
const int ELEMENTWISE_CPU_COUNT = sizeof ELEMENTWISE_CPU / sizeof *ELEMENTWISE_CPU;
