/* conv_check.h, the checks of conv.h that both tables share. */
#ifndef KERNELS_CONV_CHECK_H
#define KERNELS_CONV_CHECK_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

Status conv_check_roll(Exec *x, const Roll *a);

#ifdef __cplusplus
}
#endif

#endif
