/* jpeg.h - decoding JPEG files by libjpeg, whose bits the reference's pictures have: it decodes with the same library.
 *
 * Not EXIF (exif.h), not colour profiles. Easy to get wrong: two decoders of one JPEG file differ in many bytes by one or two;
 * CMYK is turned into RGB as Pillow does, ink inverted, without a profile. */
#ifndef JPEG_H
#define JPEG_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

/* Size and components. */
typedef struct JpegInfo { int width, height, channels; } JpegInfo;

/* rgb [height][width][3], malloc'd; rgb NULL: the header alone is read. ERR_IO, naming the file, for damaged data, also where
 * libjpeg would only warn and fill the rest with grey, and for more than `most` pixels; ERR_MEMORY. */
Status jpeg_decode(const unsigned char *data, size_t size, const char *where, int64_t most, JpegInfo *info, uint8_t **rgb,
                   Error *e);

#endif
