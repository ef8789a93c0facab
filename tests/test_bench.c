/* test_bench.c - bench.h: which marks make a run, median and extremes, one answer a line when serving, and loading from a
 * device that counts its bytes. Times themselves are not judged.
 *
 * The fake device's marks are numbered, and the time between marks i and i+1 is chosen here, so the JSON can be exact.
 * Easy to get wrong: the steps that warm up come before those that count. */
#include "bench.h"

#include "core/json.h"
#include "device_test.h"
#include "expect.h"

#include <cjson/cJSON.h>

static const char MODEL[] = "tests/golden/tiny-flux";

typedef struct Marks { int set, asked[DEVICE_MARKS]; bool fails; } Marks;

static Status put_mark(Device *d, int slot, Error *e) {
    Marks *m = d->state;
    (void)slot;
    m->set++;
    return m->fails ? fail(e, ERR_DEVICE, "no mark") : OK;
}

static Status ask(Device *d, int from, int to, double *seconds, Error *e) {
    Marks *m = d->state;
    (void)e;
    m->asked[from] += to == from + 1;
    *seconds = from == 3 ? 0.5 : 0.001 * (10 - from); /* falling, with one outlier */
    return OK;
}

static double real(const Json *j, const char *key) {
    const Json *v = json_get(j, key);
    return v ? v->valuedouble : -1;
}

static bool near(double a, double b) { return a > b * (1 - 1e-12) && a < b * (1 + 1e-12); }

static Json *first_line(const char *text, Error *e) {
    Json *j = NULL;
    expect_ok(json_parse(text, strcspn(text, "\n"), "bench", &j, e), e);
    return j;
}

/* Runs and hands back what was printed; free it. */
static char *run(BenchOptions o, const char *input, Status want, const char *part, Error *e) {
    char *text = NULL;
    size_t size = 0;
    char none[1] = "";
    FILE *in = fmemopen(input && *input ? (void *)(uintptr_t)input : none, input && *input ? strlen(input) : 1, "r");
    FILE *out = open_memstream(&text, &size);
    if (!in || !out) abort();
    if (!input) fgetc(in);
    o.folder = MODEL, o.dtype = BF16, o.width = o.height = 32;
    expect_status(bench_run(&o, in, out, e), want, part, e);
    fclose(in);
    fclose(out);
    return text;
}

int main(void) {
    Error e = {0};
    Marks marks = {0};
    Device d = device_cpu();
    d.state = &marks, d.mark = put_mark, d.elapsed = ask;
    BenchOptions o = {.what = "step", .runs = 4, .warmup = 2, .on = &d};

    char *text = run(o, NULL, OK, "", &e); /* marks 2..6: 8, 500, 6, 5 ms */
    Json *j = first_line(text, &e);
    expect(marks.set == 7 && !marks.asked[1] && marks.asked[2] == 1 && marks.asked[5] == 1 && !marks.asked[6]);
    expect(near(real(j, "value"), 7) && near(real(j, "min"), 5) && near(real(j, "max"), 500) && near(real(j, "runs"), 4));
    expect(near(json_get(j, "values")->child->valuedouble, 8));
    expect(json_get(j, "replayed") && json_get(j, "replayed")->valueint == 0); /* the fake device records nothing */
    json_free(j);
    free(text);

    marks = (Marks){0};
    o.what = "decode", o.runs = 3, o.warmup = 1;
    text = run(o, NULL, OK, "", &e);
    expect(marks.set == 8 && marks.asked[0] == 3); /* two marks a picture, four pictures */
    free(text);

    marks = (Marks){0};
    o.what = "step", o.runs = 1, o.warmup = 0, o.serve = true;
    text = run(o, "go\ngo\n", OK, "", &e);
    expect(!strncmp(text, "{\"ready\":true}\n{\"bench\":\"step\"", 29));
    const char *second = strstr(text + 16, "\n{");
    expect(second && !strncmp(second + 1, "{\"bench\":\"step\"", 15) && !strstr(second + 2, "\n{"));
    free(text);

    marks = (Marks){.fails = true};
    o.serve = false;
    free(run(o, NULL, ERR_DEVICE, "no mark", &e));
    o.what = NULL;
    free(run(o, NULL, ERR_USAGE, "either step, decode, load, picture or text, or --tune", &e));
    o.tune = true, o.tuned = "nowhere/tuned.tsv";
    free(run(o, NULL, ERR_USAGE, "products are tuned on a GPU", &e));
    o.what = "step";
    free(run(o, NULL, ERR_USAGE, "either step, decode, load, picture or text, or --tune", &e));
    o.tune = false, o.tuned = NULL;
    o.what = "sleep";
    free(run(o, NULL, ERR_USAGE, "bench: found \"sleep\", expected step, decode, load, picture or text", &e));

    o = (BenchOptions){.what = "step", .runs = 2, .warmup = 1, .device = "cpu"};
    text = run(o, NULL, OK, "", &e); /* the host's clock */
    j = first_line(text, &e);
    expect(real(j, "min") > 0 && real(j, "min") <= real(j, "value") && real(j, "value") <= real(j, "max"));
    expect(strstr(text, "\"clock\":\"host\"") != NULL);
    json_free(j);
    free(text);
    o.what = "picture", o.warmup = 0;
    text = run(o, NULL, OK, "", &e);
    j = first_line(text, &e);
    expect(real(j, "min") > 0 && real(j, "runs") == 2 && strstr(text, "\"unit\":\"ms\"") != NULL);
    json_free(j);
    free(text);
    o.what = "text", o.runs = 3, o.warmup = 1;
    text = run(o, NULL, OK, "", &e);
    j = first_line(text, &e);
    expect(real(j, "min") > 0 && real(j, "runs") == 3 && strstr(text, "\"clock\":\"host\"") != NULL);
    json_free(j);
    free(text);
    o.what = "load";
    free(run(o, NULL, ERR_USAGE, "nothing to load", &e));

    TestDevice memory;
    d = test_device(&memory, SIZE_MAX);
    o = (BenchOptions){.what = "load", .runs = 3, .warmup = 1, .on = &d};
    text = run(o, NULL, OK, "", &e);
    j = first_line(text, &e);
    expect(memory.uploads == 4 && near(real(j, "bytes") * 4, (double)memory.bytes) && real(j, "bytes") > 1e6);
    expect(memory.committed == 0 && !memory.faults);
    json_free(j);
    free(text);
    return expect_done();
}
