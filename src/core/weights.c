/* weights.c - see weights.h: the name table over a component's files, the match of rows against it, and the binding of all
 * rows at once (layout.c makes the bytes). */
#include "core/weights.h"

#include "core/convert.h"
#include "core/layout.h"
#include "core/shards.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Item {
    const SafetensorsEntry *entry;
    int shard;
} Item;

struct WeightFiles {
    char *path;
    Shards shards;
    Item *item; /* count, in strcmp order of the names */
    int count;
};

static int item_order(const void *a, const void *b) {
    return strcmp(((const Item *)a)->entry->name, ((const Item *)b)->entry->name);
}

Status weights_open(const char *folder, WeightFiles **out, Error *e) {
    *out = NULL;
    WeightFiles *f = calloc(1, sizeof *f);
    if (!f || !(f->path = strdup(folder))) {
        free(f);
        return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    }
    Status status = shards_open(folder, &f->shards, e);
    if (status == OK) {
        size_t n = 0;
        for (int s = 0; s < f->shards.count; s++) n += (size_t)f->shards.shard[s].tensors.count;
        f->item = malloc((n ? n : 1) * sizeof *f->item);
        if (!f->item) status = fail(e, ERR_MEMORY, "%s: out of memory for %zu tensors", folder, n);
    }
    for (int s = 0; status == OK && s < f->shards.count; s++)
        for (int i = 0; i < f->shards.shard[s].tensors.count; i++)
            f->item[f->count++] = (Item){&f->shards.shard[s].tensors.entry[i], s};
    if (f->count) qsort(f->item, (size_t)f->count, sizeof *f->item, item_order);
    if (status == OK)
        *out = f;
    else
        weights_close(f);
    return status;
}

void weights_close(WeightFiles *f) {
    if (!f) return;
    shards_close(&f->shards);
    free(f->item);
    free(f->path);
    free(f);
}

int weights_count(const WeightFiles *f) { return f ? f->count : 0; }

const SafetensorsEntry *weights_entry(const WeightFiles *f, int i) { return f->item[i].entry; }

static Tensor view(const WeightFiles *f, int i) {
    return safetensors_tensor(&f->shards.shard[f->item[i].shard].tensors, f->item[i].entry);
}

void weights_at(const WeightFiles *f, int i, const char **name, Tensor *t, const char **file) {
    const SafetensorsEntry *entry = f->item[i].entry;
    const Shard *shard = &f->shards.shard[f->item[i].shard];
    if (name) *name = entry->name;
    if (file) *file = shard->file;
    if (!t) return;
    *t = view(f, i);
    if (!t->rank) {
        int64_t flat = 1;
        for (int d = 0; d < entry->rank; d++) flat *= entry->shape[d];
        *t = tensor_make((void *)(uintptr_t)(shard->tensors.payload + entry->offset), entry->dtype, 1, &flat);
    }
}

static int find(const WeightFiles *f, const char *name) {
    SafetensorsEntry wanted = {.name = name};
    Item key = {&wanted, 0};
    const Item *found =
        f && f->count ? bsearch(&key, f->item, (size_t)f->count, sizeof key, item_order) : NULL;
    return found ? (int)(found - f->item) : -1;
}

bool weights_find(const WeightFiles *f, const char *name, Tensor *t) {
    int i = find(f, name);
    if (i < 0 || f->item[i].entry->rank > TENSOR_MAX_RANK) return false;
    if (t) *t = view(f, i);
    return true;
}

/* --- match ----------------------------------------------------------------------------------------------------- */

/* Shape that the row expects in the file. */
static Tensor expected(const BindRow *r) {
    Tensor t = tensor_make(NULL, F32, r->rank, r->shape);
    if (r->file_rows) t.shape[0] = r->file_rows;
    return t;
}

Tensor weights_squeezed(Tensor t, BindTarget target) {
    const int least = target == BIND_MATRIX ? 2 : 1;
    for (int d = t.rank - 1; d > least - 2 && t.rank > least; d--) {
        if (t.shape[d] != 1) continue;
        for (int k = d; k + 1 < t.rank; k++) t.shape[k] = t.shape[k + 1];
        t.rank--;
    }
    return tensor_make(t.data, t.dtype, t.rank, t.shape);
}

static bool shape_fits(const BindRow *r, Tensor t) {
    Tensor want = expected(r);
    if (r->transform == BIND_SQUEEZE) t = weights_squeezed(t, r->target), want = weights_squeezed(want, r->target);
    return tensor_same_shape(t, want) && r->row_start >= 0 && r->row_start <= want.shape[0] - r->shape[0] &&
           !(r->transform == BIND_SWAP_HALVES && r->shape[0] % 2) &&
           !(r->transform == BIND_OIHW_OHWI && r->rank < 3) &&
           !(r->transform == BIND_LINE_OHWI && r->rank != 3) &&
           !(r->transform == BIND_FRAME_OHWI && (r->rank != 5 || r->shape[2] != 1));
}

static bool ignored(const char *name, const char *const *ignore) {
    for (; ignore && *ignore; ignore++)
        if (!strncmp(name, *ignore, strlen(*ignore))) return true;
    return false;
}

Status weights_match(const WeightFiles *f, const Bind *b, const char *const *ignore, WeightMatch *m,
                     Error *e) {
    size_t rows = b->count ? (size_t)b->count : 1, tensors = f->count ? (size_t)f->count : 1;
    *m = (WeightMatch){malloc(rows * sizeof *m->tensor),
                       calloc(rows, sizeof *m->row),
                       calloc(tensors, sizeof *m->use),
                       0,
                       0,
                       0,
                       0};
    if (b->failed || !m->tensor || !m->row || !m->use) {
        weights_match_free(m);
        return fail(e, ERR_MEMORY, "%s: out of memory for the list of tensors", f->path);
    }
    for (int i = 0; i < b->count; i++) {
        const BindRow *r = &b->rows[i];
        int at = m->tensor[i] = find(f, r->name);
        if (at < 0) {
            m->row[i] = r->optional ? ROW_ABSENT : ROW_MISSING;
            m->missing += !r->optional;
            continue;
        }
        Tensor t = view(f, at);
        m->use[at] = TENSOR_USED;
        m->row[i] = !shape_fits(r, t) ? ROW_SHAPE : !convert_can(t.dtype) ? ROW_DTYPE : ROW_FOUND;
        m->shape += m->row[i] == ROW_SHAPE;
        m->dtype += m->row[i] == ROW_DTYPE;
    }
    for (int i = 0; i < f->count; i++)
        if (m->use[i] == TENSOR_UNUSED) {
            if (ignored(f->item[i].entry->name, ignore))
                m->use[i] = TENSOR_IGNORED;
            else
                m->unused++;
        }
    return OK;
}

void weights_match_free(WeightMatch *m) {
    free(m->tensor);
    free(m->row);
    free(m->use);
    *m = (WeightMatch){0};
}

typedef struct Text {
    char bytes[1900];
    size_t used;
    int listed;
} Text;

static void say(Text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(Text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->bytes + t->used, sizeof t->bytes - t->used, format, args);
    va_end(args);
    if (n > 0) t->used = t->used + (size_t)n < sizeof t->bytes ? t->used + (size_t)n : sizeof t->bytes - 1;
}

enum { LISTED = 4 };

static void list_rows(Text *t, const WeightFiles *f, const Bind *b, const WeightMatch *m, RowState state) {
    int listed = 0;
    for (int i = 0; i < b->count && listed < LISTED; i++) {
        if (m->row[i] != state) continue;
        char found[200], want[200];
        say(t, "%s%.120s", listed++ ? ", " : "", b->rows[i].name);
        if (state == ROW_SHAPE)
            say(t, " is %s, expected %s",
                safetensors_shape_text(f->item[m->tensor[i]].entry, found, sizeof found),
                tensor_shape_text(expected(&b->rows[i]), want, sizeof want));
        if (state == ROW_DTYPE) say(t, " is %s", dtype_name(f->item[m->tensor[i]].entry->dtype));
    }
}

/* One line with everything that is wrong, or OK. */
static Status report(const WeightFiles *f, const Bind *b, const WeightMatch *m, bool unused_too, Error *e) {
    if (!m->missing && !m->shape && !m->dtype && !(unused_too && m->unused)) return OK;
    static const struct {
        RowState state;
        const char *text;
    } KINDS[] = {{ROW_MISSING, "missing"},
                 {ROW_SHAPE, "of wrong shape"},
                 {ROW_DTYPE, "of a dtype other than BF16, F16, F32"}};
    Text t = {0};
    const int counts[] = {m->missing, m->shape, m->dtype};
    for (int k = 0; k < 3; k++) {
        if (!counts[k]) continue;
        say(&t, "%s%d %s: ", t.used ? "; " : "", counts[k], KINDS[k].text);
        list_rows(&t, f, b, m, KINDS[k].state);
        if (counts[k] > LISTED) say(&t, " and %d more", counts[k] - LISTED);
    }
    if (unused_too && m->unused) {
        say(&t, "%s%d not part of the model: ", t.used ? "; " : "", m->unused);
        for (int i = 0, listed = 0; i < f->count && listed < LISTED; i++)
            if (m->use[i] == TENSOR_UNUSED) say(&t, "%s%.120s", listed++ ? ", " : "", f->item[i].entry->name);
        if (m->unused > LISTED) say(&t, " and %d more", m->unused - LISTED);
    }
    return fail(e, ERR_MODEL, "%s: tensors %s", f->path, t.bytes);
}

/* --- bind ------------------------------------------------------------------------------------------------------ */

Status weights_check(const WeightFiles *f, const Bind *b, const char *const *ignore, bool surplus, WeightMatch *out,
                     Error *e) {
    TRY(weights_match(f, b, ignore, out, e));
    Status status = report(f, b, out, surplus, e);
    if (status != OK) weights_match_free(out);
    return status;
}

Status weights_measure(const WeightFiles *f, const Bind *b, DType compute, const Device *device, size_t *region,
                       size_t *mapped, Error *e) {
    Layout l;
    TRY(layout_make(f, b, NULL, false, compute, !device || device->maps, &l, e));
    *region = l.whole;
    *mapped = l.mapped;
    layout_free(&l);
    return OK;
}

Status weights_bind(const WeightFiles *f, const Bind *b, DType compute, Arena *region,
                    const char *const *ignore, Error *e) {
    Layout l;
    Device *d = region->device;
    TRY(layout_make(f, b, ignore, true, compute, d->maps, &l, e));
    layout_place(&l, NULL);
    void *at = arena_push(region, l.region);
    Status status = OK;
    if (!at && l.region)
        status = fail(e, ERR_MEMORY, "%s: the weight region of %zu bytes is full; plan and load differ", f->path,
                      region->capacity);
    Ticket ticket = 0;
    Fill fill = layout_fill(&l, 0, at);
    if (status == OK) status = d->upload_start(d, &fill, &ticket, e);
    if (status == OK && ticket) status = d->upload_wait(d, ticket, e);
    if (status == OK) layout_bind(&l, at);
    layout_free(&l);
    return status;
}
