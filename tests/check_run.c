/* check_run.c - see check_run.h. The runs of one case: poison, upload, run, download, compare.
 *
 * Nothing here reads device memory except through Device.download. */
#include "check_run.h"

#include "core/device_cuda.h"
#include "kernels/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { RUNS = 3 }; /* thread counts: default, 1, 2 */
static const size_t CASE_BYTES = (size_t)512 << 20, SCRATCH_BYTES = (size_t)512 << 20;

/* --- backends --- */

const char *run_backend(int i) { return i ? "cuda" : "cpu"; }

static void table_of(int backend, Ops *ops) {
    Ops own;
    int families;
    const Family *family = registry_families(backend != 0, &families);
    if (backend)
        ops_cuda(&own);
    else
        ops_cpu(&own);
    *ops = (Ops){0};
    for (int i = 0; i < families; i++) ops_append(ops, family[i].impl, family[i].count);
    for (int op = 0; op < OP_COUNT; op++)
        for (int i = 0; i < own.count[op]; i++) ops_append(ops, own.impl[op][i], 1);
}

const Family *run_family(const Session *t, OpId op, int variant) {
    int families;
    const Family *family = registry_families(t->cuda != NULL, &families);
    for (int i = 0; i < families; i++)
        for (int v = 0; v < family[i].count; v++)
            if (&family[i].impl[v] == t->ops.impl[op][variant]) return &family[i];
    return NULL;
}

int run_variants(int backend, OpId op) {
    Ops ops;
    table_of(backend, &ops);
    return ops.count[op];
}

Status run_open(Session *t, int backend, int threads) {
    *t = (Session){.backend = run_backend(backend), .threads = threads};
    table_of(backend, &t->ops);
    if (backend) {
        TRY(device_cuda_open(&t->device, &t->error));
        TRY(cuda_open(&t->device, &t->cuda, &t->error));
#ifdef HAVE_CUDA
        t->cuda->takes_all = true;
#endif
    } else {
        t->device = device_cpu();
        TRY(unary_open(&t->unary, &t->error));
    }
    TRY(arena_open(&t->memory, &t->device, "case", CASE_BYTES, &t->error));
    return arena_open(&t->scratch, &t->device, "scratch", SCRATCH_BYTES, &t->error);
}

void run_close(Session *t) {
    arena_close(&t->memory);
    arena_close(&t->scratch);
    calls_free(&t->calls);
    unary_close(&t->unary);
    if (t->cuda) {
        cuda_close(t->cuda);
        device_cuda_close(&t->device);
    }
}

static void set_threads(int n) {
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
}

int run_default_threads(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

/* --- one run --- */

static size_t scratch_of(const Impl *impl, const Exec *x, const void *args) { return impl->scratch ? impl->scratch(x, args) : 0; }

/* The variant alone; the reference stands behind it, for shapes that it hands over, unless that needs more scratch than the
 * variant declares. */
void run_choose(Session *t, OpId op, DType dtype, int variant, const void *args) {
    const Impl *impl = t->ops.impl[op][variant], *reference = ops_reference(&t->ops, op);
    t->only = t->ops;
    for (int other = 0; other < OP_COUNT; other++) { /* the twin may need other ops: what they mean, no family's variants */
        if (!t->only.count[other]) continue;
        t->only.impl[other][0] = ops_reference(&t->ops, (OpId)other);
        t->only.count[other] = 1;
    }
    t->only.impl[op][0] = impl;
    t->only.impl[op][1] = reference;
    t->x = (Exec){.ops = &t->only,
                  .device = &t->device,
                  .calls = &t->calls,
                  .work = &t->memory,
                  .scratch = &t->scratch,
                  .error = &t->error,
                  .dtype = dtype,
                  .unary = t->cuda ? NULL : &t->unary,
                  .cuda = t->cuda};
    t->only.count[op] = 2;
    t->only.count[op] = 1 + (reference != impl && scratch_of(reference, &t->x, args) <= scratch_of(impl, &t->x, args));
}

bool run_refuses(Session *t, const Case *c, int variant, char *why, size_t size) {
    const Impl *impl = t->ops.impl[c->op][variant];
    return impl->accepts && !impl->accepts(&c->args, why, size);
}

static Status place(Session *t, Case *c) {
    arena_reset(&t->memory, 0);
    for (int k = 0; k < c->count; k++) {
        Buf *b = &c->buf[k];
        char *base = arena_push(&t->memory, b->bytes);
        if (!base) return fail(&t->error, ERR_MEMORY, "the case needs more than %zu bytes", CASE_BYTES);
        b->view.data = base + b->lead;
        for (int s = 0; s < CHECK_SLOTS; s++)
            if (b->slot[s]) b->slot[s]->data = (char *)b->view.data + b->offset[s];
        TRY(t->device.upload(&t->device, base, b->image, b->bytes, &t->error));
    }
    return OK;
}

static Status fetch(Session *t, const Case *c) {
    for (int k = 0; k < c->count; k++) {
        const Buf *b = &c->buf[k];
        TRY(t->device.download(&t->device, b->after, (char *)b->view.data - b->lead, b->bytes, &t->error));
    }
    return OK;
}

#define WRONG(...) return snprintf(text, size, __VA_ARGS__), false

static bool untouched(const Case *c, bool dry, const char *when, char *text, size_t size) {
    for (int k = 0; k < c->count; k++) {
        const Buf *b = &c->buf[k];
        if (dry && memcmp(b->after, b->image, b->bytes)) WRONG("the dry run wrote %s", b->name);
        if (!check_outside_equal(b, b->after))
            WRONG("%s: %s %s", when, b->name,
                  b->out ? "was written outside its elements" : "is an input and was changed");
    }
    return true;
}

static bool refused(Session *t, const Case *c, Status got, char *text, size_t size) {
    if (got != c->status) WRONG("status %d (%.150s), expected %d", got, t->error.text, c->status);
    if (c->refusal && !strstr(t->error.text, c->refusal))
        WRONG("the message \"%.150s\" does not say \"%s\"", t->error.text, c->refusal);
    return true;
}

static bool same_bits(const Buf *b, const float *other) {
    float *now = malloc((size_t)b->n * sizeof *now + 1);
    if (!now) exit(99);
    check_gather(b, b->after, now);
    bool same = true;
    for (int64_t i = 0; i < b->n && same; i++) /* NaN payloads differ between devices and mean nothing */
        same = !memcmp(&now[i], &other[i], sizeof *now) || (now[i] != now[i] && other[i] != other[i]) ||
               (b->skipped && b->skipped[i] == CHECK_OPEN);
    free(now);
    return same;
}

static bool same_outputs(const Case *c, float *const *other, const char *what, char *text, size_t size) {
    for (int k = 0; k < c->count; k++)
        if (c->buf[k].out && !same_bits(&c->buf[k], other[k]))
            WRONG("%s: %s differs in its bits", what, c->buf[k].name);
    return true;
}

/* --- scratch: what a variant declares is what it may use --- */

static size_t declared_scratch(Session *t, const Case *c) {
    const Impl *impl = t->only.impl[c->op][0];
    size_t bytes = impl->scratch ? impl->scratch(&t->x, &c->args) : 0;
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

static Status guard_scratch(Session *t, size_t declared) {
    char guard[CHECK_GUARD];
    memset(guard, 0xc3, sizeof guard);
    return t->device.upload(&t->device, t->scratch.base + declared, guard, sizeof guard, &t->error);
}

static bool scratch_kept(Session *t, size_t declared, char *text, size_t size) {
    char guard[CHECK_GUARD];
    if (t->scratch.peak > declared)
        WRONG("used %zu bytes of scratch, declared %zu", t->scratch.peak, declared);
    if (t->device.download(&t->device, guard, t->scratch.base + declared, sizeof guard, &t->error) != OK)
        WRONG("%.200s", t->error.text);
    for (size_t i = 0; i < sizeof guard; i++)
        if (guard[i] != (char)0xc3) WRONG("wrote behind the %zu bytes of scratch it declared", declared);
    return true;
}

bool run_checks(Session *t, Case *c, int variant, float **reference, char *text, size_t size) {
    const int threads[RUNS] = {t->threads, 1, 2}, poison[RUNS] = {0x5a, 0xa5, 0x3c};
    bool is_reference = variant == t->ops.count[c->op] - 1;
    const Family *family = run_family(t, c->op, variant);
    bool exact = family ? family->promise == EXACT : ops_info(c->op)->promise == EXACT;
    float *first[CHECK_BUFS] = {0};
    run_choose(t, c->op, c->args.first.dtype, variant, &c->args);
    for (int k = 0; k < c->count; k++) {
        if (!c->buf[k].after) c->buf[k].after = check_alloc(c, c->buf[k].bytes);
        if (c->buf[k].out) first[k] = check_alloc(c, (size_t)c->buf[k].n * sizeof(float));
    }
    for (int run = -1; run < RUNS + (c->twin != NULL); run++) {
        bool dry = run < 0, twin = run == RUNS;
        check_images(c, poison[dry || twin ? 0 : run]);
        t->error = (Error){0};
        if (place(t, c) != OK) WRONG("%.200s", t->error.text);
        set_threads(dry || twin ? t->threads : threads[run]);
        calls_free(&t->calls); /* scratch depends on the thread count: resolve again */
        t->x.dry = dry;
        t->scratch.peak = 0;
        size_t declared = declared_scratch(t, c);
        if (guard_scratch(t, declared) != OK) WRONG("%.200s", t->error.text);
        Status got = twin ? c->twin(&t->x, &c->args) : op_run(&t->x, c->op, &c->args);
        if (c->status != OK && dry) continue;
        if (c->status != OK) return refused(t, c, got, text, size);
        if (got != OK || fetch(t, c) != OK) WRONG("%.200s", t->error.text);
        if (!untouched(c, dry, twin ? "twin" : "run", text, size)) return false;
        if (twin) return same_outputs(c, first, "against the chain of ops", text, size);
        if (!scratch_kept(t, declared, text, size)) return false;
        if (calls_count(&t->calls, c->op) != !dry) WRONG("the dispatch counter did not count the run");
        if (dry) continue;
        for (int k = 0; run == 0 && k < c->count; k++) {
            if (!c->buf[k].out) continue;
            if (!check_judge(&c->buf[k], c->buf[k].after, text, size)) return false;
            check_gather(&c->buf[k], c->buf[k].after, first[k]);
            if (is_reference) reference[k] = first[k];
        }
        char what[48];
        snprintf(what, sizeof what, "run with %d threads against the first", threads[run]);
        if (run && !same_outputs(c, first, what, text, size)) return false;
        if (!run && !is_reference && exact &&
            !same_outputs(c, reference, "against the table's reference", text, size))
            return false;
    }
    return true;
}
