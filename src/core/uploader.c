/* uploader.c - see uploader.h.
 *
 * Order: uploader_start records a mark on the compute stream and lets the copy stream wait for it, so copies begin when
 * everything launched before has ended; that much is decided before any byte is made, and filling the pinned buffers runs
 * ahead of it. The event `done` of an upload stands behind its last copy, and uploader_wait lets the compute stream wait
 * for it. A copy that belongs to a later upload may stand before it, which delays, never harms. */
#include "core/uploader.h"

#ifdef HAVE_CUDA

#include "core/feeder.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_THREADS = 8, PIECE = 8 << 20, BUFFERS = MOST_THREADS * FEEDER_BUFFERS };

struct Uploader {
    int ordinal, threads;
    cudaStream_t compute, copy;
    char *pinned;                   /* threads * FEEDER_BUFFERS pieces */
    cudaEvent_t free_again[BUFFERS]; /* behind the copy out of each buffer */
    cudaEvent_t mark, done[FEEDER_QUEUE];
    Feeder *feeder;
};

static Status failed(Error *e, const char *what, cudaError_t code) {
    return fail(e, code == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE, "cuda: %s: %s", what, cudaGetErrorString(code));
}

#define CUDA_TRY(e, call)                                                                                \
    do {                                                                                                 \
        cudaError_t code_ = (call);                                                                      \
        if (code_ != cudaSuccess) return failed(e, #call, code_);                                        \
    } while (0)

/* --- in the feeder's threads --- */

static Status begin(void *user, Error *e) {
    Uploader *u = user;
    CUDA_TRY(e, cudaSetDevice(u->ordinal));
    return OK;
}

static Status ready(void *user, int buffer, Error *e) {
    Uploader *u = user;
    CUDA_TRY(e, cudaEventSynchronize(u->free_again[buffer])); /* success when it was never recorded */
    return OK;
}

static Status send(void *user, int buffer, void *to, size_t size, Error *e) {
    Uploader *u = user;
    CUDA_TRY(e, cudaMemcpyAsync(to, u->pinned + (size_t)buffer * PIECE, size, cudaMemcpyHostToDevice, u->copy));
    CUDA_TRY(e, cudaEventRecord(u->free_again[buffer], u->copy));
    return OK;
}

static Status sent(void *user, Ticket t, Error *e) {
    Uploader *u = user;
    CUDA_TRY(e, cudaEventRecord(u->done[t % FEEDER_QUEUE], u->copy));
    return OK;
}

/* --- */

static Status open_all(Uploader *u, Error *e) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    u->threads = cores / 2 < 1 ? 1 : cores / 2 > MOST_THREADS ? MOST_THREADS : (int)(cores / 2);
    int buffers = u->threads * FEEDER_BUFFERS;
    CUDA_TRY(e, cudaStreamCreateWithFlags(&u->copy, cudaStreamNonBlocking));
    CUDA_TRY(e, cudaHostAlloc((void **)&u->pinned, (size_t)buffers * PIECE, cudaHostAllocDefault));
    for (int i = 0; i < buffers; i++)
        CUDA_TRY(e, cudaEventCreateWithFlags(&u->free_again[i], cudaEventDisableTiming | cudaEventBlockingSync));
    for (int i = 0; i < FEEDER_QUEUE; i++) CUDA_TRY(e, cudaEventCreateWithFlags(&u->done[i], cudaEventDisableTiming));
    CUDA_TRY(e, cudaEventCreateWithFlags(&u->mark, cudaEventDisableTiming));
    FeederCalls calls = {.user = u, .begin = begin, .ready = ready, .send = send, .sent = sent};
    return feeder_open(u->threads, u->pinned, PIECE, &calls, &u->feeder, e);
}

Status uploader_open(int ordinal, void *compute, Uploader **out, Error *e) {
    *out = NULL;
    Uploader *u = calloc(1, sizeof *u);
    if (!u) return fail(e, ERR_MEMORY, "out of memory");
    u->ordinal = ordinal;
    u->compute = compute;
    Status s = open_all(u, e);
    if (s == OK) *out = u;
    else uploader_close(u);
    return s;
}

void uploader_close(Uploader *u) {
    if (!u) return;
    feeder_close(u->feeder);
    uploader_drain(u);
    for (int i = 0; i < BUFFERS; i++)
        if (u->free_again[i]) cudaEventDestroy(u->free_again[i]);
    for (int i = 0; i < FEEDER_QUEUE; i++)
        if (u->done[i]) cudaEventDestroy(u->done[i]);
    if (u->mark) cudaEventDestroy(u->mark);
    if (u->pinned) cudaFreeHost(u->pinned);
    if (u->copy) cudaStreamDestroy(u->copy);
    free(u);
}

Status uploader_start(Uploader *u, const Fill *fill, Ticket *out, Error *e) {
    CUDA_TRY(e, cudaEventRecord(u->mark, u->compute));
    CUDA_TRY(e, cudaStreamWaitEvent(u->copy, u->mark, 0)); /* the event's present record: mark may be recorded again */
    return feeder_start(u->feeder, fill, out, e);
}

Status uploader_wait(Uploader *u, Ticket t, Error *e) {
    TRY(feeder_wait(u->feeder, t, e));
    CUDA_TRY(e, cudaStreamWaitEvent(u->compute, u->done[t % FEEDER_QUEUE], 0));
    return OK;
}

void uploader_drain(Uploader *u) {
    if (u && u->copy) cudaStreamSynchronize(u->copy);
}

#endif
