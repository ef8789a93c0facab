/* checkop.c - runs every variant of every op against the model of its case generator, in the manner of dav1d's
 * checkasm.
 *
 * For each case and variant: outputs are poisoned, guard bands and gaps surround every buffer, inputs must stay as
 * they were, four runs (thread counts: default, 1, 2, 3) must give equal bits, the dry mode must touch nothing, the
 * scratch used must be within what the variant declared, the dispatch counter must show that the variant ran. Cases
 * run in a child process: a crash is one FAIL and the rest goes on. A failure prints the command that repeats it.
 * Easy to get wrong: nothing here may read device memory except through Device.download, and the parent must start no
 * threads before it forks. */
#include "check.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

typedef struct Options {
    const char *program, *op;
    long single;   /* -1: all cases */
    uint64_t seed;
    bool small, bench, verbose;
    int threads;   /* OpenMP's own choice (OMP_NUM_THREADS) */
} Options;

/* A device with its table. The CUDA backend becomes the second row. */
typedef struct Backend {
    const char *name;
    Device (*device)(void);
    void (*table)(Ops *ops);
} Backend;

static const Backend BACKENDS[] = {{"cpu", device_cpu, ops_cpu}};
enum { BACKEND_COUNT = sizeof BACKENDS / sizeof *BACKENDS };

typedef enum Verdict { BEGIN, PASS, FAIL, SKIP, END } Verdict;

typedef struct Report { /* child to parent, one write each: below PIPE_BUF */
    Verdict verdict;
    int index;
    char text[1000];
} Report;

/* --- one run --- */

typedef struct Bench {
    Device device;
    Arena memory, scratch, work;
    Calls calls;
    Ops ops;
    Error error;
    Exec x;
    int threads;
} Bench;

static void set_threads(int n) {
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
}

static int default_threads(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static Status place(Bench *t, Case *c) {
    arena_reset(&t->memory, 0);
    for (int k = 0; k < c->count; k++) {
        Buf *b = &c->buf[k];
        char *base = arena_push(&t->memory, b->bytes);
        if (!base) return fail(&t->error, ERR_MEMORY, "the arena of the case is too small");
        b->view.data = base + b->lead;
        for (int s = 0; s < CHECK_SLOTS; s++)
            if (b->slot[s]) b->slot[s]->data = b->view.data;
        TRY(t->device.upload(&t->device, base, b->image, b->bytes, &t->error));
    }
    return OK;
}

static Status fetch(Bench *t, const Case *c, char **images) {
    for (int k = 0; k < c->count; k++) {
        const Buf *b = &c->buf[k];
        TRY(t->device.download(&t->device, images[k], (char *)b->view.data - b->lead, b->bytes, &t->error));
    }
    return OK;
}

#define WRONG(...) return snprintf(text, size, __VA_ARGS__), false

static bool untouched(const Case *c, char **images, const char *when, char *text, size_t size) {
    for (int k = 0; k < c->count; k++)
        if (!check_outside_equal(&c->buf[k], images[k]))
            WRONG("%s: %s %s", when, c->buf[k].name,
                  c->buf[k].out ? "was written outside its elements" : "is an input and was changed");
    return true;
}

static bool refused(Bench *t, const Case *c, Status got, char *text, size_t size) {
    if (got != c->status) WRONG("status %d (%.150s), expected %d", got, t->error.text, c->status);
    if (c->refusal && !strstr(t->error.text, c->refusal))
        WRONG("the message \"%.150s\" does not say \"%s\"", t->error.text, c->refusal);
    return true;
}

static bool same_outputs(const Case *c, char **images, float **first, const char *what, char *text, size_t size) {
    for (int k = 0; k < c->count; k++) {
        if (!c->buf[k].out) continue;
        float *now = malloc((size_t)c->buf[k].n * sizeof *now + 1);
        if (!now) exit(99);
        check_gather(&c->buf[k], images[k], now);
        bool same = !memcmp(now, first[k], (size_t)c->buf[k].n * sizeof *now);
        free(now);
        if (!same) WRONG("%s: %s has other bits than in the first run", what, c->buf[k].name);
    }
    return true;
}

/* All checks of one case with one variant. */
static bool check_variant(Bench *t, Case *c, char **images, float **first, char *text, size_t size) {
    const int threads[] = {t->threads, 1, 2, 3}, poison[] = {0x5a, 0xa5, 0x3c, 0x96};
    for (int run = -1; run < 4 + (c->twin != NULL); run++) {
        bool dry = run < 0, twin = run == 4;
        check_images(c, poison[run & 3]);
        t->error = (Error){0};
        if (place(t, c) != OK) WRONG("%.200s", t->error.text);
        set_threads(dry || twin ? t->threads : threads[run]);
        calls_free(&t->calls); /* scratch depends on the thread count: resolve again */
        t->x.dry = dry;
        t->scratch.peak = 0;
        Status got = twin ? c->twin(&t->x, &c->args) : op_run(&t->x, c->op, &c->args);
        size_t peak = t->scratch.peak, planned = 0;
        if (c->status != OK && dry) continue;
        if (c->status != OK) return refused(t, c, got, text, size);
        if (got != OK) WRONG("%.200s", t->error.text);
        if (fetch(t, c, images) != OK) WRONG("%.200s", t->error.text);
        if (!untouched(c, images, dry ? "dry run" : twin ? "twin" : "run", text, size)) return false;
        for (size_t i = 0; i < t->calls.capacity; i++)
            if (t->calls.slot[i].impl && t->calls.slot[i].op == c->op) planned = t->calls.slot[i].scratch;
        if (!twin && peak > (planned + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN)
            WRONG("used %zu bytes of scratch, declared %zu", peak, planned);
        if (!twin && calls_count(&t->calls, c->op) != !dry) WRONG("the dispatch counter did not count the run");
        if (dry) {
            for (int k = 0; k < c->count; k++)
                if (memcmp(images[k], c->buf[k].image, c->buf[k].bytes)) WRONG("dry run wrote %s", c->buf[k].name);
        } else if (run == 0) {
            for (int k = 0; k < c->count; k++) {
                if (!c->buf[k].out) continue;
                if (!check_judge(&c->buf[k], images[k], text, size)) return false;
                check_gather(&c->buf[k], images[k], first[k]);
            }
        } else {
            char what[48];
            snprintf(what, sizeof what, twin ? "the chain of ops" : "run with %d threads", threads[run & 3]);
            if (!same_outputs(c, images, first, what, text, size)) return false;
        }
    }
    return true;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void time_variant(Bench *t, Case *c, const char *variant) {
    double bytes = 0, best = 1e30, until = seconds() + 0.3;
    for (int k = 0; k < c->count; k++)
        bytes += (double)c->buf[k].n * (double)dtype_size(c->buf[k].view.dtype) * (c->buf[k].out && c->buf[k].v ? 2 : 1);
    set_threads(t->threads);
    t->x.dry = false;
    while (seconds() < until) {
        double start = seconds();
        if (op_run(&t->x, c->op, &c->args) != OK) return;
        double took = seconds() - start;
        if (took < best) best = took;
    }
    if (c->flops > 0) printf("%10.1f us %8.2f GFLOP/s", best * 1e6, c->flops / best * 1e-9);
    else printf("%10.1f us %8.2f GB/s   ", best * 1e6, bytes / best * 1e-9);
    printf("  %-8s %s: %s\n", variant, ops_info(c->op)->name, c->label);
    fflush(stdout);
}

/* --- the child --- */

static void tell(int pipe_fd, Verdict verdict, int index, const char *text) {
    Report r = {.verdict = verdict, .index = index};
    if (text) snprintf(r.text, sizeof r.text, "%s", text);
    if (write(pipe_fd, &r, sizeof r) != (ssize_t)sizeof r) exit(97);
}

static void make_case(Case *c, const CaseSet *set, const Options *o, int index) {
    *c = (Case){.op = set->op, .index = index, .seed = o->seed, .small = o->small};
    c->state = o->seed * 0x9e3779b97f4a7c15u + (uint64_t)set->op * 1000003u + (uint64_t)index;
    check_random(c);
    set->make(c);
}

static void run_case(const CaseSet *set, const Options *o, int index, const Backend *backend, const Unary *unary,
                     int pipe_fd) {
    Case *c = calloc(1, sizeof *c);
    if (!c) exit(99);
    make_case(c, set, o, index);
    if (o->bench && !c->bench) {
        check_free(c);
        free(c);
        return;
    }
    char *images[CHECK_BUFS] = {0}, text[800];
    float *first[CHECK_BUFS] = {0};
    size_t total = 0;
    for (int k = 0; k < c->count; k++) {
        total += c->buf[k].bytes + ARENA_ALIGN;
        images[k] = check_alloc(c, c->buf[k].bytes);
        if (c->buf[k].out) first[k] = check_alloc(c, (size_t)c->buf[k].n * sizeof(float));
    }
    Bench *t = calloc(1, sizeof *t);
    if (!t) exit(99);
    Ops all;
    t->device = backend->device();
    t->threads = o->threads;
    backend->table(&all);
    if (arena_open(&t->memory, &t->device, "case", total, &t->error) != OK ||
        arena_open(&t->scratch, &t->device, "scratch", (size_t)1 << 30, &t->error) != OK) {
        fprintf(stderr, "checkop: %s\n", t->error.text);
        exit(99);
    }
    for (int v = 0; v < all.count[c->op]; v++) {
        const Impl *impl = all.impl[c->op][v];
        t->ops = all; /* the twin may need other ops */
        t->ops.count[c->op] = 1;
        t->ops.impl[c->op][0] = impl;
        t->x = (Exec){.ops = &t->ops, .device = &t->device, .calls = &t->calls, .work = &t->work,
                      .scratch = &t->scratch, .error = &t->error, .dtype = c->args.first.dtype, .unary = unary};
        char why[256] = "", name[512];
        snprintf(name, sizeof name, "%s/%s %s", backend->name, impl->name, c->label);
        if (impl->accepts && !impl->accepts(&c->args, why, sizeof why)) {
            snprintf(text, sizeof text, "%s: refused: %s", name, why);
            tell(pipe_fd, SKIP, index, text);
            continue;
        }
        char said[sizeof text - sizeof name - 2] = "";
        bool good = check_variant(t, c, images, first, said, sizeof said);
        snprintf(text, sizeof text, "%s%s%s", name, good ? "" : ": ", said);
        tell(pipe_fd, good ? PASS : FAIL, index, text);
        if (good && o->bench) time_variant(t, c, impl->name);
        calls_free(&t->calls);
    }
    arena_close(&t->memory);
    arena_close(&t->scratch);
    free(t);
    check_free(c);
    free(c);
}

static void child(const CaseSet *set, const Options *o, int from, const Backend *backend, int pipe_fd) {
    Unary unary;
    if (unary_open(&unary, NULL) != OK) exit(99);
    for (int i = from; i < set->count; i++) {
        if (o->single >= 0 && o->single != i) continue;
        alarm(300); /* a hang is a failure too */
        tell(pipe_fd, BEGIN, i, NULL);
        run_case(set, o, i, backend, &unary, pipe_fd);
    }
    unary_close(&unary);
    tell(pipe_fd, END, set->count, NULL);
    exit(0);
}

/* --- the parent --- */

typedef struct Totals {
    int passed, failed, skipped;
} Totals;

static void failure(const Options *o, const CaseSet *set, int index, const char *text, Totals *totals) {
    totals->failed++;
    printf("FAIL %s case %d: %s\n     %s --op %s --case %d --seed %llu%s\n", ops_info(set->op)->name, index, text,
           o->program, ops_info(set->op)->name, index, (unsigned long long)o->seed, o->small ? " --small" : "");
    fflush(stdout);
}

static void run_set(const CaseSet *set, const Options *o, const Backend *backend, Totals *totals) {
    int next = 0;
    while (next < set->count) {
        int ends[2], at = next, status;
        fflush(stdout);
        if (pipe(ends)) exit(2);
        pid_t pid = fork();
        if (pid < 0) exit(2);
        if (!pid) {
            close(ends[0]);
            child(set, o, next, backend, ends[1]);
        }
        close(ends[1]);
        Report r = {.verdict = END};
        bool ended = false;
        while (read(ends[0], &r, sizeof r) == (ssize_t)sizeof r) {
            at = r.index;
            if (r.verdict == PASS) totals->passed++;
            if (r.verdict == SKIP) totals->skipped++;
            if (r.verdict == FAIL) failure(o, set, r.index, r.text, totals);
            if (r.verdict == END) ended = true;
            if (o->verbose && (r.verdict == PASS || r.verdict == SKIP))
                printf("%s %s case %d: %s\n", r.verdict == PASS ? "ok  " : "skip", ops_info(set->op)->name, r.index,
                       r.text);
        }
        close(ends[0]);
        waitpid(pid, &status, 0);
        if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
        char text[100];
        if (WIFSIGNALED(status)) snprintf(text, sizeof text, "crashed: %s", strsignal(WTERMSIG(status)));
        else snprintf(text, sizeof text, "the child ended with code %d", WEXITSTATUS(status));
        failure(o, set, at, text, totals);
        next = at + 1;
    }
}

static int usage(const char *program) {
    fprintf(stderr, "usage: %s [--op NAME] [--case N] [--seed S] [--small] [--bench] [--verbose]\n", program);
    return 2;
}

static bool parse(int argc, char **argv, Options *o) {
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--op") && more) o->op = argv[++i];
        else if (!strcmp(argv[i], "--case") && more) o->single = atol(argv[++i]);
        else if (!strcmp(argv[i], "--seed") && more) o->seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--small")) o->small = true;
        else if (!strcmp(argv[i], "--bench")) o->bench = true;
        else if (!strcmp(argv[i], "--verbose")) o->verbose = true;
        else return false;
    }
    return true;
}

int main(int argc, char **argv) {
    Options o = {.program = argv[0], .single = -1, .seed = 1, .threads = default_threads()};
    if (!parse(argc, argv, &o)) return usage(argv[0]);
    const struct { const CaseSet *set; int count; } groups[] = {
        {CHECK_MOVE, CHECK_MOVE_COUNT},     {CHECK_ELEMENTWISE, CHECK_ELEMENTWISE_COUNT},
        {CHECK_NORM, CHECK_NORM_COUNT},     {CHECK_LINEAR, CHECK_LINEAR_COUNT},
        {CHECK_ATTENTION, CHECK_ATTENTION_COUNT}, {CHECK_CONV, CHECK_CONV_COUNT},
    };
    Totals totals = {0};
    bool seen[OP_COUNT] = {0}, found = false;
    for (int b = 0; b < BACKEND_COUNT; b++) {
        Ops ops;
        BACKENDS[b].table(&ops);
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            for (int s = 0; s < groups[g].count; s++) {
                const CaseSet *set = &groups[g].set[s];
                seen[set->op] = true;
                if (o.op && strcmp(o.op, ops_info(set->op)->name) != 0) continue;
                found = true;
                if (!ops.count[set->op]) {
                    printf("FAIL %s: the %s table has no implementation\n", ops_info(set->op)->name, BACKENDS[b].name);
                    totals.failed++;
                    continue;
                }
                Totals before = totals;
                run_set(set, &o, &BACKENDS[b], &totals);
                if (!o.bench)
                    printf("%-4s %-18s %d variants, %d checks passed, %d failed\n", BACKENDS[b].name,
                           ops_info(set->op)->name, ops.count[set->op], totals.passed - before.passed,
                           totals.failed - before.failed);
            }
    }
    for (int op = 0; op < OP_COUNT; op++)
        if (!seen[op]) {
            printf("FAIL %s: the op has no case generator\n", ops_info((OpId)op)->name);
            totals.failed++;
        }
    if (o.op && !found) fprintf(stderr, "%s: no op is called %s\n", argv[0], o.op), totals.failed++;
    printf("cuda: not in this build, its variants were skipped\n");
    if (totals.skipped) printf("%d checks skipped: the variant refuses the shape\n", totals.skipped);
    printf("%d passed, %d failed\n", totals.passed, totals.failed);
    return totals.failed != 0;
}
