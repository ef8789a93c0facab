/* json.c - see json.h. Before cJSON sees the text, bare infinities and NaNs are replaced in a copy of the text, outside
 * strings only and where they are whole values; NaNs are put back into the tree. */
#include "core/json.h"

#include "core/file.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool delimits(char c) { return !c || strchr(" \t\r\n,:[]{}", c); }

/* Is text[at, at + n) a whole value, with a minus before it where `minus`? */
static bool whole(const char *text, size_t size, size_t at, size_t n, bool minus) {
    size_t begin = at && minus && text[at - 1] == '-' ? at - 1 : at, end = at + n;
    return (!begin || delimits(text[begin - 1])) && (end >= size || delimits(text[end]));
}

/* NaN's stand-in: a string that no JSON text can hold, since 0xff is no byte of UTF-8. */
static const char NAN_TEXT[] = "\"\xff\"", NAN_STRING[] = "\xff";

/* Replaces bare -Infinity, Infinity and NaN by values of the same length in bytes (padding with spaces keeps
 * offsets true): 1e999 overflows to infinity in strtod. Refuses \u0000 and bytes 0xff in strings. */
static Status soften(char *text, size_t size, const char *where, Error *e) {
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') {
                if (i + 5 < size && !memcmp(text + i, "\\u0000", 6))
                    return fail(e, ERR_MODEL, "%s: byte %zu: \\u0000 in a string is not accepted", where, i);
                i++;
            } else if (c == '"') {
                in_string = false;
            } else if (!c || c == *NAN_STRING) {
                return fail(e, ERR_MODEL, "%s: byte %zu: %s in a string", where, i, c ? "no UTF-8" : "NUL byte");
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == 'I' && i + 8 <= size && !memcmp(text + i, "Infinity", 8) && whole(text, size, i, 8, true)) {
            memcpy(text + i, "1e999   ", 8);
        } else if (c == 'N' && i + 3 <= size && !memcmp(text + i, "NaN", 3) && whole(text, size, i, 3, false)) {
            memcpy(text + i, NAN_TEXT, 3);
            i += 2;
        }
    }
    return OK;
}

typedef struct Key { const char *name; } Key;

static int key_order(const void *a, const void *b) { return strcmp(((const Key *)a)->name, ((const Key *)b)->name); }

static Status refuse_duplicates(const Json *j, const char *where, Error *e) {
    for (; j; j = j->next) {
        if (cJSON_IsObject(j)) {
            size_t n = 0;
            for (const Json *c = j->child; c; c = c->next) n++;
            if (n > 1) {
                Key *keys = malloc(n * sizeof *keys);
                if (!keys) return fail(e, ERR_MEMORY, "%s: out of memory", where);
                n = 0;
                for (const Json *c = j->child; c; c = c->next) keys[n++].name = c->string;
                qsort(keys, n, sizeof *keys, key_order);
                for (size_t i = 1; i < n; i++)
                    if (!strcmp(keys[i - 1].name, keys[i].name)) {
                        Status s = fail(e, ERR_MODEL, "%s: key \"%.200s\" occurs twice", where, keys[i].name);
                        free(keys);
                        return s;
                    }
                free(keys);
            }
        }
        if (j->child) TRY(refuse_duplicates(j->child, where, e));
    }
    return OK;
}

/* Makes the stand-ins numbers; one that stands as a key is refused. */
static Status restore_nan(Json *j, const char *where, Error *e) {
    for (; j; j = j->next) {
        if (j->string && !strcmp(j->string, NAN_STRING)) return fail(e, ERR_MODEL, "%s: NaN is no key", where);
        if (cJSON_IsString(j) && !strcmp(j->valuestring, NAN_STRING)) {
            cJSON_free(j->valuestring);
            j->valuestring = NULL;
            j->type = cJSON_Number;
            j->valuedouble = (double)NAN;
        }
        if (j->child) TRY(restore_nan(j->child, where, e));
    }
    return OK;
}

Status json_parse(const char *text, size_t size, const char *where, Json **out, Error *e) {
    *out = NULL;
    char *copy = malloc(size + 1);
    if (!copy) return fail(e, ERR_MEMORY, "%s: out of memory", where);
    if (size) memcpy(copy, text, size);
    copy[size] = 0;
    Status status = soften(copy, size, where, e);
    if (status == OK) {
        const char *end = copy;
        Json *j = cJSON_ParseWithLengthOpts(copy, size + 1, &end, 1);
        if (!j) status = fail(e, ERR_MODEL, "%s: not valid JSON near byte %zu", where, (size_t)(end - copy));
        if (j) status = restore_nan(j, where, e);
        if (j && status == OK) status = refuse_duplicates(j, where, e);
        if (status == OK) *out = j;
        else cJSON_Delete(j);
    }
    free(copy);
    return status;
}

Status json_read(const char *path, Json **out, Error *e) {
    *out = NULL;
    if (!file_exists(path)) return fail(e, ERR_MODEL, "%s: missing", path);
    char *text;
    size_t size;
    TRY(file_read(path, &text, &size, e));
    Status status = json_parse(text, size, path, out, e);
    free(text);
    return status;
}

Status json_read_object(const char *path, Json **out, Error *e) {
    TRY(json_read(path, out, e));
    if (cJSON_IsObject(*out)) return OK;
    json_free(*out);
    *out = NULL;
    return fail(e, ERR_MODEL, "%s: expected a JSON object", path);
}

Status json_read_in(const char *folder, const char *name, JsonReader read, void *out, Error *e) {
    char *path = file_join(folder, name);
    if (!path) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    Json *j = NULL;
    Status s = json_read_object(path, &j, e);
    if (s == OK) s = read(path, j, out, e);
    json_free(j);
    free(path);
    return s;
}

void json_free(Json *j) { cJSON_Delete(j); }

const Json *json_get(const Json *object, const char *key) {
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
}

bool json_is_null(const Json *j) { return !j || cJSON_IsNull(j); }

bool json_as_int(const Json *j, int64_t *out) {
    if (!cJSON_IsNumber(j) || !(fabs(j->valuedouble) <= 0x1p53) || floor(j->valuedouble) != j->valuedouble)
        return false;
    *out = (int64_t)j->valuedouble;
    return true;
}

static Status wrong(const Json *j, const char *key, const char *want, const char *where, Error *e) {
    char *found = cJSON_PrintUnformatted(j);
    Status s = fail(e, ERR_MODEL, "%s: %s: found %.80s, expected %s", where, key, found ? found : "?", want);
    cJSON_free(found);
    return s;
}

Status json_int(const Json *object, const char *key, int64_t *out, const char *where, Error *e) {
    const Json *j = json_get(object, key);
    if (json_is_null(j) || json_as_int(j, out)) return OK;
    return wrong(j, key, "an integer", where, e);
}

Status json_double(const Json *object, const char *key, double *out, const char *where, Error *e) {
    const Json *j = json_get(object, key);
    if (json_is_null(j)) return OK;
    if (!cJSON_IsNumber(j)) return wrong(j, key, "a number", where, e);
    *out = j->valuedouble;
    return OK;
}

Status json_bool(const Json *object, const char *key, bool *out, const char *where, Error *e) {
    const Json *j = json_get(object, key);
    if (!j) return OK;
    if (!cJSON_IsBool(j) && !cJSON_IsNull(j)) return wrong(j, key, "true or false", where, e);
    *out = cJSON_IsTrue(j);
    return OK;
}

Status json_string(const Json *object, const char *key, const char **out, const char *where, Error *e) {
    const Json *j = json_get(object, key);
    if (json_is_null(j)) return OK;
    if (!cJSON_IsString(j)) return wrong(j, key, "a string", where, e);
    *out = j->valuestring;
    return OK;
}

Status json_sizes(const Json *object, const JsonSize *sizes, size_t count, const char *where, Error *e) {
    for (size_t i = 0; i < count; i++) {
        TRY(json_int(object, sizes[i].key, sizes[i].value, where, e));
        if (*sizes[i].value < 1 || *sizes[i].value > 1 << 24)
            return fail(e, ERR_MODEL, "%s: %s: found %lld, expected 1 to 16777216", where, sizes[i].key,
                        (long long)*sizes[i].value);
    }
    return OK;
}

Status json_ints(const Json *object, const char *key, int64_t *out, int cap, int *count, const char *where,
                 Error *e) {
    const Json *j = json_get(object, key);
    if (json_is_null(j)) return OK;
    int n = 0;
    if (!cJSON_IsArray(j)) return wrong(j, key, "a list of integers", where, e);
    for (const Json *c = j->child; c; c = c->next, n++)
        if (n >= cap || !json_as_int(c, &out[n])) return wrong(j, key, "a short list of integers", where, e);
    *count = n;
    return OK;
}

Status json_doubles(const Json *object, const char *key, double *out, int cap, int *count, const char *where, Error *e) {
    const Json *j = json_get(object, key);
    if (json_is_null(j)) return OK;
    int n = 0;
    if (!cJSON_IsArray(j)) return wrong(j, key, "a list of numbers", where, e);
    for (const Json *c = j->child; c; c = c->next) {
        if (n >= cap || !cJSON_IsNumber(c)) return wrong(j, key, "a short list of numbers", where, e);
        out[n++] = c->valuedouble;
    }
    *count = n;
    return OK;
}

Status json_bools(const Json *object, const char *key, bool *out, int cap, int *count, const char *where, Error *e) {
    const Json *j = json_get(object, key);
    if (json_is_null(j)) return OK;
    int n = 0;
    if (!cJSON_IsArray(j)) return wrong(j, key, "a list of booleans", where, e);
    for (const Json *c = j->child; c; c = c->next) {
        if (n >= cap || !cJSON_IsBool(c)) return wrong(j, key, "a short list of booleans", where, e);
        out[n++] = cJSON_IsTrue(c);
    }
    *count = n;
    return OK;
}
