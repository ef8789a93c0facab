/* gate.c - see gate.h. Results go through the host: slices are small, and no device needs a compare kernel for it. */
#include "gate.h"

#include "verdicts.h"

#include <stdio.h>
#include <stdlib.h>

static const Family *family_of(const Gate *g, const Impl *impl) {
    for (int i = 0; i < g->fusions; i++) {
        const Family *family = fusion_family_of(g->fusion[i], impl);
        if (family) return family;
    }
    return NULL;
}

static bool passed(const Gate *g, const Family *family, const Impl *impl, uint64_t key) {
    for (int i = 0; i < g->goods; i++)
        if (g->good[i].key == key && g->good[i].impl == impl) return true;
    return verdicts_find(g->verdicts, family, impl, key) == VERDICT_SAME;
}

static size_t outputs_span(OpId op, const Args *a) {
    size_t n = 0;
    Stretches all;
    slice_stretches(op, a, false, &all);
    for (int i = 0; i < all.count; i++) n += all.at[i].written ? arena_rounded(all.at[i].size) : 0;
    return n;
}

/* Rows of one slice: as many as both results of them fit into GATE_BYTES; one row (a frame may be one), or all of what cannot
 * be cut, as long as they fit into GATE_MOST; else 0. */
static int64_t slice_height(OpId op, const Args *a) {
    int64_t rows = slice_rows(a);
    while (rows) {
        Args cut = slice_cut(op, a, 0, rows);
        size_t both = 2 * outputs_span(op, &cut);
        if (both <= GATE_BYTES) return rows;
        if (!slice_rowwise(op) || rows == 1) return both <= GATE_MOST ? rows : 0;
        rows /= 2;
    }
    return 0;
}

static size_t reserve(FirstSight *base, const Exec *x, OpId op, const void *args, const Impl *impl) {
    const Gate *g = (const Gate *)base;
    const Family *family = family_of(g, impl);
    (void)x;
    if (!family || family->promise != EXACT || passed(g, family, impl, ops_signature(op, args))) return 0;
    Args a = slice_copy(op, args), cut = slice_cut(op, &a, 0, slice_height(op, &a));
    size_t n = 2 * outputs_span(op, &cut);
    return n ? n : 1; /* what cannot be compared still has to be looked at */
}

/* The outputs of a moved to fresh scratch, zeroed, or holding the input's bytes where the op works in place. */
static Status move_outputs(Exec *x, OpId op, Args *a) {
    const OpInfo *info = ops_info(op);
    Stretches all;
    slice_stretches(op, a, false, &all);
    for (int i = 0; i < all.count; i++) {
        Stretch *at = &all.at[i];
        if (!at->written) continue;
        void *to = arena_push(x->scratch, at->size), *host = calloc(1, at->size);
        Status s = to && host ? OK : fail(x->error, ERR_MEMORY, "%s: no memory for its first check", info->name);
        if (s == OK && at->read) s = x->device->download(x->device, host, at->from, at->size, x->error);
        if (s == OK) s = x->device->upload(x->device, to, host, at->size, x->error);
        free(host);
        TRY(s);
        at->to = to;
    }
    for (int i = 0; i < info->outputs + info->inputs; i++) a->tensor[i].data = slice_moved(&all, a->tensor[i].data);
    return OK;
}

static Status same_outputs(Exec *x, OpId op, const Args *a, const Args *b, bool *same) {
    for (int i = 0; *same && i < ops_info(op)->outputs; i++) {
        size_t span = slice_span(a->tensor[i]);
        if (!span) continue;
        char *host = malloc(2 * span);
        if (!host) return fail(x->error, ERR_MEMORY, "%s: no memory for its first check", ops_info(op)->name);
        Status s = x->device->download(x->device, host, a->tensor[i].data, span, x->error);
        if (s == OK) s = x->device->download(x->device, host + span, b->tensor[i].data, span, x->error);
        if (s == OK) *same = !memcmp(host, host + span, span);
        free(host);
        TRY(s);
    }
    return OK;
}

typedef enum Sight { SAME, OTHER, FAILED } Sight;

/* One slice both ways. A variant that fails where the reference does not is no better than a different one. */
static Status compare(Exec *x, OpId op, const Args *cut, const Impl *impl, Sight *sight) {
    const Impl *both[2] = {ops_reference(x->ops, op), impl};
    Args a[2] = {*cut, *cut};
    size_t mark = arena_mark(x->scratch);
    bool same = true;
    Status s = OK;
    for (int i = 0; s == OK && i < 2; i++) s = move_outputs(x, op, &a[i]);
    size_t inside = arena_mark(x->scratch);
    for (int i = 0; s == OK && *sight == SAME && i < 2; i++) {
        s = both[i]->run(x, &a[i]);
        arena_reset(x->scratch, inside);
        if (s != OK && i == 1) { /* the reference went well: the failure is the variant's own */
            *x->error = (Error){0};
            *sight = FAILED;
            s = OK;
        }
    }
    if (s == OK && *sight == SAME) s = same_outputs(x, op, &a[0], &a[1], &same);
    if (!same) *sight = OTHER;
    arena_reset(x->scratch, mark);
    return s;
}

static Status note_good(Gate *g, const Impl *impl, uint64_t key, Error *e) {
    if (g->goods == g->good_cap) {
        int cap = g->good_cap ? 2 * g->good_cap : 64;
        Probed *more = realloc(g->good, (size_t)cap * sizeof *more);
        if (!more) return fail(e, ERR_MEMORY, "out of memory for %d first checks", cap);
        g->good = more;
        g->good_cap = cap;
    }
    g->good[g->goods++] = (Probed){key, impl};
    return OK;
}

static Status look(FirstSight *base, Exec *x, OpId op, const void *args, const Impl *impl) {
    Gate *g = (Gate *)base;
    const Family *family = family_of(g, impl);
    uint64_t key = ops_signature(op, args);
    bool before = verdicts_find(g->verdicts, family, impl, key) == VERDICT_OTHER;
    Args a = slice_copy(op, args);
    int64_t rows = slice_rows(&a), height = slice_height(op, &a);
    Sight sight = before ? OTHER : height > 0 ? SAME : FAILED;
    Args cut = slice_cut(op, &a, 0, height);
    g->looks += !before;
    if (sight == SAME) TRY(compare(x, op, &cut, impl, &sight));
    if (sight == SAME && height < rows) {
        cut = slice_cut(op, &a, rows - height, height);
        TRY(compare(x, op, &cut, impl, &sight));
    }
    if (!before && sight != FAILED) TRY(verdicts_put(g->verdicts, family, impl, key, sight == SAME, x->error));
    if (sight == SAME) return note_good(g, impl, key, x->error);
    char shape[96];
    snprintf(g->warning, sizeof g->warning, "%s is unmounted: %s %s gave other bits than the reference for %s %s%s",
             family->name, ops_info(op)->name, impl->name, dtype_name(a.tensor[0].dtype),
             tensor_shape_text(a.tensor[0], shape, sizeof shape), before ? " in an earlier run" : "");
    for (int i = 0; i < g->fusions; i++) fusion_ban(g->fusion[i], family, g->warning);
    return OK;
}

void gate_open(Gate *g) { *g = (Gate){.base = {reserve, look}}; }

void gate_close(Gate *g) {
    free(g->good);
    *g = (Gate){0};
}

bool gate_watch(Gate *g, Fusion *f) {
    if (g->fusions == GATE_PARTS) return false;
    g->fusion[g->fusions++] = f;
    return true;
}
