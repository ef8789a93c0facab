/* recognise.c - see recognise.h. Order matters where kinds overlap: a LoRA of a single-file FLUX has FLUX names too, and
 * an fp8 file is one of the others first. */
#include "recognise.h"

#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#define USE_DEV "use the diffusers folder: hf download black-forest-labs/FLUX.1-dev --include \"[mstv]*\""
#define USE_SCHNELL                                                                                          \
    "use the diffusers folder: hf download black-forest-labs/FLUX.1-schnell --include \"[mstv]*\""

#define DOWNLOAD_LTX2 "hf download Lightricks/LTX-2 --include \"[acmstv]*\""

const char *recognise_supported(void) {
    return "FluxPipeline (FLUX.1-dev, FLUX.1-schnell and models tuned from them), ZImagePipeline (Z-Image, Z-Image-Turbo), "
           "SanaVideoPipeline (SANA-Video 480p), LTX2Pipeline (LTX-2, LTX-2.3)";
}

/* What is supported, and the transformer of each. */
static const struct {
    const char *pipeline, *transformer;
} CLASSES[] = {
    {"FluxPipeline", "FluxTransformer2DModel"},
    {"ZImagePipeline", "ZImageTransformer2DModel"},
    {"SanaVideoPipeline", "SanaVideoTransformer3DModel"},
    {"LTX2Pipeline", "LTX2VideoTransformer3DModel"},
};

static const char *transformer_of(const char *pipeline) {
    const char *found = NULL;
    for (size_t i = 0; i < sizeof CLASSES / sizeof *CLASSES; i++)
        if (!strcmp(pipeline, CLASSES[i].pipeline)) found = CLASSES[i].transformer;
    return found;
}

/* --- pipeline classes: longest prefix first -------------------------------------------------------------------- */

static Status check_class(const char *name, const char *path, Error *e) {
    static const struct {
        const char *prefix, *text;
    } KNOWN[] = {
        {"FluxKontext", "FLUX.1 Kontext, which edits pictures"},
        {"FluxFill", "FLUX.1 Fill, which fills in masked pictures"},
        {"FluxPriorRedux", "FLUX.1 Redux, an adapter for picture prompts"},
        {"FluxControlNet", "FLUX.1 with a ControlNet"},
        {"FluxControl", "FLUX.1 Canny or Depth, which needs a control picture"},
        {"FluxImg2Img", "FLUX.1 set up for image-to-image"},
        {"FluxInpaint", "FLUX.1 set up for inpainting"},
        {"Flux2", "FLUX.2, another architecture"},
        {"ZImageOmni", "Z-Image Omni, which takes pictures as input"},
        {"ZImageControlNet", "Z-Image with a ControlNet"},
        {"ZImageImg2Img", "Z-Image set up for image-to-image"},
        {"ZImageInpaint", "Z-Image set up for inpainting"},
        {"SanaImageToVideo", "SANA-Video set up for image-to-video alone"},
        {"SanaVideo", "SANA-Video, another pipeline of it"},
        {"LongSanaVideo", "LongSANA, which streams"},
        {"Sana", "SANA, which makes pictures"},
        {"LTX2ImageToVideo", "LTX-2 set up for image-to-video alone"},
        {"LTX2Condition", "LTX-2 set up for conditions alone"},
        {"LTX2ICLora", "LTX-2 with an IC-LoRA"},
        {"LTX2InContext", "LTX-2 with an IC-LoRA"},
        {"LTX2HDR", "LTX-2 with an HDR LoRA"},
        {"LTX2LatentUpsample", "the upsampler of LTX-2, one part of it"},
        {"LTX2", "LTX-2, another pipeline of it"},
        {"LTX", "LTX-Video, another architecture without sound"},
        {"Chroma", "Chroma, another architecture derived from FLUX.1"},
    };
    for (size_t i = 0; i < sizeof CLASSES / sizeof *CLASSES; i++)
        if (!strcmp(name, CLASSES[i].pipeline)) return OK;
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (!strncmp(name, KNOWN[i].prefix, strlen(KNOWN[i].prefix)))
            return fail(e, ERR_MODEL, "%s: %s (%s); supported: %s", path, KNOWN[i].text, name,
                        recognise_supported());
    return fail(e, ERR_MODEL, "%s: pipeline class %.80s is not supported; supported: %s", path, name,
                recognise_supported());
}

/* A quantised component says so in its config. */
static Status check_quantised(const Json *config, const char *where, Error *e) {
    const Json *q = json_get(config, "quantization_config");
    const char *method = "unknown method";
    if (json_is_null(q)) return OK;
    TRY(json_string(q, "quant_method", &method, where, e));
    return fail(e, ERR_MODEL,
                "%s: quantised weights (%.40s); ditto reads BF16, F16 and F32: use the original repository",
                where, method);
}

/* want: class of the transformer. */
static Status check_component(const char *folder, const char *component, const char *want, Error *e) {
    bool flux = !strcmp(want, CLASSES[0].transformer);
    char path[64];
    snprintf(path, sizeof path, "%s/config.json", component);
    char *file = file_join(folder, path);
    if (!file) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    Json *config = NULL;
    Status status =
        file_exists(file) ? json_read(file, &config, e) : OK; /* absence is hub_complete's message */
    if (status == OK && config) status = check_quantised(config, file, e);
    if (status == OK && config && !strcmp(component, "transformer")) {
        int64_t in = 64, out = 0;
        const char *name = want;
        status = json_int(config, "in_channels", &in, file, e);
        if (status == OK) status = json_int(config, "out_channels", &out, file, e);
        if (status == OK) status = json_string(config, "_class_name", &name, file, e);
        if (status == OK && strcmp(name, want))
            status = fail(e, ERR_MODEL, "%s: class %.80s, expected %s", file, name, want);
        if (status == OK && flux && out && in != out) /* what comes in besides the latents is a picture */
            status =
                fail(e, ERR_MODEL,
                     "%s: in_channels %lld, out_channels %lld: %s; text-to-image FLUX.1 has 64 of both; %s",
                     file, (long long)in, (long long)out,
                     in == 6 * out ? "FLUX.1 Fill"
                                   : "FLUX.1 Canny, Depth or another variant with a second picture",
                     USE_DEV);
    }
    json_free(config);
    free(file);
    return status;
}

/* --- single files ---------------------------------------------------------------------------------------------- */

static bool ends(const char *name, const char *tail) {
    size_t n = strlen(name), t = strlen(tail);
    return n >= t && !strcmp(name + n - t, tail);
}

/* First tensor whose name ends with `tail`, or contains it. */
static const SafetensorsEntry *ending(const Safetensors *s, const char *tail) {
    for (int i = 0; i < s->count; i++)
        if (ends(s->entry[i].name, tail)) return &s->entry[i];
    return NULL;
}

static const SafetensorsEntry *containing(const Safetensors *s, const char *part) {
    for (int i = 0; i < s->count; i++)
        if (strstr(s->entry[i].name, part)) return &s->entry[i];
    return NULL;
}

static const SafetensorsEntry *any_of(const Safetensors *s, const char *const *parts) {
    for (; *parts; parts++) {
        const SafetensorsEntry *found = containing(s, *parts);
        if (found) return found;
    }
    return NULL;
}

/* " in fp8", " in scaled fp8", ...; "" for plain storage. */
static const char *storage(const Safetensors *s) {
    static const char *const SCALES[] = {"scaled_fp8", ".scale_weight", ".weight_scale", ".comfy_quant",
                                         NULL};
    static const char *const OTHERS[] = {".qweight", ".quant_state", ".absmax", ".qzeros", ".wscales", NULL};
    bool fp8 = false;
    for (int i = 0; i < s->count; i++) fp8 |= s->entry[i].dtype >= F8_E4M3 && s->entry[i].dtype <= F4;
    if (any_of(s, SCALES)) return fp8 ? " in scaled fp8" : " with quantisation scales";
    if (fp8) return " in fp8";
    return any_of(s, OTHERS) ? " in a quantised format" : "";
}

static Status flux_single(const Safetensors *s, const char *path, Error *e) {
    const SafetensorsEntry *in = ending(s, "img_in.weight");
    int64_t channels = in && in->rank == 2 ? in->shape[1] : 64;
    bool schnell = !containing(s, "guidance_in."),
         all = containing(s, "text_encoders.") || containing(s, "vae.");
    const char *which = channels == 384   ? "FLUX.1 Fill"
                        : channels == 128 ? "FLUX.1 Canny or Depth"
                        : schnell         ? "FLUX.1-schnell"
                                          : "FLUX.1-dev (or Kontext, Krea: same tensors)";
    return fail(e, ERR_MODEL, "%s: single-file %s%s%s with %s tensor names, which ditto does not read; %s",
                path, which, all ? ", all-in-one," : "", storage(s),
                containing(s, "diffusion_model.") ? "ComfyUI" : "BFL", schnell ? USE_SCHNELL : USE_DEV);
}

static Status tell(const Safetensors *s, const char *path, Error *e) {
    static const char *const LORA[] = {".lora_A.",   ".lora_B.",          ".lora_down.", ".lora_up.",
                                       "lora_unet_", "lora_transformer_", ".lokr_",      ".hada_",
                                       ".lora.down", ".dora_scale",       NULL};
    static const char *const PART[] = {"transformer_blocks.0.attn.to_q.weight", "time_text_embed.", NULL};
    static const char *const VAE[] = {"decoder.up.0.", "decoder.mid.attn_1.", "decoder.up_blocks.0.", NULL};
    static const char *const TEXT[] = {"text_model.encoder.", "encoder.block.0.layer.0.SelfAttention", NULL};
    const SafetensorsEntry *t;
    if ((t = any_of(s, LORA)))
        return fail(e, ERR_MODEL,
                    "%s: a LoRA (it holds %.100s), not a model, and LoRA is not supported yet; give the base "
                    "model's folder to -m",
                    path, t->name);
    if (containing(s, "single_stream_modulation."))
        return fail(e, ERR_MODEL, "%s: FLUX.2%s, another architecture; supported: %s", path, storage(s),
                    recognise_supported());
    if (containing(s, "distilled_guidance_layer."))
        return fail(e, ERR_MODEL, "%s: Chroma%s, another architecture; supported: %s", path, storage(s),
                    recognise_supported());
    if (containing(s, "audio_patchify_proj.") && containing(s, "keyframes_abs_pos_embedding"))
        return fail(e, ERR_MODEL, "%s: LTX-2.5%s, which has another text encoder; supported: %s", path, storage(s),
                    recognise_supported());
    if (containing(s, "audio_patchify_proj.") && containing(s, "prompt_adaln_single."))
        return fail(e, ERR_MODEL, "%s: single-file LTX-2.3%s in the original layout, which ditto does not read; use the "
                    "diffusers folder: hf download diffusers/LTX-2.3-Diffusers --include \"[acmstv]*\"", path, storage(s));
    if (containing(s, "audio_patchify_proj.") && *storage(s))
        return fail(e, ERR_MODEL, "%s: single-file LTX-2%s, which ditto does not read; use ltx-2-19b-dev.safetensors, or the "
                    "diffusers folder: " DOWNLOAD_LTX2, path, storage(s));
    if (containing(s, "audio_patchify_proj."))
        return fail(e, ERR_MODEL, "%s: a part of LTX-2 in the original layout, without \"vae.\" or \"vocoder.\"; use the whole "
                    "file, or the diffusers folder: " DOWNLOAD_LTX2, path);
    if (containing(s, "double_blocks.0.img_attn.") || containing(s, "single_blocks.0.linear1."))
        return flux_single(s, path, e);
    if (containing(s, "noise_refiner.0.") && containing(s, "layers.0.adaLN_modulation.0."))
        return fail(e, ERR_MODEL, "%s: a Z-Image transformer%s in %s names, one part of a model; give the folder that holds "
                    "model_index.json", path, storage(s), containing(s, ".attention.qkv.") ? "ComfyUI" : "diffusers");
    if ((t = any_of(s, PART)))
        return fail(
            e, ERR_MODEL,
            "%s: a FLUX.1 transformer%s in diffusers names, one part of a model; give the folder that "
            "holds model_index.json",
            path, storage(s));
    if (any_of(s, VAE))
        return fail(e, ERR_MODEL,
                    "%s: a VAE alone, one part of a model; give the folder that holds model_index.json",
                    path);
    if (any_of(s, TEXT))
        return fail(e, ERR_MODEL,
                    "%s: a text encoder%s alone, one part of a model; give the folder that holds "
                    "model_index.json",
                    path, storage(s));
    return fail(
        e, ERR_MODEL,
        "%s: a safetensors file of unknown content (%d tensors, the first is %.100s); give a folder that "
        "holds model_index.json; supported: %s",
        path, s->count, s->count ? s->entry[0].name : "none", recognise_supported());
}

/* LTX-2 as published in one file: all of its parts in plain storage, and neither LTX-2.3 nor 2.5. */
static bool ltx2_single(const Safetensors *s) {
    return containing(s, "audio_patchify_proj.") && !containing(s, "prompt_adaln_single.") &&
           !containing(s, "keyframes_abs_pos_embedding") && !*storage(s) && containing(s, "audio_vae.decoder.") &&
           containing(s, "vocoder.") && !containing(s, ".lora_");
}

static Status model_file(const char *path, Error *e) {
    Safetensors s;
    if (ends(path, "model_index.json")) return recognise_file(path, e);
    TRY(safetensors_open(path, &s, e));
    Status status = ltx2_single(&s) ? OK : tell(&s, path, e);
    safetensors_close(&s);
    return status;
}

Status recognise_file(const char *path, Error *e) {
    if (ends(path, "model_index.json"))
        return fail(e, ERR_MODEL, "%s: give the folder that holds this file", path);
    Safetensors s;
    TRY(safetensors_open(path, &s, e)); /* GGUF, pickles, web pages are told by their first bytes there */
    Status status = tell(&s, path, e);
    safetensors_close(&s);
    return status;
}

/* --- folders --------------------------------------------------------------------------------------------------- */

static bool has(const char *folder, const char *name) {
    char *path = file_join(folder, name);
    bool yes = path && file_exists(path);
    free(path);
    return yes;
}

/* No model_index.json: the file that was probably meant decides the message. */
static Status not_a_model(const char *folder, Error *e) {
    if (has(folder, "adapter_config.json"))
        return fail(e, ERR_MODEL,
                    "%s: a LoRA adapter folder, and LoRA is not supported yet; give the base model's folder",
                    folder);
    if (has(folder, "config.json"))
        return fail(e, ERR_MODEL,
                    "%s: no model_index.json, but config.json: one part of a model; give the folder above it",
                    folder);
    char *found = NULL;
    DIR *d = opendir(folder);
    for (struct dirent *f; d && !found && (f = readdir(d));)
        if (ends(f->d_name, ".safetensors") || ends(f->d_name, ".gguf")) found = file_join(folder, f->d_name);
    if (d) closedir(d);
    Status status =
        found ? recognise_file(found, e)
              : fail(e, ERR_MODEL, "%s: no model_index.json, so no diffusers model folder; supported: %s",
                     folder, recognise_supported());
    free(found);
    return status;
}

Status recognise_model(const char *path, Error *e) {
    if (!file_exists(path)) return fail(e, ERR_MODEL, "%s: no such file or folder", path);
    if (!file_is_dir(path)) return model_file(path, e);
    if (!has(path, "model_index.json")) return not_a_model(path, e);
    char *file = file_join(path, "model_index.json");
    if (!file) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    Json *index = NULL;
    const char *name = NULL;
    Status status = json_read(file, &index, e);
    if (status == OK && !cJSON_IsObject(index))
        status = fail(e, ERR_MODEL, "%s: expected a JSON object", file);
    if (status == OK) status = json_string(index, "_class_name", &name, file, e);
    if (status == OK && !name) status = fail(e, ERR_MODEL, "%s: no \"_class_name\"", file);
    if (status == OK) status = check_class(name, path, e);
    const char *transformer = status == OK ? transformer_of(name) : NULL;
    json_free(index);
    free(file);
    static const char *const PARTS[] = {"transformer", "text_encoder", "text_encoder_2", "vae"};
    for (int i = 0; status == OK && i < 4; i++) status = check_component(path, PARTS[i], transformer, e);
    return status;
}
