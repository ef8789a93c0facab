/* check_cases_video.c - cases of what the video autoencoders do beside convolutions: roll, chan_rmsnorm, chan_rmsnorm_silu and
 * chan_affine.
 *
 * roll and chan_affine are exact. The norms have a length that is summed in some order, so it lies in an interval; the chain
 * after it is monotone in it, up to SiLU's minimum.
 * Easy to get wrong: a length below 1e-12 counts as 1e-12, also when it is 0. */
#include "check.h"

#include <math.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

static void make_roll(Case *c) {
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {4, 5, 7, 3}, {1, 6, 9, 96}, {3, 8, 4, 16}, {2, 33, 17, 12}};
    enum { SHAPES = 5 };
    ARGS(Roll);
    const int64_t *s = shapes[c->index % SHAPES];
    DType t = c->index / SHAPES % 2 ? BF16 : F32;
    int64_t history = 1 + c->index / SHAPES / 2 % 2, frames = s[0], frame = s[1] * s[2] * s[3];
    a->fresh = c->index / SHAPES / 4;
    check_label(c, "%s, %lld frames behind %lld, %lldx%lldx%lld%s", dtype_name(t), (long long)frames, (long long)history,
                (long long)s[1], (long long)s[2], (long long)s[3], a->fresh ? ", fresh" : "");
    Buf *window = check_in(c, "window", &a->window, t, LAYOUT_DENSE, SHAPE(history + frames, s[1], s[2], s[3]));
    Buf *cache = check_in(c, "cache", &a->cache, t, LAYOUT_DENSE, SHAPE(history, s[1], s[2], s[3]));
    check_in_place(c, window, &a->window);
    check_in_place(c, cache, &a->cache);
    check_fill(c, window, 0, 1);
    check_fill(c, cache, 3, 1);
    double *all = check_alloc(c, (size_t)window->n * sizeof *all);
    for (int64_t i = 0; i < window->n; i++) {
        all[i] = i >= history * frame ? (double)window->v[i] : a->fresh ? 0 : (double)cache->v[i];
        check_exact(window, i, all[i]);
    }
    for (int64_t i = 0; i < cache->n; i++) check_exact(cache, i, all[frames * frame + i]);
}

/* --- norms --- */

static Status norm_then_silu(Exec *x, const void *args) {
    const ChanRmsNorm *a = args;
    TRY(op_chan_rmsnorm(x, a));
    return op_act(x, &(Act){.y = a->y, .x = a->y, .kind = ACT_SILU});
}

static double silu(double v, DType t) {
    return t == BF16 ? check_unary(UNARY_SILU, v) : v < -80 ? 0 : v / (1 + exp(-v));
}

/* One element: x' of a row whose length is l, or anything between l - room and l + room. keeps: a variant that rounds the
 * result alone. */
static void expect_channel(const Case *c, Buf *y, int64_t i, double x, double l, double room, double scale, double w) {
    DType t = y->view.dtype, inner = c->keeps ? F32 : t;
    double z[3];
    for (int k = 0; k < 3; k++) {
        double n = check_r(x / (l + (k - 1) * room), inner);
        z[k] = check_r(check_r(n * scale, inner) * w, inner);
    }
    if (c->op == OP_chan_rmsnorm) {
        check_between(y, i, check_r(z[1], t), check_r(z[0], t), check_r(z[2], t));
        return;
    }
    double low = fmin(z[0], z[2]), high = fmax(z[0], z[2]);
    double a = silu(low, inner), b = silu(high, inner), want = silu(z[1], inner);
    double least = fmin(a, b), most = fmax(a, b), slack = inner == F32 ? 9 * CHECK_U * fmax(fabs(least), fabs(most)) : 0;
    if (low < -1.2785 && high > -1.2784) least = inner == BF16 ? -0.279296875 : -0.2784646; /* SiLU's minimum */
    if (inner == F32 && low < -80) slack += 80 * exp(-80); /* where an exponential may have left f32 */
    check_between(y, i, check_r(want, t), check_r(least - slack, t), check_r(most + slack, t));
}

static void expect_chan_norm(Case *c, Buf *y, const Buf *x, const Buf *w, const Buf *bias) {
    int64_t cols = w->n, rows = x->n / cols;
    DType t = x->view.dtype, inner = c->keeps ? F32 : t;
    double *v = check_alloc(c, (size_t)cols * sizeof *v), scale = (double)(float)sqrt((double)cols);
    for (int64_t row = 0; row < rows; row++) {
        double square = 0;
        float naive = 0;
        for (int64_t j = 0; j < cols; j++) {
            v[j] = (double)x->v[row * cols + j];
            if (bias) v[j] = check_r(v[j] + (double)bias->v[j], inner);
            square += v[j] * v[j];
            naive += (float)v[j] * (float)v[j];
        }
        double length = sqrt(square), room = 2 * fabs((double)sqrtf(naive) - length) + 4 * CHECK_U * length;
        if (!isfinite(length)) room = 0; /* an infinite element: itself NaN, the others 0 */
        if (length + room < 1e-12) length = (double)1e-12f, room = 0;
        bool open = isfinite(length) && (!isfinite(naive) || square < 0x1p-120); /* squares that leave f32 */
        for (int64_t j = 0; j < cols; j++) {
            int64_t i = row * cols + j;
            if (open && length > (double)1e-12f) {
                if (!y->skipped) y->skipped = check_alloc(c, (size_t)y->n);
                y->skipped[i] = CHECK_UNJUDGED;
            }
            expect_channel(c, y, i, v[j], length, room, scale, (double)w->v[j]);
        }
    }
}

static void make_chan_norm(Case *c) {
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {2, 5, 7, 96}, {1, 9, 3, 384}, {4, 6, 5, 32},
                                        {3, 4, 4, 13}, {1, 2, 3, 1100}, {4, 16, 24, 192}, {2, 31, 17, 16}};
    static const double mean[] = {0.3, 20, 0, 0}, deviation[] = {1.5, 1, 1e-14, 2};
    enum { SHAPES = 8, KINDS = 4 }; /* the third kind: shorter than 1e-12 */
    ARGS(ChanRmsNorm);
    const int64_t *s = shapes[c->index % SHAPES];
    DType t = c->index / SHAPES % 2 ? BF16 : F32;
    int kind = c->index / SHAPES / 2 % KINDS;
    Layout lx = check_layout(c), ly = check_layout(c);
    check_label(c, "%s %lldx%lldx%lld, %lld channels, mean %g deviation %g, x %s y %s", dtype_name(t), (long long)s[0],
                (long long)s[1], (long long)s[2], (long long)s[3], mean[kind], deviation[kind], check_layout_name(lx),
                check_layout_name(ly));
    Buf *x = check_in(c, "x", &a->x, t, lx, 4, s), *y = x;
    Buf *w = check_in(c, "w", &a->w, t, LAYOUT_DENSE, SHAPE(s[3])), *bias = NULL;
    if (kind != 2 && check_below(c, 2)) {
        bias = check_in(c, "bias", &a->bias, t, LAYOUT_DENSE, SHAPE(s[3]));
        check_fill(c, bias, 0, 1);
        check_label(c, ", bias");
    }
    if (check_below(c, 3) == 0) check_in_place(c, x, &a->y), check_label(c, ", in place");
    else y = check_out(c, "y", &a->y, t, ly, 4, s);
    check_fill(c, x, mean[kind], deviation[kind]);
    check_fill(c, w, 1, 0.3);
    if (kind == 3) check_spoil(c, x);
    if (c->op == OP_chan_rmsnorm_silu && t == BF16 && !c->keeps && y != x) c->twin = norm_then_silu;
    expect_chan_norm(c, y, x, w, bias);
}

static void make_chan_affine(Case *c) {
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {2, 5, 7, 16}, {21, 6, 10, 16}, {3, 4, 5, 128}, {2, 3, 3, 1100}};
    enum { SHAPES = 5 };
    static const DType kinds[][2] = {{F32, F32}, {BF16, BF16}, {F32, BF16}};
    ARGS(ChanAffine);
    const int64_t *s = shapes[c->index % SHAPES];
    const DType *kind = kinds[c->index / SHAPES % 3];
    DType t = kind[1];
    static const char *const names[] = {"divide and add", "subtract and multiply", "multiply and add", "subtract and divide"};
    bool across = c->index / SHAPES / 12; /* latents as the transformer has them: channels first */
    a->form = c->index / SHAPES / 3 % 4;
    Layout lx = across ? LAYOUT_TRANSPOSED : check_layout(c), ly = check_layout(c);
    check_label(c, "%s to %s, %lldx%lldx%lldx%lld, %s, x %s y %s", dtype_name(kind[0]), dtype_name(t), (long long)s[0],
                (long long)s[1], (long long)s[2], (long long)s[3], names[a->form],
                check_layout_name(lx), check_layout_name(ly));
    Buf *x = check_in(c, "x", &a->x, kind[0], lx, 4, s), *y;
    Buf *by = check_in(c, "a", &a->a, t, LAYOUT_DENSE, SHAPE(s[3])), *add = check_in(c, "b", &a->b, t, LAYOUT_DENSE, SHAPE(s[3]));
    y = check_out(c, "y", &a->y, t, ly, 4, s);
    check_fill(c, x, 0.3, 2);
    check_fill(c, by, 1, 0.2);
    check_fill(c, add, 0, 1);
    if (c->index % 4 == 3) check_spoil(c, x);
    for (int64_t i = 0; i < x->n; i++) {
        double v = check_r((double)x->v[i], t), u = (double)by->v[i % s[3]], w = (double)add->v[i % s[3]];
        bool shifted = a->form == CHAN_SUBTRACT_MULTIPLY || a->form == CHAN_SUBTRACT_DIVIDE;
        bool times = a->form == CHAN_SUBTRACT_MULTIPLY || a->form == CHAN_MULTIPLY_ADD;
        if (shifted) v = check_r(v - w, t);
        v = times ? v * u : v / u;
        if (!shifted) v = check_r(v, t) + w;
        check_exact(y, i, check_r(v, t));
    }
}

const CaseSet CHECK_VIDEO[] = {
    {OP_roll, 40, make_roll},
    {OP_chan_rmsnorm, 64, make_chan_norm},
    {OP_chan_rmsnorm_silu, 64, make_chan_norm},
    {OP_chan_affine, 120, make_chan_affine},
};
const int CHECK_VIDEO_COUNT = sizeof CHECK_VIDEO / sizeof *CHECK_VIDEO;
