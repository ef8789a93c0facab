/* conv_tune_cuda.h - faster engines of cuDNN for the large convolutions of a model, with the bits of the heuristic's first
 * (tune_cuda.h says when that is looked for or looked up).
 *
 * An engine is remembered by its place among the configurations that the heuristic offers and the reference's guards let pass,
 * with the version of cuDNN. Not for convolutions that take microseconds: a plan takes up to a second to build.
 * Easy to get wrong: the choice is made where the convolution runs for the first time, so never inside a captured graph. */
#ifndef KERNELS_CONV_TUNE_CUDA_H
#define KERNELS_CONV_TUNE_CUDA_H

#include "kernels/conv_cuda.h"

#ifdef HAVE_CUDA

typedef struct ConvTune {
    const ConvFrames *a; /* contiguous, aligned; y is written over */
    const void *key;     /* of the choice among plans */
    size_t key_size;
    void *workspace;
    size_t bytes;
} ConvTune;

/* *g: the reference's plan in, the one to run out. */
Status conv_tune_cuda(Exec *x, const ConvTune *t, CudaDnn **g);

#endif
#endif
