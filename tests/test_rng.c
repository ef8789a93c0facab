/* test_rng.c - the generator against draws recorded from torch (tests/golden/rng.txt, scripts/dump_rng.py):
 * every byte of every draw through a checksum, the first and last values as bits, so that a failure shows
 * where it begins. Another recording can be given: test_rng FILE. Then a few properties of the interface. */
#include "core/clock.h"
#include "core/file.h"
#include "core/tensor.h"
#include "rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Tally { int passed, failed; } Tally;

static bool check(Tally *t, bool good, const char *what) {
    if (good) t->passed++;
    else t->failed++;
    if (!good && t->failed <= 20) fprintf(stderr, "FAIL: %s\n", what);
    return good;
}

static uint64_t fnv1a(const unsigned char *data, size_t size) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) h = (h ^ data[i]) * 0x100000001b3u;
    return h;
}

static uint32_t value_bits(DType dtype, const void *data, int64_t i) {
    return dtype == F32 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
}

/* One "DTYPE N HASH V... | W..." line. */
static void check_draw(Tally *t, Rng *r, const char *line, uint64_t seed) {
    char name[8], what[256];
    int64_t n;
    uint64_t hash;
    int at = 0;
    if (sscanf(line, "%7s %" SCNd64 " %" SCNx64 "%n", name, &n, &hash, &at) != 3 || n < 0 || n > 1 << 28) {
        check(t, false, line);
        return;
    }
    DType dtype = dtype_parse(name);
    size_t size = (size_t)n * dtype_size(dtype);
    void *data = malloc(size + 16);
    if (!data) exit(4);
    memset(data, 0xa5, size + 16);
    snprintf(what, sizeof what, "seed %" PRIu64 ": %s x %" PRId64, seed, name, n);
    bool good = rng_normal(r, dtype, n, data);
    bool ends = true;
    for (int i = 0; i < 16; i++) ends = ends && ((unsigned char *)data)[size + (size_t)i] == 0xa5;
    good = check(t, good && ends, "returns true, stays inside") && fnv1a(data, size) == hash;
    if (!check(t, good, what)) {
        int count = 0;
        char words[12][12];
        bool tail = false;
        int tail_at = 0;
        for (const char *c = line + at; count < 12; count++) {
            int used = 0;
            if (sscanf(c, " %11s%n", words[count], &used) != 1) break;
            c += used;
            if (!strcmp(words[count], "|")) tail = true, tail_at = count;
        }
        for (int i = 0; i < count; i++) {
            int64_t index = !tail || i < tail_at ? i : n - count + i;
            if (i == tail_at || index < 0 || index >= n) continue;
            uint32_t ours = value_bits(dtype, data, index), want = (uint32_t)strtoul(words[i], NULL, 16);
            if (ours != want) fprintf(stderr, "  [%" PRId64 "] %x, want %x\n", index, ours, want);
        }
    }
    free(data);
}

static void check_golden(Tally *t, const char *path) {
    char *text;
    size_t size;
    Error e = {0};
    if (file_read(path, &text, &size, &e) != OK) {
        check(t, false, e.text);
        return;
    }
    Rng r;
    uint64_t seed = 0;
    int draws = 0;
    rng_seed(&r, 0);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (line[0] == '#') continue;
        if (!strncmp(line, "seed ", 5)) {
            seed = line[5] == '-' ? (uint64_t)strtoll(line + 5, NULL, 10) : strtoull(line + 5, NULL, 10);
            rng_seed(&r, seed);
        } else {
            check_draw(t, &r, line, seed);
            draws++;
        }
    }
    check(t, draws >= 150, "the recording holds its draws");
    free(text);
}

static void check_interface(Tally *t) {
    Rng r, same;
    float a[64], b[64];
    rng_seed(&r, 5);
    same = r;
    memset(a, 0, sizeof a);
    check(t, !rng_normal(&r, F64, 4, a) && !rng_normal(&r, F32, -1, a),
          "other dtypes and counts are refused");
    check(t, !memcmp(&r, &same, sizeof r) && a[0] == 0, "a refused draw draws nothing");

    /* A copy of the struct is a copy of the stream, the waiting normal included. */
    rng_normal(&r, F32, 3, a);
    same = r;
    rng_normal(&r, F32, 40, a);
    rng_normal(&r, F32, 3, a + 40);
    rng_normal(&same, F32, 40, b);
    rng_normal(&same, F32, 3, b + 40);
    check(t, !memcmp(a, b, 43 * sizeof *a), "a copied generator goes on alike");

    /* Parts that are multiples of 16 may be drawn apart; others may not. */
    rng_seed(&r, 9);
    rng_normal(&r, F32, 64, a);
    rng_seed(&r, 9);
    rng_normal(&r, F32, 32, b);
    rng_normal(&r, F32, 32, b + 32);
    check(t, !memcmp(a, b, sizeof a), "two draws of 32 are one of 64");
    rng_seed(&r, 9);
    rng_normal(&r, F32, 40, b);
    check(t, memcmp(a, b, 40 * sizeof *a) != 0, "one of 40 is not the begin of one of 64");

    uint64_t s1 = 0, s2 = 0, s3 = 0;
    Error e = {0};
    bool ok =
        rng_random_seed(&s1, &e) == OK && rng_random_seed(&s2, &e) == OK && rng_random_seed(&s3, &e) == OK;
    check(t, ok && (s1 != s2 || s2 != s3), "drawn seeds differ");
    check(t, (s1 | s2 | s3) >> 32 == 0 && (s1 | s2 | s3) != 0, "drawn seeds are 32-bit numbers");
}

static void show_speed(void) {
    enum { N = 1 << 20, ROUNDS = 16 };
    static const DType DTYPES[] = {F32, BF16, F16};
    float *data = malloc(N * sizeof *data);
    if (!data) return;
    for (int d = 0; d < 3; d++) {
        Rng r;
        rng_seed(&r, 1);
        double start = clock_now();
        for (int i = 0; i < ROUNDS; i++) rng_normal(&r, DTYPES[d], N, data);
        double s = clock_now() - start;
        printf("%s: %.0f million normals a second\n", dtype_name(DTYPES[d]), 1e-6 * N * ROUNDS / s);
    }
    free(data);
}

int main(int argc, char **argv) {
    Tally t = {0};
    check_golden(&t, argc > 1 ? argv[1] : "tests/golden/rng.txt");
    check_interface(&t);
    show_speed();
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed ? 1 : 0;
}
