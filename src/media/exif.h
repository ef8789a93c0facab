/* exif.h - how a picture file wants to be turned: the EXIF orientation of a JPEG or PNG file. Parsed by libexif.
 *
 * Not other EXIF fields, not XMP. Easy to get wrong: orientations 5 to 8 exchange width and height. */
#ifndef EXIF_H
#define EXIF_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

enum { EXIF_UPRIGHT = 1 };

/* 1 to 8 as EXIF counts them; 1 when the file says nothing, or nothing that makes sense. ERR_MEMORY. */
Status exif_orientation(const unsigned char *data, size_t size, const char *where, int *out, Error *e);

/* Turns rgb [height][width][3] upright into to [height'][width'][3], height' = width for orientations 5 to 8. No overlap. */
void exif_turn(const uint8_t *rgb, int width, int height, int orientation, uint8_t *to);

#endif
