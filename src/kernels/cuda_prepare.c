/* cuda_prepare.c - see cuda_prepare.h. A thread a start, one at a time: jobs of one process mostly find all plans ready. */
#include "kernels/cuda_prepare.h"

#include <stdlib.h>

#ifdef HAVE_CUDA

#include "kernels/attention_cuda.h"
#include "kernels/conv_cuda.h"
#include "kernels/vae_rewrite.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct CudaPrepare {
    Cuda *c;
    CudaTask *task;
    int count, ordinal;
    pthread_t thread;
    bool running;
    atomic_bool stop;
    cudnnHandle_t dnn; /* made by the first thread */
} CudaPrepare;

bool cuda_prepare_task(CudaTask *task, OpId op, const void *args, bool phases) {
    *task = (CudaTask){.op = op};
    if (op == OP_attention) {
        task->a.attention = *(const Attention *)args;
        return true;
    }
    if (op == OP_conv3d) {
        task->a.conv3d = *(const Conv3d *)args;
        task->weight = *task->a.conv3d.w;
        return true;
    }
    if (op != OP_conv2d && op != OP_upsample_conv) return false;
    const Conv2d *a = args;
    if (op == OP_upsample_conv && phases) {
        vae_rewrite_phases(a, &task->a.conv, &task->weight);
        task->op = OP_conv2d;
    } else {
        task->a.conv = *a;
        task->weight = *a->w;
    }
    return true;
}

static void build(CudaPrepare *p, CudaTask *task) {
    Error e = {0};
    if (task->op == OP_attention) {
        attention_cuda_prepare(p->c, p->dnn, &task->a.attention, &e);
        return;
    }
    if (task->op == OP_conv3d) task->a.conv3d.w = &task->weight;
    else task->a.conv.w = &task->weight;
    conv_cuda_prepare(p->c, p->dnn, task->op, &task->a, &e);
}

static void *run(void *arg) {
    CudaPrepare *p = arg;
    bool ready = cudaSetDevice(p->ordinal) == cudaSuccess;
    if (ready && !p->dnn) ready = p->c->libs.cudnnCreate_(&p->dnn) == CUDNN_STATUS_SUCCESS;
    for (int i = 0; ready && i < p->count && !atomic_load(&p->stop); i++) build(p, &p->task[i]);
    return NULL;
}

static void join(CudaPrepare *p) {
    if (p->running) pthread_join(p->thread, NULL);
    p->running = false;
    free(p->task);
    p->task = NULL;
}

void cuda_prepare_start(Cuda *c, CudaTask *tasks, int count) {
    Error e = {0};
    if (!c->prepare && count) c->prepare = calloc(1, sizeof *c->prepare);
    CudaPrepare *p = c->prepare;
    /* the library is loaded here: the thread and the ops must not do so at once */
    if (!p || !count || cuda_need_dnn(c, &e) != OK || cudaGetDevice(&p->ordinal) != cudaSuccess) {
        free(tasks);
        return;
    }
    join(p);
    p->c = c;
    p->task = tasks;
    p->count = count;
    p->running = pthread_create(&p->thread, NULL, run, p) == 0;
}

void cuda_prepare_stop(Cuda *c) {
    if (!c->prepare) return;
    atomic_store(&c->prepare->stop, true);
    join(c->prepare);
}

void cuda_prepare_close(Cuda *c) {
    CudaPrepare *p = c->prepare;
    if (!p) return;
    cuda_prepare_stop(c);
    c->prepare = NULL;
    if (p->dnn) c->libs.cudnnDestroy_(p->dnn);
    free(p);
}

#else

bool cuda_prepare_task(CudaTask *task, OpId op, const void *args, bool phases) {
    (void)task, (void)op, (void)args, (void)phases;
    return false;
}

void cuda_prepare_start(Cuda *c, CudaTask *tasks, int count) {
    (void)c, (void)count;
    free(tasks);
}

void cuda_prepare_stop(Cuda *c) { (void)c; }
void cuda_prepare_close(Cuda *c) { (void)c; }

#endif
