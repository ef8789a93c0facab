/* dwconv_fast.cu - dwconv3_glu of BF16 in one pass (the family gated-conv): convolution, both biases, SiLU and product.
 *
 * A lane keeps four channels of the value and the same four of the gate, with all their weights, at one column of the picture,
 * and walks down its rows: each row of the input that it reads is the last of the row above, the middle of its own and the
 * first of the row below, so three sums a channel are under way. Its neighbours' columns come from the L1, which the block
 * has just filled. The next row is loaded while this one is worked on. Bytes: x once, y once.
 * Easy to get wrong: a sum gets its taps rows first from 0, so the row above must be added before the row itself; taps outside
 * the picture take no part (a weight may be infinite). */
#include "kernels/cuda_act.cuh"
#include "kernels/cuda_fast.cuh"

using namespace fast;

namespace {

constexpr int LANES = 32, COLUMNS = 8, THREADS = LANES * COLUMNS, EACH = 4, SIDE = 3, HALVES = 2;

struct Frames {
    const Bf *x, *w, *bias;
    Bf *y;
    int height, width, channels; /* of y */
    int64_t x_frame, x_row, x_column, y_frame, y_row, y_column;
};

/* What a lane reads of one row: left, own and right column of both halves. */
struct Line {
    Four v[HALVES][SIDE];
};

struct Sums {
    float s[HALVES][EACH];
};

__device__ inline void widen4(float to[EACH], const Four &v) {
#pragma unroll
    for (int k = 0; k < EACH / 2; k++) to[2 * k] = __low2float(v.p[k]), to[2 * k + 1] = __high2float(v.p[k]);
}

struct Edges {
    bool left, right; /* are there columns? */
    __device__ bool has(int kx) const { return kx == 0 ? left : kx == 1 || right; }
};

__device__ inline void read(Line &line, const Bf *row, const Frames &f, const Edges &e) {
#pragma unroll
    for (int h = 0; h < HALVES; h++)
#pragma unroll
        for (int kx = 0; kx < SIDE; kx++)
            if (e.has(kx)) line.v[h][kx] = get<2>(row + (kx - 1) * f.x_column + (int64_t)h * f.channels);
}

/* Row `in` of the input, to the sums of the rows above (its third row of taps), of its own and below. */
__device__ inline void taps(Sums &above, Sums &own, Sums &below, const Line &line, const float w[HALVES][SIDE * SIDE][EACH],
                            const Edges &e) {
#pragma unroll
    for (int kx = 0; kx < SIDE; kx++) {
        if (!e.has(kx)) continue;
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            float v[EACH];
            widen4(v, line.v[h][kx]);
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                above.s[h][k] = fmaf(v[k], w[h][2 * SIDE + kx][k], above.s[h][k]);
                own.s[h][k] = fmaf(v[k], w[h][SIDE + kx][k], own.s[h][k]);
                below.s[h][k] = fmaf(v[k], w[h][kx][k], below.s[h][k]);
            }
        }
    }
}

/* r(d * r(silu(gate))) of finished sums. */
__device__ inline Four finish(const Sums &sums, const Four bias[HALVES]) {
    Four out;
#pragma unroll
    for (int k = 0; k < EACH / 2; k++) {
        Pair value = add(round2(sums.s[0][2 * k], sums.s[0][2 * k + 1]), bias[0].p[k]);
        float2 gate = __bfloat1622float2(add(round2(sums.s[1][2 * k], sums.s[1][2 * k + 1]), bias[1].p[k]));
        out.p[k] = mul(value, round2(act::silu_of_bf16(gate.x), act::silu_of_bf16(gate.y)));
    }
    return out;
}

/* blockIdx: columns, channels, frames. */
__global__ void __launch_bounds__(THREADS, 2) k_dwconv3_glu(Frames f) {
    int c = ((int)blockIdx.y * LANES + (int)threadIdx.x) * EACH, px = (int)blockIdx.x * COLUMNS + (int)threadIdx.y;
    if (c >= f.channels || px >= f.width) return;
    Edges e = {px > 0, px + 1 < f.width};
    const Bf *x = f.x + blockIdx.z * f.x_frame + px * f.x_column + c;
    Bf *y = f.y + blockIdx.z * f.y_frame + px * f.y_column + c;
    float w[HALVES][SIDE * SIDE][EACH];
    Four bias[HALVES];
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        const Bf *from = f.w + ((int64_t)h * f.channels + c) * (SIDE * SIDE); /* channel by channel */
        bias[h] = get<2>(f.bias + (int64_t)h * f.channels + c);
#pragma unroll
        for (int i = 0; i < SIDE * SIDE; i++) {
            float v[EACH];
            widen4(v, get<2>(from + i * EACH));
#pragma unroll
            for (int k = 0; k < EACH; k++) w[h][(i * EACH + k) % (SIDE * SIDE)][(i * EACH + k) / (SIDE * SIDE)] = v[k];
        }
    }
    Sums above = {}, own = {}, below = {};
    Line line, next;
    read(line, x, f, e);
    for (int row = 0; row < f.height; row++) {
        if (row + 1 < f.height) read(next, x + (row + 1) * f.x_row, f, e);
        taps(above, own, below, line, w, e);
        if (row) put(y + (row - 1) * f.y_row, finish(above, bias));
        above = own, own = below, below = Sums{};
        line = next;
    }
    put(y + (f.height - 1) * f.y_row, finish(above, bias));
}

bool multiples(const Tensor &t) {
    for (int d = 0; d < t.rank - 1; d++)
        if (t.shape[d] > 1 && t.stride[d] % EACH) return false;
    return (uintptr_t)t.data % (EACH * sizeof(Bf)) == 0;
}

bool fits(const Dwconv3Glu *a) {
    const Tensor &y = a->y, &x = a->x, &w = a->w->w, &b = a->w->bias;
    const int64_t c = y.rank == 4 ? y.shape[3] : 0, shape[] = {2 * c, SIDE, SIDE, 1};
    if (!c || c % EACH || x.rank != 4 || x.shape[3] != 2 * c || x.stride[3] != 1 || y.stride[3] != 1) return false;
    for (int d = 0; d < 3; d++)
        if (x.shape[d] != y.shape[d]) return false;
    if (w.rank != 4 || memcmp(w.shape, shape, sizeof shape) || !tensor_contiguous(w) || !b.rank || tensor_numel(b) != 2 * c)
        return false;
    return multiples(x) && multiples(y) && (uintptr_t)w.data % (EACH * sizeof(Bf)) == 0 &&
           (uintptr_t)b.data % (EACH * sizeof(Bf)) == 0 && y.shape[0] <= 65535 && c <= (int64_t)65535 * LANES * EACH;
}

Status dwconv3_glu_fast(Exec *x, const void *args) {
    const Dwconv3Glu *a = (const Dwconv3Glu *)args;
    if (!tensor_numel(a->y) || !fits(a)) return DWCONV_CUDA->run(x, args);
    Frames f = {(const Bf *)a->x.data, (const Bf *)a->w->w.data, (const Bf *)a->w->bias.data, (Bf *)a->y.data,
                (int)a->y.shape[1], (int)a->y.shape[2], (int)a->y.shape[3], a->x.stride[0], a->x.stride[1], a->x.stride[2],
                a->y.stride[0], a->y.stride[1], a->y.stride[2]};
    dim3 grid(blocks_for(f.width, COLUMNS), blocks_for(f.channels, LANES * EACH), (unsigned)a->y.shape[0]);
    k_dwconv3_glu<<<grid, dim3(LANES, COLUMNS), 0, x->cuda->stream>>>(f);
    return cuda_launched(x, "dwconv3_glu");
}

/* The reference's, for what is handed over to it. */
size_t dwconv3_glu_scratch(const Exec *x, const void *args) { return DWCONV_CUDA->scratch(x, args); }

bool dwconv3_glu_accepts(const void *args, char *why, size_t size) {
    return want_bf16(&((const Dwconv3Glu *)args)->y, 2, why, size) && DWCONV_CUDA->accepts(args, why, size);
}

} /* namespace */

const Impl DWCONV_FAST_CUDA[] = {{OP_dwconv3_glu, "cuda_fast", dwconv3_glu_fast, dwconv3_glu_scratch, dwconv3_glu_accepts}};
