/* attention_check.h - what both tables refuse of attention and attention_eager. Reads shapes alone; nothing here runs. */
#ifndef KERNELS_ATTENTION_CHECK_H
#define KERNELS_ATTENTION_CHECK_H

#include "ops.h"

Status attention_check(Exec *x, OpId op, Tensor o, Tensor q, Tensor k, Tensor v);
Status attention_check_bias(Exec *x, const Attention *a); /* behind attention_check */

#endif
