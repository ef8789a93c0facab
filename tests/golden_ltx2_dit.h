/* golden_ltx2_dit.h - draws the tiny LTX-2 transformer (2.0 or 2.3) from a seed, and runs its passes on the CPU table against
 * golden tensors (scripts/dump_golden_ltx2_dit.py, which draws the same numbers with torch). Judging, feeding and the rig are
 * golden.h's, the checkpoint golden_draw.h's.
 *
 * Easy to get wrong: a pass for the second prompt alone must give that prompt's half of what both give together. */
#ifndef GOLDEN_LTX2_DIT_H
#define GOLDEN_LTX2_DIT_H

#include "golden.h"
#include "golden_draw.h"
#include "models/dit_ltx2.h"

enum { LTX2_SEED = 20260401, LTX2_SEED_INPUTS = 20260402, LTX2_FRAMES = 2, LTX2_ROWS = 2, LTX2_COLS = 3, LTX2_TOKENS = 5,
       LTX2_TEXT = 7, LTX2_SAMPLES = 2, LTX2_LAYERS_MOST = 8 };
static const float LTX2_TIME_VIDEO = 537.25f, LTX2_TIME_AUDIO = 312.5f, LTX2_TIME_GIVEN = 41.125f;
#define LTX2_FILE "diffusion_pytorch_model.safetensors"

/* --- the checkpoint --- */

/* The rule of scripts/dump_golden_ltx2_dit.py. */
static inline void ltx2_draw(Rng *rng, const BindRow *r, int64_t n, float *v) {
    double fan = sqrt((double)(n / r->shape[0]));
    float by = (float)(1.0 / fan), plus = 0;
    if (draw_ends(r->name, "norm_q.weight")) by = 1.2f, plus = 4;
    else if (draw_ends(r->name, "norm_k.weight")) by = 0.3f, plus = 1;
    else if (draw_ends(r->name, "scale_shift_table")) by = 0.7f;
    else if (draw_ends(r->name, "bias")) by = 0.2f;
    else if (draw_ends(r->name, ".linear.weight")) by = (float)(2.5 / fan);
    rng_normal(rng, F32, n, v);
    for (int64_t i = 0; i < n; i++) v[i] = v[i] * by + plus;
}

/* config.json and weights into FOLDER. */
static inline void ltx2_write(const char *folder, bool newer) {
    static const char *const NEWER[][2] = {{"gated_attn", "true"},           {"cross_attn_mod", "true"},
                                           {"audio_gated_attn", "true"},     {"audio_cross_attn_mod", "true"},
                                           {"use_prompt_embeddings", "false"}, {"perturbed_attn", "true"}};
    Error e = {0};
    Ltx2Dit m;
    Bind b = {.prefix = ""};
    draw_config(folder, GOLDEN_DIR "/tiny-ltx2.json");
    for (size_t i = 0; newer && i < sizeof NEWER / sizeof *NEWER; i++)
        mutate_json(folder, "config.json", NEWER[i][0], NEWER[i][1]);
    if (dit_ltx2_open(folder, &m, &e) != OK) mutate_stop(folder, e.text);
    dit_ltx2_bind(&m, &b);
    draw_weights(folder, LTX2_FILE, &b, LTX2_SEED, ltx2_draw);
    bind_free(&b);
    dit_ltx2_close(&m);
}

/* --- one pass --- */

typedef struct Ltx2Case {
    const char *name;
    bool newer;          /* 2.3 */
    bool given, cross;   /* the first frame has a time of its own; use_cross_timestep */
    bool only;           /* the second prompt alone */
    bool stg, apart;     /* block 1 without self attention; isolated streams */
    bool half;           /* there is a bf16 file */
    bool alike;          /* the first frame's own time is the others' */
} Ltx2Case;
enum { CASE_20, CASE_23, CASE_20_GIVEN, CASE_23_GIVEN, CASE_23_STG, CASE_23_APART, LTX2_CASE_COUNT };
static const Ltx2Case LTX2_CASES[LTX2_CASE_COUNT] = {
    [CASE_20] = {"20", .half = true},
    [CASE_23] = {"23", .newer = true, .half = true},
    [CASE_20_GIVEN] = {"20given", .given = true},
    [CASE_23_GIVEN] = {"23given", .newer = true, .given = true, .cross = true},
    [CASE_23_STG] = {"23stg", .newer = true, .only = true, .stg = true, .half = true},
    [CASE_23_APART] = {"23apart", .newer = true, .only = true, .apart = true},
};

static inline Tensor ltx2_input(Golden *g, Rng *rng, DType t, int64_t rows, int64_t cols, float by) {
    float v[4096];
    Tensor out = exec_new_as(&g->x, t, rows, cols);
    rng_normal(rng, F32, tensor_numel(out), v);
    for (int64_t i = 0; i < tensor_numel(out); i++) golden_put(out.data, t, i, (double)(v[i] * by));
    return out;
}

static inline Tensor ltx2_time(Golden *g, int64_t n, float first, float second) {
    Tensor t = exec_new_as(&g->x, F32, n);
    golden_put(t.data, F32, 0, (double)first);
    if (n > 1) golden_put(t.data, F32, 1, (double)second);
    return t;
}

static inline Status ltx2_run_bound(Golden *g, Ltx2Dit *m, const Ltx2Case *c) {
    static const bool STG[LTX2_LAYERS_MOST] = {false, true};
    enum { PLACE = LTX2_ROWS * LTX2_COLS, VIDEO = LTX2_FRAMES * PLACE };
    Exec *x = &g->x;
    Rng rng;
    Ltx2Place place[VIDEO];
    Ltx2Prompt prompt;
    rng_seed(&rng, LTX2_SEED_INPUTS);
    Ltx2Grid grid = {.tokens = {VIDEO, LTX2_TOKENS}};
    if (c->given) grid.spans = 2, grid.span[0] = (Ltx2Span){0, PLACE, 1}, grid.span[1] = (Ltx2Span){PLACE, VIDEO - PLACE, 0};
    int64_t count = c->only ? 1 : LTX2_SAMPLES;
    Tensor latents[LTX2_STREAMS], contexts[LTX2_STREAMS], out[LTX2_STREAMS];
    for (int s = 0; s < LTX2_STREAMS; s++) {
        latents[s] = ltx2_input(g, &rng, F32, grid.tokens[s], m->c.stream[s].channels, 1);
        out[s] = exec_new_as(x, F32, count * grid.tokens[s], m->c.stream[s].out_channels);
    }
    for (int s = 0; s < LTX2_STREAMS; s++)
        contexts[s] = ltx2_input(g, &rng, x->dtype, LTX2_SAMPLES * LTX2_TEXT, dit_ltx2_context(m, (Ltx2Which)s), 3);
    dit_ltx2_places(m, LTX2_FRAMES, LTX2_ROWS, LTX2_COLS, 24, place);
    TRY(dit_ltx2_rope(m, x, place, &grid));
    dit_ltx2_prompt_room(m, x, LTX2_SAMPLES, LTX2_TEXT, &prompt);
    TRY(dit_ltx2_prompt(m, x, contexts, &prompt));
    Tensor video = ltx2_time(g, 1, LTX2_TIME_VIDEO, 0), audio = ltx2_time(g, 1, LTX2_TIME_AUDIO, 0);
    Tensor tokens = c->given ? ltx2_time(g, 2, LTX2_TIME_VIDEO, c->alike ? LTX2_TIME_VIDEO : LTX2_TIME_GIVEN) : video;
    const Ltx2Step step = {.video = tokens, .audio = audio, .sigma = {video, audio}, .cross = c->cross};
    const Ltx2Pass pass = {.first = LTX2_SAMPLES - count, .count = count, .isolated = c->apart, .perturbed = c->stg ? STG : NULL};
    TRY(dit_ltx2_run(m, x, &grid, &prompt, &step, &pass, latents, out));
    golden_result(g, "ltx2.out.video", out[LTX2_VIDEO]);
    golden_result(g, "ltx2.out.audio", out[LTX2_AUDIO]);
    return OK;
}

/* The transformer in FOLDER against GOLDEN_DIR/ltx2dit_NAME_DTYPE.safetensors; results as golden_part's. */
static inline Status golden_ltx2_dit(Golden *g, const char *folder, DType dtype, const Ltx2Case *c) {
    char name[60];
    Error *e = &g->error;
    Ltx2Dit m = {0};
    GoldenWeights w = {.bind.prefix = ""};
    snprintf(name, sizeof name, "ltx2dit_%s_%s", c->name, dtype == BF16 ? "bf16" : "f32");
    TRY(golden_start(g, name, dtype));
    Status s = dit_ltx2_open(folder, &m, e);
    if (s == OK) s = weights_open(folder, &w.files, e);
    if (s == OK) dit_ltx2_bind(&m, &w.bind);
    if (s == OK) s = golden_bind(g, &w, dtype, NULL);
    size_t mark = arena_mark(&g->work);
    if (s == OK) s = ltx2_run_bound(g, &m, c);
    arena_reset(&g->work, mark);
    golden_unbind(&w);
    dit_ltx2_close(&m);
    golden_stop(g);
    return s;
}

#endif
