/* compare.h - how far two pictures are apart: `ditto compare A B`.
 *
 * PSNR is over all bytes of the RGB pixels with peak 255; equal pictures have infinity. Not a perceptual
 * measure, and not for latents (their peak is the reference's range).
 * Easy to get wrong: two tools' pictures are often compared under different parameters. So when both files
 * carry ditto's metadata, its differences are printed before any number. */
#ifndef COMPARE_H
#define COMPARE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Comparison {
    int width, height;
    bool equal;        /* all bytes of the pixels */
    int64_t bytes;     /* compared: height * width * 3 */
    int64_t differing; /* of them */
    int max_abs;       /* 0..255 */
    double mean_abs;   /* over all bytes */
    double psnr;       /* dB; INFINITY when equal */
} Comparison;

/* What counts as good enough. Without any limit set only equal pixels pass; all limits set must hold. */
typedef struct CompareLimits {
    bool has_min_psnr, has_max_abs;
    double min_psnr; /* dB */
    int max_abs;
} CompareLimits;

/* Two arrays of `bytes` samples, at least one; width and height are left 0. */
Comparison compare_pixels(const uint8_t *a, const uint8_t *b, size_t bytes);

bool compare_passes(const Comparison *c, const CompareLimits *limits);

/* Reads two PNG or JPEG files and writes differences of metadata, notes and numbers to `text`, a line each.
 * OK: equal or within the limits. ERR_SOME: not. ERR_USAGE, whatever the cause, when they cannot be compared:
 * unreadable, damaged, of different sizes, out of memory. These are compare's exit codes 0, 1, 2. */
Status compare_files(const char *a, const char *b, const CompareLimits *limits, FILE *text, Comparison *out,
                     Error *e);

#endif
