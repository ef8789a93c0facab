/* ltx2_single.c - see ltx2_single.h: the configs. The names are in ltx2_single_names.c. */
#include "models/ltx2_single.h"

#include "core/safetensors.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

enum { LEVELS = 8 };

void ltx2_single_free(Ltx2Single *s) {
    json_free(s->scheduler);
    json_free(s->connectors);
    json_free(s->transformer);
    json_free(s->vae);
    json_free(s->audio);
    json_free(s->vocoder);
    *s = (Ltx2Single){0};
}

/* What is being translated; messages name `where`. */
typedef struct Source {
    const Safetensors *file;
    const char *where;
    const char *prefix;
} Source;

/* Copies to[out] = from[in], the first item of a list where `first`; a key that is absent stays so: the class's default. */
typedef struct Key { const char *in, *out; bool first; } Key;
static void copy(Json *to, const Json *from, const Key *keys, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const Json *v = json_get(from, keys[i].in);
        if (keys[i].first && cJSON_IsArray(v)) v = v->child;
        if (!json_is_null(v)) cJSON_AddItemToObject(to, keys[i].out, cJSON_Duplicate(v, true));
    }
}
#define COPY(to, from, keys) copy(to, from, keys, sizeof keys / sizeof *keys)

static bool says(const Json *j, const char *key, const char *text) {
    const Json *v = json_get(j, key);
    return cJSON_IsString(v) && !strcmp(v->valuestring, text);
}

static Status section(const Json *config, const char *key, const char *where, const Json **out, Error *e) {
    *out = json_get(config, key);
    return cJSON_IsObject(*out) ? OK : fail(e, ERR_MODEL, "%s: __metadata__.config has no \"%s\"", where, key);
}

/* Extent d of a tensor of the file. */
static Status extent(const Source *s, const char *name, int d, int64_t *out, Error *e) {
    const SafetensorsEntry *t = safetensors_find(s->file, name);
    if (!t) return fail(e, ERR_MODEL, "%s: tensors 1 missing: %s", s->where, name);
    if (d >= t->rank || t->shape[d] < 1) return fail(e, ERR_MODEL, "%s: %s: of unexpected shape", s->where, name);
    *out = t->shape[d];
    return OK;
}

/* What the parts are built for; a key that is absent has that value in the file's own code, too. */
typedef struct Wanted { const char *key, *value; } Wanted; /* value: as JSON */
static Status wanted(const Source *s, const char *part, const Json *in, const Wanted *want, size_t count, Error *e) {
    for (size_t i = 0; i < count; i++) {
        const Json *v = json_get(in, want[i].key);
        char *found = json_is_null(v) ? NULL : cJSON_PrintUnformatted(v);
        bool other = found && strcmp(found, want[i].value) != 0;
        Status status = other ? fail(e, ERR_MODEL, "%s: __metadata__.config: %s.%s: found %.80s, expected %s", s->where, part,
                                     want[i].key, found, want[i].value) : OK;
        cJSON_free(found);
        TRY(status);
    }
    return OK;
}
#define WANTED(s, part, in, want, e) wanted(s, part, in, want, sizeof want / sizeof *want, e)

static Status transformer(const Source *s, const Json *t, Json *to, Error *e) {
    static const Key KEYS[] = {
        {"num_layers", "num_layers", false}, {"in_channels", "in_channels", false}, {"out_channels", "out_channels", false},
        {"num_attention_heads", "num_attention_heads", false}, {"attention_head_dim", "attention_head_dim", false},
        {"cross_attention_dim", "cross_attention_dim", false}, {"caption_channels", "caption_channels", false},
        {"audio_out_channels", "audio_in_channels", false}, {"audio_out_channels", "audio_out_channels", false},
        {"audio_num_attention_heads", "audio_num_attention_heads", false},
        {"audio_attention_head_dim", "audio_attention_head_dim", false},
        {"audio_cross_attention_dim", "audio_cross_attention_dim", false}, {"activation_fn", "activation_fn", false},
        {"norm_elementwise_affine", "norm_elementwise_affine", false}, {"norm_eps", "norm_eps", false},
        {"attention_bias", "attention_bias", false}, {"rope_type", "rope_type", false},
        {"positional_embedding_theta", "rope_theta", false}, {"timestep_scale_multiplier", "timestep_scale_multiplier", false},
        {"audio_positional_embedding_max_pos", "audio_pos_embed_max_pos", true}};
    static const char *const LATER[] = {"apply_gated_attention", "cross_attention_adaln", "caption_proj_before_connector",
                                        "connector_apply_gated_attention", "use_keyframes_abs_pos_embedding"};
    static const char *const MOST[] = {"pos_embed_max_pos", "base_height", "base_width"};
    for (size_t i = 0; i < sizeof LATER / sizeof *LATER; i++)
        if (cJSON_IsTrue(json_get(t, LATER[i])))
            return fail(e, ERR_MODEL, "%s: %s: a later model than LTX-2, of which ditto reads diffusers folders (LTX-2.3) alone",
                        s->where, LATER[i]);
    COPY(to, t, KEYS);
    const Json *most = json_get(t, "positional_embedding_max_pos"), *gate = json_get(t, "av_ca_timestep_scale_multiplier");
    for (int i = 0; i < 3 && cJSON_GetArraySize(most) == 3; i++)
        cJSON_AddItemToObject(to, MOST[i], cJSON_Duplicate(cJSON_GetArrayItem(most, i), true));
    if (cJSON_IsNumber(gate)) cJSON_AddNumberToObject(to, "cross_attn_timestep_scale_multiplier", gate->valuedouble);
    else cJSON_AddNumberToObject(to, "cross_attn_timestep_scale_multiplier", 1); /* the default of the file's own code */
    cJSON_AddBoolToObject(to, "rope_double_precision", says(t, "frequencies_precision", "float64"));
    if (!says(t, "qk_norm", "rms_norm")) cJSON_AddStringToObject(to, "qk_norm", "another than rms_norm");
    return OK;
}

static Status connectors(const Json *t, int64_t states, Json *to) {
    static const char *const NAMES[] = {"video", "audio"};
    static const char *const KEYS[] = {"num_attention_heads", "attention_head_dim", "num_layers", "num_learnable_registers"};
    static const Key SHARED[] = {{"caption_channels", "caption_channels", false},
                                 {"connector_positional_embedding_max_pos", "connector_rope_base_seq_len", true},
                                 {"positional_embedding_theta", "rope_theta", false}, {"rope_type", "rope_type", false}};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
            char in[96], own[96], out[96];
            snprintf(in, sizeof in, "connector_%s", KEYS[i]);
            snprintf(own, sizeof own, "audio_connector_%s", KEYS[i]);
            snprintf(out, sizeof out, "%s_connector_%s", NAMES[k], KEYS[i]);
            copy(to, t, &(Key){k && json_get(t, own) ? own : in, out, false}, 1);
        }
    COPY(to, t, SHARED);
    cJSON_AddNumberToObject(to, "text_proj_in_factor", (double)states);
    cJSON_AddBoolToObject(to, "rope_double_precision", says(t, "frequencies_precision", "float64"));
    cJSON_AddBoolToObject(to, "per_modality_projections", false);
    cJSON_AddBoolToObject(to, "proj_bias", false);
    return OK;
}

/* One of encoder_blocks and decoder_blocks: [kind, {..}] in turns, res_x first and last. */
typedef struct Blocks {
    int levels;
    int64_t layers[LEVELS + 1], factor[LEVELS];
    const char *kind[LEVELS];
    bool residual[LEVELS];
} Blocks;

static Status read_blocks(const Source *s, const Json *v, const char *key, Blocks *b, Error *e) {
    static const struct { const char *own, *name; } KINDS[] = {
        {"compress_space", "spatial"},  {"compress_space_res", "spatial"},    {"compress_time", "temporal"},
        {"compress_time_res", "temporal"}, {"compress_all", "spatiotemporal"}, {"compress_all_res", "spatiotemporal"}};
    const Json *list = json_get(v, key);
    int n = cJSON_GetArraySize(list);
    bool fits = n % 2 == 1 && n / 2 >= 1 && n / 2 <= LEVELS;
    *b = (Blocks){.levels = n / 2};
    for (int i = 0; fits && i < n; i++) {
        const Json *one = cJSON_GetArrayItem(list, i), *kind = cJSON_GetArrayItem(one, 0), *with = cJSON_GetArrayItem(one, 1);
        bool bare = i % 2 == 0 && cJSON_IsNumber(with); /* ["res_x", 4] is the same as {"num_layers": 4} */
        fits = cJSON_IsString(kind) && (bare || cJSON_IsObject(with));
        if (!fits) break;
        if (i % 2 == 0) {
            const Json *layers = bare ? with : json_get(with, "num_layers");
            fits = !strcmp(kind->valuestring, "res_x") && json_as_int(layers, &b->layers[i / 2]);
            continue;
        }
        b->factor[i / 2] = 1;
        TRY(json_int(with, "multiplier", &b->factor[i / 2], s->where, e));
        TRY(json_bool(with, "residual", &b->residual[i / 2], s->where, e));
        for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
            if (!strcmp(kind->valuestring, KINDS[k].own)) b->kind[i / 2] = KINDS[k].name;
        fits = b->kind[i / 2] && b->factor[i / 2] > 0;
    }
    return fits ? OK : fail(e, ERR_MODEL, "%s: __metadata__.config: vae.%s: expected res_x and compress_... in turns", s->where,
                             key);
}

static Json *numbers(const int64_t *v, int count) {
    Json *list = cJSON_CreateArray();
    for (int i = 0; i < count; i++) cJSON_AddItemToArray(list, cJSON_CreateNumber((double)v[i]));
    return list;
}

static Status encoder(const Source *s, const Blocks *b, Json *to, Error *e) {
    int64_t wide[LEVELS];
    Json *kinds = cJSON_AddArrayToObject(to, "downsample_type");
    cJSON_AddItemToObject(to, "layers_per_block", numbers(b->layers, b->levels + 1));
    for (int i = 0; i < b->levels; i++) {
        char name[96];
        snprintf(name, sizeof name, "vae.encoder.down_blocks.%d.res_blocks.0.conv1.conv.weight", 2 * i + 2);
        TRY(extent(s, name, 0, &wide[i], e));
        cJSON_AddItemToArray(kinds, cJSON_CreateString(b->kind[i]));
    }
    cJSON_AddItemToObject(to, "block_out_channels", numbers(wide, b->levels));
    return OK;
}

/* Listed from the pixels to the latents, as diffusers' lists but upsample_type. */
static Status decoder(const Source *s, const Blocks *b, Json *to, Error *e) {
    int64_t wide[LEVELS];
    Json *kinds = cJSON_AddArrayToObject(to, "upsample_type"), *residual = cJSON_AddArrayToObject(to, "upsample_residual");
    TRY(extent(s, "vae.decoder.conv_in.conv.weight", 0, &wide[b->levels - 1], e));
    for (int i = b->levels - 1; i > 0; i--) wide[i - 1] = wide[i] / b->factor[i];
    for (int i = 0; i < b->levels; i++) {
        cJSON_AddItemToArray(kinds, cJSON_CreateString(b->kind[b->levels - 1 - i]));
        cJSON_AddItemToArray(residual, cJSON_CreateBool(b->residual[i]));
    }
    cJSON_AddItemToObject(to, "decoder_layers_per_block", numbers(b->layers, b->levels + 1));
    cJSON_AddItemToObject(to, "upsample_factor", numbers(b->factor, b->levels));
    cJSON_AddItemToObject(to, "decoder_block_out_channels", numbers(wide, b->levels));
    return OK;
}

static Status vae(const Source *s, const Json *v, Json *to, int64_t *downs, Error *e) {
    static const Key KEYS[] = {{"in_channels", "in_channels", false}, {"out_channels", "out_channels", false},
                               {"latent_channels", "latent_channels", false}, {"patch_size", "patch_size", false}};
    static const Wanted WANT[] = {{"dims", "3"}, {"norm_layer", "\"pixel_norm\""}, {"latent_log_var", "\"uniform\""}};
    bool causal = false;
    const char *shared = NULL, *first = NULL, *last = NULL;
    Blocks down, up;
    TRY(WANTED(s, "vae", v, WANT, e));
    COPY(to, v, KEYS);
    TRY(read_blocks(s, v, "encoder_blocks", &down, e));
    TRY(read_blocks(s, v, "decoder_blocks", &up, e));
    TRY(encoder(s, &down, to, e));
    TRY(decoder(s, &up, to, e));
    *downs = down.levels;
    TRY(json_bool(v, "causal_decoder", &causal, s->where, e));
    TRY(json_string(v, "spatial_padding_mode", &shared, s->where, e));
    TRY(json_string(v, "encoder_spatial_padding_mode", &first, s->where, e));
    TRY(json_string(v, "decoder_spatial_padding_mode", &last, s->where, e));
    cJSON_AddBoolToObject(to, "encoder_causal", true);
    cJSON_AddBoolToObject(to, "decoder_causal", causal);
    cJSON_AddStringToObject(to, "encoder_spatial_padding_mode", first ? first : "zeros");
    cJSON_AddStringToObject(to, "decoder_spatial_padding_mode", last ? last : shared ? shared : "reflect");
    bool timed = false; /* what the tensors say; the key was true in early files without them */
    for (int i = 0; i < s->file->count; i++) timed |= !strncmp(s->file->entry[i].name, "vae.decoder.last_time_embedder.", 31);
    cJSON_AddBoolToObject(to, "timestep_conditioning", timed);
    return OK;
}

static Status audio(const Source *s, const Json *a, Json *to, Error *e) {
    static const Key KEYS[] = {{"ch", "base_channels", false}, {"out_ch", "output_channels", false},
                               {"ch_mult", "ch_mult", false},
                               {"num_res_blocks", "num_res_blocks", false}, {"z_channels", "latent_channels", false},
                               {"mel_bins", "mel_bins", false}, {"norm_type", "norm_type", false},
                               {"causality_axis", "causality_axis", false},
                               {"mid_block_add_attention", "mid_block_add_attention", false}};
    const Json *params = json_get(json_get(a, "model"), "params"), *net;
    const Json *stft = json_get(json_get(a, "preprocessing"), "stft"), *where;
    where = json_get(net = json_get(params, "ddconfig"), "attn_resolutions");
    if (!cJSON_IsObject(net))
        return fail(e, ERR_MODEL, "%s: __metadata__.config has no \"audio_vae\".model.params.ddconfig", s->where);
    COPY(to, net, KEYS);
    copy(to, params, &(Key){"sampling_rate", "sample_rate", false}, 1);
    copy(to, stft, &(Key){"hop_length", "mel_hop_length", false}, 1);
    static const Key BINS[] = {{"n_mel_channels", "mel_bins", false}, {"mel_bins", "mel_bins", false}};
    /* where else they may stand */
    if (!json_get(to, "mel_bins")) copy(to, json_get(json_get(a, "preprocessing"), "mel"), &BINS[0], 1);
    if (!json_get(to, "mel_bins")) copy(to, json_get(a, "variables"), &BINS[1], 1);
    if (cJSON_GetArraySize(where)) copy(to, net, &(Key){"attn_resolutions", "attn_resolutions", false}, 1);
    return OK;
}

static Status vocoder(const Source *s, const Json *v, Json *to, Error *e) {
    static const Key KEYS[] = {{"upsample_initial_channel", "hidden_channels", false},
                               {"upsample_rates", "upsample_factors", false},
                               {"upsample_kernel_sizes", "upsample_kernel_sizes", false},
                               {"resblock_kernel_sizes", "resnet_kernel_sizes", false},
                               {"resblock_dilation_sizes", "resnet_dilations", false},
                               {"output_sample_rate", "output_sampling_rate", false}};
    static const Wanted WANT[] = {{"resblock", "\"1\""}, {"stereo", "true"}, {"use_tanh_at_final", "true"},
                                  {"use_bias_at_final", "true"}};
    int64_t in = 0, out = 0;
    if (json_get(v, "bwe")) return fail(e, ERR_MODEL, "%s: vocoder.bwe: a later model than LTX-2, of which ditto reads diffusers "
                                        "folders (LTX-2.3) alone", s->where);
    TRY(WANTED(s, "vocoder", v, WANT, e));
    COPY(to, v, KEYS);
    TRY(extent(s, "vocoder.conv_pre.weight", 1, &in, e));
    TRY(extent(s, "vocoder.conv_post.weight", 0, &out, e));
    cJSON_AddNumberToObject(to, "in_channels", (double)in);
    cJSON_AddNumberToObject(to, "out_channels", (double)out);
    cJSON_AddStringToObject(to, "_class_name", "LTX2Vocoder");
    return OK;
}

/* What diffusers' converter writes for the one and the other. */
static void scheduler(Json *to, bool distilled) {
    static const struct { const char *key; double value; } SHIFTS[] = {
        {"base_shift", 0.95}, {"max_shift", 2.05}, {"base_image_seq_len", 1024}, {"max_image_seq_len", 4096}, {"shift", 1},
        {"num_train_timesteps", 1000}};
    for (size_t i = 0; i < sizeof SHIFTS / sizeof *SHIFTS; i++) cJSON_AddNumberToObject(to, SHIFTS[i].key, SHIFTS[i].value);
    cJSON_AddBoolToObject(to, "use_dynamic_shifting", !distilled);
    if (!distilled) cJSON_AddNumberToObject(to, "shift_terminal", 0.1);
}

static Status translate(const Source *s, const Json *config, int64_t states, Ltx2Single *out, Error *e) {
    const Json *t, *v, *a, *sound;
    const char *slash = strrchr(s->where, '/'), *version = NULL;
    TRY(section(config, "transformer", s->where, &t, e));
    TRY(section(config, "vae", s->where, &v, e));
    TRY(section(config, "audio_vae", s->where, &a, e));
    TRY(section(config, "vocoder", s->where, &sound, e));
    TRY(json_string(s->file->metadata, "model_version", &version, s->where, e));
    TRY(transformer(s, t, out->transformer, e));
    TRY(connectors(t, states, out->connectors));
    TRY(vae(s, v, out->vae, &out->downs, e));
    TRY(audio(s, a, out->audio, e));
    TRY(vocoder(s, sound, out->vocoder, e));
    scheduler(out->scheduler, strstr(slash ? slash + 1 : s->where, "distilled") || (version && strstr(version, "distilled")));
    return OK;
}

static Status read_file(const Safetensors *f, const char *file, int64_t states, Ltx2Single *out, Error *e) {
    static const char *const PREFIXES[] = {"model.diffusion_model.", "diffusion_model."};
    const char *text = NULL;
    Json **const made[] = {&out->scheduler, &out->connectors, &out->transformer, &out->vae, &out->audio, &out->vocoder};
    out->prefix = "";
    for (int i = 0; i < f->count; i++)
        for (int k = 0; k < 2; k++)
            if (!strncmp(f->entry[i].name, PREFIXES[k], strlen(PREFIXES[k]))) out->prefix = PREFIXES[k];
    TRY(json_string(f->metadata, "config", &text, file, e));
    if (!text) return fail(e, ERR_MODEL, "%s: no __metadata__.config, which says what the model is; use the original file", file);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (!(*made[i] = cJSON_CreateObject())) return fail(e, ERR_MEMORY, "%s: out of memory", file);
    Json *config = NULL;
    char where[4200];
    snprintf(where, sizeof where, "%.4000s: __metadata__.config", file);
    TRY(json_parse(text, strlen(text), where, &config, e));
    Status status = translate(&(Source){f, file, out->prefix}, config, states, out, e);
    json_free(config);
    return status;
}

Status ltx2_single_read(const char *file, int64_t states, Ltx2Single *out, Error *e) {
    Safetensors f;
    *out = (Ltx2Single){0};
    TRY(safetensors_open(file, &f, e));
    Status status = read_file(&f, file, states, out, e);
    safetensors_close(&f);
    if (status != OK) ltx2_single_free(out);
    return status;
}
