/* av_texts.c - see av_texts.h. */
#include "media/av_texts.h"

#include "media/av_input.h"

#ifdef HAVE_LIBAV

#include <string.h>
#include <strings.h>

static const char *key_of(const AVDictionaryEntry *d) {
    static const char OURS[] = "{\"ditto\":";
    bool ours = !strcasecmp(d->key, "comment") && !strncmp(d->value, OURS, sizeof OURS - 1);
    return ours ? PNG_DITTO_KEY : d->key;
}

/* What MP4 says of itself is no text of anybody's. */
static bool is_brand(const char *key) {
    return !strcmp(key, "major_brand") || !strcmp(key, "minor_version") || !strcmp(key, "compatible_brands");
}

Status av_texts_read(const char *path, PngTexts *out, Error *e) {
    AvInput in;
    *out = (PngTexts){0};
    Status s = av_input_file(path, &in, e);
    const AVDictionaryEntry *d = NULL;
    while (s == OK && (d = in.av.av_dict_get_(in.file->metadata, "", d, AV_DICT_IGNORE_SUFFIX)))
        if (!is_brand(d->key)) s = png_texts_add(out, key_of(d), d->value, path, e);
    av_input_close(&in);
    return s;
}

#else

Status av_texts_read(const char *path, PngTexts *out, Error *e) {
    *out = (PngTexts){0};
    return fail(e, ERR_IO, "%s: this ditto was built without libav, which reads video files", path);
}

#endif
