/* optimes.c - see optimes.h. A run leaves a row number and two marks; collecting reads the marks, in one wait.
 *
 * Ops come in the order of the model's blocks, so the row of a run is looked for behind the row of the last one.
 * Easy to get wrong: between the first mark and the launch nothing may be done that takes time, and a device that waits
 * for the host counts that wait as the op's. */
#include "optimes.h"

#include "core/clock.h"
#include "opcost.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

enum { PENDING = (DEVICE_MARKS - DEVICE_PHASE_MARKS) / 2 };

struct OpTimes {
    OpTimer base;
    const char *phase;
    OpTime *row;
    int rows, row_cap, last;
    Device *device;       /* of the runs that are pending */
    int pending;
    int row_of[PENDING];
    double clock[PENDING]; /* seconds, where the device has no marks */
    double began;
};

/* --- timing --- */

static Status begin(OpTimer *base, Exec *x) {
    OpTimes *t = (OpTimes *)base;
    if (!t->phase) return OK;
    if (t->pending == PENDING || (t->pending && t->device != x->device)) TRY(optimes_collect(t, x->error));
    t->device = x->device;
    if (x->device->mark) return x->device->mark(x->device, DEVICE_PHASE_MARKS + 2 * t->pending, x->error);
    t->began = clock_now();
    return OK;
}

static Status new_row(OpTimes *t, const Call *call, const void *args, Error *e) {
    if (t->rows == t->row_cap) {
        int cap = t->row_cap ? 2 * t->row_cap : 64;
        OpTime *more = realloc(t->row, (size_t)cap * sizeof *more);
        if (!more) return fail(e, ERR_MEMORY, "out of memory for the times of %d ops", cap);
        t->row = more;
        t->row_cap = cap;
    }
    t->last = t->rows++;
    OpTime *row = &t->row[t->last];
    *row = (OpTime){.phase = t->phase, .op = call->op, .impl = call->impl, .signature = call->signature,
                    .bytes = opcost_bytes(call->op, args), .flops = opcost_flops(call->op, args)};
    opcost_shape(call->op, args, row->shape, sizeof row->shape);
    return OK;
}

static Status end(OpTimer *base, Exec *x, const Call *call, const void *args) {
    OpTimes *t = (OpTimes *)base;
    if (!t->phase) return OK;
    if (x->device->mark) TRY(x->device->mark(x->device, DEVICE_PHASE_MARKS + 2 * t->pending + 1, x->error));
    else t->clock[t->pending] = clock_now() - t->began;
    int i = 0;
    for (; i < t->rows; i++) {
        const OpTime *row = &t->row[(t->last + 1 + i) % t->rows];
        if (row->signature == call->signature && row->impl == call->impl && row->phase == t->phase) break;
    }
    if (i < t->rows) t->last = (t->last + 1 + i) % t->rows;
    else TRY(new_row(t, call, args, x->error));
    t->row_of[t->pending++] = t->last;
    return OK;
}

Status optimes_collect(OpTimes *t, Error *e) {
    int pending = t->pending;
    t->pending = 0; /* also when a mark cannot be read */
    for (int i = pending - 1; i >= 0; i--) { /* the last one first: one wait for all */
        double seconds = t->clock[i];
        int mark = DEVICE_PHASE_MARKS + 2 * i;
        if (t->device->mark) TRY(t->device->elapsed(t->device, mark, mark + 1, &seconds, e));
        t->row[t->row_of[i]].count++;
        t->row[t->row_of[i]].seconds += seconds;
    }
    return OK;
}

void optimes_forget(OpTimes *t) { t->rows = t->pending = t->last = 0; }

Status optimes_open(OpTimes **out, Error *e) {
    OpTimes *t = calloc(1, sizeof *t);
    *out = t;
    if (!t) return fail(e, ERR_MEMORY, "out of memory for the times of ops");
    t->base = (OpTimer){begin, end};
    return OK;
}

void optimes_close(OpTimes *t) {
    if (t) free(t->row);
    free(t);
}

OpTimer *optimes_timer(OpTimes *t) { return &t->base; }
void optimes_phase(OpTimes *t, const char *phase) { t->phase = phase; }

/* --- what came of it --- */

static int longest_first(const void *a, const void *b) {
    const OpTime *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
    return x->op != y->op ? (int)x->op - (int)y->op : strcmp(x->shape, y->shape);
}

const OpTime *optimes_rows(OpTimes *t, int *count) {
    /* runs that are pending know their rows by number */
    if (!t->pending && t->rows) qsort(t->row, (size_t)t->rows, sizeof *t->row, longest_first);
    *count = t->rows;
    return t->row;
}

static double total(const OpTimes *t, const char *phase, uint64_t *count) {
    double seconds = 0;
    *count = 0;
    for (int i = 0; i < t->rows; i++)
        if (!phase || t->row[i].phase == phase) seconds += t->row[i].seconds, *count += t->row[i].count;
    return seconds;
}

void optimes_print(OpTimes *t, int runs, FILE *out) {
    int rows;
    uint64_t count;
    const OpTime *row = optimes_rows(t, &rows);
    double all = total(t, NULL, &count);
    fprintf(out, "%-8s %-18s %-20s %7s %10s %10s %6s %8s %8s  %s\n", "phase", "op", "variant", "count", "total ms", "mean us",
            "share", "GB/s", "TFLOP/s", "shapes");
    for (int i = 0; i < rows; i++, row++) {
        double each = row->count ? row->seconds / (double)row->count : 0;
        fprintf(out, "%-8s %-18s %-20s %7llu %10.3f %10.2f %5.1f%%", row->phase, ops_info(row->op)->name, row->impl->name,
                (unsigned long long)row->count, row->seconds * 1e3, each * 1e6, all > 0 ? 100 * row->seconds / all : 0);
        fprintf(out, " %8.1f", each > 0 ? row->bytes / each * 1e-9 : 0);
        if (row->flops > 0) fprintf(out, " %8.2f", each > 0 ? row->flops / each * 1e-12 : 0);
        else fprintf(out, " %8s", "");
        fprintf(out, "  %s\n", row->shape);
    }
    fprintf(out, "all ops: %llu runs, %.3f ms", (unsigned long long)count, all * 1e3);
    if (runs > 0) fprintf(out, "; one of %d: %.1f runs, %.3f ms", runs, (double)count / runs, all / runs * 1e3);
    fprintf(out, "\n");
}

cJSON *optimes_json(OpTimes *t) {
    int rows;
    uint64_t count;
    const OpTime *row = optimes_rows(t, &rows);
    double all = total(t, NULL, &count);
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; list && i < rows; i++, row++) {
        double each = row->count ? row->seconds / (double)row->count : 0;
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "phase", row->phase);
        cJSON_AddStringToObject(o, "op", ops_info(row->op)->name);
        cJSON_AddStringToObject(o, "impl", row->impl->name);
        cJSON_AddStringToObject(o, "shapes", row->shape);
        cJSON_AddNumberToObject(o, "count", (double)row->count);
        cJSON_AddNumberToObject(o, "ms", row->seconds * 1e3);
        cJSON_AddNumberToObject(o, "mean_us", each * 1e6);
        cJSON_AddNumberToObject(o, "share", all > 0 ? row->seconds / all : 0);
        cJSON_AddNumberToObject(o, "bytes", row->bytes);
        if (each > 0) cJSON_AddNumberToObject(o, "gb_s", row->bytes / each * 1e-9);
        if (row->flops > 0 && each > 0) cJSON_AddNumberToObject(o, "tflop_s", row->flops / each * 1e-12);
        if (!cJSON_AddItemToArray(list, o)) {
            cJSON_Delete(o);
            cJSON_Delete(list);
            return NULL;
        }
    }
    return list;
}
