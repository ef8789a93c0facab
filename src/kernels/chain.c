/* chain.c - see chain.h: the references of the composites, on whatever table they run. One text serves all tables, since
 * the parts are looked up.
 *
 * Easy to get wrong: the parts are the table's references, never its fused variants: what a fused composite is compared
 * with must not contain fused kernels. Parts with scratch would have to be declared here; today's have none. */
#include "kernels/chain.h"
#include "kernels/registry.h"

static Status residual_gate_ln_modulate(Exec *x, const void *args) {
    ChainGateNorm c = chain_gate_norm(args);
    TRY(chain_run(x, OP_residual_gate, &c.gate));
    return chain_run(x, OP_ln_modulate, &c.norm);
}

const Impl CHAIN_CPU[] = {{OP_residual_gate_ln_modulate, "cpu", residual_gate_ln_modulate, NULL, NULL}};
const int CHAIN_CPU_COUNT = sizeof CHAIN_CPU / sizeof *CHAIN_CPU;
const Impl CHAIN_CUDA[] = {{OP_residual_gate_ln_modulate, "cuda", residual_gate_ln_modulate, NULL, NULL}};
const int CHAIN_CUDA_COUNT = sizeof CHAIN_CUDA / sizeof *CHAIN_CUDA;
