/* meta_read.c - see meta_read.h.
 * Easy to get wrong: families stand in the record by component, but are asked for by name; a name that was mounted anywhere
 * is asked for. Texts come from a file: they are quoted before they are shown. */
#include "meta_read.h"

#include "core/safetensors.h"
#include "guiding.h"
#include "media/av_read.h"
#include "media/av_texts.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void meta_read_close(MetaRecord *r) {
    json_free(r->json);
    png_texts_free(&r->texts);
}

/* Only what ditto's own writer puts there: a text under its key. */
static Status latents_texts(const char *path, PngTexts *out, Error *e) {
    Safetensors file;
    TRY(safetensors_open(path, &file, e));
    const char *text = cJSON_GetStringValue(json_get(file.metadata, PNG_DITTO_KEY));
    Status status = text ? png_texts_add(out, PNG_DITTO_KEY, text, path, e) : OK;
    safetensors_close(&file);
    return status;
}

/* By content where it says what it is, else by name: a file that is none of these is libav's to refuse. */
static Status read_texts(const char *path, PngTexts *out, Error *e) {
    FileMap map;
    TRY(file_map(path, &map, e));
    bool png = png_is(map.data, map.size);
    file_unmap(&map);
    const char *suffix = strrchr(path, '.');
    if (suffix && !strcasecmp(suffix, ".safetensors")) return latents_texts(path, out, e);
    return png || !av_read_available() || (suffix && !strcasecmp(suffix, ".png")) ? png_read_texts(path, out, e)
                                                                                   : av_texts_read(path, out, e);
}

Status meta_read_open(const char *path, MetaRecord *r, Error *e) {
    *r = (MetaRecord){.path = path};
    TRY(read_texts(path, &r->texts, e));
    const char *text = png_texts_get(&r->texts, PNG_DITTO_KEY);
    if (!text) return fail(e, ERR_USAGE, "%s: carries no parameters of ditto's", path);
    TRY(json_parse(text, strlen(text), path, &r->json, e));
    return cJSON_IsObject(r->json) ? OK : fail(e, ERR_USAGE, "%s: its parameters are no JSON object", path);
}

/* --- the recorded job --- */

/* From a file: as JSON no control character reaches a terminal. cJSON_free() it; NULL when out of memory. */
static char *quoted(const char *text) {
    Json *j = cJSON_CreateString(text);
    char *out = j ? cJSON_PrintUnformatted(j) : NULL;
    cJSON_Delete(j);
    return out;
}

static Status check_keys(const MetaRecord *r, Error *e) {
    /* clang-format off */
    static const char *const KNOWN[] = {
        "ditto", "model", "model_path", "prompt", "negative_prompt", "seed", "rng", "width", "height", "steps",
        "image", "frames", "fps", "frame", "codec", "crf", "sound", "image_sha256", "strength", "steps_run",
        "guidance", "cfg_normalization", "cfg_truncation", "cfg_scale", "motion_score", "bin", "stg_blocks",
        "stg_scale", "modality_scale", "guidance_rescale", "audio_cfg_scale", "audio_stg_scale",
        "audio_modality_scale", "audio_guidance_rescale", "upscale", "image_frame", "image_crf", "match",
        "max_sequence_length", "device", "dtype", "vae_dtype", "profile", "build", "quality", "families", "output"};
    /* clang-format on */
    for (const Json *j = r->json->child; j; j = j->next) {
        bool known = false;
        for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) known = known || !strcmp(j->string, KNOWN[i]);
        if (known) continue;
        char *word = quoted(j->string);
        Status status = fail(e, ERR_USAGE, "%s: was made with %s, which cannot be taken from the picture", r->path,
                             word ? word : "something");
        cJSON_free(word);
        return status;
    }
    return OK;
}

static Status read_seed(const MetaRecord *r, uint64_t *seed, Error *e) {
    const Json *j = json_get(r->json, "seed");
    int64_t number;
    if (j && json_as_int(j, &number) && number >= 0) {
        *seed = (uint64_t)number;
        return OK;
    }
    const char *text = cJSON_GetStringValue(j);
    char *end = NULL;
    errno = 0;
    if (text && *text >= '0' && *text <= '9') *seed = strtoull(text, &end, 10);
    return end && !*end && !errno ? OK : fail(e, ERR_USAGE, "%s: its parameters hold no seed", r->path);
}

static Status read_int(const MetaRecord *r, const char *key, int *out, Error *e) {
    int64_t v = 0;
    TRY(json_int(r->json, key, &v, r->path, e));
    if (v < 1 || v > 1 << 24) return fail(e, ERR_USAGE, "%s: %s: expected 1 to 2^24", r->path, key);
    *out = (int)v;
    return OK;
}

static Status read_real(const MetaRecord *r, const char *key, double *out, bool *given, Error *e) {
    *given = !json_is_null(json_get(r->json, key));
    return json_double(r->json, key, out, r->path, e);
}

/* "none", or the names that were mounted in any component. */
static Status read_families(MetaRecord *r, Error *e) {
    const Json *parts = json_get(r->json, "families");
    size_t used = 0;
    for (const Json *part = parts ? parts->child : NULL; part; part = part->next)
        for (const Json *family = part->child; family; family = family->next) {
            char name[128];
            if (!family->string || strlen(family->string) > sizeof name - 3) continue;
            snprintf(name, sizeof name, ",%s,", family->string);
            char have[sizeof r->families + 2];
            snprintf(have, sizeof have, ",%s,", r->families);
            if (strstr(have, name)) continue;
            used += (size_t)snprintf(r->families + used, sizeof r->families - used, "%s%s", used ? "," : "",
                                     family->string);
            if (used >= sizeof r->families) return fail(e, ERR_USAGE, "%s: too many families", r->path);
        }
    if (!used) strcpy(r->families, "none");
    return OK;
}

static Status read_clip(MetaRecord *r, Error *e) {
    const char *rate = NULL;
    TRY(json_string(r->json, "fps", &rate, r->path, e));
    r->crf = -1;
    r->clip = rate != NULL;
    if (!r->clip) return OK;
    TRY(read_int(r, "frames", &r->job.frames, e));
    if (!rate_parse(rate, &r->job.fps)) return fail(e, ERR_USAGE, "%s: fps: expected a rate such as 24 or 24000/1001", r->path);
    int64_t frame = 0, crf = -1;
    TRY(json_int(r->json, "frame", &frame, r->path, e));
    TRY(json_int(r->json, "crf", &crf, r->path, e));
    if (frame < 0 || frame > r->job.frames || crf < -1 || crf > 1000)
        return fail(e, ERR_USAGE, "%s: frame or crf is out of range", r->path);
    r->frame = (int)frame, r->crf = (int)crf;
    TRY(json_string(r->json, "sound", &r->sound, r->path, e));
    return json_string(r->json, "codec", &r->codec, r->path, e);
}

/* A name from a file leads into no other folder. */
static Status read_output(MetaRecord *r, Error *e) {
    const Json *to = json_get(r->json, "output");
    const char *codec = NULL;
    int64_t crf = -1;
    bool texts = true;
    r->to_crf = -1;
    if (!to) return OK;
    TRY(json_string(to, "name", &r->to_name, r->path, e));
    TRY(json_string(to, "codec", &codec, r->path, e));
    TRY(json_int(to, "crf", &crf, r->path, e));
    TRY(json_bool(to, "metadata", &texts, r->path, e));
    const char *name = r->to_name;
    if (name && (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..")))
        return fail(e, ERR_USAGE, "%s: output: its name is no file's", r->path);
    if ((codec && !mp4_codec_parse(codec, &r->to_codec)) || crf < -1 || crf > 1000)
        return fail(e, ERR_USAGE, "%s: output: its codec or crf is not known here", r->path);
    r->to_come = true, r->to_crf = (int)crf, r->to_no_metadata = !texts;
    return OK;
}

/* The picture that it began from is named in the record, but lies with the user. */
static Status read_image(MetaRecord *r, const char *image, Error *e) {
    const char *name = NULL;
    TRY(json_string(r->json, "image", &name, r->path, e));
    if (!name && image) return fail(e, ERR_USAGE, "--image: %s began from no picture", r->path);
    if (!name) return OK;
    if (r->finished) {
        r->job.image = name;
        TRY(read_int(r, "steps_run", &r->steps_run, e));
        TRY(json_string(r->json, "image_sha256", &r->image_sha256, r->path, e));
        return read_real(r, "strength", &r->job.strength, &r->job.strength_given, e);
    }
    TRY(json_string(r->json, "image_sha256", &r->image_sha256, r->path, e));
    if (!image) {
        char *word = quoted(name), *sum = r->image_sha256 ? quoted(r->image_sha256) : NULL;
        Status status = fail(e, ERR_USAGE, "%s: began from the picture %s%s%s%s: give it with -i", r->path, word ? word : "?",
                             sum ? " (SHA-256 " : "", sum ? sum : "", sum ? ")" : "");
        cJSON_free(word);
        cJSON_free(sum);
        return status;
    }
    r->job.image = image;
    if (!r->image_sha256) return fail(e, ERR_USAGE, "%s: does not say which picture it began from", r->path);
    return read_real(r, "strength", &r->job.strength, &r->job.strength_given, e);
}

Status meta_read_job(MetaRecord *r, const char *image, Error *e) {
    Job *j = &r->job;
    const char *dtype = NULL, *vae_dtype = NULL, *quality = "lossless";
    bool given;
    TRY(check_keys(r, e));
    TRY(json_string(r->json, "prompt", &j->prompt, r->path, e));
    if (!j->prompt) return fail(e, ERR_USAGE, "%s: its parameters hold no prompt", r->path);
    TRY(json_string(r->json, "negative_prompt", &j->negative_prompt, r->path, e));
    TRY(read_seed(r, &j->seed, e));
    TRY(read_int(r, "width", &j->width, e));
    TRY(read_int(r, "height", &j->height, e));
    TRY(read_int(r, "steps", &j->steps, e));
    TRY(read_clip(r, e));
    TRY(read_int(r, "max_sequence_length", &j->max_sequence_length, e));
    TRY(read_real(r, "guidance", &j->guidance, &j->guidance_given, e));
    TRY(read_real(r, "cfg_scale", &j->cfg_scale, &j->cfg_scale_given, e));
    TRY(read_real(r, "cfg_normalization", &j->cfg_normalization, &given, e));
    TRY(read_real(r, "cfg_truncation", &j->cfg_truncation, &j->cfg_truncation_given, e));
    TRY(guiding_read(r->json, r->path, j, e));
    if (json_get(r->json, "motion_score")) TRY(read_int(r, "motion_score", &j->motion_score, e));
    TRY(json_bool(r->json, "bin", &j->bin, r->path, e));
    TRY(read_image(r, image, e));
    TRY(read_output(r, e));
    TRY(json_string(r->json, "device", &r->device, r->path, e));
    TRY(json_string(r->json, "dtype", &dtype, r->path, e));
    TRY(json_string(r->json, "quality", &quality, r->path, e));
    if (!dtype || (strcmp(dtype, "bf16") && strcmp(dtype, "f32")))
        return fail(e, ERR_USAGE, "%s: dtype: expected bf16 or f32", r->path);
    r->dtype = strcmp(dtype, "f32") ? BF16 : F32;
    TRY(json_string(r->json, "vae_dtype", &vae_dtype, r->path, e));
    if (vae_dtype && strcmp(vae_dtype, "bf16") && strcmp(vae_dtype, "f32"))
        return fail(e, ERR_USAGE, "%s: vae_dtype: expected bf16 or f32", r->path);
    r->vae_dtype = !vae_dtype ? DTYPE_NONE : strcmp(vae_dtype, "f32") ? BF16 : F32;
    if (strcmp(quality, "lossless") && strcmp(quality, "high"))
        return fail(e, ERR_USAGE, "%s: quality: expected lossless or high", r->path);
    j->quality = strcmp(quality, "high") ? QUALITY_LOSSLESS : QUALITY_HIGH;
    TRY(read_families(r, e));
    j->families = r->families;
    return OK;
}

Status meta_read_finished(MetaRecord *r, Error *e) {
    r->finished = true;
    return meta_read_job(r, NULL, e);
}
