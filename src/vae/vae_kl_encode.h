/* vae_kl_encode.h - the KL autoencoder's encoder (diffusers' AutoencoderKL.encode): picture in [-1, 1] -> mean and
 * logarithm of the variance of its latents.
 *
 * Channels last, [Y, X, C]. The draw from the distribution is op kl_sample. Same files and config as the decoder (vae_kl.h).
 * Easy to get wrong: downsampling pads below and to the right only, stride 2; a level has layers_per_block resnets, one less
 * than the decoder's; the mid block comes last. */
#ifndef VAE_KL_ENCODE_H
#define VAE_KL_ENCODE_H

#include "vae/vae_kl.h"

typedef struct VaeKlEncoder {
    VaeKlConfig c; /* the decoder's; sides of the picture are multiples of 2^(levels - 1) */
    Weight conv_in, conv_out, quant;
    Tensor norm_out_w, norm_out_b;
    VaeResnet down[VAE_KL_MAX_LEVELS][VAE_KL_MAX_RESNETS];
    Weight downsample[VAE_KL_MAX_LEVELS]; /* all levels but the last */
    VaeMid mid;
} VaeKlEncoder;

/* v->c must be set. */
void vae_kl_encode_bind(VaeKlEncoder *v, Bind *b);
/* moments [Y / scale, X / scale, 2 latent], means first, from picture [Y, X, 3]. ERR_MODEL when the encoder takes other
 * than three channels. Taps: vae.enc.conv_in, vae.enc.down.<i>, vae.enc.mid, vae.enc.norm_out, vae.enc.moments. */
Status vae_kl_encode(const VaeKlEncoder *v, Exec *x, Tensor picture, Tensor moments);

#endif
