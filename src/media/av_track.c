/* av_track.c - see av_track.h.
 * Easy to get wrong: AAC's packets begin before its first sample (initial_padding) and are whole frames, so what it gave is
 * counted by their durations, which are cut at both ends by the encoder's own account. */
#include "media/av_track.h"

#ifdef HAVE_LIBAV

#include <math.h>
#include <string.h>

enum { PER_CHANNEL = 96000, PCM_FRAME = 1024, FLAC_BITS = 24 };

typedef struct Kind {
    const char *encoder;
    enum AVSampleFormat format;
} Kind;

static const Kind KINDS[MP4_SOUNDS] = {[MP4_AAC] = {"aac", AV_SAMPLE_FMT_FLTP},
                                       [MP4_FLAC] = {"flac", AV_SAMPLE_FMT_S32},
                                       [MP4_PCM] = {"pcm_f32le", AV_SAMPLE_FMT_FLT}};

static Status track_fail(const AvTrack *t, const char *what, int code, Error *e) {
    char text[AV_ERROR_MAX_STRING_SIZE] = "";
    if (code == AVERROR(ENOMEM)) return fail(e, ERR_MEMORY, "%s: %s: out of memory", t->encoder, what);
    t->av->av_strerror_(code, text, sizeof text);
    return fail(e, ERR_IO, "%s: %s: %s", t->encoder, what, text);
}

static Status find(const AvLibs *av, Mp4Sound kind, const AVCodec **out, Error *e) {
    *out = av->avcodec_find_encoder_by_name_(KINDS[kind].encoder);
    if (*out) return OK;
    return fail(e, ERR_IO, "sound: the installed libav (libavcodec %s) has no encoder %s",
                AV_STRINGIFY(LIBAVCODEC_VERSION_MAJOR), KINDS[kind].encoder);
}

static Status open_codec(AvTrack *t, Mp4Sound kind, const AVCodec *codec, Error *e) {
    AVCodecContext *c = t->codec = t->av->avcodec_alloc_context3_(codec);
    if (!c) return fail(e, ERR_MEMORY, "%s: out of memory", codec->name);
    c->sample_rate = t->sound->rate;
    c->sample_fmt = KINDS[kind].format;
    c->time_base = (AVRational){1, t->sound->rate};
    t->av->av_channel_layout_default_(&c->ch_layout, t->sound->channels);
    if (kind == MP4_AAC) c->bit_rate = (int64_t)PER_CHANNEL * t->sound->channels, c->profile = FF_PROFILE_AAC_LOW;
    if (kind == MP4_FLAC) c->bits_per_raw_sample = FLAC_BITS;
    c->flags |= AV_CODEC_FLAG_BITEXACT;
    c->thread_count = 1;
    if (t->file && t->file->oformat->flags & AVFMT_GLOBALHEADER) c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    int code = t->av->avcodec_open2_(c, codec, NULL);
    return code < 0 ? track_fail(t, "cannot begin", code, e) : OK;
}

/* Rates that an encoder does not take are told when it is opened. */
Status av_track_check(const AvLibs *av, Mp4Sound kind, const Sound *sound, Error *e) {
    const AVCodec *codec;
    AvTrack t = {.av = av, .encoder = KINDS[kind].encoder, .sound = sound};
    if (sound->rate < 8000 || sound->rate > 96000 || sound->channels < 1 || sound->channels > 2)
        return fail(e, ERR_USAGE, "sound: %d Hz and %d channels cannot be written; expected 8000 to 96000, and 1 or 2",
                    sound->rate, sound->channels);
    TRY(find(av, kind, &codec, e));
    Status s = open_codec(&t, kind, codec, e);
    av->avcodec_free_context_(&t.codec);
    return s == OK ? OK : because(e, "sound of %d Hz", sound->rate);
}

static Status open_frame(AvTrack *t, Error *e) {
    AVFrame *f = t->frame = t->av->av_frame_alloc_();
    t->packet = t->av->av_packet_alloc_();
    if (!f || !t->packet) return fail(e, ERR_MEMORY, "%s: out of memory", t->encoder);
    f->format = t->codec->sample_fmt;
    f->sample_rate = t->codec->sample_rate;
    f->nb_samples = t->codec->frame_size ? t->codec->frame_size : PCM_FRAME;
    t->av->av_channel_layout_default_(&f->ch_layout, t->sound->channels);
    int code = t->av->av_frame_get_buffer_(f, 0);
    return code < 0 ? track_fail(t, "frame", code, e) : OK;
}

Status av_track_open(const AvLibs *av, AVFormatContext *file, Mp4Sound kind, const Sound *sound, int64_t length,
                     AvTrack *out, Error *e) {
    const AVCodec *codec;
    *out = (AvTrack){.av = av, .file = file, .encoder = KINDS[kind].encoder, .sound = sound, .length = length};
    TRY(find(av, kind, &codec, e));
    TRY(open_codec(out, kind, codec, e));
    TRY(open_frame(out, e));
    out->stream = av->avformat_new_stream_(file, NULL);
    if (!out->stream) return fail(e, ERR_MEMORY, "out of memory for a video file");
    out->stream->time_base = out->codec->time_base;
    int code = av->avcodec_parameters_from_context_(out->stream->codecpar, out->codec);
    return code < 0 ? track_fail(out, "cannot begin", code, e) : OK;
}

/* Sample i of channel c, held to full scale where the codec has no more. */
static float sample(const AvTrack *t, int64_t i, int c) {
    float v = i < t->sound->count ? t->sound->samples[i * t->sound->channels + c] : 0.0f;
    if (t->codec->sample_fmt == AV_SAMPLE_FMT_FLT) return v;
    return v < -1.0f ? -1.0f : v > 1.0f ? 1.0f : v; /* NaN passes: the encoder refuses it */
}

static Status fill(AvTrack *t, int64_t n, Error *e) {
    AVFrame *f = t->frame;
    const int channels = t->sound->channels;
    const float scale = (float)(1 << (FLAC_BITS - 1)), top = scale - 1;
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < channels; c++) {
            float v = sample(t, t->at + i, c);
            if (f->format == AV_SAMPLE_FMT_FLTP) {
                memcpy(f->extended_data[c] + 4 * i, &v, 4);
            } else if (f->format == AV_SAMPLE_FMT_FLT) {
                memcpy(f->data[0] + 4 * (i * channels + c), &v, 4);
            } else {
                if (isnan(v)) return fail(e, ERR_NAN, "sound: sample %lld is no number", (long long)(t->at + i));
                float whole = rintf(v * scale);
                int32_t bits = (int32_t)(whole > top ? top : whole) * (1 << (32 - FLAC_BITS));
                memcpy(f->data[0] + 4 * (i * channels + c), &bits, 4);
            }
        }
    return OK;
}

/* All packets that the encoder has ready, into the file. */
static Status drain(AvTrack *t, Error *e) {
    for (;;) {
        int code = t->av->avcodec_receive_packet_(t->codec, t->packet);
        if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return OK;
        if (code < 0) return track_fail(t, "cannot encode", code, e);
        int64_t end = t->packet->pts + t->packet->duration;
        if (t->packet->pts != AV_NOPTS_VALUE && end > t->given) t->given = end;
        t->packet->stream_index = t->stream->index;
        t->av->av_packet_rescale_ts_(t->packet, t->codec->time_base, t->stream->time_base);
        code = t->av->av_interleaved_write_frame_(t->file, t->packet); /* takes the packet, also when it fails */
        if (code < 0) return track_fail(t, "cannot write", code, e);
    }
}

Status av_track_feed(AvTrack *t, int64_t until, Error *e) {
    const int64_t whole = t->codec->frame_size ? t->codec->frame_size : PCM_FRAME;
    while (t->at < t->length && t->at < until) {
        int64_t n = t->length - t->at < whole ? t->length - t->at : whole;
        int code = t->av->av_frame_make_writable_(t->frame); /* the encoder may still hold the last one */
        if (code < 0) return track_fail(t, "frame", code, e);
        TRY(fill(t, n, e));
        t->frame->nb_samples = (int)n;
        t->frame->pts = t->at;
        code = t->av->avcodec_send_frame_(t->codec, t->frame);
        if (code < 0) return track_fail(t, "cannot encode", code, e);
        t->at += n;
        TRY(drain(t, e));
    }
    return OK;
}

Status av_track_end(AvTrack *t, Error *e) {
    TRY(av_track_feed(t, t->length, e));
    int code = t->av->avcodec_send_frame_(t->codec, NULL);
    if (code < 0) return track_fail(t, "cannot end", code, e);
    TRY(drain(t, e));
    if (t->given >= t->length) return OK;
    return fail(e, ERR_IO, "%s: gave %lld samples for %lld", t->encoder, (long long)t->given, (long long)t->length);
}

void av_track_close(AvTrack *t) {
    if (!t->av) return;
    t->av->av_frame_free_(&t->frame);
    t->av->av_packet_free_(&t->packet);
    t->av->avcodec_free_context_(&t->codec);
    *t = (AvTrack){0};
}

#else

typedef int AvTrackNothing; /* ISO C wants one declaration */

#endif
