/* vae_ltx2_encode.h - the encoder of LTX-2's video autoencoder (diffusers' AutoencoderKLLTX2Video.encode): frames in [-1, 1] ->
 * the mode of their latents.
 *
 * Channels last, [frame, Y, X, C]. Same files and config as the decoder (vae_ltx2.h), which holds mean and std too. An image is
 * a video of one frame.
 * Easy to get wrong: a halving of time sees the first frame twice; what passes by a downsampling is the mean of groups of its
 * channels, in the order the convolution's own result has; the last of the 129 channels is a variance, and is dropped. */
#ifndef VAE_LTX2_ENCODE_H
#define VAE_LTX2_ENCODE_H

#include "vae/vae_ltx2.h"

typedef struct VaeLtx2Encoder {
    VaeLtx2Config c; /* the decoder's */
    Weight conv_in, conv_out;
    VaeLtx2Resnet resnet[VAE_LTX2_MAX_LEVELS + 1][VAE_LTX2_MAX_RESNETS]; /* the mid block's last */
    Weight down[VAE_LTX2_MAX_LEVELS];
} VaeLtx2Encoder;

/* v->c must be set. */
void vae_ltx2_encode_bind(VaeLtx2Encoder *v, Bind *b);
/* z [F, Y, X, latent], not normalised (vae_ltx2_normalise), of video [frames, scale Y, scale X, 3], x's dtype both; frames =
 * vae_ltx2_frames(F), 1 for an image. ERR_MODEL for other shapes. Taps: vae.enc.conv_in, vae.resnet, vae.enc.down.<i>,
 * vae.enc.norm_out, vae.enc.moments. */
Status vae_ltx2_encode(const VaeLtx2Encoder *v, Exec *x, Tensor video, Tensor z);

#endif
