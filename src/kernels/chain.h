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

#ifdef __cplusplus
}
#endif

#endif
