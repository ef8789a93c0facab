/* packing.h - several weights that take the same input, seen as one weight: the one product then writes all outputs.
 *
 * A view only: nothing is copied. It exists when the matrices lie one behind the other, the biases too (bind_pack asks for
 * that), and the outputs are neighbouring columns of one buffer. Whether the one product has the bits of the several is
 * not known here: that is a property of the library that multiplies (linear_cuda_fused.c).
 * Easy to get wrong: addresses are compared, so what moves arguments elsewhere has to move neighbours together (slice.h). */
#ifndef KERNELS_PACKING_H
#define KERNELS_PACKING_H

#include "core/weights.h"

typedef struct Packing {
    Weight w; /* [sum of N, K]; the first weight's name */
    Tensor y; /* y[0], as wide as all outputs together */
} Packing;

/* y[i] = linear(x, w[i]) for i < count as one product; one weight is its own packing. False, with the reason in why,
 * when there is no such view. bias_mode: of linear.h. */
bool packing_make(const Tensor *y, const Weight *const *w, int count, int32_t bias_mode, Packing *out, char *why,
                  size_t size);

#endif
