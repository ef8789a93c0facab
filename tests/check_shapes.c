/* check_shapes.c - see check_shapes.h. The memory is filled first, with one tile of numbers again and again; then calls are
 * made in it, and those that want other values (ids, RoPE tables, weights) put them there. */
#include "check_shapes.h"

#include <math.h>
#include <stdlib.h>

enum { WEIGHTS = (LINEAR_MANY_MAX + 1) * SHAPES_COPIES, TILE = 16 << 20 };

struct Maker {
    Device *device;
    Arena *arena;
    DType dtype;
    uint16_t *tile, *scaled; /* TILE bytes each; scaled: tile / 2^shift */
    int shift;
    bool counting; /* addresses are the dry device's */
    Weight weight[WEIGHTS];
    int weights;
    Error *error;
};

Tensor shapes_tensor(Maker *m, DType dtype, int rank, const int64_t *shape) {
    return arena_tensor(m->arena, dtype, rank, shape);
}

DType shapes_dtype(const Maker *m) { return m->dtype; }

Tensor shapes_transposed(Maker *m, DType dtype, int64_t rows, int64_t columns) {
    Tensor t = shapes_new(m, dtype, rows, columns);
    t.stride[0] = 1;
    t.stride[1] = rows;
    return t;
}

/* Takes values over. */
static void give(Maker *m, Tensor t, void *values) {
    if (!values) exit(99);
    if (!m->counting && t.data) m->device->upload(m->device, t.data, values, tensor_bytes(t), m->error);
    free(values);
}

Tensor shapes_ids(Maker *m, int64_t n, int64_t most) {
    Tensor t = shapes_new(m, I32, n);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int64_t i = 0; ids && i < n; i++) ids[i] = (int32_t)(i * 7919 % most);
    give(m, t, ids);
    return t;
}

/* Bit patterns of BF16 numbers of mean 0 and deviation 1; two of them in F32 are such a number too. */
static void normal_tile(uint16_t *v, size_t n) {
    uint64_t s = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            sum += (double)(s >> 40) * 0x1p-24 - 0.5;
        }
        v[i] = bf16_from_f32((float)(sum * sqrt(3)));
    }
}

/* n values in the call's dtype, from BF16 patterns. */
static Tensor patterns(Maker *m, Tensor t, const uint16_t *from) {
    size_t n = (size_t)tensor_numel(t), size = dtype_size(t.dtype);
    char *v = calloc(n, size);
    for (size_t i = 0; v && i < n; i++) memcpy(v + i * size + size - 2, &from[i], 2); /* the upper half of an F32 */
    give(m, t, v);
    return t;
}

Tensor shapes_mask(Maker *m, int64_t n, int64_t real) {
    Tensor t = shapes_new(m, m->dtype, n);
    uint16_t *v = calloc((size_t)n, sizeof *v);
    if (!v) exit(99);
    for (int64_t i = real; i < n; i++) v[i] = bf16_from_f32(-10000.0f);
    if (!m->counting) patterns(m, t, v);
    free(v);
    return t;
}

Tensor shapes_pairs(Maker *m, int64_t n, int64_t pads) {
    Tensor t = shapes_new(m, m->dtype, n, n);
    uint16_t *v = calloc((size_t)(n * n), sizeof *v);
    if (!v) exit(99);
    for (int64_t i = 0; i < n * n; i++) v[i] = i % n < pads || i % n > i / n ? 0xff7f : 0;
    if (!m->counting) patterns(m, t, v);
    free(v);
    return t;
}

Tensor shapes_positive(Maker *m, int64_t rows, int64_t columns) {
    Tensor t = shapes_new(m, m->dtype, rows, columns);
    if (m->counting) return t;
    size_t n = (size_t)(rows * columns);
    uint16_t *v = malloc((n > TILE / 2 ? n : TILE / 2) * sizeof *v);
    if (!v) exit(99);
    normal_tile(v, TILE / 2);
    for (size_t i = 0; i < n; i++) {
        v[i] = v[i % (TILE / 2)];
        if (v[i] & 0x8000) v[i] = 0;
    }
    patterns(m, t, v);
    free(v);
    return t;
}

Tensor shapes_wave(Maker *m, int64_t rows, int64_t columns, int sine, bool rounded) {
    Tensor t = shapes_new(m, F32, rows, columns);
    float *v = malloc((size_t)(rows * columns) * sizeof *v);
    for (int64_t i = 0; v && !m->counting && i < rows * columns; i++) {
        double angle = (double)(i / columns) * pow(10000, -(double)(i % columns) / (double)columns);
        v[i] = (float)(sine ? sin(angle) : cos(angle));
        if (rounded && m->dtype == BF16) v[i] = bf16_round(v[i]);
    }
    give(m, t, v);
    return t;
}

static Status repeat(Device *d, char *to, size_t size, const void *tile, Error *e) {
    for (size_t at = 0; at < size; at += TILE) TRY(d->upload(d, to + at, tile, size - at < TILE ? size - at : TILE, e));
    return OK;
}

Status shapes_fill(Device *d, Arena *a, Error *e) {
    uint16_t *tile = malloc(TILE);
    if (!tile) return fail(e, ERR_MEMORY, "out of memory");
    normal_tile(tile, TILE / 2);
    Status s = repeat(d, a->base, a->capacity, tile, e);
    free(tile);
    return s;
}

/* Rows of unit length, nearly: sums come out like the inputs. Dividing by a power of two is a step of the exponent. */
static void fill_weight(Maker *m, const Tensor *w) {
    double columns = (double)(tensor_numel(*w) / w->shape[0]);
    int shift = (int)lround(log2(columns) / 2);
    if (!m->scaled) {
        m->tile = malloc(TILE);
        m->scaled = malloc(TILE);
        if (!m->tile || !m->scaled) exit(99);
        normal_tile(m->tile, TILE / 2);
        m->shift = -1;
    }
    for (size_t i = 0; shift != m->shift && i < TILE / 2; i++) {
        int exponent = m->tile[i] >> 7 & 0xff;
        m->scaled[i] = exponent > shift ? (uint16_t)(m->tile[i] - (shift << 7)) : m->tile[i] & 0x8000;
    }
    m->shift = shift;
    repeat(m->device, w->data, tensor_bytes(*w), m->scaled, m->error);
}

const Weight *shapes_weight(Maker *m, bool bias, int rank, const int64_t *shape) {
    Weight *w = &m->weight[m->weights++ % WEIGHTS];
    *w = (Weight){.w = shapes_tensor(m, m->dtype, rank, shape), .round = m->dtype, .name = "weight"};
    if (bias) w->bias = shapes_new(m, m->dtype, shape[0]);
    if (!m->counting && w->w.data) fill_weight(m, &w->w);
    return w;
}

const Weight *shapes_weight_rows(Maker *m, const Weight *all, int64_t start, int64_t rows) {
    Weight *w = &m->weight[m->weights++ % WEIGHTS];
    *w = *all;
    w->w = tensor_slice(all->w, 0, start, rows);
    if (all->bias.rank) w->bias = tensor_slice(all->bias, 0, start, rows);
    return w;
}

static size_t size_of(const ShapeCase *c, DType dtype, Error *e) {
    Device dry = device_dry();
    Arena arena = {0};
    Maker *m = calloc(1, sizeof *m);
    char args[OPS_ARGS] = {0};
    if (!m || arena_open(&arena, &dry, "counted", SIZE_MAX / 4, e) != OK) exit(99);
    *m = (Maker){.device = &dry, .arena = &arena, .dtype = dtype, .counting = true, .error = e};
    c->make(m, c->p, args);
    free(m);
    return arena.used;
}

Status shapes_open(ShapeCopies *k, const ShapeCase *c, Session *t, DType dtype, size_t least) {
    t->error = (Error){0};
    size_t each = size_of(c, dtype, &t->error);
    *k = (ShapeCopies){.maker = calloc(1, sizeof *k->maker)};
    if (!k->maker) exit(99);
    k->count = least <= each ? 1 : least / each < SHAPES_COPIES ? (int)((least + each - 1) / each) : SHAPES_COPIES;
    TRY(arena_open(&k->arena, &t->device, "shapes", each * (size_t)k->count, &t->error));
    TRY(shapes_fill(&t->device, &k->arena, &t->error));
    *k->maker = (Maker){.device = &t->device, .arena = &k->arena, .dtype = dtype, .error = &t->error};
    for (int i = 0; i < k->count; i++) c->make(k->maker, c->p, &k->args[i]);
    return t->error.code;
}

void shapes_close(ShapeCopies *k) {
    arena_close(&k->arena);
    if (k->maker) {
        free(k->maker->tile);
        free(k->maker->scaled);
    }
    free(k->maker);
    k->maker = NULL;
}
