/* tok_unicode.c - see tok_unicode.h. Look-ups go through one array of flags for all of Unicode that each
 * tokenizer fills from the generated table when it is opened (2 MB, well under a millisecond). */
#include "text/tok_unicode.h"

#include "text/tok_unicode_table.h"

#include <string.h>

void tok_unicode_fill(uint16_t *flags) {
    const size_t count = sizeof STEPS / sizeof *STEPS;
    memset(flags, 0, STEPS[0].first * sizeof *flags);
    for (size_t i = 0; i < count; i++) {
        uint16_t *run = flags + STEPS[i].first;
        size_t size = (i + 1 < count ? STEPS[i + 1].first : UNICODE_COUNT) - STEPS[i].first, done = 1;
        *run = STEPS[i].flags;
        for (size_t n; done < size; done += n) { /* doubled: quick under a sanitizer, too */
            n = done < size - done ? done : size - done;
            memcpy(run + done, run, n * sizeof *run);
        }
    }
}

int tok_unicode_lower(uint32_t c, uint32_t out[2]) {
    out[0] = c;
    if (c == 0x130) return out[0] = 'i', out[1] = 0x307, 2;
    size_t low = 0, high = sizeof LOWER / sizeof *LOWER;
    while (low < high) { /* the first run that ends at or after c */
        size_t middle = (low + high) / 2;
        if (LOWER[middle].last < c) low = middle + 1;
        else high = middle;
    }
    if (low < sizeof LOWER / sizeof *LOWER && c >= LOWER[low].first && (c - LOWER[low].first) % LOWER[low].step == 0)
        out[0] = (uint32_t)((int32_t)c + LOWER[low].delta);
    return 1;
}

typedef enum Jamo { JAMO_NONE, JAMO_L, JAMO_V, JAMO_T, JAMO_LV, JAMO_LVT } Jamo;

static Jamo jamo(uint32_t c) {
    if (c < 0x1100 || c > 0xd7fb) return JAMO_NONE;
    if (c <= 0x115f || (c >= 0xa960 && c <= 0xa97c)) return JAMO_L;
    if (c <= 0x11a7 || (c >= 0xd7b0 && c <= 0xd7c6)) return JAMO_V;
    if (c <= 0x11ff || c >= 0xd7cb) return JAMO_T;
    if (c >= 0xac00 && c <= 0xd7a3) return (c - 0xac00) % 28 ? JAMO_LVT : JAMO_LV;
    return JAMO_NONE;
}

static bool jamo_joins(Jamo a, Jamo b) {
    if (a == JAMO_L) return b == JAMO_L || b == JAMO_V || b == JAMO_LV || b == JAMO_LVT;
    if (a == JAMO_LV || a == JAMO_V) return b == JAMO_V || b == JAMO_T;
    return (a == JAMO_LVT || a == JAMO_T) && b == JAMO_T;
}

size_t tok_unicode_cluster(const uint16_t *flags, const char *text, size_t at, size_t size) {
    size_t length;
    uint32_t last = tok_unicode_decode(text + at, &length);
    uint16_t f = flags[last];
    at += length;
    bool pictograph = f & UNICODE_PICTOGRAPH, joined = false; /* pictograph Extend*; then its ZWJ */
    bool consonant = f & UNICODE_CONSONANT, linked = false;   /* consonant [LINKED]*; a linker among them */
    while (at < size) {
        uint32_t c = tok_unicode_decode(text + at, &length);
        uint16_t g = flags[c];
        if (f & UNICODE_CONTROL) {
            if (last != '\r' || c != '\n') break;
        } else if (g & UNICODE_CONTROL) {
            break;
        } else if (!(g & UNICODE_ATTACHES) && !(f & UNICODE_PREPEND) && !(linked && g & UNICODE_CONSONANT) &&
                   !(joined && g & UNICODE_PICTOGRAPH) && !jamo_joins(jamo(last), jamo(c))) {
            break;
        }
        joined = pictograph && c == 0x200d;
        pictograph = g & UNICODE_PICTOGRAPH || (pictograph && g & UNICODE_EXTEND);
        if (g & UNICODE_CONSONANT) consonant = true, linked = false;
        else if (!(consonant && g & UNICODE_LINKED)) consonant = linked = false;
        else if (g & UNICODE_LINKER) linked = true;
        last = c, f = g;
        at += length;
    }
    return at;
}

size_t tok_unicode_check(const char *text, size_t size) {
    const unsigned char *b = (const unsigned char *)text;
    size_t i = 0;
    while (i < size) {
        if (b[i] < 0x80) {
            i++;
            continue;
        }
        size_t n = b[i] >= 0xc2 && b[i] < 0xe0 ? 2 : (b[i] & 0xf0) == 0xe0 ? 3 : b[i] >= 0xf0 && b[i] < 0xf5 ? 4 : 0;
        if (!n || n > size - i) return i;
        for (size_t k = 1; k < n; k++)
            if ((b[i + k] & 0xc0) != 0x80) return i;
        if ((b[i] == 0xe0 && b[i + 1] < 0xa0) || (b[i] == 0xed && b[i + 1] > 0x9f) ||
            (b[i] == 0xf0 && b[i + 1] < 0x90) || (b[i] == 0xf4 && b[i + 1] > 0x8f))
            return i;
        i += n;
    }
    return size;
}

/* str.isspace: White_Space, and the four separators of ASCII. */
static bool space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

void tok_unicode_strip(const char **text, size_t *size) {
    size_t length, end;
    while (*size && space(tok_unicode_decode(*text, &length))) *text += length, *size -= length;
    while (*size) {
        for (end = *size - 1; ((unsigned char)(*text)[end] & 0xc0) == 0x80;) end--;
        if (!space(tok_unicode_decode(*text + end, &length))) return;
        *size = end;
    }
}
