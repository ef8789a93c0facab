/* av_read.c - see av_read.h: video.
 * Easy to get wrong: only a decoded frame tells the pixel format for sure, so opening decodes the first one. */
#include "media/av_read.h"

#include "media/av_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_LIBAV

bool av_read_available(void) { return true; }

Status av_read_probe(const char *path, bool *video, bool *sound, Error *e) {
    AvInput s;
    *video = *sound = false;
    Status status = av_input_file(path, &s, e);
    if (status == OK) {
        *video = s.av.av_find_best_stream_(s.file, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0) >= 0;
        *sound = s.av.av_find_best_stream_(s.file, AVMEDIA_TYPE_AUDIO, -1, -1, NULL, 0) >= 0;
        if (!*video && !*sound) status = fail(e, ERR_IO, "%s: holds neither video nor sound", path);
    }
    av_input_close(&s);
    return status;
}

struct AvReader {
    AvInput input;
    AvInfo info;
    bool rgb, begun; /* begun: the frame that av_read_open decoded has been handed out */
    int format;
    struct SwsContext *scale;
    uint8_t *pixels; /* RGB8 */
    char path[];
};

/* Planar Y or YUV in the machine's own byte order, one sample an element. */
static bool is_native(const AVPixFmtDescriptor *d) {
    const uint64_t other = AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM |
                           AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_BAYER | AV_PIX_FMT_FLAG_FLOAT | AV_PIX_FMT_FLAG_BE;
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

static void describe_colours(AvInfo *info, const AvLibs *av, const AVFrame *f) {
    const char *words[] = {av->av_color_range_name_(f->color_range), av->av_color_space_name_(f->colorspace),
                           av->av_color_primaries_name_(f->color_primaries), av->av_color_transfer_name_(f->color_trc)};
    size_t used = 0;
    for (int i = 0; i < 4 && used < sizeof info->colours; i++)
        used += (size_t)snprintf(info->colours + used, sizeof info->colours - used, "%s%s", i ? " " : "",
                                 words[i] && strcmp(words[i], "unknown") ? words[i] : "?");
}

static Status describe(AvReader *r, Error *e) {
    const AVFrame *f = r->input.frame;
    const AVPixFmtDescriptor *d = r->input.av.av_pix_fmt_desc_get_(f->format);
    if (!d) return fail(e, ERR_IO, "%s: unknown pixel format", r->path);
    const AVRational rate = r->input.file->streams[r->input.index]->avg_frame_rate;
    AvInfo *info = &r->info;
    *info = (AvInfo){.width = f->width, .height = f->height, .fps = rate.den ? av_q2d(rate) : 0};
    if (rate.num > 0 && rate.den > 0) info->rate = (Rate){rate.num, rate.den};
    info->told = r->input.file->streams[r->input.index]->nb_frames;
    describe_colours(info, &r->input.av, f);
    snprintf(info->codec, sizeof info->codec, "%s", r->input.av.avcodec_get_name_(r->input.decoder->codec_id));
    snprintf(info->format, sizeof info->format, "%s", d->name);
    const char *container = r->input.file->iformat->name;
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
    const AVFrame *f = r->input.frame;
    const AvLibs *av = &r->input.av;
    if (!r->scale) {
        const int flags = SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP;
        r->scale = av->sws_getContext_(f->width, f->height, f->format, f->width, f->height, AV_PIX_FMT_RGB24, flags,
                                       NULL, NULL, NULL);
        r->pixels = malloc((size_t)f->width * (size_t)f->height * 3 + 64); /* vector stores reach past the end */
        if (!r->scale || !r->pixels) return fail(e, ERR_IO, "%s: %s cannot be made RGB", r->path, r->info.format);
        int matrix = f->colorspace == AVCOL_SPC_UNSPECIFIED ? SWS_CS_DEFAULT : (int)f->colorspace;
        av->sws_setColorspaceDetails_(r->scale, av->sws_getCoefficients_(matrix), r->info.full,
                                      av->sws_getCoefficients_(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
    }
    uint8_t *planes[4] = {r->pixels};
    int strides[4] = {f->width * 3};
    if (av->sws_scale_(r->scale, (const uint8_t *const *)f->data, f->linesize, 0, f->height, planes, strides) !=
        f->height)
        return fail(e, ERR_IO, "%s: frame %lld cannot be made RGB", r->path, (long long)r->input.frames - 1);
    *out = (Planes){.width = f->width, .height = f->height, .rgb = true, .count = 1, .bits = 8};
    out->plane[0] = (Plane){r->pixels, strides[0], f->width * 3, f->height};
    return OK;
}

static void as_stored(const AvReader *r, Planes *out) {
    const AVFrame *f = r->input.frame;
    const AVPixFmtDescriptor *d = r->input.av.av_pix_fmt_desc_get_(f->format);
    bool alpha = (d->flags & AV_PIX_FMT_FLAG_ALPHA) != 0;
    *out =
        (Planes){.width = f->width, .height = f->height, .count = d->nb_components - alpha, .bits = d->comp[0].depth};
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
    Status status = av_input_open(r->path, AVMEDIA_TYPE_VIDEO, &r->input, e);
    if (status == OK) status = av_input_next(&r->input, &end, e); /* only a decoded frame tells the format for sure */
    if (status == OK && end) status = fail(e, ERR_IO, "%s: its video has no frame", path);
    if (status == OK) status = describe(r, e);
    if (status == OK)
        *out = r;
    else
        av_read_close(r);
    return status;
}

void av_read_close(AvReader *r) {
    if (!r) return;
    if (r->scale) r->input.av.sws_freeContext_(r->scale);
    av_input_close(&r->input);
    free(r->pixels);
    free(r);
}

const AvInfo *av_read_info(const AvReader *r) { return &r->info; }

Status av_read_video(AvReader *r, Planes *out, bool *end, Error *e) {
    *end = false;
    if (r->begun) TRY(av_input_next(&r->input, end, e));
    r->begun = true;
    if (*end) return OK;
    const AVFrame *f = r->input.frame;
    if (f->width != r->info.width || f->height != r->info.height || f->format != r->format)
        return fail(e, ERR_IO, "%s: frame %lld is %dx%d %s, the first one %dx%d %s", r->path,
                    (long long)r->input.frames - 1, f->width, f->height, r->input.av.av_get_pix_fmt_name_(f->format),
                    r->info.width, r->info.height, r->info.format);
    if (!r->info.native) return to_rgb(r, out, e);
    as_stored(r, out);
    return OK;
}

#else

static Status without(const char *path, Error *e) {
    return fail(e, ERR_IO,
                "%s: this ditto was built without libav, which reads video, sound and pictures other than PNG and JPEG",
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

#endif
