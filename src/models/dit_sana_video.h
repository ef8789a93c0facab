/* dit_sana_video.h - the SANA-Video transformer: latents of a clip, caption embeddings, time -> velocity.
 *
 * Tokens are the patches of all frames, frame by frame. A block is linear attention over all of them, cross attention to the
 * caption, and a gated convolution that mixes neighbours in a frame and then the same place in neighbouring frames. Formula
 * and rounding points: diffusers' SanaVideoTransformer3DModel.
 * Easy to get wrong: q and k are normed over all heads together, then ReLU, then rotated, and the normaliser of linear
 * attention sees them unrotated; cross attention has neither norm nor gate; the first half of the gated convolution is the
 * value; patches are embedded channel-slowest and come out channel-fastest; the last layer adds the time embedding itself,
 * the blocks six projections of it; some biases are added after a rounding, as PyTorch does to strided inputs. */
#ifndef DIT_SANA_VIDEO_H
#define DIT_SANA_VIDEO_H

#include "models/blocks.h"

typedef struct SanaVideoConfig {
    int64_t channels, heads, head_dim, layers, cross_heads, cross_head_dim, text_dim; /* text_dim: of caption embeddings */
    int64_t patch;     /* a side, in a frame */
    int64_t positions; /* that an axis has rotary tables for */
    int64_t sample;    /* sample_size: which table of sizes belongs to the model */
    double mlp_ratio, eps;
    bool bias;         /* of q, k, v in self attention */
} SanaVideoConfig;

typedef struct SanaVideoBlock {
    Weight q, k, v, out, cross_q, cross_k, cross_v, cross_out;
    Weight inverted, depth, point, temporal;
    Tensor inverted_bias; /* read by what follows the product */
    Tensor norm_q, norm_k, cross_norm_q, cross_norm_k;
    Tensor table; /* [6,D]: shift, scale, gate of attention, then of the convolution */
} SanaVideoBlock;

typedef struct SanaVideoDit {
    SanaVideoConfig c;
    int64_t d, ffn; /* widths: heads * head_dim, hidden channels of the gated convolution */
    Weight patch, time_mod, caption_1, caption_2, final;
    BlocksMlp time;
    Tensor caption_norm, table; /* table [2,D]: shift, scale of the last norm */
    SanaVideoBlock *block;
} SanaVideoDit;

/* What a size fixes: tokens are frames x rows x cols. */
typedef struct SanaVideoGrid {
    int64_t frames, rows, cols;
    Tensor cos, sin; /* F32 [tokens, head dim / 2] */
    bool turned;     /* the residual lies channel by channel up to the first cross attention, as in diffusers: the same bits */
} SanaVideoGrid;

/* What a prompt fixes: the caption as keys and values of every block. */
typedef struct SanaVideoPrompt {
    Tensor kv;   /* [layers, rows, 2 D]: keys (normed), values */
    Tensor bias; /* [rows]: 0, or a large negative number where the caption is padding */
} SanaVideoPrompt;

/* What a step fixes. The first `clean` frames are at time 0 (they are given, not made); [0] is theirs, [1] the others'. */
typedef struct SanaVideoTime {
    int64_t clean;
    Tensor embedded[2], mod[2]; /* [1,D], [1,6D] */
} SanaVideoTime;

Status dit_sana_video_open(const char *folder, SanaVideoDit *out, Error *e);
void dit_sana_video_close(SanaVideoDit *m);
void dit_sana_video_bind(SanaVideoDit *m, Bind *b);

/* Room in the work arena; then what belongs there. embeds [rows, text_dim], the first `real` of them tokens of the caption.
 * Taps: sana.caption. */
void dit_sana_video_prompt_room(const SanaVideoDit *m, Exec *x, int64_t rows, SanaVideoPrompt *p);
Status dit_sana_video_prompt(const SanaVideoDit *m, Exec *x, Tensor embeds, int64_t real, SanaVideoPrompt *p);
/* Tables into the work arena, for g->frames, rows and cols. */
Status dit_sana_video_rope(const SanaVideoDit *m, Exec *x, SanaVideoGrid *g);
/* Room in the work arena for a step of `clean` given frames; then its embeddings. t F32 [1]: the timestep, 0 to 1000. zero:
 * the same of value 0, read only where clean > 0. Taps: sana.time (the six), sana.embedded, of the frames that are made. */
void dit_sana_video_time_room(const SanaVideoDit *m, Exec *x, int64_t clean, SanaVideoTime *t);
Status dit_sana_video_time(const SanaVideoDit *m, Exec *x, Tensor t, Tensor zero, SanaVideoTime *time);
/* out F32 [C,F,h,w] from latents F32 [C,F,h,w], F = frames, h = patch * rows, w = patch * cols. Taps: sana.x_embedder,
 * sana.block.<i>, sana.final. */
Status dit_sana_video_run(const SanaVideoDit *m, Exec *x, const SanaVideoGrid *g, const SanaVideoPrompt *p,
                          const SanaVideoTime *time, Tensor latents, Tensor out);

#endif
