/* jpeg.c - see jpeg.h. libjpeg reports failure by longjmp: everything that must be freed lies in Decoder, which lives in the
 * caller's frame. */
#include "media/jpeg.h"

#include <stdio.h> /* jpeglib.h needs it */

#include <jpeglib.h>

#include <jerror.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct Decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors; /* its address is the Decoder's, plus a constant */
    jmp_buf escape;
    char text[JMSG_LENGTH_MAX];
    uint8_t *rgb, *line;
    JpegInfo info;
    Status status;
} Decoder;

static Decoder *decoder_of(j_common_ptr jpeg) { return (Decoder *)((char *)jpeg->err - offsetof(Decoder, errors)); }

static void on_error(j_common_ptr jpeg) {
    Decoder *d = decoder_of(jpeg);
    jpeg->err->format_message(jpeg, d->text);
    d->status = jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? ERR_MEMORY : ERR_IO;
    longjmp(d->escape, 1);
}

/* A warning means wrong pixels, save for bytes between segments and an odd Adobe marker. */
static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0 && jpeg->err->msg_code != JWRN_EXTRANEOUS_DATA && jpeg->err->msg_code != JWRN_ADOBE_XFORM) on_error(jpeg);
}

static void stop(Decoder *d, Status status, const char *text) {
    snprintf(d->text, sizeof d->text, "%s", text);
    d->status = status;
    longjmp(d->escape, 1);
}

/* Pillow reads Adobe's inverted ink: c, m, y, k here are 255 - ink, and a colour is (255 - c') - (255 - c') k' / 255. */
static void from_cmyk(const uint8_t *from, uint8_t *to, int width) {
    for (int i = 0; i < width; i++) {
        unsigned left = from[4 * i + 3]; /* 255 - black */
        for (int k = 0; k < 3; k++) {
            unsigned product = (255u - from[4 * i + k]) * left + 128;
            int v = (int)left - (int)(((product >> 8) + product) >> 8);
            to[3 * i + k] = (uint8_t)(v < 0 ? 0 : v);
        }
    }
}

static void decode(Decoder *d, const unsigned char *data, size_t size, int64_t most, bool pixels) {
    struct jpeg_decompress_struct *j = &d->jpeg;
    jpeg_create_decompress(j);
    jpeg_mem_src(j, data, (unsigned long)size);
    jpeg_read_header(j, TRUE);
    d->info = (JpegInfo){(int)j->image_width, (int)j->image_height, j->num_components};
    if ((int64_t)j->image_width * j->image_height > most) stop(d, ERR_IO, "too many pixels");
    if (!pixels) return;
    bool cmyk = j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK;
    j->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(j);
    size_t pitch = (size_t)j->output_width * 3;
    d->rgb = malloc(pitch * j->output_height);
    if (cmyk) d->line = malloc((size_t)j->output_width * 4);
    if (!d->rgb || (cmyk && !d->line)) stop(d, ERR_MEMORY, "out of memory");
    while (j->output_scanline < j->output_height) {
        uint8_t *to = d->rgb + pitch * j->output_scanline, *line = cmyk ? d->line : to;
        jpeg_read_scanlines(j, &line, 1);
        if (cmyk) from_cmyk(line, to, (int)j->output_width);
    }
    jpeg_finish_decompress(j);
}

/* In a frame of its own: what lies in the frame of setjmp() is lost by longjmp(). */
static void guarded(Decoder *d, const unsigned char *data, size_t size, int64_t most, bool pixels) {
    if (!setjmp(d->escape)) decode(d, data, size, most, pixels);
}

Status jpeg_decode(const unsigned char *data, size_t size, const char *where, int64_t most, JpegInfo *info, uint8_t **rgb,
                   Error *e) {
    Decoder d = {.status = OK};
    d.jpeg.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = on_error;
    d.errors.emit_message = on_message;
    guarded(&d, data, size, most, rgb != NULL);
    jpeg_destroy_decompress(&d.jpeg);
    free(d.line);
    *info = d.info;
    if (d.status != OK) {
        free(d.rgb);
        if ((int64_t)d.info.width * d.info.height > most)
            return fail(e, ERR_IO, "%s: %dx%d pixels are too many, at most %lld are read", where, d.info.width, d.info.height,
                        (long long)most);
        return fail(e, d.status, "%s: cannot decode: %s", where, d.text);
    }
    if (rgb) *rgb = d.rgb;
    return OK;
}
