/* ab_stages.c - see ab_stages.h. */
#include "ab_stages.h"

#include "stages.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char SUFFIX[] = ".safetensors";

void ab_stages_free(AbStages *s) {
    for (int i = 0; i < s->count; i++) {
        safetensors_close(&s->stage[i].file);
        free(s->stage[i].own);
        free(s->stage[i].name);
    }
    free(s->stage);
    *s = (AbStages){0};
}

const AbStage *ab_stages_find(const AbStages *s, const char *name) {
    for (int i = 0; i < s->count; i++)
        if (!strcmp(s->stage[i].name, name)) return &s->stage[i];
    return NULL;
}

static Status new_stage(AbStages *s, const char *name, size_t size, AbStage **out, Error *e) {
    if (s->count == s->room) {
        int room = s->room ? 2 * s->room : 64;
        AbStage *more = realloc(s->stage, (size_t)room * sizeof *more);
        if (!more) return fail(e, ERR_MEMORY, "out of memory for %d stages", room);
        s->stage = more;
        s->room = room;
    }
    AbStage *stage = &s->stage[s->count];
    *stage = (AbStage){.name = strndup(name, size)};
    if (!stage->name) return fail(e, ERR_MEMORY, "out of memory for a stage");
    s->count++; /* what it holds from here on is freed with the table */
    stage->order = stages_order(stage->name, &stage->step);
    if (stage->order < 0) stage->order = INT_MAX;
    *out = stage;
    return OK;
}

static void trim(SafetensorsEntry *t) {
    int ones = 0;
    while (ones < t->rank - 1 && t->shape[ones] == 1) ones++;
    t->rank -= ones;
    memmove(t->shape, t->shape + ones, (size_t)t->rank * sizeof *t->shape);
}

/* --- from a run --- */

Status ab_stages_add(AbStages *s, const char *name, DType dtype, int rank, const int64_t *shape, const void *values, Error *e) {
    AbStage *stage;
    size_t bytes = tensor_bytes(tensor_make(NULL, dtype, rank, shape));
    TRY(new_stage(s, name, strlen(name), &stage, e));
    stage->entry = (SafetensorsEntry){.name = stage->name, .dtype = dtype, .rank = rank, .bytes = bytes};
    memcpy(stage->entry.shape, shape, (size_t)rank * sizeof *shape);
    trim(&stage->entry);
    stage->own = malloc(bytes ? bytes : 1);
    if (!stage->own) return fail(e, ERR_MEMORY, "stage %s: out of memory for %zu bytes", name, bytes);
    memcpy(stage->own, values, bytes);
    stage->values = stage->own;
    return OK;
}

static int by_order(const void *a, const void *b) {
    const AbStage *x = a, *y = b;
    return x->order != y->order ? (x->order > y->order) - (x->order < y->order) : strcmp(x->name, y->name);
}

void ab_stages_sort(AbStages *s) {
    if (s->count) qsort(s->stage, (size_t)s->count, sizeof *s->stage, by_order);
    const AbStage *sigmas = ab_stages_find(s, "sigmas");
    s->steps = sigmas && sigmas->entry.rank == 1 ? (int)sigmas->entry.shape[0] - 1 : 0;
    s->first = -1;
    for (int i = 0; s->first < 0 && i < s->count; i++) s->first = s->stage[i].step;
}

/* --- from a folder --- */

static Status read_file(AbStages *s, const char *folder, const char *file, Error *e) {
    AbStage *stage;
    TRY(new_stage(s, file, strlen(file) - strlen(SUFFIX), &stage, e));
    char *path = file_join(folder, file);
    if (!path) return fail(e, ERR_MEMORY, "out of memory");
    Status status = safetensors_open(path, &stage->file, e);
    const SafetensorsEntry *entry = status == OK ? safetensors_find(&stage->file, stage->name) : NULL;
    if (status == OK && (!entry || stage->file.count != 1))
        status = fail(e, ERR_MODEL, "%s: holds %d tensors%s, expected one named %s, as --dump writes a stage", path,
                      stage->file.count, entry ? "" : ", none of them the stage", stage->name);
    free(path);
    TRY(status);
    stage->entry = *entry;
    stage->entry.name = stage->name;
    stage->values = stage->file.payload + entry->offset;
    trim(&stage->entry);
    return OK;
}

static Status read_all(AbStages *s, const char *folder, Error *e) {
    DIR *dir = opendir(folder);
    if (!dir) return fail(e, ERR_IO, "%s: cannot be read: %s", folder, strerror(errno));
    Status status = OK;
    for (const struct dirent *d; status == OK && (d = readdir(dir));) {
        size_t n = strlen(d->d_name), m = strlen(SUFFIX);
        if (n > m && d->d_name[0] != '.' && !strcmp(d->d_name + n - m, SUFFIX)) status = read_file(s, folder, d->d_name, e);
    }
    closedir(dir);
    return status;
}

/* What a step has, every step has; what is written last is there. */
static Status check_steps(const AbStages *s, const char *folder, Error *e) {
    enum { KINDS = 4 };
    static const char *const KIND[KINDS] = {"velocity", "latents", "audio_velocity", "audio_latents"};
    int first = s->first < 0 ? INT_MAX : s->first, last = -1;
    bool has[KINDS] = {false};
    for (int i = 0; i < s->count; i++)
        if (s->stage[i].step >= 0) {
            if (s->stage[i].step > last) last = s->stage[i].step;
            for (int k = 0; k < KINDS; k++) has[k] |= !strncmp(s->stage[i].name, KIND[k], strlen(KIND[k]));
        }
    for (int step = first; step <= last; step++)
        for (int k = 0; k < KINDS; k++) {
            char name[32];
            snprintf(name, sizeof name, "%s_%03d", KIND[k], step);
            if (has[k] && !ab_stages_find(s, name))
                return fail(e, ERR_USAGE, "%s: %s%s is missing, but steps %d to %d are there", folder, name, SUFFIX, first, last);
        }
    if (last >= 0 && s->steps && last + 1 != s->steps)
        return fail(e, ERR_USAGE, "%s: its sigmas are of %d steps, but the last step there is %03d: not a whole run", folder,
                    s->steps, last);
    if (last >= 0 && !ab_stages_find(s, "latents"))
        return fail(e, ERR_USAGE, "%s: latents%s is missing, but steps %d to %d are there: not a whole run", folder, SUFFIX,
                    first, last);
    return OK;
}

Status ab_stages_read(const char *folder, AbStages *out, Error *e) {
    *out = (AbStages){0};
    if (!file_exists(folder)) return fail(e, ERR_IO, "%s: no such folder", folder);
    TRY(read_all(out, folder, e));
    if (!out->count)
        return fail(e, ERR_USAGE, "%s: holds no stages (NAME%s, as --dump writes them)", folder, SUFFIX);
    ab_stages_sort(out);
    return check_steps(out, folder, e);
}
