/* av_recode.c - see av_recode.h.
 * Easy to get wrong: an encoder gives its packet only when it is told that no more frames will come; so does a decoder its
 * frame. */
#include "media/av_recode.h"

#include "media/av_libs.h"

#ifdef HAVE_LIBAV

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Recode {
    AvLibs av;
    AVCodecContext *encoder, *decoder;
    AVFrame *frame;
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
    r->packet = r->av.av_packet_alloc_();
    if (!c || !r->decoder || !r->frame || !r->packet)
        return fail(e, ERR_MEMORY, "--image-crf: out of memory");
    c->width = width, c->height = height;
    c->pix_fmt = AV_PIX_FMT_YUV420P;
    c->time_base = (AVRational){1, 1}, c->framerate = (AVRational){1, 1};
    c->thread_count = r->decoder->thread_count = 1;
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

/* Between rgb (contiguous) and the frame's planes. */
static Status convert(Recode *r, bool to_planes, uint8_t *rgb, Error *e) {
    AVFrame *f = r->frame;
    uint8_t *pixels[4] = {rgb};
    int stride[4] = {3 * f->width};
    enum AVPixelFormat from = to_planes ? AV_PIX_FMT_RGB24 : f->format,
                       to = to_planes ? f->format : AV_PIX_FMT_RGB24;
    r->av.sws_freeContext_(r->scale);
    r->scale = r->av.sws_getContext_(f->width, f->height, from, f->width, f->height, to, SWS_BILINEAR, NULL,
                                     NULL, NULL);
    if (!r->scale) return fail(e, ERR_IO, "--image-crf: pixels cannot be converted");
    const uint8_t *const *in = (const uint8_t *const *)(to_planes ? pixels : f->data);
    int rows = r->av.sws_scale_(r->scale, in, to_planes ? stride : f->linesize, 0, f->height,
                                to_planes ? f->data : pixels, to_planes ? f->linesize : stride);
    return rows == f->height ? OK : fail(e, ERR_IO, "--image-crf: pixels cannot be converted");
}

static Status through(Recode *r, uint8_t *rgb, int width, int height, Error *e) {
    r->frame->format = AV_PIX_FMT_YUV420P, r->frame->width = width, r->frame->height = height,
    r->frame->pts = 0;
    int code = r->av.av_frame_get_buffer_(r->frame, 0);
    if (code < 0) return av_failed(r, "frame", code, e);
    TRY(convert(r, true, rgb, e));
    code = r->av.avcodec_send_frame_(r->encoder, r->frame);
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
    return convert(r, false, rgb, e);
}

Status av_recode(Image *image, int crf, Error *e) {
    Recode r = {0};
    int width = image->width / 2 * 2, height = image->height / 2 * 2;
    if (!crf) return OK;
    if (!width || !height)
        return fail(e, ERR_USAGE, "--image: %dx%d pixels are too few", image->width, image->height);
    if (av_libs_open(&r.av, e) != OK) return because(e, "--image-crf");
    uint8_t *rgb = malloc((size_t)width * (size_t)height * 3 + 64); /* vector stores reach past the end */
    if (!rgb) return fail(e, ERR_MEMORY, "--image: out of memory");
    for (int y = 0; y < height; y++)
        memcpy(rgb + (size_t)y * (size_t)width * 3, image->rgb + (size_t)y * (size_t)image->width * 3,
               (size_t)width * 3);
    Status s = open_codecs(&r, width, height, crf, e);
    if (s == OK) s = through(&r, rgb, width, height, e);
    r.av.sws_freeContext_(r.scale);
    r.av.av_frame_free_(&r.frame);
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
