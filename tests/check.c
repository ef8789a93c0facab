/* check.c - see check.h: buffers with strides and guard bands, random values, rounding in double, judging. */
#include "check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- memory and labels --- */

void *check_alloc(Case *c, size_t bytes) {
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p || c->owned_count == (int)(sizeof c->owned / sizeof *c->owned)) {
        fprintf(stderr, "checkop: case too large: %zu bytes\n", bytes);
        exit(99);
    }
    return c->owned[c->owned_count++] = p;
}

void check_free(Case *c) {
    for (int i = 0; i < c->owned_count; i++) free(c->owned[i]);
    c->owned_count = 0;
}

void check_label(Case *c, const char *format, ...) {
    size_t used = strlen(c->label);
    va_list args;
    va_start(args, format);
    vsnprintf(c->label + used, sizeof c->label - used, format, args);
    va_end(args);
}

/* --- buffers --- */

static Buf *buffer(Case *c, const char *name, Tensor *slot, DType t, Layout layout, int rank,
                   const int64_t *shape) {
    if (c->count == CHECK_BUFS) exit(98);
    Buf *b = &c->buf[c->count++];
    *b = (Buf){.name = name, .view = tensor_make(NULL, t, rank, shape), .slot = {slot}, .near_limit = 1};
    int order[TENSOR_MAX_RANK]; /* dimensions from the innermost to the outermost */
    for (int i = 0; i < rank; i++) order[i] = rank - 1 - i;
    if (layout == LAYOUT_TRANSPOSED)
        for (int i = 0; i < rank; i++) order[i] = i;
    if (layout == LAYOUT_TURNED && rank > 1) order[0] = rank - 2, order[1] = rank - 1;
    if (layout == LAYOUT_SWAPPED)
        for (int i = 1; i < rank; i++) order[i] = i - 1;
    bool pads = layout == LAYOUT_PADDED || layout == LAYOUT_SWAPPED || layout == LAYOUT_TRANSPOSED ||
                layout == LAYOUT_TURNED;
    int64_t stride = 1;
    for (int i = 0; i < rank; i++) {
        b->view.stride[order[i]] = stride;
        stride *= shape[order[i]];
        /* every other pad keeps rows 16-byte aligned, as slices of wider buffers are; of a tidy case all do */
        int64_t even = pads && check_below(c, 2), pad = !pads ? 0 : even ? 8 * (1 + check_below(c, 4)) : check_below(c, 12);
        stride += pads && c->tidy && !even ? 8 * (1 + pad % 4) : pad;
    }
    b->n = tensor_numel(b->view);
    size_t shift = pads ? (size_t)check_below(c, 3) * dtype_size(t) : 0;
    b->lead = CHECK_GUARD + (layout == LAYOUT_UNALIGNED ? 1 : c->tidy ? 0 : shift);
    b->bytes = b->lead + (size_t)stride * dtype_size(t) + CHECK_GUARD;
    if (slot) *slot = b->view;
    return b;
}

Buf *check_in(Case *c, const char *name, Tensor *slot, DType t, Layout layout, int rank,
              const int64_t *shape) {
    Buf *b = buffer(c, name, slot, t, layout, rank, shape);
    b->v = check_alloc(c, (size_t)b->n * sizeof *b->v);
    return b;
}

static void expects(Case *c, Buf *b) {
    b->out = true;
    b->want = check_alloc(c, (size_t)b->n * sizeof *b->want);
    b->lo = check_alloc(c, (size_t)b->n * sizeof *b->lo);
    b->hi = check_alloc(c, (size_t)b->n * sizeof *b->hi);
}

Buf *check_out(Case *c, const char *name, Tensor *slot, DType t, Layout layout, int rank,
               const int64_t *shape) {
    Buf *b = buffer(c, name, slot, t, layout, rank, shape);
    expects(c, b);
    return b;
}

void check_part(Case *c, Buf *b, Tensor *slot, int dim, int64_t first, int64_t count) {
    int s = 0;
    (void)c;
    while (s < CHECK_SLOTS && b->slot[s]) s++;
    if (s == CHECK_SLOTS) exit(98);
    b->slot[s] = slot;
    b->offset[s] = (size_t)(first * b->view.stride[dim]) * dtype_size(b->view.dtype);
    *slot = b->view;
    slot->shape[dim] = count;
}

void check_in_place(Case *c, Buf *b, Tensor *output_slot) {
    b->slot[1] = output_slot;
    *output_slot = b->view;
    expects(c, b);
}

Buf *check_weight(Case *c, int i, DType stored, DType round, Layout layout, int rank, const int64_t *shape) {
    if (c->gpu && layout == LAYOUT_UNALIGNED) layout = LAYOUT_DENSE;
    c->weight[i] = (Weight){.round = round, .name = "weight"};
    return check_in(c, "weight", &c->weight[i].w, stored, layout, rank, shape);
}

Buf *check_weights(Case *c, int count, const int64_t *n, DType stored, DType round, int64_t columns, Buf **bias) {
    int64_t rows = 0, at = 0;
    for (int i = 0; i < count; i++) rows += n[i];
    Buf *w = check_in(c, "weights", NULL, stored, LAYOUT_DENSE, 2, (int64_t[]){rows, columns});
    if (bias) *bias = check_in(c, "biases", NULL, round, LAYOUT_DENSE, 1, &rows);
    for (int i = 0; i < count; at += n[i++]) {
        c->weight[i] = (Weight){.round = round, .name = "weight"};
        check_part(c, w, &c->weight[i].w, 0, at, n[i]);
        if (bias) check_part(c, *bias, &c->weight[i].bias, 0, at, n[i]);
    }
    return w;
}

Buf *check_bias(Case *c, int i, DType t, int64_t n) {
    return check_in(c, "bias", &c->weight[i].bias, t, LAYOUT_DENSE, 1, &n);
}

int64_t check_dim(const Case *c, int64_t full, int64_t small) {
    return c->small && small < full ? small : full;
}

Layout check_layout(Case *c) { return (Layout)check_below(c, 3); }

const char *check_layout_name(Layout layout) {
    static const char *const NAMES[] = {"dense", "padded", "swapped", "transposed", "turned", "unaligned"};
    return NAMES[layout];
}

/* --- random values --- */

uint64_t check_random(Case *c) { /* splitmix64 */
    uint64_t z = c->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t check_below(Case *c, int64_t n) { return (int64_t)(check_random(c) % (uint64_t)n); }

/* Sum of twelve 16-bit uniforms of three draws: near enough to a normal, and quick. */
double check_normal(Case *c) {
    double s = 0;
    for (int i = 0; i < 3; i++)
        for (uint64_t r = check_random(c), k = 0; k < 4; k++, r >>= 16) s += (double)(r & 0xffff) / 65536.0;
    return s - 6.0;
}

void check_fill(Case *c, Buf *b, double mean, double deviation) {
    for (int64_t i = 0; i < b->n; i++)
        b->v[i] = (float)check_round(mean + deviation * check_normal(c), b->view.dtype);
}

void check_spoil(Case *c, Buf *b) {
    bool narrow = b->view.dtype == BF16;
    const float special[] = {0.0f,         -0.0f,     narrow ? 0x1p-133f : 0x1p-149f,
                             -0x1.8p-130f, 0x1p-126f, narrow ? 0x1.fep127f : 0x1.fffffep127f,
                             -0x1p127f,    INFINITY,  -INFINITY,
                             NAN,          1.0f};
    int kinds = sizeof special / sizeof *special;
    for (int64_t i = 0; i < b->n; i++)
        if (check_below(c, 4) == 0)
            b->v[i] = (float)check_round((double)special[check_below(c, kinds)], b->view.dtype);
}

/* --- rounding in double --- */

static double power_of_two(int e) { /* normal range of a double: enough for every unit used here */
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    double p;
    memcpy(&p, &bits, 8);
    return p;
}

double check_round(double v, DType t) {
    int digits = t == F32 ? 24 : t == BF16 ? 8 : t == F16 ? 11 : 0;
    int least = t == F16 ? -24 : t == BF16 ? -133 : -149;
    if (!digits || v == 0 || isnan(v) || isinf(v)) return v;
    uint64_t bits;
    memcpy(&bits, &v, 8);
    int e = (int)(bits >> 52 & 0x7ff) - 1022; /* |v| in [2^(e-1), 2^e); subnormal doubles count as tiny */
    int unit = e - digits < least ? least : e - digits;
    double r = nearbyint(v * power_of_two(-unit)) * power_of_two(unit);
    double limit = t == F16 ? 65520 : 0x1p128;
    return fabs(r) >= limit ? copysign(INFINITY, v) : r;
}

double check_r(double v, DType t) { return check_round((double)(float)v, t); }

double check_half_ulp(double v, DType t) {
    int digits = t == F32 ? 24 : t == BF16 ? 8 : 11, least = t == F16 ? -24 : t == BF16 ? -133 : -149;
    int e;
    if (isnan(v) || isinf(v)) return 0;
    frexp(v, &e);
    return ldexp(0.5, e - digits < least || v == 0 ? least : e - digits);
}

const uint16_t *check_table(UnaryFn fn) {
    static uint16_t *table[UNARY_COUNT]; /* lint: allow-static (filled once in a single-threaded child) */
    if (!table[fn]) {
        table[fn] = malloc(UNARY_ENTRIES * sizeof(uint16_t));
        if (!table[fn]) exit(99);
        unary_table_fill(fn, table[fn]);
    }
    return table[fn];
}

double check_unary(UnaryFn fn, double v) {
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits = (uint32_t)check_table(fn)[bits >> 16] << 16;
    memcpy(&f, &bits, 4);
    return (double)f;
}

/* --- expectations --- */

void check_exact(Buf *b, int64_t i, double want) { b->want[i] = b->lo[i] = b->hi[i] = want; }

void check_within(Buf *b, int64_t i, double want, double tolerance) {
    b->want[i] = want;
    b->lo[i] = want - tolerance;
    b->hi[i] = want + tolerance;
}

void check_between(Buf *b, int64_t i, double want, double a, double b_end) {
    b->want[i] = want;
    b->lo[i] = a < b_end ? a : b_end;
    b->hi[i] = a < b_end ? b_end : a;
}

void check_unjudged(Case *c, Buf *b) {
    b->skipped = check_alloc(c, (size_t)b->n);
    memset(b->skipped, CHECK_UNJUDGED, (size_t)b->n);
}

double check_naive_error(int64_t n, const double *ref, const float *naive, const double *scale) {
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)naive[i] - ref[i]) / scale[i];
        if (isfinite(e) && e > worst) worst = e;
    }
    return worst;
}

/* --- images and judging --- */

/* Byte offset of logical element i; idx is an odometer that the caller keeps, zeroed before i = 0. */
static size_t step(const Buf *b, int64_t *idx) {
    int64_t at = 0;
    for (int d = 0; d < b->view.rank; d++) at += idx[d] * b->view.stride[d];
    for (int d = b->view.rank - 1; d >= 0 && ++idx[d] == b->view.shape[d]; d--) idx[d] = 0;
    return b->lead + (size_t)at * dtype_size(b->view.dtype);
}

static void put(char *to, DType t, float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    int32_t whole = (int32_t)(t == I32 || t == U8 ? v : 0);
    uint16_t half = t == F16 ? f16_from_f32(v) : (uint16_t)(bits >> 16);
    if (t == F32)
        memcpy(to, &v, 4);
    else if (t == I32)
        memcpy(to, &whole, 4);
    else if (t == U8)
        *(uint8_t *)to = (uint8_t)whole;
    else
        memcpy(to, &half, 2);
}

static float get(const char *from, DType t) {
    float v;
    int32_t whole;
    uint16_t half;
    if (t == F32) return memcpy(&v, from, 4), v;
    if (t == I32) return memcpy(&whole, from, 4), (float)whole;
    if (t == U8) return (float)*(const uint8_t *)from;
    memcpy(&half, from, 2);
    if (t == F16) return f16_to_f32(half);
    uint32_t bits = (uint32_t)half << 16;
    return memcpy(&v, &bits, 4), v;
}

void check_images(Case *c, int poison) {
    for (int k = 0; k < c->count; k++) {
        Buf *b = &c->buf[k];
        int64_t idx[TENSOR_MAX_RANK] = {0};
        if (!b->image) b->image = check_alloc(c, b->bytes);
        if (b->v && b->image[0]) continue; /* inputs stay */
        memset(b->image, 0xff, b->bytes);  /* guards and gaps are NaN: reading them shows */
        for (int64_t i = 0; i < b->n; i++) {
            char *to = b->image + step(b, idx);
            if (b->v)
                put(to, b->view.dtype, b->v[i]);
            else
                memset(to, poison, dtype_size(b->view.dtype));
        }
    }
}

void check_gather(const Buf *b, const char *image, float *out) {
    int64_t idx[TENSOR_MAX_RANK] = {0};
    for (int64_t i = 0; i < b->n; i++) out[i] = get(image + step(b, idx), b->view.dtype);
}

bool check_outside_equal(const Buf *b, const char *image) {
    if (!memcmp(image, b->image, b->bytes)) return true;
    if (!b->out) return false;
    char *copy = malloc(b->bytes);
    if (!copy) exit(99);
    memcpy(copy, image, b->bytes);
    int64_t idx[TENSOR_MAX_RANK] = {0};
    for (int64_t i = 0; i < b->n; i++) {
        size_t at = step(b, idx);
        memcpy(copy + at, b->image + at, dtype_size(b->view.dtype));
    }
    bool same = !memcmp(copy, b->image, b->bytes);
    free(copy);
    return same;
}

static bool same_number(float got, double want) {
    float w = (float)want;
    return (isnan(got) && isnan(want)) || !memcmp(&got, &w, 4);
}

bool check_judge(const Buf *b, const char *image, char *text, size_t size) {
    int64_t idx[TENSOR_MAX_RANK] = {0}, bad = 0, near = 0, judged = 0, first = -1;
    float shown = 0;
    for (int64_t i = 0; i < b->n; i++) {
        float got = get(image + step(b, idx), b->view.dtype);
        if (b->skipped && b->skipped[i]) continue;
        judged++;
        if (same_number(got, b->want[i]) || (b->spilled && b->spilled[i] && !isfinite(got))) continue;
        bool room = b->lo[i] != b->hi[i] && isfinite(b->want[i]);
        if (room && (double)got >= b->lo[i] && (double)got <= b->hi[i]) {
            near++;
            continue;
        }
        if (!bad++) first = i, shown = got;
    }
    if (bad) {
        snprintf(text, size,
                 "%s: %lld of %lld elements wrong; element %lld is %.9g, expected %.9g in [%.9g, %.9g]",
                 b->name, (long long)bad, (long long)judged, (long long)first, (double)shown, b->want[first],
                 b->lo[first], b->hi[first]);
        return false;
    }
    /* The share is a promise about large counts: three standard deviations of a small sample are allowed on top. */
    double expected = b->near_limit * (double)judged;
    if (b->near_limit < 1 && (double)near > expected + 3 * sqrt(expected) + 1) {
        snprintf(text, size, "%s: %lld of %lld elements differ by a rounding, allowed is a share of %g",
                 b->name, (long long)near, (long long)judged, b->near_limit);
        return false;
    }
    return true;
}
