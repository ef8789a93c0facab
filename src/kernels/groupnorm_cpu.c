/* groupnorm_cpu.c - the CPU table's groupnorm and groupnorm_silu on channels-last pictures.
 *
 * Pass one sums x and x^2 per channel in double over bands of rows (products of two f32 are exact there, so a large
 * mean costs nothing that f32 data could show); bands are cut by the picture's height alone and added in order, so
 * the result does not depend on the number of threads. Pass two normalises batches of pixels.
 * Easy to get wrong: y may be x: a batch is widened completely before it is written. Statistics are rounded to the
 * dtype; SiLU sees the rounded value, except in the variant of quality high. */
#include "kernels/exp_cpu.h"
#include "kernels/gemm_cpu.h"
#include "kernels/vae_rewrite.h"
#include "kernels/registry.h"
#include "kernels/unary.h"
#include "ops.h"

enum { BANDS = 64, BATCH_FLOATS = 4096 };

typedef struct Plan {
    int64_t height, width, channels, group; /* group: channels of one */
    int64_t batch;                          /* pixels widened at a time */
    int64_t bands, band;                    /* bands of `band` rows */
    int threads;
    size_t sums, scale, shift, w, b, bias, buffers, per_thread, total;
} Plan;

static Plan plan(const GroupNorm *a) {
    Plan p = {.height = a->x.shape[0], .width = a->x.shape[1], .channels = a->x.shape[2], .threads = gemm_threads()};
    p.group = a->groups > 0 ? p.channels / a->groups : p.channels;
    p.batch = gemm_max(1, gemm_min(BATCH_FLOATS / gemm_max(p.channels, 1), p.width));
    p.band = gemm_max(1, gemm_ceil(p.height, BANDS));
    p.bands = gemm_ceil(p.height, p.band);
    p.sums = gemm_piece(&p.total, p.bands * p.channels * 2 * 2); /* doubles: two floats each */
    p.scale = gemm_piece(&p.total, p.channels);
    p.shift = gemm_piece(&p.total, p.channels);
    p.w = gemm_piece(&p.total, p.channels);
    p.b = gemm_piece(&p.total, p.channels);
    p.bias = gemm_piece(&p.total, p.channels);
    p.buffers = p.total;
    gemm_piece(&p.per_thread, p.batch * p.channels);
    p.total += p.per_thread * (size_t)p.threads;
    return p;
}

static Status check(Exec *x, OpId op, const GroupNorm *a) {
    const char *name = ops_info(op)->name;
    if (a->x.rank != 3 || !tensor_same_shape(a->x, a->y) || a->x.stride[2] != 1 || a->y.stride[2] != 1)
        return fail(x->error, ERR_MODEL, "%s: x and y must be [Y, X, C] of one shape, channels contiguous", name);
    if (a->x.dtype != a->y.dtype || (a->x.dtype != F32 && a->x.dtype != BF16))
        return fail(x->error, ERR_MODEL, "%s: from %s to %s", name, dtype_name(a->x.dtype), dtype_name(a->y.dtype));
    if (a->groups < 1 || a->x.shape[2] % a->groups)
        return fail(x->error, ERR_MODEL, "%s: %lld channels in %d groups", name, (long long)a->x.shape[2], a->groups);
    if (!a->w.rank || !a->b.rank || tensor_numel(a->w) != a->x.shape[2] || tensor_numel(a->b) != a->x.shape[2] ||
        !tensor_contiguous(a->w) || !tensor_contiguous(a->b) || !gemm_storage(a->w.dtype) || !gemm_storage(a->b.dtype))
        return fail(x->error, ERR_MODEL, "%s: weight and bias must be vectors of %lld", name, (long long)a->x.shape[2]);
    if (a->bias.rank && (tensor_numel(a->bias) != a->x.shape[2] || !tensor_contiguous(a->bias) ||
                         !gemm_storage(a->bias.dtype)))
        return fail(x->error, ERR_MODEL, "%s: bias of %lld elements, expected a vector of %lld", name,
                    (long long)tensor_numel(a->bias), (long long)a->x.shape[2]);
    return OK;
}

static char *pixel(const Tensor *t, int64_t y, int64_t x) {
    return (char *)t->data + (y * t->stride[0] + x * t->stride[1]) * (int64_t)dtype_size(t->dtype);
}

/* What the op and its variants share: one call's arguments, ready for the loops. */
typedef struct Norm {
    const GroupNorm *a;
    const float *bias;    /* NULL: none */
    const uint16_t *silu; /* the table; NULL: no SiLU, or in f32 */
    bool keep;            /* neither x + bias nor SiLU's input is rounded */
} Norm;

/* n pixels of x', in f32. */
static void load(const Plan *p, const Norm *m, int64_t y, int64_t x, int64_t n, float *to) {
    const Tensor *t = &m->a->x;
    if (t->stride[1] == p->channels) gemm_widen(to, pixel(t, y, x), t->dtype, F32, n * p->channels);
    else
        for (int64_t i = 0; i < n; i++)
            gemm_widen(to + i * p->channels, pixel(t, y, x + i), t->dtype, F32, p->channels);
    if (!m->bias) return;
    bool round = t->dtype == BF16 && !m->keep;
    for (int64_t i = 0; i < n; i++, to += p->channels)
        for (int64_t c = 0; c < p->channels; c++) to[c] = round ? bf16_round(to[c] + m->bias[c]) : to[c] + m->bias[c];
}

/* Sums of one band: sum[c] and square[c]. */
static void sum_band(const Plan *p, const Norm *m, int64_t band, double *sum, float *v) {
    double *square = sum + p->channels;
    memset(sum, 0, (size_t)(2 * p->channels) * sizeof *sum);
    for (int64_t y = band * p->band; y < gemm_min((band + 1) * p->band, p->height); y++)
        for (int64_t x = 0; x < p->width; x += p->batch) {
            int64_t n = gemm_min(p->batch, p->width - x);
            load(p, m, y, x, n, v);
            for (int64_t i = 0; i < n; i++)
                for (int64_t c = 0; c < p->channels; c++) {
                    double d = v[i * p->channels + c];
                    sum[c] += d;
                    square[c] += d * d;
                }
        }
}

/* p and q of the contract for every channel. */
static void statistics(const Plan *p, const double *sums, DType round, float eps, const float *w, const float *b,
                       float *scale, float *shift) {
    double count = (double)p->height * (double)p->width * (double)p->group;
    for (int64_t c0 = 0; c0 < p->channels; c0 += p->group) {
        double sum = 0, square = 0;
        for (int64_t band = 0; band < p->bands; band++)
            for (int64_t c = c0; c < c0 + p->group; c++) {
                sum += sums[band * 2 * p->channels + c];
                square += sums[(band * 2 + 1) * p->channels + c];
            }
        double m = sum / count, var = square / count - m * m;
        if (var < 0) var = 0;
        float mean = (float)m, rstd = (float)(1.0 / sqrt(var + (double)(round == BF16 ? bf16_round(eps) : eps)));
        if (round == BF16) mean = bf16_round(mean), rstd = bf16_round(rstd);
        for (int64_t c = c0; c < c0 + p->group; c++) {
            scale[c] = rstd * w[c];
            shift[c] = fmaf(-scale[c], mean, b[c]);
        }
    }
}

static void store(const Plan *p, const Tensor *t, int64_t y, int64_t x, int64_t n, const float *v,
                  const uint16_t *silu) {
    int64_t run = t->stride[1] == p->channels ? n * p->channels : p->channels;
    for (int64_t i = 0; i < n * p->channels / run; i++, v += run) {
        char *to = pixel(t, y, x + i);
        if (!silu) {
            gemm_narrow(to, t->dtype, v, run);
        } else {
            uint16_t *h = (uint16_t *)(void *)to;
            for (int64_t j = 0; j < run; j++) h[j] = silu[bf16_from_f32(v[j])];
        }
    }
}

static Status normalise(Exec *x, OpId op, const GroupNorm *a, bool keep) {
    TRY(check(x, op, a));
    bool silu = op == OP_groupnorm_silu;
    Norm m = {.a = a, .keep = keep};
    if (silu && !keep && a->x.dtype == BF16) {
        if (!x->unary) return fail(x->error, ERR_MODEL, "groupnorm_silu: the tables of the BF16 functions are not open");
        m.silu = x->unary->table[UNARY_SILU];
    }
    Plan p = plan(a);
    if (!tensor_numel(a->x)) return OK;
    char *scratch = arena_push(x->scratch, p.total);
    if (!scratch) return fail(x->error, ERR_MEMORY, "%s: no scratch of %zu bytes", ops_info(op)->name, p.total);
    double *sums = (double *)(void *)(scratch + p.sums);
    float *scale = (float *)(void *)(scratch + p.scale), *shift = (float *)(void *)(scratch + p.shift);
    float *bias = (float *)(void *)(scratch + p.bias);
    float *w = (float *)(void *)(scratch + p.w), *b = (float *)(void *)(scratch + p.b);
    gemm_widen(w, a->w.data, a->w.dtype, a->x.dtype, p.channels);
    gemm_widen(b, a->b.data, a->b.dtype, a->x.dtype, p.channels);
    if (a->bias.rank) {
        gemm_widen(bias, a->bias.data, a->bias.dtype, a->x.dtype, p.channels);
        m.bias = bias;
    }
#pragma omp parallel for schedule(static) num_threads(p.threads)
    for (int64_t i = 0; i < p.bands; i++)
        sum_band(&p, &m, i, sums + i * 2 * p.channels,
                 (float *)(void *)(scratch + p.buffers + p.per_thread * (size_t)gemm_thread()));
    statistics(&p, sums, a->x.dtype, a->eps, w, b, scale, shift);
#pragma omp parallel for schedule(static) num_threads(p.threads)
    for (int64_t y = 0; y < p.height; y++) {
        float *v = (float *)(void *)(scratch + p.buffers + p.per_thread * (size_t)gemm_thread());
        for (int64_t x0 = 0; x0 < p.width; x0 += p.batch) {
            int64_t n = gemm_min(p.batch, p.width - x0);
            load(&p, &m, y, x0, n, v);
            for (int64_t i = 0; i < n; i++)
                for (int64_t c = 0; c < p.channels; c++) {
                    float *at = v + i * p.channels + c;
                    *at = fmaf(scale[c], *at, shift[c]);
                }
            if (silu && !m.silu)
                for (int64_t i = 0; i < n * p.channels; i++) v[i] = silu_f32(v[i]);
            store(&p, &a->y, y, x0, n, v, m.silu);
        }
    }
    return OK;
}

static Status groupnorm(Exec *x, const void *args) { return normalise(x, OP_groupnorm, args, false); }
static Status groupnorm_silu(Exec *x, const void *args) { return normalise(x, OP_groupnorm_silu, args, false); }
Status groupnorm_cpu_silu_f32(Exec *x, const void *args) { return normalise(x, OP_groupnorm_silu, args, true); }

size_t groupnorm_cpu_scratch(const Exec *x, const void *args) {
    (void)x;
    return plan(args).total;
}

const Impl GROUPNORM_CPU[] = {
    {OP_groupnorm, "cpu", groupnorm, groupnorm_cpu_scratch, NULL},
    {OP_groupnorm_silu, "cpu", groupnorm_silu, groupnorm_cpu_scratch, NULL},
};
const int GROUPNORM_CPU_COUNT = sizeof GROUPNORM_CPU / sizeof *GROUPNORM_CPU;
