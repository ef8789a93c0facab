/* clip_model.c - a model of clips without weights, put in place of the list of models (the linker wraps model_find): latents are
 * noise, a frame is drawn from the latents with a disc that moves right, so every pixel depends on seed, size and frame.
 * Linked with main.c it is build/.../tests/ditto_clips, which test_clip.sh drives; with test_clip.c it is called directly.
 * CLIP_SOUND gives its clips sound, a tone for each row of a second stream of latents, at that many Hz.
 * CLIP_FAULT makes its decode fail: "error", "nan", "wait" (until interrupted), "stay" (whatever happens), "exit".
 * Easy to get wrong: its folder needs a model_index.json of a known class that also says "moving_shapes": true, and, as
 * "transformer", any component with weights; they are not read. */
#include "clip_model.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "rng.h"

static const char *const IGNORE_ALL[] = {"", NULL};
enum { TONES = 5 }; /* rows of the sound's latents */

/* Hz; 0: silent. */
static int heard(void) {
    const char *rate = getenv("CLIP_SOUND");
    return rate ? atoi(rate) : 0;
}

static Status clip_open(const char *folder, const Json *index, DType dtype, Model **out, Error *e) {
    Model *m = calloc(1, sizeof *m);
    (void)index;
    if (!m) return fail(e, ERR_MEMORY, "out of memory");
    m->ops = heard() ? &MODEL_HEARD : &MODEL_CLIPS;
    m->dtype = dtype;
    Status s = model_open_part(m, folder, "transformer", IGNORE_ALL, e);
    if (s == OK)
        *out = m;
    else
        free(m);
    return s;
}

static void clip_close(Model *m) {
    if (m) model_close_parts(m);
    free(m);
}

static const char *clip_title(const Model *m) { return m ? "shapes" : ""; }

static void clip_rule(const Model *m, ClipRule *out) {
    (void)m;
    *out = (ClipRule){.step = 4, .frames = 9, .most = 401, .fps = {16, 1}};
}

static Status clip_resolve_job(const Model *m, Job *job, Error *e) {
    (void)m, (void)e;
    if (!job->width) job->width = 64;
    if (!job->height) job->height = 48;
    if (!job->steps) job->steps = 2;
    if (!job->max_sequence_length) job->max_sequence_length = 8;
    return OK;
}

static Status clip_tokenize(const Model *m, const char *text, const Job *job, Tokens *out, Error *e) {
    (void)m, (void)text, (void)job, (void)e;
    *out = (Tokens){0};
    return OK;
}

static Status clip_schedule(const Model *m, const Job *job, Schedule *out, Error *e) {
    const SchedConfig c = {.num_train_timesteps = 1000, .shift = 1};
    (void)m;
    return sched_zimage(&c, job->steps, 1, out, e);
}

static Status clip_encode(Model *m, Exec *x, const Run *run) {
    (void)run;
    model_enter(x, &m->part[0]);
    return OK;
}

static Status clip_texts(Model *m, Exec *x, const Run *run, int64_t *rows) {
    (void)m, (void)x, (void)run;
    *rows = 0;
    return OK;
}

static Status clip_noise(Model *m, Exec *x, const Run *run, Tensor *latents, int *rank, int64_t shape[5]) {
    const Job *j = run->job;
    model_enter(x, &m->part[0]);
    *rank = 5;
    shape[0] = 1, shape[1] = 1, shape[2] = (j->frames - 1) / 4 + 1, shape[3] = j->height / 16, shape[4] = j->width / 16;
    *latents = exec_new_as(x, F32, shape[2] * shape[3] * shape[4] + (heard() ? TONES : 0));
    if (x->dry) return OK;
    float *host = malloc(tensor_bytes(*latents));
    if (!host) return fail(x->error, ERR_MEMORY, "noise: out of memory");
    Rng rng;
    rng_seed(&rng, j->seed);
    rng_normal(&rng, F32, tensor_numel(*latents), host);
    Status s = stages_host(run->stages, "noise", F32, 5, shape, host, x->error);
    if (s == OK) s = exec_upload(x, *latents, host);
    free(host);
    return s;
}

static void clip_streams(const Model *m, const Run *run, Streams *out) {
    (void)m, (void)run;
    out->stream[0].count -= TONES;
    out->stream[1] = (Stream){.prefix = "audio_", .first = out->stream[0].count, .count = TONES, .rank = 2, .shape = {1, TONES}};
    out->count = 2;
}

static void clip_hears(const Model *m, int *rate, int *channels) {
    (void)m;
    *rate = heard(), *channels = 2;
}

/* A hundredth of a second shorter than the clip. */
static Status clip_sound(Model *m, Exec *x, const Run *run, Tensor latents, Tensor *wave, int *rate) {
    const int64_t count = (int64_t)(rate_seconds(run->job->fps, run->job->frames) * heard()) - heard() / 100;
    (void)m;
    *rate = heard();
    *wave = exec_new_as(x, F32, count, 2);
    float *z = malloc(tensor_bytes(latents)), *host = malloc(tensor_bytes(*wave));
    Status s = z && host ? exec_download(x, z, latents) : fail(x->error, ERR_MEMORY, "out of memory");
    const float *tone = z + tensor_numel(latents) - TONES;
    for (int64_t i = 0; s == OK && !x->dry && i < count; i++) {
        double t = (double)i / heard(), hz = 300 + 100 * fabs((double)tone[i * TONES / count]);
        host[2 * i] = (float)(0.5 * sin(6.283185307179586 * hz * t));
        host[2 * i + 1] = (float)(0.3 * sin(6.283185307179586 * (hz + 55) * t));
    }
    if (s == OK) s = exec_upload(x, *wave, host);
    free(z);
    free(host);
    return s;
}

static void clip_params(const Model *m, const Run *run, int step, float params[STEP_PARAMS]) {
    (void)m, (void)run, (void)step;
    for (int i = 0; i < STEP_PARAMS; i++) params[i] = 0;
}

/* The latents themselves: a step adds half of them. */
static Status clip_velocity(Model *m, Exec *x, const Run *run, const StepParams *p, Tensor latents, Tensor velocity) {
    (void)p, (void)run;
    model_enter(x, &m->part[0]);
    return op_affine(x, &(Affine){.y = velocity, .x = latents, .mul = 0.5f, .add = 0});
}

static Status clip_advance(Model *m, Exec *x, const StepParams *p, Tensor latents, Tensor velocity) {
    (void)m, (void)p, (void)velocity;
    return op_affine(x, &(Affine){.y = latents, .x = latents, .mul = 0.75f, .add = 0});
}

static void draw(const float *z, const Job *j, int frame, uint8_t *rgb) {
    int rows = j->height / 16, cols = j->width / 16, t = (frame + 3) / 4;
    for (int y = 0; y < j->height; y++)
        for (int x = 0; x < j->width; x++, rgb += 3) {
            float v = z[(t * rows + y / 16) * cols + x / 16];
            int dx = x - 12 - 2 * frame, dy = y - j->height / 2;
            bool disc = dx * dx + dy * dy < 100;
            for (int k = 0; k < 3; k++)
                rgb[k] = (uint8_t)fminf(fmaxf(128 + 90 * v * (float)(k - 1) + (float)(x - y), 0), 255);
            if (disc) rgb[0] = 255, rgb[1] = rgb[2] = 0;
        }
}

static Status fault(Exec *x) {
    const char *kind = getenv("CLIP_FAULT");
    if (!kind || x->dry) return OK;
    if (!strcmp(kind, "error")) return fail(x->error, ERR_DEVICE, "the decoder broke");
    if (!strcmp(kind, "nan")) return fail(x->error, ERR_NAN, "vae: 1 of 2 values are NaN or infinite");
    if (!strcmp(kind, "exit")) _exit(9);
    const bool stay = !strcmp(kind, "stay");
    for (int i = 0; i < 6000; i++) { /* at most a minute */
        if (*x->interrupted && !stay) return fail(x->error, ERR_INTERRUPTED, "interrupted");
        usleep(10000);
    }
    return OK;
}

static Status clip_decode(Model *m, Exec *x, const Run *run, Tensor latents, Tensor rgb) {
    const Job *j = run->job;
    size_t mark = arena_mark(x->work);
    model_enter(x, &m->part[0]);
    exec_new_as(x, U8, (int64_t)CLIP_ROOM >> run->thrift);
    float *z = malloc(tensor_bytes(latents));
    uint8_t *host = malloc(tensor_bytes(rgb));
    Status s = z && host ? fault(x) : fail(x->error, ERR_MEMORY, "out of memory");
    if (s == OK) s = exec_download(x, z, latents);
    for (int n = 0; s == OK && !x->dry && n < j->frames; n++) {
        draw(z, j, n, host + (size_t)n * (size_t)j->height * (size_t)j->width * 3);
        model_decoded(x, run, n, j->frames);
    }
    if (s == OK) s = exec_upload(x, rgb, host);
    free(z);
    free(host);
    arena_reset(x->work, mark);
    return s;
}

#define SHAPES                                                                                                   \
    .pipeline_class = "MovingShapesPipeline", .scheduler_class = "none", .thrifts = 2, .cfg_formula = "",        \
    .cfg_off = "off", .clip = clip_rule, .open = clip_open, .close = clip_close, .title = clip_title,            \
    .resolve = clip_resolve_job, .tokenize = clip_tokenize, .schedule = clip_schedule, .encode = clip_encode,    \
    .texts = clip_texts, .noise = clip_noise, .params = clip_params, .velocity = clip_velocity,                  \
    .advance = clip_advance, .decode = clip_decode
const ModelOps MODEL_CLIPS = {SHAPES};
const ModelOps MODEL_HEARD = {SHAPES, .streams = clip_streams, .hears = clip_hears, .sound = clip_sound};

/* Instead of, and where it does not fit in front of, the list of models. */
Status __real_model_find(const char *folder, const Json *index, const ModelOps **out, Error *e);
Status __wrap_model_find(const char *folder, const Json *index, const ModelOps **out, Error *e);
Status __wrap_model_find(const char *folder, const Json *index, const ModelOps **out, Error *e) {
    bool ours = false;
    TRY(json_bool(index, "moving_shapes", &ours, folder, e));
    if (!ours) return __real_model_find(folder, index, out, e);
    *out = heard() ? &MODEL_HEARD : &MODEL_CLIPS;
    return OK;
}
