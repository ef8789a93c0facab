/* av_read.h - reading video and sound files (MP4, MKV, WAV and whatever else the installed libav knows), to compare them.
 *
 * One reader decodes the best video stream, frame by frame; sound is read whole. Both are exactly what libav's decoder
 * gives: edit lists and codec delay applied, no rotation, no frame dropped or repeated to keep a rate. Not a writer.
 * Built with libav's headers when pkg-config finds them, and the libraries are looked up when first used (av_libs.h); without
 * either, every function here that opens a file fails and says so.
 * Easy to get wrong:
 *  - A damaged file is an error here, where players conceal it: a frame that the decoder repaired, a packet that ends too
 *    early, a stream that stops before the length its header promises.
 *  - Native planes are given for planar Y and YUV of 8 to 16 bits; everything else (packed, RGB, palettes) comes as RGB8
 *    through libswscale, and `reduced` says that samples had more bits.
 *  - Alpha is left out. */
#ifndef AV_READ_H
#define AV_READ_H

#include "core/status.h"
#include "media/planes.h"
#include "media/rate.h"
#include "media/sound.h"

typedef struct AvReader AvReader;

typedef struct AvInfo {
    char format[32];    /* "yuv420p", libav's name of what is stored */
    char codec[32];     /* "h264" */
    char container[32]; /* "mov,mp4,m4a,3gp,3g2,mj2" cut at its first comma */
    int width, height;
    bool native;  /* frames come as stored, not as RGB8 */
    bool full;    /* full range (0..255), as JPEG has it */
    bool reduced; /* RGB8 was made from more bits */
    bool alpha;   /* there is one, left out */
    double fps;   /* 0: unknown */
    Rate rate;    /* the same, exact; num 0: unknown */
    int64_t told; /* frames that the header promises; 0: it does not say */
    char colours[80]; /* range, matrix, primaries and transfer as libav names them, "?" where none is told */
} AvInfo;

/* False: this ditto was built without libav. */
bool av_read_available(void);

/* What a file holds. ERR_IO names the file and what libav found wrong with it. */
Status av_read_probe(const char *path, bool *video, bool *sound, Error *e);

/* Opens the best video stream. rgb: every frame as RGB8, whatever is stored. */
Status av_read_open(const char *path, bool rgb, AvReader **out, Error *e);
void av_read_close(AvReader *r);
const AvInfo *av_read_info(const AvReader *r);
/* The next frame, valid until the next call; *end instead when there is none. ERR_IO names the frame: damaged, or of another
 * size or format than the first. */
Status av_read_video(AvReader *r, Planes *out, bool *end, Error *e);

/* What is told of the best sound stream, nothing of it decoded. */
typedef struct AvSoundInfo {
    char codec[48]; /* "aac LC" */
    int rate, channels;
    int64_t told;   /* samples of a channel that the header promises; 0: it does not say */
    int64_t bits;   /* a second; 0: it does not say */
} AvSoundInfo;
Status av_sound_info(const char *path, AvSoundInfo *out, Error *e);

/* The best sound stream, to its end; samples of up to 24 bits are exact. ERR_IO as above. sound_free() *out. */
Status av_sound_read(const char *path, Sound *out, Error *e);

#endif
