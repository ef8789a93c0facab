/* cuda_libs.c - see cuda_libs.h. */
#include "kernels/cuda.h"

#ifdef HAVE_CUDA

#include "kernels/cuda_libs.h"

#include <dlfcn.h>
#include <string.h>

typedef struct Symbol { const char *name; void *slot; } Symbol;

static Status load(void **handle, const char *soname, const char *package, const Symbol *symbols, int count, Error *e) {
    if (*handle) return OK;
    void *h = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (!h) return fail(e, ERR_DEVICE, "--device cuda: %s is missing (%s): %s", soname, package, dlerror());
    for (int i = 0; i < count; i++) {
        void *f = dlsym(h, symbols[i].name);
        if (!f) {
            dlclose(h);
            return fail(e, ERR_DEVICE, "--device cuda: %s has no %s: it is too old", soname, symbols[i].name);
        }
        memcpy(symbols[i].slot, &f, sizeof f);
    }
    *handle = h;
    return OK;
}

#define X(function) {#function, &l->function##_},
#define LOAD(handle, soname, package, list)                                                              \
    const Symbol symbols[] = {list(X)};                                                                  \
    return load(&l->handle, soname, package, symbols, (int)(sizeof symbols / sizeof *symbols), e)

Status cuda_libs_blas(CudaLibs *l, Error *e) { LOAD(blas, "libcublas.so.13", "cuBLAS of CUDA 13", CUDA_LIBS_BLAS); }
Status cuda_libs_lt(CudaLibs *l, Error *e) { LOAD(lt, "libcublasLt.so.13", "cuBLAS of CUDA 13", CUDA_LIBS_LT); }
Status cuda_libs_dnn(CudaLibs *l, Error *e) { LOAD(dnn, "libcudnn.so.9", "cuDNN 9", CUDA_LIBS_DNN); }

void cuda_libs_close(CudaLibs *l) {
    void *handles[] = {l->blas, l->lt, l->dnn};
    for (int i = 0; i < 3; i++)
        if (handles[i]) dlclose(handles[i]);
    memset(l, 0, sizeof *l);
}

#endif
