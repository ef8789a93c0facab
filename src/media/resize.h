/* resize.h - Pillow's (13.0) Image.resize with LANCZOS on RGB bytes, byte for byte.
 *
 * Not only: resize_cover, for frames that are still numbers. The former:
 * Two passes, each rounded to bytes: horizontal, then vertical, or the other way round when the height loses more than twice
 * as many pixels as the width; a pass that keeps its side is left out. Window of 3 source pixels to a side, widened by the
 * factor when shrinking; coefficients sum to one and are rounded to 22 bits after the point.
 * Not other filters. Easy to get wrong: aspect ratio is the caller's business; both passes clamp; Pillow before 13.0 always
 * begins with the horizontal pass. */
#ifndef RESIZE_H
#define RESIZE_H

#include "core/status.h"

#include <stdint.h>

/* torch's bilinear interpolation (align_corners false, f32) of from [height][width][3] to the size that just covers
 * to_width x to_height, and of that the middle: to [to_height][to_width][3]. diffusers' resize_and_crop_tensor; where its
 * rounding down falls a pixel short of the size, that side is stretched by the pixel instead. */
void resize_cover(const float *from, int width, int height, int to_width, int to_height, float *to);

/* from [height][width][3] -> *to, malloc'd [to_height][to_width][3]; all sides at least 1. ERR_MEMORY. */
Status resize_lanczos(const uint8_t *from, int width, int height, int to_width, int to_height, uint8_t **to, Error *e);

#endif
