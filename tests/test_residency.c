/* test_residency.c - KEEP, SWAP and STREAM on a device with limited memory (device_test.h) give the bits of the CPU, never
 * take more than the plan says, keep their addresses, and refuse what cannot fit. The tiny FLUX.1 checkpoint, CPU table.
 *
 * Easy to get wrong: run from the repository root. Limits are taken from the plan, since sizes belong to the checkpoint. */
#include "core/convert.h"
#include "device_test.h"
#include "expect.h"
#include "kernels/registry.h"
#include "models/dit_flux.h"
#include "pipeline.h"
#include "plan.h"
#include "residency.h"
#include "text/te_t5.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static const char MODEL[] = "tests/golden/tiny-flux";

/* --- whole pictures --- */

static Job job_of(const char *prompt, int size) {
    return (Job){.prompt = prompt, .width = size, .height = size, .steps = 3, .seed = 7, .max_sequence_length = 24,
                 .guidance = 3.5, .guidance_given = true};
}

static Job with_cfg(Job job) {
    job.negative_prompt = "grey";
    job.cfg_scale = 2.5;
    return job;
}

typedef struct Rig {
    TestDevice memory;
    Device device;
    Pipeline *pipeline;
    Error e;
} Rig;

/* vram 0, limit SIZE_MAX: all the room there is. on NULL: the cpu device. */
static void rig_open(Rig *r, DType dtype, size_t vram, size_t limit, bool cpu) {
    r->device = test_device(&r->memory, limit);
    PipelineOptions o = {.model = MODEL, .device = "cpu", .dtype = dtype, .vram = vram, .on = cpu ? NULL : &r->device};
    expect_ok(pipeline_open(&o, &r->pipeline, &r->e), &r->e);
    if (!r->pipeline) exit(1);
}

static void rig_close(Rig *r) {
    pipeline_close(r->pipeline);
    expect(r->memory.committed == 0 && r->memory.faults == 0);
    for (int i = 0; i < TEST_UPLOADS; i++) expect(!r->memory.upload[i].ticket);
}

static void render(Rig *r, Job job, Media *out) {
    expect_ok(pipeline_resolve(r->pipeline, &job, &r->e), &r->e);
    expect_ok(pipeline_render(r->pipeline, &job, NULL, out, &r->e), &r->e);
}

static Plan plan_of(Rig *r, Job job) {
    Plan plan = {0};
    expect_ok(pipeline_resolve(r->pipeline, &job, &r->e), &r->e);
    expect_ok(pipeline_plan(r->pipeline, &job, &plan, &r->e), &r->e);
    return plan;
}

static bool same_picture(const Media *a, const Media *b) {
    return a->rgb && b->rgb && a->width == b->width && a->height == b->height &&
           !memcmp(a->rgb, b->rgb, (size_t)a->width * (size_t)a->height * 3);
}

static size_t largest(const Plan *p) {
    size_t n = 0;
    for (int i = 0; i < p->parts; i++) n = p->part[i].region > n ? p->part[i].region : n;
    return n;
}

static size_t sum(const Plan *p) {
    size_t n = 0;
    for (int i = 0; i < p->parts; i++) n += p->part[i].region;
    return n;
}

static bool all_modes(const Plan *p, PlanMode mode) {
    for (int i = 0; i < p->parts; i++)
        if (p->part[i].mode != mode) return false;
    return true;
}

typedef struct Limits { size_t keep, swap, stream; } Limits;

/* One job under a limit: the bits of the reference, the plan's peak to the byte, and how often bytes travelled. */
static void under_limit(DType dtype, Job job, const Media *want, size_t vram, PlanMode dit, size_t moved_least,
                        size_t moved_most) {
    Rig r = {0};
    Media got = {0};
    rig_open(&r, dtype, vram, SIZE_MAX, false);
    Plan plan = plan_of(&r, job);
    expect(plan.fits && plan.limit == vram && plan.peak <= vram && plan.part[2].mode == dit);
    expect(r.memory.peak == 0); /* planning takes nothing */
    render(&r, job, &got);
    expect(same_picture(want, &got));
    expect(r.memory.peak == plan.peak);
    expect(r.memory.bytes >= moved_least && r.memory.bytes <= moved_most);
    if (r.memory.peak != plan.peak || r.memory.bytes < moved_least || r.memory.bytes > moved_most)
        printf("peak %zu, planned %zu, limit %zu; %zu bytes moved, expected %zu to %zu\n", r.memory.peak, plan.peak, vram,
               (size_t)r.memory.bytes, moved_least, moved_most);
    media_free(&got);
    rig_close(&r);
}

static void modes(DType dtype, Job job) {
    Rig cpu = {0}, keep = {0};
    Media want = {0}, got = {0};
    rig_open(&cpu, dtype, 0, 0, true);
    render(&cpu, job, &want);
    rig_open(&keep, dtype, 0, SIZE_MAX, false);
    Plan plan = plan_of(&keep, job);
    expect(plan.limit == SIZE_MAX && all_modes(&plan, PLAN_KEEP));
    render(&keep, job, &got);
    expect(same_picture(&want, &got));
    expect(keep.memory.peak == plan.peak && plan.peak == plan.work + plan.scratch + sum(&plan));
    const size_t fixed = plan.work + plan.scratch, once = sum(&plan), whole = plan.part[2].whole;
    const Limits limits = {plan.peak, fixed + largest(&plan), plan.smallest};
    expect(limits.stream < limits.swap && limits.swap < limits.keep && largest(&plan) == whole);
    size_t moved = keep.memory.bytes;
    expect(moved <= once && moved > once - (size_t)plan.parts * TEST_PAGE);
    media_free(&got);
    rig_close(&keep);
    rig_close(&cpu);

    under_limit(dtype, job, &want, limits.keep, PLAN_KEEP, moved, moved);
    under_limit(dtype, job, &want, limits.keep - 1, PLAN_SWAP, moved, moved); /* each part still travels once */
    under_limit(dtype, job, &want, limits.swap, PLAN_SWAP, moved, moved);
    under_limit(dtype, job, &want, limits.swap - 1, PLAN_STREAM, moved + 1, 10 * moved);
    under_limit(dtype, job, &want, limits.stream, PLAN_STREAM, moved + 1, 10 * moved);
    media_free(&want);
}

/* Large and small jobs in turn under many limits: what arenas of a larger job keep is not given to weights as well. */
static void arenas_stay(void) {
    enum { LIMITS = 14 };
    static const char *const TEXTS[] = {"a red fox", "a grey wolf", "a blue whale", "a brown bear", "a red fox"};
    Rig r = {0};
    Job large = job_of("a red fox", 96), small = job_of("a red fox", 32);
    large.steps = small.steps = 1;
    rig_open(&r, BF16, 0, SIZE_MAX, false);
    Plan plan = plan_of(&r, large), less = plan_of(&r, small);
    expect(less.work + 4 * TEST_PAGE < plan.work);
    rig_close(&r);
    int stayed = 0, left = 0;
    for (int k = 0; k <= LIMITS; k++) {
        size_t vram = plan.smallest + (plan.peak - plan.smallest) * (size_t)k / LIMITS;
        r = (Rig){0};
        rig_open(&r, BF16, vram, SIZE_MAX, false);
        for (int i = 0; i < 5; i++) {
            Media m = {0};
            Job job = i % 2 ? small : large;
            job.prompt = TEXTS[i];
            render(&r, job, &m);
            media_free(&m);
            if (i % 2) stayed += pipeline_facts(r.pipeline).work->capacity > less.work;
            if (i % 2) left += pipeline_facts(r.pipeline).work->capacity == less.work;
        }
        expect(r.memory.peak <= vram);
        rig_close(&r);
    }
    expect(stayed && left);
}

/* One pipeline, several jobs: other sizes change the plan and back, remembered texts need no encoder. */
static void several_jobs(void) {
    Rig cpu = {0}, r = {0};
    rig_open(&cpu, BF16, 0, 0, true);
    rig_open(&r, BF16, 0, SIZE_MAX, false);
    Job wide = with_cfg(job_of("a red fox", 64));
    wide.width = 96;
    Plan small = plan_of(&r, job_of("a red fox", 64));
    rig_close(&r);
    r = (Rig){0};
    size_t vram = small.work + small.scratch + largest(&small); /* the smaller job just swaps, the larger must stream */
    rig_open(&r, BF16, vram, SIZE_MAX, false);
    const Job jobs[] = {job_of("a red fox", 64), wide, job_of("a red fox", 64),
                        job_of("a red fox", 64)};
    const PlanMode dit[] = {PLAN_SWAP, PLAN_STREAM, PLAN_SWAP, PLAN_SWAP};
    uint64_t moved = 0;
    for (int i = 0; i < 4; i++) {
        Media want = {0}, got = {0};
        Plan plan = plan_of(&r, jobs[i]);
        expect(plan.fits && plan.part[2].mode == dit[i]);
        moved = r.memory.bytes;
        render(&cpu, jobs[i], &want);
        render(&r, jobs[i], &got);
        expect(same_picture(&want, &got));
        expect(r.memory.peak <= vram);
        media_free(&want);
        media_free(&got);
    }
    expect(r.memory.bytes - moved <= small.part[2].whole + small.part[3].whole); /* the encoders stayed away */
    rig_close(&r);
    rig_close(&cpu);
}

static void refusals(void) {
    Rig r = {0};
    Job job = job_of("a red fox", 64);
    Media got = {0};
    rig_open(&r, BF16, 0, SIZE_MAX, false);
    size_t smallest = plan_of(&r, job).smallest;
    rig_close(&r);
    /* by --vram, and by what is free */
    const struct { size_t vram, limit; const char *why; } cases[] = {{smallest - 1, SIZE_MAX, "(--vram)"},
                                                                    {0, smallest - 1, "(what is free)"}};
    for (int i = 0; i < 2; i++) {
        r = (Rig){0};
        rig_open(&r, BF16, cases[i].vram, cases[i].limit, false);
        expect(!plan_of(&r, job).fits);
        expect_status(pipeline_render(r.pipeline, &job, NULL, &got, &r.e), ERR_MEMORY, cases[i].why, &r.e);
        char want[64];
        snprintf(want, sizeof want, "--vram %zuM, or a card of 4 GiB", (smallest + (1 << 20) - 1) >> 20);
        expect(strstr(r.e.text, "text_encoder ") && strstr(r.e.text, "text_encoder_2 ") && strstr(r.e.text, "transformer ") &&
               strstr(r.e.text, "vae ") && strstr(r.e.text, "when streamed") && strstr(r.e.text, want));
        expect(r.memory.peak == 0 && r.memory.uploads == 0);
        media_free(&got);
        rig_close(&r);
    }
    r = (Rig){0};
    rig_open(&r, BF16, 0, smallest, false); /* free memory is a limit like any other */
    render(&r, job, &got);
    expect(got.rgb && r.memory.peak <= smallest);
    media_free(&got);
    rig_close(&r);
}

/* An upload that fails is an error once, and not a picture of NaN the next time. */
static void failed_upload(void) {
    Job job = job_of("a red fox", 64);
    Rig cpu = {0}, r = {0};
    Media want = {0}, got = {0};
    rig_open(&cpu, BF16, 0, 0, true);
    render(&cpu, job, &want);
    rig_open(&r, BF16, 0, SIZE_MAX, false);
    size_t smallest = plan_of(&r, job).smallest;
    rig_close(&r);
    for (Ticket at = 1; at < 12; at += 3) { /* parts that stay, then blocks of the ring */
        r = (Rig){0};
        rig_open(&r, BF16, smallest, SIZE_MAX, false);
        r.memory.fail_at = at;
        expect_status(pipeline_render(r.pipeline, &job, NULL, &got, &r.e), ERR_DEVICE, "upload failed as asked for", &r.e);
        media_free(&got);
        render(&r, job, &got);
        expect(same_picture(&want, &got));
        media_free(&got);
        rig_close(&r);
    }
    media_free(&want);
    rig_close(&cpu);
}

/* --- the pool alone --- */

/* False where reading would fault. */
static bool readable(const void *address) {
    int fd[2];
    if (pipe(fd)) abort();
    bool good = write(fd[1], address, 1) == 1;
    close(fd[0]);
    close(fd[1]);
    return good;
}

typedef struct Bound {
    WeightFiles *files;
    Bind bind;
} Bound;

static void open_part(Bound *b, const char *folder) {
    Error e = {0};
    char path[300];
    snprintf(path, sizeof path, "%s/%s", MODEL, folder);
    *b = (Bound){.bind.prefix = ""};
    expect_ok(weights_open(path, &b->files, &e), &e);
    if (!b->files) exit(1);
}

static void close_part(Bound *b) {
    bind_free(&b->bind);
    weights_close(b->files);
}

/* The rows of one block (or of none: 0) hold the values of their files, widened to f32. */
static bool holds(const Layout *l, int block) {
    int seen = 0;
    for (int i = 0; i < l->items; i++) {
        const LayoutItem *item = &l->item[i];
        const BindRow *r = &l->bind->rows[item->row];
        if (r->block != block) continue;
        const Tensor *t = r->target == BIND_VECTOR ? r->vector : r->target == BIND_BIAS ? &r->weight->bias : &r->weight->w;
        const float *have = t->data;
        const char *want = item->src.data;
        size_t size = dtype_size(item->src.dtype);
        if (t->dtype != F32 || !tensor_same_shape(*t, item->src)) return false;
        for (int64_t k = 0; k < tensor_numel(*t); k++) {
            float v;
            convert_widen(want + (size_t)k * size, item->src.dtype, &v, 1);
            if (memcmp(&v, &have[k], sizeof v)) return false;
        }
        seen++;
    }
    return seen > 0;
}

static Exec exec_on(Residency *r, Device *d, Error *e) { return (Exec){.device = d, .error = e, .dtype = F32, .residency = r}; }

static void addresses(void) {
    TestDevice memory;
    Device d = test_device(&memory, SIZE_MAX);
    Error e = {0};
    T5 t5;
    FluxDit dit;
    Bound a, b;
    open_part(&a, "text_encoder_2");
    open_part(&b, "transformer");
    expect_ok(te_t5_open("tests/golden/tiny-flux/text_encoder_2", &t5, &e), &e);
    expect_ok(dit_flux_open("tests/golden/tiny-flux/transformer", &dit, &e), &e);
    te_t5_bind(&t5, a.files, &a.bind);
    dit_flux_bind(&dit, &b.bind);
    ResidencyPool pool = {.device = &d};
    Residency *first = NULL, *second = NULL;
    static const char *const IGNORE[] = {"shared.weight", "encoder.embed_tokens.weight", NULL};
    expect_ok(residency_add(&pool, "t5", a.files, &a.bind, IGNORE, F32, false, &first, &e), &e);
    expect_ok(residency_add(&pool, "dit", b.files, &b.bind, NULL, F32, true, &second, &e), &e);
    if (!first || !second) exit(1);
    expect(!readable(t5.shared.w.data) && !readable(dit.x_in.w.data)); /* until they come in */
    pool.room = pool.occupant[1].size;
    Exec x = exec_on(first, &d, &e), y = exec_on(second, &d, &e);
    expect(!weights_static(&x));
    void *at[2] = {0};
    for (int round = 0; round < 3; round++) {
        expect_ok(weights_enter(&x, WEIGHTS_PART), &e);
        expect_ok(weights_enter(&x, 1), &e); /* resident: nothing to do */
        expect(weights_static(&x) && holds(&first->layout, 0) && holds(&first->layout, 1) && holds(&first->layout, 3));
        if (round) expect(at[0] == t5.block[1].wo.w.data && !readable(at[1]));
        at[0] = t5.block[1].wo.w.data;
        expect_ok(weights_enter(&y, WEIGHTS_PART), &e);
        expect(holds(&second->layout, 0) && holds(&second->layout, 5));
        if (round) expect(at[1] == dit.single[2].out.w.data);
        at[1] = dit.single[2].out.w.data;
        expect(!readable(at[0]) && memory.committed <= pool.room && !pool.occupant[0].in);
    }
    expect(memory.peak == pool.room && pool.peak == pool.room && memory.uploads == 6);
    pool.room--;
    expect_ok(residency_shrink(&pool, &e), &e);
    expect_status(weights_enter(&y, WEIGHTS_PART), ERR_MEMORY, "dit: ", &e);
    residency_close(&pool);
    expect(memory.committed == 0 && memory.faults == 0);
    te_t5_close(&t5);
    dit_flux_close(&dit);
    close_part(&a);
    close_part(&b);
}

static void victims(void) {
    Occupant o[] = {{10, true, 5}, {20, true, 3}, {30, false, 1}, {40, true, 4}};
    expect(residency_occupied(o, 4) == 70);
    expect(residency_victim(o, 4, -1) == 1 && residency_victim(o, 4, 1) == 3); /* longest unused, and in */
    o[0].in = o[1].in = false;
    expect(residency_victim(o, 4, 3) == -1);
}

/* The ring over every choice of streamed blocks, twice through all blocks: each block's bytes are there when it is entered,
 * the next ones are under way, and no more than two slots are taken. */
static void ring(bool repeats) {
    TestDevice memory;
    Device d = test_device(&memory, SIZE_MAX);
    Error e = {0};
    FluxDit dit;
    Bound b;
    open_part(&b, "transformer");
    expect_ok(dit_flux_open("tests/golden/tiny-flux/transformer", &dit, &e), &e);
    dit_flux_bind(&dit, &b.bind);
    for (int mask = 0; mask < 1 << 5; mask++) {
        ResidencyPool pool = {.device = &d, .room = SIZE_MAX};
        Residency *r = NULL;
        bool streamed[5];
        size_t slot = 0, moved = 0;
        int count = 0;
        expect_ok(residency_add(&pool, "dit", b.files, &b.bind, NULL, F32, repeats, &r, &e), &e);
        if (!r) exit(1);
        for (int i = 0; i < 5; i++) {
            streamed[i] = mask >> i & 1;
            size_t size = r->layout.block_size[i];
            if (streamed[i]) moved += size, count++;
            if (streamed[i] && size > slot) slot = size;
        }
        residency_place(r, streamed);
        expect(r->layout.runs == count + 1 && r->layout.region == r->layout.whole - moved + (count ? 2 : 0) * slot);
        Exec x = exec_on(r, &d, &e);
        Rehearsal rehearsal = {NULL};
        x.rehearsal = &rehearsal; /* brings the part in, and no block */
        expect_ok(weights_enter(&x, WEIGHTS_PART), &e);
        uint64_t before = memory.uploads - 1;
        for (int i = 0; i < 5; i++) {
            expect_ok(weights_enter(&x, i), &e);
            expect_ok(weights_leave(&x, i), &e);
        }
        expect(memory.uploads == before + 1);
        x.rehearsal = NULL;
        for (int pass = 0; pass < 2; pass++) {
            expect_ok(weights_enter(&x, WEIGHTS_PART), &e);
            for (int i = 0; i < 5; i++) {
                expect_ok(weights_enter(&x, i), &e);
                expect(holds(&r->layout, i + 1) && holds(&r->layout, 0));
                for (int k = 0; k < 5; k++) /* those that stay are never disturbed */
                    if (!streamed[k]) expect(holds(&r->layout, k + 1));
                expect_ok(weights_leave(&x, i), &e);
            }
            expect_ok(weights_leave(&x, WEIGHTS_PART), &e);
        }
        expect(weights_static(&x) == (count == 0));
        /* Two blocks lie in two slots and never move again. Of three the second keeps its slot from pass to pass. A
         * third pass would find its first block already under way. */
        uint64_t uploads = memory.uploads - before - 1;
        uint64_t want = (uint64_t)(count <= 2 ? count : 2 * count - (count == 3) + repeats);
        expect(uploads == want);
        if (uploads != want) printf("blocks %02x: %d uploads, expected %d\n", (unsigned)mask, (int)uploads, (int)want);
        residency_close(&pool);
    }
    expect(memory.committed == 0 && memory.faults == 0);
    dit_flux_close(&dit);
    close_part(&b);
}

/* Texts of several pictures first: the encoders travel once a group instead of once a picture, and the bits stay. */
static void texts_ahead(Job job, const char *const *prompt, int count) {
    Rig r = {0}, turns = {0}, ahead = {0};
    Media want[4] = {0}, got = {0};
    rig_open(&r, BF16, 0, SIZE_MAX, false);
    Plan plan = plan_of(&r, job);
    rig_close(&r);
    size_t vram = plan.work + plan.scratch + largest(&plan);
    rig_open(&turns, BF16, vram, SIZE_MAX, false);
    for (int i = 0; i < count; i++) {
        job.prompt = prompt[i];
        render(&turns, job, &want[i]);
    }
    rig_open(&ahead, BF16, vram, SIZE_MAX, false);
    size_t encoders = 0;
    for (int i = 0; i < count; i++) {
        PipelineTexts texts;
        job.prompt = prompt[i];
        expect_ok(pipeline_resolve(ahead.pipeline, &job, &ahead.e), &ahead.e);
        expect_ok(pipeline_encode(ahead.pipeline, &job, i == 0, &texts, &ahead.e), &ahead.e);
        expect(!texts.full && texts.rows == 24);
        if (!i) encoders = ahead.memory.bytes;
        expect(encoders && ahead.memory.bytes == encoders);
    }
    for (int i = 0; i < count; i++) {
        job.prompt = prompt[i];
        render(&ahead, job, &got);
        expect(same_picture(&want[i], &got));
        media_free(&got);
        media_free(&want[i]);
    }
    expect(ahead.memory.bytes + (size_t)(count - 1) * encoders == turns.memory.bytes);
    expect(ahead.memory.peak <= vram);
    rig_close(&turns);
    rig_close(&ahead);
}

int main(void) {
#ifdef _OPENMP
    omp_set_num_threads(1); /* tiny shapes: teams of threads only wait for each other */
#endif
    victims();
    addresses();
    ring(false);
    ring(true);
    modes(F32, job_of("a red fox", 64));
    modes(BF16, job_of("a red fox in the snow", 64));
    modes(BF16, with_cfg(job_of("a red fox", 64)));
    several_jobs();
    arenas_stay();
    refusals();
    failed_upload();
    const char *const prompts[] = {"a red fox", "a blue dog", "", "a long text about a fox, a dog and nothing at all"};
    texts_ahead(job_of("a red fox", 64), prompts, 4);
    texts_ahead(with_cfg(job_of("a red fox", 64)), prompts, 4);
    return expect_done();
}
