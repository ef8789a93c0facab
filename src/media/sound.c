/* sound.c - see sound.h. */
#include "media/sound.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 44, FLOAT_HEADER = 58, PCM = 1, IEEE_FLOAT = 3 }; /* floats: a longer fmt chunk, and a fact chunk */

void sound_free(Sound *s) {
    free(s->samples);
    *s = (Sound){0};
}

int16_t sound_pcm16(float v) {
    if (isnan(v)) return 0;
    return (int16_t)lrintf((v < -1.0f ? -1.0f : v > 1.0f ? 1.0f : v) * 32767.0f);
}

static unsigned char *put(unsigned char *to, uint32_t v, int bytes) {
    for (int i = 0; i < bytes; i++) *to++ = (unsigned char)(v >> 8 * i);
    return to;
}

static unsigned char *name(unsigned char *to, const char *four) {
    memcpy(to, four, 4);
    return to + 4;
}

static unsigned char *put_header(unsigned char *to, const Sound *s, bool floats, uint32_t bytes) {
    uint32_t width = floats ? 4 : 2, frame = width * (uint32_t)s->channels;
    to = put(name(to, "RIFF"), (uint32_t)(floats ? FLOAT_HEADER : HEADER) - 8 + bytes, 4);
    to = put(name(name(to, "WAVE"), "fmt "), floats ? 18 : 16, 4);
    to = put(put(to, floats ? IEEE_FLOAT : PCM, 2), (uint32_t)s->channels, 2);
    to = put(put(to, (uint32_t)s->rate, 4), (uint32_t)s->rate * frame, 4);
    to = put(put(to, frame, 2), 8 * width, 2);
    if (floats) to = put(put(name(put(to, 0, 2), "fact"), 4, 4), (uint32_t)s->count, 4);
    return put(name(to, "data"), bytes, 4);
}

Status sound_wav(const Sound *s, SoundFormat format, unsigned char **bytes, size_t *size, Error *e) {
    bool floats = format == SOUND_FLOAT32;
    *bytes = NULL, *size = 0;
    if (s->rate < 1 || s->channels < 1 || s->channels > 64 || s->count < 1)
        return fail(e, ERR_USAGE, "no sound has %lld samples of %d channels, %d a second", (long long)s->count,
                    s->channels, s->rate);
    int64_t values = s->count * s->channels;
    if (s->count > UINT32_MAX / 4 / s->channels - FLOAT_HEADER)
        return fail(e, ERR_USAGE, "%lld samples are more than a WAV file can hold", (long long)s->count);
    size_t data = (size_t)values * (floats ? 4 : 2), header = floats ? FLOAT_HEADER : HEADER;
    unsigned char *to = malloc(header + data);
    if (!to) return fail(e, ERR_MEMORY, "out of memory for a WAV file");
    *bytes = to, *size = header + data;
    to = put_header(to, s, floats, (uint32_t)data);
    for (int64_t i = 0; i < values; i++) {
        uint32_t bits;
        memcpy(&bits, &s->samples[i], 4);
        to = floats ? put(to, bits, 4) : put(to, (uint32_t)(uint16_t)sound_pcm16(s->samples[i]), 2);
    }
    return OK;
}
