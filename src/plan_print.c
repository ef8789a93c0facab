/* plan_print.c - what a plan says of itself: the memory table of a dry run, residency, and the refusal of a job that does
 * not fit. Sizes in the table are MiB, in messages GiB; both binary. */
#include "plan.h"

#include <unistd.h>

static double mib(size_t n) { return (double)n / 0x1p20; }
static double gib(size_t n) { return (double)n / 0x1p30; }

static size_t weights_bytes(const Plan *p) {
    size_t n = 0;
    for (int i = 0; i < p->parts; i++) n += p->part[i].region;
    return n;
}

/* On the host's own memory everything but mapped files counts against the machine's. */
static size_t host_anonymous(const Plan *p) { return p->work + p->scratch + p->result + weights_bytes(p); }

size_t plan_peak(const Plan *p) {
    size_t mapped = 0;
    for (int i = 0; i < p->parts; i++) mapped += p->part[i].mapped;
    return p->maps ? host_anonymous(p) + p->process + mapped : p->peak;
}

static void print_host(const Plan *p, FILE *out) {
    fprintf(out, "memory plan    part, copied MiB, mapped MiB\n");
    for (int i = 0; i < p->parts; i++) {
        if (p->part[i].unused) continue;
        fprintf(out, "  %-16s %10.1f %10.1f\n", p->part[i].name, mib(p->part[i].region), mib(p->part[i].mapped));
    }
    fprintf(out, "  %-16s %10.1f\n  %-16s %10.1f\n  %-16s %10.1f\n  %-16s %10.1f\n", "activations", mib(p->work), "scratch",
            mib(p->scratch), "picture", mib(p->result), "program", mib(p->process));
    fprintf(out, "  %-16s %10.1f\n", "peak", mib(plan_peak(p)));
}

static void print_device(const Plan *p, FILE *out) {
    fprintf(out, "memory plan    part, MiB on the device, MiB of weights\n");
    for (int i = 0; i < p->parts; i++) {
        if (p->part[i].unused) continue;
        fprintf(out, "  %-16s %10.1f %10.1f\n", p->part[i].name, mib(p->part[i].region), mib(p->part[i].whole));
    }
    fprintf(out, "  %-16s %10.1f\n  %-16s %10.1f\n  %-16s %10.1f\n  %-16s %10.1f\n", "activations", mib(p->work), "scratch",
            mib(p->scratch), "libraries", mib(p->held), "peak", mib(p->peak));
    if (p->limit != SIZE_MAX)
        fprintf(out, "  %-16s %10.1f %s\n", "limit", mib(p->limit), p->given ? "(--vram)" : "(free memory)");
}

void plan_explain(const Plan *p, FILE *out) {
    if (p->thrift) fprintf(out, "decode         in smaller pieces (%d), to save memory\n", p->thrift);
    if (p->maps) {
        fprintf(out, "residency      none: matrices are read where their files are mapped\n");
        return;
    }
    for (int i = 0; i < p->parts; i++) {
        const PlanPart *part = &p->part[i];
        if (part->unused) continue;
        fprintf(out, "%-15s%-16s ", i ? "" : "residency", part->name);
        if (part->mode == PLAN_STREAM)
            fprintf(out, "STREAM(%d of %d blocks), %.1f of %.1f MiB at a time\n", part->streamed, part->blocks,
                    mib(part->region), mib(part->whole));
        else
            fprintf(out, "%s, %.1f MiB\n", part->mode == PLAN_KEEP ? "KEEP" : "SWAP", mib(part->region));
    }
}

void plan_print(const Plan *p, FILE *out) {
    if (p->maps) print_host(p, out);
    else print_device(p, out);
    plan_explain(p, out);
}

/* --- the refusal --- */

static Status check_host(const Plan *p, Error *e) {
    size_t need = host_anonymous(p);
    size_t have = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (need <= have) return OK;
    return fail(e, ERR_MEMORY, "the plan needs %.2f GiB (work %.2f, scratch %.2f) beside mapped weights; this machine "
                "has %.2f GiB", gib(need), gib(p->work), gib(p->scratch), gib(have));
}

Status plan_check(const Plan *p, Error *e) {
    static const int CARDS[] = {4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 80, 96, 141, 180, 288}; /* GiB that are sold */
    if (p->maps) return check_host(p, e);
    if (p->fits) return OK;
    char text[900], card[40] = "no single card has that much";
    size_t used = 0;
    for (int i = 0; i < p->parts && used < sizeof text; i++) {
        const PlanPart *part = &p->part[i];
        if (part->unused) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s %.2f", part->name, gib(part->whole));
        if (part->least < part->whole && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, " (%.2f when streamed)", gib(part->least));
        if (used < sizeof text) used += (size_t)snprintf(text + used, sizeof text - used, ", ");
    }
    for (size_t i = sizeof CARDS / sizeof *CARDS; i-- > 0 && ((size_t)CARDS[i] << 30) >= p->smallest;)
        snprintf(card, sizeof card, "a card of %d GiB", CARDS[i]);
    size_t whole_mib = (p->smallest + (1 << 20) - 1) >> 20;
    return fail(e, ERR_MEMORY, "the job does not fit %.2f GiB of device memory (%s), not even with blocks streamed one by one. "
                "GiB: %sactivations %.2f, scratch %.2f, libraries %.2f. It needs %zu MiB: --vram %zuM, or %s", gib(p->limit),
                p->given ? "--vram" : "what is free", text, gib(p->work), gib(p->scratch), gib(p->held), whole_mib, whole_mib,
                card);
}
