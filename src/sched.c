/* sched.c - see sched.h. One path serves both precisions of the reference: all arithmetic is done in double
 * and rounded to f32 after every operation when the reference works in f32. For + - * / that gives the bits
 * of the f32 operation, since double has more than twice its mantissa. Easy to get wrong: a Python float
 * meeting an f32 array is itself rounded to f32 first (1 + (shift - 1) * s: shift - 1 in double, then
 * rounded). */
#include "sched.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- configuration --- */

static Status refuse(const char *where, const char *key, const char *why, Error *e) {
    return fail(e, ERR_MODEL, "%s: %s: %s", where, key, why);
}

Status sched_config_parse(const Json *object, const char *where, SchedConfig *out, Error *e) {
    SchedConfig c = {.num_train_timesteps = 1000,
                     .shift = 1.0,
                     .base_shift = 0.5,
                     .max_shift = 1.15,
                     .base_image_seq_len = 256,
                     .max_image_seq_len = 4096};
    bool beta = false, stochastic = false;
    const char *type = "exponential", *class_name = "FlowMatchEulerDiscreteScheduler";
    TRY(json_string(object, "_class_name", &class_name, where, e));
    if (strcmp(class_name, "FlowMatchEulerDiscreteScheduler"))
        return fail(e, ERR_MODEL,
                    "%s: _class_name: %.80s is not supported, expected FlowMatchEulerDiscreteScheduler",
                    where, class_name);
    TRY(json_int(object, "num_train_timesteps", &c.num_train_timesteps, where, e));
    TRY(json_double(object, "shift", &c.shift, where, e));
    TRY(json_bool(object, "use_dynamic_shifting", &c.use_dynamic_shifting, where, e));
    TRY(json_double(object, "base_shift", &c.base_shift, where, e));
    TRY(json_double(object, "max_shift", &c.max_shift, where, e));
    TRY(json_int(object, "base_image_seq_len", &c.base_image_seq_len, where, e));
    TRY(json_int(object, "max_image_seq_len", &c.max_image_seq_len, where, e));
    TRY(json_double(object, "shift_terminal", &c.shift_terminal, where, e));
    TRY(json_bool(object, "invert_sigmas", &c.invert_sigmas, where, e));
    TRY(json_bool(object, "use_karras_sigmas", &c.use_karras_sigmas, where, e));
    TRY(json_bool(object, "use_exponential_sigmas", &c.use_exponential_sigmas, where, e));
    TRY(json_bool(object, "use_beta_sigmas", &beta, where, e));
    TRY(json_string(object, "time_shift_type", &type, where, e));
    TRY(json_bool(object, "stochastic_sampling", &stochastic, where, e));
    TRY(json_bool(object, "use_flow_sigmas", &c.use_flow_sigmas, where, e));
    c.linear_time_shift = !strcmp(type, "linear");
    if (!c.linear_time_shift && strcmp(type, "exponential"))
        return fail(e, ERR_MODEL, "%s: time_shift_type: found %.80s, expected exponential or linear", where,
                    type);
    if (beta) return refuse(where, "use_beta_sigmas", "is not supported", e);
    if (stochastic) return refuse(where, "stochastic_sampling", "is not supported", e);
    if (c.use_karras_sigmas && c.use_exponential_sigmas)
        return refuse(where, "use_karras_sigmas", "cannot be combined with use_exponential_sigmas", e);
    if (c.num_train_timesteps < 1 || c.num_train_timesteps > 1000000)
        return refuse(where, "num_train_timesteps", "expected 1..1000000", e);
    if (!(c.shift > 0) || !isfinite(c.shift)) return refuse(where, "shift", "expected a number above 0", e);
    if (!isfinite(c.base_shift)) return refuse(where, "base_shift", "expected a finite number", e);
    if (!isfinite(c.max_shift)) return refuse(where, "max_shift", "expected a finite number", e);
    if (c.base_image_seq_len == c.max_image_seq_len)
        return refuse(where, "max_image_seq_len", "expected another value than base_image_seq_len", e);
    if (!(c.shift_terminal >= 0 && c.shift_terminal < 1))
        return refuse(where, "shift_terminal", "expected null or a number from 0 to below 1", e);
    *out = c;
    return OK;
}

Status sched_config_read(const char *path, SchedConfig *out, Error *e) {
    Json *object;
    TRY(json_read_object(path, &object, e));
    Status status = sched_config_parse(object, path, out, e);
    json_free(object);
    return status;
}

double sched_mu(const SchedConfig *c, int64_t image_tokens) {
    double m = (c->max_shift - c->base_shift) / (double)(c->max_image_seq_len - c->base_image_seq_len);
    double b = c->base_shift - m * (double)c->base_image_seq_len;
    return (double)image_tokens * m + b;
}

/* --- tables --- */

typedef enum Width { NARROW, WIDE } Width; /* f32 or f64 arithmetic of the reference */

static inline double to_width(Width w, double x) { return w == NARROW ? (double)(float)x : x; }

double sched_linspace(double first, double last, int n, int i) {
    if (n > 1 && i == n - 1) return last;
    double step = n > 1 ? (last - first) / (n - 1) : 0;
    return step * i + first;
}

/* torch.linspace(first, last, n, dtype=float32): from the near end, product and sum fused. */
double sched_linspace_torch(float first, float last, int n, int i) {
    if (n == 1) return first;
    float step = (last - first) / (float)(n - 1);
    return i < n / 2 ? fmaf(step, (float)i, first) : fmaf(-step, (float)(n - i - 1), last);
}

static double shift_static(Width w, double shift, double s) {
    double below = to_width(w, 1 + to_width(w, to_width(w, shift - 1) * s));
    return to_width(w, to_width(w, to_width(w, shift) * s) / below);
}

static double shift_dynamic(Width w, double factor, double s) {
    double k = to_width(w, factor), odds = to_width(w, to_width(w, 1 / s) - 1);
    return to_width(w, k / to_width(w, k + odds));
}

/* Table values for i = 0..n-1 before the sigma conversions, in the width of the reference. */
static void shifted(const SchedConfig *c, int n, const double *given, double mu, double *s) {
    Width w = given ? NARROW : WIDE;
    double train = (double)c->num_train_timesteps;
    double max = 1, min = (float)(1.0 / train); /* of the training table, f32, already shifted when static */
    if (!c->use_dynamic_shifting) {
        max = shift_static(NARROW, c->shift, max);
        min = shift_static(NARROW, c->shift, min);
    }
    double factor = c->linear_time_shift ? mu : exp(mu);
    for (int i = 0; i < n; i++) {
        double x = given ? (float)given[i] : sched_linspace(max * train, min * train, n, i) / train;
        s[i] = c->use_dynamic_shifting ? shift_dynamic(w, factor, x) : shift_static(w, c->shift, x);
    }
    if (c->shift_terminal > 0) {
        double scale = to_width(w, to_width(w, 1 - s[n - 1]) / to_width(w, 1 - c->shift_terminal));
        for (int i = 0; i < n; i++)
            s[i] = to_width(w, 1 - to_width(w, to_width(w, 1 - s[i]) / scale));
    }
}

/* Spacings by Karras et al. (2022) or even in log sigma, between the table's ends; always in f64. */
static void convert(const SchedConfig *c, int n, double *s) {
    const double rho = 7.0, first = s[0], last = s[n - 1];
    for (int i = 0; i < n; i++) {
        if (c->use_karras_sigmas) {
            double a = pow(first, 1 / rho), b = pow(last, 1 / rho);
            s[i] = pow(a + sched_linspace(0, 1, n, i) * (b - a), rho);
        } else if (c->use_exponential_sigmas) {
            s[i] = exp(sched_linspace(log(first), log(last), n, i));
        }
    }
}

static Status check_table(const SchedConfig *c, const Schedule *s, Error *e) {
    for (int i = 0; i < s->steps; i++) {
        float a = s->sigmas[i], b = s->sigmas[i + 1];
        if (!isfinite(a) || (c->invert_sigmas ? !(a < b) : !(a > b)))
            return fail(e, ERR_USAGE, "%d steps: sigma %d is %g before %g, expected finite values that %s; "
                        "try another number of steps", s->steps, i, (double)a, (double)b,
                        c->invert_sigmas ? "rise" : "fall");
    }
    return OK;
}

static Status check_steps(int steps, Error *e) {
    if (steps >= 1 && steps <= SCHED_MAX_STEPS) return OK;
    return fail(e, ERR_USAGE, "steps: found %d, expected 1..%d", steps, SCHED_MAX_STEPS);
}

Status sched_make(const SchedConfig *c, int steps, const double *sigmas, double mu, Schedule *out, Error *e) {
    *out = (Schedule){0};
    TRY(check_steps(steps, e));
    double *table = malloc((size_t)steps * sizeof *table);
    float *values = malloc((2 * (size_t)steps + 1) * sizeof *values);
    if (!table || !values) {
        free(table);
        free(values);
        return fail(e, ERR_MEMORY, "out of memory for %d steps", steps);
    }
    shifted(c, steps, sigmas, mu, table);
    convert(c, steps, table);
    Schedule s = {.steps = steps, .sigmas = values, .timesteps = values + steps + 1};
    s.mu = c->use_dynamic_shifting ? mu : 0;
    float train = (float)c->num_train_timesteps;
    for (int i = 0; i < steps; i++) {
        float sigma = (float)table[i];
        s.sigmas[i] = c->invert_sigmas ? 1.0f - sigma : sigma;
        s.timesteps[i] = s.sigmas[i] * train;
    }
    s.sigmas[steps] = c->invert_sigmas ? 1.0f : 0.0f;
    free(table);
    Status status = check_table(c, &s, e);
    if (status != OK) sched_free(&s);
    *out = s;
    return status;
}

void sched_free(Schedule *s) {
    free(s->sigmas); /* one block: timesteps lie behind the sigmas */
    *s = (Schedule){0};
}

/* Both pipelines pass sigmas from 1 to 1/steps; they differ in who makes them. */
static Status from_one(const SchedConfig *c, int steps, int64_t tokens, bool torch, Schedule *out, Error *e) {
    *out = (Schedule){0};
    TRY(check_steps(steps, e));
    double *sigmas = malloc((size_t)steps * sizeof *sigmas);
    if (!sigmas) return fail(e, ERR_MEMORY, "out of memory for %d steps", steps);
    for (int i = 0; i < steps; i++)
        sigmas[i] =
            torch ? sched_linspace_torch(1.0f, (float)(1.0 / steps), steps, i) : sched_linspace(1, 1.0 / steps, steps, i);
    Status status = sched_make(c, steps, sigmas, sched_mu(c, tokens), out, e);
    free(sigmas);
    return status;
}

Status sched_flux(const SchedConfig *c, int steps, int64_t image_tokens, Schedule *out, Error *e) {
    if (c->use_flow_sigmas) return sched_make(c, steps, NULL, sched_mu(c, image_tokens), out, e);
    return from_one(c, steps, image_tokens, false, out, e);
}

Status sched_zimage(const SchedConfig *c, int steps, int64_t image_tokens, Schedule *out, Error *e) {
    return from_one(c, steps, image_tokens, true, out, e);
}

/* --- what the model and the Euler step take --- */

static float in_dtype(float x, DType dtype) {
    if (dtype == BF16) return bf16_round(x);
    if (dtype == F16) return f16_to_f32(f16_from_f32(x));
    return x;
}

float sched_dt(const Schedule *s, int step, DType dtype) {
    return in_dtype(s->sigmas[step + 1] - s->sigmas[step], dtype);
}

float sched_model_timestep(float t, DType dtype) {
    float fraction = in_dtype(in_dtype(t, dtype) / 1000.0f, dtype);
    return in_dtype(fraction * 1000.0f, dtype);
}

float sched_model_guidance(float guidance, DType dtype) {
    return in_dtype(in_dtype(guidance, dtype) * 1000.0f, dtype);
}
