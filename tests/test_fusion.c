/* test_fusion.c - families of fused kernels on the tiny FLUX.1 checkpoint: all or nothing, whatever site refuses; equal bits
 * at lossless, other bits at high, the first bits again afterwards; a variant with wrong bits is unmounted at first sight;
 * the decoder's table is clean after every decode. And the table and the gate on their own.
 *
 * The families of these tests wrap the real kernels and refuse, fail or lie as told by the statics below.
 * Easy to get wrong: run from the repository root; a family is asked site by site in the order of the model's calls. */
#include "expect.h"
#include "gate.h"
#include "kernels/unary.h"
#include "pipeline.h"
#include "core/safetensors.h"
#include "stages.h"

static const char MODEL[] = "tests/golden/tiny-flux";

/* --- families that do as they are told --- */

static int asked, refuse_at = -1;    /* lint: allow-static (test program) */
static int ran, fail_at = -1;        /* runs of a variant; the run that fails */
static int refuse_height;            /* of an output; 0: none */
static int pass_height;              /* the same of sites that are left to who stands behind */
/* When a variant flips a bit of its last element: never, always, for one input, when it works in place. */
static enum { HONEST, LIES, LIES_AT_THE_MARK, LIES_IN_PLACE } lie;
enum { MARK = 0x4242 };              /* the last element of such an input */
static const Pipeline *watched;      /* asked during a run of the VAE's variant */
static bool mounted_inside;

static bool told_accepts(const void *args, char *why, size_t size) {
    const Tensor *y = args;
    if (pass_height && y->shape[0] == pass_height) return impl_passes_on(why);
    if (asked++ != refuse_at && (!refuse_height || y->shape[0] != refuse_height)) return true;
    snprintf(why, size, "not today");
    return false;
}

static Status told_run(const Impl *real, Exec *x, const void *args) {
    if (watched) mounted_inside |= pipeline_mounted(watched, "vae", "told-vae");
    if (ran++ == fail_at) return fail(x->error, ERR_DEVICE, "the variant failed as asked for");
    if (!x->ops) return fail(x->error, ERR_DEVICE, "no table to hand work to"); /* probes have one too */
    const Tensor *y = args;
    bool marked = *(uint16_t *)(void *)((char *)y[1].data + slice_span(y[1]) - 2) == MARK;
    TRY(real->run(x, args));
    uint16_t *last = (uint16_t *)(void *)((char *)y->data + slice_span(*y) - 2);
    *last ^= lie == LIES || (lie == LIES_AT_THE_MARK && marked) || (lie == LIES_IN_PLACE && y[0].data == y[1].data);
    return OK;
}

static Status told_gelu(Exec *x, const void *args) { return told_run(LINEAR_GELU_F32_CPU, x, args); }
static Status told_norm(Exec *x, const void *args) { return told_run(LN_MODULATE_FUSED_CPU, x, args); }
static Status told_gate_norm(Exec *x, const void *args) { return told_run(&LN_MODULATE_FUSED_CPU[1], x, args); }
static Status told_group(Exec *x, const void *args) { return told_run(VAE_KL_REWRITE_CPU, x, args); }
static size_t gelu_scratch(const Exec *x, const void *args) { return LINEAR_GELU_F32_CPU->scratch(x, args); }
static size_t norm_scratch(const Exec *x, const void *args) { return LN_MODULATE_FUSED_CPU->scratch(x, args); }
static size_t gate_norm_scratch(const Exec *x, const void *args) { return LN_MODULATE_FUSED_CPU[1].scratch(x, args); }
static size_t group_scratch(const Exec *x, const void *args) { return VAE_KL_REWRITE_CPU->scratch(x, args); }

static const Impl TOLD_DIT[] = {{OP_linear_gelu, "told", told_gelu, gelu_scratch, told_accepts},
                                {OP_ln_modulate, "told", told_norm, norm_scratch, told_accepts},
                                {OP_residual_gate_ln_modulate, "told", told_gate_norm, gate_norm_scratch, told_accepts}};
static const Impl TOLD_VAE[] = {{OP_groupnorm_silu, "told", told_group, group_scratch, told_accepts}};
static const Impl TOLD_NORM[] = {{OP_ln_modulate, "told", told_norm, norm_scratch, told_accepts}};
static const Family DIT[] = {{"told-dit", BOUNDED, TOLD_DIT, 3, ""}};
static const Family VAE[] = {{"told-vae", BOUNDED, TOLD_VAE, 1, ""}};
static const Family NORM[] = {{"told-norm", EXACT, TOLD_NORM, 1, ""}};

static void tell(int refuse, int failing, int lying) {
    asked = ran = refuse_height = 0;
    refuse_at = refuse, fail_at = failing, lie = (unsigned)lying;
    watched = NULL;
    mounted_inside = false;
}

/* --- pictures --- */

typedef struct Picture {
    Status status;
    char *latents;
    size_t size;
    Media media;
} Picture;

static char dump[600], nan_latents[600]; /* lint: allow-static (test program) */

static Pipeline *pipeline_of(const Family *families, int count, DType dtype) {
    Pipeline *p = NULL;
    Error e = {0};
    PipelineOptions o = {.model = MODEL, .device = "cpu", .dtype = dtype, .families = families, .family_count = count};
    expect_ok(pipeline_open(&o, &p, &e), &e);
    return p;
}

static Job job_of(Quality quality, const char *families) {
    return (Job){.prompt = "a red fox", .width = 64, .height = 64, .steps = 2, .seed = 7, .max_sequence_length = 24,
                 .quality = quality, .families = families, .dump = dump};
}

/* The decoder's families are asked for the plan and again for the decode: as if for the first time. */
static void begin_decode(void *user, const char *phase, int done, int total) {
    (void)user, (void)total;
    if (!strcmp(phase, "decode") && !done) asked = 0;
}

static Picture render_job(Pipeline *p, Job job) {
    Picture r = {0};
    Error e = {0};
    char path[700];
    Progress progress = {begin_decode, NULL};
    r.status = pipeline_resolve(p, &job, &e);
    if (r.status == OK) r.status = pipeline_render(p, &job, &progress, &r.media, &e);
    snprintf(path, sizeof path, "%s/latents.safetensors", dump);
    FILE *f = r.status == OK ? fopen(path, "rb") : NULL;
    r.latents = calloc(1, 1 << 20);
    if (f) {
        r.size = fread(r.latents, 1, 1 << 20, f);
        fclose(f);
    }
    if (r.status != OK) snprintf(r.media.warning, sizeof r.media.warning, "%.390s", e.text);
    return r;
}

static Picture render(Pipeline *p, Quality quality, const char *families) { return render_job(p, job_of(quality, families)); }

static void picture_free(Picture *r) {
    free(r->latents);
    media_free(&r->media);
}

static bool same_latents(const Picture *a, const Picture *b) {
    return a->size > 100 && a->size == b->size && !memcmp(a->latents, b->latents, a->size);
}

static bool same_pixels(const Picture *a, const Picture *b) {
    return a->media.rgb && b->media.rgb && !memcmp(a->media.rgb, b->media.rgb, 64 * 64 * 3);
}

static uint64_t runs(const Picture *r, const char *part, const char *op, const char *impl) {
    uint64_t n = 0;
    for (int i = 0; i < r->media.dispatches; i++) {
        const Dispatch *d = &r->media.dispatch[i];
        if (!strcmp(d->part, part) && !strcmp(d->op, op) && (!impl || !strcmp(d->impl, impl))) n += d->count;
    }
    return n;
}

static const FamilyUse *use_of(const Picture *r, const char *part, const char *family) {
    for (int i = 0; i < r->media.families; i++)
        if (!strcmp(r->media.family[i].part, part) && !strcmp(r->media.family[i].family, family)) return &r->media.family[i];
    return NULL;
}

/* What every other picture is compared with: no family at all. */
static Picture plain; /* lint: allow-static (test program) */

static void test_qualities(void) {
    Pipeline *p = pipeline_of(NULL, 0, BF16);
    Picture none = render(p, QUALITY_LOSSLESS, "none"), low = render(p, QUALITY_LOSSLESS, NULL),
            high = render(p, QUALITY_HIGH, NULL), again = render(p, QUALITY_LOSSLESS, NULL),
            high_again = render(p, QUALITY_HIGH, "all"), one = render(p, QUALITY_HIGH, "vae-kl-rewrite");
    expect(none.status == OK && low.status == OK && high.status == OK && again.status == OK);
    expect(none.media.families == 0);
    expect(runs(&none, "transformer", "linear_gelu", "cpu") == runs(&none, "transformer", "linear_gelu", NULL));
    /* lossless: the families' kernels ran, what they replace did not, and the bits are the references' */
    expect(same_latents(&low, &none) && same_pixels(&low, &none));
    expect(runs(&low, "transformer", "linear_gelu", "cpu_fused") > 0 && runs(&low, "transformer", "linear_gelu", "cpu") == 0);
    expect(runs(&low, "transformer", "ln_modulate", "cpu_fused") > 0 && runs(&low, "transformer", "ln_modulate", "cpu") == 0);
    expect(runs(&low, "vae", "groupnorm_silu", "cpu") > 0 && runs(&low, "vae", "groupnorm_silu", "cpu_f32") == 0);
    const FamilyUse *use = use_of(&low, "transformer", "ln-modulate");
    expect(use && use->mounted && use->count == runs(&none, "transformer", "ln_modulate", "cpu") +
                                                    runs(&none, "transformer", "residual_gate_ln_modulate", "cpu"));
    /* high: other bits in latents and picture, by kernels of its own only */
    expect(!same_latents(&high, &low) && !same_pixels(&high, &low));
    expect(runs(&high, "transformer", "linear_gelu", "cpu_f32") == runs(&none, "transformer", "linear_gelu", "cpu"));
    expect(runs(&high, "transformer", "linear_gelu", "cpu") + runs(&high, "transformer", "linear_gelu", "cpu_fused") == 0);
    expect(runs(&high, "vae", "groupnorm_silu", "cpu_f32") == runs(&none, "vae", "groupnorm_silu", "cpu"));
    expect(runs(&high, "vae", "groupnorm_silu", "cpu") == 0);
    expect(runs(&none, "vae", "upsample_conv", "cpu") == 3 && runs(&none, "vae", "self_attention", "cpu") == 1);
    expect(runs(&high, "vae", "upsample_conv", "cpu_phases") == 3 && runs(&high, "vae", "upsample_conv", "cpu") == 0);
    expect(runs(&high, "vae", "self_attention", "cpu_folded") == 1 && runs(&high, "vae", "self_attention", "cpu") == 0);
    /* an EXACT family whose place is taken is not mounted, and says so; that is no refusal */
    use = use_of(&high, "transformer", "linear-gelu");
    expect(use && !use->mounted && !use->refused && strstr(use->why, "linear-gelu-f32 takes its place"));
    /* lossless, high, lossless, high in one process */
    expect(same_latents(&again, &low) && same_pixels(&again, &low));
    expect(runs(&again, "transformer", "linear_gelu", "cpu_f32") == 0);
    expect(same_latents(&high_again, &high) && same_pixels(&high_again, &high));
    /* one of the decoder's alone: latents of lossless, another picture */
    expect(same_latents(&one, &low) && !same_pixels(&one, &low) && one.media.families == 1);
    expect(!pipeline_mounted(p, "vae", "vae-kl-rewrite"));
    plain = none;
    picture_free(&low), picture_free(&high), picture_free(&again), picture_free(&high_again), picture_free(&one);
    pipeline_close(p);
}

/* Every site in turn refuses, the first, those between and the last: nothing of the family ran, neither at the sites that
 * had accepted nor for its other op, and the bits are lossless. */
static void test_refusals(const Family *family, const char *part, const char *first, const char *last) {
    Pipeline *p = pipeline_of(family, 1, BF16);
    int k = 0;
    char why[400] = "";
    for (bool mounted = false; !mounted && k < 200; k++) {
        tell(k, -1, HONEST);
        Picture r = render(p, QUALITY_HIGH, NULL);
        const FamilyUse *use = use_of(&r, part, family->name);
        expect(r.status == OK && use);
        mounted = use && use->mounted;
        if (mounted) { /* no site is left to refuse: now the same family runs, and only now */
            expect(use->count > 0 && runs(&r, part, ops_info(family->impl->op)->name, "told") > 0);
            expect(!same_pixels(&r, &plain));
        } else {
            expect(use && use->refused && use->count == 0 && strstr(use->why, ": not today") && !strchr(use->why, '\n'));
            for (int i = 0; i < r.media.dispatches; i++) expect(strcmp(r.media.dispatch[i].impl, "told") != 0);
            expect(same_latents(&r, &plain) && same_pixels(&r, &plain));
            if (k == 0) expect(use && strstr(use->why, part) && strstr(use->why, first));
            if (use) snprintf(why, sizeof why, "%s", use->why);
        }
        expect(!pipeline_mounted(p, "vae", family->name));
        picture_free(&r);
    }
    expect(k > 4 && k < 200);
    expect(strstr(why, last) != NULL);
    pipeline_close(p);
}

/* Only the job in hand counts: a size that was refused before says nothing of this one. */
static void test_next_job(void) {
    tell(-1, -1, HONEST);
    refuse_height = 64;
    Pipeline *p = pipeline_of(VAE, 1, BF16);
    Job job = job_of(QUALITY_HIGH, NULL);
    Picture refused = render_job(p, job);
    job.width = job.height = 96;
    Picture mounted = render_job(p, job), again = render(p, QUALITY_HIGH, NULL);
    const FamilyUse *a = use_of(&refused, "vae", "told-vae"), *b = use_of(&mounted, "vae", "told-vae"),
                    *c = use_of(&again, "vae", "told-vae");
    expect(a && a->refused && b && b->mounted && b->count > 0 && c && c->refused && c->count == 0);
    picture_free(&refused), picture_free(&mounted), picture_free(&again);
    pipeline_close(p);
}

/* Guards that know too little: the probe finds out, before anything of the job ran. */
static void test_probe(void) {
    tell(-1, 0, HONEST);
    Pipeline *p = pipeline_of(DIT, 1, BF16);
    Picture r = render(p, QUALITY_HIGH, NULL);
    const FamilyUse *use = use_of(&r, "transformer", "told-dit");
    expect(r.status == OK && use && use->refused && strstr(use->why, "the variant failed as asked for"));
    expect(use && strstr(use->why, "flux.double.txt_norm1") && ran == 1);
    expect(same_latents(&r, &plain) && runs(&r, "transformer", "linear_gelu", "told") == 0);
    picture_free(&r);
    pipeline_close(p);
}

/* The real families have nothing to leave out in f32, and say so by site; the EXACT one then keeps its place. */
static void test_f32(void) {
    Pipeline *p = pipeline_of(NULL, 0, F32);
    Picture none = render(p, QUALITY_LOSSLESS, "none"), r = render(p, QUALITY_HIGH, NULL);
    const FamilyUse *gelu = use_of(&r, "transformer", "linear-gelu-f32"), *group = use_of(&r, "vae", "vae-kl-rewrite"),
                    *exact = use_of(&r, "transformer", "linear-gelu");
    expect(gelu && gelu->refused && strstr(gelu->why, "flux.double.txt_ff_in: linear_gelu: y is F32, expected BF16"));
    expect(group && group->refused && strstr(group->why, "vae.resnet.norm1: groupnorm_silu: x is F32, expected BF16"));
    expect(exact && exact->mounted && exact->count > 0);
    expect(same_latents(&r, &none) && same_pixels(&r, &none));
    picture_free(&none), picture_free(&r);
    pipeline_close(p);
}

/* --- first sight --- */

static void test_lie(void) {
    tell(-1, -1, LIES);
    Pipeline *p = pipeline_of(NORM, 1, BF16);
    Picture r = render(p, QUALITY_LOSSLESS, NULL), second = render(p, QUALITY_LOSSLESS, NULL);
    expect(strstr(r.media.warning, "told-norm is unmounted: ln_modulate told gave other bits than the "
                                     "reference for BF16 [") != NULL);
    for (int i = 0; i < 2; i++) {
        const Picture *at = i ? &second : &r;
        const FamilyUse *use = use_of(at, "transformer", "told-norm");
        expect(at->status == OK && use && !use->mounted && use->refused && strstr(use->why, "other bits"));
        expect(same_latents(at, &plain) && same_pixels(at, &plain));
        expect(runs(at, "transformer", "ln_modulate", "told") == 0);
        expect(runs(at, "transformer", "ln_modulate", "cpu") == runs(&plain, "transformer", "ln_modulate", "cpu"));
    }
    expect(!second.media.warning[0] && !pipeline_mounted(p, "transformer", "told-norm"));
    picture_free(&r), picture_free(&second);
    pipeline_close(p);
    tell(-1, -1, HONEST); /* the same family telling the truth stays */
    p = pipeline_of(NORM, 1, BF16);
    r = render(p, QUALITY_LOSSLESS, NULL);
    expect(!r.media.warning[0] && runs(&r, "transformer", "ln_modulate", "told") > 0 && same_latents(&r, &plain));
    expect(pipeline_mounted(p, "transformer", "told-norm"));
    picture_free(&r);
    pipeline_close(p);
}

/* --- the decoder --- */

static void test_decoder(void) {
    Error e = {0};
    tell(-1, -1, HONEST);
    Pipeline *p = pipeline_of(VAE, 1, BF16);
    Job job = job_of(QUALITY_HIGH, NULL);
    watched = p;
    Picture good = render_job(p, job);
    expect(good.status == OK && mounted_inside && ran > 0 && !pipeline_mounted(p, "vae", "told-vae"));
    expect(same_latents(&good, &plain) && !same_pixels(&good, &plain));
    /* not a number reaches the decoder */
    Safetensors file;
    char path[700];
    snprintf(path, sizeof path, "%s/latents.safetensors", dump);
    expect_ok(safetensors_open(path, &file, &e), &e);
    const SafetensorsEntry *entry = safetensors_find(&file, "latents");
    Tensor latents = safetensors_tensor(&file, entry);
    size_t bytes = tensor_bytes(latents);
    void *nan = malloc(bytes);
    memset(nan, 0xff, bytes);
    expect_ok(stages_write_file(nan_latents, "latents", latents.dtype, latents.rank, latents.shape, nan, true, &e), &e);
    free(nan);
    safetensors_close(&file);
    tell(-1, -1, HONEST);
    watched = p;
    job.inject = &(Inject){"latents", nan_latents};
    job.inject_count = 1;
    Picture r = render_job(p, job);
    expect(r.status == ERR_NAN && mounted_inside && ran > 0);
    expect(!pipeline_mounted(p, "vae", "told-vae"));
    picture_free(&r);
    /* a kernel fails in the middle of the decode */
    tell(-1, 3, HONEST);
    watched = p;
    r = render_job(p, job_of(QUALITY_HIGH, NULL));
    expect(r.status == ERR_DEVICE && mounted_inside && ran == 4 && !pipeline_mounted(p, "vae", "told-vae"));
    picture_free(&r);
    /* and nothing of it is left */
    tell(-1, -1, HONEST);
    r = render(p, QUALITY_LOSSLESS, NULL);
    expect(r.status == OK && same_pixels(&r, &plain) && ran == 0);
    picture_free(&r), picture_free(&good);
    pipeline_close(p);
}

static bool mounted_outside;

static void look_outside(void *user, const char *phase, int done, int total) {
    (void)done, (void)total;
    if (strcmp(phase, "decode")) mounted_outside |= pipeline_mounted(user, "vae", "told-vae");
}

/* Each model with a KL decoder says which of its parts that is: nothing is mounted on it before the decode nor after it. */
static void test_decoders(void) {
    static const char *const MODELS[] = {MODEL, "tests/golden/tiny-zimage"};
    for (size_t k = 0; k < sizeof MODELS / sizeof *MODELS; k++) {
        Error e = {0};
        Pipeline *p = NULL;
        PipelineOptions o = {.model = MODELS[k], .device = "cpu", .dtype = BF16, .families = VAE, .family_count = 1};
        Job job = job_of(QUALITY_HIGH, NULL);
        job.max_sequence_length = 32, job.dump = NULL;
        expect_ok(pipeline_open(&o, &p, &e), &e);
        for (int failing = 0; failing < 2; failing++) { /* the first one has done the probes */
            Media media;
            mounted_outside = false;
            tell(-1, failing ? 3 : -1, HONEST);
            watched = p;
            expect_ok(pipeline_resolve(p, &job, &e), &e);
            Status s = pipeline_render(p, &job, &(Progress){look_outside, p}, &media, &e);
            expect(s == (failing ? ERR_DEVICE : OK) && mounted_inside && !mounted_outside);
            expect(!pipeline_mounted(p, "vae", "told-vae"));
            media_free(&media);
        }
        pipeline_close(p);
    }
}

/* --- a table and the gate on their own --- */

typedef struct Bench {
    Device device;
    Arena work, scratch;
    Unary unary;
    Ops ops;
    Calls calls;
    Fusion fusion;
    Gate gate;
    Error e;
    Exec x;
} Bench;

static void bench_open(Bench *b) {
    *b = (Bench){.device = device_cpu()};
    expect_ok(arena_open(&b->work, &b->device, "work", (size_t)256 << 20, &b->e), &b->e);
    expect_ok(arena_open(&b->scratch, &b->device, "scratch", (size_t)64 << 20, &b->e), &b->e);
    expect_ok(unary_open(&b->unary, &b->e), &b->e);
    ops_cpu(&b->ops);
    fusion_init(&b->fusion, "part", &b->ops);
    gate_open(&b->gate);
    gate_watch(&b->gate, &b->fusion);
    b->x = (Exec){.ops = &b->ops, .device = &b->device, .calls = &b->calls, .work = &b->work, .scratch = &b->scratch,
                  .error = &b->e, .dtype = BF16, .unary = &b->unary, .first = &b->gate.base};
}

static void bench_close(Bench *b) {
    gate_close(&b->gate);
    fusion_free(&b->fusion);
    calls_free(&b->calls);
    unary_close(&b->unary);
    arena_close(&b->scratch);
    arena_close(&b->work);
}

static uint64_t bench_runs(const Bench *b, const char *impl, uint32_t epoch) {
    uint64_t n = 0;
    for (size_t i = 0; i < b->calls.capacity; i++) {
        const Call *c = &b->calls.slot[i];
        if (c->impl && !strcmp(c->impl->name, impl) && c->epoch == epoch) n += c->count;
    }
    return n;
}

static void test_epochs(void) {
    Bench b;
    bench_open(&b);
    tell(-1, -1, HONEST);
    int64_t d = 64;
    Tensor x = exec_new(&b.x, 5, d), y = exec_new(&b.x, 5, d), scale = exec_new(&b.x, d);
    LnModulate args = {.y = y, .x = x, .scale = scale, .eps = 1e-6f};
    expect_ok(fusion_record(&b.fusion, OP_ln_modulate, &args, "a", &b.e), &b.e);
    expect_ok(fusion_record(&b.fusion, OP_ln_modulate, &args, "a", &b.e), &b.e);
    expect(b.fusion.sites == 1);
    expect_ok(op_ln_modulate(&b.x, &args), &b.e);
    uint32_t before = b.ops.epoch;
    expect_ok(fusion_mount(&b.fusion, NORM, &b.x, &b.e), &b.e);
    expect(b.ops.epoch == before + 1 && fusion_find(&b.fusion, NORM)->mounted && ran == 1); /* the probe */
    expect_ok(fusion_mount(&b.fusion, NORM, &b.x, &b.e), &b.e);
    expect(b.ops.epoch == before + 1 && ran == 1); /* nothing changed: same epoch, and no second probe */
    expect_ok(op_ln_modulate(&b.x, &args), &b.e);
    expect_ok(op_ln_modulate(&b.x, &args), &b.e);
    expect(b.gate.looks == 1 && ran == 1 + 1 + 2); /* probe, first sight, two runs */
    fusion_unmount(&b.fusion, NORM);
    expect(b.ops.epoch == before + 2 && !fusion_find(&b.fusion, NORM)->mounted);
    expect_ok(op_ln_modulate(&b.x, &args), &b.e);
    expect(ran == 4);
    /* the call of the first epoch was not taken up again, though it is the same signature on the same table */
    expect(bench_runs(&b, "cpu", before) == 1 && bench_runs(&b, "told", before + 1) == 2);
    expect(bench_runs(&b, "cpu", before + 2) == 1);
    expect_ok(fusion_mount(&b.fusion, NORM, &b.x, &b.e), &b.e);
    expect_ok(op_ln_modulate(&b.x, &args), &b.e);
    expect(b.ops.epoch == before + 3 && b.gate.looks == 1); /* what passed once is not looked at again */
    fusion_unmount_all(&b.fusion);
    expect(b.ops.epoch == before + 4);
    fusion_unmount_all(&b.fusion);
    expect(b.ops.epoch == before + 4);
    /* a site that it passes on is another's, also when the family runs at all others */
    LnModulate more = {.y = exec_new(&b.x, 7, d), .x = exec_new(&b.x, 7, d), .scale = scale, .eps = 1e-6f};
    expect_ok(fusion_record(&b.fusion, OP_ln_modulate, &more, "b", &b.e), &b.e);
    pass_height = 7;
    int so_far = ran;
    expect_ok(fusion_mount(&b.fusion, NORM, &b.x, &b.e), &b.e);
    expect(fusion_find(&b.fusion, NORM)->mounted && ran == so_far && b.ops.epoch == before + 5);
    expect_ok(op_ln_modulate(&b.x, &more), &b.e);
    expect(ran == so_far && bench_runs(&b, "cpu", before + 5) == 1);
    expect_ok(op_ln_modulate(&b.x, &args), &b.e);
    expect(ran == so_far + 1 && bench_runs(&b, "told", before + 5) == 1);
    pass_height = 5;
    fusion_forget_sites(&b.fusion);
    expect_ok(fusion_record(&b.fusion, OP_ln_modulate, &args, "a", &b.e), &b.e);
    expect_ok(fusion_mount(&b.fusion, NORM, &b.x, &b.e), &b.e);
    expect(!fusion_find(&b.fusion, NORM)->mounted && !fusion_find(&b.fusion, NORM)->refused && b.ops.epoch == before + 6);
    pass_height = 0;
    /* no place for it: no refusal, no mount */
    expect_ok(fusion_mount(&b.fusion, VAE, &b.x, &b.e), &b.e);
    expect(!fusion_find(&b.fusion, VAE)->mounted && !fusion_find(&b.fusion, VAE)->refused && b.ops.epoch == before + 6);
    bench_close(&b);
}

/* A difference in the last element of an output that is larger than a slice; and in place. */
static void test_slices(void) {
    static const struct { bool in_place; int lie; bool caught; } cases[] = {
        {false, HONEST, false}, {false, LIES, true}, {false, LIES_AT_THE_MARK, true}, {false, LIES_IN_PLACE, false},
        {true, HONEST, false},  {true, LIES, true},  {true, LIES_AT_THE_MARK, true},  {true, LIES_IN_PLACE, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        bool in_place = cases[k].in_place, lying = cases[k].caught;
        Bench b;
        bench_open(&b);
        tell(-1, -1, cases[k].lie);
        Tensor x = exec_new(&b.x, 9000, 1024), y = in_place ? x : exec_new(&b.x, 9000, 1024),
               scale = exec_new(&b.x, 1024);
        expect(2 * tensor_bytes(y) > 2 * (size_t)GATE_BYTES);
        for (int64_t i = 0; i < 9000 * 1024; i++) ((uint16_t *)x.data)[i] = (uint16_t)(0x3f00 + i % 251);
        ((uint16_t *)x.data)[9000 * 1024 - 1] = MARK;
        LnModulate args = {.y = y, .x = x, .scale = scale, .eps = 1e-6f};
        expect_ok(fusion_record(&b.fusion, OP_ln_modulate, &args, "a", &b.e), &b.e);
        expect_ok(fusion_mount(&b.fusion, NORM, &b.x, &b.e), &b.e);
        b.scratch.peak = 0;
        b.x.dry = true; /* the plan counts what first sight takes */
        expect_ok(op_ln_modulate(&b.x, &args), &b.e);
        size_t planned = b.scratch.peak;
        b.scratch.peak = 0;
        b.x.dry = false;
        expect_ok(op_ln_modulate(&b.x, &args), &b.e);
        expect(b.scratch.peak <= planned);
        expect(b.scratch.peak > 1 << 20 && b.scratch.peak < GATE_BYTES + (1 << 20));
        expect(fusion_find(&b.fusion, NORM)->banned == lying && (b.gate.warning[0] != 0) == lying);
        expect((ops_reference(&b.ops, OP_ln_modulate) == b.ops.impl[OP_ln_modulate][0]) == lying);
        /* the result is the reference's, also in place: first sight did not touch the input */
        Tensor again = exec_new(&b.x, 9000, 1024);
        Ops plain_table;
        ops_cpu(&plain_table);
        for (int64_t i = 0; i < 9000 * 1024; i++) ((uint16_t *)again.data)[i] = (uint16_t)(0x3f00 + i % 251);
        ((uint16_t *)again.data)[9000 * 1024 - 1] = MARK;
        b.x.ops = &plain_table, b.x.first = NULL;
        calls_free(&b.calls);
        args.y = args.x = again;
        expect_ok(op_ln_modulate(&b.x, &args), &b.e);
        expect(!memcmp(again.data, y.data, tensor_bytes(y)));
        b.x.ops = &b.ops;
        bench_close(&b);
    }
}

/* What a probe makes of a large call: the same kind of problem, whole tensors of fewer rows. */
static void test_small(void) {
    static char memory[1]; /* lint: allow-static (an address) */
    Tensor x = tensor_of(memory, BF16, 64, 40, 8), y = tensor_of(memory, BF16, 128, 80, 8), v = tensor_of(memory, BF16, 8);
    Conv2d up = {.y = y, .x = x, .stride = 1, .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1};
    Args a = slice_copy(OP_upsample_conv, &up), small = slice_small(OP_upsample_conv, &a, 16);
    expect(small.tensor[0].shape[0] == 32 && small.tensor[1].shape[0] == 16 && small.tensor[0].shape[1] == 80);
    GroupNorm norm = {.y = x, .x = x, .w = v, .b = v, .groups = 2};
    a = slice_copy(OP_groupnorm_silu, &norm), small = slice_small(OP_groupnorm_silu, &a, 16);
    expect(small.tensor[0].shape[0] == 16 && small.tensor[1].shape[0] == 16 && small.tensor[2].shape[0] == 8);
    Conv2d down = {.y = tensor_of(memory, BF16, 32, 20, 8), .x = x, .stride = 2, .pad_bottom = 1, .pad_right = 1};
    a = slice_copy(OP_conv2d, &down), small = slice_small(OP_conv2d, &a, 16);
    expect(small.tensor[0].shape[0] == 32 && small.tensor[1].shape[0] == 64); /* no part of it is one */
    Conv3d clip = {.y = tensor_of(memory, BF16, 4, 5, 6, 8), .x = tensor_of(memory, BF16, 6, 5, 6, 8), .stride_t = 1, .pad = 1};
    a = slice_copy(OP_conv3d, &clip), small = slice_small(OP_conv3d, &a, 16);
    expect(small.tensor[0].shape[0] == 1 && small.tensor[1].shape[0] == 3 && !small.tensor[2].rank);
}

static void test_names(void) {
    Error e;
    uint32_t wanted = 0;
    const Family f[] = {{"gated", BOUNDED, NULL, 0, ""}, {"exact", EXACT, NULL, 0, ""}, {"other", EXACT, NULL, 0, ""}};
    expect_ok(fusion_choose(f, 3, false, NULL, &wanted, &e), &e);
    expect(wanted == 6);
    expect_ok(fusion_choose(f, 3, true, "all", &wanted, &e), &e);
    expect(wanted == 7);
    expect_ok(fusion_choose(f, 3, true, "none", &wanted, &e), &e);
    expect(wanted == 0);
    expect_ok(fusion_choose(f, 3, true, "other,gated", &wanted, &e), &e);
    expect(wanted == 5);
    expect_status(fusion_choose(f, 3, false, "other,gated", &wanted, &e), ERR_USAGE, "it needs --quality high", &e);
    expect_status(fusion_choose(f, 3, false, "gate", &wanted, &e), ERR_USAGE,
                  "found \"gate\", expected none, all, exact, other, or several", &e);
    expect_status(fusion_choose(f, 3, true, "exact,", &wanted, &e), ERR_USAGE, "found \"\"", &e);
    expect_status(fusion_choose(f, 3, true, "exact,none", &wanted, &e), ERR_USAGE, "found \"none\"", &e);
    expect_status(fusion_choose(NULL, 0, true, "exact", &wanted, &e), ERR_USAGE, "no families yet", &e);
    Pipeline *p = pipeline_of(NULL, 0, BF16);
    Job job = job_of(QUALITY_LOSSLESS, "linear-gelu-f32");
    expect_status(pipeline_resolve(p, &job, &e), ERR_USAGE, "needs --quality high", &e);
    job = job_of(QUALITY_HIGH, "linear-gelu-f32");
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    pipeline_close(p);
}

int main(int argc, char **argv) {
    char folder[500];
    (void)argc;
    if (!getenv("OMP_WAIT_POLICY")) { /* threads that spin between the loops of tiny pictures cost more than the loops */
        setenv("OMP_WAIT_POLICY", "passive", 1);
        execv("/proc/self/exe", argv);
    }
    expect_folder(folder, sizeof folder);
    snprintf(dump, sizeof dump, "%s/dump", folder);
    snprintf(nan_latents, sizeof nan_latents, "%s/nan.safetensors", folder);
    test_qualities();
    test_refusals(DIT, "transformer", "flux.double.txt_norm1", "flux.norm_out");
    test_refusals(VAE, "vae", "vae.resnet.norm1", "vae.norm_out");
    test_next_job();
    test_probe();
    test_f32();
    test_lie();
    test_decoder();
    test_decoders();
    test_epochs();
    test_slices();
    test_small();
    test_names();
    picture_free(&plain);
    expect_cleanup(folder);
    return expect_done();
}
