/* batch_lines.c - see batch_lines.h.
 * Easy to get wrong: the progress line must be gone before a result is printed, both may be on one terminal. */
#include "batch_lines.h"

#include "meta.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void batch_lines_open(BatchLines *l, FILE *out, FILE *err, bool terminal, int verbosity, bool events,
                      int total) {
    *l = (BatchLines){.out = out, .err = err, .events = events, .quiet = verbosity < 0, .total = total};
    l->line = (ProgressLine){
        .out = verbosity < 0 ? NULL : err, .terminal = terminal, .verbose = verbosity > 0, .label = l->label};
    pthread_mutex_init(&l->lock, NULL);
}

void batch_lines_close(BatchLines *l) { pthread_mutex_destroy(&l->lock); }

/* Of any pictures: text that JSON can hold. */
static void add_text(cJSON *o, const char *key, const char *text) {
    char *copy = strdup(text);
    for (int64_t at; copy && (at = cli_utf8_fault(copy)) >= 0;) copy[at] = '?';
    if (copy) cJSON_AddStringToObject(o, key, copy);
    free(copy);
}

static cJSON *begin(const BatchItem *item, const char *event) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "event", event);
    cJSON_AddNumberToObject(o, "job", item->of->number);
    if (item->of->count > 1 && item->name) cJSON_AddNumberToObject(o, "picture", item->picture + 1);
    return o;
}

/* Out of memory here costs the line, not the picture. */
static void put(BatchLines *l, cJSON *o) {
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    progress_clear(&l->line);
    fprintf(l->out, "%s\n",
            text ? text : "{\"event\":\"result\",\"status\":\"out of memory for this line\"}");
    fflush(l->out);
    cJSON_free(text);
}

static cJSON *result(const BatchItem *item, const char *status) {
    cJSON *o = begin(item, "result");
    cJSON_AddNumberToObject(o, "line", item->of->line);
    cJSON_AddStringToObject(o, "status", status);
    return o;
}

static void add_picture(cJSON *o, const BatchItem *item) {
    meta_add_seed(o, item->job.seed);
    add_text(o, "path", item->path);
    if (item->sha256[0]) cJSON_AddStringToObject(o, "sha256", item->sha256);
}

void batch_lines_done(BatchLines *l, BatchItem *item, BatchState state) {
    pthread_mutex_lock(&l->lock);
    item->state = state;
    if (state == BATCH_KEPT)
        l->kept++;
    else
        l->done++;
    cJSON *o = result(item, state == BATCH_KEPT ? "kept" : "done");
    add_picture(o, item);
    if (state == BATCH_DONE) {
        cJSON *s = cJSON_AddObjectToObject(o, "seconds");
        const struct {
            const char *name;
            double seconds;
        } phases[] = {{"plan", item->plan},
                      {"text", item->text},
                      {"denoise", item->denoise},
                      {"decode", item->decode},
                      {"write", item->write}};
        for (int i = 0; i < 5; i++) cJSON_AddNumberToObject(s, phases[i].name, phases[i].seconds);
    }
    put(l, o);
    pthread_mutex_unlock(&l->lock);
}

void batch_lines_planned(BatchLines *l, const BatchItem *item) {
    pthread_mutex_lock(&l->lock);
    cJSON *o = result(item, "planned");
    if (item->of->seed_given) meta_add_seed(o, item->job.seed);
    add_text(o, "path", item->path);
    cJSON_AddNumberToObject(o, "width", item->job.width);
    cJSON_AddNumberToObject(o, "height", item->job.height);
    cJSON_AddNumberToObject(o, "steps", item->job.steps);
    put(l, o);
    pthread_mutex_unlock(&l->lock);
}

void batch_lines_failed(BatchLines *l, BatchItem *item, const Error *why) {
    pthread_mutex_lock(&l->lock);
    item->state = BATCH_FAILED;
    if (!l->failed++) l->first = *why;
    cJSON *o = result(item, "failed");
    if (item->path) add_text(o, "path", item->path);
    cJSON_AddNumberToObject(o, "code", why->code);
    add_text(o, "error", why->text);
    put(l, o);
    pthread_mutex_unlock(&l->lock);
}

void batch_lines_step(BatchLines *l, const BatchItem *item, const char *phase, int done, int total) {
    pthread_mutex_lock(&l->lock);
    int ended = l->done + l->kept + l->failed;
    snprintf(l->label, sizeof l->label, "%d/%d ", ended < l->total ? ended + 1 : l->total, l->total);
    if (l->events) {
        cJSON *o = begin(item, "progress");
        if (l->at != item) l->clock.phase[0] = 0;
        l->at = item;
        progress_event(o, phase, done, total, progress_seconds(&l->clock, phase));
        put(l, o);
    }
    progress_step(&l->line, phase, done, total);
    pthread_mutex_unlock(&l->lock);
}

void batch_lines_say(BatchLines *l, const char *format, ...) {
    if (l->quiet) return;
    va_list args;
    pthread_mutex_lock(&l->lock);
    progress_clear(&l->line);
    va_start(args, format);
    vfprintf(l->err, format, args);
    va_end(args);
    pthread_mutex_unlock(&l->lock);
}

int batch_lines_failures(BatchLines *l) {
    pthread_mutex_lock(&l->lock);
    int n = l->failed;
    pthread_mutex_unlock(&l->lock);
    return n;
}

Status batch_lines_flush(BatchLines *l, Error *e) {
    pthread_mutex_lock(&l->lock);
    progress_clear(&l->line);
    Status s = fflush(l->out) || ferror(l->out)
                   ? fail(e, ERR_IO, "standard output: cannot write: %s", strerror(errno))
                   : OK;
    pthread_mutex_unlock(&l->lock);
    return s;
}
