/* sha256.c - see sha256.h. Names of the rounds' functions follow FIPS 180-4, sections 4.1.2 and 6.2.2.
 * Easy to get wrong: words and the final length are big-endian; the length counts bits. */
#include "core/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void compress(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6],
                    h = state[7];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               (uint32_t)block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = (rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10) + w[i - 7] +
               (rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 16];
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i];
        uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t add[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) state[i] += add[i];
}

void sha256_begin(Sha256 *s) {
    *s = (Sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                            0x5be0cd19}};
}

void sha256_add(Sha256 *s, const void *bytes, size_t size) {
    const uint8_t *p = bytes;
    size_t used = s->length % SHA256_BLOCK;
    if (!size) return;
    s->length += size;
    if (used) {
        size_t n = size < SHA256_BLOCK - used ? size : SHA256_BLOCK - used;
        memcpy(s->block + used, p, n);
        p += n, size -= n, used += n;
        if (used < SHA256_BLOCK) return;
        compress(s->state, s->block);
    }
    for (; size >= SHA256_BLOCK; p += SHA256_BLOCK, size -= SHA256_BLOCK) compress(s->state, p);
    memcpy(s->block, p, size);
}

void sha256_end(Sha256 *s, uint8_t digest[SHA256_BYTES]) {
    uint64_t bits = s->length * 8;
    uint8_t tail[SHA256_BLOCK + 8] = {0x80};
    size_t used = s->length % SHA256_BLOCK, zeros = (used < 56 ? 56 : 120) - used; /* the 0x80 included */
    for (int i = 0; i < 8; i++) tail[zeros + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(s, tail, zeros + 8);
    for (int i = 0; i < SHA256_BYTES; i++) digest[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_text(const uint8_t digest[SHA256_BYTES], char text[SHA256_TEXT]) {
    for (int i = 0; i < SHA256_BYTES; i++) {
        text[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    text[2 * SHA256_BYTES] = 0;
}

void sha256_memory(const void *bytes, size_t size, char text[SHA256_TEXT]) {
    Sha256 s;
    uint8_t digest[SHA256_BYTES];
    sha256_begin(&s);
    sha256_add(&s, bytes, size);
    sha256_end(&s, digest);
    sha256_text(digest, text);
}

Status sha256_file(const char *path, char text[SHA256_TEXT], uint64_t *size, const volatile int *interrupted, Error *e) {
    enum { PIECE = 1 << 20 };
    Sha256 s;
    uint8_t digest[SHA256_BYTES], *piece = malloc(PIECE);
    if (!piece) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    Status status = fd < 0 ? fail(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno)) : OK;
    sha256_begin(&s);
    for (ssize_t n = 1; status == OK && n;) {
        n = read(fd, piece, PIECE);
        if (n < 0 && errno == EINTR) n = 1;
        else if (n < 0) status = fail(e, ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        else sha256_add(&s, piece, (size_t)n);
        if (status == OK && interrupted && *interrupted) status = fail(e, ERR_INTERRUPTED, "interrupted");
    }
    if (fd >= 0) close(fd);
    free(piece);
    TRY(status);
    *size = s.length;
    sha256_end(&s, digest);
    sha256_text(digest, text);
    return OK;
}
