/* meta_read.h - the other direction of meta.h: the parameters that a PNG carries, as a job.
 *
 * Not the web UIs' text. Easy to get wrong: what a parameter means is the pipeline's, so a record with a key that this program
 * does not know, or with stages that were put in from files, is refused rather than read without it. */
#ifndef META_READ_H
#define META_READ_H

#include "core/json.h"
#include "media/png.h"
#include "pipeline.h"

typedef struct MetaRecord {
    PngTexts texts;
    Json *json;         /* ditto's object, whatever is in it */
    const char *path;   /* the caller's */
    const char *device; /* by meta_read_job, as all that follows; strings are the record's */
    DType dtype;
    const char *image_sha256; /* of the picture that it began from; NULL: none */
    Job job;
    char families[512]; /* job.families */
} MetaRecord;

/* ERR_IO: no readable PNG; ERR_USAGE: it carries no object of ditto's; ERR_MODEL: broken JSON. Close it in any case. */
Status meta_read_open(const char *path, MetaRecord *r, Error *e);
void meta_read_close(MetaRecord *r);
/* Fills device to families. image: the picture that this one began from, which the record can only name; NULL: none given.
 * ERR_USAGE names what is missing or unknown; ERR_MODEL a value of another type. */
Status meta_read_job(MetaRecord *r, const char *image, Error *e);

#endif
