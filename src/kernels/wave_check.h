/* wave_check.h - what both tables refuse of the ops of wave.h. Reads shapes alone; nothing here runs. */
#ifndef KERNELS_WAVE_CHECK_H
#define KERNELS_WAVE_CHECK_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

Status wave_check_transpose(Exec *x, const ConvTranspose1d *a);
Status wave_check_mean3(Exec *x, const Mean3 *a);
Status wave_check_up(Exec *x, const FirUp *a);
Status wave_check_snake(Exec *x, const SnakeFiltered *a);
Status wave_check_magnitude(Exec *x, const Magnitude *a);

#ifdef __cplusplus
}
#endif

#endif
