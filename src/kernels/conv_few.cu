/* conv_few.cu - conv2d of conv_few.h: to three channels, and from sixteen.
 *
 * To three channels: x is read once, tile by tile. First every pixel of a tile and its border times all nine taps of all three
 * filters, as one product of [pixels, Cin] and [Cin, 27] on tensor cores, straight from memory to registers; then each output is
 * the sum of nine of these numbers, which lie a pixel apart in shared memory. Sums are f32: over channels first, then over taps
 * in order.
 * From sixteen channels: a tap is one step of a product. A warp keeps the nine steps of 16 pixels and goes through the filters;
 * columns are dealt out so that a lane ends with eight neighbouring channels of a pixel.
 * Easy to get wrong: the order of channels in a product is free but must be the same on both sides: four lanes of a row take 16
 * bytes each, so lane q's eight channels serve as positions 2q, 2q + 1, 2q + 8, 2q + 9 of two steps. A row of sums is 4 words
 * more than a multiple of 32: the lanes of a store then fall into all banks. */
#include "kernels/conv_few.cuh"

#include "kernels/conv_frames.h"

using namespace fast;

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32, RESIDENT = 2;
constexpr int OUT = 3, TAPS = 9, COLUMNS = OUT * TAPS, TILES_N = 4; /* tiles of 8 columns */
constexpr int HIGH = 16, WIDTH = 32, ACROSS = WIDTH + 2;            /* of a tile of outputs; its inputs in a line */
constexpr int PIXELS = (HIGH + 2) * ACROSS, STRIPS = (PIXELS + 15) / 16;
static_assert(PIXELS % 32 == 4, "banks of the sums");

struct Few {
    const Bf *x, *w, *bias; /* bias: NULL or three */
    Bf *y;
    int height, width, across; /* of the picture; tiles in a line */
    int tiles;
};

/* Column n of the product: tap n / 3 of filter n % 3. */
template <int CIN> __device__ inline void read_taps(uint2 b[TILES_N][CIN / 16], const Bf *w, int row, int q) {
#pragma unroll
    for (int t = 0; t < TILES_N; t++) {
        int n = 8 * t + row;
#pragma unroll
        for (int s = 0; s < CIN / 16; s++) {
            b[t][s] = make_uint2(0, 0);
            if (n < COLUMNS)
                b[t][s] = *(const uint2 *)(w + (n % OUT * TAPS + n / OUT) * CIN + s / 2 * 32 + 8 * q + s % 2 * 4);
        }
    }
}

template <int CIN> __global__ void __launch_bounds__(THREADS, RESIDENT) k_conv_few(Few a) {
    extern __shared__ float sums[]; /* [COLUMNS][PIXELS] */
    constexpr int PARTS = CIN / 32;
    int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    uint2 b[TILES_N][CIN / 16];
    begin();
    read_taps<CIN>(b, a.w, row, q);
    for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
        int top = tile / a.across * HIGH, left = tile % a.across * WIDTH;
        for (int strip = warp; strip < STRIPS; strip += WARPS) {
            uint4 in[2][PARTS];
            float acc[TILES_N][4] = {};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int p = strip * 16 + row + 8 * h, y = top - 1 + p / ACROSS, x = left - 1 + p % ACROSS;
                bool inside = p < PIXELS && y >= 0 && y < a.height && x >= 0 && x < a.width;
                const uint4 *from = reinterpret_cast<const uint4 *>(a.x + ((int64_t)y * a.width + x) * CIN) + q;
#pragma unroll
                for (int i = 0; i < PARTS; i++) in[h][i] = inside ? __ldg(from + 4 * i) : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int i = 0; i < PARTS; i++)
#pragma unroll
                for (int t = 0; t < TILES_N; t++) {
                    conv_few::multiply(acc[t], in[0][i].x, in[1][i].x, in[0][i].y, in[1][i].y, b[t][2 * i]);
                    conv_few::multiply(acc[t], in[0][i].z, in[1][i].z, in[0][i].w, in[1][i].w, b[t][2 * i + 1]);
                }
#pragma unroll
            for (int t = 0; t < TILES_N; t++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int n = 8 * t + 2 * q + j % 2, p = strip * 16 + row + j / 2 * 8;
                    if (n < COLUMNS && p < PIXELS) sums[n * PIXELS + p] = acc[t][j];
                }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < HIGH * WIDTH; i += THREADS) {
            int down = i / WIDTH, right = i % WIDTH, y = top + down, x = left + right;
            if (y >= a.height || x >= a.width) continue;
            conv_few::put_pixel<OUT>(a.y + ((int64_t)y * a.width + x) * OUT, sums + down * ACROSS + right, PIXELS, ACROSS,
                                     a.bias);
        }
        __syncthreads();
    }
}

/* --- from sixteen channels --- */

constexpr int THIN = 16, EIGHTS = 32, BESIDE = 4; /* channels of x; of y at a time; times that a warp does */

struct Thin {
    const Bf *x, *w, *bias; /* bias: NULL or one an output channel */
    Bf *y;
    int height, width, out;
};

__global__ void __launch_bounds__(THREADS, 2) k_conv_thin(Thin a) {
    int row = threadIdx.x % 32 / 4, q = threadIdx.x % 4, pixels = a.height * a.width;
    int first = (blockIdx.x * WARPS + threadIdx.x / 32) * 16;
    begin();
    if (first >= pixels) return;
    uint2 in[TAPS][2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int p = first + row + 8 * h, y = p / a.width, x = p - y * a.width;
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
            int from_y = y + t / 3 - 1, from_x = x + t % 3 - 1;
            bool inside = p < pixels && from_y >= 0 && from_y < a.height && from_x >= 0 && from_x < a.width;
            const uint2 *from = reinterpret_cast<const uint2 *>(a.x + ((int64_t)from_y * a.width + from_x) * THIN) + q;
            in[t][h] = inside ? __ldg(from) : make_uint2(0, 0);
        }
    }
    for (int k = 0; k < BESIDE; k++) {
        int channel = (blockIdx.y * BESIDE + k) * EIGHTS;
        if (channel >= a.out) return;
        float acc[4][4] = {};
#pragma unroll
        for (int t = 0; t < TAPS; t++)
#pragma unroll
            for (int j = 0; j < 4; j++) { /* column `row` of product j is channel 8 (row / 2) + 2 j + row % 2 */
                int filter = channel + row / 2 * 8 + 2 * j + row % 2;
                uint2 b = __ldg(reinterpret_cast<const uint2 *>(a.w + ((int64_t)filter * TAPS + t) * THIN) + q);
                conv_few::multiply(acc[j], in[t][0].x, in[t][1].x, in[t][0].y, in[t][1].y, b);
            }
        Wide bias = filled<4>(both(0.0f));
        if (a.bias) bias = get<4>(a.bias + channel + 8 * q);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            Wide out;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                out.p[j] = round2(acc[j][2 * h], acc[j][2 * h + 1]);
                if (a.bias) out.p[j] = add(out.p[j], bias.p[j]);
            }
            int p = first + row + 8 * h;
            if (p < pixels) put(a.y + (int64_t)p * a.out + channel + 8 * q, out);
        }
    }
}

/* --- launches --- */

Status launch_thin(Exec *x, const Thin &a) {
    dim3 blocks(blocks_for((int64_t)a.height * a.width, 16 * WARPS), blocks_for(a.out, EIGHTS * BESIDE));
    launch_early(x, k_conv_thin, blocks, THREADS, 0, a);
    return cuda_launched(x, "conv2d");
}

template <int CIN> Status launch(Exec *x, const Few &a) {
    constexpr size_t BYTES = (size_t)COLUMNS * PIXELS * sizeof(float);
    cudaError_t code = cudaFuncSetAttribute(k_conv_few<CIN>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)BYTES);
    if (code != cudaSuccess)
        return fail(x->error, ERR_DEVICE, "conv2d: %zu bytes of shared memory: %s", BYTES, cudaGetErrorString(code));
    (void)cudaFuncSetAttribute(k_conv_few<CIN>, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    int places = x->cuda->sm_count * RESIDENT;
    launch_early(x, k_conv_few<CIN>, dim3((unsigned)(a.tiles < places ? a.tiles : places)), THREADS, BYTES, a);
    return cuda_launched(x, "conv2d");
}

} /* namespace */

bool conv_few_picture_fits(const Conv2d *a) {
    const Weight *w = a->w;
    if (a->x.rank != 3 || a->y.rank != 3 || w->w.rank != 4 || !conv_few::plain(a->x, a->y, a->skip, w)) return false;
    int64_t cin = w->w.shape[3], cout = w->w.shape[0];
    bool last = cout == OUT && (cin == 32 || cin == 64 || cin == 128), first = cin == THIN && cout % EIGHTS == 0;
    bool like_theirs = w->w.shape[1] == 3 && w->w.shape[2] == 3 && a->pad_top == 1 && a->pad_left == 1 && a->pad_bottom == 1 &&
                       a->pad_right == 1;
    return like_theirs && a->stride == 1 && (last || (first && cout <= INT16_MAX)) &&
           a->x.shape[0] * a->x.shape[1] < INT32_MAX / 2;
}

Status conv_few_picture(Exec *x, const Conv2d *a) {
    ConvFrames f = conv_frames(OP_conv2d, a);
    TRY(conv_frames_check(x, &f));
    if (!tensor_numel(a->y)) return OK;
    if (a->w->w.shape[3] == THIN) {
        Thin thin = {};
        thin.x = (const Bf *)a->x.data, thin.w = (const Bf *)a->w->w.data, thin.y = (Bf *)a->y.data;
        thin.bias = f.biased ? (const Bf *)a->w->bias.data : NULL;
        thin.height = (int)a->x.shape[0], thin.width = (int)a->x.shape[1], thin.out = (int)a->y.shape[2];
        return launch_thin(x, thin);
    }
    Few few = {};
    few.x = (const Bf *)a->x.data, few.w = (const Bf *)a->w->w.data, few.y = (Bf *)a->y.data;
    few.bias = f.biased ? (const Bf *)a->w->bias.data : NULL;
    few.height = (int)a->x.shape[0], few.width = (int)a->x.shape[1];
    few.across = (few.width + WIDTH - 1) / WIDTH;
    few.tiles = few.across * ((few.height + HIGH - 1) / HIGH);
    switch (a->w->w.shape[3]) {
    case 32: return launch<32>(x, few);
    case 64: return launch<64>(x, few);
    default: return launch<128>(x, few);
    }
}
