/* tok_pattern.c - the word patterns of published tokenizers, matched by hand.
 *
 * A pattern is known by its exact text; tok_split.c refuses others. A general regular expression library
 * would bring its own Unicode tables, and ids would depend on its version. Every function answers: how many
 * bytes match at this place, 0 for none. Easy to get wrong: alternatives are tried in the order in which the
 * pattern lists them, the first that matches wins, longer or not. */
#include "text/tok_parts.h"
#include "text/tok_unicode.h"

#include <string.h>

typedef struct Cursor {
    const uint16_t *flags;
    const char *text;
    uint32_t end;
} Cursor;

typedef enum Class { LETTERS, NUMBERS, SPACES, OTHERS, CLASS_COUNT } Class;

static Class class_of(const Cursor *c, uint32_t at, uint32_t *next) {
    unsigned char b = (unsigned char)c->text[at];
    if (b < 128) {
        *next = at + 1;
        if ((b | 32) >= 'a' && (b | 32) <= 'z') return LETTERS;
        if (b >= '0' && b <= '9') return NUMBERS;
        return b == ' ' || (b >= 9 && b <= 13) ? SPACES : OTHERS;
    }
    size_t length;
    uint16_t f = c->flags[tok_unicode_decode(c->text + at, &length)];
    *next = at + (uint32_t)length;
    return f & UNICODE_LETTER ? LETTERS : f & UNICODE_NUMBER ? NUMBERS : f & UNICODE_SPACE ? SPACES : OTHERS;
}

/* End of the run of one class that starts at `at` (itself when there is none). */
static uint32_t run_of(const Cursor *c, uint32_t at, Class want) {
    uint32_t next;
    while (at < c->end && class_of(c, at, &next) == want) at = next;
    return at;
}

static bool begins(const Cursor *c, uint32_t at, const char *word) {
    size_t n = strlen(word);
    return n <= c->end - at && !memcmp(c->text + at, word, n);
}

/* 's 't 're 've 'm 'll 'd */
static uint32_t contraction(const Cursor *c, uint32_t at) {
    if (c->text[at] != '\'' || at + 1 == c->end) return 0;
    char a = c->text[at + 1], b = at + 2 < c->end ? c->text[at + 2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* The same without case, and U+017F folds to s. */
static uint32_t contraction_any_case(const Cursor *c, uint32_t at) {
    if (c->text[at] != '\'' || at + 1 == c->end) return 0;
    if (begins(c, at + 1, "\xc5\xbf")) return 3;
    char a = (char)(c->text[at + 1] | 32), b = at + 2 < c->end ? (char)(c->text[at + 2] | 32) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static uint32_t match_clip(const Cursor *c, uint32_t at, bool specials) {
    uint32_t next;
    if (specials && begins(c, at, "<|startoftext|>")) return 15;
    if (specials && begins(c, at, "<|endoftext|>")) return 13;
    uint32_t n = contraction(c, at);
    if (n) return n;
    Class class = class_of(c, at, &next);
    if (class == SPACES) return 0;
    return (class == NUMBERS ? next : run_of(c, at, class)) - at;
}

/* White space that is left for the last two alternatives, \s+(?!\S)|\s+: the whole run, without its last
 * character when something follows and there is more than one. */
static uint32_t match_spaces(const Cursor *c, uint32_t at) {
    uint32_t end = run_of(c, at, SPACES);
    if (end == c->end || end == at) return end - at;
    uint32_t last = end - 1;
    while (((unsigned char)c->text[last] & 0xc0) == 0x80) last--;
    return (last > at ? last : end) - at;
}

static uint32_t match_gpt2(const Cursor *c, uint32_t at) {
    uint32_t n = contraction(c, at), next;
    if (n) return n;
    uint32_t word = at + (c->text[at] == ' ');
    if (word < c->end) {
        Class class = class_of(c, word, &next);
        if (class != SPACES) return run_of(c, word, class) - at;
    }
    return match_spaces(c, at);
}

static bool is_newline(char c) { return c == '\r' || c == '\n'; }

static uint32_t match_qwen2(const Cursor *c, uint32_t at) {
    uint32_t n = contraction_any_case(c, at), next, second;
    if (n) return n;
    Class class = class_of(c, at, &next);
    /* [^\r\n\p{L}\p{N}]?\p{L}+ */
    if (class == LETTERS) return run_of(c, at, LETTERS) - at;
    if (class != NUMBERS && !is_newline(c->text[at]) && next < c->end && class_of(c, next, &second) == LETTERS)
        return run_of(c, next, LETTERS) - at;
    if (class == NUMBERS) return next - at;
    /*  ?[^\s\p{L}\p{N}]+[\r\n]* */
    uint32_t word = at + (c->text[at] == ' ');
    uint32_t end = run_of(c, word, OTHERS);
    if (end > word) {
        while (end < c->end && is_newline(c->text[end])) end++;
        return end - at;
    }
    /* \s*[\r\n]+: up to the last newline of the run of white space */
    end = run_of(c, at, SPACES);
    for (uint32_t i = end; i > at; i--)
        if (is_newline(c->text[i - 1])) return i - at;
    return match_spaces(c, at);
}

static uint32_t match(TokPattern p, const char *literal, const Cursor *c, uint32_t at) {
    switch (p) {
    case PATTERN_LITERAL: return begins(c, at, literal) ? (uint32_t)strlen(literal) : 0;
    case PATTERN_CLIP: return match_clip(c, at, true);
    case PATTERN_CLIP_PLAIN: return match_clip(c, at, false);
    case PATTERN_GPT2: return match_gpt2(c, at);
    case PATTERN_QWEN2: return match_qwen2(c, at);
    case PATTERN_SPACE: {
        uint32_t next;
        return class_of(c, at, &next) == SPACES ? next - at : 0;
    }
    case PATTERN_UNKNOWN: break;
    }
    return 0;
}

uint32_t tok_pattern_next(TokPattern p, const char *literal, const uint16_t *flags, const char *text, uint32_t at,
                          uint32_t end, uint32_t *start) {
    Cursor c = {flags, text, end};
    for (; at < end; at += (uint32_t)tok_unicode_length(text[at])) {
        uint32_t n = match(p, literal, &c, at);
        if (n) {
            *start = at;
            return at + n;
        }
    }
    return 0;
}

TokPattern tok_pattern_find(const char *regex) {
    static const struct { const char *regex; TokPattern pattern; } known[] = {
        {"<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+",
         PATTERN_CLIP},
        {"'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+", PATTERN_CLIP_PLAIN},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
         "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", PATTERN_QWEN2},
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", PATTERN_GPT2},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(regex, known[i].regex)) return known[i].pattern;
    return PATTERN_UNKNOWN;
}
