/* mutate.h - copies of a model folder with one thing changed: what test_runs.c (the schnell variant) and
 * test_mutants.c (faults) render from.
 *
 * A safetensors file is changed in place, byte for byte, or rewritten without some tensors; a JSON config has one
 * key replaced. Easy to get wrong: every edit must hit something, so an edit that names nothing aborts the program. */
#ifndef MUTATE_H
#define MUTATE_H

#include "core/safetensors.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static inline void mutate_stop(const char *path, const char *what) {
    printf("mutate: %s: %s\n", path, what);
    abort();
}

/* Copies the folder FROM to TO, which may exist already. */
static inline void mutate_copy_folder(const char *from, const char *to) {
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -rL '%s' '%s' && chmod -R u+w '%s'", to, from, to, to);
    if (system(command)) mutate_stop(to, "cannot copy the model folder");
}

static inline void mutate_write(const char *path, const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) mutate_stop(path, "cannot write");
}

/* --- tensors --- */

typedef struct MutateFile {
    char path[1200];
    char *bytes;
    size_t size;
    Safetensors st;
} MutateFile;

static inline void mutate_open(MutateFile *m, const char *folder, const char *name) {
    Error e = {0};
    snprintf(m->path, sizeof m->path, "%s/%s", folder, name);
    if (file_read(m->path, &m->bytes, &m->size, &e) != OK ||
        safetensors_parse(m->bytes, m->size, m->path, &m->st, &e) != OK)
        mutate_stop(m->path, e.text);
}

static inline void mutate_save(MutateFile *m) {
    mutate_write(m->path, m->bytes, m->size);
    safetensors_close(&m->st);
    free(m->bytes);
}

static inline Tensor mutate_tensor(MutateFile *m, const char *name) {
    const SafetensorsEntry *e = safetensors_find(&m->st, name);
    if (!e) mutate_stop(m->path, name);
    return safetensors_tensor(&m->st, e);
}

static inline void mutate_exchange(char *a, char *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = a[i];
        a[i] = b[i], b[i] = c;
    }
}

static inline void mutate_swap(MutateFile *m, const char *a, const char *b) {
    Tensor x = mutate_tensor(m, a), y = mutate_tensor(m, b);
    if (!tensor_same_shape(x, y) || x.dtype != y.dtype) mutate_stop(a, "shapes differ");
    mutate_exchange(x.data, y.data, tensor_bytes(x));
}

/* n rows (dimension 0) at i and at j; or columns (the last dimension). */
static inline void mutate_swap_rows(MutateFile *m, const char *a, int64_t i, int64_t j, int64_t n) {
    Tensor x = mutate_tensor(m, a);
    size_t row = tensor_bytes(x) / (size_t)x.shape[0];
    if (i + n > j || j + n > x.shape[0]) mutate_stop(a, "rows overlap or end");
    mutate_exchange((char *)x.data + (size_t)i * row, (char *)x.data + (size_t)j * row, (size_t)n * row);
}

static inline void mutate_swap_cols(MutateFile *m, const char *a, int64_t i, int64_t j, int64_t n) {
    Tensor x = mutate_tensor(m, a);
    size_t size = dtype_size(x.dtype), row = (size_t)x.shape[x.rank - 1] * size;
    if (i + n > j || j + n > x.shape[x.rank - 1]) mutate_stop(a, "columns overlap or end");
    for (size_t at = 0; at < tensor_bytes(x); at += row)
        mutate_exchange((char *)x.data + at + (size_t)i * size, (char *)x.data + at + (size_t)j * size, (size_t)n * size);
}

static inline void mutate_rotate_rows(MutateFile *m, const char *a, int64_t by) {
    Tensor x = mutate_tensor(m, a);
    for (int64_t k = 0; k < by; k++)
        for (int64_t i = 0; i + 1 < x.shape[0]; i++) mutate_swap_rows(m, a, i, i + 1, 1);
}

static inline float mutate_get(Tensor x, int64_t i) {
    uint16_t h;
    float f;
    if (x.dtype == BF16) {
        memcpy(&h, (char *)x.data + 2 * i, 2);
        return bf16_to_f32(h);
    }
    memcpy(&f, (char *)x.data + 4 * i, 4);
    return f;
}

static inline void mutate_set(Tensor x, int64_t i, float v) {
    uint16_t h = bf16_from_f32(v);
    if (x.dtype == BF16) memcpy((char *)x.data + 2 * i, &h, 2);
    else memcpy((char *)x.data + 4 * i, &v, 4);
}

static inline void mutate_scale(MutateFile *m, const char *a, double factor) {
    Tensor x = mutate_tensor(m, a);
    for (int64_t i = 0; i < tensor_numel(x); i++) mutate_set(x, i, (float)(factor * (double)mutate_get(x, i)));
}

/* A perturbation that no symmetry hides: each value takes 10 % of the tensor's rms, alternating in sign with an
 * irregular period. */
static inline void mutate_perturb(MutateFile *m, const char *a) {
    Tensor x = mutate_tensor(m, a);
    double square = 0;
    int64_t n = tensor_numel(x);
    for (int64_t i = 0; i < n; i++) square += (double)mutate_get(x, i) * (double)mutate_get(x, i);
    float step = (float)(0.1 * sqrt(square / (double)n));
    for (int64_t i = 0; i < n; i++) mutate_set(x, i, mutate_get(x, i) + ((i * 7 + i / 5) % 3 == 0 ? step : -step));
}

static inline void mutate_transpose_kernel(MutateFile *m, const char *a) {
    Tensor x = mutate_tensor(m, a);
    if (x.rank != 4 || x.shape[2] != x.shape[3]) mutate_stop(a, "no square kernel");
    int64_t k = x.shape[2];
    for (int64_t p = 0; p < tensor_numel(x); p += k * k)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < i; j++) {
                float u = mutate_get(x, p + i * k + j), v = mutate_get(x, p + j * k + i);
                mutate_set(x, p + i * k + j, v);
                mutate_set(x, p + j * k + i, u);
            }
}

/* Rewrites the file without the tensors whose names contain `part`. */
static inline void mutate_drop(const char *folder, const char *name, const char *part) {
    MutateFile m = {0};
    mutate_open(&m, folder, name);
    cJSON *header = cJSON_CreateObject();
    char *payload = malloc(m.size);
    size_t used = 0;
    int dropped = 0;
    if (!payload || !header) abort();
    for (int i = 0; i < m.st.count; i++) {
        const SafetensorsEntry *e = &m.st.entry[i];
        if (strstr(e->name, part)) {
            dropped++;
            continue;
        }
        cJSON *t = cJSON_AddObjectToObject(header, e->name);
        cJSON_AddStringToObject(t, "dtype", dtype_name(e->dtype));
        cJSON *shape = cJSON_AddArrayToObject(t, "shape"), *span = cJSON_AddArrayToObject(t, "data_offsets");
        for (int d = 0; d < e->rank; d++) cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)e->shape[d]));
        cJSON_AddItemToArray(span, cJSON_CreateNumber((double)used));
        memcpy(payload + used, m.st.payload + e->offset, e->bytes);
        used += e->bytes;
        cJSON_AddItemToArray(span, cJSON_CreateNumber((double)used));
    }
    if (!dropped) mutate_stop(m.path, part);
    char *text = cJSON_PrintUnformatted(header);
    size_t n = strlen(text);
    char *all = malloc(8 + n + used);
    if (!all) abort();
    for (int i = 0; i < 8; i++) all[i] = (char)((uint64_t)n >> 8 * i);
    memcpy(all + 8, text, n);
    memcpy(all + 8 + n, payload, used);
    mutate_write(m.path, all, 8 + n + used);
    free(all);
    free(text);
    free(payload);
    cJSON_Delete(header);
    safetensors_close(&m.st);
    free(m.bytes);
}

/* --- configs --- */

static inline void mutate_json(const char *folder, const char *name, const char *key, const char *value) {
    char path[1200], *text, *out;
    size_t size;
    Error e = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (file_read(path, &text, &size, &e) != OK) mutate_stop(path, e.text);
    cJSON *j = cJSON_Parse(text), *v = cJSON_Parse(value);
    if (!j || !v || !cJSON_ReplaceItemInObjectCaseSensitive(j, key, v)) mutate_stop(path, key);
    out = cJSON_Print(j);
    mutate_write(path, out, strlen(out));
    free(out);
    free(text);
    cJSON_Delete(j);
}

#endif
