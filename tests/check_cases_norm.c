/* check_cases_norm.c - cases of layernorm, ln_modulate, rmsnorm, its composites, qk_norm_rope_head and norm_relu_rope.
 *
 * Statistics come from a double; f32 statistics may be off by what a plain f32 loop loses (measured per row, doubled,
 * plus four roundings), so the normalised value lies in an interval. All later steps are monotone in it, hence the
 * result must lie between the chains of both ends: mostly one value, at a rounding boundary two. How many elements may
 * take the other one is limited to a share of 1e-3 for ordinary rows, as the contract says; rows with a large mean
 * lose more digits in f32 and only have the interval. */
#include "check.h"

#include <math.h>
#include <stdio.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

enum { SHAPES = 16, TALL = 15 };
static const int64_t shapes[SHAPES][5] = {
    /* rank, extents */
    {1, 1},        {1, 64},     {2, 3, 13},   {2, 40, 128},   {2, 77, 768},    {2, 21, 3072}, {2, 20, 4096},
    {2, 33, 2240}, {2, 50, 96}, {2, 2, 1025}, {3, 5, 11, 96}, {4, 2, 3, 4, 7}, {2, 150, 257}, {2, 576, 128},
    {2, 65, 3840}, {2, 2500, 512}, /* TALL: more rows than a GPU has places for: blocks take four */
};

/* Many rows of few widths: on a GPU so many that a warp takes several, or more than 16 bits count. Only the bits of the reference
 * and of a twin judge them. */
enum { MANY = 4 };
static const int64_t many[MANY][2] = {{4128, 3840}, {2200, 4096}, {65700, 128}, {3300, 1032}};

static const char *const FILLS[] = {"normal", "large mean", "constant", "denormal", "huge", "spoilt"};
enum { FILL_KINDS = 6 };

typedef struct Shape {
    int rank;
    int64_t extent[TENSOR_MAX_RANK], rows, cols;
} Shape;

static Shape shape_of(const Case *c, int i) {
    Shape s = {.rank = (int)shapes[i][0], .rows = 1};
    for (int d = 0; d < s.rank; d++) {
        s.extent[d] = check_dim(c, shapes[i][1 + d], d == s.rank - 1 ? 140 : 6);
        if (i == TALL && d == 0 && c->index / SHAPES % 2 == 0) s.extent[d] = 830; /* F32 */
        if (i == TALL && d == 0 && c->index / SHAPES / 2 % FILL_KINDS) s.extent[d] = 5; /* ordinary rows are enough */
        if (d < s.rank - 1)
            s.rows *= s.extent[d];
        else
            s.cols = s.extent[d];
    }
    return s;
}

/* BF16, ordinary rows, all of which a GPU's wide kernels take. */
static Shape many_of(Case *c, int i) {
    Shape s = {.rank = 2, .rows = c->gpu && !c->small ? many[i][0] : 20, .cols = many[i][1]};
    s.extent[0] = s.rows, s.extent[1] = s.cols;
    c->tidy = true;
    return s;
}

static void fill_rows(Case *c, Buf *x, int kind) {
    static const double mean[] = {0.3, 300, 2, 0, 0, 0}, deviation[] = {1.5, 2, 0, 0x1p-128, 0x1p60, 2};
    check_fill(c, x, mean[kind], deviation[kind]);
    if (kind == 5) check_spoil(c, x);
}

/* The normalised row: value, and how far f32 arithmetic may be from it. False for finite rows whose squares overflow
 * an f32: the contract promises f32 statistics, so nothing is promised there. */
static bool normalise(const float *x, int64_t d, float eps, bool centred, double *n, double *room) {
    double mean = 0, square = 0;
    if (centred) {
        for (int64_t i = 0; i < d; i++) mean += (double)x[i];
        mean /= (double)d;
    }
    for (int64_t i = 0; i < d; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean);
    double r = 1 / sqrt(square / (double)d + (double)eps);
    float naive_mean = 0, naive_square = 0;
    if (centred) {
        for (int64_t i = 0; i < d; i++) naive_mean += x[i];
        naive_mean /= (float)d;
    }
    for (int64_t i = 0; i < d; i++) naive_square += (x[i] - naive_mean) * (x[i] - naive_mean);
    float naive_r = 1 / sqrtf(naive_square / (float)d + eps);
    double worst = 0;
    for (int64_t i = 0; i < d; i++) {
        n[i] = ((double)x[i] - mean) * r;
        room[i] = (fabs((double)x[i]) + fabs(mean)) * r;
        double e = fabs((double)((x[i] - naive_mean) * naive_r) - n[i]) / room[i];
        if (isfinite(e) && e > worst) worst = e;
    }
    /* A Welford mean (CUDA's order: up to ceil(d/128) pushes of four and seven merges) rounds that often, each time by
     * at most half an ulp of the largest value, or half the smallest denormal. */
    double steps = 7 + 4 * ceil((double)d / 512), largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < d; i++) {
        finite = finite && isfinite(x[i]);
        if (isfinite(x[i]) && fabs((double)x[i]) > largest) largest = fabs((double)x[i]);
    }
    double drift = steps * (0x1p-149 + (centred ? CHECK_U * largest : 0)) * r;
    for (int64_t i = 0; i < d; i++) room[i] = room[i] * (2 * worst + (4 + steps) * CHECK_U) + drift;
    /* merges square differences of means, of single elements too: beyond 2^63 those overflow */
    return !finite || (isfinite(naive_square) && largest < 0x1p63);
}

static void skip_row(Case *c, Buf *y, int64_t row, int64_t d) {
    if (!y->skipped) y->skipped = check_alloc(c, (size_t)y->n);
    memset(y->skipped + row * d, 1, (size_t)d);
}

/* BF16: the value moved by `by` rooms, rounded as r(n). F32: not rounded again, the roundings count as room. */
static double moved(double n, double room, int by, DType t) { return check_r(by ? n + by * room : n, t); }

/* An F32 chain after n: `operations` roundings of terms no larger than `size`. */
static void widen(Buf *y, int64_t i, int operations, double size) {
    if (y->view.dtype != F32 || !isfinite(y->want[i])) return;
    y->lo[i] -= operations * CHECK_U * size;
    y->hi[i] += operations * CHECK_U * size;
}

static Buf *output(Case *c, Buf *x, Tensor *slot, const Shape *s) {
    if (check_below(c, 3) == 0) {
        check_in_place(c, x, slot);
        check_label(c, ", in place");
        return x;
    }
    return check_out(c, "y", slot, x->view.dtype, check_layout(c), s->rank, s->extent);
}

static void limit(Buf *y, DType t, int kind) {
    if (t == BF16 && (kind == 0 || kind == 2)) y->near_limit = 1e-3;
}

/* case -> shape, dtype, fill: the first round is all ordinary rows */
static int fill_of(const Case *c) { return c->index / SHAPES / 2 % FILL_KINDS; }
static DType dtype_of(const Case *c) { return c->index / SHAPES % 2 ? BF16 : F32; }
enum { BASE_CASES = SHAPES * 2 * FILL_KINDS, SCALE_CASES = BASE_CASES * 3 + MANY }; /* those of many rows are the last */

static void make_layernorm(Case *c) {
    ARGS(LayerNorm);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = dtype_of(c);
    int kind = fill_of(c);
    check_label(c, "%s, %lld rows of %lld, %s", dtype_name(t), (long long)s.rows, (long long)s.cols,
                FILLS[kind]);
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent);
    Buf *w = check_in(c, "w", &a->w, t, LAYOUT_DENSE, SHAPE(s.cols));
    Buf *b = check_in(c, "b", &a->b, t, LAYOUT_DENSE, SHAPE(s.cols)), *y = output(c, x, &a->y, &s);
    a->eps = 1e-5f;
    fill_rows(c, x, kind);
    check_fill(c, w, 1, 0.3);
    check_fill(c, b, 0, 0.2);
    limit(y, t, kind);
    double *n = check_alloc(c, (size_t)s.cols * 8), *room = check_alloc(c, (size_t)s.cols * 8);
    for (int64_t row = 0; row < s.rows; row++) {
        if (!normalise(x->v + row * s.cols, s.cols, a->eps, true, n, room)) skip_row(c, y, row, s.cols);
        for (int64_t j = 0; j < s.cols; j++) {
            double f = (double)w->v[j], g = (double)b->v[j], at[3];
            for (int k = 0; k < 3; k++) at[k] = check_r(f * moved(n[j], room[j], k - 1, F32) + g, t);
            check_between(y, row * s.cols + j, at[1], at[0], at[2]);
            widen(y, row * s.cols + j, 2, fabs(f * n[j]) + fabs(g));
        }
    }
}

static void make_ln_modulate(Case *c) {
    static const char *const FORMS[] = {"rows", "rows of a slice", "per token", "no shift"};
    ARGS(LnModulate);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = dtype_of(c);
    int kind = fill_of(c), form = c->index / BASE_CASES;
    if (s.rank == 1 && form == 1) form = 0;
    check_label(c, "%s, %lld rows of %lld, %s, scale and shift: %s", dtype_name(t), (long long)s.rows,
                (long long)s.cols, FILLS[kind], FORMS[form]);
    int64_t one[] = {1, s.cols};
    int rank = form == 1 ? 2 : form == 2 ? s.rank : 1;
    const int64_t *extent = form == 1 ? one : form == 2 ? s.extent : one + 1;
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent);
    Buf *m = check_in(c, "scale", &a->scale, t, form ? LAYOUT_PADDED : LAYOUT_DENSE, rank, extent);
    Buf *f = form == 3
                 ? NULL
                 : check_in(c, "shift", &a->shift, t, form ? LAYOUT_PADDED : LAYOUT_DENSE, rank, extent);
    Buf *y = output(c, x, &a->y, &s);
    a->eps = 1e-6f;
    fill_rows(c, x, kind);
    check_fill(c, m, 0, 0.5);
    if (f) check_fill(c, f, 0, 0.5);
    limit(y, t, kind);
    double *n = check_alloc(c, (size_t)s.cols * 8), *room = check_alloc(c, (size_t)s.cols * 8);
    for (int64_t row = 0; row < s.rows; row++) {
        if (!normalise(x->v + row * s.cols, s.cols, a->eps, true, n, room)) skip_row(c, y, row, s.cols);
        for (int64_t j = 0; j < s.cols; j++) {
            int64_t i = row * s.cols + j, at_row = form == 2 ? i : j;
            double scale = check_r(1 + (double)m->v[at_row], t), shift = f ? (double)f->v[at_row] : 0, at[3];
            for (int k = 0; k < 3; k++) {
                at[k] = check_r(moved(n[j], room[j], k - 1, t) * scale, t);
                if (f) at[k] = check_r(at[k] + shift, t);
            }
            check_between(y, i, at[1], at[0], at[2]);
            widen(y, i, 3, fabs(n[j] * scale) + fabs(shift));
        }
    }
}

/* The two ops apart, on the same buffers. */
static Status gate_then_norm(Exec *x, const void *args) {
    const ResidualGateLnModulate *a = args;
    TRY(op_residual_gate(x, &(ResidualGate){a->h, a->residual, a->x, a->gate}));
    return op_ln_modulate(x, &(LnModulate){a->y, a->h, a->scale, a->shift, a->eps});
}

static void make_residual_gate_ln_modulate(Case *c) {
    static const char *const FORMS[] = {"gate row", "gate row of a slice", "no gate, no shift", "all per token"};
    ARGS(ResidualGateLnModulate);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = dtype_of(c);
    int kind = fill_of(c), form = c->index / BASE_CASES;
    if (s.rank == 1 && form == 1) form = 0;
    check_label(c, "%s, %lld rows of %lld, %s, %s", dtype_name(t), (long long)s.rows, (long long)s.cols, FILLS[kind],
                FORMS[form]);
    int64_t one[] = {1, s.cols};
    int rank = form == 1 ? 2 : form == 3 ? s.rank : 1;
    const int64_t *extent = form == 1 ? one : form == 3 ? s.extent : one + 1;
    Layout layout = form ? LAYOUT_PADDED : LAYOUT_DENSE;
    Buf *r = check_in(c, "residual", &a->residual, t, check_layout(c), s.rank, s.extent), *h = r;
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent), *y = x, *g = NULL, *f = NULL;
    Buf *m = check_in(c, "scale", &a->scale, t, layout, rank, extent);
    if (form != 2) f = check_in(c, "shift", &a->shift, t, layout, rank, extent);
    if (form != 2) g = check_in(c, "gate", &a->gate, t, layout, rank, extent);
    if (check_below(c, 2)) {
        check_in_place(c, r, &a->h);
        check_label(c, ", h in place");
    } else {
        h = check_out(c, "h", &a->h, t, check_layout(c), s.rank, s.extent);
    }
    if (check_below(c, 2)) {
        check_in_place(c, x, &a->y);
        check_label(c, ", y in place");
    } else {
        y = check_out(c, "y", &a->y, t, check_layout(c), s.rank, s.extent);
    }
    a->eps = 1e-6f;
    c->twin = gate_then_norm;
    fill_rows(c, r, kind);
    if (kind == 3 || kind == 5) fill_rows(c, x, kind);
    else check_fill(c, x, 0, 1);
    check_fill(c, m, 0, 0.5);
    if (g) check_fill(c, g, 0, 1);
    if (f) check_fill(c, f, 0, 0.5);
    limit(y, t, kind);
    double *n = check_alloc(c, (size_t)s.cols * 8), *room = check_alloc(c, (size_t)s.cols * 8);
    float *sum = check_alloc(c, (size_t)s.cols * sizeof *sum);
    for (int64_t row = 0; row < s.rows; row++) {
        for (int64_t j = 0; j < s.cols; j++) {
            int64_t i = row * s.cols + j;
            double v = (double)x->v[i];
            if (g) v = check_r((double)g->v[form == 3 ? i : j] * v, t);
            sum[j] = (float)check_r((double)r->v[i] + v, t);
            check_exact(h, i, (double)sum[j]);
        }
        if (!normalise(sum, s.cols, a->eps, true, n, room)) skip_row(c, y, row, s.cols);
        for (int64_t j = 0; j < s.cols; j++) {
            int64_t i = row * s.cols + j, at_row = form == 3 ? i : j;
            double scale = check_r(1 + (double)m->v[at_row], t), shift = f ? (double)f->v[at_row] : 0, at[3];
            for (int k = 0; k < 3; k++) {
                at[k] = check_r(moved(n[j], room[j], k - 1, t) * scale, t);
                if (f) at[k] = check_r(at[k] + shift, t);
            }
            check_between(y, i, at[1], at[0], at[2]);
            widen(y, i, 3, fabs(n[j] * scale) + fabs(shift));
        }
    }
}

static void make_rmsnorm(Case *c) {
    static const char *const FORMS[] = {"once", "twice", "once, no weight", "plus one"};
    ARGS(RmsNorm);
    Shape s = shape_of(c, c->index % SHAPES);
    DType t = dtype_of(c);
    int kind = fill_of(c), form = c->index / BASE_CASES;
    check_label(c, "%s, %lld rows of %lld, %s, %s", dtype_name(t), (long long)s.rows, (long long)s.cols,
                FILLS[kind], FORMS[form]);
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent), *w = NULL;
    if (form != 2) w = check_in(c, "w", &a->w, t, LAYOUT_DENSE, SHAPE(s.cols));
    Buf *y = output(c, x, &a->y, &s);
    a->eps = 1e-6f;
    a->form = form == 1 ? RMS_TWICE : form == 3 ? RMS_PLUS_ONE : RMS_ONCE;
    fill_rows(c, x, kind);
    if (w) check_fill(c, w, form == 3 ? 0 : 1, 0.3);
    limit(y, t, kind);
    double *n = check_alloc(c, (size_t)s.cols * 8), *room = check_alloc(c, (size_t)s.cols * 8);
    for (int64_t row = 0; row < s.rows; row++) {
        if (!normalise(x->v + row * s.cols, s.cols, a->eps, false, n, room)) skip_row(c, y, row, s.cols);
        for (int64_t j = 0; j < s.cols; j++) {
            int64_t i = row * s.cols + j;
            double f = form == 3 ? check_r(1 + (double)w->v[j], F32) : w ? (double)w->v[j] : 1, at[3];
            for (int k = 0; k < 3; k++)
                at[k] = check_r(moved(n[j], room[j], k - 1, form == 1 ? t : F32) * f, t);
            check_between(y, i, at[1], at[0], at[2]);
            widen(y, i, 2, fabs(n[j] * f));
        }
    }
}

/* Of a row in n and room: r(r(n) * w) * r(1 + scale), rounded in between unless the case keeps f32. */
static void expect_scaled(const Case *c, Buf *y, int64_t row, int64_t cols, const double *n, const double *room, const Buf *w,
                          const Buf *m) {
    DType t = y->view.dtype, inner = c->keeps ? F32 : t;
    for (int64_t j = 0; j < cols; j++) {
        double f = (double)w->v[j], scale = m ? check_r(1 + (double)m->v[j], inner) : 1, at[3];
        for (int k = 0; k < 3; k++) {
            at[k] = check_r(moved(n[j], room[j], k - 1, inner) * f, inner);
            at[k] = check_r(at[k] * scale, t);
        }
        check_between(y, row * cols + j, at[1], at[0], at[2]);
        widen(y, row * cols + j, 3, fabs(n[j] * f * scale));
    }
}

static void make_rmsnorm_scale(Case *c) {
    static const char *const FORMS[] = {"a row", "a row of a slice", "none"};
    ARGS(RmsNormScale);
    bool tall = c->index >= BASE_CASES * 3;
    Shape s = tall ? many_of(c, c->index - BASE_CASES * 3) : shape_of(c, c->index % SHAPES);
    DType t = tall ? BF16 : dtype_of(c);
    int kind = tall ? 0 : fill_of(c), form = tall ? 0 : c->index / BASE_CASES;
    if (s.rank == 1 && form == 1) form = 0;
    check_label(c, "%s, %lld rows of %lld, %s, scale: %s", dtype_name(t), (long long)s.rows, (long long)s.cols,
                FILLS[kind], FORMS[form]);
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), s.rank, s.extent), *m = NULL;
    Buf *w = check_in(c, "w", &a->w, t, LAYOUT_DENSE, SHAPE(s.cols));
    if (form == 0) m = check_in(c, "scale", &a->scale, t, LAYOUT_DENSE, SHAPE(s.cols));
    if (form == 1) m = check_in(c, "scale", &a->scale, t, LAYOUT_PADDED, SHAPE(1, s.cols));
    Buf *y = output(c, x, &a->y, &s);
    a->eps = 1e-5f;
    fill_rows(c, x, kind);
    check_fill(c, w, 1, 0.3);
    if (m) check_fill(c, m, 0, 0.5);
    if (tall) {
        check_unjudged(c, y);
        return;
    }
    limit(y, t, kind);
    double *n = check_alloc(c, (size_t)s.cols * 8), *room = check_alloc(c, (size_t)s.cols * 8);
    for (int64_t row = 0; row < s.rows; row++) {
        if (!normalise(x->v + row * s.cols, s.cols, a->eps, false, n, room)) skip_row(c, y, row, s.cols);
        expect_scaled(c, y, row, s.cols, n, room, w, m);
    }
}

/* The buffers of residual_norm, whose args are the first of residual_norm_scale's too. */
typedef struct Gated {
    Shape s;
    DType t;
    int kind, form;
    bool tall;
    Buf *residual, *x, *w, *gate;
} Gated;

static Gated gated_inputs(Case *c, Tensor *residual, Tensor *x, Tensor *w, Tensor *gate) {
    static const char *const FORMS[] = {"a row", "a row of a slice", "none"};
    Gated g = {.tall = c->index >= BASE_CASES * 3, .t = BF16};
    if (g.tall) g.s = many_of(c, c->index - BASE_CASES * 3);
    else g.s = shape_of(c, c->index % SHAPES), g.t = dtype_of(c), g.kind = fill_of(c), g.form = c->index / BASE_CASES;
    const Shape *s = &g.s;
    if (s->rank == 1 && g.form == 1) g.form = 0;
    check_label(c, "%s, %lld rows of %lld, %s, gate: %s", dtype_name(g.t), (long long)s->rows, (long long)s->cols,
                FILLS[g.kind], FORMS[g.form]);
    g.residual = check_in(c, "residual", residual, g.t, check_layout(c), s->rank, s->extent);
    g.x = check_in(c, "x", x, g.t, check_layout(c), s->rank, s->extent);
    g.w = check_in(c, "w", w, g.t, LAYOUT_DENSE, SHAPE(s->cols));
    if (g.form == 0) g.gate = check_in(c, "gate", gate, g.t, LAYOUT_DENSE, SHAPE(s->cols));
    if (g.form == 1) g.gate = check_in(c, "gate", gate, g.t, LAYOUT_PADDED, SHAPE(1, s->cols));
    check_fill(c, g.residual, 0, 2);
    fill_rows(c, g.x, g.kind);
    check_fill(c, g.w, 1, 0.3);
    if (g.gate) check_fill(c, g.gate, 0, 1);
    return g;
}

static void expect_gated(Case *c, Buf *y, const Gated *g, float eps) {
    int64_t cols = g->s.cols;
    DType t = g->t, inner = c->keeps ? F32 : t;
    if (g->tall) {
        check_unjudged(c, y);
        return;
    }
    limit(y, t, g->kind);
    double *n = check_alloc(c, (size_t)cols * 8), *room = check_alloc(c, (size_t)cols * 8);
    for (int64_t row = 0; row < g->s.rows; row++) {
        if (!normalise(g->x->v + row * cols, cols, eps, false, n, room)) skip_row(c, y, row, cols);
        for (int64_t j = 0; j < cols; j++) {
            int64_t i = row * cols + j;
            double f = (double)g->w->v[j], gate = 1, at[3];
            if (g->gate)
                gate = inner == BF16 ? check_unary(UNARY_TANH, (double)g->gate->v[j]) : tanh((double)g->gate->v[j]);
            if (inner != t) room[j] += 4 * CHECK_U * fabs(n[j]); /* f32: tanh of a library is within two ulps */
            for (int k = 0; k < 3; k++) {
                at[k] = check_r(moved(n[j], room[j], k - 1, inner) * f, inner);
                if (g->gate) at[k] = check_r(at[k] * gate, inner);
                at[k] = check_r((double)g->residual->v[i] + at[k], t);
            }
            check_between(y, i, at[1], at[0], at[2]);
            widen(y, i, 6, fabs((double)g->residual->v[i]) + fabs(n[j] * f)); /* tanh as above */
        }
    }
}

static Buf *gated_output(Case *c, Buf *input, const char *name, Tensor *slot, const Gated *g) {
    if (!check_below(c, 2)) return check_out(c, name, slot, g->t, check_layout(c), g->s.rank, g->s.extent);
    check_in_place(c, input, slot);
    check_label(c, ", %s in place", name);
    return input;
}

static void make_residual_norm(Case *c) {
    ARGS(ResidualNorm);
    Gated g = gated_inputs(c, &a->residual, &a->x, &a->w, &a->gate);
    Buf *y = gated_output(c, g.residual, "y", &a->y, &g);
    a->eps = 1e-5f;
    expect_gated(c, y, &g, a->eps);
}

/* n of y's row, where y is an interval: each element may stand at either end, and the mean square with it. */
static void expect_next(Case *c, Buf *n_out, const Buf *y, const Buf *w, const Buf *m, int64_t cols, float eps) {
    float *at = check_alloc(c, (size_t)cols * sizeof *at);
    double *n = check_alloc(c, (size_t)cols * 8), *room = check_alloc(c, (size_t)cols * 8);
    for (int64_t row = 0; row < y->n / cols; row++) {
        const double *want = y->want + row * cols, *lo = y->lo + row * cols, *hi = y->hi + row * cols;
        double sum = 0, reach = 0;
        for (int64_t j = 0; j < cols; j++) {
            at[j] = (float)want[j];
            sum += want[j] * want[j];
            reach += (hi[j] - lo[j]) * (fabs(lo[j]) + fabs(hi[j]));
        }
        bool known = normalise(at, cols, eps, false, n, room) && !(y->skipped && y->skipped[row * cols]);
        if (!known) skip_row(c, n_out, row, cols);
        double r = 1 / sqrt(sum / (double)cols + (double)eps);
        for (int64_t j = 0; j < cols; j++) room[j] += fabs(n[j]) * (sum > 0 ? reach / sum : 0) + (hi[j] - lo[j]) * r;
        expect_scaled(c, n_out, row, cols, n, room, w, m);
    }
}

static Status residual_then_scale(Exec *x, const void *args) {
    const ResidualNormScale *a = args;
    TRY(op_residual_norm(x, &(ResidualNorm){a->y, a->residual, a->x, a->w, a->gate, a->eps}));
    return op_rmsnorm_scale(x, &(RmsNormScale){a->n, a->y, a->w_next, a->scale, a->eps});
}

static void make_residual_norm_scale(Case *c) {
    ARGS(ResidualNormScale);
    Gated g = gated_inputs(c, &a->residual, &a->x, &a->w, &a->gate);
    Buf *next = check_in(c, "w_next", &a->w_next, g.t, LAYOUT_DENSE, SHAPE(g.s.cols));
    Buf *scale = g.form == 2 ? NULL : check_in(c, "scale", &a->scale, g.t, LAYOUT_DENSE, SHAPE(g.s.cols));
    Buf *y = gated_output(c, g.residual, "y", &a->y, &g), *n = gated_output(c, g.x, "n", &a->n, &g);
    a->eps = 1e-5f;
    check_fill(c, next, 1, 0.3);
    if (scale) check_fill(c, scale, 0, 0.5);
    if (!c->keeps) c->twin = residual_then_scale;
    expect_gated(c, y, &g, a->eps);
    if (g.tall) {
        check_unjudged(c, n);
        return;
    }
    limit(n, g.t, g.kind);
    expect_next(c, n, y, next, scale, g.s.cols, a->eps);
}

/* --- heads --- */

/* One of q and k: rows of E, the token's angles, the rounded norm as an interval, both outputs of each pair. */
static void expect_heads(Case *c, Buf *y, const Buf *x, const Buf *w, const Buf *cosine, const Buf *sine,
                         float eps, int rope, int form) {
    DType t = x->view.dtype;
    int64_t e = x->view.shape[2], heads = x->view.shape[1], half = e / 2, rows = x->n / e;
    double *n = check_alloc(c, (size_t)e * 8), *room = check_alloc(c, (size_t)e * 8);
    for (int64_t row = 0; row < rows; row++) {
        if (form == RMS_NONE)
            for (int64_t j = 0; j < e; j++) n[j] = (double)x->v[row * e + j], room[j] = 0;
        else if (!normalise(x->v + row * e, e, eps, false, n, room)) skip_row(c, y, row, e);
        for (int64_t j = 0; j < e; j++) { /* n becomes the weighted value, room its reach */
            double f = !w ? 1 : form == RMS_PLUS_ONE ? check_r(1 + (double)w->v[j], F32) : (double)w->v[j];
            if (form == RMS_TWICE && t == BF16) { /* the first rounding may take either neighbour */
                double low = check_r(n[j] - room[j], t), high = check_r(n[j] + room[j], t);
                n[j] = check_r(n[j], t);
                room[j] = fmax(fabs(high - n[j]), fabs(n[j] - low));
            }
            n[j] *= f;
            if (w) room[j] = room[j] * fabs(f) + 2 * CHECK_U * fabs(n[j]);
            if (rope == ROPE_NONE)
                check_between(y, row * e + j, check_r(n[j], t), check_r(n[j] - room[j], t),
                              check_r(n[j] + room[j], t));
        }
        for (int64_t i = 0; rope != ROPE_NONE && i < half; i++) {
            bool pairs = rope == ROPE_INTERLEAVED || rope == ROPE_COMPLEX, whole = rope == ROPE_COMPLEX;
            int64_t j0 = pairs ? 2 * i : i, j1 = pairs ? 2 * i + 1 : i + half;
            DType inner = rope == ROPE_HALF_EAGER ? t : F32; /* of the products */
            double cs = (double)cosine->v[row / heads * half + i],
                   sn = (double)sine->v[row / heads * half + i];
            double want[2] = {0}, lo[2] = {INFINITY, INFINITY}, hi[2] = {-INFINITY, -INFINITY};
            for (int k = 0; k < 9; k++) { /* the middle and all corners */
                double x0 = moved(n[j0], room[j0], k % 3 - 1, t), x1 = moved(n[j1], room[j1], k / 3 - 1, t);
                double a0 = whole ? x0 * cs : check_r(x0 * cs, inner), b1 = whole ? x0 * sn : check_r(x0 * sn, inner);
                double out[2] = {check_r(a0 - check_r(x1 * sn, inner), t), check_r(check_r(x1 * cs, inner) + b1, t)};
                for (int o = 0; o < 2; o++) {
                    lo[o] = fmin(lo[o], out[o]);
                    hi[o] = fmax(hi[o], out[o]);
                    if (k == 4) want[o] = out[o];
                }
            }
            check_between(y, row * e + j0, want[0], lo[0], hi[0]);
            check_between(y, row * e + j1, want[1], lo[1], hi[1]);
            double size = fabs(n[j0]) + fabs(n[j1]);
            widen(y, row * e + j0, 2, size);
            widen(y, row * e + j1, 2, size);
        }
    }
}

enum { HEAD_SIZES = 8 };

static void make_qk_norm_rope_head(Case *c) {
    static const int64_t sizes[][4] = {/* T, H, Hk, E */
                                       {1, 1, 1, 2},  {77, 12, 12, 64}, {64, 24, 24, 128}, {33, 8, 2, 128},
                                       {7, 3, 3, 30}, {5, 2, 1, 256},   {600, 1, 1, 128}, {22, 30, 35, 128}};
    static const char *const FORMS[] = {"no rope", "interleaved", "halves", "halves, eager", "complex"};
    enum { SIZES = HEAD_SIZES, ROUND = SIZES * 6 * 4 };
    /* rounds: one rounding of the norm; two, as Z-Image and Qwen3 rotate, and plainly; no norm, as Gemma-2; 1 + w, as Gemma-3 */
    static const struct { int32_t form; bool theirs; const char *name; } ROUNDS[] = {{RMS_ONCE, false, ""},
                                                                                     {RMS_TWICE, true, ", twice"},
                                                                                     {RMS_TWICE, false, ", twice"},
                                                                                     {RMS_NONE, true, ", no norm"},
                                                                                     {RMS_PLUS_ONE, true, ", plus one"}};
    ARGS(QkNormRopeHead);
    const int64_t *s = sizes[c->index % SIZES];
    DType t = c->index / SIZES % 2 ? BF16 : F32;
    int index = c->index % ROUND, rope = index / SIZES / 2 % 3, kind = (const int[]){0, 0, 1, 5}[index / SIZES / 6];
    int32_t form = ROUNDS[c->index / ROUND].form;
    if (ROUNDS[c->index / ROUND].theirs && rope) rope = rope == ROPE_HALF ? ROPE_HALF_EAGER : ROPE_COMPLEX;
    int64_t tokens = check_dim(c, s[0], 5), e = s[3];
    Layout lq = check_layout(c), ly = check_layout(c);
    check_label(c, "%s, %lldx%lld/%lldx%lld, %s%s, %s, %s to %s", dtype_name(t), (long long)tokens,
                (long long)s[1], (long long)s[2], (long long)e, FORMS[rope], ROUNDS[c->index / ROUND].name, FILLS[kind],
                check_layout_name(lq), check_layout_name(ly));
    Buf *q = check_in(c, "q", &a->q, t, lq, SHAPE(tokens, s[1], e));
    Buf *k = check_in(c, "k", &a->k, t, lq, SHAPE(tokens, s[2], e));
    Buf *wq = form == RMS_NONE ? NULL : check_in(c, "wq", &a->wq, t, LAYOUT_DENSE, SHAPE(e));
    Buf *wk = form == RMS_NONE ? NULL : check_in(c, "wk", &a->wk, t, LAYOUT_DENSE, SHAPE(e));
    Buf *yq = q, *yk = k, *cosine = NULL, *sine = NULL;
    if (index / SIZES / 6 == 1) {
        check_in_place(c, q, &a->yq);
        check_in_place(c, k, &a->yk);
        check_label(c, ", in place");
    } else {
        yq = check_out(c, "yq", &a->yq, t, ly, SHAPE(tokens, s[1], e));
        yk = check_out(c, "yk", &a->yk, t, ly, SHAPE(tokens, s[2], e));
    }
    if (rope) {
        cosine = check_in(c, "cos", &a->cos, F32, check_layout(c), SHAPE(tokens, e / 2));
        sine = check_in(c, "sin", &a->sin, F32, check_layout(c), SHAPE(tokens, e / 2));
        for (int64_t i = 0; i < cosine->n; i++) {
            double angle = 40 * check_normal(c);
            DType table = rope == ROPE_HALF_EAGER ? t : F32;
            cosine->v[i] = (float)check_round(cos(angle), table);
            sine->v[i] = (float)check_round(sin(angle), table);
        }
    }
    a->eps = 1e-6f;
    a->rope = rope;
    a->form = form;
    fill_rows(c, q, kind);
    fill_rows(c, k, kind);
    for (int i = 0; i < 2 && form != RMS_NONE; i++) check_fill(c, i ? wk : wq, form == RMS_PLUS_ONE ? 0 : 1, 0.3);
    limit(yq, t, kind);
    limit(yk, t, kind);
    expect_heads(c, yq, q, wq, cosine, sine, a->eps, rope, a->form);
    expect_heads(c, yk, k, wk, cosine, sine, a->eps, rope, a->form);
}

/* --- whole rows, then heads --- */

static double relu(double v) { return v <= 0 ? 0 : v; } /* NaN passes */

/* Element pairs of a row: at[0], [1], [2] are a value's low end, itself, its high end. */
static void expect_turned(Buf *yr, int64_t i, const double *a, const double *b, double cs, double sn) {
    DType t = yr->view.dtype;
    double want[2] = {0}, lo[2] = {INFINITY, INFINITY}, hi[2] = {-INFINITY, -INFINITY};
    for (int k = 0; k < 9; k++) {
        double x0 = a[k % 3], x1 = b[k / 3];
        double out[2] = {check_r(check_r(x0 * cs, F32) - check_r(x1 * sn, F32), t),
                         check_r(check_r(x1 * cs, F32) + check_r(x0 * sn, F32), t)};
        for (int o = 0; o < 2; o++) {
            lo[o] = fmin(lo[o], out[o]), hi[o] = fmax(hi[o], out[o]);
            if (k == 4) want[o] = out[o];
        }
    }
    for (int o = 0; o < 2; o++) {
        check_between(yr, i + o, want[o], lo[o], hi[o]);
        widen(yr, i + o, 2, fabs(a[1]) + fabs(b[1]));
    }
}

static void make_norm_relu_rope(Case *c) {
    static const int64_t sizes[][3] = {/* tokens, heads, E */
                                       {1, 1, 2}, {18, 2, 16}, {40, 3, 30}, {33, 20, 112}, {7, 5, 128}, {300, 1, 64}};
    enum { SIZES = 6 };
    ARGS(NormReluRope);
    const int64_t *s = sizes[c->index % SIZES];
    DType t = c->index / SIZES % 2 ? BF16 : F32;
    int kind = (const int[]){0, 0, 1, 3, 5}[c->index / SIZES / 2 % 5];
    int64_t tokens = check_dim(c, s[0], 5), e = s[2], cols = s[1] * e;
    Shape shape = {.rank = 2, .extent = {tokens, cols}, .rows = tokens, .cols = cols};
    Layout lx = check_layout(c), lr = check_layout(c);
    check_label(c, "%s, %lldx%lldx%lld, %s, x %s yr %s", dtype_name(t), (long long)tokens, (long long)s[1],
                (long long)e, FILLS[kind], check_layout_name(lx), check_layout_name(lr));
    Buf *x = check_in(c, "x", &a->x, t, lx, SHAPE(tokens, cols)), *w = check_in(c, "w", &a->w, t, LAYOUT_DENSE, SHAPE(cols));
    Buf *cosine = check_in(c, "cos", &a->cos, F32, LAYOUT_DENSE, SHAPE(tokens, e / 2));
    Buf *sine = check_in(c, "sin", &a->sin, F32, LAYOUT_DENSE, SHAPE(tokens, e / 2));
    Buf *y = output(c, x, &a->y, &shape), *yr = check_out(c, "yr", &a->yr, t, lr, SHAPE(tokens, cols));
    a->eps = 1e-5f;
    for (int64_t i = 0; i < cosine->n; i++) {
        double angle = 40 * check_normal(c);
        cosine->v[i] = (float)check_round(cos(angle), F32);
        sine->v[i] = (float)check_round(sin(angle), F32);
    }
    fill_rows(c, x, kind);
    check_fill(c, w, 1, 0.3);
    limit(y, t, kind);
    limit(yr, t, kind);
    double *n = check_alloc(c, (size_t)cols * 8), *room = check_alloc(c, (size_t)cols * 8);
    double(*at)[3] = check_alloc(c, (size_t)cols * sizeof *at);
    for (int64_t row = 0; row < tokens; row++) {
        if (!normalise(x->v + row * cols, cols, a->eps, false, n, room)) skip_row(c, y, row, cols), skip_row(c, yr, row, cols);
        for (int64_t j = 0; j < cols; j++) {
            double f = (double)w->v[j], v[3];
            for (int k = 0; k < 3; k++) v[k] = relu(check_r(moved(n[j], room[j], k - 1, t) * f, t));
            at[j][0] = fmin(v[0], v[2]), at[j][1] = v[1], at[j][2] = fmax(v[0], v[2]);
            if (isnan(v[1])) at[j][0] = at[j][2] = v[1];
            check_between(y, row * cols + j, at[j][1], at[j][0], at[j][2]);
            widen(y, row * cols + j, 2, fabs(n[j] * f));
            if (t == F32) at[j][0] = fmax(0, at[j][0] - 2 * CHECK_U * fabs(n[j] * f)), at[j][2] += 2 * CHECK_U * fabs(n[j] * f);
        }
        for (int64_t j = 0; j < cols; j += 2)
            expect_turned(yr, row * cols + j, at[j], at[j + 1], (double)cosine->v[row * (e / 2) + j % e / 2],
                          (double)sine->v[row * (e / 2) + j % e / 2]);
    }
}

const CaseSet CHECK_NORM[] = {
    {OP_layernorm, BASE_CASES, make_layernorm},
    {OP_ln_modulate, BASE_CASES * 4, make_ln_modulate},
    {OP_residual_gate_ln_modulate, BASE_CASES * 4, make_residual_gate_ln_modulate},
    {OP_rmsnorm, BASE_CASES * 4, make_rmsnorm},
    {OP_rmsnorm_scale, SCALE_CASES, make_rmsnorm_scale},
    {OP_residual_norm, SCALE_CASES, make_residual_norm},
    {OP_residual_norm_scale, SCALE_CASES, make_residual_norm_scale},
    {OP_qk_norm_rope_head, HEAD_SIZES * 6 * 20, make_qk_norm_rope_head},
    {OP_norm_relu_rope, 6 * 2 * 5, make_norm_relu_rope},
};
const int CHECK_NORM_COUNT = sizeof CHECK_NORM / sizeof *CHECK_NORM;
