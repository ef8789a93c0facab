/* vae_ltx2_blocks.h - what the encoder and decoder of LTX-2's video autoencoder are both made of (diffusers'
 * LTX2VideoCausalConv3d and LTX2VideoResnetBlock3d): a convolution with what surrounds its frames, and a resnet.
 *
 * Frames are [frame, Y, X, C], channels last. A convolution reads a window: the frames between copies of the first and the last
 * one, in a border of mirrored pixels where the config has it so; who writes a convolution's input writes the window, and the
 * sum that a resnet ends with is made by the op that reads it next.
 * Not here: the order of the blocks, up- and downsampling (vae_ltx2_decode.c, vae_ltx2_encode.c).
 * Easy to get wrong: a causal convolution has two copies before and none behind; zeros around a frame are the convolution's
 * own, and no part of the window. */
#ifndef VAE_LTX2_BLOCKS_H
#define VAE_LTX2_BLOCKS_H

#include "ops.h"

typedef struct VaeLtx2Resnet {
    Weight conv[2];
} VaeLtx2Resnet;

/* Elements of the three rooms of a run. */
typedef struct VaeLtx2Rooms { int64_t kept, product, window; } VaeLtx2Rooms;

/* A decode or encode under way. The frames so far are at + rest, rest being what a resnet's last convolution has left in the
 * room of products, without its bias; rank 0: none. */
typedef struct VaeLtx2Run {
    Tensor kept, product, window; /* rooms: what is added up, convolutions' results, their inputs */
    Tensor at, rest, rest_bias;   /* at: in `kept` */
    int before, after;            /* copies of the first frame and of the last */
    bool mirror;
} VaeLtx2Run;

/* The rooms grown by what frames [f, y, x] need, when convolutions take `in` channels to `out`, and `kept` remain. */
void vae_ltx2_blocks_need(VaeLtx2Rooms *r, bool mirror, int64_t f, int64_t y, int64_t x, int64_t in, int64_t out, int64_t kept);
VaeLtx2Run vae_ltx2_blocks_run(Exec *x, VaeLtx2Rooms rooms, bool causal, bool mirror);

/* Room for frames [f, y, x, c] in `kept`. They take the place of `at`, which must not be read any more. */
Tensor vae_ltx2_blocks_kept(const VaeLtx2Run *r, int64_t f, int64_t y, int64_t x, int64_t c);
/* The frames inside a window, copies that were put ahead among them. */
Tensor vae_ltx2_blocks_inside(const VaeLtx2Run *r, Tensor window);
/* at + rest into a window, as it is, with `ahead` more copies of the first frame, or normed and activated; then at is the sum
 * (plain: it is lost). Tap of a norm: vae.norm, or `tap`. */
Status vae_ltx2_blocks_plain(Exec *x, VaeLtx2Run *r, int64_t ahead, Tensor *window);
Status vae_ltx2_blocks_norm(Exec *x, VaeLtx2Run *r, const char *site, const char *tap, Tensor *window);
/* y = conv(window); CONV_RAW or CONV_BIAS. vae_ltx2_blocks_product: where it is to go in the room of products. */
Tensor vae_ltx2_blocks_product(const VaeLtx2Run *r, Tensor window, const Weight *w);
Status vae_ltx2_blocks_conv(Exec *x, const VaeLtx2Run *r, const Weight *w, Tensor window, Tensor y, int form);
/* in + conv2(silu(norm(conv1(silu(norm(in)))))), its sum left to the next reader. */
Status vae_ltx2_blocks_resnet(Exec *x, VaeLtx2Run *r, const VaeLtx2Resnet *n);

/* [F Y, row, X, column, C] of patches [F,Y,X,C p p] with p rows and columns each, and of pixels [F, p Y, p X, C]: a patch's
 * rows are its fastest channels, its colours the slowest. Contiguous both. */
Tensor vae_ltx2_blocks_patches(Tensor t, int64_t p);
Tensor vae_ltx2_blocks_pixels(Tensor t, int64_t p);

/* NAME.conv.weight and .bias, 3 x 3 x 3. */
void vae_ltx2_blocks_bind_conv(Bind *b, Weight *w, int64_t out, int64_t in, const char *name);
/* name: "decoder.mid_block"; resnets 0 to count - 1 of it. */
void vae_ltx2_blocks_bind_resnets(Bind *b, VaeLtx2Resnet *n, int64_t count, int64_t channels, const char *name);

#endif
