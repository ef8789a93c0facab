/* checkop.c - runs every variant of every op against the model of its case generator, in the manner of dav1d's
 * checkasm.
 *
 * For each case and variant: outputs are poisoned, guard bands and gaps surround every buffer, inputs must stay as
 * they were, three runs (thread counts: default, 1, 2) must give equal bits, variants of EXACT ops those of the
 * table's reference; the dry mode must touch nothing, the scratch used must be within what the variant declared, the
 * dispatch counter must show that the variant ran. Cases run in a child process: a crash is one FAIL and the rest goes
 * on. A failure prints the command that repeats it.
 * --bench measures instead: check_bench.h; --dump writes calls for another program to repeat: check_dump.h.
 * Easy to get wrong: the parent must start no threads and touch no GPU before it forks. */
#include "check_bench.h"
#include "check_dump.h"
#include "check_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Options {
    const char *program, *op, *backend, *dump;
    long single; /* -1: all cases */
    int shard, shards; /* of each op's cases every shards-th one from shard on; shards 0: all */
    uint64_t seed;
    bool small, bench, f32, list, verbose;
    int threads; /* OpenMP's own choice (OMP_NUM_THREADS) */
} Options;

typedef enum Verdict { BEGIN, PASS, FAIL, SKIP, NO_DEVICE, END } Verdict;

typedef struct Report { /* child to parent, one write each: below PIPE_BUF */
    Verdict verdict;
    int index;
    char text[1000];
} Report;

/* --- the child --- */

static void tell(int pipe_fd, Verdict verdict, int index, const char *text) {
    Report r = {.verdict = verdict, .index = index};
    if (text) snprintf(r.text, sizeof r.text, "%.990s", text);
    if (write(pipe_fd, &r, sizeof r) != (ssize_t)sizeof r) exit(97);
}

static void make_case(Case *c, const CaseSet *set, const Options *o, bool gpu, bool keeps, int index) {
    *c = (Case){.op = set->op, .index = index, .seed = o->seed, .small = o->small, .gpu = gpu, .keeps = keeps};
    c->state = o->seed * 0x9e3779b97f4a7c15u + (uint64_t)set->op * 1000003u + (uint64_t)index;
    check_random(c);
    c->tidy = (uint32_t)index * 2654435761u >> 16 & 3; /* three in four; draws nothing, so that values stay */
    set->make(c);
}

/* The same inputs, judged by what the contract says without its inner roundings. */
static bool run_kept(Session *t, const CaseSet *set, const Options *o, int variant, int index, char *why, size_t size) {
    Case *c = calloc(1, sizeof *c);
    if (!c) exit(99);
    make_case(c, set, o, t->cuda != NULL, true, index);
    bool good = run_checks(t, c, variant, NULL, why, size);
    check_free(c);
    free(c);
    return good;
}

static void run_case(Session *t, const CaseSet *set, const Options *o, int index, int pipe_fd) {
    Case *c = calloc(1, sizeof *c);
    if (!c) exit(99);
    make_case(c, set, o, t->cuda != NULL, false, index);
    float *reference[CHECK_BUFS] = {0};
    for (int v = t->ops.count[c->op] - 1; v >= 0; v--) { /* the reference first */
        char text[900], name[320], why[300] = "";
        snprintf(name, sizeof name, "%s/%s %s", t->backend, t->ops.impl[c->op][v]->name, c->label);
        const Family *family = run_family(t, c->op, v);
        bool skips = run_refuses(t, c, v, why, sizeof why), good = skips;
        if (!skips && family && family->promise == BOUNDED)
            good = run_kept(t, set, o, v, index, why, sizeof why);
        else if (!skips)
            good = run_checks(t, c, v, reference, why, sizeof why);
        snprintf(text, sizeof text, "%s%s%s", name, why[0] ? ": " : "", why);
        tell(pipe_fd, skips ? SKIP : good ? PASS : FAIL, index, text);
    }
    check_free(c);
    free(c);
}

static void child(const CaseSet *set, const Options *o, int from, int backend, int pipe_fd) {
    Session *t = calloc(1, sizeof *t);
    if (!t) exit(99);
    alarm(300);
    Status opened = run_open(t, backend, o->threads);
    if (opened != OK) {
        tell(pipe_fd, opened == ERR_DEVICE ? NO_DEVICE : FAIL, 0, t->error.text);
        exit(opened == ERR_DEVICE ? 0 : 96);
    }
    for (int i = from; i < set->count; i++) {
        if ((o->single >= 0 && o->single != i) || (o->shards && i % o->shards != o->shard)) continue;
        alarm(300); /* a hang is a failure too */
        tell(pipe_fd, BEGIN, i, NULL);
        run_case(t, set, o, i, pipe_fd);
    }
    run_close(t);
    free(t);
    tell(pipe_fd, END, set->count, NULL);
    exit(0);
}

/* --- the parent --- */

typedef struct Totals {
    int passed, failed, skipped;
} Totals;

static void failure(const Options *o, const CaseSet *set, int index, const char *text, Totals *totals) {
    totals->failed++;
    printf("FAIL %s case %d: %s\n     %s --op %s --case %d --seed %llu%s\n", ops_info(set->op)->name, index,
           text, o->program, ops_info(set->op)->name, index, (unsigned long long)o->seed,
           o->small ? " --small" : "");
    fflush(stdout);
}

/* False when this machine lacks the device. */
static bool run_set(const CaseSet *set, const Options *o, int backend, Totals *totals) {
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
        bool ended = false, absent = false;
        while (read(ends[0], &r, sizeof r) == (ssize_t)sizeof r) {
            at = r.index;
            if (r.verdict == PASS) totals->passed++;
            if (r.verdict == SKIP) totals->skipped++;
            if (r.verdict == FAIL) failure(o, set, r.index, r.text, totals);
            if (r.verdict == END) ended = true;
            if (r.verdict == NO_DEVICE) absent = true;
            if (absent) printf("%s: all variants skipped: %s\n", run_backend(backend), r.text);
            if (o->verbose && (r.verdict == PASS || r.verdict == SKIP))
                printf("%s %s case %d: %s\n", r.verdict == PASS ? "ok  " : "skip", ops_info(set->op)->name,
                       r.index, r.text);
        }
        close(ends[0]);
        waitpid(pid, &status, 0);
        if (absent) return false;
        if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
        char text[100];
        if (WIFSIGNALED(status))
            snprintf(text, sizeof text, "crashed: %s", strsignal(WTERMSIG(status)));
        else
            snprintf(text, sizeof text, "the child ended with code %d", WEXITSTATUS(status));
        failure(o, set, at, text, totals);
        if (at < next) return true; /* it could not even start */
        next = at + 1;
    }
    return true;
}

/* --- all of it --- */

static int usage(const char *program) {
    fprintf(
        stderr,
        "usage: %s [--op NAME] [--case N] [--shard I/N] [--backend cpu|cuda] [--seed S] [--small] [--verbose]\n"
        "       %s --bench [--op NAME] [--backend cpu|cuda] [--small]\n"
        "       %s --dump DIR [--op NAME] [--backend cpu|cuda] [--small] [--f32]\n"
        "       %s --list [--backend cpu|cuda]\n",
        program, program, program, program);
    return 2;
}

static bool parse_shard(const char *text, Options *o) {
    char rest;
    return sscanf(text, "%d/%d%c", &o->shard, &o->shards, &rest) == 2 && o->shard >= 0 && o->shard < o->shards;
}

static bool parse(int argc, char **argv, Options *o) {
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--op") && more)
            o->op = argv[++i];
        else if (!strcmp(argv[i], "--case") && more)
            o->single = atol(argv[++i]);
        else if (!strcmp(argv[i], "--shard") && more) {
            if (!parse_shard(argv[++i], o)) return false;
        } else if (!strcmp(argv[i], "--backend") && more)
            o->backend = argv[++i];
        else if (!strcmp(argv[i], "--seed") && more)
            o->seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--dump") && more)
            o->dump = argv[++i];
        else if (!strcmp(argv[i], "--f32"))
            o->f32 = true;
        else if (!strcmp(argv[i], "--list"))
            o->list = true;
        else if (!strcmp(argv[i], "--small"))
            o->small = true;
        else if (!strcmp(argv[i], "--bench"))
            o->bench = true;
        else if (!strcmp(argv[i], "--verbose"))
            o->verbose = true;
        else
            return false;
    }
    return true;
}

static const CaseSet *set_of(OpId op) {
    const struct {
        const CaseSet *set;
        int count;
    } groups[] = {
        {CHECK_MOVE, CHECK_MOVE_COUNT},           {CHECK_ELEMENTWISE, CHECK_ELEMENTWISE_COUNT},
        {CHECK_NORM, CHECK_NORM_COUNT},           {CHECK_LINEAR, CHECK_LINEAR_COUNT},
        {CHECK_ATTENTION, CHECK_ATTENTION_COUNT}, {CHECK_CONV, CHECK_CONV_COUNT}, {CHECK_VIDEO, CHECK_VIDEO_COUNT},
        {CHECK_TEXT, CHECK_TEXT_COUNT}, {CHECK_RMS, CHECK_RMS_COUNT},
        {CHECK_WAVE, CHECK_WAVE_COUNT},
        {CHECK_GUIDE, CHECK_GUIDE_COUNT},
    };
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (int s = 0; s < groups[g].count; s++)
            if (groups[g].set[s].op == op) return &groups[g].set[s];
    return NULL;
}

/* All cases of one op on one backend; false when the backend is not there. */
static bool run_op(OpId op, int backend, const Options *o, Totals *totals) {
    const char *name = ops_info(op)->name;
    const CaseSet *set = set_of(op);
    int variants = run_variants(backend, op);
    if (!set || (!variants && !backend)) {
        printf("FAIL %s: %s\n", name,
               set ? "the CPU table has no implementation" : "the op has no case generator");
        totals->failed++;
        return true;
    }
    if (!variants) {
        printf("%-4s %-18s skipped: not implemented\n", run_backend(backend), name);
        return true;
    }
    Totals before = *totals;
    if (!run_set(set, o, backend, totals)) return false;
    printf("%-4s %-18s %d variant%s, %d checks passed, %d failed\n", run_backend(backend), name, variants,
           variants == 1 ? "" : "s", totals->passed - before.passed, totals->failed - before.failed);
    return true;
}

/* The ops that the backend has, with their promise. */
static int list(const Options *o) {
    int backend = o->backend && !strcmp(o->backend, run_backend(1));
    for (int op = 0; op < OP_COUNT; op++)
        if (run_variants(backend, (OpId)op))
            printf("%s %s\n", ops_info((OpId)op)->name, ops_info((OpId)op)->promise == EXACT ? "EXACT" : "BOUNDED");
    return 0;
}

int main(int argc, char **argv) {
    Options o = {.program = argv[0], .single = -1, .seed = 1, .threads = run_default_threads()};
    if (!parse(argc, argv, &o)) return usage(argv[0]);
    if (!getenv("OMP_WAIT_POLICY")) {
        /* Threads that spin at the end of thousands of tiny loops cost more than the loops; read when libgomp loads. */
        setenv("OMP_WAIT_POLICY", "passive", 1);
        execv("/proc/self/exe", argv);
    }
    if (o.list) return list(&o);
    if (o.dump) return dump_all(o.backend, o.op, o.small, o.f32, o.threads, o.dump);
    if (o.bench) return bench_all(o.backend, o.op, o.small, o.threads);
    Totals totals = {0};
    bool found = false;
    for (int b = 0; b < RUN_BACKENDS; b++) {
        int built = 0;
        for (int op = 0; op < OP_COUNT; op++) built += run_variants(b, (OpId)op);
        if (o.backend && strcmp(o.backend, run_backend(b)) != 0) continue;
        if (!built) printf("%s: all variants skipped: not in this build\n", run_backend(b));
        for (int op = 0; built && op < OP_COUNT; op++) {
            if (o.op && strcmp(o.op, ops_info((OpId)op)->name) != 0) continue;
            found = true;
            if (!run_op((OpId)op, b, &o, &totals)) break;
        }
    }
    if (!found) {
        fprintf(stderr, "%s: no such op or backend\n", argv[0]);
        totals.failed++;
    }
    if (totals.skipped) printf("%d checks skipped: the variant refuses the shape\n", totals.skipped);
    printf("%d passed, %d failed\n", totals.passed, totals.failed);
    return totals.failed != 0;
}
