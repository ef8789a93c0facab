/* av_input.c - see av_input.h.
 * Easy to get wrong: libav reports most damage by flags, not by return values: the flags of every packet and frame are asked. */
#include "media/av_input.h"

#ifdef HAVE_LIBAV

#include "media/av_whole.h"

#include <stdio.h>
#include <stdlib.h>

Status av_input_fail(const AvInput *s, const char *what, int code, Error *e) {
    char text[AV_ERROR_MAX_STRING_SIZE] = "";
    if (code == AVERROR(ENOMEM)) return fail(e, ERR_MEMORY, "%s: out of memory", s->path);
    s->av.av_strerror_(code, text, sizeof text);
    return fail(e, ERR_IO, "%s: %s: %s", s->path, what, text);
}

void av_input_close(AvInput *s) {
    if (!s->av.av_frame_free_) return;
    s->av.av_frame_free_(&s->frame);
    s->av.av_packet_free_(&s->packet);
    s->av.avcodec_free_context_(&s->decoder);
    s->av.avformat_close_input_(&s->file);
}

/* libav would also draw text files as video and follow playlists. */
static const char FORMATS[] =
    "mov,matroska,avi,nut,mpegts,mpeg,yuv4mpegpipe,ivf,h264,hevc,m4v,wav,w64,aiff,au,flac,ogg,mp3,aac,"
    "gif,apng,webp_pipe,bmp_pipe,tiff_pipe,ppm_pipe,pgm_pipe,pam_pipe,exr_pipe,qoi_pipe";

Status av_input_file(const char *path, AvInput *s, Error *e) {
    *s = (AvInput){.path = path};
    TRY(av_whole_check(path, e));
    if (av_libs_open(&s->av, e) != OK) return because(e, "%s", path);
    AVDictionary *options = NULL;
    char *name = NULL; /* "a:b.mp4" is a name here, no protocol */
    if (asprintf(&name, "file:%s", path) < 0) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    s->av.av_dict_set_(&options, "protocol_whitelist", "file", 0); /* a file must not make us fetch another one */
    s->av.av_dict_set_(&options, "format_whitelist", FORMATS, 0);
    int code = s->av.avformat_open_input_(&s->file, name, NULL, &options);
    s->av.av_dict_free_(&options);
    free(name);
    if (code < 0) return av_input_fail(s, "cannot open", code, e);
    code = s->av.avformat_find_stream_info_(s->file, NULL);
    if (code < 0) s->av.avformat_close_input_(&s->file);
    return code < 0 ? av_input_fail(s, "cannot read", code, e) : OK;
}

static Status decoder_open(AvInput *s, enum AVMediaType type, Error *e) {
    const char *word = type == AVMEDIA_TYPE_VIDEO ? "video" : "sound";
    const AVCodec *codec = NULL;
    s->index = s->av.av_find_best_stream_(s->file, type, -1, -1, &codec, 0);
    if (s->index == AVERROR_STREAM_NOT_FOUND) return fail(e, ERR_IO, "%s: holds no %s", s->path, word);
    if (s->index < 0) return fail(e, ERR_IO, "%s: the installed libav has no decoder for its %s", s->path, word);
    for (unsigned i = 0; i < s->file->nb_streams; i++)
        if ((int)i != s->index) s->file->streams[i]->discard = AVDISCARD_ALL;
    const AVStream *stream = s->file->streams[s->index];
    s->decoder = s->av.avcodec_alloc_context3_(codec);
    s->packet = s->av.av_packet_alloc_();
    s->frame = s->av.av_frame_alloc_();
    if (!s->decoder || !s->packet || !s->frame) return fail(e, ERR_MEMORY, "%s: out of memory", s->path);
    int code = s->av.avcodec_parameters_to_context_(s->decoder, stream->codecpar);
    s->decoder->pkt_timebase = stream->time_base;
    s->decoder->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
    s->decoder->error_concealment = 0;
    s->decoder->thread_count = 0;
    if (code >= 0) code = s->av.avcodec_open2_(s->decoder, codec, NULL);
    return code < 0 ? av_input_fail(s, "cannot decode", code, e) : OK;
}

Status av_input_open(const char *path, enum AVMediaType type, AvInput *s, Error *e) {
    Status status = av_input_file(path, s, e);
    if (status == OK) status = decoder_open(s, type, e);
    if (status != OK) av_input_close(s);
    return status;
}

/* One more packet into the decoder, or the word that no more will come. */
static Status feed(AvInput *s, Error *e) {
    int code = s->av.av_read_frame_(s->file, s->packet);
    char place[64];
    snprintf(place, sizeof place, "damaged after frame %lld", (long long)s->frames);
    if (code == AVERROR_EOF) {
        if (s->file->pb && s->file->pb->error) return av_input_fail(s, place, s->file->pb->error, e);
        s->drained = true;
        code = s->av.avcodec_send_packet_(s->decoder, NULL);
        return code < 0 && code != AVERROR_EOF ? av_input_fail(s, place, code, e) : OK;
    }
    if (code < 0) return av_input_fail(s, place, code, e);
    if (s->packet->stream_index == s->index) {
        /* the last packet of plain samples is short where the file does not know its length (av_whole.h does, if any) */
        bool plain = s->av.av_get_bits_per_sample_(s->decoder->codec_id) > 0;
        if ((s->packet->flags & AV_PKT_FLAG_CORRUPT) && !plain)
            code = AVERROR_INVALIDDATA;
        else
            code = s->av.avcodec_send_packet_(s->decoder, s->packet);
    }
    s->av.av_packet_unref_(s->packet);
    return code < 0 ? av_input_fail(s, place, code, e) : OK;
}

Status av_input_next(AvInput *s, bool *end, Error *e) {
    *end = false;
    for (;;) {
        int code = s->av.avcodec_receive_frame_(s->decoder, s->frame);
        if (code == AVERROR_EOF) {
            *end = true;
            return OK;
        }
        if (code == AVERROR(EAGAIN) && !s->drained) {
            TRY(feed(s, e));
            continue;
        }
        char place[64];
        snprintf(place, sizeof place, "damaged at frame %lld", (long long)s->frames);
        if (code < 0) return av_input_fail(s, place, code, e);
        if (s->frame->decode_error_flags || (s->frame->flags & AV_FRAME_FLAG_CORRUPT))
            return av_input_fail(s, place, AVERROR_INVALIDDATA, e);
        s->frames++;
        return OK;
    }
}

#else

typedef int AvInputNothing; /* ISO C wants one declaration */

#endif
