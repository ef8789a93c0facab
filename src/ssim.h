/* ssim.h - structural similarity, in the two definitions that people compare numbers with.
 *
 * Both are Wang, Bovik, Sheikh and Simoncelli's index (2004), K1 = 0.01, K2 = 0.03, L the largest sample value:
 *   S = (2 mx my + C1)(2 cxy + C2) / ((mx^2 + my^2 + C1)(vx + vy + C2)),  C1 = (K1 L)^2, C2 = (K2 L)^2
 * with means m, variances v and covariance c (divided by n - 1) over a window of n samples of equal weight; the result is
 * the mean of S over the windows that lie inside the picture. They differ in the windows:
 *   ssim_rgb: 7 x 7 at every pixel, mean over the channels: scikit-image's structural_similarity(a, b, channel_axis=-1,
 *     data_range=255), its defaults otherwise.
 *   ssim_plane: 8 x 8 at every fourth column and row, what is left over at the right and below ignored, C1 and C2 rounded
 *     in the sums' scale: FFmpeg's ssim filter, which gives one number a plane. FFmpeg works in f32, here it is double.
 * Easy to get wrong: the two give different numbers for the same picture, so a report must say which one it holds. */
#ifndef SSIM_H
#define SSIM_H

#include "core/status.h"
#include "media/planes.h"

/* a and b alike in size, kind and bits. NaN where no window fits (below 7 x 7, or 8 x 8 samples). ERR_MEMORY. */
Status ssim_rgb(const Planes *a, const Planes *b, double *out, Error *e);
Status ssim_plane(const Planes *a, const Planes *b, int plane, double *out, Error *e);

#endif
