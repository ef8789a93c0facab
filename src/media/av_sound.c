/* av_sound.c - the sound half of av_read.h.
 * Easy to get wrong: libswresample only changes the sample format here, and still may hold samples back until it is flushed. */
#include "media/av_input.h"
#include "media/av_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_LIBAV

typedef struct Converter {
    SwrContext *swr; /* NULL: no frame yet */
    int format;      /* of the frames */
    int64_t room;    /* samples a channel that fit the result */
} Converter;

/* Appends a decoded frame, or with NULL what the converter still holds. */
static Status add_samples(AvInput *s, Converter *c, AVFrame *f, Sound *out, Error *e) {
    if (!c->swr) {
        out->rate = f->sample_rate, out->channels = f->ch_layout.nb_channels;
        c->format = f->format;
        int code = s->av.swr_alloc_set_opts2_(&c->swr, &f->ch_layout, AV_SAMPLE_FMT_FLT, f->sample_rate, &f->ch_layout,
                                              f->format, f->sample_rate, 0, NULL);
        if (code >= 0) code = s->av.swr_init_(c->swr);
        if (code < 0) return av_input_fail(s, "cannot convert the sound", code, e);
    }
    if (f && (f->sample_rate != out->rate || f->ch_layout.nb_channels != out->channels || f->format != c->format))
        return fail(e, ERR_IO, "%s: the sound changes to %d Hz, %d channels in its course", s->path, f->sample_rate,
                    f->ch_layout.nb_channels);
    int count = f ? f->nb_samples : (int)s->av.swr_get_delay_(c->swr, out->rate);
    if (!count) return OK;
    int64_t *room = &c->room;
    if (out->count + count > *room) {
        *room = 2 * (out->count + count);
        float *more = realloc(out->samples, (size_t)*room * (size_t)out->channels * sizeof *more);
        if (!more) return fail(e, ERR_MEMORY, "%s: out of memory for its sound", s->path);
        out->samples = more;
    }
    uint8_t *to = (uint8_t *)(out->samples + out->count * out->channels);
    int made = s->av.swr_convert_(c->swr, &to, count, f ? (const uint8_t **)f->extended_data : NULL, f ? count : 0);
    if (made < 0) return av_input_fail(s, "cannot convert the sound", made, e);
    out->count += made;
    return OK;
}

Status av_sound_read(const char *path, Sound *out, Error *e) {
    *out = (Sound){0};
    AvInput s;
    TRY(av_input_open(path, AVMEDIA_TYPE_AUDIO, &s, e));
    Converter c = {0};
    bool end = false;
    Status status = av_input_next(&s, &end, e);
    while (status == OK && !end) {
        status = add_samples(&s, &c, s.frame, out, e);
        if (status == OK) status = av_input_next(&s, &end, e);
    }
    if (status == OK && c.swr) status = add_samples(&s, &c, NULL, out, e);
    if (status == OK && !out->count) status = fail(e, ERR_IO, "%s: its sound has no samples", path);
    if (c.swr) s.av.swr_free_(&c.swr);
    av_input_close(&s);
    if (status != OK) sound_free(out);
    return status;
}

static void describe(const AvInput *in, int index, AvSoundInfo *out) {
    const AVStream *stream = in->file->streams[index];
    const AVCodecParameters *p = stream->codecpar;
    const char *profile = in->av.avcodec_profile_name_(p->codec_id, p->profile);
    snprintf(out->codec, sizeof out->codec, "%s%s%s", in->av.avcodec_get_name_(p->codec_id), profile ? " " : "",
             profile ? profile : "");
    out->rate = p->sample_rate, out->channels = p->ch_layout.nb_channels;
    out->bits = p->bit_rate;
    if (stream->duration != AV_NOPTS_VALUE)
        out->told = llround((double)stream->duration * av_q2d(stream->time_base) * p->sample_rate);
}

Status av_sound_info(const char *path, AvSoundInfo *out, Error *e) {
    AvInput in;
    *out = (AvSoundInfo){{0}, 0, 0, 0, 0};
    Status status = av_input_file(path, &in, e);
    int index = status == OK ? in.av.av_find_best_stream_(in.file, AVMEDIA_TYPE_AUDIO, -1, -1, NULL, 0) : 0;
    if (status == OK && index < 0) status = fail(e, ERR_IO, "%s: holds no sound", path);
    if (status == OK) describe(&in, index, out);
    av_input_close(&in);
    return status;
}

#else

Status av_sound_info(const char *path, AvSoundInfo *out, Error *e) {
    bool none;
    *out = (AvSoundInfo){{0}, 0, 0, 0, 0};
    return av_read_probe(path, &none, &none, e); /* which says that there is no libav */
}

Status av_sound_read(const char *path, Sound *out, Error *e) {
    bool none;
    *out = (Sound){0};
    return av_read_probe(path, &none, &none, e); /* which says that there is no libav */
}

#endif
