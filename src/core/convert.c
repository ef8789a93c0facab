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

bool convert_has_value(DType t) {
    return convert_can(t) || t == F64 || t == BOOL || t == I8 || t == U8 || t == I16 || t == U16 || t == I32 || t == U32 ||
           t == I64 || t == U64;
}

double convert_value(const void *from, DType t) {
    union { float f; double d; int8_t c; uint8_t u; int16_t s; uint16_t h; int32_t i; uint32_t w; int64_t l; uint64_t q; } v;
    if (!convert_has_value(t)) return 0;
    memcpy(&v, from, dtype_size(t));
    switch (t) {
    case F32: return (double)v.f;
    case F64: return v.d;
    case F16: return (double)f16_to_f32(v.h);
    case BF16: return (double)bf16_to_f32(v.h);
    case I8: return v.c;
    case I16: return v.s;
    case U16: return v.h;
    case I32: return v.i;
    case U32: return v.w;
    case I64: return (double)v.l;
    case U64: return (double)v.q;
    default: return v.u;
    }
}
