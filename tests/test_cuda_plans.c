/* test_cuda_plans.c - the store of library plans between two threads: a plan is built once, whoever comes second waits, a
 * builder that gives up hands over. No GPU: plans are numbers here. Without CUDA in the build there is no store to test. */
#include "expect.h"

#include "kernels/cuda_plans.h"

#ifdef HAVE_CUDA

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { KEYS = 500, THREADS = 4 };

typedef struct Shared {
    CudaPlans *plans;
    atomic_int built[KEYS], destroyed;
    atomic_int wrong;
    bool gives_up; /* the first builder of every third key fails */
    atomic_int gave[KEYS];
} Shared;

static Shared shared; /* lint: allow-static (test program) */

static void destroy(Cuda *c, void *value) {
    (void)c;
    atomic_fetch_add(&shared.destroyed, 1);
    free(value);
}

static void *work(void *arg) {
    (void)arg;
    Error e = {0};
    for (int k = 0; k < KEYS; k++) {
        int64_t key[3] = {k, 7, 0};
        int *plan = cuda_plans_claim(shared.plans, key, sizeof key);
        if (!plan) {
            sched_yield(); /* it takes a while */
            if (shared.gives_up && k % 3 == 0 && !atomic_fetch_add(&shared.gave[k], 1)) {
                cuda_plans_give_up(shared.plans, key, sizeof key);
                k--;
                continue;
            }
            atomic_fetch_add(&shared.built[k], 1);
            plan = malloc(sizeof *plan);
            *plan = k;
            if (cuda_plans_add(NULL, shared.plans, key, sizeof key, plan, destroy, &e) != OK) atomic_fetch_add(&shared.wrong, 1);
        }
        if (*plan != k) atomic_fetch_add(&shared.wrong, 1);
        if (cuda_plans_find(shared.plans, key, sizeof key) != plan) atomic_fetch_add(&shared.wrong, 1);
    }
    return NULL;
}

static void test_claims(bool gives_up) {
    Error e = {0};
    pthread_t thread[THREADS];
    shared = (Shared){.gives_up = gives_up};
    expect_ok(cuda_plans_open(&shared.plans, &e), &e);
    for (int i = 0; i < THREADS; i++) expect(pthread_create(&thread[i], NULL, work, NULL) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int k = 0; k < KEYS; k++) expect_at(shared.built[k] == 1, "built once", "key", k);
    expect(shared.wrong == 0);
    for (int k = 0; gives_up && k < KEYS; k += 3) expect_at(shared.gave[k] >= 1, "given up once", "key", k);
    cuda_plans_close(NULL, shared.plans);
    expect(shared.destroyed == KEYS);
}

static void test_find(void) {
    Error e = {0};
    CudaPlans *p;
    int *plan = malloc(sizeof *plan);
    int64_t key = 1, other = 2;
    shared = (Shared){0};
    expect_ok(cuda_plans_open(&p, &e), &e);
    expect(cuda_plans_find(p, &key, sizeof key) == NULL);
    expect(cuda_plans_claim(p, &key, sizeof key) == NULL);
    expect(cuda_plans_find(p, &key, sizeof key) == NULL); /* claimed is not there */
    expect_ok(cuda_plans_add(NULL, p, &key, sizeof key, plan, destroy, &e), &e);
    expect(cuda_plans_find(p, &key, sizeof key) == plan && cuda_plans_claim(p, &key, sizeof key) == plan);
    expect(cuda_plans_find(p, &other, sizeof other) == NULL);
    cuda_plans_close(NULL, p);
    expect(shared.destroyed == 1);
}

int main(void) {
    test_find();
    test_claims(false);
    test_claims(true);
    return expect_done();
}

#else

int main(void) {
    printf("0 passed, 0 failed (built without CUDA)\n");
    return 0;
}

#endif
