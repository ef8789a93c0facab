/* golden_ltx2_text.h - draws LTX-2's tiny text encoder and connectors from a seed, and runs them on the CPU table against golden
 * tensors (scripts/dump_golden_ltx2_text.py, which draws the same numbers with torch). Judging, feeding and the rig are
 * golden.h's.
 *
 * With Ops.row_bits all slots run, padding of nonsense ids among them; without it the real rows alone. */
#ifndef GOLDEN_LTX2_TEXT_H
#define GOLDEN_LTX2_TEXT_H

#include "golden.h"
#include "golden_draw.h"
#include "models/ltx2_connectors.h"

enum { GEMMA3_SEED = 20261130, CONNECTORS_SEED = 20261132, STATES_SEED };
enum { GEMMA3_SLOTS = 300, GEMMA3_STEP = 8, CONNECTORS_SLOTS = 16, CONNECTORS_TEXTS = 2 };
static const int64_t CONNECTORS_REAL[CONNECTORS_TEXTS] = {11, 3};
#define GEMMA3_FILE "model.safetensors"
#define CONNECTORS_FILE "diffusion_pytorch_model.safetensors"

/* --- drawing --- */

static inline void gemma3_rule(Rng *rng, const BindRow *r, int64_t n, float *v) {
    bool heads = draw_ends(r->name, "q_norm.weight") || draw_ends(r->name, "k_norm.weight");
    bool norm = draw_ends(r->name, "norm.weight"), embed = draw_ends(r->name, "embed_tokens.weight");
    float by = norm || embed ? 0.3f : (float)(1.0 / sqrt((double)(n / r->shape[0])));
    rng_normal(rng, F32, n, v);
    for (int64_t i = 0; i < n; i++) {
        int64_t column = i % r->shape[r->rank - 1];
        v[i] = v[i] * by + (heads ? 1.2f : 0.0f);
        if (embed && (column == 5 || column == 29)) v[i] *= 4.0f;
    }
}

/* The encoder into FOLDER: config.json and its weights. */
static inline void gemma3_write(const char *folder) {
    Error e = {0};
    Gemma m;
    Bind b = {.prefix = ""};
    draw_config(folder, GOLDEN_DIR "/tiny-gemma3.json");
    if (te_gemma3_open(folder, &m, &e) != OK) mutate_stop(folder, e.text);
    te_gemma3_bind(&m, NULL, &b);
    draw_weights(folder, GEMMA3_FILE, &b, GEMMA3_SEED, gemma3_rule);
    bind_free(&b);
    te_gemma_close(&m);
}

static inline void connectors_rule(Rng *rng, const BindRow *r, int64_t n, float *v) {
    float by = (float)(1.0 / sqrt((double)(n / r->shape[0]))), plus = 0;
    if (draw_ends(r->name, "norm_q.weight")) by = 1.2f, plus = 3.7f;
    else if (draw_ends(r->name, "norm_k.weight")) by = 0.3f, plus = 1;
    else if (draw_ends(r->name, "learnable_registers")) by = 1;
    else if (draw_ends(r->name, "bias")) by = 0.2f;
    rng_normal(rng, F32, n, v);
    for (int64_t i = 0; i < n; i++) v[i] = v[i] * by + plus;
}

/* The connectors of VERSION ("2.0", "2.3") into FOLDER. */
static inline void connectors_write(const char *folder, const char *version) {
    char path[1200], *text, *out;
    size_t size;
    Error e = {0};
    Ltx2Connectors m;
    Bind b = {.prefix = ""};
    draw_config(folder, GOLDEN_DIR "/tiny-ltx2-connectors.json");
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (file_read(path, &text, &size, &e) != OK) mutate_stop(path, e.text);
    cJSON *all = cJSON_Parse(text);
    out = cJSON_Print(cJSON_GetObjectItemCaseSensitive(all, version));
    if (!out) mutate_stop(path, version);
    mutate_write(path, out, strlen(out));
    free(out);
    free(text);
    cJSON_Delete(all);
    if (ltx2_connectors_open(folder, &m, &e) != OK) mutate_stop(folder, e.text);
    ltx2_connectors_bind(&m, &b);
    draw_weights(folder, CONNECTORS_FILE, &b, CONNECTORS_SEED, connectors_rule);
    bind_free(&b);
    ltx2_connectors_close(&m);
}

/* --- running --- */

static inline Status gemma3_run(Golden *g, const Gemma *m) {
    int32_t ids[GEMMA3_SLOTS];
    int64_t n = golden_find(g, "ids_1").shape[1];
    Gemma3States s;
    Tensor real = golden_in(g, "ids_1", I32, n);
    if (!real.rank) return ERR_MODEL;
    for (int i = 0; i < GEMMA3_SLOTS; i++) ids[i] = (int32_t)(7 * i % 101);
    memcpy(ids + (GEMMA3_SLOTS - n), real.data, (size_t)n * sizeof *ids);
    te_gemma3_room(m, &g->x, 1, GEMMA3_SLOTS, &n, &s);
    TRY(te_gemma3_states(m, &g->x, ids, GEMMA3_SLOTS, &s));
    Tensor t = tensor_slice(s.t, 0, s.t.shape[0] - n, n);
    t.shape[1] = (t.shape[1] + GEMMA3_STEP - 1) / GEMMA3_STEP, t.stride[1] *= GEMMA3_STEP;
    golden_result(g, "gemma3.states", t);
    return OK;
}

/* The encoder in FOLDER against GOLDEN_DIR/gemma3_DTYPE.safetensors; results as golden_part's. */
static inline Status golden_gemma3(Golden *g, const char *folder, DType dtype) {
    char name[60];
    Gemma m = {0};
    GoldenWeights w = {.bind.prefix = ""};
    size_t mark = arena_mark(&g->work);
    snprintf(name, sizeof name, "gemma3_%s", dtype == BF16 ? "bf16" : "f32");
    Status s = golden_start(g, name, dtype);
    if (s == OK) s = te_gemma3_open(folder, &m, &g->error);
    if (s == OK) s = weights_open(folder, &w.files, &g->error);
    if (s == OK) te_gemma3_bind(&m, w.files, &w.bind);
    if (s == OK) s = golden_bind(g, &w, dtype, TE_GEMMA3_IGNORE);
    if (s == OK) s = gemma3_run(g, &m);
    arena_reset(&g->work, mark);
    golden_unbind(&w);
    te_gemma_close(&m);
    golden_stop(g);
    return s;
}

/* The states of both texts, of all slots or of the real rows alone. */
static inline void connectors_states(Golden *g, const Ltx2Connectors *m, Gemma3States *s) {
    const Gemma te = {.c = {.hidden = m->channels, .layers = m->states - 1}};
    int64_t c = m->channels, l = m->states, n = CONNECTORS_TEXTS * CONNECTORS_SLOTS * c * l;
    float *v = malloc((size_t)n * sizeof *v);
    Rng rng;
    if (!v) abort();
    rng_seed(&rng, STATES_SEED);
    rng_normal(&rng, F32, n, v);
    te_gemma3_room(&te, &g->x, CONNECTORS_TEXTS, CONNECTORS_SLOTS, CONNECTORS_REAL, s);
    for (int64_t i = 0; i < n; i++) {
        v[i] = v[i] * ((float)(i % l) * 0.5f + 0.5f) + (float)(i % l) * 0.2f;
        if (i / l % c == 3) v[i] *= 5.0f;
    }
    for (int64_t k = 0; k < CONNECTORS_TEXTS; k++) {
        int64_t rows = s[k].t.shape[0], from = ((k + 1) * CONNECTORS_SLOTS - rows) * c * l;
        for (int64_t i = 0; i < rows * c * l; i++) golden_put(s[k].t.data, g->x.dtype, i, (double)v[from + i]);
    }
    free(v);
}

static inline Status connectors_run(Golden *g, const Ltx2Connectors *m) {
    Gemma3States s[CONNECTORS_TEXTS];
    Tensor context[LTX2_CONNECTORS_COUNT];
    for (int k = 0; k < LTX2_CONNECTORS_COUNT; k++)
        context[k] = exec_new(&g->x, CONNECTORS_TEXTS * CONNECTORS_SLOTS, m->one[k].width);
    connectors_states(g, m, s);
    return ltx2_connectors_run(m, &g->x, CONNECTORS_TEXTS, CONNECTORS_SLOTS, s, context);
}

/* The connectors in FOLDER against GOLDEN_DIR/GOLDEN_DTYPE.safetensors (ltx2text_20, ltx2text_23). */
static inline Status golden_connectors(Golden *g, const char *folder, const char *golden, DType dtype) {
    char name[60];
    Ltx2Connectors m = {0};
    GoldenWeights w = {.bind.prefix = ""};
    size_t mark = arena_mark(&g->work);
    snprintf(name, sizeof name, "%s_%s", golden, dtype == BF16 ? "bf16" : "f32");
    Status s = golden_start(g, name, dtype);
    if (s == OK) s = ltx2_connectors_open(folder, &m, &g->error);
    if (s == OK) s = weights_open(folder, &w.files, &g->error);
    if (s == OK) ltx2_connectors_bind(&m, &w.bind);
    if (s == OK) s = golden_bind(g, &w, dtype, NULL);
    if (s == OK) s = connectors_run(g, &m);
    arena_reset(&g->work, mark);
    golden_unbind(&w);
    ltx2_connectors_close(&m);
    golden_stop(g);
    return s;
}

#endif
