/* golden_draw.h - checkpoints that are not stored: a component's weights drawn from a seed, as torch draws them on the other
 * side, and written as F32 (values that bf16 cannot hold).
 *
 * Easy to get wrong: tensors are drawn in the order of their names, whole, by one generator. */
#ifndef GOLDEN_DRAW_H
#define GOLDEN_DRAW_H

#include "mutate.h"
#include "rng.h"

/* Gives the n values of one tensor, drawn from `rng`. */
typedef void DrawRule(Rng *rng, const BindRow *r, int64_t n, float *v);

static inline bool draw_ends(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

static inline int64_t draw_count(const BindRow *r) {
    int64_t n = 1;
    for (int d = 0; d < r->rank; d++) n *= r->shape[d];
    return n;
}

static inline int draw_by_name(const void *a, const void *b) {
    return strcmp((*(const BindRow *const *)a)->name, (*(const BindRow *const *)b)->name);
}

/* config.json of `folder`, made when it is not there, from a committed file. */
static inline void draw_config(const char *folder, const char *from) {
    char path[1200], *text;
    size_t size;
    Error e = {0};
    snprintf(path, sizeof path, "mkdir -p '%s'", folder);
    if (system(path) || file_read(from, &text, &size, &e) != OK) mutate_stop(folder, e.text);
    snprintf(path, sizeof path, "%s/config.json", folder);
    mutate_write(path, text, size);
    free(text);
}

/* What b binds, into folder/file. */
static inline void draw_weights(const char *folder, const char *file, const Bind *b, uint64_t seed, DrawRule *rule) {
    char path[1200], *header = NULL;
    size_t size = 0, at = 0;
    const BindRow **row = calloc((size_t)b->count, sizeof *row);
    FILE *f = open_memstream(&header, &size);
    if (!row || !f) mutate_stop(folder, "out of memory");
    for (int i = 0; i < b->count; i++) row[i] = &b->rows[i];
    qsort(row, (size_t)b->count, sizeof *row, draw_by_name);
    for (int i = 0; i < b->count; i++) {
        size_t n = (size_t)draw_count(row[i]) * 4;
        fprintf(f, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", i ? "," : "{", row[i]->name);
        for (int d = 0; d < row[i]->rank; d++) fprintf(f, "%s%lld", d ? "," : "", (long long)row[i]->shape[d]);
        fprintf(f, "],\"data_offsets\":[%zu,%zu]}", at, at + n);
        at += n;
    }
    fprintf(f, "}");
    fclose(f);
    Rng rng;
    rng_seed(&rng, seed);
    char *all = malloc(8 + size + at);
    float *v = malloc(at);
    if (!all || !v) mutate_stop(folder, "out of memory");
    uint64_t length = size;
    memcpy(all, &length, 8);
    memcpy(all + 8, header, size);
    at = 8 + size;
    for (int i = 0; i < b->count; i++) {
        int64_t n = draw_count(row[i]);
        rule(&rng, row[i], n, v);
        memcpy(all + at, v, (size_t)n * 4);
        at += (size_t)n * 4;
    }
    snprintf(path, sizeof path, "%s/%s", folder, file);
    mutate_write(path, all, at);
    free(v);
    free(all);
    free(header);
    free(row);
}

#endif
