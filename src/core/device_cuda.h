/* device_cuda.h - the cuda device: one GPU, its memory, its stream.
 *
 * The runtime is linked statically and the driver is looked up at run time, so a CUDA build runs on machines without
 * a driver and says what is missing when --device cuda asks for it. Libraries (cuBLASLt, cuDNN) are kernels' business.
 * Memory ranges are reserved once and their pages mapped and unmapped (discard, commit), so addresses survive
 * eviction. Easy to get wrong: uploads and kernels share one stream; a download waits for it. */
#ifndef DEVICE_CUDA_H
#define DEVICE_CUDA_H

#include "core/device.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudaInfo {
    char name[128];      /* "NVIDIA H200" */
    int sm;              /* 90 for compute capability 9.0 */
    int sm_count;
    int driver, runtime; /* 13000 for 13.0 */
    size_t free, total;  /* bytes of device memory at the time of the call */
    size_t mapped, mapped_peak; /* of them in this device's ranges: now, and the most so far */
} CudaInfo;

/* ERR_DEVICE names what is missing: CUDA in this build, the driver, a GPU, or code for the GPU found. */
Status device_cuda_open(Device *out, Error *e);
void device_cuda_close(Device *d);
/* What GPUs this program holds code for: "sm_90a,sm_80,compute_80", or "no GPU". */
const char *device_cuda_built(void);
/* GPUs that this process may see, without touching one. ERR_DEVICE as above. */
Status device_cuda_count(int *count, Error *e);
/* False when d is not an open cuda device. */
bool device_cuda_info(const Device *d, CudaInfo *out);
/* The stream (a cudaStream_t) that everything on this device is ordered by. */
void *device_cuda_stream(const Device *d);

#ifdef __cplusplus
}
#endif

#endif
