/* conv_once.h - the family conv-once: conv2d and conv3d with one rounding, y = r((sum + (bias + skip_bias)) + skip) in f32, where
 * conv.h rounds the sum, the bias' sum, skip' and the result. Absent terms are left out, also of CONV_RAW its bias.
 *
 * The CPU table's variant does so for every call (conv_cpu.c). The GPU's is a kernel of our own for sm_90a (conv_once.cu): calls
 * that it cannot take (conv_once_columns) are for what stands behind it in the table, those that it does not pay for
 * (conv_once_pays, asked when a call runs, since it depends on the GPU) it hands to the reference, with the contract's roundings;
 * counts name this variant there too, and a probe, being small, may see the reference alone.
 * BF16 only: without roundings there is none to leave out.
 * This header: guards and rules, which read shapes alone and run nowhere. */
#ifndef KERNELS_CONV_ONCE_H
#define KERNELS_CONV_ONCE_H

#include "kernels/conv_frames.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Guards of the family, for conv2d and conv3d. */
bool conv_once_accepts_flat(const void *args, char *why, size_t size);
bool conv_once_accepts_deep(const void *args, char *why, size_t size);

/* Output channels that a block of the kernel makes of a call of such shapes, 0: it cannot take it. 3x3 kernels, stride 1, as
 * many pixels as before, channels in thirty-twos to multiples of 96; all contiguous. */
int conv_once_columns(const ConvFrames *a);
/* Of a call that runs: does all of it lie at multiples of 16 bytes? */
bool conv_once_aligned(const ConvFrames *a);
/* Is it faster than cuDNN, on a GPU of so many multiprocessors? columns: as above, not 0. */
bool conv_once_pays(const ConvFrames *a, int columns, int multiprocessors);
/* Tiles: how many lie across a picture and down it, groups of `columns` channels, and all of them in all frames. */
typedef struct OnceGrid { int64_t across, down, groups, tiles; } OnceGrid;
OnceGrid conv_once_grid(const ConvFrames *a, int columns);
/* Scratch of the kernel: packed weights, and a term a channel in f32. */
size_t conv_once_packed(const ConvFrames *a, int columns);
size_t conv_once_terms(const ConvFrames *a);

#ifdef __cplusplus
}
#endif

#endif
