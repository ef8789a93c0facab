/* test_weights.c - core/weights, shards and bind: which files of a folder are taken, indexes that disagree with their
 * shards, every transform and dtype against values worked out here, and the message that lists all faults at once. */
#include "core/convert.h"
#include "core/shards.h"
#include "core/weights.h"
#include "expect.h"

#include <math.h>

#define T(name, dtype, shape, from, to)                                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void remove_in(const char *folder, const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

/* Opens `folder` and says which file its tensor "w" came from. */
static void expect_file(const char *folder, const char *file) {
    WeightFiles *f;
    Error e;
    expect_ok(weights_open(folder, &f, &e), &e);
    if (!f) return;
    const char *name = "", *found = "";
    weights_at(f, 0, &name, NULL, &found);
    expect(!strcmp(name, "w") && !strcmp(found, file));
    weights_close(f);
}

static void which_file(const char *base) {
    char dir[300];
    const char *one = "{" T("w", "F32", "[1]", 0, 4) "}";
    Error e;
    WeightFiles *f;
    snprintf(dir, sizeof dir, "%s/which", base);
    expect_status(weights_open(dir, &f, &e), ERR_MODEL, "which: missing, expected a folder", &e);
    expect_text(dir, "pytorch_model.bin", "x");
    expect_status(weights_open(dir, &f, &e), ERR_MODEL, "found only pytorch_model.bin", &e);
    expect_safetensors_file(dir, "model.fp16.safetensors", one, 4);
    expect_file(dir, "model.fp16.safetensors");
    expect_safetensors_file(dir, "model.bf16.safetensors", one, 4);
    expect_file(dir, "model.bf16.safetensors");
    expect_text(
        dir, "model.safetensors.index.json",
        "{\"metadata\":{\"total_size\":4},\"weight_map\":{\"w\":\"model-00001-of-00001.safetensors\"}}");
    expect_safetensors_file(dir, "model-00001-of-00001.safetensors", one, 4);
    expect_file(dir, "model-00001-of-00001.safetensors");
    expect_safetensors_file(dir, "model.safetensors", one, 4);
    expect_file(dir, "model.safetensors"); /* transformers: single file before index */
    expect_safetensors_file(dir, "diffusion_pytorch_model.safetensors", one, 4);
    expect_status(weights_open(dir, &f, &e), ERR_MODEL,
                  "both diffusion_pytorch_model.safetensors and model.safetensors are there", &e);
    expect_text(dir, "config.json", "{\"model_type\":\"gemma3\"}");
    expect_file(dir, "model.safetensors");
    expect_text(dir, "config.json", "{\"_class_name\":\"AutoencoderKL\"}");
    expect_file(dir, "diffusion_pytorch_model.safetensors");
    expect_text(dir, "config.json", "{}");
    expect_status(weights_open(dir, &f, &e), ERR_MODEL, "remove the one that is not meant", &e);
    remove_in(dir, "config.json");
    remove_in(dir, "model.safetensors");
    remove_in(dir, "model.safetensors.index.json");
    expect_file(dir, "diffusion_pytorch_model.safetensors");
    expect_text(dir, "diffusion_pytorch_model.safetensors.index.json",
                "{\"weight_map\":{\"w\":\"model-00001-of-00001.safetensors\"}}"); /* total_size is optional */
    expect_file(dir, "model-00001-of-00001.safetensors"); /* diffusers: index before single file */
    remove_in(dir, "diffusion_pytorch_model.safetensors");
    remove_in(dir, "diffusion_pytorch_model.safetensors.index.json");
    remove_in(dir, "model.bf16.safetensors");
    remove_in(dir, "model.fp16.safetensors");
    static const char *const NAMES[] = {"diffusion_pytorch_model.safetensors.index.fp16.json",
                                        "model.fp16.safetensors.index.json"};
    for (int i = 0; i < 2; i++) {
        expect_text(dir, NAMES[i], "{\"weight_map\":{\"w\":\"model-00001-of-00001.safetensors\"}}");
        expect_file(dir, "model-00001-of-00001.safetensors");
        remove_in(dir, NAMES[i]);
    }
    /* a hub snapshot is links */
    char from[700], to[700];
    snprintf(from, sizeof from, "%s/model-00001-of-00001.safetensors", dir);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    expect(symlink(from, to) == 0);
    expect_file(dir, "model.safetensors");
    expect_file(from, "model-00001-of-00001.safetensors"); /* one file by its own name */
}

static void index_faults(const char *base) {
    char dir[300];
    Error e;
    WeightFiles *f;
    snprintf(dir, sizeof dir, "%s/index", base);
#define INDEX "model.safetensors.index.json"
#define A "a-00001-of-00002.safetensors"
#define B "a-00002-of-00002.safetensors"
    expect_text(dir, INDEX,
                "{\"metadata\":{\"total_size\":7},\"weight_map\":{\"y\":\"" B "\",\"x\":\"" A "\",\"z\":\"" B
                "\"}}");
    expect_status(weights_open(dir, &f, &e), ERR_MODEL,
                  "missing " A ", which " INDEX " lists (2 of 2 files missing)", &e);
    expect_safetensors_file(dir, A, "{" T("x", "U8", "[1]", 0, 1) "}", 1);
    expect_status(weights_open(dir, &f, &e), ERR_MODEL, "missing " B, &e);
    expect_safetensors_file(dir, B, "{" T("y", "U8", "[2]", 0, 2) "," T("z", "F32", "[]", 2, 6) "}", 6);
    expect_ok(weights_open(dir, &f, &e), &e);
    expect(weights_count(f) == 3);
    Tensor t;
    expect(weights_find(f, "z", &t) && t.rank == 1 && t.shape[0] == 1 && ((unsigned char *)t.data)[0] == 2);
    expect(weights_find(f, "x", NULL) && !weights_find(f, "w", &t) && !weights_find(NULL, "x", &t));
    for (int i = 0; i < 3; i++) {
        const char *name, *file;
        weights_at(f, i, &name, &t, &file);
        expect(*name == "xyz"[i] && t.data && !strcmp(file, i ? B : A));
    }
    weights_close(f);

    expect_text(dir, INDEX,
                "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"y\":\"" B "\",\"x\":\"" A "\",\"z\":\"" B
                "\"}}");
    expect_status(weights_open(dir, &f, &e), ERR_MODEL, "stale index: total_size is 8, the files hold 7", &e);
    expect_text(dir, INDEX,
                "{\"weight_map\":{\"y\":\"" B "\",\"x\":\"" A "\",\"gone\":\"" A "\",\"z\":\"" B "\"}}");
    expect_status(weights_open(dir, &f, &e), ERR_MODEL,
                  "stale index: it puts gone into " A ", which does not hold it", &e);
    expect_text(dir, INDEX, "{\"weight_map\":{\"y\":\"" B "\",\"x\":\"" A "\"}}");
    expect_status(weights_open(dir, &f, &e), ERR_MODEL,
                  "stale index: " B " holds z, which the index puts nowhere", &e);
    expect_text(dir, INDEX, "{\"weight_map\":{\"y\":\"" A "\",\"x\":\"" A "\",\"z\":\"" B "\"}}");
    expect_status(weights_open(dir, &f, &e), ERR_MODEL, "it puts y into " A, &e);
    /* the same tensor in both shards */
    expect_safetensors_file(dir, A, "{" T("x", "U8", "[1]", 0, 1) "," T("y", "U8", "[1]", 1, 2) "}", 2);
    expect_text(dir, INDEX, "{\"weight_map\":{\"y\":\"" B "\",\"x\":\"" A "\",\"z\":\"" B "\"}}");
    expect_status(weights_open(dir, &f, &e), ERR_MODEL,
                  "stale index: " A " holds y, which the index puts into " B, &e);
    static const char *const BAD[] = {"",
                                      "{}",
                                      "[]",
                                      "{\"weight_map\":{}}",
                                      "{\"weight_map\":{\"w\":1}}",
                                      "{\"weight_map\":{\"w\":\"../a.safetensors\"}}",
                                      "{\"weight_map\":{\"w\":\".safetensors\"}}",
                                      "{\"weight_map\":{\"w\":\"a.bin\"}}",
                                      "<html>"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        expect_text(dir, INDEX, BAD[i]);
        expect_status(weights_open(dir, &f, &e), ERR_MODEL, INDEX, &e);
        if (strstr(BAD[i], "\"w\""))
            expect_status(weights_open(dir, &f, &e), ERR_MODEL, "w: expected the name of a .safetensors file",
                          &e);
    }
    expect_text(dir, A, "version https://git-lfs.github.com/spec/v1\n");
    expect_text(dir, INDEX, "{\"weight_map\":{\"x\":\"" A "\"}}");
    expect_status(weights_open(dir, &f, &e), ERR_MODEL, A ": is a Git-LFS pointer", &e);
}

/* --- binding ---------------------------------------------------------------------------------------------------- */

/* Writes a file of float values in the given dtype: values[i] at element i. Header is built by the caller. */
static void write_values(const char *dir, const char *name, const char *header, DType dtype,
                         const float *values, size_t n) {
    size_t size;
    unsigned char *bytes = expect_safetensors(header, n * dtype_size(dtype), &size);
    convert_narrow(values, dtype, bytes + 8 + strlen(header), n);
    expect_write(dir, name, bytes, size);
    free(bytes);
}

static float value_at(Tensor t, int64_t i) {
    float v;
    convert_widen((const char *)t.data + (size_t)i * dtype_size(t.dtype), t.dtype, &v, 1);
    return v;
}

static float round_to(float v, DType dtype) {
    unsigned char bytes[4];
    convert_narrow(&v, dtype, bytes, 1);
    convert_widen(bytes, dtype, &v, 1);
    return v;
}

/* Values that need rounding in every narrower dtype, a tie included. */
static float sample(size_t i) {
    return i == 3 ? 1.00390625f : ldexpf(1.0f + (float)(i * 37 % 101) / 101.0f, (int)(i % 7) - 3);
}

static void transforms(const char *base, DType disk, DType compute) {
    char dir[300], header[1200];
    snprintf(dir, sizeof dir, "%s/bind-%s-%s", base, dtype_name(disk), dtype_name(compute));
    float v[200];
    for (size_t i = 0; i < 200; i++) v[i] = round_to(sample(i), disk);
    size_t s = dtype_size(disk);
    snprintf(header, sizeof header,
             "{\"lin.weight\":{\"dtype\":\"%1$s\",\"shape\":[4,5],\"data_offsets\":[0,%2$zu]},"
             "\"lin.bias\":{\"dtype\":\"%1$s\",\"shape\":[4],\"data_offsets\":[%2$zu,%3$zu]},"
             "\"conv.weight\":{\"dtype\":\"%1$s\",\"shape\":[3,2,2,2],\"data_offsets\":[%3$zu,%4$zu]},"
             "\"conv.bias\":{\"dtype\":\"%1$s\",\"shape\":[3],\"data_offsets\":[%4$zu,%5$zu]},"
             "\"norm\":{\"dtype\":\"%1$s\",\"shape\":[6],\"data_offsets\":[%5$zu,%6$zu]},"
             "\"sq.weight\":{\"dtype\":\"%1$s\",\"shape\":[2,3,1,1],\"data_offsets\":[%6$zu,%7$zu]}}",
             dtype_name(disk), 20 * s, 24 * s, 48 * s, 51 * s, 57 * s, 63 * s);
    write_values(dir, "model.safetensors", header, disk, v, 63);

    WeightFiles *f;
    Error e;
    Weight lin = {0}, conv = {0}, part = {0}, swapped = {0}, sq = {0}, none = {0};
    Tensor norm, plus, half;
    Bind b = {0};
    bind_linear(&b, &lin, 4, 5, true, "%s", "lin");
    expect(bind_last(&b) && !strcmp(bind_last(&b)->name, "lin.weight"));
    bind_conv(&b, &conv, 3, 2, 2, "conv");
    bind_vector(&b, &norm, 6, BIND_PLAIN, "norm");
    bind_vector(&b, &plus, 6, BIND_PLUS_ONE, "norm");
    bind_vector(&b, &half, 6, BIND_SWAP_HALVES, "norm");
    bind_linear(&b, &swapped, 4, 5, false, "lin");
    bind_last(&b)->transform = BIND_SWAP_HALVES;
    bind_matrix(&b, &part, 2, 5, "lin.weight");
    bind_last(&b)->row_start = 1, bind_last(&b)->file_rows = 4;
    bind_linear(&b, &sq, 2, 3, false, "sq");
    bind_last(&b)->transform = BIND_SQUEEZE;
    bind_linear(&b, &none, 7, 7, true, "absent");
    for (int i = b.count - 2; i < b.count; i++) b.rows[i].optional = true;

    size_t region, mapped;
    Device cpu = device_cpu(), dry = device_dry();
    Arena real, plan;
    expect_ok(weights_open(dir, &f, &e), &e);
    expect_ok(weights_measure(f, &b, compute, NULL, &region, &mapped, &e), &e);
    expect(mapped == (20 + 10 + 6) *
                         s); /* lin, part, sq: plain matrices; 7 tensors are copied, each 256 bytes at most */
    expect(region == 7 * ARENA_ALIGN);
    expect_ok(arena_open(&plan, &dry, "plan", region, &e), &e);
    expect_ok(weights_bind(f, &b, compute, &plan, NULL, &e), &e);
    expect(plan.used == region && conv.w.data && conv.w.shape[3] == 2);
    arena_close(&plan);
    expect_ok(arena_open(&real, &cpu, "weights", region, &e), &e);
    expect_ok(weights_bind(f, &b, compute, &real, NULL, &e), &e);
    expect(real.used == region);

    expect(lin.w.dtype == disk && lin.round == compute && lin.w.shape[0] == 4 && lin.w.shape[1] == 5 &&
           lin.version == 2);
    expect(!strcmp(lin.name, "lin.weight"));
    for (int i = 0; i < 20; i++) expect(value_at(lin.w, i) == v[i]);
    expect(lin.bias.rank == 1 && lin.bias.shape[0] == 4 && lin.bias.dtype == compute);
    for (int i = 0; i < 4; i++) expect(value_at(lin.bias, i) == round_to(v[20 + i], compute));
    expect(conv.w.rank == 4 && conv.w.shape[0] == 3 && conv.w.shape[1] == 2 && conv.w.shape[3] == 2 &&
           conv.w.dtype == compute);
    for (int o = 0; o < 3; o++)
        for (int y = 0; y < 2; y++)
            for (int x = 0; x < 2; x++)
                for (int c = 0; c < 2; c++)
                    expect(value_at(conv.w, ((o * 2 + y) * 2 + x) * 2 + c) ==
                           round_to(v[24 + ((o * 2 + c) * 2 + y) * 2 + x], compute));
    for (int i = 0; i < 3; i++) expect(value_at(conv.bias, i) == round_to(v[48 + i], compute));
    for (int i = 0; i < 6; i++) {
        expect(value_at(norm, i) == round_to(v[51 + i], compute));
        expect(value_at(plus, i) == round_to(1.0f + v[51 + i], compute));
        expect(value_at(half, i) == round_to(v[51 + (i + 3) % 6], compute));
        expect(value_at(sq.w, i) == v[57 + i]);
    }
    expect(sq.w.rank == 2 && sq.w.shape[0] == 2 && sq.w.shape[1] == 3);
    expect(swapped.w.dtype == compute);
    for (int i = 0; i < 20; i++) expect(value_at(swapped.w, i) == round_to(v[(i + 10) % 20], compute));
    expect(part.w.shape[0] == 2);
    for (int i = 0; i < 10; i++) expect(value_at(part.w, i) == v[5 + i]);
    expect(none.w.rank == 0 && none.bias.rank == 0);
    arena_close(&real);

    expect_ok(arena_open(&real, &cpu, "weights", region - ARENA_ALIGN, &e), &e);
    expect_status(weights_bind(f, &b, compute, &real, NULL, &e), ERR_MEMORY, "plan and load differ", &e);
    arena_close(&real);
    bind_free(&b);
    weights_close(f);
}

/* A tensor longer than one conversion buffer, so that chunks meet. */
static void long_copy(const char *base) {
    char dir[300], header[200];
    enum { ROWS = 700, COLS = 999 };
    float *v = malloc(sizeof *v * ROWS * COLS);
    for (size_t i = 0; i < ROWS * COLS; i++) v[i] = (float)(i % 251) - 100;
    snprintf(dir, sizeof dir, "%s/long", base);
    snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"F16\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]}}",
             ROWS, COLS, 2 * ROWS * COLS);
    write_values(dir, "model.safetensors", header, F16, v, ROWS * COLS);
    WeightFiles *f;
    Error e;
    Weight w = {0};
    Bind b = {0};
    bind_matrix(&b, &w, ROWS, COLS, "w");
    bind_last(&b)->transform = BIND_SWAP_HALVES;
    Device cpu = device_cpu();
    Arena region;
    size_t bytes, mapped;
    expect_ok(weights_open(dir, &f, &e), &e);
    expect_ok(weights_measure(f, &b, BF16, NULL, &bytes, &mapped, &e), &e);
    expect_ok(arena_open(&region, &cpu, "weights", bytes, &e), &e);
    expect_ok(weights_bind(f, &b, BF16, &region, NULL, &e), &e);
    int wrong = 0;
    for (int64_t i = 0; i < ROWS * COLS; i++)
        wrong += value_at(w.w, i) != v[(i + ROWS / 2 * COLS) % (ROWS * COLS)];
    expect(wrong == 0);
    arena_close(&region);
    bind_free(&b);
    weights_close(f);
    free(v);
}

/* Everything wrong is named at once. */
static void faults(const char *base) {
    char dir[300];
    snprintf(dir, sizeof dir, "%s/faults", base);
    expect_safetensors_file(
        dir, "model.safetensors",
        "{" T("p.short.weight", "F32", "[1,2]", 0, 8) "," T("p.q", "F8_E4M3", "[4]", 8, 12) "," T(
            "p.wide", "U8", "[1,1,1,1,1,2]", 12,
            14) "," T("extra.a", "U8", "[1]", 14, 15) "," T("extra.b", "U8", "[1]", 15,
                                                            16) "," T("buffer.ids", "I64", "[1]", 16,
                                                                      24) "," T("p.d", "F64", "[1]", 24,
                                                                                32) "}",
        32);
    WeightFiles *f;
    Error e;
    Weight a = {0}, none = {0};
    Tensor q, wide, d;
    Bind b = {.prefix = "p."};
    bind_linear(&b, &a, 2, 2, false, "short");
    bind_vector(&b, &q, 4, BIND_PLAIN, "q");
    bind_vector(&b, &wide, 2, BIND_PLAIN, "wide");
    bind_vector(&b, &d, 1, BIND_PLAIN, "d");
    for (int i = 0; i < 6; i++) bind_matrix(&b, &none, 1, 1, "gone.%d", i);
    Device cpu = device_cpu();
    Arena region;
    size_t bytes, mapped;
    expect_ok(weights_open(dir, &f, &e), &e);
    expect_ok(arena_open(&region, &cpu, "weights", 4096, &e), &e);
    static const char *const PARTS[] = {"6 missing: p.gone.0, p.gone.1, p.gone.2, p.gone.3 and 2 more",
                                        "2 of wrong shape: p.short.weight is [1, 2], expected [2, 2]",
                                        "p.wide is [1, 1, 1, 1, 1, 2], expected [2]",
                                        "2 of a dtype other than BF16, F16, F32: p.q is F8_E4M3, p.d is F64",
                                        "3 not part of the model: buffer.ids, extra.a, extra.b",
                                        "faults: tensors"};
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        expect_status(weights_bind(f, &b, BF16, &region, NULL, &e), ERR_MODEL, PARTS[i], &e);
    expect(a.w.rank == 0); /* nothing is bound after a fault */
    expect_status(weights_measure(f, &b, BF16, NULL, &bytes, &mapped, &e), ERR_MODEL, "6 missing", &e);
    expect(!strstr(e.text, "not part of"));
    const char *ignore[] = {"buffer.", "extra.a", NULL};
    expect_status(weights_bind(f, &b, BF16, &region, ignore, &e), ERR_MODEL,
                  "1 not part of the model: extra.b", &e);
    WeightMatch m;
    expect_ok(weights_match(f, &b, ignore, &m, &e), &e);
    expect(m.missing == 6 && m.shape == 2 && m.dtype == 2 && m.unused == 1 && m.row[0] == ROW_SHAPE &&
           m.row[1] == ROW_DTYPE);
    expect(m.row[4] == ROW_MISSING && m.tensor[4] == -1 && m.use[0] == TENSOR_IGNORED &&
           m.use[2] == TENSOR_UNUSED);
    weights_match_free(&m);
    Tensor t;
    const char *name;
    weights_at(f, 6, &name, &t, NULL);
    expect(!strcmp(name, "p.wide") && t.rank == 1 && t.shape[0] == 2 && weights_entry(f, 6)->rank == 6);
    expect(!weights_find(f, "p.wide", &t));
    b.failed = true;
    expect_status(weights_bind(f, &b, BF16, &region, NULL, &e), ERR_MEMORY, "out of memory", &e);
    arena_close(&region);
    bind_free(&b);
    weights_close(f);
}

int main(void) {
    char folder[256];
    expect_folder(folder, sizeof folder);
    which_file(folder);
    index_faults(folder);
    static const DType DISK[] = {BF16, F16, F32};
    for (int i = 0; i < 3; i++) {
        transforms(folder, DISK[i], F32);
        transforms(folder, DISK[i], BF16);
    }
    long_copy(folder);
    faults(folder);
    expect_cleanup(folder);
    return expect_done();
}
