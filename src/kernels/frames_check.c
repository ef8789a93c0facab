/* frames_check.c - see frames_check.h. */
#include "kernels/frames_check.h"

#include <stdio.h>

static bool real(DType t) { return t == F32 || t == BF16; }

static bool alike(Tensor t, Tensor x) { return tensor_same_shape(t, x) && t.dtype == x.dtype && tensor_contiguous(t); }

static bool vector(Tensor t, int64_t n, DType dtype) { return t.dtype == dtype && tensor_numel(t) == n && tensor_contiguous(t); }

Status frames_check_window(Exec *x, OpId op, const Window *a) {
    const char *name = ops_info(op)->name;
    Tensor in = a->x, y = a->y;
    if (in.rank != 4 || y.rank != 4 || !real(in.dtype) || y.dtype != in.dtype || !tensor_contiguous(in) || !tensor_contiguous(y))
        return fail(x->error, ERR_MODEL, "%s: x and y must be contiguous frames [F, Y, X, C], F32 or BF16 both", name);
    if ((a->h.rank && !alike(a->h, in)) || (a->skip.rank && !alike(a->skip, in)))
        return fail(x->error, ERR_MODEL, "%s: h and skip must be like x, contiguous", name);
    if (a->bias.rank && !vector(a->bias, in.shape[3], in.dtype))
        return fail(x->error, ERR_MODEL, "%s: bias must be a vector of %lld in %s", name, (long long)in.shape[3],
                    dtype_name(in.dtype));
    int64_t b = a->border;
    if (b < 0 || b > 1 || a->before < 0 || y.shape[0] < in.shape[0] + a->before || y.shape[1] != in.shape[1] + 2 * b ||
        y.shape[2] != in.shape[2] + 2 * b || y.shape[3] != in.shape[3])
        return fail(x->error, ERR_MODEL,
                    "%s: %lld frames of %lld x %lld x %lld do not fit %lld of %lld x %lld x %lld, %d before, border %d", name,
                    (long long)in.shape[0], (long long)in.shape[1], (long long)in.shape[2],
                    (long long)in.shape[3], (long long)y.shape[0], (long long)y.shape[1], (long long)y.shape[2],
                    (long long)y.shape[3], (int)a->before, (int)b);
    if (b && (in.shape[1] < 2 || in.shape[2] < 2))
        return fail(x->error, ERR_MODEL, "%s: frames of %lld x %lld cannot be mirrored", name, (long long)in.shape[1],
                    (long long)in.shape[2]);
    return OK;
}

static bool is(Tensor t, int64_t f, int64_t y, int64_t x) { return t.shape[0] == f && t.shape[1] == y && t.shape[2] == x; }

Status frames_check_depth(Exec *x, OpId op, const Depth *a) {
    const char *name = ops_info(op)->name;
    Tensor in = a->x, y = a->y, s = a->skip;
    int64_t t = a->t, r = a->rows, c = a->columns, n = t * r * c;
    if (in.rank != 4 || y.rank != 4 || !real(in.dtype) || y.dtype != in.dtype || !tensor_contiguous(in) ||
        !tensor_contiguous(y) || t < 1 || r < 1 || c < 1 || a->drop < 0 || a->drop >= t || (op == OP_space_to_depth && a->drop))
        return fail(x->error, ERR_MODEL, "%s: x and y must be contiguous frames [F, Y, X, C], F32 or BF16 both", name);
    if (a->bias.rank && !vector(a->bias, in.shape[3], in.dtype))
        return fail(x->error, ERR_MODEL, "%s: bias must be a vector of %lld in %s", name, (long long)in.shape[3],
                    dtype_name(in.dtype));
    bool deep = op == OP_depth_to_space;
    bool fits = deep ? is(y, t * in.shape[0] - a->drop, r * in.shape[1], c * in.shape[2]) && in.shape[3] == n * y.shape[3]
                     : is(in, t * y.shape[0], r * y.shape[1], c * y.shape[2]) && y.shape[3] == n * in.shape[3];
    if (!fits)
        return fail(x->error, ERR_MODEL,
                    "%s: %lld frames of %lld x %lld x %lld do not give %lld of %lld x %lld x %lld by %d x %d x %d", name,
                    (long long)in.shape[0], (long long)in.shape[1], (long long)in.shape[2], (long long)in.shape[3],
                    (long long)y.shape[0], (long long)y.shape[1], (long long)y.shape[2], (long long)y.shape[3], (int)t, (int)r,
                    (int)c);
    if (!s.rank) return OK;
    int64_t k = s.rank == 4 ? s.shape[3] : 0;
    if (s.rank != 4 || s.dtype != in.dtype || !is(s, in.shape[0], in.shape[1], in.shape[2]) || s.stride[3] != 1 || k < 1 ||
        (deep ? k % n || y.shape[3] % (k / n) : k % in.shape[3]))
        return fail(x->error, ERR_MODEL, "%s: %lld channels of skip do not go with %lld of y", name, (long long)k,
                    (long long)y.shape[3]);
    return OK;
}

bool frames_check_keeps(const void *args, char *why, size_t size) {
    const Window *a = args;
    if (a->x.dtype == BF16) return true;
    snprintf(why, size, "x is %s, expected BF16: without a rounding there is none to leave out", dtype_name(a->x.dtype));
    return false;
}
