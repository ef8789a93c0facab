/* png.h - PNG files with text: encoding RGB8, and reading the text chunks of any PNG back.
 *
 * Pixels are compressed by stb_image_write in memory (its file writer ignores write errors); the text chunks
 * are put in behind IHDR, and the whole goes through file_write_atomic(). Not a decoder: see image.h.
 * Easy to get wrong: tEXt is Latin-1 by definition, so a text with any byte outside printable ASCII and line
 * feed is written as an uncompressed iTXt (UTF-8) and comes back byte for byte; readers of the common web UIs
 * look into both. The caller vouches that texts are valid UTF-8: they are written as they are. */
#ifndef PNG_H
#define PNG_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Under this key ditto stores all parameters of a picture, as one JSON object. */
#define PNG_DITTO_KEY "ditto"

typedef struct PngText {
    const char *key;  /* 1..79 printable ASCII characters, no space at an end or twice in a row */
    const char *text; /* UTF-8, NUL-terminated, below 2 GiB; may be empty */
    bool unreadable;  /* reading only: the chunk is compressed, text is "" */
} PngText;

typedef struct PngTexts {
    PngText *items; /* in file order; a key may occur several times */
    int count;
} PngTexts;

/* Encodes rgb [height][width][3] into malloc'd *bytes. ERR_USAGE for a bad key or a size that is not positive
 * or above 2^29 bytes of pixels; ERR_MEMORY. The bytes are a function of the arguments alone. */
Status png_encode(const uint8_t *rgb, int width, int height, const PngText *texts, int count,
                  unsigned char **bytes, size_t *size, Error *e);

/* png_encode() to a file. Without overwrite an existing file is refused (ERR_USAGE). */
Status png_write(const char *path, const uint8_t *rgb, int width, int height, const PngText *texts, int count,
                 bool overwrite, Error *e);

/* True when the bytes begin with the PNG signature. */
bool png_is(const unsigned char *data, size_t size);

/* Walks all chunks up to IEND: lengths, types, order of the first, checksums. ERR_IO names the chunk and its
 * offset. stb_image checks no checksum, so whoever decodes with it asks here first. */
Status png_check(const unsigned char *data, size_t size, const char *where, Error *e);

/* Data of the first chunk of this type, in a file that png_check() accepted; false: there is none. */
bool png_find(const unsigned char *data, size_t size, const char *type, const unsigned char **chunk, size_t *chunk_size);

/* png_check(), collecting all tEXt, iTXt and zTXt chunks. Latin-1 is turned into UTF-8; iTXt text is passed
 * on as it is, cut at a NUL. Compressed texts are listed as unreadable. Safe on any bytes. */
Status png_parse_texts(const unsigned char *data, size_t size, const char *where, PngTexts *out, Error *e);
Status png_read_texts(const char *path, PngTexts *out, Error *e);
/* A copy of both at the end; for texts out of other files than PNG. */
Status png_texts_add(PngTexts *texts, const char *key, const char *text, const char *where, Error *e);
void png_texts_free(PngTexts *texts);

/* The first text with this key, NULL when absent or unreadable. */
const char *png_texts_get(const PngTexts *texts, const char *key);

#endif
