/* te_gemma.h - what Gemma-2 and Gemma-3 share as text encoders: parameters, layers, names, embeddings.
 *
 * Four norms a layer, each r((x * rsqrt(mean(x^2) + eps)) * (1 + w)) with the product in f32; two of them stand after the
 * sublayer, before its sum with the stream. Not here: attention itself, which each version has its own way (te_gemma2.h: eager
 * with a soft cap; te_gemma3.h: SDPA, norms on the heads), configs, where padding stands.
 * Easy to get wrong: embeddings are multiplied by sqrt(hidden) rounded to the dtype; the scale of the scores is
 * query_pre_attn_scalar^-0.5, not head_dim's; the MLP's activation is GELU by tanh. */
#ifndef TE_GEMMA_H
#define TE_GEMMA_H

#include "core/json.h"
#include "ops.h"

typedef struct GemmaRope { double theta, factor; } GemmaRope; /* factor divides the frequencies; 1: none */

typedef struct GemmaConfig {
    int64_t hidden, ffn, layers, heads, kv_heads, head, vocab, positions;
    int64_t window; /* tokens that a sliding layer sees, the query's own included */
    int64_t query_scalar;
    double eps, softcap;     /* softcap 0: none */
    GemmaRope sliding, full; /* by kind of layer; alike in Gemma-2 */
} GemmaConfig;

typedef struct GemmaLayer {
    bool sliding;
    Tensor norm_in, norm_attention, norm_ffn, norm_out; /* [hidden]: before and after attention, before and after the MLP */
    Tensor norm_q, norm_k;                              /* [head]; Gemma-3 */
    Weight q, k, v, o, gate, up, down;
} GemmaLayer;

typedef struct Gemma {
    GemmaConfig c;
    Weight token;
    GemmaLayer *layer; /* [layers] */
    Tensor norm;
} Gemma;

/* Sizes, eps and what may not be otherwise (activation, biases, both ways), into *c, which holds the defaults. */
Status te_gemma_config(const char *path, const Json *j, GemmaConfig *c, Error *e);
/* Makes g->layer and says which of them see a window: layer_types, or all but every pattern-th. */
Status te_gemma_layers(const char *path, const Json *j, int64_t pattern, Gemma *g, Error *e);
void te_gemma_close(Gemma *g);
/* All rows behind b->prefix, which the caller has set. head_norms: norms on the heads of q and k. */
void te_gemma_bind(Gemma *g, bool head_norms, Bind *b);

/* y [T, hidden] = E[ids] * r(sqrt(hidden)). */
Status te_gemma_embed(const Gemma *g, Exec *x, Tensor ids, Tensor y);
Status te_gemma_norm(const Gemma *g, Exec *x, Tensor y, Tensor in, Tensor w);

/* o [T, heads, head] from q, turned and normed in place, k and v [T, kv_heads, head]; `with` is the caller's. */
typedef Status GemmaAttend(const Gemma *g, const GemmaLayer *l, Exec *x, Tensor o, Tensor q, Tensor k, Tensor v,
                           const void *with);
/* h [T, hidden] through layer i, in place. */
Status te_gemma_layer(const Gemma *g, int i, Exec *x, Tensor h, GemmaAttend *attend, const void *with);

#endif
