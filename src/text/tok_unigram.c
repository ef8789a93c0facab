/* tok_unigram.c - SentencePiece's Unigram model: the cut of a word whose pieces' scores sum to the most.
 *
 * Easy to get wrong: the sums must be formed in double precision in the order of the text, and only a
 * strictly better sum replaces an earlier one: for repeated characters many cuts differ in the last bit or
 * not at all, and the order decides. Neighbouring unknown characters become one unknown token. */
#include "text/tok_parts.h"
#include "text/tok_unicode.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Status read_vocab(Tokenizer *t, const Json *vocab, const char *text, size_t text_size, const char *where,
                         Error *e) {
    size_t count = 0, bytes = 0;
    for (const Json *row = vocab->child; row; row = row->next, count++) {
        const Json *piece = row->child;
        if (!cJSON_IsArray(row) || !cJSON_IsString(piece) || !piece->next || !cJSON_IsNumber(piece->next) ||
            !isfinite(piece->next->valuedouble) || piece->next->next)
            return fail(e, ERR_MODEL, "%s: model: vocab: entry %zu is no [piece, score]", where, count);
        size_t size = strlen(piece->valuestring);
        if (tok_unicode_check(piece->valuestring, size) != size)
            return fail(e, ERR_MODEL, "%s: model: vocab: entry %zu is not valid UTF-8", where, count);
        bytes += size + 1;
    }
    TRY(tok_pieces(t, count, e));
    t->pool = malloc(bytes + 1);
    t->unigram.scores = malloc((count + 1) * sizeof *t->unigram.scores);
    TokKey *keys = malloc((count + 1) * sizeof *keys);
    if (!t->pool || !t->unigram.scores || !keys) {
        free(keys);
        return fail(e, ERR_MEMORY, "%s: out of memory", where);
    }
    size_t row_at = 0;
    for (const Json *row = vocab->child; row; row = row->next) t->unigram.scores[row_at++] = row->child->next->valuedouble;
    if (text) tok_score_read(text, text_size, t->unigram.scores, count);
    Status s = map_reserve(&t->by_text, count + 128, e);
    double least = INFINITY;
    char *at = t->pool;
    int32_t id = 0;
    for (const Json *row = vocab->child; row && s == OK; row = row->next, id++) {
        size_t size = strlen(row->child->valuestring);
        memcpy(at, row->child->valuestring, size + 1);
        t->pieces[id] = (TokPiece){at, (uint32_t)size};
        least = fmin(least, t->unigram.scores[id]);
        keys[id] = (TokKey){at, (uint32_t)size, id};
        s = map_put(&t->by_text, at, size, id, e);
        at += size + 1;
    }
    t->unigram.unk_score = least - 10.0;
    if (s == OK) s = tok_trie_build(&t->unigram.trie, keys, count, e);
    free(keys);
    return s;
}

Status tok_unigram_parse(Tokenizer *t, const Json *model, const char *text, size_t size, const char *where, Error *e) {
    const Json *vocab = json_get(model, "vocab");
    int64_t unk = -1;
    bool fallback = false;
    TRY(json_int(model, "unk_id", &unk, where, e));
    TRY(json_bool(model, "byte_fallback", &fallback, where, e));
    if (fallback) return fail(e, ERR_MODEL, "%s: model: Unigram with byte_fallback is not implemented", where);
    if (!cJSON_IsArray(vocab)) return fail(e, ERR_MODEL, "%s: model: vocab is missing or no list", where);
    TRY(read_vocab(t, vocab, text, size, where, e));
    if (unk < 0 || (uint64_t)unk >= t->piece_count)
        return fail(e, ERR_MODEL, "%s: model: unk_id is missing or outside the vocabulary", where);
    t->unk = (int32_t)unk;
    t->unigram_model = true;
    return OK;
}

/* Fills best[0..size] for the word. Valid UTF-8 and single characters make every character end reachable. */
static void search(const Tokenizer *t, const char *word, uint32_t size, TokBest *best) {
    const TokTrie *trie = &t->unigram.trie;
    for (uint32_t i = 0; i <= size; i++) best[i].start = UINT32_MAX;
    best[0].score = 0;
    for (uint32_t at = 0; at < size;) {
        double so_far = best[at].score;
        uint32_t length = (uint32_t)tok_unicode_length(word[at]);
        bool single = false;
        int32_t node = 0;
        for (uint32_t end = at; end < size && (node = tok_trie_step(trie, node, word[end])) >= 0;) {
            int32_t id = trie->nodes[node].value;
            end++;
            if (id < 0) continue;
            double score = t->unigram.scores[id] + so_far;
            if (best[end].start == UINT32_MAX || score > best[end].score) best[end] = (TokBest){score, at, id};
            single |= end - at == length;
        }
        if (!single) {
            TokBest *b = &best[at + length];
            double score = t->unigram.unk_score + so_far;
            if (b->start == UINT32_MAX || score > b->score) *b = (TokBest){score, at, t->unk};
        }
        at += length;
    }
}

Status tok_unigram_run(const Tokenizer *t, TokWork *w, TokSpan word, TokenIds *out, Error *e) {
    const char *bytes = w->text.bytes + word.start;
    uint32_t size = word.end - word.start;
    TRY(tok_text_grow(&w->array, &w->array_cap, (size_t)size + 1, sizeof(TokBest), e));
    TokBest *best = w->array;
    search(t, bytes, size, best);
    /* Walk back, and turn the links round: best[start].start becomes the end of the piece that starts there. */
    uint32_t end = size, after = UINT32_MAX;
    int32_t id = -1;
    while (true) {
        TokBest b = best[end];
        best[end].start = after;
        best[end].id = id;
        if (!end) break;
        after = end;
        id = b.id;
        end = b.start;
    }
    for (uint32_t at = 0; at < size;) {
        uint32_t to = best[at].start;
        int32_t piece = best[at].id;
        if (piece == t->unk) {
            while (to < size && best[to].id == t->unk) to = best[to].start;
            map_get(&t->by_text, bytes + at, to - at, &piece); /* the fused text may be a piece after all */
        }
        TRY(tok_push(out, piece, w->text.from[word.start + at], w->text.to[word.start + to - 1], e));
        at = to;
    }
    return OK;
}
