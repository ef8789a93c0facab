/* cuda_four.cuh - what the one-pass kernels of whole BF16 rows add to cuda_fast.cuh: four elements of a row as one access of 8
 * bytes, the mean chain's sums in that layout, and the guards that say which rows can be read so.
 *
 * For .cu files only. Easy to get wrong: squares are rounded before they are added, as PyTorch's two kernels do (it shows in
 * denormals only). */
#ifndef KERNELS_CUDA_FOUR_CUH
#define KERNELS_CUDA_FOUR_CUH

#include "kernels/cuda_fast.cuh"

namespace four {

using fast::Bf;
using Two = fast::Pair;
using fast::Four; /* p[0]: the first two elements */

constexpr unsigned ALL = 0xffffffffu;
constexpr int VEC = 4; /* elements of an access of 8 bytes */

__device__ inline Four get(const Four *p) { return fast::get<2>((const Bf *)p); }
__device__ inline void put(Four *p, const Four &v) { fast::put<2>((Bf *)p, v); }
/* Weights and modulation: never an output, so loads of them may pass stores. */
__device__ inline Four constant(const Four *p) {
    uint2 raw = __ldg((const uint2 *)p);
    Four out;
    memcpy(&out, &raw, sizeof out);
    return out;
}

__device__ inline Four times(Four a, Four b) { return {{fast::mul(a.p[0], b.p[0]), fast::mul(a.p[1], b.p[1])}}; }
__device__ inline Four plus(Four a, Four b) { return {{fast::add(a.p[0], b.p[0]), fast::add(a.p[1], b.p[1])}}; }
__device__ inline Four one_plus(Four a) { return {{fast::one_plus(a.p[0]), fast::one_plus(a.p[1])}}; }
__device__ inline float4 widen(Four a) {
    return make_float4(__low2float(a.p[0]), __high2float(a.p[0]), __low2float(a.p[1]), __high2float(a.p[1]));
}
__device__ inline Four narrow(float4 a) { return {{fast::round2(a.x, a.y), fast::round2(a.z, a.w)}}; }
__device__ inline float4 scaled(float4 a, float by) { return make_float4(a.x * by, a.y * by, a.z * by, a.w * by); }
__device__ inline float4 times(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }
__device__ inline float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
__device__ inline float4 tanh4(float4 a) { return make_float4(tanhf(a.x), tanhf(a.y), tanhf(a.z), tanhf(a.w)); }

/* --- the mean chain: lane l of a warp holds the vectors l, l + 32, ... of a row; a sum for each of four positions --- */

__device__ inline void square(float4 &sum, Four v) {
    float4 e = widen(v);
    sum = plus(sum, times(e, e));
}

/* rsqrt(mean of squares + eps) in every lane, from the lanes' sums. */
__device__ inline float finish(float4 s, float inverse, float eps) {
    float sum = ((s.x + s.y) + s.z) + s.w;
#pragma unroll
    for (int by = 16; by; by /= 2) sum = sum + __shfl_down_sync(ALL, sum, by);
    return rsqrtf(__shfl_sync(ALL, sum, 0) * inverse + eps);
}

/* r(r(v * rstd) * w). */
__device__ inline Four normed(Four v, float rstd, Four w) { return times(narrow(scaled(widen(v), rstd)), w); }

/* --- rows --- */

struct Row { /* rows of one distance; NULL: absent */
    char *data;
    int64_t stride;
};
__device__ inline Four *at(const Row &r, int64_t row) { return (Four *)((Bf *)r.data + row * r.stride); }

#define REFUSE(...) return snprintf(why, size, __VA_ARGS__), false

/* Rows of one distance, BF16, reachable `vec` elements at a time. Rows of extent 1 may have any distance. */
static inline bool regular(const Tensor &t, int vec, Row *out) {
    int64_t rows = 1, stride = t.shape[t.rank - 1];
    for (int d = t.rank - 2; d >= 0; d--) {
        if (t.shape[d] == 1) continue;
        if (rows == 1) stride = t.stride[d];
        else if (t.stride[d] != rows * stride) return false;
        rows *= t.shape[d];
    }
    *out = Row{(char *)t.data, stride};
    return t.stride[t.rank - 1] == 1 && stride % vec == 0 && (uintptr_t)t.data % (vec * sizeof(Bf)) == 0;
}

/* Is t absent, or BF16 rows like those of `like`, the argument `of`, that can be read `vec` elements at a time? */
static inline bool fits_rows(const char *name, const Tensor &t, const Tensor &like, const char *of, int vec, char *why,
                             size_t size) {
    Row row;
    if (!t.rank) return true;
    if (t.dtype != BF16) REFUSE("%s is %s, expected BF16", name, dtype_name(t.dtype));
    if (!tensor_same_shape(t, like)) REFUSE("%s has another shape than %s", name, of);
    if (!regular(t, vec, &row)) REFUSE("%s has no rows of one distance, aligned to %d elements", name, vec);
    return true;
}

static inline int64_t rows_of(const Tensor &t) { return tensor_numel(t) / t.shape[t.rank - 1]; }

static inline bool fits_one(const char *name, const Tensor &t, int64_t cols, char *why, size_t size) {
    if (!t.rank) return true;
    if (t.dtype != BF16 || tensor_numel(t) != cols || t.stride[t.rank - 1] != 1 || (uintptr_t)t.data % (VEC * sizeof(Bf)))
        REFUSE("%s is not one aligned BF16 row of %lld", name, (long long)cols);
    return true;
}

} /* namespace four */

#endif
