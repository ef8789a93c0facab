/* te_t5.h - the T5 (v1.1, gated) encoder stack: ids -> one embedding per token.
 *
 * RMS norms without mean, attention without scaling, one relative-position bias from block 0 for all blocks, gated
 * GELU (transformers' T5EncoderModel, eager attention).
 * Easy to get wrong: no attention mask: padding tokens attend and are attended to, and every row is used. The norm
 * rounds before the weight. gelu_new rounds after every elementary operation. */
#ifndef TE_T5_H
#define TE_T5_H

#include "ops.h"

typedef struct T5Config {
    int64_t model, kv, heads, ffn, layers, vocab, buckets, max_distance;
    double eps;
    int32_t act; /* ActKind */
} T5Config;

typedef struct T5Block {
    Tensor norm1, norm2;
    Weight q, k, v, o, wi_0, wi_1, wo;
} T5Block;

typedef struct T5 {
    T5Config c;
    Weight shared, bias; /* [vocab, model]; [buckets, heads] */
    Tensor final;
    T5Block *block;
} T5;

Status te_t5_open(const char *folder, T5 *out, Error *e);
void te_t5_close(T5 *t);
void te_t5_bind(T5 *t, const WeightFiles *files, Bind *b);
/* y [T, model] from ids I32 [T]. Taps: t5.embed, t5.bias, t5.block.<i>, t5.final. */
Status te_t5_encode(const T5 *t, Exec *x, Tensor ids, Tensor y);

#endif
