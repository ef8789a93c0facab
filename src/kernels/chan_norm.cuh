/* chan_norm.cuh - what the kernels of chan_norm.cu and chan_norm_silu.cu share: how a pixel is dealt out to lanes, and the
 * length that its channels are divided by.
 *
 * A pixel belongs to a power of two of lanes, so that its vectors of 16 bytes fill them in a few turns: 96 channels of BF16
 * are three vectors for each of four lanes, and a warp reads eight pixels in whole lines.
 * Easy to get wrong: the quotient must be a division's. x r, r = 1 / length, corrected once by the exact remainder, is that
 * where nothing over- or underflows (Markstein); what could is divided, and so is zero, whose sign the remainder would take. */
#ifndef KERNELS_CHAN_NORM_CUH
#define KERNELS_CHAN_NORM_CUH

#include "kernels/chan_norm.h"

namespace chan_norm {

constexpr int MOST_TURNS = 4;

/* `lanes` a power of two up to 32, `turns` up to MOST_TURNS; turns 0: it cannot be. */
struct Spread {
    int lanes, turns;
};

/* Of so many vectors: no lane is ever idle, and of two ways the one with more turns, so more loads under way. */
static inline Spread spread_of(int64_t vectors) {
    for (int lanes = 1; lanes <= 32; lanes *= 2)
        if (vectors % lanes == 0 && vectors / lanes <= MOST_TURNS) return {lanes, (int)(vectors / lanes)};
    return {};
}

/* Of a call: turns 0 where it has not whole vectors at aligned addresses. */
static inline Spread spread_of(const ChanRmsNorm *a) {
    const Tensor *all[] = {&a->y, &a->x, &a->w, &a->bias};
    int64_t bytes = a->w.shape[0] * (int64_t)dtype_size(a->x.dtype);
    bool wide = bytes % 16 == 0;
    for (const Tensor *t : all) wide = wide && (!t->rank || (tensor_contiguous(*t) && (uintptr_t)t->data % 16 == 0));
    return wide ? spread_of(bytes / 16) : Spread{};
}

__device__ inline float length_of(float square) {
    float l = sqrtf(square);
    return l < 1e-12f ? 1e-12f : l; /* NaN stays */
}

struct Divisor {
    float by, inverse;
    bool plain; /* x / by is x inverse, corrected */
};

__device__ inline Divisor divisor(float by) { return {by, 1.0f / by, by < 0x1p100f}; } /* at least 1e-12 */

/* A first quotient q = x inverse needs no more than its correction. */
__device__ inline bool correctable(float q) { return fabsf(q) >= 0x1p-60f; }
__device__ inline float corrected(float x, float q, const Divisor &d) { return fmaf(fmaf(-q, d.by, x), d.inverse, q); }

__device__ inline float divided(float x, const Divisor &d) {
    float q = x * d.inverse;
    return d.plain && correctable(q) ? corrected(x, q, d) : x / d.by;
}

} /* namespace chan_norm */

#endif
