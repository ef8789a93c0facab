/* ltx2_step.c - where LTX-2 begins, and what a step does: up to four passes through the transformer, weighed among the clean
 * samples that they lead to (kernels/guide.h), clip and sound each by their own scales; then Euler.
 *
 * Easy to get wrong: one generator draws the clip's noise and then the sound's, both as the autoencoders see latents, not as
 * tokens; where a picture conditions the clip both are drawn token by token; a pass runs when either stream wants it, and then
 * both are weighed; latents are F32 in every run. */
#include "models/ltx2.h"

#include <stdlib.h>

/* --- noise --- */

/* token[t][c * inner + i] = plane[c][t][i]: a token for each of `tokens`, from channels that lie one behind the other. */
static void pack(const float *plane, int64_t channels, int64_t tokens, int64_t inner, float *token) {
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < channels; c++)
            memcpy(token + (t * channels + c) * inner, plane + (c * tokens + t) * inner,
                   (size_t)inner * sizeof *token);
}

/* Into `to`, packed. Clips with a condition draw tokens, others what the autoencoders see. */
static Status draw(Ltx2 *z, const Ltx2Size *s, const Run *run, int64_t all, float *to, Error *e) {
    static const char *const NAMES[LTX2_STREAMS] = {"noise", "audio_noise"};
    const int64_t planes[LTX2_STREAMS][5] = {{1, s->channels[LTX2_VIDEO], s->frames, s->rows, s->cols},
                                             {1, z->audio.c.latent, s->tokens[LTX2_AUDIO], s->bins}};
    float *drawn = malloc((size_t)all * sizeof *drawn), *at = drawn;
    Status status = OK;
    if (!drawn) return fail(e, ERR_MEMORY, "noise: out of memory");
    rng_seed(&z->rng, run->job->seed);
    for (int k = 0; status == OK && k < LTX2_STREAMS; k++) {
        int64_t count = s->tokens[k] * s->channels[k];
        const int64_t tokens[] = {1, s->tokens[k], s->channels[k]};
        rng_normal(&z->rng, F32, count, at);
        status = stages_host(run->stages, NAMES[k], F32,
                             run->image        ? 3
                             : k == LTX2_AUDIO ? 4
                                               : 5,
                             run->image ? tokens : planes[k], at, e);
        if (run->image)
            memcpy(to, at, (size_t)count * sizeof *to);
        else
            pack(at, planes[k][1], s->tokens[k], s->channels[k] / planes[k][1], to);
        at += count, to += count;
    }
    free(drawn);
    return status;
}

Status ltx2_noise(Model *m, Exec *x, const Run *run, Tensor *latents, int *rank,
                  int64_t shape[TENSOR_MAX_RANK]) {
    Ltx2 *z = (Ltx2 *)m;
    z->finished = run->job->decode_only;
    z->official = guiding_official(run->job);
    m->unproven = z->official ? "--match official" : NULL;
    Ltx2Size s = ltx2_size(z, run->job);
    int64_t all =
        s.tokens[LTX2_VIDEO] * s.channels[LTX2_VIDEO] + s.tokens[LTX2_AUDIO] * s.channels[LTX2_AUDIO];
    model_enter(x, &m->part[LTX2_DIT]);
    *latents = exec_tensor(x, F32, 1, &all);
    *rank = 1, shape[0] = all;
    z->clean = z->mask = (Tensor){0};
    float *host = x->dry ? NULL : malloc((size_t)all * sizeof *host);
    if (!host && !x->dry) return fail(x->error, ERR_MEMORY, "noise: out of memory");
    Status status = x->dry        ? OK
                    : z->official ? ltx2_official_draw(z, &s, run, host, x->error)
                                  : draw(z, &s, run, all, host, x->error);
    if (status == OK && host) status = exec_upload(x, *latents, host);
    free(host);
    if (status == OK && run->image)
        status = ltx2_image_begin(z, x, run, &s, ltx2_stream(&s, *latents, LTX2_VIDEO));
    return status;
}

void ltx2_streams(const Model *m, const Run *run, Streams *out) {
    Ltx2Size s = ltx2_size((const Ltx2 *)m, run->job);
    int64_t first = 0;
    *out = (Streams){.count = LTX2_STREAMS};
    for (int k = 0; k < LTX2_STREAMS; k++) {
        int64_t count = s.tokens[k] * s.channels[k];
        out->stream[k] = (Stream){.prefix = k == LTX2_AUDIO ? "audio_" : "",
                                  .first = first,
                                  .count = count,
                                  .rank = 3,
                                  .shape = {1, s.tokens[k], s.channels[k]}};
        first += count;
    }
}

void ltx2_params(const Model *m, const Run *run, int step, float params[STEP_PARAMS]) {
    (void)m;
    params[STEP_T] = run->schedule->timesteps[step];
    params[STEP_SIGMA] = run->schedule->sigmas[step];
    params[STEP_CFG_SCALE] = (float)run->job->cfg_scale;
    params[STEP_TIMES] = params[STEP_T];
    params[STEP_TIMES + 1] = params[STEP_T] * (1.0f - (float)run->job->strength);
    params[STEP_DT] = sched_dt(run->schedule, step, F32); /* the scheduler works on F32 latents */
}

/* --- a step --- */

/* Predictions of one pass, a sample behind the other: [samples, tokens, channels] of each stream. */
typedef struct Passed {
    Tensor stream[LTX2_STREAMS];
} Passed;

static Status pass(const Ltx2 *z, Exec *x, const Ltx2Size *s, const Ltx2Step *step, const Ltx2Pass *p,
                   Tensor latents, Passed *out) {
    Tensor in[LTX2_STREAMS];
    for (int k = 0; k < LTX2_STREAMS; k++) {
        out->stream[k] = exec_new_as(x, F32, p->count, s->tokens[k], s->channels[k]);
        in[k] = ltx2_stream(s, latents, (Ltx2Which)k);
    }
    return dit_ltx2_run(&z->dit, x, &z->grid, &z->prompt, step, p, in, out->stream);
}

static Tensor sample(const Passed *p, int which, int64_t i) {
    Tensor t = p->stream[which];
    if (!t.rank) return (Tensor){0};
    t = tensor_slice(t, 0, i, 1);
    return tensor_make(t.data, t.dtype, 2, t.shape + 1);
}

/* One stream of a step: all that was predicted for it, to the velocity that goes to the solver. */
static Status weigh(const Ltx2 *z, Exec *x, const Job *job, int which, const Passed *text,
                    const Passed *perturbed, const Passed *isolated, Tensor latents, Tensor sigma,
                    Tensor velocity) {
    bool sound = which == LTX2_AUDIO;
    double cfg = sound ? job->guide[GUIDE_AUDIO_CFG] : job->cfg_scale,
           rescale = job->guide[sound ? GUIDE_AUDIO_RESCALE : GUIDE_RESCALE];
    double stg = job->guide[sound ? GUIDE_AUDIO_STG : GUIDE_STG],
           modality = job->guide[sound ? GUIDE_AUDIO_MODALITY : GUIDE_MODALITY];
    int32_t form = !z->official ? GUIDE_DIFFUSERS : z->base.dtype == BF16 ? GUIDE_OFFICIAL_BF16 : GUIDE_OFFICIAL;
    Tensor own = rescale > 0 ? exec_tensor(x, F32, 2, latents.shape) : (Tensor){0};
    TRY(op_guide_x0(x, &(GuideX0){.y = velocity,
                                  .c = own,
                                  .x = latents,
                                  .cond = sample(text, which, job->cfg),
                                  .neg = job->cfg ? sample(text, which, 0) : (Tensor){0},
                                  .perturbed = sample(perturbed, which, 0),
                                  .isolated = sample(isolated, which, 0),
                                  .sigma = sigma,
                                  .cfg = (float)(cfg - 1),
                                  .stg = (float)stg,
                                  .modality = (float)(modality - 1),
                                  .form = form}));
    return op_velocity_x0(x, &(VelocityX0){.y = velocity,
                                           .x = latents,
                                           .x0 = velocity,
                                           .like = own,
                                           .sigma = sigma,
                                           .clean = sound ? (Tensor){0} : z->clean,
                                           .mask = sound ? (Tensor){0} : z->mask,
                                           .rescale = (float)rescale,
                                           .rest = (float)(1 - rescale),
                                           .form = form});
}

Status ltx2_velocity(Model *m, Exec *x, const Run *run, const StepParams *p, Tensor latents,
                     Tensor velocity) {
    Ltx2 *z = (Ltx2 *)m;
    const Job *job = run->job;
    Ltx2Size s = ltx2_size(z, job);
    size_t mark = arena_mark(x->work);
    const Ltx2Step step = {.video = run->image ? tensor_slice(p->times, 0, 0, 2) : p->t,
                           .audio = p->t,
                           .sigma = {p->t, p->t},
                           .cross = true};
    bool block[GUIDING_BLOCKS];
    Passed text = {0}, perturbed = {0}, isolated = {0};
    int64_t positive = z->prompt.samples - 1; /* a later round goes on with the first one's prompts */
    model_enter(x, &m->part[LTX2_DIT]);
    TRY(guiding_blocks(job->stg_blocks, block, x->error));
    TRY(pass(z, x, &s, &step, &(Ltx2Pass){.first = job->cfg ? 0 : positive, .count = 1 + job->cfg}, latents,
             &text));
    if (job->guide[GUIDE_STG] > 0 || job->guide[GUIDE_AUDIO_STG] > 0)
        TRY(pass(z, x, &s, &step,
                 &(Ltx2Pass){.first = positive, .count = 1, .perturbed = block, .always = z->official,
                             .spared = {z->official && !(job->guide[GUIDE_STG] > 0),
                                        z->official && !(job->guide[GUIDE_AUDIO_STG] > 0)}},
                 latents, &perturbed));
    if (job->guide[GUIDE_MODALITY] > 1 || job->guide[GUIDE_AUDIO_MODALITY] > 1)
        TRY(pass(z, x, &s, &step, &(Ltx2Pass){.first = positive, .count = 1, .isolated = true}, latents,
                 &isolated));
    for (int k = 0; k < LTX2_STREAMS; k++)
        TRY(weigh(z, x, job, k, &text, &perturbed, &isolated, ltx2_stream(&s, latents, (Ltx2Which)k),
                  p->sigma, ltx2_stream(&s, velocity, (Ltx2Which)k)));
    arena_reset(x->work, mark);
    return OK;
}

Status ltx2_advance(Model *m, Exec *x, const StepParams *p, Tensor latents, Tensor velocity) {
    model_enter(x, &m->part[LTX2_DIT]);
    TRY(op_euler_step(x, &(EulerStep){.y = latents, .x = latents, .v = velocity, .dt = p->dt}));
    return ((const Ltx2 *)m)->official ? blocks_round(x, latents) : OK;
}

/* What is decoded: without a picture's own tokens, the sound moves up behind the clip. */
Status ltx2_finish(Model *m, Exec *x, const Run *run, Tensor *latents) {
    Ltx2 *z = (Ltx2 *)m;
    Ltx2Size was = ltx2_size(z, run->job), now;
    z->finished = true;
    now = ltx2_size(z, run->job);
    if (!was.extra) return OK;
    size_t mark = arena_mark(x->work);
    Tensor sound = ltx2_stream(&was, *latents, LTX2_AUDIO), copy = exec_tensor(x, F32, 2, sound.shape);
    model_enter(x, &m->part[LTX2_DIT]);
    TRY(op_copy(x, &(Copy){.y = copy, .x = sound}));
    *latents = tensor_slice(*latents, 0, 0, tensor_numel(*latents) - was.extra * was.channels[LTX2_VIDEO]);
    TRY(op_copy(x, &(Copy){.y = ltx2_stream(&now, *latents, LTX2_AUDIO), .x = copy}));
    arena_reset(x->work, mark);
    return OK;
}
