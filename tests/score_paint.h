/* score_paint.h - what the judges' own tests paint with: the C twin of cover() and render() in scripts/demo_scenes.py, a
 * generator of the same numbers on every machine, and a tally.
 *
 * Signed distances with a ramp of one pixel, then noise on every byte as a decoder leaves it. Not the judges' code: they must
 * not share what they are tested with. Easy to get wrong: a change must really change (other()). */
#ifndef SCORE_PAINT_H
#define SCORE_PAINT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Tally {
    int passed, failed;
} Tally;

static void expect(Tally *t, bool good, const char *what) {
    if (good) t->passed++;
    else t->failed++;
    if (!good) printf("FAIL: %s\n", what);
}

/* SplitMix64: the same scenes on every machine. */
static uint64_t draw(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static int below(uint64_t *s, int n) { return (int)(draw(s) % (uint64_t)n); }
static double unit(uint64_t *s) { return (double)(draw(s) >> 11) * 0x1p-53; }

/* Pixels of the shape around (x0, y0): coverage 0..1 from the signed distance. */
static double cover(int shape, double x, double y, double r) {
    x = fabs(x);
    double d = shape == 0   ? sqrt(x * x + y * y) - r
               : shape == 1 ? fmax(x, fabs(y)) - 0.9 * r
                            : fmax(y - 0.9 * r, (2 * x - 1.15 * (y + 1.1 * r)) / 2.3071);
    return fmin(1, fmax(0, 0.5 - d));
}

static void paint_shape(double *canvas, int side, int shape, const unsigned char *rgb, double x0, double y0, double r) {
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            double a = cover(shape, x + 0.5 - x0, y + 0.5 - y0, r), *p = canvas + 3 * (y * side + x);
            for (int c = 0; c < 3; c++) p[c] += a * (rgb[c] - p[c]);
        }
}

/* To bytes, with even noise of +-12. */
static void develop(const double *canvas, int side, unsigned char *rgb, uint64_t *s) {
    for (int i = 0; i < 3 * side * side; i++)
        rgb[i] = (unsigned char)fmin(255, fmax(0, round(canvas[i] + 24 * unit(s) - 12)));
}

static int other(uint64_t *s, int value, int count) { return (value + 1 + below(s, count - 1)) % count; }

#endif
