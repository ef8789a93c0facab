/* compare_pixels.c - the numbers of one frame, and of two byte arrays. Sums are integers and therefore exact: of 2^30 samples
 * of 16 bits the squares need 62 bits.
 * Easy to get wrong: the mean square over all planes weighs each plane by its samples, so it is the mean over all samples. */
#include "compare_parts.h"
#include "ssim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Differences {
    uint64_t sum, squares, differing;
    int max;
} Differences;

static inline void add(Differences *s, int a, int b) {
    int d = abs(a - b);
    s->sum += (uint64_t)d;
    s->squares += (uint64_t)d * (uint64_t)d;
    s->differing += d != 0;
    if (d > s->max) s->max = d;
}

double compare_psnr(double mean_square, double peak) {
    return mean_square > 0 ? 10 * log10(peak * peak / mean_square) : INFINITY;
}

Comparison compare_pixels(const uint8_t *a, const uint8_t *b, size_t bytes) {
    Differences s = {0};
    for (size_t i = 0; i < bytes; i++) add(&s, a[i], b[i]);
    double n = (double)bytes;
    return (Comparison){.equal = !s.differing,
                        .bytes = (int64_t)bytes,
                        .differing = (int64_t)s.differing,
                        .max_abs = s.max,
                        .mean_abs = (double)s.sum / n,
                        .psnr = compare_psnr((double)s.squares / n, 255)};
}

bool compare_passes(const Comparison *c, const CompareLimits *limits) {
    if (!limits->has_min_psnr && !limits->has_max_abs) return c->equal;
    return (!limits->has_min_psnr || c->psnr >= limits->min_psnr) &&
           (!limits->has_max_abs || c->max_abs <= limits->max_abs);
}

const char *compare_channel(const Planes *p, int plane, int channel) {
    static const char *const RGB[] = {"red", "green", "blue"}, *const YUV[] = {"Y", "U", "V"};
    return p->rgb ? RGB[channel] : YUV[plane];
}

static void note_first(const Planes *a, const Planes *b, int plane, int y, FrameNumbers *out) {
    int x = 0, step = a->rgb ? 3 : 1;
    while (planes_sample(a, &a->plane[plane], x, y) == planes_sample(b, &b->plane[plane], x, y)) x++;
    out->first.found = true;
    out->first.plane = plane, out->first.channel = x % step;
    out->first.x = x / step, out->first.y = y;
    out->first.value[0] = planes_sample(a, &a->plane[plane], x, y);
    out->first.value[1] = planes_sample(b, &b->plane[plane], x, y);
}

static Differences plane_differences(const Planes *a, const Planes *b, int plane, FrameNumbers *out) {
    Differences s = {0};
    const Plane *p = &a->plane[plane], *q = &b->plane[plane];
    for (int y = 0; y < p->height; y++) {
        uint64_t before = s.differing;
        if (a->bits > 8)
            for (int x = 0; x < p->width; x++) add(&s, planes_sample(a, p, x, y), planes_sample(b, q, x, y));
        else {
            const uint8_t *row = p->data + y * p->stride, *other = q->data + y * q->stride;
            for (int x = 0; x < p->width; x++) add(&s, row[x], other[x]);
        }
        if (s.differing != before && !out->first.found) note_first(a, b, plane, y, out);
    }
    return s;
}

static double mean_luma(const Planes *p) {
    static const int RGB[] = {299, 587, 114};
    uint64_t sum = 0;
    const Plane *plane = &p->plane[0];
    for (int y = 0; y < plane->height; y++)
        if (p->rgb)
            for (int x = 0; x < plane->width; x++) sum += (uint64_t)(RGB[x % 3] * plane->data[y * plane->stride + x]);
        else
            for (int x = 0; x < plane->width; x++) sum += (uint64_t)planes_sample(p, plane, x, y);
    return (double)sum / ((double)p->width * p->height * (p->rgb ? 1000 : 1));
}

Status compare_frame(const Planes *a, const Planes *b, FrameNumbers *out, Error *e) {
    *out = (FrameNumbers){.planes = a->count, .peak = (1 << a->bits) - 1};
    double squares = 0, ssim = 0;
    for (int i = 0; i < a->count; i++) {
        Differences s = plane_differences(a, b, i, out);
        double n = (double)a->plane[i].width * a->plane[i].height;
        out->mean_square[i] = (double)s.squares / n;
        TRY(a->rgb ? ssim_rgb(a, b, &out->ssim[i], e) : ssim_plane(a, b, i, &out->ssim[i], e));
        out->samples += (int64_t)n;
        out->differing += (int64_t)s.differing;
        out->sum += s.sum;
        if (s.max > out->max_abs) out->max_abs = s.max;
        squares += (double)s.squares, ssim += out->ssim[i] * n;
    }
    out->mean_square[COMPARE_ALL] = squares / (double)out->samples;
    out->ssim[COMPARE_ALL] = ssim / (double)out->samples;
    out->luma[0] = mean_luma(a), out->luma[1] = mean_luma(b);
    return OK;
}
