/* golden_bench.h - a part against its goldens, clean and with faults, as test programs of one part need it: clean runs in several
 * manners, tensors perturbed or exchanged, ops replaced. A fault must raise some stage above its limit and at least tenfold.
 *
 * The program says how the part is run (measure) and written (write). State is per program, as in expect.h.
 * Easy to get wrong: the clean metrics a fault is judged by are those of the manner that the fault is run in. */
#ifndef GOLDEN_BENCH_H
#define GOLDEN_BENCH_H

#include "expect.h"
#include "fault.h"
#include "mutate.h"

/* Of GOLDEN_F32's allowance: 3e-6 of the largest value, some fifty f32 roundings one after the other, which is what a tiny
 * part of five layers makes on its way. */
static const double BENCH_F32_LIMIT = 3e-6 / 1e-4;

typedef struct Bench Bench;
struct Bench {
    Golden g;
    char folder[500], model[600];
    const char *file;  /* of the weights in `model` */
    const char *name;  /* of the part, for messages */
    Status (*measure)(Bench *b, bool bf16); /* with g's stages cleared */
    void (*write)(Bench *b);                /* the folder as it was */
    GoldenStage clean[2][GOLDEN_STAGES];    /* F32, BF16 */
    int count[2];
};

static inline Status bench_measure(Bench *b, bool bf16) {
    b->g.stages = 0, b->g.worst = 0;
    return b->measure(b, bf16);
}

static inline void bench_clean(Bench *b, bool bf16, const char *manner) {
    Status s = bench_measure(b, bf16);
    double limit = bf16 ? 1 : BENCH_F32_LIMIT;
    if (s != OK) printf("%s, %s: %s\n", b->name, manner, b->g.error.text);
    expect(s == OK && b->g.stages > 0);
    for (int k = 0; k < b->g.stages; k++) {
        bool good = b->g.stage[k].metric <= limit;
        expect_at(good, b->g.stage[k].name, manner, 0);
        if (getenv("GOLDEN_VERBOSE") || !good)
            printf("%s, %-12s %-20s %.4f of the allowance\n", b->name, manner, b->g.stage[k].name, b->g.stage[k].metric / limit);
    }
    for (int k = 0; k < b->g.file.count; k++) { /* every golden output was compared */
        bool seen = !strchr(b->g.file.entry[k].name, '.') || strchr(b->g.file.entry[k].name, '@');
        for (int j = 0; j < b->g.stages; j++) seen |= !strcmp(b->g.stage[j].name, b->g.file.entry[k].name);
        expect_at(seen, b->g.file.entry[k].name, manner, 0);
    }
    memcpy(b->clean[bf16], b->g.stage, sizeof b->g.stage);
    b->count[bf16] = b->g.stages;
}

static inline void bench_judge(const Bench *b, bool bf16, const char *what) {
    double best = -1, got = 0, was = 0, limit = bf16 ? 1 : BENCH_F32_LIMIT;
    for (int i = 0; i < b->g.stages; i++)
        for (int k = 0; k < b->count[bf16]; k++) {
            const GoldenStage *now = &b->g.stage[i], *before = &b->clean[bf16][k];
            double factor = now->metric <= limit ? 0 : before->metric > 0 ? now->metric / before->metric : INFINITY;
            if (strcmp(now->name, before->name) || factor < best) continue;
            best = factor, got = now->metric, was = before->metric;
        }
    expect_at(best >= 10, what, bf16 ? "bf16" : "f32", 0);
    if (best < 10 || getenv("GOLDEN_VERBOSE")) printf("%s, %s: metric %.3g, without the fault %.3g\n", b->name, what, got, was);
}

/* Tensor a perturbed, or exchanged with another. */
static inline void bench_tensor(Bench *b, const char *a, const char *other) {
    MutateFile m = {0};
    char what[300];
    snprintf(what, sizeof what, "%.120s %.120s", a, other ? other : "perturbed");
    mutate_open(&m, b->model, b->file);
    if (other) mutate_swap(&m, a, other);
    else mutate_perturb(&m, a);
    mutate_save(&m);
    expect_at(bench_measure(b, false) == OK, what, b->g.error.text, 0);
    bench_judge(b, false, what);
    b->write(b);
}

/* Each tensor of the file perturbed; how many there were. */
static inline int bench_tensors(Bench *b) {
    MutateFile m = {0};
    enum { MOST = 128 };
    static char names[MOST][96]; /* lint: allow-static (test program) */
    mutate_open(&m, b->model, b->file);
    int count = m.st.count;
    for (int i = 0; i < count && i < MOST; i++) snprintf(names[i], sizeof names[i], "%s", m.st.entry[i].name);
    safetensors_close(&m.st);
    free(m.bytes);
    for (int i = 0; i < count && i < MOST; i++) bench_tensor(b, names[i], NULL);
    return count;
}

typedef struct BenchFault { const char *what; Impl impl; } BenchFault;

static inline void bench_faults(Bench *b, const BenchFault *faults, size_t count) {
    for (size_t i = 0; i < count; i++) {
        bool row_bits = b->g.ops.row_bits;
        fault_mount(&b->g, &faults[i].impl);
        b->g.ops.row_bits = row_bits;
        expect_at(bench_measure(b, true) == OK, faults[i].what, b->g.error.text, 0);
        bench_judge(b, true, faults[i].what);
    }
    bool row_bits = b->g.ops.row_bits;
    fault_mount(&b->g, NULL);
    b->g.ops.row_bits = row_bits;
}

#endif
