/* convert.h - runs of numbers between storage dtypes, by way of f32, and single ones as double. Host memory only; not an op.
 *
 * BF16, F16 and F32 embed exactly in f32, so widening never rounds and narrowing rounds once, to nearest even.
 * Easy to get wrong: source and destination may be unaligned (mapped files). */
#ifndef CONVERT_H
#define CONVERT_H

#include "core/tensor.h"

bool convert_can(DType t); /* F32, BF16, F16 */
void convert_widen(const void *from, DType dtype, float *to, size_t n);
void convert_narrow(const float *from, DType dtype, void *to, size_t n);

/* One element as a number: F16 to F64, integers (I64 and U64 beyond 2^53 are rounded) and BOOL. 0 for other dtypes. */
bool convert_has_value(DType t);
double convert_value(const void *from, DType dtype);

#endif
