/* dit_flux.h - the FLUX.1 transformer: packed latents, text embeddings, pooled text, timestep -> velocity.
 *
 * Double blocks keep separate weights for text and image and attend jointly; single blocks treat [text ; image] as
 * one sequence. Formula and rounding points: diffusers' FluxTransformer2DModel.
 * Easy to get wrong: text comes first everywhere; adaLN chunks are shift, scale, gate but norm_out's are scale,
 * shift; single blocks have no attention output projection; the timestep is rounded to the dtype twice before it
 * arrives here (sched.h). */
#ifndef DIT_FLUX_H
#define DIT_FLUX_H

#include "models/blocks.h"

typedef struct FluxConfig {
    int64_t in_channels, out_channels, layers, single_layers, head_dim, heads, text_dim, pooled_dim;
    int64_t axes[3];
    bool guidance;
} FluxConfig;

/* One stream (text or image) of a double block. q, k, v are bound as a pack; in single blocks with mlp. */
typedef struct FluxStream {
    Weight mod, q, k, v, out, ff_in, ff_out;
    Tensor norm_q, norm_k;
} FluxStream;

typedef struct FluxSingle {
    Weight mod, q, k, v, mlp, out;
    Tensor norm_q, norm_k;
} FluxSingle;

typedef struct FluxDit {
    FluxConfig c;
    int64_t d; /* heads * head_dim */
    BlocksMlp time, guidance, pooled;
    Weight x_in, text_in, mod_out, out;
    FluxStream (*block)[2]; /* [layers][text, image] */
    FluxSingle *single;
} FluxDit;

/* What does not change between the steps of one prompt and size, and the modulation of the step in hand. */
typedef struct FluxPrompt {
    Tensor context; /* [T, D]: context_embedder(prompt_embeds) */
    Tensor pooled;  /* [1, D]: text_embedder(pooled) */
    Tensor cos, sin; /* F32 [T + S, head_dim/2]; shared by prompts of one length */
    Tensor mod;     /* [1, N]: a row that dit_flux_modulate made */
} FluxPrompt;

Status dit_flux_open(const char *folder, FluxDit *out, Error *e);
void dit_flux_close(FluxDit *m);
void dit_flux_bind(FluxDit *m, Bind *b);

/* Rotary tables for T text tokens and an image of rows x cols tokens, into work-arena tensors. */
Status dit_flux_rope(const FluxDit *m, Exec *x, int64_t text, int64_t rows, int64_t cols, FluxPrompt *p);
/* context and pooled into tensors already allocated in p. embeds [T, text_dim], pooled [1, pooled_dim]. */
Status dit_flux_prompt(const FluxDit *m, Exec *x, Tensor embeds, Tensor pooled, FluxPrompt *p);
/* N: all modulation vectors of a step side by side: double blocks (text, image), single blocks, norm_out. */
int64_t dit_flux_mod_width(const FluxDit *m);
/* mods [prompts * steps, N], row k * steps + i for p[k] and t[i]; t F32 [steps], guidance F32 [1] (unused when the model has
 * no embedder). No latent touches it, and a quarter of the weights are read for it: once for all rows here, each of which has
 * the bits of a step of its own. Tap: flux.temb, row by row. */
Status dit_flux_modulate(const FluxDit *m, Exec *x, const FluxPrompt *p, int prompts, Tensor t, Tensor guidance, Tensor mods);
/* velocity [S, out_channels] from latents [S, in_channels], with the modulation p->mod. Taps: flux.x_embedder,
 * flux.double.<i>.text/.image, flux.single.<i>, flux.norm_out. */
Status dit_flux_velocity(const FluxDit *m, Exec *x, const FluxPrompt *p, Tensor latents, Tensor velocity);

#endif
