/* batch_run.c - see batch_run.h.
 * Easy to get wrong: the device waits while this thread does anything that is not the device's work, so between two pictures
 * stands only what the next one needs. */
#include "batch_run.h"

#include "core/clock.h"
#include "core/device.h"
#include "core/file.h"
#include "generate.h"
#include "profile.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

/* Texts that are encoded ahead. Where weights stay in their files nothing changes places, and a long group would only keep the
 * first picture waiting. */
enum { AHEAD = 64, AHEAD_MAPPED = 8 };

bool batch_run_stopped(Batch *b) {
    return *b->interrupted || (!b->cli->keep_going && batch_lines_failures(&b->lines) > 0);
}

OutputOptions batch_run_output(const Batch *b, const BatchItem *item) {
    return (OutputOptions){.codec = item->of->codec,
                           .crf = item->of->crf,
                           .sound = pipeline_sound(b->pipeline),
                           .no_metadata = item->of->no_metadata,
                           .overwrite = b->cli->overwrite || b->cli->resume || item->replace};
}

/* --- pipelines --- */

static void drop_pipeline(Batch *b) {
    if (b->pipeline) pipeline_close(b->pipeline);
    free(b->folder);
    b->pipeline = NULL;
    b->folder = NULL;
}

static Status open_pipeline(Batch *b, const BatchJob *job, Error *e) {
    double start = clock_now();
    TRY(hub_resolve(b->hub, job->model, &b->folder, e));
    PipelineOptions options = job->open;
    options.model = b->folder;
    options.interrupted = b->interrupted;
    Profile profile;
    Status s = pipeline_open(&options, &b->pipeline, e);
    if (s == OK) s = pipeline_profile(b->pipeline, &profile, e);
    if (s == OK) {
        profile_text(&profile, b->profile);
        b->open = job;
    } else {
        drop_pipeline(b);
    }
    b->clock.opened += clock_now() - start;
    return s;
}

Status batch_run_open(Batch *b, const BatchJob *job, Error *e) {
    if (b->pipeline && batch_items_same_pipeline(b->open, job)) return OK;
    TRY(batch_run_close(b, e));
    return open_pipeline(b, job, e);
}

/* --- rendering --- */

/* ERR_DEVICE and an interrupt end the batch whatever was asked for: what comes next would fail too. */
static Status failed(Batch *b, BatchItem *item, const Error *why, Error *e) {
    if (why->code == ERR_INTERRUPTED) return fail(e, why->code, "%s", why->text);
    Error named = *why;
    because(&named, "line %d", item->of->line);
    batch_lines_failed(&b->lines, item, &named);
    return why->code == ERR_DEVICE ? fail(e, ERR_DEVICE, "%s", named.text) : OK;
}

static void on_step(void *user, const char *phase, int done, int total) {
    Batch *b = user;
    bool denoising = !strcmp(phase, "denoise");
    if (denoising && done == 0) b->clock.step_from = clock_now();
    if (denoising && done == total) b->clock.step_to = clock_now();
    batch_lines_step(&b->lines, b->step, phase, done, total);
}

static void count_seconds(BatchClock *c, const Media *m) {
    c->given += m->seconds_text;
    if (!c->window_from) {
        c->window_from = c->step_from;
        c->given_before = c->given;
    }
    c->given += m->seconds_denoise;
    c->window_to = c->step_to;
    c->given_after = c->given;
    c->given += m->seconds_decode;
}

static void say_notes(Batch *b, const Media *m) {
    if (m->warning[0]) batch_lines_say(&b->lines, "warning: %s\n", m->warning);
    if (m->note[0]) batch_lines_say(&b->lines, "note: %s\n", m->note);
    if (m->no_replay[0]) batch_lines_say(&b->lines, "warning: %s\n", m->no_replay);
}

/* The pixels are on the host: hands them on, and the latents' path, which may be NULL. */
static Status hand_on(Batch *b, BatchItem *item, const Meta *meta, Media *media, char *latents, Error *e) {
    BatchPicture picture = {.item = item, .media = *media, .latents = latents};
    Meta said = *meta;
    const OutputOptions o = batch_run_output(b, item);
    picture.is_video = output_video(item->kind, &o, &picture.video);
    output_describe(item->kind, &o, &said);
    Status s = picture_texts(&said, media, !item->of->no_metadata, &picture.texts, e);
    if (s != OK) {
        output_latents_settle(latents, e);
        return s;
    }
    *media = (Media){0};
    double start = clock_now();
    batch_writer_put(b->writer, &picture);
    b->clock.waited += clock_now() - start;
    return OK;
}

/* But for its encoding. */
static Meta describe(const Batch *b, const BatchItem *item) {
    Meta meta = meta_of(b->pipeline, &item->job);
    meta.path = item->of->model, meta.profile = b->profile;
    return meta;
}

static Status render(Batch *b, BatchItem *item, Error *e) {
    Progress progress = {on_step, b};
    Media media = {0};
    Error why = {0};
    Job job = item->job;
    OutputLatents latents;
    Meta meta = describe(b, item);
    b->step = item;
    const OutputOptions o = batch_run_output(b, item);
    Status s = output_latents_open(item->path, &meta, &o, &latents, &why);
    if (meta.clip) job.keep = &latents.watch;
    if (s == OK) s = generate_make_dump(item->job.dump, &why);
    if (s == OK) s = pipeline_render(b->pipeline, &job, &progress, &media, &why);
    if (s == OK) count_seconds(&b->clock, &media);
    item->plan += media.seconds_plan, item->text += media.seconds_text;
    item->denoise = media.seconds_denoise, item->decode = media.seconds_decode;
    say_notes(b, &media);
    if (latents.why[0])
        batch_lines_say(&b->lines, "warning: should decoding fail, the latents are lost: %s\n", latents.why);
    if (s == OK && *b->interrupted) s = fail(&why, ERR_INTERRUPTED, "interrupted");
    char *kept = output_latents_close(&latents, &media, s == OK ? NULL : &why);
    if (s == OK) s = hand_on(b, item, &meta, &media, kept, &why);
    else output_latents_settle(kept, &why);
    media_free(&media);
    return s == OK ? OK : failed(b, item, &why, e);
}

/* Said now, not between two pictures. */
static void note_cut(Batch *b, const BatchItem *item) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = b->lines.quiet ? NULL : open_memstream(&text, &size);
    if (!f) return;
    Status s = pipeline_note_cut(b->pipeline, &item->job, f, NULL);
    bool good = !fclose(f) && s == OK;
    for (char *at = text, *stop; good && (stop = strchr(at, '\n')); at = stop + 1)
        batch_lines_say(&b->lines, "line %d: %.*s\n", item->of->line, (int)(stop - at), at);
    free(text);
}

/* Encodes texts from first on until the group is full; taken: how many were looked at. */
static Status encode(Batch *b, BatchItem *first, int count, int *taken, Error *e) {
    int most = pipeline_facts(b->pipeline).device->maps ? AHEAD_MAPPED : AHEAD;
    bool begun = false;
    for (*taken = 0; *taken < count && *taken < most && !batch_run_stopped(b); ++*taken) {
        BatchItem *item = &first[*taken];
        if (item->state != BATCH_WAITS) continue;
        Error why = {0};
        PipelineTexts texts;
        note_cut(b, item);
        Status s = pipeline_encode(b->pipeline, &item->job, !begun, &texts, &why);
        if (s == OK && texts.full) break;
        begun = true;
        item->rows = texts.rows;
        item->text = texts.seconds;
        b->clock.given += texts.seconds;
        if (s != OK) TRY(failed(b, item, &why, e));
    }
    return OK;
}

static int of_pipeline(const BatchItems *items, int first) {
    int n = first;
    while (n < items->count && items->item[n].pipeline == items->item[first].pipeline) n++;
    return n - first;
}

static void say_what(Batch *b, const BatchItem *item, int count) {
    int waits = 0;
    for (int i = 0; i < count; i++) waits += item[i].state == BATCH_WAITS;
    batch_lines_say(&b->lines, "%s on %s in %s: %d picture%s\n", pipeline_title(b->pipeline),
                    pipeline_device(b->pipeline), pipeline_dtype(b->pipeline) == F32 ? "f32" : "bf16", waits,
                    waits == 1 ? "" : "s");
    const char *note = pipeline_facts(b->pipeline).tuned_note;
    if (*note) batch_lines_say(&b->lines, "note: %s\n", note);
}

static bool any_waits(const BatchItem *item, int count) {
    for (int i = 0; i < count; i++)
        if (item[i].state == BATCH_WAITS) return true;
    return false;
}

static Status render_pipeline(Batch *b, BatchItem *item, int count, Error *e) {
    if (!any_waits(item, count)) return OK;
    TRY(batch_run_open(b, item->of, e));
    say_what(b, item, count);
    for (int at = 0, taken; at < count && !batch_run_stopped(b); at += taken) {
        TRY(encode(b, &item[at], count - at, &taken, e));
        batch_items_order_rows(&item[at], taken);
        for (int i = at; i < at + taken && !batch_run_stopped(b); i++)
            if (item[i].state == BATCH_WAITS) TRY(render(b, &item[i], e));
    }
    return OK;
}

Status batch_run_render(Batch *b, Error *e) {
    Status s = OK;
    for (int at = 0, n; s == OK && at < b->items.count && !batch_run_stopped(b); at += n) {
        n = of_pipeline(&b->items, at);
        s = render_pipeline(b, &b->items.item[at], n, e);
    }
    if (s == OK && *b->interrupted) s = fail(e, ERR_INTERRUPTED, "interrupted");
    return s;
}

/* --- its end --- */

static Status report(Batch *b, Error *e) {
    int count = 0;
    ReportPicture *list = calloc((size_t)b->items.count, sizeof *list);
    const BatchItem *first = NULL;
    if (!list) return fail(e, ERR_MEMORY, "out of memory for the report");
    batch_writer_wait(b->writer);
    for (int i = 0; i < b->items.count; i++) {
        const BatchItem *item = &b->items.item[i];
        if (item->of->bad || !item->denoise || !batch_items_same_pipeline(item->of, b->open)) continue;
        if (!first) first = item;
        list[count++] = (ReportPicture){item->path,    item->job.seed, item->plan, item->text,
                                        item->denoise, item->decode,   item->write};
    }
    Meta meta = {0};
    if (first) {
        const OutputOptions o = batch_run_output(b, first);
        meta = describe(b, first);
        output_describe(first->kind, &o, &meta);
    }
    Report r = {.meta = &meta,
                .open = b->clock.opened,
                .all = clock_now() - b->clock.start,
                .picture = list,
                .count = count};
    char *text = NULL, *both = NULL;
    Status s = first ? report_json(&r, b->pipeline, &text, e) : OK;
    if (text && asprintf(&both, "%s%s%s", b->reports ? b->reports : "", b->reports ? ",\n" : "", text) < 0) {
        both = NULL;
        s = fail(e, ERR_MEMORY, "out of memory for the report");
    }
    if (both) {
        free(b->reports);
        b->reports = both;
    }
    free(text);
    free(list);
    return s;
}

Status batch_run_close(Batch *b, Error *e) {
    if (!b->pipeline) return OK;
    Status s = OK;
    if (pipeline_facts(b->pipeline).plan && b->cli->explain) s = report_explain(b->pipeline, b->lines.err, e);
    if (s == OK && b->cli->report && b->writer) s = report(b, e); /* no writer: nothing was rendered yet */
    drop_pipeline(b);
    return s;
}
