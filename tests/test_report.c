/* test_report.c - report.h on a real run of the tiny checkpoint: the numbers of the JSON against what the run must have
 * done, and an implementation of another table showing up as one.
 * Easy to get wrong: counts belong to the pipeline's whole life, so the second run's are on top of the first's. */
#include "report.h"

#include "core/json.h"
#include "model.h"
#include "plan.h"

#include "expect_pipeline.h"

#include <cjson/cJSON.h>

static const char *const MODEL = "tests/golden/tiny-flux";
enum { STEPS = 2, ATTENTIONS = 5 }; /* of the tiny transformer: its double and single blocks */

static int64_t number_at(const Json *j, const char *a, const char *b, const char *c) {
    int64_t n = -1;
    j = json_get(j, a);
    if (b) j = json_get(j, b);
    if (c) j = json_get(j, c);
    return j && json_as_int(j, &n) ? n : -1;
}

static bool text_is(const Json *j, const char *key, const char *want) {
    const char *text = NULL;
    return json_string(j, key, &text, "report", NULL) == OK && text && !strcmp(text, want);
}

static const Json *first_item(const Json *list) { return list ? list->child : NULL; }

static Json *report_of(Pipeline *p, const Job *job, Error *e) {
    const ReportPicture picture = {.path = "x.png", .seed = UINT64_MAX, .plan = 0.25, .denoise = 0.5};
    Report r = {.meta = (Meta[]){meta_of(p, job)}, .open = 1, .all = 2, .picture = &picture, .count = 1};
    char *text = NULL;
    Json *j = NULL;
    expect_ok(report_json(&r, p, &text, e), e);
    if (text) expect_ok(json_parse(text, strlen(text), "report", &j, e), e);
    free(text);
    return j;
}

/* Sum of the counts of the rows with this op and implementation (NULL: any). */
static int64_t ops_count(const Json *j, const char *part, const char *op, const char *impl) {
    int64_t sum = 0, n;
    for (const Json *row = first_item(json_get(json_get(j, "calls"), "ops")); row; row = row->next)
        if ((!part || text_is(row, "part", part)) && (!op || text_is(row, "op", op)) && (!impl || text_is(row, "impl", impl)) &&
            json_as_int(json_get(row, "count"), &n))
            sum += n;
    return sum;
}

int main(void) {
    Error e = {0};
    Pipeline *p = expect_pipeline(MODEL);
    Job job = {.prompt = "a cat", .width = 64, .height = 32, .steps = STEPS, .seed = 7, .max_sequence_length = 16,
               .families = "none"};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    char *said = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&said, &size);
    expect_ok(report_explain(p, f, &e), &e); /* before the first picture */
    fclose(f);
    expect(strstr(said, "bits           not proven (cpu)\n") && !strstr(said, "operations"));
    free(said);

    Media media;
    expect_ok(pipeline_render(p, &job, NULL, &media, &e), &e);
    expect(media.seconds_plan > 0);
    media_free(&media);
    Json *j = report_of(p, &job, &e);
    int64_t all = number_at(j, "calls", "cpu", NULL);
    expect(text_is(j, "device", "cpu") && text_is(j, "bits", "not proven (cpu)"));
    expect(all > 100 && number_at(j, "calls", "cuda", NULL) == 0 && ops_count(j, NULL, NULL, NULL) == all);
    expect(ops_count(j, NULL, NULL, "cpu") == all);
    expect(ops_count(j, "transformer", "attention", NULL) == ATTENTIONS * STEPS);
    expect(ops_count(j, "transformer", "euler_step", NULL) == STEPS && ops_count(j, NULL, "to_rgb8", NULL) == 1);
    expect(number_at(j, "parameters", "steps", NULL) == STEPS && number_at(j, "parameters", "seed", NULL) == 7);
    expect(text_is(first_item(json_get(j, "pictures")), "seed", "18446744073709551615"));
    const PipelineFacts facts = pipeline_facts(p);
    expect(number_at(j, "memory", "plan", "peak") == (int64_t)plan_peak(facts.plan));
    expect(number_at(j, "memory", "plan", "work") == (int64_t)facts.plan->work && facts.plan->work > 0);
    expect(number_at(j, "memory", "measured", "work") == (int64_t)facts.plan->work); /* to the byte: a plan is no estimate */
    expect(number_at(j, "memory", "measured", "scratch") == (int64_t)facts.plan->scratch);
    expect(number_at(j, "memory", "measured", "host_peak") > 1 << 20);
    json_free(j);

    /* Another implementation, named as the CUDA table's are. */
    Part *dit = model_part((Model *)(uintptr_t)facts.model, "transformer");
    Impl other = *dit->ops.impl[OP_attention][0];
    other.name = "cuda_other";
    dit->ops.impl[OP_attention][0] = &other;
    dit->ops.epoch++;
    dit->fusion.reference = dit->ops; /* what the table is made of when families change */
    expect_ok(pipeline_render(p, &job, NULL, &media, &e), &e);
    media_free(&media);
    j = report_of(p, &job, &e);
    expect(number_at(j, "calls", "cuda", NULL) == ATTENTIONS * STEPS);
    expect(ops_count(j, "transformer", "attention", "cuda_other") == ATTENTIONS * STEPS);
    expect(ops_count(j, "transformer", "attention", "cpu") == ATTENTIONS * STEPS);
    json_free(j);
    f = open_memstream(&said, &size);
    expect_ok(report_explain(p, f, &e), &e);
    fclose(f);
    expect(strstr(said, " on the cpu table, 10 on the cuda table\n") != NULL);
    expect(strstr(said, "transformer      attention          cuda_other             10\n") != NULL);
    free(said);

    /* Families, their kernels, and what they do to the promise. */
    job.quality = QUALITY_HIGH;
    job.families = "linear-gelu-f32,ln-modulate";
    expect_ok(pipeline_render(p, &job, NULL, &media, &e), &e);
    media_free(&media);
    j = report_of(p, &job, &e);
    expect(text_is(j, "bits", "not proven (quality high: linear-gelu-f32)"));
    const Json *row = first_item(json_get(j, "families"));
    expect(row && row->next && !row->next->next && text_is(row, "part", "transformer"));
    expect(row && text_is(row, "family", "linear-gelu-f32") && text_is(row, "promise", "BOUNDED"));
    expect(row && row->next && text_is(row->next, "family", "ln-modulate") && text_is(row->next, "promise", "EXACT"));
    /* the two jobs before it ran the references: counts of the whole run */
    expect(2 * ops_count(j, NULL, "linear_gelu", "cpu_f32") == ops_count(j, NULL, "linear_gelu", "cpu"));
    expect(ops_count(j, NULL, "ln_modulate", "cpu_fused") > 0);
    json_free(j);
    pipeline_close(p);
    return expect_done();
}
