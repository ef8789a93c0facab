/* ltx2.c - LTX-2 as a Model: Gemma-3, the connectors, the transformer of two streams, the autoencoders of clip and sound, the
 * vocoder. What diffusers' LTX2Pipeline (0.40) does between them is in the files that ltx2.h names.
 *
 * Easy to get wrong: the connectors and the vocoder are of the library "ltx2" in model_index.json; a folder with a duration
 * head is LTX-2.5, whose text encoder this is not. */
#include "models/ltx2.h"

#include "core/file.h"
#include "models/ltx2_single.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const IGNORE_ENCODER[] = {"decoder.", NULL};
static const char *const IGNORE_DECODER[] = {"encoder.", NULL};
/* Of one file that holds all parts: the other parts' tensors, and statistics that nobody reads. */
#define DIT_NAMES "model.diffusion_model.", "diffusion_model.", "text_embedding_projection."
#define CONNECTOR_NAMES(prefix) prefix "video_embeddings_connector.", prefix "audio_embeddings_connector."
static const char *const SINGLE_CONNECTORS[] = {"model.diffusion_model.", "diffusion_model.", "vae.", "audio_vae.", "vocoder.",
                                                NULL};
static const char *const SINGLE_DIT[] = {CONNECTOR_NAMES("model.diffusion_model."), CONNECTOR_NAMES("diffusion_model."),
                                         "text_embedding_projection.", "vae.", "audio_vae.", "vocoder.", NULL};
static const char *const SINGLE_DECODER[] = {DIT_NAMES, "audio_vae.", "vocoder.", "vae.encoder.", "vae.per_channel_statistics.",
                                             NULL};
static const char *const SINGLE_ENCODER[] = {DIT_NAMES, "audio_vae.", "vocoder.", "vae.decoder.", "vae.per_channel_statistics.",
                                             NULL};
static const char *const SINGLE_AUDIO[] = {DIT_NAMES, "vae.", "vocoder.", "audio_vae.encoder.",
                                           "audio_vae.per_channel_statistics.", NULL};
static const char *const SINGLE_VOCODER[] = {DIT_NAMES, "vae.", "audio_vae.", NULL};
static const char *const IGNORE_VOCODER[] = {"mel_stft.stft_fn.inverse_basis", NULL};

static void ltx2_close(Model *m) {
    Ltx2 *z = (Ltx2 *)m;
    if (!z) return;
    model_close_parts(m);
    te_gemma_close(&z->te);
    ltx2_connectors_close(&z->connectors);
    dit_ltx2_close(&z->dit);
    tok_close(z->tok);
    free(z);
}

static Status read_scheduler(const char *path, const Json *j, void *out, Error *e) {
    Ltx2 *z = out;
    TRY(sched_config_parse(j, path, &z->sched, e));
    z->distilled = !z->sched.use_dynamic_shifting;
    return OK;
}

#define IN(name) (snprintf(path, sizeof path, "%s/" name, folder), path)
/* The text encoder, and what a single file holds too. */
static Status open_configs(Ltx2 *z, const char *folder, Error *e) {
    char path[4096];
    TRY(json_read_in(IN("scheduler"), "scheduler_config.json", read_scheduler, z, e));
    TRY(te_gemma3_open(IN("text_encoder"), &z->te, e));
    TRY(ltx2_connectors_open(IN("connectors"), &z->connectors, e));
    TRY(dit_ltx2_open(IN("transformer"), &z->dit, e));
    TRY(vae_ltx2_open(IN("vae"), &z->vae, e));
    TRY(vae_ltx2_audio_open(IN("audio_vae"), &z->audio, e));
    return vocoder_ltx2_open(IN("vocoder"), &z->vocoder, e);
}

static Status read_single(Ltx2 *z, const char *file, const Ltx2Single *s, Error *e) {
    TRY(read_scheduler(file, s->scheduler, z, e));
    TRY(ltx2_connectors_read(file, s->connectors, &z->connectors, e));
    TRY(dit_ltx2_read(file, s->transformer, &z->dit, e));
    TRY(vae_ltx2_read(file, s->vae, &z->vae, e));
    TRY(vae_ltx2_audio_read(file, s->audio, &z->audio, e));
    return vocoder_ltx2_read(file, s->vocoder, &z->vocoder, e);
}

/* The rest, from a folder; what the configs say of each other must fit. */
static Status open_rest(Ltx2 *z, const char *folder, Error *e) {
    char path[4096];
    z->encoder.c = z->vae.c;
    z->upsamples = file_exists(IN("latent_upsampler/config.json"));
    if (z->upsamples) TRY(vae_ltx2_upsample_open(IN("latent_upsampler"), &z->upsampler, e));
    TRY(tok_open(IN("tokenizer"), &z->tok, e));
    if (z->dit.c.layers > GUIDING_BLOCKS) /* sets of blocks have a flag for each */
        return fail(e, ERR_MODEL, "%s: transformer: num_layers %lld: expected at most %d", folder,
                    (long long)z->dit.c.layers, GUIDING_BLOCKS);
    const Ltx2StreamConfig *s = z->dit.c.stream;
    const ModelFit fits[] = {
        {"transformer in_channels / vae latent_channels", s[LTX2_VIDEO].channels, z->vae.c.latent},
        {"transformer audio_in_channels / audio_vae latents of a row", s[LTX2_AUDIO].channels,
         vae_ltx2_audio_width(&z->audio.c)},
        {"transformer out_channels / in_channels", s[LTX2_VIDEO].out_channels, s[LTX2_VIDEO].channels},
        {"transformer audio_out_channels / audio_in_channels", s[LTX2_AUDIO].out_channels,
         s[LTX2_AUDIO].channels},
        {"vocoder in_channels / audio_vae mel_bins of all channels", z->vocoder.net.c.in,
         z->audio.c.mel * z->audio.c.out},
        {"transformer vae_scale_factors / vae's frames", z->dit.c.scale[0], vae_ltx2_frames_each(&z->vae.c)},
        {"transformer vae_scale_factors / vae's pixels", z->dit.c.scale[1], vae_ltx2_scale(&z->vae.c)},
        {"connectors caption_channels / text_encoder hidden_size", z->connectors.channels, z->te.c.hidden},
        {"connectors text_proj_in_factor / text_encoder layers and 1", z->connectors.states,
         z->te.c.layers + 1},
        {"transformer text width / connectors, video", dit_ltx2_context(&z->dit, LTX2_VIDEO),
         ltx2_connectors_width(&z->connectors, LTX2_CONNECTOR_VIDEO)},
        {"transformer text width / connectors, audio", dit_ltx2_context(&z->dit, LTX2_AUDIO),
         ltx2_connectors_width(&z->connectors, LTX2_CONNECTOR_AUDIO)},
    };
    return model_check_fits(folder, fits, sizeof fits / sizeof *fits, e);
}

/* file, single: NULL where the folder holds all of it. */
static Status open_parts(Ltx2 *z, const char *folder, const char *file, const Ltx2Single *single, Error *e) {
    Model *m = &z->base;
    const struct {
        const char *name;
        const char *const *ignore, *const *ignore_single;
        Ltx2SinglePart single;
    } PARTS[] = {{"text_encoder", TE_GEMMA3_IGNORE, NULL, LTX2_SINGLE_DIT},
                 {"connectors", NULL, SINGLE_CONNECTORS, LTX2_SINGLE_CONNECTORS},
                 {"transformer", NULL, SINGLE_DIT, LTX2_SINGLE_DIT},
                 {"vae", IGNORE_DECODER, SINGLE_DECODER, LTX2_SINGLE_VAE},
                 {"audio_vae", IGNORE_DECODER, SINGLE_AUDIO, LTX2_SINGLE_AUDIO},
                 {"vocoder", IGNORE_VOCODER, SINGLE_VOCODER, LTX2_SINGLE_VOCODER},
                 {"vae", IGNORE_ENCODER, SINGLE_ENCODER, LTX2_SINGLE_VAE}};
    for (int i = 0; i <= LTX2_ENCODER; i++)
        TRY(file && i != LTX2_TE ? model_open_files(m, file, PARTS[i].name, PARTS[i].ignore_single, e)
                                 : model_open_part(m, folder, PARTS[i].name, PARTS[i].ignore, e));
    Part *p = m->part;
    p[LTX2_ENCODER].name = "vae_encoder";
    p[LTX2_ENCODER].encodes_image = true;
    p[LTX2_VAE].decodes = p[LTX2_AUDIO_VAE].decodes = p[LTX2_VOCODER].decodes = true;
    p[LTX2_DIT].repeats = true;
    te_gemma3_bind(&z->te, p[LTX2_TE].files, &p[LTX2_TE].bind);
    ltx2_connectors_bind(&z->connectors, &p[LTX2_CONNECTORS].bind);
    dit_ltx2_bind(&z->dit, &p[LTX2_DIT].bind);
    vae_ltx2_bind(&z->vae, &p[LTX2_VAE].bind);
    vae_ltx2_audio_bind(&z->audio, &p[LTX2_AUDIO_VAE].bind);
    vocoder_ltx2_bind(&z->vocoder, &p[LTX2_VOCODER].bind);
    if (z->upsamples) {
        TRY(model_open_part(m, folder, "latent_upsampler", NULL, e));
        p[LTX2_UPSAMPLER].upscales = true;
        vae_ltx2_upsample_bind(&z->upsampler, &p[LTX2_UPSAMPLER].bind);
    }
    vae_ltx2_encode_bind(&z->encoder, &p[LTX2_ENCODER].bind);
    z->measure.c = z->vae.c;
    vae_ltx2_bind_statistics(&z->measure, &p[LTX2_ENCODER].bind);
    for (int i = 0; single && i <= LTX2_ENCODER; i++)
        if (i != LTX2_TE) TRY(ltx2_single_rename(single, PARTS[i].single, &p[i].bind, e));
    return OK;
}

static Status open_all(Ltx2 *z, const char *folder, const Json *index, Error *e) {
    static const ModelClass CLASSES[] = {
        {"scheduler", "FlowMatchEulerDiscreteScheduler", NULL},
        {"text_encoder", "Gemma3ForConditionalGeneration", NULL},
        {"tokenizer", "GemmaTokenizerFast", "GemmaTokenizer"},
        {"connectors", "LTX2TextConnectors", NULL},
        {"transformer", "LTX2VideoTransformer3DModel", NULL},
        {"vae", "AutoencoderKLLTX2Video", NULL},
        {"audio_vae", "AutoencoderKLLTX2Audio", NULL},
        {"vocoder", "LTX2Vocoder", "LTX2VocoderWithBWE"},
    };
    if (!json_is_null(json_get(index, "duration_head")) ||
        !json_is_null(json_get(index, "diffusion_decoder")))
        return fail(e, ERR_MODEL,
                    "%s: LTX-2.5, which has another text encoder; supported are LTX-2 and LTX-2.3", folder);
    TRY(model_check_classes(folder, index, CLASSES, sizeof CLASSES / sizeof *CLASSES, e));
    TRY(open_configs(z, folder, e));
    TRY(open_rest(z, folder, e));
    return open_parts(z, folder, NULL, NULL, e);
}

static Status open_single(Ltx2 *z, const char *file, const char *folder, Error *e) {
    char path[4096];
    Ltx2Single single = {0};
    if (!file_exists(IN("text_encoder/config.json")) || !file_exists(IN("tokenizer")))
        return fail(e, ERR_MODEL, "%s: holds no text encoder, and %s has no text_encoder and tokenizer; give a diffusers folder "
                    "of LTX-2 that has them with --text-encoder DIR", file, folder);
    TRY(te_gemma3_open(IN("text_encoder"), &z->te, e));
    TRY(ltx2_single_read(file, z->te.c.layers + 1, &single, e));
    Status s = read_single(z, file, &single, e);
    if (s == OK) s = open_rest(z, folder, e);
    if (s == OK) s = open_parts(z, folder, file, &single, e);
    ltx2_single_free(&single);
    return s;
}
#undef IN

/* file: NULL, and then the folder's index. */
static Status open_either(const char *file, const char *folder, const Json *index, DType dtype, Model **out, Error *e) {
    Ltx2 *z = calloc(1, sizeof *z);
    if (!z) return fail(e, ERR_MEMORY, "%s: out of memory", file ? file : folder);
    z->base.ops = &MODEL_LTX2;
    z->base.dtype = dtype;
    Status s = file ? open_single(z, file, folder, e) : open_all(z, folder, index, e);
    if (s == OK) *out = &z->base;
    else ltx2_close(&z->base);
    return s;
}

static Status ltx2_open(const char *folder, const Json *index, DType dtype, Model **out, Error *e) {
    return open_either(NULL, folder, index, dtype, out, e);
}

static Status ltx2_open_file(const char *file, const char *folder, DType dtype, Model **out, Error *e) {
    return open_either(file, folder, NULL, dtype, out, e);
}

static const char *ltx2_title(const Model *m) {
    return ((const Ltx2 *)m)->distilled ? "LTX-2 distilled" : "LTX-2";
}

const ModelOps MODEL_LTX2 = {
    .pipeline_class = "LTX2Pipeline",
    .scheduler_class = "FlowMatchEulerDiscreteScheduler",
    .cfg_formula = "pos + (scale - 1) (pos - neg), of the clean sample",
    .cfg_off = "off (needs a scale above 1, the clip's or the sound's)",
    .guides = true,
    .takes_image = true,
    .image_conditions = true,
    .matches_official = true,
    .clip = ltx2_clip,
    .open = ltx2_open,
    .open_file = ltx2_open_file,
    .close = ltx2_close,
    .title = ltx2_title,
    .resolve = ltx2_resolve,
    .tokenize = ltx2_tokenize,
    .schedule = ltx2_schedule,
    .rounds = ltx2_rounds,
    .round = ltx2_round,
    .again = ltx2_again,
    .encode = ltx2_encode,
    .texts = ltx2_texts,
    .noise = ltx2_noise,
    .streams = ltx2_streams,
    .params = ltx2_params,
    .velocity = ltx2_velocity,
    .advance = ltx2_advance,
    .finish = ltx2_finish,
    .decode = ltx2_decode,
    .hears = ltx2_hears,
    .sound = ltx2_sound,
};
