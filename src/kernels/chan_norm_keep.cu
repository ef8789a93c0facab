/* chan_norm_keep.cu - chan_rmsnorm_silu of the family wan-norm (chan_norm.h) on BF16 in whole vectors: nothing but the result is
 * rounded, and the squares are summed in any order.
 *
 * One pass at the rate of a copy: a pixel belongs to a power of two of lanes, so that its vectors of 16 bytes fill them in a few
 * turns (96 channels are three vectors for each of four lanes, and a warp reads eight pixels in whole lines); a lane has the
 * next pixel's vectors under way while it works on the present one's. Gamma and bias stay in registers over all pixels of a
 * thread.
 * Easy to get wrong: y may be x: a pixel is read, and the next one too, before it is written, and by no other lanes. */
#include "kernels/chan_norm.h"
#include "kernels/cuda_act.cuh"
#include "kernels/cuda_fast.cuh"

using namespace fast;

namespace {

constexpr int THREADS = 256;
/* Blocks a multiprocessor, by their registers. */
constexpr int resident(int turns) { return turns < 3 ? 3 : 2; }
constexpr unsigned ALL = 0xffffffffu;

struct Norm {
    Bf *y;
    const Bf *x, *gamma, *bias;
    int64_t pixels;
    int vectors, shift; /* of a pixel; log2 of its lanes */
    float scale;
};

struct Values {
    float v[WIDE];
};

__device__ inline Values widened(const Wide &w) {
    Values e;
#pragma unroll
    for (int i = 0; i < WIDE / 2; i++) e.v[2 * i] = __low2float(w.p[i]), e.v[2 * i + 1] = __high2float(w.p[i]);
    return e;
}

/* x' of a vector. */
template <bool BIAS> __device__ inline Values biased(const Wide &v, const Values &bias) {
    Values e = widened(v);
#pragma unroll
    for (int i = 0; BIAS && i < WIDE; i++) e.v[i] += bias.v[i];
    return e;
}

/* 1 / max(sqrt(square), 1e-12): the fast root, corrected once. An infinity gives 0, NaN stays. */
__device__ inline float inverse_length(float square) {
    float r = rsqrtf(square), better = fmaf(0.5f * r, fmaf(-square * r, r, 1.0f), r);
    return square < 1e-24f ? 1e12f : square < INFINITY ? better : r;
}

/* Where 1 + e^-z passes 2^126 its reciprocal is 0, as the result all but is. */
__device__ inline float silu(float z) { return z * act::reciprocal_fast(1.0f + act::exp2_fast(z * -1.4426950408889634f)); }

__device__ inline Wide finished(const Values &e, float factor, const Values &gamma) {
    Wide y;
#pragma unroll
    for (int i = 0; i < WIDE / 2; i++)
        y.p[i] = round2(silu(e.v[2 * i] * factor * gamma.v[2 * i]), silu(e.v[2 * i + 1] * factor * gamma.v[2 * i + 1]));
    return y;
}

/* --- pixels --- */

template <int TURNS, bool BIAS>
__global__ void __launch_bounds__(THREADS, resident(TURNS)) k_chan_norm_keep(Norm a) {
    int lanes = 1 << a.shift, lane = threadIdx.x & (lanes - 1), turn = lanes * WIDE;
    int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, step = (int64_t)gridDim.x * THREADS >> a.shift;
    int64_t pixel = thread >> a.shift, first = (thread & ~31) >> a.shift; /* its own; its warp's */
    int64_t at = (pixel * a.vectors + lane) * WIDE, stride = step * a.vectors * WIDE;
    Values gamma[TURNS], bias[TURNS];
    Wide next[TURNS];
    begin();
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        gamma[t] = widened(get<WIDE / 2>(a.gamma + lane * WIDE + t * turn));
        if (BIAS) bias[t] = widened(get<WIDE / 2>(a.bias + lane * WIDE + t * turn));
        next[t] = pixel < a.pixels ? get<WIDE / 2>(a.x + at + t * turn) : filled<WIDE / 2>(both(0.0f));
    }
    /* a warp's pixels end together: all lanes take part in the sums */
    for (; first < a.pixels; first += step, pixel += step, at += stride) {
        Wide v[TURNS];
#pragma unroll
        for (int t = 0; t < TURNS; t++) v[t] = next[t];
        if (pixel + step < a.pixels) {
#pragma unroll
            for (int t = 0; t < TURNS; t++) next[t] = get<WIDE / 2>(a.x + at + stride + t * turn);
        }
        Values e[TURNS];
        float square = 0.0f;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            e[t] = biased<BIAS>(v[t], bias[t]);
#pragma unroll
            for (int i = 0; i < WIDE; i++) square = fmaf(e[t].v[i], e[t].v[i], square);
        }
        for (int other = lanes / 2; other; other /= 2) square += __shfl_xor_sync(ALL, square, other);
        if (pixel >= a.pixels) continue;
        float factor = inverse_length(square) * a.scale;
#pragma unroll
        for (int t = 0; t < TURNS; t++) put(a.y + at + t * turn, finished(e[t], factor, gamma[t]));
    }
}

/* Any strides: a warp a pixel, an element a lane. */
__global__ void __launch_bounds__(THREADS)
    k_chan_norm_keep_row(rows::View y, rows::View in, const Bf *gamma, const Bf *bias, rows::Walk w, float scale) {
    int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    int lane = threadIdx.x & 31;
    if (row >= w.rows) return;
    const Bf *from = (const Bf *)in.data + rows::offset(in, w, row);
    Bf *to = (Bf *)y.data + rows::offset(y, w, row);
    auto value = [&](int64_t i) { /* without a bias nothing is added: -0 stays */
        float e = __bfloat162float(from[i * in.last]);
        return bias ? e + __bfloat162float(bias[i]) : e;
    };
    float square = 0.0f;
    for (int64_t i = lane; i < w.cols; i += 32) square = fmaf(value(i), value(i), square);
    for (int other = 16; other; other /= 2) square += __shfl_xor_sync(ALL, square, other);
    float factor = inverse_length(square) * scale;
    for (int64_t i = lane; i < w.cols; i += 32)
        to[i * y.last] = __float2bfloat16_rn(silu(value(i) * factor * __bfloat162float(gamma[i])));
}

/* --- choosing --- */

template <int TURNS> void launch(Exec *x, const Norm &a) {
    unsigned wanted = blocks_for(a.pixels << a.shift, THREADS), most = (unsigned)(x->cuda->sm_count * resident(TURNS));
    dim3 blocks(wanted < most ? wanted : most);
    if (a.bias) launch_early(x, k_chan_norm_keep<TURNS, true>, blocks, THREADS, 0, a);
    else launch_early(x, k_chan_norm_keep<TURNS, false>, blocks, THREADS, 0, a);
}

constexpr int MOST_TURNS = 4;

/* `lanes` a power of two up to 32, `turns` up to MOST_TURNS; turns 0: it cannot be. */
struct Spread {
    int lanes, turns;
};

/* Of so many vectors: no lane is ever idle, and of two ways the one with more turns, so more loads under way. */
Spread spread_of(int64_t vectors) {
    for (int lanes = 1; lanes <= 32; lanes *= 2)
        if (vectors % lanes == 0 && vectors / lanes <= MOST_TURNS) return {lanes, (int)(vectors / lanes)};
    return {};
}

/* Of a call: turns 0 where it has not whole vectors at aligned addresses. */
Spread spread_of(const ChanRmsNorm *a) {
    const Tensor *all[] = {&a->y, &a->x, &a->w, &a->bias};
    int64_t bytes = a->w.shape[0] * (int64_t)dtype_size(a->x.dtype);
    bool wide = bytes % 16 == 0;
    for (const Tensor *t : all) wide = wide && (!t->rank || (tensor_contiguous(*t) && (uintptr_t)t->data % 16 == 0));
    return wide ? spread_of(bytes / 16) : Spread{};
}

} /* namespace */

Status chan_norm_keep(Exec *x, const ChanRmsNorm *a) {
    Spread s = spread_of(a);
    int64_t c = a->w.shape[0];
    Norm n = {};
    n.y = (Bf *)a->y.data, n.x = (const Bf *)a->x.data, n.gamma = (const Bf *)a->w.data;
    n.bias = a->bias.rank ? (const Bf *)a->bias.data : NULL;
    n.pixels = tensor_numel(a->x) / c, n.vectors = (int)(c / WIDE), n.scale = (float)sqrt((double)c);
    while (1 << n.shift < s.lanes) n.shift++;
    if (!s.turns || s.lanes * s.turns * WIDE != c) { /* a lane would be idle */
        rows::Walk w = rows::walk_of(a->y);
        k_chan_norm_keep_row<<<blocks_for(w.rows, THREADS / 32), THREADS, 0, x->cuda->stream>>>(
            rows::view_of(a->y, w), rows::view_of(a->x, w), n.gamma, n.bias, w, n.scale);
    } else if (s.turns == 1) launch<1>(x, n);
    else if (s.turns == 2) launch<2>(x, n);
    else if (s.turns == 3) launch<3>(x, n);
    else launch<4>(x, n);
    return cuda_launched(x, "chan_rmsnorm_silu");
}
