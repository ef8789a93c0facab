/* vae_ltx2.h - the video autoencoder of LTX-2 and LTX-2.3 (diffusers' AutoencoderKLLTX2Video): its config, its latents'
 * statistics, and the decoder: latents -> frames.
 *
 * Channels last throughout: [frame, Y, X, C]. A decoder that is not causal sees one frame to either side of each convolution;
 * before the first and behind the last stand copies of them. Not here: the encoder (vae_ltx2_encode.h), the blocks of both
 * (vae_ltx2_blocks.h), the latents' upsampler (vae_ltx2_upsample.h).
 * Easy to get wrong: upsample_type stands in the order of decoding, all other lists of the decoder in the opposite one;
 * doubling time drops the first frame that it makes; 2.0 mirrors a frame's border, 2.3 has zeros there; of a pixel's patch the
 * row is the faster channel. */
#ifndef VAE_LTX2_H
#define VAE_LTX2_H

#include "core/json.h"
#include "vae/vae_ltx2_blocks.h"

enum { VAE_LTX2_MAX_LEVELS = 6 };

/* How many one frame, row, pixel becomes, or of how many one is made: 1 or 2 each. */
typedef struct VaeLtx2Scale { int t, y, x; } VaeLtx2Scale;

typedef struct VaeLtx2Config {
    int64_t latent, in, out, patch;
    bool encoder_causal, decoder_causal, encoder_mirror, decoder_mirror;
    /* Encoder: level i's resnets, what follows them, and the channels behind that. */
    int downs;
    int64_t down_out[VAE_LTX2_MAX_LEVELS], down_resnets[VAE_LTX2_MAX_LEVELS + 1]; /* resnets: the mid block's last */
    VaeLtx2Scale down[VAE_LTX2_MAX_LEVELS];
    /* Decoder, in the order of decoding: the mid block's channels and resnets first, then level i - 1's. */
    int ups;
    int64_t up_out[VAE_LTX2_MAX_LEVELS + 1], up_resnets[VAE_LTX2_MAX_LEVELS + 1];
    VaeLtx2Scale up[VAE_LTX2_MAX_LEVELS];
    bool up_residual[VAE_LTX2_MAX_LEVELS];
} VaeLtx2Config;

typedef struct VaeLtx2 {
    VaeLtx2Config c;
    bool inverse;     /* latents are scaled by r(1 / std), as SanaVideoPipeline does it, not by std */
    Tensor mean, std; /* [latent], of the bound dtype */
    Weight conv_in, conv_out;
    VaeLtx2Resnet resnet[VAE_LTX2_MAX_LEVELS + 1][VAE_LTX2_MAX_RESNETS]; /* [0]: the mid block's */
    Weight up[VAE_LTX2_MAX_LEVELS];
} VaeLtx2;

/* folder: holds config.json. ERR_MODEL for configs this file does not compute, by name: timestep_conditioning, injected noise,
 * patches over time, levels that change their channels by a resnet or do not change the size, a scaling_factor. */
Status vae_ltx2_open(const char *folder, VaeLtx2 *out, Error *e);
/* The same from a config at hand, whose messages name `path`; `out` is a VaeLtx2. */
Status vae_ltx2_read(const char *path, const Json *j, void *out, Error *e);
/* Decoder, latents_mean and latents_std. */
void vae_ltx2_bind(VaeLtx2 *v, Bind *b);
/* Those two alone. */
void vae_ltx2_bind_statistics(VaeLtx2 *v, Bind *b);

/* Pixels per latent side, frames of video per latent frame after the first: 32 and 8 as published. */
int64_t vae_ltx2_scale(const VaeLtx2Config *c);
int64_t vae_ltx2_frames_each(const VaeLtx2Config *c);
/* Frames of video of `latent` latent frames. */
int64_t vae_ltx2_frames(const VaeLtx2Config *c, int64_t latent);

/* y = r(r(z std) + mean), y = r(r(z - mean) / std), channel by channel, all of it in y's dtype (F32 or BF16), to which z (F32 or
 * BF16), mean and std are converted first. Any shape whose last dimension is the channels; y and z may be strided. The
 * pipelines of diffusers: what a transformer left is BF16 before it is de-normalised for the decoder; an encoded image is
 * normalised in F32; upsampled latents are normalised in the upsampler's dtype.
 * v->inverse: y = r(r(z / d) + mean), y = r(r(z - mean) d), d = r(1 / std). */
Status vae_ltx2_denormalise(const VaeLtx2 *v, Exec *x, Tensor y, Tensor z);
Status vae_ltx2_normalise(const VaeLtx2 *v, Exec *x, Tensor y, Tensor z);

/* video [frames, scale Y, scale X, 3] from z [F, Y, X, latent] as the transformer leaves it: F32 or x's dtype, any strides; it
 * is rounded to x's dtype and de-normalised here. video is U8 (to_rgb8), or of x's dtype and then not clamped: a reader clamps
 * to [-1, 1]. ERR_MODEL for other shapes; a mirrored border needs latents of 2 x 2.
 * Work arena: three times the frames of the last level, [frames, scale Y / patch, scale X / patch, its channels], and a window of
 * the level before. Taps: vae.denormalised, vae.conv_in, vae.norm of every norm's window, vae.up.<i> behind each upsampling,
 * vae.norm_out (a window too), vae.frames. */
Status vae_ltx2_decode(const VaeLtx2 *v, Exec *x, Tensor z, Tensor video);

/* The same frames with less memory: the last upsampling and all behind it run in pieces of `together` frames of what it
 * doubles (rather more where the first piece would be too short to yield a frame; 0: the whole). The same sums: bits differ
 * where a library chooses the order of a sum by a clip's length. Work arena: the level before as a whole, and of the last level
 * three pieces and some five frames for each of its resnets. Taps of each piece. */
Status vae_ltx2_decode_pieces(const VaeLtx2 *v, Exec *x, Tensor z, int64_t together, Tensor video);

#endif
