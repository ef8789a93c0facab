/* picture.c - see picture.h. */
#include "picture.h"

#include "media/png.h"
#include "stages.h"

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

Status picture_encode(const Media *media, const PictureTexts *texts, unsigned char **bytes, size_t *size,
                      Error *e) {
    PngText list[] = {{.key = "parameters", .text = texts->parameters},
                      {.key = PNG_DITTO_KEY, .text = texts->json}};
    return png_encode(media->rgb, media->width, media->height, list, texts->json ? 2 : 0, bytes, size, e);
}

void picture_keep_latents(const Media *media, const char *path, bool overwrite, Error *e) {
    char *name = NULL;
    const char *suffix = strrchr(path, '.');
    if (!media->latents || asprintf(&name, "%.*s.latents.safetensors", (int)(suffix - path), path) < 0)
        return;
    Error why = {0};
    size_t used = strlen(e->text);
    Status status = stages_write_file(name, "latents", media->latents_dtype, media->latents_rank,
                                      media->latents_shape, media->latents, overwrite, &why);
    snprintf(e->text + used, sizeof e->text - used,
             status == OK ? "; the last good latents are in %s" : "; latents not kept: %s",
             status == OK ? name : why.text);
    free(name);
}
