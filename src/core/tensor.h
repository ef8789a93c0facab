/* tensor.h - a view of numbers in memory: address, shape, strides, dtype. Passed by value.
 *
 * A Tensor never owns and never frees; arenas and mapped files own. Strides count elements, not bytes.
 * Nobody but a kernel (src/kernels) and a device (core/device.c, .cu) may dereference `data`: it can be a
 * GPU address. rank 0 means "no tensor": optional arguments of ops are simply left out.
 * Easy to get wrong: a 0-d safetensors scalar is stored here with rank 1 and shape {1}. */
#ifndef TENSOR_H
#define TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TENSOR_MAX_RANK = 5 };

/* Every dtype that the safetensors format publishes. Arithmetic is implemented on F32, BF16 and F16
 * storage; the others can be listed and copied. Sub-byte types count their bits. */
typedef enum DType {
    DTYPE_NONE,
    F32, BF16, F16, F64,
    I8, U8, I16, U16, I32, U32, I64, U64,
    BOOL, C64,
    F8_E4M3, F8_E5M2, F8_E4M3FNUZ, F8_E5M2FNUZ, F8_E8M0, F6_E2M3, F6_E3M2, F4,
    DTYPE_COUNT
} DType;

const char *dtype_name(DType t);           /* the safetensors spelling: "BF16", "F8_E4M3" */
DType dtype_parse(const char *name);       /* DTYPE_NONE when unknown */
int dtype_bits(DType t);                   /* per element; 4 and 6 exist */
static inline size_t dtype_size(DType t) { return (size_t)dtype_bits(t) / 8; } /* whole-byte types only */

typedef struct Tensor {
    void *data;
    int64_t shape[TENSOR_MAX_RANK];
    int64_t stride[TENSOR_MAX_RANK];       /* in elements */
    int32_t rank;                          /* 0: absent */
    DType dtype;
} Tensor;

/* Contiguous row-major view of `data`. tensor_of(p, F32, 2, T, D). Extents are int64_t-sized varargs:
 * the macro converts, so plain ints are safe. */
Tensor tensor_make(void *data, DType dtype, int rank, const int64_t *shape);
#define tensor_of(data, dtype, ...)                                                                      \
    tensor_make(data, dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                   \
                (int64_t[]){__VA_ARGS__})

int64_t tensor_numel(Tensor t);            /* 1 for an empty product never occurs: rank 0 gives 0 */
size_t tensor_bytes(Tensor t);             /* of the elements, for a contiguous tensor of whole-byte dtype */
bool tensor_contiguous(Tensor t);
bool tensor_same_shape(Tensor a, Tensor b);

/* Sub-view: `count` indices of dimension `dim` from `start`. No bounds are repaired: a bad slice is a bug
 * and gives an absent tensor. */
Tensor tensor_slice(Tensor t, int dim, int64_t start, int64_t count);
/* New shape over the same contiguous elements; absent tensor when the counts differ or strides forbid it.
 * Splitting the last dimension of a row-strided tensor (heads) is allowed: see tensor_split. */
Tensor tensor_reshape(Tensor t, int rank, const int64_t *shape);
#define tensor_view(t, ...)                                                                              \
    tensor_reshape(t, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
/* [.., a*b] -> [.., a, b] on the last dimension, strides kept. */
Tensor tensor_split(Tensor t, int64_t inner);
/* [C,Y,X] seen with its channels last, [Y,X,C]: the same elements, other strides. */
Tensor tensor_channels_last(Tensor t);
/* Writes "[2, 77, 768]" into out. */
const char *tensor_shape_text(Tensor t, char *out, size_t size);

/* --- scalar conversions: round to nearest, ties to even; NaN stays NaN (quiet) --- */

static inline float bf16_to_f32(uint16_t v) {
    uint32_t u = (uint32_t)v << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t bf16_from_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded); /* PyTorch's NaN is 0x7fc0 */
}

static inline float bf16_round(float f) { return bf16_to_f32(bf16_from_f32(f)); }

float f16_to_f32(uint16_t v);
uint16_t f16_from_f32(float f);

#ifdef __cplusplus
}
#endif

#endif
