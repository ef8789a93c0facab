/* golden_img2img.h - runs the KL encoder of the tiny checkpoint, the draw from its posterior and the noising on the CPU table
 * in bf16 against tests/golden/img2img_bf16.safetensors (scripts/reference_flux.py). Judging, feeding and the rig are golden.h's.
 * Shared by test_img2img.c and test_img2img_mutants.c. */
#ifndef GOLDEN_IMG2IMG_H
#define GOLDEN_IMG2IMG_H

#include "golden.h"
#include "vae/vae_kl_encode.h"

#define IMG2IMG_VAE "vae/diffusion_pytorch_model.safetensors"

typedef struct EncoderRig {
    VaeKl vae;
    VaeKlEncoder encoder;
    GoldenWeights weights;
} EncoderRig;

/* Binds the encoder of the model folder; encoder_close in any case. */
static inline Status encoder_open(Golden *g, const char *model, DType dtype, EncoderRig *r) {
    static const char *const IGNORE[] = {"decoder.", NULL};
    char path[1200];
    Error *e = &g->error;
    *r = (EncoderRig){.weights.bind.prefix = ""};
    snprintf(path, sizeof path, "%s/vae", model);
    TRY(vae_kl_open(path, &r->vae, e));
    r->encoder.c = r->vae.c;
    TRY(weights_open(path, &r->weights.files, e));
    vae_kl_encode_bind(&r->encoder, &r->weights.bind);
    return golden_bind(g, &r->weights, dtype, IGNORE);
}

static inline void encoder_close(EncoderRig *r) {
    golden_unbind(&r->weights);
}

/* The golden picture in [-1, 1]. */
static inline Tensor encoder_picture(Golden *g) {
    Tensor from = golden_find(g, "picture"), t = exec_new(&g->x, from.shape[0], from.shape[1], 3);
    for (int64_t i = 0; i < tensor_numel(t); i++)
        golden_put(t.data, t.dtype, i, (double)(2.0f * ((float)golden_at(from.data, U8, i) / 255.0f) - 1.0f));
    return t;
}

static inline Status encoder_stages(Golden *g, const EncoderRig *r) {
    Exec *x = &g->x;
    const VaeKlConfig *c = &r->encoder.c;
    Tensor picture = encoder_picture(g), want = golden_find(g, "image_latents");
    int64_t n = want.shape[1], h = want.shape[2], w = want.shape[3];
    Tensor moments = exec_new(x, h, w, 2 * n), z = exec_new(x, h, w, n), drawn = exec_new(x, h, w, n);
    Tensor latents = exec_new(x, n, h, w), start = exec_new(x, n, h, w);
    Tensor first = golden_in(g, "image_noise", x->dtype, n, h, w), noise = golden_in(g, "noise", x->dtype, n, h, w);
    if (!first.rank || !noise.rank) return ERR_MODEL;
    TRY(vae_kl_encode(&r->encoder, x, picture, moments));
    TRY(op_copy(x, &(Copy){.y = drawn, .x = tensor_channels_last(first)}));
    TRY(op_kl_sample(x, &(KlSample){.y = z, .mean = tensor_slice(moments, 2, 0, n), .logvar = tensor_slice(moments, 2, n, n),
                                    .noise = drawn, .shift = (float)c->shift, .scale = (float)c->scaling}));
    TRY(op_copy(x, &(Copy){.y = tensor_channels_last(latents), .x = z}));
    golden_result(g, "image_latents", latents);
    const char *sigma = NULL;
    TRY(json_string(g->file.metadata, "sigma", &sigma, "metadata", &g->error));
    TRY(op_scale_noise(x, &(ScaleNoise){.y = start, .x = latents, .noise = noise, .sigma = strtof(sigma ? sigma : "", NULL)}));
    golden_result(g, "start", start);
    return OK;
}

/* g->stage and g->worst hold the result, as golden_part leaves it. */
static inline Status golden_encoder(Golden *g, const char *model) {
    Error *e = &g->error;
    *e = (Error){0};
    safetensors_close(&g->file);
    TRY(safetensors_open(GOLDEN_DIR "/img2img_bf16.safetensors", &g->file, e));
    EncoderRig r;
    g->x.dtype = BF16;
    g->x.tap = &g->tap;
    g->feed = true;
    Status s = encoder_open(g, model, BF16, &r);
    size_t mark = arena_mark(&g->work);
    if (s == OK) s = encoder_stages(g, &r);
    arena_reset(&g->work, mark);
    encoder_close(&r);
    g->x.tap = NULL;
    return s;
}

#endif
