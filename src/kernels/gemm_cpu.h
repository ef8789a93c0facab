/* gemm_cpu.h - what the CPU table's products share: single-threaded f32 products through CBLAS, and the widening of
 * rows of any stored dtype to f32. Not an op and not a contract: linear, attention and conv are.
 *
 * Threads are OpenMP's, and every product is a call of one thread on its own tile. OpenBLAS' own pool stays unused:
 * two pools would wait for each other's cores, and a tile that is widened and multiplied by the same thread stays in
 * that core's cache. Tiles are cut by shape alone, so results do not depend on the number of threads.
 * Easy to get wrong: call gemm_threads() once before the parallel region of an op; it is also what keeps OpenBLAS
 * from starting threads inside the region. Mapped weights may lie at odd addresses: only gemm_widen reads them. */
#ifndef KERNELS_GEMM_CPU_H
#define KERNELS_GEMM_CPU_H

#include "core/arena.h"
#include "core/tensor.h"

/* Threads of a parallel region, at least 1. Pure in the environment: scratch sizes and regions agree. */
int gemm_threads(void);
int gemm_thread(void); /* index of the calling thread inside a region */

/* Whose kernels multiply on this machine, and with that the order of their sums: "OpenBLAS 0.3.29 Haswell". */
void gemm_library(char *text, size_t size);

/* c[m,n] = alpha a[m,k] . b[n,k]^T + beta c, row-major, leading dimensions in elements; beta 0 never reads c. */
void gemm_nt(int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
             float beta, float *c, int64_t ldc);
/* c[m,n] = alpha a[m,k] . b[k,n] + beta c. */
void gemm_nn(int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
             float beta, float *c, int64_t ldc);

/* n elements of dtype F32, BF16 or F16 at any address, as f32, first rounded to `round` (F32 or BF16). */
void gemm_widen(float *to, const void *from, DType dtype, DType round, int64_t n);
/* n f32 values rounded to dtype F32 or BF16. */
void gemm_narrow(void *to, DType dtype, const float *from, int64_t n);

static inline bool gemm_storage(DType t) { return t == F32 || t == BF16 || t == F16; }

/* Rows of a tensor: all dimensions but the last, in order. */
static inline int64_t gemm_columns(Tensor t) { return t.rank > 0 ? t.shape[t.rank - 1] : 0; }
static inline int64_t gemm_rows(Tensor t) {
    int64_t columns = gemm_columns(t);
    return columns ? tensor_numel(t) / columns : 0;
}
static inline void *gemm_row(const Tensor *t, int64_t row) {
    int64_t at = 0;
    for (int d = t->rank - 2; d >= 0; d--) {
        at += row % t->shape[d] * t->stride[d];
        row /= t->shape[d];
    }
    return (char *)t->data + (size_t)at * dtype_size(t->dtype);
}
/* Distance between rows in elements when it is the same for all rows, else -1. */
int64_t gemm_row_stride(Tensor t);

/* Sizes of one op's scratch: every piece starts on ARENA_ALIGN. Used once to measure, once to carve. */
static inline size_t gemm_piece(size_t *total, int64_t floats) {
    return arena_piece(total, floats, F32);
}

static inline int64_t gemm_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t gemm_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t gemm_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* Size of the parts when n is cut into equal parts of at most `most`, rounded up to a multiple of 8. */
static inline int64_t gemm_part(int64_t n, int64_t most) {
    if (n <= most) return gemm_max(n, 1);
    return gemm_min(most, (gemm_ceil(n, gemm_ceil(n, most)) + 7) / 8 * 8);
}

#endif
