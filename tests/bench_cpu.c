/* bench_cpu.c - how fast the CPU table's bounded ops are on this machine: `make bench`. Not a test of results.
 *
 * linear is set against one call of OpenBLAS' sgemm on f32 matrices of the same shape, with OpenBLAS' own threads: the
 * ratio says what widening, tiling and rounding cost. Both sides run in turns and the fastest turns are compared: what
 * else the machine does only ever adds time. Exit 1 when a shape is above LIMIT times sgemm.
 * Easy to get wrong: OpenBLAS has one thread count for the whole process; the ops set it to 1, the reference back. */
#include "core/clock.h"
#include "kernels/gemm_cpu.h"
#include "ops.h"

#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static const double LIMIT = 1.3;
enum { TURNS = 15 };

typedef struct Bench {
    Ops ops;
    Device device;
    Calls calls;
    Arena work, scratch;
    Error error;
    Exec x;
    int threads;
} Bench;

static Tensor fill(Bench *b, DType t, int rank, const int64_t *shape) {
    Tensor r = arena_tensor(&b->work, t, rank, shape);
    if (!r.data) {
        printf("out of memory\n");
        exit(1);
    }
    uint32_t u = 1;
    for (int64_t i = 0; i < tensor_numel(r); i++) {
        u = u * 1664525u + 1013904223u;
        float f = (float)(u >> 8) * 0x1p-23f - 1;
        if (t == F32) ((float *)r.data)[i] = f;
        else ((uint16_t *)r.data)[i] = bf16_from_f32(f);
    }
    return r;
}
#define FILL(b, t, ...) fill(b, t, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static void must(Bench *b, Status s) {
    if (s == OK) return;
    printf("%s\n", b->error.text);
    exit(1);
}

/* Time over sgemm's; prints one line. */
static double bench_linear(Bench *b, int64_t m, int64_t k, int64_t n, DType t, DType stored) {
    size_t mark = arena_mark(&b->work);
    Weight w = {.w = FILL(b, stored, n, k), .round = t, .bias = FILL(b, t, n), .name = "w"};
    Linear a = {.y = FILL(b, t, m, n), .x = FILL(b, t, m, k), .w = &w};
    float *fx = FILL(b, F32, m, k).data, *fw = FILL(b, F32, n, k).data, *fy = FILL(b, F32, m, n).data;
    double flops = 2.0 * (double)m * (double)n * (double)k, ours = INFINITY, blas = INFINITY;
    int turns = flops > 1e10 ? TURNS : 20 * TURNS;
    for (int i = 0; i < turns; i++) {
        openblas_set_num_threads(b->threads);
        double start = clock_now();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, (int)k, 1, fx, (int)k, fw, (int)k, 0, fy,
                    (int)n);
        double half = clock_now();
        must(b, op_linear(&b->x, &a));
        blas = fmin(blas, half - start), ours = fmin(ours, clock_now() - half);
    }
    printf("linear %5lld x %5lld x %5lld  %-4s weights %-4s  %9.3f ms  %6.1f GFLOP/s  sgemm %9.3f ms  ratio %.2f\n",
           (long long)m, (long long)k, (long long)n, dtype_name(t), dtype_name(stored), ours * 1e3, flops / ours * 1e-9,
           blas * 1e3, ours / blas);
    arena_reset(&b->work, mark);
    return ours / blas;
}

static void report(Bench *b, const char *what, OpId op, const void *args, double flops, double bytes) {
    double s = INFINITY;
    for (int i = 0; i < TURNS && (i < 3 || s < 0.2); i++) {
        double start = clock_now();
        must(b, op_run(&b->x, op, args));
        s = fmin(s, clock_now() - start);
    }
    printf("%-62s %9.3f ms  ", what, s * 1e3);
    if (flops > 0) printf("%6.1f GFLOP/s\n", flops / s * 1e-9);
    else printf("%6.1f GB/s\n", bytes / s * 1e-9);
}

static void bench_attention(Bench *b, int64_t t, int64_t h, int64_t e, DType type) {
    size_t mark = arena_mark(&b->work);
    Attention a = {.o = FILL(b, type, t, h, e), .q = FILL(b, type, t, h, e), .k = FILL(b, type, t, h, e),
                   .v = FILL(b, type, t, h, e), .scale = (float)(1 / sqrt((double)e))};
    char what[80];
    snprintf(what, sizeof what, "attention %lld tokens, %lld heads of %lld, %s", (long long)t, (long long)h,
             (long long)e, dtype_name(type));
    report(b, what, OP_attention, &a, 4.0 * (double)(t * t * h * e), 0);
    arena_reset(&b->work, mark);
}

static void bench_conv(Bench *b, int64_t side, int64_t in, int64_t out, int64_t k, bool up, DType type) {
    size_t mark = arena_mark(&b->work);
    Weight w = {.w = FILL(b, type, out, k, k, in), .round = type, .bias = FILL(b, type, out)};
    int pad = (int)k / 2;
    Conv2d a = {.y = FILL(b, type, side << up, side << up, out), .x = FILL(b, type, side, side, in), .w = &w, .stride = 1,
                .pad_top = pad, .pad_left = pad, .pad_bottom = pad, .pad_right = pad};
    char what[80];
    snprintf(what, sizeof what, "%s %lldx%lld, %lld to %lld channels, %lldx%lld, %s", up ? "upsample_conv" : "conv2d",
             (long long)side, (long long)side, (long long)in, (long long)out, (long long)k, (long long)k,
             dtype_name(type));
    report(b, what, up ? OP_upsample_conv : OP_conv2d, &a,
           2.0 * (double)((side << up) * (side << up) * in * out * k * k), 0);
    arena_reset(&b->work, mark);
}

static void bench_groupnorm(Bench *b, int64_t side, int64_t c, DType type) {
    size_t mark = arena_mark(&b->work);
    GroupNorm a = {.y = FILL(b, type, side, side, c), .x = FILL(b, type, side, side, c), .w = FILL(b, type, c),
                   .b = FILL(b, type, c), .eps = 1e-6f, .groups = 32};
    char what[80];
    snprintf(what, sizeof what, "groupnorm %lldx%lld, %lld channels, %s", (long long)side, (long long)side,
             (long long)c, dtype_name(type));
    report(b, what, OP_groupnorm, &a, 0, 3.0 * (double)tensor_bytes(a.x));
    arena_reset(&b->work, mark);
}

static Status nothing(Exec *x, const void *args) {
    (void)x, (void)args;
    return OK;
}
static Status digest(Rehearsal *r, Exec *x, Call *call, const void *args) {
    (void)r;
    x->last += (int)(op_digest(1, x, call, args) & 1); /* used, or the compiler drops it */
    return OK;
}

/* What the host spends on a call besides the launch, and on seeing one without it: calls of a FLUX.1 block at full size, on
 * addresses that nobody touches. */
static void bench_calls(Bench *b) {
    enum { ROUNDS = 20000, CALLS = 5 };
    static const Impl NOTHING[] = {{OP_ln_modulate, "nothing", nothing, NULL, NULL},
                                   {OP_linear_many, "nothing", nothing, NULL, NULL},
                                   {OP_qk_norm_rope_head, "nothing", nothing, NULL, NULL},
                                   {OP_attention, "nothing", nothing, NULL, NULL},
                                   {OP_residual_gate, "nothing", nothing, NULL, NULL}};
    enum { T = 4608, D = 3072, E = 128 };
    Exec x = b->x;
    Ops table = {0};
    Calls calls = {0};
    ops_append(&table, NOTHING, CALLS);
    x.ops = &table, x.calls = &calls;
    char *at = (char *)((uintptr_t)1 << 40);
    Tensor h = tensor_of(at, BF16, T, D), row = tensor_of(at, BF16, D), heads = tensor_split(h, E);
    Tensor cos = tensor_of(at, F32, T, E / 2), norm = tensor_of(at, BF16, E);
    Weight w = {.w = tensor_of(at, BF16, D, D), .bias = row, .round = BF16};
    Rehearsal seen = {digest};
    double best[2] = {INFINITY, INFINITY};
    for (int turn = 0; turn < 2 * TURNS; turn++) {
        x.rehearsal = turn & 1 ? &seen : NULL;
        double start = clock_now();
        for (int i = 0; i < ROUNDS; i++) {
            must(b, op_ln_modulate(&x, &(LnModulate){.y = h, .x = h, .shift = row, .scale = row, .eps = 1e-6f}));
            must(b, op_linear_many(&x, &(LinearMany){.y = {h, h, h}, .x = h, .w = {&w, &w, &w}}));
            must(b, op_qk_norm_rope_head(&x, &(QkNormRopeHead){.yq = heads, .yk = heads, .q = heads, .k = heads, .wq = norm,
                                                               .wk = norm, .cos = cos, .sin = cos, .eps = 1e-6f}));
            must(b, op_attention(&x, &(Attention){.o = heads, .q = heads, .k = heads, .v = heads, .scale = 0.1f}));
            must(b, op_residual_gate(&x, &(ResidualGate){.y = h, .residual = h, .x = h, .gate = row}));
        }
        best[turn & 1] = fmin(best[turn & 1], clock_now() - start);
    }
    for (int i = 0; i < 2; i++)
        printf("%-62s %9.1f ns\n", i ? "a call rehearsed" : "a call resolved and counted", best[i] / ROUNDS / CALLS * 1e9);
    calls_free(&calls);
}

int main(void) {
    Bench *b = calloc(1, sizeof *b);
    if (!b) return 1;
    b->device = device_cpu();
    b->threads = omp_get_max_threads();
    ops_cpu(&b->ops);
    must(b, arena_open(&b->work, &b->device, "work", (size_t)4 << 30, &b->error));
    must(b, arena_open(&b->scratch, &b->device, "scratch", (size_t)2 << 30, &b->error));
    b->x = (Exec){.ops = &b->ops, .device = &b->device, .calls = &b->calls, .work = &b->work, .scratch = &b->scratch,
                  .error = &b->error};
    printf("%d threads, OpenBLAS %s\n", b->threads, openblas_get_config());
    bench_calls(b);
    static const int64_t SHAPE[][3] = {{512, 4096, 4096}, {576, 128, 512}, {576, 512, 128}, {1024, 1536, 512},
                                       {77, 768, 3072},   {4096, 64, 1536}, {8, 3072, 3072}, {1, 3072, 18432}};
    double worst = 0;
    for (size_t i = 0; i < sizeof SHAPE / sizeof *SHAPE; i++) {
        double r = bench_linear(b, SHAPE[i][0], SHAPE[i][1], SHAPE[i][2], BF16, BF16);
        worst = fmax(worst, r);
    }
    worst = fmax(worst, bench_linear(b, 512, 4096, 4096, F32, F32));
    worst = fmax(worst, bench_linear(b, 512, 4096, 4096, F32, BF16));
    bench_attention(b, 576, 1, 128, BF16);
    bench_attention(b, 576, 2, 128, BF16);
    bench_attention(b, 1536, 4, 128, BF16);
    bench_attention(b, 1536, 4, 128, F32);
    bench_attention(b, 4096, 1, 512, BF16);
    bench_conv(b, 16, 16, 128, 3, false, BF16);
    bench_conv(b, 16, 128, 128, 3, false, BF16);
    bench_conv(b, 32, 128, 128, 3, true, BF16);
    bench_conv(b, 128, 32, 32, 3, false, BF16);
    bench_conv(b, 128, 32, 3, 3, false, BF16);
    bench_conv(b, 128, 512, 512, 3, false, BF16);
    bench_conv(b, 256, 128, 128, 3, false, F32);
    bench_conv(b, 256, 256, 128, 1, false, BF16);
    bench_groupnorm(b, 128, 32, BF16);
    bench_groupnorm(b, 512, 128, BF16);
    printf("linear: worst ratio to sgemm %.2f, limit %.2f\n", worst, LIMIT);
    calls_free(&b->calls);
    arena_close(&b->work);
    arena_close(&b->scratch);
    free(b);
    return worst > LIMIT;
}
