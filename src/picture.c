/* picture.c - see picture.h. */
#include "picture.h"

#include "media/png.h"

#include <stdlib.h>
#include <string.h>

Status picture_texts(const Meta *meta, const Media *media, bool keep, PictureTexts *out, Error *e) {
    *out = (PictureTexts){0};
    if (!keep) return OK;
    *out = (PictureTexts){meta_json(meta, NULL, media), meta_parameters(meta)};
    if (out->json && out->parameters) return OK;
    picture_texts_free(out);
    return fail(e, ERR_MEMORY, "out of memory for the picture's metadata");
}

void picture_texts_free(PictureTexts *t) {
    free(t->json);
    free(t->parameters);
    *t = (PictureTexts){0};
}

Status picture_encode(const Media *media, const PictureTexts *texts, const Mp4Options *video, unsigned char **bytes,
                      size_t *size, Error *e) {
    if (video) {
        const Mp4Clip clip = {media->rgb, media->width, media->height, media->frames, media->fps, media->sound};
        Mp4Options o = *video;
        o.comment = texts->json;
        return mp4_encode(&clip, &o, bytes, size, e);
    }
    PngText list[] = {{.key = "parameters", .text = texts->parameters},
                      {.key = PNG_DITTO_KEY, .text = texts->json}};
    return png_encode(media->rgb, media->width, media->height, list, texts->json ? 2 : 0, bytes, size, e);
}
