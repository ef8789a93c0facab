/* test_unary.c - the unary bf16 tables against the checksums of the full GPU recordings.
 *
 * tests/golden/unary.sha256 holds one line per function: SHA-256 of 65,536 little-endian uint16 with NaN as
 * 0x7fc0. Also checks a handful of values that anyone can verify by hand, so that an error common to script
 * and table shows. Easy to get wrong: run from the repository root (the path is relative). */
#include "core/tensor.h"
#include "kernels/unary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Sha {
    uint32_t h[8];
} Sha;

static uint32_t ror(uint32_t v, int n) {
    return v >> n | v << (32 - n);
}

/* FIPS 180-4; the round constants are the cube roots' fractions, so they are computed, not typed. */
static void sha_constants(uint32_t k[64], uint32_t h[8]) {
    int n = 0;
    for (int p = 2; n < 64; p++) {
        int prime = 1;
        for (int d = 2; d * d <= p; d++) prime &= p % d != 0;
        if (!prime) continue;
        long double c = cbrtl((long double)p), s = sqrtl((long double)p);
        k[n] = (uint32_t)((c - floorl(c)) * 4294967296.0L);
        if (n < 8) h[n] = (uint32_t)((s - floorl(s)) * 4294967296.0L);
        n++;
    }
}

static void sha_block(Sha *s, const uint32_t k[64], const unsigned char *p) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (ror(a, 7) ^ ror(a, 18) ^ a >> 3) + w[i - 7] + (ror(b, 17) ^ ror(b, 19) ^ b >> 10);
    }
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t1 = v[7] + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        uint32_t t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) s->h[i] += v[i];
}

/* Of exactly 131,072 bytes: a multiple of the block, so the padding is a block of its own. */
static void sha_of_table(const uint16_t table[UNARY_ENTRIES], char hex[65]) {
    uint32_t k[64];
    Sha s;
    sha_constants(k, s.h);
    unsigned char block[64];
    for (int i = 0; i < UNARY_ENTRIES; i += 32) {
        for (int j = 0; j < 32; j++) {
            block[2 * j] = (unsigned char)(table[i + j] & 0xff);
            block[2 * j + 1] = (unsigned char)(table[i + j] >> 8);
        }
        sha_block(&s, k, block);
    }
    memset(block, 0, sizeof block);
    block[0] = 0x80;
    block[61] = 0x10; /* 131072 * 8 bits = 0x100000 */
    sha_block(&s, k, block);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", s.h[i]);
}

static int passed, failed; /* lint: allow-static */

static void check(int good, const char *what, const char *detail) {
    if (good) passed++;
    else {
        failed++;
        printf("FAIL %s: %s\n", what, detail);
    }
}

static uint16_t at(const uint16_t *t, float x) {
    return t[bf16_from_f32(x)];
}

int main(void) {
    uint16_t *t = malloc(UNARY_ENTRIES * sizeof *t);
    if (!t) return 2;

    unary_table_fill(UNARY_SILU, t);
    check(at(t, 1.0f) == bf16_from_f32(0.73105858f), "silu(1)", "want 0.7311");
    check(at(t, 0.0f) == 0 && t[0x8000] == 0x8000, "silu(+-0)", "want +-0");
    check(t[0x7fc0] == 0x7fc0 && t[0xff80] == 0x7fc0, "silu(nan), silu(-inf)", "want NaN");
    unary_table_fill(UNARY_TANH, t);
    check(at(t, 0.5f) == bf16_from_f32(0.46211716f) && at(t, -INFINITY) == bf16_from_f32(-1), "tanh", "values");
    unary_table_fill(UNARY_POW3, t);
    check(at(t, 3.0f) == bf16_from_f32(27), "pow3(3)", "want 27");
    check(at(t, 1.0078125f) == bf16_from_f32(1.0234375f), "pow3(1+2^-7)",
          "two roundings: bf16(1.015625 * 1.0078125) = 1.0234375");
    unary_table_fill(UNARY_SQRT, t);
    check(at(t, 2.25f) == bf16_from_f32(1.5f) && t[0xbf80] == 0x7fc0 && t[1] == bf16_from_f32(9.5835e-21f),
          "sqrt", "1.5, NaN, subnormal 2^-133 -> 2^-66.5");

    FILE *f = fopen("tests/golden/unary.sha256", "r");
    if (!f) {
        printf("SKIP checksums: tests/golden/unary.sha256 missing (%s)\n", unary_source());
    } else {
        char want[65], name[32], hex[65];
        int lines = 0;
        while (fscanf(f, "%64s %31s", want, name) == 2) {
            int fn = 0;
            while (fn < UNARY_COUNT && strcmp(unary_name((UnaryFn)fn), name) != 0) fn++;
            if (fn == UNARY_COUNT) {
                check(0, name, "no such function");
                continue;
            }
            unary_table_fill((UnaryFn)fn, t);
            sha_of_table(t, hex);
            check(strcmp(hex, want) == 0, name, hex);
            lines++;
        }
        check(lines == UNARY_COUNT, "unary.sha256", "a function is missing");
        fclose(f);
    }
    free(t);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
