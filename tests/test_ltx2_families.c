/* test_ltx2_families.c - the family that takes GroupNorm and SiLU together (vae-kl-rewrite) in LTX-2's latent upsampler: not
 * mounted at lossless, all of its sites or none at high, counted, gone afterwards; other bits from the second round on.
 *
 * A family of its own that refuses at a site as it is told shows the all or nothing.
 * Easy to get wrong: run from the repository root; the upsampler's families are the job's, not the decode's, and only a job of
 * two rounds has the part at all. */
#include "expect.h"
#include "golden_ltx2_model.h"
#include "pipeline.h"
#include "stages.h"

static int asked, refuse_at = -1; /* lint: allow-static (test program) */

static bool told_accepts(const void *args, char *why, size_t size) {
    (void)args;
    if (asked++ != refuse_at) return true;
    snprintf(why, size, "not today");
    return false;
}

static Status told_run(Exec *x, const void *args) { return VAE_KL_REWRITE_CPU->run(x, args); }
static size_t told_scratch(const Exec *x, const void *args) { return VAE_KL_REWRITE_CPU->scratch(x, args); }

static const Impl TOLD_IMPL[] = {{OP_groupnorm_silu, "told", told_run, told_scratch, told_accepts}};
static const Family TOLD[] = {{"told", BOUNDED, TOLD_IMPL, 1, ""}};
enum { SITES = 3, RUNS = 3 }; /* the first norm, and norm 1 of a block in either stage */

typedef struct Drawn {
    Status status;
    char *first, *last; /* latents after the first round, and the last ones */
    size_t first_size, last_size;
    Media media;
} Drawn;

static char folder[500], model[600]; /* lint: allow-static (test program) */

static char *stage(const char *name, size_t *size) {
    char path[700], *text = NULL;
    Error e = {0};
    snprintf(path, sizeof path, "%s/dump/%s.safetensors", folder, name);
    expect_ok(file_read(path, &text, size, &e), &e);
    return text;
}

static Pipeline *pipeline_of(const Family *families, DType dtype) {
    Pipeline *p = NULL;
    Error e = {0};
    PipelineOptions o = {.model = model, .device = "cpu", .dtype = dtype, .families = families, .family_count = families != NULL};
    expect_ok(pipeline_open(&o, &p, &e), &e);
    return p;
}

static Drawn render(Pipeline *p, Quality quality, const char *families, int upscale) {
    char dump[600];
    snprintf(dump, sizeof dump, "%s/dump", folder);
    Job job = {.prompt = "a cat", .width = 192, .height = 128, .frames = 9, .steps = 2, .seed = 3, .max_sequence_length = 16,
               .upscale = upscale, .quality = quality, .families = families, .dump = dump};
    static const double OFF[GUIDE_KINDS] = {[GUIDE_MODALITY] = 1, [GUIDE_AUDIO_CFG] = 1, [GUIDE_AUDIO_MODALITY] = 1};
    for (int k = 0; k < GUIDE_KINDS; k++) job.guide[k] = OFF[k], job.guide_given[k] = true;
    job.cfg_scale = 1, job.cfg_scale_given = true;
    Drawn r = {0};
    Error e = {0};
    r.status = pipeline_resolve(p, &job, &e);
    if (r.status == OK) r.status = pipeline_render(p, &job, NULL, &r.media, &e);
    expect_ok(r.status, &e);
    if (r.status != OK) return r;
    r.first = stage("latents_001", &r.first_size), r.last = stage("latents", &r.last_size);
    return r;
}

static void clip_free(Drawn *r) {
    free(r->first), free(r->last);
    media_free(&r->media);
}

static bool same(const char *a, size_t a_size, const char *b, size_t b_size) {
    return a && b && a_size == b_size && a_size > 100 && !memcmp(a, b, a_size);
}

static uint64_t runs(const Drawn *r, const char *impl) {
    uint64_t n = 0;
    for (int i = 0; i < r->media.dispatches; i++) {
        const Dispatch *d = &r->media.dispatch[i];
        if (!strcmp(d->part, "latent_upsampler") && !strcmp(d->op, "groupnorm_silu") && !strcmp(d->impl, impl)) n += d->count;
    }
    return n;
}

static const FamilyUse *use_of(const Drawn *r, const char *family) {
    for (int i = 0; i < r->media.families; i++)
        if (!strcmp(r->media.family[i].part, "latent_upsampler") && !strcmp(r->media.family[i].family, family))
            return &r->media.family[i];
    return NULL;
}

/* lossless, high, lossless again: the real family. */
static void test_qualities(void) {
    Pipeline *p = pipeline_of(NULL, BF16);
    Drawn none = render(p, QUALITY_LOSSLESS, "none", 2), low = render(p, QUALITY_LOSSLESS, NULL, 2),
         high = render(p, QUALITY_HIGH, "vae-kl-rewrite", 2), again = render(p, QUALITY_LOSSLESS, NULL, 2);
    expect(runs(&none, "cpu") == RUNS && runs(&low, "cpu") == RUNS && runs(&low, "cpu_f32") == 0);
    expect(use_of(&low, "vae-kl-rewrite") == NULL);
    const FamilyUse *use = use_of(&high, "vae-kl-rewrite");
    expect(use && use->mounted && use->count == RUNS && runs(&high, "cpu_f32") == RUNS && runs(&high, "cpu") == 0);
    /* its mark: the round before the upsampler as ever, what follows it not */
    expect(same(low.first, low.first_size, none.first, none.first_size));
    expect(same(low.last, low.last_size, none.last, none.last_size));
    expect(same(high.first, high.first_size, low.first, low.first_size));
    expect(!same(high.last, high.last_size, low.last, low.last_size));
    expect(same(again.last, again.last_size, low.last, low.last_size) && runs(&again, "cpu_f32") == 0);
    clip_free(&none), clip_free(&low), clip_free(&high), clip_free(&again);
    pipeline_close(p);
}

/* Each site refuses in turn: the others run on the reference too. */
static void test_refusals(void) {
    static const char *const NAMES[SITES] = {"latent_upsampler: upsample.initial_norm: ", "latent_upsampler: upsample.norm1: ",
                                             "latent_upsampler: upsample.norm1: "};
    Pipeline *p = pipeline_of(TOLD, BF16);
    refuse_at = -1, asked = 0;
    Drawn plain = render(p, QUALITY_LOSSLESS, NULL, 2), one = render(p, QUALITY_HIGH, NULL, 0);
    expect(use_of(&one, "told") == NULL || !use_of(&one, "told")->mounted); /* one round: nothing to mount on */
    for (int k = 0; k <= SITES; k++) {
        asked = 0, refuse_at = k < SITES ? k : -1; /* calls are asked again when they run */
        Drawn r = render(p, QUALITY_HIGH, NULL, 2);
        const FamilyUse *use = use_of(&r, "told");
        bool good = use && use->mounted == (k == SITES) && use->refused == (k < SITES);
        expect_at(good, "mounted or not", "site", k);
        expect_at(use && use->count == (k == SITES ? RUNS : 0) && runs(&r, "told") == use->count, "runs", "site", k);
        if (k < SITES) expect_at(use && strstr(use->why, NAMES[k]) && strstr(use->why, "not today"), "why", "site", k);
        expect_at(same(r.last, r.last_size, plain.last, plain.last_size) == (k < SITES), "bits", "site", k);
        clip_free(&r);
    }
    clip_free(&plain), clip_free(&one);
    pipeline_close(p);
}

/* In F32 there is no rounding to leave out: the real family says so. */
static void test_f32(void) {
    Pipeline *p = pipeline_of(NULL, F32);
    Drawn none = render(p, QUALITY_LOSSLESS, "none", 2), r = render(p, QUALITY_HIGH, NULL, 2);
    const FamilyUse *use = use_of(&r, "vae-kl-rewrite");
    expect(use && use->refused && strstr(use->why, "upsample.initial_norm: groupnorm_silu: x is F32, expected BF16"));
    expect(same(r.last, r.last_size, none.last, none.last_size) && runs(&r, "cpu") == RUNS);
    clip_free(&none), clip_free(&r);
    pipeline_close(p);
}

int main(void) {
    expect_folder(folder, sizeof folder);
    snprintf(model, sizeof model, "%s/model", folder);
    ltx2_model(model);
    test_qualities();
    test_refusals();
    test_f32();
    expect_cleanup(folder);
    return expect_done();
}
