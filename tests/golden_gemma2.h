/* golden_gemma2.h - draws SANA-Video's tiny text encoder from a seed, and runs it on the CPU table against golden tensors
 * (scripts/dump_golden_gemma2.py, which draws the same numbers with torch). Judging, feeding and the rig are golden.h's. */
#ifndef GOLDEN_GEMMA2_H
#define GOLDEN_GEMMA2_H

#include "golden.h"
#include "golden_draw.h"
#include "text/te_gemma2.h"

enum { GEMMA2_SEED = 20260311 };
#define GEMMA2_FILE "model.safetensors"

static inline void gemma2_rule(Rng *rng, const BindRow *r, int64_t n, float *v) {
    double fan = 1.0 / sqrt((double)(n / r->shape[0]));
    bool norm = draw_ends(r->name, "norm.weight"), embed = !strcmp(r->name, "embed_tokens.weight");
    float by = norm || embed ? 0.3f : (float)(draw_ends(r->name, "q_proj.weight") ? fan * 5.0 : fan);
    rng_normal(rng, F32, n, v);
    for (int64_t i = 0; i < n; i++) {
        int64_t column = i % r->shape[r->rank - 1];
        v[i] *= by;
        if (embed && (column == 5 || column == 29)) v[i] *= 4.0f;
    }
}

/* The encoder into FOLDER: config.json and its weights. */
static inline void gemma2_write(const char *folder) {
    Error e = {0};
    Gemma m;
    Bind b = {.prefix = ""};
    draw_config(folder, GOLDEN_DIR "/tiny-gemma2.json");
    if (te_gemma2_open(folder, &m, &e) != OK) mutate_stop(folder, e.text);
    te_gemma2_bind(&m, NULL, &b);
    draw_weights(folder, GEMMA2_FILE, &b, GEMMA2_SEED, gemma2_rule);
    bind_free(&b);
    te_gemma_close(&m);
}

static inline Status gemma2_run(Golden *g, const Gemma *m) {
    int64_t t = golden_find(g, "ids_1").shape[1];
    Tensor ids = golden_in(g, "ids_1", I32, t), y = exec_new(&g->x, t, m->c.hidden);
    if (ids.rank && g->ops.row_bits) { /* as such a table wants it: with padding behind, here of nonsense */
        Tensor padded = exec_new_as(&g->x, I32, t + 19);
        int32_t *to = padded.data, *from = ids.data;
        for (int64_t i = 0; i < t + 19; i++) to[i] = i < t ? from[i] : (int32_t)(7 * i % 101);
        ids = padded;
    }
    return ids.rank ? te_gemma2_encode(m, &g->x, ids, y) : ERR_MODEL;
}

/* The encoder in FOLDER against GOLDEN_DIR/gemma2_DTYPE.safetensors; results as golden_part's. */
static inline Status golden_gemma2(Golden *g, const char *folder, DType dtype) {
    char name[60];
    Error *e = &g->error;
    Gemma m = {0};
    GoldenWeights w = {.bind.prefix = ""};
    snprintf(name, sizeof name, "gemma2_%s", dtype == BF16 ? "bf16" : "f32");
    TRY(golden_start(g, name, dtype));
    size_t mark = arena_mark(&g->work);
    Status s = te_gemma2_open(folder, &m, e);
    if (s == OK) s = weights_open(folder, &w.files, e);
    if (s == OK) te_gemma2_bind(&m, w.files, &w.bind);
    if (s == OK) s = golden_bind(g, &w, dtype, NULL);
    if (s == OK) s = gemma2_run(g, &m);
    arena_reset(&g->work, mark);
    golden_unbind(&w);
    te_gemma_close(&m);
    golden_stop(g);
    return s;
}

#endif
