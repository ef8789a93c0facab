/* clip.h - how many frames a job has, and how many of them make a second.
 *
 * A number of frames that the model cannot make is refused with its neighbours; a time is rounded to the nearest number it can
 * make, which whoever asked is told. Not the sizes of a frame: those are the model's resolve().
 * Easy to get wrong: seconds stay in the job and win over frames, so that resolving twice changes nothing. */
#ifndef CLIP_H
#define CLIP_H

#include "pipeline.h"

/* The clips that a model makes: 1 + step k frames, k >= 0. */
typedef struct ClipRule {
    int step;   /* 4: 1, 5, 9 ...; 1: any number */
    int frames; /* the default */
    int most;   /* 0: no limit of the model's */
    Rate fps;   /* the default */
} ClipRule;

/* Fills frames and fps. rule NULL: a model of pictures, `makes` names it in refusals. ERR_USAGE names option and values. */
Status clip_resolve(const ClipRule *rule, const char *makes, Job *job, Error *e);
/* "5 s at 16 frames a second are 80 frames; made are 81, 5.0625 s" into out when the time was rounded; else "". */
const char *clip_rounded(const Job *resolved, char *out, size_t size);
/* What --dry-run says of it. */
void clip_describe(const Job *resolved, FILE *out);

#endif
