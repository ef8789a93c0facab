/* opcost.h - what a call of an op moves and computes at least, and its shapes in words: for rates in tables.
 *
 * Not what a variant really does: bytes are those of the arguments, once each, so what is read again or kept in scratch does
 * not count and GB/s is the useful rate. Floating point operations are those of linear, attention and convolution, causal
 * attention as the half that is needed, upsample_conv as the plain convolution of the upsampled picture.
 * Easy to get wrong: of an embedding table only the rows that ids name count. */
#ifndef OPCOST_H
#define OPCOST_H

#include "ops.h"

/* Read and written, weights included. */
double opcost_bytes(OpId op, const void *args);
/* 0: none to speak of. */
double opcost_flops(OpId op, const void *args);
/* "BF16 4096x12288 < 4096x3072; w 12288x3072 +b": outputs, inputs, weights; a dtype where it changes, ~ behind strided
 * ones. Cut where `size` ends. */
void opcost_shape(OpId op, const void *args, char *out, size_t size);

#endif
