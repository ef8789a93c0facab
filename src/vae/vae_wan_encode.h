/* vae_wan_encode.h - the encoder of Wan 2.1's video autoencoder (diffusers' AutoencoderKLWan.encode): frames in [-1, 1] -> the
 * mean of their latents, as the transformer takes them.
 *
 * Channels last, [frame, Y, X, C]. Same files and config as the decoder (vae_wan.h); causal caches likewise: the first frame
 * alone, then vae_wan_frames_each() at a time.
 * Easy to get wrong: a level has `resnets` resnets, one less than the decoder's; downsampling pads below and to the right;
 * the halving of time sees one frame of history, and is skipped for the first frame, which becomes that history. */
#ifndef VAE_WAN_ENCODE_H
#define VAE_WAN_ENCODE_H

#include "vae/vae_wan.h"

typedef struct VaeWanEncoder {
    VaeWanConfig c; /* the decoder's */
    Weight conv_in, conv_out, quant;
    Tensor norm_out;
    VaeWanResnet down[VAE_WAN_MAX_LEVELS][VAE_WAN_MAX_RESNETS];
    Weight downsample[VAE_WAN_MAX_LEVELS], time[VAE_WAN_MAX_LEVELS]; /* all levels but the last; time: where it halves */
    VaeWanMid mid;
} VaeWanEncoder;

/* v->c must be set. */
void vae_wan_encode_bind(VaeWanEncoder *v, Bind *b);
/* z [F, Y, X, latent] = r(r(mean - latents_mean) * r(1 / latents_std)) of the posterior of video [frames, scale Y, scale X, 3],
 * x's dtype both; frames = vae_wan_frames(F), 1 for an image. ERR_MODEL for other shapes. Taps, of every chunk:
 * vae.enc.conv_in, those of the blocks, vae.enc.down.<i> behind a downsampling, vae.enc.norm_out; vae.enc.moments once. */
Status vae_wan_encode(const VaeWanEncoder *v, Exec *x, Tensor video, Tensor z);

#endif
