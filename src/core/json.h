/* json.h - the JSON of configs, tokenizers and safetensors headers, on cJSON, with its traps closed.
 *
 * cJSON compares keys without case, keeps duplicate keys, holds numbers as doubles and refuses a bare
 * -Infinity (published Sana schedulers hold one). Here: keys are compared exactly, a duplicate key or an
 * embedded NUL is an error, integers beyond 2^53 are an error; Infinity, -Infinity and NaN are accepted as whole
 * values, as Python writes them: numbers, which whoever reads one must expect.
 * Readers name the file and key: "x/config.json: num_layers: found "a", expected an integer".
 * Easy to get wrong: json_get() on the same object is linear; iterate children for big maps. */
#ifndef JSON_H
#define JSON_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cJSON Json;

/* `where` names the source in messages and need not outlive the call. Trailing bytes other than white space
 * are refused. ERR_MODEL on bad JSON with the byte offset, ERR_MEMORY when out of memory. */
Status json_parse(const char *text, size_t size, const char *where, Json **out, Error *e);
Status json_read(const char *path, Json **out, Error *e);   /* a missing file is ERR_MODEL "missing" */
Status json_read_object(const char *path, Json **out, Error *e); /* and what is no object is ERR_MODEL */
/* Reads the object in FOLDER/NAME and hands it to `read`, which names `path` in its messages; the tree is freed afterwards. */
typedef Status (*JsonReader)(const char *path, const Json *j, void *out, Error *e);
Status json_read_in(const char *folder, const char *name, JsonReader read, void *out, Error *e);
void json_free(Json *j);

const Json *json_get(const Json *object, const char *key);  /* NULL when absent or `object` is no object */
bool json_is_null(const Json *j);                           /* absent or null */

/* Readers with a default: absent or null leaves *out untouched; another type is ERR_MODEL. A null boolean is false, as Python
 * takes it. */
Status json_int(const Json *object, const char *key, int64_t *out, const char *where, Error *e);
Status json_double(const Json *object, const char *key, double *out, const char *where, Error *e);
Status json_bool(const Json *object, const char *key, bool *out, const char *where, Error *e);
Status json_string(const Json *object, const char *key, const char **out, const char *where, Error *e);
/* Sizes of a config: each key absent (value kept), or an integer from 1 to 2^24. */
typedef struct JsonSize { const char *key; int64_t *value; } JsonSize;
Status json_sizes(const Json *object, const JsonSize *sizes, size_t count, const char *where, Error *e);
/* Integer array into out[cap]; *count is set. */
Status json_ints(const Json *object, const char *key, int64_t *out, int cap, int *count, const char *where,
                 Error *e);
/* The same for lists of numbers and of booleans. */
Status json_doubles(const Json *object, const char *key, double *out, int cap, int *count, const char *where, Error *e);
Status json_bools(const Json *object, const char *key, bool *out, int cap, int *count, const char *where, Error *e);
/* Integer value of one item; false when it is no integer or beyond 2^53. */
bool json_as_int(const Json *j, int64_t *out);

#endif
