/* vocoder_ltx2_net.h - one net of LTX-2's vocoders (diffusers' LTX2Vocoder): a convolution, stages that raise the rate
 * and mix three resnets, a last convolution. Both vocoders, and the generator behind the second, are such nets.
 *
 * A dilated convolution of dilation d is a convolution along the columns of a picture d wide: sample t is pixel (t / d,
 * t mod d). So all of them are conv2d of a kernel one column wide; a signal whose length d does not divide has zeros
 * behind it.
 * Easy to get wrong: the last leaky ReLU has slope 0.01 whatever the config says; a stage is the mean of its resnets,
 * not their sum; with snakes nothing stands between a stage and the next one's transposed convolution. */
#ifndef VOCODER_LTX2_NET_H
#define VOCODER_LTX2_NET_H

#include "core/json.h"
#include "ops.h"

enum { VOCODER_STAGES = 8, VOCODER_KERNELS = 3, VOCODER_DILATIONS = 4 };

typedef enum VocoderAct { VOCODER_LEAKY, VOCODER_SNAKE } VocoderAct; /* snake: snakebeta, anti-aliased */
typedef enum VocoderEnd { VOCODER_END_NONE, VOCODER_END_TANH, VOCODER_END_CLAMP } VocoderEnd;

typedef struct VocoderNetConfig {
    int64_t in, hidden, out; /* channels; in: of sound times bands; halved by every stage from hidden on */
    int stages, dilations;
    int64_t up_kernel[VOCODER_STAGES], up[VOCODER_STAGES], kernel[VOCODER_KERNELS];
    int64_t dilation[VOCODER_KERNELS][VOCODER_DILATIONS];
    int64_t taps; /* of the filters around a snake */
    VocoderAct act;
    VocoderEnd end;
    bool final_bias;
    float slope;
} VocoderNetConfig;

typedef struct VocoderSnake {
    Tensor alpha, beta, up, down; /* up, down: the filters */
} VocoderSnake;

typedef struct VocoderResnet {
    Weight conv1[VOCODER_DILATIONS], conv2[VOCODER_DILATIONS];
    VocoderSnake act1[VOCODER_DILATIONS], act2[VOCODER_DILATIONS];
} VocoderResnet;

typedef struct VocoderNet {
    VocoderNetConfig c;
    Weight conv_in, conv_out, up[VOCODER_STAGES];
    VocoderResnet resnet[VOCODER_STAGES][VOCODER_KERNELS];
    VocoderSnake act_out;
} VocoderNet;

/* The keys of a config that begin with `prefix`, over what *c holds. ERR_MODEL for what is not computed here. */
Status vocoder_ltx2_net_read(const Json *j, const char *prefix, VocoderNetConfig *c, const char *path, Error *e);
/* prefix: of the tensors' names, "" or "bwe_generator.". */
void vocoder_ltx2_net_bind(VocoderNet *n, Bind *b, const char *prefix);

int64_t vocoder_ltx2_net_factor(const VocoderNetConfig *c); /* samples a row of the input */

/* y [factor T, out] from in [T, in], both contiguous and of x's dtype. name: of the taps NAME.conv_in, NAME.up.<i> behind a
 * transposed convolution, NAME.stage.<i> (the mean of the resnets), NAME.sound. Work arena: taken back. */
Status vocoder_ltx2_net_run(const VocoderNet *n, Exec *x, const char *name, Tensor in, Tensor y);

/* Zeros in t, contiguous. */
Status vocoder_ltx2_net_zero(Exec *x, Tensor t);

#endif
