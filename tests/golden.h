/* golden.h - runs one part of the tiny FLUX.1 checkpoint on the CPU table and compares every stage with the golden
 * tensors (tests/golden/PART_DTYPE.safetensors). Shared by test_golden.c and test_mutants.c; the tap does the work.
 *
 * A stage's metric is its error over its allowance, so 1 is the limit:
 *   f32:   max|a - b| / (1e-4 max|b|); the part runs through, errors add up.
 *   bf16:  |a - b| / (0.25 |b_f32 - b|), Euclidean; b_f32 is the f32 result from the SAME bf16 inputs, stored as NAME@f32, or
 *          the distance alone as NAME@room, one number an item.
 *          After comparing, the tap writes the reference's values into the stage, so that the next block is fed with
 *          the reference's own input. Stages with b_f32 = b must be equal.
 * Easy to get wrong: a stage that no tap names would not be compared at all: golden_part() fails on golden tensors
 * that were never seen. State is per program, as in expect.h. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include "core/safetensors.h"
#include "kernels/registry.h"
#include "kernels/unary.h"
#include "models/dit_flux.h"
#include "ops.h"
#include "sched.h"
#include "text/te_clip.h"
#include "text/te_t5.h"
#include "vae/vae_kl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define GOLDEN_DIR "tests/golden"
#define GOLDEN_MODEL GOLDEN_DIR "/tiny-flux"
static const double GOLDEN_F32 = 1e-4, GOLDEN_BF16 = 0.25;

typedef enum GoldenPart { PART_CLIP, PART_T5, PART_DIT, PART_VAE, PART_COUNT } GoldenPart;
static const char *const GOLDEN_PARTS[] = {"clip", "t5", "dit", "vae"};
static const char *const GOLDEN_FOLDERS[] = {"text_encoder", "text_encoder_2", "transformer", "vae"};

/* --- elements --- */

static inline double golden_at(const char *from, DType t, int64_t i) {
    union { float f; uint16_t h; int32_t i; uint8_t u; } v = {0};
    memcpy(&v, from + (size_t)i * dtype_size(t), dtype_size(t));
    switch (t) {
    case F32: return (double)v.f;
    case BF16: return (double)bf16_to_f32(v.h);
    case I32: return v.i;
    default: return v.u;
    }
}

static inline void golden_put(char *to, DType t, int64_t i, double value) {
    float f = (float)value;
    uint16_t h = bf16_from_f32(f);
    if (t == F32) memcpy(to + i * 4, &f, 4);
    else memcpy(to + i * 2, &h, 2);
}

/* Contiguous copy of a tensor of any strides; free it. */
static inline void *golden_copy(Tensor t) {
    int64_t n = tensor_numel(t);
    char *out = malloc((size_t)n * dtype_size(t.dtype) + 1);
    if (!out) abort();
    int64_t at[TENSOR_MAX_RANK] = {0};
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        for (int d = 0; d < t.rank; d++) from += at[d] * t.stride[d];
        memcpy(out + (size_t)i * dtype_size(t.dtype), (char *)t.data + (size_t)from * dtype_size(t.dtype), dtype_size(t.dtype));
        for (int d = t.rank - 1; d >= 0 && ++at[d] == t.shape[d]; d--) at[d] = 0;
    }
    return out;
}

/* --- the rig: everything an op needs, on the CPU --- */

typedef struct GoldenStage { char name[48]; double metric; } GoldenStage;
enum { GOLDEN_STAGES = 96 };

typedef struct Golden {
    Ops ops;
    Device device;
    Calls calls;
    Arena work, scratch;
    Error error;
    Unary unary;
    Exec x;
    Tap tap;
    Safetensors file;
    bool feed;              /* write the reference into each stage after comparing */
    int64_t item;           /* of the batch */
    GoldenStage stage[GOLDEN_STAGES];
    int stages;
    double worst;
} Golden;

static inline Tensor golden_find(const Golden *g, const char *name) {
    const SafetensorsEntry *e = safetensors_find(&g->file, name);
    return e ? safetensors_tensor(&g->file, e) : (Tensor){0};
}

static inline void golden_note(Golden *g, const char *name, double metric) {
    if (!(metric <= g->worst)) g->worst = metric; /* NaN too */
    for (int i = 0; i < g->stages; i++)
        if (!strcmp(g->stage[i].name, name)) {
            if (!(metric <= g->stage[i].metric)) g->stage[i].metric = metric;
            return;
        }
    if (g->stages == GOLDEN_STAGES) abort();
    snprintf(g->stage[g->stages].name, sizeof g->stage->name, "%s", name);
    g->stage[g->stages++].metric = metric;
}

/* Compares n values with item `g->item` of the golden tensor; INFINITY when the counts do not fit. */
static inline double golden_metric(const Golden *g, const char *name, const char *have, DType dtype, int64_t n) {
    char twin[64];
    Tensor want = golden_find(g, name);
    snprintf(twin, sizeof twin, "%s@f32", name);
    Tensor f32 = golden_find(g, twin);
    snprintf(twin, sizeof twin, "%s@room", name);
    Tensor distance = golden_find(g, twin);
    if (!want.rank || (g->item + 1) * n > tensor_numel(want) || tensor_numel(want) % n) return INFINITY;
    double most = 0, top = 0, error = 0, room = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = g->item * n + i;
        double a = golden_at(have, dtype, i), b = golden_at(want.data, want.dtype, k), d = fabs(a - b);
        if (!(d <= most)) most = d;
        if (fabs(b) > top) top = fabs(b);
        error += d * d;
        if (f32.rank) {
            double c = golden_at(f32.data, f32.dtype, k) - b;
            room += c * c;
        }
    }
    if (want.dtype == F32) return most / (GOLDEN_F32 * top);
    if (error == 0) return 0;
    if (distance.rank) room = pow(golden_at(distance.data, F32, g->item), 2);
    return f32.rank || distance.rank ? sqrt(error) / (GOLDEN_BF16 * sqrt(room)) : INFINITY;
}

static Status golden_see(Tap *tap, Exec *x, const char *name, Tensor t) {
    Golden *g = (Golden *)((char *)tap - offsetof(Golden, tap));
    (void)x;
    Tensor want = golden_find(g, name);
    if (!want.rank) return OK; /* stages without a golden tensor: t5.bias */
    char *have = golden_copy(t);
    int64_t n = tensor_numel(t);
    golden_note(g, name, golden_metric(g, name, have, t.dtype, n));
    free(have);
    if (!g->feed || tensor_numel(want) % n || !tensor_contiguous(t)) return OK;
    for (int64_t i = 0; i < n; i++) golden_put(t.data, t.dtype, i, golden_at(want.data, want.dtype, g->item * n + i));
    return OK;
}

static inline void golden_result(Golden *g, const char *name, Tensor t) { golden_see(&g->tap, &g->x, name, t); }

static inline Status golden_open(Golden *g) {
    *g = (Golden){.device = device_cpu(), .tap = {golden_see}};
    ops_cpu(&g->ops);
    TRY(unary_open(&g->unary, &g->error));
    TRY(arena_open(&g->work, &g->device, "work", (size_t)1 << 28, &g->error));
    TRY(arena_open(&g->scratch, &g->device, "scratch", (size_t)1 << 28, &g->error));
    g->x = (Exec){.ops = &g->ops, .device = &g->device, .calls = &g->calls, .work = &g->work, .scratch = &g->scratch,
                  .error = &g->error, .dtype = F32, .unary = &g->unary};
    return OK;
}

static inline void golden_close(Golden *g) {
    arena_close(&g->work);
    arena_close(&g->scratch);
    unary_close(&g->unary);
    calls_free(&g->calls);
    safetensors_close(&g->file);
}

/* Item of a golden tensor as a work-arena tensor of the given shape. */
static inline Tensor golden_input(Golden *g, const char *name, DType dtype, int rank, const int64_t *shape) {
    Tensor from = golden_find(g, name), t = exec_tensor(&g->x, dtype, rank, shape);
    int64_t n = tensor_numel(t);
    if (!from.rank || (g->item + 1) * n > tensor_numel(from) || from.dtype != dtype) {
        fail(&g->error, ERR_MODEL, "%s: golden tensor is missing, too short or of another dtype", name);
        return (Tensor){0};
    }
    memcpy(t.data, (char *)from.data + (size_t)(g->item * n) * dtype_size(dtype), tensor_bytes(t));
    return t;
}
#define golden_in(g, name, dtype, ...)                                                                   \
    golden_input(g, name, dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* --- parts --- */

typedef struct GoldenModel { Clip clip; T5 t5; FluxDit dit; VaeKl vae; } GoldenModel;

static inline Status golden_run_clip(Golden *g, GoldenModel *m) {
    Tensor ids = golden_in(g, "ids_1", I32, 77), pooled = exec_new(&g->x, 1, m->clip.c.hidden);
    if (!ids.rank) return ERR_MODEL;
    TRY(te_clip_encode(&m->clip, &g->x, ids, te_clip_pooled_row(&m->clip, ids.data, 77), pooled));
    golden_result(g, "pooled", pooled);
    return OK;
}

static inline Status golden_run_t5(Golden *g, GoldenModel *m) {
    Tensor ids = golden_in(g, "ids_2", I32, 101), y = exec_new(&g->x, 101, m->t5.c.model);
    return ids.rank ? te_t5_encode(&m->t5, &g->x, ids, y) : ERR_MODEL;
}

enum { GOLDEN_TEXT = 19, GOLDEN_ROWS = 5, GOLDEN_COLS = 7 }; /* T5 tokens; image tokens of 80 x 112 pixels */

static inline Status golden_run_dit(Golden *g, GoldenModel *m) {
    const FluxDit *d = &m->dit;
    DType dt = g->x.dtype;
    int64_t s = GOLDEN_ROWS * GOLDEN_COLS;
    FluxPrompt p = {.context = exec_new(&g->x, GOLDEN_TEXT, d->d), .pooled = exec_new(&g->x, 1, d->d),
                    .mod = exec_new(&g->x, 1, dit_flux_mod_width(d))};
    Tensor latents = golden_in(g, "latents", dt, s, d->c.in_channels);
    Tensor embeds = golden_in(g, "prompt_embeds", dt, GOLDEN_TEXT, d->c.text_dim);
    Tensor pooled = golden_in(g, "pooled", dt, 1, d->c.pooled_dim);
    Tensor t = golden_in(g, "timestep", F32, 1), guidance = golden_in(g, "guidance", F32, 1);
    Tensor v = exec_new(&g->x, s, d->c.out_channels);
    if (!latents.rank || !embeds.rank || !pooled.rank || !t.rank || !guidance.rank) return ERR_MODEL;
    float *tv = t.data, *gv = guidance.data;
    *tv = sched_model_timestep(*tv, dt);
    *gv = sched_model_guidance(*gv, dt);
    TRY(dit_flux_rope(d, &g->x, GOLDEN_TEXT, GOLDEN_ROWS, GOLDEN_COLS, &p));
    TRY(dit_flux_prompt(d, &g->x, embeds, pooled, &p));
    TRY(dit_flux_modulate(d, &g->x, &p, 1, t, guidance, p.mod));
    TRY(dit_flux_velocity(d, &g->x, &p, latents, v));
    golden_result(g, "velocity", v);
    return OK;
}

static inline Status golden_run_vae(Golden *g, GoldenModel *m) {
    int64_t k = vae_kl_scale(&m->vae);
    Tensor z = golden_in(g, "z", g->x.dtype, 3, 4, m->vae.c.latent), picture = exec_new(&g->x, 3 * k, 4 * k, 3);
    if (!z.rank) return ERR_MODEL;
    TRY(vae_kl_decode(&m->vae, &g->x, z, picture));
    golden_result(g, "vae.picture", picture);
    return OK;
}

/* --- one part's weights --- */

typedef struct GoldenWeights {
    WeightFiles *files;
    Bind bind; /* prefix "" to begin with */
    Arena region;
} GoldenWeights;

/* The rows of w->bind, out of w->files. golden_unbind in any case. */
static inline Status golden_bind(Golden *g, GoldenWeights *w, DType dtype, const char *const *ignore) {
    size_t bytes, mapped;
    TRY(weights_measure(w->files, &w->bind, dtype, NULL, &bytes, &mapped, &g->error));
    TRY(arena_open(&w->region, &g->device, "weights", bytes ? bytes : 1, &g->error));
    return weights_bind(w->files, &w->bind, dtype, &w->region, ignore, &g->error);
}

static inline void golden_unbind(GoldenWeights *w) {
    arena_close(&w->region);
    bind_free(&w->bind);
    weights_close(w->files);
}

/* From here on stages are compared with GOLDEN_DIR/NAME.safetensors, in this dtype, until golden_stop. */
static inline Status golden_start(Golden *g, const char *name, DType dtype) {
    char path[512];
    g->error = (Error){0};
    snprintf(path, sizeof path, GOLDEN_DIR "/%s.safetensors", name);
    safetensors_close(&g->file);
    g->x.dtype = dtype;
    g->x.tap = &g->tap;
    g->feed = dtype == BF16;
    return safetensors_open(path, &g->file, &g->error);
}

static inline void golden_stop(Golden *g) { g->x.tap = NULL; }

static inline Status golden_bound(Golden *g, GoldenPart part, GoldenModel *m, GoldenWeights *w, DType dtype, int64_t items) {
    static const char *const IGNORE[] = {"encoder.down_blocks", "encoder.mid_block", "encoder.conv", NULL};
    if (part == PART_CLIP) te_clip_bind(&m->clip, w->files, &w->bind);
    if (part == PART_T5) te_t5_bind(&m->t5, w->files, &w->bind);
    if (part == PART_DIT) dit_flux_bind(&m->dit, &w->bind);
    if (part == PART_VAE) vae_kl_bind(&m->vae, &w->bind);
    TRY(golden_bind(g, w, dtype, part == PART_VAE ? IGNORE : NULL));
    for (g->item = 0; g->item < items; g->item++) {
        size_t mark = arena_mark(&g->work);
        Status s = part == PART_CLIP ? golden_run_clip(g, m)
                 : part == PART_T5   ? golden_run_t5(g, m)
                 : part == PART_DIT  ? golden_run_dit(g, m)
                                     : golden_run_vae(g, m);
        arena_reset(&g->work, mark);
        TRY(s);
    }
    g->item = 0;
    return OK;
}

/* Runs a part of the model folder against GOLDEN_DIR/NAME.safetensors, batch items one by one. g->stage and g->worst
 * hold the result, also from calls before: clear g->stages and g->worst between runs. */
static inline Status golden_part(Golden *g, const char *model, GoldenPart part, DType dtype, const char *name) {
    char path[512];
    static const char *const FIRST[] = {"ids_1", "ids_2", "latents", "z"};
    Error *e = &g->error;
    TRY(golden_start(g, name, dtype));
    const SafetensorsEntry *first = safetensors_find(&g->file, FIRST[part]);
    if (!first) return fail(e, ERR_MODEL, "%s: no tensor %s", name, FIRST[part]);
    GoldenModel m = {0};
    GoldenWeights w = {.bind.prefix = ""};
    snprintf(path, sizeof path, "%s/%s", model, GOLDEN_FOLDERS[part]);
    Status s = part == PART_CLIP ? te_clip_open(path, &m.clip, e)
             : part == PART_T5   ? te_t5_open(path, &m.t5, e)
             : part == PART_DIT  ? dit_flux_open(path, &m.dit, e)
                                 : vae_kl_open(path, &m.vae, e);
    if (s == OK) s = weights_open(path, &w.files, e);
    if (s == OK) s = golden_bound(g, part, &m, &w, dtype, first->shape[0]);
    golden_unbind(&w);
    te_clip_close(&m.clip);
    te_t5_close(&m.t5);
    dit_flux_close(&m.dit);
    golden_stop(g);
    return s;
}

/* Name of a golden output that no stage was compared with, or NULL. Inputs have no dot and are listed. */
static inline const char *golden_unseen(const Golden *g) {
    for (int i = 0; i < g->file.count; i++) {
        const char *name = g->file.entry[i].name;
        bool seen = strchr(name, '@') || (!strchr(name, '.') && strcmp(name, "velocity"));
        if (!strcmp(name, "pooled") && safetensors_find(&g->file, "ids_1")) seen = false;
        for (int k = 0; k < g->stages; k++) seen |= !strcmp(g->stage[k].name, name);
        if (!seen) return name;
    }
    return NULL;
}

#endif
