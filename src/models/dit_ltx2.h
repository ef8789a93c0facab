/* dit_ltx2.h - the LTX-2 transformer (2.0 and 2.3): latents of a clip and of its sound, two text contexts, times -> two
 * velocities.
 *
 * Two streams, video and audio, run side by side: each has self attention with a split rotation, attention to its own text
 * context and a feed-forward; in every block each also attends to the other. Formula and rounding points: diffusers'
 * LTX2VideoTransformer3DModel. Several prompts run as one batch, as the pipelines do with the two of guidance: rows of all
 * samples lie one behind the other, and only attention looks at one sample at a time.
 * Easy to get wrong: both cross-modal norms are taken before either stream is updated; the cross-modal tables have scale
 * before shift, all others shift before scale; q and k are normed over all heads together; cross-modal attention rotates by
 * time alone and as wide as the audio stream on both sides; the last norm subtracts the mean, the blocks' norms do not. */
#ifndef DIT_LTX2_H
#define DIT_LTX2_H

#include "core/json.h"
#include "models/blocks.h"

typedef enum Ltx2Which { LTX2_VIDEO, LTX2_AUDIO, LTX2_STREAMS } Ltx2Which;
enum { LTX2_AXES = 3, LTX2_SPANS = 16, LTX2_TIMES = 8 };

typedef struct Ltx2StreamConfig {
    int64_t channels, out_channels, heads, head_dim;
    bool gated; /* attention outputs of this stream's queries are gated, head by head (2.3) */
} Ltx2StreamConfig;

typedef struct Ltx2Config {
    Ltx2StreamConfig stream[LTX2_STREAMS];
    int64_t layers, caption;      /* caption: width of the text contexts before their projection */
    bool projects_caption;        /* 2.0: contexts of width `caption` are projected to the streams' widths */
    bool text_mod;                /* 2.3: text attention is modulated, its keys and values by a function of sigma */
    bool perturbed;               /* 2.3: self attention can be left out of blocks. Without it a perturbed pass is a normal one */
    int64_t scale[LTX2_AXES];     /* pixels of a latent: frames, rows, columns */
    int64_t most[LTX2_AXES];      /* seconds, rows, columns of the whole range of positions */
    int64_t audio_scale, audio_most, sampling_rate, hop; /* mel frames of an audio latent; seconds; samples */
    int64_t causal_offset;
    double eps, theta;
    double gate_factor;           /* times of the cross-modal gates over the other times: 1 */
} Ltx2Config;

/* Attention of one stream's queries to keys and values of one stream or context. gate: absent without gates. */
typedef struct Ltx2Attention {
    Weight q, k, v, out, gate;
    Tensor norm_q, norm_k;
    int64_t heads;
} Ltx2Attention;

typedef struct Ltx2BlockStream {
    Ltx2Attention self, text, cross; /* cross: this stream's queries, the other stream's keys and values */
    Weight ff_in, ff_out;
    Tensor table, prompt_table, cross_table; /* [6 or 9, D], [2, D] (2.3), [5, D] */
} Ltx2BlockStream;

/* A time's embedding, and what is made of its SiLU. */
typedef struct Ltx2Modulator {
    BlocksMlp embed;
    Weight linear;
} Ltx2Modulator;

typedef struct Ltx2Stream {
    int64_t d;    /* heads * head_dim */
    Weight in, out;
    BlocksMlp caption; /* 2.0 */
    Ltx2Modulator time, cross, cross_gate, prompt; /* prompt: 2.3 */
    Tensor table; /* [2,D]: shift, scale of the last norm */
} Ltx2Stream;

typedef struct Ltx2Dit {
    Ltx2Config c;
    int64_t mods; /* rows of a block's modulation of one stream */
    Ltx2Stream stream[LTX2_STREAMS];
    Ltx2BlockStream (*block)[LTX2_STREAMS]; /* [layers] */
} Ltx2Dit;

/* Neighbouring tokens that share a time: the value-th of the step's times of their stream. */
typedef struct Ltx2Span { int64_t start, count; int value; } Ltx2Span;

/* What a size fixes. Video tokens frame by frame, row by row; behind them any tokens with coordinates of their own. */
typedef struct Ltx2Grid {
    int64_t tokens[LTX2_STREAMS];
    /* Of video tokens, without gaps. spans 0: the clip has one time; otherwise its tokens have times of their own, also where
     * they are all the same. */
    Ltx2Span span[LTX2_SPANS];
    int spans;
    RopeSplitForm form; /* of all rotations; ROPE_SPLIT_DTYPE: tables of the dtype */
    Tensor cos[LTX2_STREAMS], sin[LTX2_STREAMS];             /* F32 [tokens, D / 2] */
    Tensor cross_cos[LTX2_STREAMS], cross_sin[LTX2_STREAMS]; /* F32 [tokens, D of audio / 2] */
} Ltx2Grid;

/* What the prompts of a batch fix; `samples` texts of `rows` tokens each. */
typedef struct Ltx2Prompt {
    int64_t samples, rows;
    Tensor context[LTX2_STREAMS]; /* 2.3: [samples * rows, D]; absent in 2.0, which reads them once */
    Tensor kv[LTX2_STREAMS];      /* 2.0: [layers, samples * rows, 2 D], keys (normed) and values; absent in 2.3 */
    /* [rows], zeros: the reference passes its text attention a mask that hides nothing. PyTorch's choice on the reference profile
     * is cuDNN with such a bias as without (attention.h), self and cross-modal attention have none. Absent: not added. */
    Tensor bias;
    Tensor table[LTX2_STREAMS];   /* [layers, mods, D]: the blocks' modulation tables one behind the other */
} Ltx2Prompt;

/* What a step fixes, F32 in StepParams, times as the scheduler has them (sigma * 1000). */
typedef struct Ltx2Step {
    Tensor video, audio;          /* [n]: distinct times of the video tokens (at most LTX2_TIMES), [1]: of all audio tokens */
    Tensor sigma[LTX2_STREAMS];   /* [1]: the streams' noise levels, whatever single tokens have */
    bool cross;                   /* use_cross_timestep: cross-modal modulation follows the other stream's sigma */
} Ltx2Step;

/* One evaluation for the samples first .. first + count of the prompt. */
typedef struct Ltx2Pass {
    int64_t first, count;
    bool isolated;                /* the streams do not see each other */
    const bool *perturbed;        /* [layers] on the host: blocks whose self attention gives its values; NULL: none */
    bool always;                  /* in models that are not `perturbed` too, as the authors' own code has it */
    bool spared[LTX2_STREAMS];    /* streams whose self attention stays */
} Ltx2Pass;

Status dit_ltx2_open(const char *folder, Ltx2Dit *out, Error *e);
/* The same from a config at hand, whose messages name `path`; `out` is an Ltx2Dit. */
Status dit_ltx2_read(const char *path, const Json *j, void *out, Error *e);
void dit_ltx2_close(Ltx2Dit *m);
void dit_ltx2_bind(Ltx2Dit *m, Bind *b);
/* Width of the contexts that dit_ltx2_prompt takes. */
int64_t dit_ltx2_context(const Ltx2Dit *m, Ltx2Which s);

/* Room in the work arena; then what belongs there. context[s] [samples * rows, dit_ltx2_context(s)]. Taps: ltx2.caption.video,
 * ltx2.caption.audio. */
void dit_ltx2_prompt_room(const Ltx2Dit *m, Exec *x, int64_t samples, int64_t rows, Ltx2Prompt *p);
Status dit_ltx2_prompt(const Ltx2Dit *m, Exec *x, const Tensor context[LTX2_STREAMS], Ltx2Prompt *p);

/* A token's place: where it begins and ends, in seconds, rows and columns of pixels. */
typedef struct Ltx2Place { float from[LTX2_AXES], to[LTX2_AXES]; } Ltx2Place;
/* Places of latents of frames x rows x cols at `fps`, into place[frames * rows * cols]; what further tokens have is the
 * caller's business (rows and columns from 0, time as diffusers' prepare_video_coords). */
void dit_ltx2_places(const Ltx2Dit *m, int64_t frames, int64_t rows, int64_t cols, double fps, Ltx2Place *place);
/* Rotary tables into the work arena for g->tokens and g->form; place[g->tokens[LTX2_VIDEO]]. A dry run reads no places. */
Status dit_ltx2_rope(const Ltx2Dit *m, Exec *x, const Ltx2Place *place, Ltx2Grid *g);

/* out[s] F32 [count * tokens, out_channels], contiguous, from latents[s] F32 [tokens, channels], any strides: one sample, the
 * same for all. Taps, of all samples: ltx2.time.video, .audio (modulations by time 0), ltx2.x_embedder.video, .audio,
 * ltx2.block.<i>.video, .audio, ltx2.norm.video, .audio (the last norm). ERR_MODEL when spans fit neither grid nor times. */
Status dit_ltx2_run(const Ltx2Dit *m, Exec *x, const Ltx2Grid *g, const Ltx2Prompt *p, const Ltx2Step *step,
                    const Ltx2Pass *pass, const Tensor latents[LTX2_STREAMS], const Tensor out[LTX2_STREAMS]);

#endif
