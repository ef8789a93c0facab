/* rate.c - see rate.h. */
#include "media/rate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { LARGEST = 1000000, DIGITS = 6 };

static Rate reduced(int64_t num, int64_t den) {
    int64_t a = num, b = den;
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return (Rate){(int)(num / a), (int)(den / a)};
}

/* Digits at *s as a number of at most LARGEST; -1: none, or more. */
static int64_t number(const char **s) {
    int64_t v = -1;
    for (; **s >= '0' && **s <= '9'; (*s)++) {
        v = (v < 0 ? 0 : v) * 10 + (**s - '0');
        if (v > LARGEST) return -1;
    }
    return v;
}

bool rate_parse(const char *text, Rate *out) {
    const char *s = text;
    int64_t num = number(&s), den = 1;
    if (num < 0) return false;
    if (*s == '/') {
        s++;
        den = number(&s);
    } else if (*s == '.') {
        int digits = 0;
        int64_t v = num;
        for (s++; *s >= '0' && *s <= '9' && digits < DIGITS; s++, digits++) v = v * 10 + (*s - '0'), den *= 10;
        if (!digits) return false;
        /* n * 1000 / 1001 rounded to as many digits: two at least, or 2.0 would be one */
        int64_t n = (v * 1001 + den * 500) / (den * 1000);
        if (digits > 1 && v % den && llround((double)n * 1000 / 1001 * (double)den) == v) v = n * 1000, den = 1001;
        num = v;
    }
    if (*s || den < 1 || num < 1 || num > 1000 * den) return false;
    Rate r = reduced(num, den);
    if (r.num > LARGEST || r.den > LARGEST) return false;
    *out = r;
    return true;
}

const char *rate_text(Rate r, char out[RATE_TEXT]) {
    if (r.den == 1)
        snprintf(out, RATE_TEXT, "%d", r.num);
    else
        snprintf(out, RATE_TEXT, "%d/%d", r.num, r.den);
    return out;
}

bool rate_equal(Rate a, Rate b) { return a.num == b.num && a.den == b.den; }

int64_t rate_frames(Rate r, double seconds) {
    double frames = floor(seconds * r.num / r.den + 0.5);
    return frames < INT32_MAX ? (int64_t)frames : INT64_MAX;
}

double rate_seconds(Rate r, int64_t frames) { return (double)frames * r.den / r.num; }
