/* golden_runs.h - one whole picture of a tiny FLUX.1 folder, from the prompt to the pixels, compared with a golden run
 * (tests/golden/NAME.safetensors, scripts/reference_flux.py). Shared by test_runs.c and test_mutants.c.
 *
 * Exact in both dtypes: ids, noise, sigmas, timesteps. f32: every other stage max|a - b| <= 1e-4 max|b|, picture at
 * least 60 dB. bf16: |a - b| <= |b_f32 - b|, Euclidean: our run is no farther from the reference than the reference
 * is from f32 (NAME@f32: the same run in f32 from the bf16 noise); errors of all steps add up, so the quarter that
 * single blocks keep (golden.h) is not asked for here.
 * Easy to get wrong: stages are read back from --dump files, so a stage that is not dumped counts as infinite. */
#ifndef GOLDEN_RUNS_H
#define GOLDEN_RUNS_H

#include "golden.h"
#include "pipeline.h"

static inline const char *golden_words(const Golden *g, const char *key) {
    const char *text = NULL;
    Error e = {0};
    json_string(g->file.metadata, key, &text, "metadata", &e);
    return text;
}

static inline double golden_number(const Golden *g, const char *key) {
    const char *text = golden_words(g, key);
    return text ? strtod(text, NULL) : 0;
}

/* Error over allowance for one stage file of the dump. */
static inline double golden_stage(const Golden *g, const char *name, Tensor have) {
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
    static const char *const EXACT_STAGES[] = {"ids_", "noise", "sigmas", "timesteps"};
    for (size_t i = 0; i < sizeof EXACT_STAGES / sizeof *EXACT_STAGES; i++)
        if (strstr(name, EXACT_STAGES[i])) return error == 0 ? 0 : INFINITY;
    if (f32.rank) return sqrt(error / room);
    if (want.dtype == U8) return sqrt(error / (double)n) / (255 * pow(10, -60 / 20.0)); /* 60 dB */
    return most / (GOLDEN_F32 * top);
}

/* Renders golden run NAME from `model`, dumping into `dump`; notes every stage in g (golden_note). */
static inline Status golden_picture(Golden *g, const char *model, DType dtype, const char *name, const char *dump) {
    char path[1600];
    Error *e = &g->error;
    *e = (Error){0};
    snprintf(path, sizeof path, GOLDEN_DIR "/%s.safetensors", name); /* also where stages are injected from */
    safetensors_close(&g->file);
    TRY(safetensors_open(path, &g->file, e));
    Pipeline *p = NULL;
    PipelineOptions options = {.model = model, .device = "cpu", .dtype = dtype};
    Job job = {.prompt = golden_words(g, "prompt"), .negative_prompt = golden_words(g, "negative"), .dump = dump,
               .width = (int)golden_number(g, "width"), .height = (int)golden_number(g, "height"),
               .steps = (int)golden_number(g, "steps"), .seed = (uint64_t)golden_number(g, "seed"),
               .guidance = golden_number(g, "guidance"),
               .cfg_scale = golden_number(g, golden_words(g, "cfg_scale") ? "cfg_scale" : "cfg"),
               .max_sequence_length = (int)golden_number(g, "max_sequence_length"), .frames = (int)golden_number(g, "frames"),
               .motion_score = (int)golden_number(g, "motion_score")};
    char image[1200];
    const char *file_name = golden_words(g, "image");
    snprintf(image, sizeof image, GOLDEN_DIR "/%s", file_name ? file_name : "");
    if (file_name) job.image = image;
    static const char *const TEXTS[] = {"prompt_embeds", "negative_prompt_embeds", "audio_prompt_embeds",
                                        "negative_audio_prompt_embeds"};
    Inject inject[] = {{TEXTS[0], path}, {TEXTS[1], path}, {TEXTS[2], path}, {TEXTS[3], path}};
    if (golden_words(g, "injected")) job.inject = inject, job.inject_count = golden_find(g, TEXTS[2]).rank ? 4 : 2;
    static const char *const GUIDES[GUIDE_KINDS] = {"stg_scale", "modality_scale", "guidance_rescale", "audio_cfg_scale",
                                                    "audio_stg_scale", "audio_modality_scale", "audio_guidance_rescale"};
    for (int k = 0; k < GUIDE_KINDS; k++)
        if ((job.guide_given[k] = golden_words(g, GUIDES[k]) != NULL)) job.guide[k] = golden_number(g, GUIDES[k]);
    job.stg_blocks = golden_words(g, "stg_blocks");
    job.match = golden_words(g, "match");
    job.upscale = (int)golden_number(g, "upscale");
    if (golden_words(g, "fps")) rate_parse(golden_words(g, "fps"), &job.fps);
    job.guidance_given = job.guidance > 0;
    job.cfg_scale_given = job.cfg_scale > 0;
    job.cfg_normalization = golden_number(g, "normalization");
    job.cfg_truncation = golden_number(g, "truncation");
    job.cfg_truncation_given = job.cfg_truncation > 0;
    Media media = {0};
    Status s = pipeline_open(&options, &p, e);
    if (s == OK) s = pipeline_resolve(p, &job, e);
    if (s == OK) s = pipeline_render(p, &job, NULL, &media, e);
    for (int i = 0; s == OK && i < g->file.count; i++) {
        const char *stage = g->file.entry[i].name;
        if (strchr(stage, '@')) continue;
        Safetensors file = {0};
        Error none = {0};
        double metric = INFINITY;
        snprintf(path, sizeof path, "%s/%s.safetensors", dump, stage);
        if (safetensors_open(path, &file, &none) == OK && safetensors_find(&file, stage))
            metric = golden_stage(g, stage, safetensors_tensor(&file, safetensors_find(&file, stage)));
        golden_note(g, stage, metric);
        safetensors_close(&file);
    }
    media_free(&media);
    pipeline_close(p);
    return s;
}

#endif
