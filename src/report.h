/* report.h - what a run was computed with and what it cost, from the pipeline that did it: `--report` as JSON, `--explain`
 * for people.
 *
 * Says who ran each operation (counts by implementation), the memory plan beside the measured peaks, and whether bits are
 * promised here (profile.h). Not the picture's metadata (meta.h), though it carries that too.
 * Easy to get wrong: a GPU has no peak per process to ask for. What our ranges took at most is exact; what the driver and
 * the libraries take beside them is what is in use at the end beyond our ranges, so another process on the GPU counts. */
#ifndef REPORT_H
#define REPORT_H

#include "meta.h"

#include <stdio.h>

typedef struct ReportPicture {
    const char *path;
    uint64_t seed;
    double plan, text, denoise, decode, write; /* seconds */
} ReportPicture;

typedef struct Report {
    const Meta *meta;             /* what the first picture's file says of itself: the parameters here are the same */
    double open, all;             /* seconds from the start: until the pipeline was open, until now */
    const ReportPicture *picture; /* in order */
    int count;
    struct OpTimes *ops;          /* collected; NULL: ops were not timed */
} Report;

/* Most bytes of host memory that were resident at once, mapped files included. */
size_t report_host_peak(void);
/* One JSON object over several lines, malloc'd. ERR_DEVICE when the GPU does not answer any more. */
Status report_json(const Report *r, const Pipeline *p, char **out, Error *e);
/* The same without the parameters, as lines of text. Before the first picture: libraries and bits only. */
Status report_explain(const Pipeline *p, FILE *out, Error *e);

#endif
