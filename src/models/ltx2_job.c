/* ltx2_job.c - what a job of LTX-2 resolves to: sizes, guidance, tokens and noise levels, as diffusers' LTX2Pipeline has them.
 *
 * Easy to get wrong: the shift of the noise levels follows the number of the clip's tokens, a picture's beside them included
 * and the sound's not, and without a limit; a distilled model's levels are a list, not a formula; tokens stand at the end,
 * padding before them. */
#include "models/ltx2.h"
#include "text/tok_unicode.h"

#include <stdlib.h>

enum { LENGTH = 1024 };  /* max_sequence_length of the pipeline */
enum { IMAGE_CRF = 33 }; /* DEFAULT_IMAGE_CRF of diffusers */
static const char STG_BLOCKS[] = "28"; /* a model of fewer blocks keeps them all, as there */

/* DISTILLED_SIGMA_VALUES of diffusers: a list that nothing shifts. */
static const double DISTILLED[] = {1.0, 0.99375, 0.9875, 0.98125, 0.975, 0.909375, 0.725, 0.421875};
enum { DISTILLED_STEPS = (int)(sizeof DISTILLED / sizeof *DISTILLED) };

/* diffusers' own defaults; a distilled model runs without guidance. */
static const double GUIDED[GUIDE_KINDS] = {
    [GUIDE_STG] = 1,       [GUIDE_MODALITY] = 3,       [GUIDE_RESCALE] = 0.7,      [GUIDE_AUDIO_CFG] = 7,
    [GUIDE_AUDIO_STG] = 1, [GUIDE_AUDIO_MODALITY] = 3, [GUIDE_AUDIO_RESCALE] = 0.7};

/* --- sizes --- */

static Ltx2Size size_of(const Ltx2 *z, const Job *job, bool finished) {
    int64_t scale = vae_ltx2_scale(&z->vae.c);
    Ltx2Size s = {.frames = (job->frames - 1) / vae_ltx2_frames_each(&z->vae.c) + 1,
                  .rows = job->height / scale,
                  .cols = job->width / scale};
    s.channels[LTX2_VIDEO] = z->vae.c.latent;
    s.channels[LTX2_AUDIO] = vae_ltx2_audio_width(&z->audio.c);
    s.bins = s.channels[LTX2_AUDIO] / z->audio.c.latent;
    s.extra = job->image && job->image_frame && !finished ? s.rows * s.cols : 0;
    s.tokens[LTX2_VIDEO] = s.frames * s.rows * s.cols + s.extra;
    s.tokens[LTX2_AUDIO] = vae_ltx2_audio_rows(&z->audio.c, rate_seconds(job->fps, job->frames));
    return s;
}

Ltx2Size ltx2_size(const Ltx2 *z, const Job *job) { return size_of(z, job, z->finished); }

Tensor ltx2_stream(const Ltx2Size *s, Tensor flat, Ltx2Which which) {
    int64_t first = which == LTX2_AUDIO ? s->tokens[LTX2_VIDEO] * s->channels[LTX2_VIDEO] : 0;
    Tensor part = tensor_slice(flat, 0, first, s->tokens[which] * s->channels[which]);
    return tensor_make(part.data, part.dtype, 2, (int64_t[]){s->tokens[which], s->channels[which]});
}

void ltx2_clip(const Model *m, ClipRule *out) {
    const Ltx2 *z = (const Ltx2 *)m;
    int each = (int)vae_ltx2_frames_each(&z->vae.c);
    *out = (ClipRule){.step = each, .frames = 1 + 15 * each, .fps = {24, 1}};
}

static Status resolve_size(const Ltx2 *z, Job *job, Error *e) {
    int grid = (int)vae_ltx2_scale(&z->vae.c) << (job->upscale != 0),
        least = z->vae.c.decoder_mirror ? 2 * grid : grid; /* a border that mirrors needs two */
    if (!job->width) job->width = 768;
    if (!job->height) job->height = 512;
    TRY(model_check_side("--width", job->width, grid, least, 0, e));
    TRY(model_check_side("--height", job->height, grid, least, 0, e));
    if (vae_ltx2_audio_rows(&z->audio.c, rate_seconds(job->fps, job->frames)) < 1)
        return fail(e, ERR_USAGE, "--frames %d: too short a clip for any sound", job->frames);
    return OK;
}

/* --- guidance --- */

static Status resolve_guidance(const Ltx2 *z, Job *job, Error *e) {
    bool block[GUIDING_BLOCKS];
    if (job->guidance_given)
        return fail(e, ERR_USAGE, "--guidance: %s has no guidance embedding; use --cfg-scale",
                    z->base.ops->title(&z->base));
    if (job->cfg_normalization > 0 || job->cfg_truncation_given)
        return fail(e, ERR_USAGE, "--cfg-normalization, --cfg-truncation: they belong to Z-Image");
    job->guidance = 0, job->cfg_truncation = 1;
    if (job->guidance_scale_given)
        job->cfg_scale = job->guidance_scale;
    else if (!job->cfg_scale_given)
        job->cfg_scale = z->distilled ? 1 : 3;
    for (int k = 0; k < GUIDE_KINDS; k++)
        if (!job->guide_given[k]) job->guide[k] = z->distilled ? guiding_off((GuideKind)k) : GUIDED[k];
    job->cfg = job->cfg_scale > 1 || job->guide[GUIDE_AUDIO_CFG] > 1;
    if (!job->stg_blocks) job->stg_blocks = STG_BLOCKS;
    TRY(guiding_blocks(job->stg_blocks, block, e));
    for (int i = (int)z->dit.c.layers; i < GUIDING_BLOCKS && strcmp(job->stg_blocks, STG_BLOCKS); i++)
        if (block[i])
            return fail(e, ERR_USAGE, "--stg-blocks %s: the transformer has blocks 0 to %lld", job->stg_blocks,
                        (long long)z->dit.c.layers - 1);
    if (job->cfg && !job->negative_prompt) job->negative_prompt = "";
    return OK;
}

/* A frame of the clip's latents, from 0; negative ones count from the end. */
static Status resolve_image(const Ltx2 *z, Job *job, Error *e) {
    int frames = (int)((job->frames - 1) / vae_ltx2_frames_each(&z->vae.c) + 1);
    if (job->image_frame < 0) job->image_frame += frames;
    if (job->image_frame < 0 || job->image_frame >= frames)
        return fail(e, ERR_USAGE, "--image %s: the clip has latent frames 0 to %d", job->image, frames - 1);
    if (job->image_crf < 0) job->image_crf = IMAGE_CRF;
    return OK;
}

Status ltx2_resolve(const Model *m, Job *job, Error *e) {
    const Ltx2 *z = (const Ltx2 *)m;
    int64_t registers = ltx2_connectors_registers(&z->connectors);
    if (job->upscale && job->upscale != 2)
        return fail(e, ERR_USAGE, "--upscale %d: expected 2", job->upscale);
    if (job->upscale && !job->decode_only && !z->upsamples)
        return fail(e, ERR_USAGE, "--upscale: this folder has no latent_upsampler");
    if (job->upscale && job->image)
        return fail(e, ERR_USAGE,
                    "--upscale: not with --image, which only the first of both rounds would see");
    TRY(resolve_size(z, job, e));
    if (guiding_official(job)) TRY(ltx2_official_resolve(z, job, e));
    if (job->image) TRY(resolve_image(z, job, e));
    if (!job->steps) job->steps = z->distilled ? DISTILLED_STEPS : 30;
    if (job->steps == 1 && (guiding_official(job) || z->sched.shift_terminal > 0))
        return fail(e, ERR_USAGE, "--steps 1: the levels are stretched to end at a given one, and one alone, which is the first, "
                    "gives diffusers 0 / 0; expected 2 or more");
    TRY(resolve_guidance(z, job, e));
    if (!job->max_sequence_length) job->max_sequence_length = LENGTH;
    if (job->max_sequence_length < registers || job->max_sequence_length > 8 * LENGTH ||
        job->max_sequence_length % registers)
        return fail(e, ERR_USAGE, "--max-sequence-length %d: expected a multiple of %lld up to %d",
                    job->max_sequence_length, (long long)registers, 8 * LENGTH);
    return OK;
}

/* --- tokens --- */

/* As the pipeline: stripped, BOS in front, cut behind, padded in front. */
static Status tokens_of(const Ltx2 *z, const char *text, TokenRow *row, Error *e) {
    const char *at = text;
    size_t size = strlen(text), bad = tok_unicode_check(text, size);
    int64_t lost = -1;
    if (bad < size) return fail(e, ERR_USAGE, "prompt: byte %zu: not valid UTF-8", bad);
    tok_unicode_strip(&at, &size);
    TRY(model_row_encode(z->tok, at, size, row, &lost, e));
    const int64_t count = row->count, used = row->used;
    TRY(model_check_ids("tokenizer", row->ids, used, z->te.c.vocab, e));
    int32_t pad = used < count ? row->ids[used] : 0;
    memmove(row->ids + (count - used), row->ids, (size_t)used * sizeof *row->ids);
    for (int64_t i = 0; i < count; i++) {
        if (i < count - used) row->ids[i] = pad;
        row->mask[i] = i >= count - used;
    }
    row->lost_byte = lost < 0 ? -1 : lost + (int64_t)(at - text);
    return OK;
}

Status ltx2_tokenize(const Model *m, const char *text, const Job *job, Tokens *out, Error *e) {
    *out = (Tokens){.rows = 1, .row = {{.encoder = "1", .count = job->max_sequence_length, .lost_byte = -1}}};
    Status s = tokens_of((const Ltx2 *)m, text, &out->row[0], e);
    if (s != OK) model_tokens_free(out);
    return s;
}

/* --- noise levels --- */

Status ltx2_schedule(const Model *m, const Job *job, Schedule *out, Error *e) {
    const Ltx2 *z = (const Ltx2 *)m;
    if (job->upscale == LTX2_SECOND) return ltx2_second_schedule(z, out, e);
    if (z->distilled && job->steps == DISTILLED_STEPS)
        return sched_make(&z->sched, job->steps, DISTILLED, 0, out, e);
    if (guiding_official(job)) return ltx2_official_schedule(z, job->steps, out, e);
    /* asked for before the job begins: z->finished is still the last one's */
    return sched_flux(&z->sched, job->steps, size_of(z, job, false).tokens[LTX2_VIDEO], out, e);
}
