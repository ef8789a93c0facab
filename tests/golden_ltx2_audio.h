/* golden_ltx2_audio.h - the sound side of LTX-2 on weights that this side and diffusers both draw
 * (scripts/dump_golden_ltx2_audio.py), its runs on the CPU table, and the comparison with
 * tests/golden/ltx2_*.safetensors. Shared state is golden.h's, drawing and the tap of stages golden_wan.h's.
 *
 * Metrics, the limit of each being 1: f32, run through: max|a - b| / (1e-5 max|b|) over all samples; bf16, stage by
 * stage: |a - b| / (0.25 |b_f32 - b|) over a stage's samples, then the stage is given drawn values.
 * Easy to get wrong: stages are compared by their order, which must be the script's. */
#ifndef GOLDEN_LTX2_AUDIO_H
#define GOLDEN_LTX2_AUDIO_H

#include "golden_wan.h"
#include "vae/vae_ltx2_audio.h"
#include "vae/vocoder_ltx2.h"

#define AUDIO_CONFIGS GOLDEN_DIR "/ltx2_audio.json"
static const double AUDIO_F32 = 1e-5;
enum { AUDIO_ROWS = 9, AUDIO_LATENT = 3, AUDIO_BANDS = 16, AUDIO_TENSORS = 1000 };

typedef enum AudioPart { AUDIO_VAE, AUDIO_VOCODER, AUDIO_BWE, AUDIO_PARTS } AudioPart;
static const char *const AUDIO_NAMES[AUDIO_PARTS] = {"audio_vae", "vocoder", "vocoder_bwe"};

/* --- the checkpoint --- */

static inline bool audio_ends(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* n values of a tensor of `rows` rows, as the script's `drawn` has them. */
static inline void audio_drawn(const char *name, int64_t n, int64_t rows, float *out) {
    const int64_t each = n / rows, fan = strstr(name, "upsamplers") ? 2 * rows : each;
    const double gain = strstr(name, "conv_out") ? 0.25 : strstr(name, "resnets") ? 0.6 : 1.0;
    const float scale = (float)(gain / pow((double)fan, 0.5)), taps = (float)(1.0 / (double)n),
                mel = (float)(1.0 / (double)each);
    wan_normal(name, n, out);
    for (int64_t i = 0; i < n; i++) {
        if (audio_ends(name, "alpha") || audio_ends(name, "beta"))
            out[i] *= 0.3f;
        else if (audio_ends(name, ".bias") || !strcmp(name, "latents_mean"))
            out[i] *= 0.2f;
        else if (!strcmp(name, "latents_std"))
            out[i] = 1.0f + out[i] * 0.3f;
        else if (audio_ends(name, "mel_basis"))
            out[i] = fabsf(out[i]) * mel;
        else if (audio_ends(name, ".filter"))
            out[i] = (1.0f + out[i] * 0.6f) * taps;
        else
            out[i] *= scale;
    }
}

/* What b binds, in the shapes of the published files. Returns how many. */
static inline int audio_write(const Bind *b, const char *path) {
    cJSON *header = cJSON_CreateObject();
    float *value[AUDIO_TENSORS];
    int64_t count[AUDIO_TENSORS], used = 0;
    if (b->count > AUDIO_TENSORS) abort();
    for (int i = 0; i < b->count; i++) {
        const BindRow *r = &b->rows[i];
        int64_t shape[4] = {r->shape[0], r->shape[1], r->shape[2], r->shape[3]}, n = 1;
        int rank = r->rank;
        for (int d = 0; d < rank; d++) n *= shape[d];
        if (audio_ends(r->name, ".filter")) rank = 3, shape[0] = shape[1] = 1, shape[2] = n;
        if (audio_ends(r->name, "forward_basis")) rank = 3, shape[2] = shape[1], shape[1] = 1;
        cJSON *t = cJSON_AddObjectToObject(header, r->name);
        cJSON_AddStringToObject(t, "dtype", "F32");
        cJSON *dims = cJSON_AddArrayToObject(t, "shape"), *span = cJSON_AddArrayToObject(t, "data_offsets");
        for (int d = 0; d < rank; d++) cJSON_AddItemToArray(dims, cJSON_CreateNumber((double)shape[d]));
        cJSON_AddItemToArray(span, cJSON_CreateNumber((double)(used * 4)));
        cJSON_AddItemToArray(span, cJSON_CreateNumber((double)((used + n) * 4)));
        value[i] = malloc((size_t)n * sizeof(float));
        if (!value[i]) abort();
        audio_drawn(r->name, n, shape[0], value[i]);
        count[i] = n, used += n;
    }
    char *text = cJSON_PrintUnformatted(header);
    uint64_t size = strlen(text);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(&size, 8, 1, f) != 1 || fwrite(text, 1, size, f) != size) mutate_stop(path, "cannot write");
    for (int i = 0; i < b->count; i++) {
        if (fwrite(value[i], 4, (size_t)count[i], f) != (size_t)count[i]) mutate_stop(path, "cannot write");
        free(value[i]);
    }
    if (fclose(f)) mutate_stop(path, "cannot write");
    free(text);
    cJSON_Delete(header);
    return b->count;
}

typedef struct AudioParts { /* bound weights of one dtype */
    AudioPart part;
    VaeLtx2Audio vae;
    VocoderLtx2 vocoder;
    GoldenWeights weights;
} AudioParts;

static inline Status audio_config(AudioParts *p, const char *folder, Error *e) {
    if (p->part == AUDIO_VAE) {
        TRY(vae_ltx2_audio_open(folder, &p->vae, e));
        vae_ltx2_audio_bind(&p->vae, &p->weights.bind);
        return OK;
    }
    TRY(vocoder_ltx2_open(folder, &p->vocoder, e));
    vocoder_ltx2_bind(&p->vocoder, &p->weights.bind);
    return OK;
}

/* The folder's config and drawn weights. Returns the number of tensors. */
static inline int audio_checkpoint(Golden *g, AudioPart part, const char *folder) {
    AudioParts p = {.part = part, .weights.bind.prefix = ""};
    Json *all;
    char path[700];
    if (json_read(AUDIO_CONFIGS, &all, &g->error) != OK) mutate_stop(AUDIO_CONFIGS, g->error.text);
    char *text = cJSON_Print(json_get(all, AUDIO_NAMES[part]));
    snprintf(path, sizeof path, "%s/config.json", folder);
    mutate_write(path, text, strlen(text));
    free(text);
    json_free(all);
    if (audio_config(&p, folder, &g->error) != OK) mutate_stop(path, g->error.text);
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", folder);
    int count = audio_write(&p.weights.bind, path);
    bind_free(&p.weights.bind);
    return count;
}

static inline Status audio_open(Golden *g, AudioPart part, const char *folder, DType dtype, AudioParts *p) {
    Error *e = &g->error;
    *p = (AudioParts){.part = part, .weights.bind.prefix = ""};
    TRY(audio_config(p, folder, e));
    TRY(weights_open(folder, &p->weights.files, e));
    return golden_bind(g, &p->weights, dtype, NULL);
}

static inline void audio_close(AudioParts *p) {
    golden_unbind(&p->weights);
}

static inline Status audio_golden(Golden *g, AudioPart part) {
    char path[200];
    snprintf(path, sizeof path, GOLDEN_DIR "/ltx2_%s.safetensors", AUDIO_NAMES[part]);
    safetensors_close(&g->file);
    return safetensors_open(path, &g->file, &g->error);
}

/* --- runs; results in g->stage --- */

/* Drawn for all rows; the first `rows` of them. */
static inline Tensor audio_given(Golden *g, DType dtype, int64_t rows) {
    Tensor all = exec_new_as(&g->x, dtype, AUDIO_ROWS, AUDIO_BANDS, 2);
    wan_stage_input("mel", all, 1);
    return tensor_slice(all, 0, 0, rows);
}

/* What a run of so many rows makes, in the work arena. */
static inline Status audio_run(Golden *g, const AudioParts *p, int64_t rows, Tensor *out) {
    if (p->part == AUDIO_VAE) {
        Tensor z = exec_new_as(&g->x, F32, AUDIO_LATENT, vae_ltx2_audio_width(&p->vae.c));
        wan_normal("latents", tensor_numel(z), z.data);
        *out = exec_new(&g->x, vae_ltx2_audio_mel_rows(&p->vae.c, rows), AUDIO_BANDS, 2);
        return vae_ltx2_audio_decode(&p->vae, &g->x, tensor_slice(z, 0, 0, rows), *out);
    }
    *out = exec_new(&g->x, vocoder_ltx2_samples(&p->vocoder, rows), 2);
    return vocoder_ltx2_run(&p->vocoder, &g->x, audio_given(g, g->x.dtype, rows), *out);
}

static inline void audio_judge(Golden *g, const char *name, Tensor have) {
    Tensor want = golden_find(g, name);
    double most = 0, top = 0;
    for (int64_t i = 0; i < tensor_numel(have); i++) {
        double b = golden_at(want.data, F32, i), d = fabs(golden_at(have.data, F32, i) - b);
        if (!(d <= most)) most = d;
        top = fmax(top, fabs(b));
    }
    golden_note(g, name, tensor_numel(want) == tensor_numel(have) ? most / (AUDIO_F32 * top) : INFINITY);
}

static inline Status audio_f32(Golden *g, const AudioParts *p) {
    const int64_t rows = p->part == AUDIO_VAE ? AUDIO_LATENT : AUDIO_ROWS;
    size_t mark = arena_mark(&g->work);
    Tensor t;
    g->x.dtype = F32;
    TRY(audio_run(g, p, rows, &t));
    audio_judge(g, "f32", t);
    TRY(audio_run(g, p, rows - 1, &t));
    audio_judge(g, "f32_short", t);
    arena_reset(&g->work, mark);
    return OK;
}

static inline Status audio_bf16(Golden *g, const AudioParts *p) {
    size_t mark = arena_mark(&g->work);
    WanTap tap = {.base = {wan_see}, .g = g, .prefix = ""};
    Tensor t;
    g->x.dtype = BF16;
    g->x.tap = &tap.base;
    Status s = audio_run(g, p, p->part == AUDIO_VAE ? AUDIO_LATENT : AUDIO_ROWS, &t);
    g->x.tap = NULL;
    if (s == OK && p->part == AUDIO_BWE) s = wan_see(&tap.base, &g->x, "sound", t);
    if (s == OK && tap.row != golden_find(g, "room").shape[0])
        s = fail(&g->error, ERR_MODEL, "%d stages only", tap.row);
    arena_reset(&g->work, mark);
    return s;
}

#endif
