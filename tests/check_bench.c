/* check_bench.c - see check_bench.h. Launches of a case and their clock, the machine's own rates, the table.
 *
 * Launch i works on copy i mod copies of the arguments. On a GPU batches of launches lie between two marks and nothing waits
 * until the last one; elsewhere each launch is timed by the host.
 * Easy to get wrong: an op that is shorter than its launch shows the rate of launching, printed above the table. */
#include "check_bench.h"

#include "check_shapes.h"
#include "core/clock.h"
#include "core/device_cuda.h"
#include "opcost.h"

#include <stdio.h>
#include <stdlib.h>
#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

enum { BATCHES = 11, BATCH_MOST = 64 };
static const double BATCH_SECONDS = 300e-6, WARM_SECONDS = 10e-3, HOST_SECONDS = 0.5;

/* --- time --- */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_size);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

/* What is timed: launch number i. */
typedef struct Work {
    Session *t;
    ShapeCopies *copies;
    OpId op;
    Status (*launch)(struct Work *w, int i);
} Work;

static Status launch_op(Work *w, int i) { return op_run(&w->t->x, w->op, &w->copies->args[i % w->copies->count]); }

/* Seconds of n launches by the device's marks. */
static Status batch(Work *w, int slot, int n, int *turn) {
    Device *d = &w->t->device;
    TRY(d->mark(d, slot, &w->t->error));
    for (int i = 0; i < n; i++) TRY(w->launch(w, (*turn)++));
    return d->mark(d, slot + 1, &w->t->error);
}

static int within(double n, int least, int most) { return n < least ? least : n > most ? most : (int)n; }

static Status time_on_device(Work *w, double *out) {
    Device *d = &w->t->device;
    int turn = 0;
    double each, all[BATCHES];
    for (int i = 0; i < 3; i++) TRY(w->launch(w, turn++)); /* plans are made here */
    TRY(batch(w, 0, 3, &turn));
    TRY(d->elapsed(d, 0, 1, &each, &w->t->error));
    each = each / 3 + 1e-9;
    for (int i = within(WARM_SECONDS / each, 3, 2000); i > 0; i--) TRY(w->launch(w, turn++));
    int n = within(BATCH_SECONDS / each, 2, BATCH_MOST);
    for (int b = 0; b < BATCHES; b++) TRY(batch(w, 2 * b, n, &turn));
    for (int b = BATCHES - 1; b >= 0; b--) TRY(d->elapsed(d, 2 * b, 2 * b + 1, &all[b], &w->t->error));
    *out = median(all, BATCHES) / n;
    return OK;
}

static Status time_on_host(Work *w, double *out) {
    enum { MOST = 51 };
    double all[MOST], until = 0;
    int n = 0;
    TRY(w->launch(w, 0));
    do {
        double start = clock_now();
        if (!until) until = start + HOST_SECONDS;
        TRY(w->launch(w, n + 1));
        all[n] = clock_now() - start;
    } while (++n < MOST && (n < 3 || clock_now() < until));
    *out = median(all, n);
    return OK;
}

static Status time_of(Work *w, double *seconds) {
    calls_free(&w->t->calls);
    return w->t->device.mark ? time_on_device(w, seconds) : time_on_host(w, seconds);
}

/* --- what the machine can do --- */

static Status launch_copy(Work *w, int i) {
    Arena *a = &w->copies->arena;
    size_t half = a->capacity / 2;
    char *to = a->base + (i & 1 ? half : 0), *from = a->base + (i & 1 ? 0 : half);
#ifdef HAVE_CUDA
    if (w->t->cuda) {
        cudaError_t code = cudaMemcpyAsync(to, from, half, cudaMemcpyDeviceToDevice, device_cuda_stream(&w->t->device));
        return code == cudaSuccess ? OK : fail(&w->t->error, ERR_DEVICE, "copy: %s", cudaGetErrorString(code));
    }
#endif
    memcpy(to, from, half);
    return OK;
}

/* Bytes read and written a second by a copy of a large buffer, and the seconds of an op that does next to nothing. */
static Status measure_machine(Session *t, ShapeCopies *k, bool small, double *rate, double *launch) {
    static const ShapeCase least[] = {{OP_negate, "launch", {8}, NULL}};
    size_t bytes = small ? (size_t)64 << 20 : (size_t)2 << 30;
    double seconds;
    TRY(arena_open(&k->arena, &t->device, "copied", bytes, &t->error));
    TRY(shapes_fill(&t->device, &k->arena, &t->error));
    TRY(time_of(&(Work){t, k, OP_negate, launch_copy}, &seconds));
    *rate = (double)bytes / seconds;
    arena_reset(&k->arena, 0);
    k->count = 1;
    Negate *a = (Negate *)(void *)&k->args[0];
    *a = (Negate){.y = arena_tensor(&k->arena, BF16, 1, least->p), .x = arena_tensor(&k->arena, BF16, 1, least->p)};
    run_choose(t, OP_negate, BF16, t->ops.count[OP_negate] - 1, NULL);
    if (t->ops.count[OP_negate]) TRY(time_of(&(Work){t, k, OP_negate, launch_op}, launch));
    arena_close(&k->arena);
    return OK;
}

static size_t cache_size(const Session *t, bool small) {
#ifdef HAVE_CUDA
    int bytes = 0;
    if (t->cuda && cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, 0) == cudaSuccess && bytes > 0) return (size_t)bytes;
#endif
    (void)t;
    return (size_t)(small ? 2 : 32) << 20;
}

/* --- the table --- */

static void print_head(void) {
    printf("%-18s %-20s %10s %8s %8s %6s %7s  %s\n", "op", "variant", "us", "GB/s", "TFLOP/s", "copy", "speed",
           "place: shapes (speed: times the reference's; copy: share of the copy rate)");
}

static void print_row(const Session *t, const ShapeCase *c, const void *args, int variant, double seconds, double reference,
                      double rate) {
    char shape[200];
    double bytes = opcost_bytes(c->op, args), flops = opcost_flops(c->op, args);
    opcost_shape(c->op, args, shape, sizeof shape);
    printf("%-18s %-20s %10.2f %8.1f ", ops_info(c->op)->name, t->ops.impl[c->op][variant]->name, seconds * 1e6,
           bytes / seconds * 1e-9);
    if (flops > 0) printf("%8.2f ", flops / seconds * 1e-12);
    else printf("%8s ", "");
    printf("%5.1f%% ", 100 * bytes / seconds / rate);
    if (reference > 0) printf("%7.3f", reference / seconds);
    else printf("%7s", "");
    printf("  %s: %s\n", c->name, shape);
    fflush(stdout);
}

/* Failures of one case. */
static int run_case(Session *t, ShapeCopies *k, const ShapeCase *c, size_t l2, double rate) {
    int failed = 0, last = t->ops.count[c->op] - 1;
    double reference = 0;
    Arena scratch = t->scratch;
    Status s = shapes_open(k, c, t, BF16, 4 * l2);
    if (s != OK) printf("FAIL %s %s: %s\n", ops_info(c->op)->name, c->name, t->error.text), failed++;
    for (int v = last; s == OK && v >= 0; v--) {
        const Impl *impl = t->ops.impl[c->op][v];
        char why[256] = "";
        double seconds = 0;
        if (impl->accepts && !impl->accepts(&k->args[0], why, sizeof why)) {
            if (why[0]) printf("%-18s %-20s refuses: %s  %s\n", ops_info(c->op)->name, impl->name, why, c->name);
            continue;
        }
        run_choose(t, c->op, BF16, v, &k->args[0]);
        size_t need = impl->scratch ? impl->scratch(&t->x, &k->args[0]) : 0;
        t->error = (Error){0};
        t->scratch = (Arena){0};
        Status ran = arena_open(&t->scratch, &t->device, "scratch", need + 4096, &t->error);
        if (ran == OK) ran = time_of(&(Work){t, k, c->op, launch_op}, &seconds);
        arena_close(&t->scratch);
        if (ran != OK) {
            printf("FAIL %s %s %s: %s\n", ops_info(c->op)->name, impl->name, c->name, t->error.text);
            failed++;
            continue;
        }
        print_row(t, c, &k->args[0], v, seconds, v == last ? 0 : reference, rate);
        if (v == last) reference = seconds;
    }
    t->scratch = scratch;
    shapes_close(k);
    return failed;
}

static int run_backend_cases(Session *t, const char *op, bool small, bool *found) {
    ShapeCopies *k = calloc(1, sizeof *k);
    if (!k) exit(99);
    bool covered[OP_COUNT] = {0};
    int failed = 0;
    size_t l2 = cache_size(t, small);
    double rate = 0, launch = 0;
    CudaInfo info;
    if (measure_machine(t, k, small, &rate, &launch) != OK) {
        printf("FAIL %s: %s\n", t->backend, t->error.text);
        free(k);
        return 1;
    }
    printf("# %s%s%s: copies at %.1f GB/s (read and written), launches an op in %.2f us, L2 counted as %zu MiB\n", t->backend,
           device_cuda_info(&t->device, &info) ? ", " : "", info.name, rate * 1e-9, launch * 1e6, l2 >> 20);
    print_head();
    for (const ShapeCase *c = shapes_cases(small); c->name; c++) {
        covered[c->op] = true;
        if ((op && strcmp(op, ops_info(c->op)->name) != 0) || !t->ops.count[c->op]) continue;
        *found = true;
        failed += run_case(t, k, c, l2, rate);
    }
    for (int i = 0; i < OP_COUNT; i++)
        if (!covered[i]) printf("FAIL %s: no shape in tests/check_shapes_cases.c\n", ops_info((OpId)i)->name), failed++;
    free(k);
    return failed;
}

int bench_all(const char *backend, const char *op, bool small, int threads) {
    int failed = 0;
    bool found = false;
    for (int b = 0; b < RUN_BACKENDS; b++) {
        if (backend && strcmp(backend, run_backend(b)) != 0) continue;
        Session *t = calloc(1, sizeof *t);
        if (!t) exit(99);
        Status s = run_open(t, b, threads);
        if (s == OK) failed += run_backend_cases(t, op, small, &found);
        else printf("%s: %s\n", run_backend(b), t->error.text), failed += backend != NULL || s != ERR_DEVICE;
        run_close(t);
        free(t);
    }
    if (op && !found) printf("FAIL no such op or backend\n"), failed++;
    printf("%d failed\n", failed);
    return failed != 0;
}
