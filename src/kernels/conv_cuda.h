/* conv_cuda.h, the convolution's cuDNN graph and plan: apart from the op so that they can be built where there is no GPU, or
 * beside other work. */
#ifndef KERNELS_CONV_CUDA_H
#define KERNELS_CONV_CUDA_H

#include "kernels/cuda_dnn.h"

#ifdef HAVE_CUDA

enum { CONV_ID_X = 1, CONV_ID_W, CONV_ID_Y };

/* Is cuDNN to see planes, [C,Y,X], as PyTorch hands them over? With few channels its choice of an engine, and so the bits,
 * depend on the layout; with 128 and more on either side channels last gives the same bits and needs no copies. */
bool conv_cuda_planes(const Conv2d *a);
/* Adds y = conv(x) to g, without bias; x, w and y contiguous, or planes of them. Failures stay in g. */
void conv_cuda_graph(CudaDnn *g, const Conv2d *a);
/* Builds the plan of a call of conv2d or upsample_conv; nothing when it exists. From any thread, with a handle of its own. */
Status conv_cuda_prepare(Cuda *c, cudnnHandle_t handle, OpId op, const Conv2d *a, Error *e);

#endif
#endif
