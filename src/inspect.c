/* inspect.c - see inspect.h. Both forms are produced by the same walk; JSON is built with cJSON, because names need
 * escaping. */
#include "inspect.h"

#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

typedef struct Listing {
    FILE *out;
    cJSON *components; /* array, NULL in text form */
    const InspectModel *model;
    int bad;         /* components that failed */
    char names[400]; /* of those */
    int64_t bytes, elements, tensors;
} Listing;

/* Names come from files: control characters would break lines and columns. */
static void put_name(FILE *out, const char *name) {
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        if (*c < 0x20 || *c == 0x7f)
            fprintf(out, "\\x%02x", *c);
        else
            fputc(*c, out);
    }
}

static void put_tensor(Listing *l, const char *component, const SafetensorsEntry *t, const char *file,
                       const char *use) {
    const char *slash = *component ? "/" : "";
    fprintf(l->out, "%s%s", component, slash);
    put_name(l->out, t->name);
    for (int d = 0; d < t->rank; d++) fprintf(l->out, "%c%" PRId64, d ? ',' : '\t', t->shape[d]);
    fprintf(l->out, "%s\t%s\t%zu\t%s%s%s%s%s\n", t->rank ? "" : "\t", dtype_name(t->dtype), t->bytes,
            component, slash, file, use ? "\t" : "", use ? use : "");
}

static cJSON *tensor_json(const SafetensorsEntry *t, const char *file, const char *use) {
    cJSON *j = cJSON_CreateObject(), *shape = cJSON_AddArrayToObject(j, "shape");
    cJSON_AddStringToObject(j, "name", t->name);
    for (int d = 0; d < t->rank; d++) cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->shape[d]));
    cJSON_AddStringToObject(j, "dtype", dtype_name(t->dtype));
    cJSON_AddNumberToObject(j, "bytes", (double)t->bytes);
    cJSON_AddStringToObject(j, "file", file);
    if (use) cJSON_AddStringToObject(j, "use", use);
    return j;
}

typedef struct Totals {
    int64_t bytes, elements, per_dtype[DTYPE_COUNT];
} Totals;

static Totals totals_of(const WeightFiles *f) {
    Totals t = {0};
    for (int i = 0; i < weights_count(f); i++) {
        const SafetensorsEntry *entry = weights_entry(f, i);
        int64_t n = 1;
        for (int d = 0; d < entry->rank; d++) n *= entry->shape[d];
        t.bytes += (int64_t)entry->bytes;
        t.elements += n;
        t.per_dtype[entry->dtype]++;
    }
    return t;
}

static const char *label(const char *component, const char *path) { return *component ? component : path; }

static void put_totals(Listing *l, const char *name, int count, const Totals *t) {
    fprintf(l->out, "# ");
    put_name(l->out, name);
    fprintf(l->out, ": %d tensors, %" PRId64 " elements, %" PRId64 " bytes", count, t->elements, t->bytes);
    for (int d = 0; d < DTYPE_COUNT; d++)
        if (t->per_dtype[d]) fprintf(l->out, ", %" PRId64 " %s", t->per_dtype[d], dtype_name((DType)d));
    fputc('\n', l->out);
}

/* The rows that found no usable tensor: missing, or another shape or dtype than the model takes. */
static void put_rows(Listing *l, const char *component, const WeightFiles *f, const Bind *rows,
                     const WeightMatch *m, cJSON *object) {
    static const char *const WORDS[] = {NULL, NULL, "missing", "wrong shape", "unsupported dtype"};
    cJSON *list = object ? cJSON_AddArrayToObject(object, "faults") : NULL;
    for (int i = 0; i < rows->count; i++) {
        const char *word = WORDS[m->row[i]];
        if (!word) continue;
        char want[200], found[200] = "";
        tensor_shape_text(tensor_make(NULL, F32, rows->rows[i].rank, rows->rows[i].shape), want, sizeof want);
        if (m->tensor[i] >= 0) safetensors_shape_text(weights_entry(f, m->tensor[i]), found, sizeof found);
        if (list) {
            cJSON *j = cJSON_CreateObject();
            cJSON_AddStringToObject(j, "name", rows->rows[i].name);
            cJSON_AddStringToObject(j, "fault", word);
            cJSON_AddStringToObject(j, "expected", want);
            cJSON_AddItemToArray(list, j);
        } else {
            fprintf(l->out, "# %s: ", word);
            fprintf(l->out, "%s%s", component, *component ? "/" : "");
            put_name(l->out, rows->rows[i].name);
            fprintf(l->out, " %s%s%s\n", want, *found ? ", found " : "", found);
        }
    }
}

static Status list_files(Listing *l, const char *path, const char *component, const WeightFiles *f,
                         cJSON *object, Error *e) {
    static const char *const USES[] = {"unused", "ignored", "used"};
    const char *const *ignore = NULL;
    const Bind *rows = l->model ? l->model->rows(l->model->user, component, &ignore) : NULL;
    WeightMatch m = {0};
    bool matched = rows != NULL;
    Status status = matched ? weights_match(f, rows, ignore, &m, e) : OK;
    Totals totals = totals_of(f);
    cJSON *list = object ? cJSON_AddArrayToObject(object, "tensors") : NULL;
    for (int i = 0; status == OK && i < weights_count(f); i++) {
        const char *file, *use = matched ? USES[m.use[i]] : NULL;
        weights_at(f, i, NULL, NULL, &file);
        if (list)
            cJSON_AddItemToArray(list, tensor_json(weights_entry(f, i), file, use));
        else
            put_tensor(l, component, weights_entry(f, i), file, use);
    }
    if (status == OK && object) {
        cJSON_AddNumberToObject(object, "elements", (double)totals.elements);
        cJSON_AddNumberToObject(object, "bytes", (double)totals.bytes);
    } else if (status == OK) {
        put_totals(l, label(component, path), weights_count(f), &totals);
    }
    if (status == OK && matched) {
        put_rows(l, component, f, rows, &m, object);
        int used = weights_count(f), faults = m.missing + m.shape + m.dtype;
        for (int i = 0; i < weights_count(f); i++) used -= m.use[i] != TENSOR_USED;
        if (object)
            cJSON_AddNumberToObject(object, "unused", m.unused),
                cJSON_AddNumberToObject(object, "missing", m.missing);
        else
            fprintf(l->out, "# %s: %d used, %d unused, %d missing, %d wrong shape, %d unsupported dtype\n",
                    label(component, path), used, m.unused, m.missing, m.shape, m.dtype);
        if (faults)
            status = fail(e, ERR_MODEL, "%s: %d missing, %d of wrong shape, %d of unsupported dtype", path,
                          m.missing, m.shape, m.dtype);
    }
    l->bytes += totals.bytes;
    l->elements += totals.elements;
    l->tensors += weights_count(f);
    weights_match_free(&m);
    return status;
}

/* One file or component folder. A failure is listed and counted; the first one is kept in e. */
static void list_one(Listing *l, const char *path, const char *component, Error *e) {
    Error here = {0};
    WeightFiles *f;
    cJSON *object = l->components ? cJSON_CreateObject() : NULL;
    if (object) cJSON_AddStringToObject(object, "component", label(component, path));
    Status status = weights_open(path, &f, &here);
    if (status == OK) status = list_files(l, path, component, f, object, &here);
    weights_close(f);
    if (status != OK) {
        size_t used = strlen(l->names);
        snprintf(l->names + used, sizeof l->names - used, "%s%s", l->bad++ ? ", " : "",
                 label(component, path));
        if (object)
            cJSON_AddStringToObject(object, "error", here.text);
        else if (*component) /* of several; a single one is the error that is returned */
            fprintf(l->out, "# %s: %s\n", label(component, path), here.text);
        if (e->code == OK) *e = here;
    }
    if (object) cJSON_AddItemToArray(l->components, object);
}

/* Entries of model_index.json are [library, class]; those with weights are told by what their folder is for. */
static bool has_weights(const Json *part) {
    const Json *name = cJSON_IsArray(part) && part->child ? part->child->next : NULL;
    return cJSON_IsString(name) && !strstr(part->string, "tokenizer") && !strstr(part->string, "scheduler") &&
           !strstr(part->string, "feature_extractor") && !strstr(part->string, "processor");
}

static Status list_model(Listing *l, const char *folder, const char *index_path, Error *e) {
    Json *index = NULL;
    TRY(json_read(index_path, &index, e));
    Status status = cJSON_IsObject(index) ? OK : fail(e, ERR_MODEL, "%s: expected a JSON object", index_path);
    int parts = 0;
    for (const Json *j = status == OK ? index->child : NULL; j && status == OK; j = j->next) {
        if (!has_weights(j) || strchr(j->string, '/') || j->string[0] == '.') continue;
        char *part = file_join(folder, j->string);
        if (part)
            list_one(l, part, j->string, e);
        else
            status = fail(e, ERR_MEMORY, "%s: out of memory", folder);
        free(part);
        parts++;
    }
    json_free(index);
    if (status == OK && !parts)
        status = fail(e, ERR_MODEL, "%s: names no component with weights", index_path);
    if (status == OK && !l->components)
        fprintf(l->out,
                "# total: %d components, %" PRId64 " tensors, %" PRId64 " elements, %" PRId64 " bytes\n",
                parts, l->tensors, l->elements, l->bytes);
    if (status == OK && l->bad > 1)
        return e->code = OK, fail(e, ERR_MODEL, "%s: %d of %d components are unusable: %s", folder, l->bad,
                                  parts, l->names);
    return status == OK && l->bad ? e->code : status;
}

static Status print_json(Listing *l, cJSON *root, const char *path, Error *e) {
    cJSON_AddNumberToObject(root, "tensors", (double)l->tensors);
    cJSON_AddNumberToObject(root, "elements", (double)l->elements);
    cJSON_AddNumberToObject(root, "bytes", (double)l->bytes);
    char *text = cJSON_PrintUnformatted(root);
    if (!text) return e->code != OK ? e->code : fail(e, ERR_MEMORY, "%s: out of memory", path);
    fprintf(l->out, "%s\n", text);
    cJSON_free(text);
    return OK;
}

Status inspect_path(const char *path, const InspectModel *model, FILE *out, bool json, Error *e) {
    Error own = {0};
    if (!e) e = &own;
    cJSON *root = json ? cJSON_CreateObject() : NULL;
    Listing l = {.out = out, .model = model};
    if (root) cJSON_AddStringToObject(root, "path", path);
    if (root) l.components = cJSON_AddArrayToObject(root, "components");
    char *index = file_join(path, "model_index.json");
    Status status = index && (!json || l.components) ? OK : fail(e, ERR_MEMORY, "%s: out of memory", path);
    if (status == OK && !file_exists(path)) status = fail(e, ERR_IO, "%s: no such file or folder", path);
    if (status == OK && file_exists(index)) {
        status = list_model(&l, path, index, e);
    } else if (status == OK) {
        list_one(&l, path, "", e);
        status = e->code;
    }
    if (root && l.components) {
        Status printed = print_json(&l, root, path, e);
        if (status == OK) status = printed;
    }
    if ((fflush(out) || ferror(out)) && status == OK)
        status = fail(e, ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    cJSON_Delete(root);
    free(index);
    return status;
}
