/* check_cases_elementwise.c - cases of the ops of elementwise.h.
 *
 * BF16 results are exact: the chains are recomputed in double, rounded to f32 and to bf16 after each operation (a
 * double holds the exact sum or product of two f32 well enough that one more rounding gives the f32 result), unary
 * functions through the recorded tables. F32 activations depend on libm; they are held against the double formula with
 * a bound derived from one unit roundoff per operation and four (two ulps) per library call: what CUDA's promises. */
#include "check.h"

#include <math.h>
#include <stdio.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

enum { SHAPES = 15 };
static const int64_t shapes[SHAPES][5] = {
    /* rank, extents */
    {1, 1},        {1, 7},      {2, 3, 13},   {2, 5, 128},    {2, 77, 768},    {2, 9, 3072},  {2, 4, 4096},
    {2, 17, 2240}, {2, 31, 96}, {2, 2, 1025}, {3, 5, 11, 96}, {4, 2, 3, 4, 7}, {2, 300, 257},
    {2, 130, 264},  {3, 2, 66, 40},
};

typedef struct Shape {
    int rank;
    int64_t extent[TENSOR_MAX_RANK], rows, cols;
} Shape;

static Shape shape_in(const Case *c, const int64_t from[5]) {
    Shape s = {.rank = (int)from[0], .rows = 1};
    for (int d = 0; d < s.rank; d++) {
        s.extent[d] = check_dim(c, from[1 + d], d == s.rank - 1 ? 140 : 6);
        if (d < s.rank - 1)
            s.rows *= s.extent[d];
        else
            s.cols = s.extent[d];
    }
    return s;
}

static Shape shape_of(const Case *c, int i) { return shape_in(c, shapes[i]); }

/* Inputs of one op: fill, and every fifth case holds zeros, denormals, huge values, infinities and NaN. */
static void fill(Case *c, Buf *b, double deviation) {
    check_fill(c, b, 0, deviation);
    if (c->index % 5 == 4) check_spoil(c, b);
}

/* Lays out x and y; one case in three works in place. Returns y. */
static Buf *output(Case *c, Buf *x, Tensor *slot, const Shape *s) {
    if (check_below(c, 3) == 0) {
        check_in_place(c, x, slot);
        check_label(c, ", in place");
        return x;
    }
    return check_out(c, "y", slot, x->view.dtype, check_layout(c), s->rank, s->extent);
}

/* --- activations --- */

static const char *const KIND[] = {"none", "silu",  "gelu_tanh",  "gelu_erf", "gelu_new", "quick_gelu",
                                   "relu", "tanh",  "leaky_relu", "clamp",    "log_floor"};
enum { KINDS = ACT_LOG_FLOOR + 1, MUL_KINDS = ACT_TANH + 1 };
static const float SLOPE = 0.1f;
static const double K = 0.7978845608028654;

/* The BF16 chain, exact. */
static double act_bf16(int kind, double x) {
    switch (kind) {
    case ACT_SILU: return check_unary(UNARY_SILU, x);
    case ACT_GELU_TANH: return check_unary(UNARY_GELU_TANH, x);
    case ACT_GELU_ERF: return check_unary(UNARY_GELU_ERF, x);
    case ACT_GELU_NEW: {
        double u = check_r((double)0.044715f * check_unary(UNARY_POW3, x), BF16);
        u = check_r((double)(float)K * check_r(x + u, BF16), BF16);
        u = check_r(1 + check_unary(UNARY_TANH, u), BF16);
        return check_r(check_r(0.5 * x, BF16) * u, BF16);
    }
    case ACT_QUICK_GELU:
        return check_r(x * check_unary(UNARY_SIGMOID, check_r((double)1.702f * x, BF16)), BF16);
    case ACT_RELU: return x <= 0 ? 0 : x;
    case ACT_TANH: return check_unary(UNARY_TANH, x);
    case ACT_LEAKY_RELU: return x > 0 ? x : check_r(x * (double)SLOPE, BF16);
    case ACT_CLAMP: return x < -1 ? -1 : x > 1 ? 1 : x;
    case ACT_LOG_FLOOR: return check_unary(UNARY_LOG, check_r(x < (double)1e-5f ? (double)1e-5f : x, BF16));
    default: return x;
    }
}

/* The formula in double; *room is what f32 arithmetic may lose. exp(-x) overflows an f32 at x < -88: the true value
 * there is below |x| 2^-126, where f32 gives 0. */
static double act_f32(int kind, double x, double *room) {
    const double u = CHECK_U;
    double y, floor_room = fabs(x) * 0x1p-125 + 0x1p-149;
    *room = 0;
    switch (kind) {
    case ACT_SILU:
        y = x / (1 + exp(-x));
        *room = 8 * u * fabs(y) + floor_room;
        return y;
    case ACT_GELU_TANH:
    case ACT_GELU_NEW: {
        double w = K * (x + 0.044715 * x * x * x), t = tanh(w), slope = (1 - t * t) * fabs(w);
        if (isnan(slope)) slope = 0;
        y = 0.5 * x * (1 + t);
        /* w: eight operations and constants; slope once more for the shifted argument */
        *room = 0.5 * fabs(x) * (10 * u * slope + 4 * u * fabs(t) + u) + 4 * u * fabs(y) + 0x1p-149;
        return y;
    }
    case ACT_GELU_ERF: {
        double z = x * 0.7071067811865476, t = erf(z), slope = 1.1283791670955126 * exp(-z * z) * fabs(z);
        if (isnan(slope)) slope = 0;
        y = 0.5 * x * (1 + t);
        *room = 0.5 * fabs(x) * (3 * u * slope + 4 * u * fabs(t) + u) + 4 * u * fabs(y) + 0x1p-149;
        return y;
    }
    case ACT_QUICK_GELU: {
        double z = 1.702 * x, s = 1 / (1 + exp(-z));
        y = x * s;
        *room = 8 * u * fabs(y) + (isinf(z) ? 0 : 3 * u * fabs(z) * s * (1 - s) * fabs(x)) + floor_room;
        return y;
    }
    case ACT_RELU: return x <= 0 ? 0 : x;
    case ACT_TANH:
        y = tanh(x);
        *room = 4 * u * fabs(y);
        return y;
    case ACT_LEAKY_RELU: return x > 0 ? x : x * (double)SLOPE;
    case ACT_CLAMP: return x < -1 ? -1 : x > 1 ? 1 : x;
    case ACT_LOG_FLOOR:
        y = log(x < (double)1e-5f ? (double)1e-5f : x);
        *room = isinf(y) ? 0 : 4 * u * fabs(y);
        return y;
    default: return x;
    }
}

/* Behind shapes and kinds: both GELUs by tanh of every BF16 number, in order and mixed, many enough for a table. */
enum { ACT_CASES = SHAPES * KINDS * 2, EVERY_CASES = 4 };

static void make_act(Case *c) {
    ARGS(Act);
    int every = c->index - ACT_CASES;
    Shape s = shape_in(c, every < 0 ? shapes[c->index % SHAPES] : (const int64_t[5]){2, 1031, 2040});
    int kind = every < 0 ? c->index / SHAPES % KINDS : every % 2 ? ACT_GELU_NEW : ACT_GELU_TANH;
    DType t = every >= 0 || c->index / SHAPES / KINDS ? BF16 : F32;
    c->tidy = c->tidy || every >= 0;
    check_label(c, "%s %s, %lld rows of %lld", KIND[kind], dtype_name(t), (long long)s.rows,
                (long long)s.cols);
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent), *y = output(c, x, &a->y, &s);
    a->kind = kind;
    if (kind == ACT_LEAKY_RELU) a->slope = SLOPE;
    fill(c, x, 3);
    for (int64_t i = 0; every >= 0 && i < x->n; i++) {
        uint32_t bits = (uint32_t)i / (uint32_t)s.cols % 2 ? (uint32_t)i * 2654435761u & 0xffff0000u : (uint32_t)i << 16;
        memcpy(&x->v[i], &bits, 4);
    }
    for (int64_t i = 0; i < y->n; i++) {
        double room = 0,
               want = t == BF16 ? act_bf16(kind, (double)x->v[i]) : act_f32(kind, (double)x->v[i], &room);
        check_within(y, i, t == BF16 ? want : (double)(float)want, room);
    }
}

/* One more case than shapes and kinds: SiLU of every BF16 number. */
static void make_act_mul(Case *c) {
    ARGS(ActMul);
    bool every = c->index == SHAPES * MUL_KINDS * 2;
    Shape s = every ? (Shape){2, {256, 256}, 256, 256} : shape_of(c, c->index % SHAPES);
    int kind = every ? ACT_SILU : c->index / SHAPES % MUL_KINDS;
    DType t = c->index / SHAPES / MUL_KINDS ? BF16 : F32;
    check_label(c, "%s %s, %lld rows of %lld", KIND[kind], dtype_name(t), (long long)s.rows,
                (long long)s.cols);
    Buf *x = check_in(c, "a", &a->a, t, every ? LAYOUT_DENSE : check_layout(c), s.rank, s.extent);
    Buf *b = check_in(c, "b", &a->b, t, every ? LAYOUT_DENSE : check_layout(c), s.rank, s.extent);
    Buf *y = every ? check_out(c, "y", &a->y, t, LAYOUT_DENSE, s.rank, s.extent) : output(c, x, &a->y, &s);
    a->kind = kind;
    fill(c, x, 3);
    fill(c, b, 1);
    for (int64_t i = 0; every && i < x->n; i++) {
        uint32_t bits = (uint32_t)i << 16;
        memcpy(&x->v[i], &bits, 4);
    }
    for (int64_t i = 0; i < y->n; i++) {
        double f = (double)b->v[i], room = 0;
        if (t == BF16) {
            check_exact(y, i, check_r(act_bf16(kind, (double)x->v[i]) * f, BF16));
        } else {
            double g = act_f32(kind, (double)x->v[i], &room), want = (double)(float)(g * f);
            if (isinf(f) && fabs(g) <= room) { /* 0 or tiny in f32: NaN or infinite */
                if (!y->skipped) y->skipped = check_alloc(c, (size_t)y->n);
                y->skipped[i] = 1;
            }
            room = room * fabs(f) * 1.001 + (room > 0 ? CHECK_U * fabs(want) + 0x1p-149 : 0);
            if (isinf(want) || isnan(room)) room = 0;
            check_within(y, i, want, room);
        }
    }
}

/* --- sums --- */

static void make_add(Case *c) {
    ARGS(Add);
    Shape s = shape_of(c, c->index % SHAPES);
    int form = c->index / SHAPES % 3; /* same shape, a row [D], a row [1, D] */
    DType t = c->index / SHAPES / 3 ? BF16 : F32;
    check_label(c, "%s, %lld rows of %lld, b %s", dtype_name(t), (long long)s.rows, (long long)s.cols,
                form ? "one row" : "full");
    Buf *x = check_in(c, "a", &a->a, t, check_layout(c), s.rank, s.extent);
    Buf *b = form == 0                  ? check_in(c, "b", &a->b, t, check_layout(c), s.rank, s.extent)
             : form == 1 || s.rank == 1 ? check_in(c, "b", &a->b, t, LAYOUT_DENSE, SHAPE(s.cols))
                                        : check_in(c, "b", &a->b, t, LAYOUT_PADDED, SHAPE(1, s.cols));
    Buf *y = output(c, x, &a->y, &s);
    fill(c, x, 2);
    fill(c, b, 2);
    for (int64_t i = 0; i < y->n; i++)
        check_exact(y, i, check_r((double)x->v[i] + (double)b->v[form ? i % s.cols : i], t));
}

/* Transposed residuals whose accesses are all whole: tiles cut off on both sides, none, several batches. */
static const int64_t tiled[][5] = {{2, 328, 1096}, {3, 2, 72, 136}, {2, 256, 512}, {3, 3, 136, 24}, {2, 1000, 8}};
enum { TILED = sizeof tiled / sizeof *tiled, GATE_CASES = SHAPES * 10 };

static void make_residual_gate(Case *c) {
    static const char *const NAMES[] = {"no gate", "gate row", "gate row of a slice", "gate per token",
                                        "gate full"};
    ARGS(ResidualGate);
    int extra = c->index - GATE_CASES;
    Shape s = shape_in(c, extra < 0 ? shapes[c->index % SHAPES] : tiled[extra / 2]);
    int form = extra < 0 ? c->index / SHAPES % 5 : extra % 2;
    DType t = extra >= 0 || c->index / SHAPES / 5 ? BF16 : F32;
    bool transposed = extra >= 0 || (s.rank > 1 && check_below(c, 3) == 0);
    c->tidy = c->tidy || extra >= 0;
    check_label(c, "%s, %lld rows of %lld, %s%s", dtype_name(t), (long long)s.rows, (long long)s.cols,
                NAMES[form], transposed ? ", residual transposed" : "");
    Buf *r = check_in(c, "residual", &a->residual, t, transposed ? LAYOUT_TURNED : check_layout(c),
                      s.rank, s.extent);
    Layout of_x = extra < 0 ? check_layout(c) : check_below(c, 2) ? LAYOUT_DENSE : LAYOUT_PADDED;
    Buf *x = check_in(c, "x", &a->x, t, of_x, s.rank, s.extent), *g = NULL;
    int64_t per_token[TENSOR_MAX_RANK];
    memcpy(per_token, s.extent, sizeof per_token);
    per_token[s.rank - 1] = 1;
    if (form == 1 || (form == 2 && s.rank == 1))
        g = check_in(c, "gate", &a->gate, t, LAYOUT_DENSE, SHAPE(s.cols));
    else if (form == 2)
        g = check_in(c, "gate", &a->gate, t, LAYOUT_PADDED, SHAPE(1, s.cols));
    else if (form == 3)
        g = check_in(c, "gate", &a->gate, t, LAYOUT_PADDED, s.rank, per_token);
    else if (form == 4)
        g = check_in(c, "gate", &a->gate, t, check_layout(c), s.rank, s.extent);
    Buf *y = r;
    if (check_below(c, 2))
        check_in_place(c, r, &a->y);
    else
        y = check_out(c, "y", &a->y, t, transposed ? LAYOUT_TURNED : check_layout(c), s.rank, s.extent);
    fill(c, r, 2);
    fill(c, x, 2);
    if (g) fill(c, g, 1);
    for (int64_t i = 0; i < y->n; i++) {
        double v = (double)x->v[i];
        int64_t at = form == 3 ? i / s.cols : form == 4 ? i : i % s.cols;
        if (g) v = check_r((double)g->v[at] * v, t);
        check_exact(y, i, check_r((double)r->v[i] + v, t));
    }
}

static void make_modulate(Case *c) {
    static const char *const FORMS[] = {"rows", "rows of a slice", "per token", "per step of the first dimension", "no shift"};
    ARGS(Modulate);
    Shape s = shape_of(c, c->index % SHAPES);
    int form = c->index / SHAPES % 5, rank = 1;
    DType t = c->index / SHAPES / 5 ? BF16 : F32;
    if (s.rank == 1) form = form == 4 ? 4 : 0;
    check_label(c, "%s, %lld rows of %lld, scale and shift: %s", dtype_name(t), (long long)s.rows, (long long)s.cols,
                FORMS[form]);
    int64_t extent[TENSOR_MAX_RANK] = {s.cols};
    if (form == 1) extent[0] = 1, extent[1] = s.cols, rank = 2;
    if (form == 2 || form == 3) memcpy(extent, s.extent, sizeof extent), rank = s.rank;
    for (int d = 1; form == 3 && d < rank - 1; d++) extent[d] = 1;
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent);
    Buf *m = check_in(c, "scale", &a->scale, t, form ? LAYOUT_PADDED : LAYOUT_DENSE, rank, extent), *f = NULL;
    if (form != 4) f = check_in(c, "shift", &a->shift, t, form ? LAYOUT_PADDED : LAYOUT_DENSE, rank, extent);
    Buf *y = output(c, x, &a->y, &s);
    fill(c, x, 2);
    fill(c, m, 0.5);
    if (f) fill(c, f, 0.5);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t step = y->n / s.extent[0];
        int64_t at = form == 2 ? i : form == 3 ? i / step * s.cols + i % s.cols : i % s.cols;
        double v = check_r((double)x->v[i] * check_r(1 + (double)m->v[at], t), t);
        check_exact(y, i, f ? check_r(v + (double)f->v[at], t) : v);
    }
}

/* --- the sampler --- */

static void make_cfg_combine(Case *c) {
    ARGS(CfgCombine);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = c->index / SHAPES ? BF16 : F32;
    check_label(c, "%s, %lld rows of %lld", dtype_name(t), (long long)s.rows, (long long)s.cols);
    Buf *p = check_in(c, "pos", &a->pos, t, check_layout(c), s.rank, s.extent);
    Buf *q = check_in(c, "neg", &a->neg, t, check_layout(c), s.rank, s.extent);
    Buf *k = check_in(c, "scale", &a->scale, F32, LAYOUT_DENSE, SHAPE(1)), *y = output(c, p, &a->y, &s);
    fill(c, p, 2);
    fill(c, q, 2);
    k->v[0] = (float)(1.5 + 0.7 * (double)check_below(c, 8));
    for (int64_t i = 0; i < y->n; i++) {
        double d = check_r((double)p->v[i] - (double)q->v[i], t), m = check_r((double)k->v[0] * d, t);
        check_exact(y, i, check_r((double)q->v[i] + m, t));
    }
}

static void make_cfg_extrapolate(Case *c) {
    ARGS(CfgCombine);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = c->index / SHAPES ? BF16 : F32;
    check_label(c, "%s, %lld rows of %lld", dtype_name(t), (long long)s.rows, (long long)s.cols);
    Buf *p = check_in(c, "pos", &a->pos, t, check_layout(c), s.rank, s.extent);
    Buf *q = check_in(c, "neg", &a->neg, t, check_layout(c), s.rank, s.extent);
    Buf *k = check_in(c, "scale", &a->scale, F32, LAYOUT_DENSE, SHAPE(1)), *y = output(c, p, &a->y, &s);
    fill(c, p, 2);
    fill(c, q, 2);
    k->v[0] = (float)(0.5 + 0.7 * (double)check_below(c, 8));
    for (int64_t i = 0; i < y->n; i++) {
        double d = check_r((double)p->v[i] - (double)q->v[i], t), m = check_r((double)k->v[0] * d, t);
        check_exact(y, i, check_r((double)p->v[i] + m, t));
    }
}

/* Limits well on either side of the norm: where the comparison itself is a matter of rounding, nothing is promised. The
 * factor is a quotient of two sums of squares, each as good as a plain f32 sum of its length. */
static void make_norm_limit(Case *c) {
    ARGS(NormLimit);
    Shape s = shape_of(c, c->index % SHAPES);
    bool shrinks = c->index / SHAPES;
    check_label(c, "%lld rows of %lld, %s", (long long)s.rows, (long long)s.cols, shrinks ? "above the limit" : "below");
    Buf *x = check_in(c, "x", &a->x, F32, check_layout(c), s.rank, s.extent);
    Buf *like = check_in(c, "like", &a->like, F32, check_layout(c), s.rank, s.extent), *y = output(c, x, &a->y, &s);
    check_fill(c, x, 0.1, 2);
    check_fill(c, like, -0.2, 1);
    double have = 0, most = 0;
    float plain[2] = {0};
    for (int64_t i = 0; i < x->n; i++) {
        have += (double)x->v[i] * (double)x->v[i], most += (double)like->v[i] * (double)like->v[i];
        plain[0] += x->v[i] * x->v[i], plain[1] += like->v[i] * like->v[i];
    }
    double lost = fabs((double)plain[0] - have) / have + fabs((double)plain[1] - most) / most;
    a->limit = (float)((shrinks ? 0.7 : 1.3) * sqrt(have / most));
    double factor = shrinks ? (double)a->limit * sqrt(most) / sqrt(have) : 1;
    for (int64_t i = 0; i < y->n; i++) {
        double want = (double)x->v[i] * factor;
        if (shrinks) check_within(y, i, want, fabs(want) * (2 * lost + 8 * CHECK_U));
        else check_exact(y, i, want);
    }
}

static void make_negate(Case *c) {
    ARGS(Negate);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = c->index / SHAPES ? BF16 : F32;
    check_label(c, "%s, %lld rows of %lld", dtype_name(t), (long long)s.rows, (long long)s.cols);
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent), *y = output(c, x, &a->y, &s);
    fill(c, x, 2);
    for (int64_t i = 0; i < y->n; i++) check_exact(y, i, -(double)x->v[i]);
}

static void make_euler_step(Case *c) {
    ARGS(EulerStep);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = c->index / SHAPES ? BF16 : F32;
    check_label(c, "%s, %lld rows of %lld", dtype_name(t), (long long)s.rows, (long long)s.cols);
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent);
    Buf *v = check_in(c, "v", &a->v, t, check_layout(c), s.rank, s.extent);
    Buf *dt = check_in(c, "dt", &a->dt, F32, LAYOUT_DENSE, SHAPE(1)), *y = output(c, x, &a->y, &s);
    fill(c, x, 2);
    fill(c, v, 2);
    dt->v[0] = -(float)(0.0137 + 0.01 * (double)check_below(c, 7));
    double step = check_round((double)dt->v[0], t);
    for (int64_t i = 0; i < y->n; i++)
        check_exact(y, i, check_r((double)x->v[i] + check_r(step * (double)v->v[i], t), t));
}

/* In one case of two the history takes the new data prediction; a step of first order must not read it. */
static void make_dpm_step(Case *c) {
    ARGS(DpmStep);
    Shape s = shape_of(c, c->index % SHAPES);
    bool second = c->index / SHAPES % 2;
    check_label(c, "order %d, %lld rows of %lld", second ? 2 : 1, (long long)s.rows, (long long)s.cols);
    Buf *x = check_in(c, "x", &a->x, F32, check_layout(c), s.rank, s.extent);
    Buf *v = check_in(c, "v", &a->v, F32, check_layout(c), s.rank, s.extent);
    Buf *last = check_in(c, "last", &a->last, F32, check_layout(c), s.rank, s.extent);
    Buf *k = check_in(c, "k", &a->k, F32, LAYOUT_DENSE, SHAPE(DPM_COEFFICIENTS)), *y = output(c, x, &a->y, &s), *m = last;
    if (check_below(c, 2)) check_in_place(c, last, &a->m), check_label(c, ", history in place");
    else m = check_out(c, "m", &a->m, F32, check_layout(c), s.rank, s.extent);
    fill(c, x, 2);
    fill(c, v, 2);
    fill(c, last, 2);
    for (int64_t i = 0; !second && i < last->n; i++) last->v[i] = NAN;
    double sigma = 0.05 + 0.01 * (double)check_below(c, 90), ratio = 0.7 + 0.01 * (double)check_below(c, 25);
    const float values[DPM_COEFFICIENTS] = {(float)sigma, (float)ratio, (float)(ratio - 1), (float)(0.5 * (ratio - 1)), 0.83f};
    for (int i = 0; i < DPM_COEFFICIENTS; i++) k->v[i] = i < DPM_HALF || second ? values[i] : 0;
    for (int64_t i = 0; i < y->n; i++) {
        double f[DPM_COEFFICIENTS], at = (double)x->v[i], before = (double)last->v[i];
        for (int j = 0; j < DPM_COEFFICIENTS; j++) f[j] = (double)k->v[j];
        double data = check_r(at - check_r(f[DPM_SIGMA] * (double)v->v[i], F32), F32);
        double next = check_r(check_r(f[DPM_SAMPLE] * at, F32) - check_r(f[DPM_DATA] * data, F32), F32);
        double slope = check_r(f[DPM_RATIO] * check_r(data - before, F32), F32);
        if (second) next = check_r(next - check_r(f[DPM_HALF] * slope, F32), F32);
        check_exact(y, i, next);
        check_exact(m, i, data);
    }
}

/* The frequency is an f32 exp of an f32 exponent: libraries may be two ulps off, and the angle follows it. */
static void make_time_embed(Case *c) {
    static const float times[] = {0.0f, 1.0f, 17.25f, 752.0f, 1000.0f, 3504.0f};
    static const int64_t widths[] = {2, 256, 320, 2050};
    ARGS(TimeEmbed);
    DType t = c->index / 24 ? BF16 : F32;
    int64_t width = check_dim(c, widths[c->index / 6 % 4], 64), half = width / 2;
    Buf *when = check_in(c, "t", &a->t, F32, LAYOUT_DENSE, SHAPE(1));
    Buf *y = check_out(c, "y", &a->y, t, check_layout(c), SHAPE(1, width));
    double time = (double)(when->v[0] = times[c->index % 6]);
    a->max_period = 10000.0f;
    check_label(c, "%s, width %lld, t %g", dtype_name(t), (long long)width, time);
    for (int64_t i = 0; i < half; i++) {
        double e = check_r(check_r((double)(float)-log(10000.0) * (double)i, F32) * (double)(1.0f / (float)half), F32),
               cosine[3], sine[3];
        float f = (float)exp(e),
              near[3] = {f, nextafterf(nextafterf(f, 0), 0), nextafterf(nextafterf(f, 2), 2)};
        double room_c = 0, room_s = 0;
        for (int k = 0; k < 3; k++) {
            double angle = check_r(time * (double)near[k], F32);
            cosine[k] = cos(angle);
            sine[k] = sin(angle);
            room_c = fmax(room_c, fabs(cosine[k] - cosine[0]));
            room_s = fmax(room_s, fabs(sine[k] - sine[0]));
        }
        room_c += 4 * CHECK_U * fabs(cosine[0]);
        room_s += 4 * CHECK_U * fabs(sine[0]);
        check_between(y, i, check_r(cosine[0], t), check_r(cosine[0] - room_c, t),
                      check_r(cosine[0] + room_c, t));
        check_between(y, half + i, check_r(sine[0], t), check_r(sine[0] - room_s, t),
                      check_r(sine[0] + room_s, t));
    }
}

/* --- around the VAE --- */

static void make_affine(Case *c) {
    ARGS(Affine);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = c->index / SHAPES ? BF16 : F32;
    check_label(c, "%s, %lld rows of %lld", dtype_name(t), (long long)s.rows, (long long)s.cols);
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent), *y = output(c, x, &a->y, &s);
    a->mul = (float)(1 / 0.3611);
    a->add = 0.1159f;
    fill(c, x, 2);
    for (int64_t i = 0; i < y->n; i++)
        check_exact(y, i, check_r(check_r((double)x->v[i] * (double)a->mul, t) + (double)a->add, t));
}

/* BF16 exact. F32: exp alone is the library's, two ulps off at most; the operations behind it carry that on. */
static void make_kl_sample(Case *c) {
    ARGS(KlSample);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = c->index / SHAPES ? BF16 : F32;
    check_label(c, "%s, %lld rows of %lld", dtype_name(t), (long long)s.rows, (long long)s.cols);
    Buf *m = check_in(c, "mean", &a->mean, t, check_layout(c), s.rank, s.extent);
    Buf *l = check_in(c, "logvar", &a->logvar, t, check_layout(c), s.rank, s.extent);
    Buf *n = check_in(c, "noise", &a->noise, t, check_layout(c), s.rank, s.extent), *y = output(c, m, &a->y, &s);
    a->shift = 0.1159f, a->scale = 0.3611f;
    fill(c, m, 2);
    fill(c, l, 8); /* reaches both ends of the clamp */
    fill(c, n, 1);
    for (int64_t i = 0; i < y->n; i++) {
        double v = (double)l->v[i], half = check_r(0.5 * (v < -30 ? -30 : v > 20 ? 20 : v), t);
        double dev = t == BF16 ? check_unary(UNARY_EXP, half) : check_r(exp(half), F32);
        double drawn = check_r((double)m->v[i] + check_r(dev * (double)n->v[i], t), t);
        double shifted = check_r(drawn - (double)a->shift, t), want = check_r(shifted * (double)a->scale, t);
        double product = fabs(dev * (double)n->v[i]), most = product + fabs((double)m->v[i]) + (double)a->shift;
        bool finite = isfinite(want) && isfinite(product);
        if (t == BF16 || !finite) check_exact(y, i, want);
        else check_within(y, i, want, (double)a->scale * (5 * CHECK_U * product + 4 * CHECK_U * most) + 0x1p-149);
    }
}

static void make_scale_noise(Case *c) {
    static const float sigmas[] = {1.0f, 0.6f, 0.9370192f, 0.0357143f};
    ARGS(ScaleNoise);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = c->index / SHAPES ? BF16 : F32;
    a->sigma = sigmas[c->index % 4];
    check_label(c, "%s, %lld rows of %lld, sigma %g", dtype_name(t), (long long)s.rows, (long long)s.cols, (double)a->sigma);
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent);
    Buf *n = check_in(c, "noise", &a->noise, t, check_layout(c), s.rank, s.extent), *y = output(c, x, &a->y, &s);
    fill(c, x, 2);
    fill(c, n, 1);
    double k = check_r((double)a->sigma, t), rest = check_r(1 - k, t);
    for (int64_t i = 0; i < y->n; i++)
        check_exact(y, i, check_r(check_r(k * (double)n->v[i], t) + check_r(rest * (double)x->v[i], t), t));
}

static void make_to_rgb8(Case *c) {
    static const int64_t sizes[][2] = {{1, 1}, {5, 7}, {128, 96}, {17, 257}};
    ARGS(ToRgb8);
    const int64_t *s = sizes[c->index % 4];
    DType t = c->index / 4 % 2 ? BF16 : F32;
    int64_t h = check_dim(c, s[0], 9), w = check_dim(c, s[1], 9);
    bool turned = c->index / 16; /* channels that are not the fastest */
    Buf *x = check_in(c, "x", &a->x, t, turned ? LAYOUT_TRANSPOSED : check_layout(c), SHAPE(h, w, 3));
    Buf *y = check_out(c, "y", &a->y, U8, check_layout(c), SHAPE(h, w, 3));
    check_label(c, "%s, %lldx%lld", dtype_name(t), (long long)h, (long long)w);
    check_fill(c, x, 0, 0.6);
    /* F32: half of the values aim at ties, whose product with 255 is a whole number and a half */
    for (int64_t i = 0; t == F32 && i < x->n; i += 2)
        x->v[i] = (float)(2 * ((double)check_below(c, 255) + 0.5) / 255 - 1);
    if (c->index / 8 % 2) check_spoil(c, x);
    for (int64_t i = 0; i < y->n; i++) {
        double v = check_r(check_r(0.5 * (double)x->v[i], t) + 0.5, t);
        v = isnan(v) || v < 0 ? 0 : v > 1 ? 1 : v;
        check_exact(y, i, nearbyint(check_r(255 * v, F32)));
    }
}

static void make_count_nonfinite(Case *c) {
    ARGS(CountNonfinite);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = c->index / SHAPES % 2 ? BF16 : F32;
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent);
    Buf *y = check_out(c, "y", &a->y, I32, LAYOUT_DENSE, SHAPE(1));
    check_label(c, "%s, %lld rows of %lld", dtype_name(t), (long long)s.rows, (long long)s.cols);
    check_fill(c, x, 0, 2);
    if (c->index / SHAPES / 2) check_spoil(c, x);
    int64_t found = 0;
    for (int64_t i = 0; i < x->n; i++) found += !isfinite(x->v[i]);
    check_exact(y, 0, (double)found);
}

const CaseSet CHECK_ELEMENTWISE[] = {
    {OP_act, ACT_CASES + EVERY_CASES, make_act},
    {OP_act_mul, SHAPES *MUL_KINDS * 2 + 1, make_act_mul},
    {OP_add, SHAPES * 6, make_add},
    {OP_residual_gate, GATE_CASES + 2 * TILED, make_residual_gate},
    {OP_modulate, SHAPES * 10, make_modulate},
    {OP_time_embed, 48, make_time_embed},
    {OP_cfg_combine, SHAPES * 2, make_cfg_combine},
    {OP_cfg_extrapolate, SHAPES * 2, make_cfg_extrapolate},
    {OP_norm_limit, SHAPES * 2, make_norm_limit},
    {OP_negate, SHAPES * 2, make_negate},
    {OP_euler_step, SHAPES * 2, make_euler_step},
    {OP_dpm_step, SHAPES * 4, make_dpm_step},
    {OP_affine, SHAPES * 2, make_affine},
    {OP_kl_sample, SHAPES * 2, make_kl_sample},
    {OP_scale_noise, SHAPES * 2, make_scale_noise},
    {OP_to_rgb8, 24, make_to_rgb8},
    {OP_count_nonfinite, SHAPES * 4, make_count_nonfinite},
};
const int CHECK_ELEMENTWISE_COUNT = sizeof CHECK_ELEMENTWISE / sizeof *CHECK_ELEMENTWISE;
