/* cuda_async.cuh - rings in shared memory that warps fill ahead, for themselves or others: copies of 16 bytes that go on behind
 * the program, addresses of 32 bits, words of two BF16 numbers.
 *
 * The primitives of the CUDA headers do the same with pointers, but choose the L2 alone for 16 bytes, and their loads may
 * be moved. Easy to get wrong: a group is waited for by the lane that made it; for what other lanes brought a barrier must
 * follow. */
#ifndef KERNELS_CUDA_ASYNC_CUH
#define KERNELS_CUDA_ASYNC_CUH

namespace async {

__device__ inline unsigned place_of(const void *shared) { return (unsigned)__cvta_generic_to_shared(shared); }

/* 16 bytes, both places aligned to them. CACHED: through the L1, for what warps of one multiprocessor share. */
template <bool CACHED> __device__ inline void copy(unsigned to, const void *from) {
    if (CACHED) asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/* The same past the L1, or zeros: `from` is an address all the same, but is not read then. */
__device__ inline void copy_or_zero(unsigned to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
/* What was copied since the last call is a group, empty or not. */
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* All of the lane's groups but the last PENDING are there. */
template <int PENDING> __device__ inline void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

/* Loads that stay where they are written. */
__device__ inline unsigned word(unsigned from) {
    unsigned x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(from));
    return x;
}
__device__ inline uint2 two_words(unsigned from) {
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(from));
    return x;
}

/* The two numbers of a word. */
__device__ inline float low(unsigned word) { return __uint_as_float(word << 16); }
__device__ inline float high(unsigned word) { return __uint_as_float(word & 0xffff0000u); }

} /* namespace async */

#endif
