/* opcost.c - see opcost.h. */
#include "opcost.h"

#include <stdio.h>

/* --- what a call costs at least --- */

/* Elements that exist: a broadcast dimension counts once. */
static double bytes_of(const Tensor *t) {
    if (!t->rank) return 0;
    double n = (double)dtype_size(t->dtype);
    for (int d = 0; d < t->rank; d++)
        if (t->stride[d]) n *= (double)t->shape[d];
    return n;
}

double opcost_bytes(OpId op, const void *args) {
    const OpInfo *info = ops_info(op);
    const Tensor *t = args;
    double bytes = 0;
    for (int i = 0; i < info->outputs + info->inputs; i++) bytes += bytes_of(&t[i]);
    for (int i = 0; i < info->weights; i++) {
        const Weight *w = ops_weight(op, args, i);
        if (!w) continue;
        double table = bytes_of(&w->w), gathered = (double)tensor_numel(t[0]) * (double)dtype_size(w->w.dtype);
        bytes += (op == OP_embed && gathered < table ? gathered : table) + bytes_of(&w->bias);
    }
    return bytes;
}

static double attention_flops(const Tensor *q, const Tensor *k, bool causal) {
    double rows = (double)q->shape[0], keys = (double)k->shape[0];
    double pairs = !causal ? rows * keys : rows <= keys ? rows * (rows + 1) / 2 : keys * (keys + 1) / 2 + (rows - keys) * keys;
    return 4 * pairs * (double)q->shape[1] * (double)q->shape[2];
}

double opcost_flops(OpId op, const void *args) {
    const Tensor *t = args;
    double flops = 0;
    switch (op) {
    case OP_embed:
    case OP_rel_bias: return 0; /* their weights are looked up */
    case OP_attention: {
        const Attention *a = args;
        return attention_flops(&a->q, &a->k, a->mask == MASK_CAUSAL);
    }
    case OP_attention_eager: {
        const AttentionEager *a = args;
        return attention_flops(&a->q, &a->k, a->mask == MASK_CAUSAL);
    }
    case OP_linear_attention: { /* the state and what it gives, a head */
        const LinearAttention *a = args;
        return 4 * (double)tensor_numel(a->o) * (double)a->o.shape[2];
    }
    case OP_conv_transpose1d: { /* each input takes part in every tap */
        const ConvTranspose1d *a = args;
        return 2 * (double)a->x.shape[0] * (double)tensor_numel(a->w->w);
    }
    case OP_fir_up: return 2 * (double)tensor_numel(t[0]) * (double)tensor_numel(t[2]) / ((const FirUp *)args)->ratio;
    case OP_snake_filtered: /* half of `up` for two rows, all of `down` */
        return 4 * (double)tensor_numel(t[0]) * (double)tensor_numel(t[5]);
    case OP_dwconv3_glu: return 18 * 2 * (double)tensor_numel(t[0]); /* nine taps for both halves */
    case OP_self_attention: { /* four products [T,C] by [C,C], and all pixels with all */
        double rows = (double)t[0].shape[0], width = (double)t[0].shape[1];
        return 8 * rows * width * width + 4 * rows * rows * width;
    }
    default: /* products: output i is made with weight i, [N,K] or [Cout,kh,kw,Cin] */
        for (int i = 0; i < ops_info(op)->weights && i < ops_info(op)->outputs; i++) {
            const Weight *w = ops_weight(op, args, i);
            if (w && w->w.rank) flops += 2 * (double)tensor_numel(t[i]) * (double)(tensor_numel(w->w) / w->w.shape[0]);
        }
        return flops;
    }
}

/* --- shapes in words --- */

typedef struct Text { char *at; size_t left; } Text;

static void say(Text *t, const char *s) {
    int n = snprintf(t->at, t->left, "%s", s);
    size_t used = (size_t)n < t->left ? (size_t)n : t->left ? t->left - 1 : 0;
    t->at += used, t->left -= used;
}

static const char *extents(const Tensor *t, char *out, size_t size) {
    size_t at = 0;
    for (int d = 0; d < t->rank; d++) {
        int n = snprintf(out + at, size - at, d ? "x%lld" : "%lld", (long long)t->shape[d]);
        if (n < 0 || (at += (size_t)n) >= size) return out;
    }
    if (!tensor_contiguous(*t)) snprintf(out + at, size - at, "~");
    return out;
}

/* Runs of equal shapes as "3 of 512x3072". */
static void say_tensors(Text *text, const Tensor *t, int count, const char *before, DType *dtype) {
    for (int i = 0, next; i < count; i = next) {
        char now[64] = "", other[64] = "", times[16] = "";
        next = i + 1;
        if (!t[i].rank) continue;
        extents(&t[i], now, sizeof now);
        while (next < count && t[next].rank && t[next].dtype == t[i].dtype &&
               !strcmp(now, extents(&t[next], other, sizeof other)))
            next++;
        if (next - i > 1) snprintf(times, sizeof times, "%d of ", next - i);
        say(text, before);
        if (t[i].dtype != *dtype) say(text, dtype_name(t[i].dtype)), say(text, " ");
        *dtype = t[i].dtype;
        say(text, times);
        say(text, now);
        before = ", ";
    }
}

void opcost_shape(OpId op, const void *args, char *out, size_t size) {
    const OpInfo *info = ops_info(op);
    const Tensor *t = args;
    Text text = {out, size};
    DType dtype = DTYPE_NONE;
    if (size) *out = 0;
    say_tensors(&text, t, info->outputs, "", &dtype);
    say_tensors(&text, t + info->outputs, info->inputs, " < ", &dtype);
    for (int i = 0; i < info->weights; i++) {
        const Weight *w = ops_weight(op, args, i);
        if (!w) continue;
        say_tensors(&text, &w->w, 1, i ? ", " : "; w ", &dtype);
        if (w->bias.rank) say(&text, " +b");
    }
}
