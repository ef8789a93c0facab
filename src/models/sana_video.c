/* sana_video.c - SANA-Video as a Model: Gemma-2, the transformer, Wan's autoencoder (480p) or LTX-2's (720p), and what diffusers'
 * SanaVideoPipeline and SanaImageToVideoPipeline do between them.
 *
 * Not here: the transformer (dit_sana_video.c), the prompts (sana_text.c), the autoencoders (sana_vae.h), the solver
 * (sched_dpm.c). Easy to get wrong:
 * latents are F32 in every run; the transformer sees integer timesteps; guidance is on above 1 and its negative prompt, empty
 * when none is given, has no instruction; an image is the first frame of the clip, given at time 0: the solver leaves it alone,
 * and all steps run. */
#include "model.h"

#include "core/file.h"
#include "media/resize.h"
#include "models/dit_sana_video.h"
#include "models/img2img.h"
#include "models/sana_text.h"
#include "models/sana_vae.h"
#include "rng.h"
#include "sched_dpm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TE_PART, DIT_PART, VAE_PART, ENCODER_PART };

typedef struct SanaVideo {
    Model base;
    bool euler; /* the scheduler is FlowMatchEulerDiscreteScheduler */
    SchedConfig sched;
    DpmConfig dpm;
    Gemma te;
    SanaVideoDit dit;
    SanaVae vae;
    Tokenizer *tok;
    /* of the job in hand */
    SanaVideoPrompt prompt[2]; /* positive, negative */
    SanaVideoGrid grid;
    Tensor first;    /* [1,h,w,C]: latents of the image */
    Tensor previous; /* F32, like the latents: the solver's last data prediction */
    int64_t given;   /* frames that the image gives: 0 or 1 */
} SanaVideo;

static const char *const IGNORE_DECODER[] = {"encoder.", "quant_conv.", NULL};
static const char *const IGNORE_ENCODER[] = {"decoder.", "post_quant_conv.", NULL};

static void sana_video_close(Model *m) {
    SanaVideo *z = (SanaVideo *)m;
    if (!z) return;
    model_close_parts(m);
    te_gemma_close(&z->te);
    dit_sana_video_close(&z->dit);
    tok_close(z->tok);
    free(z);
}

static Status read_scheduler(const char *path, const Json *j, void *out, Error *e) {
    SanaVideo *z = out;
    const char *name = NULL;
    TRY(json_string(j, "_class_name", &name, path, e));
    z->euler = name && !strcmp(name, "FlowMatchEulerDiscreteScheduler");
    return z->euler ? sched_config_parse(j, path, &z->sched, e) : sched_dpm_config_parse(j, path, &z->dpm, e);
}

static Status open_parts(SanaVideo *z, const char *folder, const Json *index, Error *e) {
    Model *m = &z->base;
    char path[4096];
    snprintf(path, sizeof path, "%s/text_encoder", folder);
    TRY(te_gemma2_open(path, &z->te, e));
    TRY(model_open_part(m, folder, "text_encoder", NULL, e));
    snprintf(path, sizeof path, "%s/transformer", folder);
    TRY(dit_sana_video_open(path, &z->dit, e));
    TRY(model_open_part(m, folder, "transformer", NULL, e));
    TRY(sana_vae_open(folder, index, &z->vae, e));
    TRY(model_open_part(m, folder, "vae", IGNORE_DECODER, e));
    TRY(model_open_part(m, folder, "vae", IGNORE_ENCODER, e));
    m->part[ENCODER_PART].name = "vae_encoder";
    m->part[ENCODER_PART].encodes_image = true;
    m->part[VAE_PART].decodes = true;
    m->part[DIT_PART].repeats = true;
    if (!z->vae.ltx2) m->part[VAE_PART].dtype = m->part[ENCODER_PART].dtype = F32; /* as the documented pipelines load them */
    te_gemma2_bind(&z->te, m->part[TE_PART].files, &m->part[TE_PART].bind);
    dit_sana_video_bind(&z->dit, &m->part[DIT_PART].bind);
    sana_vae_bind(&z->vae, &m->part[VAE_PART].bind);
    sana_vae_encode_bind(&z->vae, &m->part[ENCODER_PART].bind);
    return OK;
}

static Status open_all(SanaVideo *z, const char *folder, const Json *index, Error *e) {
    static const ModelClass CLASSES[] = {
        {"scheduler", "DPMSolverMultistepScheduler", "FlowMatchEulerDiscreteScheduler"},
        {"text_encoder", "Gemma2Model", "Gemma2ForCausalLM"},
        {"tokenizer", "GemmaTokenizerFast", "GemmaTokenizer"},
        {"transformer", "SanaVideoTransformer3DModel", NULL},
    };
    char path[4096];
    TRY(model_check_classes(folder, index, CLASSES, sizeof CLASSES / sizeof *CLASSES, e));
    snprintf(path, sizeof path, "%s/scheduler", folder);
    TRY(json_read_in(path, "scheduler_config.json", read_scheduler, z, e));
    TRY(open_parts(z, folder, index, e));
    const ModelFit fits[] = {
        {"transformer caption_channels / text_encoder hidden_size", z->dit.c.text_dim, z->te.c.hidden},
        {"transformer in_channels / vae latent channels", z->dit.c.channels, sana_vae_latent(&z->vae)},
    };
    TRY(model_check_fits(folder, fits, sizeof fits / sizeof *fits, e));
    snprintf(path, sizeof path, "%s/tokenizer", folder);
    return tok_open(path, &z->tok, e);
}

static Status sana_video_open(const char *folder, const Json *index, DType dtype, Model **out, Error *e) {
    SanaVideo *z = calloc(1, sizeof *z);
    if (!z) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    z->base.ops = &MODEL_SANA_VIDEO;
    z->base.dtype = dtype;
    Status s = open_all(z, folder, index, e);
    if (s == OK) *out = &z->base;
    else sana_video_close(&z->base);
    return s;
}

static const char *sana_video_title(const Model *m) {
    (void)m;
    return "SANA-Video";
}

static const char *sana_video_sampler(const Model *m) {
    const SanaVideo *z = (const SanaVideo *)m;
    return z->euler ? "Euler" : z->dpm.order == 2 ? "DPM++ 2M" : "DPM++";
}

/* --- the job --- */

enum { FRAMES = 81 }; /* the pipelines' default, of both autoencoders */

static void sana_video_clip(const Model *m, ClipRule *out) {
    const SanaVideo *z = (const SanaVideo *)m;
    int each = (int)sana_vae_frames_each(&z->vae), most = (int)(1 + each * (z->dit.c.positions - 1));
    int frames = (FRAMES - 1) / each * each + 1;
    *out = (ClipRule){.step = each, .frames = frames < most ? frames : most, .most = most, .fps = {16, 1}};
}

/* The pipeline's own default, or as much of it as the model has positions for, in the pipeline's steps of 32. */
static int default_side(const SanaVideo *z, int64_t grid, int side) {
    int64_t most = grid * z->dit.c.positions;
    return most >= side ? side : most >= 32 ? (int)(most / 32 * 32) : (int)most;
}

/* diffusers' ASPECT_RATIO_480_BIN and ASPECT_RATIO_720_BIN: the trained shapes, height / width. */
static void bin_size(bool large, Job *job) {
    static const struct { double shape; int size[2][2]; } BINS[] = {
        {0.5, {{448, 896}, {672, 1344}}},  {0.57, {{480, 832}, {704, 1280}}}, {0.68, {{528, 768}, {800, 1152}}},
        {0.78, {{560, 720}, {832, 1088}}}, {1.0, {{624, 624}, {960, 960}}},   {1.13, {{672, 592}, {1024, 896}}},
        {1.29, {{720, 560}, {1088, 832}}}, {1.46, {{768, 528}, {1152, 800}}}, {1.67, {{816, 496}, {1248, 736}}},
        {1.75, {{832, 480}, {1280, 704}}}, {2.0, {{896, 448}, {1344, 672}}},
    };
    double shape = (double)job->height / job->width;
    size_t best = 0;
    for (size_t i = 1; i < sizeof BINS / sizeof *BINS; i++)
        if (fabs(BINS[i].shape - shape) < fabs(BINS[best].shape - shape)) best = i;
    job->made_height = BINS[best].size[large][0], job->made_width = BINS[best].size[large][1];
}

enum { BIN_GRID = 16 };

static Status resolve_size(const SanaVideo *z, Job *job, Error *e) {
    int64_t scale = sana_vae_scale(&z->vae), grid = scale * z->dit.c.patch, least = scale * sana_vae_least(&z->vae);
    bool large = z->dit.c.sample == 22; /* the table of 720 lines */
    if (job->bin && !large && z->dit.c.sample != 30)
        return fail(e, ERR_USAGE, "--bin: there are no trained sizes of a sample_size of %lld, only of 30 and 22",
                    (long long)z->dit.c.sample);
    if (!job->width) job->width = default_side(z, grid, large ? 1280 : 832);
    if (!job->height) job->height = default_side(z, grid, large ? 704 : 480);
    job->made_width = job->width, job->made_height = job->height;
    if (job->bin) { /* the clip is cut to any size that a file takes */
        TRY(model_check_side("--width", job->width, BIN_GRID, BIN_GRID, 0, e));
        TRY(model_check_side("--height", job->height, BIN_GRID, BIN_GRID, 0, e));
        bin_size(large, job);
    }
    if (least < grid) least = grid;
    TRY(model_check_side("--width", job->made_width, grid, least, grid * z->dit.c.positions, e));
    return model_check_side("--height", job->made_height, grid, least, grid * z->dit.c.positions, e);
}

static Status sana_video_resolve(const Model *m, Job *job, Error *e) {
    const SanaVideo *z = (const SanaVideo *)m;
    if (job->layout && strcmp(job->layout, "rows") && strcmp(job->layout, "reference"))
        return fail(e, ERR_USAGE, "--layout: found \"%s\", expected rows or reference", job->layout);
    TRY(resolve_size(z, job, e));
    if (!job->steps) job->steps = 50;
    if (job->guidance_given)
        return fail(e, ERR_USAGE, "--guidance: %s has no guidance embedding; use --cfg-scale", sana_video_title(m));
    job->guidance = 0;
    if (job->guidance_scale_given) job->cfg_scale = job->guidance_scale;
    else if (!job->cfg_scale_given) job->cfg_scale = 6;
    if (job->cfg_normalization > 0 || job->cfg_truncation_given)
        return fail(e, ERR_USAGE, "--cfg-normalization, --cfg-truncation: they belong to Z-Image");
    job->cfg_truncation = 1;
    job->cfg = job->cfg_scale > 1;
    if (job->cfg && !job->negative_prompt) job->negative_prompt = "";
    if (!job->max_sequence_length) job->max_sequence_length = SANA_TEXT_LENGTH;
    if (job->max_sequence_length < 2 || job->max_sequence_length > 4096)
        return fail(e, ERR_USAGE, "--max-sequence-length %d: expected 2 to 4096", job->max_sequence_length);
    return OK;
}

static Status tokenize(const Model *m, const char *text, bool instruct, const Job *job, Tokens *out, Error *e) {
    const SanaVideo *z = (const SanaVideo *)m;
    *out = (Tokens){.rows = 1};
    Status s = sana_text_tokenize(z->tok, text, instruct, job->max_sequence_length, z->te.c.vocab, &out->row[0], e);
    if (s != OK) *out = (Tokens){0};
    return s;
}

static Status sana_video_tokenize(const Model *m, const char *text, const Job *job, Tokens *out, Error *e) {
    char *scored = NULL;
    if (job->motion_score) TRY(sana_text_motion(text, job->motion_score, &scored, e));
    Status s = tokenize(m, scored ? scored : text, true, job, out, e);
    int64_t size = (int64_t)strlen(text);
    if (s == OK && out->row[0].lost_byte > size) out->row[0].lost_byte = size; /* the score alone was cut */
    free(scored);
    return s;
}

static Status sana_video_tokenize_negative(const Model *m, const char *text, const Job *job, Tokens *out, Error *e) {
    return tokenize(m, text, false, job, out, e);
}

static Status sana_video_schedule(const Model *m, const Job *job, Schedule *out, Error *e) {
    const SanaVideo *z = (const SanaVideo *)m;
    return z->euler ? sched_make(&z->sched, job->steps, NULL, 0, out, e) : sched_dpm_make(&z->dpm, job->steps, out, e);
}

static int64_t latent_frames(const SanaVideo *z, const Job *job) {
    return (job->frames - 1) / sana_vae_frames_each(&z->vae) + 1;
}

static SanaVideoGrid grid_of(const SanaVideo *z, const Job *job) {
    int64_t side = sana_vae_scale(&z->vae) * z->dit.c.patch;
    bool turned = job->layout && !strcmp(job->layout, "reference");
    return (SanaVideoGrid){.turned = turned, .frames = latent_frames(z, job), .rows = job->made_height / side,
                           .cols = job->made_width / side};
}

/* --- stages on the device --- */

/* Rows behind the first `real` of y repeat those: finite, and masked wherever they are read. */
static Status pad(Exec *x, Tensor y, int64_t real) {
    for (int64_t have = real, n; have < y.shape[0]; have += n) {
        n = have < y.shape[0] - have ? have : y.shape[0] - have;
        TRY(op_copy(x, &(Copy){.y = tensor_slice(y, 0, have, n), .x = tensor_slice(y, 0, 0, n)}));
    }
    return OK;
}

/* The stage is the rows of real tokens: those of padding are not the reference's, and nothing reads them. */
static Status encode_one(SanaVideo *z, Exec *x, const Run *run, int which, Tensor y) {
    const char *name = which ? "negative_prompt_embeds" : "prompt_embeds";
    const TokenRow *row = &run->tokens[which].row[0];
    size_t mark = arena_mark(x->work), size = strlen(run->text[which]) + 80;
    bool done = stages_injected(run->stages, name) && !x->dry;
    char *key = malloc(size);
    if (!key) return fail(x->error, ERR_MEMORY, "text_encoder: out of memory");
    model_enter(x, &z->base.part[TE_PART]);
    snprintf(key, size, "gemma2 %d %lld %lld %d %d %s", which, (long long)row->count, (long long)y.shape[0], (int)z->base.dtype,
             which ? 0 : run->job->motion_score, run->text[which]);
    Status s = done ? OK : memo_get(run->memo, x, key, y, &done);
    if (s == OK && !done) {
        s = sana_text_encode(&z->te, x, row, y.shape[0], y);
        if (s == OK) s = memo_put(run->memo, x, key, y);
    }
    free(key);
    TRY(s);
    arena_reset(x->work, mark);
    int64_t real = sana_text_real(row, y.shape[0]);
    TRY(stages_pass(run->stages, x, name, tensor_slice(y, 0, 0, real), 3, (const int64_t[]){1, real, y.shape[1]}));
    if (stages_injected(run->stages, name)) TRY(pad(x, y, real));
    char stage[64];
    snprintf(stage, sizeof stage, "text_encoder: %s", name);
    return exec_check_finite(x, y, stage);
}

static Status encode_texts(SanaVideo *z, Exec *x, const Run *run, Tensor embeds[2]) {
    int passes = run->cfg ? 2 : 1;
    const int64_t shape[] = {run->job->max_sequence_length, z->te.c.hidden};
    for (int i = 0; i < passes; i++) embeds[i] = exec_tensor(x, z->base.dtype, 2, shape);
    for (int i = 0; i < passes; i++) TRY(encode_one(z, x, run, i, embeds[i]));
    return OK;
}

/* All rows are always there, padding masked. */
static Status sana_video_texts(Model *m, Exec *x, const Run *run, int64_t *rows) {
    size_t mark = arena_mark(x->work);
    Tensor embeds[2];
    TRY(encode_texts((SanaVideo *)m, x, run, embeds));
    arena_reset(x->work, mark);
    *rows = run->job->max_sequence_length << 1 | run->cfg;
    return OK;
}

/* The image's latents, in z->first. */
static Status encode_image(SanaVideo *z, Exec *x, const Run *run) {
    size_t mark = arena_mark(x->work);
    model_enter(x, &z->base.part[ENCODER_PART]);
    Tensor picture = exec_new(x, 1, run->job->made_height, run->job->made_width, 3);
    TRY(img2img_picture(x, run->image, picture));
    TRY(sana_vae_encode(&z->vae, x, picture, z->first));
    arena_reset(x->work, mark);
    return exec_check_finite(x, z->first, "vae: latents of the image");
}

static Status sana_video_encode(Model *m, Exec *x, const Run *run) {
    SanaVideo *z = (SanaVideo *)m;
    int passes = run->cfg ? 2 : 1;
    int64_t scale = sana_vae_scale(&z->vae), h = run->job->made_height / scale, w = run->job->made_width / scale;
    Tensor embeds[2];
    z->grid = grid_of(z, run->job);
    model_enter(x, &m->part[DIT_PART]);
    for (int i = 0; i < passes; i++) dit_sana_video_prompt_room(&z->dit, x, run->job->max_sequence_length, &z->prompt[i]);
    TRY(dit_sana_video_rope(&z->dit, x, &z->grid));
    if (run->image)
        z->first = exec_tensor(x, m->part[ENCODER_PART].dtype, 4, (int64_t[]){1, h, w, sana_vae_latent(&z->vae)});
    size_t mark = arena_mark(x->work);
    TRY(encode_texts(z, x, run, embeds));
    if (run->image) TRY(encode_image(z, x, run));
    model_enter(x, &m->part[DIT_PART]);
    for (int i = 0; i < passes; i++) {
        int64_t real = sana_text_real(&run->tokens[i].row[0], run->job->max_sequence_length);
        TRY(dit_sana_video_prompt(&z->dit, x, embeds[i], real, &z->prompt[i]));
    }
    arena_reset(x->work, mark);
    return OK;
}

/* Frames from `first` on, of latents [C,F,h,w]. */
static Tensor frames_from(Tensor t, int64_t first) { return tensor_slice(t, 1, first, t.shape[1] - first); }

/* [C,F,h,w] seen as [F,h,w,C]. */
static Tensor frames_last(Tensor t) {
    Tensor out = t;
    for (int d = 0; d < 4; d++) out.shape[d] = t.shape[(d + 1) % 4], out.stride[d] = t.stride[(d + 1) % 4];
    return out;
}

static Status draw(Exec *x, const Run *run, Tensor latents, const int64_t *shape) {
    if (x->dry) return OK;
    float *host = malloc(tensor_bytes(latents));
    if (!host) return fail(x->error, ERR_MEMORY, "noise: out of memory");
    Rng rng;
    rng_seed(&rng, run->job->seed);
    rng_normal(&rng, F32, tensor_numel(latents), host);
    Status status = stages_host(run->stages, "noise", F32, 5, shape, host, x->error);
    if (status == OK) status = exec_upload(x, latents, host);
    free(host);
    return status;
}

static Status sana_video_noise(Model *m, Exec *x, const Run *run, Tensor *latents, int *rank, int64_t latent_shape[5]) {
    SanaVideo *z = (SanaVideo *)m;
    int64_t scale = sana_vae_scale(&z->vae), c = sana_vae_latent(&z->vae);
    int64_t h = run->job->made_height / scale, w = run->job->made_width / scale, f = latent_frames(z, run->job);
    const int64_t shape[5] = {1, c, f, h, w};
    model_enter(x, &m->part[DIT_PART]);
    *latents = exec_new_as(x, F32, c, f, h, w);
    if (!z->euler) z->previous = exec_new_as(x, F32, c, f, h, w);
    z->given = run->image != NULL;
    *rank = 5;
    memcpy(latent_shape, shape, sizeof shape);
    TRY(draw(x, run, *latents, shape));
    if (!run->image) return OK;
    return op_copy(x, &(Copy){.y = frames_last(tensor_slice(*latents, 1, 0, 1)), .x = z->first});
}

static void sana_video_params(const Model *m, const Run *run, int step, float params[STEP_PARAMS]) {
    const SanaVideo *z = (const SanaVideo *)m;
    params[STEP_T] = run->schedule->timesteps[step];
    params[STEP_GUIDANCE] = 0; /* the time of a given frame */
    params[STEP_CFG_SCALE] = (float)run->job->cfg_scale;
    if (z->euler) params[STEP_DT] = sched_dt(run->schedule, step, F32); /* the scheduler works on F32 latents */
    else sched_dpm_step(&z->dpm, run->schedule, step, params + STEP_DPM);
}

static Status sana_video_velocity(Model *m, Exec *x, const Run *run, const StepParams *p, Tensor latents, Tensor velocity) {
    SanaVideo *z = (SanaVideo *)m;
    size_t mark = arena_mark(x->work);
    SanaVideoTime time;
    model_enter(x, &m->part[DIT_PART]);
    dit_sana_video_time_room(&z->dit, x, z->given, &time);
    TRY(dit_sana_video_time(&z->dit, x, p->t, p->guidance, &time));
    TRY(dit_sana_video_run(&z->dit, x, &z->grid, &z->prompt[0], &time, latents, velocity));
    if (run->cfg) {
        Tensor negative = exec_tensor(x, F32, velocity.rank, velocity.shape);
        TRY(dit_sana_video_run(&z->dit, x, &z->grid, &z->prompt[1], &time, latents, negative));
        TRY(op_cfg_combine(x, &(CfgCombine){.y = velocity, .pos = velocity, .neg = negative, .scale = p->cfg_scale}));
    }
    arena_reset(x->work, mark);
    return OK;
}

static Status sana_video_advance(Model *m, Exec *x, const StepParams *p, Tensor latents, Tensor velocity) {
    SanaVideo *z = (SanaVideo *)m;
    if (z->given == latents.shape[1]) return OK; /* a clip of one given frame */
    Tensor moving = frames_from(latents, z->given), v = frames_from(velocity, z->given);
    model_enter(x, &m->part[DIT_PART]);
    if (z->euler) return op_euler_step(x, &(EulerStep){.y = moving, .x = moving, .v = v, .dt = p->dt});
    Tensor last = frames_from(z->previous, z->given);
    return op_dpm_step(x, &(DpmStep){.y = moving, .m = last, .x = moving, .v = v, .last = last, .k = p->dpm});
}

/* count numbers of a tensor's bytes as F32, in place: from the end, where what is written is behind what is read. */
static void widen_all(void *at, DType t, int64_t count) {
    char *bytes = at;
    for (int64_t i = t == BF16 ? count - 1 : -1; i >= 0; i--) {
        uint16_t half;
        memcpy(&half, bytes + 2 * i, sizeof half);
        float v = bf16_to_f32(half);
        memcpy(bytes + 4 * i, &v, sizeof v);
    }
}

static void narrow_all(void *at, DType t, int64_t count) {
    char *bytes = at;
    for (int64_t i = 0; t == BF16 && i < count; i++) {
        float v;
        memcpy(&v, bytes + 4 * i, sizeof v);
        uint16_t half = bf16_from_f32(v);
        memcpy(bytes + 2 * i, &half, sizeof half);
    }
}

/* One decoded frame [Y,X,3] to a picture of another size. buffers: on the host, what both hold in F32. */
static Status fit_frame(Exec *x, Tensor frame, Tensor fitted, float *const buffer[2], Tensor rgb) {
    TRY(exec_download(x, buffer[0], frame));
    widen_all(buffer[0], frame.dtype, tensor_numel(frame));
    for (int64_t i = 0; i < tensor_numel(frame); i++) buffer[0][i] = fminf(fmaxf(buffer[0][i], -1), 1); /* as the decoder ends */
    resize_cover(buffer[0], (int)frame.shape[1], (int)frame.shape[0], (int)fitted.shape[1], (int)fitted.shape[0], buffer[1]);
    narrow_all(buffer[1], fitted.dtype, tensor_numel(fitted));
    TRY(exec_upload(x, fitted, buffer[1]));
    return op_to_rgb8(x, &(ToRgb8){.y = rgb, .x = fitted});
}

/* Of a size that was binned: frames in the decoder's numbers, each scaled and cropped on the host. */
static Status decode_binned(SanaVideo *z, Exec *x, Tensor latents, int thrift, const Job *job, Tensor rgb) {
    size_t mark = arena_mark(x->work);
    int64_t y = job->made_height, w = job->made_width;
    Tensor frames = exec_new(x, rgb.shape[0], y, w, 3), fitted = exec_new(x, rgb.shape[1], rgb.shape[2], 3);
    TRY(sana_vae_decode(&z->vae, x, frames_last(latents), thrift, frames));
    TRY(exec_check_finite(x, frames, "vae: decoded frames"));
    float *buffer[2] = {NULL, NULL};
    if (!x->dry) buffer[0] = malloc((size_t)(y * w * 3) * 4), buffer[1] = malloc((size_t)tensor_numel(fitted) * 4);
    Status s = x->dry || (buffer[0] && buffer[1]) ? OK : fail(x->error, ERR_MEMORY, "vae: out of memory for a frame");
    for (int64_t i = 0; s == OK && i < rgb.shape[0]; i++) {
        Tensor frame = tensor_view(tensor_slice(frames, 0, i, 1), y, w, 3);
        Tensor to = tensor_view(tensor_slice(rgb, 0, i, 1), rgb.shape[1], rgb.shape[2], 3);
        if (x->dry) s = op_to_rgb8(x, &(ToRgb8){.y = to, .x = fitted});
        else s = fit_frame(x, frame, fitted, buffer, to);
    }
    free(buffer[0]);
    free(buffer[1]);
    arena_reset(x->work, mark);
    return s;
}

static Status sana_video_decode(Model *m, Exec *x, const Run *run, Tensor latents, Tensor rgb) {
    SanaVideo *z = (SanaVideo *)m;
    const Job *job = run->job;
    model_enter(x, &m->part[VAE_PART]);
    if (job->made_width != job->width || job->made_height != job->height)
        return decode_binned(z, x, latents, run->thrift, job, rgb);
    return sana_vae_decode(&z->vae, x, frames_last(latents), run->thrift, rgb);
}

const ModelOps MODEL_SANA_VIDEO = {
    .pipeline_class = "SanaVideoPipeline",
    .scheduler_class = "DPMSolverMultistepScheduler",
    .cfg_formula = "neg + scale (pos - neg)",
    .cfg_off = "off (needs a scale above 1)",
    .takes_image = true,
    .image_is_frame = true,
    .own_vae_dtype = true,
    .bins = true,
    .thrifts = SANA_VAE_THRIFTS,
    .clip = sana_video_clip,
    .open = sana_video_open,
    .close = sana_video_close,
    .title = sana_video_title,
    .sampler = sana_video_sampler,
    .resolve = sana_video_resolve,
    .tokenize = sana_video_tokenize,
    .tokenize_negative = sana_video_tokenize_negative,
    .schedule = sana_video_schedule,
    .encode = sana_video_encode,
    .texts = sana_video_texts,
    .noise = sana_video_noise,
    .params = sana_video_params,
    .velocity = sana_video_velocity,
    .advance = sana_video_advance,
    .decode = sana_video_decode,
};
