/* verdicts.c - see verdicts.h. */
#include "verdicts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static const char KIND[] = "verdicts";

Status verdicts_open(Verdicts *v, const char *path, const char *machine, Error *e) {
    *v = (Verdicts){.path = strdup(path)};
    if (!v->path) return fail(e, ERR_MEMORY, "out of memory");
    TRY(tuned_open(&v->known, KIND, machine, e));
    TRY(tuned_open(&v->fresh, KIND, machine, e));
    return tuned_read(&v->known, path, v->note, sizeof v->note, e);
}

void verdicts_close(Verdicts *v) {
    tuned_close(&v->known);
    tuned_close(&v->fresh);
    free(v->path);
    *v = (Verdicts){0};
}

/* Names, since pointers differ from run to run. Bytes used, 0: too long to be kept. */
static size_t key_of(const Family *family, const Impl *impl, uint64_t signature, unsigned char key[TUNED_KEY]) {
    memcpy(key, &signature, sizeof signature);
    size_t room = TUNED_KEY - sizeof signature;
    int used = snprintf((char *)key + sizeof signature, room, "%s %s %s", family->name, ops_info(impl->op)->name, impl->name);
    return used > 0 && (size_t)used < room ? sizeof signature + (size_t)used : 0;
}

Verdict verdicts_find(const Verdicts *v, const Family *family, const Impl *impl, uint64_t signature) {
    unsigned char key[TUNED_KEY];
    size_t size = v && v->path ? key_of(family, impl, signature, key) : 0;
    const TunedEntry *n = size ? tuned_find(&v->known, key, size) : NULL;
    if (!n || n->value_size != 1) return VERDICT_NONE;
    return n->value[0] == VERDICT_SAME ? VERDICT_SAME : n->value[0] == VERDICT_OTHER ? VERDICT_OTHER : VERDICT_NONE;
}

Status verdicts_put(Verdicts *v, const Family *family, const Impl *impl, uint64_t signature, bool same, Error *e) {
    unsigned char key[TUNED_KEY], value = same ? VERDICT_SAME : VERDICT_OTHER;
    char label[200];
    size_t size = v && v->path ? key_of(family, impl, signature, key) : 0;
    if (!size) return OK;
    snprintf(label, sizeof label, "%s %s of %s: %s bits", ops_info(impl->op)->name, impl->name, family->name,
             same ? "the same" : "OTHER");
    v->found++;
    TRY(tuned_put(&v->known, key, size, &value, 1, label, 0, 0, e));
    return tuned_put(&v->fresh, key, size, &value, 1, label, 0, 0, e);
}

/* The lock is a file of its own: the other one is replaced. -1: not to be had within a second. */
static int lock(const char *path, Error *e) {
    enum { TRIES = 50 };
    char name[4200];
    if (snprintf(name, sizeof name, "%s.lock", path) >= (int)sizeof name) {
        fail(e, ERR_IO, "%s: the name is too long", path);
        return -1;
    }
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        fail(e, ERR_IO, "%s: cannot be made: %s", name, strerror(errno));
        return -1;
    }
    for (int i = 0; i < TRIES; i++) {
        if (!flock(fd, LOCK_EX | LOCK_NB)) return fd;
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    close(fd);
    fail(e, ERR_IO, "%s: another process holds it", name);
    return -1;
}

/* What is in the file now, and fresh ones on top. A file that is damaged is given up. */
static Status merge(const Verdicts *v, Tuned *all, Error *e) {
    char note[600];
    TRY(tuned_open(all, KIND, v->known.machine, e));
    TRY(tuned_read(all, v->path, note, sizeof note, e));
    for (int i = 0; i < v->fresh.count; i++) {
        const TunedEntry *n = &v->fresh.entry[i];
        TRY(tuned_put(all, n->key, n->key_size, n->value, n->value_size, n->label, 0, 0, e));
    }
    tuned_trim(all, VERDICTS_MOST);
    return tuned_write(all, v->path, e);
}

void verdicts_save(Verdicts *v) {
    Error e = {0};
    if (!v->path || !v->fresh.count) return;
    v->unsaved[0] = 0;
    int fd = tuned_make_folder(v->path, &e) == OK ? lock(v->path, &e) : -1;
    if (fd >= 0) {
        Tuned all = {0};
        if (merge(v, &all, &e) == OK) tuned_forget(&v->fresh);
        tuned_close(&all);
        close(fd);
    }
    if (e.text[0]) snprintf(v->unsaved, sizeof v->unsaved, "%.590s", e.text);
}
