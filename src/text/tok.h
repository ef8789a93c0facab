/* tok.h - text to token ids, id for id what the Hugging Face tokenizers library gives.
 *
 * A tokenizer folder is read into four steps, the ones its tokenizer.json names: normalise (on the text
 * between added tokens), split into words, cut each word into pieces (byte-level BPE, byte-fallback BPE or
 * Unigram), put special tokens around. Steps that are not implemented are refused by name at open, never
 * skipped. A Tokenizer does not change after tok_open: any number of threads may encode with one.
 * Easy to get wrong: special tokens typed as text ("<|endoftext|>") become the special token, as in the
 * reference; and text that is no valid UTF-8 is refused (ERR_USAGE, with the byte offset), never repaired. */
#ifndef TOK_H
#define TOK_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Tokenizer Tokenizer;

/* Zero-initialised it is valid and empty. Token i was made from text bytes [start[i], end[i]); tokens put
 * around the text by the post-processor have start = end = -1. A byte can belong to several tokens (a
 * character cut into bytes) and, where normalisation reorders, tokens can share a range. */
typedef struct TokenIds {
    int32_t *ids;
    int64_t *start, *end;
    int64_t count, cap;
} TokenIds;

/* DIR holds tokenizer.json, or else CLIP's vocab.json + merges.txt with its class named in
 * tokenizer_config.json. Special token names come from tokenizer_config.json, then special_tokens_map.json.
 * ERR_MODEL names the file and what is missing, wrong or not implemented. */
Status tok_open(const char *dir, Tokenizer **out, Error *e);
/* As transformers 5 opens the folder, which is what diffusers' pipelines do: the classes T5Tokenizer and
 * CLIPTokenizer take vocabulary and added tokens from the folder and ignore the steps in its tokenizer.json.
 * For T5 ids differ from tok_open's after special tokens typed as text, around U+0085 and where equal scores
 * tie; for all other classes this is tok_open. */
Status tok_open_class(const char *dir, Tokenizer **out, Error *e);
/* ERR_MODEL where the folder says to pad on the left: for pipelines that leave the side to it. */
Status tok_expect_right(const Tokenizer *t, const char *dir, Error *e);
/* ERR_MODEL where DIR holds a chat template that frames a user's message in another way than Qwen3's; OK where it holds none. */
Status tok_expect_qwen3_chat(const char *dir, Error *e);
/* As tok_open, from one tokenizer.json in memory: no special token names, no length limit. */
Status tok_parse(const char *json, size_t size, const char *where, Tokenizer **out, Error *e);
void tok_close(Tokenizer *t);

/* Appends the ids of text (UTF-8, NUL bytes allowed) without padding or truncation. specials: put the
 * post-processor's tokens (BOS, EOS) around them. On an error *out keeps what it held before. */
Status tok_encode(const Tokenizer *t, const char *text, size_t size, bool specials, TokenIds *out, Error *e);
void tok_ids_free(TokenIds *ids);

/* What the pipelines call: truncate to max_len with the special tokens kept, pad on the right with the pad
 * token. ids and mask (1: token, 0: padding; may be NULL) hold max_len entries. *used: entries before the
 * padding. *lost_from: byte of the first character that truncation dropped, -1 when all fits. Both may be
 * NULL. ERR_USAGE when max_len cannot hold the special tokens, ERR_MODEL when there is no pad token. */
Status tok_encode_fixed(const Tokenizer *t, const char *text, size_t size, int64_t max_len, int32_t *ids,
                        int32_t *mask, int64_t *used, int64_t *lost_from, Error *e);

/* Ids of named tokens; -1 when the tokenizer names none. */
int32_t tok_pad(const Tokenizer *t);
int32_t tok_bos(const Tokenizer *t);
int32_t tok_eos(const Tokenizer *t);
int32_t tok_unk(const Tokenizer *t);
int64_t tok_max_length(const Tokenizer *t); /* INT64_MAX when there is no limit */
int64_t tok_vocab_size(const Tokenizer *t); /* largest id + 1 */
/* The id of a piece as the vocabulary spells it, added tokens included; -1 when absent. */
int32_t tok_find(const Tokenizer *t, const char *piece, size_t size);
/* The vocabulary's spelling of an id (byte-level pieces in their printable alphabet); NULL for ids that
 * have none. *size may be NULL; the bytes are NUL-terminated and belong to the tokenizer. */
const char *tok_piece(const Tokenizer *t, int64_t id, size_t *size);

/* Reads one JSON string a line, writes one JSON array of ids a line (`ditto tokens`). ERR_USAGE names the
 * line that is no JSON string; ERR_IO when reading or writing fails. */
Status tok_lines(const Tokenizer *t, FILE *in, FILE *out, bool specials, Error *e);

#endif
