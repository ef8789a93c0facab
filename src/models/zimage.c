/* zimage.c - Z-Image (Turbo and base) as a Model: Qwen3, the transformer, the KL VAE, and what diffusers' ZImagePipeline
 * does between them.
 *
 * Not here: the transformer itself (dit_zimage.c). Easy to get wrong: noise and latents are F32 in every run, unpacked; the
 * velocity is minus the transformer's output; guidance is pos + g (pos - neg), on above 0, and the negative prompt is
 * empty when none is given; prompts are cut to the real tokens, template included, and differ in length. */
#include "model.h"

#include "core/file.h"
#include "models/dit_zimage.h"
#include "models/img2img.h"
#include "rng.h"
#include "text/te_qwen3.h"
#include "text/tok.h"
#include "vae/vae_kl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TE_PART, DIT_PART, VAE_PART };

typedef struct Zimage {
    Model base;
    SchedConfig sched;
    Qwen3 te;
    ZimageDit dit;
    VaeKl vae;
    VaeKlEncoder encoder; /* for jobs that begin from an image */
    Tokenizer *tok;
    char last_layer[2][64];     /* the encoder's layer that never runs, with and without "model." */
    const char *ignore_te[6];
    ZimagePrompt prompt;        /* of the job in hand: with guidance positive and negative together */
    ZimagePrompt alone;         /* the positive one, when some steps run without the guidance that others have */
    bool apart;                 /* there are such steps */
    Tensor start;               /* [C,h,w], noised image of the job in hand */
} Zimage;

static const char *const IGNORE_VAE[] = {"encoder.", "quant_conv.", "post_quant_conv.", NULL};

/* The chat template of the tokenizer, for one message of a user and a reply to come. */
static const char BEFORE[] = "<|im_start|>user\n", AFTER[] = "<|im_end|>\n<|im_start|>assistant\n";

static void zimage_close(Model *m) {
    Zimage *z = (Zimage *)m;
    if (!z) return;
    model_close_parts(m);
    te_qwen3_close(&z->te);
    dit_zimage_close(&z->dit);
    tok_close(z->tok);
    free(z);
}

static Status open_parts(Zimage *z, const char *folder, Error *e) {
    static const char *const NAMES[] = {[TE_PART] = "text_encoder", [DIT_PART] = "transformer", [VAE_PART] = "vae"};
    Model *m = &z->base;
    char path[4096];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, NAMES[i]);
        TRY(i == TE_PART    ? te_qwen3_open(path, &z->te, e)
            : i == DIT_PART ? dit_zimage_open(path, &z->dit, e)
                            : vae_kl_open(path, &z->vae, e));
        TRY(model_open_part(m, folder, NAMES[i], i == TE_PART ? z->ignore_te : i == VAE_PART ? IGNORE_VAE : NULL, e));
    }
    int unused = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(z->last_layer[i], sizeof z->last_layer[i], "%slayers.%lld.", i ? "model." : "", (long long)z->te.run);
        z->ignore_te[unused++] = z->last_layer[i];
    }
    z->ignore_te[unused++] = "norm.", z->ignore_te[unused++] = "model.norm.", z->ignore_te[unused++] = "lm_head.";
    te_qwen3_bind(&z->te, m->part[TE_PART].files, &m->part[TE_PART].bind);
    dit_zimage_bind(&z->dit, m->part[DIT_PART].files, &m->part[DIT_PART].bind);
    vae_kl_bind(&z->vae, &m->part[VAE_PART].bind);
    m->part[DIT_PART].repeats = true;
    m->part[VAE_PART].decodes = true;
    return img2img_open(m, folder, &z->vae, &z->encoder, e);
}

static Status open_all(Zimage *z, const char *folder, Error *e) {
    char path[4096];
    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", folder);
    TRY(sched_config_read(path, &z->sched, e));
    TRY(open_parts(z, folder, e));
    const ModelFit fits[] = {
        {"transformer cap_feat_dim / text_encoder hidden_size", z->dit.c.text_dim, z->te.c.hidden},
        {"transformer in_channels / vae latent_channels", z->dit.c.channels, z->vae.c.latent},
    };
    TRY(model_check_fits(folder, fits, sizeof fits / sizeof *fits, e));
    snprintf(path, sizeof path, "%s/tokenizer", folder);
    TRY(tok_open(path, &z->tok, e));
    TRY(tok_expect_right(z->tok, path, e));
    return tok_expect_qwen3_chat(path, e);
}

static Status zimage_open(const char *folder, const Json *index, DType dtype, Model **out, Error *e) {
    (void)index;
    Zimage *z = calloc(1, sizeof *z);
    if (!z) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    z->base.ops = &MODEL_ZIMAGE;
    z->base.dtype = dtype;
    Status s = open_all(z, folder, e);
    if (s == OK) *out = &z->base;
    else zimage_close(&z->base);
    return s;
}

/* The distilled model is published with shift 3, the base model with shift 6; nothing else in the configs differs. */
static bool distilled(const Zimage *z) { return z->sched.shift < 4.5; }

static const char *zimage_title(const Model *m) { return distilled((const Zimage *)m) ? "Z-Image-Turbo" : "Z-Image"; }

/* --- the job --- */

static Status resolve_guidance(const Zimage *z, Job *job, Error *e) {
    if (job->guidance_given)
        return fail(e, ERR_USAGE, "--guidance: %s has no guidance embedding; use --cfg-scale", zimage_title(&z->base));
    job->guidance = 0;
    if (job->guidance_scale_given) job->cfg_scale = job->guidance_scale;
    else if (!job->cfg_scale_given) job->cfg_scale = distilled(z) ? 0 : 5; /* ZImagePipeline's default */
    job->cfg = job->cfg_scale > 0;
    if (job->cfg && !job->negative_prompt) job->negative_prompt = "";
    if (!job->cfg_truncation_given) job->cfg_truncation = 1;
    return OK;
}

static Status zimage_resolve(const Model *m, Job *job, Error *e) {
    const Zimage *z = (const Zimage *)m;
    int64_t scale = vae_kl_scale(&z->vae), grid = 2 * scale;
    /* ZImagePipeline: 1024; ZImageImg2ImgPipeline: the image's own size, down to what the model can draw */
    if (!job->width) job->width = job->image ? (int)(job->image_width / grid * grid) : (int)(128 * scale);
    if (!job->height) job->height = job->image ? (int)(job->image_height / grid * grid) : (int)(128 * scale);
    if (!job->width || !job->height)
        return fail(e, ERR_USAGE, "--image %s: %d x %d pixels: without --width and --height at least %d are needed",
                    job->image, job->image_width, job->image_height, (int)grid);
    TRY(model_check_side("--width", job->width, grid, grid, grid * z->dit.c.lens[2], e));
    TRY(model_check_side("--height", job->height, grid, grid, grid * z->dit.c.lens[1], e));
    if (!job->steps) job->steps = distilled(z) ? 8 : 50;
    TRY(resolve_guidance(z, job, e));
    if (!job->max_sequence_length) job->max_sequence_length = 512;
    int64_t most = (z->dit.c.lens[0] - 2) / 32 * 32; /* the image stands after the padded caption */
    if (z->te.c.positions < most) most = z->te.c.positions;
    if (job->max_sequence_length < 1 || job->max_sequence_length > most)
        return fail(e, ERR_USAGE, "--max-sequence-length %d: expected 1 to %lld", job->max_sequence_length,
                    (long long)most);
    return OK;
}

static Status zimage_tokenize(const Model *m, const char *text, const Job *job, Tokens *out, Error *e) {
    const Zimage *z = (const Zimage *)m;
    size_t before = sizeof BEFORE - 1, size = strlen(text), all = before + size + sizeof AFTER - 1;
    int64_t count = job->max_sequence_length, lost = -1;
    *out = (Tokens){.rows = 1, .row[0] = {.encoder = "1", .count = count, .lost_byte = -1}};
    TokenRow *row = &out->row[0];
    char *message = malloc(all + 1);
    Status s = message ? OK : fail(e, ERR_MEMORY, "out of memory for %lld tokens", (long long)count);
    if (s == OK) {
        snprintf(message, all + 1, "%s%s%s", BEFORE, text, AFTER);
        s = model_row_encode(z->tok, message, all, row, &lost, e);
    }
    if (s == OK && lost >= 0) { /* in the user's own text; its end when only the template's was cut */
        row->lost_byte = lost - (int64_t)before;
        if (row->lost_byte < 0) row->lost_byte = 0;
        if (row->lost_byte > (int64_t)size) row->lost_byte = (int64_t)size;
    }
    if (s == OK) s = model_check_ids("tokenizer", row->ids, count, z->te.c.vocab, e);
    free(message);
    if (s != OK) model_tokens_free(out);
    return s;
}

static int64_t image_rows(const Zimage *z, const Job *job) { return job->height / (2 * vae_kl_scale(&z->vae)); }
static int64_t image_cols(const Zimage *z, const Job *job) { return job->width / (2 * vae_kl_scale(&z->vae)); }

static Status zimage_schedule(const Model *m, const Job *job, Schedule *out, Error *e) {
    const Zimage *z = (const Zimage *)m;
    return sched_zimage(&z->sched, job->steps, image_rows(z, job) * image_cols(z, job), out, e);
}

/* --- stages on the device --- */

/* Rows that the encoder sees: the ones before the padding, by the mask (which may have been injected). */
static int64_t real_tokens(const TokenRow *row) {
    int64_t n = 0;
    while (n < row->count && row->mask[n]) n++;
    return n ? n : 1;
}

static Status encode_one(Zimage *z, Exec *x, const Run *run, int which, Tensor y) {
    const char *name = which ? "negative_prompt_embeds" : "prompt_embeds";
    const TokenRow *row = &run->tokens[which].row[0];
    size_t mark = arena_mark(x->work), size = strlen(run->text[which]) + 64;
    bool done = stages_injected(run->stages, name) && !x->dry;
    char *key = malloc(size);
    if (!key) return fail(x->error, ERR_MEMORY, "text_encoder: out of memory");
    model_enter(x, &z->base.part[TE_PART]);
    snprintf(key, size, "qwen3 %lld %lld %d %x %s", (long long)row->count, (long long)y.shape[0], (int)z->base.dtype,
             model_bounded(run->families), run->text[which]);
    Status s = done ? OK : memo_get(run->memo, x, key, y, &done);
    if (s == OK && !done) {
        Tensor ids = exec_new_as(x, I32, x->ops->row_bits ? row->count : y.shape[0]);
        s = exec_upload(x, ids, row->ids);
        if (s == OK) s = te_qwen3_encode(&z->te, x, ids, y);
        if (s == OK) s = memo_put(run->memo, x, key, y);
    }
    free(key);
    TRY(s);
    arena_reset(x->work, mark);
    TRY(stages_pass(run->stages, x, name, y, 3, (const int64_t[]){1, y.shape[0], y.shape[1]}));
    char stage[64];
    snprintf(stage, sizeof stage, "text_encoder: %s", name);
    return exec_check_finite(x, y, stage);
}

/* All texts (and the image) before the transformer: it may push the encoder out. */
static Status encode_texts(Zimage *z, Exec *x, const Run *run, const int64_t n[2], Tensor embeds[2]) {
    int passes = run->cfg ? 2 : 1;
    for (int i = 0; i < passes; i++) embeds[i] = exec_tensor(x, z->base.dtype, 2, (int64_t[]){n[i], z->te.c.hidden});
    for (int i = 0; i < passes; i++) TRY(encode_one(z, x, run, i, embeds[i]));
    return OK;
}

static Status zimage_texts(Model *m, Exec *x, const Run *run, int64_t *rows) {
    size_t mark = arena_mark(x->work);
    int64_t n[2] = {real_tokens(&run->tokens[0].row[0]), run->cfg ? real_tokens(&run->tokens[1].row[0]) : 0};
    Tensor embeds[2];
    TRY(encode_texts((Zimage *)m, x, run, n, embeds));
    arena_reset(x->work, mark);
    *rows = dit_zimage_padded(n[0]) << 20 | (n[1] ? dit_zimage_padded(n[1]) : 0);
    return OK;
}

/* time = (1000 - timestep) / 1000 as the pipeline computes it on its device: torch divides a CUDA tensor by multiplying
 * with fl32(1/1000), and bf16 runs mean the reference profile; f32 runs mean the CPU's division (sched.h). */
static float time_of(const Schedule *s, int step, DType dtype) {
    float left = 1000.0f - s->timesteps[step];
    return dtype == F32 ? left / 1000.0f : left * (1.0f / 1000.0f);
}

/* Guidance of this step: with cfg_truncation it ends when the time has passed it. */
static bool guided(const Run *run, int step, DType dtype) {
    return run->cfg &&
           !(run->job->cfg_truncation <= 1 && (double)time_of(run->schedule, step, dtype) > run->job->cfg_truncation);
}

static Status zimage_encode(Model *m, Exec *x, const Run *run) {
    Zimage *z = (Zimage *)m;
    int passes = run->cfg ? 2 : 1;
    int64_t n[2], rows = image_rows(z, run->job), cols = image_cols(z, run->job);
    Tensor embeds[2];
    for (int i = 0; i < passes; i++) n[i] = real_tokens(&run->tokens[i].row[0]);
    z->apart = false;
    for (int i = run->job->first_step; run->cfg && i < run->job->steps; i++) z->apart |= !guided(run, i, m->dtype);
    model_enter(x, &m->part[DIT_PART]);
    TRY(dit_zimage_layout(&z->dit, x, n, passes, rows, cols, &z->prompt));
    if (z->apart) TRY(dit_zimage_layout(&z->dit, x, n, 1, rows, cols, &z->alone));
    if (run->image) TRY(img2img_begin(m, &z->encoder, x, run, &z->start));
    size_t mark = arena_mark(x->work);
    TRY(encode_texts(z, x, run, n, embeds));
    model_enter(x, &m->part[DIT_PART]);
    TRY(dit_zimage_prompt(&z->dit, x, embeds, &z->prompt));
    if (z->apart) TRY(dit_zimage_prompt(&z->dit, x, embeds, &z->alone));
    arena_reset(x->work, mark);
    return OK;
}

static Status zimage_noise(Model *m, Exec *x, const Run *run, Tensor *latents, int *rank, int64_t latent_shape[5]) {
    Zimage *z = (Zimage *)m;
    int64_t h = 2 * image_rows(z, run->job), w = 2 * image_cols(z, run->job), c = z->vae.c.latent;
    model_enter(x, &m->part[DIT_PART]);
    *latents = exec_new_as(x, F32, c, h, w);
    *rank = 4;
    latent_shape[0] = 1, latent_shape[1] = c, latent_shape[2] = h, latent_shape[3] = w;
    if (run->image) return op_copy(x, &(Copy){.y = *latents, .x = z->start}); /* the embeddings' dtype up to here */
    if (x->dry) return OK;
    float *host = malloc(tensor_bytes(*latents));
    if (!host) return fail(x->error, ERR_MEMORY, "noise: out of memory");
    Rng rng;
    rng_seed(&rng, run->job->seed);
    rng_normal(&rng, F32, tensor_numel(*latents), host);
    Status status = stages_host(run->stages, "noise", F32, 4, latent_shape, host, x->error);
    if (status == OK) status = exec_upload(x, *latents, host);
    free(host);
    return status;
}

static void zimage_params(const Model *m, const Run *run, int step, float params[STEP_PARAMS]) {
    const Zimage *z = (const Zimage *)m;
    params[STEP_T] = time_of(run->schedule, step, m->dtype) * (float)z->dit.c.t_scale;
    params[STEP_GUIDANCE] = 0;
    params[STEP_DT] = sched_dt(run->schedule, step, F32); /* the scheduler works on F32 latents */
    params[STEP_CFG_SCALE] = (float)run->job->cfg_scale;
}

/* Dry, both kinds of step that the job will take. */
static Status zimage_velocity(Model *m, Exec *x, const Run *run, const StepParams *p, Tensor latents, Tensor velocity) {
    Zimage *z = (Zimage *)m;
    model_enter(x, &m->part[DIT_PART]);
    size_t mark = arena_mark(x->work);
    bool both = x->dry ? run->cfg : guided(run, p->step, m->dtype);
    if (!both || (x->dry && z->apart)) {
        TRY(dit_zimage_run(&z->dit, x, run->cfg ? &z->alone : &z->prompt, latents, p->t, velocity));
        TRY(op_negate(x, &(Negate){.y = velocity, .x = velocity}));
    }
    if (!both) return OK;
    Tensor out = exec_new_as(x, F32, 2, velocity.shape[0], velocity.shape[1], velocity.shape[2]), item[2];
    for (int i = 0; i < 2; i++)
        item[i] = tensor_make((char *)out.data + (size_t)i * tensor_bytes(velocity), F32, 3, velocity.shape);
    TRY(dit_zimage_run(&z->dit, x, &z->prompt, latents, p->t, out));
    TRY(op_cfg_extrapolate(x, &(CfgCombine){.y = velocity, .pos = item[0], .neg = item[1], .scale = p->cfg_scale}));
    if (run->job->cfg_normalization > 0)
        TRY(op_norm_limit(x, &(NormLimit){.y = velocity, .x = velocity, .like = item[0],
                                          .limit = (float)run->job->cfg_normalization}));
    TRY(op_negate(x, &(Negate){.y = velocity, .x = velocity}));
    arena_reset(x->work, mark);
    return OK;
}

static Status zimage_advance(Model *m, Exec *x, const StepParams *p, Tensor latents, Tensor velocity) {
    model_enter(x, &m->part[DIT_PART]);
    return op_euler_step(x, &(EulerStep){.y = latents, .x = latents, .v = velocity, .dt = p->dt});
}

static Status zimage_decode(Model *m, Exec *x, const Run *run, Tensor latents, Tensor rgb) {
    Zimage *z = (Zimage *)m;
    size_t mark = arena_mark(x->work);
    int64_t h = 2 * image_rows(z, run->job), w = 2 * image_cols(z, run->job);
    model_enter(x, &m->part[VAE_PART]);
    Tensor in = exec_new(x, h, w, z->vae.c.latent), picture = exec_new(x, rgb.shape[0], rgb.shape[1], 3);
    TRY(op_copy(x, &(Copy){.y = in, .x = tensor_channels_last(latents)}));
    TRY(op_affine(x, &(Affine){.y = in, .x = in, .mul = (float)(1.0 / z->vae.c.scaling), .add = (float)z->vae.c.shift}));
    TRY(vae_kl_decode(&z->vae, x, in, picture));
    TRY(exec_tap(x, "vae.picture", picture));
    TRY(exec_check_finite(x, picture, "vae: decoded picture"));
    TRY(op_to_rgb8(x, &(ToRgb8){.y = rgb, .x = picture}));
    arena_reset(x->work, mark);
    return OK;
}

const ModelOps MODEL_ZIMAGE = {
    .pipeline_class = "ZImagePipeline",
    .scheduler_class = "FlowMatchEulerDiscreteScheduler",
    .cfg_formula = "pos + scale (pos - neg)",
    .cfg_off = "off (needs a scale above 0)",
    .takes_image = true,
    .open = zimage_open, .close = zimage_close, .title = zimage_title, .resolve = zimage_resolve,
    .tokenize = zimage_tokenize, .schedule = zimage_schedule, .encode = zimage_encode,
    .texts = zimage_texts, .noise = zimage_noise,
    .params = zimage_params, .velocity = zimage_velocity, .advance = zimage_advance, .decode = zimage_decode,
};
