/* arena.c - see arena.h. */
#include "core/arena.h"

Status arena_open(Arena *a, Device *d, const char *name, size_t capacity, Error *e) {
    *a = (Arena){.device = d, .capacity = capacity, .name = name};
    void *base;
    if (d->reserve(d, capacity, &base, e) != OK) return because(e, "%s", name);
    a->base = base;
    return OK;
}

void arena_close(Arena *a) {
    if (a->device) a->device->release(a->device, a->base, a->capacity);
    *a = (Arena){0};
}

void *arena_push(Arena *a, size_t bytes) {
    size_t rounded = arena_rounded(bytes);
    if (rounded < bytes || rounded > a->capacity - a->used) return NULL;
    void *p = a->base + a->used;
    a->used += rounded;
    if (a->used > a->peak) a->peak = a->used;
    return p;
}

Tensor arena_tensor(Arena *a, DType dtype, int rank, const int64_t *shape) {
    Tensor t = tensor_make(NULL, dtype, rank, shape);
    t.data = arena_push(a, tensor_bytes(t));
    return t;
}
