/* vae_rewrite.c - see vae_rewrite.h: guards, and the sequence of upsample_conv by phases, for any device.
 *
 * The convolution itself is the table's own conv2d reference, on weights made here and without their bias.
 * Easy to get wrong: there is one more place than pixels in both directions: the phase a = 1 of row i is made at place
 * i + 1, so every place but the border ones serves two rows. */
#include "kernels/vae_rewrite.h"

#include "kernels/conv_frames.h"

#include <stdio.h>

/* --- guards --- */

static bool plain_bf16(const Weight *w, const char *what, char *why, size_t size) {
    const char *name = w && w->name ? w->name : what;
    if (!w) snprintf(why, size, "%s: no weight", what);
    else if (w->scale.rank || w->lora) snprintf(why, size, "%s has scales or a LoRA", name);
    else if (w->w.dtype != BF16 || w->round != BF16 || (w->bias.rank && w->bias.dtype != BF16))
        snprintf(why, size, "%s is %s rounded to %s, expected BF16", name, dtype_name(w->w.dtype), dtype_name(w->round));
    else if (!tensor_contiguous(w->w)) snprintf(why, size, "%s is not contiguous", name);
    else return true;
    return false;
}

static bool is_bf16(const Tensor *t, const char *name, char *why, size_t size) {
    if (t->dtype == BF16) return true;
    snprintf(why, size, "%s is %s, expected BF16: without a rounding there is none to leave out", name, dtype_name(t->dtype));
    return false;
}

bool vae_rewrite_norm_accepts(const void *args, char *why, size_t size) {
    const GroupNorm *a = args;
    return is_bf16(&a->x, "x", why, size) && is_bf16(&a->y, "y", why, size);
}

bool vae_rewrite_upsample_accepts(const void *args, char *why, size_t size) {
    const Conv2d *a = args;
    if (!is_bf16(&a->x, "x", why, size) || !plain_bf16(a->w, "weight", why, size)) return false;
    const int64_t *k = a->w->w.shape;
    if (a->w->w.rank != 4 || k[1] != 3 || k[2] != 3 || a->stride != 1)
        snprintf(why, size, "kernel %lld x %lld with stride %d, expected 3 x 3 with stride 1", (long long)k[1], (long long)k[2],
                 a->stride);
    else if (a->pad_top != 1 || a->pad_left != 1 || a->pad_bottom != 1 || a->pad_right != 1)
        snprintf(why, size, "padding %d %d %d %d, expected 1 all around", a->pad_top, a->pad_left, a->pad_bottom, a->pad_right);
    else return true;
    return false;
}

bool vae_rewrite_attention_accepts(const void *args, char *why, size_t size) {
    const SelfAttention *a = args;
    if (!is_bf16(&a->x, "x", why, size) || !plain_bf16(a->wq, "wq", why, size) || !plain_bf16(a->wk, "wk", why, size) ||
        !plain_bf16(a->wv, "wv", why, size) || !plain_bf16(a->wo, "wo", why, size))
        return false;
    if (a->wv->bias.rank && a->wo->bias.rank) return true;
    snprintf(why, size, "wv or wo has no bias");
    return false;
}

/* --- upsample_conv by phases --- */

typedef struct Phases {
    Tensor w, y; /* [4 Cout,2,2,Cin], [Y+1,X+1,4 Cout], of frames [F,Y+1,X+1,4 Cout] */
    Weight weight;
    Conv2d conv;
} Phases;

static Tensor make(Exec *x, DType t, int rank, const int64_t *shape) {
    return x ? arena_tensor(x->scratch, t, rank, shape) : tensor_make(NULL, t, rank, shape);
}

static void phases(Exec *x, const Conv2d *a, Phases *p) {
    const int64_t out = 4 * a->w->w.shape[0], w[] = {out, 2, 2, a->w->w.shape[3]};
    const int64_t *in = a->x.shape + a->x.rank - 3, y[] = {a->x.shape[0], in[0] + 1, in[1] + 1, out};
    p->w = make(x, a->x.dtype, 4, w);
    p->y = make(x, a->x.dtype, a->x.rank, y + 4 - a->x.rank);
    p->weight = (Weight){.w = p->w, .round = a->x.dtype, .name = a->w->name};
    p->conv = (Conv2d){.y = p->y, .x = a->x, .w = &p->weight, .stride = 1, .pad_top = 1, .pad_left = 1, .pad_bottom = 1,
                       .pad_right = 1};
}

void vae_rewrite_phases(const Conv2d *a, Conv2d *conv, Weight *w) {
    Phases p;
    phases(NULL, a, &p);
    *w = p.weight;
    *conv = p.conv;
    conv->w = w;
}

size_t vae_rewrite_upsample_scratch(const Exec *x, const void *args) {
    Phases p;
    phases(NULL, args, &p);
    const Impl *impl = ops_reference(x->ops, OP_conv2d);
    return arena_rounded(tensor_bytes(p.w)) + arena_rounded(tensor_bytes(p.y)) +
           (impl && impl->scratch ? arena_rounded(impl->scratch(x, &p.conv)) : 0);
}

/* Frame i of a picture or frames; an absent tensor stays absent. */
static Tensor frame_of(Tensor t, int64_t i) {
    if (t.rank != 4) return t;
    t.data = (char *)t.data + i * t.stride[0] * (int64_t)dtype_size(t.dtype);
    for (int d = 0; d < 3; d++) t.shape[d] = t.shape[d + 1], t.stride[d] = t.stride[d + 1];
    t.rank = 3;
    return t;
}

Status vae_rewrite_upsample(Exec *x, const Conv2d *a, const VaeRewriteUpsample *pieces) {
    const Impl *impl = ops_reference(x->ops, OP_conv2d);
    ConvFrames f = conv_frames(OP_upsample_conv, a);
    if (!impl) return fail(x->error, ERR_MODEL, "upsample_conv: the table lacks conv2d");
    TRY(conv_frames_check(x, &f));
    if (!tensor_numel(a->y)) return OK;
    Phases p;
    phases(x, a, &p);
    if (!p.w.data || !p.y.data)
        return fail(x->error, ERR_MEMORY, "upsample_conv: no scratch of %zu bytes", tensor_bytes(p.w) + tensor_bytes(p.y));
    TRY(pieces->taps(x, a, p.w));
    size_t mark = arena_mark(x->scratch);
    TRY(impl->run(x, &p.conv));
    arena_reset(x->scratch, mark);
    for (int64_t i = 0; i < f.y.shape[0]; i++) {
        Conv2d one = *a;
        one.y = frame_of(a->y, i), one.skip = frame_of(a->skip, i);
        TRY(pieces->spread(x, &one, frame_of(p.y, i)));
    }
    return OK;
}
