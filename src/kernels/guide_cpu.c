/* guide_cpu.c - the meaning of guide_x0 and velocity_x0 (guide.h).
 *
 * Easy to get wrong: outputs may lie on inputs, so the standard deviations are complete before anything is stored. */
#include "kernels/registry.h"
#include "kernels/rows.h"

#include <math.h>

static Status sigma_of(Exec *x, OpId op, Tensor t, float *out) {
    if (t.dtype != F32 || t.rank != 1 || t.shape[0] != 1)
        return fail(x->error, ERR_MODEL, "%s: sigma must be F32 [1]", ops_info(op)->name);
    memcpy(out, t.data, sizeof *out);
    return OK;
}

static Status want_f32(Exec *x, OpId op, Tensor t) {
    if (t.dtype == F32) return OK;
    return fail(x->error, ERR_MODEL, "%s: x is %s, expected F32", ops_info(op)->name, dtype_name(t.dtype));
}

static float kept(float v, bool bf16) { return bf16 ? bf16_round(v) : v; }

/* b = by (c - (x - v sigma)); without v a number 0. */
static void difference(float *b, const Tensor *v, const float *x, const float *c, float sigma, float by, bool bf16, Span s) {
    if (!v->rank) {
        for (int64_t j = 0; j < s.n; j++) b[j] = 0;
        return;
    }
    rows_load(b, v, s);
    for (int64_t j = 0; j < s.n; j++) b[j] = by * (c[j] - kept(x[j] - b[j] * sigma, bf16));
}

static Status guide_x0_cpu(Exec *x, const void *args) {
    GuideX0 a = *(const GuideX0 *)args;
    const struct { const char *name; Tensor t; bool optional; } like[] = {
        {"y", a.y, false}, {"c", a.c, true}, {"cond", a.cond, false}, {"neg", a.neg, true}, {"perturbed", a.perturbed, true},
        {"isolated", a.isolated, true}};
    float sigma;
    TRY(want_f32(x, OP_guide_x0, a.x));
    for (int i = 0; i < 6; i++)
        if (!like[i].optional || like[i].t.rank) TRY(rows_want_like(x, OP_guide_x0, like[i].name, like[i].t, a.x));
    TRY(sigma_of(x, OP_guide_x0, a.sigma, &sigma));
    const struct { Tensor t; float by; } other[] = {{a.neg, a.cfg}, {a.perturbed, a.stg}, {a.isolated, a.modality}};
    bool bf16 = a.form == GUIDE_OFFICIAL_BF16;
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], c[ROWS_SPAN], b[ROWS_SPAN], y[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        rows_load(c, &a.cond, s);
        for (int64_t j = 0; j < s.n; j++) y[j] = c[j] = kept(v[j] - c[j] * sigma, bf16);
        for (int k = 0; k < 3; k++) {
            difference(b, &other[k].t, v, c, sigma, other[k].by, bf16, s);
            for (int64_t j = 0; j < s.n; j++) y[j] += b[j];
        }
        rows_store(&a.y, s, y);
        if (a.c.rank) rows_store(&a.c, s, c);
    }
    return OK;
}

/* In double, twice over the elements: the mean, then the squares of the distances from it. */
static float deviation(Tensor t) {
    Walk w = rows_walk(t);
    double n = (double)tensor_numel(t), mean = 0, squares = 0;
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0;
        for (int64_t i = 0; i < w.count; i++) {
            float v[ROWS_SPAN];
            Span s = rows_span(&w, i);
            rows_load(v, &t, s);
            for (int64_t j = 0; j < s.n; j++) sum += pass ? ((double)v[j] - mean) * ((double)v[j] - mean) : (double)v[j];
        }
        if (pass) squares = sum;
        else mean = sum / n;
    }
    return (float)sqrt(squares / (n - 1));
}

static Status velocity_x0_cpu(Exec *x, const void *args) {
    VelocityX0 a = *(const VelocityX0 *)args;
    bool rescales = a.rescale != 0, official = a.form != GUIDE_DIFFUSERS, bf16 = a.form == GUIDE_OFFICIAL_BF16;
    float sigma, ratio = 1;
    TRY(want_f32(x, OP_velocity_x0, a.x));
    TRY(rows_want_like(x, OP_velocity_x0, "y", a.y, a.x));
    TRY(rows_want_like(x, OP_velocity_x0, "x0", a.x0, a.x));
    if (rescales) TRY(rows_want_like(x, OP_velocity_x0, "like", a.like, a.x));
    TRY(sigma_of(x, OP_velocity_x0, a.sigma, &sigma));
    if (a.clean.rank) {
        TRY(rows_want_like(x, OP_velocity_x0, "clean", a.clean, a.x));
        if (a.x.rank != 2 || a.mask.rank != 2 || a.mask.shape[0] != a.x.shape[0] || a.mask.shape[1] != 1)
            return fail(x->error, ERR_MODEL, "velocity_x0: mask must be [T,1] beside clean [T,C]");
        TRY(rows_want_row(x, OP_velocity_x0, "mask", &a.mask, a.x));
    }
    if (rescales) ratio = deviation(a.like) / deviation(a.x0);
    const float by = official && rescales ? a.rescale * ratio + a.rest : 1;
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], g[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        rows_load(g, &a.x0, s);
        if (official)
            for (int64_t j = 0; j < s.n; j++) g[j] = kept(rescales ? g[j] * by : g[j], bf16);
        else if (rescales)
            for (int64_t j = 0; j < s.n; j++) g[j] = a.rescale * (g[j] * ratio) + a.rest * g[j];
        if (a.clean.rank) {
            float given[ROWS_SPAN], mask[ROWS_SPAN];
            rows_load(given, &a.clean, s);
            rows_load(mask, &a.mask, s);
            for (int64_t j = 0; j < s.n; j++) g[j] = kept(g[j] * (1.0f - mask[j]) + given[j] * mask[j], bf16);
        }
        for (int64_t j = 0; j < s.n; j++) v[j] = kept((v[j] - g[j]) / sigma, bf16);
        rows_store(&a.y, s, v);
    }
    return OK;
}

const Impl GUIDE_CPU[] = {
    {.op = OP_guide_x0, .name = "cpu", .run = guide_x0_cpu},
    {.op = OP_velocity_x0, .name = "cpu", .run = velocity_x0_cpu},
};
const int GUIDE_CPU_COUNT = sizeof GUIDE_CPU / sizeof *GUIDE_CPU;
