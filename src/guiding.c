/* guiding.c - see guiding.h. */
#include "guiding.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *key;
    double off;
} KINDS[GUIDE_KINDS] = {
    [GUIDE_STG] = {"stg_scale", 0},
    [GUIDE_MODALITY] = {"modality_scale", 1},
    [GUIDE_RESCALE] = {"guidance_rescale", 0},
    [GUIDE_AUDIO_CFG] = {"audio_cfg_scale", 1},
    [GUIDE_AUDIO_STG] = {"audio_stg_scale", 0},
    [GUIDE_AUDIO_MODALITY] = {"audio_modality_scale", 1},
    [GUIDE_AUDIO_RESCALE] = {"audio_guidance_rescale", 0},
};

const char *guiding_key(GuideKind kind) { return KINDS[kind].key; }
double guiding_off(GuideKind kind) { return KINDS[kind].off; }

Status guiding_refuse(const Job *job, const char *title, Error *e) {
    char option[32];
    if (job->stg_blocks) return fail(e, ERR_USAGE, "--stg-blocks: %s has no such guidance", title);
    for (int k = 0; k < GUIDE_KINDS; k++) {
        if (!job->guide_given[k]) continue;
        snprintf(option, sizeof option, "%s", KINDS[k].key);
        for (char *c = option; *c; c++)
            if (*c == '_') *c = '-';
        return fail(e, ERR_USAGE, "--%s: %s has no such guidance", option, title);
    }
    return OK;
}

bool guiding_official(const Job *job) { return job->match && !strcmp(job->match, "official"); }

void guiding_describe(const Job *job, FILE *out) {
    const double *g = job->guide;
    if (!job->stg_blocks) return;
    bool stg = g[GUIDE_STG] > 0 || g[GUIDE_AUDIO_STG] > 0,
         apart = g[GUIDE_MODALITY] > 1 || g[GUIDE_AUDIO_MODALITY] > 1;
    fprintf(out, "guidance, more %d passes a step: stg %g (blocks %s), modality %g, rescale %g; ",
            1 + job->cfg + stg + apart, g[GUIDE_STG], job->stg_blocks, g[GUIDE_MODALITY], g[GUIDE_RESCALE]);
    fprintf(out, "sound: cfg %g, stg %g, modality %g, rescale %g\n", g[GUIDE_AUDIO_CFG], g[GUIDE_AUDIO_STG],
            g[GUIDE_AUDIO_MODALITY], g[GUIDE_AUDIO_RESCALE]);
    if (guiding_official(job))
        fprintf(out, "profile        official: noise levels, noise, rotations and steps as the authors' own code has them\n");
    if (job->upscale)
        fprintf(out, "rounds         two: %d x %d, then %d x %d without guidance\n", job->width / 2,
                job->height / 2, job->width, job->height);
}

bool guiding_add(Json *o, const Job *job) {
    if (!job->stg_blocks) return true;
    bool ok = cJSON_AddStringToObject(o, "stg_blocks", job->stg_blocks);
    if (guiding_official(job)) ok = ok && cJSON_AddStringToObject(o, "match", job->match);
    for (int k = 0; ok && k < GUIDE_KINDS; k++) ok = cJSON_AddNumberToObject(o, KINDS[k].key, job->guide[k]);
    ok = ok && (!job->upscale || cJSON_AddNumberToObject(o, "upscale", job->upscale));
    return ok && (!job->image || (cJSON_AddNumberToObject(o, "image_frame", job->image_frame) &&
                                  cJSON_AddNumberToObject(o, "image_crf", job->image_crf)));
}

Status guiding_read(const Json *o, const char *where, Job *job, Error *e) {
    int64_t upscale = 0, frame = 0, crf = -1;
    TRY(json_int(o, "upscale", &upscale, where, e));
    TRY(json_int(o, "image_frame", &frame, where, e));
    TRY(json_int(o, "image_crf", &crf, where, e));
    if ((upscale && upscale != 2) || frame < 0 || frame > 1 << 24 || crf < -1 || crf > 51)
        return fail(e, ERR_USAGE, "%s: upscale, image_frame or image_crf is out of range", where);
    job->upscale = (int)upscale, job->image_frame = (int)frame, job->image_crf = (int)crf;
    TRY(json_string(o, "match", &job->match, where, e));
    TRY(json_string(o, "stg_blocks", &job->stg_blocks, where, e));
    for (int k = 0; k < GUIDE_KINDS; k++) {
        job->guide_given[k] = !json_is_null(json_get(o, KINDS[k].key));
        TRY(json_double(o, KINDS[k].key, &job->guide[k], where, e));
    }
    return OK;
}

Status guiding_blocks(const char *text, bool block[GUIDING_BLOCKS], Error *e) {
    memset(block, 0, GUIDING_BLOCKS * sizeof *block);
    for (const char *c = text;; c++) {
        char *end;
        long n = *c >= '0' && *c <= '9' ? strtol(c, &end, 10) : -1;
        if (n < 0 || n >= GUIDING_BLOCKS || (*end && *end != ','))
            return fail(e, ERR_USAGE,
                        "--stg-blocks %s: expected numbers of blocks below %d with commas between", text,
                        GUIDING_BLOCKS);
        block[n] = true;
        if (!*end) return OK;
        c = end;
    }
}
