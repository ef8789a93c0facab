/* test_cuda_packing.c - on a GPU: the families of products against the reference's own calls, at the models' shapes, in bits;
 * and the time of both. Skipped, and said so, where there is no GPU.
 *
 * The reference here is PyTorch's problem: every output a contiguous matrix of its own. Compared with it are the table's
 * reference writing columns of one buffer, and the families. Values are random, so equal bits mean the same order of sums.
 * Not the bound of single products: that is checkop's. A time is the least of several rounds in which both take turns.
 * Easy to get wrong: a variant may hand a shape back to the reference; then bits are equal for no reason, so where a
 * family has to take the shape that is expected too. */
#include "expect.h"
#include "kernels/linear_cuda.h"

#ifndef HAVE_CUDA

int main(void) {
    printf("0 passed, 0 failed (built without CUDA)\n");
    return 0;
}

#else

#include "core/device_cuda.h"
#include "kernels/packing.h"
#include "kernels/registry.h"

#include <math.h>

enum { ROUNDS = 8, REPEATS = 4 };

typedef struct Rig {
    Device device;
    Cuda *cuda;
    Ops ops;
    Calls calls;
    Arena work, scratch;
    Error e;
    Exec x;
    uint64_t state;
} Rig;

/* BF16 values of deviation about `scale`: sums of uniforms. */
static Tensor fill(Rig *r, double scale, int64_t rows, int64_t columns) {
    Tensor t = exec_new(&r->x, rows, columns);
    int64_t n = rows * columns;
    uint16_t *host = malloc((size_t)n * 2);
    if (!host || !t.data) exit(1);
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = r->state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        double sum = (double)(z & 0xffff) + (double)(z >> 16 & 0xffff) + (double)(z >> 32 & 0xffff) + (double)(z >> 48);
        host[i] = bf16_from_f32((float)((sum / 65536.0 - 2) * 1.7320508 * scale));
    }
    expect_ok(exec_upload(&r->x, t, host), &r->e);
    free(host);
    return t;
}

static uint16_t *fetch(Rig *r, Tensor t) { /* rows x columns, contiguous */
    size_t span = 1;
    for (int d = 0; d < t.rank; d++) span += (size_t)((t.shape[d] - 1) * t.stride[d]);
    uint16_t *all = malloc(span * 2), *out = malloc((size_t)tensor_numel(t) * 2);
    if (!all || !out) exit(1);
    expect_ok(r->device.download(&r->device, all, t.data, span * 2, &r->e), &r->e);
    int64_t columns = t.shape[t.rank - 1], rows = tensor_numel(t) / columns;
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = 0, k = i;
        for (int d = t.rank - 2; d >= 0; k /= t.shape[d--]) at += k % t.shape[d] * t.stride[d];
        memcpy(out + i * columns, all + at, (size_t)columns * 2);
    }
    free(all);
    return out;
}

static int64_t differing(Rig *r, Tensor a, Tensor b) {
    uint16_t *x = fetch(r, a), *y = fetch(r, b);
    int64_t n = 0;
    for (int64_t i = 0; i < tensor_numel(a); i++) n += x[i] != y[i];
    free(x), free(y);
    return n;
}

/* Nothing of an earlier run may pass for a result. */
static void poison(Rig *r, Tensor t) {
    char *host = malloc(tensor_bytes(t));
    if (!host) exit(1);
    memset(host, 0xff, tensor_bytes(t));
    expect_ok(exec_upload(&r->x, t, host), &r->e);
    free(host);
}

/* Least microseconds of each of two ways, taking turns. */
static void race(Rig *r, const Impl *const *way, OpId op, const void *args, double best[2]) {
    (void)op;
    best[0] = best[1] = INFINITY;
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < 2; k++) {
            double seconds = 0;
            expect_ok(r->device.mark(&r->device, 0, &r->e), &r->e);
            for (int n = 0; n < REPEATS; n++) expect_ok(way[k]->run(&r->x, args), &r->e);
            expect_ok(r->device.mark(&r->device, 1, &r->e), &r->e);
            expect_ok(r->device.elapsed(&r->device, 0, 1, &seconds, &r->e), &r->e);
            if (i && seconds * 1e6 / REPEATS < best[k]) best[k] = seconds * 1e6 / REPEATS;
        }
}

/* --- several weights as one --- */

typedef struct Shape {
    const char *what;
    int64_t m, k, n[LINEAR_MANY_MAX];
    bool bias, gelu, must; /* must: the family takes it */
} Shape;

static void pack(Rig *r, const Shape *s) {
    size_t mark = arena_mark(&r->work);
    int64_t total = 0, at = 0;
    int count = 0;
    while (count < LINEAR_MANY_MAX && s->n[count]) total += s->n[count++];
    Tensor x = fill(r, 1, s->m, s->k), w = fill(r, 1 / sqrt((double)s->k), total, s->k), b = fill(r, 0.5, 1, total);
    Tensor wide = exec_new(&r->x, s->m, total), g = exec_new(&r->x, s->m, s->n[count - 1]);
    Weight weight[LINEAR_MANY_MAX];
    LinearManyGelu many_gelu = {.g = g, .x = x};
    LinearMany many = {.x = x};
    Tensor apart[LINEAR_MANY_MAX];
    for (int i = 0; i < count; at += s->n[i++]) {
        weight[i] = (Weight){.w = tensor_slice(w, 0, at, s->n[i]), .round = BF16, .name = s->what};
        if (s->bias) weight[i].bias = tensor_slice(tensor_view(b, total), 0, at, s->n[i]);
        many.y[i] = many_gelu.y[i] = tensor_slice(wide, 1, at, s->n[i]);
        many.w[i] = many_gelu.w[i] = &weight[i];
        apart[i] = exec_new(&r->x, s->m, s->n[i]);
        expect_ok(op_linear(&r->x, &(Linear){.y = apart[i], .x = x, .w = &weight[i]}), &r->e);
    }
    OpId op = s->gelu ? OP_linear_many_gelu : OP_linear_many;
    const void *args = s->gelu ? (const void *)&many_gelu : &many;
    const Impl *reference = ops_reference(&r->ops, op), *packed = &LINEAR_PACKED_CUDA[s->gelu], *ways[] = {reference, packed};
    char why[256] = "";
    expect(packed->accepts(args, why, sizeof why));
    /* the reference, its outputs columns of one buffer */
    int64_t off[3] = {0};
    poison(r, wide);
    expect_ok(reference->run(&r->x, args), &r->e);
    for (int i = 0; i < count; i++) off[0] += differing(r, many.y[i], apart[i]);
    /* one product */
    Packing p;
    LinearHow how = {.way = LINEAR_PACKED};
    bool taken = false;
    memcpy(how.part, s->n, sizeof how.part);
    expect(packing_make(many.y, many.w, count, BIAS_FUSED, &p, why, sizeof why));
    expect_ok(linear_cuda_product(&r->x, p.y, x, &p.w, s->bias, &how, &taken), &r->e);
    poison(r, wide);
    expect_ok(packed->run(&r->x, args), &r->e);
    for (int i = 0; i < count; i++) off[1] += differing(r, many.y[i], apart[i]);
    if (s->gelu) {
        Tensor chain = exec_new(&r->x, s->m, s->n[count - 1]);
        expect_ok(op_act(&r->x, &(Act){.y = chain, .x = apart[count - 1], .kind = ACT_GELU_TANH}), &r->e);
        off[2] = differing(r, g, chain);
    }
    expect(off[0] == 0 && off[1] == 0 && off[2] == 0 && (taken || !s->must));
    double us[2];
    race(r, ways, op, args, us);
    printf("%-24s M %4lld K %5lld N %5lld: %s, columns %lld, packed %lld, gelu %lld differ; %8.1f us apart, %8.1f %s\n", s->what,
           (long long)s->m, (long long)s->k, (long long)total, s->bias ? "bias" : "none", (long long)off[0], (long long)off[1],
           (long long)off[2], us[0], us[1], taken ? "packed" : "handed back");
    fflush(stdout);
    arena_reset(&r->work, mark);
}

static void packs(Rig *r) {
    static const Shape SHAPES[] = {
        {"flux single", 4608, 3072, {3072, 3072, 3072, 12288}, true, true, true},
        {"flux single, 512x512", 1536, 3072, {3072, 3072, 3072, 12288}, true, true, true},
        {"flux single, first sight", 72, 3072, {3072, 3072, 3072, 12288}, true, true, false},
        {"flux single, probe", 16, 3072, {3072, 3072, 3072, 12288}, true, true, false},
        {"flux double image", 4096, 3072, {3072, 3072, 3072}, true, false, true},
        {"flux double text", 512, 3072, {3072, 3072, 3072}, true, false, true},
        {"flux double, short text", 128, 3072, {3072, 3072, 3072}, true, false, true},
        {"flux double, split K", 20, 3072, {3072, 3072, 3072}, true, false, false},
        {"z-image qkv", 4128, 3840, {3840, 3840, 3840}, false, false, true},
        {"z-image qkv, caption", 32, 3840, {3840, 3840, 3840}, false, false, false},
        {"z-image w1 w3", 4128, 3840, {10240, 10240}, false, false, true},
        {"t5 qkv", 512, 4096, {4096, 4096, 4096}, false, false, true},
        {"t5 wi", 512, 4096, {10240, 10240}, false, false, true},
        {"qwen3 qkv", 512, 2560, {4096, 1024, 1024}, false, false, true},
        {"qwen3 gate up", 512, 2560, {9728, 9728}, false, false, true},
        {"qwen3 qkv, short", 20, 2560, {4096, 1024, 1024}, false, false, false},
        {"clip qkv", 77, 768, {768, 768, 768}, true, false, false},
        {"demo single", 96, 128, {128, 128, 128, 512}, true, true, false},
        {"one row", 1, 3072, {3072, 3072, 3072}, true, false, false},
    };
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) pack(r, &SHAPES[i]);
}

/* --- rows of several steps as one product --- */

static void rows(Rig *r) {
    static const struct { int64_t m, k, n; bool bias; } SHAPES[] = {
        {28, 3072, 18432, true}, {28, 3072, 9216, true}, {28, 3072, 6144, true}, {4, 3072, 18432, true}, {32, 3072, 9216, true},
        {2, 3072, 9216, true},   {3, 3072, 18432, true}, {1, 3072, 9216, true},  {28, 256, 15360, true}, {28, 128, 768, true}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        size_t mark = arena_mark(&r->work);
        int64_t m = SHAPES[i].m, k = SHAPES[i].k, n = SHAPES[i].n;
        Tensor x = fill(r, 1, m, k), w = fill(r, 1 / sqrt((double)k), n, k), b = fill(r, 0.5, 1, n);
        Tensor wide = exec_new(&r->x, m, 2 * n), y = tensor_slice(wide, 1, n, n), apart = exec_new(&r->x, m, n);
        Weight weight = {.w = w, .bias = tensor_view(b, n), .round = BF16, .name = "modulation"};
        Linear a = {.y = y, .x = x, .w = &weight};
        const Impl *ways[] = {ops_reference(&r->ops, OP_linear_rows), LINEAR_ROWS_CUDA};
        for (int64_t row = 0; row < m; row++)
            expect_ok(op_linear(&r->x, &(Linear){.y = tensor_slice(apart, 0, row, 1), .x = tensor_slice(x, 0, row, 1),
                                                 .w = &weight}), &r->e);
        LinearHow how = {.way = LINEAR_ROWS};
        bool taken = false;
        char why[256] = "";
        expect(LINEAR_ROWS_CUDA->accepts(&a, why, sizeof why));
        expect_ok(linear_cuda_product(&r->x, y, x, &weight, true, &how, &taken), &r->e);
        int64_t off = differing(r, y, apart);
        double us[2];
        expect(off == 0 && taken);
        race(r, ways, OP_linear_rows, &a, us);
        printf("rows M %2lld K %4lld N %5lld: %lld differ; %8.1f us row by row, %8.1f %s\n", (long long)m, (long long)k,
               (long long)n, (long long)off, us[0], us[1], taken ? "once" : "handed back");
        fflush(stdout);
        arena_reset(&r->work, mark);
    }
}

/* --- GELU in the epilogue: other bits on purpose, so only that it runs, near the chain, and how long --- */

static void epilogues(Rig *r) {
    static const struct { int64_t m, k, n; } SHAPES[] = {
        {4096, 3072, 12288}, {512, 3072, 12288}, {4608, 3072, 12288}, {512, 128, 512}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        size_t mark = arena_mark(&r->work);
        int64_t m = SHAPES[i].m, k = SHAPES[i].k, n = SHAPES[i].n;
        Tensor x = fill(r, 1, m, k), w = fill(r, 1 / sqrt((double)k), n, k), b = fill(r, 0.5, 1, n);
        Tensor chain = exec_new(&r->x, m, n), y = exec_new(&r->x, m, n);
        Weight weight = {.w = w, .bias = tensor_view(b, n), .round = BF16, .name = "ff_in"};
        const Impl *ways[] = {ops_reference(&r->ops, OP_linear_gelu), LINEAR_GELU_F32_CUDA};
        expect_ok(ways[0]->run(&r->x, &(Linear){.y = chain, .x = x, .w = &weight}), &r->e);
        expect_ok(ways[1]->run(&r->x, &(Linear){.y = y, .x = x, .w = &weight}), &r->e);
        uint16_t *a = fetch(r, chain), *c = fetch(r, y);
        int64_t off = 0, far = 0;
        for (int64_t j = 0; j < m * n; j++) {
            double u = (double)bf16_to_f32(a[j]), v = (double)bf16_to_f32(c[j]);
            off += a[j] != c[j];
            far += !(fabs(u - v) <= 0x1p-6 * fabs(u) + 0x1p-8); /* two roundings and the slope of gelu, at most 1.13 */
        }
        free(a), free(c);
        expect(off > 0 && far == 0);
        double us[2];
        race(r, ways, OP_linear_gelu, &(Linear){.y = y, .x = x, .w = &weight}, us);
        printf("gelu M %4lld K %4lld N %5lld: %.1f %% differ, %lld far; %8.1f us chain, %8.1f epilogue\n", (long long)m,
               (long long)k, (long long)n, 100.0 * (double)off / (double)(m * n), (long long)far, us[0], us[1]);
        fflush(stdout);
        arena_reset(&r->work, mark);
    }
}

/* --- attention on columns of one buffer, as packed products leave them --- */

static void attention(Rig *r) {
    static const struct { int64_t t, h, wide; } SHAPES[] = {{4608, 24, 21504}, {4608, 24, 9216}, {4128, 30, 11520}};
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        size_t mark = arena_mark(&r->work);
        int64_t t = SHAPES[i].t, h = SHAPES[i].h, d = h * 128;
        Tensor all = fill(r, 1.5, t, SHAPES[i].wide), part[3], own[3];
        Tensor o = exec_new(&r->x, t, d), joint = exec_new(&r->x, t, 5 * d), there = tensor_slice(joint, 1, 0, d);
        for (int k = 0; k < 3; k++) {
            part[k] = tensor_slice(all, 1, k * d, d);
            own[k] = exec_new(&r->x, t, d);
            expect_ok(op_copy(&r->x, &(Copy){.y = own[k], .x = part[k]}), &r->e);
        }
        Attention views = {.o = tensor_split(there, 128), .q = tensor_split(part[0], 128), .k = tensor_split(part[1], 128),
                           .v = tensor_split(part[2], 128), .scale = (float)(1.0 / sqrt(128.0))};
        Attention plain = {.o = tensor_split(o, 128), .q = tensor_split(own[0], 128), .k = tensor_split(own[1], 128),
                           .v = tensor_split(own[2], 128), .scale = views.scale};
        expect_ok(op_attention(&r->x, &views), &r->e);
        expect_ok(op_attention(&r->x, &plain), &r->e);
        int64_t off = differing(r, there, o);
        expect(off == 0);
        const Impl *impl = ops_reference(&r->ops, OP_attention), *ways[] = {impl, impl};
        double us[2], own_us[2];
        race(r, ways, OP_attention, &views, us);
        race(r, ways, OP_attention, &plain, own_us);
        printf("attention %lld x %lld, rows %lld apart: %lld differ; %8.1f us, contiguous %8.1f\n", (long long)t, (long long)h,
               (long long)SHAPES[i].wide, (long long)off, us[0], own_us[0]);
        fflush(stdout);
        arena_reset(&r->work, mark);
    }
}

int main(void) {
    Rig *r = calloc(1, sizeof *r);
    if (!r) return 1;
    r->state = 1;
    if (device_cuda_open(&r->device, &r->e) != OK) {
        printf("0 passed, 0 failed (%s)\n", r->e.text);
        free(r);
        return 0;
    }
    expect_ok(cuda_open(&r->device, &r->cuda, &r->e), &r->e);
    expect_ok(cuda_need_lt(r->cuda, &r->e), &r->e);
    expect_ok(arena_open(&r->work, &r->device, "work", (size_t)6 << 30, &r->e), &r->e);
    expect_ok(arena_open(&r->scratch, &r->device, "scratch", (size_t)1 << 30, &r->e), &r->e);
    ops_cuda(&r->ops);
    r->x = (Exec){.ops = &r->ops, .device = &r->device, .calls = &r->calls, .work = &r->work, .scratch = &r->scratch,
                  .error = &r->e, .dtype = BF16, .cuda = r->cuda};
    if (!expect_failed) {
        packs(r);
        rows(r);
        epilogues(r);
        attention(r);
    }
    calls_free(&r->calls);
    arena_close(&r->scratch);
    arena_close(&r->work);
    cuda_close(r->cuda);
    device_cuda_close(&r->device);
    free(r);
    return expect_done();
}

#endif
