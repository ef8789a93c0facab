/* ab_walk.c - see ab_walk.h. */
#include "ab_walk.h"

#include <stdlib.h>
#include <string.h>

void ab_walk_free(AbWalk *w) {
    free(w->row);
    *w = (AbWalk){0};
}

static bool is(const AbStage *s, const char *name) { return !strcmp(s->name, name); }

/* before: the first row that differs, as far as is known. */
static Status measure(AbRow *r, const AbRow *before, const char *const name[2], Error *e) {
    const SafetensorsEntry *a = &r->a->entry, *b = &r->b->entry;
    char x[200], y[200];
    if (a->rank != b->rank || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) != 0)
        return fail(e, ERR_USAGE, "%s is %s in %s and %s in %s: only equal shapes can be compared%s%s%s", a->name,
                    safetensors_shape_text(a, x, sizeof x), name[0], safetensors_shape_text(b, y, sizeof y), name[1],
                    before ? "; " : "", before ? before->a->name : "", before ? " is the first stage that differs" : "");
    double peak = is(r->a, "pixels") || is(r->a, "image") ? 255 : 0;
    r->n = compare_tensor(&(CompareTensor){a, r->a->values}, &(CompareTensor){b, r->b->values}, peak);
    return r->n.values ? OK : fail(e, ERR_USAGE, "%s is %s in %s and %s in %s: no numbers", a->name, dtype_name(a->dtype),
                                   name[0], dtype_name(b->dtype), name[1]);
}

/* Merged by their order; both are sorted. */
static void pair_up(const AbStages *a, const AbStages *b, AbWalk *w) {
    for (int i = 0, k = 0; i < a->count || k < b->count;) {
        const AbStage *x = i < a->count ? &a->stage[i] : NULL, *y = k < b->count ? &b->stage[k] : NULL;
        int order = !x ? 1 : !y ? -1 : x->order != y->order ? (x->order > y->order) - (x->order < y->order)
                                                            : strcmp(x->name, y->name);
        w->row[w->rows++] = (AbRow){.a = order <= 0 ? x : NULL, .b = order >= 0 ? y : NULL};
        i += order <= 0, k += order >= 0;
    }
}

Status ab_walk(const AbStages *a, const AbStages *b, const char *const name[2], AbWalk *out, Error *e) {
    *out = (AbWalk){.equal = true};
    if (a->steps && b->steps && a->steps != b->steps)
        return fail(e, ERR_USAGE, "%s has %d steps and %s has %d: only equal numbers can be compared", name[0], a->steps,
                    name[1], b->steps);
    if (a->first >= 0 && b->first >= 0 && a->first != b->first)
        return fail(e, ERR_USAGE, "%s begins with step %03d and %s with step %03d: only equal ones can be compared", name[0],
                    a->first, name[1], b->first);
    out->row = calloc((size_t)(a->count + b->count) + 1, sizeof *out->row);
    if (!out->row) return fail(e, ERR_MEMORY, "out of memory for %d stages", a->count + b->count);
    pair_up(a, b, out);
    int compared = 0;
    for (int i = 0; i < out->rows; i++) {
        AbRow *r = &out->row[i];
        if (!r->b && !out->missing) out->missing = r;
        if (!r->b) out->equal = false;
        if (!r->a || !r->b) continue;
        TRY(measure(r, out->first, name, e));
        compared++;
        out->equal &= r->n.equal;
        if (!r->n.equal && !out->first) out->first = r;
        if (is(r->a, "latents")) out->latents = r;
        if (is(r->a, "pixels")) out->pixels = r;
    }
    return compared ? OK : fail(e, ERR_USAGE, "%s and %s have no stage in common", name[0], name[1]);
}
