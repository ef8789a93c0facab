/* check_cases_video.c - cases of what the video autoencoders do beside convolutions: roll, chan_rmsnorm, chan_rmsnorm_silu,
 * chan_affine, frame_window, pixelnorm_silu, depth_to_space and space_to_depth.
 *
 * All but the norms are exact. The norms have a length that is summed in some order, so it lies in an interval; the chain
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

/* Element i = r(silu(z)), z being anything between z[0] and z[2]; z[1] is its best value. */
static void expect_silu(Buf *y, int64_t i, const double z[3], DType inner) {
    DType t = y->view.dtype;
    double low = fmin(z[0], z[2]), high = fmax(z[0], z[2]);
    double a = silu(low, inner), b = silu(high, inner), want = silu(z[1], inner);
    double least = fmin(a, b), most = fmax(a, b), slack = 0;
    if (inner == F32) slack = (9 + 2 * fmax(0, -low)) * CHECK_U * fmax(fabs(least), fabs(most));
    if (low < -1.2785 && high > -1.2784) least = inner == BF16 ? -0.279296875 : -0.2784646; /* SiLU's minimum */
    if (inner == F32 && low < -80) slack += 80 * exp(-80); /* where an exponential may have left f32 */
    check_between(y, i, check_r(want, t), check_r(least - slack, t), check_r(most + slack, t));
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
    if (c->op == OP_chan_rmsnorm) check_between(y, i, check_r(z[1], t), check_r(z[0], t), check_r(z[2], t));
    else expect_silu(y, i, z, inner);
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
                                        {3, 4, 4, 13}, {1, 2, 3, 1100}, {4, 16, 24, 192}, {2, 31, 17, 16},
                                        {1, 12, 17, 96}, {2, 8, 9, 384}, /* with 192: whole chains in a lane on CUDA */
                                        {1, 1, 1, 384}, {1, 1, 2, 384}, {1, 1, 3, 512}}; /* up to 512 threads a pixel */
    static const double mean[] = {0.3, 20, 0, 0}, deviation[] = {1.5, 1, 1e-14, 2};
    enum { SHAPES = 13, KINDS = 4 }; /* the third kind: shorter than 1e-12 */
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

/* --- windows --- */

/* Where index `at` of a window comes from, of n. */
static int64_t source_of(int64_t at, int64_t n, int64_t border) {
    at -= border;
    return at < 0 ? -at : at >= n ? 2 * n - 2 - at : at;
}

/* s of a pixel whose squares are summed in some order: k 0, 1 and 2 for the least, the likely and the most. */
static double root_of(double sum, double room, int k, int64_t channels, double eps, DType inner) {
    double v = check_r(check_r(sum + (k - 1) * room, F32) * (double)(1.0f / (float)channels), inner);
    v = check_r(sqrt(check_r(v + eps, inner)), inner);
    return inner == F32 ? v * (1 + (k - 1) * 4 * CHECK_U) : v; /* a reciprocal's product */
}

/* Elements z of n, in the form of y, y being the window of n. */
static void expect_window(const Case *c, Buf *y, const Buf *x, const double *h, DType inner) {
    const Window *a = (const void *)&c->args;
    const int64_t *s = x->view.shape, *w = y->view.shape;
    int64_t channels = s[3];
    double (*z)[3] = NULL;
    if (c->op == OP_pixelnorm_silu) z = check_alloc((Case *)(uintptr_t)c, (size_t)x->n * sizeof *z);
    for (int64_t p = 0; z && p < x->n; p += channels) {
        double sum = 0;
        float naive = 0;
        for (int64_t j = 0; j < channels; j++) {
            double square = check_r(h[p + j] * h[p + j], inner);
            sum += square, naive += (float)square;
        }
        double room = isfinite(sum) ? 2 * fabs((double)naive - sum) + 4 * CHECK_U * sum : 0;
        for (int64_t j = 0; j < channels; j++)
            for (int k = 0; k < 3; k++)
                z[p + j][k] = check_r(h[p + j] / root_of(sum, room, k, channels, (double)a->eps, inner), inner);
    }
    for (int64_t i = 0; i < y->n; i++) {
        int64_t place = i / channels, f = place / w[2] / w[1] - a->before, row = source_of(place / w[2] % w[1], s[1], a->border);
        f = f < 0 ? 0 : f >= s[0] ? s[0] - 1 : f;
        int64_t from = ((f * s[1] + row) * s[2] + source_of(place % w[2], s[2], a->border)) * channels + i % channels;
        if (z) expect_silu(y, i, z[from], inner);
        else check_exact(y, i, h[from]);
    }
}

static void make_window(Case *c) {
    static const int64_t shapes[][7] = {/* frames, picture, channels; copies before and behind, border */
                                        {1, 1, 1, 1, 1, 1, 0},    {2, 5, 7, 128, 1, 1, 1},  {1, 2, 2, 96, 2, 0, 1},
                                        {3, 4, 3, 13, 3, 0, 1},   {4, 3, 5, 1024, 1, 1, 0}, {1, 2, 3, 1100, 0, 2, 1},
                                        {5, 9, 4, 32, 0, 0, 0},   {2, 33, 17, 16, 1, 1, 1}, {3, 2, 6, 256, 2, 1, 1}};
    static const double mean[] = {0.3, 20, 0, 0}, deviation[] = {1.5, 1, 1e-6, 2};
    enum { SHAPES = 9 };
    ARGS(Window);
    const int64_t *s = shapes[c->index % SHAPES];
    DType t = c->index / SHAPES % 2 ? BF16 : F32, inner = c->keeps ? F32 : t;
    int kind = c->index / SHAPES / 2 % 4, keep = (int)check_below(c, 4); /* h: absent, its own, x, skip */
    int64_t f = s[0], h = check_dim(c, s[1], 9), w = check_dim(c, s[2], 9), n = s[3];
    bool skipping = keep == 3 || check_below(c, 2), biased = check_below(c, 3) > 0;
    a->before = (int32_t)s[4], a->border = (int32_t)s[6], a->eps = 1e-8f;
    check_label(c, "%s, %lld frames of %lldx%lld, %lld channels, mean %g deviation %g, %lld before, %lld behind, border %lld",
                dtype_name(t), (long long)f, (long long)h, (long long)w, (long long)n, mean[kind], deviation[kind],
                (long long)s[4], (long long)s[5], (long long)s[6]);
    check_label(c, "%s%s%s", biased ? ", bias" : "", skipping ? ", skip" : "",
                keep == 1 ? ", sum" : keep == 2 ? ", sum in x" : keep == 3 ? ", sum in skip" : "");
    Buf *x = check_in(c, "x", &a->x, t, LAYOUT_DENSE, SHAPE(f, h, w, n)), *bias = NULL, *skip = NULL, *sum = NULL;
    if (biased) bias = check_in(c, "bias", &a->bias, t, LAYOUT_DENSE, SHAPE(n));
    if (skipping) skip = check_in(c, "skip", &a->skip, t, LAYOUT_DENSE, SHAPE(f, h, w, n));
    if (keep == 1) sum = check_out(c, "h", &a->h, t, LAYOUT_DENSE, SHAPE(f, h, w, n));
    if (keep == 2) sum = x, check_in_place(c, x, &a->h);
    if (keep == 3) sum = skip, check_in_place(c, skip, &a->h);
    Buf *y = check_out(c, "y", &a->y, t, LAYOUT_DENSE, SHAPE(s[4] + f + s[5], h + 2 * s[6], w + 2 * s[6], n));
    check_fill(c, x, mean[kind], deviation[kind]);
    if (bias) check_fill(c, bias, 0, kind == 2 ? 1e-7 : 1);
    if (skip) check_fill(c, skip, 0.1, deviation[kind]);
    if (kind == 3) check_spoil(c, x);
    double *v = check_alloc(c, (size_t)x->n * sizeof *v);
    for (int64_t i = 0; i < x->n; i++) {
        v[i] = (double)x->v[i];
        if (bias) v[i] = check_r(v[i] + (double)bias->v[i % n], inner);
        if (skip) v[i] = check_r((double)skip->v[i] + v[i], inner);
        if (sum) v[i] = check_r(v[i], t);
    }
    for (int64_t i = 0; sum && i < x->n; i++) check_exact(sum, i, v[i]);
    expect_window(c, y, x, v, inner);
}

/* --- channels and places --- */

/* Element k of a pixel (f, i, j) of the small side in t x rows x columns pixels of the large one: its address there. */
static int64_t large_at(const int64_t *large, const Depth *a, int64_t f, int64_t i, int64_t j, int64_t k, int64_t c) {
    int64_t frame = a->t * f + k / a->columns / a->rows, row = a->rows * i + k / a->columns % a->rows;
    return ((frame * large[1] + row) * large[2] + a->columns * j + k % a->columns) * large[3] + c;
}

static void make_depth(Case *c) {
    static const int64_t shapes[][8] = {/* small side; channels of the large one, of skip there or a mean; factors */
                                        {1, 1, 1, 1, 1, 1, 1, 1},  {2, 3, 5, 16, 8, 2, 2, 2},  {3, 4, 2, 12, 3, 2, 1, 1},
                                        {2, 5, 3, 64, 16, 2, 2, 2}, {1, 6, 7, 24, 24, 1, 2, 2}, {4, 2, 3, 8, 2, 2, 2, 2},
                                        {2, 3, 3, 5, 5, 1, 3, 3}};
    enum { SHAPES = 7 };
    ARGS(Depth);
    const int64_t *s = shapes[c->index % SHAPES];
    bool deep = c->op == OP_depth_to_space;
    DType t = c->index / SHAPES % 2 ? BF16 : F32;
    bool skipping = c->index / SHAPES / 2 % 2, biased = check_below(c, 3) > 0, spoil = c->index / SHAPES / 4 % 2;
    int64_t n = s[5] * s[6] * s[7], channels = s[3], part = s[4], g = channels / part;
    int64_t small[] = {s[0], s[1], s[2], n * channels};
    int64_t drop = deep && s[5] > 1 && check_below(c, 3) ? s[5] - 1 : 0;
    int64_t large[] = {s[0] * s[5] - drop, s[1] * s[6], s[2] * s[7], channels};
    a->drop = (int32_t)drop;
    a->t = (int32_t)s[5], a->rows = (int32_t)s[6], a->columns = (int32_t)s[7];
    Layout ls = check_layout(c);
    check_label(c, "%s, %lld frames of %lldx%lld, %lld channels by %dx%dx%d less %d%s%s%s", dtype_name(t), (long long)small[0],
                (long long)small[1], (long long)small[2], (long long)channels, a->t, a->rows, a->columns, a->drop,
                biased ? ", bias" : "",
                skipping ? ", skip " : "", skipping ? check_layout_name(ls) : "");
    Buf *x = check_in(c, "x", &a->x, t, LAYOUT_DENSE, 4, deep ? small : large), *bias = NULL, *skip = NULL;
    if (biased) bias = check_in(c, "bias", &a->bias, t, LAYOUT_DENSE, SHAPE((deep ? n : 1) * channels));
    if (skipping && deep) skip = check_in(c, "skip", &a->skip, t, ls, SHAPE(small[0], small[1], small[2], n * part));
    if (skipping && !deep) skip = check_in(c, "skip", &a->skip, t, ls, SHAPE(large[0], large[1], large[2], g * channels));
    Buf *y = check_out(c, "y", &a->y, t, LAYOUT_DENSE, 4, deep ? large : small);
    check_fill(c, x, 0.3, 2);
    if (bias) check_fill(c, bias, 0, 1);
    if (skip) check_fill(c, skip, 0.1, 1.5);
    if (spoil) check_spoil(c, x);
    int64_t wide[] = {large[0], large[1], large[2], g * channels};
    for (int64_t p = 0; p < small[0] * small[1] * small[2]; p++) {
        int64_t f = p / small[2] / small[1], i = p / small[2] % small[1], j = p % small[2];
        for (int64_t k = 0; k < n; k++)
            for (int64_t ch = 0; ch < channels; ch++) {
                int64_t from = p * n * channels + ch * n + k, to = 0;
                if (deep && a->t * f + k / (a->rows * a->columns) < drop) continue;
                if (deep) to = large_at(large, a, f, i, j, k, ch) - drop * large[1] * large[2] * channels;
                else to = from, from = large_at(large, a, f, i, j, k, ch);
                double v = (double)x->v[from], mean = 0;
                if (bias) v = check_r(v + (double)bias->v[deep ? ch * n + k : ch], t);
                if (skip && deep) v += (double)skip->v[p * n * part + ch % part * n + k];
                for (int64_t e = (ch * n + k) * g; skip && !deep && e < (ch * n + k + 1) * g; e++)
                    mean = check_r(mean + (double)skip->v[large_at(wide, a, f, i, j, e % n, e / n)], F32);
                if (skip && !deep) v += check_r(mean * (double)(1.0f / (float)g), t);
                check_exact(y, to, check_r(v, t));
            }
    }
}

const CaseSet CHECK_VIDEO[] = {
    {OP_roll, 40, make_roll},
    {OP_chan_rmsnorm, 104, make_chan_norm},
    {OP_chan_rmsnorm_silu, 104, make_chan_norm},
    {OP_chan_affine, 120, make_chan_affine},
    {OP_frame_window, 9 * 8, make_window},
    {OP_pixelnorm_silu, 9 * 16, make_window},
    {OP_depth_to_space, 7 * 8, make_depth},
    {OP_space_to_depth, 7 * 8, make_depth},
};
const int CHECK_VIDEO_COUNT = sizeof CHECK_VIDEO / sizeof *CHECK_VIDEO;
