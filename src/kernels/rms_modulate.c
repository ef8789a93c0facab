/* rms_modulate.c - the references of rms_modulate.h: chains of the table's references, one text for all tables.
 *
 * Easy to get wrong: y may be x, so y2 is made first; none of the parts has scratch. */
#include "kernels/rms_modulate.h"

#include "kernels/chain.h"
#include "kernels/registry.h"

static Status want_pair(Exec *x, OpId op, Tensor y, Tensor scale, Tensor shift, bool second) {
    if (!scale.rank != !shift.rank || (second && !y.rank && scale.rank))
        return fail(x->error, ERR_MODEL, "%s: scale and shift%s come together, and with their output", ops_info(op)->name,
                    second ? " of y2" : "");
    return OK;
}

/* One modulation of the normed x. */
static Status modulated(Exec *x, Tensor y, Tensor in, Tensor scale, Tensor shift, float eps) {
    TRY(chain_run(x, OP_rmsnorm, &(RmsNorm){.y = y, .x = in, .eps = eps, .form = RMS_TWICE}));
    return scale.rank ? chain_run(x, OP_modulate, &(Modulate){.y = y, .x = y, .scale = scale, .shift = shift}) : OK;
}

static Status rms_modulate(Exec *x, const void *args) {
    const RmsModulate *a = args;
    TRY(want_pair(x, OP_rms_modulate, a->y, a->scale, a->shift, false));
    TRY(want_pair(x, OP_rms_modulate, a->y2, a->scale2, a->shift2, true));
    if (a->y2.rank) TRY(modulated(x, a->y2, a->x, a->scale2, a->shift2, a->eps));
    return modulated(x, a->y, a->x, a->scale, a->shift, a->eps);
}

static Status residual_rms_modulate(Exec *x, const void *args) {
    const ResidualRmsModulate *a = args;
    TRY(want_pair(x, OP_residual_rms_modulate, a->y, a->scale, a->shift, false));
    TRY(want_pair(x, OP_residual_rms_modulate, a->y2, a->scale2, a->shift2, true));
    TRY(chain_run(x, OP_residual_gate, &(ResidualGate){.y = a->h, .residual = a->residual, .x = a->x, .gate = a->gate}));
    if (a->y2.rank) TRY(modulated(x, a->y2, a->h, a->scale2, a->shift2, a->eps));
    return modulated(x, a->y, a->h, a->scale, a->shift, a->eps);
}

static Status normed_and_turned(Exec *x, const NormRopeSplit *a, Tensor y, Tensor in, Tensor w) {
    int64_t d = in.rank == 2 ? in.shape[1] : 0;
    if (!a->cos.rank != !a->sin.rank || a->heads < 1 || !d || d % (2 * (int64_t)a->heads))
        return fail(x->error, ERR_MODEL, "norm_rope_split: q and k must be [tokens, %d even heads], cos and sin come together",
                    (int)a->heads);
    TRY(chain_run(x, OP_rmsnorm, &(RmsNorm){.y = y, .x = in, .w = w, .eps = a->eps, .form = RMS_ONCE}));
    if (!a->cos.rank) return OK;
    int64_t e = d / a->heads;
    if (a->cos.rank != 2 || a->sin.rank != 2 || 2 * a->cos.shape[1] != d || 2 * a->sin.shape[1] != d)
        return fail(x->error, ERR_MODEL, "norm_rope_split: the tables must be [tokens, %lld]", (long long)d / 2);
    Tensor heads = tensor_split(y, e);
    return chain_run(x, OP_rope_split, &(RopeSplit){.y = heads, .x = heads, .cos = tensor_split(a->cos, e / 2),
                                                    .sin = tensor_split(a->sin, e / 2), .form = a->form});
}

static Status norm_rope_split(Exec *x, const void *args) {
    const NormRopeSplit *a = args;
    if (!a->yk.rank != !a->k.rank) return fail(x->error, ERR_MODEL, "norm_rope_split: k and yk come together");
    TRY(normed_and_turned(x, a, a->yq, a->q, a->wq));
    return a->k.rank ? normed_and_turned(x, a, a->yk, a->k, a->wk) : OK;
}

#define IMPLS(name)                                                                                          \
    {                                                                                                        \
        {OP_rms_modulate, name, rms_modulate, NULL, NULL},                                                   \
        {OP_residual_rms_modulate, name, residual_rms_modulate, NULL, NULL},                                 \
        {OP_norm_rope_split, name, norm_rope_split, NULL, NULL},                                             \
    }
const Impl RMS_MODULATE_CPU[] = IMPLS("cpu");
const int RMS_MODULATE_CPU_COUNT = sizeof RMS_MODULATE_CPU / sizeof *RMS_MODULATE_CPU;
const Impl RMS_MODULATE_CUDA[] = IMPLS("cuda");
const int RMS_MODULATE_CUDA_COUNT = sizeof RMS_MODULATE_CUDA / sizeof *RMS_MODULATE_CUDA;
