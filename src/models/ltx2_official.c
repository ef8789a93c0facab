/* ltx2_official.c - what --match official changes: a clip as the authors' own code makes it (Lightricks' packages ltx-core and
 * ltx-pipelines 1.2, TI2VidOneStagePipeline), where that differs from diffusers.
 *
 *   noise          drawn in the model's dtype, token by token, the clip's and then the sound's (ltx2_official_draw)
 *   noise levels   the shift of 4096 tokens whatever the size, in the f32 steps of their scheduler (ltx2_official_schedule)
 *   rotations      in the model's dtype, tables too, in transformer and connectors (kernels/rope_split.h)
 *   a step         latents, clean samples and velocities in the model's dtype, the rescaling one factor (kernels/guide.h)
 *   stg            leaves out self attention in 2.0 too, of a stream that wants it alone (Ltx2Pass)
 *   defaults       of 2.0 40 steps and stg in block 29; 2.3 has 30 and 28 in both
 * Not covered, and as diffusers has it: all of the text encoder, decoding (their sound is de-normalised in BF16, their clips are
 * decoded in tiles), their long default negative prompt. Refused: pictures, the second round. Their own noise is drawn on a
 * GPU, which no seed here gives.
 * Easy to get wrong: torch turns a number over a tensor into the tensor's reciprocal times the number, two roundings. */
#include "models/ltx2.h"

#include <math.h>
#include <stdlib.h>

enum { ANCHOR_LOW = 1024, ANCHOR_HIGH = 4096, STEPS_20 = 40, STEPS_23 = 30 };
static const double SHIFT_LOW = 0.95, SHIFT_HIGH = 2.05, TERMINAL = 0.1;

Status ltx2_official_resolve(const Ltx2 *z, Job *job, Error *e) {
    bool older = !z->dit.c.text_mod;
    if (job->image)
        return fail(e, ERR_USAGE, "--match official: not with --image: how their code conditions a clip is not covered");
    if (job->upscale) return fail(e, ERR_USAGE, "--match official: not with --upscale: their second round is not covered");
    if (!job->steps && !z->distilled) job->steps = older ? STEPS_20 : STEPS_23;
    if (!job->stg_blocks) job->stg_blocks = older && z->dit.c.layers > 29 ? "29" : NULL;
    return OK;
}

/* LTX2Scheduler.execute(steps): shift, then stretch, as torch computes it in f32. */
static Status levels(int steps, double *out, Error *e) {
    const double slope = (SHIFT_HIGH - SHIFT_LOW) / (ANCHOR_HIGH - ANCHOR_LOW);
    const float by = (float)exp(ANCHOR_HIGH * slope + (SHIFT_LOW - slope * ANCHOR_LOW));
    float scale = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = steps - 1; i >= 0; i--) {
            float even = (float)sched_linspace_torch(1.0f, 0.0f, steps + 1, i), odds = 1.0f / even - 1.0f;
            float left = 1.0f - 1.0f / (odds + by) * by;
            if (!pass && i == steps - 1) scale = left / (float)(1.0 - TERMINAL);
            out[i] = (double)(1.0f - left / scale);
        }
    if (scale > 0) return OK;
    return fail(e, ERR_USAGE, "--steps %d: their scheduler stretches levels that are all 1; expected 2 or more", steps);
}

Status ltx2_official_schedule(const Ltx2 *z, int steps, Schedule *out, Error *e) {
    SchedConfig plain = {.num_train_timesteps = z->sched.num_train_timesteps, .shift = 1};
    double *given = malloc((size_t)steps * sizeof *given);
    if (!given) return fail(e, ERR_MEMORY, "out of memory for %d steps", steps);
    Status s = levels(steps, given, e);
    if (s == OK) s = sched_make(&plain, steps, given, 0, out, e);
    free(given);
    if (s == OK) out->mu = SHIFT_HIGH;
    return s;
}

Status ltx2_official_draw(Ltx2 *z, const Ltx2Size *s, const Run *run, float *to, Error *e) {
    static const char *const NAMES[LTX2_STREAMS] = {"noise", "audio_noise"};
    const DType dtype = z->base.dtype;
    rng_seed(&z->rng, run->job->seed);
    for (int k = 0; k < LTX2_STREAMS; k++) {
        int64_t count = s->tokens[k] * s->channels[k];
        void *drawn = malloc((size_t)count * dtype_size(dtype));
        if (!drawn) return fail(e, ERR_MEMORY, "noise: out of memory");
        rng_normal(&z->rng, dtype, count, drawn);
        Status status = stages_host(run->stages, NAMES[k], dtype, 3, (int64_t[]){1, s->tokens[k], s->channels[k]}, drawn, e);
        for (int64_t i = 0; i < count; i++)
            to[i] = dtype == BF16 ? bf16_to_f32(((const uint16_t *)drawn)[i]) : ((const float *)drawn)[i];
        free(drawn);
        TRY(status);
        to += count;
    }
    return OK;
}
