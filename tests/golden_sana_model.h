/* golden_sana_model.h - a whole tiny SANA-Video folder: text encoder, transformer and autoencoder drawn from their seeds, the
 * tokenizer of gemma2.txt, either scheduler. What scripts/dump_golden_sana.py renders its clips from.
 *
 * Easy to get wrong: the transformer and the encoder have other sizes than in the tests of the parts. */
#ifndef GOLDEN_SANA_MODEL_H
#define GOLDEN_SANA_MODEL_H

#include "golden_gemma2.h"
#include "golden_sana.h"
#include "golden_wan.h"

static inline void sana_model_text(const char *path, const char *text) { mutate_write(path, text, strlen(text)); }

static inline void sana_model_tokenizer(const char *folder) {
    char path[900], *all, *end;
    size_t size;
    Error e = {0};
    if (file_read(GOLDEN_DIR "/gemma2.txt", &all, &size, &e) != OK) mutate_stop("gemma2.txt", e.text);
    char *line = strstr(all, "tokenizer {");
    if (line != all || !(end = memchr(line, '\n', size))) mutate_stop("gemma2.txt", "no tokenizer in the first line");
    snprintf(path, sizeof path, "mkdir -p '%s/tokenizer'", folder);
    if (system(path)) mutate_stop(folder, "cannot make");
    snprintf(path, sizeof path, "%s/tokenizer/tokenizer.json", folder);
    mutate_write(path, line + strlen("tokenizer "), (size_t)(end - line) - strlen("tokenizer "));
    snprintf(path, sizeof path, "%s/tokenizer/tokenizer_config.json", folder);
    sana_model_text(path, "{\"bos_token\": \"<bos>\", \"eos_token\": \"<eos>\", \"pad_token\": \"<pad>\", "
                          "\"unk_token\": \"<unk>\"}");
    free(all);
}

static inline void sana_model_encoder(const char *folder) {
    Error e = {0};
    Gemma m;
    Bind b = {.prefix = ""};
    draw_config(folder, GOLDEN_DIR "/tiny-gemma2.json");
    mutate_json(folder, "config.json", "vocab_size", "366");
    mutate_json(folder, "config.json", "max_position_embeddings", "4096");
    if (te_gemma2_open(folder, &m, &e) != OK) mutate_stop(folder, e.text);
    te_gemma2_bind(&m, NULL, &b);
    draw_weights(folder, GEMMA2_FILE, &b, GEMMA2_SEED, gemma2_rule);
    bind_free(&b);
    te_gemma_close(&m);
}

static inline void sana_model_vae(const char *folder) {
    char path[900];
    Error e = {0};
    VaeWan v;
    draw_config(folder, WAN_CONFIG);
    if (vae_wan_open(folder, &v, &e) != OK) mutate_stop(folder, e.text);
    VaeWanEncoder encoder = {.c = v.c};
    Bind b = {.prefix = ""};
    vae_wan_bind(&v, &b);
    vae_wan_encode_bind(&encoder, &b);
    snprintf(path, sizeof path, "%s/" SANA_FILE, folder);
    wan_write(&b, path);
    bind_free(&b);
}

static inline void sana_model(const char *folder, bool euler) {
    static const SanaKey KEYS[] = {{"in_channels", "4"}, {"out_channels", "4"}, {"caption_channels", "48"}};
    char path[800];
    snprintf(path, sizeof path, "mkdir -p '%s/scheduler'", folder);
    if (system(path)) mutate_stop(folder, "cannot make");
    snprintf(path, sizeof path, "%s/transformer", folder);
    sana_write_as(path, KEYS, 3);
    snprintf(path, sizeof path, "%s/text_encoder", folder);
    sana_model_encoder(path);
    snprintf(path, sizeof path, "%s/vae", folder);
    sana_model_vae(path);
    sana_model_tokenizer(folder);
    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", folder);
    sana_model_text(path,
                    euler ? "{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"shift\": 3.0}"
                          : "{\"_class_name\": \"DPMSolverMultistepScheduler\", \"use_flow_sigmas\": true, "
                            "\"flow_shift\": 8.0,"
                            " \"prediction_type\": \"flow_prediction\", \"lambda_min_clipped\": -Infinity}");
    snprintf(path, sizeof path, "%s/model_index.json", folder);
    sana_model_text(
        path,
        "{\"_class_name\": \"SanaVideoPipeline\", \"text_encoder\": [\"transformers\", \"Gemma2Model\"],"
        " \"transformer\": [\"diffusers\", \"SanaVideoTransformer3DModel\"],"
        " \"tokenizer\": [\"transformers\", \"GemmaTokenizerFast\"], \"vae\": [\"diffusers\", "
        "\"AutoencoderKLWan\"]}");
}

/* Of a clip's dump: how far every eighth line and column of each frame is from the golden's "grid", in code values. */
static inline double sana_grid_error(const Golden *g, const char *dump) {
    char path[900];
    Safetensors file = {0};
    Error e = {0};
    Tensor want = golden_find(g, "grid"), have = {0};
    double error = 0;
    int64_t n = 0;
    snprintf(path, sizeof path, "%s/pixels.safetensors", dump);
    if (safetensors_open(path, &file, &e) == OK && safetensors_find(&file, "pixels"))
        have = safetensors_tensor(&file, safetensors_find(&file, "pixels"));
    const int64_t *s = have.shape;
    bool fits = want.rank == 4 && have.rank == 4 && s[0] == want.shape[0] && s[1] == 8 * want.shape[1] &&
                s[2] == 8 * want.shape[2];
    for (int64_t f = 0; fits && f < s[0]; f++)
        for (int64_t y = 0; y < s[1]; y += 8)
            for (int64_t x = 0; x < s[2]; x += 8)
                for (int64_t c = 0; c < 3; c++, n++)
                    error = fmax(error, fabs(golden_at(have.data, U8, ((f * s[1] + y) * s[2] + x) * 3 + c) -
                                             golden_at(want.data, U8, n)));
    safetensors_close(&file);
    return fits && n == tensor_numel(want) ? error : INFINITY;
}

#endif
