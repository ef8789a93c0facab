/* conv_cuda.h, the convolution's cuDNN graph and plan: apart from the op so that they can be built where there is no GPU, or
 * beside other work. */
#ifndef KERNELS_CONV_CUDA_H
#define KERNELS_CONV_CUDA_H

#include "kernels/conv_frames.h"
#include "kernels/cuda_dnn.h"

#ifdef HAVE_CUDA

enum { CONV_ID_X = 1, CONV_ID_W, CONV_ID_Y };

/* Is cuDNN to see planes, [C,Y,X], as PyTorch hands them over? With few channels its choice of an engine, and so the bits,
 * depend on the layout; with 128 and more on either side, and in three dimensions, channels last gives the same bits and needs
 * no copies. */
bool conv_cuda_planes(const ConvFrames *a);
/* Adds y = conv(x) to g, without bias; x, kernel and y contiguous, or planes of them. Failures stay in g. */
void conv_cuda_graph(CudaDnn *g, const ConvFrames *a);
/* A plan of a convolution on a handle: the first configuration that the reference may run, passing over `skip` of them. Without
 * a plan (cuda_dnn_ready) when there is none. The caller frees it. */
Status conv_cuda_build(Cuda *c, cudnnHandle_t handle, const ConvFrames *a, size_t workspace, int skip, CudaDnn **out, Error *e);
/* Builds the plan of a call of conv2d, upsample_conv or conv3d; nothing when it exists. From any thread, with a handle of its
 * own. */
Status conv_cuda_prepare(Cuda *c, cudnnHandle_t handle, OpId op, const void *args, Error *e);

#endif
#endif
