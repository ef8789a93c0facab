/* exp_cpu.h - expf that the compiler can vectorise: softmax rows and SiLU in f32 on the CPU. Not a contract: BF16
 * functions outside reductions go through the recorded tables (kernels/unary.h).
 *
 * exp(x) = 2^n exp(r), n = round(x / ln 2), r = x - n ln 2 in two steps (the first constant has few enough bits that
 * n times it is exact), |r| <= 0.35, where seven Taylor terms leave a relative error of 6e-9. Error below 1 ulp;
 * results below 2^-126 are 0, above the range infinity, NaN stays NaN.
 * Easy to get wrong: comparisons must let a NaN through to the polynomial, never replace it. */
#ifndef KERNELS_EXP_CPU_H
#define KERNELS_EXP_CPU_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float exp_f32(float x) {
    const float LOG2E = 1.44269504088896341f, LN2_HIGH = 0x1.62ep-1f, LN2_LOW = 0x1.0bfbe8p-15f;
    const float ROUND = 0x1.8p23f; /* adding it leaves the nearest integer in the low mantissa bits */
    float c = x < -87.3365f ? -87.3365f : x; /* ln 2^-126 */
    c = c > 88.8f ? 88.8f : c;               /* just above ln FLT_MAX: overflows below as it should */
    float shifted = fmaf(c, LOG2E, ROUND);
    float n = shifted - ROUND;
    float r = fmaf(n, -LN2_LOW, fmaf(n, -LN2_HIGH, c));
    float p = 1.0f / 5040;
    p = fmaf(p, r, 1.0f / 720);
    p = fmaf(p, r, 1.0f / 120);
    p = fmaf(p, r, 1.0f / 24);
    p = fmaf(p, r, 1.0f / 6);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    /* 2^n in two factors, as 2^128 has no float: 2^(n/2) and 2^(n - n/2). */
    uint32_t bits, half, rest;
    memcpy(&bits, &shifted, 4);
    bits -= 0x4b400000u; /* n, two's complement */
    half = (uint32_t)((int32_t)bits >> 1);
    rest = bits - half;
    half = (half + 127u) << 23;
    rest = (rest + 127u) << 23;
    float a, b;
    memcpy(&a, &half, 4);
    memcpy(&b, &rest, 4);
    float y = p * a * b;
    return x < -87.3365f ? 0.0f : y;
}

/* 0.5 x (1 + tanh w) with 0.5 (1 + tanh w) = 1 / (1 + exp(-2w)): the same value, no cancellation, and it vectorises. */
static inline float gelu_tanh_f32(float x) {
    const float SQRT_2_OVER_PI = 0.79788456080286535588f;
    float w = SQRT_2_OVER_PI * (x + 0.044715f * x * x * x);
    return x / (1.0f + exp_f32(-2.0f * w));
}

static inline float silu_f32(float x) { return x / (1.0f + exp_f32(-x)); }

#endif
