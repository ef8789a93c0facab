/* frames.h - contract of what LTX-2's video autoencoder does to frames beside its convolutions: the input that a convolution
 * reads, with the norm before it, and channels that become pixels and frames, or the other way round.
 *
 * Channels last, F32 or BF16, all of a call's tensors of one dtype; r(...) rounds to it. Contiguous unless said.
 * Easy to get wrong: a mirrored border does not repeat the outermost pixel; the channels that become a pixel's neighbours are
 * the fast ones, those of a skip are read round and round. */
#ifndef KERNELS_FRAMES_H
#define KERNELS_FRAMES_H

#include "core/tensor.h"

/* h [F,Y,X,C] = r(skip + r(x + bias)): x [F,Y,X,C] as a convolution left it (CONV_RAW), bias [C] what it has left to its reader,
 * skip [F,Y,X,C] a resnet's other path; bias and skip may be absent, and are not added then. h may be absent, and is not
 * written then; it may be x or skip.
 * frame_window: y [before + F + after, Y + 2 border, X + 2 border, C] is h with `before` copies of its first frame ahead, and
 * with copies of the last for the room behind; border (0 or 1) mirrors: row -1 is row 1, row Y is row Y - 2. Promise EXACT.
 * pixelnorm_silu (same args): y is the same of r(silu(r(h / s))), s = r(sqrt(r(r(mean(r(h h))) + eps))), where mean is the sum
 * over a pixel's channels times fl32(1 / C) (diffusers' PerChannelRMSNorm). BOUNDED: the order of the sum is free.
 * y aliases nothing. */
typedef struct Window {
    Tensor y, h, x, bias, skip;
    float eps;
    int32_t before, border;
} Window;

/* n = t y x (t, y, x being 1 or more), for depth_to_space
 *   y [t F - drop, y Y, x X, C], x [F,Y,X,n C], bias [n C] or absent, skip [F,Y,X,n K] or absent, C a multiple of K;
 *   y of frame t f + a - drop, row y i + b, column x j + d, channel c is r(u(c) + v(c mod K)): u = r(x + bias) and v = skip at
 *   place (f, i, j), channel ((c t + a) y + b) x + d. The first `drop` frames, less than t, are left out.
 * space_to_depth, same args, drop 0:
 *   y [F/t, Y/y, X/x, n C], x [F,Y,X,C], bias [C] or absent, skip [F,Y,X,g C] or absent;
 *   channel k = ((c t + a) y + b) x + d at place (f, i, j) is r(u + r(mean)): u = r(x + bias) of channel c at place (t f + a,
 *   y i + b, x j + d); mean = the sum, in f32 and in their order, of channels g k .. g k + g - 1 of what skip would be in this
 *   form, times fl32(1 / g).
 * skip may be strided, its channels contiguous. Promise EXACT. y aliases nothing. */
typedef struct Depth {
    Tensor y, x, bias, skip;
    int32_t t, rows, columns, drop; /* the t, y, x of above */
} Depth;

#endif
