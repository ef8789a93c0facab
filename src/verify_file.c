/* verify_file.c - see verify_file.h. */
#include "verify_file.h"

#include "media/av_read.h"
#include "media/image.h"
#include "media/mp4.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void verify_file_free(VerifyFile *f) {
    free(f->rgb);
    sound_free(&f->sound);
    *f = (VerifyFile){0};
}

size_t verify_file_bytes(const VerifyFile *f) { return (size_t)f->frames * (size_t)f->width * (size_t)f->height * 3; }

bool verify_file_same_sound(const VerifyFile *a, const VerifyFile *b) {
    const Sound *s = &a->sound, *t = &b->sound;
    return s->rate == t->rate && s->channels == t->channels && s->count == t->count &&
           (!s->rate || !memcmp(s->samples, t->samples, (size_t)(s->count * s->channels) * sizeof *s->samples));
}

static Status make_room(const char *path, int width, int height, int frames, VerifyFile *f, Error *e) {
    *f = (VerifyFile){.width = width, .height = height, .frames = frames};
    f->rgb = malloc(verify_file_bytes(f));
    return f->rgb ? OK : fail(e, ERR_MEMORY, "%s: out of memory for its pixels", path);
}

static Status read_picture(const MetaRecord *r, VerifyFile *out, Error *e) {
    Image image;
    TRY(image_read(r->path, &image, e));
    *out = (VerifyFile){.rgb = image.rgb, .width = image.width, .height = image.height, .frames = 1};
    if (image.width == r->job.width && image.height == r->job.height) return OK;
    Status s = fail(e, ERR_USAGE, "%s: has %dx%d pixels, but its parameters say %dx%d", r->path, image.width,
                    image.height, r->job.width, r->job.height);
    verify_file_free(out);
    return s;
}

static Status copy_frame(const AvInfo *info, const Planes *p, const char *path, int frame, VerifyFile *out, Error *e) {
    size_t row = (size_t)out->width * 3;
    if (info->width != out->width || info->height != out->height || frame >= out->frames)
        return fail(e, ERR_USAGE, "%s: has %dx%d pixels and %s frames, but its parameters say %dx%d and %d", path,
                    info->width, info->height, frame >= out->frames ? "more" : "as many", out->width, out->height,
                    out->frames);
    uint8_t *to = out->rgb + (size_t)frame * (size_t)out->height * row;
    for (int y = 0; y < out->height; y++) memcpy(to + (size_t)y * row, p->plane[0].data + y * p->plane[0].stride, row);
    return OK;
}

/* name: for messages; path may be nobody's. heard: with its sound. */
static Status read_clip(const char *path, const char *name, const Job *job, bool heard, VerifyFile *out, Error *e) {
    AvReader *reader = NULL;
    Planes p;
    bool end = false;
    int frames = 0;
    TRY(make_room(name, job->width, job->height, job->frames, out, e));
    Status s = av_read_open(path, true, &reader, e);
    while (s == OK && (s = av_read_video(reader, &p, &end, e)) == OK && !end)
        s = copy_frame(av_read_info(reader), &p, name, frames++, out, e);
    if (s == OK && frames != job->frames)
        s = fail(e, ERR_USAGE, "%s: has %d frames, but its parameters say %d", name, frames, job->frames);
    av_read_close(reader);
    if (s == OK && heard) s = av_sound_read(path, &out->sound, e);
    if (s != OK) verify_file_free(out);
    return s;
}

Status verify_file_read(const MetaRecord *r, VerifyFile *out, Error *e) {
    return r->codec ? read_clip(r->path, r->path, &r->job, r->sound != NULL, out, e) : read_picture(r, out, e);
}

/* Bytes under a path that no folder has, for as long as *fd is open. */
static Status in_memory(const void *bytes, size_t size, int *fd, char path[64], Error *e) {
    *fd = memfd_create("ditto-verify", MFD_CLOEXEC);
    if (*fd < 0) return fail(e, ERR_IO, "cannot keep a clip in memory: %s", strerror(errno));
    snprintf(path, 64, "/proc/self/fd/%d", *fd);
    for (size_t done = 0; done < size;) {
        ssize_t n = write(*fd, (const char *)bytes + done, size - done);
        if (n <= 0 && errno == EINTR) continue;
        if (n <= 0) return fail(e, ERR_MEMORY, "out of memory for a clip of %zu bytes", size);
        done += (size_t)n;
    }
    return OK;
}

static Status encode_again(const MetaRecord *r, const Media *m, const volatile int *interrupted, VerifyFile *out,
                           Error *e) {
    Mp4Options o = {.crf = r->crf, .matroska = true, .interrupted = interrupted}; /* the container is no matter */
    if (!mp4_codec_parse(r->codec, &o.codec))
        return fail(e, ERR_USAGE, "%s: was encoded by a codec that is not known here", r->path);
    if (r->sound && !mp4_sound_parse(r->sound, &o.sound))
        return fail(e, ERR_USAGE, "%s: has sound of a codec that is not known here", r->path);
    if (r->sound) o.matroska = o.sound != MP4_AAC; /* but of sound's codec */
    if (mp4_lossless(o) && !r->sound) {
        TRY(make_room(r->path, m->width, m->height, m->frames, out, e));
        memcpy(out->rgb, m->rgb, verify_file_bytes(out));
        return OK;
    }
    Mp4Clip clip = {m->rgb, m->width, m->height, m->frames, m->fps, m->sound};
    unsigned char *bytes;
    size_t size;
    char path[64];
    int fd = -1;
    TRY(mp4_encode(&clip, &o, &bytes, &size, e));
    Status s = in_memory(bytes, size, &fd, path, e);
    free(bytes);
    if (s == OK) s = read_clip(path, "what was made again", &r->job, r->sound && m->sound.rate, out, e);
    if (fd >= 0) close(fd);
    return s;
}

Status verify_file_again(const MetaRecord *r, const Media *m, const volatile int *interrupted, VerifyFile *out,
                         Error *e) {
    *out = (VerifyFile){0};
    if (r->codec) return encode_again(r, m, interrupted, out, e);
    int frame = r->frame ? r->frame - 1 : 0;
    if ((!r->frame && m->frames != 1) || frame >= m->frames)
        return fail(e, ERR_USAGE, "%s: is a picture, but its parameters make a clip", r->path);
    TRY(make_room(r->path, m->width, m->height, 1, out, e));
    memcpy(out->rgb, m->rgb + (size_t)frame * verify_file_bytes(out), verify_file_bytes(out));
    return OK;
}
