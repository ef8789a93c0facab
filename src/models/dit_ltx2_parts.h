/* dit_ltx2_parts.h - what the files of the LTX-2 transformer share (dit_ltx2.c, dit_ltx2_time.c, dit_ltx2_block.c). Not for
 * models: they call dit_ltx2.h.
 *
 * Easy to get wrong: a modulation's rows are the table's as the checkpoint has them: the cross-modal ones have scale before
 * shift, for audio-to-video first and then for video-to-audio, on both streams. */
#ifndef DIT_LTX2_PARTS_H
#define DIT_LTX2_PARTS_H

#include "models/dit_ltx2.h"

/* Rows of a block's modulation of one stream: of its own table (three more in 2.3), behind them those of the cross-modal table,
 * behind them (2.3) those of the prompt's. */
enum {
    LTX2_SHIFT_SELF, LTX2_SCALE_SELF, LTX2_GATE_SELF, LTX2_SHIFT_FF, LTX2_SCALE_FF, LTX2_GATE_FF, LTX2_OWN,
    LTX2_SHIFT_TEXT = LTX2_OWN, LTX2_SCALE_TEXT, LTX2_GATE_TEXT, LTX2_OWN_TEXT,
};
enum {
    LTX2_SCALE_A2V, LTX2_SHIFT_A2V, LTX2_SCALE_V2A, LTX2_SHIFT_V2A, LTX2_CROSS,
    LTX2_GATE_CROSS = LTX2_CROSS, LTX2_CROSS_ROWS,
};
enum { LTX2_SHIFT_PROMPT, LTX2_SCALE_PROMPT, LTX2_PROMPT_ROWS };
enum { LTX2_FF = 4 }; /* hidden width of a feed-forward, in widths of its stream; hard-coded in the class */

/* Of the norms of queries and keys; the class gives them no norm_eps. */
static inline float dit_ltx2_qk_eps(void) { return 1e-6f; }
static inline int64_t dit_ltx2_own_rows(const Ltx2Config *c) { return c->text_mod ? LTX2_OWN_TEXT : LTX2_OWN; }
static inline Ltx2Which dit_ltx2_other(Ltx2Which s) { return s == LTX2_VIDEO ? LTX2_AUDIO : LTX2_VIDEO; }

/* The modulations of a step, for each of `values` distinct times of a stream. */
typedef struct Ltx2Times {
    int values[LTX2_STREAMS];
    Tensor mod[LTX2_STREAMS][LTX2_TIMES];  /* [layers, mods, D] */
    Tensor last[LTX2_STREAMS][LTX2_TIMES]; /* [2,D]: shift, scale of the last norm */
} Ltx2Times;

/* Into the work arena, for a pass of `samples` prompts. */
Status dit_ltx2_time_make(const Ltx2Dit *m, Exec *x, const Ltx2Grid *g, const Ltx2Prompt *p, const Ltx2Step *step,
                          int64_t samples, Ltx2Times *out);

/* Rows of neighbouring tokens with one time, for a loop over all samples: begin with {0}; false when there is no more. */
typedef struct Ltx2Rows { int64_t sample, span, start, count; int value; } Ltx2Rows;
bool dit_ltx2_block_rows(const Ltx2Grid *g, Ltx2Which s, int64_t samples, Ltx2Rows *rows);

/* h[s] [samples * tokens, D], in place. */
Status dit_ltx2_block_run(const Ltx2Dit *m, Exec *x, int i, const Ltx2Grid *g, const Ltx2Prompt *p, const Ltx2Times *t,
                          const Ltx2Pass *pass, const Tensor h[LTX2_STREAMS]);

#endif
