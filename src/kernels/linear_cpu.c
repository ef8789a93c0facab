/* linear_cpu.c - the CPU table's products with a weight matrix: the ops of linear.h.
 *
 * Weights stay in their stored dtype, mapped from the file: a unit of work is one tile of y, whose thread widens the
 * weight rows of that tile block by block into f32 and multiplies them at once, so that no weight ever exists whole
 * in f32. x is widened once per chunk of rows. A handful of rows (modulation, time embedding: one row) is bound by
 * reading the weight, and takes a dot-product loop instead: packing for a product would cost more than the product.
 * Easy to get wrong: the bias is added to the f32 sum, after the last block of K; scratch may depend on the shapes
 * only, never on where a weight happens to lie. */
#include "kernels/exp_cpu.h"
#include "kernels/gemm_cpu.h"
#include "kernels/registry.h"
#include "kernels/unary.h"
#include "ops.h"

#include <stdio.h>

enum {
    FEW_ROWS = 8,             /* up to here the dot-product loop wins over packing */
    BLOCK_M = 512,            /* rows of a unit */
    TILE_N = 256,             /* columns of a unit: packing x again for each costs 1/TILE_N of the product */
    TILE_N_SMALL = 128,       /* for narrow outputs, so that more than two threads find work */
    TILE_K = 1024,            /* widened weight tile: TILE_N x TILE_K x 4 bytes = 1 MiB, of the order of an L2 */
    CHUNK_FLOATS = 8 << 20,   /* x widened: at most 32 MiB */
    DOT_LANES = 32, DOT_K = 1024,
};

typedef struct Plan {
    int64_t m, n, k;          /* n: the widest of the outputs */
    int64_t chunk;            /* rows of x widened at a time */
    int64_t block_m, tile_n, tile_k; /* tile_n: for the widest */
    int threads;
    size_t x, bias, tiles, tile_bytes, weight_tile, sum_tile, total; /* offsets into scratch, bytes */
} Plan;

/* Monotonic in n, and of n alone: an output has the same tiles in linear and in linear_many. */
static int64_t tile_columns(int64_t n) { return gemm_min(n, n >= 4 * TILE_N ? TILE_N : TILE_N_SMALL); }

static Plan plan(Tensor x, int64_t n) {
    Plan p = {.m = gemm_rows(x), .n = n, .k = gemm_columns(x), .threads = gemm_threads()};
    p.chunk = p.m;
    if (p.m * p.k > CHUNK_FLOATS) p.chunk = gemm_part(p.m, gemm_max(CHUNK_FLOATS / gemm_max(p.k, 1), BLOCK_M));
    p.block_m = gemm_part(p.chunk, BLOCK_M);
    p.tile_n = tile_columns(n);
    p.tile_k = gemm_part(p.k, TILE_K);
    p.x = gemm_piece(&p.total, p.chunk * p.k);
    p.bias = gemm_piece(&p.total, n);
    p.tiles = p.total;
    if (p.m > FEW_ROWS) {
        p.weight_tile = gemm_piece(&p.tile_bytes, p.tile_n * p.tile_k);
        p.sum_tile = gemm_piece(&p.tile_bytes, p.block_m * p.tile_n);
        p.total += p.tile_bytes * (size_t)p.threads;
    }
    return p;
}

/* What happens to a finished tile of y while it is in the cache. GELU_KEPT: GELU of the f32 value, one rounding. */
typedef enum Epilogue { PLAIN, GELU_ROUNDED, GELU_KEPT } Epilogue;

/* One weight and its output, as the loops want them. */
typedef struct Side {
    const char *w;      /* first element */
    int64_t stride;     /* between its rows, elements */
    DType dtype, round;
    bool direct;        /* usable by a product as it lies */
    const float *bias;  /* widened, or NULL */
    bool after;         /* not BIAS_FUSED */
    Epilogue then;
    const uint16_t *table; /* GELU_ROUNDED in BF16 */
    Tensor y, g;           /* g: where the activation goes, y itself or another; unused when PLAIN */
    int64_t n;
} Side;

static void *element_at(const Tensor *t, int64_t row, int64_t n0) {
    return (char *)gemm_row(t, row) + (size_t)n0 * dtype_size(t->dtype);
}

static void finish_kept(const Side *s, const float *sum, uint16_t *y, int64_t n0, int64_t n) {
    if (s->bias)
        for (int64_t i = 0; i < n; i++) y[i] = bf16_from_f32(gelu_tanh_f32(sum[i] + s->bias[n0 + i]));
    else
        for (int64_t i = 0; i < n; i++) y[i] = bf16_from_f32(gelu_tanh_f32(sum[i]));
}

/* y = sum + bias with the rounding of the mode; n columns of one row, from column n0. */
static void finish(const Side *s, const float *sum, int64_t row, int64_t n0, int64_t n) {
    if (s->then == GELU_KEPT) {
        finish_kept(s, sum, element_at(&s->g, row, n0), n0, n);
        return;
    }
    void *to = element_at(&s->y, row, n0), *also = s->then ? element_at(&s->g, row, n0) : NULL;
    if (s->y.dtype == F32) {
        float *y = to, *g = also;
        if (s->bias)
            for (int64_t i = 0; i < n; i++) y[i] = sum[i] + s->bias[n0 + i];
        else if (y != sum)
            memcpy(y, sum, (size_t)n * sizeof *y);
        if (g)
            for (int64_t i = 0; i < n; i++) g[i] = gelu_tanh_f32(y[i]);
        return;
    }
    uint16_t *y = to, *g = also;
    if (!s->bias)
        for (int64_t i = 0; i < n; i++) y[i] = bf16_from_f32(sum[i]);
    else if (s->after)
        for (int64_t i = 0; i < n; i++) y[i] = bf16_from_f32(bf16_round(sum[i]) + s->bias[n0 + i]);
    else
        for (int64_t i = 0; i < n; i++) y[i] = bf16_from_f32(sum[i] + s->bias[n0 + i]);
    if (g)
        for (int64_t i = 0; i < n; i++) g[i] = s->table[y[i]];
}

/* Tile [row, row + m) x [n0, n0 + n) of y. x: the widened chunk, whose row 0 is row `first` of the op. */
static void tile(const Plan *p, const Side *s, const float *x, int64_t ldx, int64_t first, int64_t row, int64_t m,
                 int64_t n0, int64_t n, char *scratch) {
    float *weights = (float *)(void *)(scratch + p->weight_tile), *sum = (float *)(void *)(scratch + p->sum_tile);
    int64_t ldsum = p->tile_n, y_stride = gemm_row_stride(s->y);
    if (s->y.dtype == F32 && y_stride >= s->n) { /* the product lands where it belongs */
        sum = (float *)gemm_row(&s->y, first + row) + n0;
        ldsum = y_stride;
    }
    const float *a = x + row * ldx;
    size_t size = dtype_size(s->dtype);
    if (s->direct) {
        gemm_nt(m, n, p->k, 1, a, ldx, (const float *)(const void *)s->w + n0 * s->stride, s->stride, 0, sum, ldsum);
    } else {
        int64_t k0 = 0;
        do { /* once even for K = 0: the sum is zero then */
            int64_t k = gemm_min(p->tile_k, p->k - k0);
            for (int64_t i = 0; i < n; i++)
                gemm_widen(weights + i * k, s->w + (size_t)((n0 + i) * s->stride + k0) * size, s->dtype, s->round, k);
            gemm_nt(m, n, k, 1, a + k0, ldx, weights, k, k0 ? 1 : 0, sum, ldsum);
            k0 += k;
        } while (k0 < p->k);
    }
    for (int64_t i = 0; i < m; i++) finish(s, sum + i * ldsum, first + row + i, n0, n);
}

static void multiply(const Plan *p, const Side *s, const float *x, int64_t ldx, int64_t first, int64_t rows,
                     char *scratch) {
    int64_t tile_n = tile_columns(s->n), across = gemm_ceil(s->n, tile_n);
    int64_t units = across * gemm_ceil(rows, p->block_m);
#pragma omp parallel num_threads(p->threads)
    {
        char *mine = scratch + p->tiles + p->tile_bytes * (size_t)gemm_thread();
#pragma omp for schedule(dynamic, 1)
        for (int64_t u = 0; u < units; u++) {
            int64_t row = u / across * p->block_m, n0 = u % across * tile_n;
            tile(p, s, x, ldx, first, row, gemm_min(p->block_m, rows - row), n0, gemm_min(tile_n, s->n - n0), mine);
        }
    }
}

/* lane[i % DOT_LANES] += a[i] b[i]; n is a multiple of DOT_LANES except in the last piece of a row. */
static void dot_piece(float *lane, const float *a, const float *b, int64_t n) {
    int64_t i = 0;
    for (; i + DOT_LANES <= n; i += DOT_LANES)
        for (int j = 0; j < DOT_LANES; j++) lane[j] += a[i + j] * b[i + j];
    for (int j = 0; i < n; i++, j++) lane[j] += a[i] * b[i];
}

static float lanes_sum(float *lane) {
    for (int w = DOT_LANES / 2; w; w /= 2)
        for (int j = 0; j < w; j++) lane[j] += lane[j + w];
    return lane[0];
}

/* Few rows: each thread reads its weight rows once and dots them with every row of x. */
static void dots(const Plan *p, const Side *s, const float *x, int64_t ldx) {
    size_t size = dtype_size(s->dtype);
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t n = 0; n < s->n; n++) {
        float lane[FEW_ROWS][DOT_LANES] = {{0}}, wide[DOT_K];
        for (int64_t k0 = 0; k0 < p->k; k0 += DOT_K) {
            int64_t k = gemm_min(DOT_K, p->k - k0);
            gemm_widen(wide, s->w + (size_t)(n * s->stride + k0) * size, s->dtype, s->round, k);
            for (int64_t m = 0; m < p->m; m++) dot_piece(lane[m], wide, x + m * ldx + k0, k);
        }
        for (int64_t m = 0; m < p->m; m++) {
            float sum = lanes_sum(lane[m]);
            finish(s, &sum, m, n, 1);
        }
    }
}

static Status check(Exec *x, Tensor xin, const Weight *w, Tensor y) {
    const char *name = w->name ? w->name : "weight";
    if (w->scale.rank || w->lora || !gemm_storage(w->w.dtype))
        return fail(x->error, ERR_MODEL, "%s: linear does not take %s weights with scales or LoRA yet", name,
                    dtype_name(w->w.dtype));
    if (w->w.rank != 2 || w->w.shape[1] != gemm_columns(xin) || w->w.stride[1] != 1)
        return fail(x->error, ERR_MODEL, "%s: linear of %lld columns, weight has %lld", name,
                    (long long)gemm_columns(xin), (long long)gemm_columns(w->w));
    if (gemm_columns(y) != w->w.shape[0] || gemm_rows(y) != gemm_rows(xin))
        return fail(x->error, ERR_MODEL, "%s: output is %lld x %lld, product is %lld x %lld", name,
                    (long long)gemm_rows(y), (long long)gemm_columns(y), (long long)gemm_rows(xin),
                    (long long)w->w.shape[0]);
    if (w->bias.rank && (tensor_numel(w->bias) != w->w.shape[0] || !gemm_storage(w->bias.dtype)))
        return fail(x->error, ERR_MODEL, "%s: bias has %lld elements, want %lld", name,
                    (long long)tensor_numel(w->bias), (long long)w->w.shape[0]);
    if (xin.dtype != y.dtype || (xin.dtype != F32 && xin.dtype != BF16))
        return fail(x->error, ERR_MODEL, "%s: linear from %s to %s", name, dtype_name(xin.dtype), dtype_name(y.dtype));
    return OK;
}

static Side side_of(const Weight *w, Tensor y, int bias_mode) {
    Side s = {.w = w->w.data, .stride = w->w.stride[0], .dtype = w->w.dtype, .round = w->round, .y = y,
              .after = bias_mode != BIAS_FUSED, .n = w->w.shape[0]};
    s.direct = s.dtype == F32 && s.round == F32 && (uintptr_t)s.w % sizeof(float) == 0 && s.stride >= w->w.shape[1];
    return s;
}

/* then: of the last output, into g. */
static Status product(Exec *x, Tensor xin, const Weight *const *w, const Tensor *y, int count, int bias_mode,
                      Epilogue then, Tensor g) {
    int64_t widest = 0;
    const uint16_t *table = NULL;
    if (then == GELU_ROUNDED && y->dtype == BF16) {
        if (!x->unary) return fail(x->error, ERR_MODEL, "linear_gelu: the tables of the BF16 functions are not open");
        table = x->unary->table[UNARY_GELU_TANH];
    }
    for (int i = 0; i < count; i++) {
        TRY(check(x, xin, w[i], y[i]));
        widest = gemm_max(widest, w[i]->w.shape[0]);
    }
    if (then && (g.dtype != y[count - 1].dtype || !tensor_same_shape(g, y[count - 1])))
        return fail(x->error, ERR_MODEL, "%s: linear_gelu: the activation differs in shape or dtype from the product",
                    w[count - 1]->name ? w[count - 1]->name : "weight");
    Plan p = plan(xin, widest);
    if (!p.m || !widest) return OK;
    char *scratch = arena_push(x->scratch, p.total);
    if (!scratch) return fail(x->error, ERR_MEMORY, "linear: no scratch of %zu bytes", p.total);
    float *wide = (float *)(void *)(scratch + p.x), *bias = (float *)(void *)(scratch + p.bias);
    int64_t stride = gemm_row_stride(xin);
    bool direct = xin.dtype == F32 && stride >= p.k;
    for (int64_t first = 0; first < p.m; first += p.chunk) {
        int64_t rows = gemm_min(p.chunk, p.m - first), ldx = direct ? stride : p.k;
        const float *a = direct ? gemm_row(&xin, first) : wide;
        if (!direct) {
#pragma omp parallel for schedule(static) num_threads(p.threads) if (rows > 16)
            for (int64_t r = 0; r < rows; r++)
                gemm_widen(wide + r * p.k, gemm_row(&xin, first + r), xin.dtype, F32, p.k);
        }
        for (int i = 0; i < count; i++) {
            Side s = side_of(w[i], y[i], bias_mode);
            s.then = i == count - 1 ? then : PLAIN;
            s.table = table;
            s.g = g;
            if (w[i]->bias.rank) {
                gemm_widen(bias, w[i]->bias.data, w[i]->bias.dtype, w[i]->round, s.n);
                s.bias = bias;
            }
            if (p.m <= FEW_ROWS) dots(&p, &s, a, ldx);
            else multiply(&p, &s, a, ldx, first, rows, scratch);
        }
    }
    return OK;
}

static Status linear(Exec *x, const void *args) {
    const Linear *a = args;
    return product(x, a->x, &a->w, &a->y, 1, a->bias_mode, PLAIN, (Tensor){0});
}

static size_t linear_scratch(const Exec *x, const void *args) {
    const Linear *a = args;
    (void)x;
    return plan(a->x, a->w->w.shape[0]).total;
}

/* The dot-product loop treats each row as if it were alone. */
static Status linear_rows(Exec *x, const void *args) {
    Linear a = *(const Linear *)args;
    if (a.x.rank != 2 || a.y.rank != 2)
        return fail(x->error, ERR_MODEL, "%s: linear_rows takes matrices", a.w->name ? a.w->name : "weight");
    const Tensor in = a.x, y = a.y;
    TRY(check(x, in, a.w, y));
    size_t mark = arena_mark(x->scratch);
    for (int64_t row = 0; row < in.shape[0]; row += FEW_ROWS) {
        int64_t n = gemm_min(FEW_ROWS, in.shape[0] - row);
        a.x = tensor_slice(in, 0, row, n), a.y = tensor_slice(y, 0, row, n);
        TRY(linear(x, &a));
        arena_reset(x->scratch, mark);
    }
    return OK;
}

static size_t linear_rows_scratch(const Exec *x, const void *args) {
    Linear a = *(const Linear *)args;
    if (a.x.rank == 2 && a.x.shape[0] > FEW_ROWS) a.x = tensor_slice(a.x, 0, 0, FEW_ROWS);
    return linear_scratch(x, &a);
}

static int weights_count_of(const Weight *const *w) {
    int n = 0;
    while (n < LINEAR_MANY_MAX && w[n]) n++;
    return n;
}

static size_t widest_scratch(Tensor xin, const Weight *const *w) {
    int64_t widest = 0;
    for (int i = 0; i < weights_count_of(w); i++) widest = gemm_max(widest, w[i]->w.shape[0]);
    return plan(xin, widest).total;
}

static Status linear_many(Exec *x, const void *args) {
    const LinearMany *a = args;
    return product(x, a->x, a->w, a->y, weights_count_of(a->w), a->bias_mode, PLAIN, (Tensor){0});
}

static size_t linear_many_scratch(const Exec *x, const void *args) {
    const LinearMany *a = args;
    (void)x;
    return widest_scratch(a->x, a->w);
}

static Status many_then(Exec *x, const void *args, Epilogue then) {
    const LinearManyGelu *a = args;
    return product(x, a->x, a->w, a->y, weights_count_of(a->w), a->bias_mode, then, a->g);
}

/* The chain itself. */
static Status linear_many_gelu(Exec *x, const void *args) {
    const LinearManyGelu *a = args;
    TRY(many_then(x, args, PLAIN));
    const Impl *act = x->ops->impl[OP_act][x->ops->count[OP_act] - 1];
    return act->run(x, &(Act){.y = a->g, .x = a->y[weights_count_of(a->w) - 1], .kind = ACT_GELU_TANH});
}

static Status linear_many_gelu_fused(Exec *x, const void *args) { return many_then(x, args, GELU_ROUNDED); }
static Status linear_many_gelu_f32(Exec *x, const void *args) { return many_then(x, args, GELU_KEPT); }

static size_t linear_many_gelu_scratch(const Exec *x, const void *args) {
    const LinearManyGelu *a = args;
    (void)x;
    return widest_scratch(a->x, a->w);
}

/* The chain itself: the product rounded to y, then the table's own activation in place. */
static Status linear_gelu(Exec *x, const void *args) {
    const Linear *a = args;
    TRY(linear(x, args));
    const Impl *act = x->ops->impl[OP_act][x->ops->count[OP_act] - 1];
    return act->run(x, &(Act){.y = a->y, .x = a->y, .kind = ACT_GELU_TANH});
}

/* The same bits without a second pass over y: the table is asked while the tile is in the cache. */
static Status linear_gelu_fused(Exec *x, const void *args) {
    const Linear *a = args;
    return product(x, a->x, &a->w, &a->y, 1, a->bias_mode, GELU_ROUNDED, a->y);
}

static Status linear_gelu_f32(Exec *x, const void *args) {
    const Linear *a = args;
    return product(x, a->x, &a->w, &a->y, 1, a->bias_mode, GELU_KEPT, a->y);
}

static bool keeps_accepts(Tensor y, const Weight *w, int bias_mode, char *why, size_t size) {
    if (y.dtype != BF16)
        snprintf(why, size, "y is %s, expected BF16: without a rounding there is none to leave out", dtype_name(y.dtype));
    else if (w->bias.rank && bias_mode != BIAS_FUSED)
        snprintf(why, size, "the bias is added after a rounding");
    else
        return true;
    return false;
}

static bool linear_gelu_f32_accepts(const void *args, char *why, size_t size) {
    const Linear *a = args;
    return keeps_accepts(a->y, a->w, a->bias_mode, why, size);
}

static bool linear_many_gelu_f32_accepts(const void *args, char *why, size_t size) {
    const LinearManyGelu *a = args;
    int last = weights_count_of(a->w) - 1;
    return keeps_accepts(a->y[last], a->w[last], a->bias_mode, why, size);
}

const Impl LINEAR_GELU_FUSED_CPU[] = {
    {OP_linear_gelu, "cpu_fused", linear_gelu_fused, linear_scratch, NULL},
    {OP_linear_many_gelu, "cpu_fused", linear_many_gelu_fused, linear_many_gelu_scratch, NULL}};
const Impl LINEAR_GELU_F32_CPU[] = {
    {OP_linear_gelu, "cpu_f32", linear_gelu_f32, linear_scratch, linear_gelu_f32_accepts},
    {OP_linear_many_gelu, "cpu_f32", linear_many_gelu_f32, linear_many_gelu_scratch, linear_many_gelu_f32_accepts}};
const Impl LINEAR_CPU[] = {
    {OP_linear, "cpu", linear, linear_scratch, NULL},
    {OP_linear_rows, "cpu", linear_rows, linear_rows_scratch, NULL},
    {OP_linear_many, "cpu", linear_many, linear_many_scratch, NULL},
    {OP_linear_gelu, "cpu", linear_gelu, linear_scratch, NULL},
    {OP_linear_many_gelu, "cpu", linear_many_gelu, linear_many_gelu_scratch, NULL},
};
const int LINEAR_CPU_COUNT = sizeof LINEAR_CPU / sizeof *LINEAR_CPU;
