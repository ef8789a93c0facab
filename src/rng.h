/* rng.h - the noise of torch.Generator("cpu"): the same seed gives the same bits.
 *
 * rng_seed() is manual_seed(), rng_normal() is torch.randn() into a fresh contiguous tensor. One Rng is one
 * generator: draws continue where the last one stopped, as consecutive torch calls with one generator do.
 * Not the CUDA generator (Philox), not for secrets, not shared between threads.
 *
 * Easy to get wrong:
 *  - The dtype is part of the stream. A bf16 draw has 256 levels of uniform noise and is another picture than
 *    the f32 draw of the same seed, not its rounding. Draw in the dtype in which the pipeline draws.
 *  - The bits of an f32 draw are those of torch's AVX2 code (torch also runs it on AVX-512 machines): a
 *    polynomial log and sincos, whose multiply-add fusions are written as fmaf in rng.c, so they are the same
 *    on every machine. The other paths call libm's double functions and round to 24 bits or fewer.
 *  - torch 2.11 rounds every function of an f16 to f16; much older releases kept f32 between them.
 *  - Below 16 elements torch takes another path (double Box-Muller, two 53-bit uniforms a pair) whose second
 *    normal waits in the generator for the next short draw, across long draws in between.
 *  - A count that is no multiple of 16 costs 16 more uniforms: the last 16 values are drawn again. So one
 *    draw of [B, ...] differs from B draws of [1, ...], except when each part is a multiple of 16.
 *  - diffusers' randn_tensor: a list of generators draws each picture alone as [1, ...] with its own; a
 *    single generator with batch B draws [B, ...] at once. `--count` uses one seed, so one Rng, a picture. */
#ifndef RNG_H
#define RNG_H

#include "core/status.h"
#include "core/tensor.h"

#include <stdbool.h>
#include <stdint.h>

enum { RNG_STATE = 624 };

typedef struct Rng {
    uint32_t state[RNG_STATE]; /* mt19937 */
    uint32_t used;             /* words of state already handed out; RNG_STATE: renew first */
    bool has_next;             /* the second normal of a pair waits in `next` (short draws only) */
    double next;
} Rng;

/* manual_seed(seed). Only the low 32 bits of the seed count, as in torch's CPU generator. Negative seeds are
 * passed as (uint64_t)seed: torch maps them so. Drops a waiting normal. */
void rng_seed(Rng *r, uint64_t seed);

/* Fills out[0..n) with the bits of torch.randn(n, dtype=dtype, generator=r). dtype F32, BF16 or F16; with
 * another one, or n < 0, nothing is drawn and false comes back. n = 0 draws nothing. */
bool rng_normal(Rng *r, DType dtype, int64_t n, void *out);

/* The next 32 random bits, tempered. */
uint32_t rng_u32(Rng *r);

/* A seed from the operating system, 0 .. 2^32 - 1: the range in which every seed is a different stream. */
Status rng_random_seed(uint64_t *seed, Error *e);

#endif
