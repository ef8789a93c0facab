/* linear.h - products with a weight matrix: contract of linear, linear_rows, linear_many, linear_gelu, linear_many_gelu.
 *
 *   y[M,N] = x[M,K] . w[N,K]^T (+ bias[N])
 *
 * x and y: F32 or BF16, the same dtype; last dimension contiguous, rows may be strided (a slice of a wider
 * buffer). More than two dimensions are flattened to rows. w and bias are Weights in any of F32, BF16, F16;
 * their values are first rounded to Weight.round (core/weights.h), the component's compute dtype.
 * Sums in f32. Promise BOUNDED: at most twice the error of the naive f32-accumulating product against fp64.
 * Rounding: BIAS_FUSED adds the bias to the f32 sum, one rounding; BIAS_AFTER rounds the sum, adds, rounds again
 * (PyTorch on a non-contiguous 3-D input, and all its convolutions). On CUDA, rows of x, w or y that start at addresses
 * not divisible by 16 leave cuBLASLt only kernels that round before the bias; bits equal PyTorch's there too.
 * BIAS_TURNED (linear_many of matrices): BIAS_AFTER on an x that PyTorch sees as the transposed view of a [K,M] matrix, the
 * way a picture comes into attention. The rounding points are BIAS_AFTER's; in BF16 on CUDA the product is the library's
 * for that layout, which may cut its sum elsewhere.
 * y must not alias x. */
#ifndef KERNELS_LINEAR_H
#define KERNELS_LINEAR_H

#include "core/tensor.h"

struct Weight;

enum { BIAS_FUSED = 0, BIAS_AFTER = 1, BIAS_TURNED = 2 };
enum { LINEAR_MANY_MAX = 4 };

typedef struct Linear {
    Tensor y, x;
    const struct Weight *w;
    int32_t bias_mode;
} Linear;

/* linear_rows, args Linear: each row of y has the bits of linear on that row alone (M = 1), however many there are. x and y
 * are matrices. For rows that belong to different steps: what one step would compute must not depend on the others. */

/* The same x through several weights (Q, K, V). Unused outputs are absent, their weights NULL. Each y[i] has the
 * bits of linear{y[i], x, w[i]}: packing is the implementation's business. It is possible where the weights were bound
 * as a pack and the y are neighbouring columns of one buffer, in this order (kernels/packing.h). */
typedef struct LinearMany {
    Tensor y[LINEAR_MANY_MAX], x;
    const struct Weight *w[LINEAR_MANY_MAX];
    int32_t bias_mode;
} LinearMany;

/* y = gelu_tanh(linear(x)): the product is rounded to y's dtype, then the activation, rounded again (the chain that
 * eager PyTorch runs; an epilogue that skips the first rounding belongs to a gated family). Args: Linear. */

/* linear_many, and g = gelu_tanh(y[last]) of the last output, as linear_gelu rounds it. Callers read g alone: y[last] is room
 * for a packed product, and a gated variant whose product stays f32 leaves it as it is. g is apart from all y. */
typedef struct LinearManyGelu {
    Tensor y[LINEAR_MANY_MAX], g, x;
    const struct Weight *w[LINEAR_MANY_MAX];
    int32_t bias_mode;
} LinearManyGelu;

#endif
