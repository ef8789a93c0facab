/* device.c - the cpu and the dry device of device.h. */
#include "core/device.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static Status map(size_t size, int protection, void **out, Error *e) {
    *out = NULL;
    if (!size) return OK;
    void *p = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return fail(e, ERR_MEMORY, "out of memory: cannot reserve %zu bytes: %s", size, strerror(errno));
    *out = p;
    return OK;
}

static Status cpu_reserve(Device *d, size_t size, void **out, Error *e) {
    (void)d;
    return map(size, PROT_READ | PROT_WRITE, out, e);
}

/* Addresses that no machine maps: a touch faults, and nothing is asked of the system, whatever its limits. */
static Status dry_reserve(Device *d, size_t size, void **out, Error *e) {
    (void)e;
    *out = size ? (void *)(((uintptr_t)1 << 62) + (uintptr_t)d->state) : NULL;
    d->state = (void *)((uintptr_t)d->state + size);
    return OK;
}

static void dry_release(Device *d, void *address, size_t size) { (void)d, (void)address, (void)size; }

static void cpu_release(Device *d, void *address, size_t size) {
    (void)d;
    if (address) munmap(address, size);
}

static Status cpu_copy(Device *d, void *to, const void *from, size_t size, Error *e) {
    (void)d, (void)e;
    if (size) memcpy(to, from, size);
    return OK;
}

static Status dry_copy(Device *d, void *to, const void *from, size_t size, Error *e) {
    (void)d, (void)to, (void)from, (void)size, (void)e;
    return OK;
}

static void cpu_discard(Device *d, void *address, size_t size) {
    (void)d;
    if (size) madvise(address, size, MADV_DONTNEED);
}

static void dry_discard(Device *d, void *address, size_t size) { (void)d, (void)address, (void)size; }

static Status no_commit(Device *d, void *address, size_t size, Error *e) {
    (void)d, (void)address, (void)size, (void)e;
    return OK;
}

static Status cpu_upload_start(Device *d, const Fill *fill, Ticket *out, Error *e) {
    (void)d, (void)e;
    if (fill->size) fill->make(fill->source, 0, fill->size, fill->to);
    *out = 0;
    return OK;
}

static Status dry_upload_start(Device *d, const Fill *fill, Ticket *out, Error *e) {
    (void)d, (void)fill, (void)e;
    *out = 0;
    return OK;
}

static Status no_wait(Device *d, Ticket t, Error *e) {
    (void)d, (void)t, (void)e;
    return OK;
}

static size_t no_limit(Device *d) {
    (void)d;
    return SIZE_MAX;
}

Device device_cpu(void) {
    return (Device){.name = "cpu", .reserve = cpu_reserve, .release = cpu_release, .upload = cpu_copy,
                    .download = cpu_copy, .discard = cpu_discard, .commit = no_commit, .upload_start = cpu_upload_start,
                    .upload_wait = no_wait, .room = no_limit, .granularity = 1, .maps = true};
}

Device device_dry(void) {
    return (Device){.name = "dry", .reserve = dry_reserve, .release = dry_release, .upload = dry_copy,
                    .download = dry_copy, .discard = dry_discard, .commit = no_commit, .upload_start = dry_upload_start,
                    .upload_wait = no_wait, .room = no_limit, .granularity = 1, .maps = true};
}
