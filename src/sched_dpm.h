/* sched_dpm.h - diffusers' DPMSolverMultistepScheduler (0.40) on flow sigmas, as SANA-Video's checkpoints set it: DPM-Solver++
 * of second order (2M, midpoint), flow prediction.
 *
 * A Schedule (sched.h) holds sigmas and timesteps as the scheduler's set_timesteps() leaves them; a step's numbers are
 * coefficients of the op dpm_step (kernels/elementwise.h). Not here: the many other configurations of that class, which are
 * refused by name.
 * Easy to get wrong:
 *  - Timesteps are truncated to integers, sigmas are not; the model sees the integer.
 *  - The first sigma is not 1, and the last step, to sigma 0, always is of first order: it returns the data prediction.
 *  - Coefficients are f32 arithmetic on f32 sigmas. PyTorch's log and exp of one f32 are MKL's, an ulp off the nearest f32 here
 *    and there: sched_dpm_table.c holds the recorded differences for flow_shift 8 up to 100 steps; elsewhere the nearest is
 *    taken, and latents may differ from the reference's by their last bits.
 *  - From 144 steps on the first two timesteps coincide and diffusers starts at the wrong one and fails; here all steps run. */
#ifndef SCHED_DPM_H
#define SCHED_DPM_H

#include "kernels/elementwise.h"
#include "sched.h"

typedef struct DpmConfig {
    int64_t num_train_timesteps; /* 1000 */
    double flow_shift;           /* 1; published: 8 */
    int64_t order;               /* solver_order, 1 or 2 */
} DpmConfig;

/* scheduler_config.json of class DPMSolverMultistepScheduler. ERR_MODEL, naming file and key, for another class and for every
 * setting that is not this solver. */
Status sched_dpm_config_parse(const Json *object, const char *where, DpmConfig *out, Error *e);

/* set_timesteps(steps). ERR_USAGE when steps is not in 1..SCHED_MAX_STEPS. */
Status sched_dpm_make(const DpmConfig *c, int steps, Schedule *out, Error *e);

/* k of step `step` (0-based). The first and the last step are of first order. */
void sched_dpm_step(const DpmConfig *c, const Schedule *s, int step, float k[DPM_COEFFICIENTS]);

#endif
