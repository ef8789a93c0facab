/* progress.c - see progress.h. Draws over itself with a carriage return; 79 columns at most, so no terminal wraps it
 * and no width has to be asked for.
 * Easy to get wrong: a shorter text must erase the rest of a longer one (ESC [ K). */
#include "progress.h"

#include "core/clock.h"

#include <cjson/cJSON.h>
#include <string.h>

double progress_seconds(ProgressClock *clock, const char *phase) {
    double now = clock_now();
    if (strncmp(clock->phase, phase, sizeof clock->phase - 1)) {
        snprintf(clock->phase, sizeof clock->phase, "%s", phase);
        clock->start = now;
    }
    return now - clock->start;
}

/* Milliseconds are enough, and 17 digits of them unreadable. */
static void add_seconds(cJSON *o, const char *key, double seconds) {
    char text[48];
    snprintf(text, sizeof text, "%.3f", seconds);
    cJSON_AddRawToObject(o, key, text);
}

void progress_event(cJSON *event, const char *phase, int done, int total, double seconds) {
    cJSON_AddStringToObject(event, "phase", phase);
    cJSON_AddNumberToObject(event, "done", done);
    cJSON_AddNumberToObject(event, "total", total);
    add_seconds(event, "seconds", seconds);
    if (done > 0 && done <= total) add_seconds(event, "remaining", seconds / done * (total - done));
}

void progress_text(char *text, size_t size, const char *label, const char *phase, int done, int total,
                   double seconds) {
    enum { CELLS = 20 };
    char bar[CELLS + 1], rate[48] = "";
    int filled = total > 0 ? (int)((long long)done * CELLS / total) : 0;
    filled = filled < 0 ? 0 : filled > CELLS ? CELLS : filled;
    memset(bar, '.', CELLS);
    memset(bar, '#', (size_t)filled);
    bar[CELLS] = 0;
    if (total <= 1) {
        snprintf(text, size, "%s%s", label, phase);
        return;
    }
    if (done > 0) {
        double each = seconds / done;
        long long left = (long long)(each * (total - done) + 0.5);
        if (left >= 3600)
            snprintf(rate, sizeof rate, "  %.2f s/step  ETA %lld:%02lld:%02lld", each, left / 3600,
                     left / 60 % 60, left % 60);
        else
            snprintf(rate, sizeof rate, "  %.2f s/step  ETA %lld:%02lld", each, left / 60, left % 60);
    }
    snprintf(text, size, "%s%s [%s] %d/%d%s", label, phase, bar, done, total, rate);
}

void progress_clear(ProgressLine *line) {
    if (!line->shown) return;
    fputs("\r\033[K", line->out);
    fflush(line->out);
    line->shown = false;
}

void progress_step(void *user, const char *phase, int done, int total) {
    ProgressLine *line = user;
    if (!line->out) return;
    double seconds = progress_seconds(&line->clock, phase);
    if (!line->terminal) {
        if (line->verbose && done == total)
            fprintf(line->out, "%s%s: %.2f s\n", line->label, phase, seconds);
        return;
    }
    char text[80];
    progress_text(text, sizeof text, line->label, phase, done, total, seconds);
    fprintf(line->out, "\r%s\033[K", text);
    fflush(line->out);
    line->shown = true;
}
