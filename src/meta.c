/* meta.c - see meta.h. JSON through cJSON's writer.
 * Easy to get wrong: values of the "parameters" line that hold a comma, a colon or a line break are written as JSON
 * strings there: that is how its readers split the line. */
#include "meta.h"

#include "cli.h"
#include "core/file.h"
#include "guiding.h"
#include "media/av_read.h"
#include "media/av_texts.h"
#include "media/png.h"
#include "profile.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

Meta meta_of(const Pipeline *p, const Job *job) {
    return (Meta){.job = job,
                  .title = pipeline_title(p),
                  .device = pipeline_device(p),
                  .dtype = pipeline_dtype(p),
                  .vae_dtype = pipeline_vae_dtype(p),
                  .sampler = pipeline_sampler(p),
                  .clip = pipeline_makes_clips(p)};
}

bool meta_add_seed(struct cJSON *o, uint64_t seed) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, seed);
    /* cJSON writes numbers up to 2^53 exactly, and readers with doubles hold no more: a string beyond that */
    if (seed > UINT64_C(1) << 53) return cJSON_AddStringToObject(o, "seed", text);
    return cJSON_AddNumberToObject(o, "seed", (double)seed);
}

/* A title is a folder's name and can hold anything; JSON and PNG text must be UTF-8. */
static char *clean(const char *text) {
    char *out = strdup(text ? text : "");
    for (int64_t at; out && (at = cli_utf8_fault(out)) >= 0;) out[at] = '?';
    return out;
}

static bool add_text(cJSON *o, const char *key, const char *text) {
    char *copy = clean(text);
    bool ok = copy && cJSON_AddStringToObject(o, key, copy);
    free(copy);
    return ok;
}

static bool add_injected(cJSON *o, const Job *job) {
    if (!job->inject_count) return true;
    cJSON *list = cJSON_AddArrayToObject(o, "inject");
    bool ok = list;
    for (int i = 0; ok && i < job->inject_count; i++) {
        cJSON *name = cJSON_CreateString(job->inject[i].name);
        ok = name && cJSON_AddItemToArray(list, name);
    }
    return ok;
}

static bool add_seconds(cJSON *o, const Media *m) {
    cJSON *s = cJSON_AddObjectToObject(o, "seconds");
    return s && cJSON_AddNumberToObject(s, "text", m->seconds_text) &&
           cJSON_AddNumberToObject(s, "denoise", m->seconds_denoise) &&
           cJSON_AddNumberToObject(s, "decode", m->seconds_decode);
}

/* Mounted families by component. With their runs only outside a picture: an encoder whose text is remembered runs nothing, and
 * a job's file must not tell which jobs came before it. */
static bool add_families(cJSON *o, const Media *m, bool runs) {
    cJSON *parts = cJSON_AddObjectToObject(o, "families");
    bool ok = parts;
    for (int i = 0; ok && i < m->families; i++) {
        const FamilyUse *use = &m->family[i];
        if (!use->mounted) continue;
        cJSON *part = cJSON_GetObjectItemCaseSensitive(parts, use->part);
        if (!part) part = cJSON_AddObjectToObject(parts, use->part);
        ok = part && (runs ? cJSON_AddNumberToObject(part, use->family, (double)use->count)
                           : cJSON_AddTrueToObject(part, use->family));
    }
    return ok;
}

static bool add_lines(cJSON *o, const Media *m) {
    cJSON *list = NULL;
    bool ok = true;
    for (int i = 0; ok && i < m->families; i++) {
        if (!m->family[i].refused) continue;
        if (!list) list = cJSON_AddArrayToObject(o, "refused");
        cJSON *line = cJSON_CreateString(m->family[i].why);
        ok = list && line && cJSON_AddItemToArray(list, line);
    }
    return ok && (!m->warning[0] || cJSON_AddStringToObject(o, "warning", m->warning));
}

/* Runs of every variant, {"transformer": {"linear_gelu": {"cpu_f32": 12}}}. */
static bool add_dispatch(cJSON *o, const Media *m) {
    cJSON *parts = cJSON_AddObjectToObject(o, "dispatch");
    bool ok = parts;
    for (int i = 0; ok && i < m->dispatches; i++) {
        const Dispatch *d = &m->dispatch[i];
        cJSON *part = cJSON_GetObjectItemCaseSensitive(parts, d->part);
        if (!part) part = cJSON_AddObjectToObject(parts, d->part);
        cJSON *op = part ? cJSON_GetObjectItemCaseSensitive(part, d->op) : NULL;
        if (part && !op) op = cJSON_AddObjectToObject(part, d->op);
        ok = op && cJSON_AddNumberToObject(op, d->impl, (double)d->count);
    }
    return ok;
}

/* With what, and from where: what `ditto verify` needs and names. An absolute path says more about a machine and its user
 * than a picture should carry along. */
static bool add_origin(cJSON *o, const Meta *m) {
    char build[PROFILE_BUILD];
    profile_build(build);
    return (!m->path || m->path[0] == '/' || add_text(o, "model_path", m->path)) &&
           (!m->profile || add_text(o, "profile", m->profile)) && (!build[0] || add_text(o, "build", build));
}

/* The image that the picture began from: its name without folders, and which file that was. */
static bool add_image(cJSON *o, const Job *j) {
    if (!j->image) return true;
    const char *slash = strrchr(j->image, '/');
    return add_text(o, "image", slash ? slash + 1 : j->image) && add_text(o, "image_sha256", j->image_sha256) &&
           cJSON_AddNumberToObject(o, "strength", j->strength) &&
           cJSON_AddNumberToObject(o, "steps_run", j->steps - j->first_step);
}

/* Frames and rate; what the samples went through on the way into the file. */
static bool add_clip(cJSON *o, const Meta *m) {
    char rate[RATE_TEXT];
    if (!m->clip) return true;
    return cJSON_AddNumberToObject(o, "frames", m->job->frames) && add_text(o, "fps", rate_text(m->job->fps, rate)) &&
           (!m->frame || cJSON_AddNumberToObject(o, "frame", m->frame)) && (!m->codec || add_text(o, "codec", m->codec)) &&
           (!m->codec || m->crf < 0 || cJSON_AddNumberToObject(o, "crf", m->crf)) &&
           (!m->sound || add_text(o, "sound", m->sound));
}

static bool add_output(cJSON *o, const Meta *m) {
    if (!m->output) return true;
    const MetaOutput *to = m->output;
    cJSON *file = cJSON_AddObjectToObject(o, "output");
    return file && (!to->name || cJSON_AddStringToObject(file, "name", to->name)) &&
           (!to->codec || cJSON_AddStringToObject(file, "codec", to->codec)) &&
           (to->crf < 0 || cJSON_AddNumberToObject(file, "crf", to->crf)) &&
           (!to->no_metadata || cJSON_AddFalseToObject(file, "metadata"));
}

/* Models without the input resolve to 0, not given. */
bool meta_has_guidance(const Job *job) { return job->guidance_given || job->guidance > 0; }

char *meta_json(const Meta *m, const char *path, const Media *media) {
    const Job *j = m->job;
    cJSON *o = cJSON_CreateObject();
    bool ok = o && (!path || (add_text(o, "event", "result") && add_text(o, "status", "done") && add_text(o, "path", path)));
    ok = ok && add_text(o, "ditto", CLI_VERSION) && add_text(o, "model", m->title) &&
         add_text(o, "prompt", j->prompt);
    ok = ok && (!j->negative_prompt || add_text(o, "negative_prompt", j->negative_prompt));
    ok = ok && meta_add_seed(o, j->seed) && add_text(o, "rng", "cpu") &&
         cJSON_AddNumberToObject(o, "width", j->width) && cJSON_AddNumberToObject(o, "height", j->height) &&
         cJSON_AddNumberToObject(o, "steps", j->steps);
    ok = ok && add_clip(o, m);
    ok = ok && add_image(o, j) && (!meta_has_guidance(j) || cJSON_AddNumberToObject(o, "guidance", j->guidance));
    ok = ok && (!(j->cfg_normalization > 0) || cJSON_AddNumberToObject(o, "cfg_normalization", j->cfg_normalization)) &&
         (!j->cfg_truncation_given || cJSON_AddNumberToObject(o, "cfg_truncation", j->cfg_truncation));
    ok = ok && (!j->motion_score || cJSON_AddNumberToObject(o, "motion_score", j->motion_score)) &&
         (!j->bin || cJSON_AddTrueToObject(o, "bin"));
    ok = ok && guiding_add(o, j);
    ok = ok && cJSON_AddNumberToObject(o, "cfg_scale", j->cfg_scale) &&
         cJSON_AddNumberToObject(o, "max_sequence_length", j->max_sequence_length);
    ok = ok && add_text(o, "device", m->device) && add_text(o, "dtype", m->dtype == F32 ? "f32" : "bf16") &&
         (!m->vae_dtype || add_text(o, "vae_dtype", m->vae_dtype == F32 ? "f32" : "bf16")) &&
         add_origin(o, m) && add_injected(o, j) && add_text(o, "quality", j->quality == QUALITY_HIGH ? "high" : "lossless");
    ok = ok && add_output(o, m) && (!media || add_families(o, media, path != NULL));
    ok = ok && (!path || !media || (add_lines(o, media) && add_dispatch(o, media) && add_seconds(o, media)));
    char *text = ok ? cJSON_PrintUnformatted(o) : NULL;
    cJSON_Delete(o);
    return text;
}

/* As it stands, or as a JSON string when it would split the line. */
static char *quoted(const char *text) {
    char *copy = clean(text);
    if (!copy || !copy[strcspn(copy, ",:\n")]) return copy;
    cJSON *s = cJSON_CreateString(copy);
    char *out = s ? cJSON_PrintUnformatted(s) : NULL;
    cJSON_Delete(s);
    free(copy);
    return out;
}

char *meta_parameters(const Meta *m) {
    const Job *j = m->job;
    char *title = quoted(m->title), *text = NULL;
    char distilled[48] = "", strength[48] = "";
    if (j->image) snprintf(strength, sizeof strength, " Denoising strength: %g,", j->strength);
    if (meta_has_guidance(j)) snprintf(distilled, sizeof distilled, " Distilled CFG Scale: %g,", j->guidance);
    bool negative = j->negative_prompt && j->negative_prompt[0];
    int n = title ? asprintf(&text,
                             "%s\n%s%s%sSteps: %d, Sampler: %s, Schedule type: Simple, CFG scale: %g,%s%s "
                             "Seed: %" PRIu64 ", Size: %dx%d, Model: %s, RNG: CPU, Version: ditto %s",
                             j->prompt, negative ? "Negative prompt: " : "",
                             negative ? j->negative_prompt : "", negative ? "\n" : "", j->steps,
                             m->sampler ? m->sampler : "Euler", j->cfg_scale,
                             distilled, strength, j->seed, j->width, j->height, title, CLI_VERSION)
                  : -1;
    free(title);
    return n < 0 ? NULL : text;
}

static void put_text(const char *text, const char *before, const char *after, FILE *out) {
    fputs(before, out);
    for (const char *c = text; *c; c++)
        fputc(*c == '\n' || *c == '\t' || ((unsigned char)*c >= 0x20 && *c != 0x7f) ? *c : '?', out);
    fputs(after, out);
}

static Status print_json(const PngTexts *texts, FILE *out, Error *e) {
    cJSON *o = cJSON_CreateObject();
    bool ok = o;
    for (int i = 0; ok && i < texts->count; i++) ok = add_text(o, texts->items[i].key, texts->items[i].text);
    char *text = ok ? cJSON_PrintUnformatted(o) : NULL;
    cJSON_Delete(o);
    if (!text) return fail(e, ERR_MEMORY, "out of memory for the picture's texts");
    fprintf(out, "%s\n", text);
    free(text);
    return OK;
}

static void print_texts(const PngTexts *texts, FILE *out) {
    for (int i = 0; i < texts->count; i++) {
        put_text(texts->items[i].key, "[", "]\n", out);
        if (texts->items[i].unreadable) fprintf(out, "(compressed; not read)");
        put_text(texts->items[i].text, "", "\n", out);
    }
}

static Status print_sound(const char *path, FILE *out, Error *e) {
    AvSoundInfo s;
    TRY(av_sound_info(path, &s, e));
    fprintf(out, "# sound: %s, %d Hz, %d channel%s", s.codec, s.rate, s.channels, s.channels == 1 ? "" : "s");
    if (s.told) fprintf(out, ", %" PRId64 " samples, %.6f s", s.told, (double)s.told / s.rate);
    if (s.bits) fprintf(out, ", %" PRId64 " kb/s", (s.bits + 500) / 1000);
    fputc('\n', out);
    return OK;
}

static Status print_video(const char *path, FILE *out, Error *e) {
    AvReader *r;
    char rate[RATE_TEXT];
    TRY(av_read_open(path, false, &r, e));
    const AvInfo *i = av_read_info(r);
    fprintf(out, "# %s, %s %s, %dx%d, ", i->container, i->codec, i->format, i->width, i->height);
    if (i->told) fprintf(out, "%" PRId64 " frames, ", i->told);
    fprintf(out, "%s a second; range, matrix, primaries, transfer: %s\n", i->rate.num ? rate_text(i->rate, rate) : "?",
            i->colours);
    av_read_close(r);
    return OK;
}

static Status print_streams(const char *path, FILE *out, Error *e) {
    bool video, sound;
    TRY(av_read_probe(path, &video, &sound, e));
    if (video) TRY(print_video(path, out, e));
    return sound ? print_sound(path, out, e) : OK;
}

Status meta_print(const char *path, FILE *out, bool json, Error *e) {
    PngTexts texts = {0};
    FileMap map;
    TRY(file_map(path, &map, e));
    bool png = png_is(map.data, map.size);
    file_unmap(&map);
    Status status = png ? png_read_texts(path, &texts, e) : av_texts_read(path, &texts, e);
    if (status == OK && json) status = print_json(&texts, out, e);
    else if (status == OK) print_texts(&texts, out);
    if (status == OK && !json && !texts.count) fprintf(out, "# %s carries no texts\n", path);
    if (status == OK && !json && !png) status = print_streams(path, out, e);
    png_texts_free(&texts);
    return status;
}
