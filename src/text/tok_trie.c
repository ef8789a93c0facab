/* tok_trie.c - a byte trie in one array, level by level, built once from sorted keys. See tok_parts.h. */
#include "text/tok_parts.h"

#include <stdlib.h>
#include <string.h>

static int key_order(const void *a, const void *b) {
    const TokKey *x = a, *y = b;
    int c = memcmp(x->bytes, y->bytes, x->size < y->size ? x->size : y->size);
    if (c) return c;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value; /* the last of equal keys counts */
}

typedef struct Range { uint32_t low, high, depth; } Range; /* the keys below a node share `depth` bytes */

/* Nodes needed: one for each distinct prefix. */
static size_t count_nodes(const TokKey *keys, size_t count) {
    size_t nodes = 1;
    for (size_t i = 0; i < count; i++) {
        size_t same = 0;
        if (i)
            while (same < keys[i].size && same < keys[i - 1].size && keys[i].bytes[same] == keys[i - 1].bytes[same])
                same++;
        nodes += keys[i].size - same;
    }
    return nodes;
}

static void fill(TokNode *nodes, Range *ranges, const TokKey *keys, size_t count) {
    size_t used = 1;
    nodes[0] = (TokNode){0, -1, 0, 0};
    ranges[0] = (Range){0, (uint32_t)count, 0};
    for (size_t n = 0; n < used; n++) {
        Range r = ranges[n];
        for (; r.low < r.high && keys[r.low].size == r.depth; r.low++)
            if (r.depth) nodes[n].value = keys[r.low].value;
        nodes[n].first = (uint32_t)used;
        while (r.low < r.high) {
            char label = keys[r.low].bytes[r.depth];
            uint32_t end = r.low + 1;
            while (end < r.high && keys[end].bytes[r.depth] == label) end++;
            nodes[used] = (TokNode){0, -1, 0, (uint8_t)label};
            ranges[used++] = (Range){r.low, end, r.depth + 1};
            nodes[n].count++;
            r.low = end;
        }
    }
}

Status tok_trie_build(TokTrie *trie, TokKey *keys, size_t count, Error *e) {
    for (int b = 0; b < 256; b++) trie->root[b] = -1;
    if (!count) return OK;
    qsort(keys, count, sizeof *keys, key_order);
    size_t size = count_nodes(keys, count);
    trie->nodes = size < INT32_MAX ? malloc(size * sizeof *trie->nodes) : NULL;
    Range *ranges = trie->nodes ? malloc(size * sizeof *ranges) : NULL;
    if (!ranges) return fail(e, ERR_MEMORY, "out of memory for a tokenizer of %zu nodes", size);
    fill(trie->nodes, ranges, keys, count);
    free(ranges);
    for (uint32_t i = 0; i < trie->nodes[0].count; i++) {
        uint32_t child = trie->nodes[0].first + i;
        trie->root[trie->nodes[child].label] = (int32_t)child;
    }
    return OK;
}

void tok_trie_free(TokTrie *trie) {
    free(trie->nodes);
    trie->nodes = NULL;
}
