/* linear_cuda_turned.c - linear_many with BIAS_TURNED in BF16: the call that eager PyTorch makes when x is the transposed view of
 * a [K,M] matrix (a batched product of one, so cublasGemmEx, both operands transposed), then the bias, rounded after it.
 *
 * x is turned in scratch first: our pictures have their channels last. The library picks its kernel by layout and alignment:
 * with M no multiple of 8 the rows of PyTorch's matrix start at odd addresses, and the choice, with it the bits, is another.
 * Easy to get wrong: cuBLAS is column-major, so A is the weight and M and N change places. */
#include "kernels/linear_cuda.h"

#include "kernels/cuda_pieces.h"

#ifdef HAVE_CUDA

static int64_t rows_of(const LinearMany *a) { return a->x.shape[0]; }
static int64_t columns_of(const LinearMany *a) { return a->x.shape[1]; }

bool linear_cuda_turns(const LinearMany *a) {
    return a->bias_mode == BIAS_TURNED && a->x.dtype == BF16 && a->x.rank == 2 && tensor_numel(a->x);
}

size_t linear_cuda_turned_scratch(const LinearMany *a) {
    return linear_cuda_turns(a) ? (size_t)tensor_numel(a->x) * dtype_size(BF16) : 0;
}

static Status product(Exec *x, Tensor y, Tensor turned, const Weight *w) {
    const float one = 1, zero = 0;
    int64_t m = turned.shape[1], k = turned.shape[0], n = w->w.shape[0];
    int ldw = (int)(n > 1 ? w->w.stride[0] : k), ldy = (int)(m > 1 ? y.stride[0] : n);
    cublasStatus_t code = x->cuda->libs.cublasGemmEx_(x->cuda->blas, CUBLAS_OP_T, CUBLAS_OP_T, (int)n, (int)m,
                                                      (int)k, &one, w->w.data, CUDA_R_16BF, ldw, turned.data,
                                                      CUDA_R_16BF, (int)m, &zero, y.data, CUDA_R_16BF, ldy,
                                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    if (code != CUBLAS_STATUS_SUCCESS)
        return fail(x->error, ERR_DEVICE, "linear_many: cublasGemmEx M %lld, K %lld, N %lld, x turned: %s",
                    (long long)m, (long long)k, (long long)n, x->cuda->libs.cublasGetStatusName_(code));
    return w->bias.rank ? linear_cuda_bias(x, y, w) : OK;
}

Status linear_cuda_turned(Exec *x, const LinearMany *a) {
    TRY(cuda_need_blas(x->cuda, x->error));
    const int64_t shape[] = {columns_of(a), rows_of(a)};
    Tensor turned = arena_tensor(x->scratch, BF16, 2, shape);
    if (!turned.data)
        return fail(x->error, ERR_MEMORY, "linear_many: no scratch of %zu bytes",
                    linear_cuda_turned_scratch(a));
    Tensor in = a->x;
    in.rank = 3, in.shape[0] = 1, in.shape[1] = rows_of(a), in.shape[2] = columns_of(a);
    in.stride[0] = 0, in.stride[1] = a->x.stride[0], in.stride[2] = 1;
    TRY(cuda_pieces_turn(x, tensor_view(turned, 1, columns_of(a), rows_of(a)), in));
    for (int i = 0; i < LINEAR_MANY_MAX && a->w[i]; i++) {
        TRY(linear_cuda_check(x, a->x, a->w[i], a->y[i]));
        TRY(product(x, a->y[i], turned, a->w[i]));
    }
    return cuda_launched(x, "linear_many");
}

#endif
