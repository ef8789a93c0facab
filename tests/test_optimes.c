/* test_optimes.c - optimes.h and opcost.h: bytes, floating point operations and shapes of calls against numbers worked out by
 * hand; times read from a fake device whose marks lie where the test says, also past the end of the pool; a picture with and
 * without.
 * Easy to get wrong: the fake device hands out times by mark, so a swapped or stale pair shows in the sums. */
#include "optimes.h"

#include "bench.h"
#include "core/json.h"
#include "device_graph.h"
#include "expect.h"
#include "kernels/registry.h"
#include "opcost.h"
#include "report.h"

#include <cjson/cJSON.h>

static bool near(double a, double b) { return a > b * (1 - 1e-9) && a < b * (1 + 1e-9); }

/* --- what a call costs --- */

static void test_costs(void) {
    char x[8];
    Weight w = {.w = tensor_of(x, BF16, 12288, 3072), .bias = tensor_of(x, BF16, 12288)};
    Linear linear = {.y = tensor_of(x, BF16, 4096, 12288), .x = tensor_of(x, BF16, 4096, 3072), .w = &w};
    expect(opcost_bytes(OP_linear, &linear) == 2.0 * (4096.0 * 12288 + 4096.0 * 3072 + 12288.0 * 3072 + 12288));
    expect(opcost_flops(OP_linear, &linear) == 2.0 * 4096 * 12288 * 3072);
    char text[160], brief[12];
    opcost_shape(OP_linear, &linear, text, sizeof text);
    expect(!strcmp(text, "BF16 4096x12288 < 4096x3072; w 12288x3072 +b"));
    opcost_shape(OP_linear, &linear, brief, sizeof brief);
    expect(!strcmp(brief, "BF16 4096x1")); /* cut, and ended */

    LinearMany many = {.y = {linear.y, linear.y}, .x = linear.x, .w = {&w, &w}};
    expect(opcost_flops(OP_linear_many, &many) == 2 * opcost_flops(OP_linear, &linear));
    opcost_shape(OP_linear_many, &many, text, sizeof text);
    expect(!strcmp(text, "BF16 2 of 4096x12288 < 4096x3072; w 12288x3072 +b, 12288x3072 +b"));

    Weight table = {.w = tensor_of(x, F32, 32128, 4096)};
    Embed embed = {.y = tensor_of(x, BF16, 512, 4096), .ids = tensor_of(x, I32, 512), .table = &table};
    expect(opcost_bytes(OP_embed, &embed) == 512.0 * 4096 * 2 + 512 * 4 + 512.0 * 4096 * 4); /* not the whole table */
    expect(opcost_flops(OP_embed, &embed) == 0);

    Attention a = {.o = tensor_of(x, BF16, 77, 12, 64), .q = a.o, .k = a.o, .v = a.o};
    a.q = a.k = a.v = a.o;
    expect(opcost_flops(OP_attention, &a) == 4.0 * 77 * 77 * 12 * 64);
    a.mask = MASK_CAUSAL;
    expect(opcost_flops(OP_attention, &a) == 4.0 * (77 * 78 / 2) * 12 * 64);

    Weight kernel = {.w = tensor_of(x, BF16, 3, 3, 3, 128)};
    Conv2d conv = {.y = tensor_of(x, BF16, 1024, 1024, 3), .x = tensor_of(x, BF16, 1024, 1024, 128), .w = &kernel};
    expect(opcost_flops(OP_conv2d, &conv) == 2.0 * 1024 * 1024 * 3 * 9 * 128);

    Weight square = {.w = tensor_of(x, BF16, 512, 512)};
    SelfAttention self = {.y = tensor_of(x, BF16, 1024, 512), .x = tensor_of(x, BF16, 1024, 512), .wq = &square, .wk = &square,
                          .wv = &square, .wo = &square};
    expect(opcost_flops(OP_self_attention, &self) == 4 * 2.0 * 1024 * 512 * 512 + 2 * 2.0 * 1024 * 1024 * 512);

    Tensor row = tensor_of(x, BF16, 3, 5), turned = row;
    turned.stride[0] = 1, turned.stride[1] = 3;
    Tensor spread = row;
    spread.stride[0] = 0;
    ResidualGate gate = {.y = turned, .residual = turned, .x = row, .gate = spread};
    expect(opcost_bytes(OP_residual_gate, &gate) == 2.0 * (15 + 15 + 15 + 5));
    opcost_shape(OP_residual_gate, &gate, text, sizeof text);
    expect(!strcmp(text, "BF16 3x5~ < 3x5~, 3x5, 3x5~"));
}

/* --- times from marks --- */

typedef struct Clock {
    int marks, reads;
    double at[DEVICE_MARKS], now;
    bool fails, strayed; /* strayed: a mark of the phases' was put */
} Clock;

/* An even mark opens a run, the odd one behind it ends it 1 ms (first op) or 3 ms (second) later; 100 ms lie between. */
static Status put(Device *d, int slot, Error *e) {
    Clock *c = d->state;
    if (c->fails) return fail(e, ERR_DEVICE, "no mark");
    c->strayed |= slot < DEVICE_PHASE_MARKS || slot >= DEVICE_MARKS;
    c->now += slot % 2 == 0 ? 0.1 : c->marks % 4 == 1 ? 0.001 : 0.003;
    c->at[slot] = c->now;
    c->marks++;
    return OK;
}

static Status between(Device *d, int from, int to, double *seconds, Error *e) {
    Clock *c = d->state;
    if (c->fails) return fail(e, ERR_DEVICE, "no time");
    c->reads++;
    *seconds = c->at[to] - c->at[from];
    return OK;
}

static const OpTime *row_of(OpTimes *t, const char *phase, OpId op) {
    int n;
    const OpTime *row = optimes_rows(t, &n);
    for (int i = 0; i < n; i++)
        if (!strcmp(row[i].phase, phase) && row[i].op == op) return &row[i];
    static const OpTime none = {.count = 0};
    return &none;
}

static void test_times(void) {
    Error e = {0};
    Clock *clock = calloc(1, sizeof *clock);
    Device d = device_cpu();
    d.state = clock, d.mark = put, d.elapsed = between;
    Ops ops = {0};
    ops_cpu(&ops);
    Calls calls = {0};
    Arena scratch = {0};
    float v[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    OpTimes *t;
    expect_ok(optimes_open(&t, &e), &e);
    expect_ok(arena_open(&scratch, &d, "scratch", 1 << 16, &e), &e);
    Exec x = {.ops = &ops, .device = &d, .calls = &calls, .scratch = &scratch, .work = &scratch, .error = &e, .dtype = F32,
              .timer = optimes_timer(t)};
    Add add = {.y = tensor_of(v[2], F32, 4), .a = tensor_of(v[0], F32, 4), .b = tensor_of(v[1], F32, 4)};
    Negate negate = {.y = tensor_of(v[2], F32, 4), .x = tensor_of(v[0], F32, 4)};
    expect_ok(op_add(&x, &add), &e);
    expect(clock->marks == 0); /* no phase: nothing is timed */
    int rounds = DEVICE_MARKS / 2 + 5;
    for (int i = 0; i < rounds; i++) {
        optimes_phase(t, i < 2 ? "one" : "two");
        if (op_add(&x, &add) != OK || op_negate(&x, &negate) != OK) rounds = -1;
        if (i == 9) expect(clock->reads == 0); /* nothing waits on the way */
    }
    optimes_phase(t, NULL);
    expect(v[2][3] == -4 && clock->marks == 4 * rounds && !clock->strayed);
    expect_ok(optimes_collect(t, &e), &e);
    expect(clock->reads == 2 * rounds);
    expect(row_of(t, "one", OP_add)->count == 2 && near(row_of(t, "one", OP_add)->seconds, 0.002));
    expect(near(row_of(t, "one", OP_negate)->seconds, 0.006));
    expect(row_of(t, "two", OP_add)->count == (uint64_t)rounds - 2);
    expect(near(row_of(t, "two", OP_add)->seconds, 0.001 * (rounds - 2)));
    expect(near(row_of(t, "two", OP_negate)->seconds, 0.003 * (rounds - 2)));
    expect(row_of(t, "two", OP_add)->bytes == 48);
    int n;
    const OpTime *rows = optimes_rows(t, &n);
    expect(n == 4 && rows[0].op == OP_negate && rows[1].op == OP_add && rows[2].op == OP_negate);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    optimes_print(t, 2, out);
    fclose(out);
    expect(strstr(text, "\ntwo      negate             cpu ") && strstr(text, "F32 4 < 2 of 4\n"));
    free(text);
    optimes_forget(t);
    optimes_phase(t, "three");
    expect_ok(op_negate(&x, &negate), &e);
    expect_ok(optimes_collect(t, &e), &e);
    rows = optimes_rows(t, &n);
    expect(n == 1 && rows[0].count == 1);
    clock->fails = true;
    expect_status(op_negate(&x, &negate), ERR_DEVICE, "no mark", &e);
    optimes_close(t);
    calls_free(&calls);
    arena_close(&scratch);
    free(clock);
}

/* --- a picture --- */

static uint64_t counted(const OpTime *row, int n, const char *phase) {
    uint64_t sum = 0;
    for (int i = 0; i < n; i++)
        if (!phase || !strcmp(row[i].phase, phase)) sum += row[i].count;
    return sum;
}

static void on_step(void *user, const char *phase, int done, int total) {
    (void)done, (void)total;
    optimes_phase(user, phase);
}

static void test_picture(void) {
    Error e = {0};
    OpTimes *t;
    expect_ok(optimes_open(&t, &e), &e);
    Job job = {.prompt = "a cat", .width = 32, .height = 32, .steps = 3, .seed = 7};
    Media media[2];
    uint64_t runs = 0;
    for (int timed = 0; timed < 2; timed++) {
        Pipeline *p;
        PipelineOptions options = {.model = "tests/golden/tiny-flux", .device = "cpu", .timer = timed ? optimes_timer(t) : NULL};
        Progress progress = {on_step, t};
        expect_ok(pipeline_open(&options, &p, &e), &e);
        expect_ok(pipeline_resolve(p, &job, &e), &e);
        expect_ok(pipeline_render(p, &job, &progress, &media[timed], &e), &e);
        for (int i = 0; timed && i < media[1].dispatches; i++) runs += media[1].dispatch[i].count;
        expect_ok(optimes_collect(t, &e), &e);
        if (timed) {
            int n;
            const OpTime *row = optimes_rows(t, &n);
            expect(counted(row, n, NULL) == runs && runs > 0);
            expect(counted(row, n, "denoise") % 3 == 0 && counted(row, n, "decode") > 0 && counted(row, n, "text") > 0);
            Report r = {.meta = (Meta[]){meta_of(p, &job)}, .ops = t};
            char *text = NULL;
            Json *j = NULL;
            expect_ok(report_json(&r, p, &text, &e), &e);
            expect_ok(json_parse(text, strlen(text), "report", &j, &e), &e);
            const Json *list = json_get(j, "op_times");
            expect(list && cJSON_GetArraySize(list) == n && json_get(list->child, "mean_us"));
            json_free(j);
            free(text);
        }
        pipeline_close(p);
    }
    expect(!memcmp(media[0].rgb, media[1].rgb, (size_t)3 * 32 * 32));
    media_free(&media[0]);
    media_free(&media[1]);
    optimes_close(t);
}

static void test_bench(void) {
    Error e = {0};
    char *json = NULL, *table = NULL;
    size_t a, b;
    FILE *out = open_memstream(&json, &a), *err = open_memstream(&table, &b);
    BenchOptions o = {.what = "step", .folder = "tests/golden/tiny-flux", .dtype = BF16, .width = 32, .height = 32, .runs = 3,
                      .warmup = 2, .device = "cpu", .profile = true, .err = err};
    expect_ok(bench_run(&o, NULL, out, &e), &e);
    fclose(out);
    fclose(err);
    Json *j = NULL;
    expect_ok(json_parse(json, strlen(json), "bench", &j, &e), &e);
    const Json *list = json_get(j, "ops"), *row = list ? list->child : NULL;
    int euler = 0;
    for (; row; row = row->next)
        if (!strcmp(json_get(row, "op")->valuestring, "euler_step")) euler += json_get(row, "count")->valueint;
    expect(euler == 3); /* the warm-up's are not there */
    expect(strstr(table, "; one of 3: ") != NULL);
    json_free(j);
    free(json);
    free(table);
    o.what = "load";
    expect_status(bench_run(&o, NULL, NULL, &e), ERR_USAGE, "nothing to profile", &e);
}

/* On a device that captures steps, which timing must keep it from. */
static void test_no_capture(void) {
    Error e = {0};
    for (int timed = 0; timed < 2; timed++) {
        Device d = fake_device();
        char *json = NULL, *table = NULL;
        size_t a, b;
        FILE *out = open_memstream(&json, &a), *err = open_memstream(&table, &b);
        BenchOptions o = {.what = "step", .folder = "tests/golden/tiny-flux", .dtype = BF16, .width = 32, .height = 32,
                          .runs = 3, .warmup = 2, .on = &d, .profile = timed, .err = err};
        expect_ok(bench_run(&o, NULL, out, &e), &e);
        fclose(out);
        fclose(err);
        expect(timed ? fake.captures == 0 && fake.replays == 0 : fake.captures > 0);
        expect(timed ? a && strstr(json, "\"replayed\":0,") : a && !strstr(json, "\"replayed\":0,"));
        free(json);
        free(table);
    }
}

int main(void) {
    test_costs();
    test_times();
    test_picture();
    test_bench();
    test_no_capture();
    return expect_done();
}
