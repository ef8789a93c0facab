/* ltx2_stage2.c - a clip in two rounds: drawn at half its width and height, its latents made twice as large, then a few steps
 * more at the full size, without guidance.
 *
 * As three pipelines of diffusers, one behind the other: LTX2Pipeline with latents for its output, LTX2LatentUpsamplePipeline,
 * LTX2Pipeline from latents with STAGE_2_DISTILLED_SIGMA_VALUES and their first as noise_scale; one generator draws for all.
 * Easy to get wrong: between the rounds latents are the autoencoders' own, not the transformer's; the clip's are mixed with
 * noise in the upsampler's dtype, and the noise is drawn in it, token by token; the sound's in F32. The second round's steps
 * are meant for distilled weights. */
#include "models/ltx2.h"
#include "residency.h"

#include <stdlib.h>

static const double LEVELS[] = {0.909375, 0.725, 0.421875}; /* STAGE_2_DISTILLED_SIGMA_VALUES */
enum { STEPS = (int)(sizeof LEVELS / sizeof *LEVELS) };

int ltx2_rounds(const Model *m, const Job *job) {
    (void)m;
    return job->upscale && !job->decode_only ? 2 : 1; /* finished latents are the last round's */
}

void ltx2_round(const Model *m, const Job *job, int k, Job *out) {
    *out = *job;
    if (ltx2_rounds(m, job) == 1) return;
    if (k == 0) {
        out->width /= 2, out->height /= 2;
        out->made_width /= 2, out->made_height /= 2;
        return;
    }
    out->steps = STEPS, out->first_step = 0;
    out->cfg = false, out->cfg_scale = 1;
    for (int i = 0; i < GUIDE_KINDS; i++) out->guide[i] = guiding_off((GuideKind)i);
    out->upscale = LTX2_SECOND; /* so that schedule() knows it */
}

Status ltx2_second_schedule(const Ltx2 *z, Schedule *out, Error *e) {
    SchedConfig plain = z->sched;
    plain.use_dynamic_shifting = false, plain.shift_terminal = 0;
    return sched_make(&plain, STEPS, LEVELS, 0, out, e);
}

/* y, contiguous, = r(s noise) + r((1 - s) y): noise that is drawn in y's dtype, in the order of y's elements. */
static Status noised(Ltx2 *z, Exec *x, const Run *run, const char *name, Tensor y) {
    size_t mark = arena_mark(x->work);
    Tensor noise = exec_tensor(x, y.dtype, y.rank, y.shape);
    if (!x->dry) {
        void *host = malloc(tensor_bytes(noise));
        if (!host) return fail(x->error, ERR_MEMORY, "noise: out of memory");
        rng_normal(&z->rng, y.dtype, tensor_numel(noise), host);
        char stage[64];
        snprintf(stage, sizeof stage, "%s%s", run->prefix, name);
        Status s = stages_host(run->stages, stage, y.dtype, 3, (int64_t[]){1, y.shape[0], y.shape[1]}, host,
                               x->error);
        if (s == OK) s = exec_upload(x, noise, host);
        free(host);
        TRY(s);
    }
    TRY(op_affine(x, &(Affine){.y = noise, .x = noise, .mul = (float)LEVELS[0], .add = 0}));
    TRY(op_affine(x, &(Affine){.y = y, .x = y, .mul = (float)(1 - LEVELS[0]), .add = 0}));
    TRY(op_add(x, &(Add){.y = y, .a = noise, .b = y}));
    arena_reset(x->work, mark);
    return OK;
}

/* The clip's latents, twice as large and noised, into `to` [tokens, C] F32. */
static Status clip(Ltx2 *z, Exec *x, const Run *run, const Ltx2Size *small, const Ltx2Size *large,
                   Tensor before, Tensor to) {
    size_t mark = arena_mark(x->work);
    int64_t c = small->channels[LTX2_VIDEO];
    const int64_t a[] = {small->frames, small->rows, small->cols, c},
                  b[] = {large->frames, large->rows, large->cols, c};
    Part *vae = &z->base.part[LTX2_VAE], *up = &z->base.part[LTX2_UPSAMPLER];
    Tensor raw = exec_tensor(x, F32, 4, a), in = exec_tensor(x, up->dtype, 4, a),
           out = exec_tensor(x, up->dtype, 4, b);
    model_enter(x, vae);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(vae_ltx2_denormalise(&z->vae, x, raw, tensor_make(before.data, F32, 4, a)));
    TRY(op_copy(x, &(Copy){.y = in, .x = raw}));
    TRY(weights_leave(x, WEIGHTS_PART));
    model_enter(x, up);
    TRY(vae_ltx2_upsample(&z->upsampler, x, in, out));
    TRY(exec_check_finite(x, out, "latent_upsampler: latents"));
    model_enter(x, vae);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(vae_ltx2_normalise(&z->vae, x, out, out));
    TRY(weights_leave(x, WEIGHTS_PART));
    Tensor tokens = tensor_make(out.data, out.dtype, 2, to.shape);
    TRY(noised(z, x, run, "noise", tokens));
    TRY(op_copy(x, &(Copy){.y = to, .x = tokens}));
    arena_reset(x->work, mark);
    return OK;
}

/* The sound's: out of the transformer's scale and into it again, as two pipelines do. */
static Status sound(Ltx2 *z, Exec *x, const Run *run, Tensor before, Tensor to) {
    VaeLtx2 scale = {.c.latent = before.shape[1], .mean = z->audio.mean, .std = z->audio.std};
    model_enter(x, &z->base.part[LTX2_AUDIO_VAE]);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(vae_ltx2_denormalise(&scale, x, to, before));
    TRY(vae_ltx2_normalise(&scale, x, to, to));
    TRY(weights_leave(x, WEIGHTS_PART));
    return noised(z, x, run, "audio_noise", to);
}

Status ltx2_again(Model *m, Exec *x, const Run *run, const Job *before_job, Tensor before, Tensor *latents) {
    Ltx2 *z = (Ltx2 *)m;
    Ltx2Size small = ltx2_size(z, before_job), large = ltx2_size(z, run->job);
    int64_t all = large.tokens[LTX2_VIDEO] * large.channels[LTX2_VIDEO] +
                  large.tokens[LTX2_AUDIO] * large.channels[LTX2_AUDIO];
    model_enter(x, &m->part[LTX2_DIT]);
    *latents = exec_tensor(x, F32, 1, &all);
    TRY(ltx2_places(z, x, run));
    TRY(clip(z, x, run, &small, &large, ltx2_stream(&small, before, LTX2_VIDEO),
             ltx2_stream(&large, *latents, LTX2_VIDEO)));
    return sound(z, x, run, ltx2_stream(&small, before, LTX2_AUDIO),
                 ltx2_stream(&large, *latents, LTX2_AUDIO));
}
