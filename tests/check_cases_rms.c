/* check_cases_rms.c - cases of rms_modulate, residual_rms_modulate, norm_rope_split, head_gate and cos_sin.
 *
 * The first three are chains by contract: their results are held, bit for bit, against the chain written here once more, of ops
 * that have cases of their own; what is summed of a residual is exact besides. Gates of heads are recomputed in double.
 * Easy to get wrong: y may be x, so the chain makes y2 first; a variant of few rows sums in another order. */
#include "check.h"

#include <math.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

enum { SHAPES = 15, FORMS = 6, MANY = 14 }; /* MANY: rows that a GPU's blocks take in several turns */
static const int64_t shapes[SHAPES][2] = {{1, 4},     {2, 40},    {17, 128},  {40, 257},  {3, 2048},
                                          {33, 2048}, {20, 4096}, {1, 4096},  {700, 64},  {150, 768},
                                          {16, 2056}, {24, 264},  {19, 1028}, {31, 4088}, {8001, 128}};

/* Which parts of a modulation are there; two outputs. */
typedef struct Form { const char *name; bool scaled, second, second_scaled, gated; } Form;
static const Form forms[FORMS] = {
    {"modulated, gated", true, false, false, true},      {"plain", false, false, false, false},
    {"two modulations, gated", true, true, true, true},  {"two modulations", true, true, true, false},
    {"plain, gated", false, false, false, true},         {"second plain", true, true, false, true},
};

static Status one_modulation(Exec *x, Tensor y, Tensor in, Tensor scale, Tensor shift, float eps) {
    TRY(op_rmsnorm(x, &(RmsNorm){.y = y, .x = in, .eps = eps, .form = RMS_TWICE}));
    return scale.rank ? op_modulate(x, &(Modulate){.y = y, .x = y, .scale = scale, .shift = shift}) : OK;
}

static Status norm_then_modulate(Exec *x, const void *args) {
    const RmsModulate *a = args;
    if (a->y2.rank) TRY(one_modulation(x, a->y2, a->x, a->scale2, a->shift2, a->eps));
    return one_modulation(x, a->y, a->x, a->scale, a->shift, a->eps);
}

static Status gate_then_norm(Exec *x, const void *args) {
    const ResidualRmsModulate *a = args;
    TRY(op_residual_gate(x, &(ResidualGate){a->h, a->residual, a->x, a->gate}));
    if (a->y2.rank) TRY(one_modulation(x, a->y2, a->h, a->scale2, a->shift2, a->eps));
    return one_modulation(x, a->y, a->h, a->scale, a->shift, a->eps);
}

static Buf *row(Case *c, const char *name, Tensor *slot, DType t, int64_t d, double deviation, bool there) {
    if (!there) return NULL;
    Buf *b = check_in(c, name, slot, t, LAYOUT_DENSE, SHAPE(d));
    check_fill(c, b, 0, deviation);
    return b;
}

typedef struct Case2 { DType t; int64_t rows, d; const Form *form; bool spoilt; } Case2;

static Case2 case_of(Case *c) {
    const int64_t *s = shapes[c->index % SHAPES];
    int64_t rows = c->index % SHAPES == MANY && !c->gpu ? 81 : s[0];
    Case2 k = {c->index / SHAPES % 2 ? BF16 : F32, check_dim(c, rows, 18), check_dim(c, s[1], 140),
               &forms[c->index / SHAPES / 2 % FORMS], c->index / SHAPES / 2 / FORMS != 0};
    check_label(c, "%s, %lld rows of %lld, %s%s", dtype_name(k.t), (long long)k.rows, (long long)k.d, k.form->name,
                k.spoilt ? ", spoilt" : "");
    return k;
}

static void make_rms_modulate(Case *c) {
    ARGS(RmsModulate);
    Case2 k = case_of(c);
    Buf *x = check_in(c, "x", &a->x, k.t, check_layout(c), SHAPE(k.rows, k.d)), *y = x;
    row(c, "scale", &a->scale, k.t, k.d, 0.5, k.form->scaled);
    row(c, "shift", &a->shift, k.t, k.d, 0.5, k.form->scaled);
    row(c, "scale2", &a->scale2, k.t, k.d, 0.5, k.form->second_scaled);
    row(c, "shift2", &a->shift2, k.t, k.d, 0.5, k.form->second_scaled);
    if (check_below(c, 2)) check_in_place(c, x, &a->y), check_label(c, ", in place");
    else y = check_out(c, "y", &a->y, k.t, check_layout(c), SHAPE(k.rows, k.d));
    if (k.form->second) check_unjudged(c, check_out(c, "y2", &a->y2, k.t, check_layout(c), SHAPE(k.rows, k.d)));
    check_unjudged(c, y);
    a->eps = 1e-6f;
    check_fill(c, x, 0.3, 2);
    if (k.spoilt) check_spoil(c, x);
    c->twin = norm_then_modulate;
}

static void make_residual_rms_modulate(Case *c) {
    ARGS(ResidualRmsModulate);
    Case2 k = case_of(c);
    Buf *r = check_in(c, "residual", &a->residual, k.t, check_layout(c), SHAPE(k.rows, k.d)), *h = r;
    Buf *x = check_in(c, "x", &a->x, k.t, check_layout(c), SHAPE(k.rows, k.d)), *y = x;
    Buf *gate = row(c, "gate", &a->gate, k.t, k.d, 1, k.form->gated);
    row(c, "scale", &a->scale, k.t, k.d, 0.5, k.form->scaled);
    row(c, "shift", &a->shift, k.t, k.d, 0.5, k.form->scaled);
    row(c, "scale2", &a->scale2, k.t, k.d, 0.5, k.form->second_scaled);
    row(c, "shift2", &a->shift2, k.t, k.d, 0.5, k.form->second_scaled);
    if (check_below(c, 2)) check_in_place(c, r, &a->h), check_label(c, ", h in place");
    else h = check_out(c, "h", &a->h, k.t, check_layout(c), SHAPE(k.rows, k.d));
    if (check_below(c, 2)) check_in_place(c, x, &a->y), check_label(c, ", y in place");
    else y = check_out(c, "y", &a->y, k.t, check_layout(c), SHAPE(k.rows, k.d));
    if (k.form->second) check_unjudged(c, check_out(c, "y2", &a->y2, k.t, check_layout(c), SHAPE(k.rows, k.d)));
    check_unjudged(c, y);
    a->eps = 1e-6f;
    check_fill(c, r, 0.3, 2);
    check_fill(c, x, 0, 1);
    if (k.spoilt) check_spoil(c, r), check_spoil(c, x);
    for (int64_t i = 0; i < h->n; i++) {
        double v = (double)x->v[i];
        if (gate) v = check_r((double)gate->v[i % k.d] * v, k.t);
        check_exact(h, i, check_r((double)r->v[i] + v, k.t));
    }
    c->twin = gate_then_norm;
}

static Status one_side(Exec *x, const NormRopeSplit *a, Tensor y, Tensor in, Tensor w) {
    TRY(op_rmsnorm(x, &(RmsNorm){.y = y, .x = in, .w = w, .eps = a->eps, .form = RMS_ONCE}));
    if (!a->cos.rank) return OK;
    int64_t e = in.shape[1] / a->heads;
    Tensor heads = tensor_split(y, e);
    return op_rope_split(x, &(RopeSplit){heads, heads, tensor_split(a->cos, e / 2), tensor_split(a->sin, e / 2), a->form});
}

static Status norm_then_turn(Exec *x, const void *args) {
    const NormRopeSplit *a = args;
    TRY(one_side(x, a, a->yq, a->q, a->wq));
    return a->k.rank ? one_side(x, a, a->yk, a->k, a->wk) : OK;
}

enum { TURNED_SIZES = 11 };

static void make_norm_rope_split(Case *c) {
    static const int64_t sizes[][3] = {/* tokens, heads, E */
                                       {1, 1, 2},      {18, 2, 16},  {40, 3, 30}, {33, 32, 128}, {126, 32, 64},
                                       {700, 4, 16}, {9, 16, 128}, {5, 64, 64}, {7, 8, 64},
                                       {2601, 32, 64}, {1100, 32, 128}};
    enum { SIZES = TURNED_SIZES, MANY_TOKENS = 9 }; /* from there on: as MANY above */
    ARGS(NormRopeSplit);
    const int64_t *s = sizes[c->index % SIZES];
    DType t = c->index / SIZES % 2 ? BF16 : F32;
    int kind = c->index / SIZES / 2 % 3; /* rotated, the norm alone, spoilt */
    bool both = c->index / SIZES / 6 % 2 != 0;
    a->form = c->index / SIZES / 12 ? ROPE_SPLIT_DTYPE : ROPE_SPLIT_ONCE;
    bool many = c->gpu && t == BF16 && a->form == ROPE_SPLIT_ONCE;
    int64_t tokens = check_dim(c, c->index % SIZES < MANY_TOKENS || many ? s[0] : 3, 5), d = s[1] * s[2];
    check_label(c, "%s, %lldx%lldx%lld%s%s%s", dtype_name(t), (long long)tokens, (long long)s[1], (long long)s[2],
                (const char *const[]){"", ", not rotated", ", spoilt"}[kind], both ? ", with k" : "",
                a->form ? ", in the dtype" : "");
    Tensor *in[] = {&a->q, &a->k}, *out[] = {&a->yq, &a->yk}, *w[] = {&a->wq, &a->wk};
    for (int i = 0; i <= both; i++) {
        Buf *x = check_in(c, i ? "k" : "q", in[i], t, check_layout(c), SHAPE(tokens, d)), *y = x;
        check_fill(c, check_in(c, i ? "wk" : "wq", w[i], t, LAYOUT_DENSE, SHAPE(d)), 1, 0.3);
        if (check_below(c, 2)) check_in_place(c, x, out[i]), check_label(c, ", in place");
        else y = check_out(c, i ? "yk" : "yq", out[i], t, check_layout(c), SHAPE(tokens, d));
        check_unjudged(c, y);
        check_fill(c, x, 0.3, 2);
        if (kind == 2) check_spoil(c, x);
    }
    if (kind != 1) {
        Buf *cosine = check_in(c, "cos", &a->cos, F32, check_layout(c), SHAPE(tokens, d / 2));
        Buf *sine = check_in(c, "sin", &a->sin, F32, check_layout(c), SHAPE(tokens, d / 2));
        for (int64_t i = 0; i < cosine->n; i++) {
            double angle = 40 * check_normal(c);
            cosine->v[i] = (float)check_round(cos(angle), a->form ? t : F32);
            sine->v[i] = (float)check_round(sin(angle), a->form ? t : F32);
        }
    }
    a->eps = 1e-6f;
    a->heads = (int32_t)s[1];
    c->twin = norm_then_turn;
}

/* --- gates, angles --- */

static void make_head_gate(Case *c) {
    static const int64_t sizes[][3] = {{1, 1, 2}, {18, 2, 16}, {40, 3, 30}, {33, 32, 128}, {126, 32, 64}, {2, 2, 1100}};
    enum { SIZES = 6 };
    ARGS(HeadGate);
    const int64_t *s = sizes[c->index % SIZES];
    DType t = c->index / SIZES % 2 ? BF16 : F32;
    bool spoilt = c->index / SIZES / 2 % 2 != 0;
    int64_t tokens = check_dim(c, s[0], 5), heads = s[1], e = check_dim(c, s[2], 140);
    check_label(c, "%s, %lldx%lldx%lld%s", dtype_name(t), (long long)tokens, (long long)heads, (long long)e,
                spoilt ? ", spoilt" : "");
    Buf *x = check_in(c, "x", &a->x, t, check_layout(c), SHAPE(tokens, heads, e)), *y = x;
    Buf *logits = check_in(c, "logits", &a->logits, t, check_layout(c), SHAPE(tokens, heads));
    if (check_below(c, 2)) check_in_place(c, x, &a->y), check_label(c, ", in place");
    else y = check_out(c, "y", &a->y, t, check_layout(c), SHAPE(tokens, heads, e));
    check_fill(c, x, 0, 2);
    check_fill(c, logits, 0, 2);
    if (spoilt) check_spoil(c, x), check_spoil(c, logits);
    for (int64_t i = 0; i < y->n; i++) {
        double v = (double)logits->v[i / e], gate;
        gate = 2 * (t == BF16 ? check_unary(UNARY_SIGMOID, v) : 1 / (1 + exp(-v)));
        double want = check_r((double)x->v[i] * gate, t);
        if (t == BF16) check_exact(y, i, want); /* F32: exp within two ulps, a sum, a quotient, the product */
        else check_within(y, i, want, fabs(want) * 8 * CHECK_U + 0x1p-148 * (1 + fabs((double)x->v[i])));
    }
}

static void make_cos_sin(Case *c) {
    static const double most[] = {3, 100, 15708, 1e6};
    ARGS(CosSin);
    int64_t rows = check_dim(c, (const int64_t[]){1, 7, 126, 33}[c->index % 4], 5);
    int64_t cols = (const int64_t[]){3, 1025, 64}[c->index / 4 % 3];
    check_label(c, "%lldx%lld, up to %g", (long long)rows, (long long)cols, most[c->index / 12 % 4]);
    Buf *x = check_in(c, "x", &a->x, F32, LAYOUT_DENSE, SHAPE(rows, cols)), *cosine = x;
    if (check_below(c, 2)) check_in_place(c, x, &a->cos), check_label(c, ", in place");
    else cosine = check_out(c, "cos", &a->cos, F32, LAYOUT_DENSE, SHAPE(rows, cols));
    Buf *sine = check_out(c, "sin", &a->sin, F32, LAYOUT_DENSE, SHAPE(rows, cols));
    check_fill(c, x, 0, most[c->index / 12 % 4] / 2);
    for (int64_t i = 0; i < x->n; i++) { /* two ulps, one more at a power of two */
        double v = (double)x->v[i];
        check_within(cosine, i, check_round(cos(v), F32), 6 * CHECK_U * fabs(cos(v)));
        check_within(sine, i, check_round(sin(v), F32), 6 * CHECK_U * fabs(sin(v)));
    }
}

const CaseSet CHECK_RMS[] = {
    {OP_rms_modulate, SHAPES * 2 * FORMS * 2, make_rms_modulate},
    {OP_residual_rms_modulate, SHAPES * 2 * FORMS * 2, make_residual_rms_modulate},
    {OP_norm_rope_split, TURNED_SIZES * 2 * 3 * 2 * 2, make_norm_rope_split},
    {OP_head_gate, 6 * 2 * 2 * 2, make_head_gate},
    {OP_cos_sin, 48, make_cos_sin},
};
const int CHECK_RMS_COUNT = sizeof CHECK_RMS / sizeof *CHECK_RMS;
