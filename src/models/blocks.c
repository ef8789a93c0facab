/* blocks.c - see blocks.h. */
#include "models/blocks.h"

#include <math.h>

void blocks_rope_row(const int64_t *axes, int axis_count, const double *position, double theta, float *cos_row,
                     float *sin_row) {
    for (int a = 0; a < axis_count; a++)
        for (int64_t i = 0; i < axes[a] / 2; i++) {
            double angle = position[a] * (1.0 / pow(theta, (double)(2 * i) / (double)axes[a]));
            *cos_row++ = (float)cos(angle);
            *sin_row++ = (float)sin(angle);
        }
}

void blocks_mlp_bind(Bind *b, BlocksMlp *m, int64_t in, int64_t hidden, const char *name) {
    bind_linear(b, &m->linear_1, hidden, in, true, "%s.linear_1", name);
    bind_linear(b, &m->linear_2, hidden, hidden, true, "%s.linear_2", name);
}

Status blocks_mlp(const BlocksMlp *m, Exec *x, Tensor y, Tensor in) {
    size_t mark = arena_mark(x->work);
    Tensor h = exec_new(x, y.shape[0], y.shape[1]);
    TRY(op_linear(x, &(Linear){.y = h, .x = in, .w = &m->linear_1}));
    TRY(op_act(x, &(Act){.y = h, .x = h, .kind = ACT_SILU}));
    TRY(op_linear(x, &(Linear){.y = y, .x = h, .w = &m->linear_2}));
    arena_reset(x->work, mark);
    return OK;
}

Status blocks_round(Exec *x, Tensor t) {
    if (x->dtype == F32) return OK;
    size_t mark = arena_mark(x->work);
    Tensor rounded = exec_tensor(x, x->dtype, t.rank, t.shape);
    TRY(op_copy(x, &(Copy){.y = rounded, .x = t}));
    TRY(op_copy(x, &(Copy){.y = t, .x = rounded}));
    arena_reset(x->work, mark);
    return OK;
}

Status blocks_cos_sin(Exec *x, Tensor angles, Tensor cos_table, Tensor sin_table, bool round) {
    TRY(op_cos_sin(x, &(CosSin){.cos = cos_table, .sin = sin_table, .x = angles}));
    if (!round) return OK;
    TRY(blocks_round(x, cos_table));
    return blocks_round(x, sin_table);
}
