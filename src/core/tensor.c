/* tensor.c - shape arithmetic of tensor.h and the f16 conversions. No memory is touched here. */
#include "core/tensor.h"

#include <stdio.h>

static const struct { const char *name; int bits; } DTYPES[DTYPE_COUNT] = {
    [DTYPE_NONE] = {"none", 0}, [F32] = {"F32", 32},         [BF16] = {"BF16", 16},       [F16] = {"F16", 16},
    [F64] = {"F64", 64},        [I8] = {"I8", 8},            [U8] = {"U8", 8},            [I16] = {"I16", 16},
    [U16] = {"U16", 16},        [I32] = {"I32", 32},         [U32] = {"U32", 32},         [I64] = {"I64", 64},
    [U64] = {"U64", 64},        [BOOL] = {"BOOL", 8},        [C64] = {"C64", 64},         [F8_E4M3] = {"F8_E4M3", 8},
    [F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8}, [F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [F8_E5M2] = {"F8_E5M2", 8}, [F8_E8M0] = {"F8_E8M0", 8},  [F6_E2M3] = {"F6_E2M3", 6},  [F6_E3M2] = {"F6_E3M2", 6},
    [F4] = {"F4", 4},
};

const char *dtype_name(DType t) { return DTYPES[t].name; }
int dtype_bits(DType t) { return DTYPES[t].bits; }

DType dtype_parse(const char *name) {
    for (DType t = DTYPE_NONE + 1; t < DTYPE_COUNT; t++)
        if (!strcmp(name, DTYPES[t].name)) return t;
    return DTYPE_NONE;
}

Tensor tensor_make(void *data, DType dtype, int rank, const int64_t *shape) {
    Tensor t = {.data = data, .rank = rank, .dtype = dtype};
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        t.shape[d] = shape[d];
        t.stride[d] = stride;
        stride *= shape[d];
    }
    return t;
}

int64_t tensor_numel(Tensor t) {
    if (!t.rank) return 0;
    int64_t n = 1;
    for (int d = 0; d < t.rank; d++) n *= t.shape[d];
    return n;
}

size_t tensor_bytes(Tensor t) { return (size_t)tensor_numel(t) * dtype_size(t.dtype); }

bool tensor_contiguous(Tensor t) {
    int64_t stride = 1;
    for (int d = t.rank - 1; d >= 0; d--) {
        if (t.shape[d] != 1 && t.stride[d] != stride) return false;
        stride *= t.shape[d];
    }
    return true;
}

bool tensor_same_shape(Tensor a, Tensor b) {
    if (a.rank != b.rank) return false;
    for (int d = 0; d < a.rank; d++)
        if (a.shape[d] != b.shape[d]) return false;
    return true;
}

Tensor tensor_slice(Tensor t, int dim, int64_t start, int64_t count) {
    if (dim < 0 || dim >= t.rank || start < 0 || count < 0 || start + count > t.shape[dim]) return (Tensor){0};
    if (t.data) t.data = (char *)t.data + (size_t)(start * t.stride[dim]) * dtype_size(t.dtype);
    t.shape[dim] = count;
    return t;
}

Tensor tensor_reshape(Tensor t, int rank, const int64_t *shape) {
    Tensor r = tensor_make(t.data, t.dtype, rank, shape);
    return tensor_contiguous(t) && tensor_numel(r) == tensor_numel(t) ? r : (Tensor){0};
}

Tensor tensor_split(Tensor t, int64_t inner) {
    int last = t.rank - 1;
    if (t.rank < 1 || t.rank >= TENSOR_MAX_RANK || inner < 1 || t.shape[last] % inner) return (Tensor){0};
    t.shape[last + 1] = inner;
    t.stride[last + 1] = t.stride[last];
    t.shape[last] /= inner;
    t.stride[last] *= inner;
    t.rank++;
    return t;
}

const char *tensor_shape_text(Tensor t, char *out, size_t size) {
    size_t at = 0;
    int n = snprintf(out, size, "[");
    for (int d = 0; n > 0 && (at += (size_t)n) < size && d < t.rank; d++)
        n = snprintf(out + at, size - at, "%s%lld", d ? ", " : "", (long long)t.shape[d]);
    if (at < size) snprintf(out + at, size - at, "]");
    return out;
}

float f16_to_f32(uint16_t v) {
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, exponent = (v >> 10) & 31u, mantissa = v & 0x3ffu, u;
    float f;
    if (exponent == 31) {
        u = sign | 0x7f800000u | (mantissa << 13);
    } else if (exponent) {
        u = sign | ((exponent + 112u) << 23) | (mantissa << 13);
    } else { /* zero and subnormals: mantissa * 2^-24 is exact in f32 */
        f = (float)mantissa * 0x1p-24f;
        return sign ? -f : f;
    }
    memcpy(&f, &u, 4);
    return f;
}

uint16_t f16_from_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* from 65520 up: infinity */
    if (u < 0x38800000u) {                                   /* subnormal: let the FPU round at 2^-24 */
        float a;
        memcpy(&a, &u, 4);
        a = a + 0.5f; /* ulp of [0.5, 1) is 2^-24: the addition rounds to nearest even */
        memcpy(&u, &a, 4);
        return (uint16_t)(sign | (uint16_t)(u - 0x3f000000u));
    }
    return (uint16_t)(sign | (uint16_t)((u - 0x38000000u + 0xfffu + ((u >> 13) & 1u)) >> 13));
}

Tensor tensor_channels_last(Tensor t) {
    Tensor v = t;
    for (int d = 0; d < 3; d++) v.shape[d] = t.shape[(d + 1) % 3], v.stride[d] = t.stride[(d + 1) % 3];
    return v;
}
