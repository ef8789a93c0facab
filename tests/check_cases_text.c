/* check_cases_text.c - cases of what LTX-2's text side adds: rope_split, stack_range_norm and stack_rms_norm.
 *
 * rope_split is exact: one fused multiply-add behind a rounded product, which fmaf of the C library gives. The norms have
 * sums in any order: a plain f32 loop's error, doubled, and 32 roundings of the sum of magnitudes are what they may be off; all
 * behind them is monotone.
 * Easy to get wrong: a rounded statistic that moves moves a whole layer, so any share of the elements may take the other
 * value. */
#include "check.h"

#include <math.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

static void make_rope_split(Case *c) {
    static const int64_t sizes[][3] = {/* tokens, heads, E */
                                       {1, 1, 2}, {18, 2, 16}, {40, 3, 30}, {33, 30, 128}, {7, 32, 64}, {900, 2, 8}};
    enum { SIZES = 6 };
    ARGS(RopeSplit);
    const int64_t *s = sizes[c->index % SIZES];
    DType t = c->index / SIZES % 2 ? BF16 : F32;
    bool spoilt = c->index / SIZES / 2 % 4 == 3, angles = c->index / SIZES / 2 % 4 != 2;
    int64_t tokens = check_dim(c, s[0], 5), heads = s[1], e = s[2], half = e / 2;
    Layout lx = check_layout(c), ly = check_layout(c), lt = check_layout(c);
    a->form = c->index / SIZES / 16 ? ROPE_SPLIT_DTYPE : ROPE_SPLIT_ONCE;
    DType plain = a->form ? t : F32; /* of the product that is added to */
    if (a->form) check_label(c, "in the dtype, ");
    check_label(c, "%s %lldx%lldx%lld, x %s y %s tables %s%s", dtype_name(t), (long long)tokens, (long long)heads, (long long)e,
                check_layout_name(lx), check_layout_name(ly), check_layout_name(lt), spoilt ? ", spoilt" : "");
    Buf *x = check_in(c, "x", &a->x, t, lx, SHAPE(tokens, heads, e)), *y = x;
    Buf *cosine = check_in(c, "cos", &a->cos, F32, lt, SHAPE(tokens, heads, half));
    Buf *sine = check_in(c, "sin", &a->sin, F32, lt, SHAPE(tokens, heads, half));
    if (check_below(c, 3) == 0) check_in_place(c, x, &a->y), check_label(c, ", in place");
    else y = check_out(c, "y", &a->y, t, ly, SHAPE(tokens, heads, e));
    check_fill(c, x, 0.3, 2);
    if (spoilt) check_spoil(c, x);
    for (int64_t i = 0; i < cosine->n; i++) {
        double angle = 40 * check_normal(c);
        cosine->v[i] = (float)check_round(angles ? cos(angle) : 1 + angle, plain);
        sine->v[i] = (float)check_round(angles ? sin(angle) : 2 - angle, plain);
    }
    for (int64_t row = 0; row < tokens * heads; row++)
        for (int64_t i = 0; i < half; i++) {
            float x0 = x->v[row * e + i], x1 = x->v[row * e + half + i];
            float cs = cosine->v[row * half + i], sn = sine->v[row * half + i];
            float p0 = (float)check_round((double)x0 * (double)cs, plain);
            float p1 = (float)check_round((double)x1 * (double)cs, plain);
            check_exact(y, row * e + i, check_round((double)fmaf(-sn, x1, p0), t));
            check_exact(y, row * e + half + i, check_round((double)fmaf(sn, x0, p1), t));
        }
}

/* --- stacks --- */

typedef struct Stack {
    int64_t tokens, d, layers, first;
    DType t;
    Buf *x, *y;
} Stack;

static Stack stack_of(Case *c, Tensor *x, Tensor *y) {
    static const int64_t sizes[][3] = {{1, 1, 1},     {5, 7, 3},     {40, 96, 5}, {300, 64, 49},
                                       {3, 3840, 49}, {17, 33, 101}, {64, 768, 7}};
    enum { SIZES = 7 };
    static const double mean[] = {0.3, 40, 0}, deviation[] = {2, 3, 0};
    const int64_t *s = sizes[c->index % SIZES];
    int kind = c->index / SIZES / 2 % 3;
    Stack k = {.tokens = check_dim(c, s[0], 6), .d = check_dim(c, s[1], 48), .layers = s[2]};
    k.t = c->index / SIZES % 2 ? BF16 : F32;
    k.first = check_below(c, 2) ? check_below(c, k.tokens) : 0;
    check_label(c, "%s %lldx%lldx%lld, %lld of padding, mean %g deviation %g", dtype_name(k.t), (long long)k.tokens,
                (long long)k.d, (long long)k.layers, (long long)k.first, mean[kind], deviation[kind]);
    k.x = k.y = check_in(c, "x", x, k.t, LAYOUT_DENSE, SHAPE(k.tokens, k.d, k.layers));
    if (check_below(c, 3) == 0) check_in_place(c, k.x, y), check_label(c, ", in place");
    else k.y = check_out(c, "y", y, k.t, LAYOUT_DENSE, SHAPE(k.tokens, k.d, k.layers));
    check_fill(c, k.x, mean[kind], deviation[kind]);
    for (int64_t i = 0; i < k.first * k.d * k.layers; i++)
        if (i % 5 == 0) k.x->v[i] = i % 2 ? NAN : (float)check_round(1e30, k.t); /* padding may hold anything */
    return k;
}

static void make_stack_range_norm(Case *c) {
    ARGS(StackRangeNorm);
    Stack k = stack_of(c, &a->x, &a->y);
    a->eps = 1e-6f, a->scale = 8, a->first = (int32_t)k.first;
    int64_t from = k.first * k.d, count = k.tokens * k.d, real = count - from;
    for (int64_t l = 0; l < k.layers; l++) {
        double sum = 0, size = 0, low = INFINITY, high = -INFINITY, mean[3];
        float naive = 0;
        for (int64_t i = from; i < count; i++) {
            double v = (double)k.x->v[i * k.layers + l];
            sum += v, size += fabs(v), naive += (float)v;
            low = fmin(low, v), high = fmax(high, v);
        }
        double room = 2 * fabs((double)naive - sum) + 32 * CHECK_U * size;
        for (int j = 0; j < 3; j++) /* r(sum) takes one value or two in BF16, and any between in F32 */
            mean[j] = check_r(check_r(sum + (j - 1) * room, k.t) / check_r((double)real + (double)a->eps, F32), F32);
        double range = check_r(check_r(high - low, k.t) + (double)a->eps, k.t);
        for (int64_t i = 0; i < count; i++) {
            double v = (double)k.x->v[i * k.layers + l], want[3];
            for (int j = 0; j < 3; j++)
                want[j] = i < from ? 0 : check_r(8 * check_r(check_r(v - mean[j], F32) / range, F32), k.t);
            check_between(k.y, i * k.layers + l, want[1], want[0], want[2]);
        }
    }
}

static void make_stack_rms_norm(Case *c) {
    ARGS(StackRmsNorm);
    Stack k = stack_of(c, &a->x, &a->y);
    a->eps = 1e-6f, a->first = (int32_t)k.first;
    for (int64_t row = 0; row < k.tokens * k.layers; row++) {
        int64_t at = row / k.layers * k.d * k.layers + row % k.layers;
        double sum = 0, by[3];
        float naive = 0;
        for (int64_t j = 0; j < k.d; j++) {
            double square = check_r((double)k.x->v[at + j * k.layers] * (double)k.x->v[at + j * k.layers], k.t);
            sum += square, naive += (float)square;
        }
        double room = 2 * fabs((double)naive - sum) + 32 * CHECK_U * sum;
        for (int j = 0; j < 3; j++) {
            double v = check_r(check_r((sum + (j - 1) * room) / (double)k.d, k.t) + (double)a->eps, k.t);
            by[j] = k.t == BF16 ? check_unary(UNARY_RSQRT, v) : check_r(1 / sqrt(v), F32) * (1 - (j - 1) * 4 * CHECK_U);
        }
        for (int64_t j = 0; j < k.d; j++) {
            double v = (double)k.x->v[at + j * k.layers], want[3];
            for (int i = 0; i < 3; i++) want[i] = row / k.layers < k.first ? 0 : check_r(v * by[i], k.t);
            check_between(k.y, at + j * k.layers, want[1], want[0], want[2]);
        }
    }
}

const CaseSet CHECK_TEXT[] = {
    {OP_rope_split, 6 * 2 * 4 * 2 * 2, make_rope_split},
    {OP_stack_range_norm, 7 * 2 * 3 * 2, make_stack_range_norm},
    {OP_stack_rms_norm, 7 * 2 * 3 * 2, make_stack_rms_norm},
};
const int CHECK_TEXT_COUNT = sizeof CHECK_TEXT / sizeof *CHECK_TEXT;
