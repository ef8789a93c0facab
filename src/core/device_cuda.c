/* device_cuda.c - see device_cuda.h. Without HAVE_CUDA only the refusal is left.
 *
 * Ranges come from the driver's virtual memory calls: reserve an address range, create physical memory in chunks, map
 * it. The driver entry points are fetched through the runtime, so no libcuda is linked. */
#include "core/device_cuda.h"

#ifndef HAVE_CUDA

Status device_cuda_open(Device *out, Error *e) {
    (void)out;
    return fail(e, ERR_DEVICE, "--device cuda: this ditto was built without CUDA; rebuild where nvcc is installed");
}
void device_cuda_close(Device *d) { (void)d; }
const char *device_cuda_built(void) { return "no GPU"; }
Status device_cuda_count(int *count, Error *e) {
    *count = 0;
    return device_cuda_open(NULL, e);
}
bool device_cuda_info(const Device *d, CudaInfo *out) {
    (void)d, (void)out;
    return false;
}
void *device_cuda_stream(const Device *d) {
    (void)d;
    return NULL;
}

#else

#include "core/device_code.h"
#include "core/uploader.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGING = 2, STAGING_BYTES = 32 << 20 };

/* Estimates. HELD: the driver's context and what cuBLASLt, cuDNN and the kernels load in the end. MARGIN: what of that is
 * yet to come when the device was just opened. */
static const size_t HELD = (size_t)1 << 30, MARGIN = (size_t)512 << 20;

typedef struct Range {
    CUdeviceptr address;
    size_t size;
    CUmemGenericAllocationHandle memory; /* valid while mapped */
    bool mapped;
    struct Range *next;
} Range;

typedef struct CudaDevice {
    int ordinal;
    size_t granularity;
    cudaStream_t stream;
    void *staging[STAGING];
    cudaEvent_t staged[STAGING];
    cudaEvent_t mark[DEVICE_MARKS]; /* made when first used */
    Uploader *uploader; /* opened by the first upload_start */
    Range *ranges;
    size_t mapped, mapped_peak;
    CUresult (*address_reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*address_free)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*granularity_of)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
} CudaDevice;

static CudaDevice *state_of(const Device *d) { return d->state; } /* NULL on any other device */

static Status cuda_fail(Error *e, const char *what, cudaError_t code) {
    Status s = code == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE;
    return fail(e, s, "cuda: %s: %s", what, cudaGetErrorString(code));
}

#define CUDA_TRY(e, call)                                                                                \
    do {                                                                                                 \
        cudaError_t code_ = (call);                                                                      \
        if (code_ != cudaSuccess) return cuda_fail(e, #call, code_);                                     \
    } while (0)

static CUmemAllocationProp properties(const CudaDevice *c) {
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = c->ordinal;
    return p;
}

static Status map_range(CudaDevice *c, Range *r, Error *e) {
    CUmemAllocationProp p = properties(c);
    CUmemAccessDesc access = {.location = p.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult code = c->create(&r->memory, r->size, &p, 0);
    if (code == CUDA_SUCCESS) {
        code = c->map(r->address, r->size, 0, r->memory, 0);
        if (code == CUDA_SUCCESS && (code = c->access(r->address, r->size, &access, 1)) != CUDA_SUCCESS)
            c->unmap(r->address, r->size);
        if (code != CUDA_SUCCESS) c->release(r->memory);
    }
    r->mapped = code == CUDA_SUCCESS;
    if (r->mapped) {
        c->mapped += r->size;
        if (c->mapped > c->mapped_peak) c->mapped_peak = c->mapped;
        return OK;
    }
    size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    return fail(e, ERR_MEMORY, "out of device memory: need %.2f GiB, %.2f of %.2f GiB are free (driver error %d)",
                (double)r->size / 0x1p30, (double)free_bytes / 0x1p30, (double)total / 0x1p30, (int)code);
}

static void unmap_range(CudaDevice *c, Range *r) {
    if (!r->mapped) return;
    c->unmap(r->address, r->size);
    c->release(r->memory);
    c->mapped -= r->size;
    r->mapped = false;
}

static Range **find_range(CudaDevice *c, const void *address) {
    Range **at = &c->ranges;
    while (*at && (*at)->address != (CUdeviceptr)(uintptr_t)address) at = &(*at)->next;
    return at;
}

static Status cuda_reserve(Device *d, size_t size, void **out, Error *e) {
    CudaDevice *c = state_of(d);
    *out = NULL;
    if (!size) return OK;
    Range *r = calloc(1, sizeof *r);
    if (!r) return fail(e, ERR_MEMORY, "out of memory");
    r->size = (size + c->granularity - 1) / c->granularity * c->granularity;
    CUresult code = c->address_reserve(&r->address, r->size, 0, 0, 0);
    Status s = code == CUDA_SUCCESS ? map_range(c, r, e)
                                    : fail(e, ERR_MEMORY, "cuda: cannot reserve %zu bytes of addresses (%d)", size, (int)code);
    if (s != OK) {
        if (code == CUDA_SUCCESS) c->address_free(r->address, r->size);
        free(r);
        return s;
    }
    r->next = c->ranges;
    c->ranges = r;
    *out = (void *)(uintptr_t)r->address;
    return OK;
}

static void cuda_release(Device *d, void *address, size_t size) {
    (void)size;
    CudaDevice *c = state_of(d);
    Range **at = find_range(c, address), *r = *at;
    if (!r) return;
    uploader_drain(c->uploader);
    cudaStreamSynchronize(c->stream);
    unmap_range(c, r);
    c->address_free(r->address, r->size);
    *at = r->next;
    free(r);
}

static void cuda_discard(Device *d, void *address, size_t size) {
    (void)size;
    CudaDevice *c = state_of(d);
    Range *r = *find_range(c, address);
    if (!r) return;
    uploader_drain(c->uploader);
    cudaStreamSynchronize(c->stream);
    unmap_range(c, r);
}

static Status cuda_commit(Device *d, void *address, size_t size, Error *e) {
    (void)size;
    CudaDevice *c = state_of(d);
    Range *r = *find_range(c, address);
    return !r || r->mapped ? OK : map_range(c, r, e);
}

/* Large copies run through two pinned buffers: the host fills one while the other is on its way. */
static Status cuda_upload(Device *d, void *to, const void *from, size_t size, Error *e) {
    CudaDevice *c = state_of(d);
    for (size_t at = 0, turn = 0; at < size; at += STAGING_BYTES, turn ^= 1) {
        size_t n = size - at < STAGING_BYTES ? size - at : STAGING_BYTES;
        CUDA_TRY(e, cudaEventSynchronize(c->staged[turn]));
        memcpy(c->staging[turn], (const char *)from + at, n);
        CUDA_TRY(e, cudaMemcpyAsync((char *)to + at, c->staging[turn], n, cudaMemcpyHostToDevice, c->stream));
        CUDA_TRY(e, cudaEventRecord(c->staged[turn], c->stream));
    }
    return OK;
}

static Status cuda_download(Device *d, void *to, const void *from, size_t size, Error *e) {
    CudaDevice *c = state_of(d);
    if (size) CUDA_TRY(e, cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToHost, c->stream));
    CUDA_TRY(e, cudaStreamSynchronize(c->stream));
    return OK;
}

static Status cuda_upload_start(Device *d, const Fill *fill, Ticket *out, Error *e) {
    CudaDevice *c = state_of(d);
    if (!c->uploader) TRY(uploader_open(c->ordinal, c->stream, &c->uploader, e));
    return uploader_start(c->uploader, fill, out, e);
}

static Status cuda_upload_wait(Device *d, Ticket t, Error *e) { return uploader_wait(state_of(d)->uploader, t, e); }

static size_t cuda_room(Device *d) {
    (void)d;
    size_t free_bytes = 0, total = 0;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) return 0;
    return free_bytes > MARGIN ? free_bytes - MARGIN : 0;
}

static Status cuda_sync(Device *d, Error *e) {
    CUDA_TRY(e, cudaStreamSynchronize(state_of(d)->stream));
    return OK;
}

static Status cuda_mark(Device *d, int slot, Error *e) {
    CudaDevice *c = state_of(d);
    if (!c->mark[slot]) CUDA_TRY(e, cudaEventCreate(&c->mark[slot]));
    CUDA_TRY(e, cudaEventRecord(c->mark[slot], c->stream));
    return OK;
}

static Status cuda_elapsed(Device *d, int from, int to, double *seconds, Error *e) {
    CudaDevice *c = state_of(d);
    float ms = 0;
    CUDA_TRY(e, cudaEventSynchronize(c->mark[to]));
    CUDA_TRY(e, cudaEventElapsedTime(&ms, c->mark[from], c->mark[to]));
    *seconds = (double)ms * 1e-3;
    return OK;
}

/* --- recording --- */

/* Of this thread alone: those of the uploader may call what they like meanwhile. */
static Status cuda_capture_begin(Device *d, Error *e) {
    CUDA_TRY(e, cudaStreamBeginCapture(state_of(d)->stream, cudaStreamCaptureModeThreadLocal));
    return OK;
}

/* Its memory is taken now, by the upload, so that a replay cannot fail for want of it. */
static Status cuda_capture_end(Device *d, DeviceGraph **out, Error *e) {
    CudaDevice *c = state_of(d);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    const char *what = "cudaStreamEndCapture";
    cudaError_t code = cudaStreamEndCapture(c->stream, &graph);
    if (code == cudaSuccess && out) {
        what = "cudaGraphInstantiate";
        code = cudaGraphInstantiate(&exec, graph, 0);
        if (code == cudaSuccess) {
            what = "cudaGraphUpload";
            code = cudaGraphUpload(exec, c->stream);
        }
    }
    if (graph) cudaGraphDestroy(graph);
    if (code != cudaSuccess && exec) cudaGraphExecDestroy(exec);
    if (out) *out = code == cudaSuccess ? (DeviceGraph *)(void *)exec : NULL;
    if (code == cudaSuccess) return OK;
    cudaGetLastError(); /* a recording that failed is no fault of what is launched next */
    return cuda_fail(e, what, code);
}

static Status cuda_replay(Device *d, DeviceGraph *g, Error *e) {
    CUDA_TRY(e, cudaGraphLaunch((cudaGraphExec_t)(void *)g, state_of(d)->stream));
    return OK;
}

static void cuda_graph_free(Device *d, DeviceGraph *g) {
    cudaStreamSynchronize(state_of(d)->stream);
    cudaGraphExecDestroy((cudaGraphExec_t)(void *)g);
}

/* --- opening --- */

#define WORDS(...) #__VA_ARGS__
#define IN_WORDS(...) WORDS(__VA_ARGS__)
const char *device_cuda_built(void) { return IN_WORDS(DEVICE_CODE); } /* of the Makefile */

static Status check_code(const CudaDevice *c, int sm, Error *e) {
    struct cudaDeviceProp p;
    int code = device_code_probe();
    if (!code) return OK;
    if (cudaGetDeviceProperties(&p, c->ordinal) != cudaSuccess) snprintf(p.name, sizeof p.name, "a GPU");
    return device_code_judge(code, cudaGetErrorString((cudaError_t)code), p.name, sm, device_cuda_built(), e);
}

static Status entry(const char *name, void *out, Error *e) {
    enum cudaDriverEntryPointQueryResult found;
    cudaError_t code = cudaGetDriverEntryPointByVersion(name, (void **)out, 12000, cudaEnableDefault, &found);
    if (code == cudaSuccess && found == cudaDriverEntryPointSuccess) return OK;
    return fail(e, ERR_DEVICE, "cuda: the driver has no %s: it is too old", name);
}

Status device_cuda_count(int *count, Error *e) {
    *count = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) return fail(e, ERR_DEVICE, "--device cuda: no NVIDIA driver here (libcuda.so.1 is missing)");
    cudaError_t code = cudaGetDeviceCount(count);
    if (code == cudaErrorInsufficientDriver) {
        int have = 0;
        cudaDriverGetVersion(&have);
        return fail(e, ERR_DEVICE, "--device cuda: the driver supports CUDA %d.%d, this ditto needs %d.%d", have / 1000,
                    have % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    if (code == cudaSuccess && *count) return OK;
    return fail(e, ERR_DEVICE, "--device cuda: no GPU found (%s)", cudaGetErrorString(code));
}

static Status open_state(CudaDevice *c, Error *e) {
    int count, sm_major = 0, sm_minor = 0;
    TRY(device_cuda_count(&count, e));
    CUDA_TRY(e, cudaSetDevice(c->ordinal));
    CUDA_TRY(e, cudaDeviceGetAttribute(&sm_major, cudaDevAttrComputeCapabilityMajor, c->ordinal));
    CUDA_TRY(e, cudaDeviceGetAttribute(&sm_minor, cudaDevAttrComputeCapabilityMinor, c->ordinal));
    if (sm_major < 8)
        return fail(e, ERR_DEVICE, "--device cuda: this GPU has compute capability %d.%d, 8.0 or newer is needed", sm_major,
                    sm_minor);
    TRY(check_code(c, 10 * sm_major + sm_minor, e));
    CUDA_TRY(e, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    for (int i = 0; i < STAGING; i++) {
        CUDA_TRY(e, cudaHostAlloc(&c->staging[i], STAGING_BYTES, cudaHostAllocDefault));
        CUDA_TRY(e, cudaEventCreateWithFlags(&c->staged[i], cudaEventDisableTiming));
    }
    const struct { const char *name; void *out; } calls[] = {
        {"cuMemAddressReserve", &c->address_reserve}, {"cuMemAddressFree", &c->address_free}, {"cuMemCreate", &c->create},
        {"cuMemRelease", &c->release}, {"cuMemMap", &c->map}, {"cuMemUnmap", &c->unmap}, {"cuMemSetAccess", &c->access},
        {"cuMemGetAllocationGranularity", &c->granularity_of},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) TRY(entry(calls[i].name, calls[i].out, e));
    CUmemAllocationProp p = properties(c);
    if (c->granularity_of(&c->granularity, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS)
        return fail(e, ERR_DEVICE, "cuda: the driver does not tell its memory granularity");
    return OK;
}

Status device_cuda_open(Device *out, Error *e) {
    CudaDevice *c = calloc(1, sizeof *c);
    if (!c) return fail(e, ERR_MEMORY, "out of memory");
    *out = (Device){.name = "cuda", .reserve = cuda_reserve, .release = cuda_release, .upload = cuda_upload,
                    .download = cuda_download, .discard = cuda_discard, .commit = cuda_commit,
                    .upload_start = cuda_upload_start, .upload_wait = cuda_upload_wait, .room = cuda_room, .sync = cuda_sync,
                    .mark = cuda_mark, .elapsed = cuda_elapsed, .capture_begin = cuda_capture_begin,
                    .capture_end = cuda_capture_end, .replay = cuda_replay, .graph_free = cuda_graph_free,
                    .held = HELD, .granularity = 1, .state = c};
    Status s = open_state(c, e);
    out->granularity = c->granularity;
    if (s != OK) device_cuda_close(out);
    return s;
}

void device_cuda_close(Device *d) {
    CudaDevice *c = state_of(d);
    if (!c) return;
    uploader_close(c->uploader);
    c->uploader = NULL;
    while (c->ranges) cuda_release(d, (void *)(uintptr_t)c->ranges->address, 0);
    for (int i = 0; i < STAGING; i++) {
        if (c->staged[i]) cudaEventDestroy(c->staged[i]);
        if (c->staging[i]) cudaFreeHost(c->staging[i]);
    }
    for (int i = 0; i < DEVICE_MARKS; i++)
        if (c->mark[i]) cudaEventDestroy(c->mark[i]);
    if (c->stream) cudaStreamDestroy(c->stream);
    free(c);
    *d = (Device){0};
}

bool device_cuda_info(const Device *d, CudaInfo *out) {
    *out = (CudaInfo){0};
    if (!d->state || strcmp(d->name, "cuda")) return false;
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, state_of(d)->ordinal) != cudaSuccess) return false;
    memcpy(out->name, p.name, sizeof out->name - 1);
    out->sm = 10 * p.major + p.minor;
    out->sm_count = p.multiProcessorCount;
    out->mapped = state_of(d)->mapped, out->mapped_peak = state_of(d)->mapped_peak;
    cudaDriverGetVersion(&out->driver);
    cudaRuntimeGetVersion(&out->runtime);
    return cudaMemGetInfo(&out->free, &out->total) == cudaSuccess;
}

void *device_cuda_stream(const Device *d) { return d->state && !strcmp(d->name, "cuda") ? state_of(d)->stream : NULL; }

#endif
