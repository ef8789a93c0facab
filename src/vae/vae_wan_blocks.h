/* vae_wan_blocks.h - what the Wan autoencoder's encoder and decoder are both made of (diffusers' WanCausalConv3d,
 * WanResidualBlock, WanAttentionBlock): a convolution with its history, a resnet, the mid block.
 *
 * Frames are [frame, Y, X, C], channels last. Not here: the order of the blocks, up- and downsampling (vae_wan.c,
 * vae_wan_encode.c).
 * Easy to get wrong: a convolution's history is its input (after norm and SiLU), not its output; the caches must be pushed in
 * the order in which they are used, since a run finds them by counting. */
#ifndef VAE_WAN_BLOCKS_H
#define VAE_WAN_BLOCKS_H

#include "ops.h"

typedef struct VaeWanResnet {
    Tensor norm1, norm2;           /* gamma */
    Weight conv1, conv2, shortcut; /* shortcut absent when in = out channels */
    int64_t in, out;
} VaeWanResnet;

typedef struct VaeWanMid {
    VaeWanResnet resnet[2];
    Tensor norm;
    Weight q, k, v, out;
} VaeWanMid;

void vae_wan_blocks_bind_resnet(Bind *b, VaeWanResnet *r, int64_t in, int64_t out, const char *name);
/* name: "decoder.mid_block". */
void vae_wan_blocks_bind_mid(Bind *b, VaeWanMid *m, int64_t channels, const char *name);

#endif
