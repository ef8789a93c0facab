/* progress.h - the progress line on a terminal: phase, step k of n, seconds a step, time to go.
 *
 * Feeds on the callback of pipeline_render. On anything but a terminal it prints nothing, or, when verbose, one line a
 * finished phase. Not a log: other lines for people must call progress_clear first.
 * Easy to get wrong: the rate is that of the running phase; the first step of a phase has none yet. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include "pipeline.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct ProgressLine {
    FILE *out; /* NULL: silent */
    bool terminal, verbose;
    const char *label; /* "2/4 " before the phase, or "" */
    char phase[32];
    double start; /* of the phase, monotonic seconds */
    bool shown;   /* a line stands on the terminal */
} ProgressLine;

/* The callback; user is a ProgressLine. */
void progress_step(void *user, const char *phase, int done, int total);
/* Removes the line from the terminal. */
void progress_clear(ProgressLine *line);

/* "  denoise 5/28  1.23 s/step  ETA 0:28" into text; pure, for tests. seconds: since the phase began. */
void progress_text(char *text, size_t size, const char *label, const char *phase, int done, int total,
                   double seconds);

#endif
