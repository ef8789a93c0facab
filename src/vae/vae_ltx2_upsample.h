/* vae_ltx2_upsample.h - the upsampler between LTX-2's two stages (diffusers' LTX2LatentUpsamplerModel): latents of twice the
 * height and width.
 *
 * Its latents are the autoencoder's own, not the transformer's: vae_ltx2_denormalise before, vae_ltx2_normalise behind.
 * Channels last, [F, Y, X, C].
 * Easy to get wrong: its convolutions have zeros before the first frame and behind the last, the autoencoder's have copies; the
 * norms' statistics are of the whole clip; in a resnet SiLU follows the sum. The 5 x 5 blur of 2.0 has a stride of 1 and is then
 * left out by diffusers. */
#ifndef VAE_LTX2_UPSAMPLE_H
#define VAE_LTX2_UPSAMPLE_H

#include "ops.h"

enum { VAE_LTX2_UPSAMPLE_BLOCKS = 8 };

typedef struct VaeLtx2UpsampleBlock {
    Weight conv[2];
    Tensor norm_w[2], norm_b[2];
} VaeLtx2UpsampleBlock;

typedef struct VaeLtx2Upsampler {
    int64_t in, mid, blocks; /* channels of the latents and inside; blocks on either side */
    bool rational;           /* 2.0's names */
    Weight initial, shuffle, final;
    Tensor norm_w, norm_b, blur; /* blur is bound and not used */
    VaeLtx2UpsampleBlock block[2][VAE_LTX2_UPSAMPLE_BLOCKS];
} VaeLtx2Upsampler;

/* folder: holds config.json. ERR_MODEL by name for what is not computed: other scales than 2, temporal_upsample, dims 2. */
Status vae_ltx2_upsample_open(const char *folder, VaeLtx2Upsampler *out, Error *e);
void vae_ltx2_upsample_bind(VaeLtx2Upsampler *u, Bind *b);
/* y [F, 2 Y, 2 X, in] from z [F, Y, X, in], x's dtype both, z of any strides with contiguous channels. ERR_MODEL for other
 * shapes. Taps: upsample.initial, upsample.block of each, upsample.shuffle, upsample.latents. */
Status vae_ltx2_upsample(const VaeLtx2Upsampler *u, Exec *x, Tensor z, Tensor y);

#endif
