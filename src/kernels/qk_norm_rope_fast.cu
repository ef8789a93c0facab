/* qk_norm_rope_fast.cu - QK norm and RoPE of BF16 heads of 64, 128 or 256 elements, every head one 16-byte load a lane.
 *
 * The reference's bits (norm.cu): a 4-element vector's squares are one fma chain, 32 vectors add up by shuffle-down, and
 * 256 elements are two such sums. Here a lane holds vectors 2l and 2l + 1, E/8 lanes a head: the shuffles by 16, 8, 4, 2
 * become 8, 4, 2, 1 lanes, and the last step adds the lane's own two sums. A warp takes one token: weights and angles stay in
 * registers, several heads are under way at once. Other heads, other forms and unaligned views go to the table's
 * reference.
 * Easy to get wrong: the norm is rounded before it is rotated; dividing by E is exact as a product only because E is a
 * power of two. */
#include "kernels/cuda_fast.cuh"

using namespace fast;
using rows::r;

namespace {

constexpr int THREADS = 128, WARPS = THREADS / 32, AHEAD = 4;
constexpr unsigned ALL = 0xffffffffu;

struct Side {
    char *y, *x, *w; /* w may be NULL */
    int heads;
    int64_t y_token, y_head, x_token, x_head;
};

struct Args {
    Side side[2]; /* q, k */
    const float *cos, *sin;
    int64_t cos_row, sin_row, tokens;
    float eps;
    bool wide; /* the tables allow 16-byte reads */
};

/* 1/sqrt(mean of squares + eps) of the head whose LANES lanes this one belongs to. */
template <int LANES> __device__ inline float scale_of(const float v[WIDE], float eps) {
    constexpr int E = LANES * WIDE, TREE = LANES < 16 ? LANES : 16; /* lanes of one sum of 32 vectors */
    float a = 0.0f, b = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) a = fmaf(v[i], v[i], a), b = fmaf(v[4 + i], v[4 + i], b);
#pragma unroll
    for (int by = TREE / 2; by; by /= 2) {
        a = a + __shfl_down_sync(ALL, a, by);
        b = b + __shfl_down_sync(ALL, b, by);
    }
    float sum = a + b;
    if (LANES == 32) sum = __shfl_sync(ALL, sum, 0) + __shfl_sync(ALL, sum, 16);
    else sum = __shfl_sync(ALL, sum, 0, LANES);
    return rsqrtf(sum * (1.0f / (float)E) + eps);
}

/* Angles of this lane's elements: of pairs (2i, 2i+1), or of elements against their partners half a head away. */
template <int LANES, int ROPE> struct Angles {
    static constexpr int COUNT = ROPE == ROPE_HALF ? WIDE : WIDE / 2;
    float c[COUNT], s[COUNT];
    __device__ Angles(const Args &a, int64_t token, int lane) {
        int first = ROPE == ROPE_HALF ? lane % (LANES / 2) * WIDE : lane * (WIDE / 2);
        read(c, a.cos + token * a.cos_row + first, a.wide);
        read(s, a.sin + token * a.sin_row + first, a.wide);
    }
    __device__ static void read(float v[COUNT], const float *from, bool wide) {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            float4 four = wide ? *(const float4 *)(from + i) : make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
            v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
        }
    }
};

template <int LANES> struct Angles<LANES, ROPE_NONE> {
    __device__ Angles(const Args &, int64_t, int) {}
};

template <int LANES, int ROPE> __device__ inline void rotate(float v[WIDE], const Angles<LANES, ROPE> &a, int lane) {
    if constexpr (ROPE == ROPE_INTERLEAVED) {
#pragma unroll
        for (int i = 0; i < WIDE / 2; i++) {
            float x = v[2 * i], y = v[2 * i + 1];
            v[2 * i] = x * a.c[i] - y * a.s[i];
            v[2 * i + 1] = y * a.c[i] + x * a.s[i];
        }
    }
    if constexpr (ROPE == ROPE_HALF) {
        bool low = lane < LANES / 2;
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
            float other = __shfl_xor_sync(ALL, v[i], LANES / 2);
            v[i] = low ? v[i] * a.c[i] - other * a.s[i] : v[i] * a.c[i] + other * a.s[i];
        }
    }
}

__device__ inline void widen(float v[WIDE], const Wide &p) {
#pragma unroll
    for (int i = 0; i < WIDE / 2; i++) v[2 * i] = __low2float(p.p[i]), v[2 * i + 1] = __high2float(p.p[i]);
}

/* blockIdx.x, warp: token; blockIdx.y: q or k. The warp's 32 lanes are 32 / LANES heads side by side. */
template <int LANES, int ROPE> __global__ void __launch_bounds__(THREADS) k_qk_norm_rope_fast(Args a) {
    constexpr int BESIDE = 32 / LANES;
    int64_t token = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    begin();
    if (token >= a.tokens) return;
    Side s = a.side[blockIdx.y];
    int lane = threadIdx.x % LANES, mine = threadIdx.x % 32 / LANES;
    const Bf *in = (const Bf *)s.x + token * s.x_token + lane * WIDE;
    Bf *out = (Bf *)s.y + token * s.y_token + lane * WIDE;
    float w[WIDE];
    Wide weight = filled<4>(both(1.0f)); /* 1 v is v */
    if (s.w) weight = get<4>((const Bf *)s.w + lane * WIDE);
    widen(w, weight);
    Angles<LANES, ROPE> angles(a, token, lane);
    for (int first = 0; first < s.heads; first += BESIDE * AHEAD) {
        Wide p[AHEAD];
#pragma unroll
        for (int t = 0; t < AHEAD; t++) {
            int head = first + t * BESIDE + mine;
            p[t] = filled<4>(both(0.0f));
            if (head < s.heads) p[t] = get<4>(in + head * s.x_head);
        }
#pragma unroll
        for (int t = 0; t < AHEAD; t++) {
            int head = first + t * BESIDE + mine;
            if (first + t * BESIDE >= s.heads) break; /* the same for the whole warp */
            float v[WIDE];
            widen(v, p[t]);
            float rstd = scale_of<LANES>(v, a.eps);
#pragma unroll
            for (int i = 0; i < WIDE; i++) v[i] = w[i] * (rstd * v[i]);
            if (ROPE != ROPE_NONE) {
#pragma unroll
                for (int i = 0; i < WIDE / 2; i++) p[t].p[i] = round2(v[2 * i], v[2 * i + 1]);
                widen(v, p[t]);
                rotate<LANES, ROPE>(v, angles, lane);
            }
#pragma unroll
            for (int i = 0; i < WIDE / 2; i++) p[t].p[i] = round2(v[2 * i], v[2 * i + 1]);
            if (head < s.heads) put(out + head * s.y_head, p[t]);
        }
    }
}

/* --- launches --- */

bool side_of(Side *s, const Tensor &y, const Tensor &x, const Tensor &w) {
    *s = Side{};
    if (!y.rank) return true; /* no k: no heads */
    s->y = (char *)y.data, s->x = (char *)x.data, s->w = w.rank ? (char *)w.data : NULL;
    s->heads = (int)y.shape[1];
    s->y_token = y.stride[0], s->y_head = y.stride[1], s->x_token = x.stride[0], s->x_head = x.stride[1];
    int64_t odd = s->y_token | s->y_head | s->x_token | s->x_head;
    uintptr_t at = (uintptr_t)s->y | (uintptr_t)s->x | (uintptr_t)s->w;
    return odd % WIDE == 0 && at % 16 == 0 && y.stride[2] == 1 && x.stride[2] == 1 && (!w.rank || w.stride[0] == 1);
}

template <int LANES> void launch(Exec *x, const Args &a, int rope) {
    dim3 grid(blocks_for(a.tokens, WARPS), a.side[1].heads ? 2 : 1);
    switch (rope) {
    case ROPE_NONE: launch_early(x, k_qk_norm_rope_fast<LANES, ROPE_NONE>, grid, THREADS, 0, a); break;
    case ROPE_HALF: launch_early(x, k_qk_norm_rope_fast<LANES, ROPE_HALF>, grid, THREADS, 0, a); break;
    default: launch_early(x, k_qk_norm_rope_fast<LANES, ROPE_INTERLEAVED>, grid, THREADS, 0, a); break;
    }
}

Status qk_norm_rope_head_cuda_fast(Exec *x, const void *args) {
    const QkNormRopeHead *q = (const QkNormRopeHead *)args;
    Args a = {};
    int64_t e = q->yq.shape[2];
    bool turns = q->rope != ROPE_NONE;
    if (!tensor_numel(q->yq)) return OK;
    bool good = side_of(&a.side[0], q->yq, q->q, q->wq) && side_of(&a.side[1], q->yk, q->k, q->wk) &&
                (e == 64 || e == 128 || e == 256);
    if (turns) good = good && q->cos.rank && q->sin.rank && q->cos.stride[1] == 1 && q->sin.stride[1] == 1;
    if (!good) return chain_run(x, OP_qk_norm_rope_head, args);
    a.tokens = q->yq.shape[0];
    a.eps = q->eps;
    if (turns) {
        a.cos = (const float *)q->cos.data, a.sin = (const float *)q->sin.data;
        a.cos_row = q->cos.stride[0], a.sin_row = q->sin.stride[0];
        a.wide = (a.cos_row | a.sin_row) % 4 == 0 && ((uintptr_t)a.cos | (uintptr_t)a.sin) % 16 == 0;
    }
    if (e == 64) launch<8>(x, a, q->rope);
    else if (e == 128) launch<16>(x, a, q->rope);
    else launch<32>(x, a, q->rope);
    return cuda_launched(x, "qk_norm_rope_head");
}

bool qk_norm_rope_head_accepts(const void *args, char *why, size_t size) {
    const QkNormRopeHead *a = (const QkNormRopeHead *)args;
    if (!want_bf16(&a->yq, 6, why, size)) return false;
    if (a->form == RMS_ONCE && a->rope <= ROPE_HALF) return true;
    snprintf(why, size, "norm form %d with RoPE form %d is not this kernel's", (int)a->form, (int)a->rope);
    return false;
}

} /* namespace */

const Impl QK_NORM_ROPE_FAST_CUDA[] = {
    {OP_qk_norm_rope_head, "cuda_fast", qk_norm_rope_head_cuda_fast, NULL, qk_norm_rope_head_accepts},
};
