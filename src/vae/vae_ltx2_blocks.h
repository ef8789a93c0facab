/* vae_ltx2_blocks.h - what the encoder and decoder of LTX-2's video autoencoder are both made of (diffusers'
 * LTX2VideoCausalConv3d and LTX2VideoResnetBlock3d): a convolution with what surrounds its frames, and a resnet.
 *
 * Frames are [frame, Y, X, C], channels last. A convolution reads a window: the frames between copies of the first and the last
 * one, in a border of mirrored pixels where the config has it so; who writes a convolution's input writes the window.
 * Not here: the order of the blocks, up- and downsampling (vae_ltx2_decode.c, vae_ltx2_encode.c).
 * Easy to get wrong: a causal convolution has two copies before and none behind; zeros around a frame are the convolution's
 * own, and no part of the window. */
#ifndef VAE_LTX2_BLOCKS_H
#define VAE_LTX2_BLOCKS_H

#include "vae/vae_blocks.h"

typedef struct VaeLtx2Resnet {
    Weight conv[2];
} VaeLtx2Resnet;

#endif
