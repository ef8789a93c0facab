/* frames.c - see frames.h. */
#include "frames.h"

#include "core/file.h"
#include "media/png.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct Frames {
    FramesKind kind;
    const char *path; /* the caller's */
    char **names;     /* FRAMES_FOLDER */
    int count, at;    /* FRAMES_FOLDER, FRAMES_PICTURE */
    Image image;      /* the frame that was handed out */
    bool alpha, deep;
    AvReader *video;
};

static bool is_picture_name(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && dot != name && (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg"));
}

static int by_version(const void *a, const void *b) { return strverscmp(*(char *const *)a, *(char *const *)b); }

static Status list(Frames *f, Error *e) {
    DIR *folder = opendir(f->path);
    if (!folder) return fail(e, ERR_IO, "%s: cannot open: %s", f->path, strerror(errno));
    Status status = OK;
    int room = 0;
    for (const struct dirent *entry; status == OK && (entry = readdir(folder));) {
        if (!is_picture_name(entry->d_name)) continue;
        if (f->count == room) {
            room = room ? 2 * room : 64;
            char **more = realloc(f->names, (size_t)room * sizeof *more);
            if (more)
                f->names = more;
            else
                status = fail(e, ERR_MEMORY, "%s: out of memory for its names", f->path);
        }
        if (status == OK && !(f->names[f->count] = strdup(entry->d_name)))
            status = fail(e, ERR_MEMORY, "%s: out of memory for its names", f->path);
        else if (status == OK)
            f->count++;
    }
    closedir(folder);
    if (status == OK && !f->count) return fail(e, ERR_IO, "%s: no PNG or JPEG file in this folder", f->path);
    if (status == OK) qsort(f->names, (size_t)f->count, sizeof *f->names, by_version);
    return status;
}

Status frames_kind_of(const char *path, FramesKind *kind, bool *frames, bool *sound, Error *e) {
    FileMap map;
    *frames = true, *sound = false;
    *kind = FRAMES_FOLDER;
    if (file_is_dir(path)) return OK;
    TRY(file_map(path, &map, e));
    bool picture = png_is(map.data, map.size) || (map.size >= 3 && !memcmp(map.data, "\xff\xd8\xff", 3));
    file_unmap(&map);
    *kind = picture ? FRAMES_PICTURE : FRAMES_VIDEO;
    return picture ? OK : av_read_probe(path, frames, sound, e);
}

Status frames_open(const char *path, FramesKind kind, bool rgb, Frames **out, Error *e) {
    *out = NULL;
    Frames *f = calloc(1, sizeof *f);
    if (!f) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    *f = (Frames){.kind = kind, .path = path};
    Status status = OK;
    if (kind == FRAMES_FOLDER)
        status = list(f, e);
    else if (kind == FRAMES_VIDEO)
        status = av_read_open(path, rgb, &f->video, e);
    else
        f->count = 1;
    if (status == OK)
        *out = f;
    else
        frames_close(f);
    return status;
}

void frames_close(Frames *f) {
    if (!f) return;
    for (int i = 0; f->names && i < f->count; i++) free(f->names[i]);
    free(f->names);
    image_free(&f->image);
    av_read_close(f->video);
    free(f);
}

const char *frames_path(const Frames *f) { return f->path; }
const AvInfo *frames_video(const Frames *f) { return f->video ? av_read_info(f->video) : NULL; }
const char *frames_name(const Frames *f) { return f->names && f->at < f->count ? f->names[f->at] : NULL; }
void frames_skip(Frames *f) { f->at++; }
bool frames_dropped_alpha(const Frames *f) { return f->video ? frames_video(f)->alpha : f->alpha; }
bool frames_dropped_depth(const Frames *f) { return f->video ? frames_video(f)->reduced : f->deep; }

Status frames_next(Frames *f, Planes *out, bool *end, Error *e) {
    if (f->video) return av_read_video(f->video, out, end, e);
    *end = f->at == f->count;
    if (*end) return OK;
    image_free(&f->image);
    char *path = f->names ? file_join(f->path, f->names[f->at]) : NULL;
    if (f->names && !path) return fail(e, ERR_MEMORY, "%s: out of memory", f->path);
    Status status = image_read(path ? path : f->path, &f->image, e);
    free(path);
    TRY(status);
    f->at++;
    f->alpha |= f->image.channels == 2 || f->image.channels == 4;
    f->deep |= f->image.deep;
    *out = (Planes){.width = f->image.width, .height = f->image.height, .rgb = true, .count = 1, .bits = 8};
    out->plane[0] = (Plane){f->image.rgb, f->image.width * 3, f->image.width * 3, f->image.height};
    return OK;
}
