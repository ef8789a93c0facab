/* vae_ltx2_audio.c - see vae_ltx2_audio.h. A convolution leaves its bias to the norm that reads it, as elsewhere; two
 * buffers take turns between the resnets (vae_blocks.h).
 * Easy to get wrong: an upsampling that is padded with a row on each side has its surplus row at the end instead of the
 * beginning; the rows before it are those that diffusers keeps. */
#include "vae/vae_ltx2_audio.h"

#include "core/json.h"
#include "residency.h"
#include "vae/vae_blocks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const float EPS = 1e-6f; /* of LTX2AudioPixelNorm, as the blocks make it */
enum { SHRINKS = 4 };           /* diffusers' LATENT_DOWNSAMPLE_FACTOR, in time and in bands */

/* --- config --- */

static Status refuse_variants(const Json *j, const char *path, Error *e) {
    const char *norm = "pixel", *axis = "height";
    bool attention = false;
    TRY(json_string(j, "norm_type", &norm, path, e));
    TRY(json_string(j, "causality_axis", &axis, path, e));
    TRY(json_bool(j, "mid_block_add_attention", &attention, path, e));
    if (!json_is_null(json_get(j, "attn_resolutions"))) attention = true;
    if (!strcmp(norm, "pixel") && !strcmp(axis, "height") && !attention) return OK;
    return fail(e, ERR_MODEL,
                "%s: norm_type \"%s\", causality_axis \"%s\"%s: expected pixel and height, without attention", path,
                norm, axis, attention ? ", attention" : "");
}

static Status check_config(const VaeLtx2AudioConfig *c, const char *path, Error *e) {
    if (c->levels != 3 || c->resnets >= VAE_LTX2_AUDIO_MAX_RESNETS)
        return fail(e, ERR_MODEL, "%s: expected ch_mult of 3 levels (found %d) and num_res_blocks below %d", path,
                    c->levels, VAE_LTX2_AUDIO_MAX_RESNETS);
    for (int i = 0; i < c->levels; i++)
        if (c->mult[i] < 1 || c->mult[i] * c->base > 65536)
            return fail(e, ERR_MODEL, "%s: ch_mult %lld does not give 1 to 65536 channels", path,
                        (long long)c->mult[i]);
    if (c->mel % SHRINKS ||
        c->base != c->latent * (c->mel / SHRINKS)) /* the vectors of mean and std have base_channels values */
        return fail(e, ERR_MODEL, "%s: latent_channels %lld of mel_bins %lld / %d are not base_channels %lld", path,
                    (long long)c->latent, (long long)c->mel, (int)SHRINKS, (long long)c->base);
    return OK;
}

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    VaeLtx2AudioConfig *c = out;
    *c = (VaeLtx2AudioConfig){.base = 128,
                              .mult = {1, 2, 4},
                              .levels = 3,
                              .resnets = 2,
                              .latent = 8,
                              .out = 2,
                              .mel = 64,
                              .rate = 16000,
                              .hop = 160}; /* the class defaults, as published */
    const JsonSize sizes[] = {{"base_channels", &c->base},     {"num_res_blocks", &c->resnets},
                              {"latent_channels", &c->latent}, {"output_channels", &c->out},
                              {"mel_bins", &c->mel},           {"sample_rate", &c->rate},
                              {"mel_hop_length", &c->hop}};
    TRY(json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e));
    TRY(json_ints(j, "ch_mult", c->mult, VAE_LTX2_AUDIO_MAX_LEVELS, &c->levels, path, e));
    TRY(refuse_variants(j, path, e));
    return check_config(c, path, e);
}

Status vae_ltx2_audio_open(const char *folder, VaeLtx2Audio *out, Error *e) {
    return json_read_in(folder, "config.json", vae_ltx2_audio_read, out, e);
}

Status vae_ltx2_audio_read(const char *path, const Json *j, void *out, Error *e) {
    VaeLtx2Audio *v = out;
    *v = (VaeLtx2Audio){0};
    return read_config(path, j, &v->c, e);
}

int64_t vae_ltx2_audio_width(const VaeLtx2AudioConfig *c) { return c->latent * (c->mel / SHRINKS); }
int64_t vae_ltx2_audio_mel_rows(const VaeLtx2AudioConfig *c, int64_t rows) {
    (void)c;
    return SHRINKS * rows - (SHRINKS - 1);
}

int64_t vae_ltx2_audio_rows(const VaeLtx2AudioConfig *c, double seconds) {
    double a_second = (double)c->rate / (double)c->hop / (double)SHRINKS;
    return (int64_t)rint(seconds * a_second); /* halves to even, as Python's round() */
}

/* --- weights --- */

static void bind_causal(Bind *b, Weight *w, int64_t out, int64_t in, int64_t k, const char *name, const char *part) {
    bind_conv(b, w, out, in, k, "%s%s.conv", name, part);
}

static void bind_resnet(Bind *b, VaeLtx2AudioResnet *r, int64_t in, int64_t out, const char *name) {
    r->in = in, r->out = out;
    bind_causal(b, &r->conv1, out, in, 3, name, ".conv1");
    bind_causal(b, &r->conv2, out, out, 3, name, ".conv2");
    if (in != out) bind_causal(b, &r->shortcut, out, in, 1, name, ".nin_shortcut");
}

/* Channels out of level i, counted in the order of running: files count the other way. */
static int64_t level_out(const VaeLtx2AudioConfig *c, int i) { return c->base * c->mult[c->levels - 1 - i]; }

void vae_ltx2_audio_bind(VaeLtx2Audio *v, Bind *b) {
    const VaeLtx2AudioConfig *c = &v->c;
    char name[64];
    int64_t in = level_out(c, 0);
    bind_causal(b, &v->conv_in, in, c->latent, 3, "decoder.conv_in", "");
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "decoder.mid.block_%d", i + 1);
        bind_resnet(b, &v->mid[i], in, in, name);
    }
    for (int i = 0; i < c->levels; i++) {
        int64_t out = level_out(c, i);
        for (int r = 0; r <= c->resnets; r++, in = out) {
            snprintf(name, sizeof name, "decoder.up.%d.block.%d", c->levels - 1 - i, r);
            bind_resnet(b, &v->up[i][r], in, out, name);
        }
        snprintf(name, sizeof name, "decoder.up.%d.upsample", c->levels - 1 - i);
        if (i + 1 < c->levels) bind_causal(b, &v->upsample[i], out, out, 3, name, ".conv");
    }
    bind_causal(b, &v->conv_out, c->out, in, 3, "decoder.conv_out", "");
    bind_vector(b, &v->mean, vae_ltx2_audio_width(c), BIND_PLAIN, "latents_mean");
    bind_vector(b, &v->std, vae_ltx2_audio_width(c), BIND_PLAIN, "latents_std");
}

/* --- running --- */

/* Time is causal, bands are not. */
static Conv2d causal(Tensor y, Tensor x, const Weight *w) {
    const int32_t wide = (int32_t)(w->w.shape[2] / 2);
    return (Conv2d){.y = y,
                    .x = x,
                    .w = w,
                    .stride = 1,
                    .pad_top = (int32_t)(w->w.shape[1] - 1),
                    .pad_left = wide,
                    .pad_right = wide};
}

/* y = silu(norm(in + bias)), both pictures; bias: a convolution's, or absent. */
static Status norm(Exec *x, const char *site, Tensor y, Tensor in, Tensor bias) {
    const int64_t *s = in.shape;
    exec_site(x, site);
    return op_pixelnorm_silu(x, &(Window){.y = tensor_view(y, 1, s[0], s[1], s[2]),
                                          .x = tensor_view(in, 1, s[0], s[1], s[2]),
                                          .bias = bias,
                                          .eps = EPS});
}

static Status resnet(const VaeLtx2AudioResnet *n, Exec *x, VaeTurns *t) {
    size_t mark = arena_mark(x->work);
    const Tensor in = t->at;
    const int64_t h = in.shape[0], w = in.shape[1];
    Tensor y = vae_blocks_next(t, h, w, n->out), a = exec_new(x, h, w, n->in), b = exec_new(x, h, w, n->out);
    Tensor normed = exec_new(x, h, w, n->out), skip = in, skip_bias = {0};
    TRY(norm(x, "audio.resnet.norm1", a, in, (Tensor){0}));
    Conv2d c = causal(b, a, &n->conv1);
    c.form = CONV_RAW;
    TRY(op_conv2d(x, &c));
    TRY(norm(x, "audio.resnet.norm2", normed, b, n->conv1.bias));
    if (n->shortcut.w.rank) {
        skip = b, skip_bias = n->shortcut.bias; /* b is free again */
        c = causal(skip, in, &n->shortcut);
        c.form = CONV_RAW;
        TRY(op_conv2d(x, &c));
    }
    c = causal(y, normed, &n->conv2);
    c.skip = skip, c.skip_bias = skip_bias;
    TRY(op_conv2d(x, &c));
    arena_reset(x->work, mark);
    vae_blocks_done(t, y);
    return exec_tap(x, "audio.resnet", y);
}

/* Twice the rows but one, twice the bands. */
static Status upsample(const Weight *weight, Exec *x, VaeTurns *t) {
    const int64_t h = 2 * t->at.shape[0], w = 2 * t->at.shape[1];
    Tensor y = vae_blocks_next(t, h, w, weight->w.shape[0]);
    Conv2d conv = vae_blocks_conv3(y, t->at, weight);
    TRY(op_upsample_conv(x, &conv));
    vae_blocks_done(t, tensor_slice(y, 0, 0, h - 1));
    return OK;
}

/* Elements of the largest stage. */
static int64_t widest(const VaeLtx2AudioConfig *c, int64_t h, int64_t w) {
    int64_t most = h * w * level_out(c, 0);
    for (int i = 0; i < c->levels; i++) {
        int64_t n = (h << i) * (w << i) * level_out(c, i) * (i + 1 < c->levels ? 4 : 1);
        most = n > most ? n : most;
    }
    return most;
}

/* z' of the header, as a picture [L, bands, latent]. */
static Status scaled(const VaeLtx2Audio *v, Exec *x, Tensor z, Tensor y) {
    size_t mark = arena_mark(x->work);
    const int64_t rows = z.shape[0], width = vae_ltx2_audio_width(&v->c);
    Tensor std = exec_new_as(x, F32, width), mean = exec_new_as(x, F32, width), wide = exec_new_as(x, F32, rows, width);
    TRY(op_copy(x, &(Copy){.y = std, .x = v->std}));
    TRY(op_copy(x, &(Copy){.y = mean, .x = v->mean}));
    TRY(op_chan_affine(x, &(ChanAffine){.y = wide, .x = z, .a = std, .b = mean, .form = CHAN_MULTIPLY_ADD}));
    Tensor from = tensor_view(wide, rows, v->c.latent, v->c.mel / SHRINKS);
    from.shape[1] = y.shape[1], from.stride[1] = 1;
    from.shape[2] = y.shape[2], from.stride[2] = y.shape[1];
    TRY(op_copy(x, &(Copy){.y = y, .x = from}));
    arena_reset(x->work, mark);
    return OK;
}

static Status run(const VaeLtx2Audio *v, Exec *x, VaeTurns *t, Tensor latents, Tensor mel) {
    const VaeLtx2AudioConfig *c = &v->c;
    Tensor next = vae_blocks_next(t, latents.shape[0], latents.shape[1], level_out(c, 0));
    Conv2d conv = causal(next, latents, &v->conv_in);
    TRY(op_conv2d(x, &conv));
    vae_blocks_done(t, next);
    TRY(exec_tap(x, "audio.conv_in", next));
    for (int i = 0; i < 2; i++) TRY(resnet(&v->mid[i], x, t));
    for (int i = 0; i < c->levels; i++) {
        for (int r = 0; r <= c->resnets; r++)
            if (resnet(&v->up[i][r], x, t) != OK) return because(x->error, "audio up block %d", c->levels - 1 - i);
        if (i + 1 == c->levels) break;
        TRY(upsample(&v->upsample[i], x, t));
        TRY(exec_tapf(x, t->at, "audio.up.%d", i));
    }
    next = vae_blocks_next(t, t->at.shape[0], t->at.shape[1], t->at.shape[2]);
    TRY(norm(x, "audio.norm_out", next, t->at, (Tensor){0}));
    conv = causal(mel, next, &v->conv_out);
    TRY(op_conv2d(x, &conv));
    return exec_tap(x, "audio.mel", mel);
}

Status vae_ltx2_audio_decode(const VaeLtx2Audio *v, Exec *x, Tensor z, Tensor mel) {
    const VaeLtx2AudioConfig *c = &v->c;
    const int64_t rows = z.rank == 2 ? z.shape[0] : 0, bands = c->mel / SHRINKS;
    if (!rows || z.shape[1] != vae_ltx2_audio_width(c) || z.dtype != F32 || mel.rank != 3 ||
        mel.shape[0] != vae_ltx2_audio_mel_rows(c, rows) || mel.shape[1] != c->mel || mel.shape[2] != c->out)
        return fail(x->error, ERR_MODEL,
                    "audio vae: expected latents F32 [L, %lld] and a spectrogram [4 L - 3, %lld, %lld]",
                    (long long)vae_ltx2_audio_width(c), (long long)c->mel, (long long)c->out);
    size_t mark = arena_mark(x->work);
    VaeTurns t = vae_blocks_turns(x, widest(c, rows, bands));
    Tensor latents = exec_new(x, rows, bands, c->latent);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(scaled(v, x, z, latents));
    TRY(run(v, x, &t, latents, mel));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
