/* cuda_libs.h - cuBLAS, cuBLASLt and cuDNN, looked up when first used.
 *
 * Nothing is linked: a CUDA build runs on machines without them, and the first op that needs one names the library
 * and the function that is missing. Only the functions listed here exist; add a line to use another.
 * Easy to get wrong: the sonames are the ABI that the headers of this build describe (cuBLAS 13, cuDNN 9). */
#ifndef KERNELS_CUDA_LIBS_H
#define KERNELS_CUDA_LIBS_H

#include "core/status.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cudnn_backend.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_LIBS_BLAS(X)                                                                                \
    X(cublasCreate_v2)                                                                                   \
    X(cublasDestroy_v2)                                                                                  \
    X(cublasSetStream_v2)                                                                                \
    X(cublasSetWorkspace_v2)                                                                             \
    X(cublasGetVersion_v2)                                                                               \
    X(cublasGetStatusName)                                                                               \
    X(cublasGemmEx)                                                                                      \
    X(cublasGemmStridedBatchedEx)                                                                        \
    X(cublasSgemmStridedBatched)
#define CUDA_LIBS_LT(X)                                                                                  \
    X(cublasLtCreate)                                                                                    \
    X(cublasLtDestroy)                                                                                   \
    X(cublasLtGetStatusName)                                                                             \
    X(cublasLtGetVersion)                                                                                \
    X(cublasLtMatmul)                                                                                    \
    X(cublasLtMatmulAlgoGetHeuristic)                                                                    \
    X(cublasLtMatmulAlgoCheck)                                                                           \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                              \
    X(cublasLtMatmulDescCreate)                                                                          \
    X(cublasLtMatmulDescDestroy)                                                                         \
    X(cublasLtMatmulDescSetAttribute)                                                                    \
    X(cublasLtMatrixLayoutCreate)                                                                        \
    X(cublasLtMatrixLayoutDestroy)                                                                       \
    X(cublasLtMatmulPreferenceCreate)                                                                    \
    X(cublasLtMatmulPreferenceDestroy)                                                                   \
    X(cublasLtMatmulPreferenceSetAttribute)
#define CUDA_LIBS_DNN(X)                                                                                 \
    X(cudnnCreate)                                                                                       \
    X(cudnnDestroy)                                                                                      \
    X(cudnnSetStream)                                                                                    \
    X(cudnnGetVersion)                                                                                   \
    X(cudnnGetErrorString)                                                                               \
    X(cudnnGetLastErrorString)                                                                           \
    X(cudnnBackendCreateDescriptor)                                                                      \
    X(cudnnBackendDestroyDescriptor)                                                                     \
    X(cudnnBackendSetAttribute)                                                                          \
    X(cudnnBackendGetAttribute)                                                                          \
    X(cudnnBackendFinalize)                                                                              \
    X(cudnnBackendExecute)

typedef struct CudaLibs {
    void *blas, *lt, *dnn; /* dlopen handles, NULL until used */
#ifdef __cplusplus /* kernels call no library; overloads in the C++ headers would make &name ambiguous */
#define X(name) void (*name##_)(void);
#else
#define X(name) __typeof__(&name) name##_;
#endif
    CUDA_LIBS_BLAS(X) CUDA_LIBS_LT(X) CUDA_LIBS_DNN(X)
#undef X
} CudaLibs;

/* Loads one library and all its functions; a second call is free. ERR_DEVICE names what is missing. */
Status cuda_libs_blas(CudaLibs *l, Error *e);
Status cuda_libs_lt(CudaLibs *l, Error *e);
Status cuda_libs_dnn(CudaLibs *l, Error *e);
void cuda_libs_close(CudaLibs *l);

#ifdef __cplusplus
}
#endif

#endif
