/* check_cases_wave.c - cases of what the vocoders do to signals: conv_transpose1d, mean3, fir_up, snake_filtered,
 * magnitude.
 *
 * Sums are judged by fp64 sums with the room that any order of n f32 terms has, n u times the sum of magnitudes. Behind
 * a filter a rounding may fall to either side: a value has then a lowest and a highest neighbour, and what is made of
 * it is computed of both and of what lies between.
 * Easy to get wrong: a snake is not monotone, but where its argument has an interval at all, that is two or three
 * numbers of the dtype, or in F32 so short that its slope bounds it. */
#include "check.h"

#include <math.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

static int64_t held(int64_t i, int64_t n) { return i < 0 ? 0 : i < n ? i : n - 1; }

/* Spoilt inputs make sums that nobody orders: judged are elements without. */
static void skip(Case *c, Buf *y, int64_t i) {
    if (!y->skipped) y->skipped = check_alloc(c, (size_t)y->n);
    y->skipped[i] = CHECK_UNJUDGED;
}

/* --- conv_transpose1d --- */

static void make_transpose(Case *c) {
    static const int64_t shapes[][5] = {/* rows, channels in and out, kernel, stride */
                                        {1, 1, 1, 1, 1},    {9, 24, 12, 16, 6}, {5, 12, 6, 15, 5},  {7, 6, 3, 4, 2},
                                        {33, 64, 32, 8, 2}, {2, 3, 5, 11, 5},   {40, 96, 48, 4, 2}, {3, 1030, 7, 12, 6},
                                        {101, 16, 8, 4, 2}, {6, 5, 300, 16, 6}, {4, 7, 9, 7, 2},    {3, 4, 2, 2, 3}};
    enum { SHAPES = 12 };
    ARGS(ConvTranspose1d);
    const int64_t *s = shapes[c->index % SHAPES], rows = s[0], in = s[1], out = s[2], k = s[3];
    DType t = c->index / SHAPES % 2 ? BF16 : F32,
          stored = !c->gpu && c->index / SHAPES / 2 % 2 ? (t == F32 ? BF16 : F32) : t;
    a->stride = (int32_t)s[4], a->pad = (int32_t)(k > s[4] ? (k - s[4]) / 2 : 0);
    int64_t made = (rows - 1) * a->stride - 2 * a->pad + k;
    Layout lx = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE, ly = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE;
    check_label(c, "%s, weight %s, %lld rows of %lld to %lld channels, kernel %lld, stride %d, x %s y %s",
                dtype_name(t), dtype_name(stored), (long long)rows, (long long)in, (long long)out, (long long)k,
                (int)a->stride, check_layout_name(lx), check_layout_name(ly));
    Buf *x = check_in(c, "x", &a->x, t, lx, SHAPE(rows, in)), *bias = NULL;
    Buf *w = check_weight(c, 0, stored, t, c->gpu || stored == t ? LAYOUT_DENSE : LAYOUT_UNALIGNED, SHAPE(in, out, k));
    if (check_below(c, 3)) bias = check_bias(c, 0, t, out), check_fill(c, bias, 0, 1), check_label(c, ", bias");
    Buf *y = check_out(c, "y", &a->y, t, ly, SHAPE(made, out));
    a->w = &c->weight[0];
    check_fill(c, x, 0.2, 1);
    check_fill(c, w, 0, 1 / sqrt((double)in));
    for (int64_t i = 0; i < y->n; i++) {
        double sum = 0, size = 0x1p-120;
        int64_t at = i / out + a->pad, o = i % out, terms = 0;
        for (int64_t j = 0; j < k; j++) {
            if (at < j || (at - j) % a->stride || (at - j) / a->stride >= rows) continue;
            for (int64_t n = 0; n < in; n++, terms++) {
                double p =
                    (double)x->v[(at - j) / a->stride * in + n] * check_round((double)w->v[(n * out + o) * k + j], t);
                sum += p, size += fabs(p);
            }
        }
        double room = (double)(terms + 1) * CHECK_U * size, v[3];
        for (int n = 0; n < 3; n++) {
            v[n] = check_r(sum + (n - 1) * (terms ? room : 0), t);
            if (bias) v[n] = check_r(v[n] + (double)bias->v[o], t);
        }
        check_between(y, i, v[1], v[0], v[2]);
    }
}

/* --- mean3, magnitude --- */

static void make_mean3(Case *c) {
    static const int64_t shapes[][2] = {{1, 1}, {3, 7}, {130, 32}, {9, 1025}, {40, 768}};
    enum { SHAPES = 5 };
    ARGS(Mean3);
    const int64_t *s = shapes[c->index % SHAPES];
    DType t = c->index / SHAPES % 2 ? BF16 : F32;
    check_label(c, "%s, %lld rows of %lld", dtype_name(t), (long long)s[0], (long long)s[1]);
    Buf *in[3];
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"a", "b", "c"};
        in[i] = check_in(c, names[i], &(&a->a)[i], t, check_layout(c), 2, s);
        check_fill(c, in[i], 0.1, 2);
        if (c->index % 4 == 3) check_spoil(c, in[i]);
    }
    Buf *y = check_out(c, "y", &a->y, t, check_layout(c), 2, s);
    for (int64_t i = 0; i < y->n; i++) {
        double sum = check_r(check_r((double)in[0]->v[i] + (double)in[1]->v[i], F32) + (double)in[2]->v[i], F32);
        check_exact(y, i, check_r(sum * (double)(1.0f / 3.0f), t));
    }
}

static void make_magnitude(Case *c) {
    static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {12, 257}, {130, 5}, {2, 1100}};
    enum { SHAPES = 5 };
    ARGS(Magnitude);
    const int64_t *s = shapes[c->index % SHAPES], n = s[1];
    DType t = c->index / SHAPES % 2 ? BF16 : F32;
    Layout lx = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE, ly = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE;
    check_label(c, "%s, %lld rows of %lld, x %s y %s", dtype_name(t), (long long)s[0], (long long)n,
                check_layout_name(lx), check_layout_name(ly));
    Buf *x = check_in(c, "x", &a->x, t, lx, SHAPE(s[0], 2 * n)), *y = check_out(c, "y", &a->y, t, ly, SHAPE(s[0], n));
    check_fill(c, x, 0, 2);
    if (c->index % 4 == 3) check_spoil(c, x);
    for (int64_t i = 0; i < y->n; i++) {
        const float *row = x->v + i / n * 2 * n + i % n;
        double re = check_r((double)row[0] * (double)row[0], t), im = check_r((double)row[n] * (double)row[n], t);
        check_exact(y, i, check_r(sqrt(check_r(re + im, t)), t));
    }
}

/* --- filters --- */

/* A filter of n taps that sums to about 1 and is not symmetric. */
static void fill_filter(Case *c, Buf *f) { check_fill(c, f, 1 / (double)f->n, 0.5 / (double)f->n); }

typedef struct Range {
    double low, want, high;
} Range;

/* Row t, channel o of x at `ratio` times its rate. */
static Range raised(const Buf *x, const Buf *f, int64_t channels, int64_t ratio, int64_t pad, int64_t crop, int64_t t,
                    int64_t o) {
    DType type = x->view.dtype;
    double sum = 0, size = 0;
    int64_t terms = 0;
    for (int64_t j = 0; j < f->n; j++) {
        if ((t + crop - j) % ratio) continue;
        double p = (double)f->v[j] * (double)x->v[held((t + crop - j) / ratio - pad, x->n / channels) * channels + o];
        sum += p, size += fabs(p), terms++;
    }
    double room = (double)(terms + 1) * CHECK_U * size, v[3];
    for (int i = 0; i < 3; i++) v[i] = check_r(check_r(sum + (i - 1) * room, type) * (double)ratio, type);
    return (Range){v[0], v[1], v[2]};
}

static void make_fir_up(Case *c) {
    static const int64_t shapes[][6] = {/* rows, channels, ratio, taps, pad, crop */
                                        {1, 1, 2, 12, 5, 15},  {9, 2, 3, 43, 7, 42}, {40, 2, 3, 43, 7, 42},
                                        {33, 7, 2, 12, 5, 15}, {5, 300, 2, 8, 3, 9}, {300, 1, 4, 24, 5, 30}};
    enum { SHAPES = 6 };
    ARGS(FirUp);
    const int64_t *s = shapes[c->index % SHAPES];
    DType t = c->index / SHAPES % 2 ? BF16 : F32;
    a->ratio = (int32_t)s[2], a->pad = (int32_t)s[4], a->crop = (int32_t)s[5];
    Layout lx = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE, ly = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE;
    check_label(c, "%s, %lld rows of %lld, %lld times, %lld taps, x %s y %s", dtype_name(t), (long long)s[0],
                (long long)s[1], (long long)s[2], (long long)s[3], check_layout_name(lx), check_layout_name(ly));
    Buf *x = check_in(c, "x", &a->x, t, lx, SHAPE(s[0], s[1])),
        *f = check_in(c, "filter", &a->filter, t, LAYOUT_DENSE, SHAPE(s[3]));
    Buf *y = check_out(c, "y", &a->y, t, ly, SHAPE(s[2] * s[0], s[1]));
    check_fill(c, x, 0.3, 1);
    fill_filter(c, f);
    for (int64_t i = 0; i < y->n; i++) {
        Range r = raised(x, f, s[1], s[2], s[4], s[5], i / s[1], i % s[1]);
        check_between(y, i, r.want, r.low, r.high);
    }
}

/* --- snakes --- */

/* The snake of one number; *room: what f32 arithmetic may lose. */
static double snake(double u, double alpha, double beta, DType t, double *room) {
    *room = 0;
    if (t == BF16) {
        double by = check_unary(UNARY_EXP, alpha), v = check_unary(UNARY_SIN, check_r(u * by, t));
        double inverse = check_r(1 / check_r(check_unary(UNARY_EXP, beta) + (double)1e-9f, t), t);
        return check_r(u + check_r(inverse * check_r(v * v, t), t), t);
    }
    double by = exp(alpha), inverse = 1 / (exp(beta) + 1e-9), v = sin(u * by), argument = 5 * CHECK_U * fabs(u * by);
    /* exp and the product; sin's own 2 ulps; exp, sum, quotient, square and product; the last sum */
    *room = inverse * (2 * fabs(v) * (argument + 4 * CHECK_U) + argument * argument) + 10 * CHECK_U * inverse * v * v +
            CHECK_U * fabs(u + inverse * v * v) + 0x1p-140;
    return u + inverse * v * v;
}

/* What the snake makes of any u of the range. */
static Range snaked(Range u, double alpha, double beta, DType t) {
    double room, want = snake(u.want, alpha, beta, t, &room);
    Range r = {want - room, want, want + room};
    if (t == F32) {
        double slope = 1 + exp(alpha) / (exp(beta) + 1e-9), far = fmax(u.high - u.want, u.want - u.low) * slope;
        return (Range){r.low - far, want, r.high + far};
    }
    for (double v = u.low; u.low != u.high && v <= u.high;) {
        double s = snake(v, alpha, beta, t, &room), next = v;
        if (s < r.low) r.low = s;
        if (s > r.high) r.high = s;
        for (double step = check_half_ulp(v, t); next <= v; step *= 2) next = check_round(v + 1.5 * step, t);
        v = next;
    }
    return r;
}

static void make_snake(Case *c) {
    static const int64_t shapes[][3] = {/* rows, channels, taps */
                                        {1, 1, 12},   {2, 3, 12}, {9, 16, 12},  {70, 24, 12}, {129, 33, 12},
                                        {64, 48, 12}, {65, 5, 8}, {5, 130, 24}, {33, 1, 4},   {3, 1030, 12}};
    enum { SHAPES = 10 };
    ARGS(SnakeFiltered);
    const int64_t *s = shapes[c->index % SHAPES], rows = s[0], channels = s[1], taps = s[2], lead = taps / 2 - 1;
    DType t = c->index / SHAPES % 2 ? BF16 : F32;
    Layout lx = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE, ly = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE;
    check_label(c, "%s, %lld rows of %lld, %lld taps, x %s y %s", dtype_name(t), (long long)rows, (long long)channels,
                (long long)taps, check_layout_name(lx), check_layout_name(ly));
    Buf *x = check_in(c, "x", &a->x, t, lx, SHAPE(rows, channels));
    Buf *alpha = check_in(c, "alpha", &a->alpha, t, LAYOUT_DENSE, SHAPE(channels));
    Buf *beta = check_in(c, "beta", &a->beta, t, LAYOUT_DENSE, SHAPE(channels));
    Buf *up = check_in(c, "up", &a->up, t, LAYOUT_DENSE, SHAPE(1, 1, taps)),
        *down = check_in(c, "down", &a->down, t, LAYOUT_DENSE, SHAPE(taps));
    Buf *y = check_out(c, "y", &a->y, t, ly, SHAPE(rows, channels));
    check_fill(c, x, 0.2, 2);
    check_fill(c, alpha, 0, 0.4);
    check_fill(c, beta, 0, 0.4);
    fill_filter(c, up);
    fill_filter(c, down);
    Range *double_rate = check_alloc(c, (size_t)(2 * rows * channels) * sizeof *double_rate);
    for (int64_t i = 0; i < 2 * rows * channels; i++) {
        int64_t o = i % channels;
        Range u = raised(x, up, channels, 2, lead, 2 * lead + (taps - 2) / 2, i / channels, o);
        double_rate[i] = snaked(u, (double)alpha->v[o], (double)beta->v[o], t);
    }
    for (int64_t i = 0; i < y->n; i++) {
        double low = 0, want = 0, high = 0, size = 0;
        for (int64_t k = 0; k < taps; k++) {
            const Range *r = &double_rate[held(2 * (i / channels) + k - lead, 2 * rows) * channels + i % channels];
            double f = (double)down->v[k];
            want += f * r->want;
            low += f * (f < 0 ? r->high : r->low), high += f * (f < 0 ? r->low : r->high);
            size += fabs(f) * fmax(fabs(r->low), fabs(r->high));
        }
        double room = (double)(taps + 1) * CHECK_U * size;
        if (!isfinite(size)) skip(c, y, i);
        check_between(y, i, check_r(want, t), check_r(low - room, t), check_r(high + room, t));
    }
}

const CaseSet CHECK_WAVE[] = {
    {OP_conv_transpose1d, 48, make_transpose}, {OP_mean3, 40, make_mean3},         {OP_fir_up, 24, make_fir_up},
    {OP_snake_filtered, 40, make_snake},       {OP_magnitude, 40, make_magnitude},
};
const int CHECK_WAVE_COUNT = sizeof CHECK_WAVE / sizeof *CHECK_WAVE;
