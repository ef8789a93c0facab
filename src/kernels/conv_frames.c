/* conv_frames.c - see conv_frames.h. */
#include "kernels/conv_frames.h"

/* t with an extent of 1 put in before dimension `dim`, when it is of rank `short_rank`. */
static Tensor lifted(Tensor t, int short_rank, int dim) {
    if (t.rank != short_rank) return t;
    for (int d = t.rank; d > dim; d--) t.shape[d] = t.shape[d - 1], t.stride[d] = t.stride[d - 1];
    t.shape[dim] = 1;
    t.stride[dim] = t.shape[dim + 1] * t.stride[dim + 1];
    t.rank++;
    return t;
}

static ConvFrames flat(OpId op, const Conv2d *a) {
    return (ConvFrames){.op = op, .y = lifted(a->y, 3, 0), .x = lifted(a->x, 3, 0), .skip = lifted(a->skip, 3, 0),
                        .skip_bias = a->skip_bias, .kernel = lifted(a->w->w, 4, 1), .w = a->w, .stride_t = 1,
                        .stride = a->stride, .pad_top = a->pad_top, .pad_left = a->pad_left, .pad_bottom = a->pad_bottom,
                        .pad_right = a->pad_right, .biased = a->w->bias.rank && a->form == CONV_BIAS, .tf32 = a->tf32,
                        .up = op == OP_upsample_conv};
}

static ConvFrames deep(const Conv3d *a) {
    return (ConvFrames){.op = OP_conv3d, .y = a->y, .x = a->x, .skip = a->skip, .skip_bias = a->skip_bias, .kernel = a->w->w,
                        .w = a->w, .stride_t = a->stride_t, .pad_t = a->pad_t, .stride = 1, .pad_top = a->pad, .pad_left = a->pad,
                        .pad_bottom = a->pad, .pad_right = a->pad, .biased = a->w->bias.rank && a->form == CONV_BIAS,
                        .tf32 = a->tf32};
}

ConvFrames conv_frames(OpId op, const void *args) { return op == OP_conv3d ? deep(args) : flat(op, args); }

Status conv_frames_check(Exec *x, const ConvFrames *a) {
    const char *op_name = ops_info(a->op)->name, *name = a->w->name ? a->w->name : "weight";
    Tensor w = a->kernel;
    if (w.rank != 5 || !tensor_contiguous(w))
        return fail(x->error, ERR_MODEL, "%s: %s takes plain contiguous [out, %skh, kw, in] weights only", name, op_name,
                    a->op == OP_conv3d ? "kt, " : "");
    if (a->x.rank != 4 || a->y.rank != 4 || a->x.stride[3] != 1 || a->y.stride[3] != 1)
        return fail(x->error, ERR_MODEL, "%s: %s needs %s with contiguous channels", name, op_name,
                    a->op == OP_conv3d ? "frames [F, Y, X, C]" : "pictures [Y, X, C] or frames of them");
    if (a->x.shape[3] != w.shape[4] || a->y.shape[3] != w.shape[0])
        return fail(x->error, ERR_MODEL, "%s: %s from %lld to %lld channels, weight has %lld to %lld", name, op_name,
                    (long long)a->x.shape[3], (long long)a->y.shape[3], (long long)w.shape[4], (long long)w.shape[0]);
    if (a->stride < 1 || a->stride_t < 1 || a->pad_t < 0 || a->pad_top < 0 || a->pad_left < 0 || a->pad_bottom < 0 ||
        a->pad_right < 0)
        return fail(x->error, ERR_MODEL, "%s: %s with stride %lld or a negative padding", name, op_name,
                    (long long)(a->stride < 1 ? a->stride : a->stride_t));
    int64_t across = (a->x.shape[2] << a->up) + a->pad_left + a->pad_right - w.shape[3];
    int64_t down = (a->x.shape[1] << a->up) + a->pad_top + a->pad_bottom - w.shape[2];
    int64_t along = a->x.shape[0] + 2 * a->pad_t - w.shape[1];
    if (across < 0 || down < 0 || across / a->stride + 1 != a->y.shape[2] || down / a->stride + 1 != a->y.shape[1])
        return fail(x->error, ERR_MODEL, "%s: %s output is %lld x %lld, expected %lld x %lld", name, op_name,
                    (long long)a->y.shape[1], (long long)a->y.shape[2], (long long)(down / a->stride + 1),
                    (long long)(across / a->stride + 1));
    if (along < 0 || along / a->stride_t + 1 != a->y.shape[0])
        return fail(x->error, ERR_MODEL, "%s: %s output of %lld frames from %lld, kernel of %lld, stride %lld", name, op_name,
                    (long long)a->y.shape[0], (long long)a->x.shape[0], (long long)w.shape[1], (long long)a->stride_t);
    if (a->w->bias.rank && (tensor_numel(a->w->bias) != w.shape[0] || !tensor_contiguous(a->w->bias)))
        return fail(x->error, ERR_MODEL, "%s: bias has %lld elements, want %lld", name,
                    (long long)tensor_numel(a->w->bias), (long long)w.shape[0]);
    if (a->x.dtype != a->y.dtype || (a->x.dtype != F32 && a->x.dtype != BF16))
        return fail(x->error, ERR_MODEL, "%s: %s from %s to %s", name, op_name, dtype_name(a->x.dtype),
                    dtype_name(a->y.dtype));
    if (a->skip.rank && (!tensor_same_shape(a->skip, a->y) || a->skip.stride[3] != 1 || a->skip.dtype != a->y.dtype))
        return fail(x->error, ERR_MODEL, "%s: %s: skip must be like the output, channels contiguous", name, op_name);
    if (a->skip_bias.rank && (!a->skip.rank || tensor_numel(a->skip_bias) != w.shape[0] || !tensor_contiguous(a->skip_bias)))
        return fail(x->error, ERR_MODEL, "%s: %s: skip_bias must be a vector of %lld beside a skip", name, op_name,
                    (long long)w.shape[0]);
    return OK;
}

Status conv_frames_check_roll(Exec *x, const Roll *a) {
    Tensor w = a->window, c = a->cache;
    bool alike = w.rank == c.rank && w.rank > 0 && w.dtype == c.dtype && w.shape[0] >= c.shape[0];
    for (int d = 1; alike && d < w.rank; d++) alike = w.shape[d] == c.shape[d];
    if (!alike || !tensor_contiguous(w) || !tensor_contiguous(c))
        return fail(x->error, ERR_MODEL, "roll: cache must be no more than window's frames, of their kind, both contiguous");
    return OK;
}

Status conv_frames_check_dwconv(Exec *x, const Dwconv3Glu *a) {
    const Weight *w = a->w;
    const char *name = w->name ? w->name : "weight";
    int64_t c = a->y.rank == 4 ? a->y.shape[3] : 0;
    bool fits = a->y.rank == 4 && a->x.rank == 4 && a->x.shape[3] == 2 * c && a->x.stride[3] == 1 && a->y.stride[3] == 1;
    for (int d = 0; fits && d < 3; d++) fits = a->x.shape[d] == a->y.shape[d];
    if (!fits || a->x.dtype != a->y.dtype || (a->x.dtype != F32 && a->x.dtype != BF16))
        return fail(x->error, ERR_MODEL, "%s: dwconv3_glu takes frames [F, Y, X, 2C] to [F, Y, X, C], channels contiguous", name);
    if (a->before.rank && (a->before.dtype != a->x.dtype || tensor_numel(a->before) != 2 * c || !tensor_contiguous(a->before)))
        return fail(x->error, ERR_MODEL, "%s: dwconv3_glu: the bias before must be a vector of %lld in %s", name,
                    (long long)(2 * c), dtype_name(a->x.dtype));
    const int64_t shape[4] = {2 * c, 3, 3, 1};
    if (w->w.rank != 4 || memcmp(w->w.shape, shape, sizeof shape) || !tensor_contiguous(w->w) || w->scale.rank || w->lora ||
        !w->bias.rank || tensor_numel(w->bias) != 2 * c)
        return fail(x->error, ERR_MODEL, "%s: dwconv3_glu takes plain [%lld, 3, 3, 1] weights with a bias", name,
                    (long long)(2 * c));
    return OK;
}
