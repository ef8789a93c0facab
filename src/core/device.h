/* device.h - where memory lives: reserve, release, upload, download. Nothing else of a device is visible above
 * src/kernels.
 *
 * Three devices exist: cpu (anonymous memory, pages appear on first touch), dry (addresses that fault when
 * touched: the plan runs on them) and cuda. Not a stream or a kernel launcher: that is Exec's business.
 * Easy to get wrong: a Device is owned by main and outlives every arena on it. */
#ifndef DEVICE_H
#define DEVICE_H

#include "core/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Device Device;
struct Device {
    const char *name; /* "cpu", "dry", "cuda" */
    /* Reserves an address range; pages are committed on use. ERR_MEMORY names the size. */
    Status (*reserve)(Device *d, size_t size, void **out, Error *e);
    void (*release)(Device *d, void *address, size_t size);
    Status (*upload)(Device *d, void *to, const void *from_host, size_t size, Error *e);
    Status (*download)(Device *d, void *to_host, const void *from, size_t size, Error *e);
    /* Gives the pages of an unused range back; the addresses stay reserved. */
    void (*discard)(Device *d, void *address, size_t size);
    /* Brings them back, with undefined contents. The whole range that reserve() gave, in both. */
    Status (*commit)(Device *d, void *address, size_t size, Error *e);
    void *state;
};

Device device_cpu(void);
Device device_dry(void);

#ifdef __cplusplus
}
#endif

#endif
