/* memo.c - see memo.h. */
#include "memo.h"

#include <stdlib.h>

void memo_free(Memo *m) {
    for (int i = 0; i < MEMO_ENTRIES; i++) {
        free(m->entry[i].key);
        free(m->entry[i].value);
    }
    *m = (Memo){0};
}

Status memo_get(const Memo *m, Exec *x, const char *key, Tensor t, bool *found) {
    *found = false;
    if (!m || x->dry) return OK;
    for (int i = 0; i < MEMO_ENTRIES; i++)
        if (m->entry[i].key && m->entry[i].bytes == tensor_bytes(t) && !strcmp(m->entry[i].key, key)) {
            *found = true;
            return exec_upload(x, t, m->entry[i].value);
        }
    return OK;
}

Status memo_put(Memo *m, Exec *x, const char *key, Tensor t) {
    if (!m || x->dry) return OK;
    char *copy = strdup(key);
    void *value = malloc(tensor_bytes(t));
    Status s = copy && value ? exec_download(x, value, t) : fail(x->error, ERR_MEMORY, "out of memory");
    if (s != OK) {
        free(copy);
        free(value);
        return s;
    }
    free(m->entry[m->next].key);
    free(m->entry[m->next].value);
    m->entry[m->next].key = copy;
    m->entry[m->next].value = value;
    m->entry[m->next].bytes = tensor_bytes(t);
    m->next = (m->next + 1) % MEMO_ENTRIES;
    return OK;
}
