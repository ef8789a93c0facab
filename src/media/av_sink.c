/* av_sink.c - see av_sink.h. */
#include "media/av_sink.h"

#ifdef HAVE_LIBAV

#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 16 };

/* const since libavformat 61 */
#if LIBAVFORMAT_VERSION_MAJOR >= 61
#define WRITTEN const uint8_t
#else
#define WRITTEN uint8_t
#endif

static int put(void *opaque, WRITTEN *bytes, int count) {
    AvSink *s = opaque;
    size_t end = (size_t)s->at + (size_t)count;
    if (end > s->room) {
        size_t room = end + end / 2 + BUFFER;
        unsigned char *larger = realloc(s->data, room);
        if (!larger) return AVERROR(ENOMEM);
        memset(larger + s->room, 0, room - s->room); /* whoever seeks past the end leaves zeros */
        s->data = larger, s->room = room;
    }
    memcpy(s->data + s->at, bytes, (size_t)count);
    s->at = (int64_t)end;
    if (end > s->size) s->size = end;
    return count;
}

static int64_t moved(int64_t at, size_t size, int64_t offset, int whence) {
    switch (whence & ~AVSEEK_FORCE) {
    case AVSEEK_SIZE: return (int64_t)size;
    case SEEK_SET: return offset;
    case SEEK_CUR: return at + offset;
    case SEEK_END: return (int64_t)size + offset;
    default: return -1;
    }
}

static int64_t seek(void *opaque, int64_t offset, int whence) {
    AvSink *s = opaque;
    int64_t to = moved(s->at, s->size, offset, whence);
    if (to < 0) return AVERROR(EINVAL);
    if (!(whence & AVSEEK_SIZE)) s->at = to;
    return to;
}

/* --- the muxer reads what it wrote --- */

typedef struct Reading {
    const AvSink *sink;
    int64_t at;
} Reading;

static int get(void *opaque, uint8_t *bytes, int count) {
    Reading *r = opaque;
    if (r->at >= (int64_t)r->sink->size) return AVERROR_EOF;
    size_t left = r->sink->size - (size_t)r->at, n = left < (size_t)count ? left : (size_t)count;
    memcpy(bytes, r->sink->data + r->at, n);
    r->at += (int64_t)n;
    return (int)n;
}

static int64_t seek_reading(void *opaque, int64_t offset, int whence) {
    Reading *r = opaque;
    int64_t to = moved(r->at, r->sink->size, offset, whence);
    if (to < 0) return AVERROR(EINVAL);
    if (!(whence & AVSEEK_SIZE)) r->at = to;
    return to;
}

static void free_pb(const AvLibs *av, AVIOContext **pb) {
    if (*pb) av->av_freep_(&(*pb)->buffer);
    av->avio_context_free_(pb);
}

static int open_reading(AVFormatContext *file, AVIOContext **pb, const char *url, int flags, AVDictionary **options) {
    const AvSink *s = file->opaque;
    (void)url, (void)options;
    if (flags & AVIO_FLAG_WRITE) return AVERROR(EACCES); /* one file is all that is made here */
    Reading *r = malloc(sizeof *r);
    unsigned char *buffer = s->av->av_malloc_(BUFFER);
    *pb = r && buffer ? s->av->avio_alloc_context_(buffer, BUFFER, 0, r, get, NULL, seek_reading) : NULL;
    if (*pb) {
        *r = (Reading){s, 0};
        return 0;
    }
    free(r);
    s->av->av_freep_(&buffer);
    return AVERROR(ENOMEM);
}

static int close_reading(AVFormatContext *file, AVIOContext *pb) {
    const AvSink *s = file->opaque;
    free(pb->opaque);
    free_pb(s->av, &pb);
    return 0;
}

Status av_sink_open(const AvLibs *av, AVFormatContext *file, AvSink *out, Error *e) {
    *out = (AvSink){.av = av};
    unsigned char *buffer = av->av_malloc_(BUFFER);
    if (buffer) out->pb = av->avio_alloc_context_(buffer, BUFFER, 1, out, NULL, put, seek);
    if (!out->pb) {
        av->av_freep_(&buffer);
        return fail(e, ERR_MEMORY, "out of memory for a video file");
    }
    file->pb = out->pb;
    file->opaque = out;
    file->io_open = open_reading;
    file->io_close2 = close_reading;
    file->flags |= AVFMT_FLAG_CUSTOM_IO;
    return OK;
}

void av_sink_close(AvSink *s, AVFormatContext *file, unsigned char **data, size_t *size) {
    if (file) file->pb = NULL;
    if (s->pb) free_pb(s->av, &s->pb);
    if (data)
        *data = s->data, *size = s->size;
    else
        free(s->data);
    *s = (AvSink){0};
}

#else

typedef int AvSinkNothing; /* ISO C wants one declaration */

#endif
