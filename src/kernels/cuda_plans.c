/* cuda_plans.c - see cuda_plans.h. A few hundred plans at most: open addressing on an FNV-1a hash. */
#include "kernels/cuda_plans.h"

#ifdef HAVE_CUDA

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef enum State { FREE, BUILDING, GIVEN_UP, READY } State;

typedef struct Entry {
    unsigned char key[CUDA_PLAN_KEY];
    State state;
    void *value;
    void (*destroy)(Cuda *c, void *value);
} Entry;

struct CudaPlans {
    pthread_mutex_t lock;
    pthread_cond_t built; /* an entry is no longer BUILDING */
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
    while (p->entry[i].state != FREE && memcmp(p->entry[i].key, key, CUDA_PLAN_KEY)) i = (i + 1) & (p->capacity - 1);
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
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->built, NULL);
    *out = p;
    return OK;
}

void cuda_plans_close(Cuda *c, CudaPlans *p) {
    for (size_t i = 0; i < p->capacity; i++)
        if (p->entry[i].state == READY) p->entry[i].destroy(c, p->entry[i].value);
    pthread_cond_destroy(&p->built);
    pthread_mutex_destroy(&p->lock);
    free(p->entry);
    free(p);
}

/* The key's entry, made when there is none. NULL: out of memory. */
static Entry *entry_of(CudaPlans *p, const unsigned char *key) {
    Entry *at = slot(p, key);
    if (at->state != FREE) return at;
    if (2 * p->used >= p->capacity) {
        CudaPlans bigger = {.capacity = 2 * p->capacity};
        bigger.entry = calloc(bigger.capacity, sizeof *bigger.entry);
        if (!bigger.entry) return NULL;
        for (size_t i = 0; i < p->capacity; i++)
            if (p->entry[i].state != FREE) *slot(&bigger, p->entry[i].key) = p->entry[i];
        free(p->entry);
        p->entry = bigger.entry;
        p->capacity = bigger.capacity;
        at = slot(p, key);
    }
    memcpy(at->key, key, CUDA_PLAN_KEY);
    p->used++;
    return at;
}

void *cuda_plans_find(CudaPlans *p, const void *key, size_t size) {
    unsigned char padded[CUDA_PLAN_KEY] = {0};
    memcpy(padded, key, size);
    pthread_mutex_lock(&p->lock);
    const Entry *at = slot(p, padded);
    void *value = at->state == READY ? at->value : NULL;
    pthread_mutex_unlock(&p->lock);
    return value;
}

void *cuda_plans_claim(CudaPlans *p, const void *key, size_t size) {
    unsigned char padded[CUDA_PLAN_KEY] = {0};
    memcpy(padded, key, size);
    pthread_mutex_lock(&p->lock);
    while (slot(p, padded)->state == BUILDING) pthread_cond_wait(&p->built, &p->lock);
    Entry *at = entry_of(p, padded); /* NULL: the caller builds it all the same, and hears of it when it adds */
    void *value = at && at->state == READY ? at->value : NULL;
    if (at && !value) at->state = BUILDING;
    pthread_mutex_unlock(&p->lock);
    return value;
}

void cuda_plans_give_up(CudaPlans *p, const void *key, size_t size) {
    unsigned char padded[CUDA_PLAN_KEY] = {0};
    memcpy(padded, key, size);
    pthread_mutex_lock(&p->lock);
    Entry *at = slot(p, padded);
    if (at->state == BUILDING) at->state = GIVEN_UP;
    pthread_cond_broadcast(&p->built);
    pthread_mutex_unlock(&p->lock);
}

Status cuda_plans_add(Cuda *c, CudaPlans *p, const void *key, size_t size, void *value,
                      void (*destroy)(Cuda *c, void *value), Error *e) {
    unsigned char padded[CUDA_PLAN_KEY] = {0};
    memcpy(padded, key, size);
    pthread_mutex_lock(&p->lock);
    Entry *at = entry_of(p, padded);
    if (at) {
        at->value = value;
        at->destroy = destroy;
        at->state = READY;
    }
    pthread_cond_broadcast(&p->built);
    pthread_mutex_unlock(&p->lock);
    if (at) return OK;
    destroy(c, value);
    return fail(e, ERR_MEMORY, "out of memory for library plans");
}

#endif
