/* batch_check.c - see batch_check.h. Pipelines are opened in reverse, so that the first one is open when the work begins. */
#include "batch_check.h"

#include "core/file.h"
#include "generate.h"
#include "rng.h"

#include <string.h>

static Status check_one(Batch *b, BatchItem *item, Error *e) {
    Meta meta = meta_of(b->pipeline, &item->job);
    BatchFound found = {0};
    const OutputOptions o = batch_run_output(b, item);
    TRY(pipeline_resolve(b->pipeline, &item->job, e));
    TRY(output_check(item->path, item->kind, meta.clip, meta.title, &item->job, &o, e));
    output_describe(item->kind, &o, &meta);
    TRY(generate_check_job(&item->job, b->cli->overwrite || b->cli->resume, e));
    TRY(batch_journal_digest(&meta, item->of, b->folder, item->digest, e));
    if (b->cli->resume && b->journal)
        TRY(batch_journal_find(b->journal, item->name, item->digest, b->interrupted, &found, e));
    else
        found.exists = file_exists(item->path);
    if (found.done) {
        item->job.seed = found.seed;
        memcpy(item->sha256, found.sha256, sizeof item->sha256);
        batch_lines_done(&b->lines, item, BATCH_KEPT);
        return OK;
    }
    item->replace = found.ours;
    if (found.exists && !found.ours && !b->cli->overwrite)
        return fail(e, ERR_USAGE, "%s: exists%s; give -y to overwrite%s", item->path,
                    b->cli->resume ? " and is not what the journal recorded" : "",
                    b->cli->resume ? "" : ", or --resume");
    if (item->of->seed_given) return OK;
    if (!item->of->drawn) TRY(rng_random_seed(&item->of->seed, e)); /* one for all pictures of a job */
    item->of->drawn = true;
    item->job.seed = item->of->seed + (uint64_t)item->picture;
    return OK;
}

static Status check_pipeline(Batch *b, BatchItem *item, int count, Error *e) {
    Error why = {0};
    Status opened = item->of->bad ? OK : batch_run_open(b, item->of, &why);
    if (opened == ERR_INTERRUPTED) return fail(e, opened, "%s", why.text);
    for (int i = 0; i < count && !batch_run_stopped(b); i++) {
        Error one = {0};
        Status s = item[i].of->bad ? fail(&one, item[i].of->bad->code, "%s", item[i].of->bad->text)
                   : opened != OK  ? fail(&one, opened, "%s", why.text)
                                   : check_one(b, &item[i], &one);
        if (s == ERR_INTERRUPTED) return fail(e, s, "%s", one.text);
        if (s == OK) continue;
        if (!item[i].of->bad) because(&one, "line %d", item[i].of->line);
        if (!b->cli->keep_going) return fail(e, s, "%s", one.text);
        batch_lines_failed(&b->lines, &item[i], &one);
    }
    return OK;
}

Status batch_check(Batch *b, Error *e) {
    BatchItems *all = &b->items;
    batch_items_group(all);
    int end = all->count;
    while (end) { /* the first pipeline last: it stays open */
        int first = end - 1;
        while (first && all->item[first - 1].pipeline == all->item[end - 1].pipeline) first--;
        TRY(check_pipeline(b, &all->item[first], end - first, e));
        batch_items_order(&all->item[first], end - first);
        end = first;
    }
    return *b->interrupted ? fail(e, ERR_INTERRUPTED, "interrupted") : OK;
}
