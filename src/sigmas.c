/* sigmas.c - see sigmas.h. Nine digits give every f32 back. */
#include "sigmas.h"

#include "model.h"

#include <cjson/cJSON.h>

static Status add(Json *array, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.9g", value);
    return cJSON_AddItemToArray(array, cJSON_CreateRaw(text)) ? OK : ERR_MEMORY;
}

/* A solver with coefficients of its own (sched_dpm.h) has no single dt. */
static bool by_coefficients(const Model *m, const Run *run) {
    float params[STEP_PARAMS] = {0};
    m->ops->params(m, run, 0, params);
    return params[STEP_DPM] != 0 || params[STEP_DPM + 1] != 0;
}

static Status add_coefficients(Json *list, const float *k) {
    Json *row = cJSON_CreateArray();
    if (!cJSON_AddItemToArray(list, row)) return ERR_MEMORY;
    for (int i = 0; i < DPM_COEFFICIENTS; i++) TRY(add(row, (double)k[i]));
    return OK;
}

static Status print_json(const Pipeline *p, const Run *run, FILE *out, Error *e) {
    bool dpm = by_coefficients(pipeline_facts(p).model, run);
    const char *const KEYS[] = {"sigmas", "timesteps", "t", dpm ? "k" : "dt"};
    const Model *m = pipeline_facts(p).model;
    const Schedule *s = run->schedule;
    Json *o = cJSON_CreateObject(), *list[4];
    cJSON_AddStringToObject(o, "model", pipeline_title(p));
    cJSON_AddNumberToObject(o, "width", run->job->width);
    cJSON_AddNumberToObject(o, "height", run->job->height);
    cJSON_AddNumberToObject(o, "steps", s->steps);
    cJSON_AddStringToObject(o, "dtype", m->dtype == F32 ? "f32" : "bf16");
    cJSON_AddNumberToObject(o, "mu", s->mu);
    Status status = OK;
    for (int k = 0; k < 4; k++) list[k] = cJSON_AddArrayToObject(o, KEYS[k]);
    for (int i = 0; status == OK && i <= s->steps; i++) {
        float params[STEP_PARAMS] = {0};
        status = add(list[0], (double)s->sigmas[i]);
        if (i == s->steps) break;
        m->ops->params(m, run, i, params);
        if (status == OK) status = add(list[1], (double)s->timesteps[i]);
        if (status == OK) status = add(list[2], (double)params[STEP_T]);
        if (status == OK) status = dpm ? add_coefficients(list[3], params + STEP_DPM) : add(list[3], (double)params[STEP_DT]);
    }
    char *text = status == OK ? cJSON_PrintUnformatted(o) : NULL;
    cJSON_Delete(o);
    if (!text) return fail(e, ERR_MEMORY, "out of memory for %d steps", s->steps);
    fprintf(out, "%s\n", text);
    cJSON_free(text);
    return OK;
}

static void print(const Pipeline *p, const Run *run, FILE *out) {
    const Model *m = pipeline_facts(p).model;
    const Schedule *s = run->schedule;
    bool dpm = by_coefficients(m, run);
    fprintf(out, "# %s, %dx%d, %d steps, %s, mu %.9g\n# step\tsigma\ttimestep\tt\t%s\n", pipeline_title(p), run->job->width,
            run->job->height, s->steps, m->dtype == F32 ? "f32" : "bf16", s->mu, dpm ? "k0\tk1\tk2\tk3\tk4" : "dt");
    for (int i = 0; i < s->steps; i++) {
        float params[STEP_PARAMS] = {0};
        m->ops->params(m, run, i, params);
        fprintf(out, "%d\t%.9g\t%.9g\t%.9g", i, (double)s->sigmas[i], (double)s->timesteps[i], (double)params[STEP_T]);
        for (int k = 0; k < (dpm ? DPM_COEFFICIENTS : 1); k++)
            fprintf(out, "\t%.9g", (double)params[dpm ? STEP_DPM + k : STEP_DT]);
        fputc('\n', out);
    }
    fprintf(out, "%d\t%.9g\n", s->steps, (double)s->sigmas[s->steps]);
}

Status sigmas_print(Pipeline *p, Job *job, bool json, FILE *out, Error *e) {
    const Model *m = pipeline_facts(p).model;
    Schedule schedule = {0};
    Run run = {.job = job, .schedule = &schedule};
    TRY(pipeline_resolve(p, job, e));
    run.cfg = job->cfg;
    TRY(m->ops->schedule(m, job, &schedule, e));
    Status status = OK;
    if (json)
        status = print_json(p, &run, out, e);
    else
        print(p, &run, out);
    sched_free(&schedule);
    return status;
}
