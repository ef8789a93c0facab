/* img2img.c - see img2img.h. */
#include "models/img2img.h"

#include "core/convert.h"
#include "rng.h"

#include <stdlib.h>

static const char NAME[] = "vae_encoder";
static const char *const IGNORE[] = {"decoder.", "post_quant_conv.", NULL};

Status img2img_open(Model *m, const char *folder, const VaeKl *vae, VaeKlEncoder *out, Error *e) {
    *out = (VaeKlEncoder){.c = vae->c};
    TRY(model_open_part(m, folder, "vae", IGNORE, e));
    Part *part = &m->part[m->parts - 1];
    part->name = NAME;
    part->encodes_image = true;
    vae_kl_encode_bind(out, &part->bind);
    return OK;
}

Status img2img_picture(Exec *x, const uint8_t *rgb, Tensor to) {
    if (x->dry) return OK;
    float level[256];
    for (int i = 0; i < 256; i++) level[i] = 2.0f * ((float)i / 255.0f) - 1.0f;
    size_t n = (size_t)tensor_numel(to), size = dtype_size(to.dtype);
    char *host = malloc(n * size), narrow[256][4];
    if (!host) return fail(x->error, ERR_MEMORY, "image: out of memory");
    for (int i = 0; i < 256; i++) convert_narrow(&level[i], to.dtype, narrow[i], 1);
    for (size_t i = 0; i < n; i++) memcpy(host + i * size, narrow[rgb[i]], size);
    Status s = exec_upload(x, to, host);
    free(host);
    return s;
}

/* The generator's next [C,Y,X] values, passed through a stage. */
static Status draw(Exec *x, const Run *run, Rng *rng, const char *name, Tensor to) {
    if (x->dry) return OK;
    void *host = malloc(tensor_bytes(to));
    if (!host) return fail(x->error, ERR_MEMORY, "%s: out of memory", name);
    rng_normal(rng, to.dtype, tensor_numel(to), host);
    Status s = stages_host(run->stages, name, to.dtype, 4, (int64_t[]){1, to.shape[0], to.shape[1], to.shape[2]}, host,
                           x->error);
    if (s == OK) s = exec_upload(x, to, host);
    free(host);
    return s;
}

Status img2img_begin(Model *m, const VaeKlEncoder *v, Exec *x, const Run *run, Tensor *start) {
    int64_t scale = (int64_t)1 << (v->c.levels - 1);
    int64_t c = v->c.latent, h = run->job->height / scale, w = run->job->width / scale;
    Rng rng;
    rng_seed(&rng, run->job->seed);
    model_enter(x, model_part(m, NAME));
    *start = exec_new(x, c, h, w);
    size_t mark = arena_mark(x->work);
    Tensor latents = exec_new(x, c, h, w), noise = exec_new(x, c, h, w);
    size_t inner = arena_mark(x->work);
    Tensor moments = exec_new(x, h, w, 2 * c), z = exec_new(x, h, w, c), drawn = exec_new(x, h, w, c);
    Tensor picture = exec_new(x, run->job->height, run->job->width, 3);
    TRY(img2img_picture(x, run->image, picture));
    TRY(vae_kl_encode(v, x, picture, moments));
    TRY(draw(x, run, &rng, "image_noise", noise));
    TRY(op_copy(x, &(Copy){.y = drawn, .x = tensor_channels_last(noise)}));
    TRY(op_kl_sample(x, &(KlSample){.y = z, .mean = tensor_slice(moments, 2, 0, c), .logvar = tensor_slice(moments, 2, c, c),
                                    .noise = drawn, .shift = (float)v->c.shift, .scale = (float)v->c.scaling}));
    TRY(op_copy(x, &(Copy){.y = tensor_channels_last(latents), .x = z}));
    arena_reset(x->work, inner);
    TRY(stages_pass(run->stages, x, "image_latents", latents, 4, (int64_t[]){1, c, h, w}));
    TRY(exec_check_finite(x, latents, "vae: latents of the image"));
    TRY(draw(x, run, &rng, "noise", noise));
    TRY(op_scale_noise(x, &(ScaleNoise){.y = *start, .x = latents, .noise = noise,
                                        .sigma = run->schedule->sigmas[run->job->first_step]}));
    arena_reset(x->work, mark);
    return OK;
}
