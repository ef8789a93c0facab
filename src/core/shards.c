/* shards.c - see shards.h. */
#include "core/shards.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME_MAX_BYTES = 256 };

static int text_order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void shards_names_free(char **names, int count) {
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
}

/* A shard lies beside its index: no separators, so no path can lead elsewhere. */
static bool plain_name(const char *name) {
    size_t n = strlen(name);
    return n > 12 && !strcmp(name + n - 12, ".safetensors") && !strchr(name, '/');
}

Status shards_index_files(const Json *index, const char *where, char ***names, int *count, Error *e) {
    *names = NULL;
    *count = 0;
    const Json *map = json_get(index, "weight_map");
    if (!cJSON_IsObject(map) || !map->child)
        return fail(e, ERR_MODEL, "%s: no \"weight_map\" with tensors", where);
    size_t n = 0;
    for (const Json *j = map->child; j; j = j->next, n++)
        if (!cJSON_IsString(j) || !plain_name(j->valuestring))
            return fail(e, ERR_MODEL,
                        "%s: weight_map: %.200s: expected the name of a .safetensors file beside the index",
                        where, j->string);
    const char **sorted = malloc(n * sizeof *sorted);
    char **distinct = calloc(n, sizeof *distinct);
    int kept = 0;
    bool full = sorted && distinct;
    if (full) {
        n = 0;
        for (const Json *j = map->child; j; j = j->next) sorted[n++] = j->valuestring;
        qsort(sorted, n, sizeof *sorted, text_order);
        for (size_t i = 0; i < n && full; i++)
            if (!i || strcmp(sorted[i - 1], sorted[i])) full = (distinct[kept++] = strdup(sorted[i])) != NULL;
    }
    free(sorted);
    if (!full) {
        shards_names_free(distinct, kept);
        return fail(e, ERR_MEMORY, "%s: out of memory", where);
    }
    *names = distinct;
    *count = kept;
    return OK;
}

/* Allocates nothing: a file must not seem missing because memory is. */
static bool present(const char *folder, const char *name) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && file_exists(path);
}

/* What the folder holds for one stem and variant; empty names when absent. */
typedef struct Candidate {
    char single[NAME_MAX_BYTES], index[NAME_MAX_BYTES];
} Candidate;

static bool look(const char *folder, const char *stem, const char *variant, Candidate *c) {
    char second[NAME_MAX_BYTES] = "";
    if (*variant) {
        snprintf(c->single, sizeof c->single, "%s.%s.safetensors", stem, variant);
        snprintf(c->index, sizeof c->index, "%s.safetensors.index.%s.json", stem, variant);
        snprintf(second, sizeof second, "%s.%s.safetensors.index.json", stem, variant);
    } else {
        snprintf(c->single, sizeof c->single, "%s.safetensors", stem);
        snprintf(c->index, sizeof c->index, "%s.safetensors.index.json", stem);
    }
    if (!present(folder, c->single)) c->single[0] = 0;
    if (!present(folder, c->index)) memcpy(c->index, second, sizeof second);
    if (c->index[0] && !present(folder, c->index)) c->index[0] = 0;
    return c->single[0] || c->index[0];
}

/* No weights under a known name: says what lies there instead. */
static Status nothing(const char *folder, Error *e) {
    if (!file_is_dir(folder))
        return fail(e, ERR_MODEL, "%s: missing, expected a folder with weights", folder);
    char seen[NAME_MAX_BYTES] = "";
    DIR *d = opendir(folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        const char *dot = strrchr(f->d_name, '.');
        if (dot &&
            (!strcmp(dot, ".safetensors") || !strcmp(dot, ".bin") || !strcmp(dot, ".gguf") ||
             !strcmp(dot, ".pt") || !strcmp(dot, ".msgpack")) &&
            strlen(f->d_name) < sizeof seen)
            strcpy(seen, f->d_name);
    }
    if (d) closedir(d);
    return fail(e, ERR_MODEL,
                "%s: missing diffusion_pytorch_model.safetensors or model.safetensors (or their index)%s%s%s",
                folder, *seen ? "; found only " : "", seen, *seen ? ", which is not read" : "");
}

/* Whose class the folder's config.json describes; both false where it says neither, or is not there. */
static Status whose(const char *folder, bool *diffusers, bool *transformers, Error *e) {
    Json *j = NULL;
    char *path = file_join(folder, "config.json");
    if (!path) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    *diffusers = *transformers = false;
    Status s = file_exists(path) ? json_read(path, &j, e) : OK;
    if (s == OK && j) *diffusers = json_get(j, "_class_name") != NULL, *transformers = json_get(j, "model_type") != NULL;
    json_free(j);
    free(path);
    return s;
}

/* At most one of c->single and c->index is left non-empty; none: nothing is there under a known name. */
static Status choose(const char *folder, Candidate *c, Error *e) {
    static const char *const VARIANTS[] = {"", "bf16", "fp16"};
    c->single[0] = c->index[0] = 0;
    for (int v = 0; v < 3; v++) {
        Candidate diffusers, transformers;
        bool a = look(folder, "diffusion_pytorch_model", VARIANTS[v], &diffusers);
        bool b = look(folder, "model", VARIANTS[v], &transformers);
        bool ours = false, theirs = false;
        if (a && b) TRY(whose(folder, &ours, &theirs, e));
        if (a && b && ours == theirs)
            return fail(e, ERR_MODEL, "%s: both %s and %s are there; remove the one that is not meant",
                        folder, diffusers.index[0] ? diffusers.index : diffusers.single,
                        transformers.single[0] ? transformers.single : transformers.index);
        if (!a && !b) continue;
        if (a && b) a = ours;
        *c = a ? diffusers : transformers;
        if (c->index[0] && c->single[0]) *(a ? c->single : c->index) = 0;
        return OK;
    }
    return OK;
}

Status shards_names(const char *folder, char ***names, int *count, Error *e) {
    Candidate c;
    *names = NULL;
    *count = 0;
    TRY(choose(folder, &c, e));
    if (!c.single[0] && !c.index[0]) return OK;
    if (c.single[0]) {
        char **one = malloc(sizeof *one);
        if (one && !(*one = strdup(c.single))) free(one), one = NULL;
        if (!one) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
        *names = one;
        *count = 1;
        return OK;
    }
    char *path = file_join(folder, c.index);
    if (!path) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    Json *index = NULL;
    Status status = json_read(path, &index, e);
    if (status == OK) status = shards_index_files(index, path, names, count, e);
    json_free(index);
    free(path);
    return status;
}

static Shard *shard_called(Shards *s, const char *file) {
    for (int i = 0; i < s->count; i++)
        if (!strcmp(s->shard[i].file, file)) return &s->shard[i];
    return NULL;
}

/* Both directions, then the byte total: an index of an older save is caught by one of them. */
static Status cross_check(Shards *s, const Json *index, const char *where, Error *e) {
    int64_t mapped = 0, held = 0, total = -1;
    uint64_t bytes = 0;
    for (const Json *j = json_get(index, "weight_map")->child; j; j = j->next, mapped++)
        if (!safetensors_find(&shard_called(s, j->valuestring)->tensors, j->string))
            return fail(e, ERR_MODEL, "%s: stale index: it puts %.200s into %s, which does not hold it",
                        where, j->string, j->valuestring);
    for (int i = 0; i < s->count; i++) {
        held += s->shard[i].tensors.count;
        bytes += s->shard[i].tensors.payload_bytes;
    }
    /* every mapped tensor was found in its own shard, so more tensors in the shards means unlisted ones */
    for (int i = 0; held > mapped && i < s->count; i++)
        for (int k = 0; k < s->shard[i].tensors.count; k++) {
            const char *name = s->shard[i].tensors.entry[k].name;
            const Json *file = NULL; /* cJSON's lookup is linear, but this is the failing path */
            file = json_get(json_get(index, "weight_map"), name);
            if (!file || strcmp(file->valuestring, s->shard[i].file))
                return fail(e, ERR_MODEL, "%s: stale index: %s holds %.200s, which the index puts %s%s",
                            where, s->shard[i].file, name, file ? "into " : "nowhere",
                            file ? file->valuestring : "");
        }
    const Json *metadata = json_get(index, "metadata");
    TRY(json_int(metadata, "total_size", &total, where, e));
    if (total >= 0 && (uint64_t)total != bytes)
        return fail(e, ERR_MODEL,
                    "%s: stale index: total_size is %" PRId64 ", the files hold %" PRIu64 " bytes of tensors",
                    where, total, bytes);
    return OK;
}

static Status open_files(const char *folder, char **names, int count, Shards *s, Error *e) {
    s->shard = calloc((size_t)count, sizeof *s->shard);
    if (!s->shard) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    int absent = 0;
    const char *first = NULL;
    for (int i = 0; i < count; i++)
        if (!present(folder, names[i]) && !absent++) first = names[i];
    if (absent)
        return fail(e, ERR_MODEL, "%s: missing %s, which %s lists (%d of %d files missing)", folder, first,
                    s->index, absent, count);
    for (int i = 0; i < count; i++) {
        char *path = file_join(folder, names[i]);
        Shard *shard = &s->shard[s->count++];
        shard->file = strdup(names[i]);
        Status status = path && shard->file ? safetensors_open(path, &shard->tensors, e)
                                            : fail(e, ERR_MEMORY, "%s: out of memory", folder);
        free(path);
        TRY(status);
    }
    return OK;
}

static Status open_indexed(const char *folder, const char *name, Shards *s, Error *e) {
    char *path = file_join(folder, name), **names = NULL;
    Json *index = NULL;
    int count = 0;
    s->index = strdup(name);
    Status status =
        path && s->index ? json_read(path, &index, e) : fail(e, ERR_MEMORY, "%s: out of memory", folder);
    if (status == OK) status = shards_index_files(index, path, &names, &count, e);
    if (status == OK) status = open_files(folder, names, count, s, e);
    if (status == OK) status = cross_check(s, index, path, e);
    shards_names_free(names, count);
    json_free(index);
    free(path);
    return status;
}

Status shards_open(const char *path, Shards *out, Error *e) {
    *out = (Shards){0};
    Candidate c = {0};
    Status status;
    if (file_exists(path) && !file_is_dir(path)) { /* one file by its own name */
        const char *slash = strrchr(path, '/');
        out->shard = calloc(1, sizeof *out->shard);
        out->count = out->shard != NULL;
        if (out->shard) out->shard->file = strdup(slash ? slash + 1 : path);
        status = out->shard && out->shard->file ? safetensors_open(path, &out->shard->tensors, e)
                                                : fail(e, ERR_MEMORY, "%s: out of memory", path);
    } else if ((status = choose(path, &c, e)) == OK) {
        char *names[] = {c.single};
        status = c.single[0]  ? open_files(path, names, 1, out, e)
                 : c.index[0] ? open_indexed(path, c.index, out, e)
                              : nothing(path, e);
    }
    if (status != OK) shards_close(out);
    return status;
}

void shards_close(Shards *s) {
    for (int i = 0; i < s->count; i++) {
        safetensors_close(&s->shard[i].tensors);
        free(s->shard[i].file);
    }
    free(s->shard);
    free(s->index);
    *s = (Shards){0};
}
