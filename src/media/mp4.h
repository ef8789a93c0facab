/* mp4.h - clips, with their sound or without, as MP4 and Matroska files, encoded by libavcodec and written by libavformat.
 *
 *   h264     libx264, yuv420p by yuv.h, all four colour tags BT.709 limited; even sides only; crf 0 to 51
 *   x264rgb  libx264rgb, the RGB values themselves (tagged sRGB); without a crf, or with 0, lossless
 *   ffv1     FFV1 version 3 with checksums, lossless RGB; Matroska only
 *
 *   aac      AAC-LC, 96 kb/s for each channel (192 in stereo); MP4 only
 *   flac     FLAC of 24 bits: the samples rounded to that; Matroska only
 *   pcm      32-bit floats, the samples' own bits; Matroska only
 *
 * Sound is made as long as the video, to the nearest sample: silence is put behind it, or its end is left out. AAC comes in
 * frames of 1024 samples, one of them before the beginning: the edit list says where it begins and how long it is, players keep
 * to that, and libav's decoder to its beginning: it gives up to 1023 samples more.
 * MP4 files have their index in front (faststart). Their frame times are exact; Matroska's are rounded to milliseconds by the
 * format. `comment` travels in the container and comes back by av_texts.h.
 * The bytes are a function of the arguments, and of the releases of libav and x264: threads are counted out, and nothing of
 * the day or the machine is written (AAC's are also the kind of CPU's: it computes in floats).
 * Built with libav's headers when pkg-config finds them; without, or without the libraries, everything here fails and says so.
 * Easy to get wrong: ask mp4_check() before any work is done: encoders differ from one libav to the next. */
#ifndef MP4_H
#define MP4_H

#include "core/status.h"
#include "media/rate.h"
#include "media/sound.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum Mp4Codec { MP4_AUTO, MP4_H264, MP4_X264RGB, MP4_FFV1, MP4_CODECS } Mp4Codec;

typedef enum Mp4Sound { MP4_SOUND_AUTO, MP4_AAC, MP4_FLAC, MP4_PCM, MP4_SOUNDS } Mp4Sound;

typedef struct Mp4Clip {
    const uint8_t *rgb; /* [frames][height][width][3]; not looked at by mp4_check */
    int width, height, frames;
    Rate fps;
    Sound sound; /* rate 0: silent; mp4_check looks at its rate and channels alone */
} Mp4Clip;

typedef struct Mp4Options {
    Mp4Codec codec; /* MP4_AUTO: h264 in MP4, ffv1 in Matroska */
    int crf;        /* -1: 17 for h264, 0 for x264rgb; not for ffv1 */
    Mp4Sound sound; /* MP4_SOUND_AUTO: aac; in Matroska flac, beside lossless video pcm */
    bool matroska;
    const char *comment;             /* UTF-8; NULL: none */
    const volatile int *interrupted; /* NULL: never */
} Mp4Options;

const char *mp4_codec_name(Mp4Codec codec); /* "h264" */
const char *mp4_sound_name(Mp4Sound sound); /* "aac" */
bool mp4_codec_parse(const char *name, Mp4Codec *out);
bool mp4_sound_parse(const char *name, Mp4Sound *out);
/* AUTO, SOUND_AUTO and crf -1 replaced by what they mean. */
Mp4Options mp4_resolved(Mp4Options o);
bool mp4_lossless(Mp4Options o); /* the pictures; of sound, pcm is */

/* ERR_USAGE: what the codec, the container or the sides do not allow. ERR_IO: no libav, or its encoder is missing: one line
 * that names it. */
Status mp4_check(const Mp4Clip *clip, const Mp4Options *o, Error *e);
/* Encodes into malloc'd *bytes. Also ERR_MEMORY, ERR_INTERRUPTED; ERR_IO with libav's own words for whatever fails in it: a
 * clip of which one frame was not taken is no clip. */
Status mp4_encode(const Mp4Clip *clip, const Mp4Options *o, unsigned char **bytes, size_t *size, Error *e);
/* mp4_encode() to a file, by file_write_atomic(). */
Status mp4_write(const char *path, const Mp4Clip *clip, const Mp4Options *o, bool overwrite, Error *e);

#endif
