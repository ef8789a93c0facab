/* av_texts.h - the texts that a media file's container carries: title, comment, and in the comment what ditto wrote there.
 *
 * Without libav, at build or at run time, it fails and says so. Easy to get wrong: a container keeps no types and few keys; a
 * comment that is ditto's object is listed under PNG_DITTO_KEY, as in a PNG, any other under the key it has. */
#ifndef AV_TEXTS_H
#define AV_TEXTS_H

#include "media/png.h"

/* Valid UTF-8 or not, as the file has them. png_texts_free() *out in any case. ERR_IO: no media file, or damaged. */
Status av_texts_read(const char *path, PngTexts *out, Error *e);

#endif
