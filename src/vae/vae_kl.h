/* vae_kl.h - the KL autoencoder's decoder (diffusers' AutoencoderKL): latents -> picture in [-1, 1].
 *
 * Channels last throughout: tensors are [Y, X, C]. Used by FLUX.1 and Z-Image. Not here: the encoder
 * (vae_kl_encode.h), which takes its config from here; blocks of both (vae_blocks.h).
 * Easy to get wrong: the number of resnets a block is layers_per_block + 1 in the decoder. */
#ifndef VAE_KL_H
#define VAE_KL_H

#include "vae/vae_blocks.h"

enum { VAE_KL_MAX_LEVELS = 8, VAE_KL_MAX_RESNETS = 8 };

typedef struct VaeKlConfig {
    int64_t latent, channels[VAE_KL_MAX_LEVELS], layers, groups, out;
    int levels;
    int64_t in;                 /* channels of the encoder's picture */
    double scaling, shift;
    bool mid_attention, post_quant, quant;
} VaeKlConfig;

typedef struct VaeKl {
    VaeKlConfig c;
    Weight post_quant, conv_in, conv_out;
    Tensor norm_out_w, norm_out_b;
    VaeMid mid;
    VaeResnet up[VAE_KL_MAX_LEVELS][VAE_KL_MAX_RESNETS];
    Weight upsample[VAE_KL_MAX_LEVELS]; /* all levels but the last */
} VaeKl;

Status vae_kl_open(const char *folder, VaeKl *out, Error *e);
void vae_kl_bind(VaeKl *v, Bind *b);
/* Pixels per latent side: 2^(levels - 1). */
int64_t vae_kl_scale(const VaeKl *v);
/* picture [Y scale, X scale, 3] from z [Y, X, latent], already unscaled (op affine). Taps: vae.conv_in, vae.mid,
 * vae.up.<i>, vae.norm_out. */
Status vae_kl_decode(const VaeKl *v, Exec *x, Tensor z, Tensor picture);

#endif
