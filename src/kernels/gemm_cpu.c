/* gemm_cpu.c - see gemm_cpu.h. Loops here are written so that the compiler vectorises them; nothing depends on it. */
#include "kernels/gemm_cpu.h"

#include <cblas.h>
#include <omp.h>
#include <stdio.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

/* OpenBLAS is built for a fixed number of concurrent callers (64 in Debian); more would end the process. */
enum { MAX_CALLERS = 64 };

int gemm_threads(void) {
    openblas_set_num_threads(1);
    int n = omp_get_max_threads();
    return n < 1 ? 1 : n > MAX_CALLERS ? MAX_CALLERS : n;
}

int gemm_thread(void) { return omp_get_thread_num(); }

void gemm_library(char *text, size_t size) {
    const char *config = openblas_get_config(); /* "OpenBLAS 0.3.29 NO_AFFINITY ..." */
    size_t n = strcspn(config, " ");
    n += config[n] ? 1 + strcspn(config + n + 1, " ") : 0;
    snprintf(text, size, "%.*s %s", (int)n, config, openblas_get_corename());
}

/* CBLAS refuses leading dimensions below the row length and below 1, even for empty or single rows. */
static int leading(int64_t ld, int64_t columns) { return (int)gemm_max(gemm_max(ld, columns), 1); }

void gemm_nt(int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
             float beta, float *c, int64_t ldc) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, (int)k, alpha, a, leading(lda, k), b,
                leading(ldb, k), beta, c, leading(ldc, n));
}

void gemm_nn(int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
             float beta, float *c, int64_t ldc) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, alpha, a, leading(lda, k), b,
                leading(ldb, n), beta, c, leading(ldc, n));
}

/* Elements of a mapped file: any address, any declared type. */
typedef uint16_t Half __attribute__((aligned(1), may_alias));
typedef uint32_t Word __attribute__((aligned(1), may_alias));

static void widen_f16(float *to, const Half *from, int64_t n) {
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
#endif
    for (; i < n; i++) to[i] = f16_to_f32(from[i]);
}

void gemm_widen(float *to, const void *from, DType dtype, DType round, int64_t n) {
    if (dtype == BF16) {
        const Half *h = from;
        for (int64_t i = 0; i < n; i++) to[i] = bf16_to_f32(h[i]);
        return; /* every bf16 is its own rounding to bf16 and to f32 */
    }
    if (dtype == F16) {
        widen_f16(to, from, n);
    } else if (round == BF16) {
        const Word *w = from;
        for (int64_t i = 0; i < n; i++) {
            uint32_t u = w[i];
            memcpy(&to[i], &u, 4);
        }
    } else {
        memcpy(to, from, (size_t)n * sizeof(float));
    }
    if (round == BF16)
        for (int64_t i = 0; i < n; i++) to[i] = bf16_round(to[i]);
}

void gemm_narrow(void *to, DType dtype, const float *from, int64_t n) {
    if (dtype == BF16) {
        uint16_t *h = to;
        for (int64_t i = 0; i < n; i++) h[i] = bf16_from_f32(from[i]);
    } else {
        memcpy(to, from, (size_t)n * sizeof(float));
    }
}

int64_t gemm_row_stride(Tensor t) {
    if (t.rank < 2) return t.rank ? t.shape[0] : -1;
    int64_t stride = 0, rows = 1; /* stride of the innermost leading dimension with more than one index */
    for (int d = t.rank - 2; d >= 0; d--) {
        if (t.shape[d] == 1) continue;
        if (!stride) stride = t.stride[d];
        else if (t.stride[d] != rows * stride) return -1;
        rows *= t.shape[d];
    }
    return stride ? stride : t.shape[t.rank - 1];
}
