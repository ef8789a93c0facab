/* batch_items.c - see batch_items.h.
 * Easy to get wrong: qsort is not stable, so every comparison ends with the index. */
#include "batch_items.h"

#include "core/file.h"
#include "generate.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- names --- */

static Status check_name(const char *name, Error *e) {
    size_t n = strlen(name);
    if (cli_utf8_fault(name) >= 0)
        return fail(e, ERR_USAGE, "--output: the name is not valid UTF-8, which JSON requires");
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (!strncmp(part, "..", 2) && (!part[2] || part[2] == '/'))
            return fail(e, ERR_USAGE, "--output: %s leads out of the folder given to --out", name);
    if (name[0] == '/')
        return fail(e, ERR_USAGE, "--output: %s: expected a name below the folder given to --out", name);
    if (name[n - 1] == '/') return fail(e, ERR_USAGE, "--output: %s: expected a file's name", name);
    return OK;
}

static Status job_names(const BatchJob *b, const char *folder, const char *output, Names *out, Error *e) {
    *out = (Names){0};
    const char *unnamed = !b->clips ? "%04d.png" : b->codec == MP4_FFV1 ? "%04d.mkv" : "%04d.mp4";
    char *name = b->output ? strdup(b->output) : names_number(output ? output : unnamed, b->number);
    char *path = name ? file_join(folder, name) : NULL;
    Status s = path ? check_name(name, e) : fail(e, ERR_MEMORY, "out of memory");
    if (s == OK && file_is_dir(path)) s = fail(e, ERR_USAGE, "--output: %s is a folder", path);
    const NamesWanted wanted = {.title = "", .count = b->count, .of = NAMES_OF_ANY};
    if (s == OK) s = names_make(path, &wanted, out, e);
    free(name);
    free(path);
    return s;
}

static Status spoil(BatchJob *b, const Error *why, Error *e) {
    b->bad = malloc(sizeof *b->bad);
    if (!b->bad) return fail(e, ERR_MEMORY, "out of memory");
    *b->bad = *why;
    because(b->bad, "line %d", b->line);
    return OK;
}

static Status add_items(BatchJob *b, const char *folder, const char *output, BatchItems *out, int *room,
                        Error *e) {
    Names names = {0};
    Error why = {0};
    if (!b->bad && job_names(b, folder, output, &names, &why) != OK) {
        names_free(&names);
        if (why.code == ERR_MEMORY) return fail(e, why.code, "%s", why.text);
        TRY(spoil(b, &why, e));
    }
    int add = b->bad ? 1 : names.count;
    if (out->count + add > *room) {
        *room = 2 * *room + add + 64;
        BatchItem *more = realloc(out->item, (size_t)*room * sizeof *more);
        if (!more) {
            names_free(&names);
            return fail(e, ERR_MEMORY, "out of memory for %d pictures", *room);
        }
        out->item = more;
    }
    size_t skip = strlen(folder) + (folder[strlen(folder) - 1] != '/');
    for (int k = 0; k < add; k++) {
        BatchItem *i = &out->item[out->count];
        *i = (BatchItem){.of = b, .index = out->count, .picture = k, .job = b->job};
        i->job.seed += (uint64_t)k;
        out->count++;
        if (b->bad) continue;
        i->kind = names.kind;
        i->path = names.path[k];
        names.path[k] = NULL;
        i->name = i->path + skip;
    }
    names_free(&names);
    return OK;
}

/* --- no name twice --- */

static const char *name_of(const BatchItem *i) { return i->name ? i->name : ""; }

static int by_name(const void *a, const void *b) {
    const BatchItem *x = *(BatchItem *const *)a, *y = *(BatchItem *const *)b;
    int c = strcmp(name_of(x), name_of(y));
    return c ? c : (x->index > y->index) - (x->index < y->index);
}

static int by_dump(const void *a, const void *b) {
    const BatchItem *x = *(BatchItem *const *)a, *y = *(BatchItem *const *)b;
    int c = strcmp(x->job.dump ? x->job.dump : "", y->job.dump ? y->job.dump : "");
    return c ? c : (x->index > y->index) - (x->index < y->index);
}

/* malloc'd; NULL: out of memory. */
static BatchItem **sorted(const BatchItems *items) {
    BatchItem **list = malloc((size_t)items->count * sizeof *list + 1);
    for (int i = 0; list && i < items->count; i++) list[i] = &items->item[i];
    if (list) qsort(list, (size_t)items->count, sizeof *list, by_name);
    return list;
}

static Status refuse_twice(const BatchItems *items, Error *e) {
    BatchItem **list = sorted(items);
    if (!list) return fail(e, ERR_MEMORY, "out of memory");
    Status s = OK;
    for (int i = 1; s == OK && i < items->count; i++) {
        const BatchItem *a = list[i - 1], *b = list[i];
        if (a->name && b->name && !strcmp(a->name, b->name))
            s = fail(e, ERR_USAGE,
                     "lines %d and %d: both would be %s; give them names of their own, or -o with a counter "
                     "(%%04d.png)",
                     a->of->line, b->of->line, b->path);
    }
    if (s == OK) qsort(list, (size_t)items->count, sizeof *list, by_dump);
    for (int i = 1; s == OK && i < items->count; i++) {
        const BatchItem *a = list[i - 1], *b = list[i];
        if (a->job.dump && b->job.dump && !strcmp(a->job.dump, b->job.dump))
            s = fail(e, ERR_USAGE,
                     "lines %d and %d: --dump: %s holds one picture's stages; give each job its own",
                     a->of->line, b->of->line, a->job.dump);
    }
    free(list);
    return s;
}

Status batch_items_make(BatchJobs *jobs, const char *folder, const char *output, int shard, int shards,
                        BatchItems *out, Error *e) {
    int room = 0, kept = 0;
    *out = (BatchItems){0};
    for (int k = 0; k < jobs->count; k++) TRY(add_items(&jobs->job[k], folder, output, out, &room, e));
    TRY(refuse_twice(out, e));
    for (int k = 0; k < out->count; k++)
        if (k % shards == shard)
            out->item[kept++] = out->item[k];
        else
            free(out->item[k].path);
    out->count = kept;
    return OK;
}

void batch_items_free(BatchItems *items) {
    for (int i = 0; i < items->count; i++) free(items->item[i].path);
    free(items->item);
    *items = (BatchItems){0};
}

/* --- order --- */

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

bool batch_items_same_pipeline(const BatchJob *a, const BatchJob *b) {
    return same_text(a->model, b->model) && generate_same_pipeline(&a->open, &b->open);
}

static bool same_pipeline(const BatchItem *a, const BatchItem *b) {
    return !a->of->bad == !b->of->bad && (a->of->bad || batch_items_same_pipeline(a->of, b->of));
}

static bool same_quality(const BatchItem *a, const BatchItem *b) {
    return a->job.quality == b->job.quality && same_text(a->job.families, b->job.families);
}

static bool same_shape(const BatchItem *a, const BatchItem *b) {
    const Job *x = &a->job, *y = &b->job;
    return x->width == y->width && x->height == y->height && x->frames == y->frames &&
           x->max_sequence_length == y->max_sequence_length && x->cfg == y->cfg && x->steps == y->steps;
}

/* A group is named by the index of its first picture in the file; the pictures are in that order. */
static void number(BatchItem *item, int count, bool (*same)(const BatchItem *, const BatchItem *),
                   size_t field) {
    enum {
        RECENT = 64
    }; /* groups looked through, newest first: more than that and a group may be split, which only costs time */
    const BatchItem *group[RECENT];
    int groups = 0;
    for (int i = 0; i < count; i++) {
        const BatchItem *found = NULL;
        for (int g = 0; g < RECENT && g < groups && !found; g++)
            if (same(group[(groups - 1 - g) % RECENT], &item[i])) found = group[(groups - 1 - g) % RECENT];
        if (!found) group[groups++ % RECENT] = found = &item[i];
        int *to = (int *)(void *)((char *)&item[i] + field);
        *to = found == &item[i] ? item[i].index : *(const int *)(const void *)((const char *)found + field);
    }
}

static int by_order(const void *a, const void *b) {
    const BatchItem *x = a, *y = b;
    if (x->pipeline != y->pipeline) return x->pipeline < y->pipeline ? -1 : 1;
    if (x->quality != y->quality) return x->quality < y->quality ? -1 : 1;
    if (x->shape != y->shape) return x->shape < y->shape ? -1 : 1;
    if (x->rows != y->rows) return x->rows < y->rows ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

void batch_items_group(BatchItems *items) {
    number(items->item, items->count, same_pipeline, offsetof(BatchItem, pipeline));
    if (items->count) qsort(items->item, (size_t)items->count, sizeof *items->item, by_order);
}

void batch_items_order(BatchItem *first, int count) {
    number(first, count, same_quality, offsetof(BatchItem, quality));
    number(first, count, same_shape, offsetof(BatchItem, shape));
    if (count) qsort(first, (size_t)count, sizeof *first, by_order);
}

void batch_items_order_rows(BatchItem *first, int count) {
    if (count) qsort(first, (size_t)count, sizeof *first, by_order);
}

/* --- leftovers --- */

static void sweep_folder(BatchItem *const *list, int count, const char *folder, const char *prefix,
                         size_t prefix_size) {
    char *path = NULL;
    if (asprintf(&path, "%s/%.*s", folder, (int)prefix_size, prefix) < 0) return;
    DIR *d = opendir(path);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char *mark = strstr(entry->d_name, ".tmp-"), *name = NULL, *file = NULL;
        for (char *next; mark && (next = strstr(mark + 1, ".tmp-"));) mark = next;
        if (!mark || !mark[5] || mark[5 + strspn(mark + 5, "0123456789")]) continue;
        if (asprintf(&name, "%.*s%.*s", (int)prefix_size, prefix, (int)(mark - entry->d_name),
                     entry->d_name) < 0)
            break;
        BatchItem key = {.name = name, .index = -1};
        int low = 0, high = count;
        while (low < high) { /* the first that is not before the key */
            int middle = (low + high) / 2;
            if (by_name(&list[middle], &(BatchItem *){&key}) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < count && !strcmp(name_of(list[low]), name) && (file = file_join(path, entry->d_name)))
            unlink(file);
        free(file);
        free(name);
    }
    if (d) closedir(d);
    free(path);
}

void batch_items_sweep(const BatchItems *items, const char *folder) {
    BatchItem **list = sorted(items); /* without it they stay */
    const char *last = NULL;
    size_t last_size = 0;
    for (int i = 0; list && i < items->count; i++) {
        const char *name = name_of(list[i]), *slash = strrchr(name, '/');
        size_t size = slash ? (size_t)(slash - name) + 1 : 0;
        if (!list[i]->name || (last && size == last_size && !memcmp(name, last, size))) continue;
        sweep_folder(list, items->count, folder, name, size);
        last = name;
        last_size = size;
    }
    free(list);
}
