/* te_gemma2.h - the Gemma-2 decoder as a text encoder: ids -> last_hidden_state, the residual stream after the final norm.
 *
 * transformers' Gemma2Model with eager attention, which alone applies the soft cap: scores are capped by cap * tanh(s / cap)
 * before the mask. No language head and no final soft cap. Layers, names and norms: te_gemma.h.
 * Easy to get wrong: even layers see a sliding window only; there is no norm on q and k. Padding stands on the right, where no
 * real token sees it: the real tokens alone give the same values, and where a table's bits depend on the number of rows
 * (Ops.row_bits) the padding must run with them. */
#ifndef TE_GEMMA2_H
#define TE_GEMMA2_H

#include "text/te_gemma.h"

/* Closed by te_gemma_close. */
Status te_gemma2_open(const char *folder, Gemma *out, Error *e);
/* Names with or without "model." in front, whichever the files have (NULL: without). */
void te_gemma2_bind(Gemma *g, const WeightFiles *files, Bind *b);
/* y [N, hidden] from ids I32 [T], N <= T: the first N rows, the others are padding. Taps (N rows): gemma2.embed,
 * gemma2.layer.<i>, gemma2.norm. */
Status te_gemma2_encode(const Gemma *g, Exec *x, Tensor ids, Tensor y);

#endif
