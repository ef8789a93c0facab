/* test_sana_video.c - SANA-Video's transformer, drawn from a seed, against diffusers stage by stage (golden.h says how a stage
 * is judged), and what its config refuses; whole clips of a drawn model, from text, from an image, by either solver; what a
 * job resolves to.
 *
 * GOLDEN_VERBOSE=1 prints every stage. Easy to get wrong: run from the repository root. */
#include "golden_judge.h"
#include "expect_pipeline.h"
#include "golden_runs.h"
#include "golden_sana_model.h"
#include "meta.h"
#include "model.h"
#include "stages.h"

static void refusals(const char *folder) {
    static const struct { const char *key, *value, *text; } FAULTS[] = {
        {"out_channels", "12", "out_channels: found 12"},
        {"cross_attention_dim", "64", "cross_attention_dim"},
        {"num_cross_attention_heads", "4", "num_cross_attention_heads"},
        {"patch_size", "[2, 2, 2]", "patch_size: expected [1, n, n]"},
        {"norm_elementwise_affine", "true", "norm_elementwise_affine"},
        {"guidance_embeds", "true", "guidance_embeds"},
        {"qk_norm", "\"rms_norm\"", "qk_norm"},
        {"attention_head_dim", "15", "cross_attention_dim"},
        {"mlp_ratio", "-1.0", "mlp_ratio"},
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        SanaVideoDit m = {0};
        Error e = {0};
        sana_write(folder);
        mutate_json(folder, "config.json", FAULTS[i].key, FAULTS[i].value);
        expect_status(dit_sana_video_open(folder, &m, &e), ERR_MODEL, FAULTS[i].text, &e);
        dit_sana_video_close(&m);
    }
}

static void clips(const char *folder) {
    static const struct { const char *name; bool euler; DType dtype; } RUNS[] = {
        {"sana_t2v_f32", false, F32}, {"sana_i2v_f32", false, F32}, {"sana_euler_f32", true, F32},
        {"sana_t2v_bf16", false, BF16}};
    char model[600], dump[700];
    Golden g = {0};
    for (size_t i = 0; i < sizeof RUNS / sizeof *RUNS; i++) {
        snprintf(model, sizeof model, "%s/%s", folder, RUNS[i].euler ? "euler" : "model");
        snprintf(dump, sizeof dump, "%s/%s", folder, RUNS[i].name);
        sana_model(model, RUNS[i].euler);
        Status s = golden_picture(&g, model, RUNS[i].dtype, RUNS[i].name, dump);
        for (int k = 0; k < g.stages; k++) /* "grid" is no stage: judged here, in code values */
            if (!strcmp(g.stage[k].name, "grid")) g.stage[k].metric = sana_grid_error(&g, dump);
        golden_judge(&g, s, RUNS[i].name);
    }
    safetensors_close(&g.file);
}

/* Latents that a convolution takes beyond F32: the decoder is the last that can say so. */
static void infinite(const char *folder) {
    enum { COUNT = 4 * 2 * 4 * 8 };
    static const int64_t SHAPE[] = {1, 4, 2, 4, 8};
    float values[COUNT] = {[77] = 3e38f};
    char model[600], path[600];
    Error e = {0};
    Pipeline *p = NULL;
    Media media = {0};
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(path, sizeof path, "%s/latents.safetensors", folder);
    expect_ok(stages_write_file(path, "latents", F32, 5, SHAPE, values, true, &e), &e);
    expect_ok(pipeline_open(&(PipelineOptions){.model = model, .device = "cpu", .dtype = F32}, &p, &e), &e);
    if (!p) return;
    Inject inject = {"latents", path};
    Job job = {.prompt = "a", .width = 64, .height = 32, .frames = 5, .steps = 2, .inject = &inject, .inject_count = 1};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect_status(pipeline_render(p, &job, NULL, &media, &e), ERR_NAN, "vae: decoded frames", &e);
    media_free(&media);
    pipeline_close(p);
}

static uint8_t *rendered(Pipeline *p, Job job, int width, int height) {
    Error e = {0};
    Media media = {0};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect_ok(pipeline_render(p, &job, NULL, &media, &e), &e);
    expect(media.width == width && media.height == height && media.frames == job.frames);
    uint8_t *rgb = media.rgb;
    media.rgb = NULL;
    media_free(&media);
    return rgb;
}

/* The reference's layout moves numbers and changes none. A binned clip is the one of that size, scaled: where it is not, the
 * very same. */
static void choices(const char *folder) {
    char model[600];
    snprintf(model, sizeof model, "%s/model", folder);
    Pipeline *p = expect_pipeline(model);
    if (!p) return;
    Job job = {.prompt = "a", .width = 64, .height = 32, .frames = 5, .steps = 1, .seed = 3}, turned = job, small = job;
    turned.layout = "reference";
    uint8_t *a = rendered(p, job, 64, 32), *b = rendered(p, turned, 64, 32);
    expect(a && b && !memcmp(a, b, (size_t)5 * 64 * 32 * 3));
    free(a), free(b);
    small.width = 416, small.height = 240, small.frames = 1, small.bin = true; /* half of 832 x 480 */
    job = small, job.width = 832, job.height = 480;
    turned = job, turned.bin = false;
    a = rendered(p, job, 832, 480), b = rendered(p, turned, 832, 480);
    uint8_t *half = rendered(p, small, 416, 240);
    expect(a && b && half && !memcmp(a, b, (size_t)832 * 480 * 3));
    int most = 0;
    for (int y = 0; a && half && y < 240; y++)
        for (int x = 0; x < 416; x++)
            for (int c = 0; c < 3; c++) { /* the middle of four numbers; here of their bytes, so rounded twice */
                const uint8_t *at = a + ((size_t)2 * (size_t)y * 832 + 2 * (size_t)x) * 3 + c;
                int four = at[0] + at[3] + at[832 * 3] + at[832 * 3 + 3], off = abs(4 * half[(y * 416 + x) * 3 + c] - four);
                most = off > most ? off : most;
            }
    expect_at(most <= 4, "half the size", "", most); /* half a value each of four bytes, and half of the result */
    free(a), free(b), free(half);
    pipeline_close(p);
}

/* The stage "latents" of a run. */
typedef struct Kept {
    LatentsWatch base;
    float *values;
    size_t bytes;
} Kept;

static Status keep(void *user, DType t, const Streams *streams, const void *data, Error *e) {
    Kept *k = user;
    (void)e;
    k->bytes = (size_t)streams->stream[0].count * dtype_size(t);
    k->values = malloc(k->bytes);
    if (t != F32 || !k->values) abort();
    memcpy(k->values, data, k->bytes);
    return OK;
}

static double apart(const Kept *a, const Kept *b) {
    double sum = 0;
    if (!a->values || !b->values || a->bytes != b->bytes) return INFINITY;
    for (size_t i = 0; i < a->bytes / 4; i++) sum += pow((double)a->values[i] - (double)b->values[i], 2);
    return sum;
}

/* At high linear attention runs on two BF16 numbers, is said to, gives other bits, and not other latents than BF16 may give: of
 * two runs that are as far from F32 as this one the squared distance is at most four times that. By name it can be left out. */
static void high(const char *folder) {
    char model[600];
    Error e = {0};
    Pipeline *p = NULL;
    static const struct { DType dtype; Quality quality; const char *families; } RUNS[] = {
        {BF16, QUALITY_LOSSLESS, NULL}, {BF16, QUALITY_HIGH, "linear-attention-bf16"}, {BF16, QUALITY_HIGH, "none"},
        {F32, QUALITY_LOSSLESS, NULL}};
    enum { COUNT = sizeof RUNS / sizeof *RUNS };
    Kept kept[COUNT] = {0};
    snprintf(model, sizeof model, "%s/model", folder);
    for (int i = 0; i < COUNT; i++) {
        Media media = {0};
        kept[i].base = (LatentsWatch){.see = keep, .user = &kept[i]};
        Job job = {.prompt = "a", .width = 208, .height = 112, .frames = 5, .steps = 2, .seed = 3, .keep = &kept[i].base,
                   .quality = RUNS[i].quality, .families = RUNS[i].families};
        expect_ok(pipeline_open(&(PipelineOptions){.model = model, .device = "cpu", .dtype = RUNS[i].dtype}, &p, &e), &e);
        if (!p) return;
        expect_ok(pipeline_resolve(p, &job, &e), &e);
        expect_ok(pipeline_render(p, &job, NULL, &media, &e), &e);
        uint64_t runs = 0;
        for (int k = 0; k < media.families; k++)
            if (!strcmp(media.family[k].family, "linear-attention-bf16") && media.family[k].mounted)
                runs += media.family[k].count;
        expect_at((i == 1) == (runs > 0), "linear-attention-bf16", "runs", (int)runs);
        media_free(&media);
        pipeline_close(p);
    }
    double moved = apart(&kept[1], &kept[0]), noise = apart(&kept[3], &kept[0]);
    expect_at(moved > 0 && moved <= 4 * noise, "linear-attention-bf16", "per mille of the noise", (int)(1e3 * moved / noise));
    expect(apart(&kept[2], &kept[0]) == 0);
    if (getenv("GOLDEN_VERBOSE")) printf("high: moved by %.3g of the noise\n", sqrt(moved / noise));
    for (int i = 0; i < COUNT; i++) free(kept[i].values);
}

/* What is said of texts that are cut: the negative one is read without instruction and motion score. */
static void told(const char *folder) {
    Error e = {0};
    char model[600], said[1000] = "";
    snprintf(model, sizeof model, "%s/model", folder);
    Pipeline *p = expect_pipeline(model);
    if (!p) return;
    Model *m = pipeline_facts(p).model;
    Job job = {.prompt = "a", .negative_prompt = "b c d e f g h i j k l", .max_sequence_length = 4, .motion_score = 30};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    Tokens seen;
    expect_ok(m->ops->tokenize_negative(m, job.negative_prompt, &job, &seen, &e), &e);
    FILE *out = fmemopen(said, sizeof said, "w");
    expect_ok(pipeline_note_cut(p, &job, out, &e), &e);
    fclose(out);
    char want[200];
    const char *rest = job.negative_prompt + seen.row[0].lost_byte;
    rest += *rest == ' ';
    snprintf(want, sizeof want, "reads %lld tokens of the negative prompt; cut: \"%.1s\"", (long long)seen.row[0].count, rest);
    expect_at(seen.row[0].lost_byte > 0 && strstr(said, want), want, said, 0);
    model_tokens_free(&seen);
    /* a reader of the web UIs' line must not be told another solver */
    char *line = meta_parameters(&(Meta){.job = &job, .title = "x", .sampler = pipeline_sampler(p)});
    expect(line && strstr(line, "Steps: 50, Sampler: DPM++ 2M, "));
    free(line);
    pipeline_close(p);
}

static void jobs(const char *folder) {
    Error e = {0};
    char model[600];
    snprintf(model, sizeof model, "%s/model", folder);
    Job job;
    Pipeline *p = expect_defaults(model, &job);
    if (!p) return;
    expect(job.width == 832 && job.height == 480 && job.frames == 81 && job.fps.num == 16 && job.fps.den == 1 && job.steps == 50);
    expect(job.cfg && job.cfg_scale == 6 && job.negative_prompt && !*job.negative_prompt && job.max_sequence_length == 300);
    job = (Job){.prompt = "a", .cfg_scale = 1, .cfg_scale_given = true};
    expect(pipeline_resolve(p, &job, &e) == OK && !job.cfg);
    job = (Job){.prompt = "a", .image = GOLDEN_DIR "/drawing.png"};
    expect(pipeline_resolve(p, &job, &e) == OK && job.first_step == 0 && job.width == 832);
    const struct { int width, height, made_width, made_height; } bins[] = { /* as classify_height_width_bin has them */
        {832, 480, 832, 480}, {0, 0, 832, 480}, {720, 400, 832, 480}, {512, 512, 624, 624}, {480, 832, 480, 832},
        {640, 448, 768, 528}, {400, 800, 448, 896}, {1600, 400, 896, 448}, {496, 800, 496, 816}, {560, 640, 592, 672}};
    for (size_t i = 0; i < sizeof bins / sizeof *bins; i++) {
        job = (Job){.prompt = "a", .bin = true, .width = bins[i].width, .height = bins[i].height};
        expect_at(pipeline_resolve(p, &job, &e) == OK && job.made_width == bins[i].made_width &&
                      job.made_height == bins[i].made_height && (!bins[i].width || job.width == bins[i].width),
                  "bin", e.text, (int)i);
    }
    job = (Job){.prompt = "a", .width = 720, .height = 400};
    expect(pipeline_resolve(p, &job, &e) == OK && job.made_width == 720 && job.made_height == 400);
    const struct { Job job; const char *text; } refused[] = {
        {{.prompt = "a", .layout = "planes"}, "--layout: found \"planes\""},
        {{.prompt = "a", .guidance_given = true, .guidance = 3}, "--guidance: SANA-Video"},
        {{.prompt = "a", .width = 840}, "--width 840: expected a multiple of 16; the nearest are 832 and 848"},
        {{.prompt = "a", .height = 16400}, "--height 16400: the model has positions for 16384 pixels"},
        {{.prompt = "a", .frames = 80}, "--frames 80: expected 1 and a multiple of 4; the nearest are 77 and 81"},
        {{.prompt = "a", .frames = 4097}, "--frames 4097: at most 4093"},
        {{.prompt = "a", .max_sequence_length = 1}, "--max-sequence-length 1: expected 2 to 4096"},
        {{.prompt = "a", .cfg_truncation_given = true}, "they belong to Z-Image"},
        {{.prompt = "a", .image = GOLDEN_DIR "/drawing.png", .strength = 0.5, .strength_given = true}, "as the first frame"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        job = refused[i].job;
        e = (Error){0};
        expect_status(pipeline_resolve(p, &job, &e), ERR_USAGE, refused[i].text, &e);
    }
    pipeline_close(p);
}

/* A checkpoint with rotary tables for `positions` only: its defaults are as much of the pipeline's as those allow. */
static void few_positions(const char *folder, const char *positions, int width, int height, int frames) {
    char model[600], path[700];
    Error e = {0};
    Job job = {.prompt = "a"};
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(path, sizeof path, "%s/transformer", model);
    mutate_json(path, "config.json", "rope_max_seq_len", positions);
    Pipeline *p = expect_pipeline(model);
    if (!p) return;
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect(job.width == width && job.height == height && job.frames == frames);
    pipeline_close(p);
}

int main(void) {
    char folder[500], model[600];
    Golden g;
    expect_folder(folder, sizeof folder);
    snprintf(model, sizeof model, "%s/transformer", folder);
    sana_write(model);
    if (golden_open(&g) != OK) return printf("%s\n", g.error.text), 1;
    for (int64_t clean = 0; clean <= SANA_FRAMES; clean++) { /* all frames at one time, said in two parts */
        char name[40];
        snprintf(name, sizeof name, "f32, %d frames apart", (int)clean);
        golden_judge(&g, golden_sana(&g, model, F32, &(SanaRun){.clean = clean}), name);
        snprintf(name, sizeof name, "bf16, %d frames apart", (int)clean);
        golden_judge(&g, golden_sana(&g, model, BF16, &(SanaRun){.clean = clean}), name);
    }
    golden_close(&g);
    refusals(model);
    clips(folder);
    infinite(folder);
    jobs(folder);
    told(folder);
    choices(folder);
    high(folder);
    few_positions(folder, "30", 480, 480, 81); /* last: the model is another one then */
    few_positions(folder, "5", 64, 64, 17);
    few_positions(folder, "1", 16, 16, 1);
    expect_cleanup(folder);
    return expect_done();
}
