/* test_runs.c - whole pictures of the tiny FLUX.1 checkpoint, from the prompt to the pixels, against diffusers:
 * guidance-distilled, with classifier-free guidance, and the schnell variant; in f32 and in bf16.
 *
 * Exact in both dtypes: ids, noise, sigmas, timesteps. f32: every other stage max|a - b| <= 1e-4 max|b|, picture at
 * least 60 dB. bf16: |a - b| <= |b_f32 - b|, Euclidean: our run is no farther from the reference than the reference
 * is from f32 (NAME@f32: the same run in f32 from the bf16 noise); errors of all steps add up, so the quarter that
 * single blocks keep (golden.h) is not asked for here.
 * GOLDEN_VERBOSE=1 prints every stage. Easy to get wrong: run from the repository root. */
#include "expect.h"
#include "golden.h"
#include "mutate.h"
#include "pipeline.h"

typedef struct Case {
    const char *name, *model;
    DType dtype;
} Case;

static double number(const Golden *g, const char *key) {
    const char *text = "0";
    Error e = {0};
    json_string(g->file.metadata, key, &text, "metadata", &e);
    return strtod(text, NULL);
}

static const char *text_of(const Golden *g, const char *key) {
    const char *text = NULL;
    Error e = {0};
    json_string(g->file.metadata, key, &text, "metadata", &e);
    return text;
}

static bool starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

/* Error over allowance, as in golden_metric, for a stage file of the dump. */
static double stage_metric(const Golden *g, const char *name, Tensor have) {
    Tensor want = golden_find(g, name);
    char twin[80];
    snprintf(twin, sizeof twin, "%s@f32", name);
    Tensor f32 = golden_find(g, twin);
    int64_t n = tensor_numel(want);
    if (have.dtype != want.dtype || tensor_numel(have) != n) return INFINITY;
    double most = 0, top = 0, error = 0, room = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = golden_at(have.data, have.dtype, i), b = golden_at(want.data, want.dtype, i), d = fabs(a - b);
        if (!(d <= most)) most = d;
        top = fmax(top, fabs(b));
        error += d * d;
        if (f32.rank) room += pow(golden_at(f32.data, f32.dtype, i) - b, 2);
    }
    bool exact = strstr(name, "ids_") || starts(name, "noise") || starts(name, "sigmas") || starts(name, "timesteps");
    if (exact) return error == 0 ? 0 : INFINITY;
    if (f32.rank) return sqrt(error / room);
    if (want.dtype == U8) return sqrt(error / (double)n) / (255 * pow(10, -60 / 20.0)); /* 60 dB */
    return most / (GOLDEN_F32 * top);
}

static void run(const Case *c, const char *folder) {
    char dump[800], path[1600];
    Golden g = {0};
    Error e = {0};
    snprintf(path, sizeof path, GOLDEN_DIR "/%s.safetensors", c->name);
    expect_ok(safetensors_open(path, &g.file, &e), &e);
    snprintf(dump, sizeof dump, "%s/%s", folder, c->name);
    Pipeline *p = NULL;
    PipelineOptions options = {.model = c->model, .device = "cpu", .dtype = c->dtype};
    Job job = {.prompt = text_of(&g, "prompt"), .negative_prompt = text_of(&g, "negative"), .dump = dump,
               .width = (int)number(&g, "width"), .height = (int)number(&g, "height"), .steps = (int)number(&g, "steps"),
               .seed = (uint64_t)number(&g, "seed"), .guidance = number(&g, "guidance"), .cfg_scale = number(&g, "cfg"),
               .max_sequence_length = (int)number(&g, "max_sequence_length")};
    job.guidance_given = job.guidance > 0;
    Media media = {0};
    Status s = pipeline_open(&options, &p, &e);
    if (s == OK) s = pipeline_resolve(p, &job, &e);
    if (s == OK) s = pipeline_render(p, &job, NULL, &media, &e);
    if (s != OK) printf("%s: %s\n", c->name, e.text);
    expect(s == OK);
    for (int i = 0; s == OK && i < g.file.count; i++) {
        const char *name = g.file.entry[i].name;
        if (strchr(name, '@')) continue;
        Safetensors stage = {0};
        Error none = {0};
        double metric = INFINITY;
        snprintf(path, sizeof path, "%s/%s.safetensors", dump, name);
        if (safetensors_open(path, &stage, &none) == OK && safetensors_find(&stage, name))
            metric = stage_metric(&g, name, safetensors_tensor(&stage, safetensors_find(&stage, name)));
        expect_at(metric <= 1, name, c->name, 0);
        if (getenv("GOLDEN_VERBOSE") || !(metric <= 1))
            printf("%-13s %-24s %.3f of the allowance%s%s\n", c->name, name, metric, *none.text ? ": " : "", none.text);
        safetensors_close(&stage);
    }
    media_free(&media);
    pipeline_close(p);
    safetensors_close(&g.file);
}

int main(void) {
    char folder[500], schnell[600];
    expect_folder(folder, sizeof folder);
    snprintf(schnell, sizeof schnell, "%s/schnell-model", folder);
    mutate_copy_folder(GOLDEN_MODEL, schnell);
    mutate_drop(schnell, "transformer/diffusion_pytorch_model.safetensors", "guidance_embedder");
    mutate_json(schnell, "transformer/config.json", "guidance_embeds", "false");
    mutate_json(schnell, "scheduler/scheduler_config.json", "shift", "1.0");
    mutate_json(schnell, "scheduler/scheduler_config.json", "use_dynamic_shifting", "false");
    const Case cases[] = {{"dev_f32", GOLDEN_MODEL, F32},   {"dev_bf16", GOLDEN_MODEL, BF16},
                          {"cfg_f32", GOLDEN_MODEL, F32},   {"cfg_bf16", GOLDEN_MODEL, BF16},
                          {"schnell_f32", schnell, F32},    {"schnell_bf16", schnell, BF16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run(&cases[i], folder);
    expect_cleanup(folder);
    return expect_done();
}
