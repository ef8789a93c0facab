/* registry.h - which implementations exist: every kernel file exports one array of Impls, registry.c puts them into a
 * table. Not for models: they see ops.h only. */
#ifndef KERNELS_REGISTRY_H
#define KERNELS_REGISTRY_H

#include "ops.h"

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

#endif
