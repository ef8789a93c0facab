/* dwconv_cpu.c - the CPU table's dwconv3_glu: a thread takes a line of pixels, and of each pixel SPAN channels of both halves
 * at a time. Weights lie tap by tap in scratch, in f32; so does x' where it is not x, in x's dtype.
 *
 * Easy to get wrong: taps outside the frame are left out, not multiplied by zero (an infinite weight would show); the sum is
 * rounded before the bias, in every dtype that rounds. */
#include "kernels/conv_frames.h"
#include "kernels/exp_cpu.h"
#include "kernels/gemm_cpu.h"
#include "kernels/registry.h"
#include "kernels/unary.h"
#include "ops.h"

enum { SPAN = 512, SIDE = 3, TAPS = SIDE * SIDE };

typedef struct Dw {
    Tensor y, x;
    int64_t frames, height, width, c; /* c: channels of y */
    const float *weight, *bias;       /* [TAPS][2c], [2c] */
    const uint16_t *silu;             /* BF16 */
    DType t;
} Dw;

static Status check(Exec *x, const Dwconv3Glu *a) {
    const Weight *w = a->w;
    TRY(conv_frames_check_dwconv(x, a));
    if (!gemm_storage(w->w.dtype) || !gemm_storage(w->bias.dtype))
        return fail(x->error, ERR_MODEL, "%s: dwconv3_glu takes plain [%lld, 3, 3, 1] weights with a bias",
                    w->name ? w->name : "weight", (long long)w->w.shape[0]);
    if (a->x.dtype == BF16 && !x->unary)
        return fail(x->error, ERR_MODEL, "dwconv3_glu: the tables of the BF16 functions are not open");
    return OK;
}

/* n channels from c0 of one pixel: the sums, with their bias. */
static void convolve(const Dw *d, int64_t f, int64_t y, int64_t x, int64_t c0, int64_t n, float *sum) {
    float v[SPAN];
    for (int64_t j = 0; j < n; j++) sum[j] = 0;
    for (int64_t ky = 0; ky < SIDE; ky++)
        for (int64_t kx = 0; kx < SIDE; kx++) {
            int64_t iy = y + ky - 1, ix = x + kx - 1;
            if (iy < 0 || iy >= d->height || ix < 0 || ix >= d->width) continue;
            int64_t at = f * d->x.stride[0] + iy * d->x.stride[1] + ix * d->x.stride[2] + c0;
            const float *w = d->weight + (ky * SIDE + kx) * 2 * d->c + c0;
            gemm_widen(v, (const char *)d->x.data + at * (int64_t)dtype_size(d->t), d->t, F32, n);
            for (int64_t j = 0; j < n; j++) sum[j] = fmaf(v[j], w[j], sum[j]);
        }
    if (d->t == BF16)
        for (int64_t j = 0; j < n; j++) sum[j] = bf16_round(bf16_round(sum[j]) + d->bias[c0 + j]);
    else
        for (int64_t j = 0; j < n; j++) sum[j] += d->bias[c0 + j];
}

static void line(const Dw *d, int64_t f, int64_t y) {
    float value[SPAN], gate[SPAN];
    for (int64_t x = 0; x < d->width; x++)
        for (int64_t c0 = 0; c0 < d->c; c0 += SPAN) {
            int64_t n = gemm_min(SPAN, d->c - c0);
            convolve(d, f, y, x, c0, n, value);
            convolve(d, f, y, x, d->c + c0, n, gate);
            for (int64_t j = 0; j < n; j++) {
                float s = d->t == BF16 ? bf16_to_f32(d->silu[bf16_from_f32(gate[j])]) : silu_f32(gate[j]);
                value[j] *= s;
            }
            int64_t at = f * d->y.stride[0] + y * d->y.stride[1] + x * d->y.stride[2] + c0;
            gemm_narrow((char *)d->y.data + at * (int64_t)dtype_size(d->t), d->t, value, n);
        }
}

/* x' of a line of pixels, contiguous. */
static void line_before(const Dw *d, const Tensor *x, const float *before, int64_t f, int64_t y) {
    float v[SPAN];
    for (int64_t i = 0; i < d->width; i++)
        for (int64_t c0 = 0; c0 < 2 * d->c; c0 += SPAN) {
            int64_t n = gemm_min(SPAN, 2 * d->c - c0);
            int64_t from = f * x->stride[0] + y * x->stride[1] + i * x->stride[2] + c0;
            int64_t to = f * d->x.stride[0] + y * d->x.stride[1] + i * d->x.stride[2] + c0;
            gemm_widen(v, (const char *)x->data + from * (int64_t)dtype_size(d->t), d->t, F32, n);
            for (int64_t j = 0; j < n; j++) {
                float e = v[j] + before[c0 + j];
                v[j] = d->t == BF16 ? bf16_to_f32(d->silu[bf16_from_f32(e)]) : silu_f32(e);
            }
            gemm_narrow((char *)d->x.data + to * (int64_t)dtype_size(d->t), d->t, v, n);
        }
}

/* Where things lie in scratch. */
typedef struct Room { size_t weight, bias, before, made, total; } Room;

static Room room_of(const Dwconv3Glu *a) {
    int64_t c = gemm_columns(a->y);
    Room r = {0};
    r.weight = gemm_piece(&r.total, TAPS * 2 * c);
    r.bias = gemm_piece(&r.total, 2 * c);
    if (!a->before.rank) return r;
    r.before = gemm_piece(&r.total, 2 * c);
    r.made = arena_piece(&r.total, tensor_numel(a->x), a->x.dtype);
    return r;
}

static size_t dwconv3_glu_scratch(const Exec *x, const void *args) {
    (void)x;
    return room_of(args).total;
}

static Status dwconv3_glu_cpu(Exec *x, const void *args) {
    const Dwconv3Glu *a = args;
    TRY(check(x, a));
    int64_t c = a->y.shape[3];
    Room r = room_of(a);
    char *scratch = arena_push(x->scratch, r.total);
    if (!scratch) return fail(x->error, ERR_MEMORY, "dwconv3_glu: no scratch of %zu bytes", r.total);
    float *weight = (float *)(void *)(scratch + r.weight), *b = (float *)(void *)(scratch + r.bias);
    for (int64_t i = 0; i < 2 * c; i++) {
        float taps[TAPS];
        gemm_widen(taps, (const char *)a->w->w.data + (size_t)(i * TAPS) * dtype_size(a->w->w.dtype), a->w->w.dtype,
                   a->w->round, TAPS);
        for (int64_t k = 0; k < TAPS; k++) weight[k * 2 * c + i] = taps[k];
    }
    gemm_widen(b, a->w->bias.data, a->w->bias.dtype, a->w->round, 2 * c);
    Dw d = {.y = a->y, .x = a->x, .frames = a->y.shape[0], .height = a->y.shape[1], .width = a->y.shape[2], .c = c,
            .weight = weight, .bias = b, .silu = x->unary ? x->unary->table[UNARY_SILU] : NULL, .t = a->x.dtype};
    if (a->before.rank) {
        float *add = (float *)(void *)(scratch + r.before);
        d.x = tensor_make(scratch + r.made, d.t, 4, a->x.shape);
        gemm_widen(add, a->before.data, d.t, F32, 2 * c);
#pragma omp parallel for schedule(static) num_threads(gemm_threads())
        for (int64_t i = 0; i < d.frames * d.height; i++) line_before(&d, &a->x, add, i / d.height, i % d.height);
    }
#pragma omp parallel for schedule(static) num_threads(gemm_threads())
    for (int64_t i = 0; i < d.frames * d.height; i++) line(&d, i / d.height, i % d.height);
    return OK;
}

const Impl DWCONV_CPU[] = {{OP_dwconv3_glu, "cpu", dwconv3_glu_cpu, dwconv3_glu_scratch, NULL}};
const int DWCONV_CPU_COUNT = sizeof DWCONV_CPU / sizeof *DWCONV_CPU;
