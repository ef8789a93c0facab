/* frames_check.h - what both tables refuse of the ops of frames.h. Reads shapes alone; nothing here runs. */
#ifndef KERNELS_FRAMES_CHECK_H
#define KERNELS_FRAMES_CHECK_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

Status frames_check_window(Exec *x, OpId op, const Window *a);
Status frames_check_depth(Exec *x, OpId op, const Depth *a);
/* BF16 alone: in F32 there is no rounding to leave out. For the family ltx-norm (frames_norm.h). */
bool frames_check_keeps(const void *args, char *why, size_t size);

#ifdef __cplusplus
}
#endif

#endif
