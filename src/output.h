/* output.h - from what a pipeline made to its file or files, whatever their kind; and a clip's latents, kept beside the file
 * until it is there.
 *
 * Not the names (names.h), not the bytes (picture.h), not what is in the texts (meta.h). Prints nothing.
 * Easy to get wrong: latents are kept before the decode that may fail, so whether they can be is asked before any work. That
 * they could not be written is no failure of the job, which may still succeed: it is said. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "names.h"
#include "picture.h"

typedef struct OutputOptions {
    Mp4Codec codec; /* MP4_AUTO: the file's kind decides */
    int crf;        /* -1: the codec's default */
    Sound sound; /* rate and channels of what the model's clips are heard with; rate 0: they are silent */
    bool no_metadata, overwrite;
    const volatile int *interrupted;
} OutputOptions;

/* How files of this kind are encoded, into *video; false: they are PNG. */
bool output_video(NamesKind kind, const OutputOptions *o, Mp4Options *video);
/* The same into meta's codec, crf and sound. */
void output_describe(NamesKind kind, const OutputOptions *o, Meta *meta);

/* Refuses, before anything is rendered, what could not be written later: a kind that the job does not make (clips: the model
 * does; title names it), codecs that are not there, sides they do not allow, latents of an earlier run that wait for their
 * decode. */
Status output_check(const char *path, NamesKind kind, bool clips, const char *title, const Job *resolved,
                    const OutputOptions *o, Error *e);
/* Writes file k; beside the frames of a clip its sound, as names_sound() has it: WAV of 32-bit floats, the samples' own. What it
 * wrote of a clip before a failure is removed. meta without frame, codec, crf and sound. */
Status output_write(const Names *names, int k, const Meta *meta, const Media *media, const OutputOptions *o, Error *e);

/* --- latents --- */

typedef struct OutputLatents {
    char *path;        /* NAME.latents.safetensors, malloc'd */
    Meta meta;         /* what the file will say of the job, its output included */
    MetaOutput output;
    bool overwrite;
    bool written;
    char why[400];    /* not written, and why; "": no fault */
    LatentsWatch watch; /* for Job.keep */
} OutputLatents;

/* For the file, or the frames, of that name. l stays where it is, and so do path and what meta points to. ERR_MEMORY. */
Status output_latents_open(const char *path, const Meta *meta, const OutputOptions *o, OutputLatents *l, Error *e);
/* The job failed with e: says in its text where the latents are; media's, of a step that failed with ERR_NAN, are written first.
 * Without e nothing failed. Returns their path when the finished latents lie there, for output_latents_settle(); else NULL. */
char *output_latents_close(OutputLatents *l, const Media *media, Error *e);
/* The file is there (e NULL): removes the latents. Else says in e's text where they lie. Frees path, which may be NULL. */
void output_latents_settle(char *path, Error *e);

#endif
