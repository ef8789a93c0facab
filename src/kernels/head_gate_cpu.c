/* head_gate_cpu.c - the meaning of head_gate and cos_sin (head_gate.h): a head, or a span of angles, to a thread.
 *
 * Easy to get wrong: an angle is read before either of its results is written. */
#include "kernels/registry.h"
#include "kernels/rows.h"
#include "kernels/unary.h"

#include <math.h>

static float sigmoid_of(const Exec *x, float v, DType t) {
    return t == BF16 ? bf16_to_f32(x->unary->table[UNARY_SIGMOID][bf16_from_f32(v)]) : 1.0f / (1.0f + expf(-v));
}

static Status head_gate_cpu(Exec *x, const void *args) {
    const HeadGate *a = args;
    DType t = a->x.dtype;
    TRY(rows_want_float(x, OP_head_gate, "x", a->x));
    TRY(rows_want_like(x, OP_head_gate, "y", a->y, a->x));
    if (a->x.rank != 3 || a->logits.rank != 2 || a->logits.dtype != t || a->logits.shape[0] != a->x.shape[0] ||
        a->logits.shape[1] != a->x.shape[1] || a->x.stride[2] != 1 || a->y.stride[2] != 1)
        return fail(x->error, ERR_MODEL, "head_gate: x and y must be [tokens, heads, head dim], heads contiguous, logits "
                    "[tokens, heads] of their dtype");
    if (t == BF16 && !x->unary) return fail(x->error, ERR_MODEL, "head_gate: the tables of the BF16 functions are not open");
    Walk w = rows_walk(a->y);
    int64_t heads = a->x.shape[1];
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], gate;
        Span s = rows_span(&w, i);
        rows_load(&gate, &a->logits, (Span){s.row / heads, s.row % heads, 1});
        gate = 2.0f * sigmoid_of(x, gate, t); /* exact: no rounding to do */
        rows_load(v, &a->x, s);
        for (int64_t j = 0; j < s.n; j++) v[j] *= gate;
        rows_store(&a->y, s, v);
    }
    return OK;
}

static Status cos_sin_cpu(Exec *x, const void *args) {
    CosSin a = *(const CosSin *)args;
    const Tensor *all[] = {&a.cos, &a.sin, &a.x};
    for (int i = 0; i < 3; i++)
        if (all[i]->dtype != F32 || !tensor_same_shape(*all[i], a.x) || !tensor_contiguous(*all[i]))
            return fail(x->error, ERR_MODEL, "cos_sin: x, cos and sin must be contiguous F32 tensors of one shape");
    rows_flatten(3, (Tensor *const[]){&a.cos, &a.sin, &a.x});
    Walk w = rows_walk(a.cos);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], c[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(v, &a.x, s);
        for (int64_t j = 0; j < s.n; j++) c[j] = cosf(v[j]), v[j] = sinf(v[j]);
        rows_store(&a.cos, s, c);
        rows_store(&a.sin, s, v);
    }
    return OK;
}

const Impl HEAD_GATE_CPU[] = {{OP_head_gate, "cpu", head_gate_cpu, NULL, NULL}, {OP_cos_sin, "cpu", cos_sin_cpu, NULL, NULL}};
const int HEAD_GATE_CPU_COUNT = sizeof HEAD_GATE_CPU / sizeof *HEAD_GATE_CPU;
