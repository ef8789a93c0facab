/* conv_cuda.h, the convolution's cuDNN graph and plan: apart from the op so that they can be built where there is no GPU, or
 * beside other work. */
#ifndef KERNELS_CONV_CUDA_H
#define KERNELS_CONV_CUDA_H

#include "kernels/conv_frames.h"
#include "kernels/cuda_dnn.h"

#ifdef HAVE_CUDA

enum { CONV_ID_X = 1, CONV_ID_W, CONV_ID_Y };

/* Adds y = conv(x) to g, without bias; a's x and y are contiguous. Failures stay in g. */
void conv_cuda_graph(CudaDnn *g, const ConvFrames *a);
/* Builds the plan of a call of conv2d, upsample_conv or conv3d; nothing when it exists. From any thread, with a handle of its
 * own. */
Status conv_cuda_prepare(Cuda *c, cudnnHandle_t handle, OpId op, const void *args, Error *e);

#endif
#endif
