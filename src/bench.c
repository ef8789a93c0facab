/* bench.c - see bench.h. step and decode are pictures rendered in full: marks are set where the pipeline reports its
 * progress, so what is timed is what every run does.
 * Easy to get wrong: the callback cannot fail; what went wrong in it is looked at afterwards. */
#include "bench.h"

#include "core/clock.h"
#include "core/device.h"
#include "graph.h"
#include "kernels/tune_cuda.h"
#include "media/mp4.h"
#include "media/png.h"
#include "optimes.h"
#include "profile.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEWEST = 2 }; /* steps of a picture that only its decoder is timed of: LTX-2's sigmas do not end with one */

_Static_assert(BENCH_MOST + BENCH_WARMUP + 1 <= DEVICE_PHASE_MARKS, "every step of a run needs a mark");

static const char PROMPT[] = "a lighthouse at dusk, waves breaking below, the beam cutting through mist";
/* 64 tokens for Qwen3 in Z-Image's template, with a number of three digits behind it. */
static const char LONGER[] =
    "a lighthouse on a cliff at dusk, waves breaking far below, the beam cutting through mist, gulls above the lamp, "
    "a small boat with a lantern coming home, wet rocks, long exposure, muted blue and orange, a wide empty sky";

typedef struct Bench {
    const BenchOptions *o;
    Pipeline *pipeline;
    Device *device;
    Job job;
    const char *phase;           /* whose progress is marked */
    int marks;
    double clock[DEVICE_PHASE_MARKS];  /* of the host, where the device has no marks */
    Error mark_error;
    OpTimes *ops;                /* NULL: not taken */
    int skip;                    /* marks of the phase before ops are timed; -1: never */
    double value[BENCH_MOST];    /* seconds */
    size_t bytes;                /* load */
    uint64_t replayed;           /* steps of the last picture that came out of a graph */
    int steps, takes;            /* picture: the model's own number of steps; pictures so far */
    const char *end;             /* picture: what its time ends with */
    char prompt[sizeof LONGER + 24];
} Bench;

static void mark(void *user, const char *phase, int done, int total) {
    Bench *b = user;
    bool ours = !strcmp(phase, b->phase);
    if (b->ops) optimes_phase(b->ops, ours && b->skip >= 0 && done >= b->skip && done < total ? b->phase : NULL);
    if (!strcmp(phase, "decode") && done > 0 && done < total) return; /* the whole of it counts */
    if (!ours || b->marks == DEVICE_PHASE_MARKS || b->mark_error.code != OK) return;
    if (b->device->mark) b->device->mark(b->device, b->marks, &b->mark_error);
    b->clock[b->marks++] = clock_now();
}

static Status between(Bench *b, int from, double *seconds, Error *e) {
    if (b->device->elapsed) return b->device->elapsed(b->device, from, from + 1, seconds, e);
    *seconds = b->clock[from + 1] - b->clock[from];
    return OK;
}

/* One picture; afterwards the phase's marks are 0..marks-1. */
static Status picture(Bench *b, const char *phase, int steps, Error *e) {
    Progress progress = {mark, b};
    Media media = {0};
    b->phase = phase;
    b->marks = 0;
    b->job.steps = steps;
    const Graphs *graphs = pipeline_facts(b->pipeline).graphs;
    uint64_t before = graphs->stats.replayed;
    Status status = pipeline_render(b->pipeline, &b->job, &progress, &media, e);
    media_free(&media);
    b->replayed = graphs->stats.replayed - before;
    if (status == OK && b->mark_error.code != OK) status = fail(e, b->mark_error.code, "%s", b->mark_error.text);
    return status;
}

/* --- the phases: runs values into b->value --- */

static Status step(Bench *b, int warmup, int runs, Error *e) {
    b->skip = warmup;
    TRY(picture(b, "denoise", warmup + runs, e));
    if (b->marks != warmup + runs + 1) return fail(e, ERR_MODEL, "bench step: %d marks for %d steps", b->marks, warmup + runs);
    for (int i = 0; i < runs; i++) TRY(between(b, warmup + i, &b->value[i], e));
    return OK;
}

static Status decode(Bench *b, int warmup, int runs, Error *e) {
    for (int i = -warmup; i < runs; i++) {
        b->skip = i >= 0 ? 0 : -1;
        TRY(picture(b, "decode", FEWEST, e));
        if (b->marks != 2) return fail(e, ERR_MODEL, "bench decode: %d marks for one picture", b->marks);
        if (i >= 0) TRY(between(b, 0, &b->value[i], e));
    }
    return OK;
}

static Status load(Bench *b, int warmup, int runs, Error *e) {
    for (int i = -warmup; i < runs; i++) {
        double seconds;
        TRY(pipeline_load(b->pipeline, &b->job, "transformer", &seconds, &b->bytes, e));
        if (i >= 0) b->value[i] = seconds;
    }
    return OK;
}

/* A clip's bytes, where libav has its encoder; else the time ends with the frames, and the result says so. */
static Status clip_bytes(Bench *b, const Media *media, unsigned char **bytes, size_t *size, Error *e) {
    Mp4Clip clip = {media->rgb, media->width, media->height, media->frames, media->fps, media->sound};
    Mp4Options options = {.crf = -1};
    if (!b->end) {
        Error why = {0};
        Status s = mp4_check(&clip, &options, &why);
        if (s != OK && s != ERR_IO) return fail(e, s, "%s", why.text);
        b->end = s == OK ? "mp4" : "frames";
        if (s != OK) fprintf(b->o->err, "note: the time ends with the frames: %s\n", why.text);
    }
    return !strcmp(b->end, "mp4") ? mp4_encode(&clip, &options, bytes, size, e) : OK;
}

/* From the prompt to the bytes of the PNG or MP4, weights in place. Each has a text of its own: none is remembered. */
static Status whole(Bench *b, int warmup, int runs, Error *e) {
    for (int i = -warmup; i < runs; i++) {
        Media media = {0};
        unsigned char *png = NULL;
        size_t size;
        snprintf(b->prompt, sizeof b->prompt, "%s, take %d", PROMPT, 100 + b->takes++ % 900);
        b->job.prompt = b->prompt;
        b->job.steps = b->steps;
        double start = clock_now();
        Status status = pipeline_render(b->pipeline, &b->job, NULL, &media, e);
        if (status == OK && media.fps.num)
            status = clip_bytes(b, &media, &png, &size, e);
        else if (status == OK)
            status = png_encode(media.rgb, media.width, media.height, NULL, 0, &png, &size, e);
        if (i >= 0) b->value[i] = clock_now() - start;
        free(png);
        media_free(&media);
        TRY(status);
    }
    return OK;
}

/* The text encoders alone, until the embeddings are on the host; a text of its own each. */
static Status texts_alone(Bench *b, int warmup, int runs, Error *e) {
    for (int i = -warmup; i < runs; i++) {
        PipelineTexts texts;
        snprintf(b->prompt, sizeof b->prompt, "%s, take %d", LONGER, 100 + b->takes++ % 900);
        b->job.prompt = b->prompt;
        b->job.steps = FEWEST;
        if (b->ops) optimes_phase(b->ops, i >= 0 ? "text" : NULL);
        TRY(pipeline_encode(b->pipeline, &b->job, true, &texts, e));
        if (i >= 0) b->value[i] = texts.encoders;
    }
    return OK;
}

typedef struct Phase {
    const char *name, *unit;
    double scale; /* of the unit */
    Status (*run)(Bench *b, int warmup, int runs, Error *e);
} Phase;

static const Phase PHASES[] = {{"step", "ms", 1e3, step}, {"decode", "ms", 1e3, decode}, {"load", "s", 1, load},
                               {"picture", "ms", 1e3, whole}, {"text", "ms", 1e3, texts_alone}};

/* --- JSON --- */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static Status print(Bench *b, const Phase *phase, FILE *out, Error *e) {
    Profile p;
    char line[PROFILE_TEXT];
    int n = b->o->runs;
    TRY(pipeline_profile(b->pipeline, &p, e));
    profile_text(&p, line);
    cJSON *o = cJSON_CreateObject(), *values = cJSON_CreateArray();
    for (int i = 0; i < n; i++) cJSON_AddItemToArray(values, cJSON_CreateNumber(b->value[i] * phase->scale));
    qsort(b->value, (size_t)n, sizeof *b->value, by_size);
    cJSON_AddStringToObject(o, "bench", phase->name);
    cJSON_AddStringToObject(o, "unit", phase->unit);
    cJSON_AddNumberToObject(o, "value", (b->value[(n - 1) / 2] + b->value[n / 2]) / 2 * phase->scale);
    cJSON_AddNumberToObject(o, "min", b->value[0] * phase->scale);
    cJSON_AddNumberToObject(o, "max", b->value[n - 1] * phase->scale);
    cJSON_AddNumberToObject(o, "runs", n);
    cJSON_AddNumberToObject(o, "warmup", b->o->warmup);
    cJSON_AddNumberToObject(o, "width", b->job.width);
    cJSON_AddNumberToObject(o, "height", b->job.height);
    cJSON_AddNumberToObject(o, "text_tokens", b->job.max_sequence_length);
    cJSON_AddStringToObject(o, "quality", b->job.quality == QUALITY_HIGH ? "high" : "lossless");
    cJSON_AddStringToObject(o, "families", b->job.families ? b->job.families : "all");
    cJSON_AddNumberToObject(o, "replayed", (double)b->replayed);
    if (b->end) cJSON_AddStringToObject(o, "end", b->end);
    if (b->bytes) cJSON_AddNumberToObject(o, "bytes", (double)b->bytes);
    cJSON_AddStringToObject(o, "clock", b->device->mark && phase->run != whole && phase->run != texts_alone ? "device" : "host");
    cJSON_AddStringToObject(o, "profile", line);
    cJSON_AddStringToObject(o, "gpu", p.gpu);
    cJSON_AddNumberToObject(o, "cuda", p.runtime);
    cJSON_AddNumberToObject(o, "cublas", p.cublas);
    cJSON_AddNumberToObject(o, "cudnn", p.cudnn);
    cJSON_AddItemToObject(o, "values", values);
    if (b->ops) cJSON_AddItemToObject(o, "ops", optimes_json(b->ops));
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (!text) return fail(e, ERR_MEMORY, "out of memory");
    fprintf(out, "%s\n", text);
    free(text);
    return fflush(out) ? fail(e, ERR_IO, "standard output: cannot write: %s", strerror(errno)) : OK;
}

/* --- */

static Status measure(Bench *b, const Phase *phase, FILE *out, Error *e) {
    if (b->ops) optimes_forget(b->ops);
    TRY(phase->run(b, b->o->warmup, b->o->runs, e));
    if (b->ops) {
        TRY(optimes_collect(b->ops, e));
        optimes_print(b->ops, b->o->runs, b->o->err);
    }
    return print(b, phase, out, e);
}

static Status serve(Bench *b, const Phase *phase, FILE *in, FILE *out, Error *e) {
    char line[256];
    TRY(phase->run(b, 1, 1, e));
    fprintf(out, "{\"ready\":true}\n");
    if (fflush(out)) return fail(e, ERR_IO, "standard output: cannot write: %s", strerror(errno));
    while (fgets(line, sizeof line, in)) TRY(measure(b, phase, out, e));
    return OK;
}

/* --- tuning --- */

static Status print_product(const TuneResult *r, FILE *out, Error *e) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "product", r->label);
    cJSON_AddNumberToObject(o, "candidates", r->candidates);
    cJSON_AddNumberToObject(o, "first_us", r->first);
    cJSON_AddNumberToObject(o, "best_us", r->best);
    cJSON_AddBoolToObject(o, "kept", r->kept);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (!text) return fail(e, ERR_MEMORY, "out of memory");
    fprintf(out, "%s\n", text);
    free(text);
    return OK;
}

/* The products are tried where a picture meets them, each once. */
static Status tune(Bench *b, FILE *out, Error *e) {
    int count, kept = 0;
    TRY(picture(b, "denoise", 1, e));
    const TuneResult *r = tune_cuda_results(pipeline_facts(b->pipeline).cuda, &count);
    for (int i = 0; i < count; i++) {
        kept += r[i].kept;
        TRY(print_product(&r[i], out, e));
    }
    TRY(pipeline_save_tuned(b->pipeline, e));
    fprintf(b->o->err, "%d products tried, %d have a faster algorithm of the same bits: %s\n", count, kept, b->o->tuned);
    return fflush(out) ? fail(e, ERR_IO, "standard output: cannot write: %s", strerror(errno)) : OK;
}

static void say_note(const Bench *b) {
    const char *note = pipeline_facts(b->pipeline).tuned_note;
    if (*note && !b->o->tune) fprintf(b->o->err, "note: %s\n", note);
}

Status bench_run(const BenchOptions *o, FILE *in, FILE *out, Error *e) {
    const Phase *phase = NULL;
    for (size_t i = 0; i < sizeof PHASES / sizeof *PHASES; i++)
        if (o->what && !strcmp(o->what, PHASES[i].name)) phase = &PHASES[i];
    if (!phase && o->what)
        return fail(e, ERR_USAGE, "bench: found \"%s\", expected step, decode, load, picture or text", o->what);
    if (!phase != o->tune) return fail(e, ERR_USAGE, "bench: expected either step, decode, load, picture or text, or --tune");
    if (o->tune && (o->profile || o->serve)) return fail(e, ERR_USAGE, "bench --tune: times no phase, --%s does not go with it",
                                                         o->profile ? "profile" : "serve");
    if (phase && o->profile && phase->run == load)
        return fail(e, ERR_USAGE, "bench load: runs no ops, there is nothing to profile");
    Bench *b = calloc(1, sizeof *b);
    if (!b) return fail(e, ERR_MEMORY, "out of memory");
    Status status = o->profile ? optimes_open(&b->ops, e) : OK;
    b->o = o;
    b->job = (Job){.prompt = PROMPT, .width = o->width, .height = o->height, .frames = o->frames, .steps = o->steps, .seed = 1,
                   .upscale = o->upscale, .quality = o->quality, .families = o->families};
    for (int k = 0; k < GUIDE_KINDS; k++)
        if ((b->job.guide_given[k] = o->guide && o->guide[k] >= 0)) b->job.guide[k] = o->guide[k];
    PipelineOptions open = {.model = o->folder,
                            .text_encoder = o->text_encoder,
                            .device = o->device,
                            .dtype = o->dtype,
                            .vae_dtype = o->vae_dtype,
                            .vram = o->vram,
                            .on = o->on,
                            .no_graphs = o->no_graphs,
                            .tuned = o->tuned,
                            .verdicts = o->verdicts,
                            .tune = o->tune,
                            .timer = b->ops ? optimes_timer(b->ops) : NULL,
                            .interrupted = o->interrupted};
    if (status == OK) status = pipeline_open(&open, &b->pipeline, e);
    if (status == OK) status = pipeline_resolve(b->pipeline, &b->job, e);
    b->steps = b->job.steps;
    if (status == OK) b->device = pipeline_facts(b->pipeline).device;
    if (status == OK) say_note(b);
    if (status == OK && o->tune) status = tune(b, out, e);
    else if (status == OK) status = o->serve ? serve(b, phase, in, out, e) : measure(b, phase, out, e);
    pipeline_close(b->pipeline);
    optimes_close(b->ops);
    free(b);
    return status;
}
