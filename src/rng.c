/* rng.c - see rng.h. mt19937, then three ways from uniforms to normals, chosen as torch chooses them: fewer
 * than 16 elements, f32, and the 16-bit types. Easy to get wrong: which product is fused into which sum. The
 * choice below is the one GCC made for torch's wheels, found by trying all of them against torch's output. */
#include "rng.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/random.h>

static const double PI = 3.14159265358979323846;

enum { GROUP = 16, HALF = GROUP / 2 }; /* normals are made in groups: 8 radii, 8 angles */

/* --- mt19937 (Matsumoto and Nishimura 1998) --- */

void rng_seed(Rng *r, uint64_t seed) {
    r->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < RNG_STATE; i++)
        r->state[i] = 1812433253u * (r->state[i - 1] ^ (r->state[i - 1] >> 30)) + i;
    r->used = RNG_STATE;
    r->has_next = false;
    r->next = 0;
}

static inline uint32_t twist(uint32_t upper, uint32_t lower, uint32_t other) {
    uint32_t y = (upper & 0x80000000u) | (lower & 0x7fffffffu);
    return other ^ (y >> 1) ^ ((0u - (y & 1u)) & 0x9908b0dfu);
}

static void renew(Rng *r) {
    enum { M = 397 };
    uint32_t *s = r->state;
    for (int i = 0; i < RNG_STATE - M; i++) s[i] = twist(s[i], s[i + 1], s[i + M]);
    for (int i = RNG_STATE - M; i < RNG_STATE - 1; i++) s[i] = twist(s[i], s[i + 1], s[i + M - RNG_STATE]);
    s[RNG_STATE - 1] = twist(s[RNG_STATE - 1], s[0], s[M - 1]);
    r->used = 0;
}

uint32_t rng_u32(Rng *r) {
    if (r->used >= RNG_STATE) renew(r);
    uint32_t y = r->state[r->used++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* --- fewer than 16 elements: one value at a time, in double, then one rounding --- */

static double uniform53(Rng *r) {
    uint64_t high = rng_u32(r), low = rng_u32(r);
    return (double)((high << 32 | low) & ((1ull << 53) - 1)) * 0x1p-53;
}

static double normal_one(Rng *r) {
    if (r->has_next) {
        r->has_next = false;
        return r->next;
    }
    double u1 = uniform53(r), u2 = uniform53(r);
    double radius = sqrt(-2.0 * log1p(-u2)), theta = 2.0 * PI * u1;
    r->next = radius * sin(theta);
    r->has_next = true;
    return radius * cos(theta);
}

/* --- f32, 16 and more: the polynomials of Cephes logf and sinf/cosf, as the AVX2 code evaluates them --- */

static inline float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* Natural logarithm of x in [2^-24, 1]. */
static inline float log_poly(float x) {
    int exponent = (int)(bits_of(x) >> 23) - 126;
    x = float_of((bits_of(x) & 0x007fffffu) | 0x3f000000u); /* mantissa in [0.5, 1) */
    bool low = x < 0.707106781186547524f;
    float e = (float)(exponent - low);
    x = low ? (x - 1.0f) + x : x - 1.0f; /* exact either way */
    float z = x * x;
    float y = 7.0376836292e-2f;
    y = fmaf(y, x, -1.1514610310e-1f);
    y = fmaf(y, x, 1.1676998740e-1f);
    y = fmaf(y, x, -1.2420140846e-1f);
    y = fmaf(y, x, 1.4249322787e-1f);
    y = fmaf(y, x, -1.6668057665e-1f);
    y = fmaf(y, x, 2.0000714765e-1f);
    y = fmaf(y, x, -2.4999993993e-1f);
    y = fmaf(y, x, 3.3333331174e-1f);
    y = y * x;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = y - z * 0.5f;
    x = x + y;
    return x + e * 0.693359375f; /* the product is exact: 8 bits times 10 */
}

/* Sine and cosine of x in [0, 2 pi]. */
static inline void sincos_poly(float x, float *sine, float *cosine) {
    int octant = ((int)(x * 1.27323954473516f) + 1) & ~1; /* 4 / pi, to the next even octant */
    float k = (float)octant;
    x = fmaf(k, -0.78515625f, x); /* minus k * pi / 4, in three parts */
    x = fmaf(k, -2.4187564849853515625e-4f, x);
    x = fmaf(k, -3.77489497744594108e-8f, x);
    float z = x * x;
    float c = 2.443315711809948e-5f;
    c = fmaf(c, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f);
    c = c * z;
    c = fmaf(c, z, -(z * 0.5f));
    c = c + 1.0f;
    float s = -1.9515295891e-4f;
    s = fmaf(s, z, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f);
    s = s * z;
    s = fmaf(s, x, x);
    bool swap = octant & 2;
    uint32_t sine_sign = (uint32_t)(octant & 4) << 29, cosine_sign = (uint32_t)(~(octant - 2) & 4) << 29;
    *sine = float_of(bits_of(swap ? c : s) ^ sine_sign);
    *cosine = float_of(bits_of(swap ? s : c) ^ cosine_sign);
}

/* Uniforms in, normals out: data[0..8) and data[8..16). Adding zero turns -0 into +0, as mean 0 does. */
static void group_f32(float *data) {
    float square[HALF];
    const float two_pi = (float)(2.0 * PI);
    for (int j = 0; j < HALF; j++) square[j] = -2.0f * log_poly(1.0f - data[j]);
    for (int j = 0; j < HALF; j++) {
        float sine, cosine, radius = sqrtf(square[j]);
        sincos_poly(two_pi * data[HALF + j], &sine, &cosine);
        data[j] = radius * cosine + 0.0f;
        data[HALF + j] = radius * sine + 0.0f;
    }
}

static void draw_f32(Rng *r, float *data) {
    for (int j = 0; j < GROUP; j++) data[j] = (float)(rng_u32(r) & 0xffffffu) * 0x1p-24f;
}

static void normal_f32(Rng *r, int64_t n, float *out) {
    for (int64_t i = 0; i + GROUP <= n; i += GROUP) {
        draw_f32(r, out + i);
        group_f32(out + i);
    }
    if (n % GROUP) {
        /* torch draws all n uniforms first, makes the whole groups, then draws the last 16 again */
        for (int64_t i = 0; i < n % GROUP; i++) rng_u32(r);
        draw_f32(r, out + n - GROUP);
        group_f32(out + n - GROUP);
    }
}

/* --- bf16 and f16, 16 and more: the uniforms have few levels, so radius, cos and sin are tables --- */

enum { LEVELS = 2048 }; /* f16: 11 bits; bf16 uses the first 256 */

typedef struct Steps {
    float radius[LEVELS], cosine[LEVELS], sine[LEVELS];
    uint32_t mask; /* levels in use - 1 */
    DType dtype;
} Steps;

static float half_round(DType dtype, double x) {
    float f = (float)x; /* a double goes through f32 */
    return dtype == BF16 ? bf16_round(f) : f16_to_f32(f16_from_f32(f));
}

/* torch's functions of a 16-bit value compute in f32 and round their result to 16 bits each. */
static void steps_make(Steps *s, DType dtype) {
    int levels = dtype == BF16 ? 256 : LEVELS;
    s->mask = (uint32_t)levels - 1;
    s->dtype = dtype;
    for (int k = 0; k < levels; k++) {
        double u = (double)k / levels; /* exact in the dtype, and so is 1 - u */
        s->radius[k] = half_round(dtype, sqrtf(-2.0f * half_round(dtype, log(1.0 - u))));
        double theta = half_round(dtype, 2.0 * PI * u);
        s->cosine[k] = half_round(dtype, cos(theta));
        s->sine[k] = half_round(dtype, sin(theta));
    }
}

static uint16_t to_half(DType dtype, float x) {
    return dtype == BF16 ? bf16_from_f32(x) : f16_from_f32(x);
}

static void group_half(Rng *r, const Steps *s, uint16_t *out) {
    uint32_t level[GROUP];
    for (int j = 0; j < GROUP; j++) level[j] = rng_u32(r) & s->mask;
    for (int j = 0; j < HALF; j++) {
        float radius = s->radius[level[j]];
        out[j] = to_half(s->dtype, radius * s->cosine[level[HALF + j]] + 0.0f);
        out[HALF + j] = to_half(s->dtype, radius * s->sine[level[HALF + j]] + 0.0f);
    }
}

static void normal_half(Rng *r, DType dtype, int64_t n, uint16_t *out) {
    Steps steps; /* 24 kB */
    steps_make(&steps, dtype);
    for (int64_t i = 0; i + GROUP <= n; i += GROUP) group_half(r, &steps, out + i);
    if (n % GROUP) {
        for (int64_t i = 0; i < n % GROUP; i++) rng_u32(r);
        group_half(r, &steps, out + n - GROUP);
    }
}

bool rng_normal(Rng *r, DType dtype, int64_t n, void *out) {
    if (n < 0 || (dtype != F32 && dtype != BF16 && dtype != F16)) return false;
    if (n >= GROUP && dtype == F32) {
        normal_f32(r, n, out);
    } else if (n >= GROUP) {
        normal_half(r, dtype, n, out);
    } else {
        for (int64_t i = 0; i < n; i++) {
            float x = (float)(normal_one(r) + 0.0); /* double -> f32 -> 16 bits, two roundings as in torch */
            if (dtype == F32) ((float *)out)[i] = x;
            else ((uint16_t *)out)[i] = to_half(dtype, x);
        }
    }
    return true;
}

Status rng_random_seed(uint64_t *seed, Error *e) {
    uint32_t bits = 0;
    ssize_t n;
    do n = getrandom(&bits, sizeof bits, 0); /* so few bytes are never cut short, only interrupted */
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof bits)
        return fail(e, ERR_DEVICE, "no random seed from the system: %s", strerror(errno));
    *seed = bits;
    return OK;
}
