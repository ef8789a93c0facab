/* fusion.c - see fusion.h.
 *
 * The table is always rebuilt from the reference and the set of mounted families, so it depends on the set alone and not
 * on the order of mounts. */
#include "fusion.h"

#include "verdicts.h"

#include <stdio.h>
#include <stdlib.h>

void fusion_init(Fusion *f, const char *part, Ops *ops) { *f = (Fusion){.part = part, .ops = ops, .reference = *ops}; }

void fusion_free(Fusion *f) {
    free(f->site);
    free(f->probed);
    *f = (Fusion){0};
}

/* --- sites --- */

void fusion_forget_sites(Fusion *f) { f->sites = 0; }

Status fusion_record(Fusion *f, OpId op, const void *args, const char *name, Error *e) {
    uint64_t key = ops_signature(op, args);
    for (int i = 0; i < f->sites; i++)
        if (f->site[i].key == key && f->site[i].name == name) return OK; /* names are literals */
    if (f->sites == FUSION_SITES_MAX) return fail(e, ERR_MODEL, "%s: more than %d call signatures", f->part, FUSION_SITES_MAX);
    if (f->sites == f->site_cap) {
        int cap = f->site_cap ? 2 * f->site_cap : 64;
        Site *more = realloc(f->site, (size_t)cap * sizeof *more);
        if (!more) return fail(e, ERR_MEMORY, "%s: out of memory for %d call signatures", f->part, cap);
        f->site = more;
        f->site_cap = cap;
    }
    f->site[f->sites++] = (Site){.name = name, .op = op, .key = key, .args = slice_copy(op, args)};
    return OK;
}

/* --- tables --- */

static bool has(const Family *family, const Impl *impl) { return impl >= family->impl && impl < family->impl + family->count; }

static const Impl *variant_of(const Family *family, OpId op) {
    for (int i = 0; i < family->count; i++)
        if (family->impl[i].op == op) return &family->impl[i];
    return NULL;
}

/* False with a reason: a refusal; without one: the site is for what stands behind. */
static bool takes(const Impl *impl, const Site *site, char *why, size_t size) {
    snprintf(why, size, "refused");
    return !impl->accepts || impl->accepts(&site->args, why, size);
}

static bool prepend(Ops *ops, const Impl *impl) {
    int n = ops->count[impl->op];
    if (n == OPS_MAX_VARIANTS) return false;
    memmove(&ops->impl[impl->op][1], &ops->impl[impl->op][0], (size_t)n * sizeof impl);
    ops->impl[impl->op][0] = impl;
    ops->count[impl->op] = n + 1;
    return true;
}

/* The table with all mounted families and `extra`; BOUNDED ones stand before EXACT ones, else as they were first wanted. */
static bool build(const Fusion *f, const Family *extra, Ops *out) {
    static const Promise BEHIND_FIRST[2] = {EXACT, BOUNDED};
    bool fits = true;
    *out = f->reference;
    for (int k = 0; k < 2; k++)
        for (int i = f->mounts - 1; i >= 0; i--) {
            const Mount *m = &f->mount[i];
            if (m->family->promise != BEHIND_FIRST[k] || !(m->mounted || m->family == extra)) continue;
            for (int v = 0; v < m->family->count; v++) fits &= prepend(out, &m->family->impl[v]);
        }
    return fits;
}

static bool same_table(const Ops *a, const Ops *b) {
    for (int op = 0; op < OP_COUNT; op++)
        if (a->count[op] != b->count[op] ||
            memcmp(a->impl[op], b->impl[op], (size_t)a->count[op] * sizeof a->impl[op][0]) != 0)
            return false;
    return true;
}

static void assign(Fusion *f, const Ops *table) {
    if (same_table(f->ops, table)) return;
    uint32_t epoch = f->ops->epoch + 1;
    *f->ops = *table;
    f->ops->epoch = epoch;
}

static Mount *entry(Fusion *f, const Family *family) {
    for (int i = 0; i < f->mounts; i++)
        if (f->mount[i].family == family) return &f->mount[i];
    if (f->mounts == FUSION_FAMILIES) return NULL;
    f->mount[f->mounts] = (Mount){.family = family};
    return &f->mount[f->mounts++];
}

static void drop(Fusion *f, Mount *m) {
    Ops table;
    m->mounted = false;
    build(f, NULL, &table);
    assign(f, &table);
}

/* --- probes --- */

enum { PROBE_ROWS = 16 };

/* Points every tensor of a, and weights that are copied to w, into the arena; without one, counts bytes. What shares memory
 * still does there: an op that works in place is probed in place, a packed product packed. */
static size_t furnish(OpId op, Args *a, Weight w[LINEAR_MANY_MAX], Arena *arena) {
    const OpInfo *info = ops_info(op);
    size_t total = 0;
    Stretches all;
    slice_stretches(op, a, true, &all);
    for (int i = 0; i < all.count; i++) {
        total += arena_rounded(all.at[i].size);
        if (arena) all.at[i].to = arena_push(arena, all.at[i].size);
    }
    for (int i = 0; i < info->outputs + info->inputs; i++) a->tensor[i].data = slice_moved(&all, a->tensor[i].data);
    for (int i = 0; i < info->weights; i++) {
        const Weight *given = slice_weight(op, a, i);
        if (!given) continue;
        w[i] = *given;
        w[i].w.data = slice_moved(&all, w[i].w.data);
        w[i].bias.data = slice_moved(&all, w[i].bias.data);
        slice_set_weight(op, a, i, &w[i]);
    }
    return total;
}

/* Runs the variant on a few rows of the site's shape in memory of its own: what guards cannot know (a library without a
 * plan, a kernel that does not start) shows here, before anything of the job ran. */
static Status run_probe(const Fusion *f, const Impl *impl, const Site *site, const Exec *device_exec, Error *why) {
    Args a = slice_small(site->op, &site->args, PROBE_ROWS);
    Weight w[LINEAR_MANY_MAX];
    Arena work = {0}, scratch = {0};
    Args counted = a;
    TRY(arena_open(&work, device_exec->device, "probe", furnish(site->op, &counted, w, NULL), why));
    furnish(site->op, &a, w, &work);
    Exec x = *device_exec;
    x.ops = &f->reference; /* a variant may hand a part of its work to a reference */
    x.error = why;
    x.work = &work;
    x.scratch = &scratch;
    Status s = arena_open(&scratch, x.device, "probe scratch", impl->scratch ? arena_rounded(impl->scratch(&x, &a)) : 0, why);
    if (s == OK) s = impl->run(&x, &a);
    arena_close(&scratch);
    arena_close(&work);
    return s;
}

static bool was_probed(const Fusion *f, const Impl *impl, uint64_t key) {
    for (int i = 0; i < f->probes; i++)
        if (f->probed[i].key == key && f->probed[i].impl == impl) return true;
    return false;
}

/* In an earlier run this variant ran on the whole of such a call, or a part of it, and gave the reference's bits. */
static bool was_seen(Fusion *f, const Family *family, const Impl *impl, uint64_t key) {
    if (family->promise != EXACT || verdicts_find(f->verdicts, family, impl, key) != VERDICT_SAME) return false;
    f->verdicts->believed++;
    return true;
}

static Status note_probe(Fusion *f, const Impl *impl, uint64_t key, Error *e) {
    if (f->probes == f->probe_cap) {
        int cap = f->probe_cap ? 2 * f->probe_cap : 64;
        Probed *more = realloc(f->probed, (size_t)cap * sizeof *more);
        if (!more) return fail(e, ERR_MEMORY, "%s: out of memory for %d probes", f->part, cap);
        f->probed = more;
        f->probe_cap = cap;
    }
    f->probed[f->probes++] = (Probed){key, impl};
    return OK;
}

/* --- mounting --- */

static void refuse(const Fusion *f, Mount *m, const Site *site, const char *why) {
    m->refused = true;
    snprintf(m->why, sizeof m->why, "%s stays on the reference path in %s: %s%s%s: %.200s", m->family->name, f->part,
             site->name ? site->name : "", site->name ? ": " : "", ops_info(site->op)->name, why);
}

/* Guards of all sites first, so that a refusal costs nothing; then probes. False with the reason in m. */
static Status admit(Fusion *f, Mount *m, const Exec *device_exec, bool *good, Error *e) {
    int calls = 0;
    *good = false;
    for (int i = 0; i < f->sites; i++) {
        const Site *site = &f->site[i];
        const Impl *impl = variant_of(m->family, site->op);
        char why[256];
        if (!impl) continue;
        bool taken = takes(impl, site, why, sizeof why);
        calls += taken;
        if (taken || !why[0]) continue;
        refuse(f, m, site, why);
        return OK;
    }
    if (!calls) {
        snprintf(m->why, sizeof m->why, "%s has no place in %s", m->family->name, f->part);
        return OK;
    }
    for (int i = 0; i < f->sites; i++) {
        const Site *site = &f->site[i];
        const Impl *impl = variant_of(m->family, site->op);
        Error why = {0};
        char reason[256];
        if (!impl || was_probed(f, impl, site->key) || !takes(impl, site, reason, sizeof reason)) continue;
        if (!was_seen(f, m->family, impl, site->key) && run_probe(f, impl, site, device_exec, &why) != OK) {
            refuse(f, m, site, why.text);
            return OK;
        }
        TRY(note_probe(f, impl, site->key, e));
    }
    *good = true;
    return OK;
}

static bool takes_all(const Fusion *f, const Impl *impl) {
    char why[256];
    for (int i = 0; i < f->sites; i++)
        if (f->site[i].op == impl->op && !takes(impl, &f->site[i], why, sizeof why)) return false;
    return true;
}

/* An EXACT family would never run where mounted BOUNDED ones take all its ops. */
static const Family *covering(const Fusion *f, const Family *family) {
    const Family *by = NULL;
    for (int v = 0; v < family->count; v++) {
        by = NULL;
        for (int i = 0; i < f->mounts && !by; i++) {
            const Impl *impl = variant_of(f->mount[i].family, family->impl[v].op);
            if (f->mount[i].mounted && f->mount[i].family->promise == BOUNDED && impl && takes_all(f, impl))
                by = f->mount[i].family;
        }
        if (!by) return NULL;
    }
    return by;
}

Status fusion_mount(Fusion *f, const Family *family, const Exec *device_exec, Error *e) {
    Mount *m = entry(f, family);
    if (!m) return fail(e, ERR_MODEL, "%s: more than %d families", f->part, FUSION_FAMILIES);
    m->wanted = true;
    m->chosen = false;
    if (m->banned) return OK; /* its reason stays */
    m->refused = false;
    m->why[0] = 0;
    const Family *by = family->promise == EXACT ? covering(f, family) : NULL;
    Ops table;
    bool good = false;
    if (by) snprintf(m->why, sizeof m->why, "%s: %s takes its place in %s", family->name, by->name, f->part);
    else if (!build(f, family, &table)) snprintf(m->why, sizeof m->why, "%s: too many variants of one op", family->name);
    else TRY(admit(f, m, device_exec, &good, e));
    if (good) {
        m->mounted = m->chosen = true;
        assign(f, &table);
    } else {
        drop(f, m);
    }
    return OK;
}

void fusion_unmount(Fusion *f, const Family *family) {
    Mount *m = entry(f, family);
    if (!m) return;
    drop(f, m);
    m->wanted = m->chosen = false;
    if (!m->banned) m->why[0] = 0, m->refused = false;
}

void fusion_unmount_all(Fusion *f) {
    for (int i = 0; i < f->mounts; i++) f->mount[i].mounted = false;
    assign(f, &f->reference);
}

void fusion_ban(Fusion *f, const Family *family, const char *why) {
    Mount *m = entry(f, family);
    if (!m) return;
    drop(f, m);
    m->banned = true;
    m->chosen = false;
    snprintf(m->why, sizeof m->why, "%s", why);
}

const Mount *fusion_find(const Fusion *f, const Family *family) {
    for (int i = 0; i < f->mounts; i++)
        if (f->mount[i].family == family) return &f->mount[i];
    return NULL;
}

const Family *fusion_family_of(const Fusion *f, const Impl *impl) {
    for (int i = 0; i < f->mounts; i++)
        if (has(f->mount[i].family, impl)) return f->mount[i].family;
    return NULL;
}

/* --- names --- */

static Status unknown(const Family *families, int count, bool high, const char *name, size_t size, Error *e) {
    char known[400] = "";
    for (int i = 0; i < count; i++) {
        size_t used = strlen(known);
        bool gated = families[i].promise == BOUNDED;
        if (gated && !high && strlen(families[i].name) == size && !memcmp(families[i].name, name, size))
            return fail(e, ERR_USAGE, "--families: %s does not keep the reference's bits; it needs --quality high",
                        families[i].name);
        if (!gated || high) snprintf(known + used, sizeof known - used, ", %s", families[i].name);
    }
    return fail(e, ERR_USAGE, "--families: found \"%.*s\", expected none, all%s%s", (int)(size < 80 ? size : 80), name, known,
                known[0] ? ", or several with commas between" : " (this device has no families yet)");
}

Status fusion_choose(const Family *families, int count, bool high, const char *list, uint32_t *wanted, Error *e) {
    *wanted = 0;
    for (int i = 0; i < count; i++)
        if (families[i].promise == EXACT || high) *wanted |= 1u << i;
    if (!list || !strcmp(list, "all")) return OK;
    uint32_t allowed = *wanted;
    *wanted = 0;
    if (!strcmp(list, "none")) return OK;
    for (const char *at = list;; at++) {
        size_t size = strcspn(at, ",");
        int i = 0;
        while (i < count && !((allowed >> i & 1) && strlen(families[i].name) == size && !memcmp(families[i].name, at, size)))
            i++;
        if (i == count) return unknown(families, count, high, at, size, e);
        *wanted |= 1u << i;
        at += size;
        if (!*at) return OK;
    }
}
