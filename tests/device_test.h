/* device_test.h - a device over host memory that is stricter than a GPU: it has a limit, counts what is committed, makes
 * memory unreadable while it is discarded, and fills whatever is undefined with NaN. For tests only.
 *
 * An upload that was started poisons its range at once and delivers the bytes in upload_wait, in pieces from the end to the
 * beginning: reading too early, overwriting what is in use, and forgetting to wait all give NaN. The CPU table runs on it,
 * since its memory is the host's.
 * Easy to get wrong: what it counts is rounded to pages; the Device holds a pointer to the TestDevice. */
#ifndef DEVICE_TEST_H
#define DEVICE_TEST_H

#include "core/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TEST_PAGE = 4096, TEST_RANGES = 32, TEST_UPLOADS = 16 };

typedef struct TestRange { char *at; size_t size; bool in; } TestRange;

typedef struct TestDevice {
    size_t limit, committed, peak;
    TestRange range[TEST_RANGES];
    struct { Fill fill; Ticket ticket; } upload[TEST_UPLOADS]; /* ticket 0: free */
    Ticket last;
    uint64_t uploads, bytes; /* started */
    int faults;              /* of use: unknown ranges, uploads into absent memory, tickets waited twice */
    Ticket fail_at;          /* the upload with this ticket fails; 0: none */
} TestDevice;

static inline TestRange *test_range(TestDevice *t, const void *address) {
    for (int i = 0; i < TEST_RANGES; i++) {
        TestRange *r = &t->range[i];
        if (r->at && (const char *)address >= r->at && (const char *)address < r->at + r->size) return r;
    }
    t->faults++;
    return NULL;
}

static inline Status test_take(TestDevice *t, TestRange *r, Error *e) {
    if (r->size > t->limit - t->committed)
        return fail(e, ERR_MEMORY, "test device: %zu bytes do not fit: %zu of %zu are taken", r->size, t->committed, t->limit);
    if (mprotect(r->at, r->size, PROT_READ | PROT_WRITE)) abort();
    memset(r->at, 0xff, r->size); /* NaN in every float format */
    t->committed += r->size;
    if (t->committed > t->peak) t->peak = t->committed;
    r->in = true;
    return OK;
}

static inline void test_drop(TestDevice *t, TestRange *r) {
    if (r->in) t->committed -= r->size;
    else t->faults++;
    r->in = false;
    if (mprotect(r->at, r->size, PROT_NONE) || madvise(r->at, r->size, MADV_DONTNEED)) abort();
}

static inline Status test_reserve(Device *d, size_t size, void **out, Error *e) {
    TestDevice *t = d->state;
    *out = NULL;
    if (!size) return OK;
    TestRange *r = t->range;
    while (r < t->range + TEST_RANGES && r->at) r++;
    if (r == t->range + TEST_RANGES) return fail(e, ERR_MEMORY, "test device: too many ranges");
    r->size = (size + TEST_PAGE - 1) / TEST_PAGE * TEST_PAGE;
    r->at = mmap(NULL, r->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->at == MAP_FAILED) abort();
    Status s = test_take(t, r, e);
    if (s == OK) *out = r->at;
    else munmap(r->at, r->size), r->at = NULL;
    return s;
}

static inline void test_release(Device *d, void *address, size_t size) {
    (void)size;
    TestDevice *t = d->state;
    TestRange *r = address ? test_range(t, address) : NULL;
    if (!r) return;
    if (r->in) t->committed -= r->size;
    munmap(r->at, r->size);
    *r = (TestRange){0};
}

static inline Status test_copy(Device *d, void *to, const void *from, size_t size, Error *e) {
    (void)d, (void)e;
    if (size) memcpy(to, from, size);
    return OK;
}

static inline void test_discard(Device *d, void *address, size_t size) {
    (void)size;
    TestRange *r = address ? test_range(d->state, address) : NULL;
    TestDevice *t = d->state;
    for (int i = 0; i < TEST_UPLOADS; i++) /* pages must not leave under an upload */
        if (r && t->upload[i].ticket && (char *)t->upload[i].fill.to >= r->at && (char *)t->upload[i].fill.to < r->at + r->size)
            t->faults++;
    if (r) test_drop(t, r);
}

static inline Status test_commit(Device *d, void *address, size_t size, Error *e) {
    (void)size;
    TestRange *r = address ? test_range(d->state, address) : NULL;
    return !r || r->in ? OK : test_take(d->state, r, e);
}

static inline Status test_upload_start(Device *d, const Fill *fill, Ticket *out, Error *e) {
    TestDevice *t = d->state;
    TestRange *r = test_range(t, fill->to);
    int i = 0;
    while (i < TEST_UPLOADS && t->upload[i].ticket) i++;
    if (i == TEST_UPLOADS || !r || !r->in || (char *)fill->to + fill->size > r->at + r->size) {
        t->faults++;
        return fail(e, ERR_DEVICE, "test device: upload into memory that is not there, or too many at once");
    }
    memset(fill->to, 0xff, fill->size);
    t->upload[i].fill = *fill;
    t->upload[i].ticket = *out = ++t->last;
    t->uploads++;
    t->bytes += fill->size;
    return OK;
}

static inline Status test_upload_wait(Device *d, Ticket ticket, Error *e) {
    TestDevice *t = d->state;
    int i = 0;
    while (i < TEST_UPLOADS && (!ticket || t->upload[i].ticket != ticket)) i++;
    if (i == TEST_UPLOADS) {
        t->faults++;
        return fail(e, ERR_DEVICE, "test device: no such ticket");
    }
    const Fill *f = &t->upload[i].fill;
    t->upload[i].ticket = 0;
    if (ticket == t->fail_at) return fail(e, ERR_DEVICE, "test device: upload failed as asked for");
    for (size_t end = f->size; end;) {
        size_t piece = end % FILL_ALIGN ? end % FILL_ALIGN : FILL_ALIGN;
        f->make(f->source, end - piece, piece, (char *)f->to + end - piece);
        end -= piece;
    }
    return OK;
}

static inline size_t test_room(Device *d) {
    const TestDevice *t = d->state;
    return t->limit == SIZE_MAX ? SIZE_MAX : t->limit - t->committed;
}

static inline Device test_device(TestDevice *t, size_t limit) {
    *t = (TestDevice){.limit = limit};
    return (Device){.name = "test", .reserve = test_reserve, .release = test_release, .upload = test_copy,
                    .download = test_copy, .discard = test_discard, .commit = test_commit,
                    .upload_start = test_upload_start, .upload_wait = test_upload_wait, .room = test_room,
                    .granularity = TEST_PAGE, .state = t};
}

#endif
