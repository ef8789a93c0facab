/* test_conv_layout.c - the places of conv_once_layout.h, without a GPU: shared memory is filled as conv_once_parts.cuh fills it,
 * read by the addresses that PTX gives a descriptor without swizzle, and what comes out is held against a plain convolution.
 *
 * Numbers are small integers: sums are exact in any order, so one wrong place shows. Then what the kernel takes and pays for.
 * Not a test of the kernel's barriers.
 * Easy to get wrong: this follows the kernel's loops by hand; what only the kernel has (who waits for whom) is not here. */
#include "kernels/conv_once.h"
#include "kernels/conv_once_layout.h"

#include "expect.h"

#include <stdbool.h>

typedef struct Sizes { int n, frames, height, width, in, out, kt, pad_t; } Sizes;

typedef struct Bench {
    Sizes s;
    int made; /* frames of y */
    int16_t *x, *w, *packed, *halo;
    int32_t *y, *want;
} Bench;

static int16_t digit(int64_t i, int by) { return (int16_t)(i * 7919 % by - by / 2); }

static void *room(int64_t n, size_t each) {
    void *p = calloc((size_t)n, each);
    if (!p) exit(99);
    return p;
}

static int16_t input(const Bench *b, int frame, int y, int x, int c) {
    const Sizes *s = &b->s;
    bool there = frame >= 0 && frame < s->frames && y >= 0 && y < s->height && x >= 0 && x < s->width;
    return there ? b->x[((frame * s->height + y) * s->width + x) * s->in + c] : 0;
}

static int64_t weight_at(const Sizes *s, OnceUnit u) {
    return (((int64_t)(u.o * s->kt + u.t) * ONCE_KERNEL + u.ky) * ONCE_KERNEL + u.kx) * s->in + u.c;
}

static void convolve(Bench *b) {
    const Sizes *s = &b->s;
    for (int i = 0; i < b->made * s->height * s->width * s->out; i++) {
        int o = i % s->out, x = i / s->out % s->width, y = i / s->out / s->width % s->height;
        int frame = i / s->out / s->width / s->height, sum = 0;
        for (int t = 0; t < s->kt; t++)
            for (int tap = 0; tap < 9; tap++)
                for (int c = 0; c < s->in; c++)
                    sum += input(b, frame + t - s->pad_t, y + tap / 3 - 1, x + tap % 3 - 1, c) *
                           b->w[weight_at(s, (OnceUnit){o, t, tap / 3, tap % 3, c})];
        b->want[i] = sum;
    }
}

static void pack(Bench *b) {
    const Sizes *s = &b->s;
    int groups = (s->out + s->n - 1) / s->n, stages = s->in / ONCE_CHANNELS;
    int64_t units = (int64_t)groups * s->kt * stages * ONCE_KERNEL * once_slot(s->n) / ONCE_UNIT;
    b->packed = room(units * ONCE_UNIT_CHANNELS, 2);
    for (int64_t i = 0; i < units; i++) {
        OnceUnit u = once_unit(s->n, s->kt, stages, i);
        if (u.c >= s->in || u.t >= s->kt || u.o >= groups * s->n) expect(!"a unit lies within the weights");
        for (int e = 0; e < ONCE_UNIT_CHANNELS && u.o < s->out; e++)
            b->packed[i * ONCE_UNIT_CHANNELS + e] = b->w[weight_at(s, u) + e];
    }
}

/* As three warps of lanes do it: pixels linearly, eight by four planes at a time. */
static void bring(Bench *b, int frame, int channel, int ty, int tx) {
    int n = b->s.n;
    for (int plane = 0; plane < ONCE_PLANES; plane++)
        for (int p = 0; p < once_pixels(n); p++) {
            int row = p / once_pitch(n), column = p - row * once_pitch(n), to = once_halo_at(n, plane, 0, p) / 2;
            if (to != once_halo_at(n, plane, row, column) / 2) expect(!"a halo is filled in order");
            for (int e = 0; e < ONCE_UNIT_CHANNELS; e++)
                b->halo[to + e] = input(b, frame, ty - 1 + row, tx - 1 + column, channel + plane * ONCE_UNIT_CHANNELS + e);
        }
}

/* Element (row, depth) of a matrix that a descriptor names. */
static int described(int start, int leading, int stride, int row, int depth) {
    return (start + row / 8 * stride + depth / 8 * leading + row % 8 * ONCE_UNIT + depth % 8 * 2) / 2;
}

static void multiply(const Bench *b, const int16_t *slot, int half, int block, int ky, int kx, int step, int32_t *sum) {
    int n = b->s.n;
    for (int thread = 0; thread < 128; thread++)
        for (int k = 0; k < n / 2; k++) {
            int row = once_d_row(thread, k / 2 % 2), column = once_d_column(thread, k / 4, k % 2);
            for (int d = 0; d < 16; d++)
                sum[thread * n / 2 + k] +=
                    b->halo[described(once_a_start(n, half, block, ky, kx, step), once_a_leading(n), once_a_stride(n), row, d)] *
                    slot[described(once_b_start(n, kx, step), once_b_leading(n), once_b_stride(), column, d)];
        }
}

static void finish(Bench *b, const int32_t *sum, int group, int frame, int ty, int tx) {
    const Sizes *s = &b->s;
    for (int thread = 0; thread < 128; thread++)
        for (int k = 0; k < s->n / 2; k++) {
            int row = once_d_row(thread, k / 2 % 2), o = group * s->n + once_d_column(thread, k / 4, k % 2);
            int y = ty + row / 8, x = tx + row % 8;
            if (y < s->height && x < s->width && o < s->out)
                b->y[((frame * s->height + y) * s->width + x) * s->out + o] += sum[thread * s->n / 2 + k] + 1; /* once each */
        }
}

static void tile(Bench *b, int group, int frame, int ty, int tx) {
    const Sizes *s = &b->s;
    int n = s->n, stages = s->in / ONCE_CHANNELS, each = once_slot(n) / 2, all = 64 * n;
    int32_t *sum = room(2 * once_blocks(n) * all, 4);
    const int16_t *slot = b->packed + (int64_t)group * s->kt * stages * ONCE_KERNEL * each;
    for (int t = 0; t < s->kt; t++)
        for (int stage = 0; stage < stages; stage++) {
            bring(b, frame + t - s->pad_t, stage * ONCE_CHANNELS, ty, tx);
            for (int ky = 0; ky < ONCE_KERNEL; ky++, slot += each)
                for (int kx = 0; kx < ONCE_KERNEL; kx++)
                    for (int step = 0; step < ONCE_STEPS; step++)
                        for (int p = 0; p < 2 * once_blocks(n); p++)
                            multiply(b, slot, p / once_blocks(n), p % once_blocks(n), ky, kx, step, sum + p * all);
        }
    for (int p = 0; p < 2 * once_blocks(n); p++)
        finish(b, sum + p * all, group, frame, ty + p / once_blocks(n) * 8, tx + p % once_blocks(n) * 8);
    free(sum);
}

static void run(Sizes s) {
    Bench b = {.s = s, .made = s.frames + 2 * s.pad_t - s.kt + 1};
    int inputs = s.frames * s.height * s.width * s.in, weights = s.out * s.kt * 9 * s.in;
    int outputs = b.made * s.height * s.width * s.out;
    b.x = room(inputs, 2), b.w = room(weights, 2), b.halo = room(once_halo(s.n), 1);
    b.y = room(outputs, 4), b.want = room(outputs, 4);
    for (int i = 0; i < inputs; i++) b.x[i] = digit(i + i / 37, 13);
    for (int i = 0; i < weights; i++) b.w[i] = digit(i + i / 41, 11);
    convolve(&b);
    pack(&b);
    for (int frame = 0; frame < b.made; frame++)
        for (int ty = 0; ty < s.height; ty += ONCE_ROWS)
            for (int tx = 0; tx < s.width; tx += once_width(s.n))
                for (int group = 0; group * s.n < s.out; group++) tile(&b, group, frame, ty, tx);
    int wrong = 0;
    for (int i = 0; i < outputs; i++) wrong += b.y[i] - 1 != b.want[i];
    expect(!wrong);
    free(b.x), free(b.w), free(b.halo), free(b.y), free(b.want), free(b.packed);
}

static void test_convolution(void) {
    run((Sizes){.n = 96, .frames = 2, .height = 9, .width = 35, .in = 32, .out = 96, .kt = 2});
    run((Sizes){.n = 96, .frames = 1, .height = 18, .width = 25, .in = 64, .out = 288, .kt = 3, .pad_t = 1});
    run((Sizes){.n = 192, .frames = 1, .height = 17, .width = 17, .in = 64, .out = 192, .kt = 1});
    run((Sizes){.n = 192, .frames = 1, .height = 1, .width = 1, .in = 32, .out = 192, .kt = 3, .pad_t = 1});
}

/* What descriptors and a block of threads have room for. */
static void test_limits(void) {
    static const int N[] = {96, 192};
    for (int i = 0; i < 2; i++) {
        expect(once_slots(N[i]) >= 4 && once_shared(N[i]) <= ONCE_SHARED);
        expect(once_blocks(N[i]) * N[i] / 2 <= 192);
        expect(once_halo(N[i]) % 128 == 0 && once_slot(N[i]) % 128 == 0);
        expect(once_a_leading(N[i]) < 1 << 18 && once_a_leading(N[i]) % ONCE_UNIT == 0);
    }
}

/* --- the rules of conv_once.h --- */

typedef struct Shape { int64_t frames, height, width, in, out, kt, k, up; } Shape;

static ConvFrames call_of(const Shape *c, Weight *w) {
    *w = (Weight){.w = tensor_of(NULL, BF16, c->out, c->kt, c->k, c->k, c->in), .round = BF16};
    return (ConvFrames){.op = OP_conv3d, .x = tensor_of(NULL, BF16, c->frames + c->kt - 1, c->height, c->width, c->in),
                        .y = tensor_of(NULL, BF16, c->frames, c->height, c->width, c->out), .kernel = w->w, .w = w,
                        .stride_t = 1, .stride = 1, .pad_top = c->k / 2, .pad_left = c->k / 2, .pad_bottom = c->k / 2,
                        .pad_right = c->k / 2, .up = (int)c->up};
}

/* The decoders' convolutions on a GPU of 132 multiprocessors: output channels a tile, and whether the kernel is chosen. */
static void test_rules(void) {
    static const struct { Shape call; int columns; bool pays; } ROWS[] = {
        {{4, 480, 832, 96, 96, 3, 3, 0}, 96, true},      {{4, 480, 832, 96, 3, 3, 3, 0}, 0, false},
        {{4, 240, 416, 192, 192, 3, 3, 0}, 192, true},   {{2, 120, 208, 384, 384, 3, 3, 0}, 192, false},
        {{1, 60, 104, 384, 384, 3, 3, 0}, 192, false},   {{1, 1024, 1024, 128, 128, 1, 3, 0}, 0, false},
        {{1, 60, 104, 16, 384, 3, 3, 0}, 0, false},      {{1, 60, 104, 384, 768, 3, 1, 0}, 0, false},
        {{1, 64, 64, 96, 100, 1, 3, 0}, 0, false},       {{1, 512, 512, 256, 256, 1, 3, 1}, 0, false},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Weight w;
        ConvFrames a = call_of(&ROWS[i].call, &w);
        expect(conv_once_columns(&a) == ROWS[i].columns);
        if (ROWS[i].columns) expect(conv_once_pays(&a, ROWS[i].columns, 132) == ROWS[i].pays);
        a.y.stride[2] += 8;
        expect(conv_once_columns(&a) == 0);
    }
}

int main(void) {
    test_convolution();
    test_limits();
    test_rules();
    return expect_done();
}
