/* test_graph.c - graph.h, alone and under the pipeline, on a device that records launches (device_graph.h): replayed steps
 * have the bits of steps that run call by call, whatever changes between steps, jobs, tables and residencies.
 *
 * Every picture is rendered by two pipelines, one with graphs and one without, on the same device and table.
 * Easy to get wrong: the step after which a graph is captured runs call by call, so n steps of a new kind are n - 1
 * replays; later jobs of that kind replay all of them. */
#include "graph.h"

#include "device_graph.h"
#include "expect.h"
#include "pipeline.h"
#include "plan.h"
#include "report.h"

#include <omp.h>

static const char FLUX[] = "tests/golden/tiny-flux", ZIMAGE[] = "tests/golden/tiny-zimage";
enum { STEPS = 5 };

/* --- families that can be recorded --- */

static Status told_gelu(Exec *x, const void *args) { return fake_launch(LINEAR_GELU_F32_CPU, x, args); }
static Status told_norm(Exec *x, const void *args) { return fake_launch(LN_MODULATE_FUSED_CPU, x, args); }
static size_t gelu_scratch(const Exec *x, const void *args) { return LINEAR_GELU_F32_CPU->scratch(x, args); }
static size_t norm_scratch(const Exec *x, const void *args) { return LN_MODULATE_FUSED_CPU->scratch(x, args); }
static const Impl GELU[] = {{OP_linear_gelu, "told_gelu", told_gelu, gelu_scratch, NULL}};
static const Impl NORM[] = {{OP_ln_modulate, "told_norm", told_norm, norm_scratch, NULL}};
static const Family FAMILIES[] = {{"told-gelu", BOUNDED, GELU, 1, ""}, {"told-norm", EXACT, NORM, 1, ""}};

/* --- pictures --- */

static Device device; /* lint: allow-static (test program) */
static int interrupted, interrupt_at = -1, poison_at = -1;

static Pipeline *open_model(const char *model, bool graphs, size_t vram) {
    Pipeline *p = NULL;
    Error e = {0};
    PipelineOptions o = {.model = model, .on = &device, .no_graphs = !graphs, .vram = vram, .families = FAMILIES,
                         .family_count = 2, .interrupted = &interrupted};
    expect_ok(pipeline_open(&o, &p, &e), &e);
    if (!p) exit(1);
    Model *m = (Model *)(uintptr_t)pipeline_facts(p).model;
    for (int i = 0; i < m->parts; i++) {
        fake_ops(&m->part[i].ops);
        m->part[i].fusion.reference = m->part[i].ops;
    }
    return p;
}

static Job job_of(const char *prompt, int length) {
    return (Job){.prompt = prompt, .width = 32, .height = 32, .steps = STEPS, .seed = 7, .max_sequence_length = length};
}

static void at_step(void *user, const char *phase, int done, int total) {
    (void)user, (void)total;
    bool inside = !strcmp(phase, "denoise");
    fake.poison = inside && done == poison_at;
    if (inside && done == interrupt_at) interrupted = 1;
}

/* One number of all stages on the host, in their order. */
static Status sum_up(void *user, const char *name, DType dtype, int rank, const int64_t *shape, const void *values, Error *e) {
    uint64_t *sum = user;
    const unsigned char *at = values;
    (void)e;
    for (size_t i = 0; i < tensor_bytes(tensor_make(NULL, dtype, rank, shape)); i++) *sum = (*sum ^ at[i]) * 0x100000001b3u;
    for (; *name; name++) *sum = (*sum ^ (unsigned char)*name) * 0x100000001b3u;
    return OK;
}

typedef struct Picture {
    Status status;
    Media media;
    Error error;
    uint64_t stages; /* 0: not asked for */
    uint64_t run[OP_COUNT];
} Picture;

static Picture render(Pipeline *p, Job job, bool watch) {
    Picture r = {0};
    Progress progress = {at_step, NULL};
    StageWatch see = {sum_up, &r.stages};
    uint64_t before[OP_COUNT];
    memcpy(before, fake.run, sizeof before);
    if (watch) job.watch = &see;
    r.status = pipeline_resolve(p, &job, &r.error);
    if (r.status == OK) r.status = pipeline_render(p, &job, &progress, &r.media, &r.error);
    for (int i = 0; i < OP_COUNT; i++) r.run[i] = fake.run[i] - before[i];
    expect(!fake.recording);
    fake.poison = false;
    return r;
}

static bool same_pixels(const Picture *a, const Picture *b) {
    size_t size = (size_t)a->media.width * (size_t)a->media.height * 3;
    return a->media.rgb && b->media.rgb && size && a->media.width == b->media.width && a->media.height == b->media.height &&
           !memcmp(a->media.rgb, b->media.rgb, size);
}

static uint64_t runs(const Picture *r, const char *op, const char *impl) {
    uint64_t n = 0;
    for (int i = 0; i < r->media.dispatches; i++)
        if (!strcmp(r->media.dispatch[i].op, op) && (!impl || !strcmp(r->media.dispatch[i].impl, impl)))
            n += r->media.dispatch[i].count;
    return n;
}

/* The counts that a picture reports: by part, op and variant, and those that the variants themselves counted. */
static bool same_counts(const Picture *a, const Picture *b) {
    bool same = a->media.dispatches == b->media.dispatches && a->media.dispatches > 5;
    for (int i = 0; same && i < a->media.dispatches; i++) {
        const Dispatch *x = &a->media.dispatch[i], *y = &b->media.dispatch[i];
        same = !strcmp(x->part, y->part) && !strcmp(x->op, y->op) && !strcmp(x->impl, y->impl) && x->count == y->count;
    }
    for (int op = 0; same && op < OP_COUNT; op++) same = a->run[op] == b->run[op];
    return same;
}

/* A picture by both pipelines: equal stages, pixels and counts. Then how often graphs of g were captured and replayed. */
static void both(Pipeline *g, Pipeline *e, Job job, int captured, int replayed) {
    const Graphs *graphs = pipeline_facts(g).graphs;
    GraphStats before = graphs->stats;
    for (int watch = 0; watch < 2; watch++) {
        Picture a = render(g, job, watch), b = render(e, job, watch);
        expect(a.status == OK && b.status == OK);
        if (a.status != OK) printf("%s\n", a.error.text);
        expect(same_pixels(&a, &b) && a.stages == b.stages && (a.stages != 0) == watch);
        /* a family's first check runs both ways, in whichever picture is the first */
        if (watch) expect(same_counts(&a, &b));
        if (!watch) {
            expect((int)(graphs->stats.captured - before.captured) == captured);
            expect((int)(graphs->stats.replayed - before.replayed) == replayed);
            expect((int)(graphs->stats.replayed + graphs->stats.eager - before.replayed - before.eager) == job.steps);
            expect(runs(&a, "euler_step", NULL) == (uint64_t)job.steps);
        }
        media_free(&a.media), media_free(&b.media);
    }
    expect(!fake.strayed && !fake.memory.faults);
}

static void begin(const char *model, size_t vram, Pipeline **g, Pipeline **e) {
    device = fake_device();
    *g = open_model(model, true, vram);
    *e = open_model(model, false, vram);
}

static void end(Pipeline *g, Pipeline *e) {
    pipeline_close(g);
    pipeline_close(e);
    expect(fake.captures == fake.freed && fake.memory.committed == 0 && fake.memory.faults == 0);
}

/* --- the pipeline --- */

static void test_jobs(void) {
    Pipeline *g, *e;
    begin(FLUX, 0, &g, &e);
    const Graphs *graphs = pipeline_facts(g).graphs;
    Job job = job_of("a cat", 16), guided = job;
    guided.negative_prompt = "a dog", guided.cfg_scale = 3, guided.cfg_scale_given = true;
    both(g, e, guided, 1, STEPS - 1); /* it needs the most: the arenas stay for those that follow */
    both(g, e, job, 1, STEPS - 1);
    expect(graphs->count == 2 && !graphs->stats.why[0] && !graphs->off);
    job.prompt = "another prompt, as long as it likes to be";
    job.seed = 8, job.guidance = 2, job.guidance_given = true; /* values: the same graph, from the first step */
    both(g, e, job, 0, STEPS);
    job.steps = 3; /* other sigmas */
    both(g, e, job, 0, 3);
    job.steps = 1;
    both(g, e, job, 0, 1);
    guided.cfg_scale = 2;
    both(g, e, guided, 0, STEPS);
    job = job_of("a cat", 12);
    both(g, e, job, 1, STEPS - 1);
    both(g, e, job_of("a cat", 16), 0, STEPS); /* kept meanwhile */
    expect(graphs->count == 3 && fake.captures == 3);

    /* Larger ones need other arenas, where no graph of before can be right. */
    job = job_of("a cat", 16), job.width = 64;
    both(g, e, job, 1, STEPS - 1);
    expect(graphs->count == 1 && fake.freed == 3);
    both(g, e, job_of("a cat", 16), 1, STEPS - 1);
    end(g, e);
}

/* A step of a new kind in the middle of a job: guidance ends. */
static void test_truncation(void) {
    Pipeline *g, *e;
    begin(ZIMAGE, 0, &g, &e);
    Job job = job_of("a cat", 0);
    job.cfg_scale = 3, job.cfg_scale_given = true, job.cfg_truncation = 0.2, job.cfg_truncation_given = true, job.steps = 8;
    Picture r = render(e, job, false);
    uint64_t guided = runs(&r, "cfg_extrapolate", NULL);
    expect(r.status == OK && guided > 2 && guided < 6);
    media_free(&r.media);
    both(g, e, job, 2, 6);
    both(g, e, job, 0, 8);
    job.prompt = "a prompt of so many words that it needs another thirty-two places of text than the short one before it did, "
                 "and a few more";
    both(g, e, job, 2, 6); /* in larger arenas */
    Job cat = job;
    cat.prompt = "a cat";
    both(g, e, cat, 2, 6);
    both(g, e, job, 0, 8);
    both(g, e, cat, 0, 8);
    expect(pipeline_facts(g).graphs->count == 4);
    end(g, e);
}

/* Texts that are padded to one length share a graph, from their first step on. */
static void test_buckets(void) {
    static const char *const SHORT[] = {"a cat", "a red cat on a mat", "two cats"};
    Pipeline *g, *e;
    begin(ZIMAGE, 0, &g, &e);
    for (int i = 0; i < 3; i++) both(g, e, job_of(SHORT[i], 0), !i, i ? STEPS : STEPS - 1);
    Job job = job_of("a prompt of so many words that it needs another thirty-two places of text than the short one before it", 0);
    both(g, e, job, 1, STEPS - 1);
    job.prompt = "a prompt of nearly as many words that it needs another thirty-two places of text than the short one before it";
    both(g, e, job, 0, STEPS);
    end(g, e);
}

static void test_epochs(void) {
    Pipeline *g, *e;
    begin(FLUX, 0, &g, &e);
    Job job = job_of("a cat", 16);
    Picture r[5];
    uint64_t captured = 0;
    for (int i = 0; i < 5; i++) {
        job.quality = i == 1 || i > 2 ? QUALITY_HIGH : QUALITY_LOSSLESS;
        r[i] = render(g, job, true);
        Picture plain = render(e, job, true);
        const Graphs *graphs = pipeline_facts(g).graphs;
        expect(r[i].status == OK && same_pixels(&r[i], &plain) && r[i].stages == plain.stages);
        expect(runs(&r[i], "linear_gelu", NULL) > 10 && runs(&r[i], "ln_modulate", NULL) > 0);
        /* what was counted, and what ran: of the other table's variants nothing */
        bool high = job.quality == QUALITY_HIGH;
        expect(runs(&r[i], "linear_gelu", "told_gelu") == (high ? runs(&r[i], "linear_gelu", NULL) : 0));
        expect(runs(&r[i], "ln_modulate", "told_norm") == runs(&r[i], "ln_modulate", NULL));
        if (i != 1) expect(r[i].run[OP_linear_gelu] == runs(&r[i], "linear_gelu", NULL)); /* probes ran too then */
        /* the last one is of the same epoch as the one before it: no capture, and all steps replayed */
        expect(graphs->stats.captured == captured + (i < 4) && graphs->stats.replayed > captured);
        captured = graphs->stats.captured;
        media_free(&plain.media);
    }
    expect(!same_pixels(&r[0], &r[1]) && r[0].stages != r[1].stages); /* the qualities differ, or this proves nothing */
    expect(same_pixels(&r[0], &r[2]) && same_pixels(&r[1], &r[3]) && same_pixels(&r[1], &r[4]));
    for (int i = 0; i < 5; i++) media_free(&r[i].media);
    end(g, e);
}

/* SWAP: the transformer leaves for every text and comes back to its addresses. STREAM: nothing can be captured. */
static void test_residency(void) {
    Pipeline *g, *e;
    begin(FLUX, 0, &g, &e);
    Error error = {0};
    Job job = job_of("a cat", 16);
    Plan plan = {0};
    expect_ok(pipeline_resolve(g, &job, &error), &error);
    expect_ok(pipeline_plan(g, &job, &plan, &error), &error);
    end(g, e);
    size_t largest = 0, all = 0;
    for (int i = 0; i < plan.parts; i++) {
        all += plan.part[i].whole;
        if (plan.part[i].whole > largest) largest = plan.part[i].whole;
    }
    expect(largest < all && plan.smallest < plan.work + plan.scratch + largest);

    begin(FLUX, plan.work + plan.scratch + largest, &g, &e);
    both(g, e, job_of("a cat", 16), 1, STEPS - 1);
    uint64_t uploads = fake.memory.uploads;
    both(g, e, job_of("a dog", 16), 0, STEPS);
    expect(fake.memory.uploads > uploads + 4); /* it did leave */
    end(g, e);

    begin(FLUX, plan.peak, &g, &e); /* all of it, to the byte: shorter texts leave the arenas, and the graphs, where they are */
    both(g, e, job_of("a cat", 16), 1, STEPS - 1);
    both(g, e, job_of("a cat", 12), 1, STEPS - 1);
    both(g, e, job_of("a cat", 16), 0, STEPS);
    both(g, e, job_of("a cat", 12), 0, STEPS);
    expect(pipeline_facts(g).graphs->count == 2 && fake.memory.peak <= 2 * plan.peak); /* of both pipelines */
    end(g, e);

    begin(FLUX, plan.smallest, &g, &e);
    uint64_t moved[2];
    for (int i = 0; i < 2; i++) {
        uint64_t before = fake.memory.uploads;
        Picture r = render(i ? e : g, job_of("a cat", 16), false);
        media_free(&r.media);
        moved[i] = fake.memory.uploads - before;
    }
    expect(moved[0] == moved[1] && moved[0] > STEPS); /* a rehearsal fetches no block */
    both(g, e, job_of("a cat", 16), 0, 0);
    const char *why = pipeline_facts(g).graphs->stats.why;
    expect(strstr(why, "stream") != NULL);
    if (!strstr(why, "stream")) printf("why: %s\n", why);
    end(g, e);
}

static void test_capture_fails(void) {
    static const struct { FakeFault fault; const char *text; } CASES[] = {
        {FAKE_NO_BEGIN, "fake: recording cannot begin"}, {FAKE_NO_LAUNCH, "fake: cannot be recorded"},
        {FAKE_NO_END, "fake: no memory for the graph"}};
    for (int i = 0; i < 3; i++) {
        Pipeline *g, *e;
        begin(FLUX, 0, &g, &e);
        fake.fault = CASES[i].fault;
        Picture a = render(g, job_of("a cat", 16), false), b = render(e, job_of("a cat", 16), false);
        expect(a.status == OK && same_pixels(&a, &b) && a.run[OP_attention] == b.run[OP_attention]);
        expect(strstr(a.media.no_replay, CASES[i].text) && !b.media.no_replay[0]);
        expect(runs(&a, "attention", NULL) == runs(&b, "attention", NULL));
        media_free(&a.media), media_free(&b.media);
        fake.fault = FAKE_WELL; /* said once, and not tried again */
        both(g, e, job_of("a cat", 16), 0, 0);
        a = render(g, job_of("a cat", 16), false);
        expect(a.status == OK && !a.media.no_replay[0]);
        media_free(&a.media);
        char *text = NULL;
        Error error = {0};
        Job job = job_of("a cat", 16);
        expect_ok(report_json(&(Report){.meta = (Meta[]){meta_of(g, &job)}}, g, &text, &error), &error);
        expect(text && strstr(text, CASES[i].text) && strstr(text, "\"used\":\tfalse"));
        free(text);
        end(g, e);
    }
}

/* Not a number in a replayed step: step, stage and the latents before it, as without graphs. Afterwards all is well. */
static void test_nan(void) {
    Pipeline *g, *e;
    begin(FLUX, 0, &g, &e);
    both(g, e, job_of("a cat", 16), 1, STEPS - 1);
    for (int at = 0; at < STEPS; at += 3) {
        poison_at = at;
        Picture a = render(g, job_of("a cat", 16), false), b = render(e, job_of("a cat", 16), false);
        char text[64];
        snprintf(text, sizeof text, "step %d of %d: velocity_%03d: ", at + 1, STEPS, at);
        expect(a.status == ERR_NAN && b.status == ERR_NAN && strstr(a.error.text, text) && !strcmp(a.error.text, b.error.text));
        size_t size = tensor_bytes(tensor_make(NULL, a.media.latents_dtype, a.media.latents_streams.stream[0].rank,
                                                a.media.latents_streams.stream[0].shape));
        expect(a.media.latents && b.media.latents && size > 100 && !memcmp(a.media.latents, b.media.latents, size));
        const uint16_t *half = a.media.latents;
        for (size_t i = 0; half && i < size / 2; i++) expect((half[i] & 0x7f80) != 0x7f80);
        media_free(&a.media), media_free(&b.media);
        poison_at = -1;
        both(g, e, job_of("a cat", 16), 0, STEPS);
    }
    end(g, e);
}

static void test_interrupts(void) {
    Pipeline *g, *e;
    begin(FLUX, 0, &g, &e);
    const Graphs *graphs = pipeline_facts(g).graphs;
    /* while the first graph is recorded: no fault of the recording */
    fake.fault = FAKE_INTERRUPTS, fake.interrupt = &interrupted;
    Picture r = render(g, job_of("a cat", 16), false);
    expect(r.status == ERR_INTERRUPTED && fake.thrown == 1 && !graphs->count && !graphs->off && !r.media.no_replay[0]);
    media_free(&r.media);
    fake.fault = FAKE_WELL;
    for (interrupt_at = 0; interrupt_at < STEPS; interrupt_at++) {
        interrupted = 0;
        uint64_t before = graphs->stats.replayed + graphs->stats.eager;
        r = render(g, job_of("a cat", 16), false);
        expect(r.status == ERR_INTERRUPTED && strstr(r.error.text, "interrupted"));
        expect(graphs->stats.replayed + graphs->stats.eager - before == (uint64_t)interrupt_at);
        media_free(&r.media);
    }
    interrupted = 0, interrupt_at = -1;
    expect(graphs->count == 1);
    both(g, e, job_of("a cat", 16), 0, STEPS);
    fake.fault = FAKE_NO_REPLAY;
    r = render(g, job_of("a cat", 16), false);
    expect(r.status == ERR_DEVICE && strstr(r.error.text, "step 1 of 5: fake: replay failed"));
    media_free(&r.media);
    fake.fault = FAKE_WELL;
    end(g, e);
}

static void test_report(void) {
    Pipeline *g, *e;
    begin(FLUX, 0, &g, &e);
    Job job = job_of("a cat", 16);
    Picture a = render(g, job, false), b = render(e, job, false);
    media_free(&a.media), media_free(&b.media);
    for (int k = 0; k < 2; k++) {
        Error error = {0};
        char *json = NULL, *said = NULL;
        size_t size;
        FILE *f = open_memstream(&said, &size);
        expect_ok(report_json(&(Report){.meta = (Meta[]){meta_of(k ? e : g, &job)}}, k ? e : g, &json, &error), &error);
        expect_ok(report_explain(k ? e : g, f, &error), &error);
        fclose(f);
        expect(strstr(said, k ? "\nreplay         no: --graphs off\n"
                              : "\nreplay         4 of 5 steps, 1 graphs captured\n") != NULL);
        expect(json && strstr(json, k ? "\"used\":\tfalse" : "\"used\":\ttrue") &&
               strstr(json, k ? "\"why_not\":\t\"--graphs off\"" : "\"steps\":\t4,\n\t\t\"call_by_call\":\t1\n"));
        free(json), free(said);
    }
    end(g, e);
}

/* --- graphs alone --- */

typedef struct Small {
    Tensor y, a, b, c;
    const Weight *w; /* a product too */
    Residency *first, *second; /* whose weights are read before and after it */
    bool crowded;              /* the second pushes the first out */
    bool looks;      /* at the device's memory */
    int calls;
    Error error;
} Small;

static Status small_step(void *user, Exec *x) {
    Small *s = user;
    float host[4];
    s->calls++;
    x->residency = s->first;
    if (s->first) s->first->pool->occupant[0].in = true; /* as weights_enter would */
    if (s->y.rank) TRY(op_add(x, &(Add){.y = s->y, .a = s->a, .b = s->b}));
    if (s->w) TRY(op_linear(x, &(Linear){.y = tensor_view(s->y, 4, 1), .x = tensor_view(s->a, 4, 1), .w = s->w}));
    if (s->second) {
        s->first->pool->occupant[0].in = !s->crowded;
        x->residency = s->second;
        TRY(op_add(x, &(Add){.y = s->y, .a = s->a, .b = s->b}));
    }
    return s->looks ? exec_download(x, host, s->a) : OK;
}

static Status never(Tap *tap, Exec *x, const char *name, Tensor t) {
    (void)tap, (void)x, (void)name, (void)t;
    return OK;
}

static Tensor ones(Exec *x, float value) {
    Tensor t = exec_new_as(x, F32, 4);
    for (int i = 0; i < 4; i++) ((float *)t.data)[i] = value;
    return t;
}

static size_t wants(FirstSight *f, const Exec *x, OpId op, const void *args, const Impl *impl) {
    (void)f, (void)x, (void)op, (void)args, (void)impl;
    return 8;
}
static int looked, looked_inside; /* all first checks; those in the middle of a rehearsal */
static Status looks(FirstSight *f, Exec *x, OpId op, const void *args, const Impl *impl) {
    (void)f, (void)op, (void)args, (void)impl;
    looked++, looked_inside += x->rehearsal != NULL;
    return OK;
}

static void test_policy(void) {
    device = fake_device();
    Error e = {0};
    Ops table;
    fake_ops(&table);
    Calls calls = {0};
    Arena work, scratch;
    expect_ok(arena_open(&work, &device, "work", 1 << 20, &e), &e);
    expect_ok(arena_open(&scratch, &device, "scratch", 1 << 16, &e), &e);
    Exec x = {.ops = &table, .device = &device, .calls = &calls, .work = &work, .scratch = &scratch, .error = &e, .dtype = F32};
    Graphs g;
    Small s = {.y = ones(&x, 0), .a = ones(&x, 1), .b = ones(&x, 2), .c = ones(&x, 5)};
    const float *y = s.y.data;
    float *a = s.a.data;
    graphs_open(&g, &device, true);
#define RUN(again) expect(graphs_run(&g, &x, again, small_step, &s) == OK)

    RUN(false); /* nothing follows: not worth a capture */
    expect(g.count == 0 && s.calls == 2 && *y > 2.9f && *y < 3.1f && calls_count(&calls, OP_add) == 1);
    RUN(true);
    expect(g.count == 1 && g.stats.captured == 1 && g.stats.eager == 2 && calls_count(&calls, OP_add) == 2);
    *a = 10, x.last = 0;
    RUN(true); /* what lies at the addresses counts, not what lay there */
    expect(*y > 11.9f && *y < 12.1f && g.stats.replayed == 1 && fake.replays == 1 && calls_count(&calls, OP_add) == 3);
    expect(x.last == 1 + OP_add && !x.rehearsal && arena_mark(&work) == 4 * ARENA_ALIGN);

    Tensor b = s.b;
    s.b = s.c; /* another address, nothing else */
    RUN(true);
    expect(*y > 14.9f && *y < 15.1f && g.stats.replayed == 1 && g.count == 2);
    s.b = b;
    RUN(true);
    expect(*y > 11.9f && *y < 12.1f && g.stats.replayed == 2);
    table.epoch++;
    RUN(true);
    expect(g.stats.replayed == 2 && g.count == 3);
    table.epoch--;
    RUN(true);
    expect(g.stats.replayed == 3 && g.count == 3);
    Impl other = fake.wrapped[OP_add]; /* another variant, even in the same epoch */
    table.impl[OP_add][0] = &other;
    calls_free(&calls);
    RUN(true);
    expect(g.stats.replayed == 3 && g.count == 4);
    (void)arena_push(&scratch, 64); /* scratch elsewhere */
    RUN(true);
    expect(g.stats.replayed == 3 && g.count == 5);
    arena_reset(&scratch, 0);
    Calls of_another = {0}; /* another component's counts */
    x.calls = &of_another;
    RUN(true);
    expect(g.stats.replayed == 3 && g.count == 6 && calls_count(&of_another, OP_add) == 1);
    calls_free(&of_another);
    x.calls = &calls;
    /* weights and biases elsewhere */
    Weight w[3] = {{.w = tensor_view(s.c, 4, 1), .round = F32}, {.w = tensor_view(s.b, 4, 1), .round = F32}};
    for (int i = 0; i < 2; i++) w[i].w = tensor_slice(w[i].w, 0, 0, 1);
    w[0].bias = tensor_slice(s.c, 0, 0, 1), w[1].bias = w[0].bias;
    w[2] = w[0], w[2].bias = tensor_slice(s.b, 0, 0, 1);
    Tensor one = s.y;
    s.y = tensor_slice(s.y, 0, 0, 4);
    for (int i = 0; i < 4; i++) s.w = &w[i % 3], RUN(true);
    s.w = &(Weight){.w = w[1].w, .bias = w[1].bias, .round = F32}, RUN(true); /* the same bytes through another struct */
    expect(g.stats.replayed == 5 && g.count == 9);
    s.w = NULL, s.y = one;
    graphs_forget(&g);
    expect(g.count == 0 && fake.freed == 9 && fake.captures == 9);
    RUN(true);
    expect(g.stats.replayed == 5 && g.count == 1);
    graphs_forget(&g);

    /* GRAPHS_MOST of them, the one that was not used for longest goes. */
    Tensor row[GRAPHS_MOST + 4];
    int freed = fake.freed;
    for (int i = 0; i < GRAPHS_MOST + 4; i++) row[i] = ones(&x, (float)i);
    for (int i = 0; i < GRAPHS_MOST; i++) s.b = row[i], RUN(true);
    expect(g.count == GRAPHS_MOST && fake.freed == freed);
    s.b = row[0], RUN(true); /* used: row 1 is now the oldest */
    for (int i = 0; i < 4; i++) s.b = row[GRAPHS_MOST + i], RUN(true);
    expect(g.count == GRAPHS_MOST && fake.freed == freed + 4);
    uint64_t replayed = g.stats.replayed, captured = g.stats.captured;
    for (int i = 0; i < GRAPHS_MOST + 4; i++) {
        if (i >= 1 && i <= 4) continue;
        s.b = row[i], RUN(true);
    }
    expect(g.stats.replayed == replayed + GRAPHS_MOST && g.stats.captured == captured);
    s.b = row[1], RUN(true);
    expect(g.stats.captured == captured + 1 && g.stats.replayed == replayed + GRAPHS_MOST);

    /* Steps that cannot be captured run, and the reason is kept. */
    replayed = g.stats.replayed, captured = g.stats.captured;
    s.looks = true, s.b = row[2], s.calls = 0;
    uint64_t eager = g.stats.eager;
    RUN(true);
    expect(g.stats.eager == eager + 1 && strstr(g.stats.why, "downloaded"));
    s.looks = false, s.b = row[1];
    x.sync = true, RUN(true), x.sync = false;
    expect(!strcmp(g.stats.why, "--sync"));
    Tap tap = {never};
    x.tap = &tap, RUN(true), x.tap = NULL;
    expect(strstr(g.stats.why, "tensors inside it are wanted") != NULL);
    Tensor none = {0}, old = s.y;
    s.y = none, RUN(true), s.y = old;
    expect(strstr(g.stats.why, "calls nothing") != NULL);
    ResidencyPool pool = {.device = &device, .occupant = {{1, true, 0}, {1, true, 0}}};
    Residency parts[2] = {{.pool = &pool, .index = 0, .name = "one"}, {.pool = &pool, .index = 1, .name = "two"}};
    s.first = &parts[0], RUN(true); /* in, and stays: nothing against it */
    expect(strstr(g.stats.why, "calls nothing") && g.stats.replayed == ++replayed);
    parts[0].layout.runs = 3, RUN(true), parts[0].layout.runs = 0;
    expect(!strcmp(g.stats.why, "the weights of one stream") && g.stats.captured == captured);
    s.second = &parts[1], s.crowded = true, RUN(true);
    expect(!strcmp(g.stats.why, "the weights of one do not stay") && g.stats.captured == captured);
    s.crowded = false, RUN(true), RUN(true);
    expect(g.stats.captured == ++captured && g.stats.replayed == ++replayed);
    s.first = s.second = NULL;
    FirstSight sight = {wants, looks}; /* a variant that is not the reference, and is new: after its check all is well */
    table.impl[OP_add][1] = &fake.wrapped[OP_add], table.count[OP_add] = 2, table.epoch++;
    x.first = &sight, RUN(true);
    expect(g.stats.captured == captured + 1 && looked == 1);
    calls_free(&calls);
    RUN(true); /* due again: not replayed before it */
    expect(looked == 2 && !looked_inside && g.stats.replayed == replayed && g.stats.captured == captured + 1);
    s.calls = 0;
    RUN(true);
    expect(g.stats.replayed == replayed + 1 && s.calls == 1);
    x.first = NULL;
    x.dry = true, s.calls = 0;
    RUN(true);
    expect(s.calls == 1 && g.stats.replayed == replayed + 1);
    x.dry = false;
    expect_ok(graphs_run(NULL, &x, true, small_step, &s), &e);
    expect(g.stats.replayed == replayed + 1 && !fake.strayed);

    /* Its own failures are the step's. */
    s.y.rank = 0, s.a.rank = 0;
    static const Tensor LONG = {.rank = 1, .shape = {1 << 30}, .stride = {1}, .dtype = F32};
    s.y = LONG;
    expect_status(graphs_run(&g, &x, true, small_step, &s), ERR_MEMORY, "has no memory", &e);
    graphs_close(&g);
    expect(fake.captures == fake.freed);
    arena_close(&work);
    arena_close(&scratch);
    calls_free(&calls);
}

int main(void) {
    omp_set_num_threads(1); /* tiny shapes: teams of threads only wait for each other */
    test_policy();
    test_jobs();
    test_truncation();
    test_buckets();
    test_epochs();
    test_residency();
    test_capture_fails();
    test_nan();
    test_interrupts();
    test_report();
    return expect_done();
}
