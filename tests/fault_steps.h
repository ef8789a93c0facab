/* fault_steps.h - ops with one step wrong that several parts' goldens must notice: mostly arguments changed and the true op
 * called (fault.h).
 *
 * Not FLUX.1's list (faults.h). Easy to get wrong: loops here are over BF16 rows. */
#ifndef FAULT_STEPS_H
#define FAULT_STEPS_H

#include "fault.h"

static inline Status fault_rms_once(Exec *x, const void *args) {
    RmsNorm a = *(const RmsNorm *)args;
    a.form = RMS_ONCE;
    return fault_call(x, OP_rmsnorm, &a);
}
static inline Status fault_no_gate(Exec *x, const void *args) {
    ResidualGate a = *(const ResidualGate *)args;
    a.gate = (Tensor){0};
    return fault_call(x, OP_residual_gate, &a);
}
static inline Status fault_shift_for_scale(Exec *x, const void *args) {
    LnModulate a = *(const LnModulate *)args;
    Tensor t = a.scale;
    a.scale = a.shift, a.shift = t;
    return fault_call(x, OP_ln_modulate, &a);
}
static inline Status fault_sines_first(Exec *x, const void *args) { /* of 256 columns */
    TimeEmbed a = *(const TimeEmbed *)args;
    TRY(fault_call(x, OP_time_embed, &a));
    for (int64_t j = 0; j < 128; j++) {
        float c = fault_get(a.y, 0, j);
        fault_set(a.y, 0, j, fault_get(a.y, 0, j + 128));
        fault_set(a.y, 0, j + 128, c);
    }
    return OK;
}
static inline Status fault_rope_once(Exec *x, const void *args) { /* halves with one rounding */
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.rope = ROPE_HALF;
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static inline Status fault_rope_pairs(Exec *x, const void *args) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.rope = ROPE_INTERLEAVED;
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static inline Status fault_heads_once(Exec *x, const void *args) {
    QkNormRopeHead a = *(const QkNormRopeHead *)args;
    a.form = RMS_ONCE;
    return fault_call(x, OP_qk_norm_rope_head, &a);
}
static inline Status fault_unscaled(Exec *x, const void *args) {
    Affine a = *(const Affine *)args;
    a.mul = 1;
    return fault_call(x, OP_affine, &a);
}
static inline Status fault_scale_unrounded(Exec *x, const void *args) { /* by the root of the width */
    Affine a = *(const Affine *)args;
    a.mul = sqrtf((float)a.x.shape[1]);
    return fault_call(x, OP_affine, &a);
}
static inline Status fault_gelu_erf(Exec *x, const void *args) {
    ActMul a = *(const ActMul *)args;
    a.kind = ACT_GELU_ERF;
    return fault_call(x, OP_act_mul, &a);
}
static inline Status fault_gelu_unrounded(Exec *x, const void *args) { /* gelu_tanh(a) b in one rounding */
    const ActMul *a = args;
    (void)x;
    for (int64_t i = 0; i < a->a.shape[0]; i++)
        for (int64_t j = 0; j < a->a.shape[1]; j++) {
            double v = (double)fault_get(a->a, i, j), g = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
            golden_put((char *)a->y.data + i * a->y.stride[0] * 2, BF16, j, g * (double)fault_get(a->b, i, j));
        }
    return OK;
}
static inline Status fault_affine_exchanged(Exec *x, const void *args) {
    ChanAffine a = *(const ChanAffine *)args;
    Tensor t = a.a;
    a.a = a.b, a.b = t;
    return fault_call(x, OP_chan_affine, &a);
}

/* Scratch of the true op, for a fault that calls it. */
#define FAULT_SCRATCH(op) \
    static size_t scratch_##op(const Exec *x, const void *a) { return fault_true.impl[OP_##op][0]->scratch(x, a); }

#endif
