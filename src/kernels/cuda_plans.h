/* cuda_plans.h - library plans (cuBLASLt algorithms, cuDNN execution plans) by problem, built once per process.
 *
 * A key is the caller's own struct, compared byte for byte (zero it before filling: padding counts); the value is an
 * opaque pointer with its destructor. Not a tuner. Every function may be called from any thread: cuda_prepare.h builds plans
 * beside the upload of the weights. Easy to get wrong: building a cuDNN plan of a new kind takes 0.4 to 0.9 s, so plans are
 * built before a graph is captured, never inside. */
#ifndef KERNELS_CUDA_PLANS_H
#define KERNELS_CUDA_PLANS_H

#include "kernels/cuda.h"

#ifdef HAVE_CUDA

enum { CUDA_PLAN_KEY = 192 };

Status cuda_plans_open(CudaPlans **out, Error *e);
void cuda_plans_close(Cuda *c, CudaPlans *p);
/* The value stored under key (size <= CUDA_PLAN_KEY bytes), or NULL. */
void *cuda_plans_find(CudaPlans *p, const void *key, size_t size);
/* For plans that take long to build: waits while another thread builds this one. NULL: the caller has to build it, and then
 * to add it or to give it up; until then others wait. */
void *cuda_plans_claim(CudaPlans *p, const void *key, size_t size);
void cuda_plans_give_up(CudaPlans *p, const void *key, size_t size);
/* Takes ownership of value; destroy runs at close. ERR_MEMORY destroys it at once. The key is new, or claimed. */
Status cuda_plans_add(Cuda *c, CudaPlans *p, const void *key, size_t size, void *value,
                      void (*destroy)(Cuda *c, void *value), Error *e);

#endif
#endif
