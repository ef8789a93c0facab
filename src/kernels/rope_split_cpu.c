/* rope_split_cpu.c - the meaning of rope_split (rope_split.h): a token to a thread, head by head.
 *
 * Easy to get wrong: both halves of a pair are read before either is written, so that y may be x. */
#include "kernels/registry.h"
#include "kernels/rows.h"

#include <math.h>

static Status check(Exec *x, const RopeSplit *a) {
    const Tensor *table[] = {&a->cos, &a->sin};
    TRY(rows_want_float(x, OP_rope_split, "x", a->x));
    TRY(rows_want_like(x, OP_rope_split, "y", a->y, a->x));
    if (a->x.rank != 3 || a->x.shape[2] % 2 || a->x.stride[2] != 1 || a->y.stride[2] != 1)
        return fail(x->error, ERR_MODEL, "rope_split: x and y must be [tokens, heads, an even head dim], heads contiguous");
    for (int i = 0; i < 2; i++)
        if (table[i]->dtype != F32 || table[i]->rank != 3 || table[i]->shape[0] != a->x.shape[0] ||
            table[i]->shape[1] != a->x.shape[1] || 2 * table[i]->shape[2] != a->x.shape[2] || table[i]->stride[2] != 1)
            return fail(x->error, ERR_MODEL, "rope_split: the tables must be F32 [%lld, %lld, %lld], heads contiguous",
                        (long long)a->x.shape[0], (long long)a->x.shape[1], (long long)a->x.shape[2] / 2);
    return OK;
}

static float turn(float plain, float with, float s) {
    return ROPE_SPLIT_FMA ? fmaf(s, with, plain) : plain + s * with;
}

static Status rope_split_cpu(Exec *x, const void *args) {
    const RopeSplit *a = args;
    TRY(check(x, a));
    int64_t tokens = a->x.shape[0], heads = a->x.shape[1], half = a->x.shape[2] / 2;
    bool between = a->form == ROPE_SPLIT_DTYPE && a->x.dtype == BF16;
#pragma omp parallel for schedule(static) if (tensor_numel(a->x) >= ROWS_PARALLEL_AT)
    for (int64_t row = 0; row < tokens * heads; row++) {
        float v0[ROWS_SPAN], v1[ROWS_SPAN], c[ROWS_SPAN], s[ROWS_SPAN];
        for (int64_t first = 0; first < half; first += ROWS_SPAN) {
            Span low = {row, first, half - first < ROWS_SPAN ? half - first : ROWS_SPAN}, high = {row, half + first, low.n};
            rows_load(v0, &a->x, low);
            rows_load(v1, &a->x, high);
            rows_load(c, &a->cos, low);
            rows_load(s, &a->sin, low);
            for (int64_t i = 0; i < low.n; i++) {
                float x0 = v0[i], x1 = v1[i], plain0 = x0 * c[i], plain1 = x1 * c[i];
                if (between) plain0 = bf16_round(plain0), plain1 = bf16_round(plain1);
                v0[i] = turn(plain0, x1, -s[i]);
                v1[i] = turn(plain1, x0, s[i]);
            }
            rows_store(&a->y, low, v0);
            rows_store(&a->y, high, v1);
        }
    }
    return OK;
}

const Impl ROPE_SPLIT_CPU[] = {{OP_rope_split, "cpu", rope_split_cpu, NULL, NULL}};
const int ROPE_SPLIT_CPU_COUNT = sizeof ROPE_SPLIT_CPU / sizeof *ROPE_SPLIT_CPU;
