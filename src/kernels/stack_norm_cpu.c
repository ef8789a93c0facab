/* stack_norm_cpu.c - the meaning of stack_range_norm and stack_rms_norm (stack_norm.h): tokens to threads, layers side by side.
 *
 * Easy to get wrong: partial sums are kept by token, not by thread, so that the result does not depend on how many there are. */
#include "kernels/registry.h"
#include "kernels/rows.h"
#include "kernels/unary.h"

#include <math.h>

static Status check(Exec *x, OpId op, const Tensor *y, const Tensor *in, int32_t first) {
    TRY(rows_want_float(x, op, "x", *in));
    TRY(rows_want_like(x, op, "y", *y, *in));
    if (in->rank != 3 || !tensor_contiguous(*in) || !tensor_contiguous(*y))
        return fail(x->error, ERR_MODEL, "%s: x and y must be contiguous [tokens, channels, layers]", ops_info(op)->name);
    if (first < 0 || first >= in->shape[0])
        return fail(x->error, ERR_MODEL, "%s: %d tokens of padding among %lld", ops_info(op)->name, (int)first,
                    (long long)in->shape[0]);
    return OK;
}

static float get(const Tensor *t, int64_t i) {
    uint16_t h;
    float f;
    if (t->dtype == F32) memcpy(&f, (const char *)t->data + i * 4, 4);
    else memcpy(&h, (const char *)t->data + i * 2, 2), f = bf16_to_f32(h);
    return f;
}

static void put(const Tensor *t, int64_t i, float v) {
    uint16_t h = bf16_from_f32(v);
    if (t->dtype == F32) memcpy((char *)t->data + i * 4, &v, 4);
    else memcpy((char *)t->data + i * 2, &h, 2);
}

static float round_to(float v, DType t) { return t == BF16 ? bf16_round(v) : v; }

/* What one token or all of them know of a layer. */
typedef struct Span3 {
    double sum;
    float low, high;
} Span3;

static size_t range_scratch(const Exec *x, const void *args) {
    const StackRangeNorm *a = args;
    (void)x;
    return (size_t)(a->x.shape[0] * a->x.shape[2]) * sizeof(Span3);
}

static Span3 join(Span3 a, Span3 b) {
    a.sum += b.sum;
    if (!(a.low <= b.low)) a.low = b.low; /* NaN passes */
    if (!(a.high >= b.high)) a.high = b.high;
    return a;
}

static void measure(const Tensor *x, int64_t token, Span3 *of) {
    int64_t d = x->shape[1], layers = x->shape[2], at = token * d * layers;
    for (int64_t l = 0; l < layers; l++) of[l] = (Span3){.low = get(x, at + l), .high = get(x, at + l)};
    for (int64_t j = 0; j < d; j++)
        for (int64_t l = 0; l < layers; l++) {
            float v = get(x, at + j * layers + l);
            of[l].sum += (double)v;
            if (!(of[l].low <= v)) of[l].low = v;
            if (!(of[l].high >= v)) of[l].high = v;
        }
}

static Status stack_range_norm_cpu(Exec *x, const void *args) {
    const StackRangeNorm *a = args;
    TRY(check(x, OP_stack_range_norm, &a->y, &a->x, a->first));
    int64_t tokens = a->x.shape[0], d = a->x.shape[1], layers = a->x.shape[2];
    DType t = a->x.dtype;
    Span3 *part = arena_push(x->scratch, range_scratch(x, args));
    if (!part) return fail(x->error, ERR_MEMORY, "stack_range_norm: no scratch");
    bool parallel = tensor_numel(a->x) >= ROWS_PARALLEL_AT;
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t i = a->first; i < tokens; i++) measure(&a->x, i, part + i * layers);
    float count = (float)((tokens - a->first) * d) + a->eps;
    for (int64_t l = 0; l < layers; l++) {
        Span3 all = part[a->first * layers + l];
        for (int64_t i = a->first + 1; i < tokens; i++) all = join(all, part[i * layers + l]);
        part[l].low = round_to((float)all.sum, t) / count;
        part[l].high = round_to(round_to(all.high - all.low, t) + a->eps, t);
    }
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t j = 0; j < d; j++)
            for (int64_t l = 0; l < layers; l++) {
                int64_t k = (i * d + j) * layers + l;
                float v = (get(&a->x, k) - part[l].low) / part[l].high;
                put(&a->y, k, i < a->first ? 0.0f : v * a->scale);
            }
    return OK;
}

static float rsqrt_of(const Exec *x, float v, DType t) {
    uint32_t bits;
    if (t != BF16) return (float)(1 / sqrt((double)v));
    memcpy(&bits, &v, 4);
    return bf16_to_f32(x->unary->table[UNARY_RSQRT][bits >> 16]);
}

static Status stack_rms_norm_cpu(Exec *x, const void *args) {
    const StackRmsNorm *a = args;
    TRY(check(x, OP_stack_rms_norm, &a->y, &a->x, a->first));
    int64_t tokens = a->x.shape[0], d = a->x.shape[1], layers = a->x.shape[2];
    DType t = a->x.dtype;
    if (t == BF16 && !x->unary) return fail(x->error, ERR_MODEL, "stack_rms_norm: the tables of the BF16 functions are not open");
#pragma omp parallel for schedule(static) if (tensor_numel(a->x) >= ROWS_PARALLEL_AT)
    for (int64_t row = 0; row < tokens * layers; row++) {
        int64_t token = row / layers, at = token * d * layers + row % layers;
        double sum = 0;
        for (int64_t j = 0; j < d; j++) {
            float v = get(&a->x, at + j * layers);
            sum += (double)round_to(v * v, t);
        }
        float by = rsqrt_of(x, round_to(round_to((float)(sum / (double)d), t) + a->eps, t), t);
        for (int64_t j = 0; j < d; j++)
            put(&a->y, at + j * layers, token < a->first ? 0.0f : get(&a->x, at + j * layers) * by);
    }
    return OK;
}

const Impl STACK_NORM_CPU[] = {
    {OP_stack_range_norm, "cpu", stack_range_norm_cpu, range_scratch, NULL},
    {OP_stack_rms_norm, "cpu", stack_rms_norm_cpu, NULL, NULL},
};
const int STACK_NORM_CPU_COUNT = sizeof STACK_NORM_CPU / sizeof *STACK_NORM_CPU;
