/* tok_added.c - tokens that are found in the text before the model sees it: "</s>", "<|endoftext|>".
 *
 * Tokens marked normalized=false are searched in the user's raw text, the others in the normalised text
 * between them. At each place the longest one wins. Easy to get wrong: typed by the user they count, too. */
#include "text/tok_parts.h"
#include "text/tok_unicode.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

typedef struct Entry { /* one row of the file */
    const char *content;
    int64_t id;
    bool lstrip, rstrip, single_word, normalised;
} Entry;

static Status read_entry(const Json *j, Entry *a, const char *where, Error *e) {
    *a = (Entry){.id = -1};
    TRY(json_string(j, "content", &a->content, where, e));
    TRY(json_int(j, "id", &a->id, where, e));
    if (a->id < 0 && j->string) { /* added_tokens_decoder: the id is the key */
        char *end;
        a->id = strtol(j->string, &end, 10);
        if (end == j->string || *end) a->id = -1;
    }
    bool special = false;
    TRY(json_bool(j, "special", &special, where, e));
    a->normalised = !special;
    TRY(json_bool(j, "lstrip", &a->lstrip, where, e));
    TRY(json_bool(j, "rstrip", &a->rstrip, where, e));
    TRY(json_bool(j, "single_word", &a->single_word, where, e));
    TRY(json_bool(j, "normalized", &a->normalised, where, e));
    if (!a->content || a->id < 0 || a->id >= TOK_ID_MAX)
        return fail(e, ERR_MODEL, "%s: added token %.60s: needs content and an id below %d", where,
                    a->content ? a->content : "?", TOK_ID_MAX);
    if (a->single_word)
        return fail(e, ERR_MODEL, "%s: added token \"%.100s\": single_word is not implemented", where, a->content);
    return OK;
}

/* Gives the token its id and its piece. The model's own id wins, as in the reference, and must agree. */
static Status place(Tokenizer *t, const Entry *a, char **pool, const char *where, Error *e) {
    size_t size = strlen(a->content);
    int32_t known;
    if (map_get(&t->by_text, a->content, size, &known)) {
        if (known == a->id) return OK;
        return fail(e, ERR_MODEL, "%s: added token \"%.100s\" has id %lld, the vocabulary says %d", where, a->content,
                    (long long)a->id, known);
    }
    TRY(tok_pieces(t, (size_t)a->id + 1, e));
    if (t->pieces[a->id].bytes)
        return fail(e, ERR_MODEL, "%s: added token \"%.100s\" has id %lld, which is \"%.100s\" already", where,
                    a->content, (long long)a->id, t->pieces[a->id].bytes);
    memcpy(*pool, a->content, size + 1);
    t->pieces[a->id] = (TokPiece){*pool, (uint32_t)size};
    *pool += size + 1;
    return map_put(&t->by_text, t->pieces[a->id].bytes, size, (int32_t)a->id, e);
}

/* What a normalized=true token looks like in normalised text: bytes into *out, malloc'd. */
static Status normalised(const Tokenizer *t, const char *content, char **out, uint32_t *size, Error *e) {
    TokText text = {0}, spare = {0};
    *out = NULL;
    Status s = tok_text_load(&text, content, 0, (uint32_t)strlen(content), e);
    if (s == OK) s = tok_norm_run(t, &text, &spare, e);
    if (s == OK && !(*out = malloc(text.size + 1))) s = fail(e, ERR_MEMORY, "out of memory");
    if (s == OK) {
        if (text.size) memcpy(*out, text.bytes, text.size);
        *size = text.size;
    }
    tok_text_free(&text);
    tok_text_free(&spare);
    return s;
}

static Status add(Tokenizer *t, const Entry *a, char **pool, TokKey *key, char **made, const char *where, Error *e) {
    size_t size = strlen(a->content);
    *key = (TokKey){a->content, (uint32_t)size, (int32_t)t->added.count};
    if (!size) return OK;
    if (tok_unicode_check(a->content, size) != size)
        return fail(e, ERR_MODEL, "%s: an added token is not valid UTF-8", where);
    TRY(place(t, a, pool, where, e));
    if (a->normalised) {
        TRY(normalised(t, a->content, made, &key->size, e));
        key->bytes = *made;
    }
    t->added.tokens[t->added.count++] = (TokAddedToken){(int32_t)a->id, a->lstrip, a->rstrip};
    return OK;
}

Status tok_added_parse(Tokenizer *t, const Json *j, const char *where, Error *e) {
    size_t count = 0, bytes = 0;
    for (const Json *row = j ? j->child : NULL; row; row = row->next, count++) {
        const Json *content = json_get(row, "content");
        bytes += cJSON_IsString(content) ? strlen(content->valuestring) + 1 : 0;
    }
    t->added.tokens = calloc(count + 1, sizeof *t->added.tokens);
    t->added_pool = malloc(bytes + 1);
    TokKey *raw = malloc((count + 1) * sizeof *raw), *norm = malloc((count + 1) * sizeof *norm);
    char **made = calloc(count + 1, sizeof *made), *pool = t->added_pool;
    size_t raws = 0, norms = 0, i = 0;
    Status s = OK;
    if (!t->added.tokens || !pool || !raw || !norm || !made) s = fail(e, ERR_MEMORY, "%s: out of memory", where);
    for (const Json *row = j ? j->child : NULL; row && s == OK; row = row->next, i++) {
        Entry a;
        s = read_entry(row, &a, where, e);
        if (s == OK) s = add(t, &a, &pool, a.normalised ? &norm[norms++] : &raw[raws++], &made[i], where, e);
    }
    if (s == OK) s = tok_trie_build(&t->added.raw, raw, raws, e);
    if (s == OK) s = tok_trie_build(&t->added.normalised, norm, norms, e);
    for (i = 0; made && i < count; i++) free(made[i]);
    free(made);
    free(raw);
    free(norm);
    return s;
}

int32_t tok_added_next(const Tokenizer *t, const TokTrie *trie, const char *text, size_t at, size_t size,
                       size_t *start, size_t *end) {
    for (size_t i = at; trie->nodes && i < size; i++) {
        int32_t found = -1, node = 0;
        for (size_t k = i; k < size && (node = tok_trie_step(trie, node, text[k])) >= 0; k++)
            if (trie->nodes[node].value >= 0) found = trie->nodes[node].value, *end = k + 1;
        if (found < 0) continue;
        *start = i;
        size_t length;
        while (t->added.tokens[found].rstrip && *end < size &&
               t->flags[tok_unicode_decode(text + *end, &length)] & UNICODE_SPACE)
            *end += length;
        while (t->added.tokens[found].lstrip && *start > at) {
            size_t back = *start - 1;
            while (back > at && ((unsigned char)text[back] & 0xc0) == 0x80) back--;
            if (!(t->flags[tok_unicode_decode(text + back, &length)] & UNICODE_SPACE)) break;
            *start = back;
        }
        return found;
    }
    return -1;
}
