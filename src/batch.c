/* batch.c - see batch.h.
 * Easy to get wrong: the writers go on after the last picture was rendered, and what they find decides the result too. */
#include "batch.h"

#include "batch_check.h"
#include "batch_run.h"
#include "batch_save.h"
#include "core/clock.h"
#include "core/device.h"
#include "core/file.h"
#include "generate.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool number(const char *text, long *out) {
    char *end = NULL;
    errno = 0;
    *out = text && text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
    return end && !*end && !errno && *out <= INT32_MAX;
}

Status batch_slurm(Cli *cli, const char *id, const char *min, const char *count, const char *step, Error *e) {
    long i, first, n, by;
    if (!number(id, &i) || !number(min, &first) || !number(count, &n) || !number(step ? step : "1", &by) ||
        !by)
        return fail(
            e, ERR_USAGE,
            "--shard slurm: expected SLURM_ARRAY_TASK_ID, SLURM_ARRAY_TASK_MIN and SLURM_ARRAY_TASK_COUNT, "
            "which a job array's tasks have");
    long at = (i - first) / by;
    if (i < first || (i - first) % by || n < 1 || n > CLI_MAX_SHARDS || at >= n)
        return fail(
            e, ERR_USAGE,
            "--shard slurm: task %ld is none of %ld tasks from %ld in steps of %ld; a list with gaps needs "
            "--shard I/N",
            i, n, first, by);
    cli->shard = (int)at;
    cli->shards = (int)n;
    return OK;
}

/* --- report --- */

static char *numbers(const Batch *b) {
    const BatchClock *c = &b->clock;
    double text = 0, denoise = 0, decode = 0, write = 0, plan = 0;
    for (int i = 0; i < b->items.count; i++) {
        const BatchItem *item = &b->items.item[i];
        text += item->text, denoise += item->denoise, decode += item->decode, write += item->write,
            plan += item->plan;
    }
    cJSON *o = cJSON_CreateObject(), *s = cJSON_AddObjectToObject(o, "seconds"),
          *w = cJSON_AddObjectToObject(o, "window");
    cJSON_AddNumberToObject(o, "pictures", b->lines.total);
    cJSON_AddNumberToObject(o, "done", b->lines.done);
    cJSON_AddNumberToObject(o, "kept", b->lines.kept);
    cJSON_AddNumberToObject(o, "failed", b->lines.failed);
    const struct {
        const char *name;
        double value;
    } all[] = {{"all", clock_now() - c->start},
               {"open", c->opened},
               {"plan", plan},
               {"text", text},
               {"denoise", denoise},
               {"decode", decode},
               {"write", write},
               {"waited_for_writers", c->waited}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cJSON_AddNumberToObject(s, all[i].name, all[i].value);
    double window = c->window_to - c->window_from;
    cJSON_AddNumberToObject(w, "from", c->window_from);
    cJSON_AddNumberToObject(w, "to", c->window_to);
    cJSON_AddNumberToObject(w, "seconds", window);
    cJSON_AddNumberToObject(w, "given", c->given_after - c->given_before);
    cJSON_AddNumberToObject(w, "share", window > 0 ? (c->given_after - c->given_before) / window : 0);
    char *out = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return out;
}

static Status write_report(const Batch *b, Error *e) {
    char *batch = numbers(b), *text = NULL;
    int n = batch ? asprintf(&text, "{\"batch\":%s,\n\"models\":[%s]}\n", batch, b->reports ? b->reports : "")
                  : -1;
    cJSON_free(batch);
    if (n < 0) return fail(e, ERR_MEMORY, "out of memory for the report");
    Status s = file_write_atomic(b->cli->report, text, (size_t)n, b->cli->overwrite, e);
    free(text);
    return s;
}

/* --- run --- */

static Status make_folder(const char *folder, Error *e) {
    if (mkdir(folder, 0777) && errno != EEXIST)
        return fail(e, ERR_IO, "--out: cannot create %s: %s", folder, strerror(errno));
    if (!file_is_dir(folder)) return fail(e, ERR_IO, "--out: %s is not a folder", folder);
    return OK;
}

/* Compressing takes a core now and then; a device of its own leaves more of them free. */
static int writers(const Batch *b) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN) / 4;
    if (!b->pipeline || pipeline_facts(b->pipeline).device->maps) return 1;
    return cores < 1 ? 1 : cores > 4 ? 4 : (int)cores;
}

static Status plan_only(Batch *b, Error *e) {
    for (int i = 0; i < b->items.count; i++)
        if (b->items.item[i].state == BATCH_WAITS) batch_lines_planned(&b->lines, &b->items.item[i]);
    return batch_run_close(b, e);
}

static Status work(Batch *b, Error *e) {
    TRY(batch_check(b, e));
    if (b->cli->dry_run) return plan_only(b, e);
    if (b->cli->resume) batch_items_sweep(&b->items, b->cli->out);
    int threads = writers(b);
    TRY(batch_writer_open(threads, threads + 1, batch_save, b, &b->writer, e));
    Status s = batch_run_render(b, e), closed = batch_run_close(b, s == OK ? e : NULL);
    batch_writer_close(b->writer);
    b->writer = NULL;
    if (s == OK) s = closed;
    return s == OK && b->cli->report ? write_report(b, e) : s;
}

static Status outcome(Batch *b, Status s, Error *e) {
    int failed = b->lines.failed;
    if (s == OK) s = batch_lines_flush(&b->lines, e);
    if (s != OK || !failed) return s;
    if (!b->cli->keep_going) return fail(e, b->lines.first.code, "%s", b->lines.first.text);
    return fail(e, ERR_SOME, "%d of %d pictures failed; the first: %s", failed, b->lines.total,
                b->lines.first.text);
}

static Status run(Batch *b, bool terminal, FILE *out, FILE *err, Error *e) {
    const Cli *cli = b->cli;
    if (!cli->dry_run) TRY(make_folder(cli->out, e));
    if (!cli->dry_run || file_is_dir(cli->out))
        TRY(batch_journal_open(cli->out, cli->shard, cli->shards, !cli->dry_run, &b->journal, e));
    batch_lines_open(&b->lines, out, err, terminal, cli->verbosity, cli->json, b->items.count);
    pthread_mutex_init(&b->saving, NULL);
    Status s = outcome(b, work(b, e), e);
    batch_lines_close(&b->lines);
    pthread_mutex_destroy(&b->saving);
    return s;
}

/* Names that are not given depend on what is made. A model that cannot be found is its own job's fault, later. */
static void note_clips(const HubEnv *hub, BatchJobs *jobs) {
    const BatchJob *last = NULL;
    for (int i = 0; i < jobs->count; i++) {
        BatchJob *b = &jobs->job[i];
        char *path = NULL;
        if (b->bad || b->output || !b->model) continue;
        if (last && !strcmp(last->model, b->model)) b->clips = last->clips;
        else if (hub_find(hub, b->model, &path, NULL) == OK) b->clips = pipeline_would_make_clips(path);
        free(path);
        last = b;
    }
}

Status batch_run(const Cli *cli, const HubEnv *hub, FILE *out, FILE *err, bool terminal,
                 const volatile int *interrupted, Error *e) {
    Batch b = {.cli = cli, .hub = hub, .interrupted = interrupted, .clock = {.start = clock_now()}};
    BatchJobs jobs = {0};
    if (cli_utf8_fault(cli->out) >= 0)
        return fail(e, ERR_USAGE, "--out: the name is not valid UTF-8, which JSON requires");
    TRY(generate_check_side_files(cli, e));
    Status s = batch_jobs_read(cli->args[0], cli, &jobs, e);
    if (s == OK && !cli->output) note_clips(hub, &jobs);
    if (s == OK) s = batch_items_make(&jobs, cli->out, cli->output, cli->shard, cli->shards, &b.items, e);
    if (s == OK) s = run(&b, terminal, out, err, e);
    if (b.pipeline) batch_run_close(&b, NULL);
    batch_journal_close(b.journal);
    batch_items_free(&b.items);
    batch_jobs_free(&jobs);
    free(b.reports);
    return s;
}
