/* cuda.c - see cuda.h. */
#include "kernels/cuda.h"

#ifndef HAVE_CUDA

Status cuda_open(Device *d, Cuda **out, Error *e) {
    (void)d;
    *out = NULL;
    return fail(e, ERR_DEVICE, "this ditto was built without CUDA");
}
void cuda_close(Cuda *c) { (void)c; }
Status cuda_versions(Cuda *c, CudaVersions *out, Error *e) {
    (void)c;
    *out = (CudaVersions){0};
    return fail(e, ERR_DEVICE, "this ditto was built without CUDA");
}

#else

#include "core/device_cuda.h"
#include "kernels/cuda_plans.h"
#include "kernels/cuda_prepare.h"
#include "kernels/tune_cuda.h"

#include <stdio.h>
#include <stdlib.h>

Status cuda_open(Device *d, Cuda **out, Error *e) {
    *out = NULL;
    CudaInfo info;
    if (!device_cuda_info(d, &info)) return fail(e, ERR_DEVICE, "cuda: no open device");
    Cuda *c = calloc(1, sizeof *c);
    if (!c) return fail(e, ERR_MEMORY, "out of memory");
    c->stream = device_cuda_stream(d);
    c->sm = info.sm;
    c->sm_count = info.sm_count;
    cudaError_t code = cudaMalloc(&c->workspace, CUDA_BLAS_WORKSPACE);
    Status s = code == cudaSuccess ? cuda_plans_open(&c->plans, e)
                                   : fail(e, ERR_MEMORY, "cuda: library workspace: %s", cudaGetErrorString(code));
    if (s == OK) *out = c;
    else cuda_close(c);
    return s;
}

void cuda_close(Cuda *c) {
    if (!c) return;
    cuda_prepare_stop(c);
    if (c->stream) cudaStreamSynchronize(c->stream);
    if (c->plans) cuda_plans_close(c, c->plans);
    cuda_prepare_close(c);
    tune_cuda_close(c);
    if (c->blas) c->libs.cublasDestroy_v2_(c->blas);
    if (c->lt) c->libs.cublasLtDestroy_(c->lt);
    if (c->dnn) c->libs.cudnnDestroy_(c->dnn);
    if (c->workspace) cudaFree(c->workspace);
    cuda_libs_close(&c->libs);
    free(c);
}

Status cuda_need_blas(Cuda *c, Error *e) {
    if (c->blas) return OK;
    TRY(cuda_libs_blas(&c->libs, e));
    cublasStatus_t code = c->libs.cublasCreate_v2_(&c->blas);
    if (code == CUBLAS_STATUS_SUCCESS) code = c->libs.cublasSetStream_v2_(c->blas, c->stream);
    if (code == CUBLAS_STATUS_SUCCESS) code = c->libs.cublasSetWorkspace_v2_(c->blas, c->workspace, CUDA_BLAS_WORKSPACE);
    return code == CUBLAS_STATUS_SUCCESS ? OK : fail(e, ERR_DEVICE, "cuBLAS: cannot start (status %d)", (int)code);
}

Status cuda_need_lt(Cuda *c, Error *e) {
    if (c->lt) return OK;
    TRY(cuda_libs_lt(&c->libs, e));
    cublasStatus_t code = c->libs.cublasLtCreate_(&c->lt);
    return code == CUBLAS_STATUS_SUCCESS ? OK : fail(e, ERR_DEVICE, "cuBLASLt: cannot start (status %d)", (int)code);
}

Status cuda_need_dnn(Cuda *c, Error *e) {
    if (c->dnn) return OK;
    TRY(cuda_libs_dnn(&c->libs, e));
    cudnnStatus_t code = c->libs.cudnnCreate_(&c->dnn);
    if (code == CUDNN_STATUS_SUCCESS) code = c->libs.cudnnSetStream_(c->dnn, c->stream);
    return code == CUDNN_STATUS_SUCCESS ? OK : fail(e, ERR_DEVICE, "cuDNN: cannot start: %s", c->libs.cudnnGetErrorString_(code));
}

Status cuda_versions(Cuda *c, CudaVersions *out, Error *e) {
    *out = (CudaVersions){0};
    TRY(cuda_libs_lt(&c->libs, e));
    TRY(cuda_libs_dnn(&c->libs, e));
    *out = (CudaVersions){.cublas = (int)c->libs.cublasLtGetVersion_(), .cudnn = (int)c->libs.cudnnGetVersion_()};
    return OK;
}

bool cuda_takes_weight(const Weight *w, DType t, char *why, size_t size) {
    const char *name = w->name ? w->name : "weight";
    if (w->scale.rank || w->lora) snprintf(why, size, "%s: no scales or LoRA on the CUDA table yet", name);
    else if (w->w.dtype != t || w->round != t || (w->bias.rank && w->bias.dtype != t))
        snprintf(why, size, "%s: weight %s rounded to %s, bias %s: expected %s as x", name, dtype_name(w->w.dtype),
                 dtype_name(w->round), w->bias.rank ? dtype_name(w->bias.dtype) : "none", dtype_name(t));
    else return true;
    return false;
}

Status cuda_launched(Exec *x, const char *op) {
    cudaError_t code = cudaGetLastError();
    return code == cudaSuccess ? OK : fail(x->error, ERR_DEVICE, "%s: launch failed: %s", op, cudaGetErrorString(code));
}

#endif
