/* rows.c - see rows.h. The loops are written so that the compiler vectorises them; element access goes through
 * memcpy because mapped weights may start at any byte. */
#include "kernels/rows.h"

Walk rows_walk(Tensor y) {
    Walk w = {.cols = y.shape[y.rank - 1]};
    int64_t n = tensor_numel(y);
    w.rows = w.cols ? n / w.cols : 0;
    w.pieces = (w.cols + ROWS_SPAN - 1) / ROWS_SPAN;
    w.count = w.rows * w.pieces;
    w.parallel = n >= ROWS_PARALLEL_AT && w.count > 1;
    return w;
}

void rows_flatten(int count, Tensor *const *tensors) {
    for (int i = 0; i < count; i++)
        if (!tensor_contiguous(*tensors[i]) || !tensor_same_shape(*tensors[i], *tensors[0])) return;
    for (int i = 0; i < count; i++) *tensors[i] = tensor_view(*tensors[i], tensor_numel(*tensors[i]));
}

bool rows_broadcast(Tensor t, Tensor like, Tensor *out) {
    Tensor b = like;
    b.data = t.data;
    b.dtype = t.dtype;
    if (t.rank < 1 || t.rank > like.rank) return false;
    for (int d = 0; d < like.rank; d++) {
        int at = d - (like.rank - t.rank);
        if (at >= 0 && t.shape[at] != 1 && t.shape[at] != like.shape[d]) return false;
        b.stride[d] = at < 0 || t.shape[at] == 1 ? 0 : t.stride[at];
    }
    *out = b;
    return true;
}

void *rows_at(const Tensor *t, int64_t row, int64_t first) {
    int64_t at = first * t->stride[t->rank - 1];
    for (int d = t->rank - 2; d > 0; d--) {
        int64_t up = row / t->shape[d];
        at += (row - up * t->shape[d]) * t->stride[d];
        row = up;
    }
    if (t->rank > 1) at += row * t->stride[0];
    return (char *)t->data + at * (int64_t)dtype_size(t->dtype);
}

static inline uint16_t get16(const char *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

static inline void put16(char *p, uint16_t v) { memcpy(p, &v, 2); }

static void load_bf16(float *restrict to, const char *restrict p, int64_t n) {
    for (int64_t j = 0; j < n; j++) to[j] = bf16_to_f32(get16(p + 2 * j));
}

static void store_bf16(char *restrict p, const float *restrict from, int64_t n) {
    for (int64_t j = 0; j < n; j++) put16(p + 2 * j, bf16_from_f32(from[j]));
}

void rows_load(float *to, const Tensor *t, Span s) {
    const char *p = rows_at(t, s.row, s.first);
    int64_t stride = t->stride[t->rank - 1];
    if (t->dtype == F32) {
        if (stride == 1) memcpy(to, p, (size_t)s.n * 4);
        else for (int64_t j = 0; j < s.n; j++) memcpy(&to[j], p + 4 * j * stride, 4);
    } else if (t->dtype == BF16) {
        if (stride == 1) load_bf16(to, p, s.n);
        else for (int64_t j = 0; j < s.n; j++) to[j] = bf16_to_f32(get16(p + 2 * j * stride));
    } else {
        for (int64_t j = 0; j < s.n; j++) to[j] = f16_to_f32(get16(p + 2 * j * stride));
    }
}

void rows_store(const Tensor *t, Span s, const float *from) {
    char *p = rows_at(t, s.row, s.first);
    int64_t stride = t->stride[t->rank - 1];
    if (t->dtype == F32) {
        if (stride == 1) memcpy(p, from, (size_t)s.n * 4);
        else for (int64_t j = 0; j < s.n; j++) memcpy(p + 4 * j * stride, &from[j], 4);
    } else if (t->dtype == BF16) {
        if (stride == 1) store_bf16(p, from, s.n);
        else for (int64_t j = 0; j < s.n; j++) put16(p + 2 * j * stride, bf16_from_f32(from[j]));
    } else {
        for (int64_t j = 0; j < s.n; j++) put16(p + 2 * j * stride, f16_from_f32(from[j]));
    }
}

void rows_round(float *v, int64_t n, DType t) {
    if (t == BF16)
        for (int64_t j = 0; j < n; j++) v[j] = bf16_round(v[j]);
}

void rows_modulate(float *v, const Tensor *scale, const Tensor *shift, Span s, DType t) {
    float m[ROWS_SPAN];
    rows_load(m, scale, s);
    for (int64_t j = 0; j < s.n; j++) m[j] += 1.0f;
    rows_round(m, s.n, t);
    for (int64_t j = 0; j < s.n; j++) v[j] *= m[j];
    rows_round(v, s.n, t);
    if (!shift->rank) return;
    rows_load(m, shift, s);
    for (int64_t j = 0; j < s.n; j++) v[j] += m[j];
}

Status rows_want_float(Exec *x, OpId op, const char *arg, Tensor t) {
    if (t.dtype == F32 || t.dtype == BF16) return OK;
    return fail(x->error, ERR_MODEL, "%s: %s is %s, expected F32 or BF16", ops_info(op)->name, arg,
                dtype_name(t.dtype));
}

static Status mismatch(Exec *x, OpId op, const char *arg, Tensor t, Tensor like) {
    char have[96], want[96];
    return fail(x->error, ERR_MODEL, "%s: %s is %s %s, expected %s %s", ops_info(op)->name, arg,
                dtype_name(t.dtype), tensor_shape_text(t, have, sizeof have), dtype_name(like.dtype),
                tensor_shape_text(like, want, sizeof want));
}

Status rows_want_like(Exec *x, OpId op, const char *arg, Tensor t, Tensor like) {
    return tensor_same_shape(t, like) && t.dtype == like.dtype ? OK : mismatch(x, op, arg, t, like);
}

Status rows_want_row(Exec *x, OpId op, const char *arg, Tensor *t, Tensor like) {
    Tensor given = *t;
    return given.dtype == like.dtype && rows_broadcast(given, like, t) ? OK : mismatch(x, op, arg, given, like);
}
