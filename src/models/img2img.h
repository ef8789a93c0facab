/* img2img.h - where a run that begins from a picture starts: the picture's latents, as the encoder's posterior gives them,
 * noised to the first sigma that runs. Shared by FLUX.1 and Z-Image, whose diffusers pipelines do the same.
 *
 * Not here: reading and resizing the picture (media/), which steps run (pipeline_resolve).
 * Easy to get wrong: one generator draws twice, first for the posterior, then the noise, both in the dtype of the text
 * embeddings; sigma takes that dtype before 1 - sigma is formed. */
#ifndef IMG2IMG_H
#define IMG2IMG_H

#include "model.h"
#include "vae/vae_kl_encode.h"

/* Opens the encoder as one more part, "vae_encoder", out of the folder "vae": bound now, matched with its files and counted
 * when a job begins from a picture. Must be the model's last part. */
Status img2img_open(Model *m, const char *folder, const VaeKl *vae, VaeKlEncoder *out, Error *e);

/* rgb [Y][X][3] into a contiguous tensor of as many values: 2 (v / 255) - 1 in f32, as VaeImageProcessor has it, then the
 * dtype. */
Status img2img_picture(Exec *x, const uint8_t *rgb, Tensor to);

/* *start [latent, Y, X] in the part's dtype, pushed onto the work arena. run->image is set. Stages image_noise, image_latents,
 * noise. */
Status img2img_begin(Model *m, const VaeKlEncoder *v, Exec *x, const Run *run, Tensor *start);

#endif
