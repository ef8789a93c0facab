/* wave_check.c - see wave_check.h. */
#include "kernels/wave_check.h"

static Status want_signal(Exec *x, OpId op, const char *arg, Tensor t, DType dtype) {
    if (t.rank == 2 && t.dtype == dtype && (dtype == F32 || dtype == BF16) && t.shape[0] > 0 && t.shape[1] > 0 &&
        t.stride[1] == 1)
        return OK;
    char shape[64];
    return fail(x->error, ERR_MODEL,
                "%s: %s is %s %s, expected a signal [time, channels] of F32 or BF16, as the other arguments",
                ops_info(op)->name, arg, dtype_name(t.dtype), tensor_shape_text(t, shape, sizeof shape));
}

static Status want_vector(Exec *x, OpId op, const char *arg, Tensor t, DType dtype, int64_t least, int64_t most) {
    int64_t n = tensor_numel(t);
    if (t.dtype == dtype && tensor_contiguous(t) && n >= least && n <= most) return OK;
    return fail(x->error, ERR_MODEL, "%s: %s has %lld elements of %s, expected %lld to %lld of %s", ops_info(op)->name,
                arg, (long long)n, dtype_name(t.dtype), (long long)least, (long long)most, dtype_name(dtype));
}

static Status want_size(Exec *x, OpId op, Tensor t, int64_t rows, int64_t channels) {
    if (t.shape[0] == rows && t.shape[1] == channels) return OK;
    return fail(x->error, ERR_MODEL, "%s: y is [%lld, %lld], expected [%lld, %lld]", ops_info(op)->name,
                (long long)t.shape[0], (long long)t.shape[1], (long long)rows, (long long)channels);
}

Status wave_check_transpose(Exec *x, const ConvTranspose1d *a) {
    const Tensor w = a->w->w;
    const char *name = a->w->name ? a->w->name : "weight";
    TRY(want_signal(x, OP_conv_transpose1d, "x", a->x, a->y.dtype));
    TRY(want_signal(x, OP_conv_transpose1d, "y", a->y, a->x.dtype));
    if (w.rank != 3 || !tensor_contiguous(w) || w.shape[0] != a->x.shape[1] || a->w->scale.rank || a->w->lora)
        return fail(x->error, ERR_MODEL, "%s: conv_transpose1d takes a plain contiguous weight [%lld, out, k] only",
                    name, (long long)a->x.shape[1]);
    if (a->w->bias.rank && (tensor_numel(a->w->bias) != w.shape[1] || !tensor_contiguous(a->w->bias)))
        return fail(x->error, ERR_MODEL, "%s: bias has %lld elements, want %lld", name,
                    (long long)tensor_numel(a->w->bias), (long long)w.shape[1]);
    if (a->stride < 1 || a->pad < 0 || 2 * a->pad >= w.shape[2])
        return fail(x->error, ERR_MODEL, "%s: conv_transpose1d with stride %d, padding %d of a kernel of %lld", name,
                    (int)a->stride, (int)a->pad, (long long)w.shape[2]);
    return want_size(x, OP_conv_transpose1d, a->y, (a->x.shape[0] - 1) * a->stride - 2 * a->pad + w.shape[2],
                     w.shape[1]);
}

Status wave_check_mean3(Exec *x, const Mean3 *a) {
    const Tensor *t = &a->y;
    for (int i = 0; i < 4; i++) {
        bool good = t[i].rank && tensor_same_shape(t[i], a->y) && t[i].dtype == a->y.dtype &&
                    (t->dtype == F32 || t->dtype == BF16);
        if (!good) return fail(x->error, ERR_MODEL, "mean3: a, b and c must be F32 or BF16 tensors like y");
    }
    return OK;
}

Status wave_check_up(Exec *x, const FirUp *a) {
    TRY(want_signal(x, OP_fir_up, "x", a->x, a->y.dtype));
    TRY(want_signal(x, OP_fir_up, "y", a->y, a->x.dtype));
    TRY(want_vector(x, OP_fir_up, "filter", a->filter, a->x.dtype, 1, WAVE_TAPS));
    if (a->ratio < 1 || a->pad < 0 || a->crop < 0)
        return fail(x->error, ERR_MODEL, "fir_up: ratio %d, pad %d, crop %d", (int)a->ratio, (int)a->pad, (int)a->crop);
    return want_size(x, OP_fir_up, a->y, a->ratio * a->x.shape[0], a->x.shape[1]);
}

Status wave_check_snake(Exec *x, const SnakeFiltered *a) {
    const int64_t c = a->x.rank == 2 ? a->x.shape[1] : 0, taps = tensor_numel(a->up);
    const DType t = a->x.dtype;
    TRY(want_signal(x, OP_snake_filtered, "x", a->x, a->y.dtype));
    TRY(want_signal(x, OP_snake_filtered, "y", a->y, t));
    TRY(want_vector(x, OP_snake_filtered, "alpha", a->alpha, t, c, c));
    TRY(want_vector(x, OP_snake_filtered, "beta", a->beta, t, c, c));
    TRY(want_vector(x, OP_snake_filtered, "up", a->up, t, 2, WAVE_TAPS));
    TRY(want_vector(x, OP_snake_filtered, "down", a->down, t, taps, taps));
    if (taps % 2)
        return fail(x->error, ERR_MODEL, "snake_filtered: filters of %lld taps, expected an even number",
                    (long long)taps);
    return want_size(x, OP_snake_filtered, a->y, a->x.shape[0], c);
}

Status wave_check_magnitude(Exec *x, const Magnitude *a) {
    TRY(want_signal(x, OP_magnitude, "x", a->x, a->y.dtype));
    TRY(want_signal(x, OP_magnitude, "y", a->y, a->x.dtype));
    return want_size(x, OP_magnitude, a->y, a->x.shape[0], a->x.shape[1] / 2);
}
