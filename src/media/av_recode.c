/* av_recode.c - see av_recode.h.
 * Easy to get wrong: libswscale converts the columns behind the last whole vector by other code, with other colours, when a row
 * ends right behind them: RGB goes through frames of libav's own, whose rows are padded, as PyAV's are. An encoder gives its
 * packet only when it is told that no more frames will come; so does a decoder its frame. */
#include "media/av_recode.h"

#include "media/av_libs.h"

#ifdef HAVE_LIBAV

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Recode {
    AvLibs av;
    AVCodecContext *encoder, *decoder;
    AVFrame *frame, *rgb;
    AVPacket *packet;
    struct SwsContext *scale;
} Recode;

static Status av_failed(const Recode *r, const char *what, int code, Error *e) {
    char text[AV_ERROR_MAX_STRING_SIZE] = "";
    if (code == AVERROR(ENOMEM)) return fail(e, ERR_MEMORY, "--image-crf: %s: out of memory", what);
    r->av.av_strerror_(code, text, sizeof text);
    return fail(e, ERR_IO, "--image-crf: %s: %s", what, text);
}

static Status open_codecs(Recode *r, int width, int height, int crf, Error *e) {
    const AVCodec *x264 = r->av.avcodec_find_encoder_by_name_("libx264"),
                  *h264 = r->av.avcodec_find_decoder_(AV_CODEC_ID_H264);
    if (!x264 || !h264)
        return fail(e, ERR_IO, "--image-crf: the installed libav has no %s; 0 does without",
                    x264 ? "decoder of H.264" : "libx264");
    AVCodecContext *c = r->encoder = r->av.avcodec_alloc_context3_(x264);
    r->decoder = r->av.avcodec_alloc_context3_(h264);
    r->frame = r->av.av_frame_alloc_();
    r->rgb = r->av.av_frame_alloc_();
    r->packet = r->av.av_packet_alloc_();
    if (!c || !r->decoder || !r->frame || !r->rgb || !r->packet)
        return fail(e, ERR_MEMORY, "--image-crf: out of memory");
    c->width = width, c->height = height;
    c->pix_fmt = AV_PIX_FMT_YUV420P;
    c->time_base = (AVRational){1, 1}, c->framerate = (AVRational){1, 1};
    c->thread_count = 0, c->thread_type = FF_THREAD_SLICE; /* as PyAV: x264 cuts a slice for each core, and bits follow */
    r->decoder->thread_count = 1;
    char text[16];
    AVDictionary *options = NULL;
    snprintf(text, sizeof text, "%d", crf);
    r->av.av_dict_set_(&options, "crf", text, 0);
    r->av.av_dict_set_(&options, "preset", "veryfast", 0);
    int code = r->av.avcodec_open2_(c, x264, &options);
    r->av.av_dict_free_(&options);
    if (code >= 0) code = r->av.avcodec_open2_(r->decoder, h264, NULL);
    return code < 0 ? av_failed(r, "H.264", code, e) : OK;
}

static Status buffer(Recode *r, AVFrame *f, enum AVPixelFormat format, int width, int height, Error *e) {
    f->format = format, f->width = width, f->height = height, f->pts = 0;
    int code = r->av.av_frame_get_buffer_(f, 0);
    return code < 0 ? av_failed(r, "frame", code, e) : OK;
}

static Status convert(Recode *r, const AVFrame *from, AVFrame *to, Error *e) {
    r->av.sws_freeContext_(r->scale);
    r->scale = r->av.sws_getContext_(from->width, from->height, from->format, to->width, to->height, to->format, SWS_BILINEAR,
                                     NULL, NULL, NULL);
    if (!r->scale) return fail(e, ERR_IO, "--image-crf: pixels cannot be converted");
    int rows = r->av.sws_scale_(r->scale, (const uint8_t *const *)from->data, from->linesize, 0, from->height, to->data,
                                to->linesize);
    return rows == from->height ? OK : fail(e, ERR_IO, "--image-crf: pixels cannot be converted");
}

/* Rows of a picture [height][stride] into the RGB frame, or back. */
static void move(const Recode *r, uint8_t *rgb, size_t stride, bool in) {
    size_t bytes = (size_t)r->rgb->width * 3;
    for (int y = 0; y < r->rgb->height; y++) {
        uint8_t *there = r->rgb->data[0] + (ptrdiff_t)y * r->rgb->linesize[0], *here = rgb + (size_t)y * stride;
        memcpy(in ? there : here, in ? here : there, bytes);
    }
}

/* What is in the RGB frame, there and back. */
static Status through(Recode *r, int width, int height, Error *e) {
    TRY(buffer(r, r->frame, AV_PIX_FMT_YUV420P, width, height, e));
    TRY(convert(r, r->rgb, r->frame, e));
    int code = r->av.avcodec_send_frame_(r->encoder, r->frame);
    if (code >= 0) code = r->av.avcodec_send_frame_(r->encoder, NULL);
    if (code >= 0) code = r->av.avcodec_receive_packet_(r->encoder, r->packet);
    if (code < 0) return av_failed(r, "cannot encode", code, e);
    r->av.av_frame_free_(&r->frame);
    r->frame = r->av.av_frame_alloc_();
    if (!r->frame) return fail(e, ERR_MEMORY, "--image-crf: out of memory");
    code = r->av.avcodec_send_packet_(r->decoder, r->packet);
    if (code >= 0) code = r->av.avcodec_send_packet_(r->decoder, NULL);
    if (code >= 0) code = r->av.avcodec_receive_frame_(r->decoder, r->frame);
    if (code < 0) return av_failed(r, "cannot decode", code, e);
    if (r->frame->width != width || r->frame->height != height)
        return fail(e, ERR_IO, "--image-crf: %dx%d came back as %dx%d", width, height, r->frame->width,
                    r->frame->height);
    return convert(r, r->frame, r->rgb, e);
}

Status av_recode(Image *image, int crf, Error *e) {
    Recode r = {0};
    int width = image->width / 2 * 2, height = image->height / 2 * 2;
    size_t bytes = (size_t)width * 3;
    if (!crf) return OK;
    if (!width || !height)
        return fail(e, ERR_USAGE, "--image: %dx%d pixels are too few", image->width, image->height);
    if (av_libs_open(&r.av, e) != OK) return because(e, "--image-crf");
    uint8_t *rgb = malloc(bytes * (size_t)height);
    if (!rgb) return fail(e, ERR_MEMORY, "--image: out of memory");
    Status s = open_codecs(&r, width, height, crf, e);
    if (s == OK) s = buffer(&r, r.rgb, AV_PIX_FMT_RGB24, width, height, e);
    if (s == OK) {
        move(&r, image->rgb, (size_t)image->width * 3, true);
        s = through(&r, width, height, e);
    }
    if (s == OK) move(&r, rgb, bytes, false);
    r.av.sws_freeContext_(r.scale);
    r.av.av_frame_free_(&r.frame);
    r.av.av_frame_free_(&r.rgb);
    r.av.av_packet_free_(&r.packet);
    r.av.avcodec_free_context_(&r.encoder);
    r.av.avcodec_free_context_(&r.decoder);
    if (s != OK) {
        free(rgb);
        return s;
    }
    free(image->rgb);
    image->rgb = rgb, image->width = width, image->height = height;
    return OK;
}

#else

Status av_recode(Image *image, int crf, Error *e) {
    (void)image;
    if (!crf) return OK;
    return fail(e, ERR_IO, "--image-crf: this ditto was built without libav; 0 does without");
}

#endif
