/* verify.c - see verify.h. The recorded object is compared with the one that this run would record (meta_json): what differs
 * between them is the environment, since the parameters were taken from the first.
 * Easy to get wrong: families stand in the record by component, but are asked for by name; a name that was mounted anywhere
 * is asked for. */
#include "verify.h"

#include "compare.h"
#include "core/json.h"
#include "media/image.h"
#include "media/png.h"
#include "meta.h"
#include "profile.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Record {
    PngTexts texts;
    Json *json;
    const char *path, *device;
    DType dtype;
    Job job; /* strings are the record's */
    char families[512];
} Record;

static void record_close(Record *r) {
    json_free(r->json);
    png_texts_free(&r->texts);
}

static Status record_open(const char *path, Record *r, Error *e) {
    *r = (Record){.path = path};
    TRY(png_read_texts(path, &r->texts, e));
    const char *text = png_texts_get(&r->texts, PNG_DITTO_KEY);
    if (!text) return fail(e, ERR_USAGE, "%s: carries no parameters of ditto's", path);
    TRY(json_parse(text, strlen(text), path, &r->json, e));
    return cJSON_IsObject(r->json) ? OK : fail(e, ERR_USAGE, "%s: its parameters are no JSON object", path);
}

Status verify_model(const char *file, char **model, Error *e) {
    Record r;
    const char *text = NULL;
    Status status = record_open(file, &r, e);
    if (status == OK) status = json_string(r.json, "model_path", &text, file, e);
    if (status == OK && !text) status = fail(e, ERR_USAGE, "%s: does not say where its model lies: give -m DIR", file);
    if (status == OK && !(*model = strdup(text))) status = fail(e, ERR_MEMORY, "%s: out of memory", file);
    record_close(&r);
    return status;
}

/* --- the recorded job --- */

static Status check_keys(const Record *r, Error *e) {
    static const char *const KNOWN[] = {"ditto",
                                        "model",
                                        "model_path",
                                        "prompt",
                                        "negative_prompt",
                                        "seed",
                                        "rng",
                                        "width",
                                        "height",
                                        "steps",
                                        "guidance",
                                        "cfg_normalization",
                                        "cfg_truncation",
                                        "cfg_scale",
                                        "max_sequence_length",
                                        "device",
                                        "dtype",
                                        "profile",
                                        "build",
                                        "quality",
                                        "families"};
    for (const Json *j = r->json->child; j; j = j->next) {
        bool known = false;
        for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) known = known || !strcmp(j->string, KNOWN[i]);
        if (known) continue;
        Json *name = cJSON_CreateString(j->string); /* from a file: as JSON no control character reaches a terminal */
        char *word = name ? cJSON_PrintUnformatted(name) : NULL;
        Status status = fail(e, ERR_USAGE, "%s: was made with %s, which cannot be taken from the picture", r->path,
                             word ? word : "something");
        cJSON_free(word);
        cJSON_Delete(name);
        return status;
    }
    return OK;
}

static Status read_seed(const Record *r, uint64_t *seed, Error *e) {
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

static Status read_int(const Record *r, const char *key, int *out, Error *e) {
    int64_t v = 0;
    TRY(json_int(r->json, key, &v, r->path, e));
    if (v < 1 || v > 1 << 24) return fail(e, ERR_USAGE, "%s: %s: expected 1 to 2^24", r->path, key);
    *out = (int)v;
    return OK;
}

static Status read_real(const Record *r, const char *key, double *out, bool *given, Error *e) {
    *given = !json_is_null(json_get(r->json, key));
    return json_double(r->json, key, out, r->path, e);
}

/* "none", or the names that were mounted in any component. */
static Status read_families(Record *r, Error *e) {
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

static Status read_job(Record *r, Error *e) {
    Job *j = &r->job;
    const char *dtype = NULL, *quality = "lossless";
    bool given;
    TRY(check_keys(r, e));
    TRY(json_string(r->json, "prompt", &j->prompt, r->path, e));
    if (!j->prompt) return fail(e, ERR_USAGE, "%s: its parameters hold no prompt", r->path);
    TRY(json_string(r->json, "negative_prompt", &j->negative_prompt, r->path, e));
    TRY(read_seed(r, &j->seed, e));
    TRY(read_int(r, "width", &j->width, e));
    TRY(read_int(r, "height", &j->height, e));
    TRY(read_int(r, "steps", &j->steps, e));
    TRY(read_int(r, "max_sequence_length", &j->max_sequence_length, e));
    TRY(read_real(r, "guidance", &j->guidance, &j->guidance_given, e));
    TRY(read_real(r, "cfg_scale", &j->cfg_scale, &j->cfg_scale_given, e));
    TRY(read_real(r, "cfg_normalization", &j->cfg_normalization, &given, e));
    TRY(read_real(r, "cfg_truncation", &j->cfg_truncation, &j->cfg_truncation_given, e));
    TRY(json_string(r->json, "device", &r->device, r->path, e));
    TRY(json_string(r->json, "dtype", &dtype, r->path, e));
    TRY(json_string(r->json, "quality", &quality, r->path, e));
    if (!dtype || (strcmp(dtype, "bf16") && strcmp(dtype, "f32")))
        return fail(e, ERR_USAGE, "%s: dtype: expected bf16 or f32", r->path);
    r->dtype = strcmp(dtype, "f32") ? BF16 : F32;
    if (strcmp(quality, "lossless") && strcmp(quality, "high"))
        return fail(e, ERR_USAGE, "%s: quality: expected lossless or high", r->path);
    j->quality = strcmp(quality, "high") ? QUALITY_LOSSLESS : QUALITY_HIGH;
    TRY(read_families(r, e));
    j->families = r->families;
    return OK;
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
            /* where the model lies is nobody's business but -m's */
            if ((a && b && cJSON_Compare(a, b, 1)) || json_get(out, j->string) || !strcmp(j->string, "model_path"))
                continue;
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

static Status say(const VerifyOptions *o, const Comparison *c, const Json *differences, FILE *out, Error *e) {
    if (!o->json) {
        fprintf(out, "equal pixels: %s\n", c->equal ? "yes" : "no");
        if (!c->equal)
            fprintf(out, "differing bytes: %lld of %lld\nmax difference: %d\nPSNR: %.4f dB\n", (long long)c->differing,
                    (long long)c->bytes, c->max_abs, c->psnr);
        print_differences(differences, out);
        if (!c->equal && !differences->child)
            fputs("nothing of the environment differs from what is recorded: either the pixels were changed after the "
                  "picture was\n"
                  "made, or the model's files are others (ditto selftest -m DIR)\n",
                  out);
        return OK;
    }
    Json *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "path", o->file);
    cJSON_AddBoolToObject(j, "equal", c->equal);
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

static Status answer(const VerifyOptions *o, const Record *r, const Image *image, const Job *job, Pipeline *p,
                     const Media *media, FILE *out, Error *e) {
    Profile profile;
    char profile_line[PROFILE_TEXT];
    TRY(pipeline_profile(p, &profile, e));
    profile_text(&profile, profile_line);
    Meta meta = {.job = job,
                 .title = pipeline_title(p),
                 .device = pipeline_device(p),
                 .dtype = pipeline_dtype(p),
                 .profile = profile_line};
    char *text = meta_json(&meta, NULL, media);
    Json *now = NULL;
    Status status = text ? json_parse(text, strlen(text), "parameters", &now, e) : fail(e, ERR_MEMORY, "out of memory");
    free(text);
    TRY(status);
    Comparison c = compare_pixels(image->rgb, media->rgb, (size_t)image->width * (size_t)image->height * 3);
    Json *others = differences(r->json, now);
    status = others ? say(o, &c, others, out, e) : fail(e, ERR_MEMORY, "out of memory");
    cJSON_Delete(others);
    json_free(now);
    if (status == OK && !c.equal)
        status =
            fail(e, ERR_SOME, "%s: made again it differs: max difference %d, PSNR %.4f dB", o->file, c.max_abs, c.psnr);
    return status;
}

static Status render(const VerifyOptions *o, Record *r, const Image *image, FILE *out, FILE *err, Error *e) {
    PipelineOptions options = {.model = o->folder,
                               .device = o->device ? o->device : r->device,
                               .dtype = r->dtype,
                               .vram = o->vram,
                               .interrupted = o->interrupted};
    Pipeline *p = NULL;
    Media media = {0};
    Job job = r->job;
    TRY(pipeline_open(&options, &p, e));
    Status status = pipeline_resolve(p, &job, e);
    if (status == OK && !o->quiet)
        fprintf(err, "making %s again with %s on %s: %dx%d, %d steps, seed %" PRIu64 "\n", o->file, pipeline_title(p),
                pipeline_device(p), job.width, job.height, job.steps, job.seed);
    if (status == OK) status = pipeline_render(p, &job, NULL, &media, e);
    if (status == OK) status = answer(o, r, image, &job, p, &media, out, e);
    media_free(&media);
    pipeline_close(p);
    return status;
}

Status verify_run(const VerifyOptions *o, FILE *out, FILE *err, Error *e) {
    Record r;
    Image image = {0};
    Status status = record_open(o->file, &r, e);
    if (status == OK) status = read_job(&r, e);
    if (status == OK) status = image_read(o->file, &image, e);
    if (status == OK && (image.width != r.job.width || image.height != r.job.height))
        status = fail(e, ERR_USAGE, "%s: has %dx%d pixels, but its parameters say %dx%d", o->file, image.width,
                      image.height, r.job.width, r.job.height);
    if (status == OK) status = render(o, &r, &image, out, err, e);
    image_free(&image);
    record_close(&r);
    return status;
}
