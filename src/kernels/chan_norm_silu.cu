/* chan_norm_silu.cu - chan_rmsnorm_silu of BF16 in whole vectors: the reference's fast form and that of the family wan-norm
 * (KEEP, chan_norm.h).
 *
 * A lane has the next pixel's vectors under way while it works on the present one's. An element has the time of some twenty
 * instructions before the memory waits for them: so gamma and bias stay in registers over all pixels of a thread, neighbouring
 * channels go through roundings, sums and products in pairs (cuda_fast.cuh), and nothing asks whether a lane has work. Lanes and
 * turns: chan_norm.cuh.
 * Easy to get wrong: y may be x: a pixel is read, and the next one too, before it is written, and by no other lanes. */
#include "kernels/chan_norm.cuh"
#include "kernels/cuda_act.cuh"
#include "kernels/cuda_fast.cuh"

using namespace fast;

namespace {

constexpr int THREADS = 256;
/* Blocks a multiprocessor, by their registers. */
constexpr int resident(int turns, bool keep) { return turns < 3 || (turns == 3 && !keep) ? 3 : 2; }
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

/* What stays over all pixels: pairs for sums and products that round, f32 for those that do not. */
template <bool KEEP> struct Kept;
template <> struct Kept<false> {
    Wide w;
    __device__ void take(const Wide &v) { w = v; }
};
template <> struct Kept<true> {
    Values e;
    __device__ void take(const Wide &v) { e = widened(v); }
};

/* x' of a vector. */
template <bool BIAS> __device__ inline Values biased(Wide v, const Kept<false> &bias) {
#pragma unroll
    for (int i = 0; BIAS && i < WIDE / 2; i++) v.p[i] = add(v.p[i], bias.w.p[i]);
    return widened(v);
}
template <bool BIAS> __device__ inline Values biased(const Wide &v, const Kept<true> &bias) {
    Values e = widened(v);
#pragma unroll
    for (int i = 0; BIAS && i < WIDE; i++) e.v[i] += bias.e.v[i];
    return e;
}

/* --- every step is rounded --- */

struct Rounding {
    chan_norm::Divisor d;
    float scale;
    __device__ Rounding(float square, float scale) : d(chan_norm::divisor(chan_norm::length_of(square))), scale(scale) {}

    /* One quotient that needs more than a correction is rare: it may cost its vector eight divisions. */
    __device__ Wide finished(const Values &e, const Kept<false> &gamma) const {
        Wide y;
        Values n;
        bool plain = d.plain;
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
            float q = e.v[i] * d.inverse;
            plain &= chan_norm::correctable(q);
            n.v[i] = chan_norm::corrected(e.v[i], q, d);
        }
        if (!plain) {
#pragma unroll
            for (int i = 0; i < WIDE; i++) n.v[i] = e.v[i] / d.by;
        }
#pragma unroll
        for (int i = 0; i < WIDE / 2; i++) {
            Pair z = round2(n.v[2 * i], n.v[2 * i + 1]);
            z = mul(round2(__low2float(z) * scale, __high2float(z) * scale), gamma.w.p[i]);
            y.p[i] = round2(act::silu_of_bf16(__low2float(z)), act::silu_of_bf16(__high2float(z)));
        }
        return y;
    }
};

/* --- only the result is --- */

/* 1 / max(sqrt(square), 1e-12): the fast root, corrected once. An infinity gives 0, NaN stays. */
__device__ inline float inverse_length(float square) {
    float r = rsqrtf(square), better = fmaf(0.5f * r, fmaf(-square * r, r, 1.0f), r);
    return square < 1e-24f ? 1e12f : square < INFINITY ? better : r;
}

/* Where 1 + e^-z passes 2^126 its reciprocal is 0, as the result all but is. */
__device__ inline float silu(float z) { return z * act::reciprocal_fast(1.0f + act::exp2_fast(z * -1.4426950408889634f)); }

struct Keeping {
    float factor;
    __device__ Keeping(float square, float scale) : factor(inverse_length(square) * scale) {}

    __device__ Wide finished(const Values &e, const Kept<true> &gamma) const {
        Wide y;
#pragma unroll
        for (int i = 0; i < WIDE / 2; i++)
            y.p[i] = round2(silu(e.v[2 * i] * factor * gamma.e.v[2 * i]), silu(e.v[2 * i + 1] * factor * gamma.e.v[2 * i + 1]));
        return y;
    }
};

template <bool KEEP> struct Way {
    using Type = Rounding;
};
template <> struct Way<true> {
    using Type = Keeping;
};

/* --- pixels --- */

template <int TURNS, bool BIAS, bool KEEP>
__global__ void __launch_bounds__(THREADS, resident(TURNS, KEEP)) k_chan_norm_silu(Norm a) {
    int lanes = 1 << a.shift, lane = threadIdx.x & (lanes - 1), turn = lanes * WIDE;
    int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, step = (int64_t)gridDim.x * THREADS >> a.shift;
    int64_t pixel = thread >> a.shift, first = (thread & ~31) >> a.shift; /* its own; its warp's */
    int64_t at = (pixel * a.vectors + lane) * WIDE, stride = step * a.vectors * WIDE;
    Kept<KEEP> gamma[TURNS], bias[TURNS];
    Wide next[TURNS];
    begin();
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        gamma[t].take(get<WIDE / 2>(a.gamma + lane * WIDE + t * turn));
        if (BIAS) bias[t].take(get<WIDE / 2>(a.bias + lane * WIDE + t * turn));
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
        typename Way<KEEP>::Type way(square, a.scale);
#pragma unroll
        for (int t = 0; t < TURNS; t++) put(a.y + at + t * turn, way.finished(e[t], gamma[t]));
    }
}

template <int TURNS, bool BIAS, bool KEEP> void launch(Exec *x, const Norm &a) {
    int64_t wanted = blocks_for(a.pixels << a.shift, THREADS), most = (int64_t)x->cuda->sm_count * resident(TURNS, KEEP);
    launch_early(x, k_chan_norm_silu<TURNS, BIAS, KEEP>, dim3((unsigned)(wanted < most ? wanted : most)), THREADS, 0, a);
}

template <int TURNS> void launch(Exec *x, const Norm &a, bool keep) {
    if (a.bias && keep) launch<TURNS, true, true>(x, a);
    else if (a.bias) launch<TURNS, true, false>(x, a);
    else if (keep) launch<TURNS, false, true>(x, a);
    else launch<TURNS, false, false>(x, a);
}

} /* namespace */

bool chan_norm_silu_fits(const ChanRmsNorm *a) { return a->x.dtype == BF16 && chan_norm::spread_of(a).turns; }

Status chan_norm_silu(Exec *x, const ChanRmsNorm *a, bool keep) {
    chan_norm::Spread s = chan_norm::spread_of(a);
    int64_t c = a->w.shape[0];
    Norm n = {};
    n.y = (Bf *)a->y.data, n.x = (const Bf *)a->x.data, n.gamma = (const Bf *)a->w.data;
    n.bias = a->bias.rank ? (const Bf *)a->bias.data : NULL;
    n.pixels = tensor_numel(a->x) / c, n.vectors = (int)(c / WIDE), n.scale = (float)sqrt((double)c);
    while (1 << n.shift < s.lanes) n.shift++;
    if (s.turns == 1) launch<1>(x, n, keep);
    else if (s.turns == 2) launch<2>(x, n, keep);
    else if (s.turns == 3) launch<3>(x, n, keep);
    else launch<4>(x, n, keep);
    return cuda_launched(x, "chan_rmsnorm_silu");
}
