/* output.c - see output.h.
 * Easy to get wrong: a job's record in its latents must not say how a file was encoded: there is none yet. */
#include "output.h"

#include "cli.h"
#include "core/file.h"
#include "stages.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool output_video(NamesKind kind, const OutputOptions *o, Mp4Options *video) {
    *video = mp4_resolved((Mp4Options){
        .codec = o->codec, .crf = o->crf, .matroska = kind == NAMES_MKV, .interrupted = o->interrupted});
    return kind == NAMES_MP4 || kind == NAMES_MKV;
}

void output_describe(NamesKind kind, const OutputOptions *o, Meta *meta) {
    Mp4Options video;
    if (!output_video(kind, o, &video)) return;
    meta->codec = mp4_codec_name(video.codec), meta->crf = video.crf;
    if (o->sound.rate) meta->sound = mp4_sound_name(video.sound);
}

/* --- before the work --- */

/* NAME.latents.safetensors for NAME.mp4; of a clip of frames beside the first. NULL: out of memory. */
static char *latents_name(const char *path) {
    char *name = NULL, *file = names_number(path, 1);
    const char *suffix = file ? strrchr(file, '.') : NULL;
    if (file && asprintf(&name, "%.*s.latents.safetensors", (int)(suffix - file), file) < 0) name = NULL;
    free(file);
    return name;
}

static Status check_latents(const char *output, Error *e) {
    char *path = latents_name(output);
    if (!path) return fail(e, ERR_MEMORY, "--output: out of memory");
    Status s = OK;
    if (file_exists(path))
        s = fail(e, ERR_USAGE, "%s: latents of an earlier run; give them to ditto decode, or -y to overwrite", path);
    free(path);
    return s;
}

static Status check_sound(const char *pattern, Error *e) {
    char *path = names_sound(pattern);
    if (!path) return fail(e, ERR_MEMORY, "--output: out of memory");
    Status s = file_exists(path) ? fail(e, ERR_USAGE, "%s: exists; give -y to overwrite", path) : OK;
    free(path);
    return s;
}

Status output_check(const char *path, NamesKind kind, bool clips, const char *title, const Job *job,
                    const OutputOptions *o, Error *e) {
    Mp4Options video;
    bool is_video = output_video(kind, o, &video);
    if (is_video && !clips)
        return fail(e, ERR_USAGE, "--output: %s: expected .png: %s makes pictures, no clips", path, title);
    if (kind == NAMES_PNG && job->frames > 1)
        return fail(e, ERR_USAGE, "--output: %s: expected .mp4 or .mkv: %s makes clips", path, title);
    if (!is_video && (o->codec || o->crf >= 0))
        return fail(e, ERR_USAGE, "%s: is for .mp4 and .mkv files, and %s is none", o->codec ? "--codec" : "--crf", path);
    Mp4Clip clip = {NULL, job->width, job->height, job->frames, job->fps, o->sound};
    if (is_video && mp4_check(&clip, &video, e) != OK) return because(e, "%s", path);
    if (kind == NAMES_FRAMES && o->sound.rate && !o->overwrite) TRY(check_sound(path, e));
    return o->overwrite || !clips || job->decode_only ? OK : check_latents(path, e);
}

/* --- writing --- */

static Status write_one(const char *path, const Mp4Options *video, const Meta *meta, const Media *media,
                        const OutputOptions *o, Error *e) {
    PictureTexts texts;
    unsigned char *bytes = NULL;
    size_t size = 0;
    TRY(picture_texts(meta, media, !o->no_metadata, &texts, e));
    Status s = picture_encode(media, &texts, video, &bytes, &size, e);
    if (s != OK && video) because(e, "%s", path);
    if (s == OK) s = file_write_atomic(path, bytes, size, o->overwrite, e);
    free(bytes);
    picture_texts_free(&texts);
    return s;
}

/* Frame i, counted from 1. */
static Status write_frame(const char *pattern, int i, const Meta *meta, const Media *media, const OutputOptions *o,
                          Error *e) {
    Meta said = *meta;
    Media frame = *media;
    said.frame = i;
    frame.rgb += (size_t)(i - 1) * (size_t)media->width * (size_t)media->height * 3;
    char *path = names_number(pattern, i);
    if (!path) return fail(e, ERR_MEMORY, "%s: out of memory", pattern);
    Status s = o->interrupted && *o->interrupted ? fail(e, ERR_INTERRUPTED, "interrupted") : OK;
    if (s == OK) s = write_one(path, NULL, &said, &frame, o, e);
    free(path);
    return s;
}

static Status write_sound(const char *path, const Sound *sound, bool overwrite, Error *e) {
    unsigned char *bytes;
    size_t size;
    if (!path) return fail(e, ERR_MEMORY, "--output: out of memory");
    if (sound_wav(sound, SOUND_FLOAT32, &bytes, &size, e) != OK) return because(e, "%s", path);
    Status s = file_write_atomic(path, bytes, size, overwrite, e);
    free(bytes);
    return s;
}

static Status write_frames(const char *pattern, const Meta *meta, const Media *media, const OutputOptions *o,
                           Error *e) {
    char *sound = media->sound.rate ? names_sound(pattern) : NULL;
    Status s = media->sound.rate ? write_sound(sound, &media->sound, o->overwrite, e) : OK;
    int done = 0;
    const bool heard = s == OK && media->sound.rate;
    while (s == OK && done < media->frames)
        if ((s = write_frame(pattern, done + 1, meta, media, o, e)) == OK) done++;
    for (int i = 1; s != OK && i <= done; i++) { /* half a clip is none */
        char *path = names_number(pattern, i);
        if (path) unlink(path);
        free(path);
    }
    if (s != OK && heard) unlink(sound);
    free(sound);
    return s;
}

Status output_write(const Names *names, int k, const Meta *meta, const Media *media, const OutputOptions *o, Error *e) {
    Mp4Options video;
    Meta said = *meta;
    if (names->kind == NAMES_FRAMES) return write_frames(names->path[k], meta, media, o, e);
    bool is_video = output_video(names->kind, o, &video);
    output_describe(names->kind, o, &said);
    return write_one(names->path[k], is_video ? &video : NULL, &said, media, o, e);
}

/* --- latents --- */

static Status write_latents(OutputLatents *l, bool finished, DType dtype, const Streams *streams, const void *values, Error *e) {
    char *json = finished ? meta_json(&l->meta, NULL, NULL) : NULL;
    Status s = finished && !json ? fail(e, ERR_MEMORY, "%s: out of memory", l->path)
                                 : stages_write_latents(l->path, json, dtype, streams, values, l->overwrite, e);
    free(json);
    return s;
}

static Status see(void *user, DType dtype, const Streams *streams, const void *values, Error *e) {
    OutputLatents *l = user;
    Error why = {0};
    (void)e;
    l->written = write_latents(l, true, dtype, streams, values, &why) == OK;
    snprintf(l->why, sizeof l->why, "%.399s", why.text);
    return OK;
}

Status output_latents_open(const char *path, const Meta *meta, const OutputOptions *o, OutputLatents *l, Error *e) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    *l = (OutputLatents){.path = latents_name(path), .meta = *meta, .overwrite = o->overwrite, .watch = {see, l}};
    l->output = (MetaOutput){.name = cli_utf8_fault(name) < 0 ? name : NULL, /* JSON holds no other */
                             .codec = o->codec ? mp4_codec_name(o->codec) : NULL,
                             .crf = o->crf,
                             .no_metadata = o->no_metadata};
    l->meta.output = &l->output;
    return l->path ? OK : fail(e, ERR_MEMORY, "--output: out of memory");
}

static void append(Error *e, const char *before, const char *text, const char *after) {
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, "; %s%s%s", before, text, after);
}

char *output_latents_close(OutputLatents *l, const Media *media, Error *e) {
    Error why = {0};
    bool finished = l->written;
    if (e && !l->written && media->latents) {
        finished = media->latents_finished;
        if (write_latents(l, finished, media->latents_dtype, &media->latents_streams, media->latents, &why) != OK)
            append(e, "latents not kept: ", why.text, "");
        else if (!finished) append(e, "the last good latents are in ", l->path, "");
    }
    char *path = finished && !why.code ? l->path : NULL;
    if (!path) free(l->path);
    l->path = NULL;
    return path;
}

void output_latents_settle(char *path, Error *e) {
    if (path && e) append(e, "all steps are done: ditto decode ", path, " finishes the job");
    else if (path) unlink(path);
    free(path);
}
