/* report.c - see report.h. Gathers once (Measured, Count), then writes either form from it.
 * Easy to get wrong: an implementation belongs to the table that its name begins with: "cuda", "cuda_sm90_x". */
#include "report.h"

#include "cli.h"
#include "core/device_cuda.h"
#include "gate.h"
#include "graph.h"
#include "kernels/tune_cuda.h"
#include "model.h"
#include "optimes.h"
#include "plan.h"
#include "profile.h"
#include "uses.h"
#include "verdicts.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <sys/resource.h>

/* --- what happened --- */

typedef struct Measured {
    size_t host;                 /* most resident bytes of the process, mapped files included */
    bool gpu;
    size_t ranges, beside, peak; /* most bytes of our ranges; in use beside them at the end; both */
    size_t total;
} Measured;

/* ru_maxrss of a process that another one started begins at that one's size: asked last. */
size_t report_host_peak(void) {
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && !kib && fgets(line, sizeof line, f)) sscanf(line, "VmHWM: %llu kB", &kib);
    if (f) fclose(f);
    if (kib) return (size_t)kib * 1024;
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (size_t)usage.ru_maxrss * 1024;
}

static Measured measure(const PipelineFacts *f) {
    Measured m = {0};
    CudaInfo info;
    m.host = report_host_peak();
    m.gpu = device_cuda_info(f->device, &info);
    if (!m.gpu) return m;
    size_t used = info.total - info.free;
    m.ranges = info.mapped_peak;
    m.beside = used > info.mapped ? used - info.mapped : 0;
    m.peak = m.ranges + m.beside;
    m.total = info.total;
    return m;
}

/* One op of one part by one implementation. */
typedef struct Count {
    const char *part;
    OpId op;
    const Impl *impl;
    int signatures;
    uint64_t count;
} Count;

enum { COUNTS = MODEL_MAX_PARTS * OP_COUNT };
typedef struct Counts {
    Count row[COUNTS];
    int rows;
    uint64_t cpu, cuda;
} Counts;

static void add_call(Counts *c, const char *part, const Call *call) {
    int i = 0;
    while (i < c->rows && (c->row[i].part != part || c->row[i].impl != call->impl)) i++;
    if (i == COUNTS || !call->count) return;
    if (i == c->rows) c->row[c->rows++] = (Count){.part = part, .op = call->op, .impl = call->impl};
    c->row[i].signatures++;
    c->row[i].count += call->count;
    if (!strncmp(call->impl->name, "cuda", 4)) c->cuda += call->count;
    else c->cpu += call->count;
}

static int by_place(const void *a, const void *b) {
    const Count *x = a, *y = b;
    return x->op != y->op ? (int)x->op - (int)y->op : strcmp(x->impl->name, y->impl->name);
}

static Counts *count_calls(const PipelineFacts *f, Error *e) {
    Counts *c = calloc(1, sizeof *c);
    if (!c) {
        fail(e, ERR_MEMORY, "out of memory for the report");
        return NULL;
    }
    for (int p = 0; p < f->model->parts; p++) {
        const Part *part = &f->model->part[p];
        int first = c->rows;
        for (size_t i = 0; i < part->past.capacity; i++)
            if (part->past.slot[i].impl) add_call(c, part->name, &part->past.slot[i]);
        if (c->rows > first) qsort(c->row + first, (size_t)(c->rows - first), sizeof *c->row, by_place);
    }
    return c;
}

/* A family that leaves roundings out, mounted in the last job; NULL: none. */
static const char *rounding_family(const Model *m) {
    for (int p = 0; p < m->parts; p++)
        for (int i = 0; i < m->part[p].fusion.mounts; i++) {
            const Mount *mount = &m->part[p].fusion.mount[i];
            if (mount->chosen && mount->family->promise == BOUNDED) return mount->family->name;
        }
    return NULL;
}

static void bits_text(const Profile *p, const Model *m, char *text, size_t size) {
    char why[64];
    const char *family = rounding_family(m);
    if (family) snprintf(text, size, "not proven (quality high: %s)", family);
    else if (m->unproven) snprintf(text, size, "not proven (%s)", m->unproven);
    else if (profile_bits(p, why, sizeof why)) snprintf(text, size, "proven");
    else snprintf(text, size, "not proven (%s)", why);
}

/* Why a step was not replayed that might have been; NULL: all that could were. */
static const char *no_replay(const Graphs *g) {
    if (g->stats.why[0]) return g->stats.why;
    return g->stats.replayed ? NULL : "no step came twice";
}

/* --- JSON --- */

static cJSON *object(cJSON *in, const char *key) { return cJSON_AddObjectToObject(in, key); }
static void number(cJSON *in, const char *key, double v) { cJSON_AddNumberToObject(in, key, v); }
static void text(cJSON *in, const char *key, const char *v) { cJSON_AddStringToObject(in, key, v); }

static void version(cJSON *in, const char *key, int v) {
    char t[32];
    snprintf(t, sizeof t, "%d.%d.%d", v / 10000, v % 10000 / 100, v % 100);
    text(in, key, t);
}

static void cuda_version(cJSON *in, const char *key, int v) {
    char t[32];
    snprintf(t, sizeof t, "%d.%d", v / 1000, v % 1000 / 10);
    text(in, key, t);
}

static void add_profile(cJSON *o, const Profile *p, const Model *m) {
    char line[PROFILE_TEXT], bits[96];
    profile_text(p, line);
    bits_text(p, m, bits, sizeof bits);
    text(o, "device", p->device);
    text(o, "profile", line);
    text(o, "bits", bits);
    cJSON *v = object(o, "versions");
    text(v, "ditto", CLI_VERSION);
    if (!p->sm) {
        text(v, "blas", p->blas);
        return;
    }
    text(o, "gpu", p->gpu);
    number(o, "sm", p->sm);
    cuda_version(v, "cuda_driver", p->driver);
    cuda_version(v, "cuda_runtime", p->runtime);
    version(v, "cublas", p->cublas);
    version(v, "cudnn", p->cudnn);
}

static void add_calls(cJSON *o, const Counts *c) {
    cJSON *calls = object(o, "calls"), *rows;
    number(calls, "cpu", (double)c->cpu);
    number(calls, "cuda", (double)c->cuda);
    rows = cJSON_AddArrayToObject(calls, "ops");
    for (int i = 0; rows && i < c->rows; i++) {
        cJSON *row = cJSON_CreateObject();
        text(row, "part", c->row[i].part);
        text(row, "op", ops_info(c->row[i].op)->name);
        text(row, "impl", c->row[i].impl->name);
        number(row, "signatures", c->row[i].signatures);
        number(row, "count", (double)c->row[i].count);
        cJSON_AddItemToArray(rows, row);
    }
}

static void add_families(cJSON *o, const Model *m) {
    cJSON *rows = cJSON_AddArrayToObject(o, "families");
    for (int p = 0; rows && p < m->parts; p++)
        for (int i = 0; i < m->part[p].fusion.mounts; i++) {
            const Mount *mount = uses_mount(&m->part[p], i);
            if (!mount) continue;
            cJSON *row = cJSON_CreateObject();
            text(row, "part", m->part[p].name);
            text(row, "family", mount->family->name);
            text(row, "promise", mount->family->promise == EXACT ? "EXACT" : "BOUNDED");
            cJSON_AddBoolToObject(row, "mounted", mount->chosen);
            if (!mount->chosen) text(row, "why", mount->why);
            cJSON_AddItemToArray(rows, row);
        }
}

static const char *mode_text(const Plan *p, const PlanPart *part) {
    static const char *const NAMES[] = {[PLAN_KEEP] = "KEEP", [PLAN_SWAP] = "SWAP", [PLAN_STREAM] = "STREAM"};
    return p->maps ? "mapped" : NAMES[part->mode];
}

static void add_memory(cJSON *o, const PipelineFacts *f, const Measured *m) {
    const Plan *p = f->plan;
    cJSON *memory = object(o, "memory"), *plan = object(memory, "plan"), *parts = cJSON_AddArrayToObject(plan, "parts");
    for (int i = 0; parts && i < p->parts; i++) {
        const PlanPart *part = &p->part[i];
        cJSON *row = cJSON_CreateObject();
        text(row, "name", part->name);
        text(row, "residency", mode_text(p, part));
        number(row, "bytes", (double)part->region);
        number(row, "whole", (double)part->whole);
        number(row, "mapped", (double)part->mapped);
        number(row, "blocks", part->blocks);
        number(row, "streamed", part->streamed);
        cJSON_AddItemToArray(parts, row);
    }
    number(plan, "work", (double)p->work);
    number(plan, "scratch", (double)p->scratch);
    number(plan, "libraries", (double)p->held);
    number(plan, "peak", (double)plan_peak(p));
    if (p->limit != SIZE_MAX) number(plan, "limit", (double)p->limit);
    cJSON *measured = object(memory, "measured");
    number(measured, "weights", (double)f->pool->peak);
    number(measured, "work", (double)f->work->peak);
    number(measured, "scratch", (double)f->scratch->peak);
    number(measured, "host_peak", (double)m->host);
    if (m->gpu) {
        number(measured, "device_ranges", (double)m->ranges);
        number(measured, "device_beside", (double)m->beside);
        number(measured, "device_peak", (double)m->peak);
        number(measured, "device_total", (double)m->total);
    }
    number(measured, "uploads", (double)f->pool->uploads);
    number(measured, "uploaded", (double)f->pool->bytes);
}

static void add_first_sight(cJSON *o, const PipelineFacts *f) {
    const Verdicts *v = f->gate->verdicts;
    cJSON *sight = object(o, "first_sight");
    number(sight, "looked", (double)f->gate->looks);
    number(sight, "believed", v ? v->believed : 0);
    number(sight, "written", v ? v->found - v->fresh.count : 0);
    if (f->no_verdicts[0]) text(sight, "why_not", f->no_verdicts);
    if (v && v->unsaved[0]) text(sight, "unsaved", v->unsaved);
}

static void add_replay(cJSON *o, const Graphs *g) {
    cJSON *replay = object(o, "replay");
    cJSON_AddBoolToObject(replay, "used", g->stats.replayed != 0);
    number(replay, "graphs", g->count);
    number(replay, "captured", (double)g->stats.captured);
    number(replay, "steps", (double)g->stats.replayed);
    number(replay, "call_by_call", (double)g->stats.eager);
    if (no_replay(g)) text(replay, "why_not", no_replay(g));
}

static void add_pictures(cJSON *o, const Report *r) {
    cJSON *seconds = object(o, "seconds"), *list = cJSON_AddArrayToObject(o, "pictures");
    number(seconds, "open", r->open);
    number(seconds, "all", r->all);
    for (int i = 0; list && i < r->count; i++) {
        const ReportPicture *p = &r->picture[i];
        cJSON *row = cJSON_CreateObject();
        char seed[24];
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)p->seed);
        text(row, "path", cli_utf8_fault(p->path) < 0 ? p->path : "(not UTF-8)");
        text(row, "seed", seed);
        cJSON *s = object(row, "seconds");
        number(s, "plan", p->plan);
        number(s, "text", p->text);
        number(s, "denoise", p->denoise);
        number(s, "decode", p->decode);
        number(s, "write", p->write);
        cJSON_AddItemToArray(list, row);
    }
}

Status report_json(const Report *r, const Pipeline *p, char **out, Error *e) {
    PipelineFacts f = pipeline_facts(p);
    Measured m = measure(&f); /* before anything more is loaded */
    Profile profile;
    *out = NULL;
    TRY(pipeline_profile(p, &profile, e));
    Counts *counts = count_calls(&f, e);
    if (!counts) return ERR_MEMORY;
    char *parameters = meta_json(r->meta, NULL, NULL);
    cJSON *o = cJSON_CreateObject();
    add_profile(o, &profile, f.model);
    if (parameters) cJSON_AddRawToObject(o, "parameters", parameters);
    add_pictures(o, r);
    add_calls(o, counts);
    number(o, "tuned_products", tune_cuda_used(f.cuda));
    if (r->ops) cJSON_AddItemToObject(o, "op_times", optimes_json(r->ops));
    add_families(o, f.model);
    add_first_sight(o, &f);
    if (f.plan) add_memory(o, &f, &m);
    add_replay(o, f.graphs);
    *out = parameters ? cJSON_Print(o) : NULL;
    cJSON_Delete(o);
    free(parameters);
    free(counts);
    return *out ? OK : fail(e, ERR_MEMORY, "out of memory for the report");
}

/* --- text --- */

static double mib(size_t n) { return (double)n / 0x1p20; }

static void explain_memory(const PipelineFacts *f, const Measured *m, FILE *out) {
    plan_explain(f->plan, out);
    if (m->gpu)
        fprintf(out, "memory         on the device %.1f MiB, planned %.1f (ranges %.1f, beside them %.1f); host %.1f MiB\n",
                mib(m->peak), mib(plan_peak(f->plan)), mib(m->ranges), mib(m->beside), mib(m->host));
    else
        fprintf(out, "memory         %.1f MiB, planned %.1f\n", mib(m->host), mib(plan_peak(f->plan)));
    const Graphs *g = f->graphs;
    if (g->stats.replayed)
        fprintf(out, "replay         %llu of %llu steps, %llu graphs captured%s%s\n", (unsigned long long)g->stats.replayed,
                (unsigned long long)(g->stats.replayed + g->stats.eager), (unsigned long long)g->stats.captured,
                no_replay(g) ? "; some not: " : "", no_replay(g) ? no_replay(g) : "");
    else
        fprintf(out, "replay         no: %s\n", no_replay(g));
}

static void explain_first_sight(const PipelineFacts *f, FILE *out) {
    const Verdicts *v = f->gate->verdicts;
    fprintf(out, "first sight    %llu signatures compared", (unsigned long long)f->gate->looks);
    if (v) fprintf(out, ", %d believed, %d written to %s", v->believed, v->found - v->fresh.count, v->path);
    fprintf(out, "%s%s\n", f->no_verdicts[0] ? "; verdicts of earlier runs are not used: " : "", f->no_verdicts);
    if (v && v->unsaved[0]) fprintf(out, "               %s\n", v->unsaved);
}

Status report_explain(const Pipeline *p, FILE *out, Error *e) {
    PipelineFacts f = pipeline_facts(p);
    Measured m = measure(&f);
    Profile profile;
    char line[PROFILE_TEXT], bits[96];
    TRY(pipeline_profile(p, &profile, e));
    profile_text(&profile, line);
    bits_text(&profile, f.model, bits, sizeof bits);
    fprintf(out, "profile        %s%s%s\nbits           %s\n", line, profile.sm ? ", " : "", profile.gpu, bits);
    if (!f.plan) return OK;
    Counts *c = count_calls(&f, e);
    if (!c) return ERR_MEMORY;
    uses_explain(f.model, out);
    explain_first_sight(&f, out);
    explain_memory(&f, &m, out);
    fprintf(out, "operations     %llu on the cpu table, %llu on the cuda table\n", (unsigned long long)c->cpu,
            (unsigned long long)c->cuda);
    for (int i = 0; i < c->rows; i++)
        fprintf(out, "  %-16s %-18s %-16s %8llu\n", c->row[i].part, ops_info(c->row[i].op)->name, c->row[i].impl->name,
                (unsigned long long)c->row[i].count);
    free(c);
    return OK;
}
