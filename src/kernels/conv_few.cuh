/* conv_few.cuh - what the kernels of conv_few.h share: one product on tensor cores, and what tensors they are made for. */
#ifndef KERNELS_CONV_FEW_CUH
#define KERNELS_CONV_FEW_CUH

#include "kernels/conv_few.h"
#include "kernels/cuda_fast.cuh"

namespace conv_few {

/* c[16 x 8] += a[16 x 16] b[16 x 8]. */
__device__ inline void multiply(float *c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, uint2 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b.x), "r"(b.y));
}

/* A pixel of y: of each channel the sum of its nine taps, one plane a tap and channel, where a tap reads a pixel beside or below;
 * rounded, and the bias behind that. sums: at the pixel's own place in the first plane. */
template <int OUT> __device__ inline void put_pixel(fast::Bf *to, const float *sums, int plane, int row, const fast::Bf *bias) {
    constexpr int SIDE = 3, TAPS = SIDE * SIDE;
#pragma unroll
    for (int o = 0; o < OUT; o++) {
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < TAPS; t++) sum += sums[(t * OUT + o) * plane + t / SIDE * row + t % SIDE];
        fast::Bf v = __float2bfloat16_rn(sum);
        if (bias) v = __float2bfloat16_rn(__bfloat162float(v) + __bfloat162float(bias[o]));
        to[o] = v;
    }
}

static inline bool plain(const Tensor &t) { return t.dtype == BF16 && tensor_contiguous(t) && (uintptr_t)t.data % 16 == 0; }

static inline bool plain(const Tensor &x, const Tensor &y, const Tensor &skip, const Weight *w) {
    return plain(x) && plain(y) && !skip.rank && plain(w->w) && w->round == BF16 && !w->scale.rank && !w->lora &&
           (!w->bias.rank || plain(w->bias));
}

} /* namespace conv_few */

#endif
