/* gpu_busy.c - a library that the CUDA driver loads into a program to write down when its kernels and copies ran.
 *
 *   cc -shared -fPIC -O2 -I CUPTI/include -I CUDA/include -o gpu_busy.so tests/gpu_busy.c -L CUPTI/lib -l:libcupti.so.13
 *   CUDA_INJECTION64_PATH=./gpu_busy.so GPU_BUSY=times.txt ditto batch ...
 *
 * times.txt: a line an interval, "k START END" for kernels and "c START END" for copies and fills, in nanoseconds of the clock
 * that a batch's report has its window in (CLOCK_MONOTONIC), in no order. scripts/bench_batch.py reads both. Not part of any
 * build: it needs CUPTI's header, which comes with the toolkit or with PyTorch.
 * Easy to get wrong: kernels inside a replayed graph are recorded one by one, which costs the program some of its speed. */
#include <cupti_activity.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BUFFER_BYTES = 8 << 20 };

static FILE *times;

static uint64_t CUPTIAPI now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void CUPTIAPI give(uint8_t **buffer, size_t *size, size_t *records) {
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *records = 0;
}

static void note(const CUpti_Activity *record) {
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const CUpti_ActivityKernel9 *k = (const void *)record; /* later forms begin alike */
        fprintf(times, "k %llu %llu\n", (unsigned long long)k->start, (unsigned long long)k->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const CUpti_ActivityMemcpy5 *c = (const void *)record;
        fprintf(times, "c %llu %llu\n", (unsigned long long)c->start, (unsigned long long)c->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
        const CUpti_ActivityMemset4 *c = (const void *)record;
        fprintf(times, "c %llu %llu\n", (unsigned long long)c->start, (unsigned long long)c->end);
        break;
    }
    default: break;
    }
}

static void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    CUpti_Activity *record = NULL;
    while (times && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) note(record);
    free(buffer);
}

static void finish(void) {
    cuptiActivityFlushAll(1);
    if (times) fclose(times);
    times = NULL;
}

int InitializeInjection(void);
int InitializeInjection(void) {
    const char *path = getenv("GPU_BUSY");
    times = path ? fopen(path, "w") : NULL;
    if (!times) return 1;
    cuptiActivityRegisterTimestampCallback(now);
    cuptiActivityRegisterCallbacks(give, take);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
    atexit(finish);
    return 1;
}
