/* ssim.c - see ssim.h. All window sums are integers and exact; only the last formula is floating point.
 * Easy to get wrong: sums of squares of 16-bit samples over 64 pixels need 38 bits, their products with n 44. */
#include "ssim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a window of n samples: sums of x, y, x^2 + y^2 and x y. */
typedef struct Sums {
    int64_t x, y, squares, product;
} Sums;

static inline void add(Sums *s, int64_t x, int64_t y, int64_t sign) {
    s->x += sign * x;
    s->y += sign * y;
    s->squares += sign * (x * x + y * y);
    s->product += sign * x * y;
}

static inline Sums plus(Sums a, Sums b) {
    return (Sums){a.x + b.x, a.y + b.y, a.squares + b.squares, a.product + b.product};
}

static inline Sums minus(Sums a, Sums b) {
    return (Sums){a.x - b.x, a.y - b.y, a.squares - b.squares, a.product - b.product};
}

/* Both fractions extended by n^2 and n (n - 1); c1 and c2 come in that scale. */
static inline double index_of(Sums s, int64_t n, double c1, double c2) {
    double means = (double)(2 * s.x * s.y), mean_squares = (double)(s.x * s.x + s.y * s.y);
    double covariance = (double)(2 * (n * s.product - s.x * s.y));
    double variances = (double)(n * s.squares - s.x * s.x - s.y * s.y);
    return (means + c1) * (covariance + c2) / ((mean_squares + c1) * (variances + c2));
}

Status ssim_rgb(const Planes *a, const Planes *b, double *out, Error *e) {
    enum { SIDE = 7, N = SIDE * SIDE, CHANNELS = 3 };
    *out = NAN;
    int width = a->plane[0].width, height = a->height;
    if (a->width < SIDE || height < SIDE) return OK;
    Sums *column = calloc((size_t)width, sizeof *column); /* of the last SIDE rows */
    if (!column) return fail(e, ERR_MEMORY, "out of memory for the SSIM of %d samples a row", width);
    const double c1 = 0.01 * 255 * 0.01 * 255 * N * N, c2 = 0.03 * 255 * 0.03 * 255 * N * (N - 1);
    double total = 0;
    for (int y = 0; y < height; y++) {
        for (int sign = 1, row = y; row >= 0 && row >= y - SIDE; row -= SIDE, sign = -1) {
            const uint8_t *p = a->plane[0].data + row * a->plane[0].stride,
                          *q = b->plane[0].data + row * b->plane[0].stride;
            for (int i = 0; i < width; i++) add(&column[i], p[i], q[i], sign);
        }
        if (y < SIDE - 1) continue;
        double of_row = 0;
        for (int c = 0; c < CHANNELS; c++) {
            Sums window = {0};
            for (int i = c; i < width; i += CHANNELS) {
                window = plus(window, column[i]);
                if (i < (SIDE - 1) * CHANNELS) continue;
                of_row += index_of(window, N, c1, c2);
                window = minus(window, column[i - (SIDE - 1) * CHANNELS]);
            }
        }
        total += of_row;
    }
    free(column);
    *out = total / ((double)(a->width - SIDE + 1) * (height - SIDE + 1) * CHANNELS);
    return OK;
}

enum { BLOCK = 4 };

/* Of each 4 x 4 block in a band of four rows. */
static void block_sums(const Planes *a, const Planes *b, int plane, int band, int blocks, Sums *out) {
    memset(out, 0, (size_t)blocks * sizeof *out);
    for (int y = band * BLOCK; y < (band + 1) * BLOCK; y++)
        for (int x = 0; x < blocks * BLOCK; x++)
            add(&out[x / BLOCK], planes_sample(a, &a->plane[plane], x, y), planes_sample(b, &b->plane[plane], x, y), 1);
}

Status ssim_plane(const Planes *a, const Planes *b, int plane, double *out, Error *e) {
    enum { N = 4 * BLOCK * BLOCK };
    *out = NAN;
    int blocks = a->plane[plane].width / BLOCK, bands = a->plane[plane].height / BLOCK;
    if (blocks < 2 || bands < 2) return OK;
    Sums *above = malloc(2 * (size_t)blocks * sizeof *above);
    if (!above) return fail(e, ERR_MEMORY, "out of memory for the SSIM of %d blocks a row", blocks);
    Sums *here = above + blocks, *memory = above;
    double largest = (1 << a->bits) - 1, total = 0;
    const double c1 = floor(.01 * .01 * largest * largest * N + .5),
                 c2 = floor(.03 * .03 * largest * largest * N * (N - 1) + .5);
    block_sums(a, b, plane, 0, blocks, above);
    for (int band = 1; band < bands; band++) {
        block_sums(a, b, plane, band, blocks, here);
        double of_band = 0;
        for (int i = 1; i < blocks; i++) {
            Sums window = plus(plus(above[i - 1], above[i]), plus(here[i - 1], here[i]));
            of_band += index_of(window, N, c1, c2);
        }
        total += of_band;
        Sums *swap = above;
        above = here, here = swap;
    }
    free(memory);
    *out = total / ((double)(blocks - 1) * (bands - 1));
    return OK;
}
