/* av_track.h - the sound stream of a file that mp4.c writes: samples in, packets of one encoder out. Declares nothing
 * in a build without libav.
 *
 * Easy to get wrong: a muxer sorts the packets of its streams by time and holds back what runs ahead, so sound is fed
 * piece by piece beside the frames; an encoder takes frames of one size, and only the last may be shorter. */
#ifndef AV_TRACK_H
#define AV_TRACK_H

#include "media/av_libs.h"
#include "media/mp4.h"

#ifdef HAVE_LIBAV

typedef struct AvTrack {
    const AvLibs *av;
    AVFormatContext *file;
    const char *encoder; /* its name in libav */
    AVCodecContext *codec;
    AVStream *stream;
    AVFrame *frame;
    AVPacket *packet;
    const Sound *sound;
    int64_t length, at, given; /* samples of a channel: of the stream, fed, in packets */
} AvTrack;

/* Is there an encoder for it? kind is resolved. */
Status av_track_check(const AvLibs *av, Mp4Sound kind, const Sound *sound, Error *e);
/* Adds the stream to file, whose header is not written yet; the stream will be `length` samples long: zeros follow the
 * sound's own, or its end is left out. sound and file outlive it. */
Status av_track_open(const AvLibs *av, AVFormatContext *file, Mp4Sound kind, const Sound *sound, int64_t length, AvTrack *out,
                     Error *e);
/* Encodes what begins before sample `until`, and writes the packets that are ready. */
Status av_track_feed(AvTrack *t, int64_t until, Error *e);
/* The rest. ERR_IO also where the encoder gave fewer samples than it took. */
Status av_track_end(AvTrack *t, Error *e);
void av_track_close(AvTrack *t);

#endif

#endif
