/* golden_sana.h - draws the tiny SANA-Video transformer from a seed, and runs it on the CPU table against golden tensors
 * (scripts/dump_golden_sana.py, which draws the same numbers with torch). Judging, feeding and the rig are golden.h's, the
 * checkpoint golden_draw.h's. Easy to get wrong: values are scaled by one f32 product (and one sum), as torch does it. */
#ifndef GOLDEN_SANA_H
#define GOLDEN_SANA_H

#include "golden.h"
#include "golden_draw.h"
#include "models/dit_sana_video.h"

enum { SANA_SEED = 20260301, SANA_SEED_INPUTS = 20260302, SANA_FRAMES = 3, SANA_ROWS = 2, SANA_COLS = 3, SANA_TEXT = 7,
       SANA_REAL = 5, SANA_TIME = 537 };
#define SANA_FILE "diffusion_pytorch_model.safetensors"

/* --- the checkpoint --- */

/* The rule of scripts/dump_golden_sana.py. */
static inline void sana_draw(Rng *rng, const BindRow *r, int64_t n, float *v) {
    float by = (float)(1.0 / sqrt((double)(n / r->shape[0]))), plus = 0;
    if (draw_ends(r->name, "attn2.norm_q.weight")) by = 1.2f, plus = 4;
    else if (draw_ends(r->name, "norm_q.weight") || draw_ends(r->name, "norm_k.weight") || draw_ends(r->name, "norm.weight"))
        by = 0.3f, plus = 1;
    else if (draw_ends(r->name, "scale_shift_table")) by = 0.7f;
    else if (draw_ends(r->name, "bias")) by = 0.2f;
    rng_normal(rng, F32, n, v);
    for (int64_t i = 0; i < n; i++) v[i] = v[i] * by + plus;
}

/* One more key of the config, as JSON; replaces what is there. */
typedef struct SanaKey { const char *key, *value; } SanaKey;

/* The transformer into FOLDER: config.json, with `count` keys changed, and its weights. */
static inline void sana_write_as(const char *folder, const SanaKey *keys, int count) {
    Error e = {0};
    SanaVideoDit m;
    Bind b = {.prefix = ""};
    draw_config(folder, GOLDEN_DIR "/tiny-sana.json");
    for (int i = 0; i < count; i++) mutate_json(folder, "config.json", keys[i].key, keys[i].value);
    if (dit_sana_video_open(folder, &m, &e) != OK) mutate_stop(folder, e.text);
    dit_sana_video_bind(&m, &b);
    draw_weights(folder, SANA_FILE, &b, SANA_SEED, sana_draw);
    bind_free(&b);
    dit_sana_video_close(&m);
}

static inline void sana_write(const char *folder) { sana_write_as(folder, NULL, 0); }

/* --- one run --- */

/* What a run is given, and how it is split: the first `clean` frames at the same time as the others must change nothing. */
typedef struct SanaRun {
    int64_t clean;
} SanaRun;

static inline void sana_put(Tensor t, const float *v) {
    for (int64_t i = 0; i < tensor_numel(t); i++) golden_put(t.data, t.dtype, i, (double)v[i]);
}

static inline Status sana_run_bound(Golden *g, SanaVideoDit *m, const SanaRun *run) {
    int64_t p = m->c.patch, h = p * SANA_ROWS, w = p * SANA_COLS, c = m->c.channels;
    float v[4096];
    Rng rng;
    Exec *x = &g->x;
    Tensor latents = exec_new_as(x, F32, c, SANA_FRAMES, h, w), out = exec_new_as(x, F32, c, SANA_FRAMES, h, w);
    Tensor embeds = exec_new(x, SANA_TEXT, m->c.text_dim), t = exec_new_as(x, F32, 1);
    rng_seed(&rng, SANA_SEED_INPUTS);
    rng_normal(&rng, F32, tensor_numel(latents), v);
    sana_put(latents, v);
    rng_normal(&rng, F32, tensor_numel(embeds), v);
    for (int64_t i = 0; i < tensor_numel(embeds); i++) v[i] *= 3.0f;
    sana_put(embeds, v);
    golden_put(t.data, F32, 0, SANA_TIME);
    SanaVideoGrid grid = {.frames = SANA_FRAMES, .rows = SANA_ROWS, .cols = SANA_COLS};
    SanaVideoPrompt prompt;
    SanaVideoTime time;
    TRY(dit_sana_video_rope(m, x, &grid));
    dit_sana_video_prompt_room(m, x, SANA_TEXT, &prompt);
    dit_sana_video_time_room(m, x, run->clean, &time);
    TRY(dit_sana_video_prompt(m, x, embeds, SANA_REAL, &prompt));
    TRY(dit_sana_video_time(m, x, t, t, &time));
    TRY(dit_sana_video_run(m, x, &grid, &prompt, &time, latents, out));
    golden_result(g, "sana.out", out);
    return OK;
}

/* The transformer in FOLDER against GOLDEN_DIR/sdit_DTYPE.safetensors; results as golden_part's. */
static inline Status golden_sana(Golden *g, const char *folder, DType dtype, const SanaRun *run) {
    char name[60];
    Error *e = &g->error;
    SanaVideoDit m = {0};
    GoldenWeights w = {.bind.prefix = ""};
    snprintf(name, sizeof name, "sdit_%s", dtype == BF16 ? "bf16" : "f32");
    TRY(golden_start(g, name, dtype));
    Status s = dit_sana_video_open(folder, &m, e);
    if (s == OK) s = weights_open(folder, &w.files, e);
    if (s == OK) dit_sana_video_bind(&m, &w.bind);
    if (s == OK) s = golden_bind(g, &w, dtype, NULL);
    size_t mark = arena_mark(&g->work);
    if (s == OK) s = sana_run_bound(g, &m, run);
    arena_reset(&g->work, mark);
    golden_unbind(&w);
    dit_sana_video_close(&m);
    golden_stop(g);
    return s;
}

#endif
