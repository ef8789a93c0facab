/* ltx2_connectors.h - LTX-2's text connectors (diffusers' LTX2TextConnectors): all hidden states of the text encoder -> the two
 * contexts, video and audio, that the transformer attends to.
 *
 * 2.0: each layer's states by their mean and range, one projection for both. 2.3: each state by its root mean square, a
 * projection with bias for each. Then two transformers of one dimension: the tokens move to the front, learned registers fill
 * the slots behind them, all attend to all; norms without weights, q and k normed over the whole width, rotations that differ
 * from head to head; 2.3 gates the heads. Not here: the text encoder (te_gemma3.h), tokens.
 * Easy to get wrong: a register is chosen by its slot, not by its place behind the text; slots have positions 0, 1, ... however
 * the text was padded; the attention is given a mask of zeros, and runs as one with a mask; the prompts of guidance are one
 * batch, one product for all their rows. */
#ifndef LTX2_CONNECTORS_H
#define LTX2_CONNECTORS_H

#include "core/json.h"
#include "text/te_gemma3.h"

typedef enum Ltx2ConnectorWhich { LTX2_CONNECTOR_VIDEO, LTX2_CONNECTOR_AUDIO, LTX2_CONNECTORS_COUNT } Ltx2ConnectorWhich;

typedef struct Ltx2ConnectorBlock {
    Weight q, k, v, o, gate, up, down; /* gate: [heads, width], 2.3 alone; up, down: the MLP */
    Tensor norm_q, norm_k;             /* [width] */
} Ltx2ConnectorBlock;

typedef struct Ltx2Connector {
    int64_t heads, head, layers, registers, width; /* width: heads * head */
    bool gated;
    Weight registers_table;    /* [registers, width] */
    Weight proj;               /* 2.3: [width, channels * states], with bias */
    Ltx2ConnectorBlock *block; /* [layers] */
} Ltx2Connector;

typedef struct Ltx2Connectors {
    int64_t channels, states; /* of the text encoder: hidden size, hidden states */
    int64_t base;             /* positions that make a whole turn of the slowest angle, -1 to 1 */
    double theta;
    bool apart;               /* per_modality_projections: 2.3 */
    bool bias;                /* of the projections */
    Weight proj;              /* 2.0: [channels, channels * states] */
    Ltx2Connector one[LTX2_CONNECTORS_COUNT];
    RopeSplitForm form;       /* of the rotations; the caller's, of the job in hand */
} Ltx2Connectors;

Status ltx2_connectors_open(const char *folder, Ltx2Connectors *out, Error *e);
/* The same from a config at hand, whose messages name `path`; `out` is an Ltx2Connectors. */
Status ltx2_connectors_read(const char *path, const Json *j, void *out, Error *e);
void ltx2_connectors_close(Ltx2Connectors *c);
void ltx2_connectors_bind(Ltx2Connectors *c, Bind *b);

int64_t ltx2_connectors_width(const Ltx2Connectors *c, Ltx2ConnectorWhich which);
/* Slots must be a multiple of this. */
int64_t ltx2_connectors_registers(const Ltx2Connectors *c);

/* context[which] [count * slots, width] of `count` texts, whose states te_gemma3_room made as one block; the states are
 * overwritten. Taps: connectors.text.<i> (2.0) or connectors.text.video.<i>, .audio.<i>: the projections of text i, real rows;
 * of all texts connectors.video.<i>, connectors.audio.<i>: blocks; connectors.video, connectors.audio: contexts.
 * Room beside the states: 2.3 takes as much again. */
Status ltx2_connectors_run(const Ltx2Connectors *c, Exec *x, int count, int64_t slots, const Gemma3States *states,
                           const Tensor context[LTX2_CONNECTORS_COUNT]);

#endif
