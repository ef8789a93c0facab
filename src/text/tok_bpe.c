/* tok_bpe.c - byte pair encoding: start from bytes (byte level) or characters, join the pair of lowest rank,
 * leftmost first, until no pair is known.
 *
 * Byte-level vocabularies write bytes in a printable alphabet; ids are looked up by byte here, and the text
 * is never translated. Easy to get wrong: CLIP's last symbol of a word carries "</w>", other models none;
 * a word can be a whole book (no pre-tokenizer, or no spaces), so long words go through a heap. */
#include "text/tok_parts.h"
#include "text/tok_unicode.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_WORD = 48 }; /* symbols; below, scanning for the lowest rank beats a heap */

/* --- reading --- */

/* The byte that a character of the printable alphabet stands for, -1 for other characters. Printable bytes
 * stand for themselves, the 68 others for U+0100 and up, in order. */
static int byte_of(uint32_t c) {
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff)) return (int)c;
    if (c < 0x100 || c > 0x143) return -1;
    c -= 0x100;
    return c <= 0x20 ? (int)c : c == 0x43 ? 0xad : (int)(c - 0x21 + 0x7f);
}

static Status read_vocab(Tokenizer *t, const Json *vocab, const char *where, Error *e) {
    size_t count = 0, bytes = 0;
    int64_t top = -1, id;
    for (const Json *row = vocab->child; row; row = row->next, count++) {
        if (!json_as_int(row, &id) || id < 0 || id >= TOK_ID_MAX)
            return fail(e, ERR_MODEL, "%s: vocab: \"%.100s\": expected an id below %d", where, row->string, TOK_ID_MAX);
        size_t size = strlen(row->string);
        if (tok_unicode_check(row->string, size) != size)
            return fail(e, ERR_MODEL, "%s: vocab: the piece of id %lld is not valid UTF-8", where, (long long)id);
        top = id > top ? id : top;
        bytes += size + 1;
    }
    TRY(tok_pieces(t, (size_t)(top + 1), e));
    t->pool = malloc(bytes + 1);
    if (!t->pool) return fail(e, ERR_MEMORY, "%s: out of memory", where);
    TRY(map_reserve(&t->by_text, count + 128, e));
    char *at = t->pool;
    for (const Json *row = vocab->child; row; row = row->next) {
        size_t size = strlen(row->string);
        json_as_int(row, &id);
        if (t->pieces[id].bytes)
            return fail(e, ERR_MODEL, "%s: vocab: id %lld is given to \"%.100s\" and \"%.100s\"", where, (long long)id,
                        t->pieces[id].bytes, row->string);
        memcpy(at, row->string, size + 1);
        t->pieces[id] = (TokPiece){at, (uint32_t)size};
        TRY(map_put(&t->by_text, at, size, (int32_t)id, e));
        at += size + 1;
    }
    return OK;
}

static size_t slot_of(const TokBpe *bpe, uint64_t pair) {
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    size_t i = (h ^ h >> 29) & bpe->mask;
    while (bpe->merges[i].pair != pair && bpe->merges[i].pair != UINT64_MAX) i = (i + 1) & bpe->mask;
    return i;
}

static const TokMerge *find_merge(const TokBpe *bpe, int32_t left, int32_t right) {
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const TokMerge *m = &bpe->merges[slot_of(bpe, pair)];
    return m->pair == pair ? m : NULL;
}

static Status make_merges(TokBpe *bpe, size_t count, const char *where, Error *e) {
    size_t slots = 16;
    while (slots / 2 < count) slots *= 2;
    bpe->merges = malloc(slots * sizeof *bpe->merges);
    if (!bpe->merges) return fail(e, ERR_MEMORY, "%s: out of memory", where);
    for (size_t i = 0; i < slots; i++) bpe->merges[i].pair = UINT64_MAX;
    bpe->mask = slots - 1;
    return OK;
}

static Status add_merge(Tokenizer *t, const char *a, size_t a_size, const char *b, size_t b_size, int32_t rank,
                        const char *where, Error *e) {
    int32_t left, right, made;
    char small[256], *both = a_size + b_size <= sizeof small ? small : malloc(a_size + b_size);
    if (!both) return fail(e, ERR_MEMORY, "%s: out of memory", where);
    memcpy(both, a, a_size);
    memcpy(both + a_size, b, b_size);
    bool known = map_get(&t->by_text, a, a_size, &left) && map_get(&t->by_text, b, b_size, &right) &&
                 map_get(&t->by_text, both, a_size + b_size, &made);
    if (both != small) free(both);
    if (!known)
        return fail(e, ERR_MODEL, "%s: merge %d (\"%.*s\" \"%.*s\"): not all of it is in the vocabulary", where, rank,
                    (int)(a_size < 80 ? a_size : 80), a, (int)(b_size < 80 ? b_size : 80), b);
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    t->bpe.merges[slot_of(&t->bpe, pair)] = (TokMerge){pair, rank, made};
    return OK;
}

static Status read_merges(Tokenizer *t, const Json *merges, const char *where, Error *e) {
    if (!cJSON_IsArray(merges)) return fail(e, ERR_MODEL, "%s: model: merges is missing or no list", where);
    size_t count = 0;
    for (const Json *row = merges->child; row; row = row->next) count++;
    TRY(make_merges(&t->bpe, count, where, e));
    int32_t rank = 0;
    for (const Json *row = merges->child; row; row = row->next, rank++) {
        const char *a = NULL, *b = NULL;
        size_t a_size = 0;
        if (cJSON_IsString(row)) {
            a = row->valuestring;
            b = strchr(a, ' ');
            a_size = b ? (size_t)(b - a) : 0;
            if (b && strchr(++b, ' ')) b = NULL;
        } else if (cJSON_IsArray(row) && cJSON_IsString(row->child) && cJSON_IsString(row->child->next) &&
                   !row->child->next->next) {
            a = row->child->valuestring;
            b = row->child->next->valuestring;
            a_size = strlen(a);
        }
        if (!b) return fail(e, ERR_MODEL, "%s: model: merges: entry %d is no pair", where, rank);
        TRY(add_merge(t, a, a_size, b, strlen(b), rank, where, e));
    }
    return OK;
}

/* Ids of single bytes, and of the pieces as raw bytes where whole words are looked up. */
static Status read_bytes(Tokenizer *t, const char *suffix, const char *where, Error *e) {
    TokBpe *bpe = &t->bpe;
    size_t suffix_size = strlen(suffix), bytes = 0;
    if (suffix_size > 32) return fail(e, ERR_MODEL, "%s: model: end_of_word_suffix is too long", where);
    for (int b = 0; b < 256; b++) bpe->byte[b] = bpe->last[b] = bpe->fallback[b] = -1;
    for (uint32_t c = 0; c < 0x144; c++) {
        char key[40];
        size_t n = tok_unicode_encode(c, key);
        int b = byte_of(c);
        if (b < 0) continue;
        memcpy(key + n, suffix, suffix_size);
        map_get(&t->by_text, key, n, &bpe->byte[b]);
        map_get(&t->by_text, key, n + suffix_size, &bpe->last[b]);
    }
    for (int b = 0; b < 256; b++) {
        char key[8] = {'<', '0', 'x', "0123456789ABCDEF"[b >> 4], "0123456789ABCDEF"[b & 15], '>'};
        map_get(&t->by_text, key, 6, &bpe->fallback[b]);
    }
    if (!bpe->ignore_merges || !t->byte_level) return OK;
    for (size_t i = 0; i < t->piece_count; i++) bytes += t->pieces[i].size;
    bpe->word_bytes = malloc(bytes + 1);
    if (!bpe->word_bytes) return fail(e, ERR_MEMORY, "%s: out of memory", where);
    char *out = bpe->word_bytes;
    for (size_t i = 0; i < t->piece_count; i++) {
        const TokPiece *p = &t->pieces[i];
        char *start = out;
        bool good = p->bytes && p->size;
        for (uint32_t k = 0; k < p->size && good;) {
            size_t n;
            int b = byte_of(tok_unicode_decode(p->bytes + k, &n));
            good = b >= 0;
            *out++ = (char)b;
            k += (uint32_t)n;
        }
        if (good) TRY(map_put(&bpe->words, start, (size_t)(out - start), (int32_t)i, e));
        else out = start;
    }
    return OK;
}

static Status finish(Tokenizer *t, const char *suffix, const char *unk, const char *where, Error *e) {
    if (*suffix && !t->byte_level)
        return fail(e, ERR_MODEL, "%s: model: end_of_word_suffix without ByteLevel is not implemented", where);
    t->unk = -1;
    if (unk && !map_get(&t->by_text, unk, strlen(unk), &t->unk))
        return fail(e, ERR_MODEL, "%s: model: unk_token \"%.100s\" is not in the vocabulary", where, unk);
    return read_bytes(t, suffix, where, e);
}

static Status refuse_prefix(const Json *model, const char *where, Error *e) {
    const char *prefix = "";
    double dropout = 0;
    TRY(json_string(model, "continuing_subword_prefix", &prefix, where, e));
    TRY(json_double(model, "dropout", &dropout, where, e));
    if (*prefix) return fail(e, ERR_MODEL, "%s: model: continuing_subword_prefix is not implemented", where);
    if (dropout != 0) return fail(e, ERR_MODEL, "%s: model: dropout is not implemented", where);
    return OK;
}

Status tok_bpe_parse(Tokenizer *t, const Json *model, const char *where, Error *e) {
    const char *suffix = "", *unk = NULL;
    const Json *vocab = json_get(model, "vocab");
    TRY(refuse_prefix(model, where, e));
    TRY(json_string(model, "end_of_word_suffix", &suffix, where, e));
    TRY(json_string(model, "unk_token", &unk, where, e));
    TRY(json_bool(model, "byte_fallback", &t->bpe.byte_fallback, where, e));
    TRY(json_bool(model, "fuse_unk", &t->bpe.fuse_unk, where, e));
    TRY(json_bool(model, "ignore_merges", &t->bpe.ignore_merges, where, e));
    if (!cJSON_IsObject(vocab)) return fail(e, ERR_MODEL, "%s: model: vocab is missing or no object", where);
    TRY(read_vocab(t, vocab, where, e));
    TRY(read_merges(t, json_get(model, "merges"), where, e));
    return finish(t, suffix, unk, where, e);
}

Status tok_bpe_files(Tokenizer *t, const Json *vocab, const char *merges, size_t merges_size, const char *suffix,
                     const char *unk, const char *where, Error *e) {
    if (!cJSON_IsObject(vocab)) return fail(e, ERR_MODEL, "%s: vocab.json: expected an object", where);
    TRY(read_vocab(t, vocab, where, e));
    size_t lines = 1;
    for (size_t i = 0; i < merges_size; i++) lines += merges[i] == '\n';
    TRY(make_merges(&t->bpe, lines, where, e));
    const char *end = merges + merges_size;
    int32_t rank = 0;
    for (const char *line = merges; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line)), *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > line && stop[-1] == '\r') stop--;
        const char *space = memchr(line, ' ', (size_t)(stop - line));
        bool header = line == merges && stop - line >= 8 && !memcmp(line, "#version", 8);
        if (stop > line && !header) {
            if (!space || memchr(space + 1, ' ', (size_t)(stop - space - 1)))
                return fail(e, ERR_MODEL, "%s: merges.txt: merge %d is no pair", where, rank);
            TRY(add_merge(t, line, (size_t)(space - line), space + 1, (size_t)(stop - space - 1), rank, where, e));
            rank++;
        }
        line = next;
    }
    return finish(t, suffix, unk, where, e);
}

void tok_bpe_free(TokBpe *bpe) {
    free(bpe->merges);
    map_free(&bpe->words);
    free(bpe->word_bytes);
}

/* --- running --- */

/* Cuts a word into its first symbols; their count. The work array holds one for each byte of the word. */
static size_t first_symbols(const Tokenizer *t, const TokWork *w, TokSpan word, TokSymbol *symbols) {
    const TokBpe *bpe = &t->bpe;
    const char *text = w->text.bytes;
    size_t count = 0;
    TokSymbol unk = {-1, 0, 0, 0, 0}; /* waiting: it may grow when unknown characters fuse */
    for (uint32_t at = word.start, next; at < word.end; at = next) {
        unsigned char b = (unsigned char)text[at];
        int32_t id = -1;
        next = at + (t->byte_level ? 1 : (uint32_t)tok_unicode_length(text[at]));
        if (t->byte_level) id = next == word.end ? bpe->last[b] : bpe->byte[b];
        else map_get(&t->by_text, text + at, next - at, &id);
        bool bytes = false;
        if (id < 0 && bpe->byte_fallback && !t->byte_level) {
            bytes = true;
            for (uint32_t i = at; i < next; i++) bytes &= bpe->fallback[(unsigned char)text[i]] >= 0;
            for (uint32_t i = at; i < next && bytes; i++)
                symbols[count++] = (TokSymbol){bpe->fallback[(unsigned char)text[i]], 0, 0, i, i + 1};
        }
        if (bytes || (id < 0 && t->unk < 0)) continue; /* without an unknown token, unknowns vanish */
        if (unk.id >= 0 && id < 0 && bpe->fuse_unk) {
            unk.end = next;
            continue;
        }
        if (unk.id >= 0) symbols[count++] = unk, unk.id = -1;
        if (id >= 0) symbols[count++] = (TokSymbol){id, 0, 0, at, next};
        else unk = (TokSymbol){t->unk, 0, 0, at, next};
    }
    if (unk.id >= 0) symbols[count++] = unk;
    return count;
}

/* Short words: keep the rank of each neighbouring pair, take the lowest, close the gap. */
static size_t merge_short(const TokBpe *bpe, TokSymbol *s, size_t count) {
    const TokMerge *pair[SHORT_WORD];
    for (size_t i = 0; i + 1 < count; i++) pair[i] = find_merge(bpe, s[i].id, s[i + 1].id);
    while (count > 1) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i + 1 < count; i++)
            if (pair[i] && (best == SIZE_MAX || pair[i]->rank < pair[best]->rank)) best = i;
        if (best == SIZE_MAX) break;
        s[best].id = pair[best]->id;
        s[best].end = s[best + 1].end;
        count--;
        memmove(s + best + 1, s + best + 2, (count - best - 1) * sizeof *s);
        memmove(pair + best, pair + best + 1, (count - best) * sizeof *pair);
        if (best + 1 < count) pair[best] = find_merge(bpe, s[best].id, s[best + 1].id);
        if (best) pair[best - 1] = find_merge(bpe, s[best - 1].id, s[best].id);
    }
    return count;
}

static bool sooner(TokJoin a, TokJoin b) { return a.rank < b.rank || (a.rank == b.rank && a.at < b.at); }

static Status push_join(const TokBpe *bpe, TokWork *w, size_t *count, const TokSymbol *s, int32_t at, Error *e) {
    int32_t next = at < 0 ? -1 : s[at].next;
    if (next < 0) return OK;
    const TokMerge *m = find_merge(bpe, s[at].id, s[next].id);
    if (!m) return OK;
    TRY(tok_text_grow(&w->queue, &w->queue_cap, *count + 1, sizeof(TokJoin), e));
    TokJoin *heap = w->queue, join = {m->rank, at, s[at].id, s[next].id, m->id};
    size_t i = (*count)++;
    for (; i && sooner(join, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = join;
    return OK;
}

static TokJoin pop_join(TokJoin *heap, size_t *count) {
    TokJoin top = heap[0], last = heap[--*count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < *count) {
        if (child + 1 < *count && sooner(heap[child + 1], heap[child])) child++;
        if (!sooner(heap[child], last)) break;
        heap[i] = heap[child];
        i = child;
    }
    if (*count) heap[i] = last;
    return top;
}

/* Long words: linked symbols and a heap of joins; joins whose symbols have changed meanwhile are skipped. */
static Status merge_long(const TokBpe *bpe, TokWork *w, TokSymbol *s, size_t *count, Error *e) {
    size_t waiting = 0;
    for (size_t i = 0; i < *count; i++) {
        s[i].prev = (int32_t)i - 1;
        s[i].next = i + 1 < *count ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i < *count; i++) TRY(push_join(bpe, w, &waiting, s, (int32_t)i, e));
    while (waiting) {
        TokJoin j = pop_join(w->queue, &waiting);
        TokSymbol *left = &s[j.at];
        if (left->start == left->end || left->next < 0 || left->id != j.left || s[left->next].id != j.right) continue;
        TokSymbol *right = &s[left->next];
        left->id = j.id;
        left->end = right->end;
        left->next = right->next;
        right->start = right->end; /* gone */
        if (left->next >= 0) s[left->next].prev = j.at;
        TRY(push_join(bpe, w, &waiting, s, left->prev, e));
        TRY(push_join(bpe, w, &waiting, s, j.at, e));
    }
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (s[i].start != s[i].end) s[kept++] = s[i];
    *count = kept;
    return OK;
}

Status tok_bpe_run(const Tokenizer *t, TokWork *w, TokSpan word, TokenIds *out, Error *e) {
    const TokText *text = &w->text;
    if (t->bpe.ignore_merges) {
        int32_t id;
        const Map *words = t->byte_level ? &t->bpe.words : &t->by_text;
        if (map_get(words, text->bytes + word.start, word.end - word.start, &id))
            return tok_push(out, id, text->from[word.start], text->to[word.end - 1], e);
    }
    TRY(tok_text_grow(&w->array, &w->array_cap, word.end - word.start, sizeof(TokSymbol), e));
    TokSymbol *s = w->array;
    size_t count = first_symbols(t, w, word, s);
    if (count <= SHORT_WORD) count = merge_short(&t->bpe, s, count);
    else TRY(merge_long(&t->bpe, w, s, &count, e));
    for (size_t i = 0; i < count; i++)
        TRY(tok_push(out, s[i].id, text->from[s[i].start], text->to[s[i].end - 1], e));
    return OK;
}
