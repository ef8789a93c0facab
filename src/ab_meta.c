/* ab_meta.c - see ab_meta.h. Values go through the command line's own parser, so that ranges and refusals are the same. */
#include "ab_meta.h"

#include "core/file.h"
#include "guiding.h"
#include "meta.h"
#include "options.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *key, *option; /* option NULL: no default can be made of it */
} KEYS[] = {{"prompt", "prompt"},
            {"negative_prompt", "negative-prompt"},
            {"seed", "seed"},
            {"width", "width"},
            {"height", "height"},
            {"frames", "frames"},
            {"steps", "steps"},
            {"image_sha256", NULL},
            {"strength", "strength"},
            {"guidance", "guidance"},
            {"cfg_scale", "cfg-scale"},
            {"cfg_normalization", "cfg-normalization"},
            {"cfg_truncation", "cfg-truncation"},
            {"motion_score", "motion-score"},
            {"fps", "fps"},
            {"upscale", "upscale"},
            {"image_frame", NULL},
            {"image_crf", "image-crf"},
            {"match", "match"},
            {"stg_blocks", "stg-blocks"},
            {"stg_scale", "stg-scale"},
            {"modality_scale", "modality-scale"},
            {"guidance_rescale", "guidance-rescale"},
            {"audio_cfg_scale", "audio-cfg-scale"},
            {"audio_stg_scale", "audio-stg-scale"},
            {"audio_modality_scale", "audio-modality-scale"},
            {"audio_guidance_rescale", "audio-guidance-rescale"},
            {"max_sequence_length", "max-sequence-length"},
            {"dtype", "dtype"}};
enum { KEY_COUNT = (int)(sizeof KEYS / sizeof *KEYS) };

Status ab_meta_read(const char *folder, Json **out, Error *e) {
    *out = NULL;
    char *path = file_join(folder, "meta.json");
    if (!path) return fail(e, ERR_MEMORY, "out of memory");
    Status status = file_exists(path) ? json_read(path, out, e) : OK;
    if (status == OK && *out && !cJSON_IsObject(*out)) status = fail(e, ERR_MODEL, "%s: expected a JSON object", path);
    free(path);
    return status;
}

static bool given(const Cli *cli, const Option *o) {
    const void *field = (const char *)cli + o->field;
    switch (o->kind) {
    case KIND_TEXT:
    case KIND_PROMPT: return *(const char *const *)field != NULL;
    case KIND_INT: return *(const int *)field != 0;
    case KIND_REAL: return *(const double *)field >= 0;
    case KIND_RATE: return ((const Rate *)field)->num != 0;
    case KIND_SEED: return cli->seed_given;
    case KIND_DTYPE: return cli->dtype != DTYPE_NONE;
    default: return true;
    }
}

static Status set(Cli *cli, const Option *o, const Json *value, const char *where, Error *e) {
    char typed[64], text[40];
    const char *string = cJSON_GetStringValue(value);
    snprintf(typed, sizeof typed, "%s: meta.json: %s", where, value->string);
    if (o->kind == KIND_DTYPE && string) /* spelt as in safetensors */
        string = !strcasecmp(string, "bf16") ? "bf16" : !strcasecmp(string, "f32") ? "f32" : string;
    if (cJSON_IsNumber(value) && o->kind != KIND_PROMPT && o->kind != KIND_DTYPE) {
        double v = value->valuedouble;
        snprintf(text, sizeof text, floor(v) == v && fabs(v) <= 0x1p53 ? "%.0f" : "%.17g", v);
        string = text; /* of a number: nothing of it is kept */
    }
    return string ? cli_set(cli, o, typed, string, e) : fail(e, ERR_USAGE, "%s: neither a string nor a number", typed);
}

Status ab_meta_defaults(const Json *meta, const char *where, Cli *cli, Error *e) {
    if (!json_is_null(json_get(meta, "image_sha256")) && !cli->image)
        return fail(e, ERR_USAGE, "%s: began from an image: give it with -i", where);
    for (int i = 0; i < KEY_COUNT; i++) {
        const Json *value = json_get(meta, KEYS[i].key);
        const Option *o = KEYS[i].option ? options_find(KEYS[i].option, strlen(KEYS[i].option), 1u << COMMAND_AB) : NULL;
        if (!o || json_is_null(value) || given(cli, o)) continue;
        bool guidance = !strcmp(KEYS[i].key, "guidance"), cfg = !strcmp(KEYS[i].key, "cfg_scale");
        if ((guidance || cfg) && cli->guidance_scale >= 0) continue;
        if (guidance && cJSON_IsNumber(value) && value->valuedouble == 0) continue;
        if (!strcmp(KEYS[i].key, "strength") && !cli->image) continue;
        TRY(set(cli, o, value, where, e));
    }
    return OK;
}

/* Only where the rate is part of the model's work: elsewhere two clips of other rates are the same frames. */
static bool add_rate(Json *o, const Job *j) {
    char rate[RATE_TEXT];
    return !j->stg_blocks || cJSON_AddStringToObject(o, "fps", rate_text(j->fps, rate));
}

Json *ab_meta_job(const Job *j, DType dtype) {
    Json *o = cJSON_CreateObject();
    bool ok = o && cJSON_AddStringToObject(o, "prompt", j->prompt);
    ok = ok && (!j->negative_prompt || cJSON_AddStringToObject(o, "negative_prompt", j->negative_prompt));
    ok = ok && meta_add_seed(o, j->seed);
    ok = ok && cJSON_AddNumberToObject(o, "width", j->width) && cJSON_AddNumberToObject(o, "height", j->height) &&
         cJSON_AddNumberToObject(o, "steps", j->steps);
    ok = ok && (!j->image || (cJSON_AddStringToObject(o, "image_sha256", j->image_sha256) &&
                              cJSON_AddNumberToObject(o, "strength", j->strength)));
    ok = ok && cJSON_AddNumberToObject(o, "guidance", j->guidance) && cJSON_AddNumberToObject(o, "cfg_scale", j->cfg_scale) &&
         cJSON_AddNumberToObject(o, "max_sequence_length", j->max_sequence_length) &&
         cJSON_AddStringToObject(o, "dtype", dtype_name(dtype));
    ok = ok && guiding_add(o, j) &&
         (!(j->cfg_normalization > 0) || cJSON_AddNumberToObject(o, "cfg_normalization", j->cfg_normalization)) &&
         (!j->frames || cJSON_AddNumberToObject(o, "frames", j->frames)) && add_rate(o, j) &&
         (!j->motion_score || cJSON_AddNumberToObject(o, "motion_score", j->motion_score)) &&
         (!j->bin || cJSON_AddTrueToObject(o, "bin")) &&
         (!j->cfg_truncation_given || cJSON_AddNumberToObject(o, "cfg_truncation", j->cfg_truncation));
    if (ok) return o;
    cJSON_Delete(o);
    return NULL;
}

static bool same(const Json *a, const Json *b) {
    const char *x = cJSON_GetStringValue(a), *y = cJSON_GetStringValue(b);
    return cJSON_Compare(a, b, 1) || (x && y && !strcmp(a->string, "dtype") && !strcasecmp(x, y));
}

Json *ab_meta_differences(const Json *a, const Json *b) {
    Json *out = cJSON_CreateObject();
    for (int i = 0; out && a && b && i < KEY_COUNT; i++) {
        const Json *x = json_get(a, KEYS[i].key), *y = json_get(b, KEYS[i].key);
        bool one = json_is_null(x) != json_is_null(y) && !strcmp(KEYS[i].key, "image_sha256");
        if (!one && (json_is_null(x) || json_is_null(y) || same(x, y))) continue;
        Json *pair = cJSON_AddArrayToObject(out, KEYS[i].key);
        cJSON_AddItemToArray(pair, x ? cJSON_Duplicate(x, 1) : cJSON_CreateNull());
        cJSON_AddItemToArray(pair, y ? cJSON_Duplicate(y, 1) : cJSON_CreateNull());
    }
    return out;
}
