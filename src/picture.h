/* picture.h - from what a pipeline made to the bytes of its file, PNG or video: the texts that travel inside it, and the
 * encoding.
 *
 * Not the names (names.h), not the pixels, not what is kept of a failure (output.h). Easy to get wrong: the texts point to
 * nothing of the pipeline or the job, so that the bytes can be made elsewhere and later. */
#ifndef PICTURE_H
#define PICTURE_H

#include "media/mp4.h"
#include "meta.h"

/* malloc'd; both NULL: a file without metadata. */
typedef struct PictureTexts {
    char *json, *parameters;
} PictureTexts;

/* keep false: none. */
Status picture_texts(const Meta *meta, const Media *media, bool keep, PictureTexts *out, Error *e);
void picture_texts_free(PictureTexts *t);
/* The bytes of the file, malloc'd: a function of pixels, texts and encoding alone. video NULL: a PNG of the first frame; else its
 * comment is not read. */
Status picture_encode(const Media *media, const PictureTexts *texts, const Mp4Options *video, unsigned char **bytes,
                      size_t *size, Error *e);

#endif
