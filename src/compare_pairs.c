/* compare_pairs.c - the frames of two sequences, brought together: by name when both are folders, else by position.
 * Easy to get wrong: native planes are compared only when both sides have the same ones; the formats of both files must be
 * known before either is read as RGB, so both may be opened twice. */
#include "compare_parts.h"

#include <string.h>

static bool same_planes(const Frames *a, const Frames *b) {
    const AvInfo *x = frames_video(a), *y = frames_video(b);
    if (!x && !y) return true; /* pictures: RGB */
    if (!x || !y || !x->native || !y->native) return false;
    /* yuvj420p is yuv420p in full range, by an older name */
    const char *p = x->format, *q = y->format;
    if (!strncmp(p, "yuvj", 4) || !strncmp(q, "yuvj", 4)) return !strcmp(p + 3 + (p[3] == 'j'), q + 3 + (q[3] == 'j'));
    return !strcmp(p, q);
}

static void close_pair(Frames *pair[2]) {
    frames_close(pair[0]);
    frames_close(pair[1]);
    pair[0] = pair[1] = NULL;
}

Status compare_open(const char *const path[2], const FramesKind kind[2], bool rgb, Frames *pair[2], Error *e) {
    pair[0] = pair[1] = NULL;
    Status status = frames_open(path[0], kind[0], rgb, &pair[0], e);
    if (status == OK) status = frames_open(path[1], kind[1], rgb, &pair[1], e);
    if (status == OK && !rgb && !same_planes(pair[0], pair[1])) {
        close_pair(pair);
        return compare_open(path, kind, true, pair, e);
    }
    if (status != OK) close_pair(pair);
    return status;
}

static Status check_alike(Frames *const pair[2], const Planes p[2], const char *name, Error *e) {
    if (p[0].width == p[1].width && p[0].height == p[1].height) return OK;
    return fail(e, ERR_USAGE, "%s%s%s is %dx%d and %s%s%s is %dx%d: only equal sizes can be compared",
                frames_path(pair[0]), name ? "/" : "", name ? name : "", p[0].width, p[0].height, frames_path(pair[1]),
                name ? "/" : "", name ? name : "", p[1].width, p[1].height);
}

Status compare_pair(Frames *const pair[2], const PairWatch *watch, Planes out[2], const char **name, bool *end,
                    Error *e) {
    const char *names[2] = {frames_name(pair[0]), frames_name(pair[1])};
    bool folders = !frames_video(pair[0]) && !frames_video(pair[1]) && (names[0] || names[1]);
    while (folders && (names[0] || names[1])) {
        int order = !names[0] ? 1 : !names[1] ? -1 : strverscmp(names[0], names[1]);
        if (!order) break;
        int who = order > 0;
        watch->alone(watch->user, who, names[who]);
        frames_skip(pair[who]);
        names[who] = frames_name(pair[who]);
    }
    *name = names[0] ? names[0] : names[1];
    bool ends[2];
    for (int i = 0; i < 2; i++) TRY(frames_next(pair[i], &out[i], &ends[i], e));
    while (ends[0] != ends[1]) { /* by position: the rest of the longer one */
        int who = ends[0];
        watch->alone(watch->user, who, names[who]);
        names[who] = frames_name(pair[who]);
        TRY(frames_next(pair[who], &out[who], &ends[who], e));
    }
    *end = ends[0];
    return *end ? OK : check_alike(pair, out, *name, e);
}
