/* av_read.c - see av_read.h. One Stream (a file, one of its streams, that stream's decoder) serves both kinds; packets of
 * other streams are not even read.
 * Easy to get wrong: libav reports most damage by flags, not by return values, and logs it to standard error: its log is
 * switched off, and the flags are asked. */
#include "media/av_read.h"

#include "media/av_whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_LIBAV

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswresample/swresample.h>
#include <libswscale/swscale.h>

bool av_read_available(void) { return true; }

typedef struct Stream {
    const char *path;
    AVFormatContext *file;
    AVCodecContext *decoder;
    AVPacket *packet;
    AVFrame *frame;
    int index;
    int64_t frames; /* handed out */
    bool drained;   /* all packets are in the decoder */
} Stream;

static Status av_fail(Error *e, const char *path, const char *what, int code) {
    char text[AV_ERROR_MAX_STRING_SIZE] = "";
    if (code == AVERROR(ENOMEM)) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    av_strerror(code, text, sizeof text);
    return fail(e, ERR_IO, "%s: %s: %s", path, what, text);
}

static void stream_close(Stream *s) {
    av_frame_free(&s->frame);
    av_packet_free(&s->packet);
    avcodec_free_context(&s->decoder);
    avformat_close_input(&s->file);
}

/* libav would also draw text files as video and follow playlists. */
static const char FORMATS[] = "mov,matroska,avi,nut,mpegts,mpeg,yuv4mpegpipe,ivf,h264,hevc,m4v,wav,w64,aiff,au,flac,ogg,mp3,aac,"
                              "gif,apng,webp_pipe,bmp_pipe,tiff_pipe,ppm_pipe,pgm_pipe,pam_pipe,exr_pipe,qoi_pipe";

static Status file_open(const char *path, AVFormatContext **out, Error *e) {
    TRY(av_whole_check(path, e));
    av_log_set_level(AV_LOG_QUIET);
    AVDictionary *options = NULL;
    char *name = NULL; /* "a:b.mp4" is a name here, no protocol */
    if (asprintf(&name, "file:%s", path) < 0) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    av_dict_set(&options, "protocol_whitelist", "file", 0); /* a file must not make us fetch another one */
    av_dict_set(&options, "format_whitelist", FORMATS, 0);
    int code = avformat_open_input(out, name, NULL, &options);
    av_dict_free(&options);
    free(name);
    if (code < 0) return av_fail(e, path, "cannot open", code);
    code = avformat_find_stream_info(*out, NULL);
    if (code < 0) avformat_close_input(out);
    return code < 0 ? av_fail(e, path, "cannot read", code) : OK;
}

Status av_read_probe(const char *path, bool *video, bool *sound, Error *e) {
    AVFormatContext *file = NULL;
    TRY(file_open(path, &file, e));
    *video = av_find_best_stream(file, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0) >= 0;
    *sound = av_find_best_stream(file, AVMEDIA_TYPE_AUDIO, -1, -1, NULL, 0) >= 0;
    avformat_close_input(&file);
    if (!*video && !*sound) return fail(e, ERR_IO, "%s: holds neither video nor sound", path);
    return OK;
}

static Status decoder_open(Stream *s, enum AVMediaType type, Error *e) {
    const char *word = type == AVMEDIA_TYPE_VIDEO ? "video" : "sound";
    const AVCodec *codec = NULL;
    s->index = av_find_best_stream(s->file, type, -1, -1, &codec, 0);
    if (s->index == AVERROR_STREAM_NOT_FOUND) return fail(e, ERR_IO, "%s: holds no %s", s->path, word);
    if (s->index < 0) return fail(e, ERR_IO, "%s: the installed libav has no decoder for its %s", s->path, word);
    for (unsigned i = 0; i < s->file->nb_streams; i++)
        if ((int)i != s->index) s->file->streams[i]->discard = AVDISCARD_ALL;
    const AVStream *stream = s->file->streams[s->index];
    s->decoder = avcodec_alloc_context3(codec);
    s->packet = av_packet_alloc();
    s->frame = av_frame_alloc();
    if (!s->decoder || !s->packet || !s->frame) return fail(e, ERR_MEMORY, "%s: out of memory", s->path);
    int code = avcodec_parameters_to_context(s->decoder, stream->codecpar);
    s->decoder->pkt_timebase = stream->time_base;
    s->decoder->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
    s->decoder->error_concealment = 0;
    s->decoder->thread_count = 0;
    if (code >= 0) code = avcodec_open2(s->decoder, codec, NULL);
    return code < 0 ? av_fail(e, s->path, "cannot decode", code) : OK;
}

static Status stream_open(const char *path, enum AVMediaType type, Stream *s, Error *e) {
    *s = (Stream){.path = path};
    Status status = file_open(path, &s->file, e);
    if (status == OK) status = decoder_open(s, type, e);
    if (status != OK) stream_close(s);
    return status;
}

/* One more packet into the decoder, or the word that no more will come. */
static Status feed(Stream *s, Error *e) {
    int code = av_read_frame(s->file, s->packet);
    char place[64];
    snprintf(place, sizeof place, "damaged after frame %lld", (long long)s->frames);
    if (code == AVERROR_EOF) {
        if (s->file->pb && s->file->pb->error) return av_fail(e, s->path, place, s->file->pb->error);
        s->drained = true;
        code = avcodec_send_packet(s->decoder, NULL);
        return code < 0 && code != AVERROR_EOF ? av_fail(e, s->path, place, code) : OK;
    }
    if (code < 0) return av_fail(e, s->path, place, code);
    if (s->packet->stream_index == s->index) {
        /* the last packet of plain samples is short where the file does not know its length (av_whole.h does, if any) */
        bool plain = av_get_bits_per_sample(s->decoder->codec_id) > 0;
        if ((s->packet->flags & AV_PKT_FLAG_CORRUPT) && !plain) code = AVERROR_INVALIDDATA;
        else code = avcodec_send_packet(s->decoder, s->packet);
    }
    av_packet_unref(s->packet);
    return code < 0 ? av_fail(e, s->path, place, code) : OK;
}

static Status next(Stream *s, bool *end, Error *e) {
    *end = false;
    for (;;) {
        int code = avcodec_receive_frame(s->decoder, s->frame);
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
        if (code < 0) return av_fail(e, s->path, place, code);
        if (s->frame->decode_error_flags || (s->frame->flags & AV_FRAME_FLAG_CORRUPT))
            return av_fail(e, s->path, place, AVERROR_INVALIDDATA);
        s->frames++;
        return OK;
    }
}

/* --- video --- */

struct AvReader {
    Stream stream;
    AvInfo info;
    bool rgb, begun; /* begun: the frame that av_read_open decoded has been handed out */
    int format;
    struct SwsContext *scale;
    uint8_t *pixels; /* RGB8 */
    char path[];
};

/* Planar Y or YUV in the machine's own byte order, one sample an element. */
static bool is_native(const AVPixFmtDescriptor *d) {
    const uint64_t other = AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM | AV_PIX_FMT_FLAG_HWACCEL |
                           AV_PIX_FMT_FLAG_BAYER | AV_PIX_FMT_FLAG_FLOAT | AV_PIX_FMT_FLAG_BE;
    int alpha = (d->flags & AV_PIX_FMT_FLAG_ALPHA) != 0, count = d->nb_components - alpha;
    if ((d->flags & other) || (count != 1 && count != 3)) return false;
    for (int i = 0; i < count; i++) {
        const AVComponentDescriptor *c = &d->comp[i];
        if (c->plane != i || c->offset || c->shift || c->depth < 8 || c->depth > 16 || c->depth != d->comp[0].depth ||
            c->step != (c->depth + 7) / 8)
            return false;
    }
    return true;
}

static Status describe(AvReader *r, Error *e) {
    const AVFrame *f = r->stream.frame;
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
    if (!d) return fail(e, ERR_IO, "%s: unknown pixel format", r->path);
    const AVRational rate = r->stream.file->streams[r->stream.index]->avg_frame_rate;
    AvInfo *info = &r->info;
    *info = (AvInfo){.width = f->width, .height = f->height, .fps = rate.den ? av_q2d(rate) : 0};
    snprintf(info->format, sizeof info->format, "%s", d->name);
    const char *container = r->stream.file->iformat->name;
    snprintf(info->container, sizeof info->container, "%.*s", (int)strcspn(container, ","), container);
    info->full = f->color_range == AVCOL_RANGE_JPEG || !strncmp(d->name, "yuvj", 4);
    info->alpha = (d->flags & AV_PIX_FMT_FLAG_ALPHA) != 0;
    info->native = !r->rgb && is_native(d);
    info->reduced = !info->native && d->comp[0].depth > 8;
    r->format = f->format;
    if ((int64_t)f->width * f->height > 1 << 28)
        return fail(e, ERR_IO, "%s: %dx%d pixels are too many, at most 2^28 are read", r->path, f->width, f->height);
    return OK;
}

static Status to_rgb(AvReader *r, Planes *out, Error *e) {
    const AVFrame *f = r->stream.frame;
    if (!r->scale) {
        const int flags = SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP;
        r->scale = sws_getContext(f->width, f->height, f->format, f->width, f->height, AV_PIX_FMT_RGB24, flags, NULL, NULL, NULL);
        r->pixels = malloc((size_t)f->width * (size_t)f->height * 3 + 64); /* vector stores reach past the end */
        if (!r->scale || !r->pixels) return fail(e, ERR_IO, "%s: %s cannot be made RGB", r->path, r->info.format);
        const int *matrix = sws_getCoefficients(f->colorspace == AVCOL_SPC_UNSPECIFIED ? SWS_CS_DEFAULT : (int)f->colorspace);
        sws_setColorspaceDetails(r->scale, matrix, r->info.full, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
    }
    uint8_t *planes[4] = {r->pixels};
    int strides[4] = {f->width * 3};
    if (sws_scale(r->scale, (const uint8_t *const *)f->data, f->linesize, 0, f->height, planes, strides) != f->height)
        return fail(e, ERR_IO, "%s: frame %lld cannot be made RGB", r->path, (long long)r->stream.frames - 1);
    *out = (Planes){.width = f->width, .height = f->height, .rgb = true, .count = 1, .bits = 8};
    out->plane[0] = (Plane){r->pixels, strides[0], f->width * 3, f->height};
    return OK;
}

static void as_stored(const AVFrame *f, Planes *out) {
    const AVPixFmtDescriptor *d = av_pix_fmt_desc_get(f->format);
    bool alpha = (d->flags & AV_PIX_FMT_FLAG_ALPHA) != 0;
    *out = (Planes){.width = f->width, .height = f->height, .count = d->nb_components - alpha, .bits = d->comp[0].depth};
    for (int i = 0; i < out->count; i++) /* a subsampled plane has the odd last column and row */
        out->plane[i] = (Plane){f->data[i], f->linesize[i], i ? AV_CEIL_RSHIFT(f->width, d->log2_chroma_w) : f->width,
                                i ? AV_CEIL_RSHIFT(f->height, d->log2_chroma_h) : f->height};
}

Status av_read_open(const char *path, bool rgb, AvReader **out, Error *e) {
    *out = NULL;
    AvReader *r = calloc(1, sizeof *r + strlen(path) + 1);
    if (!r) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    strcpy(r->path, path);
    r->rgb = rgb;
    bool end = false;
    Status status = stream_open(r->path, AVMEDIA_TYPE_VIDEO, &r->stream, e);
    if (status == OK) status = next(&r->stream, &end, e); /* only a decoded frame tells the format for sure */
    if (status == OK && end) status = fail(e, ERR_IO, "%s: its video has no frame", path);
    if (status == OK) status = describe(r, e);
    if (status == OK) *out = r;
    else av_read_close(r);
    return status;
}

void av_read_close(AvReader *r) {
    if (!r) return;
    stream_close(&r->stream);
    sws_freeContext(r->scale);
    free(r->pixels);
    free(r);
}

const AvInfo *av_read_info(const AvReader *r) { return &r->info; }

Status av_read_video(AvReader *r, Planes *out, bool *end, Error *e) {
    *end = false;
    if (r->begun) TRY(next(&r->stream, end, e));
    r->begun = true;
    if (*end) return OK;
    const AVFrame *f = r->stream.frame;
    if (f->width != r->info.width || f->height != r->info.height || f->format != r->format)
        return fail(e, ERR_IO, "%s: frame %lld is %dx%d %s, the first one %dx%d %s", r->path,
                    (long long)r->stream.frames - 1, f->width, f->height, av_get_pix_fmt_name(f->format), r->info.width,
                    r->info.height, r->info.format);
    if (!r->info.native) return to_rgb(r, out, e);
    as_stored(f, out);
    return OK;
}

/* --- sound --- */

/* Appends a decoded frame, or with NULL what the converter still holds. */
static Status add_samples(Stream *s, SwrContext **convert, AVFrame *f, AvSound *out, int64_t *room, Error *e) {
    if (!*convert) {
        out->rate = f->sample_rate, out->channels = f->ch_layout.nb_channels;
        int code = swr_alloc_set_opts2(convert, &f->ch_layout, AV_SAMPLE_FMT_FLT, f->sample_rate, &f->ch_layout, f->format,
                                       f->sample_rate, 0, NULL);
        if (code >= 0) code = swr_init(*convert);
        if (code < 0) return av_fail(e, s->path, "cannot convert the sound", code);
    }
    if (f && (f->sample_rate != out->rate || f->ch_layout.nb_channels != out->channels))
        return fail(e, ERR_IO, "%s: the sound changes to %d Hz, %d channels in its course", s->path, f->sample_rate,
                    f->ch_layout.nb_channels);
    int count = f ? f->nb_samples : (int)swr_get_delay(*convert, out->rate);
    if (!count) return OK;
    if (out->count + count > *room) {
        *room = 2 * (out->count + count);
        float *more = realloc(out->samples, (size_t)*room * (size_t)out->channels * sizeof *more);
        if (!more) return fail(e, ERR_MEMORY, "%s: out of memory for its sound", s->path);
        out->samples = more;
    }
    uint8_t *to = (uint8_t *)(out->samples + out->count * out->channels);
    int made = swr_convert(*convert, &to, count, f ? (const uint8_t **)f->extended_data : NULL, f ? count : 0);
    if (made < 0) return av_fail(e, s->path, "cannot convert the sound", made);
    out->count += made;
    return OK;
}

Status av_read_sound(const char *path, AvSound *out, Error *e) {
    *out = (AvSound){0};
    Stream s;
    TRY(stream_open(path, AVMEDIA_TYPE_AUDIO, &s, e));
    SwrContext *convert = NULL;
    int64_t room = 0;
    bool end = false;
    Status status;
    while ((status = next(&s, &end, e)) == OK && !end && (status = add_samples(&s, &convert, s.frame, out, &room, e)) == OK) {
    }
    if (status == OK && convert) status = add_samples(&s, &convert, NULL, out, &room, e);
    if (status == OK && !out->count) status = fail(e, ERR_IO, "%s: its sound has no samples", path);
    swr_free(&convert);
    stream_close(&s);
    if (status != OK) av_sound_free(out);
    return status;
}

#else

static Status without(const char *path, Error *e) {
    return fail(e, ERR_IO, "%s: this ditto was built without libav, which reads video, sound and pictures other than PNG and JPEG",
                path);
}

bool av_read_available(void) { return false; }

Status av_read_probe(const char *path, bool *video, bool *sound, Error *e) {
    *video = *sound = false;
    return without(path, e);
}

Status av_read_open(const char *path, bool rgb, AvReader **out, Error *e) {
    (void)rgb;
    *out = NULL;
    return without(path, e);
}

void av_read_close(AvReader *r) { (void)r; }

const AvInfo *av_read_info(const AvReader *r) {
    (void)r;
    return NULL;
}

Status av_read_video(AvReader *r, Planes *out, bool *end, Error *e) {
    (void)r, (void)out, (void)end;
    return without("video", e);
}

Status av_read_sound(const char *path, AvSound *out, Error *e) {
    *out = (AvSound){0};
    return without(path, e);
}

#endif

void av_sound_free(AvSound *s) {
    free(s->samples);
    *s = (AvSound){0};
}
