/* av_sink.h - where libav's muxers write: memory that grows, so that a file's bytes are complete before a name on the disk is
 * touched (core/file.h does that). Declares nothing in a build without libav.
 *
 * Easy to get wrong: a muxer that moves its index to the front opens its own output again to read it: that is io_open's second
 * stream on the same bytes. Errors of a sink stay in its pb->error, which whoever closes must ask. */
#ifndef AV_SINK_H
#define AV_SINK_H

#include "media/av_libs.h"

#ifdef HAVE_LIBAV

typedef struct AvSink {
    const AvLibs *av;
    unsigned char *data; /* malloc'd */
    size_t size, room;
    int64_t at; /* of the writer */
    AVIOContext *pb;
} AvSink;

/* Makes file write to the sink. ERR_MEMORY. file and sink stay where they are until av_sink_close(). */
Status av_sink_open(const AvLibs *av, AVFormatContext *file, AvSink *out, Error *e);
/* Frees all but the bytes, which *data takes over when it is not NULL. */
void av_sink_close(AvSink *s, AVFormatContext *file, unsigned char **data, size_t *size);

#endif

#endif
