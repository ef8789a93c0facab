/* cuda.h - what the CUDA table's implementations share: the stream, the card, library handles and their workspace.
 *
 * Includable from C and CUDA C++. Without HAVE_CUDA only the opening functions remain, and refuse.
 * Easy to get wrong: everything runs on one stream; the workspaces are shared by all calls because of that. */
#ifndef KERNELS_CUDA_H
#define KERNELS_CUDA_H

#include "ops.h"

#ifdef HAVE_CUDA
#include "kernels/cuda_libs.h"

#include <cuda_runtime_api.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Cuda Cuda;

void ops_cuda(Ops *ops); /* the CUDA table; without HAVE_CUDA empty */
/* The context of an open cuda device. Library handles are made when first needed; each names what is missing. */
Status cuda_open(Device *d, Cuda **out, Error *e);
void cuda_close(Cuda *c); /* NULL is fine */

/* Of the libraries as loaded, not as built with: major * 10000 + minor * 100 + patch. Loads them. */
typedef struct CudaVersions { int cublas, cudnn; } CudaVersions;
Status cuda_versions(Cuda *c, CudaVersions *out, Error *e);

#ifdef HAVE_CUDA

/* What PyTorch grants, and with it the bits: split-K choices depend on it. */
enum { CUDA_LT_WORKSPACE = 1 << 20, CUDA_BLAS_WORKSPACE = 32 << 20 };

typedef struct CudaPlans CudaPlans; /* library plans by signature: kernels/cuda_plans.h */

struct Cuda {
    cudaStream_t stream;
    int sm, sm_count;
    CudaLibs libs;
    cublasHandle_t blas;
    cublasLtHandle_t lt;
    cudnnHandle_t dnn;
    void *workspace; /* CUDA_BLAS_WORKSPACE bytes */
    CudaPlans *plans;
    struct CudaPrepare *prepare; /* kernels/cuda_prepare.h: plans on their way; NULL: none yet */
    struct Tune *tune; /* tune_cuda.h; NULL: no product is tuned */
    bool takes_all;    /* tests: variants take all calls that they can take, whether they pay or not */
};

Status cuda_need_blas(Cuda *c, Error *e);
Status cuda_need_lt(Cuda *c, Error *e);
Status cuda_need_dnn(Cuda *c, Error *e);

/* Is w plain, and stored, rounded and biased in t? On a GPU weights are in the compute dtype. Else `why` says what it is. */
bool cuda_takes_weight(const struct Weight *w, DType t, char *why, size_t size);

/* After a launch: ERR_DEVICE naming the op when the launch failed. */
Status cuda_launched(Exec *x, const char *op);

#endif

#ifdef __cplusplus
}
#endif
#endif
