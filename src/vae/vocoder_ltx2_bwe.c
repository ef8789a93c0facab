/* vocoder_ltx2_bwe.c - the second half of diffusers' LTX2VocoderWithBWE: the log-mel spectrogram of what the first net
 * made, the generator that makes of it what the higher rate lacks, and the sound itself at that rate, to which this is
 * added.
 *
 * The short-time transform is a product: windows of the sound, one a hop, with the stored bases. diffusers pads sound
 * to whole hops by an attribute that it does not have; lengths that the published config makes never need it, others
 * are padded here.
 * Easy to get wrong: windows end with their hop (zeros stand before the sound, none behind); channels are heard one by
 * one, and their bands then lie side by side. */
#include "vae/vocoder_ltx2.h"

#include <math.h>

int64_t vocoder_ltx2_lead(const VocoderLtx2 *v) { return v->window - v->hop; }
int64_t vocoder_ltx2_padded(const VocoderLtx2 *v, int64_t samples) { return (samples + v->hop - 1) / v->hop * v->hop; }

/* mel [frames, bands] of one channel of room; before the logarithm. */
static Status listen(const VocoderLtx2 *v, Exec *x, Tensor room, int64_t channel, Tensor mel) {
    size_t mark = arena_mark(x->work);
    const int64_t frames = mel.shape[0], n = v->filter / 2 + 1, channels = room.shape[1];
    Tensor window = exec_new(x, frames, v->window), spectrum = exec_new(x, frames, 2 * n),
           magnitude = exec_new(x, frames, n);
    Tensor from = tensor_slice(room, 1, channel, 1); /* windows overlap: [frames, window] of strides hop and 1 sample */
    from.shape[0] = frames, from.stride[0] = v->hop * channels;
    from.shape[1] = v->window, from.stride[1] = channels;
    TRY(op_copy(x, &(Copy){.y = window, .x = from}));
    TRY(op_linear(x, &(Linear){.y = spectrum, .x = window, .w = &v->basis}));
    TRY(op_magnitude(x, &(Magnitude){.y = magnitude, .x = spectrum}));
    TRY(op_linear(x, &(Linear){.y = mel, .x = magnitude, .w = &v->mel}));
    arena_reset(x->work, mark);
    return OK;
}

/* The windowed sinc of torchaudio's resampler, in f32 as diffusers' UpSample1d computes it; `ratio` times the rate. */
enum { HALF_WIDTH = 6, HANN_TAPS = WAVE_TAPS };
static int hann(int64_t ratio, int64_t *width, float taps[HANN_TAPS]) {
    const float rolloff = 0.99f, pi = 3.14159265358979323846f;
    *width = (int64_t)ceil(HALF_WIDTH / 0.99);
    const int count = (int)(2 * *width * ratio + 1);
    for (int i = 0; i < count && count <= HANN_TAPS; i++) {
        float t = ((float)i / (float)ratio - (float)*width) * rolloff;
        float held = t < -HALF_WIDTH ? -HALF_WIDTH : t > HALF_WIDTH ? HALF_WIDTH : t;
        float c = cosf(held * pi / HALF_WIDTH / 2), s = t == 0 ? 1 : sinf(pi * t) / (pi * t);
        taps[i] = s * (c * c) * rolloff / (float)ratio;
    }
    return count;
}

/* y = low at the higher rate. */
static Status resample(const VocoderLtx2 *v, Exec *x, Tensor low, Tensor y) {
    float taps[HANN_TAPS];
    uint16_t half[HANN_TAPS];
    const int64_t ratio = v->rate / v->in_rate;
    int64_t width;
    const int count = hann(ratio, &width, taps);
    if (count > HANN_TAPS)
        return fail(x->error, ERR_MODEL, "vocoder: %lld times the rate needs a filter of %d taps", (long long)ratio,
                    count);
    for (int i = 0; i < count; i++) half[i] = bf16_from_f32(taps[i]);
    Tensor filter = exec_new(x, count);
    TRY(exec_upload(x, filter, x->dtype == BF16 ? (const void *)half : taps));
    TRY(op_fir_up(x, &(FirUp){.y = y,
                              .x = low,
                              .filter = filter,
                              .ratio = (int32_t)ratio,
                              .pad = (int32_t)width,
                              .crop = (int32_t)(2 * width * ratio)}));
    return exec_tap(x, "bwe.skip", y);
}

Status vocoder_ltx2_widen(const VocoderLtx2 *v, Exec *x, Tensor room, int64_t samples, Tensor sound) {
    size_t mark = arena_mark(x->work);
    const int64_t lead = vocoder_ltx2_lead(v), padded = vocoder_ltx2_padded(v, samples), channels = room.shape[1];
    const int64_t frames = padded / v->hop, high = padded * (v->rate / v->in_rate), wanted = sound.shape[0];
    if (lead) TRY(vocoder_ltx2_net_zero(x, tensor_slice(room, 0, 0, lead)));
    if (padded > samples) TRY(vocoder_ltx2_net_zero(x, tensor_slice(room, 0, lead + samples, padded - samples)));
    Tensor mel = exec_new(x, frames, channels * v->bands), residual = exec_new(x, high, channels),
           skip = exec_new(x, high, channels);
    for (int64_t c = 0; c < channels; c++) TRY(listen(v, x, room, c, tensor_slice(mel, 1, c * v->bands, v->bands)));
    TRY(op_act(x, &(Act){.y = mel, .x = mel, .kind = ACT_LOG_FLOOR}));
    TRY(exec_tap(x, "bwe.mel", mel));
    TRY(vocoder_ltx2_net_run(&v->generator, x, "bwe", mel, residual));
    TRY(resample(v, x, tensor_slice(room, 0, lead, padded), skip));
    TRY(op_add(x,
               &(Add){.y = sound, .a = tensor_slice(residual, 0, 0, wanted), .b = tensor_slice(skip, 0, 0, wanted)}));
    TRY(op_act(x, &(Act){.y = sound, .x = sound, .kind = ACT_CLAMP}));
    arena_reset(x->work, mark);
    return OK;
}
