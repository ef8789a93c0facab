/* tok_unicode.h - what a code point is, as the reference tokenizers see it, and UTF-8.
 *
 * The facts come from a generated table and not from the system's libraries: the reference mixes several
 * Unicode versions, and ids must not depend on the distribution. Easy to get wrong: "letter" here is what
 * the reference's regular expressions call a letter, which lags behind the newest Unicode. */
#ifndef TOK_UNICODE_H
#define TOK_UNICODE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of tok_unicode_flags(); the generator's order. */
enum {
    UNICODE_LETTER = 1 << 0,   /* \p{L} */
    UNICODE_NUMBER = 1 << 1,   /* \p{N} */
    UNICODE_SPACE = 1 << 2,    /* \s, and char::is_whitespace */
    UNICODE_COMPOSES = 1 << 3, /* the system's NFC may see it; all other code points NFC leaves alone */
    UNICODE_MOVES = 1 << 4,    /* NFC may change a text only if it holds one of these */
    UNICODE_ATTACHES = 1 << 5, /* never starts a grapheme cluster after a non-control: Extend, SpacingMark, ZWJ */
    UNICODE_PREPEND = 1 << 6,
    UNICODE_CONTROL = 1 << 7,  /* CR and LF included */
    UNICODE_PICTOGRAPH = 1 << 8,
    UNICODE_EXTEND = 1 << 9,   /* of ATTACHES, those allowed between a pictograph and its ZWJ */
    UNICODE_CONSONANT = 1 << 10,
    UNICODE_LINKER = 1 << 11,
    UNICODE_LINKED = 1 << 12,  /* allowed between consonants around a linker, linkers included */
    UNICODE_CASED = 1 << 13,   /* has a lower case other than itself */
};

enum { UNICODE_COUNT = 0x110000 };

/* Fills flags[UNICODE_COUNT]. */
void tok_unicode_fill(uint16_t *flags);

/* Lower case of a CASED code point: 1 or 2 code points into out. */
int tok_unicode_lower(uint32_t c, uint32_t out[2]);

/* End of the extended grapheme cluster that starts at text[at], at < size; valid UTF-8. Regional indicators
 * are not paired: no caller can tell. */
size_t tok_unicode_cluster(const uint16_t *flags, const char *text, size_t at, size_t size);

/* Offset of the first byte that is not valid UTF-8 (overlong forms, surrogates and numbers beyond U+10FFFF
 * are not), or size. */
size_t tok_unicode_check(const char *text, size_t size);
/* Python's str.strip() of valid UTF-8: leaves the first and the last character that is no white space. */
void tok_unicode_strip(const char **text, size_t *size);

/* Length in bytes of the character that starts with this byte, in valid UTF-8. */
static inline size_t tok_unicode_length(char first) {
    unsigned char b = (unsigned char)first;
    return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

/* The code point at p, in valid UTF-8; *length is its size in bytes. */
static inline uint32_t tok_unicode_decode(const char *p, size_t *length) {
    const unsigned char *b = (const unsigned char *)p;
    if (b[0] < 0x80) return *length = 1, b[0];
    if (b[0] < 0xe0) return *length = 2, (b[0] & 31u) << 6 | (b[1] & 63u);
    if (b[0] < 0xf0) return *length = 3, (b[0] & 15u) << 12 | (b[1] & 63u) << 6 | (b[2] & 63u);
    return *length = 4, (b[0] & 7u) << 18 | (b[1] & 63u) << 12 | (b[2] & 63u) << 6 | (b[3] & 63u);
}

/* Writes c into out; returns its size in bytes. */
static inline size_t tok_unicode_encode(uint32_t c, char out[4]) {
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) return out[0] = (char)(0xc0 | c >> 6), out[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 63)), out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18), out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63)), out[3] = (char)(0x80 | (c & 63));
    return 4;
}

#endif
