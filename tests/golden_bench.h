/* golden_bench.h - do a part's goldens notice? What the programs share that try it: runs without a fault, tensors perturbed or
 * exchanged, configs changed, ops replaced. A fault must raise some stage above its limit and at least tenfold, by as many
 * stages as the same run has without it.
 *
 * The program says how the part is run (measure) and writes its checkpoint into `clean`; faults go into the copy, `model`. A
 * part with several runs (versions, dtypes of a file, cases) sets `run`, and with it the folders, file and name, before each
 * call. State is per program, as in expect.h; GOLDEN_VERBOSE=1 prints every fault.
 * Easy to get wrong: the stages that a fault is judged by are those of the run and dtype that it is tried in, so keep each. */
#ifndef GOLDEN_BENCH_H
#define GOLDEN_BENCH_H

#include "fault.h"
#include "golden_judge.h"
#include "mutate.h"

#include <omp.h>

/* Of GOLDEN_F32's allowance: 3e-6 of the largest value, some fifty f32 roundings one after the other, which is what a tiny
 * part of five layers makes on its way. */
static const double BENCH_F32_LIMIT = 3e-6 / 1e-4;

enum { BENCH_RUNS = 16 };

typedef struct BenchSheet { GoldenStage stage[GOLDEN_STAGES]; int count; } BenchSheet;

typedef struct Bench Bench;
struct Bench {
    Golden g;
    char folder[500];             /* removed at the end */
    char clean[600], model[600];  /* without a fault; with one, else the same */
    const char *file, *config;    /* weights and config in both */
    const char *name;             /* of the part, for messages */
    double f32_limit;             /* of GOLDEN_F32's allowance */
    bool bf16;                    /* faults of the checkpoint are tried in BF16, else in F32 */
    int run;                      /* below BENCH_RUNS */
    Status (*measure)(Bench *b, const char *folder, bool bf16);
    BenchSheet sheet[BENCH_RUNS][2]; /* without a fault, by run and dtype (F32, BF16) */
};

/* An empty bench on the CPU: the table, and names of folders in a temporary one that programs fill or replace. The sheets make
 * it large: not for the stack. */
static inline Status bench_open(Bench *b) {
    *b = (Bench){.f32_limit = 1, .config = "config.json"};
    omp_set_num_threads(1); /* tiny tensors: threads only wait for each other */
    expect_folder(b->folder, sizeof b->folder);
    snprintf(b->clean, sizeof b->clean, "%s/clean", b->folder);
    snprintf(b->model, sizeof b->model, "%s/model", b->folder);
    return golden_open(&b->g);
}

static inline int bench_close(Bench *b) {
    golden_close(&b->g);
    expect_cleanup(b->folder);
    return expect_done();
}

static inline double bench_limit(const Bench *b, bool bf16) { return bf16 ? 1 : b->f32_limit; }

static inline void bench_clear(Bench *b) {
    golden_clear(&b->g);
    b->g.error = (Error){0};
}

static inline Status bench_measure(Bench *b, const char *folder, bool bf16) {
    bench_clear(b);
    return b->measure(b, folder, bf16);
}

/* --- without a fault --- */

static inline void bench_note(Bench *b, bool bf16) {
    BenchSheet *s = &b->sheet[b->run][bf16];
    memcpy(s->stage, b->g.stage, sizeof s->stage);
    s->count = b->g.stages;
}

/* One run, one expectation. */
static inline void bench_keep(Bench *b, bool bf16) {
    expect_at(bench_measure(b, b->clean, bf16) == OK && b->g.worst <= bench_limit(b, bf16), b->name, b->g.error.text, b->run);
    bench_note(b, bf16);
}

/* The model as it is now, every stage and every golden output an expectation. */
static inline void bench_clean(Bench *b, bool bf16, const char *manner) {
    golden_within(&b->g, bench_measure(b, b->model, bf16), manner, bench_limit(b, bf16));
    golden_all_seen(&b->g, manner, false);
    bench_note(b, bf16);
}

/* --- faults --- */

static inline void bench_judge(const Bench *b, bool bf16, const char *what) {
    const BenchSheet *clean = &b->sheet[b->run][bf16];
    double best = -1, got = 0, was = 0;
    for (int i = 0; i < b->g.stages; i++)
        for (int k = 0; k < clean->count; k++) {
            const GoldenStage *now = &b->g.stage[i], *before = &clean->stage[k];
            double factor = now->metric <= bench_limit(b, bf16) ? 0
                            : before->metric > 0                ? now->metric / before->metric
                                                                : INFINITY;
            if (strcmp(now->name, before->name) || factor < best) continue;
            best = factor, got = now->metric, was = before->metric;
        }
    bool noticed = best >= 10 && b->g.stages == clean->count;
    expect_at(noticed, what, b->name, b->run);
    if (!noticed || getenv("GOLDEN_VERBOSE"))
        printf("%s %s, %s: metric %.3g, without the fault %.3g\n", b->name, bf16 ? "bf16" : "f32", what, got, was);
}

static inline void bench_put_back(const Bench *b, const char *file) {
    char from[1200], to[1200], *bytes;
    size_t size;
    Error e = {0};
    snprintf(from, sizeof from, "%s/%s", b->clean, file);
    snprintf(to, sizeof to, "%s/%s", b->model, file);
    if (file_read(from, &bytes, &size, &e) != OK) mutate_stop(from, e.text);
    mutate_write(to, bytes, size);
    free(bytes);
}

/* Tensor a exchanged with another, or its n rows at i with those at j, or perturbed. */
static inline void bench_edit(Bench *b, const char *a, const char *other, int64_t i, int64_t j, int64_t n) {
    MutateFile m = {0};
    char what[300];
    if (n) snprintf(what, sizeof what, "%.120s rows exchanged %lld %lld", a, (long long)i, (long long)j);
    else snprintf(what, sizeof what, "%.120s %.120s", a, other ? other : "perturbed");
    mutate_open(&m, b->model, b->file);
    if (other) mutate_swap(&m, a, other);
    else if (n) mutate_swap_rows(&m, a, i, j, n);
    else mutate_perturb(&m, a);
    mutate_save(&m);
    expect_at(bench_measure(b, b->model, b->bf16) == OK, what, b->g.error.text, 0);
    bench_judge(b, b->bf16, what);
    bench_put_back(b, b->file);
}
static inline void bench_rows(Bench *b, const char *a, int64_t i, int64_t j, int64_t n) { bench_edit(b, a, NULL, i, j, n); }

static inline void bench_swaps(Bench *b, const char *const (*pair)[2], size_t count) {
    for (size_t i = 0; i < count; i++) bench_edit(b, pair[i][0], pair[i][1], 0, 0, 0);
}

/* Each tensor of the file perturbed, but for those that `silent` names (NULL: none does); how many they were. */
static inline int bench_tensors(Bench *b, bool (*silent)(const Bench *b, const char *tensor)) {
    MutateFile m = {0};
    int count = 0;
    mutate_open(&m, b->clean, b->file);
    for (int i = 0; i < m.st.count; i++) {
        if (silent && silent(b, m.st.entry[i].name)) continue;
        bench_edit(b, m.st.entry[i].name, NULL, 0, 0, 0);
        count++;
    }
    safetensors_close(&m.st);
    free(m.bytes);
    return count;
}

/* The model with another config, which is then put back: noticed, or refused with this text. */
static inline void bench_configured(Bench *b, const char *what, const char *refusal) {
    Status s = bench_measure(b, b->model, b->bf16);
    expect_at(refusal ? s == ERR_MODEL && strstr(b->g.error.text, refusal) : s == OK, what, b->g.error.text, 0);
    if (!refusal) bench_judge(b, b->bf16, what);
    bench_put_back(b, b->config);
}

/* A key of the config replaced. */
static inline void bench_config(Bench *b, const char *key, const char *value, const char *refusal) {
    char what[300];
    snprintf(what, sizeof what, "%.100s %.180s", key, value);
    mutate_json(b->model, b->config, key, value);
    bench_configured(b, what, refusal);
}

typedef struct BenchFault { const char *what; Impl impl; } BenchFault;

/* Mounts a fault, or none (NULL), in the table as it is otherwise. */
static inline void bench_mount(Bench *b, const Impl *impl) {
    bool row_bits = b->g.ops.row_bits;
    fault_mount(&b->g, impl);
    b->g.ops.row_bits = row_bits;
}

static inline void bench_fault(Bench *b, bool bf16, const char *what, const Impl *impl) {
    bench_mount(b, impl);
    expect_at(bench_measure(b, b->clean, bf16) == OK, what, b->g.error.text, 0);
    bench_judge(b, bf16, what);
    bench_mount(b, NULL);
}

/* In BF16. */
static inline void bench_faults(Bench *b, const BenchFault *faults, size_t count) {
    for (size_t i = 0; i < count; i++) bench_fault(b, true, faults[i].what, &faults[i].impl);
}

/* Stand-ins without a fault must be the ops, else their faults prove nothing. In BF16. */
static inline void bench_right(Bench *b, const Impl *impl, size_t count) {
    for (size_t i = 0; i < count; i++) {
        bench_mount(b, &impl[i]);
        expect_at(bench_measure(b, b->clean, true) == OK && b->g.worst <= 1, impl[i].name, b->g.error.text, (int)i);
        bench_mount(b, NULL);
    }
}

#endif
