/* check_cases_conv.c - cases of conv2d, upsample_conv, conv3d, dwconv3_glu, groupnorm and groupnorm_silu.
 *
 * Judged like the products: fp64 sums with the reach of twice a plain f32 loop's error, then the contract's roundings
 * on both ends of the interval. Of large pictures random pixels are judged. A variant of upsample_conv that sums taps
 * first is judged by its own weights, which vae_rewrite.h states to the bit. One that rounds once (conv_once.h) may hand a call
 * over on a GPU: there both ways are right, and all that lies between. Where TF32 is allowed, the plain loop reads its
 * inputs as tensor cores do: their last 13 bits are not there. */
#include "check.h"

#include <math.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

/* --- convolutions --- */

typedef struct Geometry {
    int64_t h, w, cin, cout, k, kw, stride, top, left, bottom, right; /* kernel k high, kw wide */
    int64_t frames, kt, stride_t, early; /* of x, 0: one picture; zeros before the first frame and behind the last */
    bool doubled, tf32;
    bool whole; /* small integers: sums are exact in any order */
} Geometry;

/* What follows the convolution; NULL: absent. */
typedef struct After {
    const Buf *bias, *skip, *skip_bias;
} After;

/* One output channel of one pixel as a list of taps: sum of x[at + i] * w[i] over `cin` inputs each. */
typedef struct Piece {
    int64_t at;
    const float *w;
} Piece;

enum { TAPS = 27 };

static int plain_taps(const Geometry *g, const float *weight, int64_t pf, int64_t py, int64_t px, int64_t o, Piece *tap) {
    int n = 0, scale = g->doubled ? 2 : 1;
    for (int64_t i = 0; i < g->kt * g->k * g->kw; i++) {
        int64_t frame = pf * g->stride_t + i / (g->k * g->kw) - g->early, iy = py * g->stride - g->top + i / g->kw % g->k;
        int64_t ix = px * g->stride - g->left + i % g->kw;
        if (iy < 0 || ix < 0 || iy >= scale * g->h || ix >= scale * g->w) continue;
        if (frame < 0 || (g->frames && frame >= g->frames)) continue;
        iy /= scale, ix /= scale;
        tap[n++] = (Piece){((frame * g->h + iy) * g->w + ix) * g->cin, weight + (o * g->kt * g->k * g->kw + i) * g->cin};
    }
    return n;
}

/* Weights of the four phases, [phase, out, 2, 2, in]: the taps that fall on one pixel, summed and rounded. */
static float *phase_weights(Case *c, const Geometry *g, const float *weight, DType round) {
    static const int FIRST[2][2] = {{0, 1}, {0, 2}}, LAST[2][2] = {{0, 2}, {1, 2}}; /* [phase][place] */
    float *out = check_alloc(c, (size_t)(16 * g->cout * g->cin) * sizeof *out), *to = out;
    for (int phase = 0; phase < 4; phase++)
        for (int64_t o = 0; o < g->cout; o++)
            for (int place = 0; place < 4; place++)
                for (int64_t i = 0; i < g->cin; i++) {
                    float sum = 0;
                    for (int x = FIRST[phase % 2][place % 2]; x <= LAST[phase % 2][place % 2]; x++) {
                        float column = 0;
                        for (int y = FIRST[phase / 2][place / 2]; y <= LAST[phase / 2][place / 2]; y++)
                            column += weight[((o * 3 + y) * 3 + x) * g->cin + i];
                        sum += column;
                    }
                    *to++ = (float)check_round((double)sum, round);
                }
    return out;
}

static int phase_taps(const Geometry *g, const float *weight, int64_t pf, int64_t py, int64_t px, int64_t o, Piece *tap) {
    int n = 0;
    int64_t phase = py % 2 * 2 + px % 2;
    for (int64_t place = 0; place < 4; place++) {
        int64_t iy = (py + 1) / 2 - 1 + place / 2, ix = (px + 1) / 2 - 1 + place % 2;
        if (iy < 0 || ix < 0 || iy >= g->h || ix >= g->w) continue;
        tap[n++] = (Piece){((pf * g->h + iy) * g->w + ix) * g->cin, weight + ((phase * g->cout + o) * 4 + place) * g->cin};
    }
    return n;
}

/* v as a product takes it. */
static float as_multiplied(float v, bool tf32) {
    uint32_t bits;
    if (!tf32 || isnan(v)) return v;
    memcpy(&bits, &v, 4);
    bits &= ~0x1fffu;
    memcpy(&v, &bits, 4);
    return v;
}

/* Where a NaN or an infinity of x may show: in every sum that has it, and in those of its tile, up to six pixels wide. */
static void expect_spill(Case *c, Buf *y, const Buf *x, const Geometry *g) {
    enum { TILE = 6 };
    int64_t spoilt = 0, ow = y->view.shape[y->view.rank - 2], oh = y->view.shape[y->view.rank - 3];
    while (spoilt < x->n && isfinite(x->v[spoilt])) spoilt++;
    if (spoilt == x->n) return;
    int64_t at = spoilt / g->cin, sx = at % g->w, sy = at / g->w % g->h, reach = TILE + g->k;
    y->spilled = check_alloc(c, (size_t)y->n);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t pixel = i / g->cout, px = pixel % ow * g->stride, py = pixel / ow % oh * g->stride;
        if (g->doubled) px /= 2, py /= 2;
        y->spilled[i] = px <= sx + reach && sx <= px + reach && py <= sy + reach && sy <= py + reach;
    }
}

static void expect_conv(Case *c, Buf *y, const Buf *x, const Buf *w, const After *f, DType round, const Geometry *g) {
    int64_t oh = y->view.shape[y->view.rank - 3], ow = y->view.shape[y->view.rank - 2];
    int64_t taps = g->kt * g->k * g->kw * g->cin, all = y->n / g->cout, n = all;
    DType t = y->view.dtype;
    while (n > 4 && n * taps * g->cout > 4000000) n = (n + 1) / 2;
    if (n < all) {
        y->skipped = check_alloc(c, (size_t)y->n);
        memset(y->skipped, 1, (size_t)y->n);
    }
    float *weight = check_alloc(c, (size_t)w->n * sizeof *weight),
          *naive = check_alloc(c, (size_t)(n * g->cout) * 4);
    double *ref = check_alloc(c, (size_t)(n * g->cout) * 8),
           *size = check_alloc(c, (size_t)(n * g->cout) * 8);
    int64_t *pixel = check_alloc(c, (size_t)n * sizeof *pixel);
    for (int64_t i = 0; i < w->n; i++) weight[i] = (float)check_round((double)w->v[i], round);
    bool phases = c->keeps && g->doubled;
    if (phases) weight = phase_weights(c, g, weight, round);
    for (int64_t p = 0; p < n; p++) {
        pixel[p] = n == all ? p : p == 0 ? all - 1 : p == 1 ? 0 : check_below(c, all);
        int64_t pf = pixel[p] / ow / oh, py = pixel[p] / ow % oh, px = pixel[p] % ow;
        for (int64_t o = 0; o < g->cout; o++) {
            Piece tap[TAPS];
            int count = phases ? phase_taps(g, weight, pf, py, px, o, tap) : plain_taps(g, weight, pf, py, px, o, tap);
            double sum = 0, magnitude = 0x1p-120;
            float plain = 0;
            for (int k = 0; k < count; k++)
                for (int64_t i = 0; i < g->cin; i++) {
                    float a = x->v[tap[k].at + i], b = tap[k].w[i];
                    sum += (double)a * (double)b;
                    magnitude += fabs((double)a * (double)b);
                    plain += as_multiplied(a, g->tf32) * as_multiplied(b, g->tf32);
                }
            ref[p * g->cout + o] = sum;
            size[p * g->cout + o] = magnitude;
            naive[p * g->cout + o] = plain;
        }
    }
    double error = 2 * check_naive_error(n * g->cout, ref, naive, size) + 4 * CHECK_U;
    for (int64_t i = 0; i < n * g->cout; i++) {
        int64_t at = pixel[i / g->cout] * g->cout + i % g->cout;
        double room = error * size[i], value[3], skip = f->skip ? (double)f->skip->v[at] : 0;
        double added = f->bias ? (double)f->bias->v[i % g->cout] : 0;
        if (f->skip_bias) added += (double)f->skip_bias->v[i % g->cout];
        double wide = error * (size[i] + fabs(added) + fabs(skip)), once = ref[i] + added + skip;
        double low = check_r(once - wide, t), high = check_r(once + wide, t);
        if (f->skip_bias) skip = check_r(skip + (double)f->skip_bias->v[i % g->cout], t);
        for (int s = 0; s < 3; s++) {
            value[s] = check_r(s == 1 ? ref[i] : ref[i] + (s - 1) * room, t);
            if (f->bias) value[s] = check_r(value[s] + (double)f->bias->v[i % g->cout], t);
            if (f->skip) value[s] = check_r(skip + value[s], t);
        }
        if (!c->keeps || g->doubled) check_between(y, at, value[1], value[0], value[2]);
        else if (c->gpu && !isnan(once)) check_between(y, at, check_r(once, t), fmin(low, value[0]), fmax(high, value[2]));
        else check_between(y, at, check_r(once, t), low, high);
        if (y->skipped) y->skipped[at] = 0;
    }
}

/* Integers of at most `most`, either sign. */
static void fill_whole(Case *c, const Buf *b, int64_t most) {
    for (int64_t i = 0; b && i < b->n; i++) b->v[i] = (float)(check_below(c, 2 * most + 1) - most);
}

/* What conv2d and conv3d share: what follows the product, and the expectations. bias: a weight's, or NULL. */
static void finish_conv(Case *c, Buf *y, Buf *x, Buf *w, Buf *bias, bool raw, bool skipping, bool skip_biased, Tensor *skip_slot,
                        Tensor *skip_bias_slot, DType round, const Geometry *g) {
    DType t = y->view.dtype;
    Layout layout = check_below(c, g->whole ? 8 : 3) ? LAYOUT_DENSE : LAYOUT_PADDED;
    After f = {.bias = raw ? NULL : bias};
    if (skipping) {
        Buf *skip = check_in(c, "skip", skip_slot, t, layout, y->view.rank, y->view.shape);
        check_fill(c, skip, 0.1, 1.5);
        check_label(c, ", skip %s%s", check_layout_name(layout), skip_biased ? " with bias" : "");
        f.skip = skip;
        if (g->whole) fill_whole(c, skip, 99);
    }
    if (skip_biased) {
        Buf *b = check_in(c, "skip_bias", skip_bias_slot, t, LAYOUT_DENSE, SHAPE(g->cout));
        check_fill(c, b, 0, 1);
        f.skip_bias = b;
        if (g->whole) fill_whole(c, b, 9);
    }
    double taps = (double)(g->kt * g->k * g->kw * g->cin);
    check_fill(c, x, 0.2, 1);
    check_fill(c, w, 0, 1 / sqrt(taps));
    if (bias) check_fill(c, bias, 0, 1);
    if (g->whole) fill_whole(c, x, 2), fill_whole(c, w, 1), fill_whole(c, bias, 9);
    else if (c->index % 6 == 5) x->v[check_below(c, x->n)] = c->index % 4 ? NAN : INFINITY;
    expect_conv(c, y, x, w, &f, round, g);
    expect_spill(c, y, x, g);
}

enum { PLAIN_CASES = 224, FEW_CASES = 20, ONCE_SHAPES = 14, ONCE_CASES = 4 * ONCE_SHAPES };

/* What a kernel that reads the picture itself makes of tiles of 16 rows by 16 or 32 columns: cut off, whole, more of them
 * than a GPU has multiprocessors; of channels in thirty-twos. 3x3 kernels over frames, BF16, in four forms. */
static Geometry once_geometry(Case *c, int k) {
    static const int64_t shapes[ONCE_SHAPES][7] = {/* frames, picture, channels, kernel in time, zeros before and behind */
                                                   {3, 1, 1, 32, 96, 3},      {5, 17, 9, 96, 96, 3},     {7, 16, 33, 96, 96, 3},
                                                   {3, 33, 16, 128, 128, 3},  {4, 18, 18, 192, 192, 3},  {3, 9, 20, 384, 384, 3},
                                                   {1, 17, 33, 96, 96, 1},    {2, 5, 40, 32, 192, 3, 1}, {6, 20, 40, 96, 3, 3},
                                                   {3, 12, 30, 256, 256, 3},  {3, 40, 20, 192, 384, 2},  {1, 33, 49, 64, 8, 1},
                                                   {1, 192, 384, 32, 96, 1},  {1, 176, 200, 64, 192, 1}};
    const int64_t *s = shapes[k % ONCE_SHAPES];
    bool little = c->small || (!c->gpu && s[1] > 100);
    Geometry g = {.frames = s[0], .h = little && s[1] > 9 ? 9 : s[1], .w = little && s[2] > 9 ? 9 : s[2],
                  .cin = check_dim(c, s[3], 32), .cout = check_dim(c, s[4], 96), .k = 3, .kw = 3, .stride = 1, .top = 1,
                  .left = 1, .bottom = 1, .right = 1, .kt = s[5], .stride_t = 1, .early = s[6], .whole = k / ONCE_SHAPES % 2};
    return g;
}

/* The rest of such a case. frames of y; in_time: conv3d's kernel, else conv2d's. */
static void finish_once(Case *c, int k, const Geometry *g, bool in_time, int64_t frames, Tensor *y_slot, Tensor *x_slot,
                        Tensor *skip_slot, Tensor *skip_bias_slot, int32_t *form) {
    bool skipping = k / ONCE_SHAPES / 2, biased = check_below(c, 4), raw = !check_below(c, 4);
    bool skip_biased = skipping && check_below(c, 2);
    *form = raw ? CONV_RAW : CONV_BIAS;
    check_label(c, "%lld frames of %lldx%lld, %lld to %lld channels, kernel %lldx3x3, %s%s%s", (long long)g->frames,
                (long long)g->h, (long long)g->w, (long long)g->cin, (long long)g->cout, (long long)g->kt,
                biased ? "bias" : "no bias", raw ? " left" : "", g->whole ? ", integers" : "");
    Buf *x = check_in(c, "x", x_slot, BF16, LAYOUT_DENSE, SHAPE(g->frames, g->h, g->w, g->cin));
    Buf *w = in_time ? check_weight(c, 0, BF16, BF16, LAYOUT_DENSE, SHAPE(g->cout, g->kt, 3, 3, g->cin))
                     : check_weight(c, 0, BF16, BF16, LAYOUT_DENSE, SHAPE(g->cout, 3, 3, g->cin));
    Buf *bias = biased ? check_bias(c, 0, BF16, g->cout) : NULL;
    Buf *y = check_out(c, "y", y_slot, BF16, LAYOUT_DENSE, SHAPE(frames, g->h, g->w, g->cout));
    finish_conv(c, y, x, w, bias, raw, skipping, skip_biased, skip_slot, skip_bias_slot, BF16, g);
}

static void make_once_flat(Case *c, int k) {
    ARGS(Conv2d);
    Geometry g = once_geometry(c, k);
    g.kt = 1, g.early = 0;
    a->w = &c->weight[0];
    a->stride = a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = 1;
    finish_once(c, k, &g, false, g.frames, &a->y, &a->x, &a->skip, &a->skip_bias, &a->form);
}

static void make_once_deep(Case *c, int k) {
    ARGS(Conv3d);
    Geometry g = once_geometry(c, k);
    a->w = &c->weight[0];
    a->stride_t = a->pad = 1;
    a->pad_t = (int32_t)g.early;
    finish_once(c, k, &g, true, g.frames + 2 * g.early - g.kt + 1, &a->y, &a->x, &a->skip, &a->skip_bias, &a->form);
}

/* A decoder's last convolution, to three channels, and its first, from sixteen: tiles cut off on both sides, whole ones, none
 * that lies inside. */
static void make_few(Case *c, Conv2d *a) {
    static const int64_t shapes[FEW_CASES / 2][4] = {{35, 70, 128, 3}, {16, 32, 32, 3},   {33, 65, 64, 3},   {1, 1, 128, 3},
                                                     {5, 100, 32, 3},  {90, 130, 64, 3},  {33, 20, 16, 512}, {1, 1, 16, 32},
                                                     {16, 16, 16, 64}, {27, 41, 16, 160}};
    const int64_t *s = shapes[(c->index - PLAIN_CASES) / 2];
    Geometry g = {.h = check_dim(c, s[0], 9), .w = check_dim(c, s[1], 9), .cin = check_dim(c, s[2], 32),
                  .cout = check_dim(c, s[3], 32), .k = 3, .kw = 3, .stride = 1, .top = 1, .left = 1, .bottom = 1, .right = 1,
                  .kt = 1, .stride_t = 1};
    bool biased = c->index % 2;
    check_label(c, "%lldx%lld, %lld to %lld channels, %s", (long long)g.h, (long long)g.w, (long long)g.cin,
                (long long)g.cout, biased ? "bias" : "no bias");
    Buf *x = check_in(c, "x", &a->x, BF16, LAYOUT_DENSE, SHAPE(g.h, g.w, g.cin));
    Buf *w = check_weight(c, 0, BF16, BF16, LAYOUT_DENSE, SHAPE(g.cout, 3, 3, g.cin));
    Buf *bias = biased ? check_bias(c, 0, BF16, g.cout) : NULL;
    Buf *y = check_out(c, "y", &a->y, BF16, LAYOUT_DENSE, SHAPE(g.h, g.w, g.cout));
    a->w = &c->weight[0];
    a->stride = a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = 1;
    a->form = CONV_BIAS;
    finish_conv(c, y, x, w, bias, false, false, false, &a->skip, &a->skip_bias, BF16, &g);
}

static void make_conv(Case *c) {
    static const int64_t shapes[][11] = {/* picture, channels, kernel, stride, pads */
                                         {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0},      {7, 5, 3, 4, 3, 3, 1, 1, 1, 1, 1},
                                         {16, 16, 16, 64, 3, 3, 1, 1, 1, 1, 1},  {9, 11, 96, 32, 3, 3, 1, 1, 1, 1, 1},
                                         {16, 16, 512, 64, 3, 3, 1, 1, 1, 1, 1}, {32, 32, 64, 3, 3, 3, 1, 1, 1, 1, 1},
                                         {12, 10, 32, 48, 1, 1, 1, 0, 0, 0, 0},  {17, 13, 20, 24, 3, 3, 2, 0, 0, 1, 1},
                                         {64, 48, 32, 32, 3, 3, 1, 1, 1, 1, 1},  {1, 40, 8, 8, 3, 3, 1, 1, 1, 1, 1},
                                         {128, 128, 8, 8, 3, 3, 1, 1, 1, 1, 1},  {5, 60, 40, 40, 3, 1, 1, 1, 0, 1, 0},
                                         {24, 10, 16, 96, 2, 2, 2, 0, 0, 0, 0},  {3, 7, 96, 96, 3, 1, 1, 1, 0, 1, 0}};
    static const DType kinds[][3] = {
        {F32, F32, F32}, {BF16, BF16, BF16}, {F32, BF16, F32}, {BF16, F32, BF16}};
    enum { SHAPES = 14, OLD = 112, FRAMES = 168 }; /* from OLD on: raw forms and other paths; from FRAMES on: several pictures */
    ARGS(Conv2d);
    if (c->index >= PLAIN_CASES) {
        if (c->index >= PLAIN_CASES + FEW_CASES) make_once_flat(c, c->index - PLAIN_CASES - FEW_CASES);
        else make_few(c, a);
        return;
    }
    const int64_t *s = shapes[c->index % SHAPES];
    Geometry g = {.h = s[0], .w = s[1], .cin = s[2], .cout = s[3], .k = s[4], .kw = s[5], .stride = s[6], .top = s[7],
                  .left = s[8], .bottom = s[9], .right = s[10], .kt = 1, .stride_t = 1};
    int index = c->index % OLD;
    const DType *kind = kinds[index / SHAPES % 4];
    bool biased = index / SHAPES / 4 == 0, raw = c->index >= OLD && !check_below(c, 3);
    bool skipping = c->index >= OLD && !(raw && check_below(c, 2)), skip_biased = skipping && check_below(c, 2);
    g.doubled = c->op == OP_upsample_conv;
    g.frames = c->index >= FRAMES ? 1 + check_below(c, 3) : 0;
    g.h = check_dim(c, g.h, 9);
    g.w = check_dim(c, g.w, 9);
    g.cin = check_dim(c, g.cin, 20);
    g.cout = check_dim(c, g.cout, 12);
    g.tf32 = kind[0] == F32 && kind[2] == F32 && check_below(c, 2);
    if (g.doubled) g.k = g.kw = 3, g.stride = 1, g.top = g.left = g.bottom = g.right = 1;
    int64_t scale = g.doubled ? 2 : 1, oh = (g.h * scale + g.top + g.bottom - g.k) / g.stride + 1;
    int64_t ow = (g.w * scale + g.left + g.right - g.kw) / g.stride + 1;
    Layout lx = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE,
           ly = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE;
    check_label(c, "%lldx%lld, %lld to %lld channels, kernel %lldx%lld stride %lld, %s x %s%s, %s%s, x %s y %s",
                (long long)g.h, (long long)g.w, (long long)g.cin, (long long)g.cout, (long long)g.k,
                (long long)g.kw, (long long)g.stride, dtype_name(kind[0]), dtype_name(kind[1]), g.tf32 ? " in TF32" : "",
                biased ? "bias" : "no bias", raw ? " left" : "", check_layout_name(lx), check_layout_name(ly));
    if (g.frames) check_label(c, ", %lld frames", (long long)g.frames);
    int rank = g.frames ? 4 : 3; /* shapes below begin with the frames */
    Buf *x = check_in(c, "x", &a->x, kind[0], lx, rank, (int64_t[]){g.frames, g.h, g.w, g.cin} + 4 - rank);
    Buf *w = check_weight(c, 0, kind[1], kind[2], LAYOUT_DENSE, SHAPE(g.cout, g.k, g.kw, g.cin));
    Buf *bias = biased ? check_bias(c, 0, kind[0], g.cout) : NULL;
    Buf *y = check_out(c, "y", &a->y, kind[0], ly, rank, (int64_t[]){g.frames, oh, ow, g.cout} + 4 - rank);
    a->w = &c->weight[0];
    a->stride = (int32_t)g.stride;
    a->pad_top = (int32_t)g.top, a->pad_left = (int32_t)g.left;
    a->pad_bottom = (int32_t)g.bottom, a->pad_right = (int32_t)g.right;
    a->form = raw ? CONV_RAW : CONV_BIAS;
    a->tf32 = g.tf32;
    finish_conv(c, y, x, w, bias, raw, skipping, skip_biased, &a->skip, &a->skip_bias, kind[2], &g);
}

enum { PLAIN_CLIPS = 156, FEW_CLIPS = 18 };

/* Wan's last convolution: tiles of 14 x 14 cut off on both sides, whole ones, none that has no border; one frame and several.
 * Every third one's lines lie apart. */
static void make_few_frames(Case *c, Conv3d *a) {
    static const int64_t shapes[][3] = {{3, 14, 14}, {3, 1, 1}, {6, 15, 29}, {4, 30, 17}, {3, 5, 100}, {7, 43, 28}};
    const int64_t *s = shapes[(c->index - PLAIN_CLIPS) % 6];
    Geometry g = {.frames = s[0], .h = check_dim(c, s[1], 16), .w = check_dim(c, s[2], 16), .cin = 96, .cout = 3, .k = 3, .kw = 3,
                  .stride = 1, .top = 1, .left = 1, .bottom = 1, .right = 1, .kt = 3, .stride_t = 1};
    int form = (c->index - PLAIN_CLIPS) / 6; /* bias; none; left */
    Layout lx = c->index % 3 ? LAYOUT_DENSE : LAYOUT_PADDED;
    check_label(c, "%lld frames of %lldx%lld, 96 to 3 channels, bias %s, x %s", (long long)g.frames, (long long)g.h,
                (long long)g.w, form == 0 ? "added" : form == 1 ? "absent" : "left", check_layout_name(lx));
    Buf *x = check_in(c, "x", &a->x, BF16, lx, SHAPE(g.frames, g.h, g.w, g.cin));
    Buf *w = check_weight(c, 0, BF16, BF16, LAYOUT_DENSE, SHAPE(g.cout, 3, 3, 3, g.cin));
    Buf *bias = form == 1 ? NULL : check_bias(c, 0, BF16, g.cout);
    Buf *y = check_out(c, "y", &a->y, BF16, LAYOUT_DENSE, SHAPE(g.frames - 2, g.h, g.w, g.cout));
    a->w = &c->weight[0];
    a->stride_t = a->pad = 1;
    a->form = form == 2 ? CONV_RAW : CONV_BIAS;
    finish_conv(c, y, x, w, bias, form == 2, false, false, &a->skip, &a->skip_bias, BF16, &g);
}

static void make_conv3d(Case *c) {
    static const int64_t shapes[][9] = {/* frames of x, picture, channels, kernel in time and space, stride in time, zeros */
                                        {1, 1, 1, 1, 1, 1, 1, 1},     {3, 5, 7, 3, 4, 3, 3, 1},     {6, 9, 11, 96, 32, 3, 3, 1},
                                        {3, 16, 16, 64, 3, 3, 3, 1},  {4, 12, 10, 32, 48, 1, 1, 1}, {5, 6, 8, 24, 20, 3, 1, 2},
                                        {4, 13, 10, 32, 64, 3, 1, 1}, {6, 24, 20, 16, 16, 3, 3, 1}, {2, 1, 40, 8, 8, 1, 1, 1},
                                        {7, 4, 4, 384, 48, 3, 3, 1},  {1, 6, 8, 16, 24, 3, 3, 1, 1},
                                        {4, 5, 7, 32, 20, 3, 3, 1, 1}, {5, 6, 9, 20, 12, 3, 1, 2, 1}};
    static const DType kinds[][3] = {{F32, F32, F32}, {BF16, BF16, BF16}, {F32, BF16, F32}, {BF16, F32, BF16}};
    enum { SHAPES = 13 };
    ARGS(Conv3d);
    if (c->index >= PLAIN_CLIPS + FEW_CLIPS) {
        make_once_deep(c, c->index - PLAIN_CLIPS - FEW_CLIPS);
        return;
    }
    if (c->index >= PLAIN_CLIPS) {
        make_few_frames(c, a);
        return;
    }
    const int64_t *s = shapes[c->index % SHAPES];
    const DType *kind = kinds[c->index / SHAPES % 4];
    int form = c->index / SHAPES / 4 % 3; /* bias; none; left, or with another path */
    bool raw = form == 2 && !check_below(c, 3), skipping = form == 2 && !(raw && check_below(c, 2));
    Geometry g = {.frames = s[0], .h = check_dim(c, s[1], 5), .w = check_dim(c, s[2], 6), .cin = check_dim(c, s[3], 20),
                  .cout = check_dim(c, s[4], 12), .kt = s[5], .k = s[6], .kw = s[6], .stride = 1, .stride_t = s[7],
                  .early = s[8]};
    g.top = g.left = g.bottom = g.right = g.k / 2;
    g.tf32 = kind[0] == F32 && kind[2] == F32 && check_below(c, 2);
    Layout lx = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE, ly = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE;
    check_label(c, "%lld frames of %lldx%lld, %lld to %lld channels, kernel %lldx%lldx%lld stride %lld%s, ", (long long)g.frames,
                (long long)g.h, (long long)g.w, (long long)g.cin, (long long)g.cout, (long long)g.kt, (long long)g.k,
                (long long)g.k, (long long)g.stride_t, g.early ? " between zeros" : "");
    check_label(c, "%s x %s%s, %s%s, x %s y %s", dtype_name(kind[0]), dtype_name(kind[1]),
                g.tf32 ? " in TF32" : "", form == 1 ? "no bias" : "bias", raw ? " left" : "", check_layout_name(lx),
                check_layout_name(ly));
    Buf *x = check_in(c, "x", &a->x, kind[0], lx, SHAPE(g.frames, g.h, g.w, g.cin));
    Buf *w = check_weight(c, 0, kind[1], kind[2], LAYOUT_DENSE, SHAPE(g.cout, g.kt, g.k, g.k, g.cin));
    Buf *bias = form == 1 ? NULL : check_bias(c, 0, kind[0], g.cout);
    Buf *y = check_out(c, "y", &a->y, kind[0], ly, SHAPE((g.frames + 2 * g.early - g.kt) / g.stride_t + 1, g.h, g.w, g.cout));
    a->w = &c->weight[0];
    a->stride_t = (int32_t)g.stride_t;
    a->pad = (int32_t)(g.k / 2);
    a->pad_t = (int32_t)g.early;
    a->form = raw ? CONV_RAW : CONV_BIAS;
    a->tf32 = g.tf32;
    finish_conv(c, y, x, w, bias, raw, skipping, skipping && check_below(c, 2), &a->skip, &a->skip_bias, kind[2], &g);
}

/* --- the depthwise half of a gated convolution --- */

/* d of one channel of one place, and with it the first rounding that an f32 may take elsewhere: none, the order is fixed. */
static double depth(const Buf *x, const float *w, const Buf *bias, const int64_t *at, int64_t channel, DType t) {
    const int64_t *s = x->view.shape; /* [F, Y, X, 2C] */
    float sum = 0;
    for (int64_t ky = 0; ky < 3; ky++)
        for (int64_t kx = 0; kx < 3; kx++) {
            int64_t iy = at[1] + ky - 1, ix = at[2] + kx - 1;
            if (iy < 0 || ix < 0 || iy >= s[1] || ix >= s[2]) continue;
            sum = fmaf(x->v[((at[0] * s[1] + iy) * s[2] + ix) * s[3] + channel], w[channel * 9 + ky * 3 + kx], sum);
        }
    return check_r(check_r((double)sum, t) + (double)bias->v[channel], t);
}

/* The magnitudes of that sum. */
static double depth_size(const Buf *x, const float *w, const int64_t at[3], int64_t channel) {
    const int64_t *s = x->view.shape;
    double sum = 0;
    for (int64_t ky = 0; ky < 3; ky++)
        for (int64_t kx = 0; kx < 3; kx++) {
            int64_t iy = at[1] + ky - 1, ix = at[2] + kx - 1;
            if (iy < 0 || ix < 0 || iy >= s[1] || ix >= s[2]) continue;
            sum += fabs((double)x->v[((at[0] * s[1] + iy) * s[2] + ix) * s[3] + channel] * (double)w[channel * 9 + ky * 3 + kx]);
        }
    return sum;
}

static void make_dwconv3_glu(Case *c) {
    static const int64_t shapes[][4] = {/* frames, picture, channels */
                                        {1, 1, 1, 1}, {2, 3, 5, 7}, {3, 2, 3, 80}, {1, 9, 11, 600}, {4, 6, 1, 32}, {2, 1, 9, 96},
                                        {2, 5, 4, 6720}};
    static const DType kinds[][3] = {{F32, F32, F32}, {BF16, BF16, BF16}, {F32, BF16, F32}, {BF16, F32, BF16}};
    enum { SHAPES = 7 };
    ARGS(Dwconv3Glu);
    const int64_t *s = shapes[c->index % SHAPES];
    const DType *kind = kinds[c->index / SHAPES % 4];
    DType t = kind[0];
    int64_t frames = s[0], h = s[1], w = s[2], ch = check_dim(c, s[3], 12);
    Layout lx = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE, ly = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE;
    check_label(c, "%lld frames of %lldx%lld, %lld channels, %s x %s, x %s y %s", (long long)frames, (long long)h, (long long)w,
                (long long)ch, dtype_name(t), dtype_name(kind[1]), check_layout_name(lx), check_layout_name(ly));
    Buf *x = check_in(c, "x", &a->x, t, lx, SHAPE(frames, h, w, 2 * ch));
    Buf *k = check_weight(c, 0, kind[1], kind[2], LAYOUT_DENSE, SHAPE(2 * ch, 3, 3, 1)), *bias = check_bias(c, 0, t, 2 * ch);
    Buf *y = check_out(c, "y", &a->y, t, ly, SHAPE(frames, h, w, ch)), *before = NULL, made = *x;
    if (c->index / SHAPES >= 8) {
        before = check_in(c, "before", &a->before, t, LAYOUT_DENSE, SHAPE(2 * ch));
        check_label(c, ", a bias and SiLU before");
    }
    a->w = &c->weight[0];
    check_fill(c, x, 0.2, 1);
    check_fill(c, k, 0, 0.5);
    if (before) check_fill(c, before, 0, 1);
    check_fill(c, bias, 0, 1);
    if (c->index / SHAPES % 8 == 4 || c->index / SHAPES % 8 == 5) check_spoil(c, x);
    if (before) { /* x' in place of x */
        made.v = check_alloc(c, (size_t)x->n * sizeof *made.v);
        for (int64_t i = 0; i < x->n; i++) {
            double z = check_r((double)x->v[i] + (double)before->v[i % (2 * ch)], t);
            made.v[i] = (float)(t == BF16 ? check_unary(UNARY_SILU, z) : check_r(z / (1 + exp(-z)), t));
        }
    }
    float *weight = check_alloc(c, (size_t)k->n * sizeof *weight);
    for (int64_t i = 0; i < k->n; i++) weight[i] = (float)check_round((double)k->v[i], kind[2]);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t place = i / ch, channel = i % ch, at[3] = {place / w / h, place / w % h, place % w};
        double value = depth(&made, weight, bias, at, channel, t), gate = depth(&made, weight, bias, at, ch + channel, t);
        double s_gate = t == BF16 ? check_unary(UNARY_SILU, gate) : check_r(gate / (1 + exp(-gate)), t);
        if (t == BF16) check_exact(y, i, check_r(value * s_gate, t));
        else {
            /* x' is within 7 units of what it is taken for here: an exponential, a sum, a quotient; so nine sums and their
             * roundings may each part by that, and SiLU is at most 1.1 times as steep */
            double apart = before ? 25 * CHECK_U * (depth_size(&made, weight, at, channel) * fabs(s_gate) +
                                                    1.1 * depth_size(&made, weight, at, ch + channel) * fabs(value)) : 0;
            check_within(y, i, check_r(value * s_gate, t), apart + 8 * CHECK_U * fabs(value * s_gate) + 0x1p-140);
        }
    }
}

/* --- group norm --- */

/* A statistic in double, and how far an f32 computation may be from it. */
typedef struct Reach {
    double value, room;
} Reach;

/* Mean and 1/sqrt(var + eps) of v[pixels, channels] over channels first..first+count. */
static void group_statistics(const double *v, int64_t pixels, int64_t channels, int64_t first, int64_t count, double eps,
                             Reach *mean, Reach *rstd) {
    double sum = 0, square = 0, size = 0, total = (double)(pixels * count);
    float plain = 0, plain_square = 0;
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t i = first; i < first + count; i++) {
            sum += v[p * channels + i];
            size += fabs(v[p * channels + i]);
            plain += (float)v[p * channels + i];
        }
    mean->value = sum / total;
    plain /= (float)total;
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t i = first; i < first + count; i++) {
            double d = v[p * channels + i] - mean->value;
            float f = (float)v[p * channels + i] - plain;
            square += d * d;
            plain_square += f * f;
        }
    rstd->value = 1 / sqrt(square / total + eps);
    double plain_r = (double)(1 / sqrtf(plain_square / (float)total + (float)eps));
    mean->room = 2 * fabs((double)plain - mean->value) + 4 * CHECK_U * size / total;
    rstd->room = 2 * fabs(plain_r - rstd->value) + 8 * CHECK_U * rstd->value;
}

static Status norm_then_silu(Exec *x, const void *args) {
    const GroupNorm *a = args;
    TRY(op_groupnorm(x, a));
    return op_act(x, &(Act){.y = a->y, .x = a->y, .kind = ACT_SILU});
}

/* silu has one minimum, at -1.2785; elsewhere it is monotone. */
static void expect_silu(Buf *y, int64_t i, const double *z, DType inner) {
    double v[3], room = 0;
    DType t = y->view.dtype;
    for (int s = 0; s < 3; s++) {
        v[s] = inner == BF16 ? check_unary(UNARY_SILU, z[s]) : z[s] / (1 + exp(-z[s]));
        /* an exponential and a quotient of 2 ulp each, and the sum between; without roundings before it (BF16) the exponent,
         * a product, is rounded too */
        double exponent = t == BF16 ? 2 * fmax(0, -z[s]) : 0;
        if (inner == F32) room = fmax(room, (9 + exponent) * CHECK_U * fabs(v[s]));
        if (inner == F32 && z[s] < -88.7) room = fmax(room, fabs(v[s])); /* the exponential has left f32: 0 */
    }
    double low = fmin(v[1], fmin(v[0], v[2])), high = fmax(v[1], fmax(v[0], v[2]));
    if (fmin(z[0], z[2]) < -1.2785 && fmax(z[0], z[2]) > -1.2784)
        low = fmin(low, inner == BF16 ? -0.279296875 : -0.2784646);
    low -= room, high += room;
    if (inner != t) low = check_r(low, t), high = check_r(high, t);
    check_between(y, i, check_r(v[1], t), low, high);
}

/* Every finite BF16 number through SiLU: x is 1 and -1, so the statistics are 0 and 1, and the weights are the numbers. */
static void make_silu_sweep(Case *c) {
    enum { FINITE = 0x7f80 };
    ARGS(GroupNorm);
    int64_t ch = c->small ? 512 : FINITE, step = FINITE / ch;
    check_label(c, "BF16, %lld numbers and their negatives through SiLU", (long long)ch);
    Buf *x = check_in(c, "x", &a->x, BF16, LAYOUT_DENSE, SHAPE(1, 2, ch));
    Buf *weight = check_in(c, "w", &a->w, BF16, LAYOUT_DENSE, SHAPE(ch)),
        *shift = check_in(c, "b", &a->b, BF16, LAYOUT_DENSE, SHAPE(ch));
    Buf *y = check_out(c, "y", &a->y, BF16, LAYOUT_DENSE, SHAPE(1, 2, ch));
    a->eps = 0;
    a->groups = 1;
    for (int64_t i = 0; i < ch; i++) {
        weight->v[i] = bf16_to_f32((uint16_t)(i * step));
        x->v[i] = 1, x->v[ch + i] = -1, shift->v[i] = -0.0f;
    }
    for (int64_t i = 0; i < 2 * ch; i++) {
        double v = (double)(i < ch ? weight->v[i] : -weight->v[i - ch]), z[3] = {v, v, v};
        expect_silu(y, i, z, c->keeps ? F32 : BF16);
    }
}

static void make_groupnorm(Case *c) {
    static const int64_t shapes[][4] = {/* Y, X, C, groups */
                                        {1, 1, 4, 2},      {16, 16, 64, 32},  {9, 11, 96, 32},
                                        {16, 16, 512, 32}, {64, 48, 128, 32}, {5, 7, 6, 3},
                                        {33, 17, 32, 32},  {8, 8, 40, 1},     {128, 128, 32, 8}};
    static const double mean[] = {0.3, 50, 0, 0}, deviation[] = {1.5, 1, 1e-3, 2}; /* 1e-3: eps shows */
    enum { SHAPES = 9 };
    ARGS(GroupNorm);
    if (c->index == 8 * SHAPES) {
        make_silu_sweep(c);
        return;
    }
    const int64_t *s = shapes[c->index % SHAPES];
    DType t = c->index / SHAPES % 2 ? BF16 : F32;
    int kind = c->index / SHAPES / 2;
    int64_t h = check_dim(c, s[0], 9), w = check_dim(c, s[1], 9), ch = s[2], count = ch / s[3];
    Layout lx = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE,
           ly = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE;
    check_label(c, "%s %lldx%lld, %lld channels in %lld groups, mean %g deviation %g, x %s", dtype_name(t),
                (long long)h, (long long)w, (long long)ch, (long long)s[3], mean[kind], deviation[kind],
                check_layout_name(lx));
    Buf *x = check_in(c, "x", &a->x, t, lx, SHAPE(h, w, ch)), *y = x;
    Buf *weight = check_in(c, "w", &a->w, t, LAYOUT_DENSE, SHAPE(ch)),
        *shift = check_in(c, "b", &a->b, t, LAYOUT_DENSE, SHAPE(ch)), *bias = NULL;
    if (check_below(c, 2)) {
        bias = check_in(c, "bias", &a->bias, t, LAYOUT_DENSE, SHAPE(ch));
        check_fill(c, bias, 0, deviation[kind]);
        check_label(c, ", bias");
    }
    if (check_below(c, 3) == 0)
        check_in_place(c, x, &a->y), check_label(c, ", in place");
    else
        y = check_out(c, "y", &a->y, t, ly, SHAPE(h, w, ch));
    a->eps = 1e-6f;
    a->groups = (int32_t)s[3];
    check_fill(c, x, mean[kind], deviation[kind]);
    check_fill(c, weight, 1, 0.3);
    check_fill(c, shift, 0, 0.2);
    if (kind == 3) x->v[check_below(c, x->n)] = NAN;
    bool silu = c->op == OP_groupnorm_silu;
    DType inner = c->keeps ? F32 : t;
    if (silu && t == BF16 && !c->keeps) c->twin = y == x ? NULL : norm_then_silu; /* F32: another exp, not the same bits */
    double *v = check_alloc(c, (size_t)x->n * sizeof *v);
    for (int64_t i = 0; i < x->n; i++) {
        v[i] = (double)x->v[i];
        if (bias) v[i] = check_r(v[i] + (double)bias->v[i % ch], inner);
    }
    for (int64_t g = 0; g < s[3]; g++) {
        Reach m, r;
        double low[2], high[2], want[2];
        group_statistics(v, h * w, ch, g * count, count, check_r((double)a->eps, t), &m, &r);
        const Reach *both[] = {&m, &r};
        for (int k = 0; k < 2; k++) {
            want[k] = check_r(both[k]->value, t);
            low[k] = check_r(both[k]->value - both[k]->room, t);
            high[k] = check_r(both[k]->value + both[k]->room, t);
        }
        for (int64_t p = 0; p < h * w; p++)
            for (int64_t i = g * count; i < (g + 1) * count; i++) {
                double z[3] = {INFINITY, 0, -INFINITY};
                for (int k = 0; k < 5; k++) { /* the middle, then the corners: monotone in either statistic */
                    double mk = k == 0 ? want[0] : k & 1 ? low[0] : high[0], rk = k == 0 ? want[1] : k < 3 ? low[1] : high[1];
                    double scale = check_r(rk * (double)weight->v[i], F32);
                    double offset = check_r((double)shift->v[i] - scale * mk, F32);
                    double value = v[p * ch + i] * scale + offset, room = 0;
                    if (inner == F32) room = 3 * CHECK_U * (fabs(v[p * ch + i] * scale) + fabs(offset) + fabs(scale * mk));
                    if (k == 0) z[1] = check_r(value, inner);
                    if (k == 0 && isnan(value)) z[0] = z[2] = value;
                    z[0] = fmin(z[0], check_r(value - room, inner));
                    z[2] = fmax(z[2], check_r(value + room, inner));
                }
                if (silu)
                    expect_silu(y, p * ch + i, z, inner);
                else
                    check_between(y, p * ch + i, z[1], z[0], z[2]);
            }
    }
}

const CaseSet CHECK_CONV[] = {
    {OP_conv2d, PLAIN_CASES + FEW_CASES + ONCE_CASES, make_conv},
    {OP_upsample_conv, 224, make_conv},
    {OP_conv3d, PLAIN_CLIPS + FEW_CLIPS + ONCE_CASES, make_conv3d},
    {OP_dwconv3_glu, 7 * 16, make_dwconv3_glu},
    {OP_groupnorm, 72, make_groupnorm},
    {OP_groupnorm_silu, 73, make_groupnorm},
};
const int CHECK_CONV_COUNT = sizeof CHECK_CONV / sizeof *CHECK_CONV;
