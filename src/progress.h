/* progress.h - how far a picture is: the progress line on a terminal (phase, step k of n, seconds a step, time to go), and the
 * same as an event for other programs.
 *
 *   {"event":"progress",...,"phase":"denoise","done":3,"total":28,"seconds":0.412,"remaining":3.433}
 *
 * Feeds on the callback of pipeline_render. On anything but a terminal it prints nothing, or, when verbose, one line a
 * finished phase. Not a log: other lines for people must call progress_clear first.
 * Easy to get wrong: seconds and rate are those of the running phase; before its first step is done there is no rate, and an
 * event then has no "remaining". */
#ifndef PROGRESS_H
#define PROGRESS_H

#include "pipeline.h"

#include <stdbool.h>
#include <stdio.h>

/* Since when the phase runs; zeroed before a picture. */
typedef struct ProgressClock {
    char phase[32];
    double start; /* monotonic seconds */
} ProgressClock;

typedef struct ProgressLine {
    FILE *out; /* NULL: silent */
    bool terminal, verbose;
    const char *label; /* "2/4 " before the phase, or "" */
    ProgressClock clock;
    bool shown;   /* a line stands on the terminal */
} ProgressLine;

/* Seconds since the phase began: it begins when it is first asked for. */
double progress_seconds(ProgressClock *clock, const char *phase);
/* Adds phase, done, total, seconds and, when it can be told, remaining to an event's object. */
struct cJSON;
void progress_event(struct cJSON *event, const char *phase, int done, int total, double seconds);
/* The callback; user is a ProgressLine. */
void progress_step(void *user, const char *phase, int done, int total);
/* Removes the line from the terminal. */
void progress_clear(ProgressLine *line);

/* "  denoise 5/28  1.23 s/step  ETA 0:28" into text; pure, for tests. seconds: since the phase began. */
void progress_text(char *text, size_t size, const char *label, const char *phase, int done, int total,
                   double seconds);

#endif
