/* vae_wan_blocks.h - what the Wan autoencoder's encoder and decoder are both made of (diffusers' WanCausalConv3d,
 * WanResidualBlock, WanAttentionBlock): a convolution with its history, a resnet, the mid block.
 *
 * Frames are [frame, Y, X, C], channels last. Not here: the order of the blocks, up- and downsampling (vae_wan.c,
 * vae_wan_encode.c).
 * Easy to get wrong: a convolution's history is its input (after norm and SiLU), not its output; caches must be made in the
 * order in which they are used, since a run finds them by counting. */
#ifndef VAE_WAN_BLOCKS_H
#define VAE_WAN_BLOCKS_H

#include "vae/vae_blocks.h"

enum { VAE_WAN_HISTORY = 2, VAE_WAN_MAX_CACHES = 96 };

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

/* A decode or encode under way: the two buffers of the stages, and the histories. */
typedef struct VaeWanRun {
    VaeTurns t;
    struct { Tensor frames; bool used; } cache[VAE_WAN_MAX_CACHES]; /* used: holds what a chunk has left */
    int caches, next;                                               /* next: of the chunk in hand, 0 at its beginning */
} VaeWanRun;

/* One more history of `frames` frames in the work arena. */
Status vae_wan_blocks_cache(Exec *x, VaeWanRun *r, int64_t frames, int64_t h, int64_t w, int64_t c);
/* Those of a resnet and of the mid block, at this size. */
Status vae_wan_blocks_cache_resnet(Exec *x, VaeWanRun *r, const VaeWanResnet *n, int64_t h, int64_t w);
Status vae_wan_blocks_cache_mid(Exec *x, VaeWanRun *r, const VaeWanMid *m, int64_t h, int64_t w);

/* As vae_blocks_next, for frames. */
Tensor vae_wan_blocks_next(const VaeWanRun *r, int64_t f, int64_t h, int64_t w, int64_t c);
/* The frames of window behind the room for `history` of them. */
Tensor vae_wan_blocks_behind(Tensor window, int64_t history);
/* conv of a window whose new frames are in place, with the next history. */
Status vae_wan_blocks_causal(Exec *x, VaeWanRun *r, const Conv3d *conv);
/* y = norm (SiLU) of x, whose convolution has left `bias`. */
Status vae_wan_blocks_norm(Exec *x, const char *site, Tensor y, Tensor in, Tensor gamma, Tensor bias);
/* A 3-D convolution of kernel 1 or 3 in space, with the same extents out as in. */
Conv3d vae_wan_blocks_conv(Tensor y, Tensor x, const Weight *w);

/* One stage of r->t: shortcut(in) + conv2(silu(norm2(conv1(silu(norm1(in)))))). Tap: vae.resnet. */
Status vae_wan_blocks_resnet(const VaeWanResnet *n, Exec *x, VaeWanRun *r);
/* Resnet, attention of each frame alone, resnet. Tap: vae.attention. */
Status vae_wan_blocks_mid(const VaeWanMid *m, Exec *x, VaeWanRun *r);

void vae_wan_blocks_bind_resnet(Bind *b, VaeWanResnet *r, int64_t in, int64_t out, const char *name);
/* name: "decoder.mid_block". */
void vae_wan_blocks_bind_mid(Bind *b, VaeWanMid *m, int64_t channels, const char *name);

#endif
