/* residency.c - see residency.h. */
#include "residency.h"

int residency_victim(const Occupant *o, int count, int not) {
    int best = -1;
    for (int i = 0; i < count; i++)
        if (o[i].in && i != not && (best < 0 || o[i].used < o[best].used)) best = i;
    return best;
}

size_t residency_occupied(const Occupant *o, int count) {
    size_t n = 0;
    for (int i = 0; i < count; i++) n += o[i].in ? o[i].size : 0;
    return n;
}

/* --- uploads --- */

static Status start(Residency *r, int run, Ticket *out, Error *e) {
    Device *d = r->pool->device;
    Fill fill = layout_fill(&r->layout, run, r->base);
    *out = 0;
    if (!fill.size) return OK;
    if (d->upload_start(d, &fill, out, e) != OK) return because(e, "%s", r->name);
    r->pool->uploads++;
    r->pool->bytes += fill.size;
    return OK;
}

static Status finish(Residency *r, Ticket *t, Error *e) {
    Ticket ticket = *t;
    *t = 0;
    Device *d = r->pool->device;
    return !ticket || d->upload_wait(d, ticket, e) == OK ? OK : because(e, "%s", r->name);
}

/* Nothing reads sources or writes the region afterwards. */
static Status settle(Residency *r, Error *e) {
    Status s = finish(r, &r->loading, e);
    for (int i = 0; i < 2; i++) {
        Error second = {0};
        Status t = finish(r, &r->slot[i].loading, s == OK ? e : &second);
        if (s == OK) s = t;
    }
    return s;
}

/* --- parts --- */

static void drop(Residency *r) {
    Device *d = r->pool->device;
    d->discard(d, r->base, r->layout.region);
    r->pool->occupant[r->index].in = false;
    r->slot[0].run = r->slot[1].run = 0;
}

static Status send_away(Residency *r, Error *e) {
    Status s = settle(r, e);
    drop(r);
    return s;
}

static Status make_room(ResidencyPool *p, size_t size, int not, Error *e) {
    for (;;) {
        size_t occupied = residency_occupied(p->occupant, p->parts);
        if (occupied <= p->room && size <= p->room - occupied) return OK;
        int victim = residency_victim(p->occupant, p->parts, not);
        if (victim < 0)
            return fail(e, ERR_MEMORY, "%s: %.2f GiB of weights do not fit the %.2f GiB that the plan left for them",
                        not < 0 ? "weights" : p->part[not].name, (double)size / 0x1p30, (double)p->room / 0x1p30);
        TRY(send_away(&p->part[victim], e));
    }
}

/* Pages, addresses, and the upload of what stays, under way. */
static Status bring_in(Residency *r, Error *e) {
    ResidencyPool *p = r->pool;
    Occupant *o = &p->occupant[r->index];
    Device *d = p->device;
    if (o->in) return OK;
    TRY(make_room(p, o->size, r->index, e));
    Status s = r->base ? d->commit(d, r->base, r->layout.region, e) : d->reserve(d, r->layout.region, &r->base, e);
    if (s != OK) return because(e, "%s", r->name);
    layout_bind(&r->layout, r->base);
    o->in = true;
    size_t occupied = residency_occupied(p->occupant, p->parts);
    if (occupied > p->peak) p->peak = occupied;
    s = start(r, 0, &r->loading, e);
    if (s != OK) drop(r);
    return s;
}

static void sized(Residency *r) {
    size_t unit = r->pool->device->granularity;
    r->pool->occupant[r->index].size = (r->layout.region + unit - 1) / unit * unit;
}

Status residency_add(ResidencyPool *p, const char *name, const WeightFiles *files, const Bind *bind,
                     const char *const *ignore, DType dtype, bool repeats, Residency **out, Error *e) {
    *out = NULL;
    if (p->parts == RESIDENCY_PARTS) return fail(e, ERR_MODEL, "%s: too many components", name);
    Residency *r = &p->part[p->parts];
    *r = (Residency){.pool = p, .index = p->parts, .name = name, .repeats = repeats};
    TRY(layout_make(files, bind, ignore, true, dtype, p->device->maps, &r->layout, e));
    p->occupant[p->parts++] = (Occupant){0};
    layout_place(&r->layout, NULL);
    sized(r);
    Device dry = device_dry();
    TRY(dry.reserve(&dry, r->layout.region, &r->nowhere, e));
    layout_bind(&r->layout, r->nowhere);
    *out = r;
    return OK;
}

static void forget(Residency *r) {
    Error ignored = {0};
    Device *d = r->pool->device;
    settle(r, &ignored);
    if (r->base) d->release(d, r->base, r->layout.region);
    r->base = NULL;
    r->pool->occupant[r->index].in = false;
    r->slot[0].run = r->slot[1].run = 0;
}

static bool placed_so(const Layout *l, const bool *streamed) {
    for (int b = 0; b < l->blocks; b++)
        if ((l->run_of[b] != 0) != (streamed && streamed[b] && l->block_size[b])) return false;
    return true;
}

void residency_place(Residency *r, const bool *streamed) {
    if (placed_so(&r->layout, streamed)) return;
    forget(r);
    layout_place(&r->layout, streamed);
    sized(r);
}

Status residency_shrink(ResidencyPool *p, Error *e) { return make_room(p, 0, -1, e); }

Status residency_prefetch(ResidencyPool *p, const int *order, int count, Error *e) {
    for (int i = 0; i < count; i++) {
        const Occupant *o = &p->occupant[order[i]];
        size_t occupied = residency_occupied(p->occupant, p->parts);
        if (o->in) continue;
        if (occupied > p->room || o->size > p->room - occupied) return OK;
        TRY(bring_in(&p->part[order[i]], e));
    }
    return OK;
}

void residency_close(ResidencyPool *p) {
    Device dry = device_dry();
    for (int i = 0; i < p->parts; i++) {
        forget(&p->part[i]);
        dry.release(&dry, p->part[i].nowhere, p->part[i].layout.whole);
        layout_free(&p->part[i].layout);
    }
    *p = (ResidencyPool){0};
}

/* --- around each use --- */

static void record(ResidencyPool *p, int part) {
    if (p->entries && p->order[p->entries - 1] == part) return;
    if (p->entries < RESIDENCY_ORDER) p->order[p->entries++] = part;
}

static int slot_of(int run) { return (run - 1) % 2; }

static Status fetch(Residency *r, int run, Error *e) {
    int s = slot_of(run);
    if (r->slot[s].run == run) return OK;
    TRY(finish(r, &r->slot[s].loading, e));
    r->slot[s].run = 0;
    TRY(start(r, run, &r->slot[s].loading, e));
    r->slot[s].run = run;
    return OK;
}

/* The streamed block after this one, 0: none. */
static int next_run(const Residency *r, int run) { return run + 1 < r->layout.runs ? run + 1 : r->repeats ? 1 : 0; }

static Status enter(Exec *x, int block) {
    Residency *r = x->residency;
    if (!r) return OK;
    if (x->dry) {
        record(r->pool, r->index);
        return OK;
    }
    if (block == WEIGHTS_PART) {
        TRY(bring_in(r, x->error));
        r->pool->occupant[r->index].used = ++r->pool->clock;
        Status s = finish(r, &r->loading, x->error);
        if (s != OK) drop(r);
        return s;
    }
    int run = r->layout.run_of[block];
    if (!run || x->rehearsal) return OK;
    int slot = slot_of(run);
    TRY(fetch(r, run, x->error));
    Status s = finish(r, &r->slot[slot].loading, x->error);
    if (s != OK) r->slot[slot].run = 0;
    TRY(s);
    int next = next_run(r, run);
    return next && slot_of(next) != slot ? fetch(r, next, x->error) : OK;
}

static Status leave(Exec *x, int block) {
    Residency *r = x->residency;
    if (!r || x->dry || x->rehearsal || block == WEIGHTS_PART || !r->layout.run_of[block]) return OK;
    int run = r->layout.run_of[block], next = next_run(r, run);
    return next && next != run ? fetch(r, next, x->error) : OK; /* an odd count ends and begins in one slot */
}

Status weights_enter(Exec *x, int block) { return exec_blame(x, enter(x, block)); }
Status weights_leave(Exec *x, int block) { return exec_blame(x, leave(x, block)); }

bool weights_static(const Exec *x) {
    const Residency *r = x->residency;
    return !r || (r->layout.runs <= 1 && (x->dry || (r->pool->occupant[r->index].in && !r->loading)));
}
