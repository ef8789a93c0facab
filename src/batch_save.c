/* batch_save.c - see batch_save.h. */
#include "batch_save.h"

#include "core/clock.h"
#include "core/file.h"

#include <stdlib.h>
#include <string.h>

static Status finish(Batch *b, const BatchItem *item, FileDraft *draft, Error *e) {
    const char *slash = strrchr(draft->temporary, '/');
    BatchRecord record = {.name = item->name,
                          .digest = item->digest,
                          .sha256 = item->sha256,
                          .seed = item->job.seed,
                          .temporary = slash ? slash + 1 : draft->temporary};
    pthread_mutex_lock(&b->saving);
    Status s = batch_journal_add(b->journal, &record, e);
    if (s == OK) {
        file_draft_keep(draft);
        s = file_draft_publish(draft, b->cli->overwrite || item->replace, e);
    } else {
        file_draft_drop(draft);
    }
    pthread_mutex_unlock(&b->saving);
    return s;
}

static Status save(Batch *b, BatchPicture *p, Error *e) {
    unsigned char *bytes = NULL;
    size_t size = 0;
    FileDraft draft;
    Status s = picture_encode(&p->media, &p->texts, p->is_video ? &p->video : NULL, &bytes, &size, e);
    if (s == OK) {
        sha256_memory(bytes, size, p->item->sha256);
        s = file_draft(p->item->path, bytes, size, &draft, e);
    }
    free(bytes);
    return s == OK ? finish(b, p->item, &draft, e) : s;
}

void batch_save(void *user, BatchPicture *p) {
    Batch *b = user;
    Error e = {0};
    double start = clock_now();
    Status s = save(b, p, &e);
    p->item->write = clock_now() - start;
    output_latents_settle(p->latents, s == OK ? NULL : &e);
    if (s == OK)
        batch_lines_done(&b->lines, p->item, BATCH_DONE);
    else
        batch_lines_failed(&b->lines, p->item, &e);
    media_free(&p->media);
    picture_texts_free(&p->texts);
}
