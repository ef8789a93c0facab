/* wgmma.cuh - Hopper's products of a warpgroup: descriptors of matrices in shared memory, the instruction for the widths that
 * are used here, and the fences around it. BF16 in, f32 sums in registers, both matrices K-major and without swizzle.
 *
 * For .cu files only; the instructions exist where code for sm_90a is made, elsewhere all of this is empty.
 * Easy to get wrong: sums belong to the tensor cores from multiply() until wait() has seen the group, reading them earlier
 * gives anything; arrays of them need indices known to the compiler, else they go to local memory and the products wait for one
 * another (ptxas says so, C7510); fence() comes before the first product and wherever sums were written by the program. */
#ifndef KERNELS_WGMMA_CUH
#define KERNELS_WGMMA_CUH

#include <stdint.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA_THERE 1
#endif

namespace wgmma {

/* Bits 0-13: the address, 16-29: the leading offset, 32-45: the stride offset, all in units of 16 bytes; 49-51, the base of a
 * swizzle's pattern, and 62-63, the swizzle, are 0. A start that lies further on is an addition of units: shared memory ends
 * below 2^18 bytes, so that nothing is carried. */
__device__ inline uint64_t describe(unsigned at, unsigned leading, unsigned stride) {
    return (uint64_t)(stride >> 4) << 32 | (uint64_t)(leading >> 4) << 16 | (uint64_t)((at & 0x3ffff) >> 4);
}

/* Registers written by the program are in order with the products that follow. */
__device__ inline void fence() {
#ifdef WGMMA_THERE
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/* What was multiplied since the last call is a group. */
__device__ inline void commit() {
#ifdef WGMMA_THERE
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* All groups but the last PENDING are done. */
template <int PENDING> __device__ inline void wait() {
#ifdef WGMMA_THERE
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#endif
}

/* Registers a thread may have from here on, of all warps of a warpgroup; a kernel that uses it states its bounds. */
template <int COUNT> __device__ inline void grow() {
#ifdef WGMMA_THERE
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}
template <int COUNT> __device__ inline void shrink() {
#ifdef WGMMA_THERE
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

#define WGMMA_S0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_S8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_S16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_S24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_S32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_S40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_S48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_S56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_S64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_S72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_S80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_S88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_D(i)                                                                                              \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

/* d += a b^T: 64 rows of pixels, N of weights, depth 16. Behind the matrices: adds to d, no signs, neither is transposed. */
template <int N> __device__ void multiply(float (&d)[N / 2], uint64_t a, uint64_t b);

template <> __device__ inline void multiply<96>(float (&d)[48], uint64_t a, uint64_t b) {
#ifdef WGMMA_THERE
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
                 WGMMA_S0 WGMMA_S8 WGMMA_S16 WGMMA_S24 WGMMA_S32 WGMMA_S40
                 "}, %48, %49, 1, 1, 1, 0, 0;"
                 : WGMMA_D(0), WGMMA_D(8), WGMMA_D(16), WGMMA_D(24), WGMMA_D(32), WGMMA_D(40)
                 : "l"(a), "l"(b));
#endif
}

template <> __device__ inline void multiply<192>(float (&d)[96], uint64_t a, uint64_t b) {
#ifdef WGMMA_THERE
    asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
                 WGMMA_S0 WGMMA_S8 WGMMA_S16 WGMMA_S24 WGMMA_S32 WGMMA_S40 WGMMA_S48 WGMMA_S56 WGMMA_S64
                 WGMMA_S72 WGMMA_S80 WGMMA_S88
                 "}, %96, %97, 1, 1, 1, 0, 0;"
                 : WGMMA_D(0), WGMMA_D(8), WGMMA_D(16), WGMMA_D(24), WGMMA_D(32), WGMMA_D(40), WGMMA_D(48),
                   WGMMA_D(56), WGMMA_D(64), WGMMA_D(72), WGMMA_D(80), WGMMA_D(88)
                 : "l"(a), "l"(b));
#endif
}

} /* namespace wgmma */

#endif
