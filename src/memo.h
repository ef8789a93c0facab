/* memo.h - results that a later job may need again, kept on the host bit for bit: text embeddings of a prompt.
 *
 * At most MEMO_BYTES in MEMO_ENTRIES values; the least recently used leave. Values that were put or found since
 * memo_group() are the group: they stay together as long as memo_full() is asked before more of them are made. Not a disk
 * cache, and never consulted in a dry run.
 * Easy to get wrong: the key must name everything the value depends on (encoder, length, dtype, gated families, text); a job
 * that injects stages goes without the memo, since what it injects is in no key. */
#ifndef MEMO_H
#define MEMO_H

#include "ops.h"

enum { MEMO_ENTRIES = 512, MEMO_BYTES = 256 << 20 };

typedef struct MemoEntry {
    char *key;
    void *value;
    size_t bytes;
    uint64_t used;  /* clock of its last put or get */
    uint64_t group; /* it was last used in */
} MemoEntry;

typedef struct Memo {
    MemoEntry entry[MEMO_ENTRIES];
    int count, group_count;
    size_t bytes, group_bytes; /* of all; of the group */
    size_t largest;            /* value so far */
    uint64_t clock, group;
} Memo;

void memo_free(Memo *m);
/* Uploads the remembered value into t and sets *found. t is contiguous. */
Status memo_get(Memo *m, Exec *x, const char *key, Tensor t, bool *found);
/* Remembers t's bytes. */
Status memo_put(Memo *m, Exec *x, const char *key, Tensor t);
/* Begins a group. */
void memo_group(Memo *m);
/* Whether `count` more values, each as large as the largest so far, could push one of the group out. */
bool memo_full(const Memo *m, int count);

#endif
