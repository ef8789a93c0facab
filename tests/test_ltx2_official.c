/* test_ltx2_official.c - --match official of LTX-2 against a restatement of the authors' formulas in Python
 * (scripts/reference_ltx2_official.py): whole runs from the prompt to the latents, noise and levels to the bit; single
 * values of its rotation and of its step; that it differs from the default profile; what it is refused for.
 *
 * Easy to get wrong: run from the repository root; the restatement's own bits of a run are BLAS', so that runs are judged as
 * golden_runs.h says, and only what has one order is compared to the bit. */
#include "golden_judge.h"
#include "expect_pipeline.h"
#include "golden_ltx2_model.h"
#include "golden_runs.h"
#include "stages.h"

/* Both sides round each pass's clean sample to BF16, and guidance weighs these roundings, one independent of another, by up to
 * 12: they outweigh what the transformers' products differ by. Two runs that are as far from F32 as each other, each in its own
 * direction, are the square root of two times as far apart. */
static const double APART = 1.4143;

static void clips(const char *folder, const char *model) {
    static const struct {
        const char *name;
        DType dtype;
    } RUNS[] = {{"ltx2_official_f32", F32}, {"ltx2_official_bf16", BF16}};
    char dump[700];
    Golden g = {0};
    for (size_t i = 0; i < sizeof RUNS / sizeof *RUNS; i++) {
        snprintf(dump, sizeof dump, "%s/%s", folder, RUNS[i].name);
        Status s = golden_picture(&g, model, RUNS[i].dtype, RUNS[i].name, dump);
        golden_within(&g, s, RUNS[i].name, RUNS[i].dtype == BF16 ? APART : 1);
        golden_all_seen(&g, RUNS[i].name, true);
        golden_clear(&g);
    }
    safetensors_close(&g.file);
}

/* --- single values, to the bit --- */

/* A golden tensor in the work arena, as F32 where its values are wanted so. */
static Tensor input(Golden *g, const char *name, bool f32) {
    Tensor from = golden_find(g, name), t = exec_tensor(&g->x, f32 ? F32 : from.dtype, from.rank, from.shape);
    expect(from.rank > 0);
    for (int64_t i = 0; i < tensor_numel(t); i++) {
        double v = golden_at(from.data, from.dtype, i);
        if (t.dtype == F32) ((float *)t.data)[i] = (float)v;
        else ((uint16_t *)t.data)[i] = bf16_from_f32((float)v);
    }
    return t;
}

static int64_t differing(Golden *g, const char *name, Tensor have) {
    Tensor want = golden_find(g, name);
    int64_t n = 0;
    for (int64_t i = 0; i < tensor_numel(have); i++)
        n += golden_at(have.data, have.dtype, i) != golden_at(want.data, want.dtype, i);
    return want.rank && tensor_numel(want) == tensor_numel(have) ? n : tensor_numel(have);
}

/* The restatement's bits, and not those of one rounding: of 192 values some must differ, or the test would mean nothing. */
static void rotation(Golden *g) {
    Tensor x = input(g, "x", false), y = exec_tensor(&g->x, BF16, 2, x.shape);
    for (int form = ROPE_SPLIT_ONCE; form <= ROPE_SPLIT_DTYPE; form++) {
        /* tables lie head by head there, token by token here */
        Tensor cosine = input(g, "cos", true), sine = input(g, "sin", true), *table[] = {&cosine, &sine};
        for (int i = 0; i < 2; i++) {
            Tensor t = *table[i];
            *table[i] = t;
            table[i]->shape[0] = t.shape[1], table[i]->shape[1] = t.shape[0];
            table[i]->stride[0] = t.stride[1], table[i]->stride[1] = t.stride[0];
        }
        expect_ok(op_rope_split(&g->x, &(RopeSplit){.y = tensor_split(y, 16), .x = tensor_split(x, 16), .cos = cosine,
                                                    .sin = sine, .form = form}), &g->error);
        int64_t off = differing(g, "turned", y);
        expect_at(form == ROPE_SPLIT_DTYPE ? off == 0 : off > 9, "rotated values", "form", form);
        if (getenv("GOLDEN_VERBOSE")) printf("rotation, form %d: %d of %d differ\n", form, (int)off, (int)tensor_numel(y));
    }
}

static void step(Golden *g) {
    static const char *const PASSES[] = {"text", "negative", "perturbed", "isolated"};
    for (int form = GUIDE_DIFFUSERS; form <= GUIDE_OFFICIAL_BF16; form++) {
        Tensor x = input(g, "latents", true), sigma = input(g, "sigma", true), dt = input(g, "dt", true), v[4];
        for (int i = 0; i < 4; i++) v[i] = input(g, PASSES[i], true);
        Tensor y = exec_tensor(&g->x, F32, 2, x.shape), own = exec_tensor(&g->x, F32, 2, x.shape);
        expect_ok(op_guide_x0(&g->x, &(GuideX0){.y = y, .c = own, .x = x, .cond = v[0], .neg = v[1], .perturbed = v[2],
                                                .isolated = v[3], .sigma = sigma, .cfg = 2, .stg = 1, .modality = 2,
                                                .form = form}),
                  &g->error);
        expect_ok(op_velocity_x0(&g->x, &(VelocityX0){.y = y, .x = x, .x0 = y, .like = own, .sigma = sigma, .rescale = 0.7f,
                                                      .rest = (float)(1 - 0.7), .form = form}), &g->error);
        int64_t off = differing(g, "velocity", y);
        expect_at(form == GUIDE_OFFICIAL_BF16 ? off == 0 : off > 9, "velocities", "form", form);
        if (form != GUIDE_OFFICIAL_BF16) continue;
        expect_ok(op_euler_step(&g->x, &(EulerStep){.y = x, .x = x, .v = y, .dt = dt}), &g->error);
        g->x.dtype = BF16;
        expect_ok(blocks_round(&g->x, x), &g->error);
        expect(differing(g, "next", x) == 0);
    }
}

static void singles(void) {
    static Golden g; /* lint: allow-static large */
    expect_ok(golden_open(&g), &g.error);
    expect_ok(safetensors_open(GOLDEN_DIR "/ltx2_official_single.safetensors", &g.file, &g.error), &g.error);
    if (g.file.count) rotation(&g), step(&g);
    golden_close(&g);
}

/* --- jobs --- */

typedef struct Drawn {
    char *latents, *text; /* the last latents, the prompt's context */
    size_t size, text_size;
    Media media;
} Drawn;

static Drawn draw(Pipeline *p, Job job, const char *folder) {
    Drawn d = {0};
    Error e = {0};
    char dump[700], path[800];
    snprintf(dump, sizeof dump, "%s/dump", folder);
    job.prompt = "a cat", job.width = 96, job.height = 64, job.frames = 9, job.steps = 2, job.seed = 3, job.dump = dump;
    job.max_sequence_length = 16, job.stg_blocks = "1";
    Status s = pipeline_resolve(p, &job, &e);
    if (s == OK) s = pipeline_render(p, &job, NULL, &d.media, &e);
    expect_ok(s, &e);
    snprintf(path, sizeof path, "%s/latents.safetensors", dump);
    if (s == OK) expect_ok(file_read(path, &d.latents, &d.size, &e), &e);
    snprintf(path, sizeof path, "%s/prompt_embeds.safetensors", dump);
    if (s == OK) expect_ok(file_read(path, &d.text, &d.text_size, &e), &e);
    return d;
}

static bool same(const Drawn *a, const Drawn *b) {
    return a->latents && b->latents && a->size == b->size && !memcmp(a->latents, b->latents, a->size);
}

/* F32 that is BF16: the last values of the file, whose header is padded. */
static bool rounded(const Drawn *d) {
    for (size_t at = d->latents ? 8 + (size_t)*(const uint64_t *)(const void *)d->latents : 0; at && at < d->size; at += 4)
        if (*(const uint32_t *)(const void *)(d->latents + at) & 0xffff) return false;
    return d->latents != NULL;
}

static void drawn_free(Drawn *d) {
    free(d->latents), free(d->text);
    media_free(&d->media);
}

/* Of a part's calls as the last job's plan saw them: do all rotations, or steps of guidance, have the form? */
static bool all_formed(const Ltx2 *z, int part, bool official) {
    const Fusion *f = &z->base.part[part].fusion;
    int rotations = 0, tables = 0;
    for (int i = 0; i < f->sites; i++) {
        const void *args = &f->site[i].args;
        const Copy *copy = args;
        if (f->site[i].op == OP_norm_rope_split && ((const NormRopeSplit *)args)->cos.rank) {
            if (((const NormRopeSplit *)args)->form != (official ? ROPE_SPLIT_DTYPE : ROPE_SPLIT_ONCE)) return false;
            rotations++;
        }
        if (f->site[i].op == OP_guide_x0 && ((const GuideX0 *)args)->form != (official ? GUIDE_OFFICIAL_BF16 : GUIDE_DIFFUSERS))
            return false;
        if (f->site[i].op == OP_velocity_x0 &&
            ((const VelocityX0 *)args)->form != (official ? GUIDE_OFFICIAL_BF16 : GUIDE_DIFFUSERS))
            return false;
        /* the clip's tables [tokens, D/2], or [slots, width/2] */
        int64_t half = part == LTX2_DIT ? z->dit.stream[LTX2_VIDEO].d / 2 : z->connectors.one[0].width / 2;
        tables += f->site[i].op == OP_copy && copy->y.dtype == BF16 && copy->x.dtype == F32 && copy->y.rank == 2 &&
                  copy->y.shape[1] == half;
    }
    return rotations > 0 && (tables > 0) == official;
}

/* One pipeline, so that what a job leaves (embeddings, tables) must not reach one of the other profile. */
static void profiles(const char *model, const char *folder) {
    static const char *const MATCH[] = {NULL, "official", "diffusers", "official"};
    Pipeline *p = NULL;
    Error e = {0};
    Drawn d[4], one, both, neither;
    expect_ok(pipeline_open(&(PipelineOptions){.model = model, .device = "cpu", .dtype = BF16}, &p, &e), &e);
    if (!p) return;
    Ltx2 *z = (Ltx2 *)pipeline_facts(p).model;
    for (int i = 0; i < 4; i++) {
        d[i] = draw(p, (Job){.match = MATCH[i]}, folder);
        expect((z->base.unproven != NULL) == (i % 2 == 1));
        expect_at(rounded(&d[i]) == (i % 2 == 1), "latents in the dtype", "job", i);
        expect_at(all_formed(z, LTX2_DIT, i % 2 == 1), "forms of the transformer", "job", i);
        expect_at(all_formed(z, LTX2_CONNECTORS, i % 2 == 1), "forms of the connectors", "job", i);
    }
    /* of the contexts only their rotations differ */
    expect(d[0].text && d[1].text && memcmp(d[0].text, d[1].text, d[0].text_size) != 0);
    expect(d[3].text && memcmp(d[1].text, d[3].text, d[1].text_size) == 0);
    expect(same(&d[0], &d[2]) && same(&d[1], &d[3]) && !same(&d[0], &d[1]));
    /* a model whose config leaves no self attention out does so all the same, and of a stream that wants it alone */
    z->dit.c.perturbed = false;
    both = draw(p, (Job){.match = "official"}, folder);
    expect(same(&both, &d[1]));
    Job job = {.match = "official"};
    job.guide_given[GUIDE_AUDIO_STG] = true;
    one = draw(p, job, folder);
    job.guide_given[GUIDE_STG] = true;
    neither = draw(p, job, folder);
    expect(!same(&one, &both) && !same(&one, &neither) && !same(&both, &neither));
    for (int i = 0; i < 4; i++) drawn_free(&d[i]);
    drawn_free(&one), drawn_free(&both), drawn_free(&neither);
    pipeline_close(p);
}

/* Sheets of numbers: 4096 tokens whatever the size. Defaults by generation. */
static void levels(const char *model) {
    static const float FIRST[] = {1, .996449f, .992737f, .988851f, .984780f, .980510f},
                       LAST[] = {.488430f, .420719f, .337809f, .233936f, .1f, 0};
    Pipeline *p = expect_pipeline(model);
    Error e = {0};
    if (!p) return;
    Ltx2 *z = (Ltx2 *)pipeline_facts(p).model;
    for (int wide = 0; wide < 2; wide++) {
        Schedule s = {0};
        Job job = {.prompt = "a", .match = "official", .width = wide ? 1280 : 256, .height = 256};
        expect_ok(pipeline_resolve(p, &job, &e), &e);
        expect(job.steps == 40);
        expect_ok(z->base.ops->schedule(&z->base, &job, &s, &e), &e);
        for (int k = 0; k < 6; k++)
            expect(fabsf(s.sigmas[k] - FIRST[k]) < 6e-7f && fabsf(s.sigmas[35 + k] - LAST[k]) < 6e-7f);
        sched_free(&s);
    }
    Job job = {.prompt = "a", .match = "official"};
    z->dit.c.layers = 48;
    expect(pipeline_resolve(p, &job, &e) == OK && !strcmp(job.stg_blocks, "29"));
    z->dit.c.text_mod = true, job = (Job){.prompt = "a", .match = "official"};
    expect(pipeline_resolve(p, &job, &e) == OK && !strcmp(job.stg_blocks, "28") && job.steps == 30);
    const struct {
        Job job;
        const char *text;
    } refused[] = {
        {{.match = "official", .image = GOLDEN_DIR "/photo.jpg"}, "--match official: not with --image"},
        {{.match = "official", .upscale = 2}, "--match official: not with --upscale"},
        {{.match = "Lightricks"}, "--match: found \"Lightricks\", expected diffusers or official"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        job = refused[i].job, job.prompt = "a";
        e = (Error){0};
        expect_status(pipeline_resolve(p, &job, &e), ERR_USAGE, refused[i].text, &e);
    }
    pipeline_close(p);
}

int main(void) {
    char folder[500], model[600];
    expect_folder(folder, sizeof folder);
    snprintf(model, sizeof model, "%s/model", folder);
    ltx2_model(model);
    singles();
    clips(folder, model);
    profiles(model, folder);
    levels(model);
    expect_cleanup(folder);
    return expect_done();
}
