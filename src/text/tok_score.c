/* tok_score.c - Unigram scores, read from the text of tokenizer.json as the reference reads them.
 *
 * The reference's JSON reader does not round decimals correctly: it takes the digits as one 64-bit integer,
 * converts that to double and multiplies or divides by a power of ten, so a score can be one unit in the last
 * place off. That decides ties: in "-------------" several cuts have equal sums, or sums that differ in the
 * last bit only. The JSON library at hand keeps doubles and not the text, hence this scan. It sees only text
 * that the library has accepted. Easy to get wrong: digits beyond 2^64 are dropped, not rounded. */
#include "text/tok_parts.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 10^k as the nearest double, 0 <= k <= 308. */
static double power_of_ten(int64_t k) {
    char text[16];
    snprintf(text, sizeof text, "1e%d", (int)k);
    return strtod(text, NULL);
}

static bool is_digit(const char *p, const char *end) { return p < end && *p >= '0' && *p <= '9'; }

/* One JSON number at p. */
static double number(const char *p, const char *end) {
    bool negative = p < end && *p == '-', full = false;
    uint64_t digits = 0;
    int64_t exponent = 0, shift = 0;
    p += negative;
    for (int after = 0; after < 2; after++) { /* before and after the decimal point */
        for (; is_digit(p, end); p++) {
            uint64_t d = (uint64_t)(*p - '0');
            full |= digits > (UINT64_MAX - d) / 10;
            if (!full) digits = digits * 10 + d;
            exponent += full ? !after : -after;
        }
        if (after || p >= end || *p != '.') break;
        p++;
    }
    if (p < end && (*p | 32) == 'e') {
        bool down = ++p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        for (; is_digit(p, end); p++) shift = shift < 100000 ? shift * 10 + (*p - '0') : shift;
        exponent += down ? -shift : shift;
    }
    double f = (double)digits;
    for (; exponent < -308 && f != 0; exponent += 308) f /= 1e308;
    if (f != 0) f = exponent < 0 ? f / power_of_ten(-exponent) : exponent > 308 ? INFINITY : f * power_of_ten(exponent);
    return negative ? -f : f;
}

/* The end of the string that opens at p. */
static const char *string_end(const char *p, const char *end) {
    for (p++; p < end && *p != '"'; p++) p += *p == '\\';
    return p < end ? p + 1 : end;
}

/* Inside an object at p, just after its brace: the value of the key, NULL when it is not there. */
static const char *value_of(const char *p, const char *end, const char *key) {
    size_t size = strlen(key);
    for (int depth = 0; p < end;) {
        if (*p == '"') {
            const char *after = string_end(p, end), *colon = after;
            while (colon < end && strchr(" \t\r\n", *colon)) colon++;
            bool is_key = colon < end && *colon == ':' && depth == 0;
            if (is_key && (size_t)(after - p) == size + 2 && !memcmp(p + 1, key, size)) {
                for (p = colon + 1; p < end && strchr(" \t\r\n", *p);) p++;
                return p;
            }
            p = after;
            continue;
        }
        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        if (depth < 0) return NULL;
        p++;
    }
    return NULL;
}

void tok_score_read(const char *json, size_t size, double *scores, size_t count) {
    const char *end = json + size, *p = memchr(json, '{', size);
    p = p ? value_of(p + 1, end, "model") : NULL;
    p = p && p < end && *p == '{' ? value_of(p + 1, end, "vocab") : NULL;
    size_t row = 0;
    for (int depth = 0; p && p < end && row < count;) { /* rows are [string, number] */
        if (*p == '"') {
            p = string_end(p, end);
            continue;
        }
        depth += (*p == '[') - (*p == ']');
        if (depth <= 0) break;
        if (depth == 2 && (*p == '-' || is_digit(p, end))) {
            scores[row++] = number(p, end);
            while (p < end && *p != ']') p++;
            continue;
        }
        p++;
    }
}
