/* uses.h - what ran in a job: how often each variant of each op, and what became of each wanted family.
 *
 * Read from the components after the job. Not the decision (fusion.h). Easy to get wrong: counts belong to the calls of
 * one job, and a text that was remembered from an earlier job counts nothing in its encoder. */
#ifndef USES_H
#define USES_H

#include "model.h"

/* The part's i-th Mount, when its family was wanted in the last job and the part calls its ops; else NULL. */
const Mount *uses_mount(const Part *part, int i);
/* Fills dispatch and family of *out from the job that has just run; ERR_MEMORY. */
Status uses_collect(const Model *m, Media *out, Error *e);
/* A line a component and wanted family, as the last job or plan left them. */
void uses_explain(const Model *m, FILE *out);

#endif
