/* golden_ltx2_model.h - a whole tiny LTX-2 folder, every part drawn from the names of its tensors, as scripts/make_tiny_ltx2.py
 * draws it; the tokenizer of gemma2.txt. What scripts/reference_ltx2.py renders its clips from.
 *
 * Easy to get wrong: each tensor has a generator of its own, seeded by its name; Gemma's names are taken without prefixes. */
#ifndef GOLDEN_LTX2_MODEL_H
#define GOLDEN_LTX2_MODEL_H

#include "models/ltx2.h"

#include "golden_sana_model.h"

#include <cjson/cJSON.h>

#define LTX2_CONFIGS GOLDEN_DIR "/tiny-ltx2-model.json"

static inline const char *ltx2_plain(const char *name) {
    static const char *const PREFIXES[] = {"model.", "language_model.", "model."};
    for (int i = 0; i < 3; i++)
        if (!strncmp(name, PREFIXES[i], strlen(PREFIXES[i]))) name += strlen(PREFIXES[i]);
    return name;
}

typedef enum Ltx2Drawn {
    DRAWN_GEMMA,
    DRAWN_VAE,
    DRAWN_VOCODER,
    DRAWN_OTHER
} Ltx2Drawn; /* a part with rules of its own */

static inline void ltx2_rule_of(const BindRow *r, int64_t n, float *v, Ltx2Drawn part) {
    bool gemma = part == DRAWN_GEMMA, voice = part == DRAWN_VOCODER;
    const char *name = gemma ? ltx2_plain(r->name) : r->name;
    uint32_t h = 0x811c9dc5u;
    Rng rng;
    float by = 1, add = 0;
    for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 0x01000193u;
    rng_seed(&rng, h);
    rng_normal(&rng, F32, n, v);
    if (draw_ends(name, "latents_std")) {
        for (int64_t i = 0; i < n; i++) v[i] = fabsf(v[i]) * 0.2f + 0.8f;
        return;
    }
    double gain = part == DRAWN_VAE && !strncmp(name, "decoder.conv_out", 16) ? 0.6
                  : voice && !strncmp(name, "upsamplers", 10)                 ? 2.5
                                                                              : 1;
    if (gemma && draw_ends(name, "norm.weight"))
        by = 0.3f;
    else if (draw_ends(name, "norm_q.weight"))
        by = 1, add = 3.5f;
    else if (r->rank == 1 && draw_ends(name, "weight"))
        by = 0.3f, add = 1;
    else if (draw_ends(name, "learnable_registers"))
        by = 1;
    else if (draw_ends(name, "scale_shift_table"))
        by = 0.7f;
    else if (r->rank == 1 || draw_ends(name, "embed_tokens.weight"))
        by = voice ? 0.03f : 0.3f;
    else
        by = (float)(gain / sqrt((double)(n / r->shape[0])));
    for (int64_t i = 0; i < n; i++) v[i] = v[i] * by + add;
}

#define RULE(name, part)                                                                                     \
    static inline void name(Rng *rng, const BindRow *r, int64_t n, float *v) {                               \
        (void)rng;                                                                                           \
        ltx2_rule_of(r, n, v, part);                                                                         \
    }
RULE(ltx2_rule, DRAWN_OTHER)
RULE(ltx2_rule_gemma, DRAWN_GEMMA)
RULE(ltx2_rule_vae, DRAWN_VAE)
RULE(ltx2_rule_vocoder, DRAWN_VOCODER)
#undef RULE

/* FOLDER/PART with its config; the path into `path`. */
static inline void ltx2_part(const char *folder, const char *part, const Json *configs, char path[1000]) {
    char file[1100];
    char *text = cJSON_Print(json_get(configs, part));
    if (!text) mutate_stop(part, "no config");
    snprintf(path, 1000, "%s/%s", folder, part);
    snprintf(file, sizeof file, "mkdir -p '%s'", path);
    if (system(file)) mutate_stop(path, "cannot make");
    snprintf(file, sizeof file, "%s/%s", path,
             strcmp(part, "scheduler") ? "config.json" : "scheduler_config.json");
    mutate_write(file, text, strlen(text));
    cJSON_free(text);
}

/* What `b` binds, into the folder; then b is freed. */
static inline void ltx2_weights(const char *path, Bind *b, DrawRule *rule) {
    draw_weights(path, "model.safetensors", b, 0, rule);
    bind_free(b);
}

static inline void ltx2_model(const char *folder) {
    char path[1000], *text;
    size_t size;
    Error e = {0};
    Json *configs;
    if (file_read(LTX2_CONFIGS, &text, &size, &e) != OK ||
        json_parse(text, size, LTX2_CONFIGS, &configs, &e) != OK)
        mutate_stop(LTX2_CONFIGS, e.text);
    free(text);
    static Ltx2 z; /* lint: allow-static large, and of a test alone */
    Bind b = {.prefix = ""};
    memset(&z, 0, sizeof z);
#define PART(name, open, bind, rule)                                                                         \
    ltx2_part(folder, name, configs, path);                                                                  \
    if (open != OK) mutate_stop(name, e.text);                                                               \
    b = (Bind){.prefix = ""};                                                                                \
    bind;                                                                                                    \
    ltx2_weights(path, &b, rule)
    PART("text_encoder", te_gemma3_open(path, &z.te, &e), te_gemma3_bind(&z.te, NULL, &b), ltx2_rule_gemma);
    PART("connectors", ltx2_connectors_open(path, &z.connectors, &e), ltx2_connectors_bind(&z.connectors, &b),
         ltx2_rule);
    PART("transformer", dit_ltx2_open(path, &z.dit, &e), dit_ltx2_bind(&z.dit, &b), ltx2_rule);
    PART("vae", vae_ltx2_open(path, &z.vae, &e),
         (z.encoder.c = z.vae.c, vae_ltx2_bind(&z.vae, &b), vae_ltx2_encode_bind(&z.encoder, &b)),
         ltx2_rule_vae);
    PART("audio_vae", vae_ltx2_audio_open(path, &z.audio, &e), vae_ltx2_audio_bind(&z.audio, &b), ltx2_rule);
    PART("vocoder", vocoder_ltx2_open(path, &z.vocoder, &e), vocoder_ltx2_bind(&z.vocoder, &b),
         ltx2_rule_vocoder);
    PART("latent_upsampler", vae_ltx2_upsample_open(path, &z.upsampler, &e),
         vae_ltx2_upsample_bind(&z.upsampler, &b), ltx2_rule);
#undef PART
    te_gemma_close(&z.te);
    ltx2_connectors_close(&z.connectors);
    dit_ltx2_close(&z.dit);
    ltx2_part(folder, "scheduler", configs, path);
    json_free(configs);
    sana_model_tokenizer(folder);
    snprintf(path, sizeof path, "%s/model_index.json", folder);
    sana_model_text(
        path, "{\"_class_name\": \"LTX2Pipeline\", \"text_encoder\": [\"transformers\", "
              "\"Gemma3ForConditionalGeneration\"],"
              " \"connectors\": [\"ltx2\", \"LTX2TextConnectors\"], \"vocoder\": [\"ltx2\", \"LTX2Vocoder\"],"
              " \"transformer\": [\"diffusers\", \"LTX2VideoTransformer3DModel\"],"
              " \"vae\": [\"diffusers\", \"AutoencoderKLLTX2Video\"],"
              " \"audio_vae\": [\"diffusers\", \"AutoencoderKLLTX2Audio\"],"
              " \"tokenizer\": [\"transformers\", \"GemmaTokenizerFast\"]}");
}

#endif
