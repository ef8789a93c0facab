/* slice.c - see slice.h. */
#include "slice.h"

bool slice_rowwise(OpId op) {
    switch (op) {
    case OP_copy:
    case OP_linear:
    case OP_linear_rows:
    case OP_linear_many:
    case OP_linear_gelu:
    case OP_linear_many_gelu:
    case OP_norm_relu_rope:
    case OP_rope_split:
    case OP_rms_modulate:
    case OP_residual_rms_modulate:
    case OP_norm_rope_split:
    case OP_head_gate:
    case OP_cos_sin:
    case OP_dwconv3_glu: /* rows are frames */
    case OP_act:
    case OP_act_mul:
    case OP_add:
    case OP_residual_gate:
    case OP_modulate:
    case OP_layernorm:
    case OP_ln_modulate:
    case OP_residual_gate_ln_modulate:
    case OP_rmsnorm:
    case OP_rmsnorm_scale:
    case OP_residual_norm:
    case OP_residual_norm_scale:
    case OP_qk_norm_rope_head:
    case OP_cfg_combine:
    case OP_euler_step:
    case OP_dpm_step:
    case OP_affine:
    case OP_chan_affine:
    case OP_chan_rmsnorm:
    case OP_chan_rmsnorm_silu:
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

Args slice_small(OpId op, const Args *a, int64_t rows) {
    const Tensor *y = &a->tensor[0], *x = &a->tensor[1];
    if (op == OP_upsample_conv) {
        Args small = *a;
        if (x->shape[0] <= rows || y->shape[0] != 2 * x->shape[0]) return small;
        small = slice_cut(op, a, 0, 2 * rows);
        small.tensor[1].shape[0] = rows;
        return small;
    }
    if (op == OP_frame_window || op == OP_pixelnorm_silu) { /* frames, and more of them in y */
        Args small = *a;
        int64_t extra = a->tensor[0].shape[0] - a->tensor[2].shape[0];
        for (int i = 0; i < 5 && a->tensor[2].shape[0] > rows; i++)
            if (i != 3 && small.tensor[i].rank) small.tensor[i].shape[0] = i ? rows : rows + extra; /* 3: the bias */
        return small;
    }
    if (op == OP_conv3d) { /* frames, and more of them in x */
        Args small = *a;
        const Conv3d *conv = (const Conv3d *)(const void *)a->bytes;
        for (int i = 0; i < 3 && conv->stride_t == 1; i++) /* y, x, the other path */
            if (small.tensor[i].rank) small.tensor[i].shape[0] -= y->shape[0] - 1;
        return small;
    }
    bool picture = op == OP_groupnorm || op == OP_groupnorm_silu || op == OP_self_attention ||
                   (op == OP_conv2d && x->shape[0] == y->shape[0]);
    return (slice_rowwise(op) || picture) && slice_rows(a) > rows ? slice_cut(op, a, 0, rows) : *a;
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

static bool joins(const Stretch *a, const Stretch *b) {
    const char *a_end = a->from + a->size, *b_end = b->from + b->size;
    bool alike = (a->written && b->written) || (a->weight && b->weight);
    return alike ? a->from <= b_end && b->from <= a_end : a->from < b_end && b->from < a_end;
}

static void add_stretch(Stretches *s, Tensor t, Stretch kind) {
    kind.from = t.data;
    kind.size = t.data ? slice_span(t) : 0;
    if (!kind.size) return;
    for (int i = 0; i < s->count;) { /* everything it joins becomes a part of it */
        Stretch *old = &s->at[i];
        if (!joins(old, &kind)) {
            i++;
            continue;
        }
        char *end = kind.from + kind.size > old->from + old->size ? kind.from + kind.size : old->from + old->size;
        if (old->from < kind.from) kind.from = old->from;
        kind.size = (size_t)(end - kind.from);
        kind.written |= old->written, kind.read |= old->read, kind.weight |= old->weight;
        *old = s->at[--s->count];
        i = 0;
    }
    s->at[s->count++] = kind;
}

void slice_stretches(OpId op, const Args *a, bool weights, Stretches *out) {
    const OpInfo *info = ops_info(op);
    out->count = 0;
    for (int i = 0; i < info->outputs + info->inputs; i++)
        add_stretch(out, a->tensor[i], (Stretch){.written = i < info->outputs, .read = i >= info->outputs});
    for (int i = 0; weights && i < info->weights; i++) {
        const Weight *w = slice_weight(op, a, i);
        if (!w) continue;
        add_stretch(out, w->w, (Stretch){.weight = true});
        add_stretch(out, w->bias, (Stretch){.weight = true});
    }
    for (int i = 0; i < out->count; i++) {
        Stretch *s = &out->at[i];
        size_t over = (uintptr_t)s->from % ARENA_ALIGN;
        s->from -= over;
        s->to = s->from;
        s->size += over;
    }
}

void *slice_moved(const Stretches *s, void *address) {
    const char *p = address;
    for (int i = 0; i < s->count; i++) {
        const Stretch *at = &s->at[i];
        if (p >= at->from && p < at->from + at->size) return at->to + (p - at->from);
    }
    return address;
}
