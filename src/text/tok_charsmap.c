/* tok_charsmap.c - the Precompiled normaliser: SentencePiece's character map in a Darts double array.
 *
 * The map is applied as the reference library does it, oddities included: the text is cut into grapheme
 * clusters; a cluster of fewer than six bytes is replaced as a whole by the replacement of the SHORTEST key
 * that begins it, so marks after a mapped base character vanish; longer clusters are replaced character by
 * character. Easy to get wrong: a NUL byte ends the search in the array, so U+0000 is never mapped. */
#include "text/tok_parts.h"
#include "text/tok_unicode.h"

#include <stdlib.h>
#include <string.h>

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes into out, which holds 3 * (size / 4) bytes; returns the count, or -1. */
static int64_t base64_decode(const char *in, size_t size, unsigned char *out) {
    if (size % 4) return -1;
    int64_t n = 0;
    for (size_t i = 0; i < size; i += 4) {
        int pad = i + 4 == size ? (in[i + 3] == '=') + (in[i + 3] == '=' && in[i + 2] == '=') : 0;
        int32_t word = 0;
        for (int k = 0; k < 4; k++) {
            int digit = k >= 4 - pad ? 0 : base64_digit(in[i + (size_t)k]);
            if (digit < 0) return -1;
            word = word << 6 | digit;
        }
        for (int k = 0; k < 3 - pad; k++) out[n++] = (unsigned char)(word >> (16 - 8 * k));
    }
    return n;
}

static uint32_t unit_offset(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

/* The replacement of the shortest key that begins key[0, size); NULL when there is none. */
static const char *transform(const TokCharsmap *map, const char *key, size_t size) {
    uint32_t at = unit_offset(map->units[0]);
    for (size_t i = 0; i < size && key[i]; i++) {
        at ^= (unsigned char)key[i];
        if (at >= map->unit_count) return NULL;
        uint32_t unit = map->units[at];
        if ((unit & (1u << 31 | 0xff)) != (unsigned char)key[i]) return NULL;
        at ^= unit_offset(unit);
        if (!(unit >> 8 & 1)) continue;
        uint32_t value = at < map->unit_count ? map->units[at] & 0x7fffffffu : UINT32_MAX;
        return value <= map->text_size && ((unsigned char)map->text[value] & 0xc0) != 0x80 ? map->text + value : NULL;
    }
    return NULL;
}

Status tok_charsmap_parse(const char *base64, TokCharsmap *map, const char *where, Error *e) {
    size_t size = strlen(base64);
    unsigned char *raw = malloc(size / 4 * 3 + 1);
    if (!raw) return fail(e, ERR_MEMORY, "%s: out of memory", where);
    int64_t n = base64_decode(base64, size, raw);
    uint32_t bytes = n >= 4 ? raw[0] | raw[1] << 8 | raw[2] << 16 | (uint32_t)raw[3] << 24 : 0;
    if (n < 8 || bytes % 4 || !bytes || bytes > (uint64_t)n - 4) {
        free(raw);
        return fail(e, ERR_MODEL, "%s: normalizer: precompiled_charsmap is damaged", where);
    }
    map->unit_count = bytes / 4;
    map->text_size = (uint32_t)(n - 4 - bytes);
    map->units = malloc(bytes);
    map->text = malloc((size_t)map->text_size + 1);
    if (map->units && map->text) {
        for (uint32_t i = 0; i < map->unit_count; i++) {
            const unsigned char *b = raw + 4 + 4 * (size_t)i;
            map->units[i] = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        }
        memcpy(map->text, raw + 4 + bytes, map->text_size);
        map->text[map->text_size] = 0;
    }
    free(raw);
    if (!map->units || !map->text) return fail(e, ERR_MEMORY, "%s: out of memory", where);
    if (tok_unicode_check(map->text, map->text_size) != map->text_size)
        return fail(e, ERR_MODEL, "%s: normalizer: precompiled_charsmap: replacements are not valid UTF-8", where);
    for (int c = 0; c < 128; c++) {
        char key = (char)c;
        map->plain[c] = c != '\r' && !transform(map, &key, 1);
    }
    return OK;
}

Status tok_charsmap_run(const uint16_t *flags, const TokCharsmap *map, const TokText *in, TokText *out, Error *e) {
    out->size = 0;
    uint32_t at = 0;
    while (at < in->size) {
        /* Plain ASCII before ASCII is a cluster of its own. Such runs are copied at once. */
        uint32_t run = at;
        while (run < in->size && (unsigned char)in->bytes[run] < 128 && map->plain[(unsigned char)in->bytes[run]] &&
               (run + 1 == in->size || (unsigned char)in->bytes[run + 1] < 128))
            run++;
        TRY(tok_text_copy(out, in, at, run, e));
        if (run == in->size) break;
        at = run;
        uint32_t end = (uint32_t)tok_unicode_cluster(flags, in->bytes, at, in->size);
        const char *to = end - at < 6 ? transform(map, in->bytes + at, end - at) : NULL;
        if (to) {
            TRY(tok_text_put(out, to, strlen(to), in->from[at], in->to[end - 1], e));
            at = end;
        }
        while (at < end) {
            uint32_t next = at + (uint32_t)tok_unicode_length(in->bytes[at]);
            to = transform(map, in->bytes + at, next - at);
            if (to) TRY(tok_text_put(out, to, strlen(to), in->from[at], in->to[next - 1], e));
            else TRY(tok_text_copy(out, in, at, next, e));
            at = next;
        }
    }
    return OK;
}

void tok_charsmap_free(TokCharsmap *map) {
    free(map->units);
    free(map->text);
}
