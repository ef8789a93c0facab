/* verify.c - see verify.h. The recorded object is compared with the one that this run would record (meta_json): what differs
 * between them is the environment, since the parameters were taken from the first.
 * Easy to get wrong: where the model and the picture it began from lie is no difference; which files they are is. */
#include "verify.h"

#include "compare.h"
#include "core/json.h"
#include "meta.h"
#include "meta_read.h"
#include "profile.h"
#include "verify_file.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Status verify_model(const char *file, char **model, Error *e) {
    MetaRecord r;
    const char *text = NULL;
    Status status = meta_read_open(file, &r, e);
    if (status == OK) status = json_string(r.json, "model_path", &text, file, e);
    if (status == OK && !text) status = fail(e, ERR_USAGE, "%s: does not say where its model lies: give -m DIR", file);
    if (status == OK && !(*model = strdup(text))) status = fail(e, ERR_MEMORY, "%s: out of memory", file);
    meta_read_close(&r);
    return status;
}

/* --- the answer --- */

static Json *copy_of(const Json *j) { return j ? cJSON_Duplicate(j, 1) : cJSON_CreateNull(); }

/* {"profile": [recorded, now], ...}: every key of either whose values differ. */
static Json *differences(const Json *recorded, const Json *now) {
    Json *out = cJSON_CreateObject();
    const Json *const side[] = {recorded, now};
    for (int s = 0; s < 2; s++)
        for (const Json *j = side[s]->child; j; j = j->next) {
            const Json *a = json_get(recorded, j->string), *b = json_get(now, j->string);
            bool place = !strcmp(j->string, "model_path") || !strcmp(j->string, "image");
            if (place || (a && b && cJSON_Compare(a, b, 1)) || json_get(out, j->string)) continue;
            Json *pair = cJSON_CreateArray();
            cJSON_AddItemToArray(pair, copy_of(a));
            cJSON_AddItemToArray(pair, copy_of(b));
            cJSON_AddItemToObject(out, j->string, pair);
        }
    return out;
}

static void print_differences(const Json *differences, FILE *out) {
    for (const Json *pair = differences->child; pair; pair = pair->next) {
        char *was = cJSON_PrintUnformatted(pair->child), *is = cJSON_PrintUnformatted(pair->child->next);
        fprintf(out, "other %s: %s | %s\n", pair->string, was ? was : "?", is ? is : "?");
        cJSON_free(was);
        cJSON_free(is);
    }
}

/* sound: NULL: none is told of. */
static Status say(const VerifyOptions *o, const Comparison *c, const bool *sound, const Json *differences, FILE *out, Error *e) {
    const bool equal = c->equal && (!sound || *sound);
    if (!o->json) {
        fprintf(out, "equal pixels: %s\n", c->equal ? "yes" : "no");
        if (sound) fprintf(out, "equal sound: %s\n", *sound ? "yes" : "no");
        if (!c->equal)
            fprintf(out, "differing bytes: %lld of %lld\nmax difference: %d\nPSNR: %.4f dB\n", (long long)c->differing,
                    (long long)c->bytes, c->max_abs, c->psnr);
        print_differences(differences, out);
        if (!equal && !differences->child)
            fputs("nothing of the environment differs from what is recorded: either the file was changed after\n"
                  "the picture was made, or the model's files are others (ditto selftest -m DIR)\n",
                  out);
        return OK;
    }
    Json *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "path", o->file);
    cJSON_AddBoolToObject(j, "equal", equal);
    if (sound) cJSON_AddBoolToObject(j, "equal_sound", *sound);
    cJSON_AddNumberToObject(j, "differing", (double)c->differing);
    cJSON_AddNumberToObject(j, "bytes", (double)c->bytes);
    cJSON_AddNumberToObject(j, "max_abs", c->max_abs);
    if (isinf(c->psnr))
        cJSON_AddStringToObject(j, "psnr", "inf");
    else
        cJSON_AddNumberToObject(j, "psnr", c->psnr);
    cJSON_AddItemToObject(j, "environment", cJSON_Duplicate(differences, 1));
    char *line = cJSON_PrintUnformatted(j);
    cJSON_Delete(j);
    if (!line) return fail(e, ERR_MEMORY, "out of memory for the result");
    fprintf(out, "%s\n", line);
    cJSON_free(line);
    return OK;
}

static Status answer(const VerifyOptions *o, const MetaRecord *r, const VerifyFile *file, const Job *job, Pipeline *p,
                     const Media *media, FILE *out, Error *e) {
    Profile profile;
    char profile_line[PROFILE_TEXT];
    TRY(pipeline_profile(p, &profile, e));
    profile_text(&profile, profile_line);
    Meta meta = meta_of(p, job);
    meta.profile = profile_line, meta.frame = r->frame, meta.codec = r->codec, meta.crf = r->crf, meta.sound = r->sound;
    char *text = meta_json(&meta, NULL, media);
    Json *now = NULL;
    Status status = text ? json_parse(text, strlen(text), "parameters", &now, e) : fail(e, ERR_MEMORY, "out of memory");
    free(text);
    TRY(status);
    VerifyFile again;
    status = verify_file_again(r, media, o->interrupted, &again, e);
    if (status != OK) {
        json_free(now);
        return status;
    }
    Comparison c = compare_pixels(file->rgb, again.rgb, verify_file_bytes(file));
    const bool sound = verify_file_same_sound(file, &again);
    verify_file_free(&again);
    Json *others = differences(r->json, now);
    status = others ? say(o, &c, r->sound ? &sound : NULL, others, out, e) : fail(e, ERR_MEMORY, "out of memory");
    cJSON_Delete(others);
    json_free(now);
    if (status == OK && !c.equal)
        status =
            fail(e, ERR_SOME, "%s: made again it differs: max difference %d, PSNR %.4f dB", o->file, c.max_abs, c.psnr);
    if (status == OK && !sound) status = fail(e, ERR_SOME, "%s: made again its sound differs", o->file);
    return status;
}

static Status render(const VerifyOptions *o, MetaRecord *r, const VerifyFile *file, FILE *out, FILE *err, Error *e) {
    PipelineOptions options = {.model = o->folder,
                               .text_encoder = o->text_encoder,
                               .device = o->device ? o->device : r->device,
                               .dtype = r->dtype,
                               .vae_dtype = r->vae_dtype,
                               .vram = o->vram,
                               .interrupted = o->interrupted};
    Pipeline *p = NULL;
    Media media = {0};
    Job job = r->job;
    TRY(pipeline_open(&options, &p, e));
    Status status = pipeline_resolve(p, &job, e);
    if (status == OK && r->image_sha256 && strcmp(r->image_sha256, job.image_sha256))
        status = fail(e, ERR_USAGE, "--image: %s is not the picture that %s began from: it has SHA-256 %s, that one %.64s",
                      o->image, o->file, job.image_sha256, r->image_sha256);
    if (status == OK && !o->quiet)
        fprintf(err, "making %s again with %s on %s: %dx%d, %d steps, seed %" PRIu64 "\n", o->file, pipeline_title(p),
                pipeline_device(p), job.width, job.height, job.steps, job.seed);
    if (status == OK) status = pipeline_render(p, &job, NULL, &media, e);
    if (status == OK) status = answer(o, r, file, &job, p, &media, out, e);
    media_free(&media);
    pipeline_close(p);
    return status;
}

Status verify_run(const VerifyOptions *o, FILE *out, FILE *err, Error *e) {
    MetaRecord r;
    VerifyFile file = {0};
    Status status = meta_read_open(o->file, &r, e);
    if (status == OK) status = meta_read_job(&r, o->image, e);
    if (status == OK) status = verify_file_read(&r, &file, e);
    if (status == OK) status = render(o, &r, &file, out, err, e);
    verify_file_free(&file);
    meta_read_close(&r);
    return status;
}
