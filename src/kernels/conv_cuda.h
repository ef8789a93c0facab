/* conv_cuda.h, the convolution's cuDNN graph: apart from the op so that it can be built where there is no GPU. */
#ifndef KERNELS_CONV_CUDA_H
#define KERNELS_CONV_CUDA_H

#include "kernels/cuda_dnn.h"

#ifdef HAVE_CUDA

enum { CONV_ID_X = 1, CONV_ID_W, CONV_ID_Y };

/* Adds y = conv(x) to g, without bias; a's x and y are contiguous. Failures stay in g. */
void conv_cuda_graph(CudaDnn *g, const Conv2d *a);

#endif
#endif
