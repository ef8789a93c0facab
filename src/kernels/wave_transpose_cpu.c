/* wave_transpose_cpu.c - the meaning of conv_transpose1d (wave.h): a product of rows of x with the weight as it lies in
 * the file, [N, C k], then each value of y collects the few products that fall on it.
 *
 * A unit of work is some rows of y and some channels; its thread multiplies the rows of x that these see.
 * Easy to get wrong: units must not depend on the number of threads, and a row of x that two units see is multiplied by
 * both. */
#include "kernels/gemm_cpu.h"
#include "kernels/registry.h"
#include "kernels/wave_check.h"

enum { ROWS_WANTED = 32, COLUMNS_MOST = 4096 };

typedef struct Plan {
    int64_t in, out, k, rows, steps; /* channels, kernel; rows of y of a unit: what `steps` rows of x begin */
    int64_t inputs, channels;        /* rows of x that a unit sees at most; channels of y of one */
    int threads;
    size_t weights, bias, tiles, x, product, per_thread, total;
} Plan;

static Plan plan(const ConvTranspose1d *a) {
    const int64_t *w = a->w->w.shape;
    Plan p = {.in = w[0], .out = w[1], .k = w[2], .threads = gemm_threads()};
    p.steps = gemm_part(a->x.shape[0], ROWS_WANTED);
    p.rows = p.steps * a->stride;
    p.inputs = p.steps + gemm_ceil(p.k, a->stride) + 1;
    p.channels = gemm_part(p.out, gemm_max(COLUMNS_MOST / p.k, 1));
    p.weights = gemm_piece(&p.total, p.in * p.out * p.k);
    p.bias = gemm_piece(&p.total, p.out);
    p.tiles = p.total;
    p.x = gemm_piece(&p.per_thread, p.inputs * p.in);
    p.product = gemm_piece(&p.per_thread, p.inputs * p.channels * p.k);
    p.total += p.per_thread * (size_t)p.threads;
    return p;
}

/* y of one row and channel from products of rows [first, first + count) of x; column: of the channel's first tap. */
static float collected(const Plan *p, const ConvTranspose1d *a, const float *product, int64_t pitch, int64_t first,
                       int64_t count, int64_t t, int64_t column) {
    const int64_t at = t + a->pad;
    float sum = 0;
    for (int64_t j = at % a->stride; j < p->k; j += a->stride) {
        const int64_t i = (at - j) / a->stride - first; /* divides; what is not there is zero */
        if (at >= j && i >= 0 && i < count) sum += product[i * pitch + column + j];
    }
    return sum;
}

static void unit(const Plan *p, const ConvTranspose1d *a, const float *weights, const float *bias, int64_t t0,
                 int64_t c0, char *scratch) {
    float *rows = (float *)(void *)(scratch + p->x), *product = (float *)(void *)(scratch + p->product);
    const int64_t n = gemm_min(p->rows, a->y.shape[0] - t0), channels = gemm_min(p->channels, p->out - c0);
    const int64_t pitch = channels * p->k, low = t0 + a->pad - p->k + 1;
    const int64_t first = gemm_max(low <= 0 ? 0 : gemm_ceil(low, a->stride), 0);
    const int64_t last = gemm_min((t0 + n - 1 + a->pad) / a->stride, a->x.shape[0] - 1), count = last - first + 1;
    for (int64_t i = 0; i < count; i++)
        gemm_widen(rows + i * p->in, gemm_row(&a->x, first + i), a->x.dtype, F32, p->in);
    if (count > 0) gemm_nn(count, pitch, p->in, 1, rows, p->in, weights + c0 * p->k, p->out * p->k, 0, product, pitch);
    for (int64_t t = t0; t < t0 + n; t++) {
        char *to = (char *)gemm_row(&a->y, t) + (size_t)c0 * dtype_size(a->y.dtype);
        for (int64_t c = 0; c < channels; c++) {
            float v = collected(p, a, product, pitch, first, count, t, c * p->k);
            if (bias) v = (a->y.dtype == BF16 ? bf16_round(v) : v) + bias[c0 + c];
            gemm_narrow(to + (size_t)c * dtype_size(a->y.dtype), a->y.dtype, &v, 1);
        }
    }
}

static size_t scratch_of(const Exec *x, const void *args) {
    (void)x;
    return plan(args).total;
}

static Status conv_transpose1d(Exec *x, const void *args) {
    const ConvTranspose1d *a = args;
    const Weight *w = a->w;
    TRY(wave_check_transpose(x, a));
    if (!gemm_storage(w->w.dtype) || (w->bias.rank && !gemm_storage(w->bias.dtype)))
        return fail(x->error, ERR_MODEL, "%s: conv_transpose1d takes F32, BF16 or F16 weights",
                    w->name ? w->name : "weight");
    const Plan p = plan(a);
    char *scratch = arena_push(x->scratch, p.total);
    if (!scratch) return fail(x->error, ERR_MEMORY, "conv_transpose1d: no scratch of %zu bytes", p.total);
    float *wide = (float *)(void *)(scratch + p.weights), *bias = (float *)(void *)(scratch + p.bias);
    const int64_t row = p.out * p.k;
#pragma omp parallel for schedule(static) num_threads(p.threads)
    for (int64_t i = 0; i < p.in; i++)
        gemm_widen(wide + i * row, (const char *)w->w.data + (size_t)(i * row) * dtype_size(w->w.dtype), w->w.dtype,
                   w->round, row);
    if (w->bias.rank) gemm_widen(bias, w->bias.data, w->bias.dtype, w->round, p.out);
    const int64_t parts = gemm_ceil(p.out, p.channels), units = gemm_ceil(a->y.shape[0], p.rows) * parts;
#pragma omp parallel for schedule(dynamic, 1) num_threads(p.threads)
    for (int64_t u = 0; u < units; u++)
        unit(&p, a, wide, w->bias.rank ? bias : NULL, u / parts * p.rows, u % parts * p.channels,
             scratch + p.tiles + p.per_thread * (size_t)gemm_thread());
    return OK;
}

const Impl WAVE_TRANSPOSE_CPU[] = {{OP_conv_transpose1d, "cpu", conv_transpose1d, scratch_of, NULL}};
