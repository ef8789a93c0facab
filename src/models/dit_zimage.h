/* dit_zimage.h - the Z-Image transformer: latents, caption embeddings, time -> its output, the velocity with the other
 * sign.
 *
 * Image and caption are refined apart (noise_refiner, context_refiner), then go as one sequence [image ; caption] through
 * the layers. Formula and rounding points: diffusers' ZImageTransformer2DModel (the norms with f32 statistics; the
 * authors' own code computes RMSNorm in bf16 throughout, and so gives other bits).
 * Two prompts (guidance) run as one batch of two, as the reference's pipeline runs them: every product takes the rows of both,
 * embedders the bare rows one behind the other, and the shorter item is filled up with rows of zeros to the longer one's length.
 * Those rows, whose rotary tables are zero too, are masked as keys in both items, the longer one's mask being all clear; the
 * pads to 32 are not. Where both are equally long there is no mask. On the CPU a row's numbers do not depend on any of this; on
 * a GPU the number of rows and the mask choose the kernels, and with them the bits.
 * Easy to get wrong: both parts are padded to multiples of 32 with learned tokens that everybody attends to; caption pads
 * go on counting, image pads stand at the origin; patches have the channel fastest; modulation is scale, gate, scale,
 * gate with a tanh on the gates and no SiLU before it, except in the final layer; time runs from 0 at noise to 1. */
#ifndef DIT_ZIMAGE_H
#define DIT_ZIMAGE_H

#include "models/blocks.h"

typedef struct ZimageConfig {
    int64_t channels, dim, layers, refiners, heads, text_dim; /* text_dim: of the caption embeddings */
    int64_t axes[3], lens[3]; /* widths of the rotary axes; lens: positions that the reference has tables for */
    double eps, theta, t_scale;
} ZimageConfig;

typedef struct ZimageBlock {
    Weight mod; /* absent in context_refiner */
    Weight q, k, v, out, w1, w2, w3;
    Tensor norm_q, norm_k, attention_norm1, attention_norm2, ffn_norm1, ffn_norm2;
} ZimageBlock;

typedef struct ZimageDit {
    ZimageConfig c;
    int64_t ffn, adaln, time_hidden; /* widths: two derived, the last the file's (1024) */
    Weight time_1, time_2, x_in, text_in, final_mod, final;
    Tensor text_norm, x_pad, text_pad; /* pads [1, dim] */
    ZimageBlock *context, *noise, *layer;
} ZimageDit;

/* What does not change between the steps of one prompt, or of two that run together, and one size. T = Lx + Lc. */
typedef struct ZimagePrompt {
    int items;       /* 1, or 2: positive and negative */
    int64_t lc[2];   /* rows of each caption, pads to 32 included; Lc is the larger one */
    Tensor context;  /* [items * Lc, dim]: the refined captions; rows of an item behind lc[] are the batch's padding */
    Tensor cos, sin; /* F32 [items * T, head dim / 2] */
    Tensor bias;     /* [items, T]: what attention adds for each key; absent when no item is shorter */
    Tensor zero;     /* [dim]; absent likewise */
} ZimagePrompt;

Status dit_zimage_open(const char *folder, ZimageDit *out, Error *e);
void dit_zimage_close(ZimageDit *m);
void dit_zimage_bind(ZimageDit *m, const WeightFiles *files, Bind *b);

/* n rounded up to a multiple of 32: rows of a part. */
int64_t dit_zimage_padded(int64_t n);
/* All of p for captions of text[items] tokens and an image of rows x cols tokens, into work-arena tensors; context holds nothing
 * yet. */
Status dit_zimage_layout(const ZimageDit *m, Exec *x, const int64_t *text, int items, int64_t rows, int64_t cols,
                         ZimagePrompt *p);
/* context, after the layout. embeds[i] [text[i], text_dim]. Taps, of the first item: zimage.cap_embedder,
 * zimage.context.<i>. */
Status dit_zimage_prompt(const ZimageDit *m, Exec *x, const Tensor *embeds, ZimagePrompt *p);
/* out F32 [C, h, w], or of two items [2, C, h, w], from latents F32 [C, h, w], h and w even; t F32 [1] is the embedder's
 * argument, t_scale * time. Taps, of the first item: zimage.time, zimage.x_embedder, zimage.noise.<i>, zimage.layer.<i>,
 * zimage.final. */
Status dit_zimage_run(const ZimageDit *m, Exec *x, const ZimagePrompt *p, Tensor latents, Tensor t, Tensor out);

#endif
