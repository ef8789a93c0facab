/* optrace.c - see optrace.h. The bytes between an output's first and last element are fetched, whatever lies between them. */
#include "optrace.h"

#include "core/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROW_DIGITS = 12 };

struct OpTrace {
    OpTimer base;
    const char *phase;
    FILE *text; /* into memory */
    char *bytes;
    size_t size;
    void *host; /* of one output */
    size_t capacity;
};

static uint64_t mix(uint64_t v) {
    uint64_t x = (v + 1) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    return x * 0xbf58476d1ce4e5b9u;
}

/* A run of the last dimension after the other. */
uint64_t optrace_hash(const void *data, const Tensor *t) {
    size_t size = dtype_size(t->dtype);
    int64_t columns = t->shape[t->rank - 1], runs = tensor_numel(*t) / columns;
    uint64_t all = 0;
    for (int64_t r = 0; r < runs; r++) {
        const char *at = data;
        int64_t rest = r;
        for (int d = t->rank - 2; d >= 0; d--) at += (size_t)(rest % t->shape[d] * t->stride[d]) * size, rest /= t->shape[d];
        for (int64_t c = 0; c < columns; c++, at += (size_t)t->stride[t->rank - 1] * size) {
            uint64_t bits = 0;
            memcpy(&bits, at, size); /* little-endian machines only, as everywhere here */
            all += mix(bits);
        }
    }
    return all;
}

static size_t span(const Tensor *t) {
    int64_t last = 0;
    for (int d = 0; d < t->rank; d++) last += (t->shape[d] - 1) * t->stride[d];
    return (size_t)(last + 1) * dtype_size(t->dtype);
}

static Status begin(OpTimer *base, Exec *x) {
    (void)base, (void)x;
    return OK;
}

static Status put(OpTrace *t, Exec *x, const Call *call, int i, const Tensor *out) {
    size_t size = span(out);
    if (size > t->capacity) {
        void *more = realloc(t->host, size);
        if (!more)
            return fail(x->error, ERR_MEMORY, "--trace: out of memory for %zu bytes of %s", size, ops_info(call->op)->name);
        t->host = more, t->capacity = size;
    }
    TRY(x->device->download(x->device, t->host, out->data, size, x->error));
    fprintf(t->text, "%s\t%s\t%s\t%d\t%s\t", t->phase, ops_info(call->op)->name, call->impl->name, i, dtype_name(out->dtype));
    for (int d = 0; d < out->rank; d++) fprintf(t->text, "%s%" PRId64, d ? "x" : "", out->shape[d]);
    int64_t rows = out->rank > 1 && out->shape[0] <= OPTRACE_ROWS ? out->shape[0] : 0;
    uint64_t all = rows ? 0 : optrace_hash(t->host, out);
    char row[OPTRACE_ROWS * ROW_DIGITS + 1] = "";
    for (int64_t r = 0; r < rows; r++) {
        Tensor one = tensor_slice(*out, 0, r, 1);
        uint64_t h = optrace_hash((char *)t->host + (size_t)(r * out->stride[0]) * dtype_size(out->dtype), &one);
        snprintf(row + r * ROW_DIGITS, ROW_DIGITS + 1, "%012" PRIx64, h >> 16);
        all += h;
    }
    fprintf(t->text, "\t%016" PRIx64 "\t%s\n", all, row);
    return OK;
}

static Status end(OpTimer *base, Exec *x, const Call *call, const void *args) {
    OpTrace *t = (OpTrace *)base;
    const Tensor *out = args;
    for (int i = 0; i < ops_info(call->op)->outputs; i++)
        if (out[i].rank && tensor_numel(out[i])) TRY(put(t, x, call, i, &out[i]));
    return OK;
}

Status optrace_open(OpTrace **out, Error *e) {
    OpTrace *t = calloc(1, sizeof *t);
    *out = t;
    if (t) t->text = open_memstream(&t->bytes, &t->size);
    if (!t || !t->text) return fail(e, ERR_MEMORY, "out of memory for the trace");
    t->base = (OpTimer){begin, end};
    t->phase = "text";
    return OK;
}

void optrace_close(OpTrace *t) {
    if (!t) return;
    if (t->text) fclose(t->text);
    free(t->bytes);
    free(t->host);
    free(t);
}

OpTimer *optrace_timer(OpTrace *t) { return &t->base; }
void optrace_phase(OpTrace *t, const char *phase) { t->phase = phase; }

Status optrace_write(OpTrace *t, const char *path, bool overwrite, Error *e) {
    if (fflush(t->text) || ferror(t->text)) return fail(e, ERR_MEMORY, "out of memory for the trace");
    return file_write_atomic(path, t->bytes, t->size, overwrite, e);
}
