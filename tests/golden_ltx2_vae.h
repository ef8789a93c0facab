/* golden_ltx2_vae.h - LTX-2's video autoencoder and latent upsampler on weights that this side and diffusers both draw
 * (scripts/dump_golden_ltx2_vae.py), their runs on the CPU table, and the comparison with tests/golden/ltx2_vae.safetensors.
 * Samples, stage inputs and metrics are golden_wan.h's: f32, run through, within 1e-5 of the largest value of a frame; bf16,
 * stage by stage, within a quarter of its distance from f32.
 *
 * Easy to get wrong: a norm's stage is a whole window, so what the tap draws into it has copied frames and mirrored borders. */
#ifndef GOLDEN_LTX2_VAE_H
#define GOLDEN_LTX2_VAE_H

#include "golden_wan.h" /* its headers are golden_draw.h's too */

#include "golden_draw.h"
#include "vae/vae_ltx2_encode.h"
#include "vae/vae_ltx2_upsample.h"

#define LTX2_FILE "diffusion_pytorch_model.safetensors"
#define LTX2_FOLDER GOLDEN_DIR "/tiny-ltx2-vae"
enum { LTX2_LATENT = 3, LTX2_Y = 2, LTX2_X = 3, LTX2_C = 8, LTX2_SEED = 20 };

/* --- checkpoints --- */

static inline void ltx2_rule(Rng *rng, const BindRow *r, int64_t n, float *v) {
    if (!rng_normal(rng, F32, n, v)) abort();
    const float scale = (float)(1.3 / pow((double)(n / r->shape[0]), 0.5));
    for (int64_t i = 0; i < n; i++) {
        if (!strcmp(r->name, "latents_mean")) v[i] *= 0.7f;
        else if (!strcmp(r->name, "latents_std")) v[i] = fabsf(v[i]) + 0.5f;
        else if (draw_ends(r->name, ".bias")) v[i] *= 0.2f;
        else if (r->rank == 1) v[i] = (1.0f + v[i] * 0.3f) * (i % 13 == 5 ? 3.0f : 1.0f);
        else v[i] *= scale;
    }
}

typedef struct Ltx2Parts { /* bound weights of one dtype */
    VaeLtx2 decoder;
    VaeLtx2Encoder encoder;
    VaeLtx2Upsampler upsampler;
    GoldenWeights weights;
} Ltx2Parts;

static inline Status ltx2_names(const char *folder, bool upsampler, Ltx2Parts *p, Error *e) {
    *p = (Ltx2Parts){.weights.bind.prefix = ""};
    if (upsampler) {
        TRY(vae_ltx2_upsample_open(folder, &p->upsampler, e));
        vae_ltx2_upsample_bind(&p->upsampler, &p->weights.bind);
        return OK;
    }
    TRY(vae_ltx2_open(folder, &p->decoder, e));
    p->encoder.c = p->decoder.c;
    vae_ltx2_bind(&p->decoder, &p->weights.bind);
    vae_ltx2_encode_bind(&p->encoder, &p->weights.bind);
    return OK;
}

static inline Status ltx2_open(Golden *g, const char *folder, bool upsampler, DType dtype, Ltx2Parts *p) {
    Error *e = &g->error;
    TRY(ltx2_names(folder, upsampler, p, e));
    TRY(weights_open(folder, &p->weights.files, e));
    return golden_bind(g, &p->weights, dtype, NULL);
}

static inline void ltx2_close(Ltx2Parts *p) {
    golden_unbind(&p->weights);
}

/* folder: made when it is not there. config: "20", "23", "other" or "upsampler"; plain: the upsampler with 2.3's names. */
static inline void ltx2_checkpoint(const char *folder, const char *config, bool plain) {
    Ltx2Parts p;
    Error e = {0};
    char from[200];
    snprintf(from, sizeof from, LTX2_FOLDER "/%s.json", config);
    draw_config(folder, from);
    if (plain) mutate_json(folder, "config.json", "use_rational_resampler", "false");
    if (ltx2_names(folder, !strcmp(config, "upsampler"), &p, &e) != OK) mutate_stop(folder, e.text);
    draw_weights(folder, LTX2_FILE, &p.weights.bind, LTX2_SEED, ltx2_rule);
    bind_free(&p.weights.bind);
}

/* --- stages --- */

typedef struct Ltx2Tap {
    Tap base;
    Golden *g;
    const char *form, *prefix; /* "20"; of the stages' names in reports */
    int row;                   /* of the next stage in the golden's order */
    bool causal, mirror;
    struct { char name[24]; int count; } seen[24];
} Ltx2Tap;

/* Draws the frames of a window, and copies them to where else they stand. */
static inline void ltx2_draw_window(const Ltx2Tap *tap, const char *key, Tensor t) {
    Golden *g = tap->g;
    size_t mark = arena_mark(&g->work);
    int64_t before = tap->causal ? 2 : 1, border = tap->mirror, c = t.shape[3], n[3];
    for (int d = 0; d < 3; d++) n[d] = t.shape[d] - 2 * (d ? border : 1);
    Tensor inside = exec_new_as(&g->x, t.dtype, n[0], n[1], n[2], c);
    wan_stage_input(key, inside, 1);
    for (int64_t i = 0; i < tensor_numel(t); i++) {
        int64_t place = i / c, at[] = {place / t.shape[2] / t.shape[1] - before, place / t.shape[2] % t.shape[1] - border,
                                       place % t.shape[2] - border};
        at[0] = at[0] < 0 ? 0 : at[0] >= n[0] ? n[0] - 1 : at[0];
        for (int d = 1; d < 3; d++) at[d] = at[d] < 0 ? -at[d] : at[d] >= n[d] ? 2 * n[d] - 2 - at[d] : at[d];
        golden_put(t.data, t.dtype, i, golden_at(inside.data, t.dtype, ((at[0] * n[1] + at[1]) * n[2] + at[2]) * c + i % c));
    }
    arena_reset(&g->work, mark);
}

static Status ltx2_see(Tap *base, Exec *x, const char *name, Tensor t) {
    Ltx2Tap *tap = (Ltx2Tap *)base;
    Golden *g = tap->g;
    char key[40], label[48], row[40];
    int i = 0;
    (void)x;
    if (!strcmp(name, "vae.denormalised")) return OK;
    while (tap->seen[i].count && strcmp(tap->seen[i].name, name)) i++;
    snprintf(tap->seen[i].name, sizeof tap->seen->name, "%s", name);
    snprintf(key, sizeof key, "%s.%d", name, tap->seen[i].count++);
    snprintf(row, sizeof row, "%s.room", tap->form);
    Tensor room = golden_find(g, row);
    if (tap->row >= room.shape[0]) return fail(&g->error, ERR_MODEL, "more stages than the golden file has");
    double limit = GOLDEN_BF16 * golden_at(room.data, F32, tap->row);
    snprintf(row, sizeof row, "%s.bf16", tap->form);
    snprintf(label, sizeof label, "%s%s", tap->prefix, key);
    golden_note(g, label, wan_distance(g, row, tap->row++, t).norm / limit);
    if (strstr(name, ".norm")) ltx2_draw_window(tap, key, t);
    else if (strcmp(name, "vae.frames") && strcmp(name, "vae.enc.moments") && strcmp(name, "upsample.latents"))
        wan_stage_input(key, t, 1);
    return OK;
}

/* --- runs; results in g->stage --- */

static inline Tensor ltx2_latents(Golden *g, const char *name, int64_t frames, DType dtype) {
    Tensor all = exec_new_as(&g->x, F32, LTX2_LATENT, LTX2_Y, LTX2_X, LTX2_C);
    Tensor z = exec_new_as(&g->x, dtype, frames, LTX2_Y, LTX2_X, LTX2_C);
    wan_normal(name, tensor_numel(all), all.data);
    for (int64_t i = 0; i < tensor_numel(z); i++) golden_put(z.data, dtype, i, golden_at(all.data, F32, i));
    return z;
}

static inline Tensor ltx2_video_like(Golden *g, const VaeLtx2Config *c, int64_t latent) {
    int64_t k = vae_ltx2_scale(c);
    return exec_new(&g->x, vae_ltx2_frames(c, latent), k * LTX2_Y, k * LTX2_X, 3);
}

static inline Tensor ltx2_video(Golden *g, const VaeLtx2Config *c) {
    Tensor t = ltx2_video_like(g, c, 2);
    wan_stage_input("video", t, 0.25f);
    return t;
}

/* Each row of the golden against one frame of t. */
static inline void ltx2_judge(Golden *g, const char *name, Tensor t) {
    for (int64_t i = 0; i < t.shape[0]; i++) {
        char label[48];
        WanDistance d = wan_distance(g, name, i, tensor_slice(t, 0, i, 1));
        snprintf(label, sizeof label, "%.30s frame %02d", name, (int)i);
        golden_note(g, label, d.most / (WAN_F32 * d.top));
    }
}

/* All of t, or samples of it, against a golden tensor. */
static inline void ltx2_judge_all(Golden *g, const char *name, Tensor t) {
    Tensor want = golden_find(g, name);
    int64_t n = tensor_numel(t), count = tensor_numel(want), step = count && count < n ? (n / count - 1) | 1 : 1;
    double most = want.rank ? 0 : INFINITY, top = 0;
    for (int64_t i = 0; i < count; i++) {
        double b = golden_at(want.data, F32, i), d = fabs(golden_at(t.data, F32, i * step) - b);
        if (!(d <= most)) most = d;
        top = fmax(top, fabs(b));
    }
    golden_note(g, name, most / (WAN_F32 * top));
}

static inline Status ltx2_f32(Golden *g, const char *form, const Ltx2Parts *p) {
    size_t mark = arena_mark(&g->work);
    const VaeLtx2Config *c = &p->decoder.c;
    char name[40];
    g->x.dtype = F32;
    for (int64_t n = 1; n <= LTX2_LATENT; n++) {
        Tensor video = ltx2_video_like(g, c, n);
        TRY(vae_ltx2_decode(&p->decoder, &g->x, ltx2_latents(g, "z", n, F32), video));
        snprintf(name, sizeof name, "%s.frames.%d", form, (int)n);
        ltx2_judge(g, name, video);
    }
    Tensor video = ltx2_video(g, c), z = exec_new(&g->x, 2, LTX2_Y, LTX2_X, LTX2_C), one = tensor_slice(z, 0, 0, 1);
    TRY(vae_ltx2_encode(&p->encoder, &g->x, video, z));
    snprintf(name, sizeof name, "%s.latents", form);
    ltx2_judge_all(g, name, z);
    TRY(vae_ltx2_encode(&p->encoder, &g->x, tensor_slice(video, 0, 0, 1), one));
    snprintf(name, sizeof name, "%s.image", form);
    ltx2_judge_all(g, name, one);
    arena_reset(&g->work, mark);
    return OK;
}

static inline Status ltx2_bf16(Golden *g, const char *form, const Ltx2Parts *p) {
    size_t mark = arena_mark(&g->work);
    const VaeLtx2Config *c = &p->decoder.c;
    Ltx2Tap tap = {.base = {ltx2_see}, .g = g, .form = form, .prefix = "", .causal = c->decoder_causal,
                   .mirror = c->decoder_mirror};
    char room[40];
    g->x.dtype = BF16;
    g->x.tap = &tap.base;
    Tensor z = exec_new(&g->x, 2, LTX2_Y, LTX2_X, LTX2_C);
    Status s = vae_ltx2_decode(&p->decoder, &g->x, ltx2_latents(g, "z", 2, F32), ltx2_video_like(g, c, 2));
    memset(tap.seen, 0, sizeof tap.seen); /* another run: its stages are counted anew */
    tap.prefix = "enc ", tap.causal = c->encoder_causal, tap.mirror = c->encoder_mirror;
    if (s == OK) s = vae_ltx2_encode(&p->encoder, &g->x, ltx2_video(g, c), z);
    snprintf(room, sizeof room, "%s.room", form);
    if (s == OK && tap.row != golden_find(g, room).shape[0]) s = fail(&g->error, ERR_MODEL, "%d stages only", tap.row);
    g->x.tap = NULL;
    arena_reset(&g->work, mark);
    return s;
}

static inline Status ltx2_up(Golden *g, const char *form, const Ltx2Parts *p, DType dtype) {
    size_t mark = arena_mark(&g->work);
    Ltx2Tap tap = {.base = {ltx2_see}, .g = g, .form = form, .prefix = ""};
    char name[40];
    g->x.dtype = dtype;
    g->x.tap = dtype == BF16 ? &tap.base : NULL;
    Tensor z = ltx2_latents(g, "up", LTX2_LATENT, dtype), y = exec_new(&g->x, LTX2_LATENT, 2 * LTX2_Y, 2 * LTX2_X, LTX2_C);
    Status s = vae_ltx2_upsample(&p->upsampler, &g->x, z, y);
    g->x.tap = NULL;
    snprintf(name, sizeof name, "%s.%s", form, dtype == BF16 ? "room" : "latents");
    if (s == OK && dtype == F32) ltx2_judge_all(g, name, y);
    if (s == OK && dtype == BF16 && tap.row != golden_find(g, name).shape[0])
        s = fail(&g->error, ERR_MODEL, "%d stages only", tap.row);
    arena_reset(&g->work, mark);
    return s;
}

#endif
