/* batch_journal.c - see batch_journal.h. Reading tolerates any line that it does not understand; writing is one write() a
 * line, in append mode.
 * Easy to get wrong: sorting must keep lines of one name in file order only for tidiness; nothing depends on it. */
#include "batch_journal.h"

#include "core/file.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char STEM[] = "ditto-journal", SUFFIX[] = ".jsonl";

typedef struct Line {
    Json *tree; /* holds the strings */
    BatchRecord record;
} Line;

struct BatchJournal {
    char *folder, *path;
    Line *line; /* sorted by name */
    int count, room;
    int fd; /* -1: read only */
};

/* --- reading --- */

static bool text_of(const Json *tree, const char *key, const char **out) {
    const Json *j = json_get(tree, key);
    *out = cJSON_IsString(j) ? j->valuestring : NULL;
    return *out != NULL;
}

static Status add_line(BatchJournal *j, const char *text, size_t size, Error *e) {
    Line new = {0};
    const char *seed;
    Status s = json_parse(text, size, "", &new.tree, NULL);
    if (s == ERR_MEMORY) return fail(e, s, "%s: out of memory", j->folder);
    bool good = s == OK && text_of(new.tree, "name", &new.record.name) &&
                text_of(new.tree, "job", &new.record.digest) &&
                text_of(new.tree, "sha256", &new.record.sha256) &&
                text_of(new.tree, "temporary", &new.record.temporary) && text_of(new.tree, "seed", &seed) &&
                !strchr(new.record.temporary, '/');
    if (!good) {
        json_free(new.tree);
        return OK;
    }
    new.record.seed = strtoull(seed, NULL, 10);
    if (j->count == j->room) {
        int room = j->room ? 2 * j->room : 256;
        Line *more = realloc(j->line, (size_t)room * sizeof *more);
        if (!more) {
            json_free(new.tree);
            return fail(e, ERR_MEMORY, "%s: out of memory for its journal", j->folder);
        }
        j->line = more;
        j->room = room;
    }
    j->line[j->count++] = new;
    return OK;
}

static Status read_file(BatchJournal *j, const char *path, Error *e) {
    char *text = NULL;
    size_t size;
    TRY(file_read(path, &text, &size, e));
    Status s = OK;
    for (char *at = text, *end = text + size, *stop; s == OK && at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) break; /* cut off: it was never finished */
        s = add_line(j, at, (size_t)(stop - at), e);
    }
    free(text);
    return s;
}

static int by_name(const void *a, const void *b) {
    const Line *x = a, *y = b;
    return strcmp(x->record.name, y->record.name);
}

static bool is_journal(const char *name) {
    size_t n = strlen(name), m = strlen(SUFFIX);
    return !strncmp(name, STEM, strlen(STEM)) && n > m && !strcmp(name + n - m, SUFFIX);
}

static Status read_all(BatchJournal *j, Error *e) {
    DIR *d = opendir(j->folder);
    if (!d)
        return errno == ENOENT
                   ? OK
                   : fail(e, ERR_IO, "%s: cannot read the folder: %s", j->folder, strerror(errno));
    Status s = OK;
    for (struct dirent *entry; s == OK && (entry = readdir(d));) {
        if (!is_journal(entry->d_name)) continue;
        char *path = file_join(j->folder, entry->d_name);
        s = path ? read_file(j, path, e) : fail(e, ERR_MEMORY, "%s: out of memory", j->folder);
        free(path);
    }
    closedir(d);
    if (j->count) qsort(j->line, (size_t)j->count, sizeof *j->line, by_name);
    return s;
}

/* --- writing --- */

/* Nothing of a line that was cut off stays. */
static Status trim(BatchJournal *j, Error *e) {
    off_t size = lseek(j->fd, 0, SEEK_END), keep = size;
    for (char c = 0; keep > 0; keep--)
        if (pread(j->fd, &c, 1, keep - 1) != 1 || c == '\n') break;
    if (size < 0 || (keep < size && ftruncate(j->fd, keep)))
        return fail(e, ERR_IO, "%s: cannot be mended: %s", j->path, strerror(errno));
    return OK;
}

static Status open_own(BatchJournal *j, int shard, int shards, Error *e) {
    int n = shards > 1 ? asprintf(&j->path, "%s/%s-%d-of-%d%s", j->folder, STEM, shard, shards, SUFFIX)
                       : asprintf(&j->path, "%s/%s%s", j->folder, STEM, SUFFIX);
    if (n < 0) {
        j->path = NULL;
        return fail(e, ERR_MEMORY, "%s: out of memory", j->folder);
    }
    j->fd = open(j->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (j->fd < 0) return fail(e, ERR_IO, "%s: cannot open: %s", j->path, strerror(errno));
    if (flock(j->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) /* file systems without locks go without */
        return fail(e, ERR_USAGE, "%s: another ditto batch is at work there: %s is locked", j->folder,
                    j->path);
    return trim(j, e);
}

Status batch_journal_open(const char *folder, int shard, int shards, bool write, BatchJournal **out,
                          Error *e) {
    BatchJournal *j = calloc(1, sizeof *j);
    *out = NULL;
    if (!j) return fail(e, ERR_MEMORY, "out of memory");
    j->fd = -1;
    j->folder = strdup(folder);
    Status s = j->folder ? OK : fail(e, ERR_MEMORY, "out of memory");
    if (s == OK && write) s = open_own(j, shard, shards, e);
    if (s == OK) s = read_all(j, e);
    if (s == OK)
        *out = j;
    else
        batch_journal_close(j);
    return s;
}

void batch_journal_close(BatchJournal *j) {
    if (!j) return;
    for (int i = 0; i < j->count; i++) json_free(j->line[i].tree);
    if (j->fd >= 0) close(j->fd);
    free(j->line);
    free(j->folder);
    free(j->path);
    free(j);
}

Status batch_journal_add(BatchJournal *j, const BatchRecord *r, Error *e) {
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, r->seed);
    cJSON *o = cJSON_CreateObject();
    bool ok = o && cJSON_AddStringToObject(o, "name", r->name) &&
              cJSON_AddStringToObject(o, "job", r->digest) &&
              cJSON_AddStringToObject(o, "sha256", r->sha256) && cJSON_AddStringToObject(o, "seed", seed) &&
              cJSON_AddStringToObject(o, "temporary", r->temporary);
    char *text = ok ? cJSON_PrintUnformatted(o) : NULL;
    cJSON_Delete(o);
    if (!text) return fail(e, ERR_MEMORY, "%s: out of memory", j->path);
    size_t size = strlen(text);
    text[size] = '\n'; /* in the NUL's place */
    off_t before = lseek(j->fd, 0, SEEK_END);
    ssize_t n = write(j->fd, text, size + 1);
    int why = n < 0 ? errno : ENOSPC;
    bool flushed = n == (ssize_t)size + 1 && (!fdatasync(j->fd) || errno == EINVAL || errno == EROFS);
    if (n == (ssize_t)size + 1 && !flushed) why = errno;
    cJSON_free(text);
    if (flushed) return OK;
    if (ftruncate(j->fd, before))
        return fail(e, ERR_IO, "%s: cannot be mended: %s", j->path, strerror(errno));
    return fail(e, ERR_IO, "%s: cannot write: %s", j->path, strerror(why));
}

/* --- looking up --- */

static bool has_sum(const char *path, const char *sum, const volatile int *interrupted) {
    char found[SHA256_TEXT];
    uint64_t size;
    return file_exists(path) && sha256_file(path, found, &size, interrupted, NULL) == OK &&
           !strcmp(found, sum);
}

/* The rename that an earlier run did not come to. */
static Status finish(const char *path, const BatchRecord *r, bool overwrite, const volatile int *interrupted,
                     bool *done, Error *e) {
    const char *slash = strrchr(path, '/');
    char *temporary = NULL;
    if (asprintf(&temporary, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, r->temporary) < 0)
        return fail(e, ERR_MEMORY, "%s: out of memory", path);
    Status s = OK;
    if (has_sum(temporary, r->sha256, interrupted) && (overwrite || !file_exists(path))) {
        if (rename(temporary, path)) s = fail(e, ERR_IO, "%s: cannot rename: %s", path, strerror(errno));
        *done = s == OK;
    }
    free(temporary);
    return s;
}

static void found(BatchFound *out, const BatchRecord *r) {
    out->done = true;
    out->seed = r->seed;
    snprintf(out->sha256, sizeof out->sha256, "%s", r->sha256);
}

static Status look(BatchJournal *j, const char *path, const Line *first, const Line *end, const char *digest,
                   const volatile int *interrupted, BatchFound *out, Error *e) {
    char sum[SHA256_TEXT] = "";
    uint64_t size;
    out->exists = file_exists(path);
    if (out->exists && first < end) TRY(sha256_file(path, sum, &size, interrupted, e));
    for (const Line *l = first; l < end; l++) {
        bool same = !strcmp(l->record.sha256, sum);
        out->ours |= same;
        if (same && !strcmp(l->record.digest, digest)) found(out, &l->record);
    }
    for (const Line *l = first; l < end && !out->done && j->fd >= 0; l++) {
        bool done = false;
        if (strcmp(l->record.digest, digest)) continue;
        TRY(finish(path, &l->record, out->ours, interrupted, &done, e));
        if (done) found(out, &l->record);
    }
    return OK;
}

Status batch_journal_find(BatchJournal *j, const char *name, const char *digest,
                          const volatile int *interrupted, BatchFound *out, Error *e) {
    *out = (BatchFound){0};
    Line key = {.record.name = name};
    Line *first = j->count ? bsearch(&key, j->line, (size_t)j->count, sizeof *j->line, by_name) : NULL,
         *end = first;
    while (first && first > j->line && !by_name(first - 1, &key)) first--;
    while (end && end < j->line + j->count && !by_name(end, &key)) end++;
    char *path = file_join(j->folder, name);
    if (!path) return fail(e, ERR_MEMORY, "%s: out of memory", name);
    Status s = look(j, path, first, end, digest, interrupted, out, e);
    free(path);
    return s;
}

/* --- what a job is --- */

static bool add_sums(cJSON *o, const BatchJob *job, Error *e) {
    cJSON *list = cJSON_AddArrayToObject(o, "injected");
    bool ok = list != NULL;
    for (int i = 0; ok && i < job->job.inject_count; i++) {
        char sum[SHA256_TEXT];
        uint64_t size;
        if (sha256_file(job->job.inject[i].file, sum, &size, NULL, e) != OK) return false;
        cJSON *text = cJSON_CreateString(sum);
        ok = text && cJSON_AddItemToArray(list, text);
    }
    return ok;
}

Status batch_journal_digest(const Meta *meta, const BatchJob *job, const char *folder, char out[SHA256_TEXT],
                            Error *e) {
    static const char *const LEFT_OUT[] = {"ditto", "build", "profile", "model", "model_path"};
    char *json = meta_json(meta, NULL, NULL), *real = realpath(folder, NULL);
    cJSON *o = json ? cJSON_Parse(json) : NULL;
    Error why = {0};
    for (size_t i = 0; o && i < sizeof LEFT_OUT / sizeof *LEFT_OUT; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(o, LEFT_OUT[i]);
    if (o && !job->seed_given) cJSON_DeleteItemFromObjectCaseSensitive(o, "seed");
    const Job *j = meta->job;
    bool ok = o && cJSON_AddStringToObject(o, "folder", real ? real : folder) &&
              cJSON_AddStringToObject(o, "chosen", j->families ? j->families : "all") &&
              cJSON_AddBoolToObject(o, "metadata", !job->no_metadata) && add_sums(o, job, &why);
    char *text = ok ? cJSON_PrintUnformatted(o) : NULL;
    if (text) sha256_memory(text, strlen(text), out);
    cJSON_free(text);
    cJSON_Delete(o);
    free(json);
    free(real);
    return text ? OK : why.code ? fail(e, why.code, "%s", why.text) : fail(e, ERR_MEMORY, "out of memory");
}
