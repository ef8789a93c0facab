/* resize.c - see resize.h. One loop serves both passes: an axis of `size` places a `step` apart, repeated along lines. */
#include "media/resize.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { REACH = 3, BITS = 22 };

/* Output place i is the sum over count[i] source places from first[i] on, times weight[i * most + k]. */
typedef struct Taps {
    int *first, *count, *weight;
    int most;
} Taps;

static void taps_free(Taps *t) {
    free(t->first);
    free(t->count);
    free(t->weight);
}

static double sinc(double x) {
    if (x == 0) return 1;
    x *= M_PI;
    return sin(x) / x;
}

static double lanczos(double x) { return x >= -REACH && x < REACH ? sinc(x) * sinc(x / REACH) : 0; }

static bool taps_make(int from, int to, Taps *t) {
    double scale = (double)from / to, wide = scale < 1 ? 1 : scale, support = REACH * wide;
    t->most = (int)ceil(support) * 2 + 1;
    t->first = malloc((size_t)to * sizeof *t->first);
    t->count = malloc((size_t)to * sizeof *t->count);
    t->weight = calloc((size_t)to * (size_t)t->most, sizeof *t->weight);
    double *w = malloc((size_t)t->most * sizeof *w);
    bool good = t->first && t->count && t->weight && w;
    for (int i = 0; good && i < to; i++) {
        double center = (i + 0.5) * scale, narrow = 1.0 / wide, sum = 0;
        int first = (int)(center - support + 0.5), end = (int)(center + support + 0.5);
        if (first < 0) first = 0;
        if (end > from) end = from;
        t->first[i] = first, t->count[i] = end - first;
        for (int k = 0; k < end - first; k++) sum += w[k] = lanczos((k + first - center + 0.5) * narrow);
        for (int k = 0; k < end - first; k++) {
            double v = (sum != 0 ? w[k] / sum : w[k]) * (1 << BITS);
            t->weight[(size_t)i * (size_t)t->most + (size_t)k] = (int)(v < 0 ? v - 0.5 : v + 0.5);
        }
    }
    free(w);
    return good;
}

static uint8_t clamped(int sum) {
    int v = sum >> BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* `lines` lines of three channels: places `step` bytes apart, lines `from_line` and `to_line` apart. */
static void pass(const Taps *t, int places, size_t step, int lines, const uint8_t *from, size_t from_line, uint8_t *to,
                 size_t to_line) {
    for (int y = 0; y < lines; y++, from += from_line, to += to_line)
        for (int i = 0; i < places; i++) {
            const int *w = t->weight + (size_t)i * (size_t)t->most;
            const uint8_t *p = from + (size_t)t->first[i] * step;
            int sum[3] = {1 << (BITS - 1), 1 << (BITS - 1), 1 << (BITS - 1)};
            for (int k = 0; k < t->count[i]; k++, p += step)
                for (int c = 0; c < 3; c++) sum[c] += p[c] * w[k];
            for (int c = 0; c < 3; c++) to[(size_t)i * step + (size_t)c] = clamped(sum[c]);
        }
}

static bool across(const uint8_t *from, int width, int height, int to_width, uint8_t *to) {
    Taps t = {0};
    bool good = taps_make(width, to_width, &t);
    if (good) pass(&t, to_width, 3, height, from, (size_t)width * 3, to, (size_t)to_width * 3);
    taps_free(&t);
    return good;
}

static bool down(const uint8_t *from, int width, int height, int to_height, uint8_t *to) {
    Taps t = {0};
    bool good = taps_make(height, to_height, &t);
    if (good) pass(&t, to_height, (size_t)width * 3, width, from, 3, to, 3);
    taps_free(&t);
    return good;
}

static bool both(const uint8_t *from, int width, int height, int to_width, int to_height, uint8_t *to) {
    bool down_first = to_height < height && (int64_t)height - to_height > 2 * ((int64_t)width - to_width);
    uint8_t *between = malloc((down_first ? (size_t)width * (size_t)to_height : (size_t)to_width * (size_t)height) * 3);
    bool good = between &&
                (down_first ? down(from, width, height, to_height, between) && across(between, width, to_height, to_width, to)
                            : across(from, width, height, to_width, between) && down(between, to_width, height, to_height, to));
    free(between);
    return good;
}

Status resize_lanczos(const uint8_t *from, int width, int height, int to_width, int to_height, uint8_t **out, Error *e) {
    size_t bytes = (size_t)to_width * (size_t)to_height * 3;
    uint8_t *to = malloc(bytes);
    bool good = to != NULL;
    if (good && width == to_width && height == to_height) memcpy(to, from, bytes);
    else if (good && height == to_height) good = across(from, width, height, to_width, to);
    else if (good && width == to_width) good = down(from, width, height, to_height, to);
    else if (good) good = both(from, width, height, to_width, to_height, to);
    *out = good ? to : NULL;
    if (good) return OK;
    free(to);
    return fail(e, ERR_MEMORY, "out of memory for a picture of %dx%d", to_width, to_height);
}

/* --- bilinear --- */

/* Where output place i of a side lies between two of the input. */
typedef struct Between {
    int low, high;
    float low_share, high_share;
} Between;

static Between between(int i, float step, int size) {
    float at = step * ((float)i + 0.5f) - 0.5f;
    if (at < 0) at = 0;
    Between b = {.low = (int)at};
    b.high = b.low < size - 1 ? b.low + 1 : b.low;
    b.high_share = at - (float)b.low;
    b.low_share = 1.0f - b.high_share;
    return b;
}

void resize_cover(const float *from, int width, int height, int to_width, int to_height, float *to) {
    double x = (double)to_width / width, y = (double)to_height / height, ratio = x > y ? x : y;
    int wide = (int)(width * ratio), high = (int)(height * ratio);
    if (wide < to_width) wide = to_width;
    if (high < to_height) high = to_height;
    float step_x = (float)width / (float)wide, step_y = (float)height / (float)high;
    int left = (wide - to_width) / 2, top = (high - to_height) / 2;
    for (int i = 0; i < to_height; i++) {
        Between r = between(top + i, step_y, height);
        for (int j = 0; j < to_width; j++) {
            Between c = between(left + j, step_x, width);
            for (int k = 0; k < 3; k++) {
                const float *a = from + (size_t)r.low * (size_t)width * 3 + k, *b = from + (size_t)r.high * (size_t)width * 3 + k;
                float above = c.low_share * a[c.low * 3] + c.high_share * a[c.high * 3];
                float below = c.low_share * b[c.low * 3] + c.high_share * b[c.high * 3];
                *to++ = r.low_share * above + r.high_share * below;
            }
        }
    }
}
