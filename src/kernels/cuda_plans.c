/* cuda_plans.c - see cuda_plans.h. A few hundred plans at most: open addressing on an FNV-1a hash. */
#include "kernels/cuda_plans.h"

#ifdef HAVE_CUDA

#include <stdlib.h>
#include <string.h>

typedef struct Entry {
    unsigned char key[CUDA_PLAN_KEY];
    void *value;
    void (*destroy)(Cuda *c, void *value);
} Entry;

struct CudaPlans {
    Entry *entry;
    size_t capacity, used;
};

static uint64_t hash(const unsigned char *key) {
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < CUDA_PLAN_KEY; i++) h = (h ^ key[i]) * 0x100000001b3u;
    return h;
}

static Entry *slot(const CudaPlans *p, const unsigned char *key) {
    size_t i = hash(key) & (p->capacity - 1);
    while (p->entry[i].value && memcmp(p->entry[i].key, key, CUDA_PLAN_KEY)) i = (i + 1) & (p->capacity - 1);
    return &p->entry[i];
}

Status cuda_plans_open(CudaPlans **out, Error *e) {
    CudaPlans *p = calloc(1, sizeof *p);
    if (p) {
        p->capacity = 256;
        p->entry = calloc(p->capacity, sizeof *p->entry);
    }
    if (!p || !p->entry) {
        free(p);
        return fail(e, ERR_MEMORY, "out of memory for library plans");
    }
    *out = p;
    return OK;
}

void cuda_plans_close(Cuda *c, CudaPlans *p) {
    for (size_t i = 0; i < p->capacity; i++)
        if (p->entry[i].value) p->entry[i].destroy(c, p->entry[i].value);
    free(p->entry);
    free(p);
}

void *cuda_plans_find(const CudaPlans *p, const void *key, size_t size) {
    unsigned char padded[CUDA_PLAN_KEY] = {0};
    memcpy(padded, key, size);
    return slot(p, padded)->value;
}

Status cuda_plans_add(Cuda *c, CudaPlans *p, const void *key, size_t size, void *value,
                      void (*destroy)(Cuda *c, void *value), Error *e) {
    if (2 * p->used >= p->capacity) {
        CudaPlans bigger = {.capacity = 2 * p->capacity, .used = p->used};
        bigger.entry = calloc(bigger.capacity, sizeof *bigger.entry);
        if (!bigger.entry) {
            destroy(c, value);
            return fail(e, ERR_MEMORY, "out of memory for library plans");
        }
        for (size_t i = 0; i < p->capacity; i++)
            if (p->entry[i].value) *slot(&bigger, p->entry[i].key) = p->entry[i];
        free(p->entry);
        *p = bigger;
    }
    unsigned char padded[CUDA_PLAN_KEY] = {0};
    memcpy(padded, key, size);
    Entry *at = slot(p, padded);
    memcpy(at->key, padded, sizeof padded);
    at->value = value;
    at->destroy = destroy;
    p->used++;
    return OK;
}

#endif
