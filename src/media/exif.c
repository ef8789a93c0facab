/* exif.c - see exif.h. libexif finds the EXIF segment in a JPEG file; the eXIf chunk of a PNG file is handed to it with the
 * header that a JPEG segment has. */
#include "media/exif.h"

#include "media/png.h"

#include <libexif/exif-data.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* libexif gives no object when it is out of memory, an empty one when there is nothing to read. */
static bool orientation_in(const unsigned char *data, size_t size, int *out) {
    if (size > UINT_MAX) return true;
    ExifData *exif = exif_data_new_from_data(data, (unsigned)size);
    if (!exif) return false;
    ExifEntry *entry = exif_content_get_entry(exif->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
    if (entry && entry->format == EXIF_FORMAT_SHORT && entry->components >= 1 && entry->size >= 2) {
        int found = exif_get_short(entry->data, exif_data_get_byte_order(exif));
        if (found >= 1 && found <= 8) *out = found;
    }
    exif_data_unref(exif);
    return true;
}

Status exif_orientation(const unsigned char *data, size_t size, const char *where, int *out, Error *e) {
    static const char HEADER[6] = "Exif\0";
    const unsigned char *chunk;
    size_t n;
    bool good = true;
    *out = EXIF_UPRIGHT;
    if (!png_is(data, size)) {
        good = orientation_in(data, size, out);
    } else if (png_find(data, size, "eXIf", &chunk, &n)) {
        unsigned char *whole = malloc(sizeof HEADER + n);
        if (whole) {
            memcpy(whole, HEADER, sizeof HEADER);
            memcpy(whole + sizeof HEADER, chunk, n);
        }
        good = whole && orientation_in(whole, sizeof HEADER + n, out);
        free(whole);
    }
    return good ? OK : fail(e, ERR_MEMORY, "%s: out of memory for its EXIF data", where);
}

void exif_turn(const uint8_t *rgb, int width, int height, int orientation, uint8_t *to) {
    bool exchanged = orientation >= 5;
    int w = exchanged ? height : width, h = exchanged ? width : height;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            int u = exchanged ? y : x, v = exchanged ? x : y; /* column and row in the file */
            if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) u = width - 1 - u;
            if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) v = height - 1 - v;
            memcpy(to + 3 * ((size_t)y * (size_t)w + (size_t)x), rgb + 3 * ((size_t)v * (size_t)width + (size_t)u), 3);
        }
}
