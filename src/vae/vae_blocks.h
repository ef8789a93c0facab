/* vae_blocks.h - what the KL autoencoder's encoder and decoder are both made of (diffusers' ResnetBlock2D, UNetMidBlock2D):
 * binding and running a resnet and the mid block.
 *
 * Pictures are [Y, X, C], channels last. Not here: the order of the blocks, up- and downsampling (vae_kl.c,
 * vae_kl_encode.c). Easy to get wrong: GroupNorm eps is 1e-6 whatever the config says; the mid attention is one head as wide
 * as the channels. */
#ifndef VAE_BLOCKS_H
#define VAE_BLOCKS_H

#include "ops.h"

typedef struct VaeResnet {
    Tensor norm1_w, norm1_b, norm2_w, norm2_b;
    Weight conv1, conv2, shortcut; /* shortcut absent when in = out channels */
    int64_t in, out;
} VaeResnet;

typedef struct VaeMid {
    VaeResnet resnet[2];
    Tensor norm_w, norm_b;
    Weight q, k, v, out;
    bool attention; /* between the resnets */
} VaeMid;

static const float VAE_EPS = 1e-6f; /* hard-coded in AutoencoderKL's blocks */

/* Two buffers, each as large as the widest stage, that take turns as input and output of the stages. */
typedef struct VaeTurns {
    Tensor buffer[2]; /* [elements] */
    int turn;         /* the one that holds `at` */
    Tensor at;        /* what the last stage wrote */
} VaeTurns;
VaeTurns vae_blocks_turns(Exec *x, int64_t elements);
/* The next stage's output [y, w, c], in the buffer that the current one is not in; vae_blocks_done makes it the current one. */
Tensor vae_blocks_next(const VaeTurns *t, int64_t y, int64_t w, int64_t c);
void vae_blocks_done(VaeTurns *t, Tensor next);

void vae_blocks_bind_resnet(Bind *b, VaeResnet *r, int64_t in, int64_t out, const char *name);
/* name: "decoder.mid_block". */
void vae_blocks_bind_mid(Bind *b, VaeMid *m, int64_t channels, bool attention, const char *name);

/* 3x3 with a border of one, 1x1 without. */
Conv2d vae_blocks_conv3(Tensor y, Tensor x, const Weight *w);
Conv2d vae_blocks_conv1(Tensor y, Tensor x, const Weight *w);

/* One stage of t: shortcut(in) + conv2(silu(norm2(conv1(silu(norm1(in)))))). stage: what taps call it, "vae.up.0.1"; NULL: it
 * shows nothing. */
Status vae_blocks_resnet(const VaeResnet *r, int groups, const char *stage, Exec *x, VaeTurns *t);
/* Resnet, attention, resnet. */
Status vae_blocks_mid(const VaeMid *m, int groups, const char *stage, Exec *x, VaeTurns *t);

#endif
