/* meta.h - the text that travels inside a PNG or a video file: what was asked for, resolved, so that it can be made again.
 *
 * Two forms. "ditto": one JSON object with every parameter that touches the pixels. "parameters": the convention of the
 * common web UIs (prompt, "Negative prompt: ...", then "Steps: 28, Sampler: Euler, ..."), which their readers parse.
 * Not the PNG chunks themselves (media/png.h).
 * Easy to get wrong: seeds go up to 2^64-1, but many JSON readers hold integers up to 2^53 only: larger ones are
 * written as strings. */
#ifndef META_H
#define META_H

#include "pipeline.h"

/* What latents are on their way to, for `ditto decode`. The folder is not told: they lie in the same. */
typedef struct MetaOutput {
    const char *name;  /* last part of its path, a frames' counter still in it; NULL: not told */
    const char *codec; /* as asked for; NULL: what the name says */
    int crf;           /* as asked for; -1: the codec's default */
    bool no_metadata;
} MetaOutput;

typedef struct Meta {
    const Job *job;    /* resolved; its seed is the picture's own */
    const char *title; /* of the model */
    const char *device;
    DType dtype;
    DType vae_dtype; /* DTYPE_NONE: no other than dtype */
    const char *sampler; /* pipeline_sampler(); NULL: "Euler" */
    const char *path;    /* what -m was; NULL: not told; an absolute path is not told either */
    const char *profile; /* profile_text(); NULL: not told */
    bool clip;           /* tell frames and their rate */
    int frame;           /* of a PNG that is one frame of a clip, counted from 1; 0: it is not */
    const char *codec;   /* of a video file, with its crf (-1: none); NULL: another file */
    int crf;
    const char *sound;   /* codec of its sound; NULL: silent, or another file */
    const MetaOutput *output; /* of latents; NULL: of another file */
} Meta;

/* Of a picture or clip that p makes of this job: all but where it goes, path and profile, which the caller adds. */
Meta meta_of(const Pipeline *p, const Job *job);

/* malloc'd JSON object on one line; with media, it names the mounted families; with path, it begins with event "result", status
 * "done" and "path", counts the families' runs and ends with refusals, dispatch counts and seconds of media (for --json).
 * NULL when out of memory. */
char *meta_json(const Meta *m, const char *path, const Media *media);
/* malloc'd text of the web UIs' convention; NULL when out of memory. */
char *meta_parameters(const Meta *m);

/* "seed", a string above 2^53, into a cJSON object; false when out of memory. */
struct cJSON;
bool meta_add_seed(struct cJSON *o, uint64_t seed);

/* Whether the model of this resolved job takes distilled guidance. */
bool meta_has_guidance(const Job *job);

/* What a PNG or a video file carries, for `ditto inspect`: each text under its key in brackets, or one JSON object of key and
 * text. Of a video, and of sound, also a line about each
 * stream. Control characters of foreign files do not reach the terminal. ERR_IO when the file is damaged. */
Status meta_print(const char *path, FILE *out, bool json, Error *e);

#endif
