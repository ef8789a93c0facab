/* sched.h - the noise levels of a run: diffusers' FlowMatchEulerDiscreteScheduler (0.40) as tables.
 *
 * A Schedule holds what the scheduler object holds after set_timesteps(): sigmas and timesteps, equal in
 * bits, because every product is rounded where numpy rounds it (f32 when the pipeline passes sigmas, f64 when
 * the scheduler makes its own). The Euler update itself is an op; here are only the numbers it takes. Not
 * here: DPM-Solver++ (sched_dpm.h) and other solvers.
 *
 * Easy to get wrong:
 *  - The pipelines pass sigmas 1 .. 1/n, not 1 .. 0: the last step goes from shift(1/n) to 0.
 *  - FLUX and LTX-2 take numpy's linspace (f64, then f32), Z-Image torch's (f32, fused, from both ends).
 *  - A static shift with no sigmas passed is applied twice at the low end, because sigma_min is stored
 *    already shifted. That is diffusers' behaviour and is kept.
 *  - The model does not see `timesteps` but sched_model_timestep() of them: in bf16 750 becomes 752.
 *  - In a 16-bit run the Euler step multiplies by dt rounded to 16 bits, in an f32 run by dt itself. */
#ifndef SCHED_H
#define SCHED_H

#include "core/json.h"
#include "core/status.h"
#include "core/tensor.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCHED_MAX_STEPS = 10000 };

typedef struct SchedConfig {
    int64_t num_train_timesteps;           /* 1000 */
    double shift;                          /* static shift; unused when use_dynamic_shifting */
    bool use_dynamic_shifting;             /* shift by mu, which depends on the number of image tokens */
    double base_shift, max_shift;          /* mu at base_image_seq_len and at max_image_seq_len tokens */
    int64_t base_image_seq_len, max_image_seq_len;
    double shift_terminal;                 /* stretch the table to end here before the final 0; 0: off */
    bool invert_sigmas;                    /* sigmas rise from 0 and end at 1 */
    bool use_karras_sigmas, use_exponential_sigmas;
    bool linear_time_shift;                /* time_shift_type: "linear" instead of "exponential" */
    bool use_flow_sigmas;                  /* the FLUX pipeline then lets the scheduler make its sigmas */
} SchedConfig;

typedef struct Schedule {
    int steps;
    float *sigmas;                         /* [steps + 1], strictly falling to 0 (inverted: rising to 1) */
    float *timesteps;                      /* [steps], num_train_timesteps * sigma */
    double mu;                             /* of the dynamic shift; 0 when the shift is static */
} Schedule;

/* Reads scheduler_config.json. Absent keys take diffusers' defaults. ERR_MODEL, naming file and key, for
 * another scheduler class, use_beta_sigmas, stochastic_sampling, two sigma conversions at once, an unknown
 * time_shift_type or a value outside its range. */
Status sched_config_read(const char *path, SchedConfig *out, Error *e);
/* The same from parsed JSON; `where` names it in messages. */
Status sched_config_parse(const Json *object, const char *where, SchedConfig *out, Error *e);

/* mu of calculate_shift(): a straight line in the number of image tokens, not clamped. */
double sched_mu(const SchedConfig *c, int64_t image_tokens);

/* set_timesteps(steps, sigmas, mu). sigmas: [steps], or NULL for the scheduler's own; mu counts only with
 * use_dynamic_shifting. ERR_USAGE when steps is not in 1..SCHED_MAX_STEPS or the resulting table does not
 * strictly fall to 0 with finite values (shift_terminal with 1 step, where diffusers makes NaN). */
Status sched_make(const SchedConfig *c, int steps, const double *sigmas, double mu, Schedule *out, Error *e);

/* As FluxPipeline and LTX2Pipeline call it: numpy.linspace(1, 1/steps, steps). image_tokens counts the tokens
 * of the generated picture alone (1024x1024: 4096). */
Status sched_flux(const SchedConfig *c, int steps, int64_t image_tokens, Schedule *out, Error *e);
/* As ZImagePipeline calls it: torch.linspace(1, 1/steps, steps). */
Status sched_zimage(const SchedConfig *c, int steps, int64_t image_tokens, Schedule *out, Error *e);

void sched_free(Schedule *s);

/* Element i of numpy.linspace(first, last, n), in f64. */
double sched_linspace(double first, double last, int n, int i);

/* Element i of torch.linspace(first, last, n, dtype=float32). */
double sched_linspace_torch(float first, float last, int n, int i);

/* The factor of the Euler step `step` (0-based): sigmas[step + 1] - sigmas[step] in f32, then rounded to the
 * dtype of the model's output: a 0-dimensional f32 does not promote a 16-bit tensor, so torch rounds it. */
float sched_dt(const Schedule *s, int step, DType dtype);

/* What FLUX's sinusoid gets for timestep t (0..1000): t -> dtype, / 1000 -> dtype (pipeline), * 1000 -> dtype
 * (model). torch divides on the CPU and multiplies by fl32(1/1000) on CUDA: equal for every bf16 t and f16 t
 * >= 0.001; in an f32 run the CPU's division is meant. */
float sched_model_timestep(float t, DType dtype);
/* And for the distilled guidance: g -> dtype, * 1000 -> dtype. 3.5 in bf16 gives 3504. */
float sched_model_guidance(float guidance, DType dtype);

#endif
