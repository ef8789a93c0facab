/* faults.h - wrong variants of ops, each with one named fault: a rounding left out, halves exchanged, a mask off by one.
 * test_mutants.c puts them in front of the CPU table, and the goldens must notice.
 *
 * Plain loops over contiguous or strided tensors, f32 arithmetic as in the contracts; r() rounds to the tensor's dtype.
 * Some faults only change the arguments and call the true op (fault.h). Easy to get wrong: outputs may alias inputs, so a
 * fault that needs several inputs per element reads them before it writes. */
#ifndef FAULTS_H
#define FAULTS_H

#include "fault.h"

typedef struct Fault {
    const char *name;
    const char *golden; /* an op golden (golden_ops.h), or "dit", "vae", "clip", "t5": that part in bf16 */
    Impl impl;
} Fault;

/* --- elements by linear index --- */

static inline char *faults_address(Tensor t, int64_t i) {
    int64_t at = 0;
    for (int d = t.rank - 1; d >= 0; d--) at += i % t.shape[d] * t.stride[d], i /= t.shape[d];
    return (char *)t.data + at * (int64_t)dtype_size(t.dtype);
}

static inline float faults_get(Tensor t, int64_t i) {
    uint16_t h;
    float f;
    if (t.dtype == BF16) return memcpy(&h, faults_address(t, i), 2), bf16_to_f32(h);
    return memcpy(&f, faults_address(t, i), 4), f;
}

static inline void faults_set(Tensor t, int64_t i, float v) {
    uint16_t h = bf16_from_f32(v);
    if (t.dtype == BF16) memcpy(faults_address(t, i), &h, 2);
    else memcpy(faults_address(t, i), &v, 4);
}

static inline float r(Tensor like, float v) { return like.dtype == BF16 ? bf16_round(v) : v; }

/* mean and 1/sqrt(var + eps) of row `row`. */
static inline void faults_moments(Tensor x, int64_t row, float eps, double *mean, float *rstd) {
    int64_t d = x.shape[x.rank - 1];
    double sum = 0, square = 0;
    for (int64_t j = 0; j < d; j++) sum += (double)faults_get(x, row * d + j);
    *mean = sum / (double)d;
    for (int64_t j = 0; j < d; j++) square += pow((double)faults_get(x, row * d + j) - *mean, 2);
    *rstd = (float)(1 / sqrt(square / (double)d + (double)eps));
}

static inline float faults_rms(Tensor x, int64_t row, float eps) {
    int64_t d = x.shape[x.rank - 1];
    double square = 0;
    for (int64_t j = 0; j < d; j++) square += pow((double)faults_get(x, row * d + j), 2);
    return (float)(1 / sqrt(square / (double)d + (double)eps));
}

/* --- ln_modulate, layernorm, rmsnorm --- */

enum { SKIP_NORM = 1, SKIP_PLUS = 2, SKIP_PRODUCT = 4 };

static inline Status faults_ln_modulate(const LnModulate *a, int skip) {
    int64_t d = a->x.shape[a->x.rank - 1], rows = tensor_numel(a->x) / d;
    bool per_row = tensor_numel(a->scale) != d;
    for (int64_t i = 0; i < rows; i++) {
        double mean;
        float rstd;
        faults_moments(a->x, i, a->eps, &mean, &rstd);
        for (int64_t j = 0; j < d; j++) {
            int64_t k = per_row ? i * d + j : j;
            float n = (float)((double)faults_get(a->x, i * d + j) - mean) * rstd, s = 1 + faults_get(a->scale, k);
            if (!(skip & SKIP_NORM)) n = r(a->x, n);
            if (!(skip & SKIP_PLUS)) s = r(a->x, s);
            float y = n * s;
            if (!(skip & SKIP_PRODUCT)) y = r(a->x, y);
            faults_set(a->y, i * d + j, y + (a->shift.rank ? faults_get(a->shift, k) : 0));
        }
    }
    return OK;
}

static Status ln_norm_unrounded(Exec *x, const void *a) { return (void)x, faults_ln_modulate(a, SKIP_NORM); }
static Status ln_plus_unrounded(Exec *x, const void *a) { return (void)x, faults_ln_modulate(a, SKIP_PLUS); }
static Status ln_product_unrounded(Exec *x, const void *a) { return (void)x, faults_ln_modulate(a, SKIP_PRODUCT); }
static Status ln_exchanged(Exec *x, const void *args) {
    LnModulate a = *(const LnModulate *)args;
    Tensor scale = a.scale;
    a.scale = a.shift, a.shift = scale;
    return fault_call(x, OP_ln_modulate, &a);
}
static Status ln_eps(Exec *x, const void *args) {
    LnModulate a = *(const LnModulate *)args;
    a.eps = 1e-2f;
    return fault_call(x, OP_ln_modulate, &a);
}
static Status layernorm_no_bias(Exec *x, const void *args) {
    LayerNorm a = *(const LayerNorm *)args; /* affine rounded before the bias: two roundings */
    int64_t d = a.x.shape[a.x.rank - 1], rows = tensor_numel(a.x) / d;
    (void)x;
    for (int64_t i = 0; i < rows; i++) {
        double mean;
        float rstd;
        faults_moments(a.x, i, a.eps, &mean, &rstd);
        for (int64_t j = 0; j < d; j++) {
            float n = r(a.x, (float)((double)faults_get(a.x, i * d + j) - mean) * rstd);
            faults_set(a.y, i * d + j, r(a.x, n * faults_get(a.w, j)) + faults_get(a.b, j));
        }
    }
    return OK;
}
static Status rms_other_form(Exec *x, const void *args) {
    RmsNorm a = *(const RmsNorm *)args;
    a.form = a.form == RMS_TWICE ? RMS_ONCE : RMS_TWICE;
    return fault_call(x, OP_rmsnorm, &a);
}

/* --- residual_gate, activations --- */

static Status gate_unrounded(Exec *x, const void *args) {
    const ResidualGate *a = args;
    int64_t n = tensor_numel(a->y), d = a->y.shape[a->y.rank - 1];
    (void)x;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = tensor_numel(a->gate) == n ? i : i % d;
        faults_set(a->y, i, faults_get(a->residual, i) + faults_get(a->gate, k) * faults_get(a->x, i));
    }
    return OK;
}
static float gelu_new_of(float v) {
    return 0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
}
static Status gelu_new_at_once(Exec *x, const void *args) {
    const ActMul *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++)
        faults_set(a->y, i, r(a->a, gelu_new_of(faults_get(a->a, i))) * faults_get(a->b, i));
    return OK;
}
static Status gelu_new_cube(Exec *x, const void *args) { /* x^3 in one rounding, the rest as it must be */
    const ActMul *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++) {
        Tensor t = a->a;
        float v = faults_get(t, i), u = r(t, 0.044715f * r(t, v * v * v));
        u = r(t, 1 + r(t, tanhf(r(t, 0.79788456f * r(t, v + u)))));
        faults_set(a->y, i, r(t, r(t, 0.5f * v) * u) * faults_get(a->b, i));
    }
    return OK;
}
static Status quick_gelu_at_once(Exec *x, const void *args) {
    const Act *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++) {
        float v = faults_get(a->x, i);
        faults_set(a->y, i, v / (1 + expf(-1.702f * v)));
    }
    return OK;
}
static Status gelu_other(Exec *x, const void *args) { /* erf for tanh and back */
    Act a = *(const Act *)args;
    a.kind = a.kind == ACT_GELU_TANH ? ACT_GELU_ERF : ACT_GELU_TANH;
    return fault_call(x, OP_act, &a);
}

/* --- qk_norm_rope_head: [T,H,E], interleaved pairs --- */

enum { ROPE_UNROUNDED = 1, ROPE_BACKWARDS = 2, ROPE_FIRST = 4 };

static inline void faults_rope(Tensor y, Tensor x, Tensor w, const QkNormRopeHead *a, int how) {
    int64_t e = x.shape[x.rank - 1], heads = x.shape[x.rank - 2], rows = tensor_numel(x) / e;
    for (int64_t i = 0; i < rows; i++) {
        float s = faults_rms(x, i, a->eps), out[512];
        for (int64_t k = 0; k < e; k += 2) {
            int64_t at = i / heads * (e / 2) + k / 2;
            float u = faults_get(x, i * e + k) * s * faults_get(w, k);
            float v = faults_get(x, i * e + k + 1) * s * faults_get(w, k + 1);
            float c = faults_get(a->cos, at), z = faults_get(a->sin, at);
            if (!(how & ROPE_UNROUNDED)) u = r(x, u), v = r(x, v);
            if (how & ROPE_BACKWARDS) z = -z;
            if (how & ROPE_FIRST) { /* rotate, then weight */
                float p = faults_get(x, i * e + k) * s, q = faults_get(x, i * e + k + 1) * s;
                out[k] = r(x, p * c - q * z) * faults_get(w, k), out[k + 1] = r(x, q * c + p * z) * faults_get(w, k + 1);
                continue;
            }
            out[k] = u * c - v * z, out[k + 1] = v * c + u * z;
        }
        for (int64_t k = 0; k < e; k++) faults_set(y, i * e + k, out[k]);
    }
}

static Status rope_how(const QkNormRopeHead *a, int how) {
    faults_rope(a->yq, a->q, a->wq, a, how);
    faults_rope(a->yk, a->k, a->wk, a, how);
    return OK;
}
static Status rope_unrounded(Exec *x, const void *a) { return (void)x, rope_how(a, ROPE_UNROUNDED); }
static Status rope_backwards(Exec *x, const void *a) { return (void)x, rope_how(a, ROPE_BACKWARDS); }
static Status rope_first(Exec *x, const void *a) { return (void)x, rope_how(a, ROPE_FIRST); }
static Status rope_half_split(Exec *x, const void *args) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.rope = ROPE_HALF;
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static Status rope_none(Exec *x, const void *args) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.rope = ROPE_NONE;
    a.cos = a.sin = (Tensor){0};
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static Status rope_shifted(Exec *x, const void *args) { /* every row takes the position of the row before it */
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    QkNormRopeHead one = a;
    int64_t n = a.q.shape[0] - 1;
    one.q = tensor_slice(a.q, 0, 0, 1), one.k = tensor_slice(a.k, 0, 0, 1);
    one.yq = tensor_slice(a.yq, 0, 0, 1), one.yk = tensor_slice(a.yk, 0, 0, 1);
    one.cos = tensor_slice(a.cos, 0, 0, 1), one.sin = tensor_slice(a.sin, 0, 0, 1);
    TRY(fault_call(x, OP_qk_norm_rope_head, &one));
    a.q = tensor_slice(a.q, 0, 1, n), a.k = tensor_slice(a.k, 0, 1, n);
    a.yq = tensor_slice(a.yq, 0, 1, n), a.yk = tensor_slice(a.yk, 0, 1, n);
    a.cos = tensor_slice(a.cos, 0, 0, n), a.sin = tensor_slice(a.sin, 0, 0, n);
    return fault_call(x, OP_qk_norm_rope_head, &a);
}

/* --- attention --- */

/* Keys lo .. hi of every query in f32, probabilities not rounded. */
static inline void faults_attention(const Attention *a, int64_t lo, int64_t hi, float scale) {
    int64_t t = a->q.shape[0], h = a->q.shape[1], e = a->q.shape[2];
    for (int64_t i = 0; i < t; i++)
        for (int64_t k = 0; k < h; k++) {
            double p[512], top = -INFINITY, sum = 0;
            for (int64_t j = lo; j < hi; j++) {
                p[j] = 0;
                for (int64_t c = 0; c < e; c++)
                    p[j] += (double)faults_get(a->q, (i * h + k) * e + c) * (double)faults_get(a->k, (j * h + k) * e + c);
                p[j] *= (double)scale;
                top = fmax(top, p[j]);
            }
            for (int64_t j = lo; j < hi; j++) sum += p[j] = exp(p[j] - top);
            for (int64_t c = 0; c < e; c++) {
                double o = 0;
                for (int64_t j = lo; j < hi; j++) o += p[j] * (double)faults_get(a->v, (j * h + k) * e + c);
                faults_set(a->o, (i * h + k) * e + c, (float)(o / sum));
            }
        }
}

static Status attention_unrounded(Exec *x, const void *args) {
    const Attention *a = args;
    return (void)x, faults_attention(a, 0, a->k.shape[0], a->scale), OK;
}
static Status attention_drops_first(Exec *x, const void *args) { /* the first text token */
    Attention a = *(const Attention *)args;
    int64_t n = a.k.shape[0] - 1;
    a.k = tensor_slice(a.k, 0, 1, n), a.v = tensor_slice(a.v, 0, 1, n);
    return fault_call(x, OP_attention, &a);
}
static Status attention_drops_last(Exec *x, const void *args) { /* mask off by one */
    Attention a = *(const Attention *)args;
    int64_t n = a.k.shape[0] - 1;
    a.k = tensor_slice(a.k, 0, 0, n), a.v = tensor_slice(a.v, 0, 0, n);
    return fault_call(x, OP_attention, &a);
}
static Status attention_scale(Exec *x, const void *args) {
    Attention a = *(const Attention *)args;
    a.scale *= 1.01f;
    return fault_call(x, OP_attention, &a);
}

/* Causal with an offset: query i sees keys 0 .. i + offset. Scores rounded as the contract says when `rounded`. */
static inline void faults_eager(const AttentionEager *a, int64_t offset, bool rounded, bool biased) {
    int64_t t = a->q.shape[0], h = a->q.shape[1], e = a->q.shape[2];
    for (int64_t i = 0; i < t; i++)
        for (int64_t k = 0; k < h; k++) {
            float p[512], top = -INFINITY;
            double sum = 0;
            int64_t n = a->mask == MASK_CAUSAL ? i + 1 + offset : t;
            if (n > t) n = t;
            if (n < 1) n = 1;
            for (int64_t j = 0; j < n; j++) {
                double s = 0;
                for (int64_t c = 0; c < e; c++)
                    s += (double)faults_get(a->q, (i * h + k) * e + c) * (double)faults_get(a->k, (j * h + k) * e + c);
                p[j] = (float)s;
                if (rounded) p[j] = r(a->q, r(a->q, p[j]) * a->scale);
                else p[j] *= a->scale;
                if (a->bias.rank && biased) p[j] = p[j] + faults_get(a->bias, (k * t + i) * t + j);
                if (rounded) p[j] = r(a->q, p[j]);
                top = fmaxf(top, p[j]);
            }
            for (int64_t j = 0; j < n; j++) sum += (double)(p[j] = expf(p[j] - top));
            for (int64_t c = 0; c < e; c++) {
                double o = 0;
                for (int64_t j = 0; j < n; j++)
                    o += (double)r(a->q, (float)((double)p[j] / sum)) * (double)faults_get(a->v, (j * h + k) * e + c);
                faults_set(a->o, (i * h + k) * e + c, (float)o);
            }
        }
}
static Status eager_mask_late(Exec *x, const void *a) { return (void)x, faults_eager(a, 1, true, true), OK; }
static Status eager_mask_early(Exec *x, const void *a) { return (void)x, faults_eager(a, -1, true, true), OK; }
static Status eager_unrounded(Exec *x, const void *a) { return (void)x, faults_eager(a, 0, false, true), OK; }
static Status eager_no_bias(Exec *x, const void *a) { return (void)x, faults_eager(a, 0, true, false), OK; }

/* --- steps around the models --- */

static Status time_sine_first(Exec *x, const void *args) {
    const TimeEmbed *a = args;
    TRY(fault_call(x, OP_time_embed, a));
    int64_t half = tensor_numel(a->y) / 2;
    for (int64_t i = 0; i < half; i++) {
        float c = faults_get(a->y, i);
        faults_set(a->y, i, faults_get(a->y, half + i));
        faults_set(a->y, half + i, c);
    }
    return OK;
}
static Status time_divisor(Exec *x, const void *args) { /* half - 1 in the exponent */
    const TimeEmbed *a = args;
    int64_t half = tensor_numel(a->y) / 2;
    (void)x;
    for (int64_t i = 0; i < half; i++) {
        float f = expf(-logf(a->max_period) * (float)i / (float)(half - 1)), w = faults_get(a->t, 0) * f;
        faults_set(a->y, i, cosf(w));
        faults_set(a->y, half + i, sinf(w));
    }
    return OK;
}
static Status cfg_at_once(Exec *x, const void *args) {
    const CfgCombine *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++) {
        float neg = faults_get(a->neg, i);
        faults_set(a->y, i, neg + faults_get(a->scale, 0) * (faults_get(a->pos, i) - neg));
    }
    return OK;
}
static Status euler_dt_f32(Exec *x, const void *args) {
    const EulerStep *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++)
        faults_set(a->y, i, faults_get(a->x, i) + r(a->v, faults_get(a->v, i) * faults_get(a->dt, 0)));
    return OK;
}
static Status euler_product_f32(Exec *x, const void *args) {
    const EulerStep *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++)
        faults_set(a->y, i, faults_get(a->x, i) + faults_get(a->v, i) * r(a->v, faults_get(a->dt, 0)));
    return OK;
}
static Status affine_at_once(Exec *x, const void *args) {
    const Affine *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++) faults_set(a->y, i, faults_get(a->x, i) * a->mul + a->add);
    return OK;
}
static Status affine_add_rounded(Exec *x, const void *args) {
    Affine a = *(const Affine *)args;
    a.add = bf16_round(a.add);
    return fault_call(x, OP_affine, &a);
}
static Status rgb_truncated(Exec *x, const void *args) {
    const ToRgb8 *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++) {
        float v = fminf(fmaxf(r(a->x, r(a->x, 0.5f * faults_get(a->x, i)) + 0.5f), 0), 1);
        *(uint8_t *)faults_address(a->y, i) = (uint8_t)(255 * v);
    }
    return OK;
}
static Status rgb_half_up(Exec *x, const void *args) {
    const ToRgb8 *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++) {
        float v = fminf(fmaxf(0.5f * faults_get(a->x, i) + 0.5f, 0), 1); /* the sum not rounded to bf16 */
        *(uint8_t *)faults_address(a->y, i) = (uint8_t)(255 * v + 0.5f);
    }
    return OK;
}
static Status pack_transposed(Exec *x, const void *args) { /* (x, y) instead of (y, x) inside a patch */
    const Pack *a = args;
    TRY(fault_call(x, OP_pack, a));
    int64_t c = a->y.shape[1];
    for (int64_t i = 0; i < tensor_numel(a->y); i += c)
        for (int64_t k = 1; k < c; k += 4) {
            float u = faults_get(a->y, i + k);
            faults_set(a->y, i + k, faults_get(a->y, i + k + 1));
            faults_set(a->y, i + k + 1, u);
        }
    return OK;
}
static Status bias_backwards(Exec *x, const void *args) { /* query - key */
    const RelBias *a = args;
    TRY(fault_call(x, OP_rel_bias, a));
    int64_t n = a->y.shape[1];
    for (int64_t h = 0; h < a->y.shape[0]; h++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < i; j++) {
                float u = faults_get(a->y, (h * n + i) * n + j);
                faults_set(a->y, (h * n + i) * n + j, faults_get(a->y, (h * n + j) * n + i));
                faults_set(a->y, (h * n + j) * n + i, u);
            }
    return OK;
}
static Status bias_distance(Exec *x, const void *args) {
    RelBias a = *(const RelBias *)args;
    a.max_distance = 127;
    return fault_call(x, OP_rel_bias, &a);
}

/* --- VAE --- */

static Status groupnorm_eps(Exec *x, const void *args) {
    GroupNorm a = *(const GroupNorm *)args;
    a.eps = 1e-2f;
    return fault_call(x, OP_groupnorm, &a);
}
/* x' of the contract. */
static float groupnorm_input(const GroupNorm *a, int64_t i) {
    float v = faults_get(a->x, i);
    return a->bias.rank ? r(a->x, v + faults_get(a->bias, i % a->x.shape[2])) : v;
}
/* groupnorm, and with silu its activation, with the statistics rounded or not and the value before SiLU rounded or not. */
static void groupnorm_by_hand(const GroupNorm *a, bool statistics, bool silu, bool inner) {
    int64_t c = a->x.shape[2], pixels = a->x.shape[0] * a->x.shape[1], per = c / a->groups;
    for (int64_t g = 0; g < a->groups; g++) {
        double sum = 0, square = 0, n = (double)(pixels * per);
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t k = g * per; k < (g + 1) * per; k++) sum += (double)groupnorm_input(a, p * c + k);
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t k = g * per; k < (g + 1) * per; k++) square += pow((double)groupnorm_input(a, p * c + k) - sum / n, 2);
        float m = (float)(sum / n), s = (float)(1 / sqrt(square / n + (double)r(a->x, a->eps)));
        if (statistics) m = r(a->x, m), s = r(a->x, s);
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t k = g * per; k < (g + 1) * per; k++) {
                float scale = s * faults_get(a->w, k), v = fmaf(scale, groupnorm_input(a, p * c + k),
                                                                fmaf(-scale, m, faults_get(a->b, k)));
                if (inner) v = r(a->x, v);
                faults_set(a->y, p * c + k, silu ? v / (1 + expf(-v)) : v);
            }
    }
}
static Status groupnorm_silu_at_once(Exec *x, const void *args) {
    (void)x;
    groupnorm_by_hand(args, true, true, false);
    return OK;
}
static Status groupnorm_statistics(Exec *x, const void *args) {
    (void)x;
    groupnorm_by_hand(args, false, false, false);
    return OK;
}
static Status groupnorm_silu_statistics(Exec *x, const void *args) {
    (void)x;
    groupnorm_by_hand(args, false, true, true);
    return OK;
}
/* self_attention's chain with another attention or another way to add the biases of q, k, v. */
static Status self_attention_by_hand(Exec *x, const SelfAttention *a, Status (*attention)(Exec *, const void *), int32_t mode) {
    int64_t t = a->x.shape[0], c = a->x.shape[1];
    Tensor q = exec_new(x, t, c), k = exec_new(x, t, c), v = exec_new(x, t, c), o = exec_new(x, t, c);
    TRY(fault_call(x, OP_linear_many, &(LinearMany){.y = {q, k, v}, .x = a->x, .w = {a->wq, a->wk, a->wv}, .bias_mode = mode}));
    TRY(attention(x, &(Attention){.o = tensor_view(o, t, 1, c), .q = tensor_view(q, t, 1, c), .k = tensor_view(k, t, 1, c),
                                  .v = tensor_view(v, t, 1, c), .scale = a->scale}));
    TRY(fault_call(x, OP_linear, &(Linear){.y = q, .x = o, .w = a->wo}));
    return fault_call(x, OP_add, &(Add){.y = a->y, .a = a->residual, .b = q});
}
static Status self_attention_unrounded(Exec *x, const void *args) {
    return self_attention_by_hand(x, args, attention_unrounded, BIAS_AFTER);
}
static Status attention_true(Exec *x, const void *args) { return fault_call(x, OP_attention, args); }
static Status self_attention_fused_bias(Exec *x, const void *args) {
    return self_attention_by_hand(x, args, attention_true, BIAS_FUSED);
}
static Status conv_bias_fused(Exec *x, const void *args) { /* product without bias in f32 is not at hand: recompute */
    const Conv2d *a = args;
    int64_t oy = a->y.shape[0], ox = a->y.shape[1], n = a->y.shape[2], kh = a->w->w.shape[1], kw = a->w->w.shape[2];
    int64_t iy = a->x.shape[0], ix = a->x.shape[1], m = a->x.shape[2];
    (void)x;
    for (int64_t i = 0; i < oy * ox * n; i++) {
        int64_t o = i % n, px = i / n % ox, py = i / n / ox;
        double s = a->w->bias.rank && a->form == CONV_BIAS ? (double)faults_get(a->w->bias, o) : 0;
        for (int64_t v = 0; v < kh; v++)
            for (int64_t u = 0; u < kw; u++) {
                int64_t yy = py * a->stride - a->pad_top + v, xx = px * a->stride - a->pad_left + u;
                if (yy < 0 || xx < 0 || yy >= iy || xx >= ix) continue;
                for (int64_t k = 0; k < m; k++)
                    s += (double)faults_get(a->x, (yy * ix + xx) * m + k) *
                         (double)faults_get(a->w->w, ((o * kh + v) * kw + u) * m + k);
            }
        float c = r(a->y, (float)s);
        if (a->skip.rank) {
            float skip = faults_get(a->skip, i);
            c += a->skip_bias.rank ? r(a->y, skip + faults_get(a->skip_bias, o)) : skip;
        }
        faults_set(a->y, i, c);
    }
    return OK;
}
static Status conv_skip_fused(Exec *x, const void *args) { /* bias and skip in one rounding */
    Conv2d a = *(const Conv2d *)args;
    if (!a.skip.rank || a.form != CONV_BIAS || !a.w->bias.rank) return fault_call(x, OP_conv2d, &a);
    a.skip = a.skip_bias = (Tensor){0};
    a.form = CONV_RAW;
    const Conv2d *full = args;
    TRY(fault_call(x, OP_conv2d, &a));
    for (int64_t i = 0; i < tensor_numel(a.y); i++) {
        int64_t o = i % a.y.shape[2];
        float skip = faults_get(full->skip, i);
        if (full->skip_bias.rank) skip = r(a.y, skip + faults_get(full->skip_bias, o));
        faults_set(a.y, i, faults_get(a.y, i) + faults_get(a.w->bias, o) + skip);
    }
    return OK;
}

#define F(name, golden, op, run) {name, golden, {OP_##op, "fault", run, NULL, NULL}}
static const Fault FAULTS[] = {
    F("LayerNorm of adaLN not rounded", "ln_modulate_516", ln_modulate, ln_norm_unrounded),
    F("1 + scale not rounded", "ln_modulate_516", ln_modulate, ln_plus_unrounded),
    F("adaLN product not rounded", "ln_modulate_516", ln_modulate, ln_product_unrounded),
    F("adaLN shift and scale exchanged", "ln_modulate_72", ln_modulate, ln_exchanged),
    F("adaLN eps 1e-2", "ln_modulate_72", ln_modulate, ln_eps),
    F("LayerNorm rounds before its affine", "layernorm_72", layernorm, layernorm_no_bias),
    F("RMSNorm rounds twice", "rmsnorm_once_72", rmsnorm, rms_other_form),
    F("T5 norm rounds once", "rmsnorm_twice_72", rmsnorm, rms_other_form),
    F("gate product not rounded", "residual_gate", residual_gate, gate_unrounded),
    F("gelu_new in one rounding", "act_mul_gelu_new", act_mul, gelu_new_at_once),
    F("gelu_new cube in one rounding", "act_mul_gelu_new", act_mul, gelu_new_cube),
    F("quick_gelu in one rounding", "act_quick_gelu", act, quick_gelu_at_once),
    F("GELU erf for tanh", "act_gelu_tanh", act, gelu_other),
    F("QK norm not rounded before RoPE", "qk_norm_rope_head", qk_norm_rope_head, rope_unrounded),
    F("RoPE turns backwards", "qk_norm_rope_head", qk_norm_rope_head, rope_backwards),
    F("RoPE before the norm's weight", "qk_norm_rope_head", qk_norm_rope_head, rope_first),
    F("RoPE half-split pairs", "qk_norm_rope_head", qk_norm_rope_head, rope_half_split),
    F("RoPE left out", "qk_norm_rope_head", qk_norm_rope_head, rope_none),
    F("RoPE one token late", "qk_norm_rope_head", qk_norm_rope_head, rope_shifted),
    F("causal mask one key late", "softmax_causal", attention_eager, eager_mask_late),
    F("causal mask one key early", "softmax_causal", attention_eager, eager_mask_early),
    F("eager scores not rounded", "softmax", attention_eager, eager_unrounded),
    F("T5 position bias left out", "softmax", attention_eager, eager_no_bias),
    F("sine before cosine", "time_embed", time_embed, time_sine_first),
    F("sinusoid exponent over 127", "time_embed", time_embed, time_divisor),
    F("CFG in one rounding", "cfg_combine", cfg_combine, cfg_at_once),
    F("Euler dt not rounded to bf16", "euler_step", euler_step, euler_dt_f32),
    F("Euler product not rounded", "euler_step", euler_step, euler_product_f32),
    F("latent scaling in one rounding", "affine", affine, affine_at_once),
    F("shift_factor rounded to bf16", "affine", affine, affine_add_rounded),
    F("RGB truncated", "to_rgb8", to_rgb8, rgb_truncated),
    F("RGB sum not rounded to bf16", "to_rgb8", to_rgb8, rgb_half_up),
    F("patch (x, y) exchanged", "pack", pack, pack_transposed),
    F("T5 bias of query - key", "rel_bias", rel_bias, bias_backwards),
    F("T5 max_distance 127", "rel_bias", rel_bias, bias_distance),
    F("GroupNorm eps 1e-2", "groupnorm", groupnorm, groupnorm_eps),
    F("GroupNorm statistics not rounded", "groupnorm", groupnorm, groupnorm_statistics),
    F("GroupNorm + SiLU in one rounding", "groupnorm_silu", groupnorm_silu, groupnorm_silu_at_once),
    F("attention probabilities not rounded", "dit", attention, attention_unrounded),
    F("first text token dropped from attention", "dit", attention, attention_drops_first),
    F("last image token dropped from attention", "dit", attention, attention_drops_last),
    F("attention scale 1 % off", "dit", attention, attention_scale),
    F("LayerNorm of adaLN not rounded (block)", "dit", ln_modulate, ln_norm_unrounded),
    F("1 + scale not rounded (block)", "dit", ln_modulate, ln_plus_unrounded),
    F("gate product not rounded (block)", "dit", residual_gate, gate_unrounded),
    F("QK norm not rounded before RoPE (block)", "dit", qk_norm_rope_head, rope_unrounded),
    F("RoPE one token late (block)", "dit", qk_norm_rope_head, rope_shifted),
    F("causal mask one key late (block)", "clip", attention_eager, eager_mask_late),
    F("eager scores not rounded (CLIP block)", "clip", attention_eager, eager_unrounded),
    F("quick_gelu in one rounding (block)", "clip", act, quick_gelu_at_once),
    F("eager scores not rounded (T5 block)", "t5", attention_eager, eager_unrounded),
    F("T5 norm rounds once (block)", "t5", rmsnorm, rms_other_form),
    F("gelu_new in one rounding (block)", "t5", act_mul, gelu_new_at_once),
    F("T5 bias of query - key (block)", "t5", rel_bias, bias_backwards),
    F("convolution bias before the rounding", "vae", conv2d, conv_bias_fused),
    F("GroupNorm + SiLU in one rounding (block)", "vae", groupnorm_silu, groupnorm_silu_at_once),
    F("GroupNorm statistics not rounded (block)", "vae", groupnorm_silu, groupnorm_silu_statistics),
    F("convolution bias and skip in one rounding", "vae", conv2d, conv_skip_fused),
    F("attention probabilities not rounded (VAE)", "vae", self_attention, self_attention_unrounded),
    F("q, k, v of the VAE in one rounding", "vae", self_attention, self_attention_fused_bias),
};
#undef F
enum { FAULT_COUNT = sizeof FAULTS / sizeof *FAULTS };

#endif
