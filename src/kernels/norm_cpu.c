/* norm_cpu.c - the meaning of layernorm, ln_modulate, rmsnorm, its composites and qk_norm_rope_head (norm.h). GroupNorm
 * lives with the convolutions.
 *
 * Statistics are summed in double in ROWS_LANES partial sums and narrowed to f32 once; from there on every step is the
 * f32 step of the contract. A plain f32 sum would put the error of this table into every comparison with it.
 * Easy to get wrong: the order of the partial sums is part of the result (it must not depend on the compiler's vector
 * width or on the threads), and a row longer than a span is loaded again in each pass. */
#include "kernels/chain.h"
#include "kernels/registry.h"
#include "kernels/rows.h"
#include "kernels/unary.h"

#include <math.h>
#include <stdio.h>

static double lanes_sum(const double *lane) {
    double a[8], b[4];
    _Static_assert(ROWS_LANES == 16, "the tree below");
    for (int i = 0; i < 8; i++) a[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++) b[i] = a[i] + a[i + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

static void add_values(double *lane, const float *v, int64_t n) {
    int64_t j = 0;
    for (; j + ROWS_LANES <= n; j += ROWS_LANES)
        for (int i = 0; i < ROWS_LANES; i++) lane[i] += (double)v[j + i];
    for (int i = 0; j < n; j++, i++) lane[i] += (double)v[j];
}

/* Squares of v - mean; the difference is an f32, its square exact in double. */
static void add_squares(double *lane, const float *v, int64_t n, float mean) {
    int64_t j = 0;
    for (; j + ROWS_LANES <= n; j += ROWS_LANES)
        for (int i = 0; i < ROWS_LANES; i++) {
            double d = (double)(v[j + i] - mean);
            lane[i] += d * d;
        }
    for (int i = 0; j < n; j++, i++) {
        double d = (double)(v[j] - mean);
        lane[i] += d * d;
    }
}

static float rsqrt_of(double mean_square, float eps) {
    float v = (float)mean_square + eps;
    return (float)(1.0 / sqrt((double)v));
}

/* Statistics of one row. When the row fits into one span, v holds it afterwards. */
typedef struct Stats {
    float mean, rstd;
} Stats;

static Stats row_stats(const Tensor *x, const Walk *w, int64_t row, float eps, bool centred, float *v) {
    Stats out = {0};
    double lane[ROWS_LANES] = {0};
    for (int64_t first = 0; first < w->cols; first += ROWS_SPAN) {
        Span s = rows_piece(w, row, first);
        rows_load(v, x, s);
        if (centred) add_values(lane, v, s.n);
        else add_squares(lane, v, s.n, 0.0f);
    }
    double mean = lanes_sum(lane) / (double)w->cols;
    if (centred) {
        out.mean = (float)mean;
        memset(lane, 0, sizeof lane);
        for (int64_t first = 0; first < w->cols; first += ROWS_SPAN) {
            Span s = rows_piece(w, row, first);
            if (w->pieces > 1) rows_load(v, x, s);
            add_squares(lane, v, s.n, out.mean);
        }
        mean = lanes_sum(lane) / (double)w->cols;
    }
    out.rstd = rsqrt_of(mean, eps);
    return out;
}

/* --- rows of the last dimension --- */

static Status layernorm_cpu(Exec *x, const void *args) {
    LayerNorm a = *(const LayerNorm *)args;
    TRY(rows_want_float(x, OP_layernorm, "x", a.x));
    TRY(rows_want_like(x, OP_layernorm, "y", a.y, a.x));
    TRY(rows_want_row(x, OP_layernorm, "w", &a.w, a.x));
    TRY(rows_want_row(x, OP_layernorm, "b", &a.b, a.x));
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t row = 0; row < w.rows; row++) {
        float v[ROWS_SPAN], weight[ROWS_SPAN], bias[ROWS_SPAN];
        Stats st = row_stats(&a.x, &w, row, a.eps, true, v);
        for (int64_t first = 0; first < w.cols; first += ROWS_SPAN) {
            Span s = rows_piece(&w, row, first);
            if (w.pieces > 1) rows_load(v, &a.x, s);
            rows_load(weight, &a.w, s);
            rows_load(bias, &a.b, s);
            for (int64_t j = 0; j < s.n; j++) v[j] = fmaf(weight[j], (v[j] - st.mean) * st.rstd, bias[j]);
            rows_store(&a.y, s, v);
        }
    }
    return OK;
}

static Status ln_modulate_cpu(Exec *x, const void *args) {
    LnModulate a = *(const LnModulate *)args;
    DType t = a.x.dtype;
    TRY(rows_want_float(x, OP_ln_modulate, "x", a.x));
    TRY(rows_want_like(x, OP_ln_modulate, "y", a.y, a.x));
    TRY(rows_want_row(x, OP_ln_modulate, "scale", &a.scale, a.x));
    if (a.shift.rank) TRY(rows_want_row(x, OP_ln_modulate, "shift", &a.shift, a.x));
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t row = 0; row < w.rows; row++) {
        float v[ROWS_SPAN];
        Stats st = row_stats(&a.x, &w, row, a.eps, true, v);
        for (int64_t first = 0; first < w.cols; first += ROWS_SPAN) {
            Span s = rows_piece(&w, row, first);
            if (w.pieces > 1) rows_load(v, &a.x, s);
            for (int64_t j = 0; j < s.n; j++) v[j] = (v[j] - st.mean) * st.rstd;
            rows_round(v, s.n, t);
            rows_modulate(v, &a.scale, &a.shift, s, t);
            rows_store(&a.y, s, v);
        }
    }
    return OK;
}

/* The same bits for modulation by one row: scale and shift are widened, and r(1 + scale) rounded, once instead of once a
 * row, and a span makes one trip through the cache. */
static size_t ln_modulate_fused_scratch(const Exec *x, const void *args) {
    const LnModulate *a = args;
    (void)x;
    return 2 * arena_rounded((size_t)a->x.shape[a->x.rank - 1] * sizeof(float));
}

static Status ln_modulate_fused(Exec *x, const void *args) {
    LnModulate a = *(const LnModulate *)args;
    DType t = a.x.dtype;
    bool shifted = a.shift.rank != 0;
    TRY(rows_want_like(x, OP_ln_modulate, "y", a.y, a.x));
    Walk w = rows_walk(a.y);
    float *scale = arena_push(x->scratch, (size_t)w.cols * sizeof *scale);
    float *shift = arena_push(x->scratch, (size_t)w.cols * sizeof *shift);
    if (!scale || !shift) return fail(x->error, ERR_MEMORY, "ln_modulate: no scratch for two rows");
    rows_load(scale, &a.scale, (Span){0, 0, w.cols});
    for (int64_t j = 0; j < w.cols; j++) scale[j] += 1.0f;
    rows_round(scale, w.cols, t);
    if (shifted) rows_load(shift, &a.shift, (Span){0, 0, w.cols});
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t row = 0; row < w.rows; row++) {
        float v[ROWS_SPAN];
        Stats st = row_stats(&a.x, &w, row, a.eps, true, v);
        for (int64_t first = 0; first < w.cols; first += ROWS_SPAN) {
            Span s = rows_piece(&w, row, first);
            const float *m = scale + first, *d = shift + first;
            if (w.pieces > 1) rows_load(v, &a.x, s);
            if (t == BF16 && shifted)
                for (int64_t j = 0; j < s.n; j++)
                    v[j] = bf16_round(bf16_round((v[j] - st.mean) * st.rstd) * m[j]) + d[j];
            else if (t == BF16)
                for (int64_t j = 0; j < s.n; j++) v[j] = bf16_round((v[j] - st.mean) * st.rstd) * m[j];
            else if (shifted)
                for (int64_t j = 0; j < s.n; j++) v[j] = (v[j] - st.mean) * st.rstd * m[j] + d[j];
            else
                for (int64_t j = 0; j < s.n; j++) v[j] = (v[j] - st.mean) * st.rstd * m[j];
            rows_store(&a.y, s, v);
        }
    }
    return OK;
}

/* The residual by its reference, then the norm above: h is read while it is in the cache. */
static size_t gate_norm_fused_scratch(const Exec *x, const void *args) {
    ChainGateNorm c = chain_gate_norm(args);
    return ln_modulate_fused_scratch(x, &c.norm);
}

static Status gate_norm_fused(Exec *x, const void *args) {
    ChainGateNorm c = chain_gate_norm(args);
    TRY(chain_run(x, OP_residual_gate, &c.gate));
    return ln_modulate_fused(x, &c.norm);
}

static bool ln_modulate_fused_accepts(const void *args, char *why, size_t size) {
    const LnModulate *a = args;
    int64_t d = a->x.rank ? a->x.shape[a->x.rank - 1] : 0;
    const Tensor *row[] = {&a->scale, &a->shift};
    if (a->x.dtype != BF16 && a->x.dtype != F32) return snprintf(why, size, "x is %s", dtype_name(a->x.dtype)), false;
    for (int i = 0; i < 2; i++)
        if (row[i]->rank && (row[i]->rank != 1 || row[i]->shape[0] != d || row[i]->dtype != a->x.dtype))
            return snprintf(why, size, "%s is not one row of %lld in x's dtype", i ? "shift" : "scale", (long long)d), false;
    return true;
}

static bool gate_norm_fused_accepts(const void *args, char *why, size_t size) {
    ChainGateNorm c = chain_gate_norm(args);
    return ln_modulate_fused_accepts(&c.norm, why, size);
}

static Status rmsnorm_cpu(Exec *x, const void *args) {
    RmsNorm a = *(const RmsNorm *)args;
    bool weighted = a.w.rank != 0, twice = a.form == RMS_TWICE, plus = a.form == RMS_PLUS_ONE;
    if (a.form < RMS_ONCE || a.form > RMS_PLUS_ONE || (plus && !weighted))
        return fail(x->error, ERR_MODEL, "rmsnorm: form %d %s", (int)a.form, plus ? "needs a weight" : "is unknown");
    TRY(rows_want_float(x, OP_rmsnorm, "x", a.x));
    TRY(rows_want_like(x, OP_rmsnorm, "y", a.y, a.x));
    if (weighted) TRY(rows_want_row(x, OP_rmsnorm, "w", &a.w, a.x));
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t row = 0; row < w.rows; row++) {
        float v[ROWS_SPAN], m[ROWS_SPAN];
        Stats st = row_stats(&a.x, &w, row, a.eps, false, v);
        for (int64_t first = 0; first < w.cols; first += ROWS_SPAN) {
            Span s = rows_piece(&w, row, first);
            if (w.pieces > 1) rows_load(v, &a.x, s);
            for (int64_t j = 0; j < s.n; j++) v[j] *= st.rstd;
            if (twice) rows_round(v, s.n, a.x.dtype);
            if (weighted) {
                rows_load(m, &a.w, s);
                for (int64_t j = 0; plus && j < s.n; j++) m[j] += 1.0f;
                for (int64_t j = 0; j < s.n; j++) v[j] *= m[j];
            }
            rows_store(&a.y, s, v);
        }
    }
    return OK;
}

/* v = r(r(n) * w) of one span: what both composites below start from. */
static void rms_twice(float *v, const Stats *st, const Tensor *w, Span s, DType t) {
    float m[ROWS_SPAN];
    for (int64_t j = 0; j < s.n; j++) v[j] *= st->rstd;
    rows_round(v, s.n, t);
    rows_load(m, w, s);
    for (int64_t j = 0; j < s.n; j++) v[j] *= m[j];
    rows_round(v, s.n, t);
}

static Status rmsnorm_scale_cpu(Exec *x, const void *args) {
    RmsNormScale a = *(const RmsNormScale *)args;
    bool scaled = a.scale.rank != 0;
    DType t = a.x.dtype;
    TRY(rows_want_float(x, OP_rmsnorm_scale, "x", a.x));
    TRY(rows_want_like(x, OP_rmsnorm_scale, "y", a.y, a.x));
    TRY(rows_want_row(x, OP_rmsnorm_scale, "w", &a.w, a.x));
    if (scaled) TRY(rows_want_row(x, OP_rmsnorm_scale, "scale", &a.scale, a.x));
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t row = 0; row < w.rows; row++) {
        float v[ROWS_SPAN];
        Stats st = row_stats(&a.x, &w, row, a.eps, false, v);
        for (int64_t first = 0; first < w.cols; first += ROWS_SPAN) {
            Span s = rows_piece(&w, row, first);
            if (w.pieces > 1) rows_load(v, &a.x, s);
            rms_twice(v, &st, &a.w, s, t);
            if (scaled) rows_modulate(v, &a.scale, &(Tensor){0}, s, t);
            rows_store(&a.y, s, v);
        }
    }
    return OK;
}

static void tanh_span(const Exec *x, float *v, int64_t n, DType t) {
    for (int64_t j = 0; j < n; j++) {
        uint32_t bits;
        memcpy(&bits, &v[j], 4);
        v[j] = t == BF16 ? bf16_to_f32(x->unary->table[UNARY_TANH][bits >> 16]) : tanhf(v[j]);
    }
}

static Status residual_norm_cpu(Exec *x, const void *args) {
    ResidualNorm a = *(const ResidualNorm *)args;
    bool gated = a.gate.rank != 0;
    DType t = a.x.dtype;
    TRY(rows_want_float(x, OP_residual_norm, "x", a.x));
    TRY(rows_want_like(x, OP_residual_norm, "y", a.y, a.x));
    TRY(rows_want_like(x, OP_residual_norm, "residual", a.residual, a.x));
    TRY(rows_want_row(x, OP_residual_norm, "w", &a.w, a.x));
    if (gated) TRY(rows_want_row(x, OP_residual_norm, "gate", &a.gate, a.x));
    if (gated && t == BF16 && !x->unary)
        return fail(x->error, ERR_MODEL, "residual_norm: the tables of the BF16 functions are not open");
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t row = 0; row < w.rows; row++) {
        float v[ROWS_SPAN], m[ROWS_SPAN];
        Stats st = row_stats(&a.x, &w, row, a.eps, false, v);
        for (int64_t first = 0; first < w.cols; first += ROWS_SPAN) {
            Span s = rows_piece(&w, row, first);
            if (w.pieces > 1) rows_load(v, &a.x, s);
            rms_twice(v, &st, &a.w, s, t);
            if (gated) {
                rows_load(m, &a.gate, s);
                tanh_span(x, m, s.n, t);
                for (int64_t j = 0; j < s.n; j++) v[j] *= m[j];
                rows_round(v, s.n, t);
            }
            rows_load(m, &a.residual, s);
            for (int64_t j = 0; j < s.n; j++) v[j] += m[j];
            rows_store(&a.y, s, v);
        }
    }
    return OK;
}

/* By definition the two ops, as the table has them. */
static Status residual_norm_scale_cpu(Exec *x, const void *args) {
    const ResidualNormScale *a = args;
    const ResidualNorm first = {a->y, a->residual, a->x, a->w, a->gate, a->eps};
    const RmsNormScale then = {a->n, a->y, a->w_next, a->scale, a->eps};
    TRY(ops_reference(x->ops, OP_residual_norm)->run(x, &first));
    return ops_reference(x->ops, OP_rmsnorm_scale)->run(x, &then);
}

/* --- heads --- */

enum { HEAD_MAX = 512 }; /* elements of a head: the published models have 64 to 256 */

static float rounded(float v, DType t) { return t == BF16 ? bf16_round(v) : v; }

/* Rotates v in place, f32 products and sums; c, s: E/2 values of the token. */
static void rope(float *v, int64_t e, const float *c, const float *s, int32_t form, DType t) {
    int64_t half = e / 2, step = form == ROPE_INTERLEAVED ? 2 : 1, other = form == ROPE_INTERLEAVED ? 1 : half;
    float out[HEAD_MAX];
    for (int64_t i = 0; form == ROPE_COMPLEX && i < half; i++) {
        float x0 = v[2 * i], x1 = v[2 * i + 1];
        v[2 * i] = fmaf(x0, c[i], -(x1 * s[i]));
        v[2 * i + 1] = fmaf(x0, s[i], x1 * c[i]);
    }
    if (form == ROPE_COMPLEX) return;
    for (int64_t i = 0; form == ROPE_HALF_EAGER && i < half; i++) {
        float x0 = v[i], x1 = v[i + half];
        out[i] = rounded(x0 * c[i], t) + rounded(-x1 * s[i], t);
        out[i + half] = rounded(x1 * c[i], t) + rounded(x0 * s[i], t);
    }
    if (form == ROPE_HALF_EAGER) {
        memcpy(v, out, (size_t)e * sizeof *v);
        return;
    }
    for (int64_t i = 0; i < half; i++) {
        float x0 = v[i * step], x1 = v[i * step + other];
        out[i * step] = x0 * c[i] - x1 * s[i];
        out[i * step + other] = x1 * c[i] + x0 * s[i];
    }
    memcpy(v, out, (size_t)e * sizeof *v);
}

typedef struct Heads {
    Tensor y, x, w, cos, sin;
    float eps;
    int32_t rope, form;
} Heads;

static void norm_rope_heads(const Heads *a) {
    Walk w = rows_walk(a->y);
    int64_t heads = a->y.shape[1], half = w.cols / 2;
    DType t = a->x.dtype;
    float weight[HEAD_MAX];
    if (a->form != RMS_NONE) rows_load(weight, &a->w, (Span){0, 0, w.cols});
    for (int64_t j = 0; a->form == RMS_PLUS_ONE && j < w.cols; j++) weight[j] += 1.0f;
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t row = 0; row < w.rows; row++) {
        float v[ROWS_SPAN], c[HEAD_MAX / 2], s[HEAD_MAX / 2];
        Span all = {row, 0, w.cols};
        if (a->form == RMS_NONE) {
            rows_load(v, &a->x, all);
        } else {
            Stats st = row_stats(&a->x, &w, row, a->eps, false, v);
            for (int64_t j = 0; j < w.cols; j++) v[j] *= st.rstd;
            if (a->form == RMS_TWICE) rows_round(v, w.cols, t);
            for (int64_t j = 0; j < w.cols; j++) v[j] = weight[j] * v[j];
        }
        if (a->rope != ROPE_NONE) {
            rows_round(v, w.cols, t);
            rows_load(c, &a->cos, (Span){row / heads, 0, half});
            rows_load(s, &a->sin, (Span){row / heads, 0, half});
            rope(v, w.cols, c, s, a->rope, t);
        }
        rows_store(&a->y, all, v);
    }
}

static Status want_heads(Exec *x, const char *arg, Tensor q, Tensor y, Tensor w, const QkNormRopeHead *a) {
    OpId op = OP_qk_norm_rope_head;
    TRY(rows_want_float(x, op, arg, q));
    TRY(rows_want_like(x, op, "the output", y, q));
    if (q.rank != 3 || q.shape[2] > HEAD_MAX || q.shape[2] % 2)
        return fail(x->error, ERR_MODEL, "qk_norm_rope_head: %s must be [T, H, E], E even and at most %d", arg,
                    HEAD_MAX);
    if (a->form == RMS_NONE ? w.rank != 0 : w.rank != 1 || w.shape[0] != q.shape[2] || w.dtype != q.dtype)
        return fail(x->error, ERR_MODEL, "qk_norm_rope_head: the weight of %s must be %s [%lld], and absent without a norm", arg,
                    dtype_name(q.dtype), (long long)q.shape[2]);
    if (a->rope == ROPE_NONE) return OK;
    const Tensor *table[] = {&a->cos, &a->sin};
    for (int i = 0; i < 2; i++)
        if (table[i]->dtype != F32 || table[i]->rank != 2 || table[i]->shape[0] != q.shape[0] ||
            table[i]->shape[1] != q.shape[2] / 2)
            return fail(x->error, ERR_MODEL, "qk_norm_rope_head: the RoPE tables must be F32 [%lld, %lld] for %s",
                        (long long)q.shape[0], (long long)q.shape[2] / 2, arg);
    return OK;
}

static Status qk_norm_rope_head_cpu(Exec *x, const void *args) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    if (a.form < RMS_ONCE || a.form > RMS_NONE)
        return fail(x->error, ERR_MODEL, "qk_norm_rope_head: form %d is unknown", (int)a.form);
    if (a.rope < ROPE_NONE || a.rope > ROPE_COMPLEX)
        return fail(x->error, ERR_MODEL, "qk_norm_rope_head: RoPE form %d is unknown", (int)a.rope);
    TRY(want_heads(x, "q", a.q, a.yq, a.wq, &a));
    TRY(want_heads(x, "k", a.k, a.yk, a.wk, &a));
    norm_rope_heads(&(Heads){a.yq, a.q, a.wq, a.cos, a.sin, a.eps, a.rope, a.form});
    norm_rope_heads(&(Heads){a.yk, a.k, a.wk, a.cos, a.sin, a.eps, a.rope, a.form});
    return OK;
}

#define IMPL(op_name) {.op = OP_##op_name, .name = "cpu", .run = op_name##_cpu}
const Impl NORM_CPU[] = {IMPL(layernorm),     IMPL(ln_modulate),   IMPL(rmsnorm),          IMPL(rmsnorm_scale),
                         IMPL(residual_norm), IMPL(residual_norm_scale), IMPL(qk_norm_rope_head)};
const Impl LN_MODULATE_FUSED_CPU[] = {
    {OP_ln_modulate, "cpu_fused", ln_modulate_fused, ln_modulate_fused_scratch, ln_modulate_fused_accepts},
    {OP_residual_gate_ln_modulate, "cpu_fused", gate_norm_fused, gate_norm_fused_scratch, gate_norm_fused_accepts}};
const int NORM_CPU_COUNT = sizeof NORM_CPU / sizeof *NORM_CPU;
