/* chan_norm_cpu.c - the meaning of chan_rmsnorm, chan_rmsnorm_silu (norm.h) and chan_affine (elementwise.h): what a video VAE
 * does to the channels of each pixel; and of chan_rmsnorm_silu with one rounding (chan_norm.h).
 *
 * The length runs in double in ROWS_LANES partial sums, as in norm_cpu.c, and is narrowed once; all after it is the contract's
 * f32 step.
 * Easy to get wrong: the quotient is a true division and is rounded before sqrt(C) is multiplied in; a row longer than a span
 * is loaded again. */
#include "kernels/chan_norm.h"
#include "kernels/exp_cpu.h"
#include "kernels/registry.h"
#include "kernels/rows.h"
#include "kernels/unary.h"

#include <stdio.h>

/* One call's arguments. inner: the dtype to which steps before the last one round. */
typedef struct Norm {
    ChanRmsNorm a;
    DType inner;
    const uint16_t *silu; /* the table; NULL: no SiLU, or in f32 */
    bool activates;
} Norm;

static void load(float *v, const Norm *m, Span s) {
    rows_load(v, &m->a.x, s);
    if (!m->a.bias.rank) return;
    float bias[ROWS_SPAN];
    rows_load(bias, &m->a.bias, s);
    for (int64_t j = 0; j < s.n; j++) v[j] += bias[j];
    rows_round(v, s.n, m->inner);
}

/* max(|x'|, 1e-12); v holds the row when it fits into one span. */
static float length(const Norm *m, const Walk *w, int64_t row, float *v) {
    double lane[ROWS_LANES] = {0}, sum = 0;
    for (int64_t first = 0; first < w->cols; first += ROWS_SPAN) {
        Span s = rows_piece(w, row, first);
        load(v, m, s);
        for (int64_t j = 0; j < s.n; j++) lane[j % ROWS_LANES] += (double)v[j] * (double)v[j];
    }
    for (int i = 0; i < ROWS_LANES; i++) sum += lane[i];
    float norm = (float)sqrt(sum);
    return norm < 1e-12f ? 1e-12f : norm; /* NaN stays */
}

static void finish(const Norm *m, float *v, const float *gamma, int64_t n, float norm, float scale) {
    for (int64_t j = 0; j < n; j++) v[j] /= norm;
    rows_round(v, n, m->inner);
    for (int64_t j = 0; j < n; j++) v[j] *= scale;
    rows_round(v, n, m->inner);
    for (int64_t j = 0; j < n; j++) v[j] *= gamma[j];
    if (m->silu)
        for (int64_t j = 0; j < n; j++) v[j] = bf16_to_f32(m->silu[bf16_from_f32(v[j])]);
    else if (m->activates)
        for (int64_t j = 0; j < n; j++) v[j] = silu_f32(v[j]);
}

static Status normalise(Exec *x, OpId op, const void *args, bool keep) {
    Norm m = {.a = *(const ChanRmsNorm *)args, .activates = op == OP_chan_rmsnorm_silu};
    ChanRmsNorm *a = &m.a;
    m.inner = keep ? F32 : a->x.dtype;
    TRY(rows_want_float(x, op, "x", a->x));
    TRY(rows_want_like(x, op, "y", a->y, a->x));
    if (!a->w.rank) return fail(x->error, ERR_MODEL, "%s: needs a weight", ops_info(op)->name);
    TRY(rows_want_row(x, op, "w", &a->w, a->x));
    if (a->bias.rank) TRY(rows_want_row(x, op, "bias", &a->bias, a->x));
    if (m.activates && m.inner == BF16) {
        if (!x->unary) return fail(x->error, ERR_MODEL, "%s: the tables of the BF16 functions are not open", ops_info(op)->name);
        m.silu = x->unary->table[UNARY_SILU];
    }
    Walk w = rows_walk(a->y);
    const float scale = (float)sqrt((double)w.cols);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t row = 0; row < w.rows; row++) {
        float v[ROWS_SPAN], gamma[ROWS_SPAN];
        float norm = length(&m, &w, row, v);
        for (int64_t first = 0; first < w.cols; first += ROWS_SPAN) {
            Span s = rows_piece(&w, row, first);
            if (w.pieces > 1) load(v, &m, s);
            rows_load(gamma, &a->w, s);
            finish(&m, v, gamma, s.n, norm, scale);
            rows_store(&a->y, s, v);
        }
    }
    return OK;
}

static Status chan_rmsnorm(Exec *x, const void *args) { return normalise(x, OP_chan_rmsnorm, args, false); }
static Status chan_rmsnorm_silu(Exec *x, const void *args) { return normalise(x, OP_chan_rmsnorm_silu, args, false); }
static Status chan_rmsnorm_silu_f32(Exec *x, const void *args) { return normalise(x, OP_chan_rmsnorm_silu, args, true); }

bool chan_norm_keeps_accepts(const void *args, char *why, size_t size) {
    const ChanRmsNorm *a = args;
    if (a->x.dtype == BF16 && a->y.dtype == BF16) return true;
    snprintf(why, size, "x is %s, expected BF16: without a rounding there is none to leave out", dtype_name(a->x.dtype));
    return false;
}

static void scale_or_shift(float *v, const float *by, const float *add, int64_t n, char step) {
    for (int64_t j = 0; j < n; j++)
        v[j] = step == '/' ? v[j] / by[j] : step == '*' ? v[j] * by[j] : step == '+' ? v[j] + add[j] : v[j] - add[j];
}

static Status chan_affine(Exec *x, const void *args) {
    ChanAffine a = *(const ChanAffine *)args;
    DType t = a.y.dtype;
    TRY(rows_want_float(x, OP_chan_affine, "y", a.y));
    if (!tensor_same_shape(a.x, a.y) || (a.x.dtype != t && a.x.dtype != F32))
        return fail(x->error, ERR_MODEL, "chan_affine: x must have y's shape, and y's dtype or F32");
    TRY(rows_want_row(x, OP_chan_affine, "a", &a.a, a.y));
    TRY(rows_want_row(x, OP_chan_affine, "b", &a.b, a.y));
    const char first = "/-*-"[a.form & 3], second = "+*+/"[a.form & 3];
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], by[ROWS_SPAN], add[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        rows_load(by, &a.a, s);
        rows_load(add, &a.b, s);
        rows_round(v, s.n, t);
        scale_or_shift(v, by, add, s.n, first);
        rows_round(v, s.n, t);
        scale_or_shift(v, by, add, s.n, second);
        rows_store(&a.y, s, v);
    }
    return OK;
}

const Impl CHAN_NORM_CPU[] = {
    {OP_chan_rmsnorm, "cpu", chan_rmsnorm, NULL, NULL},
    {OP_chan_rmsnorm_silu, "cpu", chan_rmsnorm_silu, NULL, NULL},
    {OP_chan_affine, "cpu", chan_affine, NULL, NULL},
};
const int CHAN_NORM_CPU_COUNT = sizeof CHAN_NORM_CPU / sizeof *CHAN_NORM_CPU;

const Impl WAN_NORM_CPU[] = {{OP_chan_rmsnorm_silu, "cpu_f32", chan_rmsnorm_silu_f32, NULL, chan_norm_keeps_accepts}};
