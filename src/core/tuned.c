/* tuned.c - see tuned.h. */
#include "core/tuned.h"

#include "core/file.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FIELDS = 7, LINE_MOST = 2048, HEAD_MOST = 64 };

static void head_of(const Tuned *t, char head[HEAD_MOST]) { snprintf(head, HEAD_MOST, "# ditto %s 1", t->kind); }

static void entry_free(TunedEntry *n) {
    free(n->machine);
    free(n->label);
    *n = (TunedEntry){0};
}

void tuned_forget(Tuned *t) {
    for (int i = 0; i < t->count; i++) entry_free(&t->entry[i]);
    t->count = 0;
}

Status tuned_open(Tuned *t, const char *kind, const char *machine, Error *e) {
    *t = (Tuned){.kind = kind, .machine = strdup(machine)};
    return t->machine ? OK : fail(e, ERR_MEMORY, "out of memory");
}

void tuned_close(Tuned *t) {
    tuned_forget(t);
    free(t->entry);
    free(t->machine);
    *t = (Tuned){0};
}

static int place_of(const Tuned *t, const char *machine, const void *key, size_t size) {
    for (int i = 0; i < t->count; i++) {
        const TunedEntry *n = &t->entry[i];
        if (n->key_size == size && !memcmp(n->key, key, size) && !strcmp(n->machine, machine)) return i;
    }
    return -1;
}

const TunedEntry *tuned_find(const Tuned *t, const void *key, size_t size) {
    int i = place_of(t, t->machine, key, size);
    return i < 0 ? NULL : &t->entry[i];
}

void tuned_trim(Tuned *t, int most) {
    int kept = 0, over = t->count - most;
    for (int i = 0; i < t->count; i++) {
        if (over > 0 && strcmp(t->entry[i].machine, t->machine) != 0) {
            entry_free(&t->entry[i]);
            over--;
        } else {
            t->entry[kept++] = t->entry[i];
        }
    }
    t->count = kept;
}

void tuned_drop(Tuned *t, const void *key, size_t size) {
    int i = place_of(t, t->machine, key, size);
    if (i < 0) return;
    entry_free(&t->entry[i]);
    t->entry[i] = t->entry[--t->count];
}

/* Takes n's strings over. */
static Status add(Tuned *t, TunedEntry *n, Error *e) {
    int i = n->machine ? place_of(t, n->machine, n->key, n->key_size) : -1;
    if (i >= 0) {
        entry_free(&t->entry[i]);
        t->entry[i] = *n;
        return OK;
    }
    if (n->machine && n->label && t->count == t->cap) {
        int cap = t->cap ? 2 * t->cap : 64;
        TunedEntry *more = realloc(t->entry, (size_t)cap * sizeof *more);
        if (more) t->entry = more, t->cap = cap;
    }
    if (!n->machine || !n->label || t->count == t->cap) {
        entry_free(n);
        return fail(e, ERR_MEMORY, "out of memory for tuned products");
    }
    t->entry[t->count++] = *n;
    return OK;
}

Status tuned_put(Tuned *t, const void *key, size_t key_size, const void *value, size_t value_size, const char *label,
                 double first, double best, Error *e) {
    TunedEntry n = {.machine = strdup(t->machine), .label = strdup(label), .key_size = key_size, .value_size = value_size,
                    .first = first, .best = best};
    memcpy(n.key, key, key_size);
    memcpy(n.value, value, value_size);
    return add(t, &n, e);
}

/* --- lines --- */

static uint64_t sum_of(const char *text, size_t size) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return h;
}

static void put_hex(char *out, const unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* False when text is no even number of hexadecimal digits, or has too many. */
static bool take_hex(const char *text, unsigned char *out, size_t most, size_t *size) {
    size_t n = strlen(text);
    if (!n || n % 2 || n / 2 > most || strspn(text, "0123456789abcdef") != n) return false;
    for (size_t i = 0; i < n / 2; i++) {
        unsigned v;
        if (sscanf(text + 2 * i, "%2x", &v) != 1) return false;
        out[i] = (unsigned char)v;
    }
    *size = n / 2;
    return true;
}

/* Without the line's end; the sum is that of all before its tab. */
static int line_of(const TunedEntry *n, char out[LINE_MOST]) {
    char key[2 * TUNED_KEY + 1] = "", value[2 * TUNED_VALUE + 1] = "";
    put_hex(key, n->key, n->key_size);
    put_hex(value, n->value, n->value_size);
    int used = snprintf(out, LINE_MOST, "%s\t%s\t%s\t%s\t%.2f\t%.2f", n->machine, key, value, n->label, n->first, n->best);
    if (used < 0 || used + 20 > LINE_MOST) return -1;
    uint64_t sum = sum_of(out, (size_t)used);
    return used + snprintf(out + used, (size_t)(LINE_MOST - used), "\t%016llx", (unsigned long long)sum);
}

typedef enum Found { GOOD, DAMAGED, NO_MEMORY } Found;

static Found take_line(Tuned *t, char *line, Error *e) {
    char *field[FIELDS], *at = line, *end;
    const char *last = strrchr(line, '\t');
    uint64_t sum = last ? sum_of(line, (size_t)(last - line)) : 0;
    for (int i = 0; i < FIELDS; i++) {
        if (!at) return DAMAGED;
        field[i] = at;
        at = strchr(at, '\t');
        if (at) *at++ = 0;
    }
    TunedEntry n = {0};
    if (at || strlen(field[6]) != 16 || strtoull(field[6], &end, 16) != sum || *end) return DAMAGED;
    if (!take_hex(field[1], n.key, TUNED_KEY, &n.key_size) || !take_hex(field[2], n.value, TUNED_VALUE, &n.value_size))
        return DAMAGED;
    n.first = strtod(field[4], &end);
    if (*end) return DAMAGED;
    n.best = strtod(field[5], &end);
    if (*end) return DAMAGED;
    n.machine = strdup(field[0]);
    n.label = strdup(field[3]);
    return add(t, &n, e) == OK ? GOOD : NO_MEMORY;
}

Status tuned_read(Tuned *t, const char *path, char *note, size_t size, Error *e) {
    char *text = NULL;
    size_t bytes = 0;
    Error why = {0};
    if (size) *note = 0;
    if (!file_exists(path)) return OK;
    Status s = file_read(path, &text, &bytes, &why);
    if (s != OK) {
        snprintf(note, size, "%s; it is not used", why.text);
        return s == ERR_MEMORY ? fail(e, s, "%s", why.text) : OK;
    }
    char head[HEAD_MOST];
    head_of(t, head);
    Found found = strlen(text) == bytes && bytes && text[bytes - 1] == '\n' ? GOOD : DAMAGED;
    int line = 1;
    for (char *at = text, *next; found == GOOD && *at; at = next, line++) {
        next = strchr(at, '\n');
        *next++ = 0;
        if (line == 1) found = strcmp(at, head) ? DAMAGED : GOOD;
        else found = take_line(t, at, e);
    }
    free(text);
    if (found == DAMAGED) {
        snprintf(note, size, "%s: damaged or not made by this ditto (line %d); it is not used", path, line > 1 ? line - 1 : 1);
        tuned_forget(t);
    }
    return found == NO_MEMORY ? ERR_MEMORY : OK;
}

/* --- writing --- */

Status tuned_make_folder(const char *path, Error *e) {
    char folder[4096];
    const char *last = strrchr(path, '/');
    if (!last || last == path) return OK;
    if ((size_t)(last - path) >= sizeof folder) return fail(e, ERR_IO, "%s: the name is too long", path);
    memcpy(folder, path, (size_t)(last - path));
    folder[last - path] = 0;
    char *above = strrchr(folder, '/');
    if (above && above != folder) {
        *above = 0;
        mkdir(folder, 0777); /* whether it worked shows below */
        *above = '/';
    }
    if (mkdir(folder, 0777) && errno != EEXIST) return fail(e, ERR_IO, "%s: cannot be made: %s", folder, strerror(errno));
    return OK;
}

Status tuned_write(const Tuned *t, const char *path, Error *e) {
    char *text = NULL;
    size_t size = 0;
    char head[HEAD_MOST];
    head_of(t, head);
    TRY(tuned_make_folder(path, e));
    FILE *f = open_memstream(&text, &size);
    if (!f) return fail(e, ERR_MEMORY, "out of memory for %s", path);
    fprintf(f, "%s\n", head);
    for (int i = 0; i < t->count; i++) {
        char line[LINE_MOST];
        if (line_of(&t->entry[i], line) > 0) fprintf(f, "%s\n", line);
    }
    bool whole = !ferror(f);
    whole = !fclose(f) && whole;
    Status s = whole ? file_write_atomic(path, text, size, true, e) : fail(e, ERR_MEMORY, "out of memory for %s", path);
    free(text);
    return s;
}
