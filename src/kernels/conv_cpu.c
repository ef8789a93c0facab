/* conv_cpu.c - the CPU table's conv2d, upsample_conv and conv3d on channels-last pictures and frames.
 *
 * A unit of work is a tile of output pixels of one frame (and, for small pictures, a range of output channels). Its thread
 * writes the input rows of the tile with their kw neighbours side by side, [input row, output column, kw * Cin] in f32: only
 * a kernel ROW is unrolled, so the copy is kw times the input, not kh * kw times, and the kh kernel rows are kh
 * products over the same copy, shifted by a row; the kt input frames of a 3-D kernel follow one another. Padding, stride and
 * the x2 upsampling exist in that copy alone. Weights are widened once per call.
 * Easy to get wrong: bias and skip come after the first rounding, in every dtype (PyTorch adds them to cuDNN's output);
 * rows of the copy are packed at the tile's own width, so that rows of a stride-1 tile form one long matrix; nothing may
 * depend on the number of frames, so that a video decoded in other pieces has the same bits.
 * At the end the variants of the family conv-once (conv_once.h): the same sums, rounded once behind bias and skip. */
#include "kernels/conv_once.h"
#include "kernels/gemm_cpu.h"
#include "kernels/registry.h"
#include "ops.h"

enum {
    TILE_X = 32,
    TILE_Y_MIN = 8, TILE_Y_MAX = 32,
    COPY_FLOATS = 1 << 18, /* copy of a tile: 1 MiB wanted */
    UNITS_WANTED = 8,      /* fewer tiles than this: output channels are split as well */
    TILE_N_MIN = 32,
};

typedef struct Plan {
    int64_t depth, height, width, channels; /* frames of the input, and one of them as the kernel sees it: after upsampling */
    int64_t frames, out_height, out_width, out_channels, kt, kh, kw;
    int64_t row;                         /* kw * channels: one unrolled kernel row */
    int64_t filter;                      /* kt * kh * row */
    int64_t tile_y, tile_x, tile_n, copy_rows;
    int up;
    int threads;
    size_t weights, bias, skip_bias, tiles, copy, sum, skip, per_thread, total;
} Plan;

static Plan plan(const ConvFrames *a) {
    Tensor w = a->kernel;
    Plan p = {.depth = a->x.shape[0], .height = a->x.shape[1] << a->up, .width = a->x.shape[2] << a->up,
              .channels = a->x.shape[3], .up = a->up, .frames = a->y.shape[0], .out_height = a->y.shape[1],
              .out_width = a->y.shape[2], .out_channels = w.shape[0],
              .kt = w.shape[1], .kh = w.shape[2], .kw = w.shape[3], .row = w.shape[3] * w.shape[4],
              .threads = gemm_threads()};
    p.filter = p.kt * p.kh * p.row;
    p.tile_x = gemm_part(p.out_width, TILE_X);
    int64_t fits = COPY_FLOATS / gemm_max(p.tile_x * p.row, 1) - p.kh;
    p.tile_y = gemm_part(p.out_height, gemm_max(TILE_Y_MIN, gemm_min(fits, TILE_Y_MAX)));
    p.copy_rows = (p.tile_y - 1) * a->stride + p.kh;
    int64_t tiles = gemm_ceil(p.out_height, p.tile_y) * gemm_ceil(p.out_width, p.tile_x);
    int64_t split = gemm_max(1, gemm_min(gemm_ceil(UNITS_WANTED, gemm_max(tiles, 1)), p.out_channels / TILE_N_MIN));
    p.tile_n = gemm_part(p.out_channels, gemm_ceil(p.out_channels, split));
    p.weights = gemm_piece(&p.total, p.out_channels * p.filter);
    p.bias = gemm_piece(&p.total, p.out_channels);
    p.skip_bias = gemm_piece(&p.total, p.out_channels);
    p.tiles = p.total;
    p.copy = gemm_piece(&p.per_thread, p.copy_rows * p.tile_x * p.row);
    p.sum = gemm_piece(&p.per_thread, p.tile_y * p.tile_x * p.tile_n);
    p.skip = gemm_piece(&p.per_thread, p.tile_n);
    p.total += p.per_thread * (size_t)p.threads;
    return p;
}

/* Beside conv_frames_check: any stored dtype will do. */
static Status check_storage(Exec *x, const ConvFrames *a) {
    const char *name = a->w->name ? a->w->name : "weight";
    if (!gemm_storage(a->kernel.dtype) || a->w->scale.rank || a->w->lora ||
        (a->w->bias.rank && !gemm_storage(a->w->bias.dtype)) || (a->skip_bias.rank && !gemm_storage(a->skip_bias.dtype)))
        return fail(x->error, ERR_MODEL, "%s: %s takes plain F32, BF16 or F16 weights only", name, ops_info(a->op)->name);
    return OK;
}

/* Columns [x0, x0 + n) of output pixels of row iy of an input frame, each with its kw neighbours. */
static void unroll_row(const Plan *p, const ConvFrames *a, int64_t frame, int64_t iy, int64_t x0, int64_t n, float *to) {
    if (frame < 0 || frame >= p->depth || iy < 0 || iy >= p->height) {
        memset(to, 0, (size_t)(n * p->row) * sizeof *to);
        return;
    }
    int64_t c = p->channels, size = (int64_t)dtype_size(a->x.dtype);
    const char *from = (const char *)a->x.data + (frame * a->x.stride[0] + (iy >> p->up) * a->x.stride[1]) * size;
    bool packed = !p->up && a->x.stride[2] == c;
    for (int64_t i = 0; i < n; i++, to += p->row) {
        int64_t ix = (x0 + i) * a->stride - a->pad_left;
        if (packed && ix >= 0 && ix + p->kw <= p->width) {
            gemm_widen(to, from + ix * c * size, a->x.dtype, F32, p->row);
            continue;
        }
        for (int64_t d = 0; d < p->kw; d++, ix++) {
            if (ix < 0 || ix >= p->width) memset(to + d * c, 0, (size_t)c * sizeof *to);
            else gemm_widen(to + d * c, from + (ix >> p->up) * a->x.stride[2] * size, a->x.dtype, F32, c);
        }
    }
}

/* What follows the convolution, for the channels of one tile. NULL: absent. */
typedef struct After {
    const float *bias, *skip_bias;
    float *skip; /* one pixel's, widened */
    bool once;   /* rounded once, behind all of it */
} After;

/* The contract's c, and skip' + c, of one pixel's channels. */
static void finish(char *to, DType t, const float *sum, const After *f, int64_t n) {
    if (t == F32) {
        float *y = (float *)(void *)to;
        for (int64_t i = 0; i < n; i++) {
            float c = f->bias ? sum[i] + f->bias[i] : sum[i];
            y[i] = !f->skip ? c : f->skip_bias ? f->skip[i] + f->skip_bias[i] + c : f->skip[i] + c;
        }
        return;
    }
    uint16_t *y = (uint16_t *)(void *)to;
    for (int64_t i = 0; f->once && i < n; i++) {
        float term = (f->bias ? f->bias[i] : 0) + (f->skip_bias ? f->skip_bias[i] : 0);
        y[i] = bf16_from_f32(f->skip ? sum[i] + term + f->skip[i] : sum[i] + term);
    }
    for (int64_t i = 0; !f->once && i < n; i++) {
        float c = f->bias ? bf16_round(sum[i]) + f->bias[i] : sum[i];
        if (f->skip) c = bf16_round(c) + (f->skip_bias ? bf16_round(f->skip[i] + f->skip_bias[i]) : f->skip[i]);
        y[i] = bf16_from_f32(c);
    }
}

static char *pixel(const Tensor *t, int64_t f, int64_t y, int64_t x, int64_t c) {
    return (char *)t->data + (f * t->stride[0] + y * t->stride[1] + x * t->stride[2] + c) * (int64_t)dtype_size(t->dtype);
}

/* The widened constants of a call; NULL: absent. */
typedef struct Wide {
    const float *weights, *bias, *skip_bias;
    bool once;
} Wide;

static void unit(const Plan *p, const ConvFrames *a, const Wide *v, int64_t frame, int64_t y0, int64_t x0, int64_t n0,
                 char *scratch) {
    float *copy = (float *)(void *)(scratch + p->copy), *sum = (float *)(void *)(scratch + p->sum);
    int64_t h = gemm_min(p->tile_y, p->out_height - y0), w = gemm_min(p->tile_x, p->out_width - x0);
    int64_t n = gemm_min(p->tile_n, p->out_channels - n0), pitch = w * p->row;
    int64_t rows = a->stride == 1 ? h : 1; /* output rows of one product */
    for (int64_t t = 0; t < p->kt; t++) {
        const float *kernel = v->weights + n0 * p->filter + t * p->kh * p->row;
        for (int64_t r = 0; r < (h - 1) * a->stride + p->kh; r++)
            unroll_row(p, a, frame * a->stride_t - a->pad_t + t, y0 * a->stride - a->pad_top + r, x0, w, copy + r * pitch);
        for (int64_t r = 0; r < h; r += rows)
            for (int64_t d = 0; d < p->kh; d++)
                gemm_nt(rows * w, n, p->row, 1, copy + (r * a->stride + d) * pitch, p->row, kernel + d * p->row, p->filter,
                        t || d ? 1 : 0, sum + r * w * n, n);
    }
    After f = {.bias = v->bias ? v->bias + n0 : NULL, .skip_bias = v->skip_bias ? v->skip_bias + n0 : NULL,
               .skip = a->skip.rank ? (float *)(void *)(scratch + p->skip) : NULL, .once = v->once};
    for (int64_t r = 0; r < h; r++)
        for (int64_t i = 0; i < w; i++) {
            if (f.skip) gemm_widen(f.skip, pixel(&a->skip, frame, y0 + r, x0 + i, n0), a->skip.dtype, F32, n);
            finish(pixel(&a->y, frame, y0 + r, x0 + i, n0), a->y.dtype, sum + (r * w + i) * n, &f, n);
        }
}

static Status convolve(Exec *x, ConvFrames a, bool once) {
    TRY(conv_frames_check(x, &a));
    TRY(check_storage(x, &a));
    Plan p = plan(&a);
    char *scratch = arena_push(x->scratch, p.total);
    if (!scratch) return fail(x->error, ERR_MEMORY, "%s: no scratch of %zu bytes", ops_info(a.op)->name, p.total);
    const Weight *w = a.w;
    float *wide = (float *)(void *)(scratch + p.weights), *bias = (float *)(void *)(scratch + p.bias);
    float *skip_bias = (float *)(void *)(scratch + p.skip_bias);
#pragma omp parallel for schedule(static) num_threads(p.threads)
    for (int64_t i = 0; i < p.out_channels; i++)
        gemm_widen(wide + i * p.filter, (const char *)w->w.data + (size_t)(i * p.filter) * dtype_size(w->w.dtype),
                   w->w.dtype, w->round, p.filter);
    if (a.biased) gemm_widen(bias, w->bias.data, w->bias.dtype, w->round, p.out_channels);
    if (a.skip_bias.rank) gemm_widen(skip_bias, a.skip_bias.data, a.skip_bias.dtype, w->round, p.out_channels);
    const Wide v = {wide, a.biased ? bias : NULL, a.skip_bias.rank ? skip_bias : NULL, once};
    int64_t across = gemm_ceil(p.out_width, p.tile_x), parts = gemm_ceil(p.out_channels, p.tile_n);
    int64_t down = gemm_ceil(p.out_height, p.tile_y), units = p.frames * down * across * parts;
#pragma omp parallel for schedule(dynamic, 1) num_threads(p.threads)
    for (int64_t u = 0; u < units; u++)
        unit(&p, &a, &v, u / parts / across / down, u / parts / across % down * p.tile_y, u / parts % across * p.tile_x,
             u % parts * p.tile_n, scratch + p.tiles + p.per_thread * (size_t)gemm_thread());
    return OK;
}

static Status conv2d(Exec *x, const void *args) { return convolve(x, conv_frames(OP_conv2d, args), false); }
static Status upsample_conv(Exec *x, const void *args) { return convolve(x, conv_frames(OP_upsample_conv, args), false); }
static Status conv3d(Exec *x, const void *args) { return convolve(x, conv_frames(OP_conv3d, args), false); }
static Status conv2d_once(Exec *x, const void *args) { return convolve(x, conv_frames(OP_conv2d, args), true); }
static Status conv3d_once(Exec *x, const void *args) { return convolve(x, conv_frames(OP_conv3d, args), true); }

static size_t conv2d_scratch(const Exec *x, const void *args) {
    (void)x;
    ConvFrames a = conv_frames(OP_conv2d, args);
    return plan(&a).total;
}

static size_t upsample_conv_scratch(const Exec *x, const void *args) {
    (void)x;
    ConvFrames a = conv_frames(OP_upsample_conv, args);
    return plan(&a).total;
}

static size_t conv3d_scratch(const Exec *x, const void *args) {
    (void)x;
    ConvFrames a = conv_frames(OP_conv3d, args);
    return plan(&a).total;
}

/* --- history --- */

static Status roll(Exec *x, const void *args) {
    const Roll *a = args;
    TRY(conv_frames_check_roll(x, a));
    size_t history = tensor_bytes(a->cache), all = tensor_bytes(a->window);
    if (a->fresh) memset(a->window.data, 0, history);
    else memcpy(a->window.data, a->cache.data, history);
    memcpy(a->cache.data, (const char *)a->window.data + (all - history), history);
    return OK;
}

const Impl CONV_CPU[] = {
    {OP_conv2d, "cpu", conv2d, conv2d_scratch, NULL},
    {OP_upsample_conv, "cpu", upsample_conv, upsample_conv_scratch, NULL},
    {OP_conv3d, "cpu", conv3d, conv3d_scratch, NULL},
    {OP_roll, "cpu", roll, NULL, NULL},
};
const int CONV_CPU_COUNT = sizeof CONV_CPU / sizeof *CONV_CPU;

const Impl CONV_ONCE_CPU[] = {
    {OP_conv2d, "cpu_once", conv2d_once, conv2d_scratch, conv_once_accepts_flat},
    {OP_conv3d, "cpu_once", conv3d_once, conv3d_scratch, conv_once_accepts_deep},
};
