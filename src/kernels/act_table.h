/* act_table.h - GELU of many BF16 numbers by table; a part of act's fast variant, not an op. */
#ifndef KERNELS_ACT_TABLE_H
#define KERNELS_ACT_TABLE_H

#include "kernels/cuda.h"

/* False, and nothing done, when x and y are not large aligned BF16 rows or the kind is not tanh's. */
bool act_table_run(Exec *x, const Act *a, Status *status);

#endif
