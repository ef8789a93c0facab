/* cuda_prepare.h - library plans built by a thread of their own while weights are uploaded and text is encoded, so that the
 * first attention and the first convolutions find them.
 *
 * Only a saving of time: a plan that is not there yet is waited for or built by the call that needs it, and whatever goes
 * wrong in the thread goes wrong again, and is reported, there. cuDNN alone: cuBLASLt's algorithms cost microseconds.
 * Easy to get wrong: the thread has a cuDNN handle of its own, which lives as long as the plans made with it. */
#ifndef KERNELS_CUDA_PREPARE_H
#define KERNELS_CUDA_PREPARE_H

#include "kernels/cuda.h"

/* One call to come, by value: shapes count, addresses do not (but for their alignment). */
typedef struct CudaTask {
    OpId op;
    union {
        Conv2d conv;
        Conv3d conv3d;
        Attention attention;
    } a;
    Weight weight; /* the convolution's */
} CudaTask;

/* False when a call of this op needs no plan. phases: upsample_conv runs as the family vae-kl-rewrite has it. */
bool cuda_prepare_task(CudaTask *task, OpId op, const void *args, bool phases);
/* Starts on the tasks, in their order, after those of an earlier start. Takes the malloc'd tasks, also when it fails: without
 * a thread nothing is lost but time. */
void cuda_prepare_start(Cuda *c, CudaTask *tasks, int count);
/* For cuda_close: waits for the plan in hand and ends the thread; then, when the plans are gone, the rest. */
void cuda_prepare_stop(Cuda *c);
void cuda_prepare_close(Cuda *c);

#endif
