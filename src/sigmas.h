/* sigmas.h - the noise levels that a run would use, printed: `ditto sigmas`.
 *
 * From the model's own schedule() and params(), the functions that the denoising loop calls; nothing is computed here.
 * Easy to get wrong: t is what the model is given for the step, rounded as its dtype demands, and dt the factor of the
 * step; neither is a plain function of the sigma beside it. */
#ifndef SIGMAS_H
#define SIGMAS_H

#include "pipeline.h"

/* Resolves the job; lines of step, sigma, timestep, t, dt between tabs, or one JSON object. */
Status sigmas_print(Pipeline *p, Job *job, bool json, FILE *out, Error *e);

#endif
