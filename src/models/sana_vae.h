/* sana_vae.h - the autoencoder of a SANA-Video folder, which is Wan 2.1's (480p) or LTX-2's (720p): what the pipelines need of
 * either, in one form. Sizes, names of weights, latents of a picture, frames of latents.
 *
 * Channels last, as the autoencoders have it. Not here: those themselves (vae/vae_wan.h, vae/vae_ltx2.h).
 * Easy to get wrong: diffusers' SanaVideoPipeline scales latents by r(1 / r(std)) whichever autoencoder it has, LTX2Pipeline by
 * std: other bits for the same weights. LTX-2's statistics are tensors of the file, so the encoder's part binds them too. */
#ifndef SANA_VAE_H
#define SANA_VAE_H

#include "model.h"
#include "vae/vae_ltx2_encode.h"
#include "vae/vae_wan_encode.h"

enum { SANA_VAE_THRIFTS = 4 };

typedef struct SanaVae {
    bool ltx2; /* else Wan's */
    VaeWan wan;
    VaeWanEncoder wan_encoder;
    VaeLtx2 ltx;
    VaeLtx2Encoder ltx_encoder;
    VaeLtx2 measure; /* mean and std of its latents, for the encoder's part */
} SanaVae;

/* folder: the model's. Which it is: vae/config.json's _class_name, where it has none model_index.json's, else Wan's. ERR_MODEL
 * names another class, the two files' difference, and compression ratios that are not the decoder's. */
Status sana_vae_open(const char *folder, const Json *index, SanaVae *out, Error *e);
void sana_vae_bind(SanaVae *v, Bind *b);
void sana_vae_encode_bind(SanaVae *v, Bind *b);

int64_t sana_vae_latent(const SanaVae *v);
/* Pixels per latent side (8; 32), frames per latent frame after the first (4; 8), as published. */
int64_t sana_vae_scale(const SanaVae *v);
int64_t sana_vae_frames_each(const SanaVae *v);
/* Fewest latents a side: two where the decoder mirrors borders. */
int64_t sana_vae_least(const SanaVae *v);

/* z [1, Y, X, latent], as the transformer takes it, of a picture [1, scale Y, scale X, 3] in [-1, 1]; x's dtype both. */
Status sana_vae_encode(const SanaVae *v, Exec *x, Tensor picture, Tensor z);
/* video [frames, scale Y, scale X, 3], U8 or of x's dtype, from z [F, Y, X, latent] as the transformer leaves it: as
 * vae_wan_decode() has it. thrift, 0 to SANA_VAE_THRIFTS: the same sums with less memory, Wan's in tiles, LTX-2's in pieces of
 * a clip, half as long at every turn, but never shorter than what the last resnets look ahead. */
Status sana_vae_decode(const SanaVae *v, Exec *x, Tensor z, int thrift, Tensor video);

#endif
