/* job.h - one picture or clip on a device, from tokens to RGB: text encoders, noise, the loop over the steps, decoder.
 *
 * Or from latents that lie in a file (Job.decode_only): then the decoder alone. Runs twice: dry for the plan (one step, no
 * bytes), then for real. Not the preparation (pipeline.c), not the model.
 * Easy to get wrong: both runs must push the same tensors, or the plan is too small for the job. */
#ifndef JOB_H
#define JOB_H

#include "model.h"

/* ERR_NAN names the stage and leaves the last finite latents in *out; media_free it in any case. A dry run leaves sizes
 * only. x's work and scratch arenas are used from their marks. */
Status job_run(Model *m, Exec *x, const Run *run, Media *out);

#endif
