/* flux.c - FLUX.1 (dev and schnell) as a Model: CLIP and T5, the transformer, the KL VAE, and what diffusers'
 * FluxPipeline does between them.
 *
 * Not here: the transformer itself (dit_flux.c). Easy to get wrong: the noise is drawn in the dtype of the T5
 * embeddings, unpacked; guidance is a model input, true CFG a second pass with the same guidance. */
#include "model.h"

#include "core/file.h"
#include "models/dit_flux.h"
#include "models/img2img.h"
#include "rng.h"
#include "text/te_clip.h"
#include "text/te_t5.h"
#include "text/tok.h"
#include "vae/vae_kl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLIP_PART, T5_PART, DIT_PART, VAE_PART };
enum { MODS = 32 }; /* modulation rows there is room for, a step and prompt each: 2 MB a row at full size */

typedef struct Flux {
    Model base;
    SchedConfig sched;
    Clip clip;
    T5 t5;
    FluxDit dit;
    VaeKl vae;
    VaeKlEncoder encoder; /* for jobs that begin from an image */
    Tokenizer *tok_clip, *tok_t5;
    FluxPrompt prompt[2]; /* positive, negative: of the job in hand */
    Tensor mods;          /* [MODS, N]: modulation of a stretch of steps, prompt by prompt */
    int first, steps;     /* the stretch; steps 0: none yet */
    Tensor start;         /* [C,h,w], noised image of the job in hand */
} Flux;

static const char *const IGNORE_CLIP[] = {"text_projection", "logit_scale", "text_model.embeddings.position_ids",
                                          "embeddings.position_ids", "vision_model.", "visual_projection", NULL};
static const char *const IGNORE_T5[] = {"shared.weight", "encoder.embed_tokens.weight", "decoder.", "lm_head.", NULL};
static const char *const IGNORE_VAE[] = {"encoder.", "quant_conv.", "post_quant_conv.", NULL};

static void flux_close(Model *m) {
    Flux *f = (Flux *)m;
    if (!f) return;
    model_close_parts(m);
    te_clip_close(&f->clip);
    te_t5_close(&f->t5);
    dit_flux_close(&f->dit);
    tok_close(f->tok_clip);
    tok_close(f->tok_t5);
    free(f);
}

static Status open_parts(Flux *f, const char *folder, Error *e) {
    Model *m = &f->base;
    struct { const char *name; const char *const *ignore; } parts[] = {
        [CLIP_PART] = {"text_encoder", IGNORE_CLIP}, [T5_PART] = {"text_encoder_2", IGNORE_T5},
        [DIT_PART] = {"transformer", NULL},          [VAE_PART] = {"vae", IGNORE_VAE}};
    char path[4096];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, parts[i].name);
        Status s = i == CLIP_PART ? te_clip_open(path, &f->clip, e)
                 : i == T5_PART   ? te_t5_open(path, &f->t5, e)
                 : i == DIT_PART  ? dit_flux_open(path, &f->dit, e)
                                  : vae_kl_open(path, &f->vae, e);
        TRY(s);
        TRY(model_open_part(m, folder, parts[i].name, parts[i].ignore, e));
    }
    te_clip_bind(&f->clip, m->part[CLIP_PART].files, &m->part[CLIP_PART].bind);
    te_t5_bind(&f->t5, m->part[T5_PART].files, &m->part[T5_PART].bind);
    dit_flux_bind(&f->dit, &m->part[DIT_PART].bind);
    vae_kl_bind(&f->vae, &m->part[VAE_PART].bind);
    m->part[DIT_PART].repeats = true;
    m->part[VAE_PART].decodes = true;
    return img2img_open(m, folder, &f->vae, &f->encoder, e);
}

static Status check_fit(const Flux *f, const char *folder, Error *e) {
    const ModelFit fits[] = {
        {"transformer joint_attention_dim / text_encoder_2 d_model", f->dit.c.text_dim, f->t5.c.model},
        {"transformer pooled_projection_dim / text_encoder hidden_size", f->dit.c.pooled_dim, f->clip.c.hidden},
        {"transformer in_channels / 4 x vae latent_channels", f->dit.c.in_channels, 4 * f->vae.c.latent},
    };
    return model_check_fits(folder, fits, sizeof fits / sizeof *fits, e);
}

static Status open_all(Flux *f, const char *folder, Error *e) {
    char path[4096];
    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", folder);
    TRY(sched_config_read(path, &f->sched, e));
    TRY(open_parts(f, folder, e));
    TRY(check_fit(f, folder, e));
    snprintf(path, sizeof path, "%s/tokenizer", folder);
    TRY(tok_open_class(path, &f->tok_clip, e));
    TRY(tok_expect_right(f->tok_clip, path, e));
    snprintf(path, sizeof path, "%s/tokenizer_2", folder);
    TRY(tok_open_class(path, &f->tok_t5, e));
    return tok_expect_right(f->tok_t5, path, e);
}

static Status flux_open(const char *folder, const Json *index, DType dtype, Model **out, Error *e) {
    static const ModelClass CLASSES[] = {
        {"text_encoder", "CLIPTextModel", NULL}, {"text_encoder_2", "T5EncoderModel", NULL},
        {"transformer", "FluxTransformer2DModel", NULL}, {"vae", "AutoencoderKL", NULL},
        {"scheduler", "FlowMatchEulerDiscreteScheduler", NULL},
        {"tokenizer", "CLIPTokenizer", "CLIPTokenizerFast"}, {"tokenizer_2", "T5TokenizerFast", "T5Tokenizer"}};
    TRY(model_check_classes(folder, index, CLASSES, (int)(sizeof CLASSES / sizeof *CLASSES), e));
    Flux *f = calloc(1, sizeof *f);
    if (!f) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    f->base.ops = &MODEL_FLUX;
    f->base.dtype = dtype;
    Status s = open_all(f, folder, e);
    if (s == OK) *out = &f->base;
    else flux_close(&f->base);
    return s;
}

static const char *flux_title(const Model *m) { return ((const Flux *)m)->dit.c.guidance ? "FLUX.1-dev" : "FLUX.1-schnell"; }

/* --- the job --- */

static Status flux_resolve(const Model *m, Job *job, Error *e) {
    const Flux *f = (const Flux *)m;
    int64_t scale = vae_kl_scale(&f->vae), grid = 2 * scale;
    if (!job->width) job->width = (int)(128 * scale); /* FluxPipeline: default_sample_size 128 */
    if (!job->height) job->height = (int)(128 * scale);
    TRY(model_check_side("--width", job->width, grid, grid, 0, e));
    TRY(model_check_side("--height", job->height, grid, grid, 0, e));
    if (!job->steps) job->steps = 28;
    if (job->guidance_scale_given) { /* diffusers' name for it */
        if (f->dit.c.guidance) job->guidance = job->guidance_scale;
        job->guidance_given = f->dit.c.guidance; /* FluxPipeline ignores guidance_scale without an embedder */
    }
    if (job->guidance_given && !f->dit.c.guidance)
        return fail(e, ERR_USAGE, "--guidance: %s has no guidance embedding; use --cfg-scale with a negative prompt",
                    flux_title(m));
    /* FluxPipeline's default; FluxImg2ImgPipeline's */
    if (!job->guidance_given) job->guidance = !f->dit.c.guidance ? 0 : job->image ? 7 : 3.5;
    if (job->cfg_scale == 0) job->cfg_scale = 1;
    job->cfg = job->cfg_scale > 1 && job->negative_prompt;
    if (job->cfg_normalization > 0 || job->cfg_truncation_given)
        return fail(e, ERR_USAGE, "--cfg-normalization, --cfg-truncation: %s has neither; they belong to Z-Image",
                    flux_title(m));
    if (!job->max_sequence_length) job->max_sequence_length = 512;
    if (job->max_sequence_length < 1 || job->max_sequence_length > 512)
        return fail(e, ERR_USAGE, "--max-sequence-length %d: expected 1 to 512", job->max_sequence_length);
    return OK;
}

static Status flux_tokenize(const Model *m, const char *text, const Job *job, Tokens *out, Error *e) {
    const Flux *f = (const Flux *)m;
    *out = (Tokens){.rows = 2};
    /* the pipeline pads to the tokenizer's own limit (77); positions beyond the table do not exist */
    int64_t clip_length = tok_max_length(f->tok_clip);
    if (clip_length > f->clip.c.positions) clip_length = f->clip.c.positions;
    TokenRow *clip = &out->row[0], *t5 = &out->row[1];
    *clip = (TokenRow){.encoder = "1", .count = clip_length, .lost_byte = -1};
    *t5 = (TokenRow){.encoder = "2", .count = job->max_sequence_length, .lost_byte = -1};
    Status s = model_row_encode(f->tok_clip, text, strlen(text), clip, &clip->lost_byte, e);
    if (s == OK) s = model_row_encode(f->tok_t5, text, strlen(text), t5, &t5->lost_byte, e);
    const int64_t vocab[2] = {f->clip.c.vocab, f->t5.c.vocab};
    for (int r = 0; s == OK && r < 2; r++)
        s = model_check_ids(r ? "tokenizer_2" : "tokenizer", out->row[r].ids, out->row[r].count, vocab[r], e);
    if (s != OK) model_tokens_free(out);
    return s;
}

static int64_t image_rows(const Flux *f, const Job *job) { return job->height / (2 * vae_kl_scale(&f->vae)); }
static int64_t image_cols(const Flux *f, const Job *job) { return job->width / (2 * vae_kl_scale(&f->vae)); }

static Status flux_schedule(const Model *m, const Job *job, Schedule *out, Error *e) {
    const Flux *f = (const Flux *)m;
    return sched_flux(&f->sched, job->steps, image_rows(f, job) * image_cols(f, job), out, e);
}

/* --- stages on the device --- */

/* One encoder's result: injected, remembered from an earlier job with the same text, or computed. */
static Status encode_one(Flux *f, Exec *x, const Run *run, int which, int part, Tensor y) {
    static const char *const NAMES[2][2] = {{"pooled", "prompt_embeds"}, {"negative_pooled", "negative_prompt_embeds"}};
    const char *name = NAMES[which][part], *folder = f->base.part[part].name;
    const TokenRow *row = &run->tokens[which].row[part];
    size_t mark = arena_mark(x->work), size = strlen(run->text[which]) + 64;
    bool done = stages_injected(run->stages, name) && !x->dry;
    char *key = malloc(size);
    if (!key) return fail(x->error, ERR_MEMORY, "%s: out of memory", folder);
    model_enter(x, &f->base.part[part]);
    snprintf(key, size, "%d %lld %d %x %s", part, (long long)row->count, (int)f->base.dtype, model_bounded(run->families),
             run->text[which]);
    Status s = done ? OK : memo_get(run->memo, x, key, y, &done);
    if (s == OK && !done) {
        Tensor ids = exec_new_as(x, I32, row->count);
        s = exec_upload(x, ids, row->ids);
        if (s == OK)
            s = part == CLIP_PART
                    ? te_clip_encode(&f->clip, x, ids, te_clip_pooled_row(&f->clip, row->ids, row->count), y)
                    : te_t5_encode(&f->t5, x, ids, y);
        if (s == OK) s = memo_put(run->memo, x, key, y);
    }
    free(key);
    TRY(s);
    arena_reset(x->work, mark);
    bool pooled = part == CLIP_PART;
    TRY(stages_pass(run->stages, x, name, y, pooled ? 2 : 3,
                    pooled ? y.shape : (const int64_t[]){1, y.shape[0], y.shape[1]}));
    char stage[64];
    snprintf(stage, sizeof stage, "%s: %s", folder, name);
    return exec_check_finite(x, y, stage);
}

/* All texts (and the image) before the transformer: it may push the encoders out. */
static Status encode_texts(Flux *f, Exec *x, const Run *run, Tensor embeds[2], Tensor pooled[2]) {
    int passes = run->cfg ? 2 : 1;
    for (int i = 0; i < passes; i++) {
        embeds[i] = exec_tensor(x, f->base.dtype, 2, (int64_t[]){run->job->max_sequence_length, f->t5.c.model});
        pooled[i] = exec_tensor(x, f->base.dtype, 2, (int64_t[]){1, f->clip.c.hidden});
    }
    for (int i = 0; i < passes; i++) TRY(encode_one(f, x, run, i, CLIP_PART, pooled[i]));
    for (int i = 0; i < passes; i++) TRY(encode_one(f, x, run, i, T5_PART, embeds[i]));
    return OK;
}

static Status flux_texts(Model *m, Exec *x, const Run *run, int64_t *rows) {
    size_t mark = arena_mark(x->work);
    Tensor embeds[2], pooled[2];
    TRY(encode_texts((Flux *)m, x, run, embeds, pooled));
    arena_reset(x->work, mark);
    *rows = run->job->max_sequence_length; /* padding is part of the text here */
    return OK;
}

static Status flux_encode(Model *m, Exec *x, const Run *run) {
    Flux *f = (Flux *)m;
    int passes = run->cfg ? 2 : 1;
    int64_t text = run->job->max_sequence_length, d = f->dit.d, n = dit_flux_mod_width(&f->dit);
    f->mods = exec_tensor(x, m->dtype, 2, (int64_t[]){MODS, n}); /* all of it always: other jobs, the same addresses */
    Tensor mod = exec_tensor(x, m->dtype, 2, (int64_t[]){2, n});
    f->steps = 0;
    for (int i = 0; i < passes; i++) {
        f->prompt[i].mod = tensor_slice(mod, 0, i, 1);
        f->prompt[i].context = exec_tensor(x, m->dtype, 2, (int64_t[]){text, d});
        f->prompt[i].pooled = exec_tensor(x, m->dtype, 2, (int64_t[]){1, d});
    }
    TRY(dit_flux_rope(&f->dit, x, text, image_rows(f, run->job), image_cols(f, run->job), &f->prompt[0]));
    f->prompt[1].cos = f->prompt[0].cos, f->prompt[1].sin = f->prompt[0].sin;
    if (run->image) TRY(img2img_begin(m, &f->encoder, x, run, &f->start));
    size_t mark = arena_mark(x->work);
    Tensor embeds[2], pooled[2];
    TRY(encode_texts(f, x, run, embeds, pooled));
    model_enter(x, &m->part[DIT_PART]);
    for (int i = 0; i < passes; i++) TRY(dit_flux_prompt(&f->dit, x, embeds[i], pooled[i], &f->prompt[i]));
    arena_reset(x->work, mark);
    return OK;
}

static Status flux_noise(Model *m, Exec *x, const Run *run, Tensor *latents, int *rank, int64_t latent_shape[5]) {
    Flux *f = (Flux *)m;
    int64_t h = 2 * image_rows(f, run->job), w = 2 * image_cols(f, run->job), c = f->vae.c.latent, s = h * w / 4;
    model_enter(x, &m->part[DIT_PART]);
    *latents = exec_new(x, s, 4 * c);
    *rank = 3;
    latent_shape[0] = 1, latent_shape[1] = s, latent_shape[2] = 4 * c;
    size_t mark = arena_mark(x->work);
    Tensor noise = exec_new(x, c, h, w);
    if (run->image) {
        noise = f->start;
    } else if (!x->dry) {
        void *host = malloc(tensor_bytes(noise));
        if (!host) return fail(x->error, ERR_MEMORY, "noise: out of memory");
        Rng rng;
        rng_seed(&rng, run->job->seed);
        rng_normal(&rng, m->dtype, tensor_numel(noise), host);
        Status status = stages_host(run->stages, "noise", m->dtype, 4, (int64_t[]){1, c, h, w}, host, x->error);
        if (status == OK) status = exec_upload(x, noise, host);
        free(host);
        TRY(status);
    }
    TRY(op_pack(x, &(Pack){.y = *latents, .x = noise}));
    arena_reset(x->work, mark);
    return OK;
}

/* Modulation of the stretch of steps that begins with this one; beyond the last step it repeats. Stretches are of one length,
 * so that they are one problem to the libraries. */
static Status modulate(Flux *f, Exec *x, const Run *run, int first) {
    size_t mark = arena_mark(x->work);
    int prompts = run->cfg ? 2 : 1, steps = run->job->steps, most = MODS / prompts, stretches = (steps + most - 1) / most;
    int n = (steps + stretches - 1) / stretches;
    float host[MODS + 1];
    for (int i = 0; i < n; i++) {
        int step = first + i < steps ? first + i : steps - 1;
        host[i] = sched_model_timestep(run->schedule->timesteps[step], f->base.dtype);
    }
    host[n] = sched_model_guidance((float)run->job->guidance, f->base.dtype);
    Tensor all = exec_new_as(x, F32, n + 1);
    TRY(exec_upload(x, all, host));
    TRY(dit_flux_modulate(&f->dit, x, f->prompt, prompts, tensor_slice(all, 0, 0, n), tensor_slice(all, 0, n, 1),
                          tensor_slice(f->mods, 0, 0, prompts * n)));
    f->first = first, f->steps = n;
    arena_reset(x->work, mark);
    return OK;
}

static Status flux_begin(Model *m, Exec *x, const Run *run, int step) {
    Flux *f = (Flux *)m;
    model_enter(x, &m->part[DIT_PART]);
    if (step < f->first || step >= f->first + f->steps) TRY(modulate(f, x, run, step));
    for (int i = 0; i < (run->cfg ? 2 : 1); i++)
        TRY(op_copy(x, &(Copy){.y = f->prompt[i].mod, .x = tensor_slice(f->mods, 0, i * f->steps + step - f->first, 1)}));
    return OK;
}

static void flux_params(const Model *m, const Run *run, int step, float params[STEP_PARAMS]) {
    params[STEP_T] = sched_model_timestep(run->schedule->timesteps[step], m->dtype);
    params[STEP_GUIDANCE] = sched_model_guidance((float)run->job->guidance, m->dtype);
    params[STEP_DT] = sched_dt(run->schedule, step, m->dtype);
    params[STEP_CFG_SCALE] = (float)run->job->cfg_scale;
}

static Status flux_velocity(Model *m, Exec *x, const Run *run, const StepParams *p, Tensor latents, Tensor velocity) {
    Flux *f = (Flux *)m;
    model_enter(x, &m->part[DIT_PART]);
    TRY(dit_flux_velocity(&f->dit, x, &f->prompt[0], latents, velocity));
    if (!run->cfg) return OK;
    size_t mark = arena_mark(x->work);
    Tensor negative = exec_new(x, velocity.shape[0], velocity.shape[1]);
    TRY(dit_flux_velocity(&f->dit, x, &f->prompt[1], latents, negative));
    TRY(op_cfg_combine(x, &(CfgCombine){.y = velocity, .pos = velocity, .neg = negative, .scale = p->cfg_scale}));
    arena_reset(x->work, mark);
    return OK;
}

static Status flux_advance(Model *m, Exec *x, const StepParams *p, Tensor latents, Tensor velocity) {
    model_enter(x, &m->part[DIT_PART]);
    return op_euler_step(x, &(EulerStep){.y = latents, .x = latents, .v = velocity, .dt = p->dt});
}

static Status flux_decode(Model *m, Exec *x, const Run *run, Tensor latents, Tensor rgb) {
    Flux *f = (Flux *)m;
    size_t mark = arena_mark(x->work);
    int64_t h = 2 * image_rows(f, run->job), w = 2 * image_cols(f, run->job);
    model_enter(x, &m->part[VAE_PART]);
    Tensor z = exec_new(x, h, w, f->vae.c.latent), picture = exec_new(x, rgb.shape[0], rgb.shape[1], 3);
    TRY(op_unpack(x, &(Unpack){.y = z, .x = latents}));
    TRY(op_affine(x, &(Affine){.y = z, .x = z, .mul = (float)(1.0 / f->vae.c.scaling), .add = (float)f->vae.c.shift}));
    TRY(vae_kl_decode(&f->vae, x, z, picture));
    TRY(exec_tap(x, "vae.picture", picture));
    TRY(exec_check_finite(x, picture, "vae: decoded picture"));
    TRY(op_to_rgb8(x, &(ToRgb8){.y = rgb, .x = picture}));
    arena_reset(x->work, mark);
    return OK;
}

const ModelOps MODEL_FLUX = {
    .pipeline_class = "FluxPipeline",
    .scheduler_class = "FlowMatchEulerDiscreteScheduler",
    .takes_image = true,
    .cfg_formula = "neg + scale (pos - neg)",
    .cfg_off = "off (needs a scale above 1 and a negative prompt)",
    .open = flux_open, .close = flux_close, .title = flux_title, .resolve = flux_resolve, .tokenize = flux_tokenize,
    .schedule = flux_schedule, .encode = flux_encode,
    .texts = flux_texts, .noise = flux_noise, .begin = flux_begin, .params = flux_params,
    .velocity = flux_velocity, .advance = flux_advance, .decode = flux_decode,
};
