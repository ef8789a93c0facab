/* test_bounded.c - what checkop cannot see of the CPU table's BOUNDED ops: the exponential they share, and equalities
 * between runs of different arguments (stored dtype, row strides, packing, chunks of x). Bounds, layouts, threads and
 * roundings of single calls are checkop's. */
#include "kernels/exp_cpu.h"
#include "kernels/registry.h"
#include "kernels/unary.h"
#include "ops.h"

#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { GAP = 0x5a };

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

/* --- linear --- */

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

/* x of more than 8 Mi elements is widened in chunks of rows: the same bits as row ranges that fit in one. */
static void test_linear_chunks(Bench *b) {
    enum { M = 2100, K = 4100, N = 9, PART = 700 };
    snprintf(b->what, sizeof b->what, "linear in chunks");
    size_t mark = arena_mark(&b->work);
    Weight w = {.w = MAKE(b, BF16, 0, 1, 1, N, K), .round = BF16, .bias = MAKE(b, BF16, 0, 0, 3, N)};
    Tensor x = MAKE(b, BF16, 0, 0, 0, M, K), whole = MAKE(b, BF16, 0, 0, 0, M, N), parts = MAKE(b, BF16, 0, 0, 0, M, N);
    uint16_t *v = x.data;
    for (int64_t i = 0; i < M * K; i++) v[i] = (uint16_t)(0x3f00 + (i * 2654435761u >> 9 & 0x80ff));
    run_once(b, OP_linear, &(Linear){.y = whole, .x = x, .w = &w});
    for (int64_t i = 0; i < M; i += PART)
        run_once(b, OP_linear, &(Linear){.y = tensor_slice(parts, 0, i, PART), .x = tensor_slice(x, 0, i, PART), .w = &w});
    check(b, hash(whole) == hash(parts), "chunks differ from row ranges");
    arena_reset(&b->work, mark);
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
    test_exp(b);
    test_linear_forms(b);
    test_linear_chunks(b);
    printf("%d passed, %d failed\n", b->passed, b->failed);
    int failed = b->failed;
    calls_free(&b->calls);
    unary_close(&b->unary);
    arena_close(&b->work);
    arena_close(&b->scratch);
    free(b);
    return failed != 0;
}
