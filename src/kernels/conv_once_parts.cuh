/* conv_once_parts.cuh - what the warps of conv_once.cu do beside the products: bring weights and pixels to shared memory, and
 * write pixels from sums. For that file only.
 *
 * Easy to get wrong: copies by threads are not seen by the tensor cores until each thread that made them has waited for its own
 * and fenced, only then one may arrive for all; whoever fills a ring waits for the turn before, which of a fresh barrier counts
 * as over; lanes that have no pixel to write still exchange words with those that do. */
#ifndef KERNELS_CONV_ONCE_PARTS_CUH
#define KERNELS_CONV_ONCE_PARTS_CUH

#include "kernels/conv_once_layout.h"
#include "kernels/cuda_async.cuh"
#include "kernels/cuda_copy.cuh"

#include <cuda_bf16.h>

namespace once {

using Bf = __nv_bfloat16;

constexpr int WARPGROUP = 128, MULTIPLIERS = 2, THREADS = (MULTIPLIERS + 1) * WARPGROUP;
constexpr int MULTIPLYING_WARPS = MULTIPLIERS * WARPGROUP / 32, FETCHERS = 3;

struct Args {
    const Bf *x, *skip;   /* skip: NULL without */
    Bf *y;
    const char *packed;   /* weights */
    const float *term;    /* bias + skip_bias, with which sums begin */
    int frames, height, width, in, out, kt, pad_t, stages; /* frames of x; stages of a frame of the kernel */
    int across, down, groups, tiles;
};

struct Tile {
    int group, frame, y, x;
};

template <int N> __device__ inline Tile tile_of(const Args &a, int i) {
    Tile t;
    t.group = i % a.groups, i /= a.groups;
    t.x = i % a.across * once_width(N), i /= a.across;
    t.y = i % a.down * ONCE_ROWS;
    t.frame = i / a.down;
    return t;
}

/* The slot before this one in its ring. */
template <int SIZE> __device__ inline int before(const copies::Place &p) { return p.slot ? p.slot - 1 : SIZE - 1; }

template <int N> struct Barriers {
    uint64_t halo_full[ONCE_HALOS], halo_free[ONCE_HALOS], slot_full[once_slots(N)], slot_free[once_slots(N)];
};

/* --- bringing --- */

template <int N> __device__ inline void bring_weights(const Args &a, Barriers<N> &b, unsigned char *slots) {
    copies::Place p = {0, 0};
    const int each = a.kt * a.stages * ONCE_KERNEL;
    for (int i = blockIdx.x; i < a.tiles; i += gridDim.x) {
        const char *from = a.packed + (int64_t)(i % a.groups) * each * once_slot(N);
        for (int k = 0; k < each; k++, from += once_slot(N)) {
            copies::await(b.slot_free + p.slot, p.parity ^ 1); /* a fresh barrier's turn before the first is over */
            copies::expect(b.slot_full + p.slot, once_slot(N));
            copies::bring(slots + p.slot * once_slot(N), from, once_slot(N), b.slot_full + p.slot);
            copies::advance(p, once_slots(N));
        }
    }
}

/* Lanes: eight pixels of a row by the four units of each, 64 bytes of a pixel together; 128 bytes of a plane. */
template <int N> __device__ inline void bring_halo(const Args &a, const Tile &t, int frame, int channel, unsigned to, int warp) {
    const int lane = threadIdx.x % 32, plane = lane / 8;
    const bool known = frame >= 0 && frame < a.frames;
    const Bf *from = a.x + (int64_t)frame * a.height * a.width * a.in + channel + plane * ONCE_UNIT_CHANNELS;
#pragma unroll 2
    for (int p = warp * 8 + lane % 8; p < once_pixels(N); p += FETCHERS * 8) {
        int row = p / once_pitch(N), y = t.y - 1 + row, x = t.x - 1 + p - row * once_pitch(N);
        bool there = known && y >= 0 && y < a.height && x >= 0 && x < a.width;
        async::copy_or_zero(to + once_halo_at(N, plane, 0, p), there ? from + (int64_t)(y * a.width + x) * a.in : a.x, there);
    }
}

/* The other path's pixels come to the L2 while the tile is made. */
template <int N> __device__ inline void announce(const Args &a, const Tile &t, int warp) {
    for (int p = warp * 32 + threadIdx.x % 32; p < ONCE_ROWS * once_width(N); p += FETCHERS * 32) {
        const int y = t.y + p / once_width(N), x = t.x + p % once_width(N);
        const int64_t pixel = ((int64_t)t.frame * a.height + y) * a.width + x;
        if (y < a.height && x < a.width) copies::announce(a.skip + pixel * a.out + t.group * N, N * sizeof(Bf));
    }
}

template <int N> __device__ inline void bring_halos(const Args &a, Barriers<N> &b, unsigned halos, int warp) {
    copies::Place p = {0, 0};
    for (int i = blockIdx.x; i < a.tiles; i += gridDim.x) {
        const Tile t = tile_of<N>(a, i);
        if (a.skip) announce<N>(a, t, warp);
        for (int tap = 0; tap < a.kt; tap++)
            for (int s = 0; s < a.stages; s++) {
                copies::await(b.halo_free + p.slot, p.parity ^ 1);
                bring_halo<N>(a, t, t.frame + tap - a.pad_t, s * ONCE_CHANNELS, halos + p.slot * once_halo(N), warp);
                async::commit();
                async::wait<0>();
                copies::publish();
                __syncwarp();
                if (threadIdx.x % 32 == 0) copies::arrive(b.halo_full + p.slot);
                copies::advance(p, ONCE_HALOS);
            }
    }
}

/* --- what follows the sums --- */

/* Of four lanes, lane q gets word q of each: they hold two channels of each eight, and then eight in a row. Its own inverse. */
__device__ inline void turn(unsigned (&w)[4], int lane) {
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int low = bit == 1 ? 2 * k : k, high = low + bit;
            unsigned got = __shfl_xor_sync(0xffffffffu, lane & bit ? w[low] : w[high], bit);
            if (lane & bit) w[low] = got;
            else w[high] = got;
        }
}

__device__ inline unsigned rounded(float low, float high) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<unsigned *>(&both);
}

/* 16 bytes, where they are written here: moved ahead of earlier rows they would want registers that sums have. */
__device__ inline void read(unsigned (&w)[4], const Bf *from) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "l"(from)
                 : "memory");
}
__device__ inline void write(Bf *to, const unsigned (&w)[4]) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}

/* Row i of a thread's two of one block. All lanes come here: they exchange words. */
template <int N> __device__ inline void finish_row(const Args &a, const float (&sum)[N / 2], int i, int64_t pixel, bool inside,
                                                   int first) {
    constexpr int WIDE = N / 32;
    const int lane = threadIdx.x % 32, own = first + lane % 4 * 8;
    const Bf *skip = a.skip + pixel * a.out + own;
    Bf *y = a.y + pixel * a.out + own;
    unsigned other[WIDE][4] = {};
    if (a.skip && inside)
#pragma unroll
        for (int g = 0; g < WIDE; g++) read(other[g], skip + 32 * g);
#pragma unroll
    for (int g = 0; g < WIDE; g++) {
        unsigned w[4];
        if (a.skip) turn(other[g], lane);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int j = 4 * g + k;
            w[k] = rounded(sum[4 * j + 2 * i] + async::low(other[g][k]), sum[4 * j + 2 * i + 1] + async::high(other[g][k]));
        }
        turn(w, lane);
        if (inside) write(y + 32 * g, w);
    }
}

template <int N>
__device__ inline void finish(const Args &a, const Tile &t, const float (&sum)[once_blocks(N)][N / 2], int half) {
#pragma unroll
    for (int block = 0; block < once_blocks(N); block++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = once_d_row(threadIdx.x % WARPGROUP, i), y = t.y + 8 * half + row / 8, x = t.x + 8 * block + row % 8;
            const int64_t pixel = ((int64_t)t.frame * a.height + y) * a.width + x;
            finish_row<N>(a, sum[block], i, pixel, y < a.height && x < a.width, t.group * N);
        }
}

} /* namespace once */

#endif
