/* test_graph_cuda.c - graph.h on a GPU: what it captures and replays gives the bits of steps that run call by call, over
 * evicted weights, failed captures and whole pictures of the demo checkpoint. Skipped, and said so, where there is no GPU.
 *
 * test_graph.c is about the policy; this is about the device's hooks and the libraries' launches.
 * Easy to get wrong: a capture that failed must leave stream and libraries usable, or everything after it fails. */
#include "core/device_cuda.h"
#include "expect.h"
#include "graph.h"
#include "kernels/cuda.h"
#include "kernels/registry.h"
#include "pipeline.h"
#include "plan.h"

static const char MODEL[] = "weights/demo-flux";
enum { ROWS = 192, WIDE = 256, STEPS = 5 };

/* --- hooks --- */

typedef struct Rig {
    Device device;
    Cuda *cuda;
    Ops table;
    Calls calls;
    Arena work, scratch, region;
    Exec x;
    Error error;
    Tensor in, middle, out;
    Weight w;
    bool copies; /* bytes behind everybody's back, in the middle */
} Rig;

static Status step(void *user, Exec *x) {
    Rig *r = user;
    TRY(op_linear(x, &(Linear){.y = r->middle, .x = r->in, .w = &r->w}));
    TRY(op_act(x, &(Act){.y = r->middle, .x = r->middle, .kind = ACT_GELU_TANH}));
    if (r->copies && x->rehearsal && !x->rehearsal->see) {
        char byte;
        TRY(r->device.download(&r->device, &byte, r->in.data, 1, x->error));
    }
    return op_add(x, &(Add){.y = r->out, .a = r->middle, .b = r->in});
}

static void put(Rig *r, Tensor t, uint32_t seed) {
    size_t n = (size_t)tensor_numel(t);
    uint16_t *host = malloc(2 * n);
    if (!host) abort();
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i] = bf16_from_f32((float)(seed >> 8) * 0x1p-23f - 1);
    }
    expect_ok(r->device.upload(&r->device, t.data, host, 2 * n, &r->error), &r->error);
    free(host);
}

/* One step of either kind; what it left in out. */
static void take(Rig *r, Graphs *g, bool again, uint16_t *host) {
    expect_ok(graphs_run(g, &r->x, again, step, r), &r->error);
    expect_ok(r->device.download(&r->device, host, r->out.data, 2 * ROWS * WIDE, &r->error), &r->error);
}

static void same_as_eager(Rig *r, Graphs *g, uint64_t replayed) {
    static uint16_t a[ROWS * WIDE], b[ROWS * WIDE]; /* lint: allow-static (test program) */
    uint64_t before = g->stats.replayed;
    take(r, g, true, a);
    expect(g->stats.replayed - before == replayed);
    put(r, r->out, 99);
    take(r, NULL, true, b);
    expect(!memcmp(a, b, sizeof a));
}

static bool hooks(Rig *r) {
    if (device_cuda_open(&r->device, &r->error) != OK) return false;
    Error *e = &r->error;
    if (cuda_open(&r->device, &r->cuda, e) != OK) return false;
    ops_cuda(&r->table);
    expect_ok(arena_open(&r->work, &r->device, "work", 16 << 20, e), e);
    expect_ok(arena_open(&r->scratch, &r->device, "scratch", 1 << 20, e), e);
    expect_ok(arena_open(&r->region, &r->device, "weights", 4 << 20, e), e);
    r->x = (Exec){.ops = &r->table, .device = &r->device, .calls = &r->calls, .work = &r->work, .scratch = &r->scratch,
                  .error = e, .cuda = r->cuda, .dtype = BF16};
    r->in = exec_new(&r->x, ROWS, WIDE), r->middle = exec_new(&r->x, ROWS, WIDE), r->out = exec_new(&r->x, ROWS, WIDE);
    r->w = (Weight){.w = arena_tensor(&r->region, BF16, 2, (int64_t[]){WIDE, WIDE}),
                    .bias = arena_tensor(&r->region, BF16, 1, (int64_t[]){WIDE}), .round = BF16, .name = "w"};
    put(r, r->in, 1), put(r, r->w.w, 2), put(r, r->w.bias, 3);
    Graphs g;
    graphs_open(&g, &r->device, true);
    same_as_eager(r, &g, 0);
    expect(g.count == 1 && !g.off);
    if (g.stats.why[0]) printf("not captured: %s\n", g.stats.why);
    same_as_eager(r, &g, 1);
    put(r, r->in, 4); /* other values at the same addresses */
    same_as_eager(r, &g, 1);
    uint64_t counted = calls_count(&r->calls, OP_linear);
    static uint16_t host[ROWS * WIDE]; /* lint: allow-static (test program) */
    take(r, &g, true, host);
    expect(calls_count(&r->calls, OP_linear) == counted + 1);

    /* the weights' pages leave and others come to their addresses */
    r->device.discard(&r->device, r->region.base, r->region.capacity);
    expect_ok(r->device.commit(&r->device, r->region.base, r->region.capacity, e), e);
    put(r, r->w.w, 5), put(r, r->w.bias, 6);
    same_as_eager(r, &g, 1);

    /* more kinds than are kept: captured and freed in turn */
    Tensor in = r->in;
    for (int i = 0; i < GRAPHS_MOST + 4; i++) {
        r->in = exec_new(&r->x, ROWS, WIDE);
        put(r, r->in, (uint32_t)(10 + i));
        same_as_eager(r, &g, 0);
        same_as_eager(r, &g, 1);
    }
    expect(g.count == GRAPHS_MOST);
    r->in = in;
    same_as_eager(r, &g, 0);

    /* a recording that fails: the step is right, and so is everything after it */
    r->in = exec_new(&r->x, ROWS, WIDE);
    put(r, r->in, 40);
    r->copies = true;
    same_as_eager(r, &g, 0);
    expect(g.off && g.warn && strstr(g.stats.why, "capture failed"));
    printf("as it should: %s\n", g.stats.why);
    r->copies = false;
    same_as_eager(r, &g, 0);
    graphs_close(&g);
    graphs_open(&g, &r->device, true); /* the stream takes recordings again */
    same_as_eager(r, &g, 0);
    same_as_eager(r, &g, 1);
    graphs_close(&g);
    return true;
}

static void hooks_close(Rig *r) {
    calls_free(&r->calls);
    arena_close(&r->region);
    arena_close(&r->work);
    arena_close(&r->scratch);
    cuda_close(r->cuda);
    device_cuda_close(&r->device);
}

/* --- pictures --- */

static Status sum_up(void *user, const char *name, DType dtype, int rank, const int64_t *shape, const void *values, Error *e) {
    uint64_t *sum = user;
    const unsigned char *at = values;
    (void)e, (void)name;
    for (size_t i = 0; i < tensor_bytes(tensor_make(NULL, dtype, rank, shape)); i++) *sum = (*sum ^ at[i]) * 0x100000001b3u;
    return OK;
}

static Pipeline *open_model(bool graphs, size_t vram) {
    Error e = {0};
    Pipeline *p = NULL;
    PipelineOptions o = {.model = MODEL, .device = "cuda", .no_graphs = !graphs, .vram = vram};
    expect_ok(pipeline_open(&o, &p, &e), &e);
    if (!p) exit(1);
    return p;
}

/* All stages of a picture as one number, and its counts as another. */
static uint64_t picture(Pipeline *p, Job job, uint64_t *counts) {
    uint64_t stages = 0;
    Error e = {0};
    Media media;
    StageWatch watch = {sum_up, &stages};
    job.watch = &watch;
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect_ok(pipeline_render(p, &job, NULL, &media, &e), &e);
    expect(!media.no_replay[0] && media.rgb);
    if (media.no_replay[0]) printf("%s\n", media.no_replay);
    *counts = 0;
    for (int i = 0; i < media.dispatches; i++)
        *counts = (*counts ^ media.dispatch[i].count) * 0x100000001b3u + (unsigned char)*media.dispatch[i].impl;
    media_free(&media);
    return stages;
}

static void both(Pipeline *g, Pipeline *e, Job job, int replayed) {
    const Graphs *graphs = pipeline_facts(g).graphs;
    uint64_t before = graphs->stats.replayed, counts[2];
    uint64_t a = picture(g, job, &counts[0]), b = picture(e, job, &counts[1]);
    expect(a == b && counts[0] == counts[1]);
    expect((int)(graphs->stats.replayed - before) == replayed);
    if (a != b || (int)(graphs->stats.replayed - before) != replayed)
        printf("stages %016llx and %016llx, %d replayed, expected %d; %s\n", (unsigned long long)a, (unsigned long long)b,
               (int)(graphs->stats.replayed - before), replayed, graphs->stats.why);
}

static void pictures(void) {
    Job job = {.prompt = "a big red circle", .width = 128, .height = 128, .steps = STEPS, .seed = 3};
    Job high = job, small = job, other = job;
    high.quality = QUALITY_HIGH, small.width = 64, other.prompt = "a small blue square", other.seed = 4;
    Pipeline *g = open_model(true, 0), *e = open_model(false, 0);
    both(g, e, job, STEPS - 1);
    both(g, e, other, STEPS);
    both(g, e, small, STEPS - 1);
    both(g, e, job, STEPS);
    Plan plan;
    Error error = {0};
    picture(g, high, &(uint64_t){0}), picture(e, high, &(uint64_t){0}); /* whether tables differ depends on the families here */
    Job again = job;
    uint64_t counts[2], before = pipeline_facts(g).graphs->stats.captured;
    expect(picture(g, again, &counts[0]) == picture(e, again, &counts[1]) && counts[0] == counts[1]);
    printf("lossless after high: %d new graphs\n", (int)(pipeline_facts(g).graphs->stats.captured - before));
    expect_ok(pipeline_resolve(g, &again, &error), &error);
    expect_ok(pipeline_plan(g, &again, &plan, &error), &error);
    pipeline_close(g), pipeline_close(e);

    size_t largest = 0;
    for (int i = 0; i < plan.parts; i++)
        if (plan.part[i].whole > largest) largest = plan.part[i].whole;
    size_t swap = plan.work + plan.scratch + plan.held + largest;
    g = open_model(true, swap), e = open_model(false, swap);
    both(g, e, job, STEPS - 1);
    uint64_t uploads = pipeline_facts(g).pool->uploads;
    both(g, e, other, STEPS); /* the transformer had left, and came back */
    expect(pipeline_facts(g).pool->uploads > uploads);
    pipeline_close(g), pipeline_close(e);
    if (plan.smallest >= swap) {
        printf("the largest part cannot stream\n");
        return;
    }
    g = open_model(true, plan.smallest), e = open_model(false, plan.smallest);
    both(g, e, job, 0);
    expect(strstr(pipeline_facts(g).graphs->stats.why, "stream") != NULL);
    pipeline_close(g), pipeline_close(e);
}

int main(void) {
    Rig *r = calloc(1, sizeof *r);
    if (!r) return 1;
    bool gpu = hooks(r);
    if (!gpu) printf("0 passed, 0 failed (%s)\n", r->error.text);
    hooks_close(r);
    free(r);
    if (!gpu) return 0;
    pictures();
    return expect_done();
}
