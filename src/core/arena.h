/* arena.h - bump allocation on a device: reserve once, push, mark, reset, read the peak.
 *
 * Each component owns a weight region, a work arena (activations) and shares a scratch arena (inside one op).
 * The dry run pushes through the same calls on the dry device; the peak it leaves is the exact capacity the
 * real run reserves, so an overflow in the real run means plan and run differ: a bug, reported as ERR_MEMORY.
 * Easy to get wrong: reset() invalidates everything pushed after the mark; views do not notice. */
#ifndef ARENA_H
#define ARENA_H

#include "core/device.h"
#include "core/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Arena {
    Device *device;
    char *base;
    size_t capacity, used, peak;
    const char *name; /* for messages: "flux work" */
} Arena;

enum { ARENA_ALIGN = 256 }; /* what the GPU's vector loads and library calls want */

/* What a push of so many bytes takes. */
static inline size_t arena_rounded(size_t bytes) { return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN; }
/* For one push that is cut into pieces, once to measure and once to carve: where the next piece begins, which adds to total. */
static inline size_t arena_piece(size_t *total, int64_t count, DType t) {
    size_t at = *total;
    *total += arena_rounded((size_t)count * dtype_size(t));
    return at;
}

Status arena_open(Arena *a, Device *d, const char *name, size_t capacity, Error *e);
void arena_close(Arena *a);
/* Aligned to ARENA_ALIGN. NULL when the capacity is exhausted. */
void *arena_push(Arena *a, size_t bytes);
/* Contiguous tensor; .data is NULL when exhausted (ops refuse such a tensor by name). */
Tensor arena_tensor(Arena *a, DType dtype, int rank, const int64_t *shape);
static inline size_t arena_mark(const Arena *a) { return a->used; }
static inline void arena_reset(Arena *a, size_t mark) { a->used = mark; }

#ifdef __cplusplus
}
#endif

#endif
