/* test_dpm.c - DPM-Solver++ on flow sigmas against diffusers (tests/golden/dpm.txt, written by scripts/dump_dpm.py): tables
 * and whole runs of 1 to 100 steps, bit for bit; configs that must be refused by name; what published files hold beyond JSON.
 *
 * A run feeds the op dpm_step with numbers that both sides make, in place and with one buffer of history, as a model does.
 * Easy to get wrong: the bits of log and exp are those of the recording machine. */
#include "expect.h"

#include "core/file.h"
#include "core/json.h"
#include "kernels/registry.h"
#include "sched_dpm.h"

#include <inttypes.h>
#include <math.h>

enum { COUNT = 48 };

static uint64_t fnv1a(uint64_t h, const float *data, int n) {
    for (const unsigned char *c = (const unsigned char *)data, *end = c + 4 * (size_t)n; c < end; c++)
        h = (h ^ *c) * 0x100000001b3u;
    return h;
}
static const uint64_t FNV = 0xcbf29ce484222325u;

static void numbers(uint64_t state, float *out) {
    for (int i = 0; i < COUNT; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        out[i] = (float)(state >> 48) / 8192 - 4;
    }
}

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static Status parse(const char *text, DpmConfig *out, Error *e) {
    Json *object;
    TRY(json_parse(text, strlen(text), "scheduler_config.json", &object, e));
    Status status = sched_dpm_config_parse(object, "scheduler_config.json", out, e);
    json_free(object);
    return status;
}

/* --- runs --- */

typedef struct Rig {
    Ops ops;
    Device device;
    Calls calls;
    Arena work, scratch;
    Error error;
    Exec x;
} Rig;

static Status run(Rig *r, const DpmConfig *c, const Schedule *s, uint64_t *hash) {
    size_t mark = arena_mark(&r->work);
    Tensor x = exec_new_as(&r->x, F32, 6, 8), v = exec_new_as(&r->x, F32, 6, 8), m = exec_new_as(&r->x, F32, 6, 8);
    Tensor k = exec_new_as(&r->x, F32, DPM_COEFFICIENTS);
    numbers((uint64_t)s->steps, x.data);
    for (int i = 0; i < COUNT; i++) ((float *)m.data)[i] = (float)NAN; /* a step of first order must not look at it */
    *hash = FNV;
    for (int i = 0; i < s->steps; i++) {
        numbers((uint64_t)(1000 * s->steps + i + 1), v.data);
        sched_dpm_step(c, s, i, k.data);
        TRY(op_dpm_step(&r->x, &(DpmStep){.y = x, .m = m, .x = x, .v = v, .last = m, .k = k}));
        *hash = fnv1a(*hash, x.data, COUNT);
    }
    arena_reset(&r->work, mark);
    return OK;
}

static void check_case(Rig *r, const DpmConfig *c, const char *line) {
    int steps;
    uint64_t table, latents, got = 0;
    Schedule s;
    bool ok = sscanf(line, "case %d %" SCNx64 " %" SCNx64, &steps, &table, &latents) == 3 &&
              sched_dpm_make(c, steps, &s, &r->error) == OK;
    expect_at(ok, line, r->error.text, 0);
    if (!ok) return;
    expect_at(fnv1a(fnv1a(FNV, s.sigmas, steps + 1), s.timesteps, steps) == table, "sigmas and timesteps", line, steps);
    expect_at(run(r, c, &s, &got) == OK && got == latents, "latents", line, steps);
    sched_free(&s);
}

static void check_table(const DpmConfig *c, const char *line) {
    int steps = 0, at = 0, used = 0;
    Schedule s = {0};
    Error e = {0};
    bool same = sscanf(line, "table %d%n", &steps, &at) == 1 && sched_dpm_make(c, steps, &s, &e) == OK;
    for (int i = 0; same && i < steps; i++, at += used) {
        int t;
        same = sscanf(line + at, " %d%n", &t, &used) == 1 && s.timesteps[i] == (float)t;
    }
    same = same && sscanf(line + at, " |%n", &used) == 0;
    at += used;
    for (int i = 0; same && i <= steps; i++, at += used) {
        uint32_t bits;
        same = sscanf(line + at, " %" SCNx32 "%n", &bits, &used) == 1 && bits_of(s.sigmas[i]) == bits;
    }
    expect_at(same, "table", line, steps);
    sched_free(&s);
}

static void check_golden(Rig *r, DpmConfig *c) {
    char *text;
    size_t size;
    int cases = 0, tables = 0;
    expect_ok(file_read("tests/golden/dpm.txt", &text, &size, &r->error), &r->error);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strncmp(line, "config ", 7)) expect_ok(parse(line + 7, c, &r->error), &r->error);
        else if (!strncmp(line, "case ", 5)) check_case(r, c, line), cases++;
        else if (!strncmp(line, "table ", 6)) check_table(c, line), tables++;
        else expect_at(line[0] == '#', line, "a line of the recording", 0);
    }
    expect(cases == 100 && tables == 3 && c->flow_shift == 8);
    free(text);
}

/* --- beyond the recording --- */

static void check_order_one(Rig *r, const DpmConfig *published) {
    DpmConfig c = *published;
    Schedule s;
    float k[DPM_COEFFICIENTS];
    c.order = 1;
    expect_ok(sched_dpm_make(&c, 20, &s, &r->error), &r->error);
    for (int i = 0; i < 20; i++) {
        sched_dpm_step(&c, &s, i, k);
        expect(k[DPM_HALF] == 0 && isfinite(k[DPM_DATA]) && k[DPM_DATA] < 0);
    }
    sched_dpm_step(&c, &s, 19, k); /* to sigma 0: the data prediction itself */
    expect(k[DPM_SAMPLE] == 0 && k[DPM_DATA] == -1);
    sched_free(&s);
}

/* Every table falls, is finite and below 1, and its coefficients are those of the formula in double. */
static void check_properties(Rig *r, const DpmConfig *published) {
    static const double SHIFTS[] = {1, 3, 7, 8, 12.5};
    for (size_t n = 0; n < sizeof SHIFTS / sizeof *SHIFTS; n++)
        for (int steps = 1; steps <= 300; steps += steps < 60 ? 1 : 37) {
            DpmConfig c = *published;
            Schedule s;
            bool good;
            c.flow_shift = SHIFTS[n];
            expect_ok(sched_dpm_make(&c, steps, &s, &r->error), &r->error);
            good = s.sigmas[0] < 1 && s.sigmas[steps] == 0;
            for (int i = 0; good && i < steps; i++) {
                float k[DPM_COEFFICIENTS];
                double now = (double)s.sigmas[i], next = (double)s.sigmas[i + 1];
                double h = log((1 - next) / next) - log((1 - now) / now);
                sched_dpm_step(&c, &s, i, k);
                good = now > next && s.timesteps[i] == floorf(s.timesteps[i]);
                good = good && fabs(1000 * now - (double)s.timesteps[i]) < 1.001;
                good = good && fabs((double)k[DPM_SAMPLE] - next / now) < 1e-6;
                /* 1 - sigma'/sigma; log and exp of f32 near 0 lose some of it */
                good = good && fabs((double)k[DPM_DATA] - (next / now - 1)) < 2e-6;
                if (i == 0 || i == steps - 1) {
                    good = good && k[DPM_HALF] == 0;
                    continue;
                }
                double before = (double)s.sigmas[i - 1], h0 = log((1 - now) / now) - log((1 - before) / before);
                good = good && k[DPM_HALF] == 0.5f * k[DPM_DATA] && fabs((double)k[DPM_RATIO] * h0 / h - 1) < 1e-3;
            }
            if (!good) printf("shift %g, %d steps\n", c.flow_shift, steps);
            expect(good);
            sched_free(&s);
        }
    Schedule s;
    const int absurd[] = {0, -3, SCHED_MAX_STEPS + 1};
    for (int i = 0; i < 3; i++) expect_status(sched_dpm_make(published, absurd[i], &s, &r->error), ERR_USAGE, "steps", &r->error);
}

static void check_refusals(Error *e) {
#define FLOW "\"use_flow_sigmas\": true, \"prediction_type\": \"flow_prediction\""
    static const struct { const char *json, *names; } BAD[] = {
        {"{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", " FLOW "}", "FlowMatchEulerDiscreteScheduler"},
        {"{\"prediction_type\": \"flow_prediction\"}", "use_flow_sigmas: found false"},
        {"{\"use_flow_sigmas\": true}", "prediction_type: found epsilon"},
        {"{\"algorithm_type\": \"sde-dpmsolver++\", " FLOW "}", "algorithm_type"},
        {"{\"solver_type\": \"heun\", " FLOW "}", "solver_type"},
        {"{\"solver_order\": 3, " FLOW "}", "solver_order: found 3"},
        {"{\"final_sigmas_type\": \"sigma_min\", " FLOW "}", "final_sigmas_type"},
        {"{\"thresholding\": true, " FLOW "}", "thresholding"},
        {"{\"use_karras_sigmas\": true, " FLOW "}", "use_karras_sigmas"},
        {"{\"use_lu_lambdas\": true, " FLOW "}", "use_lu_lambdas"},
        {"{\"use_dynamic_shifting\": true, " FLOW "}", "use_dynamic_shifting"},
        {"{\"flow_shift\": 0, " FLOW "}", "flow_shift"},
        {"{\"flow_shift\": Infinity, " FLOW "}", "flow_shift"},
        {"{\"flow_shift\": NaN, " FLOW "}", "flow_shift"},
        {"{\"flow_shift\": \"8\", " FLOW "}", "flow_shift"},
        {"{\"num_train_timesteps\": 1, " FLOW "}", "num_train_timesteps"},
        {"{\"num_train_timesteps\": NaN, " FLOW "}", "num_train_timesteps"},
    };
    DpmConfig c;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) expect_status(parse(BAD[i].json, &c, e), ERR_MODEL, BAD[i].names, e);
    expect_ok(parse("{" FLOW "}", &c, e), e);
    expect(c.flow_shift == 1 && c.order == 2 && c.num_train_timesteps == 1000);
#undef FLOW
}

/* --- JSON that is none --- */

static void check_json(Error *e) {
    static const char *const BAD[] = {"{\"a\": 1Infinity}", "{\"a\": Infinity1}", "{\"a\": --Infinity}", "{\"a\": +Infinity}",
                                      "{\"a\": -NaN}",      "{\"a\": NaN1}",      "{\"a\": xNaN}",       "{\"a\": Inf}",
                                      "{\"a\": nan}",       "{\"a\": infinity}",  "{NaN: 1}",            "{Infinity: 1}",
                                      "{\"a\": NaN NaN}",   "{\"a\": 1 NaN}",     "{\"a\": \"\xff\"}",   "{\"a\": -}",
                                      "{\"a\": 1,}",        "{\"a\" 1}",          "NaN,",                "{\"a\": NaN"};
    static const char GOOD[] = "{\"a\": -Infinity, \"b\":Infinity,\"c\": NaN,\"d\": [NaN, 1, -Infinity], "
                               "\"e\": \"NaN Infinity\"}";
    Json *j;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        *e = (Error){0};
        Status s = json_parse(BAD[i], strlen(BAD[i]), "text", &j, e);
        expect_at(s == ERR_MODEL && !j && strstr(e->text, "text: "), BAD[i], "must be refused", (int)i);
        if (s == OK) json_free(j);
    }
    expect_ok(json_parse(GOOD, strlen(GOOD), "text", &j, e), e);
    double a = 0, b = 0, c = 0;
    int64_t n = 7;
    const char *text = "";
    expect(json_double(j, "a", &a, "text", e) == OK && a == -(double)INFINITY);
    expect(json_double(j, "b", &b, "text", e) == OK && b == (double)INFINITY);
    expect(json_double(j, "c", &c, "text", e) == OK && isnan(c));
    expect(json_string(j, "e", &text, "text", e) == OK && !strcmp(text, "NaN Infinity"));
    expect_status(json_int(j, "a", &n, "text", e), ERR_MODEL, "a: found", e);
    expect_status(json_int(j, "c", &n, "text", e), ERR_MODEL, "c: found", e);
    expect(n == 7);
    json_free(j);
}

int main(void) {
    static Rig r; /* lint: allow-static (test program: the op table is large) */
    DpmConfig c = {0};
    r.device = device_cpu();
    ops_cpu(&r.ops);
    expect_ok(arena_open(&r.work, &r.device, "work", (size_t)1 << 20, &r.error), &r.error);
    expect_ok(arena_open(&r.scratch, &r.device, "scratch", (size_t)1 << 20, &r.error), &r.error);
    r.x = (Exec){.ops = &r.ops, .device = &r.device, .calls = &r.calls, .work = &r.work, .scratch = &r.scratch,
                 .error = &r.error, .dtype = F32};
    check_golden(&r, &c);
    check_order_one(&r, &c);
    check_properties(&r, &c);
    check_refusals(&r.error);
    check_json(&r.error);
    calls_free(&r.calls);
    arena_close(&r.work);
    arena_close(&r.scratch);
    return expect_done();
}
