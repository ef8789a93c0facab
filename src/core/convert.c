/* convert.c - see convert.h. memcpy of one element is how unaligned loads are spelt; compilers make it a load. */
#include "core/convert.h"

bool convert_can(DType t) { return t == F32 || t == BF16 || t == F16; }

void convert_widen(const void *from, DType dtype, float *to, size_t n) {
    const unsigned char *bytes = from;
    if (dtype == F32) {
        if (n) memcpy(to, from, n * sizeof *to);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t v;
        memcpy(&v, bytes + 2 * i, 2);
        to[i] = dtype == BF16 ? bf16_to_f32(v) : f16_to_f32(v);
    }
}

void convert_narrow(const float *from, DType dtype, void *to, size_t n) {
    unsigned char *bytes = to;
    if (dtype == F32) {
        if (n) memcpy(to, from, n * sizeof *from);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t v = dtype == BF16 ? bf16_from_f32(from[i]) : f16_from_f32(from[i]);
        memcpy(bytes + 2 * i, &v, 2);
    }
}
