/* image.h - reading pictures (PNG, JPEG) as RGB8. PNG is decoded by stb_image, JPEG by libjpeg.
 *
 * Easy to get wrong: pixels are as stored. No colour profile or gamma is applied, alpha is dropped (not blended) and
 * 16-bit samples keep their upper byte; `channels` and `deep` tell the caller. EXIF orientation is read, but turning is
 * image_upright's. */
#ifndef IMAGE_H
#define IMAGE_H

#include "core/sha256.h"
#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Image {
    uint8_t *rgb; /* [height][width][3], malloc'd; NULL after image_probe */
    int width, height;
    int channels; /* in the file: 1 grey, 2 grey + alpha, 3 RGB or palette, 4 RGB + alpha or CMYK */
    bool deep;    /* 16 bits a sample in the file */
    int orientation; /* EXIF, 1 to 8; 1: as stored */
} Image;

/* ERR_IO, naming the file, when it cannot be read, is neither PNG nor JPEG, is damaged (PNG checksums are
 * verified) or has more than 2^28 pixels; ERR_MEMORY. */
Status image_read(const char *path, Image *out, Error *e);
/* The same as Pillow's convert("RGB"), which cuts grey samples of 16 bits off at 255 instead. */
Status image_read_pillow(const char *path, Image *out, Error *e);
/* The same without decoding: faults of the pixels stay unseen. sum: SHA-256 of the file. */
Status image_probe(const char *path, Image *out, char sum[SHA256_TEXT], Error *e);
void image_free(Image *image);

/* Turns the picture as its orientation says; width and height (of a probed picture too) may change places. ERR_MEMORY. */
Status image_upright(Image *image, Error *e);

#endif
