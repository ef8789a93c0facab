/* test_deflate.c - deflate.h against an independent decoder (stb_image's): bytes of every kind come back, checksums hold, room
 * that is too small is refused and never passed. */
#include "expect.h"
#include "media/deflate.h"

#include <stdbool.h>

/* stb declares more than it defines here; that is told at the end of the file, so no "pop" behind it */
#pragma GCC diagnostic ignored "-Wunused-function"
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_STDIO
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_ONLY_PNG
/* lint: allow-static (stbi__g_failure_reason: a thread's own) */
#include <stb/stb_image.h>

static uint32_t adler_plainly(const unsigned char *data, size_t n) {
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) a = (a + data[i]) % 65521, b = (b + a) % 65521;
    return b << 16 | a;
}

/* -> bytes of the stream */
static size_t round_trip(const unsigned char *data, size_t n, const char *what) {
    size_t room = deflate_bound(n);
    unsigned char *out = malloc(room + 1);
    if (!out) abort();
    out[room] = 0xa5;
    size_t size = deflate_write(data, n, out, room);
    expect_at(size > 6 && size <= room && out[room] == 0xa5, what, "size", (int)n);
    int length = 0;
    char *back = stbi_zlib_decode_malloc((const char *)out, (int)size, &length);
    expect_at(back && (size_t)length == n && (!n || !memcmp(back, data, n)), what, "bytes", (int)n);
    uint32_t sum = 0;
    for (int i = 0; i < 4; i++) sum = sum << 8 | out[size - 4 + (size_t)i];
    expect_at(sum == adler_plainly(data, n), what, "checksum", (int)n);
    stbi_image_free(back);
    free(out);
    return size;
}

static unsigned next(unsigned *seed) { return *seed = *seed * 1664525u + 1013904223u; }

static void lengths(unsigned char *data) {
    unsigned seed = 1;
    for (size_t i = 0; i < 700; i++) data[i] = (unsigned char)(next(&seed) >> 24);
    for (size_t n = 0; n < 40; n++) round_trip(data, n, "noise");
    for (size_t run = 1; run < 600; run++) { /* every length of a run, between other bytes */
        data[0] = 1;
        memset(data + 1, 7, run);
        data[run + 1] = 9;
        round_trip(data, run + 2, "run");
    }
}

static void kinds(unsigned char *data, size_t n) {
    unsigned seed = 2;
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(next(&seed) >> 24);
    expect(round_trip(data, n, "noise") < n + n / 100);
    memset(data, 0, n);
    expect(round_trip(data, n, "one byte") < n / 200);
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(i % 2);
    round_trip(data, n, "two bytes");
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(i % 5 ? 0 : next(&seed) >> 29);
    round_trip(data, n, "short runs");
}

/* Weights like Fibonacci's numbers make the deepest tree: deeper than a code may be. */
static void deep(unsigned char *data, size_t n) {
    size_t at = 0, a = 1, b = 1;
    unsigned seed = 3;
    for (int symbol = 0; symbol < 24 && at < n; symbol++) {
        for (size_t k = 0; k < a && at < n; k++) data[at++] = (unsigned char)symbol;
        size_t c = a + b;
        a = b, b = c;
    }
    for (size_t i = at - 1; i > 0; i--) { /* no runs, and all in one block */
        size_t j = next(&seed) % (i + 1);
        unsigned char t = data[i];
        data[i] = data[j], data[j] = t;
    }
    for (size_t piece = 1000; piece < at; piece = piece * 3 / 2) round_trip(data, piece, "deep");
    round_trip(data, at, "deep");
}

static void small_room(unsigned char *data) {
    unsigned seed = 4;
    unsigned char out[800];
    for (size_t i = 0; i < 600; i++) data[i] = (unsigned char)(next(&seed) >> 24);
    for (size_t room = 0; room < 400; room++) {
        memset(out, 0x5a, sizeof out);
        expect_at(deflate_write(data, 600, out, room) == 0, "small room", "refused", (int)room);
        bool kept = true;
        for (size_t i = room; i < sizeof out; i++) kept &= out[i] == 0x5a;
        expect_at(kept, "small room", "written behind it", (int)room);
    }
}

int main(void) {
    size_t n = 300000;
    unsigned char *data = malloc(n);
    if (!data) return 4;
    lengths(data);
    kinds(data, n);
    deep(data, n);
    small_room(data);
    free(data);
    return expect_done();
}
