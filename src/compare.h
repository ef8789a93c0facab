/* compare.h - how far an output is from its reference: `ditto compare REFERENCE OUTPUT`.
 *
 * Pictures, folders of frames, videos with their sound, sound, and safetensors files, whatever the two paths hold. Numbers:
 *   equal      every bit of every sample (of tensors also the dtype)
 *   PSNR       10 log10(peak^2 / mean square difference), infinite when nothing differs. Peak is 255 for RGB, the largest
 *              code value for the planes of a video, largest minus smallest value of the reference for a tensor.
 *              RGB: over all bytes, scikit-image's peak_signal_noise_ratio with data_range 255 and FFmpeg's average. Planes:
 *              each, and all by their samples, as FFmpeg's psnr filter has them; over a sequence from the mean of the
 *              frames' mean squares.
 *   SSIM       ssim.h: RGB as scikit-image has it, planes as FFmpeg's ssim filter has them; over a sequence the mean.
 *   luma       mean of the Y plane in code values; of RGB, 0.299 R + 0.587 G + 0.114 B
 *   sound SNR  10 log10(sum of squares of the reference / of the difference) in dB, the shorter sound continued by silence
 * Two videos stored in the same planes are compared in these, everything else in RGB. Frames count from 0.
 * Not perceptual measures. Easy to get wrong:
 *  - Two tools' pictures are often compared under different parameters. So when both files carry ditto's metadata, its
 *    differences are printed before any number.
 *  - A limit holds for every frame and every tensor, not for their mean. A missing or surplus frame or tensor differs
 *    whatever the limits. Sound is held to --min-snr alone; a part without a limit of its own must be equal. */
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

/* What counts as good enough. Without any limit set only equality passes; all limits set must hold. */
typedef struct CompareLimits {
    bool has_min_psnr, has_min_ssim, has_min_snr, has_max_abs;
    double min_psnr; /* dB */
    double min_ssim;
    double min_snr; /* dB, sound */
    double max_abs; /* code values, or values of a tensor */
} CompareLimits;

typedef struct CompareOptions {
    CompareLimits limits;
    bool json; /* one object instead of lines */
    const char *
        diff; /* PNG to write: |difference| of the frame with the lowest PSNR, made as bright as it can be; NULL: none */
    bool overwrite; /* it may exist */
} CompareOptions;

/* Two arrays of `bytes` samples, at least one; width and height are left 0. */
Comparison compare_pixels(const uint8_t *a, const uint8_t *b, size_t bytes);

/* By min_psnr and max_abs. */
bool compare_passes(const Comparison *c, const CompareLimits *limits);

/* Writes notes, differences of metadata and numbers to `text`, as lines or as one JSON object on a line, and flushes it.
 * OK: equal or within the limits. ERR_SOME: not. ERR_USAGE, whatever the cause, when they cannot be compared: unreadable,
 * damaged, of different sizes or kinds, out of memory, `text` full. These are compare's exit codes 0, 1, 2. */
Status compare_files(const char *reference, const char *output, const CompareOptions *options, FILE *text, Error *e);

#endif
