/* test_packing.c - weights that take the same input as one: where bind_pack puts them, which arguments are one product and
 * which are refused with what reason, and that probes and first sight see them packed.
 *
 * A device whose weights lie in a region stands in for a GPU (device_test.h); the variant under test multiplies on the CPU,
 * part by part but through the packed view, so its bits are the reference's by construction and its views are what is tested.
 * Easy to get wrong: run from the repository root. The tiny checkpoint's biases are 256 bytes in F32, so they pack there and
 * do not in BF16. */
#include "device_test.h"
#include "expect.h"
#include "gate.h"
#include "kernels/packing.h"
#include "models/dit_flux.h"
#include "pipeline.h"
#include "plan.h"
#include "residency.h"

static const char MODEL[] = "tests/golden/tiny-flux";

/* --- where they lie --- */

static bool packs(const Weight *const *w, int count, char *why, size_t size) {
    Packing p;
    Tensor y[LINEAR_MANY_MAX], wide;
    int64_t total = 0, at = 0;
    for (int i = 0; i < count; i++) total += w[i]->w.shape[0];
    wide = tensor_of((void *)4096, w[0]->w.dtype, 5, total); /* never touched */
    for (int i = 0; i < count; at += w[i++]->w.shape[0]) y[i] = tensor_slice(wide, 1, at, w[i]->w.shape[0]);
    if (!packing_make(y, w, count, BIAS_FUSED, &p, why, size)) return false;
    expect(p.w.w.shape[0] == total && p.w.bias.shape[0] == total);
    expect(tensor_same_shape(p.y, wide) && p.y.data == wide.data);
    return true;
}

/* Every group of the transformer, with each choice of blocks that stream. */
static void test_layouts(DType dtype, bool good) {
    TestDevice memory;
    Device d = test_device(&memory, SIZE_MAX);
    Error e = {0};
    FluxDit dit;
    Bind bind = {.prefix = ""};
    WeightFiles *files = NULL;
    char why[200] = "";
    expect_ok(weights_open("tests/golden/tiny-flux/transformer", &files, &e), &e);
    expect_ok(dit_flux_open("tests/golden/tiny-flux/transformer", &dit, &e), &e);
    dit_flux_bind(&dit, &bind);
    ResidencyPool pool = {.device = &d, .room = SIZE_MAX};
    Residency *r = NULL;
    expect_ok(residency_add(&pool, "dit", files, &bind, NULL, dtype, true, &r, &e), &e);
    if (!r) exit(1);
    size_t whole = r->layout.whole;
    for (int mask = 0; mask < 1 << 5; mask++) {
        bool streamed[5];
        for (int i = 0; i < 5; i++) streamed[i] = mask >> i & 1;
        residency_place(r, streamed);
        layout_bind(&r->layout, r->nowhere);
        size_t sum = 0;
        for (int k = 0; k < r->layout.runs; k++) sum += r->layout.run[k].size;
        expect(sum == whole); /* packing costs nothing */
        for (int i = 0; i < 2; i++)
            for (int s = 0; s < 2; s++) {
                const FluxStream *b = &dit.block[i][s];
                expect(packs((const Weight *const[]){&b->q, &b->k, &b->v}, 3, why, sizeof why) == good);
                expect(!packs((const Weight *const[]){&b->v, &b->out}, 2, why, sizeof why));
            }
        for (int i = 0; i < 3; i++) {
            const FluxSingle *b = &dit.single[i];
            expect(packs((const Weight *const[]){&b->q, &b->k, &b->v, &b->mlp}, 4, why, sizeof why) == good);
            if (!good) expect(strstr(why, "the bias of") && strstr(why, "does not lie right behind that of"));
            expect(!packs((const Weight *const[]){&b->k, &b->q}, 2, why, sizeof why));
        }
    }
    residency_close(&pool);
    dit_flux_close(&dit);
    bind_free(&bind);
    weights_close(files);
}

/* --- what is refused --- */

static void test_reasons(void) {
    static uint16_t memory[4096]; /* lint: allow-static (test program) */
    const Weight plain[2] = {
        {.w = tensor_of(memory, BF16, 3, 8), .bias = tensor_of(memory + 1000, BF16, 3), .round = BF16, .name = "one"},
        {.w = tensor_of(memory + 24, BF16, 5, 8), .bias = tensor_of(memory + 1003, BF16, 5), .round = BF16, .name = "two"}};
    for (int fault = 0; fault < 14; fault++) {
        static const char *const SAY[] = {
            "", "two does not lie right behind one", "the bias of two does not lie right behind that of one",
            "of one and two one alone has a bias", "one and two differ", "one and two differ", "two: its rows have gaps",
            "two has a scale or LoRA", "neighbouring columns", "neighbouring columns", "neighbouring columns",
            "neighbouring columns", "one: the bias is added after a rounding", "neighbouring columns"};
        Weight w[2] = {plain[0], plain[1]};
        Tensor wide = tensor_of(memory + 2000, BF16, 4, 8), y[2] = {tensor_slice(wide, 1, 0, 3), tensor_slice(wide, 1, 3, 5)};
        int32_t mode = BIAS_FUSED;
        Packing p;
        char why[200] = "";
        if (fault == 1) w[1].w.data = memory + 32;
        if (fault == 2) w[1].bias.data = memory + 1008;
        if (fault == 3) w[1].bias = (Tensor){0};
        if (fault == 4) w[1].w.dtype = F16;
        if (fault == 5) w[1].w = tensor_of(memory + 24, BF16, 10, 4);
        if (fault == 6) w[1].w.stride[0] = 9;
        if (fault == 7) w[1].scale = w[1].bias;
        if (fault == 8) y[1].data = memory + 2004;
        if (fault == 9) y[1].stride[0] = 16;
        if (fault == 10) y[1] = tensor_of(memory + 2003, BF16, 3, 5);
        if (fault == 11) y[1] = tensor_of(memory + 3000, BF16, 4, 5);
        if (fault == 12) mode = BIAS_AFTER;
        if (fault == 13) y[0].stride[0] = y[1].stride[0] = 5; /* as if v's rows began inside k's */
        bool good = packing_make(y, (const Weight *const[]){&w[0], &w[1]}, 2, mode, &p, why, sizeof why);
        expect(good == !fault && strstr(why, SAY[fault]) != NULL);
        if (!strstr(why, SAY[fault])) printf("fault %d: \"%s\"\n", fault, why);
    }
    /* without biases nothing is added, so when it would be does not matter; one weight is its own packing */
    Weight w[2] = {plain[0], plain[1]};
    w[0].bias = w[1].bias = (Tensor){0};
    Tensor wide = tensor_of(memory + 2000, BF16, 4, 8), y[2] = {tensor_slice(wide, 1, 0, 3), tensor_slice(wide, 1, 3, 5)};
    Packing p;
    char why[200] = "";
    expect(packing_make(y, (const Weight *const[]){&w[0], &w[1]}, 2, BIAS_AFTER, &p, why, sizeof why));
    expect(p.w.w.shape[0] == 8 && p.w.w.data == memory && !p.w.bias.rank && p.y.shape[1] == 8);
    expect(packing_make(y, (const Weight *const[]){&plain[0]}, 1, BIAS_FUSED, &p, why, sizeof why));
    expect(p.w.w.shape[0] == 3 && p.y.shape[1] == 3);
}

/* --- families: a packed product in the place of several --- */

static int packed, apart, asked, refuse_at = -1; /* lint: allow-static (test program) */
static bool lies;

static int count_of(const Weight *const *w) {
    int n = 0;
    while (n < LINEAR_MANY_MAX && w[n]) n++;
    return n;
}

static bool ask(const Tensor *y, const Weight *const *w, int32_t mode, char *why, size_t size) {
    Packing p;
    if (!packing_make(y, w, count_of(w), mode, &p, why, size)) return false;
    return asked++ != refuse_at || (snprintf(why, size, "not today"), false);
}

static bool many_accepts(const void *args, char *why, size_t size) {
    const LinearMany *a = args;
    return ask(a->y, a->w, a->bias_mode, why, size);
}

static bool many_gelu_accepts(const void *args, char *why, size_t size) {
    const LinearManyGelu *a = args;
    return ask(a->y, a->w, a->bias_mode, why, size);
}

static const Impl *reference(const Exec *x, OpId op) { return ops_reference(x->ops, op); }

/* The packed view's rows and columns, a part at a time: the reference's own products. */
static Status run_packed(Exec *x, const Tensor *y, Tensor in, const Weight *const *w, int32_t mode, bool *done) {
    Packing p;
    char why[200];
    int64_t at = 0;
    *done = packing_make(y, w, count_of(w), mode, &p, why, sizeof why);
    packed += *done;
    apart += !*done;
    for (int i = 0; *done && i < count_of(w); at += w[i++]->w.shape[0]) {
        int64_t n = w[i]->w.shape[0];
        Weight part = p.w;
        part.w = tensor_slice(p.w.w, 0, at, n);
        part.bias = tensor_slice(p.w.bias, 0, at, n);
        size_t mark = arena_mark(x->scratch);
        TRY(reference(x, OP_linear)->run(x, &(Linear){.y = tensor_slice(p.y, 1, at, n), .x = in, .w = &part, .bias_mode = mode}));
        arena_reset(x->scratch, mark);
    }
    if (*done && lies) *(uint32_t *)(void *)((char *)p.y.data + slice_span(p.y) - 4) ^= 1; /* the last column's last row */
    return OK;
}

static Status many(Exec *x, const void *args) {
    const LinearMany *a = args;
    bool done;
    TRY(run_packed(x, a->y, a->x, a->w, a->bias_mode, &done));
    return done ? OK : reference(x, OP_linear_many)->run(x, args);
}

static Status many_gelu(Exec *x, const void *args) {
    const LinearManyGelu *a = args;
    bool done;
    TRY(run_packed(x, a->y, a->x, a->w, a->bias_mode, &done));
    if (!done) return reference(x, OP_linear_many_gelu)->run(x, args);
    return reference(x, OP_act)->run(x, &(Act){.y = a->g, .x = a->y[count_of(a->w) - 1], .kind = ACT_GELU_TANH});
}

static size_t many_scratch(const Exec *x, const void *args) { return reference(x, OP_linear_many)->scratch(x, args); }
static size_t many_gelu_scratch(const Exec *x, const void *args) { return reference(x, OP_linear_many_gelu)->scratch(x, args); }

static const Impl PACKED[] = {{OP_linear_many, "told", many, many_scratch, many_accepts},
                              {OP_linear_many_gelu, "told", many_gelu, many_gelu_scratch, many_gelu_accepts}};
static const Family FAMILY[] = {{"told-packed", EXACT, PACKED, 2, ""}};

static void tell(int refuse, bool lying) {
    packed = apart = asked = 0;
    refuse_at = refuse;
    lies = lying;
}

static uint64_t runs(const Media *m, const char *part, const char *op, const char *impl) {
    uint64_t n = 0;
    for (int i = 0; i < m->dispatches; i++)
        if (!strcmp(m->dispatch[i].part, part) && !strcmp(m->dispatch[i].op, op) && !strcmp(m->dispatch[i].impl, impl))
            n += m->dispatch[i].count;
    return n;
}

static const FamilyUse *use_of(const Media *m, const char *part) {
    for (int i = 0; i < m->families; i++)
        if (!strcmp(m->family[i].part, part)) return &m->family[i];
    return NULL;
}

/* vram 0: all the room there is. */
static Media render(DType dtype, size_t vram, const char *families) {
    TestDevice memory;
    Device d = test_device(&memory, SIZE_MAX);
    Error e = {0};
    Pipeline *p = NULL;
    Media m = {0};
    PipelineOptions o = {.model = MODEL, .dtype = dtype, .vram = vram, .on = &d, .families = FAMILY, .family_count = 1};
    Job job = {.prompt = "a red fox", .width = 64, .height = 64, .steps = 2, .seed = 7, .max_sequence_length = 24,
               .families = families};
    expect_ok(pipeline_open(&o, &p, &e), &e);
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect_ok(pipeline_render(p, &job, NULL, &m, &e), &e);
    pipeline_close(p);
    expect(memory.faults == 0);
    return m;
}

/* The most memory with which blocks of the transformer take turns in two slots. */
static size_t streaming(DType dtype) {
    for (size_t vram = 4 << 20; vram; vram -= 16384) {
        TestDevice memory;
        Device d = test_device(&memory, SIZE_MAX);
        Error e = {0};
        Pipeline *p = NULL;
        Plan plan = {0};
        PipelineOptions o = {.model = MODEL, .dtype = dtype, .vram = vram, .on = &d};
        Job job = {.prompt = "a red fox", .width = 64, .height = 64, .steps = 2, .seed = 7, .max_sequence_length = 24};
        expect_ok(pipeline_open(&o, &p, &e), &e);
        expect_ok(pipeline_resolve(p, &job, &e), &e);
        expect_ok(pipeline_plan(p, &job, &plan, &e), &e);
        pipeline_close(p);
        if (plan.part[2].mode == PLAN_STREAM && plan.fits) return vram;
    }
    return 0;
}

static bool same_picture(const Media *a, const Media *b) { return a->rgb && b->rgb && !memcmp(a->rgb, b->rgb, 64 * 64 * 3); }

/* 2 double blocks of 2 streams and 3 single blocks, 2 steps. */
enum { MANY = 2 * 2 * 2, MANY_GELU = 2 * 3, SHAPES = 3 };

static void test_mounted(size_t vram) {
    tell(-1, false);
    Media plain = render(F32, vram, "none");
    expect(packed == 0 && runs(&plain, "transformer", "linear_many", "cpu") == MANY);
    Media m = render(F32, vram, NULL);
    const FamilyUse *use = use_of(&m, "transformer"), *text = use_of(&m, "text_encoder_2");
    expect(use && use->mounted && use->count == MANY + MANY_GELU && !m.warning[0] && same_picture(&m, &plain));
    expect(runs(&m, "transformer", "linear_many_gelu", "told") == MANY_GELU);
    /* nothing ran apart: a probe of each shape, first sight of each on the whole input, and the runs themselves */
    expect(apart == 0 && packed == 2 * SHAPES + MANY + MANY_GELU);
    expect(text && text->refused && strstr(text->why, "linear_many: encoder.block.0.layer.0.SelfAttention.") != NULL);
    media_free(&m);
    /* first sight looks at what a packed product wrote, to its last column */
    tell(-1, true);
    m = render(F32, vram, NULL);
    use = use_of(&m, "transformer");
    expect(use && !use->mounted && use->refused);
    expect(strstr(m.warning, "told-packed is unmounted: linear_many told gave other bits") != NULL);
    expect(same_picture(&m, &plain) && use->count == 0);
    media_free(&m);
    media_free(&plain);
}

static void test_refused(void) {
    tell(-1, false);
    Media plain = render(BF16, 0, "none"), m = render(BF16, 0, NULL);
    const FamilyUse *use = use_of(&m, "transformer");
    expect(use && use->refused && strstr(use->why, "flux.double.txt_qkv: linear_many: the bias of"));
    expect(packed == 0 && same_picture(&m, &plain));
    media_free(&m), media_free(&plain);
    /* the first site, the second, the last: each takes the whole family along */
    plain = render(F32, 0, "none");
    for (int k = 0; k <= SHAPES; k++) {
        tell(k, false);
        m = render(F32, 0, NULL);
        use = use_of(&m, "transformer");
        expect(same_picture(&m, &plain) && use && use->mounted == (k == SHAPES));
        if (use && k < SHAPES) expect(use->refused && strstr(use->why, "not today") && packed + apart == 0);
        media_free(&m);
    }
    media_free(&plain);
}

int main(void) {
    if (!getenv("OMP_WAIT_POLICY")) {
        setenv("OMP_WAIT_POLICY", "passive", 1);
        execv("/proc/self/exe", (char *const[]){(char[]){"test_packing"}, NULL});
    }
    test_layouts(F32, true);
    test_layouts(BF16, false);
    test_reasons();
    test_mounted(0);
    size_t vram = streaming(F32);
    expect(vram > 0);
    test_mounted(vram);
    test_refused();
    return expect_done();
}
