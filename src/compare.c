/* compare.c - see compare.h: what the two paths hold, which part compares it, and what comes of it. */
#include "cli.h"
#include "compare_parts.h"
#include "core/file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void compare_failed(Verdict *v, const char *format, ...) {
    if (v->failed) return;
    v->failed = true;
    va_list args;
    va_start(args, format);
    vsnprintf(v->why, sizeof v->why, format, args);
    va_end(args);
}

void compare_number(Json *object, const char *key, double value) {
    if (isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddNullToObject(object, key);
}

void compare_decibel(Json *object, const char *key, double value) {
    if (value == INFINITY)
        cJSON_AddStringToObject(object, key, "inf");
    else
        compare_number(object, key, value);
}

Json *compare_name(const char *name) {
    char *clean = strdup(name);
    for (int64_t at; clean && (at = cli_utf8_fault(clean)) >= 0;) clean[at] = '?';
    Json *j = clean ? cJSON_CreateString(clean) : NULL;
    free(clean);
    return j;
}

const char *compare_text(double value, int decimals, char out[32]) {
    if (isnan(value)) return "undefined";
    if (isinf(value)) return value > 0 ? "inf" : "-inf";
    snprintf(out, 32, "%.*f", decimals, value);
    return out;
}

typedef enum Content { TENSORS, FRAMES, SOUND } Content;

typedef struct Side {
    Content content;
    FramesKind kind;
    bool sound;
} Side;

static bool is_safetensors(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && !strcmp(dot, ".safetensors") && !file_is_dir(path);
}

static Status look(const char *path, Side *out, Error *e) {
    bool frames;
    *out = (Side){.content = TENSORS};
    if (is_safetensors(path)) return OK;
    TRY(frames_kind_of(path, &out->kind, &frames, &out->sound, e));
    out->content = frames ? FRAMES : SOUND;
    return OK;
}

/* A limit or a file that this pair of contents has no use for was meant for something else. */
static Status check_options(const Side side[2], const CompareOptions *o, Error *e) {
    const CompareLimits *l = &o->limits;
    bool pictures = side[0].content == FRAMES, sound = side[0].sound || side[1].sound;
    if (l->has_min_ssim && !pictures) return fail(e, ERR_USAGE, "--min-ssim: these files hold no pictures");
    if (o->diff && !pictures) return fail(e, ERR_USAGE, "--diff: these files hold no pictures");
    if (l->has_min_snr && !sound) return fail(e, ERR_USAGE, "--min-snr: these files hold no sound");
    if ((l->has_min_psnr || l->has_max_abs) && side[0].content == SOUND)
        return fail(e, ERR_USAGE, "--min-psnr and --max-abs: sound alone is held to --min-snr");
    if (o->diff && !o->overwrite && file_exists(o->diff))
        return fail(e, ERR_USAGE, "--diff: %s exists; give -y to overwrite", o->diff);
    return OK;
}

/* The sound beside the frames. Pictures can hold none, so there it is no fault of theirs. */
static Status compare_beside(const char *const path[2], const Side side[2], const CompareOptions *o, Sink *s,
                             Verdict *v, Error *e) {
    if (side[0].sound && side[1].sound) return compare_sound(path, &o->limits, s, v, e);
    if (side[0].sound == side[1].sound) return OK;
    bool pictures = side[0].content == FRAMES && (side[0].kind != FRAMES_VIDEO || side[1].kind != FRAMES_VIDEO);
    const char *word = pictures        ? "not compared: pictures have none"
                       : side[0].sound ? "only in the reference"
                                       : "only in the output";
    if (s->text)
        fprintf(s->text, "sound: %s\n", word);
    else
        cJSON_AddStringToObject(s->json, "sound", word);
    if (pictures) return OK;
    v->equal = false;
    compare_failed(v, "sound is %s", word);
    return OK;
}

static Status compare_both(const char *const path[2], const CompareOptions *o, Sink *s, Verdict *v, Error *e) {
    static const char *const WORDS[] = {"tensors", "frames", "sound"};
    Side side[2];
    TRY(look(path[0], &side[0], e));
    TRY(look(path[1], &side[1], e));
    if (side[0].content != side[1].content)
        return fail(e, ERR_USAGE, "%s holds %s and %s holds %s", path[0], WORDS[side[0].content], path[1],
                    WORDS[side[1].content]);
    TRY(check_options(side, o, e));
    if (s->json) cJSON_AddStringToObject(s->json, "content", WORDS[side[0].content]);
    if (side[0].content == TENSORS) return compare_tensors(path, &o->limits, s, v, e);
    if (side[0].content == FRAMES) TRY(compare_sequence(path, (FramesKind[]){side[0].kind, side[1].kind}, o, s, v, e));
    return compare_beside(path, side, o, s, v, e);
}

static Status finish_json(Sink *s, const Verdict *v, FILE *text, Error *e) {
    cJSON_AddBoolToObject(s->json, "equal", v->equal);
    cJSON_AddBoolToObject(s->json, "passed", !v->failed);
    if (v->failed) cJSON_AddItemToObject(s->json, "why", compare_name(v->why));
    char *line = cJSON_PrintUnformatted(s->json);
    if (!line) return fail(e, ERR_MEMORY, "out of memory for the result");
    fprintf(text, "%s\n", line);
    cJSON_free(line);
    return OK;
}

Status compare_files(const char *reference, const char *output, const CompareOptions *options, FILE *text, Error *e) {
    const char *const path[2] = {reference, output};
    Verdict v = {.equal = true};
    Sink s = {.text = options->json ? NULL : text, .json = options->json ? cJSON_CreateObject() : NULL};
    Status status = options->json && !s.json ? fail(e, ERR_MEMORY, "out of memory") : OK;
    if (status == OK && s.json) {
        cJSON_AddItemToObject(s.json, "reference", compare_name(reference));
        cJSON_AddItemToObject(s.json, "output", compare_name(output));
    }
    if (status == OK) status = compare_both(path, options, &s, &v, e);
    if (status == OK && s.json) status = finish_json(&s, &v, text, e);
    cJSON_Delete(s.json);
    if (status == OK && (fflush(text) || ferror(text)))
        status = fail(e, ERR_USAGE, "standard output: cannot write: %s", strerror(errno));
    if (status == OK && v.failed) status = fail(e, ERR_SOME, "%s and %s differ: %s", reference, output, v.why);
    if (status != OK && status != ERR_SOME) {
        status = ERR_USAGE; /* compare knows three outcomes only */
        if (e) e->code = ERR_USAGE;
    }
    return status;
}
