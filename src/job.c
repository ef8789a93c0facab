/* job.c - see job.h. */
#include "job.h"

#include "core/clock.h"
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>

static Status keep_latents(Exec *x, Tensor latents, int rank, const int64_t *shape, Media *out) {
    free(out->latents);
    out->latents = malloc(tensor_bytes(latents));
    if (!out->latents) return fail(x->error, ERR_MEMORY, "out of memory for latents");
    out->latents_dtype = latents.dtype;
    out->latents_rank = rank;
    memcpy(out->latents_shape, shape, sizeof out->latents_shape);
    return exec_download(x, out->latents, latents);
}

/* Nobody looks at a dry run. */
static void say(const Exec *x, const Run *run, const char *phase, int done, int total) {
    if (!x->dry && run->progress && run->progress->step) run->progress->step(run->progress->user, phase, done, total);
}

/* What a graph holds of a step; everything that the host looks at comes after it. */
typedef struct Velocity {
    Model *model;
    const Run *run;
    const StepParams *params;
    Tensor latents, velocity;
} Velocity;

static Status velocity_of(void *user, Exec *x) {
    const Velocity *v = user;
    return v->model->ops->velocity(v->model, x, v->run, v->params, v->latents, v->velocity);
}

static Status step(Model *m, Exec *x, const Run *run, StepParams *params, int i, Tensor latents, Tensor velocity,
                   int rank, const int64_t *shape) {
    float values[STEP_PARAMS] = {0};
    char name[32];
    m->ops->params(m, run, i, values);
    params->step = i;
    TRY(exec_upload(x, params->all, values));
    if (m->ops->begin) TRY(m->ops->begin(m, x, run, i));
    Velocity v = {m, run, params, latents, velocity};
    TRY(graphs_run(run->graphs, x, i + 1 < run->job->steps, velocity_of, &v));
    snprintf(name, sizeof name, "velocity_%03d", i);
    TRY(stages_pass(run->stages, x, name, velocity, rank, shape));
    TRY(exec_check_finite(x, velocity, name));
    TRY(m->ops->advance(m, x, params, latents, velocity));
    snprintf(name, sizeof name, "latents_%03d", i);
    return stages_pass(run->stages, x, name, latents, rank, shape);
}

static Status denoise(Model *m, Exec *x, const Run *run, Tensor latents, int rank, const int64_t *shape, Media *out) {
    size_t mark = arena_mark(x->work);
    StepParams params = {.all = exec_new_as(x, F32, STEP_PARAMS)};
    params.t = tensor_slice(params.all, 0, STEP_T, 1);
    params.guidance = tensor_slice(params.all, 0, STEP_GUIDANCE, 1);
    params.dt = tensor_slice(params.all, 0, STEP_DT, 1);
    params.cfg_scale = tensor_slice(params.all, 0, STEP_CFG_SCALE, 1);
    params.dpm = tensor_slice(params.all, 0, STEP_DPM, DPM_COEFFICIENTS);
    Tensor velocity = exec_tensor(x, latents.dtype, latents.rank, latents.shape);
    int first = run->job->first_step, end = x->dry ? first + 1 : run->job->steps; /* every step has the same shapes */
    for (int i = first; i < end; i++) {
        say(x, run, "denoise", i - first, end - first);
        Status s = step(m, x, run, &params, i, latents, velocity, rank, shape);
        if (s == ERR_NAN) keep_latents(x, latents, rank, shape, out); /* untouched by the failed step */
        if (s != OK) return because(x->error, "step %d of %d", i + 1, run->job->steps);
    }
    say(x, run, "denoise", end - first, end - first);
    arena_reset(x->work, mark);
    return OK;
}

/* Whatever happens, the decoder's table is left without families. */
static Status decode(Model *m, Exec *x, const Run *run, Tensor latents, Tensor rgb) {
    Status s = run->families ? model_mount(m, run->families, true, run->device_exec, x->error) : OK;
    if (run->job->taps && !x->dry) x->tap = stages_tap(run->stages);
    if (s == OK) s = m->ops->decode(m, x, run, latents, rgb);
    x->tap = NULL;
    model_unmount(m, true);
    return s;
}

/* Before a decode that can fail, or take long: the latents on the host, for whoever keeps them. */
static Status hand_out(Exec *x, const Run *run, Tensor latents, int rank, const int64_t *shape) {
    const StageWatch *keep = run->job->keep;
    if (x->dry || !keep) return OK;
    void *host = malloc(tensor_bytes(latents));
    if (!host) return fail(x->error, ERR_MEMORY, "out of memory for latents");
    Status s = exec_download(x, host, latents);
    if (s == OK) s = keep->see(keep->user, "latents", latents.dtype, rank, shape, host, x->error);
    free(host);
    return s;
}

static Status pixels(Model *m, Exec *x, const Run *run, Tensor latents, int rank, const int64_t *shape, Media *out) {
    const Job *job = run->job;
    bool clip = m->ops->clip != NULL;
    const int64_t extents[] = {job->frames, job->height, job->width, 3};
    say(x, run, "decode", 0, 1);
    Tensor rgb = exec_tensor(x, U8, clip ? 4 : 3, clip ? extents : extents + 1);
    Status s = decode(m, x, run, latents, rgb);
    if (s == ERR_NAN) keep_latents(x, latents, rank, shape, out);
    out->latents_finished = s == ERR_NAN;
    TRY(s);
    out->width = job->width, out->height = job->height, out->frames = job->frames;
    if (clip) out->fps = job->fps;
    if (!x->dry) {
        out->rgb = malloc(tensor_bytes(rgb));
        if (!out->rgb) return fail(x->error, ERR_MEMORY, "out of memory for the picture");
        TRY(exec_download(x, out->rgb, rgb));
        TRY(stages_host(run->stages, "pixels", U8, rgb.rank, rgb.shape, out->rgb, x->error));
    }
    say(x, run, "decode", 1, 1);
    return OK;
}

Status job_run(Model *m, Exec *x, const Run *run, Media *out) {
    bool whole = !run->job->decode_only;
    Tensor latents;
    int rank;
    int64_t shape[TENSOR_MAX_RANK] = {0};
    double start = clock_now();
    if (whole) say(x, run, "text", 0, 1);
    if (whole) TRY(m->ops->encode(m, x, run));
    double encoded = clock_now();
    TRY(m->ops->noise(m, x, run, &latents, &rank, shape));
    if (whole) TRY(denoise(m, x, run, latents, rank, shape, out));
    TRY(stages_pass(run->stages, x, "latents", latents, rank, shape));
    TRY(hand_out(x, run, latents, rank, shape));
    double denoised = clock_now();
    TRY(pixels(m, x, run, latents, rank, shape, out));
    out->seconds_text = encoded - start;
    out->seconds_denoise = denoised - encoded;
    out->seconds_decode = clock_now() - denoised;
    return OK;
}
