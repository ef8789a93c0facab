/* wave_cpu.c - the meaning of the ops of wave.h, but for the transposed convolution (wave_transpose_cpu.c).
 *
 * A thread takes some rows of the result; of a filtered snake it first makes the rows at the double rate that these
 * rows see, in its own scratch, each a plain loop over channels.
 * Easy to get wrong: neighbouring threads make the rows between them both, so those must not depend on who makes them.
 * */
#include "kernels/exp_cpu.h"
#include "kernels/gemm_cpu.h"
#include "kernels/registry.h"
#include "kernels/rows.h"
#include "kernels/unary.h"
#include "kernels/wave_check.h"

static int64_t held(int64_t i, int64_t count) { return i < 0 ? 0 : i < count ? i : count - 1; }

/* --- the ops without a filter --- */

static Status mean3(Exec *x, const void *args) {
    Mean3 a = *(const Mean3 *)args;
    TRY(wave_check_mean3(x, &a));
    rows_flatten(4, (Tensor *const[]){&a.y, &a.a, &a.b, &a.c});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], b[ROWS_SPAN], c[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.a, s);
        rows_load(b, &a.b, s);
        rows_load(c, &a.c, s);
        for (int64_t j = 0; j < s.n; j++) v[j] = (v[j] + b[j] + c[j]) * (1.0f / 3.0f);
        rows_store(&a.y, s, v);
    }
    return OK;
}

static Status magnitude(Exec *x, const void *args) {
    const Magnitude *a = args;
    TRY(wave_check_magnitude(x, a));
    const int64_t n = a->y.shape[1];
    const Tensor re = tensor_slice(a->x, 1, 0, n), im = tensor_slice(a->x, 1, n, n);
    Walk w = rows_walk(a->y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], b[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &re, s);
        rows_load(b, &im, s);
        for (int64_t j = 0; j < s.n; j++) v[j] *= v[j], b[j] *= b[j];
        rows_round(v, s.n, a->y.dtype);
        rows_round(b, s.n, a->y.dtype);
        for (int64_t j = 0; j < s.n; j++) v[j] += b[j];
        rows_round(v, s.n, a->y.dtype);
        for (int64_t j = 0; j < s.n; j++) v[j] = sqrtf(v[j]);
        rows_store(&a->y, s, v);
    }
    return OK;
}

/* --- filters --- */

typedef struct Filter {
    float f[WAVE_TAPS];
    int64_t taps;
} Filter;

static Filter filter_of(const Tensor *t) {
    Filter f = {.taps = tensor_numel(*t)};
    gemm_widen(f.f, t->data, t->dtype, F32, f.taps);
    return f;
}

typedef struct Up {
    const Tensor *x;
    Filter filter;
    int64_t ratio, pad, crop;
} Up;

/* Row t at the higher rate, channels [first, first + n), rounded. */
static void up_row(const Up *u, int64_t t, int64_t first, int64_t n, float *sum) {
    float v[ROWS_SPAN];
    for (int64_t j = 0; j < n; j++) sum[j] = 0;
    for (int64_t k = (t + u->crop) % u->ratio; k < u->filter.taps; k += u->ratio) {
        int64_t i = (t + u->crop - k) / u->ratio - u->pad; /* divides: no rounding */
        rows_load(v, u->x, (Span){held(i, u->x->shape[0]), first, n});
        for (int64_t j = 0; j < n; j++) sum[j] += u->filter.f[k] * v[j];
    }
    rows_round(sum, n, u->x->dtype);
    for (int64_t j = 0; j < n; j++) sum[j] *= (float)u->ratio;
    rows_round(sum, n, u->x->dtype);
}

static Status fir_up(Exec *x, const void *args) {
    const FirUp *a = args;
    TRY(wave_check_up(x, a));
    const Up up = {.x = &a->x, .filter = filter_of(&a->filter), .ratio = a->ratio, .pad = a->pad, .crop = a->crop};
    Walk w = rows_walk(a->y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float sum[ROWS_SPAN];
        Span s = rows_span(&w, i);
        up_row(&up, s.row, s.first, s.n, sum);
        rows_store(&a->y, s, sum);
    }
    return OK;
}

/* --- snakes --- */

enum { TILE = 64 }; /* rows of y */

/* One call: what a channel's snake takes, and the filters. */
typedef struct Snakes {
    const SnakeFiltered *a;
    Up up;
    Filter down;
    const uint16_t *sine;         /* the table; NULL: in f32 */
    float *by, *inverse;          /* [C]: exp(alpha), 1 / (exp(beta) + 1e-9) */
    int64_t rows, channels, lead; /* of s; lead: taps before 2 t */
} Snakes;

static void constants(const Exec *x, const Snakes *k) {
    const bool bf16 = k->a->x.dtype == BF16;
    for (int64_t c = 0; c < k->channels; c++) {
        float alpha, beta;
        rows_load(&alpha, &k->a->alpha, (Span){0, c, 1});
        rows_load(&beta, &k->a->beta, (Span){0, c, 1});
        alpha = bf16 ? bf16_to_f32(x->unary->table[UNARY_EXP][bf16_from_f32(alpha)]) : expf(alpha);
        beta = bf16 ? bf16_to_f32(x->unary->table[UNARY_EXP][bf16_from_f32(beta)]) : expf(beta);
        float sum = beta + 1e-9f;
        k->by[c] = alpha;
        k->inverse[c] = bf16 ? bf16_round(1.0f / bf16_round(sum)) : 1.0f / sum;
    }
}

/* Row t at the double rate, behind its snake. */
static void snake_row(const Snakes *k, int64_t t, float *to) {
    const DType type = k->a->x.dtype;
    for (int64_t first = 0; first < k->channels; first += ROWS_SPAN) {
        const int64_t n = gemm_min(k->channels - first, ROWS_SPAN);
        float v[ROWS_SPAN], *u = to + first;
        const float *by = k->by + first, *inverse = k->inverse + first;
        up_row(&k->up, t, first, n, u);
        for (int64_t j = 0; j < n; j++) v[j] = u[j] * by[j];
        if (k->sine)
            for (int64_t j = 0; j < n; j++) v[j] = bf16_to_f32(k->sine[bf16_from_f32(v[j])]);
        else
            for (int64_t j = 0; j < n; j++) v[j] = sinf(v[j]);
        for (int64_t j = 0; j < n; j++) v[j] *= v[j];
        rows_round(v, n, type);
        for (int64_t j = 0; j < n; j++) v[j] *= inverse[j];
        rows_round(v, n, type);
        for (int64_t j = 0; j < n; j++) u[j] += v[j];
        rows_round(u, n, type);
    }
}

/* Rows [t0, t0 + n) of y; s: room for the rows at the double rate that they see. */
static void snake_tile(const Snakes *k, int64_t t0, int64_t n, float *s) {
    const int64_t c = k->channels, from = held(2 * t0 - k->lead, k->rows);
    const int64_t last = held(2 * (t0 + n - 1) - k->lead + k->down.taps - 1, k->rows);
    for (int64_t t = from; t <= last; t++) snake_row(k, t, s + (t - from) * c);
    for (int64_t t = t0; t < t0 + n; t++)
        for (int64_t first = 0; first < c; first += ROWS_SPAN) {
            float sum[ROWS_SPAN] = {0};
            const int64_t m = gemm_min(c - first, ROWS_SPAN);
            for (int64_t tap = 0; tap < k->down.taps; tap++) {
                const float *v = s + (held(2 * t + tap - k->lead, k->rows) - from) * c + first;
                for (int64_t j = 0; j < m; j++) sum[j] += k->down.f[tap] * v[j];
            }
            rows_store(&k->a->y, (Span){t, first, m}, sum);
        }
}

typedef struct SnakeRoom {
    int threads;
    size_t by, inverse, rows, per_thread, total;
} SnakeRoom;

static SnakeRoom snake_room(const SnakeFiltered *a) {
    SnakeRoom r = {.threads = gemm_threads()};
    const int64_t c = a->x.shape[1];
    r.by = gemm_piece(&r.total, c);
    r.inverse = gemm_piece(&r.total, c);
    r.rows = r.total;
    gemm_piece(&r.per_thread, (2 * TILE + WAVE_TAPS) * c);
    r.total += r.per_thread * (size_t)r.threads;
    return r;
}

static size_t snake_scratch(const Exec *x, const void *args) {
    (void)x;
    return snake_room(args).total;
}

static Status snake_filtered(Exec *x, const void *args) {
    const SnakeFiltered *a = args;
    TRY(wave_check_snake(x, a));
    if (a->x.dtype == BF16 && !x->unary)
        return fail(x->error, ERR_MODEL, "snake_filtered: the tables of the BF16 functions are not open");
    const SnakeRoom r = snake_room(a);
    char *scratch = arena_push(x->scratch, r.total);
    if (!scratch) return fail(x->error, ERR_MEMORY, "snake_filtered: no scratch of %zu bytes", r.total);
    const int64_t taps = tensor_numel(a->up), rows = a->x.shape[0];
    Snakes k = {.a = a,
                .down = filter_of(&a->down),
                .rows = 2 * rows,
                .channels = a->x.shape[1],
                .lead = taps / 2 - 1,
                .sine = a->x.dtype == BF16 ? x->unary->table[UNARY_SIN] : NULL,
                .by = (float *)(void *)(scratch + r.by),
                .inverse = (float *)(void *)(scratch + r.inverse)};
    k.up = (Up){.x = &a->x,
                .filter = filter_of(&a->up),
                .ratio = 2,
                .pad = taps / 2 - 1,
                .crop = 2 * (taps / 2 - 1) + (taps - 2) / 2};
    constants(x, &k);
#pragma omp parallel for schedule(dynamic, 1) num_threads(r.threads)
    for (int64_t t = 0; t < rows; t += TILE)
        snake_tile(&k, t, gemm_min(rows - t, TILE),
                   (float *)(void *)(scratch + r.rows + r.per_thread * (size_t)gemm_thread()));
    return OK;
}

const Impl WAVE_CPU[] = {
    {OP_mean3, "cpu", mean3, NULL, NULL},
    {OP_magnitude, "cpu", magnitude, NULL, NULL},
    {OP_fir_up, "cpu", fir_up, NULL, NULL},
    {OP_snake_filtered, "cpu", snake_filtered, snake_scratch, NULL},
};
const int WAVE_CPU_COUNT = sizeof WAVE_CPU / sizeof *WAVE_CPU;
