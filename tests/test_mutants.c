/* test_mutants.c - do the goldens notice? Every fault must raise the golden's metric above its limit and at least
 * tenfold, else the golden counts as absent.
 *
 * Three kinds: faults in the checkpoint's bytes and configs (tests/mutants.tsv), every tensor of every part perturbed by
 * 10 % of its rms, and faulty ops (faults.h). Checkpoint faults run in f32, op faults in bf16, on the op's own golden
 * and, marked (block), on blocks fed with the reference's input. MUTANTS_TABLE=FILE writes the table that is
 * committed as tests/mutants-result.tsv.
 * Easy to get wrong: "tenfold" is against the metric without the fault, which can be 0; then the limit alone decides. */
#include "expect.h"
#include "faults.h"
#include "golden_ops.h"
#include "golden_runs.h"
#include "mutate.h"

typedef struct Bench {
    Golden g;
    char folder[500], model[600], dump[600];
    double clean_f32[PART_COUNT + 1], clean_bf16[PART_COUNT];
    FILE *table;
} Bench;

static int part_of(const char *name) {
    for (int i = 0; i < PART_COUNT; i++)
        if (!strcmp(name, GOLDEN_PARTS[i])) return i;
    return PART_COUNT; /* "run": a whole picture */
}

/* Worst metric of a part (or the picture) of `model`; INFINITY when it does not even run. */
static double worst(Bench *b, const char *model, int part, DType dtype) {
    char name[64];
    b->g.stages = 0, b->g.worst = 0;
    Status s;
    if (part < PART_COUNT) {
        snprintf(name, sizeof name, "%s_%s", GOLDEN_PARTS[part], dtype == F32 ? "f32" : "bf16");
        s = golden_part(&b->g, model, (GoldenPart)part, dtype, name);
    } else {
        s = golden_picture(&b->g, model, dtype, "dev_f32", b->dump);
    }
    return s == OK ? b->g.worst : INFINITY;
}

static void judge(Bench *b, const char *where, const char *name, double clean, double got) {
    bool noticed = got > 1 && !(got < 10 * clean);
    expect_at(noticed, name, where, 0);
    if (!noticed) printf("%-18s %s: metric %.3g, without the fault %.3g\n", where, name, got, clean);
    if (b->table) fprintf(b->table, "%s\t%s\t%.2g\t%.2g\n", where, name, clean, got);
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
    double got = worst(b, b->model, part, F32);
    if (!strcmp(kind, "json_refuse")) {
        expect_at(b->g.error.code == ERR_MODEL, name, "must be refused", 0);
    } else {
        if (b->g.error.code != OK) printf("%s: %s\n", name, b->g.error.text);
        expect_at(b->g.error.code == OK, name, "must run", 0);
        judge(b, part < PART_COUNT ? GOLDEN_PARTS[part] : "run", name, b->clean_f32[part], got);
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

/* Tensors whose perturbation cannot show in the goldens are named here, with the reason. */
static bool silent(const char *tensor) {
    return !strncmp(tensor, "encoder.", 8) && !strstr(tensor, "block."); /* the VAE's encoder: text to image never runs it */
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
            if (part == PART_VAE && silent(tensor)) continue;
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

static double op_worst(Bench *b, const char *golden) {
    for (int i = 0; i < GOLDEN_OP_COUNT; i++)
        if (!strcmp(golden, GOLDEN_OPS[i].name)) {
            GoldenCount c;
            double metric = INFINITY;
            if (golden_op(&b->g, &GOLDEN_OPS[i], &c, &metric) != OK) printf("%s: %s\n", golden, b->g.error.text);
            return metric;
        }
    return worst(b, GOLDEN_MODEL, part_of(golden), BF16);
}

static void faulty_ops(Bench *b) {
    for (int i = 0; i < FAULT_COUNT; i++) {
        const Fault *f = &FAULTS[i];
        faults_mount(&b->g, NULL);
        double clean = op_worst(b, f->golden);
        faults_mount(&b->g, f);
        double got = op_worst(b, f->golden);
        judge(b, f->golden, f->name, clean, got);
    }
    faults_mount(&b->g, NULL);
}

int main(void) {
    Bench b = {0};
    if (golden_open(&b.g) != OK) return printf("%s\n", b.g.error.text), 1;
    expect_folder(b.folder, sizeof b.folder);
    snprintf(b.model, sizeof b.model, "%s/model", b.folder);
    snprintf(b.dump, sizeof b.dump, "%s/dump", b.folder);
    mutate_copy_folder(GOLDEN_MODEL, b.model);
    if (getenv("MUTANTS_TABLE")) b.table = fopen(getenv("MUTANTS_TABLE"), "w");
    if (b.table) fprintf(b.table, "# golden\tfault\tmetric without\tmetric with the fault (limit 1)\n");
    for (int part = 0; part <= PART_COUNT; part++) {
        b.clean_f32[part] = worst(&b, b.model, part, F32);
        expect(b.clean_f32[part] <= 1);
    }
    listed_faults(&b);
    every_tensor(&b);
    faulty_ops(&b);
    if (b.table) fclose(b.table);
    golden_close(&b.g);
    expect_cleanup(b.folder);
    return expect_done();
}
