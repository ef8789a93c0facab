/* conv_few_clip.cu - conv3d of conv_few.h: from 96 channels to three, three frames at a time.
 *
 * A block takes a tile of the picture through all frames, so that x is read once: each warp holds two lines of 16 pixels, the
 * tile's border among them, and the sums that a frame leaves to three frames of y: pixels times [Cin, 27], nine taps of three
 * filters, once for each place that the frame has under the kernel. A frame of y whose three have passed is the sum of nine
 * such numbers, which lie a pixel apart in shared memory. The next frame's pixels are on their way meanwhile. Sums are f32:
 * over channels and frames first, then over taps in order.
 * Easy to get wrong: the order of channels in a product, as in conv_few.cu. The rooms for sums alternate, so that one
 * barrier a frame will do: who writes a room again has passed the barrier behind its last reading. A plane of sums is 4 words
 * more than a multiple of 32: the lanes of a store then fall into all banks. */
#include "kernels/conv_few.cuh"

#include "kernels/conv_frames.h"

using namespace fast;

namespace {

constexpr int CIN = 96, PARTS = CIN / 32;
constexpr int OUT = 3, TAPS = 9, DEPTH = 3, COLUMNS = OUT * TAPS, TILES_N = 4; /* tiles of 8 columns */
constexpr int SIDE = 16, INNER = SIDE - 2;                                     /* of a tile of inputs, and of its outputs */
constexpr int LINES = 2, WARPS = SIDE / LINES, THREADS = WARPS * 32;           /* of a warp */
constexpr int PLANE = SIDE * SIDE + 4, ROOM = COLUMNS * PLANE;                 /* sums of a column; of a frame */
constexpr int FILTERS = DEPTH * PARTS * TILES_N * 32;                          /* 16 bytes a lane each */
constexpr size_t BYTES = FILTERS * sizeof(uint4) + 2 * ROOM * sizeof(float);
static_assert(PLANE % 32 == 4, "banks of the sums");

struct Clip {
    const Bf *x, *w, *bias; /* bias: NULL or three */
    Bf *y;
    int height, width, across; /* of a frame; tiles in a line */
    int tiles, frames;         /* of y; x has two more */
};

/* What a lane has of its warp's pixels: of two in each line a share of all channels. */
struct Pixels {
    uint4 v[LINES][2][PARTS];
};

__device__ inline Pixels read_pixels(const Clip &a, int tile, int frame) {
    int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    int top = tile / a.across * INNER - 1, left = tile % a.across * INNER - 1;
    Pixels p;
#pragma unroll
    for (int l = 0; l < LINES; l++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int y = top + warp * LINES + l, x = left + row + 8 * h;
            bool inside = y >= 0 && y < a.height && x >= 0 && x < a.width;
            const Bf *pixel = a.x + (((int64_t)frame * a.height + y) * a.width + x) * CIN;
            const uint4 *from = reinterpret_cast<const uint4 *>(pixel) + q;
#pragma unroll
            for (int i = 0; i < PARTS; i++) p.v[l][h][i] = inside ? __ldg(from + 4 * i) : make_uint4(0, 0, 0, 0);
        }
    return p;
}

/* filters[frame of the kernel][32 channels][tile of columns][lane]; column n is tap n / 3 of filter n % 3. */
__device__ inline void read_filters(uint4 *filters, const Bf *w) {
    for (int i = threadIdx.x; i < FILTERS; i += THREADS) {
        int lane = i % 32, t = i / 32 % TILES_N, part = i / 32 / TILES_N % PARTS, depth = i / 32 / TILES_N / PARTS;
        int n = 8 * t + lane / 4;
        const Bf *from = w + ((n % OUT * DEPTH + depth) * TAPS + n / OUT) * CIN + 32 * part + 8 * (lane % 4);
        filters[i] = n < COLUMNS ? *reinterpret_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
    }
}

/* sum += pixels times the filters of one of the kernel's frames. */
__device__ inline void multiply_frame(float sum[LINES][TILES_N][4], const Pixels &p, const uint4 *filters) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
#pragma unroll
        for (int t = 0; t < TILES_N; t++) {
            uint4 b = filters[(i * TILES_N + t) * 32 + lane];
#pragma unroll
            for (int l = 0; l < LINES; l++) {
                uint4 a0 = p.v[l][0][i], a1 = p.v[l][1][i];
                conv_few::multiply(sum[l][t], a0.x, a1.x, a0.y, a1.y, make_uint2(b.x, b.y));
                conv_few::multiply(sum[l][t], a0.z, a1.z, a0.w, a1.w, make_uint2(b.z, b.w));
            }
        }
}

__device__ inline void put_sums(float *room, const float sum[LINES][TILES_N][4]) {
    int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int l = 0; l < LINES; l++)
#pragma unroll
        for (int t = 0; t < TILES_N; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int n = 8 * t + 2 * q + j % 2, p = (warp * LINES + l) * SIDE + row + j / 2 * 8;
                if (n < COLUMNS) room[n * PLANE + p] = sum[l][t][j];
            }
}

/* A thread a pixel of the tile. */
__device__ inline void put_outputs(const Clip &a, int tile, int frame, const float *room) {
    int down = threadIdx.x / SIDE, right = threadIdx.x % SIDE;
    int y = tile / a.across * INNER + down, x = tile % a.across * INNER + right;
    if (down >= INNER || right >= INNER || y >= a.height || x >= a.width) return;
    Bf *to = a.y + (((int64_t)frame * a.height + y) * a.width + x) * OUT;
    conv_few::put_pixel<OUT>(to, room + down * SIDE + right, PLANE, SIDE, a.bias);
}

__global__ void __launch_bounds__(THREADS, 1) k_conv_few_clip(Clip a) {
    extern __shared__ uint4 filters[]; /* behind them two rooms for sums */
    float *room = reinterpret_cast<float *>(filters + FILTERS), *other = room + ROOM;
    begin();
    read_filters(filters, a.w);
    __syncthreads();
    int tile = blockIdx.x, frame = 0; /* of x */
    float sum[DEPTH][LINES][TILES_N][4] = {}; /* [d]: of frame - d of y, to which this frame is the kernel's d-th */
    Pixels next = read_pixels(a, tile, frame); /* the grid has no more blocks than there are tiles */
    while (tile < a.tiles) {
        Pixels here = next;
        bool last = frame == a.frames + DEPTH - 2;
        int next_tile = last ? tile + gridDim.x : tile, next_frame = last ? 0 : frame + 1;
        if (next_tile < a.tiles) next = read_pixels(a, next_tile, next_frame);
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
            if (frame >= d && frame - d < a.frames) multiply_frame(sum[d], here, filters + d * PARTS * TILES_N * 32);
        int done = frame - (DEPTH - 1);
        if (done >= 0) {
            put_sums(room, sum[DEPTH - 1]);
            __syncthreads();
            put_outputs(a, tile, done, room);
            float *used = room;
            room = other, other = used;
        }
#pragma unroll
        for (int l = 0; l < LINES; l++)
#pragma unroll
            for (int t = 0; t < TILES_N; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    sum[2][l][t][j] = last ? 0.0f : sum[1][l][t][j];
                    sum[1][l][t][j] = last ? 0.0f : sum[0][l][t][j];
                    sum[0][l][t][j] = 0.0f;
                }
        tile = next_tile, frame = next_frame;
    }
}

} /* namespace */

bool conv_few_clip_fits(const Conv3d *a) {
    const Weight *w = a->w;
    const int64_t *k = w->w.shape;
    if (a->x.rank != 4 || a->y.rank != 4 || w->w.rank != 5 || !conv_few::plain(a->x, a->y, a->skip, w)) return false;
    return k[0] == OUT && k[1] == DEPTH && k[2] == 3 && k[3] == 3 && k[4] == CIN && a->stride_t == 1 && a->pad == 1 &&
           !a->pad_t && a->x.shape[1] * a->x.shape[2] < INT32_MAX / 2 && a->x.shape[0] < INT16_MAX;
}

Status conv_few_clip(Exec *x, const Conv3d *a) {
    ConvFrames f = conv_frames(OP_conv3d, a);
    TRY(conv_frames_check(x, &f));
    if (!tensor_numel(a->y)) return OK;
    Clip clip = {};
    clip.x = (const Bf *)a->x.data, clip.w = (const Bf *)a->w->w.data, clip.y = (Bf *)a->y.data;
    clip.bias = f.biased ? (const Bf *)a->w->bias.data : NULL;
    clip.frames = (int)a->y.shape[0], clip.height = (int)a->y.shape[1], clip.width = (int)a->y.shape[2];
    clip.across = (clip.width + INNER - 1) / INNER;
    clip.tiles = clip.across * ((clip.height + INNER - 1) / INNER);
    cudaError_t code = cudaFuncSetAttribute(k_conv_few_clip, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)BYTES);
    if (code != cudaSuccess)
        return fail(x->error, ERR_DEVICE, "conv3d: %zu bytes of shared memory: %s", BYTES, cudaGetErrorString(code));
    int places = x->cuda->sm_count;
    launch_early(x, k_conv_few_clip, dim3((unsigned)(clip.tiles < places ? clip.tiles : places)), THREADS, BYTES, clip);
    return cuda_launched(x, "conv3d");
}
