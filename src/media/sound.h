/* sound.h - samples of sound as everything passes them on, and WAV files of them.
 *
 * Not a codec: sound beside a video is encoded by mp4.h, read by av_read.h.
 * Easy to get wrong: count is of one channel. 16-bit samples are x 32767 rounded to the nearest, halves to even, after x was
 * held to -1 to 1 (NaN gives 0); floats are the samples' own bits. */
#ifndef SOUND_H
#define SOUND_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

/* Interleaved f32, full scale 1: [count][channels]. */
typedef struct Sound {
    float *samples; /* malloc'd where nothing else is said */
    int64_t count;
    int rate, channels; /* samples a second; rate 0: there is no sound */
} Sound;

typedef enum SoundFormat { SOUND_PCM16, SOUND_FLOAT32 } SoundFormat;

void sound_free(Sound *s);
int16_t sound_pcm16(float v);
/* A WAV file of the samples: WAVE_FORMAT_PCM, or IEEE_FLOAT, into malloc'd *bytes. ERR_USAGE: no sound, or more than
 * the 4 GiB that the format counts to. */
Status sound_wav(const Sound *s, SoundFormat format, unsigned char **bytes, size_t *size, Error *e);

#endif
