/* fault.h - how a fault takes an op's place on the CPU table, and what faults are written with: the true table, and elements of
 * BF16 rows. For the programs whose goldens must notice wrong ops; faults.h has the list of FLUX.1's.
 *
 * Easy to get wrong: outputs may alias inputs, so a fault that needs several inputs an element reads them before it writes. */
#ifndef FAULT_H
#define FAULT_H

#include "golden.h"

static Ops fault_true; /* the table without faults; lint: allow-static (test program) */

static inline Status fault_call(Exec *x, OpId op, const void *args) { return ops_reference(&fault_true, op)->run(x, args); }

/* Puts a fault in the op's place, so that composites made of the op have it too, or takes it away (NULL). */
static inline void fault_mount(Golden *g, const Impl *fault) {
    uint32_t epoch = g->ops.epoch + 1;
    if (!fault_true.count[OP_copy]) ops_cpu(&fault_true);
    g->ops = fault_true;
    g->ops.epoch = epoch;
    if (!fault) return;
    g->ops.impl[fault->op][0] = fault;
    g->ops.count[fault->op] = 1;
}

/* Element j of a row, counted in elements from where the row begins; of a vector, whatever the row. */
static inline char *fault_at(Tensor t, int64_t row, int64_t j) {
    return (char *)t.data + (t.rank == 1 ? j : row * t.stride[0] + j) * 2;
}

static inline float fault_get(Tensor t, int64_t row, int64_t j) {
    uint16_t h;
    memcpy(&h, fault_at(t, row, j), 2);
    return bf16_to_f32(h);
}

static inline void fault_set(Tensor t, int64_t row, int64_t j, float v) {
    uint16_t h = bf16_from_f32(v);
    memcpy(fault_at(t, row, j), &h, 2);
}

#endif
