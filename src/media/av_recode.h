/* av_recode.h - a picture as one frame of an H.264 video would show it: encoded by libx264, decoded again. Some models saw their
 * condition pictures through it, and give still clips from pictures without its traces.
 *
 * As diffusers does it with PyAV: preset veryfast, YUV 4:2:0 by libswscale's bilinear scaler and default (BT.601) matrix, both
 * ways, threads that work on slices. Byte for byte diffusers' result on the same machine: measured in eight sizes from 7x5 to
 * 1920x1080 at two qualities, FFmpeg 5.1 with x264 164 here beside PyAV 12.3 (FFmpeg 6.1, x264 164) and PyAV 18.1 (FFmpeg 8.0,
 * x264 165) (scripts/compare_image_crf.py).
 * As diffusers' it depends on the machine: x264 makes as many slices as there are cores, at most one for 64 lines, and
 * libswscale's colours are not the same on CPUs without AVX2. To go on elsewhere, keep the picture as it came out
 * (--dump's stage `image`) and give it with a crf of 0.
 * Easy to get wrong: an odd last row or column is cut off. */
#ifndef AV_RECODE_H
#define AV_RECODE_H

#include "media/image.h"

/* In place. crf 0 to 51; 0 leaves the picture as it is. ERR_IO: no libav in this build or on this machine, no libx264, or what
 * failed in it. */
Status av_recode(Image *image, int crf, Error *e);

#endif
