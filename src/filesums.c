/* filesums.c - see filesums.h. */
#include "filesums.h"

#include "core/file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEEPEST = 8 }; /* a link to its own parent ends somewhere */

void filesums_free(FileSums *f) {
    for (int i = 0; i < f->count; i++) free(f->file[i].name);
    free(f->file);
    *f = (FileSums){0};
}

/* Takes name, also when it fails. */
static FileSum *add(FileSums *f, char *name, Error *e) {
    if (name && f->count == f->cap) {
        int cap = f->cap ? 2 * f->cap : 64;
        FileSum *more = realloc(f->file, (size_t)cap * sizeof *more);
        if (more) f->file = more, f->cap = cap;
    }
    if (!name || f->count == f->cap) {
        free(name);
        fail(e, ERR_MEMORY, "out of memory for the list of files");
        return NULL;
    }
    f->file[f->count] = (FileSum){.name = name};
    return &f->file[f->count++];
}

/* --- the folder --- */

static bool left_out(const char *name, int depth) {
    return name[0] == '.' || (!depth && (!strcmp(name, FILESUMS_MANIFEST) || !strcmp(name, FILESUMS_STAGES)));
}

static Status walk(FileSums *f, const char *folder, const char *below, int depth, Error *e) {
    char *path = file_join(folder, below);
    if (!path) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    DIR *d = opendir(path);
    Status status = d ? OK : fail(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    for (struct dirent *entry; status == OK && (entry = readdir(d));) {
        if (left_out(entry->d_name, depth)) continue;
        char *name = *below ? file_join(below, entry->d_name) : strdup(entry->d_name);
        char *whole = name ? file_join(folder, name) : NULL;
        struct stat st;
        if (!whole) status = fail(e, ERR_MEMORY, "%s: out of memory", folder);
        else if (strpbrk(entry->d_name, "\t\n\r"))
            status = fail(e, ERR_MODEL, "%s: a file name there holds a tab or a line break", path);
        else if (stat(whole, &st)) status = fail(e, ERR_IO, "%s: cannot open: %s", whole, strerror(errno));
        else if (S_ISDIR(st.st_mode))
            status = depth < DEEPEST ? walk(f, folder, name, depth + 1, e)
                                     : fail(e, ERR_MODEL, "%s: folders nest more than %d deep", whole, (int)DEEPEST);
        else if (S_ISREG(st.st_mode)) {
            FileSum *file = add(f, name, e);
            name = NULL;
            status = file ? OK : e->code;
            if (file) file->found = true, file->size = (uint64_t)st.st_size;
        }
        free(name);
        free(whole);
    }
    if (d) closedir(d);
    free(path);
    return status;
}

static int by_name(const void *a, const void *b) { return strcmp(((const FileSum *)a)->name, ((const FileSum *)b)->name); }

static void sort(FileSums *f) {
    if (f->count) qsort(f->file, (size_t)f->count, sizeof *f->file, by_name);
}

Status filesums_list(const char *folder, FileSums *out, Error *e) {
    *out = (FileSums){0};
    Error own = {0};
    Status status = walk(out, folder, "", 0, e ? e : &own);
    sort(out);
    if (status != OK) filesums_free(out);
    return status;
}

/* --- the manifest --- */

static bool is_sum(const char *text) {
    return strlen(text) == SHA256_TEXT - 1 && strspn(text, "0123456789abcdef") == SHA256_TEXT - 1;
}

/* Cuts the line into its three fields, in either form; false when it has none. */
static bool fields(char *line, char **name, char **size, char **sum) {
    const char *cut = strchr(line, '\t') ? "\t" : " ";
    char *first = line, *second = strpbrk(line, cut), *third;
    if (!second) return false;
    *second++ = 0;
    second += *cut == ' ' ? strspn(second, " ") : 0;
    if (!(third = strpbrk(second, cut))) return false;
    *third++ = 0;
    third += *cut == ' ' ? strspn(third, " ") : 0;
    bool tabs = *cut == '\t';
    *name = tabs ? first : third, *size = second, *sum = tabs ? third : first;
    return **name && **size && **sum;
}

static Status take(FileSums *f, char *line, const char *path, int number, Error *e) {
    char *name, *size, *sum, *end = NULL;
    if (!fields(line, &name, &size, &sum))
        return fail(e, ERR_MODEL, "%s:%d: expected name, size and SHA-256 between tabs, or sum, size and name", path, number);
    errno = 0;
    uint64_t bytes = strtoull(size, &end, 10);
    if (strcmp(size, "-") && (*size < '0' || *size > '9' || *end || errno))
        return fail(e, ERR_MODEL, "%s:%d: size: found \"%s\", expected a number of bytes or -", path, number, size);
    if (strcmp(sum, "-") && !is_sum(sum))
        return fail(e, ERR_MODEL, "%s:%d: SHA-256: found \"%s\", expected 64 digits 0-9a-f or -", path, number, sum);
    FileSum *file = NULL;
    for (int i = 0; i < f->count && !file; i++)
        if (!strcmp(f->file[i].name, name)) file = &f->file[i];
    if (file && file->listed) return fail(e, ERR_MODEL, "%s:%d: %s is listed twice", path, number, name);
    if (!file) file = add(f, strdup(name), e);
    if (!file) return ERR_MEMORY;
    file->listed = true;
    file->size_known = strcmp(size, "-") != 0, file->want_size = bytes;
    file->sum_known = strcmp(sum, "-") != 0;
    if (file->sum_known) memcpy(file->want_sum, sum, sizeof file->want_sum);
    return OK;
}

Status filesums_manifest(FileSums *f, const char *path, Error *e) {
    char *text;
    size_t size;
    TRY(file_read(path, &text, &size, e));
    Status status = strlen(text) == size ? OK : fail(e, ERR_MODEL, "%s: holds a zero byte, expected text", path);
    int number = 0, listed = 0;
    for (char *line = text, *next; status == OK && line; line = next) {
        if ((next = strchr(line, '\n'))) *next++ = 0;
        number++;
        line[strcspn(line, "\r")] = 0;
        if (!*line || *line == '#') continue;
        status = take(f, line, path, number, e);
        listed++;
    }
    free(text);
    if (status == OK && !listed) status = fail(e, ERR_MODEL, "%s: lists no file", path);
    sort(f);
    return status;
}

/* --- sums --- */

Status filesums_hash(FileSums *f, const char *folder, const volatile int *interrupted, Error *e) {
    Status first = OK;
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < f->count; i++) {
        FileSum *file = &f->file[i];
        Error mine = {0};
        if (!file->found) continue;
        char *path = file_join(folder, file->name);
        Status status = path ? sha256_file(path, file->sum, &file->size, interrupted, &mine)
                             : fail(&mine, ERR_MEMORY, "%s: out of memory", file->name);
        free(path);
        if (status == OK) continue;
#pragma omp critical(filesums)
        if (first == OK) first = fail(e, status, "%s", mine.text);
    }
    return first;
}

uint64_t filesums_bytes(const FileSums *f) {
    uint64_t n = 0;
    for (int i = 0; i < f->count; i++) n += f->file[i].found ? f->file[i].size : 0;
    return n;
}

static bool any_listed(const FileSums *f) {
    for (int i = 0; i < f->count; i++)
        if (f->file[i].listed) return true;
    return false;
}

const char *filesums_verdict(const FileSums *f, const FileSum *file) {
    if (!file->listed) return any_listed(f) ? "not listed" : "-";
    if (!file->found) return "missing";
    if (file->size_known && file->size != file->want_size) return "size differs";
    if (file->sum_known && strcmp(file->sum, file->want_sum)) return "sum differs";
    return "ok";
}

int filesums_faults(const FileSums *f, const FileSum **first) {
    int faults = 0;
    for (int i = 0; i < f->count; i++) {
        if (!f->file[i].listed || !strcmp(filesums_verdict(f, &f->file[i]), "ok")) continue;
        if (!faults++ && first) *first = &f->file[i];
    }
    return faults;
}

void filesums_print(const FileSums *f, FILE *out) {
    for (int i = 0; i < f->count; i++) {
        const FileSum *file = &f->file[i];
        fprintf(out, "file\t%s\t%" PRIu64 "\t%s\t%s\n", file->name, file->size, file->found ? file->sum : "-",
                filesums_verdict(f, file));
    }
}

Status filesums_write(const FileSums *f, const char *path, bool overwrite, Error *e) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    fprintf(out, "# name, bytes, SHA-256; compared by ditto selftest\n");
    for (int i = 0; i < f->count; i++)
        if (f->file[i].found) fprintf(out, "%s\t%" PRIu64 "\t%s\n", f->file[i].name, f->file[i].size, f->file[i].sum);
    bool bad = ferror(out);
    Status status = fclose(out) || bad ? fail(e, ERR_MEMORY, "%s: out of memory", path)
                                       : file_write_atomic(path, text, size, overwrite, e);
    free(text);
    return status;
}
