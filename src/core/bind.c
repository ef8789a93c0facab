/* bind.c - building the rows of weights.h: one row per tensor a model wants. Nothing is looked up here. */
#include "core/weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static char *name_of(const Bind *b, const char *suffix, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    const char *prefix = b->prefix ? b->prefix : "";
    size_t head = strlen(prefix), size = head + (size_t)(n < 0 ? 0 : n) + strlen(suffix) + 1;
    char *name = n < 0 ? NULL : malloc(size);
    if (!name) return NULL;
    memcpy(name, prefix, head);
    vsnprintf(name + head, size - head, format, args);
    strcat(name, suffix);
    return name;
}

/* Takes ownership of row.name. After the first failure the Bind is only fit to be reported and freed. */
static void add(Bind *b, BindRow row) {
    if (row.name && !b->failed && b->count == b->cap) {
        int cap = b->cap ? 2 * b->cap : 64;
        BindRow *rows = realloc(b->rows, (size_t)cap * sizeof *rows);
        if (rows) b->rows = rows, b->cap = cap;
    }
    if (!row.name || b->failed || b->count == b->cap) {
        free(row.name);
        b->failed = true;
        return;
    }
    row.block = b->block;
    row.pack = b->pack;
    b->rows[b->count++] = row;
}

void bind_block(Bind *b, int i) { b->block = i < 0 ? 0 : i + 1; }
void bind_pack(Bind *b, bool on) { b->pack = on ? ++b->packs : 0; }

#define NAMED(suffix)                                                                                        \
    va_list args;                                                                                            \
    va_start(args, format);                                                                                  \
    char *name = name_of(b, suffix, format, args);                                                           \
    va_end(args)

static void add_bias(Bind *b, Weight *w, int64_t n, const char *weight_name) {
    size_t stem = weight_name ? strlen(weight_name) - strlen("weight") : 0;
    char *name = weight_name ? malloc(stem + sizeof "bias") : NULL;
    if (name) memcpy(name, weight_name, stem), memcpy(name + stem, "bias", sizeof "bias");
    add(b, (BindRow){.name = name, .weight = w, .target = BIND_BIAS, .rank = 1, .shape = {n}});
}

/* out: elements of the bias, which stands before the weight, so that bind_last() is the weight's row. */
static void add_weight(Bind *b, Weight *w, char *name, bool bias, int64_t out, Transform transform, int rank,
                       const int64_t *shape) {
    BindRow row = {.name = name, .weight = w, .target = BIND_MATRIX, .transform = transform, .rank = rank};
    memcpy(row.shape, shape, (size_t)rank * sizeof *shape);
    if (bias) add_bias(b, w, out, name);
    add(b, row);
}
#define ADD(bias, out, transform, ...)                                                                       \
    add_weight(b, w, name, bias, out, transform, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),  \
               (const int64_t[]){__VA_ARGS__})

void bind_linear(Bind *b, Weight *w, int64_t out, int64_t in, bool bias, const char *format, ...) {
    NAMED(".weight");
    ADD(bias, out, BIND_PLAIN, out, in);
}

void bind_conv(Bind *b, Weight *w, int64_t out, int64_t in, int64_t k, const char *format, ...) {
    NAMED(".weight");
    ADD(true, out, BIND_OIHW_OHWI, out, in, k, k);
}

void bind_conv3d(Bind *b, Weight *w, int64_t out, int64_t in, int64_t kt, int64_t k, const char *format, ...) {
    NAMED(".weight");
    ADD(true, out, BIND_OIHW_OHWI, out, in, kt, k, k);
}

void bind_conv1d(Bind *b, Weight *w, int64_t out, int64_t in, int64_t k, bool bias, const char *format, ...) {
    NAMED(".weight");
    ADD(bias, out, BIND_LINE_OHWI, out, in, k);
}

void bind_conv_transpose1d(Bind *b, Weight *w, int64_t out, int64_t in, int64_t k, const char *format, ...) {
    NAMED(".weight");
    ADD(true, out, BIND_PLAIN, in, out, k);
}
#undef ADD

void bind_filter(Bind *b, Weight *w, Transform transform, int rank, const int64_t *shape, bool bias, const char *format, ...) {
    NAMED(".weight");
    add_weight(b, w, name, bias, shape[0], transform, rank, shape);
}

void bind_matrix(Bind *b, Weight *w, int64_t rows, int64_t cols, const char *format, ...) {
    NAMED("");
    add(b, (BindRow){.name = name, .weight = w, .target = BIND_MATRIX, .gathered = true, .rank = 2,
                     .shape = {rows, cols}});
}

void bind_vector(Bind *b, Tensor *t, int64_t n, Transform transform, const char *format, ...) {
    NAMED("");
    add(b, (BindRow){.name = name,
                     .vector = t,
                     .target = BIND_VECTOR,
                     .transform = transform,
                     .rank = 1,
                     .shape = {n}});
}

void bind_table(Bind *b, Tensor *t, int64_t rows, int64_t d, const char *format, ...) {
    NAMED("");
    add(b, (BindRow){.name = name, .vector = t, .target = BIND_VECTOR, .rank = 2, .shape = {rows, d}});
}

BindRow *bind_last(Bind *b) { return b->failed || !b->count ? NULL : &b->rows[b->count - 1]; }

void bind_free(Bind *b) {
    for (int i = 0; i < b->count; i++) free(b->rows[i].name);
    free(b->rows);
    *b = (Bind){.prefix = b->prefix};
}
