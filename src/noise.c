/* noise.c - see noise.h. The model's noise() runs twice on a small Exec of its own, dry for the size and then for real, as
 * every stage does.
 * Easy to get wrong: a StageWatch sees the values only while it is called. */
#include "noise.h"

#include "core/convert.h"
#include "core/sha256.h"
#include "model.h"
#include "rng.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct Show {
    const NoiseOptions *o;
    FILE *out;
    int seen;
} Show;

enum { FIRST = 8 };

static Status put_json(const Show *s, const char *shape, DType dtype, const char *sum, double mean, double deviation,
                       const float *first, int count, Error *e) {
    Json *j = cJSON_CreateObject(), *list;
    char number[40];
    cJSON_AddStringToObject(j, "dtype", dtype_name(dtype));
    cJSON_AddRawToObject(j, "shape", shape);
    snprintf(number, sizeof number, s->o->seed > UINT64_C(1) << 53 ? "\"%" PRIu64 "\"" : "%" PRIu64, s->o->seed);
    cJSON_AddRawToObject(j, "seed", number); /* as in a picture's metadata */
    cJSON_AddStringToObject(j, "sha256", sum);
    cJSON_AddNumberToObject(j, "mean", mean);
    cJSON_AddNumberToObject(j, "deviation", deviation);
    list = cJSON_AddArrayToObject(j, "first");
    for (int i = 0; i < count; i++) {
        snprintf(number, sizeof number, "%.9g", (double)first[i]);
        cJSON_AddItemToArray(list, cJSON_CreateRaw(number));
    }
    if (s->o->output) cJSON_AddStringToObject(j, "path", s->o->output);
    char *text = cJSON_PrintUnformatted(j);
    cJSON_Delete(j);
    if (!text) return fail(e, ERR_MEMORY, "out of memory for the result");
    fprintf(s->out, "%s\n", text);
    cJSON_free(text);
    return OK;
}

static Status show(void *user, const char *name, DType dtype, int rank, const int64_t *shape, const void *values,
                   Error *e) {
    Show *s = user;
    if (strcmp(name, "noise")) return OK;
    Tensor t = tensor_make(NULL, dtype, rank, shape);
    int64_t n = tensor_numel(t);
    char text[128], sum[SHA256_TEXT];
    float first[FIRST] = {0};
    int count = n < FIRST ? (int)n : FIRST;
    double total = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = convert_value((const char *)values + (size_t)i * dtype_size(dtype), dtype);
        total += v, squares += v * v;
    }
    double mean = total / (double)n, deviation = sqrt(squares / (double)n - mean * mean);
    convert_widen(values, dtype, first, (size_t)count);
    sha256_memory(values, tensor_bytes(t), sum);
    tensor_shape_text(t, text, sizeof text);
    s->seen++;
    if (s->o->output) TRY(stages_write_file(s->o->output, name, dtype, rank, shape, values, s->o->overwrite, e));
    if (s->o->json) return put_json(s, text, dtype, sum, mean, deviation, first, count, e);
    fprintf(s->out, "noise      %s %s, seed %" PRIu64 "\nsha256     %s\nmean       %.9g\ndeviation  %.9g\nfirst     ",
            dtype_name(dtype), text, s->o->seed, sum, mean, deviation);
    for (int i = 0; i < count; i++) fprintf(s->out, " %.9g", (double)first[i]);
    fputc('\n', s->out);
    if (s->o->output) fprintf(s->out, "written    %s\n", s->o->output);
    return OK;
}

static Status of_shape(Show *s, Error *e) {
    const NoiseOptions *o = s->o;
    double bytes = (double)dtype_size(o->dtype);
    for (int d = 0; d < o->rank; d++) bytes *= (double)o->shape[d];
    void *values = bytes < 0x1p46 ? malloc((size_t)bytes) : NULL;
    if (!values) return fail(e, ERR_MEMORY, "--shape: no memory for %.3g bytes", bytes);
    Tensor t = tensor_make(values, o->dtype, o->rank, o->shape);
    Rng rng;
    rng_seed(&rng, o->seed);
    Status status = rng_normal(&rng, o->dtype, tensor_numel(t), values)
                        ? show(s, "noise", o->dtype, o->rank, o->shape, values, e)
                        : fail(e, ERR_USAGE, "--dtype: noise is drawn in f32 or bf16");
    free(values);
    return status;
}

/* One pass of the model's noise() in arenas of that size on the device; *peak: what it took. */
static Status draw(Model *m, Device *d, bool dry, const size_t size[2], const Run *run, size_t peak[2], Error *e) {
    Arena work, scratch;
    Tensor latents;
    int rank;
    int64_t shape[TENSOR_MAX_RANK] = {0};
    TRY(arena_open(&work, d, "work", size[0], e));
    Status status = arena_open(&scratch, d, "scratch", size[1], e);
    if (status == OK) {
        Exec x = {.device = d, .work = &work, .scratch = &scratch, .error = e, .dry = dry};
        status = m->ops->noise(m, &x, run, &latents, &rank, shape);
    }
    peak[0] = work.peak, peak[1] = scratch.peak;
    arena_close(&work);
    arena_close(&scratch);
    return status;
}

static Status of_model(Show *s, Model *m, Job *job, Error *e) {
    const StageWatch watch = {show, s};
    Stages *stages = NULL;
    Device dry = device_dry(), cpu = device_cpu();
    Schedule schedule = {0};
    Run run = {.job = job, .schedule = &schedule, .cfg = job->cfg};
    size_t size[2] = {(size_t)1 << 42, (size_t)1 << 42};
    TRY(stages_open(NULL, NULL, 0, &stages, e));
    stages_watch(stages, &watch);
    run.stages = stages;
    Status status = m->ops->schedule(m, job, &schedule, e);
    if (status == OK) status = draw(m, &dry, true, size, &run, size, e);
    if (status == OK) status = draw(m, &cpu, false, size, &run, size, e);
    sched_free(&schedule);
    stages_close(stages);
    if (status == OK && !s->seen) status = fail(e, ERR_MODEL, "this model draws no noise");
    return status;
}

Status noise_print(const NoiseOptions *o, Pipeline *p, Job *job, FILE *out, Error *e) {
    Show s = {.o = o, .out = out};
    if (!p) return of_shape(&s, e);
    TRY(pipeline_resolve(p, job, e));
    return of_model(&s, pipeline_facts(p).model, job, e);
}
