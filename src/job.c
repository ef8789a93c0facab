/* job.c - see job.h. */
#include "job.h"

#include "core/clock.h"
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>

/* The work in hand: one tensor, and what it is made of. */
typedef struct Latents {
    Tensor all;
    Streams streams;
} Latents;

static Status keep_latents(Exec *x, const Latents *l, Media *out) {
    free(out->latents);
    out->latents = malloc(tensor_bytes(l->all));
    if (!out->latents) return fail(x->error, ERR_MEMORY, "out of memory for latents");
    out->latents_dtype = l->all.dtype;
    out->latents_streams = l->streams;
    return exec_download(x, out->latents, l->all);
}

/* t, which is as the latents are, through a stage of each stream. */
static Status pass(const Run *run, Exec *x, const char *name, const Streams *streams, Tensor t) {
    const int64_t all = tensor_numel(t);
    const Tensor flat = tensor_make(t.data, t.dtype, 1, &all);
    for (int k = 0; k < streams->count; k++) {
        const Stream *s = &streams->stream[k];
        char full[64];
        snprintf(full, sizeof full, "%s%s%s", run->prefix ? run->prefix : "", s->prefix, name);
        TRY(stages_pass(run->stages, x, full, tensor_slice(flat, 0, s->first, s->count), s->rank, s->shape));
    }
    return OK;
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

static Status step(Model *m, Exec *x, const Run *run, StepParams *params, int i, const Latents *latents, Tensor velocity) {
    float values[STEP_PARAMS] = {0};
    char name[32];
    m->ops->params(m, run, i, values);
    params->step = i;
    TRY(exec_upload(x, params->all, values));
    if (m->ops->begin) TRY(m->ops->begin(m, x, run, i));
    Velocity v = {m, run, params, latents->all, velocity};
    TRY(graphs_run(run->graphs, x, i + 1 < run->job->steps, velocity_of, &v));
    snprintf(name, sizeof name, "velocity_%03d", i);
    TRY(pass(run, x, name, &latents->streams, velocity));
    TRY(exec_check_finite(x, velocity, name));
    TRY(m->ops->advance(m, x, params, latents->all, velocity));
    snprintf(name, sizeof name, "latents_%03d", i);
    return pass(run, x, name, &latents->streams, latents->all);
}

static Status denoise(Model *m, Exec *x, const Run *run, const Latents *latents, Media *out) {
    size_t mark = arena_mark(x->work);
    StepParams params = {.all = exec_new_as(x, F32, STEP_PARAMS)};
    params.t = tensor_slice(params.all, 0, STEP_T, 1);
    params.guidance = tensor_slice(params.all, 0, STEP_GUIDANCE, 1);
    params.dt = tensor_slice(params.all, 0, STEP_DT, 1);
    params.cfg_scale = tensor_slice(params.all, 0, STEP_CFG_SCALE, 1);
    params.sigma = tensor_slice(params.all, 0, STEP_SIGMA, 1);
    params.times = tensor_slice(params.all, 0, STEP_TIMES, STEP_TIMES_MOST);
    params.dpm = tensor_slice(params.all, 0, STEP_DPM, DPM_COEFFICIENTS);
    Tensor velocity = exec_tensor(x, latents->all.dtype, latents->all.rank, latents->all.shape);
    int first = run->job->first_step, end = x->dry ? first + 1 : run->job->steps; /* every step has the same shapes */
    for (int i = first; i < end; i++) {
        say(x, run, run->prefix && *run->prefix ? "refine" : "denoise", i - first, end - first);
        Status s = step(m, x, run, &params, i, latents, velocity);
        if (s == ERR_NAN) keep_latents(x, latents, out); /* untouched by the failed step */
        if (s != OK) return because(x->error, "step %d of %d", i + 1, run->job->steps);
    }
    say(x, run, run->prefix && *run->prefix ? "refine" : "denoise", end - first, end - first);
    arena_reset(x->work, mark);
    return OK;
}

/* The sound of a clip, on the host. */
static Status sound(Model *m, Exec *x, const Run *run, Tensor latents, Media *out) {
    Sound made = {0};
    Tensor wave;
    TRY(m->ops->sound(m, x, run, latents, &wave, &made.rate));
    if (x->dry) return OK;
    made.count = wave.shape[0], made.channels = (int)wave.shape[1];
    TRY(exec_check_finite(x, wave, "audio"));
    made.samples = malloc(tensor_bytes(wave));
    if (!made.samples) return fail(x->error, ERR_MEMORY, "out of memory for the sound");
    Status s = exec_download(x, made.samples, wave);
    if (s == OK) s = stages_host(run->stages, "audio", F32, 2, wave.shape, made.samples, x->error);
    if (s == OK) out->sound = made;
    else sound_free(&made);
    return s;
}

/* Whatever happens, the decoders' tables are left without families. */
static Status decode(Model *m, Exec *x, const Run *run, Tensor latents, Tensor rgb, Media *out) {
    Status s = run->families ? model_mount(m, run->families, true, run->device_exec, x->error) : OK;
    if (run->job->taps && !x->dry) x->tap = stages_tap(run->stages);
    if (s == OK) s = m->ops->decode(m, x, run, latents, rgb);
    x->tap = NULL;
    if (s == OK && m->ops->sound) s = sound(m, x, run, latents, out);
    model_unmount(m, true);
    return s;
}

/* Before a decode that can fail, or take long: the latents on the host, for whoever keeps them. */
static Status hand_out(Exec *x, const Run *run, const Latents *l) {
    const LatentsWatch *keep = run->job->keep;
    if (x->dry || !keep) return OK;
    void *host = malloc(tensor_bytes(l->all));
    if (!host) return fail(x->error, ERR_MEMORY, "out of memory for latents");
    Status s = exec_download(x, host, l->all);
    if (s == OK) s = keep->see(keep->user, l->all.dtype, &l->streams, host, x->error);
    free(host);
    return s;
}

static Status pixels(Model *m, Exec *x, const Run *run, const Latents *latents, Media *out) {
    const Job *job = run->job;
    bool clip = m->ops->clip != NULL;
    const int64_t extents[] = {job->frames, job->height, job->width, 3};
    say(x, run, "decode", 0, 1);
    Tensor rgb = exec_tensor(x, U8, clip ? 4 : 3, clip ? extents : extents + 1);
    Status s = decode(m, x, run, latents->all, rgb, out);
    if (s == ERR_NAN) keep_latents(x, latents, out);
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

static Status begin(Model *m, Exec *x, const Run *run, Latents *out) {
    Stream *one = &out->streams.stream[0];
    int64_t shape[TENSOR_MAX_RANK] = {0};
    *out = (Latents){.streams.count = 1};
    TRY(m->ops->noise(m, x, run, &out->all, &one->rank, shape));
    memcpy(one->shape, shape, sizeof shape);
    one->prefix = "", one->count = tensor_numel(out->all);
    if (m->ops->streams) m->ops->streams(m, run, &out->streams);
    return OK;
}

/* Texts and noise, all steps; of every round. */
static Status rounds(Model *m, Exec *x, const Run *run, Latents *latents, double *encoded, Media *out) {
    Job job[MODEL_MAX_ROUNDS];
    Run now;
    for (int k = 0; k < model_rounds(m, run->job); k++) {
        model_round(m, run, k, &job[k], &now);
        if (k == 0) {
            say(x, &now, "text", 0, 1);
            TRY(m->ops->encode(m, x, &now));
            *encoded = clock_now();
            TRY(begin(m, x, &now, latents));
        } else {
            TRY(m->ops->again(m, x, &now, &job[k - 1], latents->all, &latents->all));
            if (m->ops->streams) m->ops->streams(m, &now, &latents->streams);
        }
        TRY(denoise(m, x, &now, latents, out));
    }
    return OK;
}

Status job_run(Model *m, Exec *x, const Run *run, Media *out) {
    bool whole = !run->job->decode_only;
    Latents latents;
    double start = clock_now(), encoded = start;
    if (whole) TRY(rounds(m, x, run, &latents, &encoded, out));
    else TRY(begin(m, x, run, &latents));
    if (whole && m->ops->finish) {
        TRY(m->ops->finish(m, x, run, &latents.all));
        if (m->ops->streams) m->ops->streams(m, run, &latents.streams);
    }
    TRY(pass(run, x, "latents", &latents.streams, latents.all));
    TRY(hand_out(x, run, &latents));
    double denoised = clock_now();
    TRY(pixels(m, x, run, &latents, out));
    out->seconds_text = encoded - start;
    out->seconds_denoise = denoised - encoded;
    out->seconds_decode = clock_now() - denoised;
    return OK;
}
