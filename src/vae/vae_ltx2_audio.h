/* vae_ltx2_audio.h - the sound side of LTX-2's latents (diffusers' AutoencoderKLLTX2Audio), decoder: latents -> log-mel
 * spectrogram, a picture of time by mel bands with a channel for each ear.
 *
 * Tensors are [time, mel, channel], channels last. Not here: the encoder, which no text-to-video pipeline runs; the way
 * from the spectrogram to samples (vocoder_ltx2.h).
 * Easy to get wrong: time is causal (two rows of zeros before, none behind), mel bands are not (one on each side); an
 * upsampling doubles both and then has one row of time too many: its first; latents are scaled as packed rows, value c
 * * mel + m, and in F32 whatever the decoder computes in. */
#ifndef VAE_LTX2_AUDIO_H
#define VAE_LTX2_AUDIO_H

#include "core/json.h"
#include "ops.h"

enum { VAE_LTX2_AUDIO_MAX_LEVELS = 6, VAE_LTX2_AUDIO_MAX_RESNETS = 6 };

typedef struct VaeLtx2AudioConfig {
    int64_t base, mult[VAE_LTX2_AUDIO_MAX_LEVELS], resnets, latent, out; /* channels; out: of sound */
    int levels;
    int64_t mel;       /* bands of the spectrogram */
    int64_t rate, hop; /* of the sound that the encoder heard, and samples a row of the spectrogram */
} VaeLtx2AudioConfig;

typedef struct VaeLtx2AudioResnet {
    Weight conv1, conv2, shortcut; /* shortcut absent when in = out channels */
    int64_t in, out;
} VaeLtx2AudioResnet;

typedef struct VaeLtx2Audio {
    VaeLtx2AudioConfig c;
    Weight conv_in, conv_out;
    VaeLtx2AudioResnet mid[2], up[VAE_LTX2_AUDIO_MAX_LEVELS][VAE_LTX2_AUDIO_MAX_RESNETS]; /* up[0]: the first to run */
    Weight upsample[VAE_LTX2_AUDIO_MAX_LEVELS]; /* all levels but the last */
    Tensor mean, std;                           /* [latent * mel / 4] */
} VaeLtx2Audio;

/* folder: holds config.json. ERR_MODEL for configs this file does not compute (group norm, attention, another causal axis,
 * another number of levels than 3). */
Status vae_ltx2_audio_open(const char *folder, VaeLtx2Audio *out, Error *e);
/* The same from a config at hand, whose messages name `path`; `out` is a VaeLtx2Audio. */
Status vae_ltx2_audio_read(const char *path, const Json *j, void *out, Error *e);
/* The decoder's tensors and the two vectors. To be ignored in the files: "encoder.". */
void vae_ltx2_audio_bind(VaeLtx2Audio *v, Bind *b);

/* Values of a packed row of latents (128), latent rows that belong to so many seconds (diffusers rounds seconds times rows a
 * second, 25 as published, halves to even), rows of the spectrogram that come of so many (4 L - 3). */
int64_t vae_ltx2_audio_width(const VaeLtx2AudioConfig *c);
int64_t vae_ltx2_audio_rows(const VaeLtx2AudioConfig *c, double seconds);
int64_t vae_ltx2_audio_mel_rows(const VaeLtx2AudioConfig *c, int64_t rows);

/* mel [4L - 3, mel, out] of x's dtype from z [L, width], F32 and packed as the transformer leaves it, still scaled by the
 * file's mean and std: z' = r32(r32(z * std) + mean), then rounded to x's dtype. Work arena: taken back. Taps: audio.conv_in,
 * audio.resnet of each, audio.up.<i> behind an upsampling, audio.mel. */
Status vae_ltx2_audio_decode(const VaeLtx2Audio *v, Exec *x, Tensor z, Tensor mel);

#endif
