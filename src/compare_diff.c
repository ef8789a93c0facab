/* compare_diff.c - the difference picture: |reference - output| of one pair of frames in RGB, times the largest whole factor
 * that leaves no sample above 255, so that a difference of one code value can be seen.
 * Easy to get wrong: the frame is read again from the start, since a video has no other way to it; planes are made RGB by
 * libswscale here, so the picture is for looking at and the numbers are not taken from it. */
#include "compare_parts.h"
#include "media/png.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

static void ignore(void *user, int who, const char *name) { (void)user, (void)who, (void)name; }

static Status draw(const Planes p[2], const CompareOptions *o, Sink *s, Error *e) {
    size_t bytes = (size_t)p[0].width * (size_t)p[0].height * 3, row = (size_t)p[0].width * 3;
    uint8_t *rgb = malloc(bytes);
    if (!rgb) return fail(e, ERR_MEMORY, "--diff: out of memory for %dx%d pixels", p[0].width, p[0].height);
    int largest = 0;
    for (size_t i = 0; i < bytes; i++) {
        ptrdiff_t y = (ptrdiff_t)(i / row), x = (ptrdiff_t)(i % row);
        int d =
            abs(p[0].plane[0].data[y * p[0].plane[0].stride + x] - p[1].plane[0].data[y * p[1].plane[0].stride + x]);
        rgb[i] = (uint8_t)d;
        if (d > largest) largest = d;
    }
    int factor = largest ? 255 / largest : 1;
    for (size_t i = 0; i < bytes; i++) rgb[i] = (uint8_t)(rgb[i] * factor);
    Status status = png_write(o->diff, rgb, p[0].width, p[0].height, NULL, 0, o->overwrite, e);
    free(rgb);
    if (status == OK && s->text) fprintf(s->text, "difference picture: %s, differences times %d\n", o->diff, factor);
    if (status == OK && s->json) {
        cJSON_AddItemToObject(s->json, "diff", compare_name(o->diff));
        cJSON_AddNumberToObject(s->json, "diff_factor", factor);
    }
    return status;
}

Status compare_diff(const char *const path[2], const FramesKind kind[2], int64_t index, const CompareOptions *o,
                    Sink *s, Error *e) {
    Frames *pair[2];
    Planes p[2];
    const PairWatch watch = {ignore, NULL};
    TRY(compare_open(path, kind, true, pair, e));
    Status status = OK;
    const char *name;
    bool end = false;
    for (int64_t i = 0; status == OK && i <= index && !end; i++) status = compare_pair(pair, &watch, p, &name, &end, e);
    if (status == OK && end) status = fail(e, ERR_IO, "%s: has fewer frames than a moment ago", path[0]);
    if (status == OK) status = draw(p, o, s, e);
    frames_close(pair[0]);
    frames_close(pair[1]);
    return status;
}
