/* te_gemma2.h - the Gemma-2 decoder as a text encoder: ids -> last_hidden_state, the residual stream after the final norm.
 *
 * transformers' Gemma2Model with eager attention, which alone applies the soft cap: scores are capped by cap * tanh(s / cap)
 * before the mask. Four norms a layer, each r((x * rsqrt(mean(x^2) + eps)) * (1 + w)) with the product in f32; two of them
 * stand after the sublayer, before its sum with the stream. No language head and no final soft cap.
 * Easy to get wrong: embeddings are multiplied by sqrt(hidden) rounded to the dtype; the scale of the scores is
 * query_pre_attn_scalar^-0.5, not head_dim's; even layers see a sliding window only; there is no norm on q and k. Padding
 * stands on the right, where no real token sees it: the real tokens alone give the same values, and where a table's bits
 * depend on the number of rows (Ops.row_bits) the padding must run with them. */
#ifndef TE_GEMMA2_H
#define TE_GEMMA2_H

#include "ops.h"

typedef struct Gemma2Config {
    int64_t hidden, ffn, layers, heads, kv_heads, head, vocab, positions;
    int64_t window;  /* tokens that a sliding layer sees, the query's own included */
    int64_t query_scalar;
    double eps, theta, softcap; /* softcap 0: none */
} Gemma2Config;

typedef struct Gemma2Layer {
    bool sliding;
    Tensor norm_in, norm_attention, norm_ffn, norm_out; /* [hidden]: before and after attention, before and after the MLP */
    Weight q, k, v, o, gate, up, down;
} Gemma2Layer;

typedef struct Gemma2 {
    Gemma2Config c;
    Weight token;
    Gemma2Layer *layer; /* [layers] */
    Tensor norm;
} Gemma2;

Status te_gemma2_open(const char *folder, Gemma2 *out, Error *e);
void te_gemma2_close(Gemma2 *g);
/* Names with or without "model." in front, whichever the files have (NULL: without). */
void te_gemma2_bind(Gemma2 *g, const WeightFiles *files, Bind *b);
/* y [N, hidden] from ids I32 [T], N <= T: the first N rows, the others are padding. Taps (N rows): gemma2.embed,
 * gemma2.layer.<i>, gemma2.norm. */
Status te_gemma2_encode(const Gemma2 *g, Exec *x, Tensor ids, Tensor y);

#endif
