/* sched_dpm.c - see sched_dpm.h. */
#include "sched_dpm.h"

#include "sched_dpm_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- configuration --- */

static Status want_word(const Json *o, const char *key, const char *by_default, const char *want, const char *where, Error *e) {
    const char *found = by_default;
    TRY(json_string(o, key, &found, where, e));
    if (!strcmp(found, want)) return OK;
    return fail(e, ERR_MODEL, "%s: %s: found %.80s, expected %s", where, key, found, want);
}

static Status want_bool(const Json *o, const char *key, bool by_default, bool want, const char *where, Error *e) {
    bool found = by_default;
    TRY(json_bool(o, key, &found, where, e));
    if (found == want) return OK;
    return fail(e, ERR_MODEL, "%s: %s: found %s, expected %s", where, key, found ? "true" : "false", want ? "true" : "false");
}

/* The class's defaults where a key is absent. Keys of the other noise schedules (beta_start, timestep_spacing,
 * lambda_min_clipped, ...) have no effect with flow sigmas and are not read; neither have lower_order_final and
 * euler_at_final, since the last step to sigma 0 is of first order in any case. */
Status sched_dpm_config_parse(const Json *object, const char *where, DpmConfig *out, Error *e) {
    static const char *const OFF[] = {"thresholding",    "use_karras_sigmas", "use_exponential_sigmas",
                                      "use_beta_sigmas", "use_lu_lambdas",    "use_dynamic_shifting"};
    DpmConfig c = {.num_train_timesteps = 1000, .flow_shift = 1, .order = 2};
    TRY(want_word(object, "_class_name", "DPMSolverMultistepScheduler", "DPMSolverMultistepScheduler", where, e));
    TRY(want_bool(object, "use_flow_sigmas", false, true, where, e));
    TRY(want_word(object, "prediction_type", "epsilon", "flow_prediction", where, e));
    TRY(want_word(object, "algorithm_type", "dpmsolver++", "dpmsolver++", where, e));
    TRY(want_word(object, "solver_type", "midpoint", "midpoint", where, e));
    TRY(want_word(object, "final_sigmas_type", "zero", "zero", where, e));
    for (size_t i = 0; i < sizeof OFF / sizeof *OFF; i++) TRY(want_bool(object, OFF[i], false, false, where, e));
    TRY(json_int(object, "num_train_timesteps", &c.num_train_timesteps, where, e));
    TRY(json_double(object, "flow_shift", &c.flow_shift, where, e));
    TRY(json_int(object, "solver_order", &c.order, where, e));
    if (c.num_train_timesteps < 2 || c.num_train_timesteps > 1000000)
        return fail(e, ERR_MODEL, "%s: num_train_timesteps: expected 2..1000000", where);
    if (!(c.flow_shift > 0) || !isfinite(c.flow_shift))
        return fail(e, ERR_MODEL, "%s: flow_shift: expected a number above 0", where);
    if (c.order < 1 || c.order > 2)
        return fail(e, ERR_MODEL, "%s: solver_order: found %lld, expected 1 or 2", where, (long long)c.order);
    *out = c;
    return OK;
}

/* --- tables --- */

Status sched_dpm_make(const DpmConfig *c, int steps, Schedule *out, Error *e) {
    *out = (Schedule){0};
    if (steps < 1 || steps > SCHED_MAX_STEPS)
        return fail(e, ERR_USAGE, "steps: found %d, expected 1..%d", steps, SCHED_MAX_STEPS);
    float *values = malloc((2 * (size_t)steps + 1) * sizeof *values);
    if (!values) return fail(e, ERR_MEMORY, "out of memory for %d steps", steps);
    Schedule s = {.steps = steps, .sigmas = values, .timesteps = values + steps + 1};
    double train = (double)c->num_train_timesteps;
    for (int i = 0; i < steps; i++) {
        double sigma = 1.0 - sched_linspace(1, 1 / train, steps + 1, steps - i);
        sigma = c->flow_shift * sigma / (1 + (c->flow_shift - 1) * sigma);
        s.sigmas[i] = (float)sigma;
        s.timesteps[i] = (float)trunc(sigma * train);
    }
    s.sigmas[steps] = 0;
    for (int i = 0; i < steps; i++)
        if (!(s.sigmas[i] > s.sigmas[i + 1] && s.sigmas[0] < 1)) {
            free(values);
            return fail(e, ERR_USAGE, "%d steps: sigma %d does not fall, or is 1; try another number of steps", steps, i);
        }
    *out = s;
    return OK;
}

/* --- a step --- */

static bool listed(const uint32_t *sorted, int count, uint32_t bits) {
    for (int low = 0, high = count; low < high;) {
        int at = low + (high - low) / 2;
        if (sorted[at] == bits) return true;
        if (sorted[at] < bits) low = at + 1;
        else high = at;
    }
    return false;
}

/* nearest: the correctly rounded value of the function at x. */
static float recorded(float x, float nearest, const SchedDpmFixes *fixes) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (listed(fixes->above, fixes->above_count, bits)) return nextafterf(nearest, INFINITY);
    if (listed(fixes->below, fixes->below_count, bits)) return nextafterf(nearest, -INFINITY);
    return nearest;
}

static float log_of(float x) { return recorded(x, (float)log((double)x), &SCHED_DPM_LOG); }
static float exp_of(float x) { return recorded(x, (float)exp((double)x), &SCHED_DPM_EXP); }

/* Half the logarithm of the signal-to-noise ratio; +inf at sigma 0. */
static float lambda_of(float sigma) { return log_of(1.0f - sigma) - log_of(sigma); }

void sched_dpm_step(const DpmConfig *c, const Schedule *s, int step, float k[DPM_COEFFICIENTS]) {
    float sigma = s->sigmas[step], next = s->sigmas[step + 1];
    float h = lambda_of(next) - lambda_of(sigma);
    k[DPM_SIGMA] = sigma;
    k[DPM_SAMPLE] = next / sigma;
    k[DPM_DATA] = (1.0f - next) * (exp_of(-h) - 1.0f);
    k[DPM_HALF] = k[DPM_RATIO] = 0;
    if (c->order == 1 || step == 0 || step == s->steps - 1) return;
    float r0 = (lambda_of(sigma) - lambda_of(s->sigmas[step - 1])) / h;
    k[DPM_HALF] = 0.5f * k[DPM_DATA];
    k[DPM_RATIO] = 1.0f / r0;
}
