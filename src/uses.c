/* uses.c - see uses.h. */
#include "uses.h"

#include <stdlib.h>

static Dispatch *row_of(Media *out, const char *part, const Call *call, const Family *family) {
    const char *op = ops_info(call->op)->name, *name = family ? family->name : NULL;
    for (int i = 0; i < out->dispatches; i++) {
        Dispatch *d = &out->dispatch[i];
        if (d->part == part && d->op == op && d->impl == call->impl->name && d->family == name) return d;
    }
    Dispatch *more = realloc(out->dispatch, (size_t)(out->dispatches + 1) * sizeof *more);
    if (!more) return NULL;
    out->dispatch = more;
    out->dispatch[out->dispatches] = (Dispatch){.part = part, .op = op, .impl = call->impl->name, .family = name};
    return &out->dispatch[out->dispatches++];
}

static Status collect_counts(const Part *part, Media *out, Error *e) {
    for (int op = 0; op < OP_COUNT; op++)
        for (size_t i = 0; i < part->calls.capacity; i++) {
            const Call *call = &part->calls.slot[i];
            if (!call->impl || call->op != (OpId)op || !call->count) continue;
            Dispatch *d = row_of(out, part->name, call, fusion_family_of(&part->fusion, call->impl));
            if (!d) return fail(e, ERR_MEMORY, "out of memory for dispatch counts");
            d->count += call->count;
        }
    return OK;
}

static uint64_t runs_of(const Media *m, const char *part, const char *family) {
    uint64_t n = 0;
    for (int i = 0; i < m->dispatches; i++)
        if (m->dispatch[i].part == part && m->dispatch[i].family == family) n += m->dispatch[i].count;
    return n;
}

const Mount *uses_mount(const Part *part, int i) {
    const Mount *m = &part->fusion.mount[i];
    if (!m->wanted) return NULL;
    if (m->chosen || m->refused) return m;
    for (int s = 0; m->why[0] && s < part->fusion.sites; s++) /* another family took its place, it was banned, or passed all on */
        for (int v = 0; v < m->family->count; v++)
            if (part->fusion.site[s].op == m->family->impl[v].op) return m;
    return NULL;
}

Status uses_collect(const Model *m, Media *out, Error *e) {
    for (int i = 0; i < m->parts; i++) TRY(collect_counts(&m->part[i], out, e));
    for (int i = 0; i < m->parts; i++)
        for (int k = 0; k < m->part[i].fusion.mounts; k++) {
            const Part *part = &m->part[i];
            const Mount *at = uses_mount(part, k);
            if (!at) continue;
            FamilyUse *more = realloc(out->family, (size_t)(out->families + 1) * sizeof *more);
            if (!more) return fail(e, ERR_MEMORY, "out of memory for the families");
            out->family = more;
            FamilyUse *use = &out->family[out->families++];
            *use = (FamilyUse){.part = part->name, .family = at->family->name, .mounted = at->chosen,
                               .refused = at->refused || at->banned, .count = runs_of(out, part->name, at->family->name)};
            snprintf(use->why, sizeof use->why, "%s", at->why);
        }
    return OK;
}

void uses_explain(const Model *m, FILE *out) {
    int said = 0;
    for (int i = 0; i < m->parts; i++)
        for (int k = 0; k < m->part[i].fusion.mounts; k++) {
            const Mount *at = uses_mount(&m->part[i], k);
            if (!at) continue;
            fprintf(out, "%-15s%s", said++ ? "" : "families", at->chosen ? at->family->name : at->why);
            if (at->chosen) fprintf(out, ": mounted on %s (%s)", m->part[i].name, at->family->what);
            fputc('\n', out);
        }
    if (!said) fprintf(out, "families       none\n");
}
