/* av_input.h - one stream of a media file, decoded frame by frame: what av_read.c and av_sound.c share. Declares nothing in a
 * build without libav.
 *
 * Packets of other streams are not read. Every sign of damage is an error: see av_read.h.
 * Easy to get wrong: path is the caller's and must outlive the input; frame belongs to it and changes with every call. */
#ifndef AV_INPUT_H
#define AV_INPUT_H

#include "media/av_libs.h"

#ifdef HAVE_LIBAV

#include <stdbool.h>
#include <stdint.h>

typedef struct AvInput {
    AvLibs av;
    const char *path;
    AVFormatContext *file;
    AVCodecContext *decoder;
    AVPacket *packet;
    AVFrame *frame;
    int index;
    int64_t frames; /* handed out */
    bool drained;   /* all packets are in the decoder */
} AvInput;

/* The file alone; its streams can be looked at. */
Status av_input_file(const char *path, AvInput *s, Error *e);
/* The file and the decoder of its best stream of this type. Closed when it fails. */
Status av_input_open(const char *path, enum AVMediaType type, AvInput *s, Error *e);
void av_input_close(AvInput *s);
/* The next frame is in s->frame; *end: there is none. */
Status av_input_next(AvInput *s, bool *end, Error *e);
/* "PATH: WHAT: libav's words for its error code" */
Status av_input_fail(const AvInput *s, const char *what, int code, Error *e);

#endif

#endif
