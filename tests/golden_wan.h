/* golden_wan.h - Wan's autoencoder on weights that this side and diffusers both draw (scripts/dump_golden_wan.py), its runs on
 * the CPU table, and the comparison with tests/golden/wan.safetensors. Shared state and elements are golden.h's.
 *
 * Metrics, the limit of each being 1: f32, run through: max|a - b| / (1e-5 max|b|) over the samples of a frame, or over all
 * latents; bf16, stage by stage: |a - b| / (0.25 |b_f32 - b|) over a stage's samples. After comparing, the tap writes drawn
 * values into the stage, so that each block begins from inputs that need not be stored.
 * Easy to get wrong: stages are compared by their order, which must be the script's. */
#ifndef GOLDEN_WAN_H
#define GOLDEN_WAN_H

#include "golden.h"
#include "mutate.h"
#include "rng.h"
#include "vae/vae_wan_encode.h"

#define WAN_CONFIG GOLDEN_DIR "/tiny-wan/config.json"
static const double WAN_F32 = 1e-5;
enum { WAN_LATENT = 5, WAN_H = 3, WAN_W = 5, WAN_TENSORS = 400 };

/* --- what both sides draw --- */

static inline uint32_t wan_fnv(const char *name) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

static inline void wan_normal(const char *name, int64_t n, float *out) {
    Rng r;
    rng_seed(&r, wan_fnv(name));
    if (!rng_normal(&r, F32, n, out)) abort();
}

/* shape as diffusers has it. */
static inline void wan_drawn(const char *name, int64_t n, int64_t rows, float *out) {
    wan_normal(name, n, out);
    double gain = strstr(name, "to_qkv") ? 2.0 : 1.3;
    const float scale = (float)(gain / pow((double)(n / rows), 0.5));
    for (int64_t i = 0; i < n; i++) {
        if (strstr(name, ".gamma")) out[i] = (1.0f + out[i] * 0.3f) * (i % 13 == 5 ? 3.0f : 1.0f);
        else out[i] *= strstr(name, ".bias") ? 0.2f : scale;
    }
}

/* A stage's values, channels last. */
static inline void wan_stage_input(const char *name, Tensor t, float factor) {
    int64_t n = tensor_numel(t), c = t.shape[t.rank - 1];
    float *v = malloc((size_t)n * sizeof *v);
    if (!v || !tensor_contiguous(t)) abort();
    wan_normal(name, n, v);
    for (int64_t i = 0; i < n; i++)
        golden_put(t.data, t.dtype, i, (double)(factor * bf16_round(v[i] * (i % c % 13 == 5 ? 6.0f : 1.0f))));
    free(v);
}

/* The checkpoint of a Bind: every tensor once, in the shapes of the published files. Returns how many. */
static inline int wan_write(const Bind *b, const char *path) {
    cJSON *header = cJSON_CreateObject();
    float *value[WAN_TENSORS];
    int64_t count[WAN_TENSORS], used = 0;
    int tensors = 0;
    for (int i = 0; i < b->count; i++) {
        const BindRow *r = &b->rows[i];
        if (cJSON_GetObjectItemCaseSensitive(header, r->name)) continue; /* the thirds of to_qkv */
        if (tensors == WAN_TENSORS) abort();
        int64_t shape[5] = {r->file_rows ? r->file_rows : r->shape[0], 1, 1, 1, 1}, n = shape[0];
        for (int d = 1; d < r->rank; d++) shape[d] = r->shape[d], n *= shape[d];
        int rank = r->transform != BIND_SQUEEZE ? r->rank : strstr(r->name, "attentions") && r->rank == 1 ? 3 : 4;
        cJSON *t = cJSON_AddObjectToObject(header, r->name);
        cJSON_AddStringToObject(t, "dtype", "F32");
        cJSON *dims = cJSON_AddArrayToObject(t, "shape"), *span = cJSON_AddArrayToObject(t, "data_offsets");
        for (int d = 0; d < rank; d++) cJSON_AddItemToArray(dims, cJSON_CreateNumber((double)shape[d]));
        cJSON_AddItemToArray(span, cJSON_CreateNumber((double)(used * 4)));
        cJSON_AddItemToArray(span, cJSON_CreateNumber((double)((used + n) * 4)));
        value[tensors] = malloc((size_t)n * sizeof(float));
        if (!value[tensors]) abort();
        wan_drawn(r->name, n, shape[0], value[tensors]);
        count[tensors++] = n, used += n;
    }
    char *text = cJSON_PrintUnformatted(header);
    uint64_t size = strlen(text);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(&size, 8, 1, f) != 1 || fwrite(text, 1, size, f) != size) mutate_stop(path, "cannot write");
    for (int i = 0; i < tensors; i++) {
        if (fwrite(value[i], 4, (size_t)count[i], f) != (size_t)count[i]) mutate_stop(path, "cannot write");
        free(value[i]);
    }
    if (fclose(f)) mutate_stop(path, "cannot write");
    free(text);
    cJSON_Delete(header);
    return tensors;
}

/* --- the rig --- */

typedef struct WanParts { /* bound weights of one dtype */
    VaeWan decoder;
    VaeWanEncoder encoder;
    GoldenWeights weights;
} WanParts;

static inline Status wan_open(Golden *g, const char *folder, DType dtype, WanParts *p) {
    Error *e = &g->error;
    *p = (WanParts){.weights.bind.prefix = ""};
    TRY(vae_wan_open(folder, &p->decoder, e));
    p->encoder.c = p->decoder.c;
    TRY(weights_open(folder, &p->weights.files, e));
    vae_wan_bind(&p->decoder, &p->weights.bind);
    vae_wan_encode_bind(&p->encoder, &p->weights.bind);
    return golden_bind(g, &p->weights, dtype, NULL);
}

static inline void wan_close(WanParts *p) {
    golden_unbind(&p->weights);
}

/* The folder's config and drawn weights. Returns the number of tensors. */
static inline int wan_checkpoint(Golden *g, const char *folder) {
    VaeWan decoder;
    VaeWanEncoder encoder;
    Bind b = {.prefix = ""};
    char path[700], *text;
    size_t size;
    if (file_read(WAN_CONFIG, &text, &size, &g->error) != OK) mutate_stop(WAN_CONFIG, g->error.text);
    snprintf(path, sizeof path, "%s/config.json", folder);
    mutate_write(path, text, size);
    free(text);
    if (vae_wan_open(folder, &decoder, &g->error) != OK) mutate_stop(path, g->error.text);
    encoder.c = decoder.c;
    vae_wan_bind(&decoder, &b);
    vae_wan_encode_bind(&encoder, &b);
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", folder);
    int count = wan_write(&b, path);
    bind_free(&b);
    return count;
}

/* --- comparing --- */

/* Samples of t against row `row` of the golden tensor `name`: largest difference, norm of it, largest value. */
typedef struct WanDistance { double most, norm, top; } WanDistance;

static inline WanDistance wan_distance(const Golden *g, const char *name, int64_t row, Tensor t) {
    Tensor want = golden_find(g, name);
    WanDistance d = {0};
    int64_t n = tensor_numel(t), count = want.rank == 2 ? want.shape[1] : 1, step = n / count - 1;
    step = (step < 0 ? 0 : step) | 1;
    char *have = golden_copy(t);
    for (int64_t i = 0; i < count && want.rank == 2; i++) {
        double a = golden_at(have, t.dtype, i * step), b = golden_at(want.data, want.dtype, row * count + i);
        if (!(fabs(a - b) <= d.most)) d.most = fabs(a - b);
        d.norm += (a - b) * (a - b);
        d.top = fmax(d.top, fabs(b));
    }
    free(have);
    d.norm = want.rank == 2 ? sqrt(d.norm) : INFINITY;
    return d;
}

typedef struct WanTap {
    Tap base;
    Golden *g;
    const char *prefix; /* of the stages' names in reports */
    int row;            /* of the next stage in the golden's order */
    struct { char name[24]; int count; } seen[24];
} WanTap;

static Status wan_see(Tap *tap, Exec *x, const char *name, Tensor t) {
    WanTap *w = (WanTap *)tap;
    Golden *g = w->g;
    char key[40], label[48];
    int i = 0;
    (void)x;
    while (w->seen[i].count && strcmp(w->seen[i].name, name)) i++;
    snprintf(w->seen[i].name, sizeof w->seen->name, "%s", name);
    snprintf(key, sizeof key, "%s.%d", name, w->seen[i].count++);
    Tensor room = golden_find(g, "room");
    if (w->row >= room.shape[0]) return fail(&g->error, ERR_MODEL, "more stages than the golden file has");
    double limit = GOLDEN_BF16 * golden_at(room.data, F32, w->row);
    snprintf(label, sizeof label, "%s%s", w->prefix, key);
    golden_note(g, label, wan_distance(g, "bf16", w->row++, t).norm / limit);
    if (strcmp(name, "vae.frames") && strcmp(name, "vae.enc.moments")) wan_stage_input(key, t, 1);
    return OK;
}

/* --- runs; results in g->stage --- */

static inline Tensor wan_latents(Golden *g, int64_t frames, DType dtype) {
    Tensor all = exec_new_as(&g->x, F32, WAN_LATENT, WAN_H, WAN_W, 4), z = exec_new_as(&g->x, dtype, frames, WAN_H, WAN_W, 4);
    wan_normal("z", tensor_numel(all), all.data);
    for (int64_t i = 0; i < tensor_numel(z); i++) golden_put(z.data, dtype, i, golden_at(all.data, F32, i));
    return z;
}

static inline Tensor wan_video(Golden *g, int64_t frames) {
    Tensor all = exec_new_as(&g->x, g->x.dtype, 5, 8 * WAN_H, 8 * WAN_W, 3);
    wan_stage_input("video", all, 0.25f);
    return tensor_slice(all, 0, 0, frames);
}

/* frames of video against the golden's first ones. */
static inline void wan_judge_frames(Golden *g, Tensor video) {
    for (int64_t i = 0; i < video.shape[0]; i++) {
        char name[40];
        WanDistance d = wan_distance(g, "frames", i, tensor_slice(video, 0, i, 1));
        snprintf(name, sizeof name, "frame %02d", (int)i);
        golden_note(g, name, d.most / (WAN_F32 * d.top));
    }
}

static inline void wan_judge_latents(Golden *g, Tensor z) {
    Tensor want = golden_find(g, "latents");
    double most = 0, top = 0;
    for (int64_t i = 0; i < tensor_numel(z); i++) {
        double b = golden_at(want.data, F32, i), d = fabs(golden_at(z.data, F32, i) - b);
        if (!(d <= most)) most = d;
        top = fmax(top, fabs(b));
    }
    golden_note(g, "latents", most / (WAN_F32 * top));
}

static inline Status wan_f32(Golden *g, const WanParts *p) {
    size_t mark = arena_mark(&g->work);
    g->x.dtype = F32;
    Tensor video = exec_new(&g->x, 17, 8 * WAN_H, 8 * WAN_W, 3), z = exec_new(&g->x, 2, WAN_H, WAN_W, 4);
    TRY(vae_wan_decode(&p->decoder, &g->x, wan_latents(g, WAN_LATENT, F32), 1, video));
    wan_judge_frames(g, video);
    TRY(vae_wan_encode(&p->encoder, &g->x, wan_video(g, 5), z));
    wan_judge_latents(g, z);
    arena_reset(&g->work, mark);
    return OK;
}

static inline Status wan_bf16(Golden *g, const WanParts *p) {
    size_t mark = arena_mark(&g->work);
    WanTap tap = {.base = {wan_see}, .g = g, .prefix = ""};
    g->x.dtype = BF16;
    g->x.tap = &tap.base;
    Tensor video = exec_new(&g->x, 9, 8 * WAN_H, 8 * WAN_W, 3), z = exec_new(&g->x, 2, WAN_H, WAN_W, 4);
    Status s = vae_wan_decode(&p->decoder, &g->x, wan_latents(g, 3, F32), 1, video);
    memset(tap.seen, 0, sizeof tap.seen); /* another run: its stages are counted anew */
    tap.prefix = "enc ";
    if (s == OK) s = vae_wan_encode(&p->encoder, &g->x, wan_video(g, 5), z);
    if (s == OK && tap.row != golden_find(g, "room").shape[0]) s = fail(&g->error, ERR_MODEL, "%d stages only", tap.row);
    g->x.tap = NULL;
    arena_reset(&g->work, mark);
    return s;
}

#endif
