/* test_sched.c - schedules against tables recorded from diffusers (tests/golden/sigmas.txt, written by
 * scripts/dump_sigmas.py), bit for bit; properties of every table; configs that must be refused by name.
 * Another recording can be given: test_sched FILE. */
#include "core/file.h"
#include "sched.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Tally { int passed, failed; } Tally;

static bool check(Tally *t, bool good, const char *what) {
    if (good) t->passed++;
    else t->failed++;
    if (!good && t->failed <= 20) fprintf(stderr, "FAIL: %s\n", what);
    return good;
}

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* The f32 value of bits in `dtype`: a helper that forgot to round is not hidden by the test's rounding. */
static float value_of(DType dtype, uint32_t bits) {
    return dtype == BF16  ? bf16_to_f32((uint16_t)bits)
           : dtype == F16 ? f16_to_f32((uint16_t)bits)
                          : float_of(bits);
}

static uint64_t fnv1a(uint64_t h, const float *data, int n) {
    for (const unsigned char *c = (const unsigned char *)data, *end = c + 4 * (size_t)n; c < end; c++)
        h = (h ^ *c) * 0x100000001b3u;
    return h;
}

enum { MAX_CONFIGS = 32 };
typedef struct Named { char name[32]; SchedConfig config; } Named;
typedef struct Book { Named items[MAX_CONFIGS]; int count; } Book;

static Status parse(const char *text, SchedConfig *out, Error *e) {
    Json *object;
    TRY(json_parse(text, strlen(text), "scheduler_config.json", &object, e));
    Status status = sched_config_parse(object, "scheduler_config.json", out, e);
    json_free(object);
    return status;
}

static const SchedConfig *find(const Book *book, const char *name) {
    for (int i = 0; i < book->count; i++)
        if (!strcmp(book->items[i].name, name)) return &book->items[i].config;
    return NULL;
}

static Status make(const SchedConfig *c, const char *call, int steps, int64_t tokens, Schedule *s, Error *e) {
    static const double DISTILLED[] = {1.0, 0.99375, 0.9875, 0.98125, 0.975, 0.909375, 0.725, 0.421875};
    if (!strcmp(call, "flux")) return sched_flux(c, steps, tokens, s, e);
    if (!strcmp(call, "zimage")) return sched_zimage(c, steps, tokens, s, e);
    return sched_make(c, steps, !strcmp(call, "distilled") ? DISTILLED : NULL, sched_mu(c, tokens), s, e);
}

static void check_config(Tally *t, Book *book, const char *line) {
    Error e = {0};
    Named *n = &book->items[book->count];
    int at = 0;
    bool ok = book->count < MAX_CONFIGS && sscanf(line, "config %31s %n", n->name, &at) == 1;
    if (check(t, ok && parse(line + at, &n->config, &e) == OK, ok ? e.text : line)) book->count++;
}

static void check_case(Tally *t, const Book *book, const char *line) {
    char name[32], call[16], what[256];
    int steps, at = 0;
    int64_t tokens;
    double mu;
    uint64_t hash;
    Error e = {0};
    Schedule s;
    bool ok = sscanf(line, "case %31s %15s %d %" SCNd64 " %lf %" SCNx64 "%n", name, call, &steps, &tokens,
                     &mu, &hash, &at) == 6;
    const SchedConfig *c = ok ? find(book, name) : NULL;
    if (!c || make(c, call, steps, tokens, &s, &e) != OK) {
        check(t, false, c ? e.text : line);
        return;
    }
    snprintf(what, sizeof what, "%s %s, %d steps, %" PRId64 " tokens", name, call, steps, tokens);
    uint64_t ours = fnv1a(fnv1a(0xcbf29ce484222325u, s.sigmas, steps + 1), s.timesteps, steps);
    bool same_mu = sched_mu(c, tokens) == mu && s.mu == (c->use_dynamic_shifting ? mu : 0);
    if (!check(t, s.steps == steps && ours == hash && same_mu, what)) {
        fprintf(stderr, "  want mu %.17g, sigmas%s\n  have mu %.17g, sigmas", mu, line + at,
                sched_mu(c, tokens));
        for (int i = 0; i <= steps; i++)
            if (i < 3 || i > steps - 3) fprintf(stderr, " %08" PRIx32, bits_of(s.sigmas[i]));
        fprintf(stderr, "\n");
    }
    sched_free(&s);
}

static void check_value(Tally *t, const char *line, bool guidance) {
    char name[8];
    uint32_t in, want;
    bool ok = sscanf(line, "%*s %7s %" SCNx32 " %" SCNx32, name, &in, &want) == 3;
    DType dtype = ok ? dtype_parse(name) : F32;
    float ours =
        guidance ? sched_model_guidance(float_of(in), dtype) : sched_model_timestep(float_of(in), dtype);
    check(t, ok && bits_of(ours) == bits_of(value_of(dtype, want)), line);
}

static void check_dt(Tally *t, const Book *book, const char *line) {
    char name[8], config[32];
    int steps, at = 0;
    int64_t tokens;
    Schedule s;
    Error e = {0};
    bool ok = sscanf(line, "dt %7s %31s %d %" SCNd64 "%n", name, config, &steps, &tokens, &at) == 4;
    const SchedConfig *c = ok ? find(book, config) : NULL;
    if (!c || sched_flux(c, steps, tokens, &s, &e) != OK) {
        check(t, false, line);
        return;
    }
    bool same = true;
    DType dtype = dtype_parse(name);
    for (int i = 0, used = 0; i < steps; i++, at += used) {
        uint32_t want;
        same = same && sscanf(line + at, " %" SCNx32 "%n", &want, &used) == 1 &&
               bits_of(sched_dt(&s, i, dtype)) == bits_of(value_of(dtype, want));
    }
    check(t, same, line);
    sched_free(&s);
}

static void check_golden(Tally *t, Book *book, const char *path) {
    char *text;
    size_t size;
    Error e = {0};
    int cases = 0;
    if (file_read(path, &text, &size, &e) != OK) {
        check(t, false, e.text);
        return;
    }
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (line[0] == '#') continue;
        cases++;
        if (!strncmp(line, "config ", 7)) check_config(t, book, line);
        else if (!strncmp(line, "case ", 5)) check_case(t, book, line);
        else if (!strncmp(line, "model ", 6)) check_value(t, line, false);
        else if (!strncmp(line, "guidance ", 9)) check_value(t, line, true);
        else if (!strncmp(line, "dt ", 3)) check_dt(t, book, line);
        else check(t, false, line);
    }
    check(t, cases > 600, "the recording holds its cases");
    free(text);
}

/* Every table strictly falls, is finite, starts at most at 1, ends at 0 and has timesteps 1000 sigma. */
static void check_properties(Tally *t, const Book *book) {
    static const char *NAMES[] = {"dev",    "schnell", "zturbo", "zbase",   "ltx2",
                                  "linear", "karras",  "expo",   "terminal"};
    static const int64_t TOKENS[] = {1, 256, 1024, 4096, 16384};
    for (size_t k = 0; k < sizeof NAMES / sizeof *NAMES; k++) {
        const SchedConfig *c = find(book, NAMES[k]);
        bool good = c != NULL;
        for (int steps = 1; good && steps <= 100; steps++)
            for (size_t j = 0; j < sizeof TOKENS / sizeof *TOKENS; j++)
                for (int call = 0; call < 3; call++) {
                    Schedule s;
                    Error e = {0};
                    Status status =
                        make(c, (const char *[]){"flux", "zimage", "own"}[call], steps, TOKENS[j], &s, &e);
                    if (steps == 1 && c->shift_terminal > 0) { /* nothing to stretch: refused, not NaN */
                        good = good && (call == 2 || (status == ERR_USAGE && !s.sigmas));
                        if (status == OK) sched_free(&s);
                        continue;
                    }
                    good = good && status == OK && s.sigmas[0] <= 1 && s.sigmas[steps] == 0;
                    for (int i = 0; good && i < steps; i++)
                        good = isfinite(s.sigmas[i]) && s.sigmas[i] > s.sigmas[i + 1] &&
                               sched_dt(&s, i, BF16) < 0 &&
                               s.timesteps[i] == (float)c->num_train_timesteps * s.sigmas[i];
                    if (status == OK) sched_free(&s);
                }
        check(t, good, NAMES[k]);
    }
}

/* CUDA multiplies by fl32(1/1000) where the CPU divides: the same for every bf16 timestep in 0..1000 and
 * every f16 one from 0.001 (0.00038743 is the one exception; tables hold no such timestep). */
static void check_division(Tally *t) {
    const float reciprocal = 1.0f / 1000.0f;
    int tried = 0;
    bool same = true;
    for (uint32_t v = 0; v < 0x8000; v++) {
        float b = bf16_to_f32((uint16_t)v), h = f16_to_f32((uint16_t)v);
        if (b <= 1000) same = same && bf16_from_f32(b / 1000.0f) == bf16_from_f32(b * reciprocal), tried++;
        if (h <= 1000 && h >= 0.001f)
            same = same && f16_from_f32(h / 1000.0f) == f16_from_f32(h * reciprocal), tried++;
    }
    check(t, same && tried > 35000, "division by 1000 equals multiplication by its reciprocal");
    check(t, sched_model_timestep(750, BF16) == 752 && sched_model_guidance(3.5f, BF16) == 3504,
          "750, 3.5 in bf16");
}

static void check_refusals(Tally *t, const Book *book) {
    static const struct { const char *json, *names; } BAD[] = {
        {"{\"_class_name\": \"DPMSolverMultistepScheduler\"}", "DPMSolverMultistepScheduler"},
        {"{\"use_beta_sigmas\": true}", "use_beta_sigmas"},
        {"{\"stochastic_sampling\": true}", "stochastic_sampling"},
        {"{\"use_karras_sigmas\": true, \"use_exponential_sigmas\": true}", "use_karras_sigmas"},
        {"{\"time_shift_type\": \"cubic\"}", "time_shift_type: found cubic"},
        {"{\"num_train_timesteps\": 0}", "num_train_timesteps"},
        {"{\"num_train_timesteps\": 1000.5}", "num_train_timesteps"},
        {"{\"shift\": -1}", "shift: expected"},
        {"{\"shift\": \"3\"}", "shift"},
        {"{\"shift\": Infinity}", "shift"},
        {"{\"base_shift\": -Infinity}", "base_shift"},
        {"{\"max_shift\": Infinity}", "max_shift"},
        {"{\"max_image_seq_len\": 256}", "max_image_seq_len"},
        {"{\"shift_terminal\": 1}", "shift_terminal"},
        {"{\"shift_terminal\": -0.5}", "shift_terminal"},
    };
    SchedConfig c;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Error e = {0};
        Status status = parse(BAD[i].json, &c, &e);
        check(t,
              status == ERR_MODEL && strstr(e.text, BAD[i].names) && strstr(e.text, "scheduler_config.json"),
              BAD[i].json);
    }
    Error e = {0};
    check(t, parse("{}", &c, &e) == OK && c.num_train_timesteps == 1000 && c.shift == 1, "defaults");
    check(t, sched_config_read("tests/golden/none.json", &c, &e) == ERR_MODEL && strstr(e.text, "none.json"),
          "missing");
    static const int STEPS[] = {0, -4, SCHED_MAX_STEPS + 1};
    for (int i = 0; i < 3; i++) {
        Schedule s;
        bool good = sched_flux(find(book, "dev"), STEPS[i], 4096, &s, &e) == ERR_USAGE && !s.sigmas;
        check(t, good && strstr(e.text, "steps"), "absurd steps");
    }
}

int main(int argc, char **argv) {
    Tally t = {0};
    Book book = {0};
    check_golden(&t, &book, argc > 1 ? argv[1] : "tests/golden/sigmas.txt");
    check_properties(&t, &book);
    check_division(&t);
    if (find(&book, "dev")) check_refusals(&t, &book);
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed ? 1 : 0;
}
