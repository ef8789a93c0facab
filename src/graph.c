/* graph.c - see graph.h. */
#include "graph.h"

#include "residency.h"

#include <stdio.h>

typedef Status Step(void *user, Exec *x);

/* --- the rehearsal --- */

typedef struct Look {
    Rehearsal base;
    uint64_t key;
    void *part[RESIDENCY_PARTS];  /* Residency: whose weights the step reads */
    int parts;
    void *table[RESIDENCY_PARTS]; /* Calls: where it counts */
    int tables;
    Error why;
} Look;

static bool note(void **list, int *count, void *p) {
    for (int i = 0; i < *count; i++)
        if (list[i] == p) return true;
    if (*count == RESIDENCY_PARTS) return false;
    list[(*count)++] = p;
    return true;
}

static Status see(Rehearsal *base, Exec *x, Call *call, const void *args) {
    Look *l = (Look *)base;
    if (!call->seen && call->reserve)
        return fail(x->error, ERR_MODEL, "%s has its first check before it", ops_info(call->op)->name);
    if (!weights_static(x)) return fail(x->error, ERR_MODEL, "the weights of %s stream", x->residency->name);
    if (!note(l->table, &l->tables, x->calls) ||
        (x->residency && !note(l->part, &l->parts, x->residency)))
        return fail(x->error, ERR_MODEL, "more than %d components work in it", RESIDENCY_PARTS);
    call->rehearsed++;
    l->key = op_digest(l->key, x, call, args);
    return OK;
}

static void settle(Look *l, bool ran) {
    for (int i = 0; i < l->tables; i++) calls_settle(l->table[i], ran);
    l->tables = 0;
}

/* The step with an error of its own; the arenas are left as they were. */
static Status rehearse(Exec *x, Rehearsal *r, Error *e, Step *step, void *user) {
    size_t work = arena_mark(x->work), scratch = arena_mark(x->scratch);
    Error *error = x->error;
    int last = x->last;
    x->rehearsal = r;
    x->error = e;
    Status s = step(user, x);
    x->rehearsal = NULL;
    x->error = error;
    x->last = last;
    x->site = NULL;
    arena_reset(x->work, work);
    arena_reset(x->scratch, scratch);
    return s;
}

/* False when the step as it stands cannot be captured or replayed; l->why says why. Its weights are in afterwards. */
static bool look(Exec *x, Step *step, void *user, Look *l) {
    *l = (Look){.base = {see}};
    Status s = rehearse(x, &l->base, &l->why, step, user);
    for (int i = 0; s == OK && i < l->parts; i++) { /* a later one may have pushed it out */
        Exec of = {.residency = l->part[i]};
        if (!weights_static(&of)) s = fail(&l->why, ERR_MODEL, "the weights of %s do not stay", of.residency->name);
    }
    if (s == OK && !l->tables) s = fail(&l->why, ERR_MODEL, "it calls nothing");
    if (s != OK) settle(l, false);
    return s == OK;
}

/* --- the graphs --- */

static void drop(Graphs *g, int i) {
    g->device->graph_free(g->device, g->graph[i].on_device);
    g->graph[i] = g->graph[--g->count];
}

static Graph *find(Graphs *g, uint64_t key) {
    for (int i = 0; i < g->count; i++)
        if (g->graph[i].key == key) return &g->graph[i];
    return NULL;
}

static void keep(Graphs *g, Graph new) {
    if (g->count == GRAPHS_MOST) {
        int oldest = 0;
        for (int i = 1; i < g->count; i++)
            if (g->graph[i].used < g->graph[oldest].used) oldest = i;
        drop(g, oldest);
    }
    new.used = ++g->clock;
    g->graph[g->count++] = new;
    g->stats.captured++;
}

/* Nothing of it runs. */
static Status capture(Graphs *g, Exec *x, Step *step, void *user, Graph *out, Error *e) {
    Device *d = g->device;
    Rehearsal recording = {NULL};
    TRY(d->capture_begin(d, e));
    Status s = rehearse(x, &recording, e, step, user);
    Error ignored = {0};
    Status ended = d->capture_end(d, s == OK ? &out->on_device : NULL, s == OK ? e : &ignored);
    return s != OK ? s : ended;
}

/* --- */

void graphs_open(Graphs *g, Device *d, bool wanted) {
    *g = (Graphs){.device = d, .off = !wanted || !d->capture_begin};
    if (!wanted) snprintf(g->stats.why, sizeof g->stats.why, "--graphs off");
    else if (g->off) snprintf(g->stats.why, sizeof g->stats.why, "there are no graphs on the %s", d->name);
}

void graphs_forget(Graphs *g) {
    while (g->count) drop(g, g->count - 1);
}

void graphs_close(Graphs *g) {
    graphs_forget(g);
    *g = (Graphs){0};
}

static Status replay(Graphs *g, Exec *x, Graph *graph, Look *l) {
    Status s = g->device->replay(g->device, graph->on_device, x->error);
    settle(l, s == OK);
    if (s != OK) return exec_blame(x, s);
    graph->used = ++g->clock;
    g->stats.replayed++;
    x->last = graph->last;
    return OK;
}

/* After the step ran call by call: first checks are over, plans are made, and they may have changed the table. */
static void capture_next(Graphs *g, Exec *x, Step *step, void *user) {
    Look l;
    Error e = {0};
    if (!look(x, step, user, &l)) {
        if (l.why.code != ERR_INTERRUPTED) snprintf(g->stats.why, sizeof g->stats.why, "%.250s", l.why.text);
        return;
    }
    settle(&l, false);
    Graph new = {.key = l.key, .last = x->last};
    if (find(g, l.key)) return;
    if (capture(g, x, step, user, &new, &e) == OK) {
        keep(g, new);
    } else if (e.code != ERR_INTERRUPTED) {
        snprintf(g->stats.why, sizeof g->stats.why, "capture failed: %.230s", e.text);
        g->off = g->warn = true;
    }
}

Status graphs_run(Graphs *g, Exec *x, bool again, Step *step, void *user) {
    if (!g || x->dry) return step(user, x);
    bool may = !g->off && !x->sync && !x->tap;
    Look l;
    if (may && look(x, step, user, &l)) {
        Graph *graph = find(g, l.key);
        if (graph) return replay(g, x, graph, &l);
        settle(&l, false);
    }
    TRY(step(user, x));
    g->stats.eager++;
    if (may && again) capture_next(g, x, step, user);
    if (!may && !g->off) snprintf(g->stats.why, sizeof g->stats.why, x->sync ? "--sync" : "tensors inside it are wanted");
    return OK;
}
