/* conv_frames.h - the ops of conv.h in one form, frames and a kernel over time and space, and what both tables refuse of them.
 * Reads shapes alone; nothing here runs.
 *
 * Easy to get wrong: a picture [Y,X,C] is one frame, a kernel [Cout,kh,kw,Cin] one that sees one frame at a time: the views
 * here have an extent of 1 more than the op's arguments. */
#ifndef KERNELS_CONV_FRAMES_H
#define KERNELS_CONV_FRAMES_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ConvFrames {
    OpId op;
    Tensor y, x, skip, skip_bias; /* [F,Y,X,C]; absent ones stay absent */
    Tensor kernel;                /* [Cout,kt,kh,kw,Cin] */
    const struct Weight *w;
    int64_t stride_t, pad_t, stride, pad_top, pad_left, pad_bottom, pad_right;
    bool biased; /* the weight has a bias, and this op adds it */
    bool tf32;
    int up;      /* log2 of the upsampling */
} ConvFrames;

/* op: conv2d, upsample_conv or conv3d. */
ConvFrames conv_frames(OpId op, const void *args);
/* All that conv.h demands of shapes, strides and the dtypes of x, y and skip. */
Status conv_frames_check(Exec *x, const ConvFrames *a);
Status conv_frames_check_roll(Exec *x, const Roll *a);
/* The dtypes of the weight are the table's affair. */
Status conv_frames_check_dwconv(Exec *x, const Dwconv3Glu *a);

#ifdef __cplusplus
}
#endif

#endif
