/* sana_text.h - what SanaVideoPipeline does with a prompt: cleaning, the instruction in front of it, tokens, and which rows of
 * Gemma-2's output the transformer sees.
 *
 * The positive prompt is encoded behind an instruction, padded to n + length - 2 tokens (n: tokens of the instruction alone);
 * of the rows the first (BOS) and the last length - 1 are kept. The negative prompt has no instruction, and all its `length`
 * rows are kept. Padding is masked as a key of the cross attention.
 * Easy to get wrong: prompts are lower-cased and stripped (Python's rules), the instruction is not; it ends in a space that
 * the tokenizer joins with the prompt's first word, hence the 2; ids and mask are those of all tokens, not of the kept rows.
 * Not here: the tokenizer (tok.h), the encoder (te_gemma2.h). */
#ifndef SANA_TEXT_H
#define SANA_TEXT_H

#include "model.h"
#include "text/te_gemma2.h"
#include "text/tok.h"

enum { SANA_TEXT_LENGTH = 300 }; /* max_sequence_length of the pipeline */

/* str.lower().strip() of valid UTF-8 text; free() it. */
Status sana_text_clean(const char *text, char **out, Error *e);

/* prompt + " motion score: 30.", as the examples of the pipeline write it; free() it. Not for the negative prompt. */
Status sana_text_motion(const char *prompt, int score, char **out, Error *e);

/* Cleans and tokenizes one text for `length` rows. instruct: put the instruction in front (the positive prompt).
 * out: encoder "1", ids and mask of all tokens, padding included; lost_byte is a byte of `text`. ERR_USAGE for text that is
 * no UTF-8, ERR_MODEL for ids outside `vocab`. On an error out owns nothing. */
Status sana_text_tokenize(const Tokenizer *t, const char *text, bool instruct, int64_t length, int64_t vocab, TokenRow *out,
                          Error *e);

/* How many of the `length` kept rows are real tokens, by the mask: they come first. At least 1. */
int64_t sana_text_real(const TokenRow *row, int64_t length);

/* y [R, hidden]: the first R kept rows, sana_text_real() <= R <= length. Where R exceeds the real ones or the table's bits
 * depend on the number of rows, the encoder runs all row->count tokens, else the real ones alone. Rows of padding hold
 * finite values that no real row depends on; they are not the reference's, which masks padding there too. */
Status sana_text_encode(const Gemma *te, Exec *x, const TokenRow *row, int64_t length, Tensor y);

#endif
