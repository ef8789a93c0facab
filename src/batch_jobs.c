/* batch_jobs.c - see batch_jobs.h. Values go through the command line's own parser as text, so that ranges and refusals are
 * the same in both places.
 * Easy to get wrong: what cli_set keeps are pointers, so texts that are only made for it must be of numbers. */
#include "batch_jobs.h"

#include "core/file.h"
#include "generate.h"
#include "options.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- one option of an object --- */

static Status wrong(const char *typed, const char *expected, Error *e) {
    return fail(e, ERR_USAGE, "%s: expected %s", typed, expected);
}

static Status set_number(Cli *cli, const Option *o, const char *typed, double v, Error *e) {
    char text[40];
    if (o->kind != KIND_INT && o->kind != KIND_REAL && o->kind != KIND_SEED)
        return wrong(typed, "a string", e);
    if (fabs(v) > 0x1p53 && o->kind == KIND_SEED)
        return fail(e, ERR_USAGE,
                    "%s: a number above 2^53 may have been rounded on its way; write it as a string", typed);
    snprintf(text, sizeof text, floor(v) == v && fabs(v) <= 0x1p53 ? "%.0f" : "%.17g", v);
    return cli_set(cli, o, typed, text, e);
}

static Status set_switch(Cli *cli, const Option *o, const char *typed, bool on, Error *e) {
    if (o->kind == KIND_ON_OFF) return cli_set(cli, o, typed, on ? "on" : "off", e);
    if (o->kind != KIND_SWITCH) return wrong(typed, "a string or a number", e);
    *(bool *)((char *)cli + o->field) = on;
    return OK;
}

static Status set_option(Cli *cli, const cJSON *item, Error *e) {
    const char *name = item->string;
    const Option *o = options_find(name, strlen(name), OPTIONS_JOB);
    if (!o && options_find(name, strlen(name), 1u << COMMAND_BATCH))
        return fail(e, ERR_USAGE, "--%.40s belongs on the command line: it is not a job's own", name);
    if (!o) return options_unknown(name, strlen(name), COMMAND_BATCH, e);
    char typed[64];
    snprintf(typed, sizeof typed, "--%.60s", name);
    if (cJSON_IsNull(item)) return OK;
    if (cJSON_IsNumber(item)) return set_number(cli, o, typed, item->valuedouble, e);
    if (cJSON_IsBool(item)) return set_switch(cli, o, typed, cJSON_IsTrue(item), e);
    if (cJSON_IsArray(item) && o->kind == KIND_INJECT) {
        const cJSON *one;
        cJSON_ArrayForEach(one, item) {
            if (!cJSON_IsString(one)) return wrong(typed, "strings NAME=FILE", e);
            TRY(cli_set(cli, o, typed, one->valuestring, e));
        }
        return OK;
    }
    if (!o->argument) return wrong(typed, "true or false", e);
    return cJSON_IsString(item) ? cli_set(cli, o, typed, item->valuestring, e)
                                : wrong(typed, "a string or a number", e);
}

/* --- one job --- */

static Status keep(BatchJob *b, const Cli *cli, const Cli *defaults, Error *e) {
    b->job = generate_job(cli);
    b->open = generate_pipeline(cli);
    b->model = cli->model;
    b->output = cli->output == defaults->output ? NULL : cli->output;
    b->no_metadata = cli->no_metadata;
    b->codec = cli->codec, b->crf = cli->crf;
    b->count = cli->count, b->seed_given = cli->seed_given;
    b->inherited = defaults->inject_count;
    b->job.inject = NULL, b->job.inject_count = 0;
    if (!cli->inject_count) return OK;
    b->inject = malloc((size_t)cli->inject_count * sizeof *b->inject);
    if (!b->inject) return fail(e, ERR_MEMORY, "out of memory");
    memcpy(b->inject, cli->inject, (size_t)cli->inject_count * sizeof *b->inject);
    b->job.inject = b->inject, b->job.inject_count = cli->inject_count;
    return OK;
}

static void free_names(const Inject *inject, int from, int count) {
    for (int i = from; i < count; i++) free((void *)(uintptr_t)inject[i].name);
}

static Status read_object(Cli *cli, const char *text, size_t size, Json **tree, Error *e) {
    Error why = {0};
    Status s = json_parse(text, size, "not a JSON object", tree, &why);
    if (s != OK) return fail(e, s == ERR_MEMORY ? s : ERR_USAGE, "%s", why.text);
    if (!cJSON_IsObject(*tree)) return fail(e, ERR_USAGE, "expected a JSON object");
    for (const cJSON *item = (*tree)->child; item; item = item->next) TRY(set_option(cli, item, e));
    return OK;
}

static Status read_job(BatchJob *b, char *text, size_t size, bool objects, const Cli *defaults, Error *e) {
    Cli cli = *defaults;
    const Option *prompt = options_find("prompt", 6, OPTIONS_JOB);
    Status s = OK;
    if (objects)
        s = read_object(&cli, text, size, &b->tree, e);
    else if (memchr(text, 0, size))
        s = fail(e, ERR_USAGE, "--prompt: holds a NUL byte");
    else
        s = cli_set(&cli, prompt, "--prompt", text, e);
    if (s == OK) s = cli_check_picture(&cli, e);
    if (s == OK) s = keep(b, &cli, defaults, e);
    if (s != OK) free_names(cli.inject, defaults->inject_count, cli.inject_count);
    return s;
}

/* --- the file --- */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static bool holds_objects(const char *path, const char *text) {
    if (ends_with(path, ".txt")) return false;
    if (ends_with(path, ".jsonl") || ends_with(path, ".ndjson") || ends_with(path, ".json")) return true;
    return text[strspn(text, " \t\r\n")] == '{';
}

static bool blank(const char *line, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!memchr(" \t", line[i], 2)) return false;
    return true;
}

static Status add_job(BatchJobs *jobs, int *room, int line, char *text, size_t size, bool objects,
                      const char *path, const Cli *defaults, Error *e) {
    if (jobs->count == *room) {
        int more = *room ? 2 * *room : 64;
        BatchJob *grown = realloc(jobs->job, (size_t)more * sizeof *grown);
        if (!grown) return fail(e, ERR_MEMORY, "%s: out of memory for %d jobs", path, more);
        jobs->job = grown;
        *room = more;
    }
    BatchJob *b = &jobs->job[jobs->count];
    *b = (BatchJob){.line = line, .number = jobs->count + 1, .count = 1};
    Error why = {0};
    Status s = read_job(b, text, size, objects, defaults, &why);
    jobs->count++;
    if (s == OK) return OK;
    b->bad = malloc(sizeof *b->bad);
    if (!b->bad) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    *b->bad = why;
    because(b->bad, "%s: line %d", path, line);
    return s == ERR_MEMORY ? fail(e, s, "%s", b->bad->text) : OK;
}

Status batch_jobs_parse(char *text, size_t size, const char *path, const Cli *defaults, BatchJobs *out,
                        Error *e) {
    int room = 0, line = 0;
    *out = (BatchJobs){.text = text};
    char *at = text, *end = at + size;
    if (size >= 3 && !memcmp(at, "\xef\xbb\xbf", 3)) at += 3;
    bool objects = holds_objects(path, at);
    while (at < end) {
        char *stop = memchr(at, '\n', (size_t)(end - at)), *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > at && stop[-1] == '\r') stop--;
        *stop = 0;
        line++;
        size_t length = (size_t)(stop - at);
        if (length && !(objects && blank(at, length)))
            TRY(add_job(out, &room, line, at, length, objects, path, defaults, e));
        at = next;
    }
    return out->count ? OK : fail(e, ERR_USAGE, "%s: holds no job", path);
}

Status batch_jobs_read(const char *path, const Cli *defaults, BatchJobs *out, Error *e) {
    char *text = NULL;
    size_t size;
    *out = (BatchJobs){0};
    TRY(file_read(path, &text, &size, e));
    return batch_jobs_parse(text, size, path, defaults, out, e);
}

void batch_jobs_free(BatchJobs *jobs) {
    for (int i = 0; i < jobs->count; i++) {
        BatchJob *b = &jobs->job[i];
        free_names(b->inject, b->inherited, b->job.inject_count);
        free(b->inject);
        free(b->bad);
        json_free(b->tree);
    }
    free(jobs->job);
    free(jobs->text);
    *jobs = (BatchJobs){0};
}
