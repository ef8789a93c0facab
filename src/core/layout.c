/* layout.c - see layout.h. Bytes are made piece by piece with a few kilobytes on the stack, so that any number of threads
 * may work on one run. Conversions go through f32: widening never rounds, narrowing rounds once, to nearest even. */
#include "core/layout.h"

#include "core/convert.h"
#include "core/safetensors.h"

#include <stdlib.h>

/* --- which rows, how large --- */

static bool stays_mapped(const BindRow *r, bool maps) {
    return maps && r->target == BIND_MATRIX && (r->transform == BIND_PLAIN || r->transform == BIND_SQUEEZE);
}

/* The row's part of the file's tensor, in the file's layout. */
static Tensor source(const WeightFiles *f, const BindRow *r, int at) {
    Tensor t;
    weights_at(f, at, NULL, &t, NULL);
    if (r->transform == BIND_SQUEEZE) t = weights_squeezed(t, r->target);
    if (r->transform == BIND_FRAME_OHWI) t = tensor_view(t, t.shape[0], t.shape[1], t.shape[3], t.shape[4]);
    if (r->transform == BIND_LINE_OHWI) t = tensor_view(t, t.shape[0], t.shape[1], t.shape[2], 1);
    return tensor_slice(t, 0, r->row_start, r->shape[0]);
}

static bool channels_last(Transform t) { return t == BIND_OIHW_OHWI || t == BIND_FRAME_OHWI || t == BIND_LINE_OHWI; }

/* Contiguous tensor without an address: the shape after the transform. */
static Tensor destination(Tensor src, Transform transform, DType compute) {
    Tensor t = tensor_make(NULL, compute, src.rank, src.shape);
    if (!channels_last(transform)) return t;
    for (int d = 1; d + 1 < t.rank; d++) t.shape[d] = src.shape[d + 1];
    t.shape[t.rank - 1] = src.shape[1];
    return tensor_make(NULL, compute, t.rank, t.shape);
}

static void add_item(Layout *l, const WeightFiles *f, int row, int at, bool maps) {
    const BindRow *r = &l->bind->rows[row];
    LayoutItem *item = &l->item[l->items++];
    *item = (LayoutItem){.row = row, .block = r->block, .first = row, .matrix = r->target == BIND_MATRIX,
                         .transform = r->transform};
    while (r->pack && item->first && l->bind->rows[item->first - 1].pack == r->pack) item->first--;
    if (at < 0) return;
    item->src = source(f, r, at);
    item->name = weights_entry(f, at)->name;
    if (stays_mapped(r, maps)) {
        item->dst = item->src;
        size_t bytes = tensor_bytes(item->src), rows = (size_t)item->src.shape[0];
        l->mapped += r->gathered && rows > GATHERED_ROWS ? bytes / rows * GATHERED_ROWS : bytes;
        return;
    }
    item->group = 1;
    item->dst = destination(item->src, r->transform, l->compute);
    size_t size = arena_rounded(tensor_bytes(item->dst));
    l->whole += size;
    if (r->block) l->block_size[r->block - 1] += size;
}

Status layout_make(const WeightFiles *f, const Bind *b, const char *const *ignore, bool surplus, DType compute, bool maps,
                   Layout *out, Error *e) {
    *out = (Layout){.bind = b, .compute = compute};
    WeightMatch m;
    TRY(weights_check(f, b, ignore, surplus, &m, e));
    for (int i = 0; i < b->count; i++)
        if (b->rows[i].block > out->blocks) out->blocks = b->rows[i].block;
    size_t blocks = (size_t)out->blocks + 1;
    out->item = calloc((size_t)b->count + 1, sizeof *out->item);
    out->block_size = calloc(blocks, sizeof *out->block_size);
    out->run = calloc(blocks, sizeof *out->run);
    out->run_of = calloc(blocks, sizeof *out->run_of);
    bool good = out->item && out->block_size && out->run && out->run_of;
    for (int i = 0; good && i < b->count; i++) add_item(out, f, i, m.tensor[i], maps);
    weights_match_free(&m);
    if (good) return OK;
    layout_free(out);
    return fail(e, ERR_MEMORY, "out of memory for the layout of %d tensors", b->count);
}

void layout_free(Layout *l) {
    free(l->item);
    free(l->block_size);
    free(l->run);
    free(l->run_of);
    *l = (Layout){0};
}

/* --- where they lie --- */

static int item_order(const void *a, const void *b) {
    const LayoutItem *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->matrix != y->matrix) return y->matrix ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

void layout_place(Layout *l, const bool *streamed) {
    size_t slot = 0, resident = l->whole;
    l->runs = 1;
    for (int b = 0; b < l->blocks; b++) {
        bool moves = streamed && streamed[b] && l->block_size[b];
        l->run_of[b] = moves ? l->runs++ : 0;
        if (!moves) continue;
        resident -= l->block_size[b];
        if (l->block_size[b] > slot) slot = l->block_size[b];
    }
    for (int i = 0; i < l->items; i++)
        if (l->item[i].group) l->item[i].group = 1 + (l->item[i].block ? l->run_of[l->item[i].block - 1] : 0);
    qsort(l->item, (size_t)l->items, sizeof *l->item, item_order);
    l->region = resident + (l->runs == 1 ? 0 : 2) * slot;
    for (int k = 0; k < l->runs; k++) l->run[k] = (LayoutRun){.offset = k ? resident + (size_t)((k - 1) % 2) * slot : 0};
    for (int i = 0; i < l->items; i++) {
        LayoutItem *item = &l->item[i];
        if (!item->group) continue;
        LayoutRun *run = &l->run[item->group - 1];
        if (!run->count++) run->item = item;
        item->offset = run->offset + run->size;
        run->size += arena_rounded(tensor_bytes(item->dst));
    }
}

void layout_bind(const Layout *l, void *region) {
    for (int i = 0; i < l->items; i++) {
        const LayoutItem *item = &l->item[i];
        const BindRow *r = &l->bind->rows[item->row];
        Tensor t = item->dst;
        if (item->group) t.data = (char *)region + item->offset;
        if (r->target == BIND_VECTOR) {
            *r->vector = t;
        } else if (r->target == BIND_BIAS) {
            r->weight->bias = t;
        } else {
            r->weight->w = t;
            r->weight->round = l->compute;
            r->weight->version++;
            r->weight->name = item->name;
        }
    }
}

/* --- their bytes --- */

/* Elements [at, at + n) of the transformed tensor, as f32. */
static void widen(const LayoutItem *item, int64_t at, int64_t n, float *out) {
    const char *data = item->src.data;
    size_t size = dtype_size(item->src.dtype);
    int64_t count = tensor_numel(item->src), half = 0;
    if (channels_last(item->transform)) {
        int64_t row = count / item->src.shape[0], in = item->src.shape[1], area = row / in;
        for (int64_t i = 0; i < n; i++) {
            int64_t o = (at + i) / row, r = (at + i) % row; /* r = pixel * in + channel */
            convert_widen(data + (size_t)(o * row + r % in * area + r / in) * size, item->src.dtype, out + i, 1);
        }
        return;
    }
    if (item->transform == BIND_SWAP_HALVES) half = count / 2;
    int64_t from = (at + half) % count, first = n < count - from ? n : count - from;
    convert_widen(data + (size_t)from * size, item->src.dtype, out, (size_t)first);
    convert_widen(data, item->src.dtype, out + first, (size_t)(n - first));
    if (item->transform == BIND_PLUS_ONE)
        for (int64_t i = 0; i < n; i++) out[i] = 1.0f + out[i];
}

/* Bytes [at, at + size) of one tensor; both are whole elements. */
static void make_piece(const LayoutItem *item, size_t at, size_t size, char *out) {
    enum { STEP = 1024 };
    DType to = item->dst.dtype;
    if ((item->transform == BIND_PLAIN || item->transform == BIND_SQUEEZE) && item->src.dtype == to) {
        memcpy(out, (const char *)item->src.data + at, size);
        return;
    }
    float wide[STEP];
    int64_t first = (int64_t)(at / dtype_size(to)), n = (int64_t)(size / dtype_size(to));
    for (int64_t i = 0; i < n; i += STEP) {
        int64_t count = n - i < STEP ? n - i : STEP;
        widen(item, first + i, count, wide);
        convert_narrow(wide, to, out + (size_t)i * dtype_size(to), (size_t)count);
    }
}

/* The last item of the run that begins at or before `at`. */
static int item_at(const LayoutRun *run, size_t at) {
    int low = 0, high = run->count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (run->item[middle].offset - run->offset <= at) low = middle;
        else high = middle - 1;
    }
    return low;
}

static void make_bytes(const void *source_run, size_t at, size_t size, void *out) {
    const LayoutRun *run = source_run;
    char *to = out;
    for (int i = item_at(run, at); size; i++) {
        const LayoutItem *item = &run->item[i];
        size_t skip = at - (item->offset - run->offset), bytes = tensor_bytes(item->dst), span = arena_rounded(bytes);
        size_t take = span - skip < size ? span - skip : size, real = skip >= bytes ? 0 : bytes - skip;
        if (real > take) real = take;
        if (real) make_piece(item, skip, real, to);
        memset(to + real, 0, take - real);
        at += take, size -= take, to += take;
    }
}

Fill layout_fill(const Layout *l, int run, void *region) {
    const LayoutRun *r = &l->run[run];
    return (Fill){.to = (char *)region + r->offset, .size = r->size, .make = make_bytes, .source = r};
}
