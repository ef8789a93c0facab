/* check_cases_move.c - cases of copy, embed, rel_bias, pack and unpack. All results are exact; the models are written
 * from the definitions (nested loops over the picture), not from the kernels' index arithmetic. */
#include "check.h"

#include <math.h>

#define ARGS(type) type *a = (type *)(void *)&c->args

static const DType FLOATS[] = {F32, BF16, F16};

/* --- copy --- */

static void make_copy(Case *c) {
    static const int64_t shapes[][6] = {
        /* rank, extents */
        {1, 1},          {1, 1025},        {2, 3, 7},          {2, 77, 768},  {3, 5, 24, 128},
        {3, 16, 33, 17}, {4, 2, 3, 5, 96}, {5, 2, 3, 4, 5, 7}, {2, 300, 257},
    };
    enum { SHAPES = sizeof shapes / sizeof *shapes, PAIRS = 11 };
    const int64_t *s = shapes[c->index % SHAPES];
    int pair = c->index / SHAPES, rank = (int)s[0];
    DType from = pair < 9 ? FLOATS[pair / 3] : pair == 9 ? U8 : I32, to = pair < 9 ? FLOATS[pair % 3] : from;
    int64_t shape[TENSOR_MAX_RANK];
    for (int d = 0; d < rank; d++) shape[d] = check_dim(c, s[1 + d], 9);
    Layout lx = (Layout)check_below(c, 4), ly = (Layout)check_below(c, 4);
    ARGS(Copy);
    Buf *x = check_in(c, "x", &a->x, from, lx, rank, shape);
    Buf *y = check_out(c, "y", &a->y, to, ly, rank, shape);
    check_label(c, "%s to %s, rank %d, %s to %s", dtype_name(from), dtype_name(to), rank,
                check_layout_name(lx), check_layout_name(ly));
    if (pair < 9) {
        check_fill(c, x, 0, from == F32 && to == F16 ? 30000 : 2);
        check_spoil(c, x);
    } else {
        for (int64_t i = 0; i < x->n; i++) x->v[i] = (float)check_below(c, 256);
    }
    for (int64_t i = 0; i < y->n; i++)
        check_exact(y, i, pair < 9 ? check_round((double)x->v[i], to) : (double)x->v[i]);
}

/* --- embed --- */

static void make_embed(Case *c) {
    static const int64_t shapes[][3] = {{1, 1, 1},       {7, 49, 768}, {77, 500, 64},
                                        {20, 101, 4096}, {3, 9, 1031}, {512, 40, 96}};
    static const DType kinds[][3] = {{F32, F32, F32},    {F32, BF16, BF16},
                                     {BF16, BF16, BF16}, {BF16, F32, F32},
                                     {F16, BF16, BF16},  {F16, F32, F32},
                                     {F32, BF16, F32}}; /* stored, round, y */
    enum { SHAPES = 6, KINDS = 7, GOOD = SHAPES * KINDS };
    const int64_t *s = shapes[c->index % SHAPES];
    const DType *k = kinds[c->index / SHAPES % KINDS];
    int64_t t = s[0], rows = s[1], d = check_dim(c, s[2], 33);
    Layout layout = check_below(c, 2) ? LAYOUT_UNALIGNED : LAYOUT_DENSE;
    ARGS(Embed);
    Buf *ids = check_in(c, "ids", &a->ids, I32, LAYOUT_DENSE, 1, &t);
    Buf *table = check_weight(c, 0, k[0], k[1], layout, SHAPE(rows, d));
    Buf *y = check_out(c, "y", &a->y, k[2], check_layout(c), SHAPE(t, d));
    a->table = &c->weight[0];
    check_fill(c, table, 0, 1);
    check_label(c, "%s rounded to %s, %lld ids, table %lldx%lld %s", dtype_name(k[0]), dtype_name(k[1]),
                (long long)t, (long long)rows, (long long)d, check_layout_name(layout));
    for (int64_t i = 0; i < t; i++) ids->v[i] = (float)(i == 0 ? rows - 1 : check_below(c, rows));
    for (int64_t i = 0; i < y->n; i++)
        check_exact(y, i, check_round((double)table->v[(int64_t)ids->v[i / d] * d + i % d], k[1]));
    if (c->index >= GOOD && !c->gpu) { /* the two refusals; a GPU gets ids that the pipeline has checked */
        ids->v[t - 1] = (float)(c->index == GOOD ? rows : -1);
        c->status = ERR_MODEL;
        c->refusal = "outside the";
    }
}

/* --- rel_bias --- */

/* The definition in exact terms: below n/2 the distance itself; above, the number of whole steps of a geometric scale
 * that reaches max_distance at n. A distance whose f32 logarithm could fall on either side is not judged. */
static int bucket_of(int64_t offset, int64_t buckets, int max_distance, bool *sure) {
    int64_t n = buckets / 2, r = offset < 0 ? -offset : offset, base = offset > 0 ? n : 0, exact = n / 2;
    *sure = true;
    if (r < exact) return (int)(base + r);
    double steps =
        log((double)r / (double)exact) / log((double)max_distance / (double)exact) * (double)(n - exact);
    double whole = nearbyint(steps);
    if (fabs(steps - whole) > 1e-12) {
        if (fabs(steps - whole) < 1e-5) *sure = false;
        whole = floor(steps);
    }
    double b = (double)exact + whole;
    return (int)((double)base + (b < (double)(n - 1) ? b : (double)(n - 1)));
}

static void make_rel_bias(Case *c) {
    static const int64_t shapes[][6] = {/* H, Q, K, buckets, distance */
                                        {64, 77, 77, 32, 128}, {3, 1, 1, 32, 128},     {2, 5, 300, 32, 128},
                                        {2, 300, 5, 32, 128},  {5, 129, 131, 32, 128}, {2, 40, 50, 8, 20}};
    static const DType kinds[][3] = {{F32, F32, F32}, {F32, BF16, BF16}, {BF16, BF16, BF16}, {F16, F32, F32}};
    const int64_t *s = shapes[c->index % 6];
    const DType *k = kinds[c->index / 6];
    int64_t h = check_dim(c, s[0], 3), q = check_dim(c, s[1], 40), n = check_dim(c, s[2], 200);
    ARGS(RelBias);
    Buf *table = check_weight(c, 0, k[0], k[1], LAYOUT_DENSE, SHAPE(s[3], h));
    Buf *y = check_out(c, "y", &a->y, k[2], check_layout(c), SHAPE(h, q, n));
    y->skipped = check_alloc(c, (size_t)y->n);
    a->table = &c->weight[0];
    a->max_distance = (int32_t)s[4];
    check_label(c, "%s rounded to %s, [%lld, %lld, %lld], %lld buckets", dtype_name(k[0]), dtype_name(k[1]),
                (long long)h, (long long)q, (long long)n, (long long)s[3]);
    check_fill(c, table, 0, 3);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t head = i / (q * n), query = i / n % q, key = i % n;
        bool sure;
        int bucket = bucket_of(key - query, s[3], (int)s[4], &sure);
        check_exact(y, i, check_round((double)table->v[bucket * h + head], k[1]));
        y->skipped[i] = !sure;
    }
}

/* --- pack, unpack --- */

static void make_packing(Case *c) {
    static const int64_t shapes[][3] = {{1, 2, 2},  {16, 16, 16}, {16, 48, 48},
                                        {4, 6, 10}, {16, 2, 34},  {3, 14, 2}};
    const int64_t *s = shapes[c->index % 6];
    DType t = c->index / 6 ? BF16 : F32;
    int64_t ch = s[0], h = s[1], w = s[2], tokens = h / 2 * (w / 2);
    bool packs = c->op == OP_pack;
    Layout lx = check_layout(c), ly = check_layout(c);
    Buf *x, *y;
    if (packs) {
        ARGS(Pack);
        x = check_in(c, "x", &a->x, t, lx, SHAPE(ch, h, w));
        y = check_out(c, "y", &a->y, t, ly, SHAPE(tokens, 4 * ch));
    } else {
        ARGS(Unpack);
        x = check_in(c, "x", &a->x, t, lx, SHAPE(tokens, 4 * ch));
        y = check_out(c, "y", &a->y, t, ly, SHAPE(h, w, ch));
    }
    check_fill(c, x, 0, 1);
    check_label(c, "%s, %lld channels %lldx%lld, %s to %s", dtype_name(t), (long long)ch, (long long)h,
                (long long)w, check_layout_name(lx), check_layout_name(ly));
    /* reshape [C, h/2, 2, w/2, 2], permute to [h/2, w/2, C, 2, 2] */
    int64_t token_element = 0;
    for (int64_t by = 0; by < h / 2; by++)
        for (int64_t bx = 0; bx < w / 2; bx++)
            for (int64_t k = 0; k < ch; k++)
                for (int64_t dy = 0; dy < 2; dy++)
                    for (int64_t dx = 0; dx < 2; dx++, token_element++) {
                        int64_t py = 2 * by + dy, px = 2 * bx + dx;
                        if (packs)
                            check_exact(y, token_element, (double)x->v[(k * h + py) * w + px]);
                        else
                            check_exact(y, (py * w + px) * ch + k, (double)x->v[token_element]);
                    }
}

const CaseSet CHECK_MOVE[] = {
    {OP_copy, 9 * 11, make_copy}, {OP_embed, 44, make_embed},    {OP_rel_bias, 24, make_rel_bias},
    {OP_pack, 12, make_packing},  {OP_unpack, 12, make_packing},
};
const int CHECK_MOVE_COUNT = sizeof CHECK_MOVE / sizeof *CHECK_MOVE;
