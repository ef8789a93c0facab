/* conv_once_layout.h - where conv_once.cu keeps what in shared memory, and what its matrix descriptors say: sums over constants,
 * for the host too, so that a test without a GPU can convolve by them (tests/test_conv_layout.c). No memory is touched here.
 *
 * A block of threads makes a tile, 16 rows of pixels by `width` columns, of `n` output channels (96 or 192), as 2 x
 * `blocks` products of 64 pixels, 8 x 8 each. A stage brings 32 channels of the tile's input with its border of one pixel
 * (a halo), as four planes of pixels, 8 channels (a unit of 16 bytes) a pixel; a slot brings the weights of these channels for
 * one kernel row, three taps, each as four planes of units, an output channel a unit.
 * Both are read by descriptors without swizzle, for which PTX has, both operands K-major: element (row r, depth k) lies at
 *   start + r / 8 * stride offset + k / 8 * leading offset + r % 8 * 16 + k % 8 * 2.
 * So eight pixels beside each other are eight rows, the next picture row is the stride offset, the next plane the leading one,
 * and a tap is another start: all multiples of 16 bytes, which is all that PTX asks of them.
 * Easy to get wrong: names differ between books. "Leading" is the step along K here, as in PTX's table for K-major matrices
 * without swizzle; it is the step of the other direction where matrices are transposed. */
#ifndef KERNELS_CONV_ONCE_LAYOUT_H
#define KERNELS_CONV_ONCE_LAYOUT_H

#ifdef __CUDACC__
#define ONCE_FN __host__ __device__ constexpr inline
#else
#define ONCE_FN static inline
#endif

enum {
    ONCE_KERNEL = 3,                    /* taps along a row, and rows of taps */
    ONCE_ROWS = 16,                     /* of a tile: 8 for each of the two warpgroups that multiply */
    ONCE_UNIT = 16, ONCE_UNIT_CHANNELS = 8,
    ONCE_PLANES = 4,                    /* units of a pixel that a stage brings */
    ONCE_CHANNELS = ONCE_PLANES * ONCE_UNIT_CHANNELS,
    ONCE_STEPS = ONCE_PLANES / 2,       /* products of depth 16 a tap and stage */
    ONCE_HALOS = 3, ONCE_MOST_SLOTS = 8,
    ONCE_SHARED = 232448 - 1024         /* of a block on sm_90, without what barriers take */
};

/* --- sizes --- */

/* Products of 64 pixels a warpgroup has under way: as many as leave 192 sums a thread. */
ONCE_FN int once_blocks(int n) { return n == 192 ? 2 : 4; }
ONCE_FN int once_width(int n) { return 8 * once_blocks(n); }
ONCE_FN int once_pitch(int n) { return once_width(n) + 2; }
ONCE_FN int once_pixels(int n) { return (ONCE_ROWS + 2) * once_pitch(n); }
ONCE_FN int once_plane(int n) { return once_pixels(n) * ONCE_UNIT; }
ONCE_FN int once_halo(int n) { return ONCE_PLANES * once_plane(n); }
ONCE_FN int once_slot(int n) { return ONCE_KERNEL * ONCE_PLANES * n * ONCE_UNIT; }
ONCE_FN int once_slots(int n) {
    return (ONCE_SHARED - ONCE_HALOS * once_halo(n)) / once_slot(n) < ONCE_MOST_SLOTS
               ? (ONCE_SHARED - ONCE_HALOS * once_halo(n)) / once_slot(n)
               : ONCE_MOST_SLOTS;
}
ONCE_FN int once_shared(int n) { return ONCE_HALOS * once_halo(n) + once_slots(n) * once_slot(n); }

/* --- places in a halo: pixels --- */

/* Pixel `row`, `column` of the halo, whose first is one up and one to the left of the tile's. */
ONCE_FN int once_halo_at(int n, int plane, int row, int column) {
    return plane * once_plane(n) + (row * once_pitch(n) + column) * ONCE_UNIT;
}
/* Start of the 64 pixels of block `block` of half `half`, as the tap (ky, kx) sees them, for the step's 16 channels. */
ONCE_FN int once_a_start(int n, int half, int block, int ky, int kx, int step) {
    return once_halo_at(n, 2 * step, 8 * half + ky, 8 * block + kx);
}
ONCE_FN int once_a_leading(int n) { return once_plane(n); }
ONCE_FN int once_a_stride(int n) { return once_pitch(n) * ONCE_UNIT; }

/* --- places in a slot: weights --- */

ONCE_FN int once_b_start(int n, int kx, int step) { return (kx * ONCE_PLANES + 2 * step) * n * ONCE_UNIT; }
ONCE_FN int once_b_leading(int n) { return n * ONCE_UNIT; }
ONCE_FN int once_b_stride(void) { return 8 * ONCE_UNIT; }

/* Where unit `unit` of the packed weights comes from. Slots follow one another in the order of use: groups of n output
 * channels, frames of the kernel, stages, kernel rows. */
typedef struct OnceUnit { int o, t, ky, kx, c; } OnceUnit;

ONCE_FN OnceUnit once_unit(int n, int kt, int stages, long long unit) {
    OnceUnit u = {0, 0, 0, 0, 0};
    int plane = 0;
    u.o = (int)(unit % n), unit /= n;
    plane = (int)(unit % ONCE_PLANES), unit /= ONCE_PLANES;
    u.kx = (int)(unit % ONCE_KERNEL), unit /= ONCE_KERNEL;
    u.ky = (int)(unit % ONCE_KERNEL), unit /= ONCE_KERNEL;
    u.c = (int)(unit % stages) * ONCE_CHANNELS + plane * ONCE_UNIT_CHANNELS, unit /= stages;
    u.t = (int)(unit % kt), unit /= kt;
    u.o += (int)unit * n;
    return u;
}

/* --- places of sums: PTX's D of m64nNk16 in f32 --- */

/* Sum 4 j + 2 i + e of thread `thread` of a warpgroup is pixel once_d_row, output channel once_d_column. Row r of a block is
 * its picture's row r / 8, column r % 8. */
ONCE_FN int once_d_row(int thread, int i) { return thread / 32 * 16 + thread % 32 / 4 + 8 * i; }
ONCE_FN int once_d_column(int thread, int j, int e) { return 8 * j + thread % 4 * 2 + e; }

#endif
