/* test_ltx2.c - whole clips with sound of a drawn LTX-2, from the prompt to frames and samples, against diffusers (golden_runs.h
 * says how a stage is judged); noise levels; what a job resolves to and what is refused.
 *
 * GOLDEN_VERBOSE=1 prints every stage; --write DIR writes the model and nothing else.
 * Easy to get wrong: run from the repository root. */
#include "golden_judge.h"
#include "expect_pipeline.h"
#include "golden_ltx2_model.h"
#include "golden_runs.h"
#include "plan.h"
#include "stages.h"

#define PHOTO GOLDEN_DIR "/photo.jpg"

/* Largest distance of a sampled golden tensor from the stage of a dump: every step[d]-th element of dimension d. */
static double sampled_error(const Golden *g, const char *name, const char *dump, const char *stage,
                            const int64_t step[4]) {
    char path[900];
    Safetensors file = {0};
    Error e = {0};
    Tensor want = golden_find(g, name), have = {0};
    double error = INFINITY;
    snprintf(path, sizeof path, "%s/%s.safetensors", dump, stage);
    if (safetensors_open(path, &file, &e) == OK && safetensors_find(&file, stage))
        have = safetensors_tensor(&file, safetensors_find(&file, stage));
    bool fits = want.rank && have.rank == want.rank && have.dtype == want.dtype;
    for (int d = 0; fits && d < want.rank; d++)
        fits = want.shape[d] == (have.shape[d] + step[d] - 1) / step[d];
    for (int64_t i = 0, n = fits ? tensor_numel(want) : 0; i < n; i++) {
        int64_t at = 0, left = i, unit = 1;
        for (int d = want.rank - 1; d >= 0; d--) {
            at += left % want.shape[d] * step[d] * unit;
            left /= want.shape[d], unit *= have.shape[d];
        }
        double d = fabs(golden_at(have.data, have.dtype, at) - golden_at(want.data, want.dtype, i));
        error = i && error >= d ? error : d; /* NaN stays */
    }
    safetensors_close(&file);
    return error;
}

static void clips(const char *folder, const char *model) {
    static const struct {
        const char *name;
        DType dtype;
    } RUNS[] = {{"ltx2_four_f32", F32},
                {"ltx2_two_f32", F32},
                {"ltx2_image_f32", F32},
                {"ltx2_upscale_f32", F32},
                {"ltx2_four_bf16", BF16}};
    static const int64_t GRID[4] = {1, 8, 8, 1}, WAVE[4] = {16, 1};
    char dump[700];
    Golden g = {0};
    for (size_t i = 0; i < sizeof RUNS / sizeof *RUNS; i++) {
        snprintf(dump, sizeof dump, "%s/%s", folder, RUNS[i].name);
        Status s = golden_picture(&g, model, RUNS[i].dtype, RUNS[i].name, dump);
        for (int k = 0; k < g.stages;
             k++) { /* no stages: judged here, in code values, and by the bound of f32 */
            if (!strcmp(g.stage[k].name, "grid"))
                g.stage[k].metric = sampled_error(&g, "grid", dump, "pixels", GRID);
            if (!strcmp(g.stage[k].name, "wave"))
                g.stage[k].metric = sampled_error(&g, "wave", dump, "audio", WAVE) / GOLDEN_F32;
        }
        golden_judge(&g, s, RUNS[i].name);
    }
    safetensors_close(&g.file);
}

/* Sheets of numbers computed apart from any program: the shift by tokens without a limit, and the stretch to 0.1. */
static void levels(const char *model) {
    static const struct {
        int steps, width, height;
        double mu;
        float first[6], last[6];
    } WANT[] = {{40,
                 768,
                 512,
                 2.78333,
                 {1, .997985f, .995870f, .993649f, .991312f, .988852f},
                 {.615389f, .544788f, .449136f, .312220f, .1f, 0}},
                {40,
                 512,
                 512,
                 2.05,
                 {1, .996449f, .992737f, .988851f, .984780f, .980510f},
                 {.488430f, .420719f, .337809f, .233936f, .1f, 0}},
                {30,
                 768,
                 512,
                 2.78333,
                 {1, .997017f, .993836f, .990434f, .986790f, .982875f},
                 {.668935f, .598090f, .498776f, .349520f, .1f, 0}},
                {40,
                 1280,
                 704,
                 5.625,
                 {1, .999325f, .998615f, .997866f, .997076f, .996242f},
                 {.820277f, .770543f, .689177f, .531940f, .1f, 0}}};
    static const float DISTILLED[] = {1.0f, .99375f, .9875f, .98125f, .975f, .909375f, .725f, .421875f, 0};
    Pipeline *p = expect_pipeline(model);
    Error e = {0};
    if (!p) return;
    Model *m = pipeline_facts(p).model;
    for (size_t i = 0; i < sizeof WANT / sizeof *WANT; i++) {
        Schedule s = {0};
        Job job = {.prompt = "a", .width = WANT[i].width, .height = WANT[i].height, .steps = WANT[i].steps};
        expect_ok(pipeline_resolve(p, &job, &e), &e);
        expect_ok(m->ops->schedule(m, &job, &s, &e), &e);
        bool good = fabs(s.mu - WANT[i].mu) < 6e-6;
        for (int k = 0; k < 6; k++)
            good = good && fabsf(s.sigmas[k] - WANT[i].first[k]) < 6e-7f &&
                   fabsf(s.sigmas[s.steps - 5 + k] - WANT[i].last[k]) < 6e-7f;
        expect(good);
        sched_free(&s);
    }
    Ltx2 *z = (Ltx2 *)m;
    z->distilled = true, z->sched.use_dynamic_shifting = false, z->sched.shift_terminal = 0;
    Schedule s = {0};
    Job job = {.prompt = "a"};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect(job.steps == 8 && !job.cfg && job.cfg_scale == 1 && job.guide[GUIDE_STG] == 0 &&
           job.guide[GUIDE_MODALITY] == 1);
    expect_ok(m->ops->schedule(m, &job, &s, &e), &e);
    for (int k = 0; k <= 8; k++) expect(s.sigmas[k] == DISTILLED[k]);
    sched_free(&s);
    pipeline_close(p);
}

/* A picture's own tokens count among those that shift the levels, for every job of a pipeline: the ones before it, planned or
 * run, must not matter. */
static void again(const char *model) {
    Error e = {0};
    Plan plan;
    float first = 0;
    Pipeline *p = expect_pipeline(model);
    if (!p) return;
    Model *m = pipeline_facts(p).model;
    Job job = {.prompt = "a", .image = PHOTO ":1", .width = 64, .height = 64, .frames = 9, .steps = 4};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    for (int k = 0; k < 2; k++) {
        Schedule s = {0};
        expect_ok(m->ops->schedule(m, &job, &s, &e), &e);
        expect(fabs(s.mu - (0.95 + (12 - 1024) * 1.1 / 3072)) < 6e-6); /* 2 frames of 4 tokens, and the picture's 4 */
        expect(k ? s.sigmas[1] == first : s.sigmas[1] > 0);
        first = s.sigmas[1];
        sched_free(&s);
        if (k == 0) expect_ok(pipeline_plan(p, &job, &plan, &e), &e);
    }
    pipeline_close(p);
}

static void jobs(const char *model) {
    Job job;
    Pipeline *p = expect_defaults(model, &job);
    Error e = {0};
    if (!p) return;
    expect(job.width == 768 && job.height == 512 && job.frames == 121 && job.fps.num == 24 &&
           job.steps == 30);
    expect(job.cfg && job.cfg_scale == 3 && job.guide[GUIDE_RESCALE] == 0.7 &&
           job.guide[GUIDE_AUDIO_CFG] == 7);
    expect(job.max_sequence_length == 1024 && job.negative_prompt && !*job.negative_prompt &&
           !strcmp(job.stg_blocks, "28"));
    const Ltx2 *z = (const Ltx2 *)pipeline_facts(p).model;
    Ltx2Size s = ltx2_size(z, &job);
    expect(s.frames == 16 && s.tokens[LTX2_VIDEO] == 6144 && s.tokens[LTX2_AUDIO] == 126);
    job = (Job){.prompt = "a", .frames = 9, .fps = {10, 1}}; /* 22.5 latents of sound: halves to even */
    expect(pipeline_resolve(p, &job, &e) == OK && ltx2_size(z, &job).tokens[LTX2_AUDIO] == 22);
    job = (Job){.prompt = "a", .image = PHOTO ":-2:0.25", .image_crf = -1};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect(job.image_frame == 14 && job.strength == 0.25 && job.image_crf == 33 && job.first_step == 0);
    s = ltx2_size(z, &job);
    expect(s.extra == 384 && s.tokens[LTX2_VIDEO] == 6144 + 384);
    expect(pipeline_resolve(p, &job, &e) == OK && job.image_frame == 14);
    job = (Job){.prompt = "a", .cfg_scale = 1, .cfg_scale_given = true};
    expect(pipeline_resolve(p, &job, &e) == OK && job.cfg); /* the sound's still wants it */
    const struct {
        Job job;
        const char *text;
    } refused[] = {
        {{.prompt = "a", .guidance_given = true, .guidance = 3}, "--guidance: LTX-2"},
        {{.prompt = "a", .width = 780},
         "--width 780: expected a multiple of 32, at least 64; the nearest are 768 and 800"},
        {{.prompt = "a", .height = 32},
         "--height 32: expected a multiple of 32, at least 64; the nearest are 64 and 96"},
        {{.prompt = "a", .frames = 120},
         "--frames 120: expected 1 and a multiple of 8; the nearest are 113 and 121"},
        {{.prompt = "a", .max_sequence_length = 20}, "--max-sequence-length 20: expected a multiple of 16"},
        {{.prompt = "a", .stg_blocks = "1,"}, "--stg-blocks 1,: expected numbers"},
        {{.prompt = "a", .stg_blocks = "300"}, "--stg-blocks 300: expected numbers"},
        {{.prompt = "a", .stg_blocks = "0,3"}, "--stg-blocks 0,3: the transformer has blocks 0 to 2"},
        {{.prompt = "a", .steps = 1}, "--steps 1: the levels are stretched"},
        {{.prompt = "a", .steps = 1, .match = "official"}, "--steps 1: the levels are stretched"},
        {{.prompt = "a", .image_crf = 20}, "--image-crf: says what an image goes through"},
        {{.prompt = "a", .cfg_truncation_given = true}, "they belong to Z-Image"},
        {{.prompt = "a", .width = 800, .upscale = 2},
         "--width 800: expected a multiple of 64, at least 128; the nearest are 768 and 832"},
        {{.prompt = "a", .upscale = 2, .image = PHOTO}, "--upscale: not with --image"},
        {{.prompt = "a", .upscale = 3}, "--upscale 3: expected 2"},
        {{.prompt = "a", .image = PHOTO ":16"}, "the clip has latent frames 0 to 15"},
        {{.prompt = "a", .image = PHOTO ":0:1.5"}, "strength 1.5 is out of range"},
        {{.prompt = "a", .image = PHOTO ":0.5"}, "expected FILE:FRAME"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        job = refused[i].job;
        e = (Error){0};
        expect_status(pipeline_resolve(p, &job, &e), ERR_USAGE, refused[i].text, &e);
    }
    pipeline_close(p);
}

int main(int argc, char **argv) {
    char folder[500], model[600];
    if (argc == 3 && !strcmp(argv[1], "--write")) return ltx2_model(argv[2]), 0; /* for test_ltx2.sh */
    expect_folder(folder, sizeof folder);
    snprintf(model, sizeof model, "%s/model", folder);
    ltx2_model(model);
    clips(folder, model);
    levels(model);
    again(model);
    jobs(model);
    expect_cleanup(folder);
    return expect_done();
}
