/* clip.c - see clip.h. */
#include "clip.h"

#include <stdio.h>

static Status no_clip(const char *makes, Job *job, Error *e) {
    const char *option = job->frames > 1 ? "--frames" : job->seconds > 0 ? "--seconds" : job->fps.num ? "--fps" : NULL;
    if (option) return fail(e, ERR_USAGE, "%s: %s makes pictures, no clips", option, makes);
    job->frames = 1;
    return OK;
}

/* The largest number of frames, 1 + step k, that is at most n, which is at least 1. */
static int64_t below(const ClipRule *rule, int64_t n) { return (n - 1) / rule->step * rule->step + 1; }

static Status from_seconds(const ClipRule *rule, Job *job, Error *e) {
    int64_t asked = rate_frames(job->fps, job->seconds);
    if (asked > 1 << 24 || (rule->most && asked > rule->most))
        return fail(e, ERR_USAGE, "--seconds: %g at %d/%d frames a second are too many frames; at most %d can be made",
                    job->seconds, job->fps.num, job->fps.den, rule->most ? rule->most : 1 << 24);
    int64_t low = below(rule, asked < 1 ? 1 : asked), high = low + rule->step;
    bool up = asked > low && high - asked <= asked - low && (!rule->most || high <= rule->most);
    job->frames = (int)(up ? high : low);
    return OK;
}

static Status check_frames(const ClipRule *rule, const Job *job, Error *e) {
    int n = job->frames, low = n < 1 ? 1 : (int)below(rule, n), high = low + rule->step;
    if (rule->most && n > rule->most) return fail(e, ERR_USAGE, "--frames %d: at most %d can be made", n, rule->most);
    if (n == low) return OK;
    if (rule->most && high > rule->most)
        return fail(e, ERR_USAGE, "--frames %d: expected 1 and a multiple of %d; the nearest is %d", n, rule->step,
                    low);
    return fail(e, ERR_USAGE, "--frames %d: expected 1 and a multiple of %d; the nearest are %d and %d", n, rule->step,
                low, high);
}

Status clip_resolve(const ClipRule *rule, const char *makes, Job *job, Error *e) {
    if (!rule) return no_clip(makes, job, e);
    if (!job->fps.num) job->fps = rule->fps;
    if (job->seconds > 0) return from_seconds(rule, job, e);
    if (!job->frames) job->frames = rule->frames;
    return check_frames(rule, job, e);
}

const char *clip_rounded(const Job *job, char *out, size_t size) {
    char rate[RATE_TEXT];
    out[0] = 0;
    if (!(job->seconds > 0) || rate_frames(job->fps, job->seconds) == job->frames) return out;
    snprintf(out, size, "%g s at %s frames a second are %lld frames; made are %d, %g s", job->seconds,
             rate_text(job->fps, rate), (long long)rate_frames(job->fps, job->seconds), job->frames,
             rate_seconds(job->fps, job->frames));
    return out;
}

void clip_describe(const Job *job, FILE *out) {
    char rate[RATE_TEXT], rounded[200];
    fprintf(out, "clip           %d frames at %s a second, %g s\n", job->frames, rate_text(job->fps, rate),
            rate_seconds(job->fps, job->frames));
    if (clip_rounded(job, rounded, sizeof rounded)[0]) fprintf(out, "note           %s\n", rounded);
}
