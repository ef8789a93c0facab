/* dwconv_fast.cu - dwconv3_glu of BF16 in one pass (the family gated-conv): convolution, all biases, both SiLUs and the product.
 *
 * A warp takes 64 channels of the value and the same of the gate at four columns of the picture, and walks down its rows: each
 * row of the input that it reads is the last of the row above, the middle of its own and the first of the row below, so three
 * rows of sums are under way. A lane has two channels of each half, and all their weights. Rows, with a column more on either
 * side, come through a ring of the warp's own in shared memory, filled several rows ahead: no warp waits for another.
 * Bytes: x once (the columns that neighbours share come from the L2), y once. The SiLU before is worked out when a lane reads a
 * column: for two columns in six twice, which is less than a pass over x.
 * Easy to get wrong: a sum gets its taps rows first from 0, so the row above must be added before the row itself; taps outside
 * the picture take no part (a weight may be infinite). */
#include "kernels/conv_frames.h"
#include "kernels/cuda_act.cuh"
#include "kernels/cuda_async.cuh"
#include "kernels/cuda_fast.cuh"

using namespace fast;

namespace {

constexpr int LANES = 32, WARPS = 4, EACH = 2, CHANNELS = LANES * EACH, SIDE = 3, HALVES = 2;
constexpr int ACROSS = 4, COLUMNS = ACROSS + 2; /* of outputs, of inputs */
constexpr int STAGES = 4;                       /* rows of a ring */

struct Frames {
    const Bf *x, *w, *bias, *before;
    Bf *y;
    int height, width, channels; /* of y */
    unsigned strips, chunks, tasks;
    int64_t x_frame, x_row, x_column, y_frame, y_row, y_column;
};

/* A row of the input, for one warp. */
struct Line {
    Bf at[COLUMNS][HALVES][CHANNELS];
};
constexpr unsigned LINE = sizeof(Line), RING = LINE * STAGES;
constexpr int PIECES = CHANNELS / WIDE, TURNS = COLUMNS * HALVES * PIECES / LANES; /* a lane's pieces of 16 bytes of a row */
static_assert(TURNS * LANES == COLUMNS * HALVES * PIECES, "a row is whole pieces for every lane");

struct Sums {
    float s[ACROSS][HALVES][EACH];
};

struct Weights {
    float w[HALVES][SIDE * SIDE][EACH];
    Pair bias[HALVES], before[HALVES];
};

/* What a lane brings of every row: elements from the row's start on. Where the picture or the channels end it brings what is
 * there instead, for nobody. */
struct Source {
    int64_t at[TURNS];
    unsigned to;
};

__device__ inline Source source_of(const Frames &f, int px, int c, int lane) {
    Source s;
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        int piece = i * LANES + lane, channel = c + piece % PIECES * WIDE, half = piece / PIECES % HALVES;
        int column = px - 1 + piece / (PIECES * HALVES);
        column = column < 0 ? 0 : column < f.width ? column : f.width - 1;
        s.at[i] = column * f.x_column + (int64_t)half * f.channels + (channel < f.channels ? channel : c);
    }
    s.to = lane * WIDE * (unsigned)sizeof(Bf);
    return s;
}

__device__ inline void bring(unsigned line, const Source &s, const Bf *row, bool there) {
    if (there)
#pragma unroll
        for (int i = 0; i < TURNS; i++)
            async::copy<false>(line + s.to + i * LANES * WIDE * (unsigned)sizeof(Bf), row + s.at[i]);
    async::commit();
}

/* A channel's nine taps lie together, and a lane's channels beside each other: 9 words a half. */
template <bool BEFORE> __device__ inline void read(Weights &to, const Frames &f, int c) {
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        const Pair *from = (const Pair *)(f.w + ((int64_t)h * f.channels + c) * (SIDE * SIDE));
        to.bias[h] = *(const Pair *)(f.bias + (int64_t)h * f.channels + c);
        if (BEFORE) to.before[h] = *(const Pair *)(f.before + (int64_t)h * f.channels + c);
#pragma unroll
        for (int i = 0; i < SIDE * SIDE; i++) {
            float2 v = __bfloat1622float2(from[i]);
            to.w[h][2 * i % (SIDE * SIDE)][2 * i / (SIDE * SIDE)] = v.x;
            to.w[h][(2 * i + 1) % (SIDE * SIDE)][(2 * i + 1) / (SIDE * SIDE)] = v.y;
        }
    }
}

__device__ inline unsigned word_of(Pair p) {
    unsigned word;
    memcpy(&word, &p, sizeof word);
    return word;
}

/* As act::silu_of_pair, by whole words: the compiler makes less of halves here. */
__device__ inline Pair silu(Pair p) {
    unsigned word = word_of(p);
    return round2(act::silu_of_bf16(async::low(word)), act::silu_of_bf16(async::high(word)));
}

/* A column of a row of the input, to the sums of the row above (its third row of taps), of its own and of the row below. */
template <bool BEFORE>
__device__ inline void taps(Sums &above, Sums &own, Sums &below, int column, unsigned line, const Weights &w) {
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        unsigned word = async::word(line + (unsigned)((column * HALVES + h) * CHANNELS * sizeof(Bf)));
        if (BEFORE) {
            Pair p;
            memcpy(&p, &word, sizeof p);
            word = word_of(silu(add(p, w.before[h])));
        }
        const float v[EACH] = {async::low(word), async::high(word)};
#pragma unroll
        for (int kx = 0; kx < SIDE; kx++) {
            int to = column - kx; /* the output whose tap kx this column is */
            if (to < 0 || to >= ACROSS) continue;
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                above.s[to][h][k] = fmaf(v[k], w.w[h][2 * SIDE + kx][k], above.s[to][h][k]);
                own.s[to][h][k] = fmaf(v[k], w.w[h][SIDE + kx][k], own.s[to][h][k]);
                below.s[to][h][k] = fmaf(v[k], w.w[h][kx][k], below.s[to][h][k]);
            }
        }
    }
}

/* A warp's way down: everything about it that a row needs. */
struct Walk {
    Source source;
    Weights w;
    const Bf *x;      /* the next row to bring */
    int rows;         /* how many there are */
    Bf *y;            /* of the row above */
    unsigned now, before, me; /* bytes: where the row and the one before it lie in the ring; the lane's place in it */
    bool left, right; /* are there columns? */
    bool here;        /* has the lane channels? */
};

/* r(d * r(silu(gate))) of finished sums. */
__device__ inline void finish(const Walk &k, int64_t y_column, const Sums &sums) {
#pragma unroll
    for (int i = 0; i < ACROSS; i++) {
        Pair value = add(round2(sums.s[i][0][0], sums.s[i][0][1]), k.w.bias[0]);
        Pair gate = add(round2(sums.s[i][1][0], sums.s[i][1][1]), k.w.bias[1]);
        Pair out = mul(value, silu(gate));
        if (k.here) *(Pair *)(k.y + i * y_column) = out;
    }
}

__device__ inline void bring_next(Walk &k, const Frames &f, unsigned line) {
    bring(line, k.source, k.x, k.rows-- > 0);
    k.x += f.x_row;
}

/* The next row, which the sums above finish with; those below begin. */
template <bool BEFORE>
__device__ inline void step(Walk &k, const Frames &f, Sums &above, Sums &own, Sums &below, bool first, unsigned ring) {
    async::wait<STAGES - 2>();
    __syncwarp(); /* the row is there, and no lane reads the row before it any more */
    bring_next(k, f, ring + k.before);
    unsigned line = k.me + k.now;
    below = Sums{};
    if (k.left) taps<BEFORE>(above, own, below, 0, line, k.w);
#pragma unroll
    for (int column = 1; column <= ACROSS; column++) taps<BEFORE>(above, own, below, column, line, k.w);
    if (k.right) taps<BEFORE>(above, own, below, COLUMNS - 1, line, k.w);
    if (!first) {
        finish(k, f.y_column, above);
        k.y += f.y_row;
    }
    k.before = k.now;
    k.now = k.now + LINE < RING ? k.now + LINE : 0;
}

template <bool BEFORE> __global__ void __launch_bounds__(LANES *WARPS, 4) k_dwconv3_glu(Frames f) {
    __shared__ Line rings[WARPS][STAGES];
    int lane = threadIdx.x % LANES, warp = __shfl_sync(0xffffffffu, threadIdx.x / LANES, 0); /* known to be the warp's */
    unsigned task = blockIdx.x * WARPS + warp;
    if (task >= f.tasks) return;
    unsigned group = task / f.strips, frame = group / f.chunks; /* warps beside each other: columns beside each other */
    int px = (int)(task - group * f.strips) * ACROSS, c = (int)(group - frame * f.chunks) * CHANNELS, mine = c + lane * EACH;
    if (px > f.width - ACROSS) px = f.width - ACROSS; /* columns that two warps make alike */
    unsigned ring = async::place_of(rings[warp]);
    Walk k;
    k.source = source_of(f, px, c, lane);
    k.x = f.x + frame * f.x_frame, k.rows = f.height;
    for (int s = 0; s < STAGES - 1; s++) bring_next(k, f, ring + s * LINE);
    k.here = mine < f.channels;
    read<BEFORE>(k.w, f, k.here ? mine : 0);
    k.y = f.y + frame * f.y_frame + px * f.y_column + mine;
    k.now = 0, k.before = RING - LINE, k.me = ring + lane * EACH * (unsigned)sizeof(Bf);
    k.left = px > 0, k.right = px + ACROSS < f.width;
    Sums a = {}, b = {}, d = {};
    for (int row = 0;;) { /* the three take turns; a is what the last row leaves to be finished */
        step<BEFORE>(k, f, a, b, d, row == 0, ring);
        if (++row == f.height) {
            a = b;
            break;
        }
        step<BEFORE>(k, f, b, d, a, false, ring);
        if (++row == f.height) {
            a = d;
            break;
        }
        step<BEFORE>(k, f, d, a, b, false, ring);
        if (++row == f.height) break;
    }
    finish(k, f.y_column, a);
}

bool multiples(const Tensor &t, int n) {
    for (int d = 0; d < t.rank - 1; d++)
        if (t.shape[d] > 1 && t.stride[d] % n) return false;
    return (uintptr_t)t.data % (n * sizeof(Bf)) == 0;
}

bool fits(const Dwconv3Glu *a) {
    const Tensor &y = a->y, &x = a->x, &w = a->w->w, &b = a->w->bias;
    const int64_t c = y.rank == 4 ? y.shape[3] : 0, shape[] = {2 * c, SIDE, SIDE, 1};
    if (!c || c % WIDE || x.rank != 4 || x.shape[3] != 2 * c || x.stride[3] != 1 || y.stride[3] != 1) return false;
    for (int d = 0; d < 3; d++)
        if (x.shape[d] != y.shape[d] || x.shape[d] > 1 << 20) return false;
    if (w.rank != 4 || memcmp(w.shape, shape, sizeof shape) || !tensor_contiguous(w) || !b.rank || tensor_numel(b) != 2 * c)
        return false;
    if (y.shape[2] < ACROSS) return false;
    int64_t strips = blocks_for(y.shape[2], ACROSS), chunks = blocks_for(c, CHANNELS);
    return multiples(x, WIDE) && multiples(y, EACH) && (uintptr_t)w.data % sizeof(Pair) == 0 &&
           (uintptr_t)b.data % sizeof(Pair) == 0 && (uintptr_t)a->before.data % sizeof(Pair) == 0 && c <= INT32_MAX / 2 &&
           strips * chunks <= INT32_MAX / y.shape[0];
}

Status dwconv3_glu_fast(Exec *x, const void *args) {
    const Dwconv3Glu *a = (const Dwconv3Glu *)args;
    if (!tensor_numel(a->y) || !fits(a)) return DWCONV_CUDA->run(x, args);
    TRY(conv_frames_check_dwconv(x, a));
    Frames f = {};
    f.x = (const Bf *)a->x.data, f.w = (const Bf *)a->w->w.data, f.bias = (const Bf *)a->w->bias.data, f.y = (Bf *)a->y.data;
    f.height = (int)a->y.shape[1], f.width = (int)a->y.shape[2], f.channels = (int)a->y.shape[3];
    f.strips = blocks_for(f.width, ACROSS), f.chunks = blocks_for(f.channels, CHANNELS);
    f.tasks = f.strips * f.chunks * (unsigned)a->y.shape[0];
    f.x_frame = a->x.stride[0], f.x_row = a->x.stride[1], f.x_column = a->x.stride[2];
    f.y_frame = a->y.stride[0], f.y_row = a->y.stride[1], f.y_column = a->y.stride[2];
    f.before = (const Bf *)a->before.data;
    unsigned blocks = blocks_for(f.tasks, WARPS);
    if (a->before.rank) k_dwconv3_glu<true><<<blocks, LANES * WARPS, 0, x->cuda->stream>>>(f);
    else k_dwconv3_glu<false><<<blocks, LANES * WARPS, 0, x->cuda->stream>>>(f);
    return cuda_launched(x, "dwconv3_glu");
}

/* The reference's, for what is handed over to it. */
size_t dwconv3_glu_scratch(const Exec *x, const void *args) { return DWCONV_CUDA->scratch(x, args); }

bool dwconv3_glu_accepts(const void *args, char *why, size_t size) {
    return want_bf16(&((const Dwconv3Glu *)args)->y, 3, why, size) && DWCONV_CUDA->accepts(args, why, size);
}

} /* namespace */

const Impl DWCONV_FAST_CUDA[] = {{OP_dwconv3_glu, "cuda_fast", dwconv3_glu_fast, dwconv3_glu_scratch, dwconv3_glu_accepts}};
