/* vocoder_ltx2.h - from log-mel spectrograms to samples: diffusers' LTX2Vocoder (LTX-2.0, 24 kHz) and LTX2VocoderWithBWE (2.3: a
 * vocoder of 16 kHz, and a second one that hears its sound and makes 48 kHz of it).
 *
 * Signals are [time, channel], channels last, sound among them. A dilated convolution of dilation d is a convolution along the
 * columns of a picture d wide (vocoder_ltx2_blocks.c). diffusers' pipeline runs the vocoder in the dtype its folder was loaded
 * with (bf16, and rounds after every operation then); x's dtype decides here, with the same rounding points.
 * Easy to get wrong: the last leaky ReLU has slope 0.01 whatever the config says; a stage is the mean of its resnets, not their
 * sum; with snakes there is no activation before an upsampling; the transposed convolution's weight is [in, out, k]; the
 * resampler's Hann filter is not in the file. */
#ifndef VOCODER_LTX2_H
#define VOCODER_LTX2_H

#include "ops.h"

enum { VOCODER_MAX_STAGES = 8, VOCODER_MAX_KERNELS = 4, VOCODER_MAX_DILATIONS = 4 };

typedef enum VocoderAct { VOCODER_LEAKY, VOCODER_SNAKE } VocoderAct; /* snake: snakebeta, anti-aliased */
typedef enum VocoderEnd { VOCODER_END_NONE, VOCODER_END_TANH, VOCODER_END_CLAMP } VocoderEnd;

typedef struct VocoderNetConfig {
    int64_t in, hidden, out;                                   /* channels; in: channels of sound times bands */
    int stages, kernels, dilations[VOCODER_MAX_KERNELS];       /* dilations[k]: how many pairs of convolutions a resnet has */
    int64_t up_kernel[VOCODER_MAX_STAGES], up[VOCODER_MAX_STAGES];
    int64_t kernel[VOCODER_MAX_KERNELS], dilation[VOCODER_MAX_KERNELS][VOCODER_MAX_DILATIONS];
    VocoderAct act;
    VocoderEnd end;
    bool final_bias;
    float slope;
} VocoderNetConfig;

typedef struct VocoderSnake { Tensor alpha, beta, up, down; } VocoderSnake; /* up, down: the filters */

typedef struct VocoderResnet {
    Weight conv1[VOCODER_MAX_DILATIONS], conv2[VOCODER_MAX_DILATIONS];
    VocoderSnake act1[VOCODER_MAX_DILATIONS], act2[VOCODER_MAX_DILATIONS];
} VocoderResnet;

typedef struct VocoderNet {
    VocoderNetConfig c;
    Weight conv_in, conv_out, up[VOCODER_MAX_STAGES];
    VocoderResnet resnet[VOCODER_MAX_STAGES][VOCODER_MAX_KERNELS];
    VocoderSnake act_out;
} VocoderNet;

typedef struct VocoderLtx2 {
    VocoderNet net;
    bool bwe;              /* LTX2VocoderWithBWE: all that follows */
    VocoderNet generator;
    Weight basis, mel;     /* [2 n, window] cosines, then sines, windowed; [bands, n] */
    int64_t window, hop, bands, in_rate;
    int64_t rate;          /* of the sound that comes out */
} VocoderLtx2;

/* folder: holds config.json, whose _class_name says which. ERR_MODEL for configs this file does not compute. */
Status vocoder_ltx2_open(const char *folder, VocoderLtx2 *out, Error *e);
/* To be ignored in the files: "mel_stft.stft_fn.inverse_basis". */
void vocoder_ltx2_bind(VocoderLtx2 *v, Bind *b);

int64_t vocoder_ltx2_rate(const VocoderLtx2 *v);     /* samples a second */
int64_t vocoder_ltx2_channels(const VocoderLtx2 *v); /* of sound */
/* Samples of a channel that come of so many rows of the spectrogram. */
int64_t vocoder_ltx2_samples(const VocoderLtx2 *v, int64_t mel_rows);

/* sound [samples, channels] of x's dtype, from mel [rows, bands, channels] of x's dtype, any strides. Work arena: taken back.
 * Taps: vocoder.conv_in, vocoder.up.<i> (upsampled), vocoder.stage.<i> (mean of the resnets), vocoder.sound; with BWE also
 * bwe.mel and the same of bwe. */
Status vocoder_ltx2_run(const VocoderLtx2 *v, Exec *x, Tensor mel, Tensor sound);

#endif
