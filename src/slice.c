/* slice.c - see slice.h. */
#include "slice.h"

bool slice_rowwise(OpId op) {
    switch (op) {
    case OP_copy:
    case OP_linear:
    case OP_linear_many:
    case OP_linear_gelu:
    case OP_act:
    case OP_act_mul:
    case OP_add:
    case OP_residual_gate:
    case OP_layernorm:
    case OP_ln_modulate:
    case OP_rmsnorm:
    case OP_qk_norm_rope_head:
    case OP_cfg_combine:
    case OP_euler_step:
    case OP_affine:
    case OP_to_rgb8: return true;
    default: return false;
    }
}

int64_t slice_rows(const Args *a) { return a->tensor[0].rank >= 2 ? a->tensor[0].shape[0] : 1; }

Args slice_copy(OpId op, const void *args) {
    Args a;
    memset(&a, 0, sizeof a);
    memcpy(a.bytes, args, ops_args_size(op));
    return a;
}

Args slice_cut(OpId op, const Args *a, int64_t start, int64_t count) {
    const OpInfo *info = ops_info(op);
    Args cut = *a;
    int64_t rows = slice_rows(a);
    if (a->tensor[0].rank < 2 || (start == 0 && count == rows)) return cut;
    for (int i = 0; i < info->outputs + info->inputs; i++) {
        Tensor *t = &cut.tensor[i];
        if (t->rank < 2 || t->shape[0] != rows) continue;
        if (t->data) t->data = (char *)t->data + start * t->stride[0] * (int64_t)dtype_size(t->dtype);
        t->shape[0] = count;
    }
    return cut;
}

size_t slice_span(Tensor t) {
    int64_t last = 0;
    for (int d = 0; d < t.rank; d++) {
        if (t.shape[d] == 0) return 0;
        last += (t.shape[d] - 1) * t.stride[d];
    }
    return t.rank ? (size_t)(last + 1) * dtype_size(t.dtype) : 0;
}

static size_t weight_at(OpId op, int i) {
    const OpInfo *info = ops_info(op);
    return (size_t)(info->outputs + info->inputs) * sizeof(Tensor) + (size_t)i * sizeof(void *);
}

const Weight *slice_weight(OpId op, const Args *a, int i) {
    const Weight *w;
    memcpy(&w, a->bytes + weight_at(op, i), sizeof w);
    return w;
}

void slice_set_weight(OpId op, Args *a, int i, const Weight *w) { memcpy(a->bytes + weight_at(op, i), &w, sizeof w); }
