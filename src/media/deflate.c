/* deflate.c - see deflate.h. RFC 1950 and 1951: blocks with codes of their own, each of at most TOKENS literals and runs. A run
 * is a match of distance 1.
 * Easy to get wrong: codes go out with their bits reversed, extra bits do not; a code must use up its tree, so no alphabet
 * of symbols may have fewer than two; a symbol's length may not pass 15 (7 for lengths of lengths). */
#include "media/deflate.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOKENS = 1 << 16,
    LITERALS = 286, END = 256, LENGTHS = 19, /* alphabets: literals and run lengths; lengths of codes */
    RUN_LEAST = 3, RUN_MOST = 258, RUN = 256, /* a token of RUN + k is a run of RUN_LEAST + k */
    BITS_MOST = 15, LENGTH_BITS_MOST = 7,
};

/* --- bits, the first one lowest --- */

typedef struct Bits {
    unsigned char *at;
    uint64_t held;
    int count;
} Bits;

static inline void put(Bits *b, uint32_t value, int n) {
    b->held |= (uint64_t)value << b->count;
    b->count += n;
    while (b->count >= 8) {
        *b->at++ = (unsigned char)b->held;
        b->held >>= 8;
        b->count -= 8;
    }
}

/* --- codes --- */

typedef struct Code {
    uint16_t bits[LITERALS]; /* reversed */
    uint8_t length[LITERALS];
} Code;

typedef struct Leaf {
    uint32_t weight;
    int symbol;
} Leaf;

static int by_weight(const void *a, const void *b) {
    const Leaf *x = a, *y = b;
    return x->weight != y->weight ? (x->weight > y->weight) - (x->weight < y->weight) : x->symbol - y->symbol;
}

/* How many leaves of a Huffman tree over m sorted weights lie at each depth, none deeper than `most`. */
static void depths(const Leaf *leaf, int m, int most, int count[BITS_MOST + 1]) {
    uint32_t weight[2 * LITERALS];
    int parent[2 * LITERALS], depth[2 * LITERALS], leaves = 0, inner = m;
    for (int i = 0; i < m; i++) weight[i] = leaf[i].weight;
    for (int k = m; k < 2 * m - 1; k++) { /* sums come out sorted: the two lightest are at the head of either queue */
        weight[k] = 0;
        for (int child = 0; child < 2; child++) {
            int *next = leaves < m && (inner == k || weight[leaves] <= weight[inner]) ? &leaves : &inner;
            weight[k] += weight[*next];
            parent[(*next)++] = k;
        }
    }
    memset(count, 0, (BITS_MOST + 1) * sizeof *count);
    depth[2 * m - 2] = 0;
    uint32_t used = 0;
    for (int i = 2 * m - 3; i >= 0; i--) {
        depth[i] = depth[parent[i]] + 1;
        if (i >= m) continue;
        int d = depth[i] < most ? depth[i] : most;
        count[d]++;
        used += 1u << (most - d);
    }
    for (; used > 1u << most; used--) { /* a leaf too many at the bottom joins one from higher up, a level below it */
        int d = most - 1;
        while (!count[d]) d--;
        count[d]--, count[d + 1] += 2, count[most]--;
    }
}

static void code_make(const uint32_t *frequency, int symbols, int most, Code *code) {
    Leaf leaf[LITERALS];
    int m = 0, count[BITS_MOST + 1];
    for (int s = 0; s < symbols; s++)
        if (frequency[s]) leaf[m++] = (Leaf){frequency[s], s};
    for (int s = 0; m < 2; s++)
        if (!frequency[s]) leaf[m++] = (Leaf){0, s};
    qsort(leaf, (size_t)m, sizeof *leaf, by_weight);
    depths(leaf, m, most, count);
    memset(code, 0, sizeof *code);
    for (int length = most, i = 0; length; length--)
        for (int k = 0; k < count[length]; k++) code->length[leaf[i++].symbol] = (uint8_t)length;
    uint32_t next = 0;
    for (int length = 1; length <= most; length++) {
        for (int s = 0; s < symbols; s++) {
            if (code->length[s] != length) continue;
            uint32_t reversed = 0;
            for (int k = 0; k < length; k++) reversed |= (next >> k & 1) << (length - 1 - k);
            code->bits[s] = (uint16_t)reversed;
            next++;
        }
        next <<= 1;
    }
}

/* --- run lengths --- */

typedef struct Run {
    uint16_t symbol, base;
    uint8_t extra; /* bits */
} Run;

/* run[length - RUN_LEAST]. */
static void runs_make(Run run[RUN_MOST - RUN_LEAST + 1]) {
    int base = RUN_LEAST, symbol = END + 1;
    for (; symbol < LITERALS - 1; symbol++) {
        int extra = symbol < 265 ? 0 : (symbol - 261) / 4;
        for (int k = 0; k < 1 << extra && base + k <= RUN_MOST; k++)
            run[base + k - RUN_LEAST] = (Run){(uint16_t)symbol, (uint16_t)base, (uint8_t)extra};
        base += 1 << extra;
    }
    run[RUN_MOST - RUN_LEAST] = (Run){(uint16_t)symbol, RUN_MOST, 0};
}

/* --- a block --- */

/* The lengths of all codes, themselves coded: 0..15 as they are, 16 repeats the last 3 to 6 times, 17 and 18 are 3 to 10 and
 * 11 to 138 zeros. item: symbol, and extra bits above it. */
static int lengths_pack(const uint8_t *length, int n, uint16_t *item, uint32_t frequency[LENGTHS]) {
    int count = 0;
    for (int i = 0; i < n;) {
        int same = 1;
        while (i + same < n && length[i + same] == length[i]) same++;
        int symbol = length[i], taken = 1, extra = 0;
        if (!length[i] && same >= 3) {
            taken = same < 138 ? same : 138;
            symbol = taken < 11 ? 17 : 18;
            extra = taken - (taken < 11 ? 3 : 11);
        } else if (i && length[i] == length[i - 1] && same >= 3) {
            taken = same < 6 ? same : 6;
            symbol = 16, extra = taken - 3;
        }
        item[count++] = (uint16_t)(symbol | extra << 8);
        frequency[symbol]++;
        i += taken;
    }
    return count;
}

typedef struct Block {
    uint16_t token[TOKENS];
    int count;
    uint32_t frequency[LITERALS];
} Block;

/* False when the block does not fit before `end`. */
static bool block_write(Bits *b, const Block *block, const Run *run, bool last, const unsigned char *end) {
    static const uint8_t ORDER[LENGTHS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    static const uint8_t EXTRA[3] = {2, 3, 7}; /* bits of 16, 17, 18 */
    Code code, lengths;
    uint8_t length[LITERALS + 1];
    uint16_t item[LITERALS + 1];
    uint32_t frequency[LENGTHS] = {0};
    code_make(block->frequency, LITERALS, BITS_MOST, &code);
    int literals = LITERALS, kinds = LENGTHS;
    while (literals > END + 1 && !code.length[literals - 1]) literals--;
    memcpy(length, code.length, (size_t)literals);
    length[literals] = 1; /* the one distance */
    int items = lengths_pack(length, literals + 1, item, frequency);
    code_make(frequency, LENGTHS, LENGTH_BITS_MOST, &lengths);
    while (kinds > 4 && !lengths.length[ORDER[kinds - 1]]) kinds--;
    uint64_t size = 64 + 3 * LENGTHS + (uint64_t)items * (LENGTH_BITS_MOST + 7);
    for (int s = 0; s < LITERALS; s++) size += (uint64_t)block->frequency[s] * (code.length[s] + (s > END ? 6u : 0u));
    if (size / 8 + 16 > (uint64_t)(end - b->at)) return false;
    put(b, last, 1);
    put(b, 2, 2);
    put(b, (uint32_t)literals - 257, 5);
    put(b, 0, 5);
    put(b, (uint32_t)kinds - 4, 4);
    for (int i = 0; i < kinds; i++) put(b, lengths.length[ORDER[i]], 3);
    for (int i = 0; i < items; i++) {
        int symbol = item[i] & 0xff;
        put(b, lengths.bits[symbol], lengths.length[symbol]);
        if (symbol >= 16) put(b, (uint32_t)item[i] >> 8, EXTRA[symbol - 16]);
    }
    for (int i = 0; i < block->count; i++) {
        int token = block->token[i];
        if (token < RUN) {
            put(b, code.bits[token], code.length[token]);
            continue;
        }
        const Run *r = &run[token - RUN];
        put(b, code.bits[r->symbol], code.length[r->symbol]);
        put(b, (uint32_t)(token - RUN + RUN_LEAST - r->base), r->extra);
        put(b, 0, 1);
    }
    put(b, code.bits[END], code.length[END]);
    return true;
}

/* Takes bytes from `at` until the block is full; where it stopped. */
static size_t block_fill(Block *block, const Run *run, const unsigned char *data, size_t at, size_t n) {
    block->count = 0;
    memset(block->frequency, 0, sizeof block->frequency);
    while (at < n && block->count < TOKENS) {
        size_t same = 0, most = n - at < RUN_MOST ? n - at : RUN_MOST;
        while (at && same < most && data[at + same] == data[at - 1]) same++;
        if (same < RUN_LEAST) {
            block->token[block->count++] = data[at];
            block->frequency[data[at++]]++;
            continue;
        }
        block->token[block->count++] = (uint16_t)(RUN + (int)same - RUN_LEAST);
        block->frequency[run[same - RUN_LEAST].symbol]++;
        at += same;
    }
    block->frequency[END] = 1;
    return at;
}

/* --- the stream --- */

static uint32_t adler(const unsigned char *data, size_t n) {
    uint32_t a = 1, b = 0;
    while (n) {
        size_t piece = n < 5552 ? n : 5552; /* as many as fit 32 bits without a remainder */
        n -= piece;
        for (size_t i = 0; i < piece; i++) b += a += data[i];
        data += piece;
        a %= 65521, b %= 65521;
    }
    return b << 16 | a;
}

/* No symbol needs more than 9 bits on average: a code of equal lengths has 9. Runs are shorter than what they stand for. */
size_t deflate_bound(size_t n) { return n + n / 8 + 1024 * (n / TOKENS + 2); }

size_t deflate_write(const unsigned char *data, size_t n, unsigned char *out, size_t room) {
    Run run[RUN_MOST - RUN_LEAST + 1];
    Block *block = room >= 8 ? malloc(sizeof *block) : NULL;
    if (!block) return 0;
    runs_make(run);
    out[0] = 0x78, out[1] = 0x01; /* a window of 32 KiB, the fastest way */
    Bits b = {.at = out + 2};
    size_t at = 0;
    bool fits;
    do {
        at = block_fill(block, run, data, at, n);
        fits = block_write(&b, block, run, at == n, out + room);
    } while (fits && at < n);
    free(block);
    if (!fits) return 0;
    put(&b, 0, b.count ? 8 - b.count : 0);
    uint32_t sum = adler(data, n);
    for (int i = 0; i < 4; i++) *b.at++ = (unsigned char)(sum >> (24 - 8 * i));
    return (size_t)(b.at - out);
}
