/* ops.c - resolution of signatures to Calls, and the few things around a run that every op shares: the dry mode, the
 * scratch arena, the interrupt flag, absent memory. No arithmetic here, no device either.
 *
 * A signature is hashed (64 bits) from op, shapes, strides, dtypes, 16-byte alignment, weight storage and scalars;
 * pointers stay out, so a block's call is resolved once for all blocks of one shape. */
#include "ops.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define X(name, args, no, ni, nw, ns, promise)                                                           \
    _Static_assert(sizeof(args) == (((no) + (ni)) * sizeof(Tensor) + (nw) * sizeof(void *) + (ns) * 4 + 7) / 8 * 8, \
                   #args ": tensors first, then weights, then 4-byte scalars, as the OPS list counts them"); \
    _Static_assert(sizeof(args) <= OPS_ARGS, #args ": larger than OPS_ARGS");
OPS(X)
#undef X

static const OpInfo INFO[OP_COUNT] = {
#define X(name, args, no, ni, nw, ns, promise) [OP_##name] = {#name, no, ni, nw, ns, promise},
    OPS(X)
#undef X
};

static const size_t ARGS_SIZE[OP_COUNT] = {
#define X(name, args, no, ni, nw, ns, promise) [OP_##name] = sizeof(args),
    OPS(X)
#undef X
};

const OpInfo *ops_info(OpId op) { return &INFO[op]; }
size_t ops_args_size(OpId op) { return ARGS_SIZE[op]; }

const Impl *ops_reference(const Ops *ops, OpId op) {
    return ops->count[op] ? ops->impl[op][ops->count[op] - 1] : NULL;
}

void ops_append(Ops *ops, const Impl *impls, int count) {
    for (int i = 0; i < count; i++)
        if (ops->count[impls[i].op] < OPS_MAX_VARIANTS) ops->impl[impls[i].op][ops->count[impls[i].op]++] = &impls[i];
}

/* --- signatures --- */

static uint64_t mix(uint64_t h, uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdu;
    return h ^ (h >> 32);
}

/* Both halves of the product. */
static uint64_t fold(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 Wide;
    Wide p = (Wide)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* One chain of mixes over all numbers would take most of a call's time: dimensions are folded side by side. */
static const uint64_t ODD[TENSOR_MAX_RANK] = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu,
                                              0xd6e8feb86659fd93u, 0xa0761d6478bd642fu};

static uint64_t mix_tensor(uint64_t h, const Tensor *t) {
    uint64_t sum = (uint64_t)t->rank << 8 | (uint64_t)t->dtype;
    for (int d = 0; d < t->rank; d++) sum += fold((uint64_t)t->shape[d] ^ ODD[d], (uint64_t)t->stride[d] ^ ~ODD[d]);
    return mix(h, sum);
}

const struct Weight *ops_weight(OpId op, const void *args, int i) {
    const char *at = (const char *)args + (size_t)(INFO[op].outputs + INFO[op].inputs) * sizeof(Tensor);
    const struct Weight *w;
    memcpy(&w, at + (size_t)i * sizeof w, sizeof w);
    return w;
}

uint64_t ops_signature(OpId op, const void *args) {
    const OpInfo *info = &INFO[op];
    const Tensor *t = args;
    uint64_t h = (uint64_t)op + 1;
    for (int i = 0; i < info->outputs + info->inputs; i++) {
        h = mix_tensor(h, &t[i]);
        h = mix(h, ((uintptr_t)t[i].data & 15) == 0);
    }
    for (int i = 0; i < info->weights; i++) {
        const struct Weight *w = ops_weight(op, args, i);
        h = mix(h, w != NULL);
        if (!w) continue;
        h = mix_tensor(h, &w->w);
        h = mix(mix(h, (uint64_t)(w->bias.rank != 0)), (uint64_t)w->round);
    }
    const char *scalars = (const char *)args + (size_t)(info->outputs + info->inputs) * sizeof(Tensor) +
                          (size_t)info->weights * sizeof(void *);
    for (int i = 0; i < info->scalars; i++) {
        uint32_t v;
        memcpy(&v, scalars + 4 * i, 4);
        h = mix(h, v);
    }
    return h ? h : 1;
}

static Call *slot_for(Calls *calls, uint64_t key, uint32_t epoch) {
    size_t i = key & (calls->capacity - 1);
    while (calls->slot[i].impl && (calls->slot[i].key != key || calls->slot[i].epoch != epoch))
        i = (i + 1) & (calls->capacity - 1);
    return &calls->slot[i];
}

static Status grow(Calls *calls, Error *e) {
    Calls bigger = {.capacity = calls->capacity ? calls->capacity * 2 : 256, .used = calls->used};
    bigger.slot = calloc(bigger.capacity, sizeof *bigger.slot);
    if (!bigger.slot) return fail(e, ERR_MEMORY, "out of memory for %zu call signatures", bigger.capacity);
    for (size_t i = 0; i < calls->capacity; i++)
        if (calls->slot[i].impl) *slot_for(&bigger, calls->slot[i].key, calls->slot[i].epoch) = calls->slot[i];
    free(calls->slot);
    *calls = bigger;
    return OK;
}

void calls_free(Calls *calls) {
    free(calls->slot);
    *calls = (Calls){0};
}

Status calls_retire(Calls *calls, Calls *past, Error *e) {
    for (size_t i = 0; i < calls->capacity; i++) {
        const Call *call = &calls->slot[i];
        if (!call->impl || !call->count) continue;
        uint64_t key = mix(call->signature, (uintptr_t)call->impl);
        if (past->used * 2 >= past->capacity) TRY(grow(past, e));
        Call *sum = slot_for(past, key, 0);
        if (!sum->impl) {
            *sum = (Call){.key = key, .signature = call->signature, .impl = call->impl, .op = call->op};
            past->used++;
        }
        sum->count += call->count;
    }
    calls_free(calls);
    return OK;
}

uint64_t calls_count(const Calls *calls, OpId op) {
    uint64_t n = 0;
    for (size_t i = 0; i < calls->capacity; i++)
        if (calls->slot[i].impl && calls->slot[i].op == op) n += calls->slot[i].count;
    return n;
}

void calls_settle(Calls *calls, bool ran) {
    for (size_t i = 0; i < calls->capacity; i++) {
        if (ran) calls->slot[i].count += calls->slot[i].rehearsed;
        calls->slot[i].rehearsed = 0;
    }
}

/* What a call needs when this variant runs it, and when the reference has to take over. */
static size_t scratch_of(const Exec *x, const Call *call, const void *args) {
    const Impl *both[2] = {call->impl, ops_reference(x->ops, call->op)};
    size_t most = 0;
    for (int i = 0; i < 2; i++) {
        size_t n = both[i]->scratch ? both[i]->scratch(x, args) : 0;
        if (n > most) most = n;
    }
    return most;
}

static Status resolve(Exec *x, OpId op, const void *args, Call **out) {
    uint32_t epoch = x->ops->epoch;
    uint64_t signature = ops_signature(op, args), key = mix(signature, epoch);
    if (x->calls->used * 2 >= x->calls->capacity) TRY(grow(x->calls, x->error));
    Call *call = slot_for(x->calls, key, epoch);
    if (!call->impl) {
        char why[256] = "no implementation";
        for (int i = 0; i < x->ops->count[op] && !call->impl; i++) {
            const Impl *impl = x->ops->impl[op][i];
            if (impl->accepts && !impl->accepts(args, why, sizeof why)) continue;
            *call = (Call){.key = key, .signature = signature, .impl = impl, .op = op, .epoch = epoch};
            call->scratch = scratch_of(x, call, args);
            call->seen = !x->first || impl == ops_reference(x->ops, op);
            if (!call->seen) call->reserve = x->first->reserve(x->first, x, op, args, impl);
        }
        if (!call->impl) return fail(x->error, ERR_MODEL, "%s: %s", INFO[op].name, why);
        x->calls->used++;
    }
    *out = call;
    return OK;
}

/* A call whose first sight is over; looking at it may have changed the table. */
static Status resolve_seen(Exec *x, OpId op, const void *args, Call **out) {
    do {
        TRY(resolve(x, op, args, out));
        Call *call = *out;
        if (x->dry || x->rehearsal || call->seen) return OK;
        call->seen = true;
        if (call->reserve) TRY(x->first->look(x->first, x, op, args, call->impl));
    } while ((*out)->epoch != x->ops->epoch);
    return OK;
}

/* --- running --- */

static Status check_memory(Exec *x, OpId op, const void *args) {
    const Tensor *t = args;
    for (int i = 0; i < INFO[op].outputs + INFO[op].inputs; i++)
        if (t[i].rank && !t[i].data && tensor_numel(t[i]))
            return fail(x->error, ERR_MEMORY, "%s: argument %d has no memory: the %s arena (%zu bytes) is exhausted",
                        INFO[op].name, i, x->work->name, x->work->capacity);
    if (!t[0].rank) return fail(x->error, ERR_MODEL, "%s: output has no shape", INFO[op].name);
    return OK;
}

Status exec_blame(Exec *x, Status s) {
    Error *e = x->error;
    if (s != ERR_DEVICE || !e || !x->last || x->sync || x->rehearsal || !x->device->sync) return s;
    if (x->device->sync(x->device, NULL) == OK) return s;
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, "; the last op launched was %s, --sync finds the one at fault",
             INFO[x->last - 1].name);
    return s;
}

/* An implementation and, with x->sync, the end of what it launched. */
static Status launch(Exec *x, const Call *call, const void *args) {
    if (x->timer) TRY(x->timer->begin(x->timer, x));
    if (call->impl->run(x, args) != OK) return exec_blame(x, x->error ? x->error->code : ERR_DEVICE);
    if (x->timer) TRY(x->timer->end(x->timer, x, call, args));
    x->last = 1 + (int)call->op;
    if (!x->sync || !x->device->sync || x->device->sync(x->device, x->error) == OK) return OK;
    return because(x->error, "%s", INFO[call->op].name);
}

Status op_run(Exec *x, OpId op, const void *args) {
    if (x->interrupted && *x->interrupted) return fail(x->error, ERR_INTERRUPTED, "interrupted");
    const char *site = x->site;
    x->site = NULL;
    TRY(check_memory(x, op, args));
    if (x->dry && x->recorder) TRY(x->recorder->see(x->recorder, x, op, args, site));
    size_t mark = arena_mark(x->scratch);
    Call *call = NULL;
    TRY(resolve_seen(x, op, args, &call));
    Status status = OK;
    size_t need = call->scratch + (call->seen ? 0 : call->reserve);
    if (need && !arena_push(x->scratch, need))
        status = fail(x->error, ERR_MEMORY, "%s: needs %zu bytes of scratch, %zu are left", INFO[op].name, need,
                      x->scratch->capacity - mark);
    arena_reset(x->scratch, mark); /* the implementation pushes its own pieces, at most call->scratch */
    if (status == OK && !x->dry) {
        Rehearsal *r = x->rehearsal;
        status = r && r->see ? r->see(r, x, call, args) : launch(x, call, args);
        call->count += !x->rehearsal;
    }
    arena_reset(x->scratch, mark);
    return status;
}

static uint64_t place(int i, const void *p) {
    return fold((uintptr_t)p ^ ODD[i % TENSOR_MAX_RANK], ODD[(i + 1) % TENSOR_MAX_RANK] + (uint64_t)i);
}

uint64_t op_digest(uint64_t h, const Exec *x, const Call *call, const void *args) {
    const OpInfo *info = &INFO[call->op];
    const Tensor *t = args;
    int n = info->outputs + info->inputs;
    uint64_t sum = fold(call->key ^ ODD[0], (uintptr_t)call->impl ^ ODD[1]) +
                   fold((uintptr_t)x->calls ^ ODD[2], ((uintptr_t)x->scratch->base + x->scratch->used) ^ ODD[3]);
    for (int i = 0; i < n; i++) sum += place(i, t[i].data);
    for (int i = 0; i < info->weights; i++) {
        const struct Weight *w = ops_weight(call->op, args, i);
        const void *all[] = {w ? w->w.data : NULL, w ? w->bias.data : NULL, w ? w->scale.data : NULL, w ? w->lora : NULL};
        for (int k = 0; k < 4; k++) sum += place(n + 4 * i + k, all[k]);
    }
    return mix(h, sum);
}

/* --- tensors of an Exec --- */

Tensor exec_tensor(Exec *x, DType dtype, int rank, const int64_t *shape) {
    return arena_tensor(x->work, dtype, rank, shape);
}

static Status refuse_host(Exec *x, const char *what) {
    return fail(x->error, ERR_MODEL, "bytes are %s in the middle of it", what);
}

Status exec_upload(Exec *x, Tensor to, const void *from) {
    if (x->dry) return OK;
    if (x->rehearsal) return refuse_host(x, "uploaded");
    return exec_blame(x, x->device->upload(x->device, to.data, from, tensor_bytes(to), x->error));
}

Status exec_download(Exec *x, void *to, Tensor from) {
    if (x->dry) return OK;
    if (x->rehearsal) return refuse_host(x, "downloaded");
    return exec_blame(x, x->device->download(x->device, to, from.data, tensor_bytes(from), x->error));
}

Status exec_tap(Exec *x, const char *name, Tensor t) {
    return x->tap && !x->dry ? x->tap->see(x->tap, x, name, t) : OK;
}

Status exec_tapf(Exec *x, Tensor t, const char *format, ...) {
    if (!x->tap || x->dry) return OK;
    char name[128];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return exec_tap(x, name, t);
}

Status exec_check_finite(Exec *x, Tensor t, const char *stage) {
    size_t mark = arena_mark(x->work);
    Tensor count = exec_new_as(x, I32, 1);
    int32_t n = 0;
    TRY(op_count_nonfinite(x, &(CountNonfinite){.y = count, .x = t}));
    TRY(exec_download(x, &n, count));
    arena_reset(x->work, mark);
    if (n)
        return fail(x->error, ERR_NAN, "%s: %d of %lld values are NaN or infinite", stage, n,
                    (long long)tensor_numel(t));
    return OK;
}
