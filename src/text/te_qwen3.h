/* te_qwen3.h - the Qwen3 decoder as a text encoder: ids -> the residual stream after one of its layers.
 *
 * Causal grouped-query attention with a norm on every head of q and k, rotary positions, gated SiLU; transformers'
 * Qwen3Model with eager attention. No final norm and no language head: pipelines read hidden states before the end.
 * Easy to get wrong: hidden_states[i] is the output of layer i - 1, so [-2] of L layers is that of layer L - 2; heads * head
 * dim is not the width of the stream; RoPE pairs element i with i + E/2 and rounds after each product; cos and sin are
 * rounded to the dtype. Padding stands on the right, where no real token sees it: the real tokens alone give the same
 * values, and where a table's bits depend on the number of rows (Ops.row_bits) the padding must run with them. */
#ifndef TE_QWEN3_H
#define TE_QWEN3_H

#include "ops.h"

typedef struct Qwen3Config {
    int64_t hidden, ffn, layers, heads, kv_heads, head, vocab, positions;
    double eps, theta;
} Qwen3Config;

typedef struct Qwen3Layer {
    Tensor norm1, norm2, norm_q, norm_k;
    Weight q, k, v, o, gate, up, down;
} Qwen3Layer;

typedef struct Qwen3 {
    Qwen3Config c;
    int64_t run; /* layers that run: all but the last, hidden_states[-2] */
    Weight token;
    Qwen3Layer *layer; /* [run] */
} Qwen3;

Status te_qwen3_open(const char *folder, Qwen3 *out, Error *e);
void te_qwen3_close(Qwen3 *q);
/* Names with or without "model." in front, whichever the files have. */
void te_qwen3_bind(Qwen3 *q, const WeightFiles *files, Bind *b);
/* y [N, hidden] from ids I32 [T], N <= T: the first N rows, the others are padding. Taps (N rows): qwen3.embed,
 * qwen3.layer.<i>. */
Status te_qwen3_encode(const Qwen3 *q, Exec *x, Tensor ids, Tensor y);

#endif
