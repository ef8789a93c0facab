/* check_cases_text.c - cases of rope_split.
 *
 * Everything is exact: one fused multiply-add behind a rounded product, which fmaf of the C library gives.
 * Easy to get wrong: the angles differ from head to head. */
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
        cosine->v[i] = (float)check_round(angles ? cos(angle) : 1 + angle, F32);
        sine->v[i] = (float)check_round(angles ? sin(angle) : 2 - angle, F32);
    }
    for (int64_t row = 0; row < tokens * heads; row++)
        for (int64_t i = 0; i < half; i++) {
            float x0 = x->v[row * e + i], x1 = x->v[row * e + half + i];
            float cs = cosine->v[row * half + i], sn = sine->v[row * half + i];
            float p0 = (float)check_round((double)x0 * (double)cs, F32), p1 = (float)check_round((double)x1 * (double)cs, F32);
            check_exact(y, row * e + i, check_round((double)fmaf(-sn, x1, p0), t));
            check_exact(y, row * e + half + i, check_round((double)fmaf(sn, x0, p1), t));
        }
}

const CaseSet CHECK_TEXT[] = {
    {OP_rope_split, 6 * 2 * 4 * 2, make_rope_split},
};
const int CHECK_TEXT_COUNT = sizeof CHECK_TEXT / sizeof *CHECK_TEXT;
