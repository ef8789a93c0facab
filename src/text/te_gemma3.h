/* te_gemma3.h - the text half of Gemma-3 as LTX-2 reads it: ids -> all hidden states, embeddings and every layer's output, the
 * last one behind the final norm.
 *
 * transformers' Gemma3TextModel inside Gemma3ForConditionalGeneration, with its default attention (SDPA: f32 scores, no rounding
 * between). Four norms a layer, each r((x * rsqrt(mean(x^2) + eps)) * (1 + w)), and one on every head of q and k; every sixth
 * layer sees everything before it, with its own rotary base and linear scaling, the others a window. Not here: the vision
 * tower, the projector and the language head, which the files hold too (TE_GEMMA3_IGNORE).
 * Easy to get wrong: padding stands on the LEFT and positions are those of the slots, so a text of n tokens among 1024 slots
 * has positions 1024 - n to 1023 (the angles are rounded to the dtype: they are not those of 0 to n - 1); padding sees nothing,
 * and its rows hold finite numbers that nobody reads; hidden state i is the stream before layer i, but the last one is normed;
 * embeddings are multiplied by sqrt(hidden) rounded to the dtype. */
#ifndef TE_GEMMA3_H
#define TE_GEMMA3_H

#include "ops.h"

typedef struct Gemma3Rope { double theta, factor; } Gemma3Rope; /* factor divides the frequencies; 1: none */

typedef struct Gemma3Config {
    int64_t hidden, ffn, layers, heads, kv_heads, head, vocab, positions;
    int64_t window;  /* tokens that a sliding layer sees, the query's own included */
    int64_t query_scalar;
    double eps;
    Gemma3Rope sliding, full;
} Gemma3Config;

typedef struct Gemma3Layer {
    bool sliding;
    Tensor norm_in, norm_attention, norm_ffn, norm_out; /* [hidden]: before and after attention, before and after the MLP */
    Tensor norm_q, norm_k;                              /* [head] */
    Weight q, k, v, o, gate, up, down;
} Gemma3Layer;

typedef struct Gemma3 {
    Gemma3Config c;
    Weight token;
    Gemma3Layer *layer; /* [layers] */
    Tensor norm;
} Gemma3;

/* Prefixes of the tensors beside the text model, NULL-ended. */
extern const char *const TE_GEMMA3_IGNORE[];

/* folder/config.json: its text_config, as older and newer transformers write it. */
Status te_gemma3_open(const char *folder, Gemma3 *out, Error *e);
void te_gemma3_close(Gemma3 *g);
/* Names behind "language_model.model." or "model.language_model.", whichever the files have (NULL: the latter). */
void te_gemma3_bind(Gemma3 *g, const WeightFiles *files, Bind *b);

/* All hidden states of one text: t [R, hidden, layers + 1], contiguous, the layer fastest. The last `real` rows are the text,
 * those before them padding, which holds anything finite. */
typedef struct Gemma3States { Tensor t; int64_t real; } Gemma3States;

/* Room in the work arena for `count` texts of used[i] tokens (1 <= used[i] <= slots), one behind another in one block. R is
 * used[i], since padding changes no real row; or slots, where the table's bits depend on the number of rows (Ops.row_bits). In
 * bytes: 1024 x 3840 x 49 x 2 are 385 MB a text. */
void te_gemma3_room(const Gemma3 *g, Exec *x, int count, int64_t slots, const int64_t *used, Gemma3States *states);

/* Fills s, made by te_gemma3_room, from ids[slots], padded on the left. Taps (the real rows): gemma3.embed, gemma3.layer.<i>,
 * gemma3.norm. */
Status te_gemma3_states(const Gemma3 *g, Exec *x, const int32_t *ids, int64_t slots, const Gemma3States *s);

#endif
