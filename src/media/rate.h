/* rate.h - frame rates as exact fractions: 24000/1001, not 23.976.
 *
 * Easy to get wrong: a decimal that is a broadcast rate rounded (23.976, 29.97, 59.94) means that rate, n * 1000/1001; every
 * other decimal is what it says (12.5 is 25/2). */
#ifndef RATE_H
#define RATE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Frames a second, num / den in lowest terms; num 0: none given. */
typedef struct Rate {
    int num, den;
} Rate;

enum { RATE_TEXT = 32 };

/* "24", "23.976" or "24000/1001", above 0 and at most 1000, a numerator and denominator of at most 10^6; false otherwise. */
bool rate_parse(const char *text, Rate *out);
/* "24" or "24000/1001". */
const char *rate_text(Rate r, char out[RATE_TEXT]);
bool rate_equal(Rate a, Rate b);
/* The number of frames nearest to that many seconds, halves up; INT64_MAX where there is no such int. */
int64_t rate_frames(Rate r, double seconds);
double rate_seconds(Rate r, int64_t frames);

#endif
