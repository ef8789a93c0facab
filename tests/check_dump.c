/* check_dump.c - see check_dump.h. */
#include "check_dump.h"

#include "check_shapes.h"
#include "opcost.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 24 };

typedef struct Entry {
    char name[16];
    Tensor t;   /* geometry */
    char *data; /* contiguous, on the host */
} Entry;

typedef struct Dump {
    Entry entry[MOST];
    int count;
} Dump;

static size_t span_of(const Tensor *t) {
    int64_t last = 0;
    for (int d = 0; d < t->rank; d++) last += (t->shape[d] - 1) * t->stride[d];
    return (size_t)(last + 1) * dtype_size(t->dtype);
}

/* Element by element in logical order. */
static void gather(const Tensor *t, const char *from, char *to) {
    size_t size = dtype_size(t->dtype);
    int64_t at[TENSOR_MAX_RANK] = {0};
    for (int64_t i = 0, n = tensor_numel(*t); i < n; i++) {
        int64_t offset = 0;
        for (int d = 0; d < t->rank; d++) offset += at[d] * t->stride[d];
        memcpy(to + (size_t)i * size, from + (size_t)offset * size, size);
        for (int d = t->rank - 1; d >= 0 && ++at[d] == t->shape[d]; d--) at[d] = 0;
    }
}

static Status take(Session *s, Dump *dump, const char *kind, int number, const Tensor *t) {
    if (!t->rank) return OK;
    Entry *e = &dump->entry[dump->count++];
    *e = (Entry){.t = *t, .data = malloc(tensor_bytes(*t))};
    snprintf(e->name, sizeof e->name, "%s%d", kind, number);
    char *span = malloc(span_of(t));
    if (!span || !e->data) exit(99);
    TRY(s->device.download(&s->device, span, t->data, span_of(t), &s->error));
    if (tensor_contiguous(*t)) memcpy(e->data, span, tensor_bytes(*t));
    else gather(t, span, e->data);
    free(span);
    return OK;
}

static Status take_inputs(Session *s, Dump *dump, OpId op, const void *args) {
    const OpInfo *info = ops_info(op);
    const Tensor *t = args;
    for (int i = 0; i < info->inputs; i++) TRY(take(s, dump, "in", i, &t[info->outputs + i]));
    for (int i = 0; i < info->weights; i++) {
        const Weight *w = ops_weight(op, args, i);
        if (!w) continue;
        TRY(take(s, dump, "w", i, &w->w));
        TRY(take(s, dump, "b", i, &w->bias));
    }
    return OK;
}

/* --- the file --- */

static void add_header(FILE *f, const Dump *dump, const ShapeCase *c, const void *args, const char *variant) {
    const OpInfo *info = ops_info(c->op);
    char shape[200];
    opcost_shape(c->op, args, shape, sizeof shape);
    fprintf(f, "{\"__metadata__\":{\"op\":\"%s\",\"place\":\"%s\",\"variant\":\"%s\",\"shapes\":\"%s\"", info->name, c->name,
            variant, shape);
    const char *scalars = (const char *)args + (size_t)(info->outputs + info->inputs) * sizeof(Tensor) +
                          (size_t)info->weights * sizeof(void *);
    for (int i = 0; i < info->scalars; i++) {
        uint32_t v;
        memcpy(&v, scalars + 4 * i, 4);
        fprintf(f, ",\"s%d\":\"%08x\"", i, v);
    }
    fprintf(f, "}");
    size_t at = 0;
    for (int i = 0; i < dump->count; i++) {
        const Entry *e = &dump->entry[i];
        fprintf(f, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", e->name, dtype_name(e->t.dtype));
        for (int d = 0; d < e->t.rank; d++) fprintf(f, d ? ",%lld" : "%lld", (long long)e->t.shape[d]);
        fprintf(f, "],\"data_offsets\":[%zu,%zu]}", at, at + tensor_bytes(e->t));
        at += tensor_bytes(e->t);
    }
    fprintf(f, "}");
}

static bool write_file(const char *path, const Dump *dump, const ShapeCase *c, const void *args, const char *variant) {
    char *header = NULL;
    size_t size = 0;
    FILE *text = open_memstream(&header, &size), *f = fopen(path, "wb");
    if (!text || !f) exit(99);
    add_header(text, dump, c, args, variant);
    fclose(text);
    uint64_t length = (size + 7) / 8 * 8;
    fwrite(&length, 8, 1, f); /* little-endian, as this machine */
    fprintf(f, "%-*s", (int)length, header);
    for (int i = 0; i < dump->count; i++) fwrite(dump->entry[i].data, 1, tensor_bytes(dump->entry[i].t), f);
    free(header);
    bool good = !ferror(f);
    return !fclose(f) && good;
}

static Status call(Session *s, ShapeCopies *k, const ShapeCase *c, DType dtype, Dump *dump) {
    TRY(shapes_open(k, c, s, dtype, 0));
    const Tensor *t = &k->args[0].first;
    TRY(take_inputs(s, dump, c->op, t));
    run_choose(s, c->op, dtype, s->ops.count[c->op] - 1, t);
    calls_free(&s->calls);
    TRY(op_run(&s->x, c->op, t));
    for (int i = 0; i < ops_info(c->op)->outputs; i++) TRY(take(s, dump, "out", i, &t[i]));
    return OK;
}

/* The scratch that checkop opens is enough for its small cases only. */
static Status more_scratch(Session *s) {
    arena_close(&s->scratch);
    return arena_open(&s->scratch, &s->device, "scratch", (size_t)4 << 30, &s->error);
}

int dump_all(const char *backend, const char *op, bool small, bool f32, int threads, const char *folder) {
    int failed = 0, files = 0, found = 0;
    int which = backend && !strcmp(backend, run_backend(1));
    Session *s = calloc(1, sizeof *s);
    ShapeCopies *k = calloc(1, sizeof *k);
    if (!s || !k) exit(99);
    if (run_open(s, which, threads) != OK || (!small && more_scratch(s) != OK)) {
        printf("FAIL %s: %s\n", run_backend(which), s->error.text);
        return 1;
    }
    for (const ShapeCase *c = shapes_cases(small); c->name; c++) {
        if ((op && strcmp(op, ops_info(c->op)->name) != 0) || !s->ops.count[c->op]) continue;
        Dump *dump = calloc(1, sizeof *dump);
        char path[4096];
        if (!dump) exit(99);
        snprintf(path, sizeof path, "%s/%d.safetensors", folder, files);
        const Impl *impl = ops_reference(&s->ops, c->op);
        found++;
        if (call(s, k, c, f32 ? F32 : BF16, dump) != OK)
            printf("FAIL %s %s: %s\n", ops_info(c->op)->name, c->name, s->error.text), failed++;
        else if (!write_file(path, dump, c, &k->args[0], impl->name))
            printf("FAIL %s: cannot be written\n", path), failed++;
        else
            printf("%s\n", path), files++;
        fflush(stdout);
        for (int i = 0; i < dump->count; i++) free(dump->entry[i].data);
        free(dump);
        shapes_close(k);
    }
    if (!found) printf("FAIL no such op or backend\n");
    run_close(s);
    free(s);
    free(k);
    return failed || !found;
}
