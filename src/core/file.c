/* file.c - POSIX side of file.h. The one piece of process-wide state are the names of the temporary files in flight, which
 * a SIGINT handler must be able to remove. */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTIALS = 16 }; /* more files than that at once: the rest are not removed by the handler */
typedef struct Partial {
    atomic_int taken, named; /* named: the name may be read */
    char name[4096];
} Partial;
static Partial partial[PARTIALS]; /* lint: allow-static (signal handler needs them) */

/* What a clone without Git LFS has in the place of a large file. */
static bool is_lfs_pointer(const FileMap *map) {
    static const char BEGIN[] = "version https://git-lfs";
    return map->size >= sizeof BEGIN - 1 && map->size < 1024 && !memcmp(map->data, BEGIN, sizeof BEGIN - 1);
}

Status file_map(const char *path, FileMap *out, Error *e) {
    *out = (FileMap){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is refused below, not waited for */
    if (fd < 0) return fail(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    struct stat st;
    Status status = OK;
    if (fstat(fd, &st)) {
        status = fail(e, ERR_IO, "%s: cannot stat: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = fail(e, ERR_IO, "%s: not a regular file", path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) status = fail(e, ERR_IO, "%s: cannot map: %s", path, strerror(errno));
        else *out = (FileMap){p, (size_t)st.st_size};
    }
    close(fd);
    if (status == OK && is_lfs_pointer(out)) {
        file_unmap(out);
        status = fail(e, ERR_MODEL,
                      "%s: is a Git-LFS pointer, not the file itself: run `git lfs pull` there, or download with `hf download`",
                      path);
    }
    return status;
}

void file_unmap(FileMap *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (FileMap){0};
}

Status file_read(const char *path, char **data, size_t *size, Error *e) {
    FileMap map;
    TRY(file_map(path, &map, e));
    char *copy = malloc(map.size + 1);
    if (copy) {
        if (map.size) memcpy(copy, map.data, map.size);
        copy[map.size] = 0;
    }
    *data = copy;
    if (size) *size = map.size;
    size_t bytes = map.size;
    file_unmap(&map);
    return copy ? OK : fail(e, ERR_MEMORY, "%s: out of memory reading %zu bytes", path, bytes);
}

static Status write_all(int fd, const char *name, const char *data, size_t size, Error *e) {
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(e, ERR_IO, "%s: cannot write: %s", name, strerror(n ? errno : ENOSPC));
        data += n;
        size -= (size_t)n;
    }
    if (fsync(fd) && errno != EINVAL && errno != EROFS)
        return fail(e, ERR_IO, "%s: cannot flush to disk: %s", name, strerror(errno));
    return OK;
}

/* --- files under a temporary name --- */

static int partial_take(const char *name) {
    for (int i = 0; i < PARTIALS; i++)
        if (strlen(name) < sizeof partial[i].name && !atomic_exchange(&partial[i].taken, 1)) {
            strcpy(partial[i].name, name);
            atomic_store(&partial[i].named, 1);
            return i;
        }
    return -1;
}

void file_draft_keep(FileDraft *d) {
    if (d->slot < 0) return;
    atomic_store(&partial[d->slot].named, 0);
    atomic_store(&partial[d->slot].taken, 0);
    d->slot = -1;
}

static void draft_free(FileDraft *d) {
    file_draft_keep(d);
    free(d->path);
    free(d->temporary);
    *d = (FileDraft){.slot = -1};
}

void file_draft_drop(FileDraft *d) {
    if (d->temporary) unlink(d->temporary);
    draft_free(d);
}

static Status refuse_target(const char *path, bool overwrite, Error *e) {
    if (!overwrite && file_exists(path)) return fail(e, ERR_USAGE, "%s: exists; give -y to overwrite", path);
    if (file_is_dir(path)) return fail(e, ERR_IO, "%s: is a folder, expected a file name", path);
    return OK;
}

Status file_draft(const char *path, const void *data, size_t size, FileDraft *out, Error *e) {
    *out = (FileDraft){.slot = -1, .path = strdup(path)};
    if (!out->path || asprintf(&out->temporary, "%s.tmp-%ld", path, (long)getpid()) < 0) {
        out->temporary = NULL;
        draft_free(out);
        return fail(e, ERR_MEMORY, "%s: out of memory", path);
    }
    if (strlen(out->temporary) >= sizeof partial[0].name) {
        draft_free(out);
        return fail(e, ERR_IO, "%s: path is too long", path);
    }
    out->slot = partial_take(out->temporary);
    int fd = open(out->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        Status cannot = fail(e, ERR_IO, "%s: cannot create: %s", path, strerror(errno));
        draft_free(out);
        return cannot;
    }
    Status status = write_all(fd, path, data, size, e);
    if (close(fd) && status == OK) status = fail(e, ERR_IO, "%s: cannot close: %s", path, strerror(errno));
    if (status != OK) file_draft_drop(out);
    return status;
}

Status file_draft_publish(FileDraft *d, bool overwrite, Error *e) {
    Status status = OK;
    if (!overwrite && link(d->temporary, d->path)) {
        /* link() refuses an existing name atomically; file systems without hard links fall back to rename */
        if (errno == EEXIST) status = fail(e, ERR_USAGE, "%s: exists; give -y to overwrite", d->path);
        else if (rename(d->temporary, d->path)) status = fail(e, ERR_IO, "%s: cannot rename: %s", d->path, strerror(errno));
    } else if (overwrite && rename(d->temporary, d->path)) {
        status = fail(e, ERR_IO, "%s: cannot rename: %s", d->path, strerror(errno));
    }
    file_draft_drop(d); /* after link() the second name; after rename() it is already gone */
    return status;
}

Status file_write_atomic(const char *path, const void *data, size_t size, bool overwrite, Error *e) {
    FileDraft draft;
    TRY(refuse_target(path, overwrite, e));
    TRY(file_draft(path, data, size, &draft, e));
    return file_draft_publish(&draft, overwrite, e);
}

void file_remove_partial(void) {
    for (int i = 0; i < PARTIALS; i++)
        if (atomic_load(&partial[i].named)) unlink(partial[i].name);
}

bool file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *file_join(const char *folder, const char *name) {
    size_t a = strlen(folder), b = strlen(name);
    char *out = malloc(a + b + 2);
    if (!out) return NULL;
    memcpy(out, folder, a);
    if (a && folder[a - 1] != '/') out[a++] = '/';
    memcpy(out + a, name, b + 1);
    return out;
}
