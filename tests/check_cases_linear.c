/* check_cases_linear.c - cases of the ops of linear.h.
 *
 * A sum in f32 may miss the fp64 value by twice what a plain sequential f32 loop loses on this case (its worst element,
 * relative to the sum of magnitudes), plus four roundings for short sums, where the loop may happen to be exact. The
 * result must lie between the contract's roundings of both ends of that interval, so a rounding too many or too few
 * shows in BF16. Of tall products random rows are judged. */
#include "check.h"

#include <math.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

static const DType KINDS[][3] = {/* x and y, stored, Weight.round */
                                 {F32, F32, F32},    {F32, BF16, F32},  {F32, F16, F32},
                                 {BF16, BF16, BF16}, {BF16, F32, BF16}, {BF16, F16, BF16}};
enum { KIND_COUNT = 6, BIASES = 3 }; /* no bias, fused, after */

/* Rows of NaN, infinities, zeros and denormals; no huge values, whose partial sums would overflow in some orders. */
static void spoil_rows(Case *c, Buf *x, int64_t k) {
    const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 0x1p-130f};
    for (int64_t row = 0; row < x->n / k; row++)
        if (check_below(c, 3) == 0) x->v[row * k + check_below(c, k)] = special[check_below(c, 6)];
}

/* gelu_tanh of a BF16 or F32 value in double; *room: what f32 arithmetic may lose (F32 only; BF16 is a table). */
static double gelu(double x, DType t, double *room) {
    *room = 0;
    if (t == BF16) return check_unary(UNARY_GELU_TANH, x);
    double w = 0.7978845608028654 * (x + 0.044715 * x * x * x), th = tanh(w), y = 0.5 * x * (1 + th);
    double slope = (1 - th * th) * fabs(w);
    *room = 0.5 * fabs(x) * (10 * CHECK_U * (isnan(slope) ? 0 : slope) + 5 * CHECK_U) + 4 * CHECK_U * fabs(y);
    return y;
}

/* keeps: the product comes in f32, and f32 arithmetic takes it on to the one rounding. On a GPU that is a library's epilogue,
 * whose tanh is the card's instruction: its relative error is at most 2^-11 (PTX: tanh.approx.f32). */
static void expect_gelu(const Case *c, Buf *y, int64_t i, double want, double lo, double hi, bool keeps) {
    DType t = y->view.dtype, inner = keeps ? F32 : t;
    double room, more, w = gelu(want, inner, &room), a = gelu(lo, inner, &more), b = gelu(hi, inner, &more);
    if (keeps && c->gpu)
        room += 0.5 * fabs(want) * fabs(tanh(0.7978845608028654 * (want + 0.044715 * want * want * want))) * 0x1p-11;
    double low = fmin(w, fmin(a, b)), high = fmax(w, fmax(a, b));
    if (lo < -0.7518 && hi > -0.7518) low = fmin(low, -0.1700408); /* the only minimum */
    check_between(y, i, check_r(w, t), check_r(low - room, t), check_r(high + room, t));
}

typedef struct Product {
    const Buf *x, *w, *bias;
    DType round;
    int mode; /* of linear.h */
    bool gelu, keeps;
    int64_t first, n; /* rows of w that are used; n 0: all */
    int64_t column;   /* of y, where they go */
} Product;

/* cuBLASLt has no kernel with a fused bias for rows that do not start at multiples of 16 bytes; it then adds the bias
 * to the rounded product (linear.h), as it does for PyTorch. */
static bool rounds_before_bias(const Case *c, const Buf *y, const Product *p) {
    if (!c->gpu || p->mode != BIAS_FUSED || !p->bias) return false;
    const Buf *all[] = {y, p->x, p->w};
    for (int i = 0; i < 3; i++) {
        const Tensor *t = &all[i]->view;
        for (int d = 0; d + 1 < t->rank; d++)
            if ((size_t)t->stride[d] * dtype_size(t->dtype) % 16) return true;
        if (all[i]->lead % 16) return true;
    }
    return p->bias->lead % 16 || (size_t)p->column * dtype_size(y->view.dtype) % 16;
}

static void expect_product(Case *c, Buf *y, const Product *p) {
    int64_t n = p->n ? p->n : p->w->view.shape[0], k = p->w->view.shape[1], width = y->view.shape[y->view.rank - 1];
    int64_t m = y->n / width, rows = m;
    DType t = y->view.dtype, inner = p->keeps ? F32 : t;
    while (rows > 2 && rows * n * k > 4000000) rows = (rows + 1) / 2;
    if (rows > 64) rows = 64;
    int64_t *row = check_alloc(c, (size_t)rows * sizeof *row);
    for (int64_t r = 0; r < rows; r++) row[r] = rows == m ? r : r == 0 ? m - 1 : check_below(c, m);
    if (rows < m && !y->skipped) {
        y->skipped = check_alloc(c, (size_t)y->n);
        memset(y->skipped, CHECK_UNJUDGED, (size_t)y->n);
    }
    float *w = check_alloc(c, (size_t)(n * k) * sizeof *w),
          *naive = check_alloc(c, (size_t)(rows * n) * sizeof *naive);
    double *ref = check_alloc(c, (size_t)(rows * n) * sizeof *ref),
           *size = check_alloc(c, (size_t)(rows * n) * sizeof *size);
    for (int64_t i = 0; i < n * k; i++) w[i] = (float)check_round((double)p->w->v[p->first * k + i], p->round);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j++) {
            const float *xs = p->x->v + row[r] * k, *ws = w + j * k;
            double sum = 0, magnitude = 0;
            float plain = 0;
            for (int64_t i = 0; i < k; i++) {
                double v = (double)xs[i] * (double)ws[i];
                sum += v;
                magnitude += fabs(v);
                plain += xs[i] * ws[i];
            }
            ref[r * n + j] = sum;
            naive[r * n + j] = plain;
            size[r * n + j] = magnitude + 0x1p-120;
        }
    double error = 2 * check_naive_error(rows * n, ref, naive, size) + 4 * CHECK_U;
    double half_ulp = rounds_before_bias(c, y, p) && t == BF16 ? 0x1p-8 : 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j++) {
            int64_t i = r * n + j, at = row[r] * width + p->column + j;
            double b = p->bias ? (double)p->bias->v[p->first + j] : 0, room = error * size[i], value[3];
            if (p->mode == BIAS_FUSED) room += CHECK_U * fabs(b) + half_ulp * fabs(ref[i]);
            for (int s = 0; s < 3; s++) {
                double sum = s == 1 ? ref[i] : ref[i] + (s - 1) * room; /* room may be infinite */
                value[s] = !p->bias                ? check_r(sum, inner)
                           : p->mode == BIAS_FUSED ? check_r(sum + b, inner)
                                                   : check_r(check_r(sum, inner) + b, inner);
            }
            if (p->gelu)
                expect_gelu(c, y, at, value[1], value[0], value[2], p->keeps);
            else
                check_between(y, at, value[1], value[0], value[2]);
            if (y->skipped) y->skipped[at] = 0;
        }
}

static Status linear_then_gelu(Exec *x, const void *args) {
    const Linear *a = args;
    TRY(op_linear(x, a));
    return op_act(x, &(Act){.y = a->y, .x = a->y, .kind = ACT_GELU_TANH});
}

/* The bias of BIAS_AFTER by the op that adds. */
static Status linear_then_add(Exec *x, const void *args) {
    const Linear *a = args;
    Weight plain = *a->w;
    plain.bias = (Tensor){0};
    TRY(op_linear(x, &(Linear){.y = a->y, .x = a->x, .w = &plain}));
    return op_add(x, &(Add){.y = a->y, .a = a->y, .b = a->w->bias});
}

/* --- linear, linear_gelu --- */

static void make_linear(Case *c) {
    static const int64_t shapes[][3] = {
        /* M, K, N */
        {1, 1, 1},       {1, 3072, 1031}, {2, 64, 7},      {3, 768, 768},  {4, 128, 384},  {5, 256, 512},
        {7, 3, 5},       {9, 4096, 129},  {16, 10240, 33}, {64, 128, 512}, {77, 768, 257}, {130, 129, 131},
        {258, 2240, 96}, {300, 96, 300},  {600, 128, 512}, {33, 1, 64},    {576, 512, 128}};
    enum { SHAPES = 17 };
    ARGS(Linear);
    const int64_t *s = shapes[c->index % SHAPES];
    const DType *kind = KINDS[c->index / SHAPES % KIND_COUNT];
    int bias_form = c->index / SHAPES / KIND_COUNT % BIASES;
    int64_t m = check_dim(c, s[0], 9), k = check_dim(c, s[1], 150), n = check_dim(c, s[2], 40);
    bool cube = m % 2 == 0 && c->index % 3 == 0; /* [2, M/2, .]: flattened to rows */
    Layout lx = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE,
           ly = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE;
    Layout lw = kind[1] == kind[2] && check_below(c, 2) ? LAYOUT_DENSE : LAYOUT_UNALIGNED;
    check_label(c, "M %lld K %lld N %lld, %s x %s rounded to %s, %s, x %s%s, w %s", (long long)m,
                (long long)k, (long long)n, dtype_name(kind[0]), dtype_name(kind[1]), dtype_name(kind[2]),
                (const char *const[]){"no bias", "bias fused", "bias after"}[bias_form],
                check_layout_name(lx), cube ? " 3-d" : "", check_layout_name(lw));
    Buf *x = cube ? check_in(c, "x", &a->x, kind[0], lx, SHAPE(2, m / 2, k))
                  : check_in(c, "x", &a->x, kind[0], lx, SHAPE(m, k));
    Buf *w = check_weight(c, 0, kind[1], kind[2], lw, SHAPE(n, k));
    Buf *bias = bias_form ? check_bias(c, 0, kind[0], n) : NULL;
    Buf *y = cube ? check_out(c, "y", &a->y, kind[0], ly, SHAPE(2, m / 2, n))
                  : check_out(c, "y", &a->y, kind[0], ly, SHAPE(m, n));
    a->w = &c->weight[0];
    a->bias_mode = bias_form == 2 ? BIAS_AFTER : BIAS_FUSED;
    check_fill(c, x, 0.1, 1);
    check_fill(c, w, 0, 1 / sqrt((double)k));
    if (bias) check_fill(c, bias, 0, 1);
    if (c->index % 5 == 4) spoil_rows(c, x, k);
    if (c->op == OP_linear && bias_form == 2) c->twin = linear_then_add;
    if (c->op == OP_linear_gelu && !c->keeps) c->twin = linear_then_gelu;
    expect_product(c, y, &(Product){x, w, bias, kind[2], a->bias_mode, c->op == OP_linear_gelu, c->keeps, 0, 0, 0});
}

/* --- linear_rows --- */

static Status row_by_row(Exec *x, const void *args) {
    const Linear *a = args;
    for (int64_t i = 0; i < a->y.shape[0]; i++)
        TRY(op_linear(x, &(Linear){.y = tensor_slice(a->y, 0, i, 1), .x = tensor_slice(a->x, 0, i, 1), .w = a->w,
                                   .bias_mode = a->bias_mode}));
    return OK;
}

/* The products of a modulation vector: FLUX.1's and Z-Image's, an embedder's, odd ones. */
static void make_linear_rows(Case *c) {
    static const int64_t shapes[][3] = {{1, 3072, 9216}, {4, 3072, 18432}, {28, 3072, 9216}, {50, 3072, 6144},
                                        {8, 256, 15360}, {28, 256, 3072},  {17, 300, 33},    {9, 64, 129}};
    enum { SHAPES = 8 };
    ARGS(Linear);
    const int64_t *s = shapes[c->index % SHAPES];
    const DType *kind = KINDS[c->index / SHAPES % KIND_COUNT];
    int bias_form = c->index / SHAPES / KIND_COUNT % BIASES;
    int64_t part = c->gpu || s[2] < 1024 ? 1 : 8;
    int64_t m = s[0], k = check_dim(c, s[1] / part, 150), n = check_dim(c, s[2] / part, 40);
    check_label(c, "M %lld K %lld N %lld, %s x %s rounded to %s, bias form %d", (long long)m, (long long)k, (long long)n,
                dtype_name(kind[0]), dtype_name(kind[1]), dtype_name(kind[2]), bias_form);
    Buf *x = check_in(c, "x", &a->x, kind[0], LAYOUT_DENSE, SHAPE(m, k));
    Buf *w = check_weight(c, 0, kind[1], kind[2], LAYOUT_UNALIGNED, SHAPE(n, k));
    Buf *bias = bias_form ? check_bias(c, 0, kind[0], n) : NULL;
    Buf *y = check_out(c, "y", &a->y, kind[0], check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE, SHAPE(m, n));
    a->w = &c->weight[0];
    a->bias_mode = bias_form == 2 ? BIAS_AFTER : BIAS_FUSED;
    c->twin = row_by_row;
    check_fill(c, x, 0.1, 1);
    check_fill(c, w, 0, 1 / sqrt((double)k));
    if (bias) check_fill(c, bias, 0, 1);
    expect_product(c, y, &(Product){x, w, bias, kind[2], a->bias_mode, false, false, 0, 0, 0});
}

/* --- linear_many --- */

static Status one_by_one(Exec *x, const void *args) {
    const LinearMany *a = args;
    for (int i = 0; i < LINEAR_MANY_MAX; i++)
        if (a->w[i])
            TRY(op_linear(x, &(Linear){.y = a->y[i], .x = a->x, .w = a->w[i], .bias_mode = a->bias_mode}));
    return OK;
}

static void make_linear_many(Case *c) {
    static const int64_t shapes[][6] = {/* M, K, then N of each */
                                        {1, 64, 1, 0, 0, 0},           {77, 768, 768, 768, 768, 0},
                                        {64, 128, 128, 128, 128, 512}, {5, 300, 17, 3, 17, 0},
                                        {512, 96, 320, 320, 0, 0},     {600, 128, 128, 128, 128, 512},
                                        {3, 256, 64, 1024, 31, 7}};
    enum { SHAPES = 7 };
    ARGS(LinearMany);
    const int64_t *s = shapes[c->index % SHAPES];
    const DType *kind = KINDS[c->index / SHAPES % KIND_COUNT];
    int bias_form = c->index / SHAPES / KIND_COUNT % BIASES;
    int64_t m = check_dim(c, s[0], 9), k = check_dim(c, s[1], 150);
    Layout lx = check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE;
    check_label(c, "M %lld K %lld, %s x %s rounded to %s, bias form %d, x %s, N", (long long)m, (long long)k,
                dtype_name(kind[0]), dtype_name(kind[1]), dtype_name(kind[2]), bias_form,
                check_layout_name(lx));
    Buf *x = check_in(c, "x", &a->x, kind[0], lx, SHAPE(m, k));
    check_fill(c, x, 0.1, 1);
    a->bias_mode = bias_form != 2 ? BIAS_FUSED : s[1] > 128 ? BIAS_AFTER : BIAS_TURNED;
    if (a->bias_mode != BIAS_TURNED) c->twin = one_by_one;
    for (int i = 0; i < LINEAR_MANY_MAX && s[2 + i]; i++) {
        int64_t n = check_dim(c, s[2 + i], 40);
        Buf *w = check_weight(c, i, kind[1], kind[2], check_below(c, 2) ? LAYOUT_DENSE : LAYOUT_UNALIGNED,
                              SHAPE(n, k));
        Buf *bias = bias_form ? check_bias(c, i, kind[0], n) : NULL;
        Buf *y = check_out(c, "y", &a->y[i], kind[0], check_below(c, 2) ? LAYOUT_PADDED : LAYOUT_DENSE,
                           SHAPE(m, n));
        a->w[i] = &c->weight[i];
        check_fill(c, w, 0, 1 / sqrt((double)k));
        if (bias) check_fill(c, bias, 0, 1);
        check_label(c, " %lld", (long long)n);
        expect_product(c, y, &(Product){x, w, bias, kind[2], a->bias_mode, false, false, 0, 0, 0});
    }
}

/* --- packs: weights behind one another, outputs neighbouring columns of one buffer --- */

static Status many_then_gelu(Exec *x, const void *args) {
    const LinearManyGelu *a = args;
    LinearMany many = {.x = a->x, .bias_mode = a->bias_mode};
    int last = -1;
    for (int i = 0; i < LINEAR_MANY_MAX && a->w[i]; i++) many.y[last = i] = a->y[i], many.w[i] = a->w[i];
    TRY(one_by_one(x, &many));
    return op_act(x, &(Act){.y = a->g, .x = a->y[last], .kind = ACT_GELU_TANH});
}

/* Rows that a GPU is given; the CPU's products are an eighth as wide and deep. 0: no bias there. */
static const int64_t PACKS[][7] = {/* M, bias, K, then N of each */
                                   {144, 1, 3072, 3072, 3072, 3072, 12288}, /* FLUX.1 single */
                                   {512, 1, 3072, 3072, 3072, 3072, 0},     /* FLUX.1 double, text */
                                   {16, 1, 3072, 3072, 3072, 3072, 0},      /* where the parts split K */
                                   {288, 0, 3840, 3840, 3840, 3840, 0},     /* Z-Image */
                                   {288, 0, 3840, 10240, 10240, 0, 0},
                                   {512, 0, 4096, 4096, 4096, 4096, 0},     /* T5 */
                                   {20, 0, 2560, 4096, 1024, 1024, 0},      /* Qwen3 */
                                   {77, 1, 768, 768, 768, 768, 0},          /* CLIP */
                                   {1, 1, 128, 128, 128, 128, 512},
                                   {192, 1, 1024, 1024, 1024, 1024, 4096}, /* the demo's kind */
                                   {5, 0, 72, 24, 8, 40, 16},
                                   {7, 1, 296, 24, 8, 40, 0},
                                   {3, 1, 64, 256, 0, 0, 0}};
enum { PACK_COUNT = sizeof PACKS / sizeof *PACKS, PACK_KINDS = 2, PACK_LAYOUTS = 2 };

static void make_pack(Case *c, int index) {
    LinearManyGelu *gelu = (void *)&c->args;
    LinearMany *many = (void *)&c->args;
    bool then = c->op == OP_linear_many_gelu;
    const int64_t *s = PACKS[index % PACK_COUNT];
    DType t = index / PACK_COUNT % PACK_KINDS ? F32 : BF16;
    Layout layout = index / PACK_COUNT / PACK_KINDS ? LAYOUT_PADDED : LAYOUT_DENSE;
    int64_t m = check_dim(c, s[0], 9), k = s[2], n[LINEAR_MANY_MAX], total = 0, at = 0;
    int64_t part = c->small ? 32 : c->gpu || k < 512 ? 1 : 8;
    int count = 0;
    k = k / part > 8 ? (k / part + 7) / 8 * 8 : k; /* matrices of a pack and their biases are aligned: a layout sees to it */
    for (; count < LINEAR_MANY_MAX && s[3 + count]; count++)
        total += n[count] = s[3 + count] / part > 8 ? s[3 + count] / part : s[3 + count];
    check_label(c, "pack, M %lld K %lld, %s, %s, y %s, N", (long long)m, (long long)k, dtype_name(t),
                s[1] ? "bias" : "no bias", check_layout_name(layout));
    Tensor *first = then ? gelu->y : many->y;
    const Weight **weights = then ? gelu->w : many->w;
    Buf *bias = NULL, *x = check_in(c, "x", then ? &gelu->x : &many->x, t, layout, SHAPE(m, k));
    Buf *w = check_weights(c, count, n, t, t, k, s[1] ? &bias : NULL);
    Buf *y = check_out(c, "y", NULL, t, layout, SHAPE(m, total));
    Buf *g = then ? check_out(c, "g", &gelu->g, t, layout, SHAPE(m, n[count - 1])) : NULL;
    check_fill(c, x, 0.1, 1);
    check_fill(c, w, 0, 1 / sqrt((double)k));
    if (bias) check_fill(c, bias, 0, 1);
    for (int i = 0; i < count; at += n[i++]) {
        weights[i] = &c->weight[i];
        check_part(c, y, &first[i], 1, at, n[i]);
        check_label(c, " %lld", (long long)n[i]);
        Product p = {x, w, bias, t, BIAS_FUSED, false, false, at, n[i], at};
        expect_product(c, y, &p);
        p.gelu = true, p.keeps = c->keeps, p.column = 0;
        if (then && i == count - 1) expect_product(c, g, &p);
    }
    if (c->keeps) { /* the last output is open then */
        if (!y->skipped) y->skipped = check_alloc(c, (size_t)y->n);
        for (int64_t i = 0; i < y->n; i++)
            if (i % total >= total - n[count - 1]) y->skipped[i] = CHECK_OPEN;
    }
    if (!c->keeps) c->twin = then ? many_then_gelu : one_by_one;
}

static void make_many(Case *c) {
    int loose = 7 * KIND_COUNT * BIASES;
    if (c->index < loose) make_linear_many(c);
    else make_pack(c, c->index - loose);
}

static void make_many_gelu(Case *c) { make_pack(c, c->index); }

const CaseSet CHECK_LINEAR[] = {
    {OP_linear, 17 * KIND_COUNT *BIASES, make_linear},
    {OP_linear_rows, 8 * KIND_COUNT *BIASES, make_linear_rows},
    {OP_linear_many, 7 * KIND_COUNT *BIASES + PACK_COUNT *PACK_KINDS *PACK_LAYOUTS, make_many},
    {OP_linear_many_gelu, PACK_COUNT *PACK_KINDS *PACK_LAYOUTS, make_many_gelu},
    {OP_linear_gelu, 17 * KIND_COUNT *BIASES, make_linear},
};
const int CHECK_LINEAR_COUNT = sizeof CHECK_LINEAR / sizeof *CHECK_LINEAR;
