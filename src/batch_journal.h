/* batch_journal.h - what a batch has finished: lines of JSON beside the pictures, each written and flushed before the picture
 * gets its name.
 *
 *   {"name":"0007.png","job":DIGEST,"sha256":SUM,"seed":"7","temporary":"0007.png.tmp-4711"}
 *
 * DIGEST is the SHA-256 of all that a job's file depends on; SUM that of the file. A picture is done when a line of its name
 * and digest has the sum of the file under that name. A line whose file still has its temporary name (the program ended
 * between the two) is finished by the rename that is missing. So nothing that stands here is rendered again, and what does
 * not stand here has no final name.
 * A folder may hold several journals (shards): all are read, one is written. It is locked while it is open, and a line that
 * was cut off at its end is taken away.
 * Easy to get wrong: names are relative to the folder; a later line of a name does not make an earlier one wrong, since the
 * file's own sum decides. */
#ifndef BATCH_JOURNAL_H
#define BATCH_JOURNAL_H

#include "batch_jobs.h"
#include "core/sha256.h"
#include "meta.h"

typedef struct BatchJournal BatchJournal;

typedef struct BatchRecord {
    const char *name, *digest, *sha256, *temporary;
    uint64_t seed;
} BatchRecord;

typedef struct BatchFound {
    bool done;   /* sha256 and seed are set */
    bool ours;   /* a file has the name, and some line knows it */
    bool exists; /* a file has the name */
    char sha256[SHA256_TEXT];
    uint64_t seed;
} BatchFound;

/* Reads the journals of `folder`, and with write opens the one of this shard (shards 1: of all). ERR_USAGE: another process
 * has it open. */
Status batch_journal_open(const char *folder, int shard, int shards, bool write, BatchJournal **out,
                          Error *e);
void batch_journal_close(BatchJournal *j);
/* Looks the picture up; with write finishes a missing rename. */
Status batch_journal_find(BatchJournal *j, const char *name, const char *digest,
                          const volatile int *interrupted, BatchFound *out, Error *e);
/* Adds a line and flushes it to the disk; one caller at a time. On failure the journal is as before. */
Status batch_journal_add(BatchJournal *j, const BatchRecord *r, Error *e);
/* All that decides the bytes of the picture, but for a drawn seed: resolved parameters, the model folder, injected files,
 * and whether it carries metadata. The program's version is not among it. */
Status batch_journal_digest(const Meta *meta, const BatchJob *job, const char *folder, char out[SHA256_TEXT],
                            Error *e);

#endif
