/* meta_read.h - the other direction of meta.h: the parameters that a PNG, a video file or a file of latents carries, as a job.
 *
 * Not the web UIs' text. Easy to get wrong: what a parameter means is the pipeline's, so a record with a key that this program
 * does not know, or with stages that were put in from files, is refused rather than read without it. */
#ifndef META_READ_H
#define META_READ_H

#include "core/json.h"
#include "media/mp4.h"
#include "media/png.h"
#include "pipeline.h"

typedef struct MetaRecord {
    PngTexts texts;
    Json *json;         /* ditto's object, whatever is in it */
    const char *path;   /* the caller's */
    const char *device; /* by meta_read_job, as all that follows; strings are the record's */
    DType dtype, vae_dtype; /* vae_dtype: DTYPE_NONE where it is not said */
    const char *image_sha256; /* of the picture that it began from; NULL: none */
    Job job;
    char families[512]; /* job.families */
    bool clip;          /* it is, or was to be, a clip */
    int frame;          /* this file is that frame of it, counted from 1; 0: all of it */
    const char *codec;  /* of a video file; NULL: another */
    int crf;            /* -1: none */
    const char *sound;  /* codec of its sound; NULL: silent */
    bool finished;      /* read by meta_read_finished() */
    int steps_run;      /* of a job that began from a picture; 0: all */
    bool to_come;       /* these are latents that a job left, on their way to the file below */
    const char *to_name; /* in their folder; NULL: not told */
    Mp4Codec to_codec;  /* MP4_AUTO: not told */
    int to_crf;         /* -1: not told */
    bool to_no_metadata;
} MetaRecord;

/* ERR_IO: no readable file of these kinds; ERR_USAGE: it carries no object of ditto's; ERR_MODEL: broken JSON. Close it in
 * any case. */
Status meta_read_open(const char *path, MetaRecord *r, Error *e);
void meta_read_close(MetaRecord *r);
/* Fills device to families. image: the picture that this one began from, which the record can only name; NULL: none given.
 * ERR_USAGE names what is missing or unknown; ERR_MODEL a value of another type. */
Status meta_read_job(MetaRecord *r, const char *image, Error *e);
/* The same for latents, whose steps have all run: the picture that they began from stays a name in job.image. */
Status meta_read_finished(MetaRecord *r, Error *e);

#endif
