/* tok_text.c - growing byte buffers that remember where each byte came from. See tok_parts.h. */
#include "text/tok_parts.h"
#include "text/tok_unicode.h"

#include <stdlib.h>
#include <string.h>

Status tok_text_grow(void **array, size_t *cap, size_t want, size_t item, Error *e) {
    if (want <= *cap) return OK;
    size_t fresh = *cap ? *cap : 16;
    while (fresh < want) fresh *= 2;
    void *p = realloc(*array, fresh * item);
    if (!p) return fail(e, ERR_MEMORY, "out of memory for %zu bytes of tokenizer work", fresh * item);
    *array = p;
    *cap = fresh;
    return OK;
}

Status tok_text_reserve(TokText *t, size_t extra, Error *e) {
    if (extra <= t->cap - t->size) return OK;
    if (extra > TOK_TEXT_MAX - (size_t)t->size)
        return fail(e, ERR_USAGE, "text: more than %d bytes after normalisation", TOK_TEXT_MAX);
    size_t cap = t->cap ? t->cap : 64;
    while (cap < t->size + extra) cap *= 2;
    char *bytes = realloc(t->bytes, cap);
    if (bytes) t->bytes = bytes;
    uint32_t *from = realloc(t->from, cap * sizeof *from);
    if (from) t->from = from;
    uint32_t *to = realloc(t->to, cap * sizeof *to);
    if (to) t->to = to;
    if (!bytes || !from || !to) return fail(e, ERR_MEMORY, "out of memory for %zu bytes of text", cap);
    t->cap = (uint32_t)cap;
    return OK;
}

Status tok_text_put(TokText *t, const char *bytes, size_t size, uint32_t from, uint32_t to, Error *e) {
    TRY(tok_text_reserve(t, size, e));
    for (size_t i = 0; i < size; i++) {
        t->bytes[t->size] = bytes[i];
        t->from[t->size] = from;
        t->to[t->size++] = to;
    }
    return OK;
}

Status tok_text_copy(TokText *t, const TokText *other, uint32_t start, uint32_t end, Error *e) {
    size_t n = end - start;
    if (!n) return OK;
    TRY(tok_text_reserve(t, n, e));
    memcpy(t->bytes + t->size, other->bytes + start, n);
    memcpy(t->from + t->size, other->from + start, n * sizeof *t->from);
    memcpy(t->to + t->size, other->to + start, n * sizeof *t->to);
    t->size += (uint32_t)n;
    return OK;
}

Status tok_text_load(TokText *t, const char *text, uint32_t start, uint32_t end, Error *e) {
    TRY(tok_text_reserve(t, end - start, e));
    for (uint32_t i = start; i < end;) {
        uint32_t to = i + (uint32_t)tok_unicode_length(text[i]);
        for (uint32_t k = i; k < to; k++) {
            t->bytes[t->size] = text[k];
            t->from[t->size] = i;
            t->to[t->size++] = to;
        }
        i = to;
    }
    return OK;
}

void tok_text_swap(TokText *a, TokText *b) {
    TokText c = *a;
    *a = *b;
    *b = c;
}

void tok_text_free(TokText *t) {
    free(t->bytes);
    free(t->from);
    free(t->to);
    *t = (TokText){0};
}

Status tok_text_string(const char *s, char **out, const char *where, Error *e) {
    size_t size = strlen(s);
    if (tok_unicode_check(s, size) != size) return fail(e, ERR_MODEL, "%s: a string is not valid UTF-8", where);
    *out = strdup(s);
    return *out ? OK : fail(e, ERR_MEMORY, "%s: out of memory", where);
}

Status tok_text_span(TokSpans *spans, uint32_t start, uint32_t end, int32_t id, Error *e) {
    if (start == end) return OK; /* the reference drops empty pieces */
    TRY(tok_text_grow((void **)&spans->at, &spans->cap, spans->count + 1, sizeof *spans->at, e));
    spans->at[spans->count++] = (TokSpan){start, end, id};
    return OK;
}
