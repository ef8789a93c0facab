/* move_cpu.c - the meaning of the ops that only move numbers (move.h). Casts go through f32, which holds every BF16
 * and F16 value exactly. Not tuned for transposes: they occur once per picture.
 *
 * Easy to get wrong: same-dtype copies move bits, so that NaN payloads survive; an embedding table is rounded to
 * Weight.round first and then stored in y's dtype. */
#include "kernels/registry.h"
#include "kernels/rows.h"

#include <math.h>

static void move_elements(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t n, size_t size) {
    char *y = to;
    const char *x = from;
    if (to_stride == 1 && from_stride == 1) {
        memmove(y, x, (size_t)n * size);
    } else if (size == 2) {
        for (int64_t j = 0; j < n; j++) memcpy(y + 2 * j * to_stride, x + 2 * j * from_stride, 2);
    } else if (size == 4) {
        for (int64_t j = 0; j < n; j++) memcpy(y + 4 * j * to_stride, x + 4 * j * from_stride, 4);
    } else {
        for (int64_t j = 0; j < n; j++) memcpy(y + j * to_stride, x + j * from_stride, 1);
    }
}

static bool is_float(DType t) { return t == F32 || t == BF16 || t == F16; }

static Status copy_cpu(Exec *x, const void *args) {
    Copy a = *(const Copy *)args;
    bool same = a.y.dtype == a.x.dtype;
    bool known = is_float(a.x.dtype) || a.x.dtype == U8 || a.x.dtype == I32;
    if (!known || (!same && !(is_float(a.x.dtype) && is_float(a.y.dtype))))
        return fail(x->error, ERR_MODEL, "copy: from %s to %s is not supported", dtype_name(a.x.dtype),
                    dtype_name(a.y.dtype));
    Tensor shaped = a.x;
    shaped.dtype = a.y.dtype;
    TRY(rows_want_like(x, OP_copy, "y", a.y, shaped));
    rows_flatten(2, (Tensor *const[]){&a.y, &a.x});
    Walk w = rows_walk(a.y);
    int64_t sy = a.y.stride[a.y.rank - 1], sx = a.x.stride[a.x.rank - 1];
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        Span s = rows_span(&w, i);
        if (same) {
            move_elements(rows_at(&a.y, s.row, s.first), sy, rows_at(&a.x, s.row, s.first), sx, s.n,
                          dtype_size(a.x.dtype));
        } else {
            float v[ROWS_SPAN];
            rows_load(v, &a.x, s);
            rows_store(&a.y, s, v);
        }
    }
    return OK;
}

static Status embed_cpu(Exec *x, const void *args) {
    Embed a = *(const Embed *)args;
    if (!a.table || a.table->w.rank != 2 || !is_float(a.table->w.dtype))
        return fail(x->error, ERR_MODEL, "embed: the table must be F32, BF16 or F16 [rows, D]");
    Tensor table = a.table->w;
    int64_t rows = table.shape[0], count = tensor_numel(a.ids);
    TRY(rows_want_float(x, OP_embed, "y", a.y));
    if (a.ids.dtype != I32 || a.y.rank != 2 || a.y.shape[0] != count || a.y.shape[1] != table.shape[1])
        return fail(x->error, ERR_MODEL, "embed: y must be [%lld, %lld] and ids I32 [%lld]", (long long)count,
                    (long long)table.shape[1], (long long)count);
    for (int64_t i = 0; i < count; i++) {
        int32_t id;
        memcpy(&id, rows_at(&a.ids, 0, i), 4);
        if (id < 0 || id >= rows)
            return fail(x->error, ERR_MODEL, "%s: token id %d at position %lld is outside the %lld rows of the table",
                        a.table->name ? a.table->name : "embed", (int)id, (long long)i, (long long)rows);
    }
    Walk w = rows_walk(a.y);
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN];
        Span to = rows_span(&w, i), from = to;
        int32_t id;
        memcpy(&id, rows_at(&a.ids, 0, to.row), 4);
        from.row = id;
        rows_load(v, &table, from);
        rows_round(v, to.n, a.table->round);
        rows_store(&a.y, to, v);
    }
    return OK;
}

/* Bucket of a key that lies `offset` positions after the query; f32 as transformers computes it. */
static int64_t rel_bucket(int64_t offset, int64_t buckets, int32_t max_distance) {
    int64_t n = buckets / 2, exact = n / 2, base = offset > 0 ? n : 0, r = offset < 0 ? -offset : offset;
    if (r < exact) return base + r;
    double span = log((double)max_distance / (double)exact);
    float ratio = logf((float)r / (float)exact) / (float)span * (float)(n - exact);
    int64_t far = exact + (int64_t)ratio;
    return base + (far < n - 1 ? far : n - 1);
}

/* One bucket for every offset -(Q - 1) .. K - 1. */
static size_t rel_bias_scratch(const Exec *x, const void *args) {
    const RelBias *a = args;
    (void)x;
    return (size_t)(a->y.shape[1] + a->y.shape[2]) * sizeof(int32_t);
}

static Status rel_bias_cpu(Exec *x, const void *args) {
    RelBias a = *(const RelBias *)args;
    TRY(rows_want_float(x, OP_rel_bias, "y", a.y));
    if (!a.table || a.table->w.rank != 2 || !is_float(a.table->w.dtype))
        return fail(x->error, ERR_MODEL, "rel_bias: the table must be F32, BF16 or F16 [buckets, H]");
    Tensor table = a.table->w, column = {.data = table.data, .rank = 2, .dtype = table.dtype}; /* transposed */
    int64_t buckets = table.shape[0], heads = table.shape[1];
    if (a.y.rank != 3 || a.y.shape[0] != heads || buckets < 4 || buckets % 4 || buckets > ROWS_SPAN ||
        4 * (int64_t)a.max_distance <= buckets)
        return fail(x->error, ERR_MODEL, "rel_bias: y must be [%lld, Q, K] and the distance %d above a quarter of the "
                    "%lld buckets", (long long)heads, (int)a.max_distance, (long long)buckets);
    int64_t queries = a.y.shape[1], keys = a.y.shape[2];
    column.shape[0] = heads, column.shape[1] = buckets;
    column.stride[0] = table.stride[1], column.stride[1] = table.stride[0];
    int32_t *bucket = arena_push(x->scratch, rel_bias_scratch(x, args));
    if (!bucket) return fail(x->error, ERR_MEMORY, "rel_bias: the scratch arena is too small");
    for (int64_t i = 0; i < queries + keys - 1; i++)
        bucket[i] = (int32_t)rel_bucket(i - (queries - 1), buckets, a.max_distance);
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float v[ROWS_SPAN], values[ROWS_SPAN];
        Span s = rows_span(&w, i);
        int64_t head = s.row / queries, query = s.row % queries;
        rows_load(values, &column, (Span){head, 0, buckets});
        rows_round(values, buckets, a.table->round);
        const int32_t *b = bucket + s.first - query + queries - 1;
        for (int64_t j = 0; j < s.n; j++) v[j] = values[b[j]];
        rows_store(&a.y, s, v);
    }
    return OK;
}

/* --- FLUX packing: 2x2 pixels of C channels are one token of 4C --- */

static Status want_packing(Exec *x, OpId op, Tensor packed, Tensor picture, int64_t h, int64_t w, int64_t c) {
    size_t size = dtype_size(packed.dtype);
    if (packed.dtype == picture.dtype && (size == 2 || size == 4) && packed.rank == 2 && picture.rank == 3 &&
        h % 2 == 0 && w % 2 == 0 && packed.shape[0] == h / 2 * (w / 2) && packed.shape[1] == 4 * c)
        return OK;
    char a[96], b[96];
    return fail(x->error, ERR_MODEL, "%s: %s %s does not pack %s %s", ops_info(op)->name, dtype_name(packed.dtype),
                tensor_shape_text(packed, a, sizeof a), dtype_name(picture.dtype),
                tensor_shape_text(picture, b, sizeof b));
}

static char *at3(const Tensor *t, int64_t i, int64_t j, int64_t k, size_t size) {
    return (char *)t->data + (i * t->stride[0] + j * t->stride[1] + k * t->stride[2]) * (int64_t)size;
}

static Status pack_cpu(Exec *x, const void *args) {
    Pack a = *(const Pack *)args;
    int64_t c = a.x.shape[0], h = a.x.shape[1], w = a.x.shape[2];
    TRY(want_packing(x, OP_pack, a.y, a.x, h, w, c));
    size_t size = dtype_size(a.x.dtype);
    for (int64_t token = 0; token < a.y.shape[0]; token++) {
        int64_t y0 = token / (w / 2) * 2, x0 = token % (w / 2) * 2;
        char *row = rows_at(&a.y, token, 0);
        for (int64_t i = 0; i < 4 * c; i++)
            memcpy(row + i * a.y.stride[1] * (int64_t)size,
                   at3(&a.x, i / 4, y0 + (i / 2) % 2, x0 + i % 2, size), size);
    }
    return OK;
}

static Status unpack_cpu(Exec *x, const void *args) {
    Unpack a = *(const Unpack *)args;
    int64_t h = a.y.shape[0], w = a.y.shape[1], c = a.y.shape[2];
    TRY(want_packing(x, OP_unpack, a.x, a.y, h, w, c));
    size_t size = dtype_size(a.x.dtype);
    for (int64_t token = 0; token < a.x.shape[0]; token++) {
        int64_t y0 = token / (w / 2) * 2, x0 = token % (w / 2) * 2;
        const char *row = rows_at(&a.x, token, 0);
        for (int64_t i = 0; i < 4 * c; i++)
            memcpy(at3(&a.y, y0 + (i / 2) % 2, x0 + i % 2, i / 4, size),
                   row + i * a.x.stride[1] * (int64_t)size, size);
    }
    return OK;
}

#define IMPL(op_name) {.op = OP_##op_name, .name = "cpu", .run = op_name##_cpu}
const Impl MOVE_CPU[] = {IMPL(copy), IMPL(embed),
                         {.op = OP_rel_bias, .name = "cpu", .run = rel_bias_cpu, .scratch = rel_bias_scratch},
                         IMPL(pack), IMPL(unpack)};
const int MOVE_CPU_COUNT = sizeof MOVE_CPU / sizeof *MOVE_CPU;
