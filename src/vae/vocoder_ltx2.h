/* vocoder_ltx2.h - from log-mel spectrograms to samples: diffusers' LTX2Vocoder (LTX-2.0, 24 kHz) and
 * LTX2VocoderWithBWE (2.3: a vocoder of 16 kHz, and a second one that hears its sound and makes 48 kHz of it).
 *
 * Signals are [time, channel], channels last, sound among them. diffusers' pipelines run a vocoder in the dtype that
 * its folder was loaded with, as all other parts: in bf16, rounded after every operation. So does x's dtype here; in
 * F32 it is what the checkpoint's authors ask for.
 * Not here: how a net of convolutions runs (vocoder_ltx2_net.h), and what turns 16 kHz into 48 (vocoder_ltx2_bwe.c).
 * Easy to get wrong: the transposed convolution's weight is [in, out, k]; channels of a spectrogram are slow, bands
 * fast; the resampler's Hann filter is not in the file. */
#ifndef VOCODER_LTX2_H
#define VOCODER_LTX2_H

#include "core/json.h"
#include "vae/vocoder_ltx2_net.h"

typedef struct VocoderLtx2 {
    VocoderNet net;
    int64_t rate;          /* of the sound that comes out */
    bool bwe;              /* LTX2VocoderWithBWE: all that follows */
    VocoderNet generator;
    Weight basis, mel;     /* [2 n, window]: cosines, then sines, windowed; [bands, n], n = filter / 2 + 1 */
    int64_t filter, window, hop, bands, in_rate;
} VocoderLtx2;

/* folder: holds config.json, whose _class_name says which. ERR_MODEL for configs this file does not compute. */
Status vocoder_ltx2_open(const char *folder, VocoderLtx2 *out, Error *e);
/* The same from a config at hand, whose messages name `path`; `out` is a VocoderLtx2. */
Status vocoder_ltx2_read(const char *path, const Json *j, void *out, Error *e);
/* To be ignored in the files: "mel_stft.stft_fn.inverse_basis". */
void vocoder_ltx2_bind(VocoderLtx2 *v, Bind *b);

int64_t vocoder_ltx2_rate(const VocoderLtx2 *v);     /* samples a second */
int64_t vocoder_ltx2_channels(const VocoderLtx2 *v); /* of sound */
int64_t vocoder_ltx2_bands(const VocoderLtx2 *v);    /* of the spectrogram, a channel */
/* Samples of a channel that come of so many rows of the spectrogram. */
int64_t vocoder_ltx2_samples(const VocoderLtx2 *v, int64_t mel_rows);

/* sound [samples, channels], contiguous and of x's dtype, from mel [rows, bands, channels] of x's dtype, any strides.
 * Work arena: taken back. Taps: those of the net as "vocoder"; with BWE also bwe.mel [frames, channels * bands], those
 * of the generator as "bwe", bwe.skip. */
Status vocoder_ltx2_run(const VocoderLtx2 *v, Exec *x, Tensor mel, Tensor sound);

/* vocoder_ltx2_bwe.c: sound, as above, from what the first net made, `low` [samples, channels] of in_rate behind
 * vocoder_ltx2_lead() rows of room, and with room behind it up to a multiple of hop: room is written to. */
Status vocoder_ltx2_widen(const VocoderLtx2 *v, Exec *x, Tensor room, int64_t samples, Tensor sound);
int64_t vocoder_ltx2_lead(const VocoderLtx2 *v);
int64_t vocoder_ltx2_padded(const VocoderLtx2 *v, int64_t samples); /* up to a multiple of hop */

#endif
