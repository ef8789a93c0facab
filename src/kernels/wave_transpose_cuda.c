/* wave_transpose_cuda.c - CUDA reference of conv_transpose1d: one product by cuBLAS, x with the weight as it lies, [T,
 * C k] in f32 (without TF32), and a kernel of ours that collects what falls on each value of y. PyTorch asks cuDNN for
 * the gradient of a convolution here, whose rounding points are the same.
 * Easy to get wrong: cuBLAS is column-major, so the row-major product [T, C k] is the matrix C k x T. */
#include "kernels/registry.h"
#include "kernels/wave_check.h"
#include "kernels/wave_pieces.h"

#ifdef HAVE_CUDA

#include <stdio.h>

static size_t scratch(const Exec *x, const void *args) {
    const ConvTranspose1d *a = args;
    (void)x;
    return (size_t)(a->x.shape[0] * a->w->w.shape[1] * a->w->w.shape[2]) * sizeof(float);
}

static bool accepts(const void *args, char *why, size_t size) {
    const ConvTranspose1d *a = args;
    const Weight *w = a->w;
    if (w->w.dtype == a->x.dtype && w->round == a->x.dtype && (!w->bias.rank || w->bias.dtype == a->x.dtype))
        return true;
    snprintf(why, size, "%s: weight %s rounded to %s, bias %s: expected %s as x", w->name ? w->name : "weight",
             dtype_name(w->w.dtype), dtype_name(w->round), w->bias.rank ? dtype_name(w->bias.dtype) : "none",
             dtype_name(a->x.dtype));
    return false;
}

static Status conv_transpose1d(Exec *x, const void *args) {
    const ConvTranspose1d *a = args;
    const float one = 1, zero = 0;
    TRY(wave_check_transpose(x, a));
    TRY(cuda_need_blas(x->cuda, x->error));
    const int rows = (int)a->x.shape[0], in = (int)a->x.shape[1], columns = (int)(a->w->w.shape[1] * a->w->w.shape[2]);
    const int leading = (int)(rows > 1 ? a->x.stride[0] : in);
    const cudaDataType_t type = a->x.dtype == BF16 ? CUDA_R_16BF : CUDA_R_32F;
    float *product = arena_push(x->scratch, scratch(x, a));
    if (!product) return fail(x->error, ERR_MEMORY, "conv_transpose1d: no scratch of %zu bytes", scratch(x, a));
    cublasStatus_t code = x->cuda->libs.cublasGemmEx_(
        x->cuda->blas, CUBLAS_OP_N, CUBLAS_OP_N, columns, rows, in, &one, a->w->w.data, type, columns, a->x.data, type,
        leading, &zero, product, CUDA_R_32F, columns, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (code != CUBLAS_STATUS_SUCCESS)
        return fail(x->error, ERR_DEVICE, "conv_transpose1d: cublasGemmEx M %d, K %d, N %d: %s", rows, in, columns,
                    x->cuda->libs.cublasGetStatusName_(code));
    return wave_pieces_collect(x, a, product);
}

const Impl WAVE_TRANSPOSE_CUDA[] = {{OP_conv_transpose1d, "cuda", conv_transpose1d, scratch, accepts}};

#endif
