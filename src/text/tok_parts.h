/* tok_parts.h - the inside of a Tokenizer, shared by the tok_*.c files and by nobody else.
 *
 * An encode runs piece by piece (the text between added tokens): TokText -> normalisers -> TokText -> spans
 * -> pre-tokenizers -> spans -> model -> ids. Every byte of a TokText remembers which bytes of the user's
 * text it was made from. Easy to get wrong: a Tokenizer is shared between threads, so whatever changes
 * during an encode lives in TokWork. */
#ifndef TOK_PARTS_H
#define TOK_PARTS_H

#include "core/json.h"
#include "core/map.h"
#include "core/status.h"
#include "text/tok.h"

/* --- text with a memory (tok_text.c) --- */

enum { TOK_TEXT_MAX = 1 << 30 }; /* bytes; longer text, or normalised text, is refused */

typedef struct TokText {
    char *bytes;
    uint32_t *from, *to; /* per byte: made from [from, to) of the user's text */
    uint32_t size, cap;
} TokText;

/* One word, or one added token (id >= 0), as bytes [start, end) of a TokText. */
typedef struct TokSpan {
    uint32_t start, end;
    int32_t id;
} TokSpan;

typedef struct TokSpans {
    TokSpan *at;
    size_t count, cap;
} TokSpans;

Status tok_text_reserve(TokText *t, size_t extra, Error *e);
/* Appends bytes that all come from [from, to). */
Status tok_text_put(TokText *t, const char *bytes, size_t size, uint32_t from, uint32_t to, Error *e);
/* Appends bytes [start, end) of another text with their memory. */
Status tok_text_copy(TokText *t, const TokText *other, uint32_t start, uint32_t end, Error *e);
/* Appends user text [start, end), each character remembering itself. */
Status tok_text_load(TokText *t, const char *text, uint32_t start, uint32_t end, Error *e);
void tok_text_swap(TokText *a, TokText *b);
void tok_text_free(TokText *t);
/* A malloc'd copy of a string of the file; ERR_MODEL when it is not valid UTF-8. */
Status tok_text_string(const char *s, char **out, const char *where, Error *e);
Status tok_text_span(TokSpans *spans, uint32_t start, uint32_t end, int32_t id, Error *e);
/* Doubles an array until it holds `want` items of `item` bytes. */
Status tok_text_grow(void **array, size_t *cap, size_t want, size_t item, Error *e);

/* --- many strings at once (tok_trie.c) --- */

typedef struct TokNode {
    uint32_t first; /* index of the first child; children lie together, by rising label */
    int32_t value;  /* of the string that ends here; -1: none does */
    uint16_t count;
    uint8_t label;  /* the byte that leads here */
} TokNode;

typedef struct TokTrie {
    TokNode *nodes; /* NULL: empty */
    int32_t root[256];
} TokTrie;

typedef struct TokKey {
    const char *bytes;
    uint32_t size;
    int32_t value;
} TokKey;

/* Reorders keys. Of equal keys the later one counts; empty keys are left out. */
Status tok_trie_build(TokTrie *trie, TokKey *keys, size_t count, Error *e);
void tok_trie_free(TokTrie *trie);

/* The child of a node under a byte, -1 when there is none; node 0 is the root. */
static inline int32_t tok_trie_step(const TokTrie *trie, int32_t node, char byte) {
    uint8_t b = (uint8_t)byte;
    if (!node) return trie->root[b];
    const TokNode *n = &trie->nodes[node];
    uint32_t low = n->first, high = low + n->count;
    while (high - low > 6) {
        uint32_t middle = (low + high) / 2;
        if (trie->nodes[middle].label <= b) low = middle;
        else high = middle;
    }
    for (; low < high; low++)
        if (trie->nodes[low].label == b) return (int32_t)low;
    return -1;
}

/* --- normalisers (tok_norm.c, tok_charsmap.c) --- */

typedef struct TokCharsmap {
    uint32_t *units; /* Darts double array */
    uint32_t unit_count;
    char *text;      /* NUL-terminated replacements, then one more NUL */
    uint32_t text_size;
    bool plain[128]; /* ASCII characters that map to themselves */
} TokCharsmap;

typedef enum TokNormKind {
    NORM_NFC, NORM_LOWER, NORM_STRIP, NORM_CHARSMAP, NORM_PREPEND,
    NORM_REPLACE,        /* every `find` by `text` */
    NORM_REPLACE_SPACES, /* every run of white space by `text` */
    NORM_REPLACE_BLANKS, /* every run of two or more U+0020 by `text` */
} TokNormKind;

typedef struct TokNorm {
    TokNormKind kind;
    bool left, right; /* strip */
    char *find, *text;
    TokCharsmap map;
} TokNorm;

Status tok_norm_parse(const Json *j, TokNorm **list, size_t *count, const char *where, Error *e);
/* Drops all normalisers but those of one kind. */
void tok_norm_keep(TokNorm *list, size_t *count, TokNormKind kind);
void tok_norm_free(TokNorm *list, size_t count);
/* Applies all of the list to text; spare is scratch. */
Status tok_norm_run(const Tokenizer *t, TokText *text, TokText *spare, Error *e);

Status tok_charsmap_parse(const char *base64, TokCharsmap *map, const char *where, Error *e);
Status tok_charsmap_run(const uint16_t *flags, const TokCharsmap *map, const TokText *in, TokText *out, Error *e);
void tok_charsmap_free(TokCharsmap *map);

/* --- pre-tokenizers (tok_split.c, tok_pattern.c) --- */

/* The patterns are recognised by their text and matched by hand-written code: the reference's classes are
 * not those of the system's regular expression library. */
typedef enum TokPattern {
    PATTERN_LITERAL, PATTERN_CLIP, PATTERN_CLIP_PLAIN, PATTERN_GPT2, PATTERN_QWEN2, PATTERN_SPACE, PATTERN_UNKNOWN
} TokPattern;

TokPattern tok_pattern_find(const char *regex);
/* The first match in bytes [at, end): sets *start and returns its end; 0 when there is none. Look-ahead
 * stops at `end`, too. */
uint32_t tok_pattern_next(TokPattern p, const char *literal, const uint16_t *flags, const char *text, uint32_t at,
                          uint32_t end, uint32_t *start);

typedef enum TokBehaviour { SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT } TokBehaviour;
typedef enum TokPrepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS } TokPrepend;

typedef struct TokSplit {
    bool metaspace; /* else a pattern */
    TokPattern pattern;
    TokBehaviour behaviour;
    bool invert;    /* matches and gaps change roles */
    bool split;     /* metaspace: cut before each replacement */
    TokPrepend prepend;
    char *text;     /* metaspace: the replacement character; PATTERN_LITERAL: what to find */
} TokSplit;

/* *byte_level is set when the words must be cut into bytes. */
Status tok_split_parse(const Json *j, TokSplit **list, size_t *count, bool *byte_level, const char *where, Error *e);
void tok_split_free(TokSplit *list, size_t count);

struct TokWork;
Status tok_split_run(const Tokenizer *t, struct TokWork *w, Error *e);

/* --- models (tok_unigram.c, tok_bpe.c) --- */

typedef struct TokUnigram {
    double *scores;
    double unk_score;
    TokTrie trie;
} TokUnigram;

typedef struct TokMerge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: free */
    int32_t rank, id;
} TokMerge;

typedef struct TokBpe {
    TokMerge *merges;
    size_t mask;
    int32_t byte[256], last[256]; /* byte level: the id of a byte, in the middle and at the end of a word */
    int32_t fallback[256];        /* of <0xNN>; -1 when there is none */
    bool byte_fallback, fuse_unk, ignore_merges;
    Map words;                    /* ignore_merges at byte level: raw bytes of pieces -> id */
    char *word_bytes;
} TokBpe;

/* Both fill the tokenizer's pieces and their map. text: the whole tokenizer.json, for the digits of
 * the scores; NULL: the scores as the JSON library reads them. */
Status tok_unigram_parse(Tokenizer *t, const Json *model, const char *text, size_t size, const char *where, Error *e);
Status tok_bpe_parse(Tokenizer *t, const Json *model, const char *where, Error *e);
/* Overwrites the scores with what the reference reads for them in the text of tokenizer.json. */
void tok_score_read(const char *json, size_t size, double *scores, size_t count);
/* From the files of the older layout: the vocabulary object, and one merge a line. */
Status tok_bpe_files(Tokenizer *t, const Json *vocab, const char *merges, size_t merges_size, const char *suffix,
                     const char *unk, const char *where, Error *e);
/* Append the ids of one word. */
Status tok_unigram_run(const Tokenizer *t, struct TokWork *w, TokSpan word, TokenIds *out, Error *e);
Status tok_bpe_run(const Tokenizer *t, struct TokWork *w, TokSpan word, TokenIds *out, Error *e);
void tok_bpe_free(TokBpe *bpe);

/* --- added tokens (tok_added.c) --- */

typedef struct TokAddedToken {
    int32_t id;
    bool lstrip, rstrip;
} TokAddedToken;

typedef struct TokAdded {
    TokTrie raw, normalised; /* values index tokens[] */
    TokAddedToken *tokens;
    size_t count;
} TokAdded;

/* j: the added_tokens array of tokenizer.json, or an added_tokens_decoder object. NULL adds none. The
 * normalisers and the model must be there already. */
Status tok_added_parse(Tokenizer *t, const Json *j, const char *where, Error *e);
/* The first added token in text[at, size), stripping no further back than `at`: sets *start and *end, returns
 * its index in tokens[], -1 when there is none. */
int32_t tok_added_next(const Tokenizer *t, const TokTrie *trie, const char *text, size_t at, size_t size,
                       size_t *start, size_t *end);

/* --- the whole --- */

typedef struct TokPiece {
    const char *bytes; /* NULL: the id has no piece */
    uint32_t size;
} TokPiece;

enum { TOK_AROUND_MAX = 8, TOK_ID_MAX = 1 << 24 };

struct Tokenizer {
    uint16_t *flags; /* tok_unicode.h */
    TokNorm *norms;
    size_t norm_count;
    TokSplit *splits;
    size_t split_count;
    bool byte_level;
    bool unigram_model; /* else BPE */
    TokUnigram unigram;
    TokBpe bpe;
    TokAdded added;
    TokPiece *pieces; /* by id */
    size_t piece_count;
    Map by_text;      /* piece -> id */
    char *pool;       /* the model's piece bytes, NUL-terminated */
    char *added_pool; /* those of added tokens that the model does not know */
    int32_t before[TOK_AROUND_MAX], after[TOK_AROUND_MAX]; /* the post-processor */
    int before_count, after_count;
    int32_t pad, bos, eos, unk;
    bool pads_left;   /* says the folder; of interest where the pipeline does not say otherwise */
    int64_t max_length;
};

/* Sizes the piece table for ids below `count`; existing pieces stay. */
Status tok_pieces(Tokenizer *t, size_t count, Error *e);

typedef struct TokSymbol {
    int32_t id, prev, next;
    uint32_t start, end; /* in the text; start == end: merged away */
} TokSymbol;

typedef struct TokJoin { /* a merge waiting in the queue */
    int32_t rank, at, left, right, id;
} TokJoin;

typedef struct TokBest { /* the best path that ends at a byte */
    double score;
    uint32_t start; /* UINT32_MAX: none */
    int32_t id;
} TokBest;

/* What one call of tok_encode works with. */
typedef struct TokWork {
    TokText text, spare;
    TokSpans spans, spare_spans;
    bool at_start; /* the piece being encoded begins the user's text */
    void *array, *queue;
    size_t array_cap, queue_cap;
} TokWork;

Status tok_push(TokenIds *out, int32_t id, int64_t start, int64_t end, Error *e);

#endif
