/* cuda_copy.cuh - Hopper's copy engine for rows that lie without gaps: from memory to shared memory, counted by a barrier there.
 *
 * For .cu files only; empty for cards before Hopper, whose launches must not come here.
 * Easy to get wrong: addresses and sizes are multiples of 16 bytes; a barrier of one arrival counts that of expect(), and the
 * bytes it names; its parity changes with every turn; what all threads have read may be overwritten behind a __syncthreads. */
#ifndef KERNELS_CUDA_COPY_CUH
#define KERNELS_CUDA_COPY_CUH

#include <stdint.h>

namespace copies {

[[maybe_unused]] __device__ inline unsigned shared_at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

/* Where one stands in a ring of slots: which one, and the parity of its barrier's turn. */
struct Place {
    int slot;
    unsigned parity;
};
[[maybe_unused]] __device__ inline void advance(Place &p, int slots) {
    if (++p.slot == slots) p.slot = 0, p.parity ^= 1;
}

/* By one thread, before the others know of the barriers: each waits for so many arrivals a turn. */
__device__ inline void prepare(uint64_t *arrived, int count, unsigned arrivals = 1) {
#if __CUDA_ARCH__ >= 900
    for (int i = 0; i < count; i++)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(arrived + i)), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* What this thread did before is seen by those who await the turn. */
__device__ inline void arrive(uint64_t *arrived) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(arrived)) : "memory");
#endif
}

/* What this thread wrote to shared memory by other means may be read by the copy engine and the tensor cores. */
__device__ inline void publish() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* So many bytes will come by bring(). */
__device__ inline void expect(uint64_t *arrived, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(arrived)), "r"(bytes) : "memory");
#endif
}

__device__ inline void bring(void *to, const void *from, unsigned bytes, uint64_t *arrived) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_at(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_at(arrived))
                 : "memory");
#endif
}

/* So many bytes will be wanted from the L2 soon. */
__device__ inline void announce(const void *from, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
#endif
}

__device__ inline void await(uint64_t *arrived, unsigned parity) {
#if __CUDA_ARCH__ >= 900
    unsigned done;
    do
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(shared_at(arrived)), "r"(parity)
                     : "memory");
    while (!done);
#endif
}

} /* namespace copies */

#endif
