/* tok_split.c - the pre-tokenizers of tokenizer.json: cutting normalised text into words. Others are refused
 * by name. Easy to get wrong: Metaspace rewrites the text (spaces become U+2581, one may be put in front), and
 * "first" puts one in front of the first piece of the user's text only, not after a special token. */
#include "text/tok_parts.h"
#include "text/tok_unicode.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* --- reading --- */

static Status parse_pattern(const Json *j, TokSplit *s, const char *where, Error *e) {
    const Json *pattern = json_get(j, "pattern");
    const char *string = NULL, *regex = NULL, *behaviour = NULL;
    TRY(json_string(pattern, "String", &string, where, e));
    TRY(json_string(pattern, "Regex", &regex, where, e));
    TRY(json_string(j, "behavior", &behaviour, where, e));
    TRY(json_bool(j, "invert", &s->invert, where, e));
    if (!string == !regex || !behaviour)
        return fail(e, ERR_MODEL, "%s: pre_tokenizer: Split needs one pattern and a behavior", where);
    if (string && !*string) return fail(e, ERR_MODEL, "%s: pre_tokenizer: Split on the empty string", where);
    s->pattern = string ? PATTERN_LITERAL : tok_pattern_find(regex);
    if (s->pattern == PATTERN_UNKNOWN)
        return fail(e, ERR_MODEL, "%s: pre_tokenizer: Split on the pattern \"%.300s\" is not implemented", where,
                    regex);
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(behaviour, names[i])) {
            s->behaviour = (TokBehaviour)i;
            return tok_text_string(string ? string : "", &s->text, where, e);
        }
    return fail(e, ERR_MODEL, "%s: pre_tokenizer: Split behavior \"%.100s\" is not implemented", where, behaviour);
}

static Status parse_metaspace(const Json *j, TokSplit *s, const char *where, Error *e) {
    const char *replacement = "\xe2\x96\x81", *scheme = NULL;
    bool prefix = true;
    s->metaspace = s->split = true;
    TRY(json_string(j, "replacement", &replacement, where, e));
    TRY(json_string(j, "prepend_scheme", &scheme, where, e));
    TRY(json_bool(j, "add_prefix_space", &prefix, where, e));
    TRY(json_bool(j, "split", &s->split, where, e));
    if (!scheme) scheme = prefix ? "always" : "never"; /* files older than prepend_scheme */
    if (!strcmp(scheme, "always")) s->prepend = PREPEND_ALWAYS;
    else if (!strcmp(scheme, "first")) s->prepend = PREPEND_FIRST;
    else if (!strcmp(scheme, "never")) s->prepend = PREPEND_NEVER;
    else return fail(e, ERR_MODEL, "%s: pre_tokenizer: prepend_scheme \"%.100s\" is not implemented", where, scheme);
    size_t size = strlen(replacement);
    if (!size || tok_unicode_check(replacement, size) != size || tok_unicode_length(*replacement) != size)
        return fail(e, ERR_MODEL, "%s: pre_tokenizer: Metaspace replacement must be one character", where);
    return tok_text_string(replacement, &s->text, where, e);
}

/* The regular expression of ByteLevel becomes a split of its own; *keep is false when it has none. */
static Status parse_byte_level(const Json *j, TokSplit *s, bool *keep, const char *where, Error *e) {
    bool prefix = true, regex = true;
    TRY(json_bool(j, "add_prefix_space", &prefix, where, e));
    TRY(json_bool(j, "use_regex", &regex, where, e));
    if (prefix) return fail(e, ERR_MODEL, "%s: pre_tokenizer: ByteLevel with add_prefix_space is not implemented", where);
    s->pattern = PATTERN_GPT2;
    s->behaviour = SPLIT_ISOLATED;
    *keep = regex;
    return OK;
}

Status tok_split_parse(const Json *j, TokSplit **list, size_t *count, bool *byte_level, const char *where, Error *e) {
    if (json_is_null(j)) return OK;
    const char *type = NULL;
    TRY(json_string(j, "type", &type, where, e));
    if (!type) return fail(e, ERR_MODEL, "%s: pre_tokenizer: has no type", where);
    if (!strcmp(type, "Sequence")) {
        const Json *items = json_get(j, "pretokenizers");
        if (!cJSON_IsArray(items)) return fail(e, ERR_MODEL, "%s: pre_tokenizer: Sequence without pretokenizers", where);
        for (const Json *item = items->child; item; item = item->next)
            TRY(tok_split_parse(item, list, count, byte_level, where, e));
        return OK;
    }
    if (*byte_level) return fail(e, ERR_MODEL, "%s: pre_tokenizer: %.100s after ByteLevel is not implemented", where, type);
    TokSplit *more = realloc(*list, (*count + 1) * sizeof **list);
    if (!more) return fail(e, ERR_MEMORY, "%s: out of memory", where);
    *list = more;
    TokSplit *s = &more[(*count)++];
    *s = (TokSplit){0};
    bool keep = true;
    if (!strcmp(type, "Split")) {
        TRY(parse_pattern(j, s, where, e));
    } else if (!strcmp(type, "Metaspace")) {
        TRY(parse_metaspace(j, s, where, e));
    } else if (!strcmp(type, "WhitespaceSplit")) {
        s->pattern = PATTERN_SPACE;
    } else if (!strcmp(type, "ByteLevel")) {
        TRY(parse_byte_level(j, s, &keep, where, e));
        *byte_level = true;
    } else {
        return fail(e, ERR_MODEL, "%s: pre_tokenizer: type \"%.100s\" is not implemented", where, type);
    }
    if (!keep) --*count;
    return OK;
}

void tok_split_free(TokSplit *list, size_t count) {
    for (size_t i = 0; i < count; i++) free(list[i].text);
    free(list);
}

/* --- running --- */

typedef struct Joiner { /* how matches join their neighbours */
    TokBehaviour behaviour;
    TokSpans *out;
    size_t base;       /* spans of this word begin here */
    bool after_match;  /* the range before was a match */
} Joiner;

/* One range of the word, match or gap, in order. */
static Status join(Joiner *j, uint32_t start, uint32_t end, bool is_match, Error *e) {
    if (start == end) return OK;
    bool was = j->after_match, first = j->out->count == j->base;
    j->after_match = is_match;
    if (j->behaviour == SPLIT_REMOVED && is_match) return OK;
    if (!first && ((j->behaviour == SPLIT_WITH_PREVIOUS && is_match && !was) ||
                   (j->behaviour == SPLIT_WITH_NEXT && !is_match && was))) {
        j->out->at[j->out->count - 1].end = end;
        return OK;
    }
    return tok_text_span(j->out, start, end, -1, e);
}

static Status split_word(const Tokenizer *t, const TokSplit *s, const TokText *text, TokSpan word, TokSpans *out,
                         Error *e) {
    Joiner j = {s->behaviour, out, out->count, false};
    uint32_t at = word.start, start = 0, end;
    while ((end = tok_pattern_next(s->pattern, s->text, t->flags, text->bytes, at, word.end, &start))) {
        TRY(join(&j, at, start, s->invert, e));
        TRY(join(&j, start, end, !s->invert, e));
        at = end;
    }
    return join(&j, at, word.end, s->invert, e);
}

/* Rewrites the words into w->spare and their spans into w->spare_spans. */
static Status metaspace(const TokSplit *s, TokWork *w, Error *e) {
    const TokText *in = &w->text;
    TokText *out = &w->spare;
    size_t size = strlen(s->text);
    out->size = 0;
    for (size_t i = 0; i < w->spans.count; i++) {
        TokSpan word = w->spans.at[i];
        uint32_t begin = out->size, copied = word.start;
        if (word.id < 0) {
            bool has = in->bytes[word.start] == ' ' ||
                       (word.end - word.start >= size && !memcmp(in->bytes + word.start, s->text, size));
            bool first = w->at_start && (word.start == 0 || in->from[word.start] == 0);
            if (!has && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && first)))
                TRY(tok_text_put(out, s->text, size, in->from[word.start], in->from[word.start], e));
            for (uint32_t k = word.start; k < word.end; k++) {
                if (in->bytes[k] != ' ') continue;
                TRY(tok_text_copy(out, in, copied, k, e));
                TRY(tok_text_put(out, s->text, size, in->from[k], in->to[k], e));
                copied = k + 1;
            }
        }
        TRY(tok_text_copy(out, in, copied, word.end, e));
        uint32_t cut = begin;
        if (s->split && word.id < 0)
            for (uint32_t k = begin + 1; k + size <= out->size; k++)
                if (out->bytes[k] == *s->text && !memcmp(out->bytes + k, s->text, size)) {
                    TRY(tok_text_span(&w->spare_spans, cut, k, -1, e));
                    cut = k;
                }
        TRY(tok_text_span(&w->spare_spans, cut, out->size, word.id, e));
    }
    tok_text_swap(&w->text, &w->spare);
    return OK;
}

Status tok_split_run(const Tokenizer *t, TokWork *w, Error *e) {
    for (size_t i = 0; i < t->split_count; i++) {
        const TokSplit *s = &t->splits[i];
        w->spare_spans.count = 0;
        if (s->metaspace) {
            TRY(metaspace(s, w, e));
        } else {
            for (size_t k = 0; k < w->spans.count; k++) {
                TokSpan word = w->spans.at[k];
                if (word.id >= 0) TRY(tok_text_span(&w->spare_spans, word.start, word.end, word.id, e));
                else TRY(split_word(t, s, &w->text, word, &w->spare_spans, e));
            }
        }
        TokSpans swap = w->spans;
        w->spans = w->spare_spans;
        w->spare_spans = swap;
    }
    return OK;
}
