/* safetensors.c - see safetensors.h. Parsing works on bytes in memory, so that the fuzzer drives exactly what a file
 * drives; safetensors_open only adds the mapping. Not tolerant: what the format's own library refuses is refused. */
#include "core/safetensors.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What people save under this name by accident, told by its first bytes; NULL when nothing is recognised. The short
 * magics could be the low bytes of an honest header length, whose bytes 5 to 7 are zero below 2^40. */
static const char *impostor(const unsigned char *data, size_t size) {
    static const struct {
        const char *magic;
        size_t size;
        bool text, sure;
        const char *what;
    } KNOWN[] = {
        {"GGUF", 4, false, true, "is a GGUF file; ditto reads safetensors"},
        {"PK\3\4", 4, false, false, "is a zip archive, probably a PyTorch pickle; ditto reads safetensors"},
        {"\x80\x02", 2, false, false, "is a Python pickle; ditto reads safetensors"},
        {"{", 1, true, false,
         "is JSON text, perhaps an error message saved under this name; download it again with `hf "
         "download`"},
        {"<", 1, true, false,
         "is a web page (HTML or XML) saved under this name; download it again with `hf download`"},
    };
    size_t skip = size >= 3 && !memcmp(data, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (skip < size && skip < 64 && data[skip] && strchr(" \t\r\n", data[skip])) skip++;
    bool length_like = size >= 8 && !data[5] && !data[6] && !data[7];
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        size_t at = KNOWN[i].text ? skip : 0;
        if ((KNOWN[i].sure || !length_like) && size - at >= KNOWN[i].size &&
            !memcmp(data + at, KNOWN[i].magic, KNOWN[i].size))
            return KNOWN[i].what;
    }
    return NULL;
}

/* Outside strings a header holds structure and whole numbers only. Checked on the text, because cJSON's doubles no
 * longer tell 1000 from 1e3 or 1000.0. */
static Status refuse_floats(const char *text, size_t size, const char *where, Error *e) {
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (!c || !strchr("{}[],:-0123456789 \t\r\n", c)) {
            return fail(e, ERR_MODEL,
                        "%s: header byte %zu: found '%c', expected whole numbers and structure only", where,
                        i, c > 0x20 ? c : '?');
        }
    }
    return OK;
}

static Status read_shape(const Json *shape, SafetensorsEntry *t, const char *where, Error *e) {
    if (!cJSON_IsArray(shape)) return fail(e, ERR_MODEL, "%s: %s: no \"shape\" list", where, t->name);
    for (const Json *d = shape->child; d; d = d->next) {
        int64_t n;
        if (t->rank == SAFETENSORS_MAX_RANK)
            return fail(e, ERR_MODEL, "%s: %s: shape has more than %d dimensions", where, t->name,
                        SAFETENSORS_MAX_RANK);
        if (!json_as_int(d, &n) || n < 0)
            return fail(e, ERR_MODEL, "%s: %s: shape[%d] is no whole number from 0 to 2^53", where, t->name,
                        t->rank);
        t->shape[t->rank++] = n;
    }
    return OK;
}

/* Bytes that shape and dtype ask for; false on overflow or when sub-byte elements do not fill whole bytes. */
static bool wanted_bytes(const SafetensorsEntry *t, uint64_t *bytes) {
    uint64_t bits = (uint64_t)dtype_bits(t->dtype);
    for (int d = 0; d < t->rank; d++)
        if (__builtin_mul_overflow(bits, (uint64_t)t->shape[d], &bits)) return false;
    *bytes = bits / 8;
    return bits % 8 == 0;
}

static Status read_entry(const Json *j, SafetensorsEntry *t, size_t payload, const char *where, Error *e) {
    t->name = j->string;
    if (!cJSON_IsObject(j))
        return fail(e, ERR_MODEL, "%s: %s: expected {dtype, shape, data_offsets}", where, t->name);
    const Json *dtype = json_get(j, "dtype");
    if (!cJSON_IsString(dtype)) return fail(e, ERR_MODEL, "%s: %s: no \"dtype\" string", where, t->name);
    t->dtype = dtype_parse(dtype->valuestring);
    if (t->dtype == DTYPE_NONE)
        return fail(e, ERR_MODEL, "%s: %s: unknown dtype \"%.40s\"", where, t->name, dtype->valuestring);
    TRY(read_shape(json_get(j, "shape"), t, where, e));
    const Json *span = json_get(j, "data_offsets");
    int64_t from, to;
    if (!cJSON_IsArray(span) || !span->child || !span->child->next || span->child->next->next ||
        !json_as_int(span->child, &from) || !json_as_int(span->child->next, &to))
        return fail(e, ERR_MODEL, "%s: %s: data_offsets is no pair of whole numbers below 2^53", where,
                    t->name);
    if (from < 0 || to < from)
        return fail(e, ERR_MODEL, "%s: %s: data_offsets [%" PRId64 ", %" PRId64 "] do not rise from 0", where,
                    t->name, from, to);
    if ((uint64_t)to > payload)
        return fail(e, ERR_MODEL, "%s: truncated: %s ends at byte %" PRId64 " of the data, which has %zu",
                    where, t->name, to, payload);
    uint64_t want;
    char shape[200];
    if (!wanted_bytes(t, &want) || want != (uint64_t)(to - from))
        return fail(e, ERR_MODEL,
                    "%s: %s: data_offsets span %" PRId64 " bytes, which is not what %s %s takes", where,
                    t->name, to - from, dtype_name(t->dtype), safetensors_shape_text(t, shape, sizeof shape));
    t->offset = (size_t)from;
    t->bytes = (size_t)want;
    return OK;
}

static int offset_order(const void *a, const void *b) {
    const SafetensorsEntry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* zero-element tensors first */
}

static int name_order(const void *a, const void *b) {
    return strcmp(((const SafetensorsEntry *)a)->name, ((const SafetensorsEntry *)b)->name);
}

/* The spans, sorted by offset, must tile [0, payload). */
static Status check_tiling(const Safetensors *s, const char *where, Error *e) {
    size_t end = 0;
    for (int i = 0; i < s->count; i++) {
        const SafetensorsEntry *t = &s->entry[i];
        if (t->offset < end)
            return fail(e, ERR_MODEL, "%s: %s and %s overlap", where, s->entry[i - 1].name, t->name);
        if (t->offset > end)
            return fail(e, ERR_MODEL, "%s: %zu bytes before %s belong to no tensor", where, t->offset - end,
                        t->name);
        end = t->offset + t->bytes;
    }
    if (end != s->payload_bytes)
        return fail(e, ERR_MODEL, "%s: %zu bytes after the last tensor belong to none", where,
                    s->payload_bytes - end);
    return OK;
}

static Status read_metadata(const Json *j, const char *where, Error *e) {
    if (!cJSON_IsObject(j)) return fail(e, ERR_MODEL, "%s: __metadata__ is no object", where);
    for (const Json *m = j->child; m; m = m->next)
        if (!cJSON_IsString(m))
            return fail(e, ERR_MODEL, "%s: __metadata__: %.100s is no string", where, m->string);
    return OK;
}

static Status read_header(Safetensors *s, const char *where, Error *e) {
    if (!cJSON_IsObject(s->header)) return fail(e, ERR_MODEL, "%s: header is no JSON object", where);
    size_t n = 0;
    for (const Json *j = s->header->child; j; j = j->next) n++;
    s->entry = calloc(n ? n : 1, sizeof *s->entry);
    if (!s->entry) return fail(e, ERR_MEMORY, "%s: out of memory for %zu tensors", where, n);
    for (const Json *j = s->header->child; j; j = j->next) {
        if (!strcmp(j->string, "__metadata__")) {
            TRY(read_metadata(j, where, e));
            s->metadata = j;
        } else {
            TRY(read_entry(j, &s->entry[s->count], s->payload_bytes, where, e));
            s->count++;
        }
    }
    qsort(s->entry, (size_t)s->count, sizeof *s->entry, offset_order);
    TRY(check_tiling(s, where, e));
    qsort(s->entry, (size_t)s->count, sizeof *s->entry, name_order);
    return OK;
}

Status safetensors_parse(const void *bytes, size_t size, const char *where, Safetensors *out, Error *e) {
    const unsigned char *data = bytes;
    *out = (Safetensors){0};
    const char *what = impostor(data, size);
    if (what) return fail(e, ERR_MODEL, "%s: %s", where, what);
    if (size < 10)
        return fail(e, ERR_MODEL, "%s: truncated: %zu bytes, a safetensors file has at least 10", where,
                    size);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | data[i];
    if (data[8] != '{')
        return fail(e, ERR_MODEL, "%s: not a safetensors file: no '{' after the header length", where);
    if (n > SAFETENSORS_MAX_HEADER)
        return fail(e, ERR_MODEL, "%s: header of %" PRIu64 " bytes is above the limit of %d", where, n,
                    SAFETENSORS_MAX_HEADER);
    if (n > size - 8)
        return fail(e, ERR_MODEL, "%s: truncated: the header takes %" PRIu64 " bytes, the file has %zu",
                    where, n, size);
    out->header_bytes = (size_t)n;
    out->payload = data + 8 + n;
    out->payload_bytes = size - 8 - (size_t)n;
    const char *text = (const char *)data + 8;
    Status status = refuse_floats(text, (size_t)n, where, e);
    if (status == OK) status = json_parse(text, (size_t)n, where, &out->header, e);
    if (status == OK) status = read_header(out, where, e);
    if (status != OK) safetensors_close(out);
    return status;
}

Status safetensors_open(const char *path, Safetensors *out, Error *e) {
    FileMap map;
    *out = (Safetensors){0};
    TRY(file_map(path, &map, e));
    Status status =
        safetensors_parse(map.data ? map.data : (const unsigned char *)"", map.size, path, out, e);
    if (status == OK)
        out->map = map;
    else
        file_unmap(&map);
    return status;
}

void safetensors_close(Safetensors *s) {
    file_unmap(&s->map);
    json_free(s->header);
    free(s->entry);
    *s = (Safetensors){0};
}

const SafetensorsEntry *safetensors_find(const Safetensors *s, const char *name) {
    SafetensorsEntry key = {.name = name};
    return s->count ? bsearch(&key, s->entry, (size_t)s->count, sizeof key, name_order) : NULL;
}

Tensor safetensors_tensor(const Safetensors *s, const SafetensorsEntry *t) {
    int64_t one = 1;
    void *data = (void *)(uintptr_t)(s->payload + t->offset);
    if (t->rank > TENSOR_MAX_RANK) return (Tensor){0};
    return t->rank ? tensor_make(data, t->dtype, t->rank, t->shape) : tensor_make(data, t->dtype, 1, &one);
}

const char *safetensors_shape_text(const SafetensorsEntry *t, char *out, size_t size) {
    size_t at = 0;
    int n = snprintf(out, size, "[");
    for (int d = 0; n > 0 && (at += (size_t)n) < size && d < t->rank; d++)
        n = snprintf(out + at, size - at, "%s%" PRId64, d ? ", " : "", t->shape[d]);
    if (at < size) snprintf(out + at, size - at, "]");
    return out;
}
