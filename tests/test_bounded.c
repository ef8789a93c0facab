/* test_bounded.c - the CPU table's BOUNDED ops against double precision, over odd shapes, strided views, stored weight
 * dtypes at odd addresses. Not a benchmark (bench_cpu.c), and EXACT ops are checkop's.
 *
 * Three properties per case. Error: |ours - exact| <= (2 E + u) S per output, where S is the sum of the magnitudes of
 * the terms (the condition of a sum), E the worst |naive - exact| / S of the plain sequential f32 computation with the
 * contract's roundings, u what a single term loses: a naive computation of a few terms may be right by luck. Rounding points (BF16): ours equals the contract's chain,
 * evaluated in double between the roundings, in all but CHAIN_SLACK of the elements: a sum in another order moves a
 * value by about sqrt(K) 2^-24 and so crosses a rounding boundary (spacing 2^-8) in less than 1 % of the elements,
 * while a missing or an added rounding changes 20 % and more. Frame: gaps of strided outputs untouched, scratch within
 * what was declared, equal bits over runs and over 1, 2 and 3 threads. */
#include "kernels/exp_cpu.h"
#include "kernels/registry.h"
#include "kernels/unary.h"
#include "ops.h"

#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const double CHAIN_SLACK = 0.03;
enum { GAP = 0x5a, SAMPLES = 3000 };

/* --- fixture --- */

typedef struct Bench {
    Ops ops;
    Device device;
    Calls calls;
    Arena work, scratch;
    Error error;
    Unary unary;
    Exec x;
    uint64_t random;
    int passed, failed;
    char what[160];
} Bench;

static void check(Bench *b, bool ok, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void check(Bench *b, bool ok, const char *format, ...) {
    b->passed += ok;
    b->failed += !ok;
    if (ok) return;
    va_list args;
    va_start(args, format);
    printf("FAIL %s: ", b->what);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

static double uniform(Bench *b) { /* splitmix64, in [-1, 1) */
    uint64_t z = b->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
}

static int64_t below(Bench *b, int64_t n) { return (int64_t)((uniform(b) + 1) / 2 * (double)n); }

static char *at(Tensor t, int64_t i) { /* i-th element in row-major order */
    int64_t o = 0;
    for (int d = t.rank - 1; d >= 0; d--) o += i % t.shape[d] * t.stride[d], i /= t.shape[d];
    return (char *)t.data + o * (int64_t)dtype_size(t.dtype);
}

static double get(Tensor t, int64_t i) {
    const char *p = at(t, i);
    float f;
    uint16_t h;
    if (t.dtype == F32) return memcpy(&f, p, 4), (double)f;
    memcpy(&h, p, 2);
    return (double)(t.dtype == BF16 ? bf16_to_f32(h) : f16_to_f32(h));
}

static void put(Tensor t, int64_t i, double v) {
    char *p = at(t, i);
    float f = (float)v;
    uint16_t h = t.dtype == BF16 ? bf16_from_f32(f) : f16_from_f32(f);
    if (t.dtype == F32) memcpy(p, &f, 4);
    else memcpy(p, &h, 2);
}

/* A tensor whose rows have `gap` spare elements, `odd` bytes off alignment, filled with scale * noise (0: outputs). */
static Tensor make(Bench *b, DType t, int64_t gap, int odd, double scale, int rank, const int64_t *shape) {
    Tensor r = tensor_make(NULL, t, rank, shape);
    for (int d = 0; d < rank - 1; d++) r.stride[d] = r.stride[d] / shape[rank - 1] * (shape[rank - 1] + gap);
    size_t bytes = (size_t)(rank > 1 ? shape[0] * r.stride[0] : shape[0]) * dtype_size(t) + 16;
    char *p = arena_push(&b->work, bytes);
    if (!p) {
        printf("out of work memory\n");
        exit(1);
    }
    memset(p, GAP, bytes);
    r.data = p + odd;
    for (int64_t i = 0; scale != 0 && i < tensor_numel(r); i++) put(r, i, scale * uniform(b) * (1 + uniform(b)));
    return r;
}
#define MAKE(b, t, gap, odd, scale, ...)                                                                       \
    make(b, t, gap, odd, scale, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static bool gaps_whole(Tensor t) {
    int64_t columns = t.shape[t.rank - 1], stride = t.rank > 1 ? t.stride[t.rank - 2] : columns;
    for (int64_t i = 0; i < tensor_numel(t) / columns; i++)
        for (size_t j = (size_t)columns * dtype_size(t.dtype); j < (size_t)stride * dtype_size(t.dtype); j++)
            if (at(t, i * columns)[j] != GAP) return false;
    return true;
}

static uint64_t hash(Tensor t) {
    uint64_t h = 1469598103934665603u;
    int64_t columns = t.shape[t.rank - 1];
    for (int64_t i = 0; i < tensor_numel(t); i += columns) {
        const char *row = at(t, i);
        for (size_t j = 0; j < (size_t)columns * dtype_size(t.dtype); j++)
            h = (h ^ (unsigned char)row[j]) * 1099511628211u;
    }
    return h;
}

/* Runs the op with 1, 3, 2 threads and again with 2: y must come out with the same bits each time. Inputs that the op
 * overwrites (y in place of x) are for run_once. */
static void run_once(Bench *b, OpId op, const void *args) {
    calls_free(&b->calls);
    b->scratch.peak = 0;
    const Impl *impl = b->ops.impl[op][b->ops.count[op] - 1];
    size_t declared = impl->scratch(&b->x, args);
    Status s = op_run(&b->x, op, args);
    check(b, s == OK, "status %d: %s", s, b->error.text);
    check(b, b->scratch.peak <= declared, "scratch %zu, declared %zu", b->scratch.peak, declared);
}

static void run(Bench *b, OpId op, const void *args, Tensor y) {
    static const int THREADS[] = {1, 3, 2, 2};
    uint64_t first = 0;
    for (int i = 0; i < 4; i++) {
        omp_set_num_threads(THREADS[i]);
        run_once(b, op, args);
        uint64_t h = hash(y);
        check(b, !i || h == first, "other bits with %d threads", THREADS[i]);
        first = h;
    }
    check(b, gaps_whole(y), "wrote between the rows");
}

static double rounded(DType t, double v) { return t == BF16 ? (double)bf16_round((float)v) : (double)(float)v; }

/* --- judging one case --- */

typedef struct Errors {
    double naive, worst; /* worst |naive - exact| / S and |ours - exact| / S over the outputs looked at */
    int64_t count, chain_differs;
} Errors;

static void errors_add(Errors *e, double ours, double exact, double naive, double chain, double magnitude) {
    if (!(magnitude > 0)) magnitude = 1e-30;
    double n = fabs(naive - exact) / magnitude, o = fabs(ours - exact) / magnitude;
    if (n > e->naive) e->naive = n;
    if (o > e->worst || isnan(o)) e->worst = o;
    e->count++;
    e->chain_differs += ours != chain;
}

/* roundings: f32 roundings that even one term goes through. */
static void errors_judge(Bench *b, const Errors *e, DType t, int roundings) {
    double u = roundings * 0x1p-24 + (t == BF16 ? 0x1p-9 : 0);
    check(b, e->count > 0 && e->worst <= 2 * e->naive + u, "error %.3g, naive %.3g", e->worst, e->naive);
    if (t == BF16)
        check(b, (double)e->chain_differs <= CHAIN_SLACK * (double)e->count + 2, "%lld of %lld elements off the chain",
              (long long)e->chain_differs, (long long)e->count);
}

/* The end of a product: bias and roundings, from a sum in double or f32. */
static double finish(DType t, double sum, const Tensor *bias, int64_t n, bool after) {
    if (!bias->rank) return rounded(t, sum);
    double add = get(*bias, n);
    return after ? rounded(t, rounded(t, sum) + add) : rounded(t, (float)(sum + add));
}

/* --- linear --- */

static void judge_linear(Bench *b, Tensor y, Tensor x, const Weight *w, bool after) {
    int64_t n = w->w.shape[0], k = w->w.shape[1], total = tensor_numel(y);
    Errors e = {0};
    for (int64_t s = 0; s < (total < SAMPLES ? total : SAMPLES); s++) {
        int64_t i = total < SAMPLES ? s : below(b, total), row = i / n, col = i % n;
        double exact = 0, size = 0;
        float naive = 0;
        for (int64_t j = 0; j < k; j++) {
            double p = get(x, row * k + j) * rounded(w->round, get(w->w, col * k + j));
            exact += p, size += fabs(p), naive += (float)p;
        }
        double bias = w->bias.rank ? get(w->bias, col) : 0;
        errors_add(&e, get(y, i), exact + bias, finish(y.dtype, (double)naive, &w->bias, col, after),
                   finish(y.dtype, exact, &w->bias, col, after), size + fabs(bias));
    }
    errors_judge(b, &e, y.dtype, 3);
}

static void test_linear(Bench *b) {
    static const struct { int64_t m, k, n, gap; int bias, after; } CASE[] = {
        {1, 64, 48, 0, 1, 0},    {1, 3072, 130, 0, 1, 0}, {3, 257, 65, 3, 1, 0},     {4, 1, 1, 0, 0, 0},
        {5, 33, 7, 5, 1, 1},     {77, 768, 513, 0, 1, 0}, {130, 1025, 300, 9, 0, 0}, {515, 130, 1030, 2, 1, 1},
        {2100, 4100, 9, 0, 1, 0}, /* x is widened in more than one chunk */
    };
    static const DType STORED[] = {F32, BF16, F16};
    for (size_t c = 0; c < sizeof CASE / sizeof *CASE; c++)
        for (int type = 0; type < 6; type++) {
            DType t = type & 1 ? BF16 : F32, stored = STORED[type / 2];
            int64_t m = CASE[c].m, k = CASE[c].k, n = CASE[c].n, gap = CASE[c].gap;
            if (k == 4100 && stored != BF16) continue;
            snprintf(b->what, sizeof b->what, "linear %lldx%lldx%lld gap %lld bias %d after %d, %s with %s weights",
                     (long long)m, (long long)k, (long long)n, (long long)gap, CASE[c].bias, CASE[c].after,
                     dtype_name(t), dtype_name(stored));
            size_t mark = arena_mark(&b->work);
            Weight w = {.w = MAKE(b, stored, 0, (int)(c % 2), 1, n, k), .round = t, .name = "w"};
            if (CASE[c].bias) w.bias = MAKE(b, t, 0, 0, 3, n);
            Linear a = {.y = MAKE(b, t, gap, 0, 0, m, n), .x = MAKE(b, t, gap, 0, 1, m, k), .w = &w,
                        .bias_mode = CASE[c].after};
            run(b, OP_linear, &a, a.y);
            judge_linear(b, a.y, a.x, &w, CASE[c].after);
            arena_reset(&b->work, mark);
        }
}

/* Stored dtype, packing and a third dimension are storage, not values: bits must not notice them. */
static void test_linear_forms(Bench *b) {
    for (int m = 2; m <= 34; m += 32) {
        size_t mark = arena_mark(&b->work);
        snprintf(b->what, sizeof b->what, "linear forms, %d rows", m);
        Tensor x = MAKE(b, BF16, 0, 0, 1, m, 200), y = MAKE(b, BF16, 0, 0, 0, m, 1040), y2 = y, slim = y;
        Weight w = {.w = MAKE(b, F32, 0, 1, 1, 1040, 200), .round = BF16, .bias = MAKE(b, BF16, 0, 0, 1, 1040)};
        Weight half = w, narrow = {.w = MAKE(b, BF16, 0, 0, 1, 70, 200), .round = BF16};
        half.w = MAKE(b, BF16, 0, 0, 0, 1040, 200);
        for (int64_t i = 0; i < 1040 * 200; i++) put(half.w, i, get(w.w, i));
        run(b, OP_linear, &(Linear){.y = y, .x = x, .w = &w}, y);
        uint64_t want = hash(y);
        run(b, OP_linear, &(Linear){.y = y, .x = x, .w = &half}, y);
        check(b, hash(y) == want, "F32 weights rounded to BF16 differ from BF16 weights");
        slim = MAKE(b, BF16, 0, 0, 0, m, 70);
        run(b, OP_linear, &(Linear){.y = slim, .x = x, .w = &narrow}, slim);
        uint64_t want_slim = hash(slim);
        y2 = MAKE(b, BF16, 4, 0, 0, m, 1040), slim = MAKE(b, BF16, 7, 0, 0, m, 70);
        run(b, OP_linear_many, &(LinearMany){.y = {slim, y2}, .x = x, .w = {&narrow, &half}}, y2);
        check(b, hash(y2) == want && hash(slim) == want_slim, "linear_many differs from linear");
        for (DType t = F32; t <= BF16; t++) { /* [2, m/2] rows, the first index three times further than the second */
            Weight v = {.w = MAKE(b, BF16, 0, 0, 1, 1040, 200), .round = t};
            Tensor x2 = MAKE(b, t, 0, 0, 1, m, 200), flat = MAKE(b, t, 0, 0, 0, m, 1040);
            Tensor x3 = tensor_slice(MAKE(b, t, 0, 0, 0, 2, 3 * m / 2, 200), 1, 0, m / 2);
            Tensor y3 = tensor_slice(MAKE(b, t, 0, 0, 0, 2, 3 * m / 2, 1040), 1, 0, m / 2);
            for (int64_t i = 0; i < m * 200; i++) put(x3, i, get(x2, i));
            run(b, OP_linear, &(Linear){.y = flat, .x = x2, .w = &v}, flat);
            run(b, OP_linear, &(Linear){.y = y3, .x = x3, .w = &v}, y3);
            check(b, hash(y3) == hash(flat), "rows with two strides differ from rows with one, %s", dtype_name(t));
        }
        Linear a = {.y = MAKE(b, BF16, 0, 0, 0, m, 1040), .x = x, .w = &w};
        run(b, OP_linear_gelu, &a, a.y);
        run_once(b, OP_linear, &(Linear){.y = y, .x = x, .w = &w});
        for (int64_t i = 0; i < tensor_numel(y); i++) {
            uint16_t h;
            memcpy(&h, at(y, i), 2);
            put(y, i, (double)bf16_to_f32(b->unary.table[UNARY_GELU_TANH][h]));
        }
        check(b, hash(a.y) == hash(y), "linear_gelu is not gelu of linear");
        arena_reset(&b->work, mark);
    }
}

static void test_linear_nan(Bench *b) {
    for (int m = 3; m <= 40; m += 37) {
        size_t mark = arena_mark(&b->work);
        snprintf(b->what, sizeof b->what, "linear NaN and inf, %d rows", m);
        Tensor x = MAKE(b, BF16, 0, 0, 1, m, 90), y = MAKE(b, BF16, 0, 0, 0, m, 33);
        Weight w = {.w = MAKE(b, BF16, 0, 0, 1, 33, 90), .round = BF16};
        put(x, 90 + 5, NAN), put(x, 2 * 90 + 7, INFINITY);
        run(b, OP_linear, &(Linear){.y = y, .x = x, .w = &w}, y);
        for (int64_t i = 0; i < m * 33; i++) {
            double v = get(y, i);
            int row = (int)(i / 33);
            check(b, row == 1 ? isnan(v) : row == 2 ? isinf(v) : isfinite(v), "row %d: %g", row, v);
        }
        arena_reset(&b->work, mark);
    }
}

/* --- attention --- */

typedef struct Heads {
    int64_t tq, tk, h, hk, e;
    int mask, bias;
    double scale;
} Heads;

/* Output (q, h, j) both ways. eager: the rounding chain of attention_eager; else flash. */
static void judge_attention(Bench *b, const Heads *c, Tensor o, Tensor q, Tensor k, Tensor v, Tensor bias, float scale,
                            bool eager) {
    DType t = o.dtype;
    Errors e = {0};
    double *exact = malloc(sizeof(double) * (size_t)c->tk), *chain = malloc(sizeof(double) * (size_t)c->tk);
    float *naive = malloc(sizeof(float) * (size_t)c->tk);
    for (int row = 0; row < 14; row++) {
        int64_t iq = below(b, c->tq), h = below(b, c->h), hk = h / (c->h / c->hk);
        int64_t keys = c->mask == MASK_CAUSAL && iq + 1 < c->tk ? iq + 1 : c->tk;
        double top = -INFINITY, chain_top = -INFINITY, sum = 0, chain_sum = 0;
        float naive_top = -INFINITY, naive_sum = 0;
        for (int64_t j = 0; j < keys; j++) {
            double dot = 0;
            float f = 0;
            for (int64_t i = 0; i < c->e; i++) {
                double p = get(q, (iq * c->h + h) * c->e + i) * get(k, (j * c->hk + hk) * c->e + i);
                dot += p, f += (float)p;
            }
            double add = bias.rank ? get(bias, (h * c->tq + iq) * c->tk + j) : 0;
            exact[j] = dot * (double)scale + add;
            if (eager) {
                double s = rounded(t, dot), n = rounded(t, (double)f);
                if (scale != 1.0f) s = rounded(t, s * (double)scale), n = rounded(t, n * (double)scale);
                if (bias.rank) s = rounded(t, s + add), n = rounded(t, n + add);
                chain[j] = s, naive[j] = (float)n;
            } else {
                chain[j] = exact[j], naive[j] = f * scale;
            }
            top = fmax(top, exact[j]), chain_top = fmax(chain_top, chain[j]), naive_top = fmaxf(naive_top, naive[j]);
        }
        for (int64_t j = 0; j < keys; j++) {
            sum += exact[j] = exp(exact[j] - top);
            chain_sum += chain[j] = exp(chain[j] - chain_top);
            naive_sum += naive[j] = expf(naive[j] - naive_top);
        }
        for (int64_t j = 0; j < keys; j++) {
            if (eager) chain[j] = rounded(t, chain[j] / chain_sum), naive[j] = (float)rounded(t, naive[j] / naive_sum);
            else chain[j] = rounded(t, chain[j]), naive[j] = (float)rounded(t, naive[j]);
        }
        for (int64_t i = 0; i < c->e; i++) {
            double y = 0, y_chain = 0, size = 0;
            float y_naive = 0;
            for (int64_t j = 0; j < keys; j++) {
                double value = get(v, (j * c->hk + hk) * c->e + i);
                y += exact[j] * value, size += exact[j] * fabs(value), y_chain += chain[j] * value;
                y_naive += naive[j] * (float)value;
            }
            if (!eager) y_chain /= chain_sum, y_naive /= naive_sum;
            errors_add(&e, get(o, (iq * c->h + h) * c->e + i), y / sum, rounded(t, y_naive), rounded(t, y_chain),
                       size / sum);
        }
    }
    if (!eager) e.chain_differs = 0; /* the running maximum decides which values are rounded: error bound only */
    errors_judge(b, &e, t, 6);
    free(exact), free(chain), free(naive);
}

static void test_attention(Bench *b, bool eager) {
    static const Heads CASE[] = {
        {1, 1, 1, 1, 8, 0, 0, 1},         {33, 33, 2, 2, 64, MASK_CAUSAL, 0, 0.125}, {200, 700, 2, 1, 72, 0, 1, 1},
        {576, 576, 1, 1, 128, 0, 0, 0.09}, {100, 1300, 1, 1, 512, 0, 0, 0.045},       {77, 77, 3, 3, 20, MASK_CAUSAL, 1, 1},
        {600, 600, 4, 2, 16, MASK_CAUSAL, 0, 0.25},
    };
    for (size_t c = 0; c < sizeof CASE / sizeof *CASE; c++)
        for (int type = 0; type < 3; type++) {
            const Heads *s = &CASE[c];
            DType t = type ? BF16 : F32;
            int64_t gap = type == 2 ? 24 : 0;
            snprintf(b->what, sizeof b->what, "%s %lldx%lld heads %lld/%lld of %lld mask %d bias %d gap %lld, %s",
                     eager ? "attention_eager" : "attention", (long long)s->tq, (long long)s->tk, (long long)s->h,
                     (long long)s->hk, (long long)s->e, s->mask, s->bias, (long long)gap, dtype_name(t));
            size_t mark = arena_mark(&b->work);
            double wide = sqrt(30 / (s->scale * sqrt((double)s->e))); /* logits of std around 4 */
            Tensor o = tensor_split(MAKE(b, t, gap, 0, 0, s->tq, s->h * s->e), s->e);
            Tensor q = tensor_split(MAKE(b, t, gap, 0, wide / 2, s->tq, s->h * s->e), s->e);
            Tensor k = tensor_split(MAKE(b, t, gap, 0, wide / 2, s->tk, s->hk * s->e), s->e);
            Tensor v = tensor_split(MAKE(b, t, gap, 0, 1, s->tk, s->hk * s->e), s->e), bias = {0};
            if (eager && s->bias) bias = MAKE(b, t, gap, 0, 4, s->h, s->tq, s->tk);
            float scale = (float)s->scale;
            if (eager) run(b, OP_attention_eager, &(AttentionEager){o, q, k, v, bias, scale, s->mask}, o);
            else run(b, OP_attention, &(Attention){o, q, k, v, scale, s->mask}, o);
            judge_attention(b, s, o, q, k, v, bias, scale, eager);
            arena_reset(&b->work, mark);
        }
}

static void test_flash(Bench *b) { test_attention(b, false); }
static void test_eager(Bench *b) { test_attention(b, true); }

/* --- convolution --- */

typedef struct Picture {
    int64_t y, x, in, out, k;
    int stride, top, left, bottom, right, up;
} Picture;

static void judge_conv(Bench *b, const Picture *c, Tensor y, Tensor x, const Weight *w) {
    int64_t total = tensor_numel(y), across = y.shape[1], height = c->y << c->up, width = c->x << c->up;
    Errors e = {0};
    for (int64_t s = 0; s < (total < SAMPLES ? total : SAMPLES); s++) {
        int64_t i = total < SAMPLES ? s : below(b, total), n = i % c->out, ox = i / c->out % across;
        int64_t oy = i / c->out / across;
        double exact = 0, size = 0;
        float naive = 0;
        for (int64_t dy = 0; dy < c->k; dy++)
            for (int64_t dx = 0; dx < c->k; dx++) {
                int64_t iy = oy * c->stride + dy - c->top, ix = ox * c->stride + dx - c->left;
                if (iy < 0 || ix < 0 || iy >= height || ix >= width) continue;
                for (int64_t j = 0; j < c->in; j++) {
                    double p = get(x, ((iy >> c->up) * c->x + (ix >> c->up)) * c->in + j) *
                               rounded(w->round, get(w->w, ((n * c->k + dy) * c->k + dx) * c->in + j));
                    exact += p, size += fabs(p), naive += (float)p;
                }
            }
        double bias = w->bias.rank ? get(w->bias, n) : 0;
        errors_add(&e, get(y, i), exact + bias, finish(y.dtype, (double)naive, &w->bias, n, true),
                   finish(y.dtype, exact, &w->bias, n, true), size + fabs(bias));
    }
    errors_judge(b, &e, y.dtype, 3);
}

static void test_conv(Bench *b) {
    static const Picture CASE[] = {
        {1, 1, 3, 5, 3, 1, 1, 1, 1, 1, 0},    {7, 9, 16, 40, 3, 1, 1, 1, 1, 1, 0},  {33, 35, 5, 3, 3, 1, 1, 1, 1, 1, 0},
        {20, 18, 8, 9, 3, 2, 0, 0, 1, 1, 0},  {41, 67, 24, 130, 1, 1, 0, 0, 0, 0, 0}, {70, 40, 32, 33, 3, 1, 1, 1, 1, 1, 0},
        {9, 11, 6, 10, 3, 1, 1, 1, 1, 1, 1},  {12, 10, 7, 4, 5, 3, 2, 0, 1, 4, 0},  {40, 36, 12, 8, 3, 1, 1, 1, 1, 1, 1},
        {16, 16, 256, 64, 3, 1, 1, 1, 1, 1, 0},
    };
    static const DType STORED[] = {F32, BF16, F16};
    for (size_t c = 0; c < sizeof CASE / sizeof *CASE; c++)
        for (int type = 0; type < 6; type++) {
            const Picture *s = &CASE[c];
            DType t = type & 1 ? BF16 : F32, stored = STORED[type / 2];
            int64_t gap = type & 2 ? 5 : 0;
            snprintf(b->what, sizeof b->what, "conv %lldx%lldx%lld to %lld, %lldx%lld stride %d up %d gap %lld, %s with %s",
                     (long long)s->y, (long long)s->x, (long long)s->in, (long long)s->out, (long long)s->k,
                     (long long)s->k, s->stride, s->up, (long long)gap, dtype_name(t), dtype_name(stored));
            size_t mark = arena_mark(&b->work);
            Weight w = {.w = MAKE(b, stored, 0, type & 1, 1, s->out, s->k, s->k, s->in), .round = t};
            if (type != 2) w.bias = MAKE(b, t, 0, 0, 3, s->out);
            int64_t down = ((s->y << s->up) + s->top + s->bottom - s->k) / s->stride + 1;
            int64_t across = ((s->x << s->up) + s->left + s->right - s->k) / s->stride + 1;
            Conv2d a = {.y = MAKE(b, t, gap, 0, 0, down, across, s->out), .x = MAKE(b, t, gap, 0, 1, s->y, s->x, s->in),
                        .w = &w, .stride = s->stride, .pad_top = s->top, .pad_left = s->left, .pad_bottom = s->bottom,
                        .pad_right = s->right};
            run(b, s->up ? OP_upsample_conv : OP_conv2d, &a, a.y);
            judge_conv(b, s, a.y, a.x, &w);
            arena_reset(&b->work, mark);
        }
}

/* --- group norm --- */

static void judge_groupnorm(Bench *b, Tensor y, Tensor x, const GroupNorm *a, bool silu) {
    int64_t channels = x.shape[2], group = channels / a->groups, pixels = x.shape[0] * x.shape[1];
    DType t = y.dtype;
    Errors e = {0};
    for (int64_t g = 0; g < a->groups; g++) {
        double mean = 0, var = 0, count = (double)(pixels * group);
        float naive_mean = 0, naive_var = 0;
        for (int64_t i = 0; i < pixels * group; i++) {
            double v = get(x, i / group * channels + g * group + i % group);
            mean += v / count, naive_mean += (float)v;
        }
        naive_mean /= (float)count;
        for (int64_t i = 0; i < pixels * group; i++) {
            double v = get(x, i / group * channels + g * group + i % group);
            float d = (float)v - naive_mean;
            var += (v - mean) * (v - mean) / count, naive_var += d * d;
        }
        naive_var /= (float)count;
        double rstd = 1 / sqrt(var + (double)a->eps);
        float naive_rstd = 1 / sqrtf(naive_var + a->eps);
        for (int64_t i = 0; i < pixels * group; i++) {
            int64_t c = g * group + i % group, at_x = i / group * channels + c;
            double v = get(x, at_x), w = get(a->w, c), add = get(a->b, c), n = (v - mean) * rstd;
            double exact = n * w + add, chain = rounded(t, exact), size = (fabs(v) + fabs(mean)) * rstd * fabs(w) + fabs(add);
            double naive = rounded(t, ((float)v - naive_mean) * naive_rstd * (float)w + (float)add);
            if (silu) {
                exact = exact / (1 + exp(-exact));
                naive = rounded(t, (float)naive / (1 + expf(-(float)naive)));
                uint16_t h = bf16_from_f32((float)chain);
                chain = t == BF16 ? (double)bf16_to_f32(b->unary.table[UNARY_SILU][h]) : chain;
                size *= 1.1; /* the slope of SiLU is at most 1.0999 */
            }
            errors_add(&e, get(y, at_x), exact, naive, chain, size);
        }
    }
    errors_judge(b, &e, t, 6);
}

static void test_groupnorm(Bench *b) {
    static const struct { int64_t y, x, c; int groups; double offset; } CASE[] = {
        {1, 1, 4, 2, 0}, {5, 7, 32, 8, 0}, {70, 33, 96, 32, 0}, {3, 5, 5000, 4, 0}, {130, 3, 6, 1, 1000}, {9, 9, 64, 64, -30},
    };
    for (size_t c = 0; c < sizeof CASE / sizeof *CASE; c++)
        for (int type = 0; type < 8; type++) {
            DType t = type & 1 ? BF16 : F32;
            bool silu = type & 2, strided = type & 4;
            snprintf(b->what, sizeof b->what, "groupnorm%s %lldx%lldx%lld in %d around %g%s, %s", silu ? "_silu" : "",
                     (long long)CASE[c].y, (long long)CASE[c].x, (long long)CASE[c].c, CASE[c].groups, CASE[c].offset,
                     strided ? " strided" : "", dtype_name(t));
            size_t mark = arena_mark(&b->work);
            int64_t gap = strided ? 3 : 0;
            GroupNorm a = {.y = MAKE(b, t, gap, 0, 0, CASE[c].y, CASE[c].x, CASE[c].c),
                           .x = MAKE(b, t, gap, 0, 4, CASE[c].y, CASE[c].x, CASE[c].c), .w = MAKE(b, t, 0, 0, 1, CASE[c].c),
                           .b = MAKE(b, t, 0, 0, 1, CASE[c].c), .eps = 1e-6f, .groups = CASE[c].groups};
            for (int64_t i = 0; i < tensor_numel(a.x); i++) put(a.x, i, get(a.x, i) + CASE[c].offset);
            OpId op = silu ? OP_groupnorm_silu : OP_groupnorm;
            run(b, op, &a, a.y);
            judge_groupnorm(b, a.y, a.x, &a, silu);
            uint64_t want = hash(a.y);
            a.y = a.x;
            run_once(b, op, &a);
            check(b, hash(a.x) == want, "in place differs");
            arena_reset(&b->work, mark);
        }
}

/* --- exp --- */

static void test_exp(Bench *b) {
    snprintf(b->what, sizeof b->what, "exp_f32");
    double worst = 0;
    float at_worst = 0;
    for (float x = -87.3f; x < 88.72f; x += 0.000173f) {
        double exact = exp((double)x), ulp = (double)(nextafterf((float)exact, INFINITY) - (float)exact);
        double off = fabs((double)exp_f32(x) - exact) / ulp;
        if (off > worst) worst = off, at_worst = x;
    }
    check(b, worst < 1, "%.3f ulp at %.9g", worst, (double)at_worst);
    check(b, exp_f32(0) == 1 && exp_f32(-INFINITY) == 0 && exp_f32(-100) == 0, "zero");
    check(b, isinf(exp_f32(88.73f)) && isinf(exp_f32(INFINITY)) && isinf(exp_f32(3e38f)), "infinity");
    check(b, isnan(exp_f32(NAN)) && isnan(exp_f32(-NAN)), "NaN");
}

int main(void) {
    Bench *b = calloc(1, sizeof *b);
    if (!b) return 1;
    b->device = device_cpu();
    b->random = 20;
    ops_cpu(&b->ops);
    if (arena_open(&b->work, &b->device, "work", (size_t)1 << 30, &b->error) != OK ||
        arena_open(&b->scratch, &b->device, "scratch", (size_t)1 << 30, &b->error) != OK ||
        unary_open(&b->unary, &b->error) != OK) {
        printf("%s\n", b->error.text);
        return 1;
    }
    b->x = (Exec){.ops = &b->ops, .device = &b->device, .calls = &b->calls, .work = &b->work, .scratch = &b->scratch,
                  .error = &b->error, .unary = &b->unary};
    void (*const TESTS[])(Bench *) = {test_exp, test_linear, test_linear_forms, test_linear_nan, test_flash, test_eager,
                                      test_conv, test_groupnorm};
    for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) TESTS[i](b);
    printf("%d passed, %d failed\n", b->passed, b->failed);
    int failed = b->failed;
    calls_free(&b->calls);
    unary_close(&b->unary);
    arena_close(&b->work);
    arena_close(&b->scratch);
    free(b);
    return failed != 0;
}
