/* vae_wan.h - the causal video autoencoder of Wan 2.1 (diffusers' AutoencoderKLWan), decoder: latents -> frames. SANA-Video's
 * 480p checkpoints come with it.
 *
 * Channels last throughout: [frame, Y, X, C]. The first latent frame gives one frame of video, every later one
 * vae_wan_frames_each(); a run keeps the last two frames of every convolution's input, so its memory does not grow with the
 * length of the video. Not here: the encoder (vae_wan_encode.h), which takes its config from here; blocks of both
 * (vae_wan_blocks.h).
 * Easy to get wrong: history that does not exist is zeros, not a copy of the first frame; time is not doubled for the first
 * latent frame, and that frame is no history of the doubling convolutions either; an upsampling halves the channels. */
#ifndef VAE_WAN_H
#define VAE_WAN_H

#include "vae/vae_wan_blocks.h"

enum { VAE_WAN_MAX_LEVELS = 6, VAE_WAN_MAX_RESNETS = 6, VAE_WAN_MAX_LATENT = 64 };

typedef struct VaeWanConfig {
    int64_t base, decoder_base, latent, mult[VAE_WAN_MAX_LEVELS], resnets, in, out;
    int levels;
    bool temporal[VAE_WAN_MAX_LEVELS]; /* levels - 1: is time halved after this level of the encoder? */
    float mean[VAE_WAN_MAX_LATENT], std[VAE_WAN_MAX_LATENT];
} VaeWanConfig;

typedef struct VaeWan {
    VaeWanConfig c;
    Weight post_quant, conv_in, conv_out;
    Tensor norm_out;
    VaeWanMid mid;
    VaeWanResnet up[VAE_WAN_MAX_LEVELS][VAE_WAN_MAX_RESNETS];
    Weight upsample[VAE_WAN_MAX_LEVELS], time[VAE_WAN_MAX_LEVELS]; /* all levels but the last; time: where it doubles */
} VaeWan;

/* folder: holds config.json. ERR_MODEL for configs this file does not compute (is_residual, patch_size, attn_scales). */
Status vae_wan_open(const char *folder, VaeWan *out, Error *e);
void vae_wan_bind(VaeWan *v, Bind *b);

/* Pixels per latent side; frames of video per latent frame after the first. 8 and 4 as published. */
int64_t vae_wan_scale(const VaeWanConfig *c);
int64_t vae_wan_frames_each(const VaeWanConfig *c);
/* Frames of video of `latent` latent frames. */
int64_t vae_wan_frames(const VaeWanConfig *c, int64_t latent);

/* Of level i of the decoder: channels into and out of its resnets; are its frames doubled behind them? */
int64_t vae_wan_level_in(const VaeWanConfig *c, int i);
int64_t vae_wan_level_out(const VaeWanConfig *c, int i);
bool vae_wan_doubles_time(const VaeWanConfig *c, int i);

/* What op chan_affine takes to scale latents, in the work arena: by = r(1 / r(std)), add = r(mean). */
Status vae_wan_vectors(const VaeWanConfig *c, Exec *x, Tensor *by, Tensor *add);

/* video [frames, scale Y, scale X, 3] from z [F, Y, X, latent], as the transformer leaves it: F32 or x's dtype, any strides;
 * it is scaled by the config's mean and std here. video is U8 (to_rgb8), or of x's dtype and then not clamped: a reader
 * clamps to [-1, 1]. `together`: latent frames after the first that are decoded at a time, 1 as diffusers; more is memory
 * for fewer launches, with the same sums.
 * Work arena: the caches and one chunk. Taps, of every chunk: vae.conv_in, those of the blocks, vae.up.<i> behind an
 * upsampling, vae.norm_out, vae.frames. */
Status vae_wan_decode(const VaeWan *v, Exec *x, Tensor z, int64_t together, Tensor video);

/* The same frames with less memory: the wide levels run in down x across tiles, one after the other, each with as much of its
 * neighbours as its pixels depend on: the same sums, nothing is blended. Where the order of a sum depends on a picture's size
 * (BLAS and cuDNN choose by it) results differ as much as two orders do. Costs one copy of what the second upsampling is made of,
 * for all frames, and the work of the overlaps (832 x 480 in 2 x 2: a third more). */
typedef struct VaeWanTiles { int down, across; } VaeWanTiles;
Status vae_wan_decode_tiles(const VaeWan *v, Exec *x, Tensor z, int64_t together, VaeWanTiles tiles, Tensor video);
/* A tile's longer side halved `times` times, for latents of h x w; fewer where there is nothing to halve. */
VaeWanTiles vae_wan_tiles(const VaeWanConfig *c, int64_t h, int64_t w, int times);

#endif
