/* picture.h - from what a pipeline made to a PNG file: the texts that travel inside it, its bytes, and what is kept of a
 * picture that could not be made.
 *
 * Not the names (names.h), not the pixels. Easy to get wrong: the texts point to nothing of the pipeline or the job, so that
 * the bytes can be made elsewhere and later. */
#ifndef PICTURE_H
#define PICTURE_H

#include "meta.h"

/* malloc'd; both NULL: a picture without metadata. */
typedef struct PictureTexts {
    char *json, *parameters;
} PictureTexts;

/* keep false: none. */
Status picture_texts(const Meta *meta, const Media *media, bool keep, PictureTexts *out, Error *e);
void picture_texts_free(PictureTexts *t);
/* The bytes of the file, malloc'd: a function of pixels and texts alone. */
Status picture_encode(const Media *media, const PictureTexts *texts, unsigned char **bytes, size_t *size,
                      Error *e);

/* Not a number appeared: writes the last good latents beside the picture at `path`, and adds to e's text where they are. */
void picture_keep_latents(const Media *media, const char *path, bool overwrite, Error *e);

#endif
