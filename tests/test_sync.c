/* test_sync.c - who is named when a device fails late, as a GPU does: an op spoils the device, everything after it fails.
 *
 * The device is host memory with a fault flag. With Exec.sync the op at fault is named; without it the call that notices
 * fails, and its text names the op launched last. Errors that are no fault of the device's are left alone.
 * Easy to get wrong: the op that notices is not the op at fault. */
#include "ops.h"

#include "kernels/registry.h"
#include "pipeline.h"
#include "report.h"

#include "expect.h"

typedef struct Late {
    bool fault;
    int syncs;
} Late;

static Late *late_of(const Device *d) { return d->state; }

static Status late_sync(Device *d, Error *e) {
    late_of(d)->syncs++;
    return late_of(d)->fault ? fail(e, ERR_DEVICE, "late: illegal access") : OK;
}

static Status late_copy(Device *d, void *to, const void *from, size_t size, Error *e) {
    if (late_of(d)->fault) return fail(e, ERR_DEVICE, "late: copy: illegal access");
    memcpy(to, from, size);
    return OK;
}

static Status good(Exec *x, const void *args) {
    (void)args;
    return late_of(x->device)->fault ? fail(x->error, ERR_DEVICE, "launch failed: illegal access") : OK;
}
static Status spoils(Exec *x, const void *args) {
    (void)args;
    late_of(x->device)->fault = true;
    return OK;
}
static Status lacks(Exec *x, const void *args) {
    (void)args;
    return fail(x->error, ERR_DEVICE, "a library is missing");
}

static const Impl IMPLS[] = {{OP_copy, "cuda", good, NULL, NULL}, {OP_add, "cuda", spoils, NULL, NULL},
                             {OP_act, "cuda", good, NULL, NULL}, {OP_affine, "cuda", lacks, NULL, NULL}};

static const char TAIL[] = "--sync finds the one at fault";

static void ops(void) {
    Error e = {0};
    Late late = {0};
    Device d = device_cpu();
    d.state = &late, d.sync = late_sync, d.upload = d.download = late_copy;
    Ops table = {0};
    ops_append(&table, IMPLS, sizeof IMPLS / sizeof *IMPLS);
    Calls calls = {0};
    Arena work, scratch;
    expect_ok(arena_open(&work, &d, "work", 1 << 20, &e), &e);
    expect_ok(arena_open(&scratch, &d, "scratch", 1 << 16, &e), &e);
    Exec x = {.ops = &table, .device = &d, .calls = &calls, .work = &work, .scratch = &scratch, .error = &e, .dtype = F32};
    Tensor t = exec_new(&x, 4);
    float host[4] = {0};
    const Copy copy = {.y = t, .x = t};
    const Add add = {.y = t, .a = t, .b = t};
    const Act act = {.y = t, .x = t};
    const Affine affine = {.y = t, .x = t, .mul = 1};

    expect_status(op_affine(&x, &affine), ERR_DEVICE, "a library is missing", &e);
    expect(!strstr(e.text, TAIL)); /* nothing was launched */
    expect_ok(op_copy(&x, &copy), &e);
    expect_status(op_affine(&x, &affine), ERR_DEVICE, "a library is missing", &e);
    expect(!strstr(e.text, TAIL)); /* the device is well */
    expect_ok(op_add(&x, &add), &e); /* the fault, unnoticed */
    expect_status(exec_download(&x, host, t), ERR_DEVICE, "late: copy: illegal access; the last op launched was add, ", &e);
    expect(strstr(e.text, TAIL) != NULL);
    expect_status(exec_upload(&x, t, host), ERR_DEVICE, "the last op launched was add", &e);
    expect_status(op_act(&x, &act), ERR_DEVICE, "launch failed: illegal access; the last op launched was add", &e);

    late = (Late){0};
    x.sync = true, x.last = 0;
    expect_ok(op_copy(&x, &copy), &e);
    expect(late.syncs == 1);
    expect_status(op_add(&x, &add), ERR_DEVICE, "add: late: illegal access", &e);
    expect(!strstr(e.text, TAIL));
    late = (Late){0};
    x.dry = true;
    expect_ok(op_add(&x, &add), &e);
    expect(!late.syncs && !late.fault);
    arena_close(&work);
    arena_close(&scratch);
    calls_free(&calls);
}

/* Through the pipeline: as many waits as ops, and the same picture. */
static void whole(bool sync, uint8_t *rgb) {
    Error e = {0};
    Late late = {0};
    Device d = device_cpu();
    d.state = &late, d.sync = late_sync;
    Pipeline *p = NULL;
    expect_ok(pipeline_open(&(PipelineOptions){.model = "tests/golden/tiny-flux", .sync = sync, .on = &d}, &p, &e), &e);
    Job job = {.prompt = "a cat", .width = 32, .height = 32, .steps = 1, .max_sequence_length = 16};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    Media media;
    expect_ok(pipeline_render(p, &job, NULL, &media, &e), &e);
    char *text = NULL, total[64];
    expect_ok(report_json(&(Report){.meta = (Meta[]){meta_of(p, &job)}}, p, &text, &e), &e);
    snprintf(total, sizeof total, "\"cpu\":\t%d,", late.syncs);
    expect(sync ? late.syncs > 100 && strstr(text, total) : !late.syncs);
    free(text);
    memcpy(rgb, media.rgb, 32 * 32 * 3);
    media_free(&media);
    pipeline_close(p);
}

int main(void) {
    uint8_t a[32 * 32 * 3], b[sizeof a];
    ops();
    whole(false, a);
    whole(true, b);
    expect(!memcmp(a, b, sizeof a));
    return expect_done();
}
