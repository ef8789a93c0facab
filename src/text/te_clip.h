/* te_clip.h - the CLIP text encoder: ids -> one pooled vector. FLUX.1 needs nothing else of it.
 *
 * Pre-LN transformer with causal attention, 77 learned positions; the pooled vector is the final-normed row at the
 * first end-of-text token; no projection (transformers' CLIPTextModel, eager attention).
 * Easy to get wrong: published configs carry eos_token_id 2, which no sequence contains; transformers then takes the
 * first position of the largest id. No attention mask is passed: padding attends, causally. */
#ifndef TE_CLIP_H
#define TE_CLIP_H

#include "ops.h"

typedef struct ClipConfig {
    int64_t hidden, ffn, layers, heads, positions, vocab, eos_id;
    double eps;
    int32_t act; /* ActKind */
} ClipConfig;

typedef struct ClipLayer {
    Tensor norm1_w, norm1_b, norm2_w, norm2_b;
    Weight q, k, v, o, fc1, fc2;
} ClipLayer;

typedef struct Clip {
    ClipConfig c;
    Weight token, position;
    Tensor final_w, final_b;
    ClipLayer *layer; /* c.layers, malloc'd */
} Clip;

/* Reads FOLDER/config.json. ERR_MODEL names file, key, value. */
Status te_clip_open(const char *folder, Clip *out, Error *e);
void te_clip_close(Clip *c);
/* Names with or without the "text_model." level: whichever the files hold. */
void te_clip_bind(Clip *c, const WeightFiles *files, Bind *b);
/* Row of the pooled vector for ids[count] (host). */
int64_t te_clip_pooled_row(const Clip *c, const int32_t *ids, int64_t count);
/* pooled [1, hidden] from ids I32 [T] on the device, T <= positions. Taps: clip.embed, clip.layer.<i>, clip.final. */
Status te_clip_encode(const Clip *c, Exec *x, Tensor ids, int64_t pooled_row, Tensor pooled);

#endif
