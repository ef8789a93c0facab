/* frames_cpu.c - the meaning of the ops of frames.h, and of pixelnorm_silu with one rounding (family ltx-norm).
 *
 * A pixel is computed once and stored at all its places. The mean of squares runs in double in ROWS_LANES partial sums, as in
 * norm_cpu.c, and is narrowed once.
 * Easy to get wrong: h may be x or skip, so what a second pass over a wide pixel needs is read from h once it is written. */
#include "kernels/exp_cpu.h"
#include "kernels/frames_check.h"
#include "kernels/registry.h"
#include "kernels/rows.h"
#include "kernels/unary.h"

#include <math.h>

/* --- windows --- */

typedef struct Norm {
    Window a;
    DType inner;          /* the dtype to which steps before the last one round */
    const uint16_t *silu; /* the table; NULL: in f32 */
    bool norm;
} Norm;

/* A span of h; first: nothing of the pixel has been written. */
static void load(float *v, const Norm *m, Span s, bool first) {
    const Window *a = &m->a;
    if (!first && a->h.rank) {
        rows_load(v, &a->h, s);
        return;
    }
    float other[ROWS_SPAN];
    rows_load(v, &a->x, s);
    if (a->bias.rank) {
        rows_load(other, &a->bias, s);
        for (int64_t j = 0; j < s.n; j++) v[j] += other[j];
        rows_round(v, s.n, m->inner);
    }
    if (a->skip.rank) {
        rows_load(other, &a->skip, s);
        for (int64_t j = 0; j < s.n; j++) v[j] = other[j] + v[j];
        rows_round(v, s.n, m->inner);
    }
    if (a->h.rank) rows_round(v, s.n, a->x.dtype); /* what is written is what goes on */
}

static float root(const Norm *m, const double *lane, int64_t cols) {
    double sum = 0;
    for (int i = 0; i < ROWS_LANES; i++) sum += lane[i];
    float v = (float)sum * (1.0f / (float)cols);
    rows_round(&v, 1, m->inner);
    v += m->a.eps;
    rows_round(&v, 1, m->inner);
    v = sqrtf(v);
    rows_round(&v, 1, m->inner);
    return v;
}

static void normalise(const Norm *m, float *v, int64_t n, float by) {
    for (int64_t j = 0; j < n; j++) v[j] /= by;
    if (m->silu)
        for (int64_t j = 0; j < n; j++) v[j] = bf16_to_f32(m->silu[bf16_from_f32(v[j])]);
    else
        for (int64_t j = 0; j < n; j++) v[j] = silu_f32(v[j]);
}

/* Where index i of n stands in a window with one more on each side. */
static int places(int64_t i, int64_t n, bool border, int64_t *at) {
    int count = 0;
    at[count++] = i + border;
    if (border && i == 1) at[count++] = 0;
    if (border && i == n - 2) at[count++] = n + 1;
    return count;
}

/* A span of pixel `row` to all its places. */
static void spread(const Window *a, Span s, const float *v) {
    const int64_t *n = a->x.shape, *m = a->y.shape;
    int64_t f = s.row / n[2] / n[1], rows[3], columns[3];
    int down = places(s.row / n[2] % n[1], n[1], a->border, rows), across = places(s.row % n[2], n[2], a->border, columns);
    int64_t first = f ? f + a->before : 0, last = f + 1 < n[0] ? f + a->before : m[0] - 1;
    for (int64_t g = first; g <= last; g++)
        for (int i = 0; i < down; i++)
            for (int j = 0; j < across; j++)
                rows_store(&a->y, (Span){(g * m[1] + rows[i]) * m[2] + columns[j], s.first, s.n}, v);
}

static void pixel(const Norm *m, const Walk *w, int64_t row) {
    float v[ROWS_SPAN], by = 1;
    double lane[ROWS_LANES] = {0};
    for (int64_t first = 0; first < w->cols; first += ROWS_SPAN) {
        Span s = rows_piece(w, row, first);
        load(v, m, s, true);
        if (m->a.h.rank) rows_store(&m->a.h, s, v);
        for (int64_t j = 0; m->norm && j < s.n; j++) {
            float square = v[j] * v[j];
            rows_round(&square, 1, m->inner);
            lane[j % ROWS_LANES] += (double)square;
        }
        if (!m->norm) spread(&m->a, s, v);
    }
    if (!m->norm) return;
    by = root(m, lane, w->cols);
    for (int64_t first = 0; first < w->cols; first += ROWS_SPAN) {
        Span s = rows_piece(w, row, first);
        if (w->pieces > 1) load(v, m, s, false);
        normalise(m, v, s.n, by);
        spread(&m->a, s, v);
    }
}

static Status window(Exec *x, OpId op, const void *args, bool keep) {
    Norm m = {.a = *(const Window *)args, .norm = op == OP_pixelnorm_silu};
    TRY(frames_check_window(x, op, &m.a));
    m.inner = keep ? F32 : m.a.x.dtype;
    if (m.norm && m.inner == BF16) {
        if (!x->unary) return fail(x->error, ERR_MODEL, "%s: the tables of the BF16 functions are not open", ops_info(op)->name);
        m.silu = x->unary->table[UNARY_SILU];
    }
    if (m.a.bias.rank) TRY(rows_want_row(x, op, "bias", &m.a.bias, m.a.x));
    Walk w = rows_walk(m.a.x);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t row = 0; row < w.rows; row++) pixel(&m, &w, row);
    return OK;
}

static Status frame_window(Exec *x, const void *args) { return window(x, OP_frame_window, args, false); }
static Status pixelnorm_silu(Exec *x, const void *args) { return window(x, OP_pixelnorm_silu, args, false); }
static Status pixelnorm_silu_f32(Exec *x, const void *args) { return window(x, OP_pixelnorm_silu, args, true); }

/* --- channels and places --- */

static float value(const Tensor *t, int64_t at) {
    return t->dtype == F32 ? ((const float *)t->data)[at] : bf16_to_f32(((const uint16_t *)t->data)[at]);
}

static void put(const Tensor *t, int64_t at, float v) {
    if (t->dtype == F32) ((float *)t->data)[at] = v;
    else ((uint16_t *)t->data)[at] = bf16_from_f32(v);
}

static float rounded(float v, DType t) { return t == BF16 ? bf16_round(v) : v; }

/* Of the small side: one of n pixels that lie in a place of the other side. */
typedef struct Place { int64_t f, i, j; int a, b, d; } Place;

static Place place_of(const Depth *p, const int64_t *small, int64_t at) {
    int64_t n = (int64_t)p->t * p->rows * p->columns, k = at % n, place = at / n;
    return (Place){.f = place / small[2] / small[1], .i = place / small[2] % small[1], .j = place % small[2],
                   .a = (int)(k / p->columns / p->rows), .b = (int)(k / p->columns % p->rows), .d = (int)(k % p->columns)};
}

static int64_t offset(const Tensor *t, int64_t f, int64_t i, int64_t j) {
    return f * t->stride[0] + i * t->stride[1] + j * t->stride[2];
}

static void to_space(const Depth *p, Place at) {
    int64_t n = (int64_t)p->t * p->rows * p->columns, k = ((int64_t)at.a * p->rows + at.b) * p->columns + at.d;
    int64_t frame = p->t * at.f + at.a - p->drop, channels = p->y.shape[3];
    int64_t period = p->skip.rank ? p->skip.shape[3] / n : 1;
    if (frame < 0) return;
    int64_t to = offset(&p->y, frame, p->rows * at.i + at.b, p->columns * at.j + at.d), from = offset(&p->x, at.f, at.i, at.j);
    int64_t other = p->skip.rank ? offset(&p->skip, at.f, at.i, at.j) : 0;
    DType t = p->y.dtype;
    for (int64_t c = 0; c < channels; c++) {
        float v = value(&p->x, from + c * n + k);
        if (p->bias.rank) v = rounded(v + value(&p->bias, c * n + k), t);
        if (p->skip.rank) v += value(&p->skip, other + c % period * n + k);
        put(&p->y, to + c, v);
    }
}

/* Element e of place at, had skip the form of y. */
static float passed(const Depth *p, Place at, int64_t e) {
    int64_t n = (int64_t)p->t * p->rows * p->columns, k = e % n;
    return value(&p->skip, offset(&p->skip, p->t * at.f + k / p->columns / p->rows, p->rows * at.i + k / p->columns % p->rows,
                                  p->columns * at.j + k % p->columns) + e / n);
}

static void to_depth(const Depth *p, Place at) {
    int64_t n = (int64_t)p->t * p->rows * p->columns, k = ((int64_t)at.a * p->rows + at.b) * p->columns + at.d;
    int64_t from = offset(&p->x, p->t * at.f + at.a, p->rows * at.i + at.b, p->columns * at.j + at.d);
    int64_t to = offset(&p->y, at.f, at.i, at.j), g = p->skip.rank ? p->skip.shape[3] / p->x.shape[3] : 0;
    DType t = p->y.dtype;
    for (int64_t c = 0; c < p->x.shape[3]; c++) {
        float v = value(&p->x, from + c), mean = 0;
        if (p->bias.rank) v = rounded(v + value(&p->bias, c), t);
        for (int64_t e = 0; e < g; e++) mean += passed(p, at, (c * n + k) * g + e);
        if (g) v += rounded(mean * (1.0f / (float)g), t);
        put(&p->y, to + c * n + k, v);
    }
}

static Status exchange(Exec *x, OpId op, const Depth *a) {
    TRY(frames_check_depth(x, op, a));
    bool deep = op == OP_depth_to_space;
    const int64_t *small = deep ? a->x.shape : a->y.shape;
    int64_t count = small[0] * small[1] * small[2] * a->t * a->rows * a->columns;
    bool parallel = tensor_numel(a->y) >= ROWS_PARALLEL_AT;
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t i = 0; i < count; i++) {
        Place at = place_of(a, small, i);
        if (deep) to_space(a, at);
        else to_depth(a, at);
    }
    return OK;
}

static Status depth_to_space(Exec *x, const void *args) { return exchange(x, OP_depth_to_space, args); }
static Status space_to_depth(Exec *x, const void *args) { return exchange(x, OP_space_to_depth, args); }

const Impl FRAMES_CPU[] = {
    {OP_frame_window, "cpu", frame_window, NULL, NULL},
    {OP_pixelnorm_silu, "cpu", pixelnorm_silu, NULL, NULL},
    {OP_depth_to_space, "cpu", depth_to_space, NULL, NULL},
    {OP_space_to_depth, "cpu", space_to_depth, NULL, NULL},
};
const int FRAMES_CPU_COUNT = sizeof FRAMES_CPU / sizeof *FRAMES_CPU;

const Impl LTX_NORM_CPU[] = {{OP_pixelnorm_silu, "cpu_f32", pixelnorm_silu_f32, NULL, frames_check_keeps}};
