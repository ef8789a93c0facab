/* guiding.h - guidance beside the classifier-free one of the picture (LTX-2): which numbers there are, their names on the
 * command line and in records of jobs, and what is off. Also the model's other settings in such records: profile, rounds,
 * picture.
 *
 * Not the formula (kernels/guide.h), not the defaults (the model's resolve()).
 * Easy to get wrong: the two kinds of scale differ in what is off: 1 for one that weighs two predictions, 0 for one that adds. */
#ifndef GUIDING_H
#define GUIDING_H

#include "core/json.h"
#include "pipeline.h"

const char *guiding_key(GuideKind kind);    /* "stg_scale"; with - the option's name */
double guiding_off(GuideKind kind);         /* the value that does nothing */
/* ERR_USAGE names an option of this kind that was given: `title` has none of them. */
Status guiding_refuse(const Job *job, const char *title, Error *e);

/* What --dry-run says of it. */
void guiding_describe(const Job *resolved, FILE *out);
/* The numbers of a resolved job into a record, and back; nothing for models without them. */
bool guiding_add(Json *record, const Job *resolved);
Status guiding_read(const Json *record, const char *where, Job *job, Error *e);

bool guiding_official(const Job *job); /* --match official: the profile of the model's authors */

/* "1,28" into a set of block numbers below GUIDING_BLOCKS. ERR_USAGE for anything else. */
enum { GUIDING_BLOCKS = 256 };
Status guiding_blocks(const char *text, bool block[GUIDING_BLOCKS], Error *e);

#endif
