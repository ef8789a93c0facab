/* dit_ltx2_bind.c - where the LTX-2 transformer's weights stand in a diffusers checkpoint.
 *
 * Easy to get wrong: text keys and values of 2.0 are needed once a prompt: they are blocks of their own, ahead of the others,
 * so that a step that streams its weights leaves them out. */
#include "models/dit_ltx2_parts.h"

#include <stdio.h>

enum { TIME_WIDTH = 256 };

#define BLOCK "transformer_blocks.%d.%s"

static void bind_modulator(Bind *b, Ltx2Modulator *l, int64_t rows, int64_t d, const char *prefix, const char *name) {
    char path[96];
    snprintf(path, sizeof path, "%s%s.emb.timestep_embedder", prefix, name);
    blocks_mlp_bind(b, &l->embed, TIME_WIDTH, d, path);
    bind_linear(b, &l->linear, rows * d, d, true, "%s%s.linear", prefix, name);
}

/* q, out and the norm of q; d: of the queries' stream, inner: of all heads. */
static void bind_queries(Bind *b, Ltx2Attention *a, int64_t d, int64_t inner, bool gated, int i, const char *name) {
    bind_vector(b, &a->norm_q, inner, BIND_PLAIN, BLOCK ".norm_q.weight", i, name);
    bind_linear(b, &a->out, d, inner, true, BLOCK ".to_out.0", i, name);
    if (gated) bind_linear(b, &a->gate, a->heads, d, true, BLOCK ".to_gate_logits", i, name);
}

/* k and v, as a pack, with q or without; from: width of what they are made of. */
static void bind_keys(Bind *b, Ltx2Attention *a, int64_t from, int64_t inner, bool with_q, int i, const char *name) {
    bind_vector(b, &a->norm_k, inner, BIND_PLAIN, BLOCK ".norm_k.weight", i, name);
    bind_pack(b, true);
    if (with_q) bind_linear(b, &a->q, inner, from, true, BLOCK ".to_q", i, name);
    bind_linear(b, &a->k, inner, from, true, BLOCK ".to_k", i, name);
    bind_linear(b, &a->v, inner, from, true, BLOCK ".to_v", i, name);
    bind_pack(b, false);
}

static const char *const SELF[] = {"attn1", "audio_attn1"}, *const TEXT[] = {"attn2", "audio_attn2"};
static const char *const CROSS[] = {"audio_to_video_attn", "video_to_audio_attn"};
static const char *const PREFIX[] = {"", "audio_"};

static void bind_stream(Ltx2Dit *m, Bind *b, Ltx2BlockStream *l, Ltx2Which s, int i) {
    const Ltx2StreamConfig *c = &m->c.stream[s];
    int64_t d = m->stream[s].d, narrow = m->stream[LTX2_AUDIO].d, other = m->stream[dit_ltx2_other(s)].d;
    const char *prefix = PREFIX[s];
    l->self.heads = l->text.heads = c->heads;
    l->cross.heads = m->c.stream[LTX2_AUDIO].heads;
    bind_keys(b, &l->self, d, d, true, i, SELF[s]);
    bind_queries(b, &l->self, d, d, c->gated, i, SELF[s]);
    bind_linear(b, &l->text.q, d, d, true, BLOCK ".to_q", i, TEXT[s]);
    bind_queries(b, &l->text, d, d, c->gated, i, TEXT[s]);
    if (m->c.text_mod) bind_keys(b, &l->text, d, d, false, i, TEXT[s]);
    bind_linear(b, &l->cross.q, narrow, d, true, BLOCK ".to_q", i, CROSS[s]);
    bind_queries(b, &l->cross, d, narrow, c->gated, i, CROSS[s]);
    bind_keys(b, &l->cross, other, narrow, false, i, CROSS[s]);
    bind_linear(b, &l->ff_in, LTX2_FF * d, d, true, BLOCK "ff.net.0.proj", i, prefix);
    bind_linear(b, &l->ff_out, d, LTX2_FF * d, true, BLOCK "ff.net.2", i, prefix);
}

/* Tables are gathered once a prompt, for all blocks. */
static void bind_tables(Ltx2Dit *m, Bind *b, Ltx2BlockStream *l, Ltx2Which s, int i) {
    int64_t d = m->stream[s].d;
    bind_table(b, &l->table, dit_ltx2_own_rows(&m->c), d, BLOCK "scale_shift_table", i, PREFIX[s]);
    if (m->c.text_mod) bind_table(b, &l->prompt_table, LTX2_PROMPT_ROWS, d, BLOCK "prompt_scale_shift_table", i, PREFIX[s]);
    bind_table(b, &l->cross_table, LTX2_CROSS_ROWS, d, BLOCK "_a2v_cross_attn_scale_shift_table", i,
               s == LTX2_VIDEO ? "video" : "audio");
}

static void bind_outside(Ltx2Dit *m, Bind *b, Ltx2Which s) {
    static const char *const CROSS_NAME[][2] = {{"video_scale_shift", "video_a2v_gate"}, {"audio_scale_shift", "audio_v2a_gate"}};
    const Ltx2StreamConfig *c = &m->c.stream[s];
    Ltx2Stream *l = &m->stream[s];
    const char *prefix = PREFIX[s];
    char name[64];
    bind_linear(b, &l->in, l->d, c->channels, true, "%sproj_in", prefix);
    bind_linear(b, &l->out, c->out_channels, l->d, true, "%sproj_out", prefix);
    bind_table(b, &l->table, 2, l->d, "%sscale_shift_table", prefix);
    if (m->c.projects_caption) {
        bind_linear(b, &l->caption.linear_1, l->d, m->c.caption, true, "%scaption_projection.linear_1", prefix);
        bind_linear(b, &l->caption.linear_2, l->d, l->d, true, "%scaption_projection.linear_2", prefix);
    }
    bind_modulator(b, &l->time, dit_ltx2_own_rows(&m->c), l->d, prefix, "time_embed");
    snprintf(name, sizeof name, "av_cross_attn_%s", CROSS_NAME[s][0]);
    bind_modulator(b, &l->cross, LTX2_CROSS, l->d, "", name);
    snprintf(name, sizeof name, "av_cross_attn_%s", CROSS_NAME[s][1]);
    bind_modulator(b, &l->cross_gate, 1, l->d, "", name);
    if (m->c.text_mod) bind_modulator(b, &l->prompt, LTX2_PROMPT_ROWS, l->d, prefix, "prompt_adaln");
}

void dit_ltx2_bind(Ltx2Dit *m, Bind *b) {
    int layers = (int)m->c.layers, first = m->c.text_mod ? 0 : layers;
    for (int s = 0; s < LTX2_STREAMS; s++) bind_outside(m, b, (Ltx2Which)s);
    for (int i = 0; i < layers; i++)
        for (int s = 0; s < LTX2_STREAMS; s++) bind_tables(m, b, &m->block[i][s], (Ltx2Which)s, i);
    for (int i = 0; i < first; i++) {
        bind_block(b, i);
        for (int s = 0; s < LTX2_STREAMS; s++) {
            Ltx2Attention *a = &m->block[i][s].text;
            int64_t d = m->stream[s].d;
            bind_keys(b, a, d, d, false, i, TEXT[s]);
        }
    }
    for (int i = 0; i < layers; i++) {
        bind_block(b, first + i);
        for (int s = 0; s < LTX2_STREAMS; s++) bind_stream(m, b, &m->block[i][s], (Ltx2Which)s, i);
    }
    bind_block(b, -1);
}
