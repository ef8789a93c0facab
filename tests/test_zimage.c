/* test_zimage.c - the tiny Z-Image checkpoint against diffusers and transformers: Qwen3 and the transformer stage by stage
 * (golden.h says how a stage is judged), the edges of the padding to 32, ids of prompts in the chat template, and whole
 * pictures: Turbo, base with guidance and a negative prompt, the shorter one of the two masked, guidance that is normalised and
 * truncated. Also what a job
 * resolves to.
 *
 * GOLDEN_VERBOSE=1 prints every stage. Easy to get wrong: run from the repository root. */
#include "core/sha256.h"
#include "expect_pipeline.h"
#include "golden_judge.h"
#include "golden_runs.h"
#include "golden_zimage.h"
#include "mutate.h"

static void judge(Golden *g, Status s, const char *name) {
    golden_within(g, s, name, 1);
    golden_clear(g);
}

static void parts(void) {
    static const struct { const char *name; bool te; DType dtype; } RUNS[] = {
        {"qwen3_f32", true, F32},     {"qwen3_bf16", true, BF16},    {"zdit_f32", false, F32},
        {"zdit_bf16", false, BF16},   {"zdit_n1_f32", false, F32},   {"zdit_n32_f32", false, F32},
        {"zdit_n33_f32", false, F32},
    };
    Golden g;
    if (golden_open(&g) != OK) {
        printf("%s\n", g.error.text);
        expect(0);
        return;
    }
    for (size_t i = 0; i < sizeof RUNS / sizeof *RUNS; i++) {
        Status s = golden_zimage(&g, ZIMAGE_MODEL, RUNS[i].te, RUNS[i].dtype, RUNS[i].name);
        golden_all_seen(&g, RUNS[i].name, false);
        judge(&g, s, RUNS[i].name);
    }
    g.ops.row_bits = true; /* the encoder runs its padding too, where no real token sees it */
    judge(&g, golden_zimage(&g, ZIMAGE_MODEL, true, F32, "qwen3_f32"), "qwen3_f32 padded");
    judge(&g, golden_zimage(&g, ZIMAGE_MODEL, true, BF16, "qwen3_bf16"), "qwen3_bf16 padded");
    golden_close(&g);
}

/* The published widths at real positions, where a cosine rounded from a double differs in one entry of a hundred. Sums:
 * RopeEmbedder of diffusers 0.40.0 on torch 2.11.0, 40 x 72 image tokens, then 512 of the caption; real, imaginary parts. */
static void rotary(void) {
    static const char *const SUMS[] = {"cb5f9993038ca5b5020c57e0731455df1ea541665b7d6c97b8208999a718b1ef",
                                       "bc56d699da308799a24a87b6733ea020248801c0b4d2af6cf2aff48308a983f6"};
    Error e = {0};
    Device device = device_cpu();
    Arena work = {0};
    ZimageDit m = {.c = {.dim = 128, .heads = 1, .theta = 256, .axes = {32, 48, 48}, .lens = {1536, 512, 512}}};
    ZimagePrompt p = {0};
    Exec x = {.device = &device, .work = &work, .error = &e, .dtype = F32};
    expect_ok(arena_open(&work, &device, "work", (size_t)1 << 22, &e), &e);
    expect_ok(dit_zimage_layout(&m, &x, &(int64_t){512}, 1, 40, 72, &p), &e);
    const Tensor tables[] = {p.cos, p.sin};
    for (int i = 0; i < 2; i++) {
        char sum[SHA256_TEXT];
        sha256_memory(tables[i].data, tensor_bytes(tables[i]), sum);
        expect(tables[i].shape[0] == 3392 && tables[i].shape[1] == 64 && !strcmp(sum, SUMS[i]));
    }
    arena_close(&work);
}

/* --- prompts --- */

static void one_prompt(Pipeline *p, char *line, int number) {
    char *tab = strchr(line, '\t'), *got = NULL;
    size_t size = 0;
    Error e = {0};
    *tab = 0;
    tab[1 + strcspn(tab + 1, "\n")] = 0;
    cJSON *prompt = cJSON_Parse(line);
    FILE *memory = open_memstream(&got, &size);
    Status s = pipeline_tokens(p, cJSON_GetStringValue(prompt), memory, &e);
    fclose(memory);
    char *ids = s == OK ? strstr(got, "\"ids\":[") : NULL;
    size_t n = strlen(tab + 1), commas = 0;
    bool good = ids && !strncmp(ids + 7, tab + 1, n) && (ids[7 + n] == ',' || ids[7 + n] == ']');
    for (char *c = ids; good && *c; c++) commas += *c == ','; /* the whole row: 512 ids */
    expect_at(good && commas == 511, line, "ids of the prompt", number);
    cJSON_Delete(prompt);
    free(got);
}

static void prompts(void) {
    FILE *f = fopen(GOLDEN_DIR "/zimage_prompts.txt", "r");
    char *line = NULL;
    size_t cap = 0;
    int count = 0;
    Pipeline *p = expect_pipeline(ZIMAGE_MODEL);
    while (f && p && getline(&line, &cap, f) > 0) one_prompt(p, line, ++count);
    expect(count >= 19);
    free(line);
    if (f) fclose(f);
    pipeline_close(p);
}

/* --- jobs --- */

static void resolved(const char *model, bool base) {
    Job job;
    Pipeline *p = expect_defaults(model, &job);
    Error e = {0};
    if (!p) return;
    expect(job.width == 1024 && job.height == 1024 && job.steps == (base ? 50 : 8) && job.max_sequence_length == 512);
    expect(base ? job.cfg && job.cfg_scale == 5 && job.negative_prompt && !*job.negative_prompt
                : !job.cfg && job.cfg_scale == 0 && !job.negative_prompt);
    job = (Job){.prompt = "a", .cfg_scale_given = true, .negative_prompt = "b"};
    expect(pipeline_resolve(p, &job, &e) == OK && !job.cfg);
    job = (Job){.prompt = "a", .guidance_scale = 0.5, .guidance_scale_given = true};
    expect(pipeline_resolve(p, &job, &e) == OK && job.cfg && job.cfg_scale == 0.5);
    const struct { Job job; const char *text; } refused[] = {
        {{.prompt = "a", .guidance_given = true, .guidance = 3}, "--guidance: Z-Image"},
        {{.prompt = "a", .width = 1000}, "--width 1000: expected a multiple of 16; the nearest are 992 and 1008"},
        {{.prompt = "a", .height = 8208}, "--height 8208: the model has positions for 8192 pixels"},
        {{.prompt = "a", .max_sequence_length = 1505}, "--max-sequence-length 1505: expected 1 to 1504"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        job = refused[i].job;
        e = (Error){0};
        expect_status(pipeline_resolve(p, &job, &e), ERR_USAGE, refused[i].text, &e);
    }
    pipeline_close(p);
}

/* Options of the one model are refused by the other. */
static void foreign(void) {
    Pipeline *p = expect_pipeline(GOLDEN_MODEL);
    Error e = {0};
    if (!p) return;
    Job job = {.prompt = "a", .cfg_normalization = 1};
    expect_status(pipeline_resolve(p, &job, &e), ERR_USAGE, "they belong to Z-Image", &e);
    job = (Job){.prompt = "a", .cfg_truncation_given = true};
    e = (Error){0};
    expect_status(pipeline_resolve(p, &job, &e), ERR_USAGE, "they belong to Z-Image", &e);
    job = (Job){.prompt = "a", .cfg_scale = 2};
    expect(pipeline_resolve(p, &job, &e) == OK && !job.cfg);
    job.negative_prompt = "";
    expect(pipeline_resolve(p, &job, &e) == OK && job.cfg);
    pipeline_close(p);
}

int main(void) {
    char folder[500], base[600], dump[700];
    expect_folder(folder, sizeof folder);
    snprintf(base, sizeof base, "%s/base-model", folder);
    mutate_copy_folder(ZIMAGE_MODEL, base);
    mutate_json(base, "scheduler/scheduler_config.json", "shift", "6.0");
    parts();
    rotary();
    prompts();
    resolved(ZIMAGE_MODEL, false);
    resolved(base, true);
    foreign();
    const struct { const char *name, *model; DType dtype; } runs[] = {
        {"zimage_turbo_f32", ZIMAGE_MODEL, F32}, {"zimage_turbo_bf16", ZIMAGE_MODEL, BF16}, {"zimage_base_f32", base, F32},
        {"zimage_base_bf16", base, BF16},        {"zimage_norm_f32", base, F32},
        {"zimage_long_f32", base, F32},          {"zimage_long_bf16", base, BF16},        {"zimage_short_f32", base, F32}};
    Golden g = {0};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        snprintf(dump, sizeof dump, "%s/%s", folder, runs[i].name);
        judge(&g, golden_picture(&g, runs[i].model, runs[i].dtype, runs[i].name, dump), runs[i].name);
    }
    safetensors_close(&g.file);
    expect_cleanup(folder);
    return expect_done();
}
