/* plan.c - see plan.h: the dry run and the decision. plan_print.c prints it. */
#include "plan.h"

#include "job.h"

#include <unistd.h>

static const size_t DRY_CAPACITY = (size_t)1 << 42;

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

static size_t resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long total = 0, resident = 0;
    if (f) {
        if (fscanf(f, "%lu %lu", &total, &resident) != 2) resident = 0;
        fclose(f);
    }
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* --- streaming --- */

/* Region size with these blocks in the slots. */
static size_t streamed_size(const Layout *l, const bool *stream) {
    size_t size = l->whole, slot = 0;
    for (int b = 0; b < l->blocks; b++) {
        if (!stream[b]) continue;
        size -= l->block_size[b];
        if (l->block_size[b] > slot) slot = l->block_size[b];
    }
    return size + 2 * slot;
}

static size_t streamed_bytes(const Layout *l, const bool *stream) {
    size_t n = 0;
    for (int b = 0; b < l->blocks; b++) n += stream[b] ? l->block_size[b] : 0;
    return n;
}

/* n of the blocks that are no larger than `largest`, spread evenly, so that each upload has the same time. False when
 * there are fewer. */
static bool spread(const Layout *l, size_t largest, int n, bool stream[PLAN_BLOCKS]) {
    int eligible[PLAN_BLOCKS], count = 0;
    memset(stream, 0, PLAN_BLOCKS * sizeof *stream);
    for (int b = 0; b < l->blocks; b++)
        if (l->block_size[b] && l->block_size[b] <= largest) eligible[count++] = b;
    if (n > count) return false;
    for (int k = 0; k < n; k++) stream[eligible[(2 * k + 1) * count / (2 * n)]] = true;
    return true;
}

/* The fewest bytes per pass that make the part fit `room`; also the least region possible. Even counts are tried: the last
 * and the first block of a pass then lie in different slots. An odd one remains where all blocks must go. */
static void choose_stream(const Layout *l, size_t room, PlanPart *p) {
    bool trial[PLAN_BLOCKS];
    size_t best = SIZE_MAX;
    if (l->blocks > PLAN_BLOCKS) return;
    for (int s = 0; s < l->blocks; s++) {
        bool seen = !l->block_size[s];
        for (int b = 0; b < s; b++) seen |= l->block_size[b] == l->block_size[s];
        bool fitted = false;
        for (int n = 2; !seen && n <= l->blocks; n++) {
            bool more = spread(l, l->block_size[s], n + 1, trial);
            if (!spread(l, l->block_size[s], n, trial) || (n % 2 && more)) continue;
            size_t size = streamed_size(l, trial), bytes = streamed_bytes(l, trial);
            if (size < p->least) p->least = size;
            if (fitted || size > room) continue;
            fitted = true;
            if (bytes >= best) continue;
            best = bytes;
            p->region = size;
            p->streamed = n;
            memcpy(p->stream, trial, sizeof trial);
        }
    }
}

/* --- sharing --- */

size_t plan_room(const Plan *plan) {
    size_t fixed = plan->work + plan->scratch + plan->held;
    return plan->limit == SIZE_MAX ? SIZE_MAX : plan->limit > fixed ? plan->limit - fixed : 0;
}

/* The same prefetch and the same victims as in residency.c. */
static size_t simulate(const Plan *plan, const ResidencyPool *pool, size_t room) {
    Occupant o[MODEL_MAX_PARTS] = {0};
    size_t peak = 0;
    uint64_t clock = 0;
    for (int i = 0; i < plan->parts; i++) o[i].size = plan->part[i].region;
    for (int i = 0; i < pool->entries; i++) {
        Occupant *next = &o[pool->order[i]];
        size_t used = residency_occupied(o, plan->parts);
        if (!next->in && (used > room || next->size > room - used)) break;
        next->in = true;
    }
    for (int i = 0; i < pool->entries; i++) {
        Occupant *next = &o[pool->order[i]];
        size_t used = residency_occupied(o, plan->parts);
        if (used > peak) peak = used;
        for (int v; !next->in && next->size > room - used; used = residency_occupied(o, plan->parts)) {
            if ((v = residency_victim(o, plan->parts, pool->order[i])) < 0) break;
            o[v].in = false;
        }
        next->in = true;
        next->used = ++clock;
        used = residency_occupied(o, plan->parts);
        if (used > peak) peak = used;
    }
    return peak;
}

/* Parts that this job never enters (another one's image encoder) take no room in its plan. */
static void leave_out(Plan *plan, const ResidencyPool *pool) {
    bool entered[RESIDENCY_PARTS] = {0};
    if (pool->entries == RESIDENCY_ORDER) return; /* the record was cut short */
    for (int i = 0; i < pool->entries; i++) entered[pool->order[i]] = true;
    for (int i = 0; i < plan->parts; i++)
        if (!entered[i]) plan->part[i].whole = plan->part[i].mapped = 0, plan->part[i].unused = true;
}

static void decide(Plan *plan, const ResidencyPool *pool) {
    size_t unit = pool->device->granularity, room = plan_room(plan), all = 0, needed = 0;
    for (int i = 0; i < plan->parts; i++) all += plan->part[i].whole;
    for (int i = 0; i < plan->parts; i++) {
        PlanPart *p = &plan->part[i];
        p->least = p->region = p->whole;
        p->mode = all <= room ? PLAN_KEEP : PLAN_SWAP;
        /* the granules of a region must fit too */
        if (p->unused) continue;
        choose_stream(&pool->part[i].layout, all <= room || p->whole <= room ? 0 : room / unit * unit, p);
        if (p->streamed) p->mode = PLAN_STREAM;
        p->region = round_up(p->region, unit);
        p->least = round_up(p->least, unit);
        if (p->least > needed) needed = p->least;
    }
    size_t fixed = plan->work + plan->scratch + plan->held;
    plan->smallest = fixed + needed;
    plan->fits = plan->smallest <= plan->limit;
    plan->peak = fixed + simulate(plan, pool, room);
}

/* Leaves the arenas' peaks in plan. */
static Status dry_run(Model *m, ResidencyPool *pool, const Run *run, Recorder *recorder, const volatile int *interrupted,
                      Plan *plan, Error *e) {
    Device dry = device_dry();
    Arena work, scratch;
    TRY(arena_open(&work, &dry, "work", DRY_CAPACITY, e));
    Status s = arena_open(&scratch, &dry, "scratch", DRY_CAPACITY, e);
    if (s == OK) {
        Exec x = {.device = &dry, .work = &work, .scratch = &scratch, .error = e, .dry = true, .recorder = recorder,
                  .first = run->device_exec ? run->device_exec->first : NULL, .interrupted = interrupted};
        Media none = {0};
        pool->entries = 0;
        s = job_run(m, &x, run, &none);
        media_free(&none);
    }
    plan->work = work.peak;
    plan->scratch = scratch.peak;
    arena_close(&work);
    arena_close(&scratch);
    return s;
}

/* One way to decode, seen through: what a family is asked about is what the job will call. */
static Status size_one(Model *m, ResidencyPool *pool, const Run *run, const volatile int *interrupted, Plan *plan, Error *e) {
    size_t unit = pool->device->granularity;
    if (run->families) {
        Run plain = *run;
        plain.families = NULL;
        ModelRecorder recorder;
        model_record(m, &recorder);
        TRY(dry_run(m, pool, &plain, &recorder.base, interrupted, plan, e));
        TRY(model_mount(m, run->families, false, run->device_exec, e));
    }
    TRY(dry_run(m, pool, run, NULL, interrupted, plan, e));
    plan->work = round_up(plan->work, unit);
    plan->scratch = round_up(plan->scratch, unit);
    leave_out(plan, pool);
    decide(plan, pool);
    return OK;
}

Status plan_make(Model *m, ResidencyPool *pool, const Run *run, size_t vram, size_t room,
                 const volatile int *interrupted, Plan *plan, Error *e) {
    Device *d = pool->device;
    const Job *job = run->job;
    Plan empty = {.parts = pool->parts, .maps = d->maps, .given = vram && !d->maps, .held = d->held,
                  .process = resident_bytes() + (d->maps ? ops_cpu_resident() : 0),
                  .result = (size_t)job->frames * (size_t)job->width * (size_t)job->height * 3};
    empty.limit = d->maps || (!vram && room == SIZE_MAX) ? SIZE_MAX : vram ? vram : room + d->held;
    for (int i = 0; i < pool->parts; i++) {
        const Layout *l = &pool->part[i].layout;
        empty.part[i] = (PlanPart){.name = m->part[i].name, .blocks = l->blocks, .mapped = l->mapped,
                                   .whole = round_up(l->whole, d->granularity)};
    }
    Run trial = *run;
    *plan = empty; /* also when a run fails */
    for (trial.thrift = 0; trial.thrift <= m->ops->thrifts; trial.thrift++) {
        *plan = empty;
        plan->thrift = trial.thrift;
        TRY(size_one(m, pool, &trial, interrupted, plan, e));
        if (plan->fits) break;
    }
    return OK;
}
