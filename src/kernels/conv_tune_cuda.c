/* conv_tune_cuda.c - see conv_tune_cuda.h. */
#include "kernels/conv_tune_cuda.h"

#include "kernels/cuda_plans.h"
#include "kernels/tune_cuda.h"

#ifdef HAVE_CUDA

#include <stdio.h>

enum { MOST = 6 };                 /* engines that are tried */
static const double LEAST = 0.2e12; /* products: about half a millisecond */

typedef struct Engines {
    Exec *x;
    const ConvTune *t;
    CudaDnn *plan[MOST];
    int count;
} Engines;

static double products(const ConvFrames *a) {
    return (double)tensor_numel(a->y) * (double)(tensor_numel(a->kernel) / a->kernel.shape[0]);
}

static Status run(Exec *x, const ConvTune *t, CudaDnn *g) {
    const int64_t ids[] = {CONV_ID_X, CONV_ID_W, CONV_ID_Y};
    void *pointers[] = {t->a->x.data, t->a->kernel.data, t->a->y.data};
    return cuda_dnn_run(x, g, t->workspace, 3, ids, pointers);
}

/* An engine that cannot run is no error of the job's. */
static bool launch(void *user, int i) {
    Engines *e = user;
    Error none = {0};
    Exec x = *e->x;
    x.error = &none;
    return run(&x, e->t, e->plan[i]) == OK;
}

static CudaDnn *build(Exec *x, const ConvTune *t, int skip) {
    CudaDnn *g = NULL;
    Error none = {0};
    if (conv_cuda_build(x->cuda, x->cuda->dnn, t->a, t->bytes, skip, &g, &none) != OK) return NULL;
    if (cuda_dnn_ready(g)) return g;
    cuda_dnn_free(g);
    return NULL;
}

Status conv_tune_cuda(Exec *x, const ConvTune *t, CudaDnn **g) {
    CudaDnn *known = cuda_plans_find(x->cuda->plans, t->key, t->key_size);
    if (known) *g = known;
    if (known || products(t->a) < LEAST) return OK;
    const int64_t *in = t->a->x.shape, *out = t->a->y.shape, *k = t->a->kernel.shape;
    char label[120];
    snprintf(label, sizeof label, "convolution %lldx%lldx%lldx%lld to %lld, %lldx%lldx%lld, %s", (long long)in[0],
             (long long)in[1], (long long)in[2], (long long)in[3], (long long)out[3], (long long)k[1], (long long)k[2],
             (long long)k[3], dtype_name(t->a->x.dtype));
    Engines e = {.x = x, .t = t, .plan = {*g}, .count = 1};
    for (int i = 1; tune_cuda_tries(x->cuda) && i < MOST; i++) {
        if (!(e.plan[i] = build(x, t, i))) break;
        e.count++;
    }
    TuneChoice choice = {.key = t->key, .key_size = t->key_size, .label = label, .version = x->cuda->libs.cudnnGetVersion_(),
                         .count = e.count, .launch = launch, .user = &e, .y = t->a->y.data, .bytes = tensor_bytes(t->a->y)};
    int best = 0;
    Status s = tune_cuda_choose(x, &choice, &best);
    for (int i = 1; i < e.count; i++) cuda_dnn_free(e.plan[i]);
    TRY(s);
    CudaDnn *chosen = build(x, t, best);
    if (!chosen) return OK; /* the file speaks of another library's engines */
    *g = chosen;
    return cuda_plans_add(x->cuda, x->cuda->plans, t->key, t->key_size, chosen, cuda_dnn_destroy, x->error);
}

#endif
