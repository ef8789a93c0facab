/* registry.h - which implementations exist: every kernel file exports one array of Impls, registry.c puts them into a
 * table. Not for models: they see ops.h only. */
#ifndef KERNELS_REGISTRY_H
#define KERNELS_REGISTRY_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Impl ELEMENTWISE_CPU[];
extern const int ELEMENTWISE_CPU_COUNT;
extern const Impl NORM_CPU[];
extern const int NORM_CPU_COUNT;
extern const Impl MOVE_CPU[];
extern const int MOVE_CPU_COUNT;
extern const Impl LINEAR_CPU[];
extern const int LINEAR_CPU_COUNT;
extern const Impl ATTENTION_CPU[];
extern const int ATTENTION_CPU_COUNT;
extern const Impl CONV_CPU[];
extern const int CONV_CPU_COUNT;
extern const Impl GROUPNORM_CPU[];
extern const int GROUPNORM_CPU_COUNT;

#ifdef HAVE_CUDA
extern const Impl ELEMENTWISE_CUDA[];
extern const int ELEMENTWISE_CUDA_COUNT;
extern const Impl NORM_CUDA[];
extern const int NORM_CUDA_COUNT;
extern const Impl MOVE_CUDA[];
extern const int MOVE_CUDA_COUNT;
extern const Impl LINEAR_CUDA[];
extern const int LINEAR_CUDA_COUNT;
extern const Impl ATTENTION_CUDA[];
extern const int ATTENTION_CUDA_COUNT;
extern const Impl CONV_CUDA[];
extern const int CONV_CUDA_COUNT;
extern const Impl GROUPNORM_CUDA[];
extern const int GROUPNORM_CUDA_COUNT;
#endif

#ifdef __cplusplus
}
#endif

#endif
