/* test_optrace.c - optrace.h: hashes against numbers that scripts/optrace.py's mixed() gave, whatever the order of elements
 * and the strides, and other ones for one bit less. The lines of whole runs are tests/test_cli.sh's. */
#include "optrace.h"

#include "expect.h"

static uint64_t hash(const void *data, Tensor t) { return optrace_hash(data, &t); }

static void known(void) {
    float a[] = {1.0f, -2.0f, 0.5f, 0.0f, 3.25f, -7.0f}, turned[] = {1.0f, 0.0f, -2.0f, 3.25f, 0.5f, -7.0f};
    uint16_t half[6];
    uint8_t bytes[] = {1, 2, 3};
    for (int i = 0; i < 6; i++) half[i] = bf16_from_f32(a[i]);
    Tensor t = tensor_of(NULL, F32, 2, 3), other = {.shape = {2, 3}, .stride = {1, 2}, .rank = 2, .dtype = F32};
    expect(hash(a, t) == 0xbfa2bd31bc617cceu);
    expect(hash(a, tensor_slice(t, 0, 0, 1)) == 0xeca581b5c7e3e20cu);
    expect(hash(half, tensor_of(NULL, BF16, 6)) == 0x847802d2cf7ef390u);
    expect(hash(bytes, tensor_of(NULL, U8, 3)) == 0xeea075832156d6f4u);
    expect(hash(turned, other) == hash(a, t)); /* the same elements in another place */
    expect(hash(turned, t) == hash(a, t));     /* and in another order */
    a[4] = 3.2500002384185791f;
    expect(hash(a, t) != 0xbfa2bd31bc617cceu);
    a[4] = 3.25f, a[3] = -0.0f;
    expect(hash(a, t) != 0xbfa2bd31bc617cceu);
}

/* Rows with a gap behind each, of three dimensions. */
static void strided(void) {
    uint16_t wide[2 * 3 * 8], tight[2 * 3 * 4];
    for (int i = 0; i < 48; i++) wide[i] = (uint16_t)(i % 8 < 4 ? 100 + i : 60000);
    for (int i = 0; i < 24; i++) tight[i] = wide[i / 4 * 8 + i % 4];
    Tensor t = tensor_slice(tensor_of(NULL, BF16, 2, 3, 8), 2, 0, 4);
    expect(hash(wide, t) == hash(tight, tensor_of(NULL, BF16, 2, 3, 4)));
    tight[23]++;
    expect(hash(wide, t) != hash(tight, tensor_of(NULL, BF16, 2, 3, 4)));
}

int main(void) {
    known();
    strided();
    return expect_done();
}
