/* check_cases_guide.c - cases of guide_x0 and velocity_x0 (kernels/guide.h).
 *
 * Easy to get wrong: a prediction that is absent adds a number 0, which turns -0 into +0; in the rescaling only the two
 * standard deviations have room. */
#include "check.h"

#include <math.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

static const int64_t SHAPES_OF[][3] = {{1, 2, 1},     {3, 5, 1},    {7, 128, 1},
                                       {130, 128, 1}, {2, 3, 1100}, {33, 61, 1}};
enum { SHAPES = 6, WITH = 8 };

static int shape_of(const Case *c, int64_t shape[3]) {
    const int64_t *s = SHAPES_OF[c->index % SHAPES];
    for (int d = 0; d < 3; d++) shape[d] = check_dim(c, s[d], 140);
    return s[2] > 1 ? 3 : 2;
}

static Buf *input(Case *c, const char *name, Tensor *slot, int rank, const int64_t *shape) {
    Buf *b = check_in(c, name, slot, F32, check_layout(c), rank, shape);
    check_fill(c, b, 0.1, 2);
    return b;
}

/* What a form stores where diffusers stores F32. */
static double kept(double v, int32_t form) { return form == GUIDE_OFFICIAL_BF16 ? check_r(v, BF16) : v; }

static double clean(double x, double v, double sigma, int32_t form) {
    return kept(check_r(x - check_r(v * sigma, F32), F32), form);
}

static void make_guide_x0(Case *c) {
    ARGS(GuideX0);
    int64_t shape[3];
    int rank = shape_of(c, shape), with = c->index / SHAPES % WITH;
    bool keeps = check_below(c, 2);
    a->form = c->index / SHAPES / WITH ? GUIDE_OFFICIAL_BF16 : GUIDE_DIFFUSERS;
    if (a->form) check_label(c, "BF16, ");
    const char *const names[] = {"neg", "perturbed", "isolated"};
    Tensor *slots[] = {&a->neg, &a->perturbed, &a->isolated};
    float *by[] = {&a->cfg, &a->stg, &a->modality};
    check_label(c, "%lldx%lldx%lld", (long long)shape[0], (long long)shape[1], (long long)shape[2]);
    Buf *x = input(c, "x", &a->x, rank, shape), *cond = input(c, "cond", &a->cond, rank, shape),
        *other[3] = {0}, *at = NULL, *y;
    if (c->index % 5 == 4) check_spoil(c, cond);
    for (int k = 0; k < 3; k++) {
        *by[k] = (float)(0.3 + 0.9 * (double)check_below(c, 7));
        if (!(with >> k & 1)) continue;
        check_label(c, ", %s", names[k]);
        other[k] = input(c, names[k], slots[k], rank, shape);
    }
    Buf *sigma = check_in(c, "sigma", &a->sigma, F32, LAYOUT_DENSE, SHAPE(1));
    sigma->v[0] = (float)(0.05 + 0.05 * (double)check_below(c, 19));
    if (keeps && check_below(c, 2))
        check_in_place(c, cond, &a->c), at = cond, check_label(c, ", c in place of cond");
    else if (keeps)
        at = check_out(c, "c", &a->c, F32, check_layout(c), rank, shape), check_label(c, ", c");
    y = check_out(c, "y", &a->y, F32, check_layout(c), rank, shape);
    for (int64_t i = 0; i < y->n; i++) {
        double s = (double)sigma->v[0], was = clean((double)x->v[i], (double)cond->v[i], s, a->form), sum = was;
        for (int k = 0; k < 3; k++) {
            double d = other[k] ? check_r(was - clean((double)x->v[i], (double)other[k]->v[i], s, a->form), F32) : 0;
            sum = check_r(sum + (other[k] ? check_r((double)*by[k] * d, F32) : 0), F32);
        }
        check_exact(y, i, sum);
        if (at) check_exact(at, i, was);
    }
}

/* Unbiased, in double, and what a plain f32 computation of it would lose, relatively. */
static double deviation(const Buf *b, double *lost) {
    double mean = 0, squares = 0;
    float plain = 0, plain_squares = 0;
    for (int64_t i = 0; i < b->n; i++) mean += (double)b->v[i], plain += b->v[i];
    mean /= (double)b->n, plain /= (float)b->n;
    for (int64_t i = 0; i < b->n; i++) {
        float d = b->v[i] - plain;
        squares += ((double)b->v[i] - mean) * ((double)b->v[i] - mean), plain_squares += d * d;
    }
    double want = sqrt(squares / (double)(b->n - 1));
    *lost = fabs((double)sqrtf(plain_squares / (float)(b->n - 1)) - want) / want;
    return want;
}

static void make_velocity_x0(Case *c) {
    ARGS(VelocityX0);
    int64_t shape[3];
    int rank = shape_of(c, shape);
    a->form = (int32_t)(c->index / SHAPES / 4);
    bool rescales = c->index / SHAPES % 2, keeps = c->index / SHAPES / 2 % 2 && rank == 2;
    check_label(c, "%s%lldx%lldx%lld%s%s", (const char *const[]){"", "official, ", "official BF16, "}[a->form],
                (long long)shape[0], (long long)shape[1], (long long)shape[2], rescales ? ", rescaled" : "",
                keeps ? ", kept" : "");
    Buf *x = input(c, "x", &a->x, rank, shape), *x0 = input(c, "x0", &a->x0, rank, shape), *y = x0;
    Buf *like = rescales ? input(c, "like", &a->like, rank, shape) : NULL;
    Buf *clean = keeps ? input(c, "clean", &a->clean, rank, shape) : NULL;
    Buf *mask = keeps ? check_in(c, "mask", &a->mask, F32, LAYOUT_DENSE, SHAPE(shape[0], 1)) : NULL;
    for (int64_t i = 0; mask && i < mask->n; i++) mask->v[i] = (float)(0.25 * (double)check_below(c, 5));
    Buf *sigma = check_in(c, "sigma", &a->sigma, F32, LAYOUT_DENSE, SHAPE(1));
    sigma->v[0] = (float)(0.1 + 0.05 * (double)check_below(c, 18));
    if (check_below(c, 2))
        check_in_place(c, x0, &a->y), check_label(c, ", in place");
    else
        y = check_out(c, "y", &a->y, F32, check_layout(c), rank, shape);
    if (rescales) a->rescale = 0.7f, a->rest = (float)(1 - 0.7);
    double lost[2] = {0}, ratio = 1, s = (double)sigma->v[0];
    if (rescales) ratio = deviation(like, &lost[0]) / deviation(x0, &lost[1]);
    double room = rescales ? 2 * (lost[0] + lost[1]) + 4 * CHECK_U
                           : 0; /* of the ratio: two deviations and the quotient rounded */
    for (int64_t i = 0; i < y->n; i++) {
        double v[3];
        for (int k = 0; k < 3; k++) {
            double g = (double)x0->v[i], by = ratio * (1 + (k - 1) * room);
            bool official = a->form != GUIDE_DIFFUSERS;
            if (rescales) by = k == 1 ? check_r(by, F32) : by;
            if (official) {
                if (rescales) g = check_r(g * check_r(check_r((double)a->rescale * by, F32) + (double)a->rest, F32), F32);
                g = kept(g, a->form);
            } else if (rescales) {
                double scaled = check_r((double)a->rescale * check_r(g * by, F32), F32);
                g = check_r(scaled + check_r((double)a->rest * g, F32), F32);
            }
            if (keeps) {
                double m = (double)mask->v[i / shape[1]];
                g = check_r(check_r(g * check_r(1 - m, F32), F32) + check_r((double)clean->v[i] * m, F32), F32);
                g = kept(g, a->form);
            }
            v[k] = kept(check_r(check_r((double)x->v[i] - g, F32) / s, F32), a->form);
        }
        if (rescales)
            check_between(y, i, v[1], v[0], v[2]);
        else
            check_exact(y, i, v[1]);
    }
}

const CaseSet CHECK_GUIDE[] = {
    {OP_guide_x0, SHAPES *WITH * 2, make_guide_x0},
    {OP_velocity_x0, SHAPES * 4 * 3, make_velocity_x0},
};
const int CHECK_GUIDE_COUNT = sizeof CHECK_GUIDE / sizeof *CHECK_GUIDE;
