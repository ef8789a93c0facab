/* packing.c - see packing.h. */
#include "kernels/packing.h"

#include "kernels/linear.h"

#include <stdio.h>

static const char *name_of(const Weight *w) { return w->name ? w->name : "a weight"; }

/* a's last byte is followed by b's first. */
static bool adjacent(Tensor a, Tensor b) { return (char *)a.data + tensor_bytes(a) == b.data; }

static bool weights_pack(const Weight *a, const Weight *b, char *why, size_t size) {
    const Weight *both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        const Weight *w = both[i];
        if (w->scale.rank || w->lora)
            return snprintf(why, size, "%s has a scale or LoRA of its own", name_of(w)), false;
        if (w->w.rank != 2 || !tensor_contiguous(w->w) || (w->bias.rank && (w->bias.rank != 1 || !tensor_contiguous(w->bias))))
            return snprintf(why, size, "%s: its rows have gaps", name_of(w)), false;
    }
    if (a->w.dtype != b->w.dtype || a->round != b->round || a->w.shape[1] != b->w.shape[1])
        return snprintf(why, size, "%s and %s differ in dtype or columns", name_of(a), name_of(b)), false;
    if (!a->bias.rank != !b->bias.rank || a->bias.dtype != b->bias.dtype)
        return snprintf(why, size, "of %s and %s one alone has a bias, or of another dtype", name_of(a), name_of(b)), false;
    if (!adjacent(a->w, b->w))
        return snprintf(why, size, "%s does not lie right behind %s", name_of(b), name_of(a)), false;
    if (a->bias.rank && !adjacent(a->bias, b->bias))
        return snprintf(why, size, "the bias of %s does not lie right behind that of %s", name_of(b), name_of(a)), false;
    return true;
}

static bool outputs_pack(const Tensor *a, const Tensor *b, char *why, size_t size) {
    bool same = a->rank == b->rank && a->rank >= 1 && a->dtype == b->dtype;
    int last = a->rank - 1;
    for (int d = 0; same && d < a->rank; d++)
        same = a->stride[d] == b->stride[d] && (d == last || a->shape[d] == b->shape[d]);
    if (same && a->stride[last] == 1 && (char *)a->data + a->shape[last] * (int64_t)dtype_size(a->dtype) == b->data) return true;
    return snprintf(why, size, "the outputs are not neighbouring columns of one buffer"), false;
}

bool packing_make(const Tensor *y, const Weight *const *w, int count, int32_t bias_mode, Packing *out, char *why,
                  size_t size) {
    *out = (Packing){.w = *w[0], .y = y[0]};
    for (int i = 1; i < count; i++) {
        if (!weights_pack(w[i - 1], w[i], why, size) || !outputs_pack(&y[i - 1], &y[i], why, size)) return false;
        out->w.w.shape[0] += w[i]->w.shape[0];
        if (out->w.bias.rank) out->w.bias.shape[0] += w[i]->bias.shape[0];
        out->y.shape[out->y.rank - 1] += y[i].shape[y[i].rank - 1];
    }
    if (count > 1 && out->w.bias.rank && bias_mode != BIAS_FUSED)
        return snprintf(why, size, "%s: the bias is added after a rounding", name_of(w[0])), false;
    const Tensor *t = &out->y;
    for (int d = 0; d + 1 < t->rank; d++) /* rows of one output may stand closer than all outputs are wide */
        if (t->shape[d] > 1 && t->stride[d] < t->shape[t->rank - 1])
            return snprintf(why, size, "the outputs are not neighbouring columns of one buffer"), false;
    return true;
}
