/* image.c - see image.h. stb_image verifies no PNG checksum, so png_check() goes first. */
#include "media/image.h"

#include "core/file.h"
#include "media/exif.h"
#include "media/jpeg.h"
#include "media/png.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* stb declares more than it defines here; that is told at the end of the file, so no "pop" behind it */
#pragma GCC diagnostic ignored "-Wunused-function"
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_STDIO
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_ONLY_PNG
/* lint: allow-static (stbi__g_failure_reason: a thread's own; invalid_chunk: the name in an error text) */
#include <stb/stb_image.h>

static const int64_t PIXELS_MAX = 1 << 28;

/* What is wanted of a picture: its sizes, its pixels, or its pixels as Pillow has them. */
typedef enum Want { PROBE, PIXELS, PIXELS_PILLOW } Want;

/* Grey of 16 bits: Pillow's "I;16", whose conversion to RGB cuts values off at 255. */
static uint8_t *cut_off(const unsigned char *data, size_t size) {
    int width, height, channels;
    uint16_t *grey = stbi_load_16_from_memory(data, (int)size, &width, &height, &channels, 1);
    size_t count = grey ? (size_t)width * (size_t)height : 0;
    uint8_t *rgb = grey ? malloc(3 * count) : NULL;
    if (grey && !rgb) stbi__err("outofmem", "Out of memory");
    for (size_t i = 0; rgb && i < 3 * count; i++) rgb[i] = (uint8_t)(grey[i / 3] < 255 ? grey[i / 3] : 255);
    stbi_image_free(grey);
    return rgb;
}

static Status decode_png(const unsigned char *data, size_t size, const char *path, Want want, Image *out, Error *e) {
    int width, height, channels;
    TRY(png_check(data, size, path, e));
    if (size > INT_MAX) return fail(e, ERR_IO, "%s: %zu bytes are too many for a picture", path, size);
    int64_t side[2] = {0, 0}; /* out of IHDR: stb_image has limits of its own, and another word for them */
    for (int i = 0; i < 8; i++) side[i / 4] = side[i / 4] << 8 | data[16 + i];
    if (side[0] > PIXELS_MAX || side[1] > PIXELS_MAX || side[0] * side[1] > PIXELS_MAX)
        return fail(e, ERR_IO, "%s: %lldx%lld pixels are too many, at most %lld are read", path, (long long)side[0],
                    (long long)side[1], (long long)PIXELS_MAX);
    if (!stbi_info_from_memory(data, (int)size, &width, &height, &channels))
        return fail(e, ERR_IO, "%s: cannot decode: %s", path, stbi_failure_reason());
    *out = (Image){.width = width, .height = height, .channels = channels, .deep = stbi_is_16_bit_from_memory(data, (int)size)};
    if (want == PROBE) return OK;
    if (want == PIXELS_PILLOW && data[24] == 16 && !data[25]) out->rgb = cut_off(data, size); /* IHDR: bits, colour type */
    else out->rgb = stbi_load_from_memory(data, (int)size, &width, &height, &channels, 3);
    if (out->rgb) return OK;
    const char *reason = stbi_failure_reason();
    return fail(e, strcmp(reason, "outofmem") ? ERR_IO : ERR_MEMORY, "%s: cannot decode: %s", path, reason);
}

static Status decode(const unsigned char *data, size_t size, const char *path, Want want, Image *out, Error *e) {
    if (png_is(data, size)) {
        TRY(decode_png(data, size, path, want, out, e));
    } else if (size >= 3 && !memcmp(data, "\xff\xd8\xff", 3)) {
        JpegInfo info;
        TRY(jpeg_decode(data, size, path, PIXELS_MAX, &info, want == PROBE ? NULL : &out->rgb, e));
        out->width = info.width, out->height = info.height, out->channels = info.channels;
    } else {
        return fail(e, ERR_IO, "%s: is neither a PNG nor a JPEG file", path);
    }
    return exif_orientation(data, size, path, &out->orientation, e);
}

static Status from_file(const char *path, Want want, Image *out, char *sum, Error *e) {
    FileMap map;
    *out = (Image){0};
    TRY(file_map(path, &map, e));
    Status status = decode(map.data, map.size, path, want, out, e);
    if (status != OK) image_free(out);
    if (status == OK && sum) sha256_memory(map.data, map.size, sum);
    file_unmap(&map);
    return status;
}

Status image_read(const char *path, Image *out, Error *e) { return from_file(path, PIXELS, out, NULL, e); }

Status image_read_pillow(const char *path, Image *out, Error *e) { return from_file(path, PIXELS_PILLOW, out, NULL, e); }

Status image_probe(const char *path, Image *out, char sum[SHA256_TEXT], Error *e) {
    return from_file(path, PROBE, out, sum, e);
}

Status image_upright(Image *image, Error *e) {
    if (image->orientation == EXIF_UPRIGHT) return OK;
    if (image->rgb) {
        uint8_t *turned = malloc((size_t)image->width * (size_t)image->height * 3);
        if (!turned) return fail(e, ERR_MEMORY, "out of memory for a picture of %dx%d", image->width, image->height);
        exif_turn(image->rgb, image->width, image->height, image->orientation, turned);
        free(image->rgb);
        image->rgb = turned;
    }
    if (image->orientation >= 5) {
        int width = image->width;
        image->width = image->height, image->height = width;
    }
    image->orientation = EXIF_UPRIGHT;
    return OK;
}

void image_free(Image *image) {
    free(image->rgb);
    *image = (Image){0};
}
