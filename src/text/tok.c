/* tok.c - the encode itself, and what a pipeline asks a tokenizer. Reading files is tok_load.c. See tok.h. */
#include "text/tok_parts.h"
#include "text/tok_unicode.h"

#include <stdlib.h>
#include <string.h>

Status tok_push(TokenIds *out, int32_t id, int64_t start, int64_t end, Error *e) {
    if (out->count == out->cap) {
        size_t cap = out->cap ? (size_t)out->cap * 2 : 128;
        int32_t *ids = realloc(out->ids, cap * sizeof *ids);
        if (ids) out->ids = ids;
        int64_t *starts = realloc(out->start, cap * sizeof *starts);
        if (starts) out->start = starts;
        int64_t *ends = realloc(out->end, cap * sizeof *ends);
        if (ends) out->end = ends;
        if (!ids || !starts || !ends) return fail(e, ERR_MEMORY, "out of memory for %zu token ids", cap);
        out->cap = (int64_t)cap;
    }
    out->ids[out->count] = id;
    out->start[out->count] = start;
    out->end[out->count++] = end;
    return OK;
}

void tok_ids_free(TokenIds *ids) {
    free(ids->ids);
    free(ids->start);
    free(ids->end);
    *ids = (TokenIds){0};
}

/* Cuts the normalised text w->text at added tokens that are searched there. */
static Status find_normalised(const Tokenizer *t, TokWork *w, Error *e) {
    const TokText *text = &w->text;
    size_t at = 0, start, end;
    int32_t found;
    w->spans.count = 0;
    while ((found = tok_added_next(t, &t->added.normalised, text->bytes, at, text->size, &start, &end)) >= 0) {
        TRY(tok_text_span(&w->spans, (uint32_t)at, (uint32_t)start, -1, e));
        TRY(tok_text_span(&w->spans, (uint32_t)start, (uint32_t)end, t->added.tokens[found].id, e));
        at = end;
    }
    return tok_text_span(&w->spans, (uint32_t)at, text->size, -1, e);
}

/* Encodes user text [start, end), which holds no raw added token. */
static Status encode_piece(const Tokenizer *t, TokWork *w, const char *text, size_t start, size_t end, TokenIds *out,
                           Error *e) {
    if (start == end) return OK;
    w->text.size = 0;
    w->at_start = start == 0;
    TRY(tok_text_load(&w->text, text, (uint32_t)start, (uint32_t)end, e));
    TRY(tok_norm_run(t, &w->text, &w->spare, e));
    TRY(find_normalised(t, w, e));
    TRY(tok_split_run(t, w, e));
    for (size_t i = 0; i < w->spans.count; i++) {
        TokSpan word = w->spans.at[i];
        if (word.id >= 0) TRY(tok_push(out, word.id, w->text.from[word.start], w->text.to[word.end - 1], e));
        else if (t->unigram_model) TRY(tok_unigram_run(t, w, word, out, e));
        else TRY(tok_bpe_run(t, w, word, out, e));
    }
    return OK;
}

static Status encode(const Tokenizer *t, TokWork *w, const char *text, size_t size, bool specials, TokenIds *out,
                     Error *e) {
    size_t at = 0, start, end;
    int32_t found;
    for (int i = 0; i < t->before_count && specials; i++) TRY(tok_push(out, t->before[i], -1, -1, e));
    while ((found = tok_added_next(t, &t->added.raw, text, at, size, &start, &end)) >= 0) {
        TRY(encode_piece(t, w, text, at, start, out, e));
        TRY(tok_push(out, t->added.tokens[found].id, (int64_t)start, (int64_t)end, e));
        at = end;
    }
    TRY(encode_piece(t, w, text, at, size, out, e));
    for (int i = 0; i < t->after_count && specials; i++) TRY(tok_push(out, t->after[i], -1, -1, e));
    return OK;
}

Status tok_encode(const Tokenizer *t, const char *text, size_t size, bool specials, TokenIds *out, Error *e) {
    if (size > TOK_TEXT_MAX)
        return fail(e, ERR_USAGE, "text: %zu bytes, at most %d can be encoded at once", size, TOK_TEXT_MAX);
    size_t bad = tok_unicode_check(text, size);
    if (bad < size) return fail(e, ERR_USAGE, "text: byte %zu (0x%02x) is not valid UTF-8", bad, (unsigned char)text[bad]);
    TokWork w = {0};
    int64_t before = out->count;
    Status s = encode(t, &w, text, size, specials, out, e);
    if (s != OK) out->count = before;
    tok_text_free(&w.text);
    tok_text_free(&w.spare);
    free(w.spans.at);
    free(w.spare_spans.at);
    free(w.array);
    free(w.queue);
    return s;
}

Status tok_encode_fixed(const Tokenizer *t, const char *text, size_t size, int64_t max_len, int32_t *ids,
                        int32_t *mask, int64_t *used, int64_t *lost_from, Error *e) {
    int64_t around = t->before_count + t->after_count;
    if (max_len < around)
        return fail(e, ERR_USAGE, "token limit %lld: at least %lld are needed for the special tokens",
                    (long long)max_len, (long long)around);
    TokenIds all = {0};
    Status s = tok_encode(t, text, size, false, &all, e);
    int64_t kept = all.count < max_len - around ? all.count : max_len - around, n = 0;
    if (s == OK && kept + around < max_len && t->pad < 0)
        s = fail(e, ERR_MODEL, "tokenizer: no pad token is named, and the text must be padded");
    if (s == OK) {
        for (int i = 0; i < t->before_count; i++) ids[n++] = t->before[i];
        for (int64_t i = 0; i < kept; i++) ids[n++] = all.ids[i];
        for (int i = 0; i < t->after_count; i++) ids[n++] = t->after[i];
        if (used) *used = n;
        for (int64_t i = 0; i < max_len && mask; i++) mask[i] = i < n;
        while (n < max_len) ids[n++] = t->pad;
    }
    if (s == OK && lost_from) {
        *lost_from = -1;
        if (kept < all.count) { /* a token may begin with the white space before its word */
            size_t at = (size_t)all.start[kept], length;
            while (at < (size_t)all.end[kept] && t->flags[tok_unicode_decode(text + at, &length)] & UNICODE_SPACE)
                at += length;
            *lost_from = (int64_t)at;
        }
    }
    tok_ids_free(&all);
    return s;
}

Status tok_expect_right(const Tokenizer *t, const char *dir, Error *e) {
    if (!t->pads_left) return OK;
    return fail(e, ERR_MODEL, "%s/tokenizer_config.json: padding_side: found \"left\", expected \"right\"", dir);
}

int32_t tok_pad(const Tokenizer *t) { return t->pad; }
int32_t tok_bos(const Tokenizer *t) { return t->bos; }
int32_t tok_eos(const Tokenizer *t) { return t->eos; }
int32_t tok_unk(const Tokenizer *t) { return t->unk; }
int64_t tok_max_length(const Tokenizer *t) { return t->max_length; }
int64_t tok_vocab_size(const Tokenizer *t) { return (int64_t)t->piece_count; }

int32_t tok_find(const Tokenizer *t, const char *piece, size_t size) {
    int32_t id = -1;
    map_get(&t->by_text, piece, size, &id);
    return id;
}

const char *tok_piece(const Tokenizer *t, int64_t id, size_t *size) {
    if (id < 0 || (uint64_t)id >= t->piece_count || !t->pieces[id].bytes) return NULL;
    if (size) *size = t->pieces[id].size;
    return t->pieces[id].bytes;
}
