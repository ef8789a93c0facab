/* te_gemma3.h - the text half of Gemma-3 as LTX-2 reads it: ids -> all hidden states, embeddings and every layer's output, the
 * last one behind the final norm.
 *
 * transformers' Gemma3TextModel inside Gemma3ForConditionalGeneration, with its default attention (SDPA: f32 scores, no rounding
 * between) and norms on the heads of q and k; every sixth layer sees everything before it, with its own rotary base and linear
 * scaling, the others a window. Not here: the vision tower, the projector and the language head, which the files hold too
 * (TE_GEMMA3_IGNORE).
 * Easy to get wrong: padding stands on the LEFT and positions are those of the slots, so a text of n tokens among 1024 slots
 * has positions 1024 - n to 1023 (the angles are rounded to the dtype: they are not those of 0 to n - 1); padding sees nothing,
 * and its rows hold finite numbers that nobody reads; hidden state i is the stream before layer i, but the last one is
 * normed. Layers, names and norms: te_gemma.h. */
#ifndef TE_GEMMA3_H
#define TE_GEMMA3_H

#include "text/te_gemma.h"

/* Prefixes of the tensors beside the text model, NULL-ended. */
extern const char *const TE_GEMMA3_IGNORE[];

/* folder/config.json: its text_config, as older and newer transformers write it. Closed by te_gemma_close. */
Status te_gemma3_open(const char *folder, Gemma *out, Error *e);
/* Names behind "language_model.model." or "model.language_model.", whichever the files have (NULL: the latter). */
void te_gemma3_bind(Gemma *g, const WeightFiles *files, Bind *b);

/* All hidden states of one text: t [R, hidden, layers + 1], contiguous, the layer fastest. The last `real` rows are the text,
 * those before them padding, which holds anything finite. */
typedef struct Gemma3States { Tensor t; int64_t real; } Gemma3States;

/* Room in the work arena for `count` texts of used[i] tokens (1 <= used[i] <= slots), one behind another in one block. R is
 * used[i], since padding changes no real row; or slots, where the table's bits depend on the number of rows (Ops.row_bits). In
 * bytes: 1024 x 3840 x 49 x 2 are 385 MB a text. */
void te_gemma3_room(const Gemma *g, Exec *x, int count, int64_t slots, const int64_t *used, Gemma3States *states);

/* Fills s, made by te_gemma3_room, from ids[slots], padded on the left. Taps (the real rows): gemma3.embed, gemma3.layer.<i>,
 * gemma3.norm. */
Status te_gemma3_states(const Gemma *g, Exec *x, const int32_t *ids, int64_t slots, const Gemma3States *s);

#endif
