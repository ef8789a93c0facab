/* vae_ltx2_blocks.h - what the encoder and decoder of LTX-2's video autoencoder are both made of (diffusers'
 * LTX2VideoCausalConv3d and LTX2VideoResnetBlock3d): a convolution with what surrounds its frames, and a resnet.
 *
 * Frames are [frame, Y, X, C], channels last. A convolution reads a window: the frames between copies of the first and the last
 * one, in a border of mirrored pixels where the config has it so; who writes a convolution's input writes the window, and the
 * sum that a resnet ends with is made by the op that reads it next.
 * A clip may come in pieces. Then a window begins with the last two frames of the one before, which a run keeps for each
 * convolution, and where a convolution looks ahead its result lags behind: a piece's frames are fewer at the clip's beginning and
 * more at its end, and a resnet's other path waits for them. All sums are those of the whole.
 * Not here: the order of the blocks, up- and downsampling (vae_ltx2_decode.c, vae_ltx2_encode.c).
 * Easy to get wrong: a causal convolution has two copies before and none behind; zeros around a frame are the convolution's
 * own, and no part of the window; histories are found by counting, so pieces must run the same steps. */
#ifndef VAE_LTX2_BLOCKS_H
#define VAE_LTX2_BLOCKS_H

#include "ops.h"

enum { VAE_LTX2_MAX_RESNETS = 10, VAE_LTX2_HISTORIES = 3 * VAE_LTX2_MAX_RESNETS + 1 };

typedef struct VaeLtx2Resnet {
    Weight conv[2];
} VaeLtx2Resnet;

/* Elements of the three rooms of a run. */
typedef struct VaeLtx2Rooms { int64_t kept, product, window; } VaeLtx2Rooms;

/* A decode or encode under way. The frames so far are at + rest, rest being what a resnet's last convolution has left in the
 * room of products, without its bias; rank 0: none. */
typedef struct VaeLtx2Run {
    Tensor kept, product, window; /* rooms: what is added up, convolutions' results, their inputs */
    Tensor at, rest, rest_bias;   /* at: in `kept`, from frame `head` on */
    int64_t head;
    int before, after;            /* copies of the first frame and of the last */
    bool mirror;
    bool first, last;             /* is the piece in hand the clip's first, its last one? Both: it is the whole */
    Tensor history[VAE_LTX2_HISTORIES];
    int histories, next;
} VaeLtx2Run;

/* The rooms grown by what f frames [y, x] need, when convolutions take `in` channels to `out`, and `kept` remain. */
void vae_ltx2_blocks_need(VaeLtx2Rooms *r, bool mirror, int64_t f, int64_t y, int64_t x, int64_t in, int64_t out, int64_t kept);
/* For whole clips, until told otherwise. */
VaeLtx2Run vae_ltx2_blocks_run(Exec *x, VaeLtx2Rooms rooms, bool causal, bool mirror);
/* Frames by which a resnet's result lags behind its input. */
int64_t vae_ltx2_blocks_lag(const VaeLtx2Run *r);
/* Room for what pieces leave to the next one: of `resnets` resnets and one more norm, on frames [y, x, c]. A piece then begins
 * with next 0, its place in the clip, and head resnets * lag. */
Status vae_ltx2_blocks_pieces(Exec *x, VaeLtx2Run *r, int64_t resnets, int64_t y, int64_t w, int64_t c);

/* Room for frames [f, y, x, c] in `kept`. They take the place of `at`, which must not be read any more. */
Tensor vae_ltx2_blocks_kept(const VaeLtx2Run *r, int64_t f, int64_t y, int64_t x, int64_t c);
/* The frames inside a whole clip's window, copies that were put ahead among them. */
Tensor vae_ltx2_blocks_inside(const VaeLtx2Run *r, Tensor window);
/* A whole clip's at + rest into a window, with `ahead` more copies of the first frame; at is gone then. */
Status vae_ltx2_blocks_plain(Exec *x, VaeLtx2Run *r, int64_t ahead, Tensor *window);
/* at + rest normed and activated into a window; keep: at is the sum then, otherwise it is gone. tap: a stage's name. */
Status vae_ltx2_blocks_norm(Exec *x, VaeLtx2Run *r, const char *site, const char *tap, bool keep, Tensor *window);
/* y = conv(window); CONV_RAW or CONV_BIAS. vae_ltx2_blocks_product: where it is to go in the room of products. */
Tensor vae_ltx2_blocks_product(const VaeLtx2Run *r, Tensor window, const Weight *w);
Status vae_ltx2_blocks_conv(Exec *x, const VaeLtx2Run *r, const Weight *w, Tensor window, Tensor y, int form);
/* in + conv2(silu(norm(conv1(silu(norm(in)))))), its sum left to the next reader. Taps: vae.norm, of both norms' windows. */
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
