/* memo.c - see memo.h. */
#include "memo.h"

#include <stdlib.h>

void memo_free(Memo *m) {
    for (int i = 0; i < m->count; i++) {
        free(m->entry[i].key);
        free(m->entry[i].value);
    }
    *m = (Memo){0};
}

static void touch(Memo *m, MemoEntry *entry) {
    entry->used = ++m->clock;
    if (entry->group == m->group) return;
    entry->group = m->group;
    m->group_count++;
    m->group_bytes += entry->bytes;
}

Status memo_get(Memo *m, Exec *x, const char *key, Tensor t, bool *found) {
    *found = false;
    if (!m || x->dry) return OK;
    for (int i = 0; i < m->count; i++)
        if (m->entry[i].bytes == tensor_bytes(t) && !strcmp(m->entry[i].key, key)) {
            *found = true;
            touch(m, &m->entry[i]);
            return exec_upload(x, t, m->entry[i].value);
        }
    return OK;
}

static void forget_oldest(Memo *m) {
    int oldest = 0;
    for (int i = 1; i < m->count; i++)
        if (m->entry[i].used < m->entry[oldest].used) oldest = i;
    free(m->entry[oldest].key);
    free(m->entry[oldest].value);
    m->bytes -= m->entry[oldest].bytes;
    m->entry[oldest] = m->entry[--m->count];
}

Status memo_put(Memo *m, Exec *x, const char *key, Tensor t) {
    if (!m || x->dry) return OK;
    MemoEntry new = {.key = strdup(key),
                     .value = malloc(tensor_bytes(t)),
                     .bytes = tensor_bytes(t),
                     .group = m->group - 1};
    Status s =
        new.key &&new.value ? exec_download(x, new.value, t) : fail(x->error, ERR_MEMORY, "out of memory");
    if (s != OK) {
        free(new.key);
        free(new.value);
        return s;
    }
    while (m->count && (m->count == MEMO_ENTRIES || m->bytes + new.bytes > MEMO_BYTES)) forget_oldest(m);
    m->bytes += new.bytes;
    if (new.bytes > m->largest) m->largest = new.bytes;
    m->entry[m->count] = new;
    touch(m, &m->entry[m->count++]);
    return OK;
}

void memo_group(Memo *m) {
    m->group++;
    m->group_count = 0;
    m->group_bytes = 0;
}

bool memo_full(const Memo *m, int count) {
    return m->group_count + count > MEMO_ENTRIES || m->group_bytes + (size_t)count * m->largest > MEMO_BYTES;
}
