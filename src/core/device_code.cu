/* device_code.cu - see device_code.h: a kernel that does nothing, and what CUDA thinks of it. */
#include "core/device_code.h"

#include <cuda_runtime_api.h>

__global__ void k_device_code(void) {}

int device_code_probe(void) {
    cudaFuncAttributes attributes;
    cudaError_t code = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(k_device_code));
    cudaGetLastError(); /* said; nothing later should find it */
    return static_cast<int>(code);
}
