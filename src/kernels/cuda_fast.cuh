/* cuda_fast.cuh - what the fused kernels share: pairs of BF16 numbers, and rows addressed by at most two strides.
 *
 * Products and sums of BF16 pairs are one instruction here where the references widen, compute in f32 and round. The bits
 * are the same. A sum: f32 has more than 2 x 8 + 2 digits, so rounding twice is rounding once (subnormals are exact). A
 * product: 16 digits, exact in f32 from 2^-134 on; below that both ways give zero (2^-134 itself is a tie, to even).
 * Overflow and NaN (0x7fff) agree as well. What has more than one operation before its rounding stays in f32.
 * Easy to get wrong: only the _rn forms are safe, others may be contracted to an fma; -0.0 is the neutral element of a
 * sum, +0.0 is not. */
#ifndef KERNELS_CUDA_FAST_CUH
#define KERNELS_CUDA_FAST_CUH

#include "kernels/chain.h"
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

#include <stdio.h>

namespace fast {

using Bf = __nv_bfloat16;
using Pair = __nv_bfloat162;

__device__ inline Pair mul(Pair a, Pair b) { return __hmul2_rn(a, b); }
__device__ inline Pair add(Pair a, Pair b) { return __hadd2_rn(a, b); }
__device__ inline Pair both(float v) { return __float2bfloat162_rn(v); }
__device__ inline Pair one_plus(Pair a) { return add(both(1.0f), a); }
__device__ inline Pair round2(float a, float b) { return __floats2bfloat162_rn(a, b); }

/* N pairs, read and written in one access. */
template <int N> struct Pairs {
    Pair p[N];
};
constexpr int WIDE = 8; /* elements of a 16-byte access */
using Wide = Pairs<WIDE / 2>;
using Four = Pairs<2>;

/* Through a plain vector type: a struct of pairs would be copied pair by pair. */
template <int N> struct Raw;
template <> struct Raw<1> {
    using Type = unsigned;
};
template <> struct Raw<2> {
    using Type = uint2;
};
template <> struct Raw<4> {
    using Type = uint4;
};
template <int N> __device__ inline Pairs<N> get(const Bf *from) {
    typename Raw<N>::Type raw = *reinterpret_cast<const typename Raw<N>::Type *>(from);
    Pairs<N> p;
    memcpy(&p, &raw, sizeof p);
    return p;
}
template <int N> __device__ inline void put(Bf *to, const Pairs<N> &p) {
    typename Raw<N>::Type raw;
    memcpy(&raw, &p, sizeof raw);
    *reinterpret_cast<typename Raw<N>::Type *>(to) = raw;
}
template <int N> __device__ inline Pairs<N> filled(Pair v) {
    Pairs<N> p;
#pragma unroll
    for (int i = 0; i < N; i++) p.p[i] = v;
    return p;
}

/* --- rows --- */

/* Rows of several tensors: `count` of them, `inner` to a step of the outer stride. */
struct Rows {
    unsigned count, inner;
    int64_t cols;
};

/* One tensor over Rows; strides in elements, 0 where it is the same for all. */
struct At {
    char *data;
    int64_t outer, inner;
};

__device__ inline int64_t offset(const At &t, const Rows &rows, unsigned row) {
    if (rows.inner == rows.count) return row * t.inner;
    unsigned step = row / rows.inner;
    return step * t.outer + (row - step * rows.inner) * t.inner;
}
__device__ inline Bf *row_of(const At &t, const Rows &rows, unsigned row) { return (Bf *)t.data + offset(t, rows, row); }

/* The leading dimensions of y and of what is broadcast over it, merged to two. False when they need three, or when there
 * are more rows than a grid of int can count. Absent tensors (rank 0) come out as NULL. */
static inline bool rows_of(const Tensor &y, const Tensor *const *all, int count, Rows *rows, At *out) {
    enum { MOST = 8 };
    rows::Walk w = rows::walk_of(y);
    rows::View v[MOST];
    int64_t extent[2] = {1, 1}, stride[2][MOST] = {};
    int level = 0;
    if (count > MOST || w.rows > INT32_MAX) return false;
    for (int k = 0; k < count; k++) v[k] = rows::view_of(*all[k], w);
    for (int i = rows::LEAD - 1; i >= 0; i--) {
        if (w.extent[i] == 1) continue;
        bool merges = extent[level] > 1;
        for (int k = 0; k < count && merges; k++) merges = v[k].lead[i] == stride[level][k] * extent[level];
        if (!merges && extent[level] > 1 && ++level == 2) return false;
        for (int k = 0; k < count && !merges; k++) stride[level][k] = v[k].lead[i];
        extent[level] *= w.extent[i];
    }
    *rows = Rows{(unsigned)w.rows, (unsigned)extent[0], w.cols};
    for (int k = 0; k < count; k++) out[k] = At{v[k].data, stride[1][k], stride[0][k]};
    return true;
}

/* Can every row be read `n` elements at a time? */
static inline bool aligned(const Tensor &t, const At &at, int n) {
    return !t.rank || (t.stride[t.rank - 1] == 1 && (uintptr_t)at.data % (n * sizeof(Bf)) == 0 && at.outer % n == 0 &&
                       at.inner % n == 0);
}

/* --- guards --- */

/* The dtype of all of an op's tensors; with it the kernels run or hand a shape class over to the reference. */
static inline bool want_bf16(const Tensor *t, int count, char *why, size_t size) {
    for (int i = 0; i < count; i++)
        if (t[i].rank && t[i].dtype != BF16)
            return snprintf(why, size, "argument %d is %s, expected BF16", i, dtype_name(t[i].dtype)), false;
    return true;
}

static inline unsigned blocks_for(int64_t n, int64_t per_block) { return (unsigned)((n + per_block - 1) / per_block); }

/* --- launches that overlap: a kernel of `launch_early` is brought to the multiprocessors while the one before it in the
 * stream ends. It calls begin() before its first access to memory: until then the one before it may still write. --- */

/* Waits until everything before this kernel has been done and can be seen; then the next one may be brought up. */
__device__ inline void begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Errors: cudaGetLastError, as after any launch. */
template <typename... P, typename... A>
static inline void launch_early(const Exec *x, void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared, A... args) {
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t c = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    c.gridDim = grid, c.blockDim = dim3(threads), c.dynamicSmemBytes = shared, c.stream = x->cuda->stream;
    c.attrs = &early, c.numAttrs = x->cuda->sm >= 90 ? 1 : 0;
    (void)cudaLaunchKernelEx(&c, kernel, P(args)...);
}

} /* namespace fast */

#endif
