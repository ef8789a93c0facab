/* device.h - where memory lives: reserve, release, upload, download, uploads that run beside the computation, and
 * launches that are recorded and launched again as one. Nothing else of a device is visible above src/kernels.
 *
 * Three devices exist: cpu (anonymous memory, pages appear on first touch), dry (addresses that fault when
 * touched: the plan runs on them) and cuda. Not a stream or a kernel launcher: that is Exec's business.
 * Easy to get wrong: a Device outlives every arena on it; upload() is ordered with the computation, upload_start()
 * only by upload_wait(). */
#ifndef DEVICE_H
#define DEVICE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that are made on demand. make() writes bytes [at, at + size) of the range into host memory; any thread may call
 * it, for any piece and in any order, several at once. at is a multiple of FILL_ALIGN. */
enum { FILL_ALIGN = 4096 };
typedef struct Fill {
    void *to; /* on the device */
    size_t size;
    void (*make)(const void *source, size_t at, size_t size, void *out);
    const void *source; /* lives until upload_wait */
} Fill;

typedef uint64_t Ticket; /* an upload under way; 0: none */

typedef struct DeviceGraph DeviceGraph; /* recorded launches; only their device knows what it is */

/* Marks below DEVICE_PHASE_MARKS are for phases (bench.h), the others for ops (optimes.h). */
enum { DEVICE_PHASE_MARKS = 256, DEVICE_MARKS = 1 << 16 };

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
    /* Begins to fill a range beside the computation. It is written after everything that was launched before this call,
     * so that work may still be using it; until upload_wait its contents are undefined. */
    Status (*upload_start)(Device *d, const Fill *fill, Ticket *out, Error *e);
    /* What is launched from here on sees the bytes, and fill.source is no longer needed. Each ticket once. */
    Status (*upload_wait)(Device *d, Ticket t, Error *e);
    /* Bytes that reserve() could still get; SIZE_MAX: no limit but the machine's. */
    size_t (*room)(Device *d);
    /* Returns when everything that was launched has ended; ERR_DEVICE when something of it failed, now or earlier. NULL:
     * nothing is ever under way. */
    Status (*sync)(Device *d, Error *e);
    /* For timing: puts mark `slot` (0..DEVICE_MARKS-1, again and again) behind everything that was launched; the seconds that
     * the device took from one mark to another, when both have been reached. NULL: the host's clock tells as much. */
    Status (*mark)(Device *d, int slot, Error *e);
    Status (*elapsed)(Device *d, int from, int to, double *seconds, Error *e);
    /* Recording. What is launched between capture_begin and capture_end does not run: it is kept, and replay launches all of
     * it at once, any number of times, with the addresses that it was recorded with. Work that is under way goes on
     * meanwhile. In between nothing may wait for the device or move bytes between it and the host. capture_end ends the
     * recording in any case; out NULL: throws it away. ERR_DEVICE, ERR_MEMORY: there is no graph, and nothing ran.
     * graph_free waits for replays of it. NULL, all four: this device cannot. */
    Status (*capture_begin)(Device *d, Error *e);
    Status (*capture_end)(Device *d, DeviceGraph **out, Error *e);
    Status (*replay)(Device *d, DeviceGraph *g, Error *e);
    void (*graph_free)(Device *d, DeviceGraph *g);
    size_t granularity; /* ranges take a multiple of it; at least 1 */
    size_t held;        /* bytes beside all ranges: the driver's context, libraries; an estimate */
    bool maps;          /* ops read host memory: plain matrices can stay in their mapped files */
    void *state;
};

Device device_cpu(void);
Device device_dry(void);

#ifdef __cplusplus
}
#endif

#endif
