/* device_graph.h - a device over host memory that can record launches and replay them, as a GPU's graphs do. For tests.
 *
 * It is device_test.h's device, and a table whose variants run those of the CPU table, unless the device is recording: then
 * the variant, its arguments and the Exec are copied, weights too, for a graph holds addresses and never asks the model
 * again. A replay runs the copies. Counters tell what really ran.
 * Easy to get wrong: what is recorded must not have run, and what is replayed must not look at anything but its copies. */
#ifndef DEVICE_GRAPH_H
#define DEVICE_GRAPH_H

#include "device_test.h"
#include "kernels/registry.h"
#include "model.h"
#include "slice.h"

enum { FAKE_LAUNCHES = 4096, FAKE_WEIGHTS = LINEAR_MANY_MAX };

typedef struct FakeLaunch {
    const Impl *impl;
    Args args;
    Weight weight[FAKE_WEIGHTS];
    Exec x;
    Arena scratch; /* where it was to take its own from */
} FakeLaunch;

struct DeviceGraph {
    FakeLaunch *launch;
    int count;
};

/* What goes wrong, and when. */
typedef enum FakeFault {
    FAKE_WELL,
    FAKE_NO_BEGIN,     /* capture_begin fails */
    FAKE_NO_LAUNCH,    /* a launch cannot be recorded */
    FAKE_NO_END,       /* capture_end fails */
    FAKE_NO_REPLAY,
    FAKE_INTERRUPTS,   /* *interrupt is set by the first launch that is recorded */
} FakeFault;

typedef struct Fake {
    TestDevice memory;
    DeviceGraph *recording; /* NULL: launches run */
    FakeFault fault;
    int *interrupt;
    bool poison;       /* attention puts out NaN */
    int captures, replays, freed, thrown; /* graphs handed out, launched, freed; recordings thrown away */
    int strayed;       /* copies between host and device while recording */
    uint64_t run[OP_COUNT]; /* variants that really ran */
    Ops real;          /* the CPU table */
    Impl wrapped[OP_COUNT];
} Fake;

static Fake fake; /* lint: allow-static (test program) */

static inline Status fake_execute(const Impl *impl, Exec *x, const void *args) {
    fake.run[impl->op]++;
    TRY(impl->run(x, args));
    const Tensor *y = args;
    if (fake.poison && impl->op == OP_attention) memset(y->data, 0xff, dtype_size(y->dtype));
    return OK;
}

/* What a variant of the table does: run, or be recorded. */
static inline Status fake_launch(const Impl *impl, Exec *x, const void *args) {
    DeviceGraph *g = fake.recording;
    if (!g) return fake_execute(impl, x, args);
    if (fake.fault == FAKE_INTERRUPTS) *fake.interrupt = 1;
    if (fake.fault == FAKE_NO_LAUNCH && g->count == 20) return fail(x->error, ERR_DEVICE, "fake: cannot be recorded");
    if (g->count == FAKE_LAUNCHES) abort();
    FakeLaunch *l = &g->launch[g->count++];
    *l = (FakeLaunch){.impl = impl, .args = slice_copy(impl->op, args), .x = *x, .scratch = *x->scratch};
    for (int i = 0; i < ops_info(impl->op)->weights; i++) {
        const Weight *w = slice_weight(impl->op, &l->args, i);
        if (w) l->weight[i] = *w;
    }
    return OK;
}

#define X(name, args, no, ni, nw, ns, promise)                                                           \
    static inline Status fake_op_##name(Exec *x, const void *a) { return fake_launch(fake.real.impl[OP_##name][0], x, a); }
OPS(X)
#undef X

static inline Status fake_begin(Device *d, Error *e) {
    (void)d;
    if (fake.fault == FAKE_NO_BEGIN) return fail(e, ERR_DEVICE, "fake: recording cannot begin");
    if (fake.recording || !(fake.recording = calloc(1, sizeof *fake.recording))) abort();
    if (!(fake.recording->launch = malloc(FAKE_LAUNCHES * sizeof *fake.recording->launch))) abort();
    return OK;
}

static inline void fake_free(Device *d, DeviceGraph *g) {
    (void)d;
    free(g->launch);
    free(g);
    fake.freed++;
}

static inline Status fake_end(Device *d, DeviceGraph **out, Error *e) {
    DeviceGraph *g = fake.recording;
    fake.recording = NULL;
    if (out && fake.fault != FAKE_NO_END) {
        *out = g;
        fake.captures++;
        return OK;
    }
    fake_free(d, g);
    fake.freed--, fake.thrown++;
    return fake.fault == FAKE_NO_END ? fail(e, ERR_MEMORY, "fake: no memory for the graph") : OK;
}

static inline Status fake_replay(Device *d, DeviceGraph *g, Error *e) {
    (void)d;
    if (fake.fault == FAKE_NO_REPLAY) return fail(e, ERR_DEVICE, "fake: replay failed");
    for (int i = 0; i < g->count; i++) {
        FakeLaunch *l = &g->launch[i];
        Args args = l->args;
        Exec x = l->x;
        Arena scratch = l->scratch;
        x.error = e;
        x.scratch = &scratch;
        x.rehearsal = NULL;
        for (int k = 0; k < ops_info(l->impl->op)->weights; k++)
            if (slice_weight(l->impl->op, &args, k)) slice_set_weight(l->impl->op, &args, k, &l->weight[k]);
        TRY(fake_execute(l->impl, &x, &args));
    }
    fake.replays++;
    return OK;
}

static inline Status fake_copy(Device *d, void *to, const void *from, size_t size, Error *e) {
    fake.strayed += fake.recording != NULL;
    return test_copy(d, to, from, size, e);
}

static inline Device fake_device(void) {
    fake = (Fake){0};
    Device d = test_device(&fake.memory, SIZE_MAX);
    d.name = "fake";
    d.upload = d.download = fake_copy;
    d.capture_begin = fake_begin, d.capture_end = fake_end, d.replay = fake_replay, d.graph_free = fake_free;
    ops_cpu(&fake.real);
#define X(op_name, args, no, ni, nw, ns, promise)                                                        \
    fake.wrapped[OP_##op_name] = *fake.real.impl[OP_##op_name][0];                                       \
    fake.wrapped[OP_##op_name].run = fake_op_##op_name;
    OPS(X)
#undef X
    return d;
}

/* The table of this device. */
static inline void fake_ops(Ops *ops) {
    *ops = (Ops){0};
    ops_append(ops, fake.wrapped, OP_COUNT);
}

#endif
