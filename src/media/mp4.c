/* mp4.c - see mp4.h.
 * Easy to get wrong:
 *  - libav reports a full disk only in pb->error, and an encoder that swallows frames not at all: both are asked at the end.
 *  - An option that an encoder does not know is left over in the dictionary and no error: leftovers are refused.
 *  - x264 chooses by the number of threads and the kind of CPU unless told not to. */
#include "media/mp4.h"

#include "core/file.h"
#include "media/av_sink.h"
#include "media/av_track.h"
#include "media/yuv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CRF = 17, CRF_MOST = 51, QP_ABOVE = 12, THREADS = 8, SIDE_MOST = 16384 };

typedef struct Kind {
    const char *name, *encoder;
    bool has_crf, matroska_only, even;
} Kind;

static const Kind KINDS[MP4_CODECS] = {
    [MP4_AUTO] = {"", "", false, false, false},
    [MP4_H264] = {"h264", "libx264", true, false, true},
    [MP4_X264RGB] = {"x264rgb", "libx264rgb", true, false, false},
    [MP4_FFV1] = {"ffv1", "ffv1", false, true, false},
};

const char *mp4_codec_name(Mp4Codec codec) { return KINDS[codec].name; }

bool mp4_codec_parse(const char *name, Mp4Codec *out) {
    for (int i = MP4_AUTO + 1; i < MP4_CODECS; i++)
        if (!strcmp(name, KINDS[i].name)) {
            *out = (Mp4Codec)i;
            return true;
        }
    return false;
}

/* Of resolved options. */
static bool lossless(const Mp4Options *o) { return o->codec == MP4_FFV1 || (o->codec == MP4_X264RGB && !o->crf); }

Mp4Options mp4_resolved(Mp4Options o) {
    if (o.codec == MP4_AUTO) o.codec = o.matroska ? MP4_FFV1 : MP4_H264;
    if (o.crf < 0 && KINDS[o.codec].has_crf) o.crf = o.codec == MP4_H264 ? CRF : 0;
    if (o.sound == MP4_SOUND_AUTO) o.sound = !o.matroska ? MP4_AAC : lossless(&o) ? MP4_PCM : MP4_FLAC;
    return o;
}

bool mp4_lossless(Mp4Options o) {
    o = mp4_resolved(o);
    return lossless(&o);
}

static const char *const SOUND_NAMES[MP4_SOUNDS] = {"", "aac", "flac", "pcm"};

const char *mp4_sound_name(Mp4Sound sound) { return SOUND_NAMES[sound]; }

bool mp4_sound_parse(const char *name, Mp4Sound *out) {
    for (int i = MP4_SOUND_AUTO + 1; i < MP4_SOUNDS; i++)
        if (!strcmp(name, SOUND_NAMES[i])) {
            *out = (Mp4Sound)i;
            return true;
        }
    return false;
}

/* What is wrong whatever libav is there; o is resolved. */
static Status check_values(const Mp4Clip *c, const Mp4Options *o, Error *e) {
    const Kind *k = &KINDS[o->codec];
    if (k->matroska_only && !o->matroska)
        return fail(e, ERR_USAGE, "--codec %s: is written to .mkv files, not to .mp4", k->name);
    if (!k->has_crf && o->crf >= 0) return fail(e, ERR_USAGE, "--crf: %s has none, it is lossless", k->name);
    if (o->crf > CRF_MOST)
        return fail(e, ERR_USAGE, "--crf: %d is out of range, expected 0 to %d", o->crf, (int)CRF_MOST);
    if (c->width < 2 || c->height < 2 || c->width > SIDE_MOST || c->height > SIDE_MOST || c->frames < 1 ||
        c->fps.num < 1 || c->fps.den < 1)
        return fail(e, ERR_USAGE, "no clip has %dx%d pixels, %d frames, %d/%d a second", c->width, c->height, c->frames,
                    c->fps.num, c->fps.den);
    if (c->sound.rate && (o->sound == MP4_AAC) == o->matroska)
        return fail(e, ERR_USAGE, "sound: %s is written to .%s files", mp4_sound_name(o->sound), o->matroska ? "mp4" : "mkv");
    if (k->even && (c->width % 2 || c->height % 2))
        return fail(
            e, ERR_USAGE,
            "--codec %s: %dx%d has an odd side, which its pixel format does not allow; ffv1 and x264rgb take it",
            k->name, c->width, c->height);
    return OK;
}

#ifdef HAVE_LIBAV

typedef struct Encoder {
    AvLibs av;
    const Mp4Clip *clip;
    Mp4Options o; /* resolved */
    AVFormatContext *file;
    AVCodecContext *codec;
    AVStream *stream;
    AVFrame *frame;
    AVPacket *packet;
    AvSink sink;
    AvTrack track; /* of a clip with sound */
    int64_t packets;
    bool open; /* a header was written: the trailer frees what the muxer keeps */
} Encoder;

static Status av_fail(const Encoder *n, const char *what, int code, Error *e) {
    char text[AV_ERROR_MAX_STRING_SIZE] = "";
    if (code == AVERROR(ENOMEM)) return fail(e, ERR_MEMORY, "%s: %s: out of memory", KINDS[n->o.codec].encoder, what);
    n->av.av_strerror_(code, text, sizeof text);
    return fail(e, ERR_IO, "%s: %s: %s", KINDS[n->o.codec].encoder, what, text);
}

static Status find_encoder(const AvLibs *av, const Mp4Options *o, const AVCodec **out, Error *e) {
    const Kind *k = &KINDS[o->codec];
    *out = av->avcodec_find_encoder_by_name_(k->encoder);
    if (*out) return OK;
    return fail(e, ERR_IO, "--codec %s: the installed libav (libavcodec %s) has no encoder %s", k->name,
                AV_STRINGIFY(LIBAVCODEC_VERSION_MAJOR), k->encoder);
}

/* --- settings --- */

static void set_format(Encoder *n) {
    AVCodecContext *c = n->codec;
    const Mp4Clip *clip = n->clip;
    bool rgb = n->o.codec != MP4_H264;
    c->width = clip->width, c->height = clip->height;
    c->time_base = (AVRational){clip->fps.den, clip->fps.num};
    c->framerate = (AVRational){clip->fps.num, clip->fps.den};
    c->sample_aspect_ratio = (AVRational){1, 1};
    c->pix_fmt = !rgb ? AV_PIX_FMT_YUV420P : n->o.codec == MP4_FFV1 ? AV_PIX_FMT_0RGB32 : AV_PIX_FMT_RGB24;
    c->color_range = rgb ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
    c->colorspace = rgb ? AVCOL_SPC_RGB : AVCOL_SPC_BT709;
    c->color_primaries = AVCOL_PRI_BT709;
    c->color_trc = rgb ? AVCOL_TRC_IEC61966_2_1 : AVCOL_TRC_BT709;
    if (!rgb) c->chroma_sample_location = AVCHROMA_LOC_LEFT;
    c->flags |= AV_CODEC_FLAG_BITEXACT;
    if (n->file->oformat->flags & AVFMT_GLOBALHEADER) c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    c->thread_count = THREADS;
    if (n->o.codec != MP4_FFV1) {
        c->qmax = n->o.crf + QP_ABOVE; /* crf is a mean: this is how far a block may be from it */
        return;
    }
    c->level = 3;
    c->gop_size = 1; /* frames do not lean on each other */
    c->slices = 4;
}

/* Options that encoders know by name only. */
static Status set_options(const Encoder *n, AVDictionary **options, Error *e) {
    char crf[16];
    int code = 0;
    snprintf(crf, sizeof crf, "%d", n->o.crf);
    const char *const x264[][2] = {{"crf", crf}, {"preset", "medium"}, {"x264-params", "cpu-independent=1"}};
    const char *const ffv1[][2] = {{"slicecrc", "1"}, {"coder", "range_def"}, {"context", "0"}};
    for (int i = 0; i < 3 && code >= 0; i++) {
        const char *const *o = n->o.codec == MP4_FFV1 ? ffv1[i] : x264[i];
        code = n->av.av_dict_set_(options, o[0], o[1], 0);
    }
    return code < 0 ? av_fail(n, "options", code, e) : OK;
}

static Status open_codec(Encoder *n, const AVCodec *codec, Error *e) {
    AVDictionary *options = NULL;
    n->codec = n->av.avcodec_alloc_context3_(codec);
    if (!n->codec) return fail(e, ERR_MEMORY, "%s: out of memory", codec->name);
    set_format(n);
    Status s = set_options(n, &options, e);
    int code = s == OK ? n->av.avcodec_open2_(n->codec, codec, &options) : 0;
    if (code < 0) s = av_fail(n, "cannot begin", code, e);
    const AVDictionaryEntry *left = s == OK ? n->av.av_dict_get_(options, "", NULL, AV_DICT_IGNORE_SUFFIX) : NULL;
    if (left) s = fail(e, ERR_IO, "%s: does not know the option %s", codec->name, left->key);
    n->av.av_dict_free_(&options);
    return s;
}

/* The sample at which frame i begins, rounded to the nearest. */
static int64_t sound_at(const Encoder *n, int64_t i) {
    const Rate fps = n->clip->fps;
    return (2 * i * fps.den * n->clip->sound.rate + fps.num) / (2 * fps.num);
}

static Status open_file(Encoder *n, Error *e) {
    AVDictionary *options = NULL;
    char scale[16];
    const AVRational base = n->codec->time_base;
    n->stream = n->av.avformat_new_stream_(n->file, NULL);
    if (!n->stream) return fail(e, ERR_MEMORY, "out of memory for a video file");
    n->stream->time_base = base;
    n->stream->avg_frame_rate = n->stream->r_frame_rate = n->codec->framerate;
    n->stream->sample_aspect_ratio = n->codec->sample_aspect_ratio;
    n->file->flags |= AVFMT_FLAG_BITEXACT;
    int code = n->av.avcodec_parameters_from_context_(n->stream->codecpar, n->codec);
    if (code >= 0 && n->clip->sound.rate)
        TRY(av_track_open(&n->av, n->file, n->o.sound, &n->clip->sound, sound_at(n, n->clip->frames), &n->track, e));
    if (code >= 0 && n->clip->sound.rate && !n->o.matroska) { /* of the edit list that takes AAC's lead back */
        snprintf(scale, sizeof scale, "%d", n->clip->sound.rate);
        code = n->av.av_dict_set_(&options, "movie_timescale", scale, 0);
    }
    if (code >= 0 && n->o.comment) code = n->av.av_dict_set_(&n->file->metadata, "comment", n->o.comment, 0);
    if (code >= 0 && !n->o.matroska) code = n->av.av_dict_set_(&options, "movflags", "+faststart", 0);
    if (code >= 0) code = n->av.avformat_write_header_(n->file, &options);
    n->open = code >= 0;
    n->av.av_dict_free_(&options);
    return code < 0 ? av_fail(n, "cannot begin the file", code, e) : OK;
}

static Status open_all(Encoder *n, Error *e) {
    const AVCodec *codec;
    const char *format = n->o.matroska ? "matroska" : "mp4";
    TRY(av_libs_open(&n->av, e));
    TRY(find_encoder(&n->av, &n->o, &codec, e));
    int code = n->av.avformat_alloc_output_context2_(&n->file, NULL, format, NULL);
    if (code < 0 || !n->file) return fail(e, ERR_IO, "the installed libav cannot write %s files", format);
    TRY(av_sink_open(&n->av, n->file, &n->sink, e));
    TRY(open_codec(n, codec, e));
    n->frame = n->av.av_frame_alloc_();
    n->packet = n->av.av_packet_alloc_();
    if (!n->frame || !n->packet) return fail(e, ERR_MEMORY, "out of memory for a video file");
    n->frame->format = n->codec->pix_fmt;
    n->frame->width = n->codec->width, n->frame->height = n->codec->height;
    n->frame->color_range = n->codec->color_range, n->frame->colorspace = n->codec->colorspace;
    n->frame->color_primaries = n->codec->color_primaries, n->frame->color_trc = n->codec->color_trc;
    n->frame->chroma_location = n->codec->chroma_sample_location;
    n->frame->sample_aspect_ratio = n->codec->sample_aspect_ratio;
    code = n->av.av_frame_get_buffer_(n->frame, 0);
    return code < 0 ? av_fail(n, "frame", code, e) : open_file(n, e);
}

/* --- frames --- */

static void fill(const Encoder *n, const uint8_t *rgb) {
    AVFrame *f = n->frame;
    size_t width = (size_t)f->width;
    if (n->o.codec == MP4_H264) {
        yuv_from_rgb(rgb, f->width, f->height, f->data[0], f->linesize[0], f->data[1], f->data[2], f->linesize[1]);
        return;
    }
    for (int y = 0; y < f->height; y++) {
        const uint8_t *from = rgb + (size_t)y * width * 3;
        uint8_t *to = f->data[0] + (ptrdiff_t)y * f->linesize[0];
        if (n->o.codec == MP4_X264RGB) {
            memcpy(to, from, width * 3);
            continue;
        }
        for (size_t i = 0; i < width; i++, from += 3) {
            uint32_t pixel = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
            memcpy(to + 4 * i, &pixel, 4);
        }
    }
}

/* Asked for every frame that goes in and every packet that comes out: an encoder that looks ahead gives most of its packets
 * after the last frame, and they take most of its time. */
static Status check_interrupt(const Encoder *n, Error *e) {
    return n->o.interrupted && *n->o.interrupted ? fail(e, ERR_INTERRUPTED, "interrupted") : OK;
}

/* All packets that the encoder has ready, into the file. */
static Status drain(Encoder *n, Error *e) {
    for (;;) {
        TRY(check_interrupt(n, e));
        int code = n->av.avcodec_receive_packet_(n->codec, n->packet);
        if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return OK;
        if (code < 0) return av_fail(n, "cannot encode", code, e);
        n->packet->stream_index = n->stream->index;
        n->packet->duration = 1;
        n->av.av_packet_rescale_ts_(n->packet, n->codec->time_base, n->stream->time_base);
        code = n->av.av_interleaved_write_frame_(n->file, n->packet); /* takes the packet, also when it fails */
        if (code < 0) return av_fail(n, "cannot write", code, e);
        n->packets++;
    }
}

static Status encode_frames(Encoder *n, Error *e) {
    const size_t bytes = (size_t)n->clip->width * (size_t)n->clip->height * 3;
    for (int i = 0; i < n->clip->frames; i++) {
        TRY(check_interrupt(n, e));
        int code = n->av.av_frame_make_writable_(n->frame); /* the encoder may still hold the last one */
        if (code < 0) return av_fail(n, "frame", code, e);
        fill(n, n->clip->rgb + (size_t)i * bytes);
        n->frame->pts = i;
        code = n->av.avcodec_send_frame_(n->codec, n->frame);
        if (code < 0) return av_fail(n, "cannot encode", code, e);
        TRY(drain(n, e));
        if (n->track.codec) TRY(av_track_feed(&n->track, sound_at(n, i + 1), e));
    }
    if (n->track.codec) TRY(av_track_end(&n->track, e));
    int code = n->av.avcodec_send_frame_(n->codec, NULL);
    if (code < 0) return av_fail(n, "cannot end", code, e);
    return drain(n, e);
}

static Status finish(Encoder *n, Error *e) {
    n->open = false;
    int code = n->av.av_write_trailer_(n->file);
    if (code >= 0) code = n->sink.pb->error;
    if (code < 0) return av_fail(n, "cannot end the file", code, e);
    if (n->packets != n->clip->frames)
        return fail(e, ERR_IO, "%s: gave %lld frames for %d", KINDS[n->o.codec].encoder, (long long)n->packets,
                    n->clip->frames);
    return OK;
}

static void close_all(Encoder *n, unsigned char **bytes, size_t *size) {
    if (!n->av.av_freep_) return;
    if (n->open) n->av.av_write_trailer_(n->file);
    n->av.av_frame_free_(&n->frame);
    n->av.av_packet_free_(&n->packet);
    n->av.avcodec_free_context_(&n->codec);
    av_track_close(&n->track);
    av_sink_close(&n->sink, n->file, bytes, size);
    n->av.avformat_free_context_(n->file);
}

Status mp4_encode(const Mp4Clip *clip, const Mp4Options *o, unsigned char **bytes, size_t *size, Error *e) {
    Encoder *n = calloc(1, sizeof *n); /* the sink is pointed to */
    *bytes = NULL, *size = 0;
    if (!n) return fail(e, ERR_MEMORY, "out of memory for a video file");
    n->clip = clip, n->o = mp4_resolved(*o);
    Status s = check_values(clip, &n->o, e);
    if (s == OK) s = open_all(n, e);
    if (s == OK) s = encode_frames(n, e);
    if (s == OK) s = finish(n, e);
    close_all(n, s == OK ? bytes : NULL, size);
    free(n);
    return s;
}

Status mp4_check(const Mp4Clip *clip, const Mp4Options *o, Error *e) {
    Mp4Options resolved = mp4_resolved(*o);
    AvLibs av;
    const AVCodec *codec;
    TRY(check_values(clip, &resolved, e));
    TRY(av_libs_open(&av, e));
    if (clip->sound.rate) TRY(av_track_check(&av, resolved.sound, &clip->sound, e));
    return find_encoder(&av, &resolved, &codec, e);
}

#else

static Status without(Error *e) {
    return fail(e, ERR_IO, "this ditto was built without libav, which writes video files");
}

Status mp4_encode(const Mp4Clip *clip, const Mp4Options *o, unsigned char **bytes, size_t *size, Error *e) {
    *bytes = NULL, *size = 0;
    return mp4_check(clip, o, e);
}

Status mp4_check(const Mp4Clip *clip, const Mp4Options *o, Error *e) {
    Mp4Options resolved = mp4_resolved(*o);
    TRY(check_values(clip, &resolved, e));
    return without(e);
}

#endif

Status mp4_write(const char *path, const Mp4Clip *clip, const Mp4Options *o, bool overwrite, Error *e) {
    unsigned char *bytes;
    size_t size;
    if (mp4_encode(clip, o, &bytes, &size, e) != OK) return because(e, "%s", path);
    Status s = file_write_atomic(path, bytes, size, overwrite, e);
    free(bytes);
    return s;
}
