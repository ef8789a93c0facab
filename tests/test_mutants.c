/* test_mutants.c - do the goldens notice? Every fault must raise the golden's metric above its limit and at least
 * tenfold, else the golden counts as absent.
 *
 * Three kinds: faults in the checkpoint's bytes and configs (tests/mutants.tsv), every tensor of every part perturbed by
 * 10 % of its rms, and faulty ops (faults.h). Checkpoint faults run in f32, op faults in bf16, on the op's own golden
 * and, marked (block), on blocks fed with the reference's input. MUTANTS_TABLE=FILE writes the table that is
 * committed as tests/mutants-result.tsv.
 * Easy to get wrong: "tenfold" is against the same stage's metric without the fault, which can be 0; then the limit
 * alone decides. */
#include "expect.h"
#include "faults.h"
#include "golden_ops.h"
#include "golden_runs.h"
#include "mutate.h"

#include <omp.h>

/* The stages of one run. */
typedef struct Sheet {
    GoldenStage stage[GOLDEN_STAGES];
    int stages;
} Sheet;

typedef struct Bench {
    Golden g;
    char folder[500], model[600], dump[600];
    Sheet clean[PART_COUNT + 1][2]; /* by part and dtype (F32, BF16) */
    FILE *table;
} Bench;

static int part_of(const char *name) {
    for (int i = 0; i < PART_COUNT; i++)
        if (!strcmp(name, GOLDEN_PARTS[i])) return i;
    return PART_COUNT; /* "run": a whole picture */
}

/* Runs a part of `model` (or the picture) into b->g.stage. */
static Status measure(Bench *b, const char *model, int part, DType dtype) {
    char name[64];
    b->g.stages = 0, b->g.worst = 0;
    snprintf(name, sizeof name, "%s_%s", part < PART_COUNT ? GOLDEN_PARTS[part] : "dev", dtype == F32 ? "f32" : "bf16");
    return part < PART_COUNT ? golden_part(&b->g, model, (GoldenPart)part, dtype, name)
                             : golden_picture(&b->g, model, dtype, name, b->dump);
}

static void report(Bench *b, const char *where, const char *name, const char *stage, double clean, double got) {
    bool noticed = got > 1 && !(got < 10 * clean);
    expect_at(noticed, name, where, 0);
    if (!noticed) printf("%-18s %s: %s: metric %.3g, without the fault %.3g\n", where, name, stage, got, clean);
    if (b->table) fprintf(b->table, "%s\t%s\t%s\t%.2g\t%.2g\n", where, name, stage, clean, got);
}

/* Reports the stage that shows the fault best: above the limit, and by the largest factor. */
static void judge(Bench *b, const char *where, const char *name, const Sheet *clean) {
    int best = -1;
    double most = -1, before = 0;
    for (int i = 0; i < b->g.stages; i++)
        for (int k = 0; k < clean->stages; k++) {
            double got = b->g.stage[i].metric, was = clean->stage[k].metric;
            double factor = got <= 1 ? 0 : was > 0 ? got / was : INFINITY;
            if (strcmp(b->g.stage[i].name, clean->stage[k].name) || factor <= most) continue;
            most = factor, best = i, before = was;
        }
    if (best < 0) expect_at(0, name, "no stage was compared", 0);
    else report(b, where, name, b->g.stage[best].name, before, b->g.stage[best].metric);
}

/* --- checkpoint faults --- */

static void edit(MutateFile *m, const char *kind, char *args) {
    char *a = strtok(args, " "), *rest[4] = {0};
    for (int i = 0; i < 4; i++) rest[i] = strtok(NULL, " ");
    int64_t n[3] = {0};
    for (int i = 0; i < 3; i++) n[i] = rest[i] ? strtoll(rest[i], NULL, 10) : 0;
    if (!strcmp(kind, "swap")) mutate_swap(m, a, rest[0]);
    else if (!strcmp(kind, "swap_rows")) mutate_swap_rows(m, a, n[0], n[1], n[2]);
    else if (!strcmp(kind, "swap_cols")) mutate_swap_cols(m, a, n[0], n[1], n[2]);
    else if (!strcmp(kind, "rotate_rows")) mutate_rotate_rows(m, a, n[0]);
    else if (!strcmp(kind, "scale")) mutate_scale(m, a, strtod(rest[0], NULL));
    else if (!strcmp(kind, "transpose_kernel")) mutate_transpose_kernel(m, a);
    else if (!strcmp(kind, "perturb")) mutate_perturb(m, a);
    else mutate_stop(kind, "unknown kind of fault");
}

/* One file of the copy is edited, the part runs, the file is put back. */
static void checkpoint_fault(Bench *b, const char *name, int part, const char *file, const char *kind, const char *args) {
    char from[1200], to[1200], text[512], *bytes;
    size_t size;
    Error e = {0};
    snprintf(from, sizeof from, GOLDEN_MODEL "/%s", file);
    snprintf(to, sizeof to, "%s/%s", b->model, file);
    snprintf(text, sizeof text, "%s", args);
    if (file_read(from, &bytes, &size, &e) != OK) mutate_stop(from, e.text);
    bool json = !strncmp(kind, "json", 4);
    if (json) {
        char *value = strchr(text, ' ');
        *value++ = 0;
        mutate_json(b->model, file, text, value);
    } else {
        MutateFile m = {0};
        mutate_open(&m, b->model, file);
        edit(&m, kind, text);
        mutate_save(&m);
    }
    measure(b, b->model, part, F32);
    if (!strcmp(kind, "json_refuse")) {
        expect_at(b->g.error.code == ERR_MODEL, name, "must be refused", 0);
    } else {
        if (b->g.error.code != OK) printf("%s: %s\n", name, b->g.error.text);
        expect_at(b->g.error.code == OK, name, "must run", 0);
        judge(b, part < PART_COUNT ? GOLDEN_PARTS[part] : "run", name, &b->clean[part][0]);
    }
    mutate_write(to, bytes, size);
    free(bytes);
}

static void listed_faults(Bench *b) {
    FILE *f = fopen("tests/mutants.tsv", "r");
    if (!f) mutate_stop("tests/mutants.tsv", "missing");
    char line[1024], *column[5];
    int count = 0;
    while (fgets(line, sizeof line, f)) {
        if (*line == '#') continue;
        line[strcspn(line, "\n")] = 0;
        char *at = line;
        for (int i = 0; i < 5; i++) column[i] = strsep(&at, "\t");
        if (!column[4]) mutate_stop(line, "five columns expected");
        checkpoint_fault(b, column[0], part_of(column[1]), column[2], column[3], column[4]);
        count++;
    }
    fclose(f);
    expect(count >= 70);
}

/* Tensors whose perturbation cannot show: the VAE's encoder, which text to image never runs, and the key biases of plain
 * attention, which add the same number to all scores of a query (not in the DiT, where a norm follows). */
static bool silent(int part, const char *tensor) {
    return (part == PART_VAE && !strncmp(tensor, "encoder.", 8)) || strstr(tensor, "k_proj.bias") ||
           (part == PART_VAE && strstr(tensor, "to_k.bias"));
}

static void every_tensor(Bench *b) {
    static const char *const FILES[] = {"text_encoder/model.safetensors", "text_encoder_2/model.safetensors",
                                        "transformer/diffusion_pytorch_model.safetensors",
                                        "vae/diffusion_pytorch_model.safetensors"};
    int count = 0;
    for (int part = 0; part < PART_COUNT; part++) {
        MutateFile m = {0};
        mutate_open(&m, GOLDEN_MODEL, FILES[part]);
        for (int i = 0; i < m.st.count; i++) {
            const char *tensor = m.st.entry[i].name;
            if (silent(part, tensor)) continue;
            char name[200];
            snprintf(name, sizeof name, "perturbed: %s", tensor);
            checkpoint_fault(b, name, part, FILES[part], "perturb", tensor);
            count++;
        }
        safetensors_close(&m.st);
        free(m.bytes);
    }
    printf("%d tensors perturbed\n", count);
    expect(count > 250);
}

/* --- op faults --- */

static double op_metric(Bench *b, const char *golden) {
    GoldenCount c;
    double metric = INFINITY;
    for (int i = 0; i < GOLDEN_OP_COUNT; i++)
        if (!strcmp(golden, GOLDEN_OPS[i].name) && golden_op(&b->g, &GOLDEN_OPS[i], &c, &metric) != OK)
            printf("%s: %s\n", golden, b->g.error.text);
    return metric;
}

static void faulty_ops(Bench *b) {
    for (int i = 0; i < FAULT_COUNT; i++) {
        const Fault *f = &FAULTS[i];
        int part = part_of(f->golden);
        fault_mount(&b->g, NULL);
        double clean = part < PART_COUNT ? 0 : op_metric(b, f->golden);
        fault_mount(&b->g, &f->impl);
        if (part < PART_COUNT) {
            expect(measure(b, GOLDEN_MODEL, part, BF16) == OK);
            judge(b, f->golden, f->name, &b->clean[part][1]);
        } else {
            report(b, f->golden, f->name, "y", clean, op_metric(b, f->golden));
        }
    }
    fault_mount(&b->g, NULL);
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    omp_set_num_threads(1); /* tiny tensors: threads only wait for each other */
    if (golden_open(&b.g) != OK) return printf("%s\n", b.g.error.text), 1;
    expect_folder(b.folder, sizeof b.folder);
    snprintf(b.model, sizeof b.model, "%s/model", b.folder);
    snprintf(b.dump, sizeof b.dump, "%s/dump", b.folder);
    mutate_copy_folder(GOLDEN_MODEL, b.model);
    if (getenv("MUTANTS_TABLE")) b.table = fopen(getenv("MUTANTS_TABLE"), "w");
    if (b.table) fprintf(b.table, "# golden\tfault\tstage\tmetric without\tmetric with the fault (limit 1)\n");
    for (int part = 0; part <= PART_COUNT; part++)
        for (int d = 0; d < 2; d++) {
            Status s = measure(&b, GOLDEN_MODEL, part, d ? BF16 : F32);
            expect(s == OK && b.g.worst <= 1);
            memcpy(b.clean[part][d].stage, b.g.stage, sizeof b.g.stage);
            b.clean[part][d].stages = b.g.stages;
        }
    listed_faults(&b);
    every_tensor(&b);
    faulty_ops(&b);
    if (b.table) fclose(b.table);
    golden_close(&b.g);
    expect_cleanup(b.folder);
    return expect_done();
}
