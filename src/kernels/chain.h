/* chain.h - composites whose meaning is other ops of the same table, one after the other. Not for models: they call the
 * composite (norm.h) and never see its parts. */
#ifndef KERNELS_CHAIN_H
#define KERNELS_CHAIN_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The two calls that residual_gate_ln_modulate stands for; the second reads what the first wrote. */
typedef struct ChainGateNorm { ResidualGate gate; LnModulate norm; } ChainGateNorm;
static inline ChainGateNorm chain_gate_norm(const ResidualGateLnModulate *a) {
    ChainGateNorm c = {{a->h, a->residual, a->x, a->gate}, {a->y, a->h, a->scale, a->shift, a->eps}};
    return c;
}

/* An op by its table's reference: for variants that hand a part of their work, or a whole shape class, over to it. */
static inline Status chain_run(Exec *x, OpId op, const void *args) {
    const Impl *impl = ops_reference(x->ops, op);
    return impl ? impl->run(x, args) : fail(x->error, ERR_MODEL, "%s: no implementation", ops_info(op)->name);
}

/* What runs a call that the variant `mine` hands on: the next one of its table that takes it. On a table without `mine`, as
 * probes have it, the reference. NULL: nothing stands behind. */
static inline const Impl *chain_next(const Exec *x, const Impl *mine, const void *args) {
    const Ops *ops = x->ops;
    int at = 0, count = ops->count[mine->op];
    char why[256];
    while (at < count && ops->impl[mine->op][at] != mine) at++;
    if (at == count) return ops_reference(ops, mine->op);
    for (at++; at < count; at++) {
        const Impl *impl = ops->impl[mine->op][at];
        if (!impl->accepts || impl->accepts(args, why, sizeof why)) return impl;
    }
    return NULL;
}

static inline Status chain_behind(Exec *x, const Impl *mine, const void *args) {
    const Impl *impl = chain_next(x, mine, args);
    return impl ? impl->run(x, args) : fail(x->error, ERR_MODEL, "%s: nothing behind %s", ops_info(mine->op)->name, mine->name);
}

static inline size_t chain_behind_scratch(const Exec *x, const Impl *mine, const void *args) {
    const Impl *impl = chain_next(x, mine, args);
    return impl && impl->scratch ? impl->scratch(x, args) : 0;
}

#ifdef __cplusplus
}
#endif

#endif
