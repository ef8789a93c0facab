/* memo.h - results that a later job may need again, kept on the host bit for bit: text embeddings of a prompt.
 *
 * A ring of a few entries; the oldest leaves. Not a disk cache, and never consulted in a dry run.
 * Easy to get wrong: the key must name everything the value depends on (encoder, length, dtype, text). */
#ifndef MEMO_H
#define MEMO_H

#include "ops.h"

enum { MEMO_ENTRIES = 64 };

typedef struct Memo {
    struct { char *key; void *value; size_t bytes; } entry[MEMO_ENTRIES];
    int next;
} Memo;

void memo_free(Memo *m);
/* Uploads the remembered value into t and sets *found. t is contiguous. */
Status memo_get(const Memo *m, Exec *x, const char *key, Tensor t, bool *found);
/* Remembers t's bytes. */
Status memo_put(Memo *m, Exec *x, const char *key, Tensor t);

#endif
