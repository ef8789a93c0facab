/* image.h - reading pictures (PNG, JPEG) as RGB8, for comparisons. Decoded by stb_image.
 *
 * Easy to get wrong: pixels are as stored. No colour profile, gamma or EXIF orientation is applied, alpha is
 * dropped (not blended) and 16-bit samples keep their upper byte; `channels` and `deep` tell the caller. */
#ifndef IMAGE_H
#define IMAGE_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Image {
    uint8_t *rgb; /* [height][width][3], malloc'd */
    int width, height;
    int channels; /* in the file: 1 grey, 2 grey + alpha, 3 RGB or palette, 4 RGB + alpha */
    bool deep;    /* 16 bits a sample in the file */
} Image;

/* ERR_IO, naming the file, when it cannot be read, is neither PNG nor JPEG, is damaged (PNG checksums are
 * verified) or has more than 2^28 pixels; ERR_MEMORY. */
Status image_read(const char *path, Image *out, Error *e);
void image_free(Image *image);

#endif
