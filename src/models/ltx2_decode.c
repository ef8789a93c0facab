/* ltx2_decode.c - frames and sound from LTX-2's latents. The clip is decoded whole, as diffusers does without tiling.
 *
 * Easy to get wrong: the sound is a little shorter than the clip (4 L - 3 rows of its spectrogram), and is left so. */
#include "models/ltx2.h"

Status ltx2_decode(Model *m, Exec *x, const Run *run, Tensor latents, Tensor rgb) {
    Ltx2 *z = (Ltx2 *)m;
    Ltx2Size s = ltx2_size(z, run->job);
    Tensor clip = ltx2_stream(&s, latents, LTX2_VIDEO);
    model_enter(x, &m->part[LTX2_VAE]);
    return vae_ltx2_decode(
        &z->vae, x,
        tensor_make(clip.data, F32, 4, (int64_t[]){s.frames, s.rows, s.cols, s.channels[LTX2_VIDEO]}), rgb);
}

void ltx2_hears(const Model *m, int *rate, int *channels) {
    const Ltx2 *z = (const Ltx2 *)m;
    *rate = (int)vocoder_ltx2_rate(&z->vocoder), *channels = (int)vocoder_ltx2_channels(&z->vocoder);
}

Status ltx2_sound(Model *m, Exec *x, const Run *run, Tensor latents, Tensor *wave, int *rate) {
    Ltx2 *z = (Ltx2 *)m;
    Ltx2Size s = ltx2_size(z, run->job);
    int64_t rows = vae_ltx2_audio_mel_rows(&z->audio.c, s.tokens[LTX2_AUDIO]);
    int64_t samples = vocoder_ltx2_samples(&z->vocoder, rows), channels = vocoder_ltx2_channels(&z->vocoder);
    *wave = exec_new_as(x, F32, samples, channels);
    *rate = (int)vocoder_ltx2_rate(&z->vocoder);
    size_t mark = arena_mark(x->work);
    model_enter(x, &m->part[LTX2_AUDIO_VAE]);
    Tensor mel = exec_new(x, rows, z->audio.c.mel, z->audio.c.out);
    TRY(vae_ltx2_audio_decode(&z->audio, x, ltx2_stream(&s, latents, LTX2_AUDIO), mel));
    model_enter(x, &m->part[LTX2_VOCODER]);
    Tensor sound = exec_new(x, samples, channels);
    TRY(vocoder_ltx2_run(&z->vocoder, x, mel, sound));
    TRY(op_copy(x, &(Copy){.y = *wave, .x = sound}));
    arena_reset(x->work, mark);
    return OK;
}
