/* av_recode.h - a picture as one frame of an H.264 video would show it: encoded by libx264, decoded again. Some models saw their
 * condition pictures through it, and give still clips from pictures without its traces.
 *
 * As diffusers does it with PyAV: preset veryfast, YUV 4:2:0 by libswscale's bilinear scaler and default (BT.601) matrix, both
 * ways. The result is libav's and x264's, and differs with their releases.
 * Easy to get wrong: an odd last row or column is cut off. */
#ifndef AV_RECODE_H
#define AV_RECODE_H

#include "media/image.h"

/* In place. crf 0 to 51; 0 leaves the picture as it is. ERR_IO: no libav in this build or on this machine, no libx264, or what
 * failed in it. */
Status av_recode(Image *image, int crf, Error *e);

#endif
