/* ab.c - see ab.h: which sides there are, in which order they run, and what comes of it. */
#include "ab.h"

#include "ab_meta.h"
#include "ab_print.h"
#include "ab_sheet.h"
#include "batch_jobs.h"
#include "names.h"
#include "rng.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct Ab {
    const Cli *cli;
    AbSide side[2]; /* reference, output */
    bool shared;    /* side[0].pipeline serves both */
    AbScene scene;
    BatchJobs jobs; /* of --prompts */
    const char **prompt;
    AbShot *shot[2]; /* [scene.count] */
    AbResult *result;
    AbPrint print;
    AbSheet sheet;
    Verdict verdict;
    ProgressLine line;
    AbSize size[2];
} Ab;

/* --- what is asked for --- */

static Status read_prompts(Ab *ab, Error *e) {
    if (!ab->cli->prompts) return OK;
    Cli defaults = *ab->cli;
    defaults.model = ""; /* a line's job needs one, a prompt does not */
    TRY(batch_jobs_read(ab->cli->prompts, &defaults, &ab->jobs, e));
    ab->prompt = calloc((size_t)ab->jobs.count, sizeof *ab->prompt);
    if (!ab->prompt) return fail(e, ERR_MEMORY, "out of memory");
    for (int k = 0; k < ab->jobs.count; k++) {
        const BatchJob *b = &ab->jobs.job[k];
        if (b->tree)
            return fail(e, ERR_USAGE, "--prompts: %s: line %d holds an object, expected a prompt a line", ab->cli->prompts,
                        b->line);
        if (b->bad) return fail(e, ERR_USAGE, "--prompts: %s", b->bad->text);
        ab->prompt[k] = b->job.prompt;
    }
    ab->scene.prompt = ab->prompt;
    ab->scene.count = ab->jobs.count;
    return OK;
}

static Status make_sides(Ab *ab, Error *e) {
    const Cli *c = ab->cli;
    if (c->arg_count) {
        TRY(ab_side_folder(&ab->side[0], "reference", c->args[0], e));
        return ab_side_folder(&ab->side[1], "output", c->args[1], e);
    }
    TRY(c->reference ? ab_side_folder(&ab->side[0], "reference", c->reference, e)
                     : ab_side_run(&ab->side[0], "a", c, c->set[0], e));
    return ab_side_run(&ab->side[1], "b", c, c->set[1], e);
}

/* As many as there are prompts; else as the folders hold. */
static Status count_prompts(Ab *ab, Error *e) {
    const AbSide *s = ab->side;
    for (int i = 0; i < 2; i++) {
        if (!s[i].folder) continue;
        int held = s[i].many ? s[i].folders : 1;
        if (ab->scene.count && ab->scene.count != held)
            return fail(e, ERR_USAGE, "%s holds the stages of %d prompt%s, expected %d%s", s[i].folder, held,
                        held == 1 ? "" : "s", ab->scene.count, ab->cli->prompts ? " as in --prompts" : "");
        ab->scene.count = held;
    }
    if (!ab->scene.count) ab->scene.count = 1;
    for (int i = 0; i < 2; i++)
        if (!s[i].folder && s[i].cli.dump && ab->scene.count > 1)
            return fail(e, ERR_USAGE, "--dump: holds one picture's stages, but there are %d prompts", ab->scene.count);
    return OK;
}

/* The number format of a reference is its output's, unless another is asked for. */
static Status take_format(Ab *ab, Error *e) {
    if (!ab->side[0].folder || ab->side[1].folder) return OK;
    AbShot shot = {0};
    Status status = ab_side_shoot(&ab->side[0], NULL, &ab->scene, 0, NULL, &shot, e);
    Cli c = ab->side[1].cli;
    if (status == OK && shot.meta) status = ab_meta_defaults(shot.meta, shot.where, &c, e);
    ab->side[1].cli.dtype = c.dtype;
    ab->size[0] = ab_size_of(&shot);
    ab_shot_free(&shot);
    return status;
}

static Status prepare(Ab *ab, const HubEnv *env, Error *e) {
    const Cli *c = ab->cli;
    bool drawn = false;
    TRY(read_prompts(ab, e));
    TRY(make_sides(ab, e));
    TRY(count_prompts(ab, e));
    char *sheet = (char *)(uintptr_t)c->sheet;
    if (sheet && names_check(&(Names){.path = &sheet, .count = 1}, c->overwrite, e) != OK) return because(e, "--sheet");
    TRY(take_format(ab, e));
    for (int i = 0; i < 2; i++) {
        if (ab->side[i].folder) continue;
        TRY(ab_side_find(&ab->side[i], env, e));
        drawn |= !ab->side[i].cli.seed_given;
    }
    ab->shared = ab_sides_shared(&ab->side[0], &ab->side[1]);
    size_t n = (size_t)ab->scene.count;
    ab->result = calloc(n, sizeof *ab->result);
    for (int i = 0; i < 2; i++) ab->shot[i] = calloc(n, sizeof *ab->shot[i]);
    if (!ab->result || !ab->shot[0] || !ab->shot[1]) return fail(e, ERR_MEMORY, "out of memory for %zu prompts", n);
    return drawn ? rng_random_seed(&ab->scene.seed, e) : OK;
}

/* --- one prompt --- */

static void judge(Ab *ab, int k, const AbWalk *w) {
    const Cli *c = ab->cli;
    const AbResult *r = &ab->result[k];
    char prompt[32] = "", word[32];
    if (ab->scene.count > 1) snprintf(prompt, sizeof prompt, "prompt %d: ", k + 1);
    ab->verdict.equal &= w->equal;
    if (w->missing) compare_failed(&ab->verdict, "%s%s is only in the reference", prompt, w->missing->a->name);
    if (c->min_psnr < 0 && w->first)
        compare_failed(&ab->verdict, "%sfirst %s: max difference %g, PSNR %s dB", prompt, w->first->a->name, w->first->n.max_abs,
                       compare_text(w->first->n.psnr, 4, word));
    if (c->min_psnr < 0) return;
    if (r->has_latents && !(r->latents >= c->min_psnr))
        compare_failed(&ab->verdict, "%slatents: PSNR %s dB", prompt, compare_text(r->latents, 4, word));
    if (r->has_pixels && !(r->pixels >= c->min_psnr))
        compare_failed(&ab->verdict, "%spixels: PSNR %s dB", prompt, compare_text(r->pixels, 4, word));
}

static Status compare(Ab *ab, int k, Error *e) {
    AbShot *const shot[2] = {&ab->shot[0][k], &ab->shot[1][k]};
    const char *const name[2] = {shot[0]->where ? shot[0]->where : "a", shot[1]->where ? shot[1]->where : "b"};
    AbWalk w;
    AbResult *r = &ab->result[k];
    Status status = ab_walk(&shot[0]->stages, &shot[1]->stages, name, &w, e);
    if (status == OK) {
        *r = (AbResult){.equal = w.equal, .has_latents = w.latents, .has_pixels = w.pixels,
                        .timed = {shot[0]->timed, shot[1]->timed}};
        if (w.latents) r->latents = w.latents->n.psnr;
        if (w.pixels) r->pixels = w.pixels->n.psnr;
        for (int i = 0; i < 2; i++) memcpy(r->seconds[i], shot[i]->seconds, sizeof r->seconds[i]);
        if (ab->cli->min_psnr >= 0 && !w.latents && !w.pixels)
            status = fail(e, ERR_USAGE, "--min-psnr: %s and %s have neither latents nor pixels in common", name[0], name[1]);
        else
            judge(ab, k, &w);
    }
    if (status == OK && !k) ab_print_begin(&ab->print);
    if (status == OK) status = ab_print_prompt(&ab->print, k, &w, (const AbShot *const[2]){shot[0], shot[1]}, r, e);
    if (status == OK && ab->sheet.path && !w.pixels)
        status = fail(e, ERR_USAGE, "--sheet: %s and %s have no pixels in common", name[0], name[1]);
    if (status == OK && ab->sheet.path) status = ab_sheet_add(&ab->sheet, k, ab->scene.count, w.pixels->a, w.pixels->b, e);
    ab_walk_free(&w);
    ab_shot_free(shot[0]);
    ab_shot_free(shot[1]);
    if (status != OK && ab->scene.count > 1) because(e, "prompt %d", k + 1);
    return status;
}

/* --- in turns --- */

static int warmup(const Ab *ab) { return ab->cli->warmup >= 0 ? ab->cli->warmup : ab->scene.count > 1; }

/* What the reference of prompt k says of its parameters, for the output's run. */
static const AbShot *reference(const Ab *ab, int k) { return ab->side[0].folder ? &ab->shot[0][k] : NULL; }

static Status warm(Ab *ab, int i, Pipeline *p, Error *e) {
    for (int n = warmup(ab); n > 0 && !ab->side[i].folder; n--)
        TRY(ab_side_warm(&ab->side[i], p, &ab->scene, reference(ab, 0), e));
    return OK;
}

/* Says what side i will run, and refuses what could not be compared before anything is rendered. */
static Status look_ahead(Ab *ab, int i, const Pipeline *p, Error *e) {
    Job job;
    TRY(ab_side_job(&ab->side[i], p, &ab->scene, 0, reference(ab, 0), &job, e));
    ab->size[i] = (AbSize){job.steps, job.width, job.height};
    if (ab->scene.err)
        fprintf(ab->scene.err, "%s: %s on %s in %s: %dx%d, %d steps, seed %" PRIu64 "\n", ab->side[i].name, pipeline_title(p),
                pipeline_device(p), pipeline_dtype(p) == F32 ? "f32" : "bf16", job.width, job.height, job.steps, job.seed);
    return OK;
}

static Status check_sizes(const Ab *ab, Error *e) {
    const char *const name[2] = {ab->side[0].folder ? ab->side[0].folder : "a", "b"};
    return ab_size_check(ab->size, name, e);
}

/* One pipeline; who begins changes from prompt to prompt, so that neither always finds the machine warmer. */
static Status run_shared(Ab *ab, Error *e) {
    TRY(ab_side_open(&ab->side[0], ab->scene.interrupted, e));
    Pipeline *p = ab->side[0].pipeline;
    for (int i = 0; i < 2; i++) TRY(look_ahead(ab, i, p, e));
    TRY(check_sizes(ab, e));
    for (int i = 0; i < 2; i++) TRY(warm(ab, i, p, e));
    for (int k = 0; k < ab->scene.count; k++) {
        for (int turn = 0; turn < 2; turn++) {
            int i = (turn + k) % 2;
            TRY(ab_side_shoot(&ab->side[i], p, &ab->scene, k, NULL, &ab->shot[i][k], e));
        }
        TRY(compare(ab, k, e));
    }
    return OK;
}

static void close_pipeline(AbSide *s) {
    pipeline_close(s->pipeline);
    s->pipeline = NULL;
}

/* Both pipelines without weights: what they would run. */
static Status look_at_both(Ab *ab, Error *e) {
    for (int i = 0; i < 2; i++) {
        if (ab->side[i].folder) continue;
        TRY(ab_side_open(&ab->side[i], ab->scene.interrupted, e));
        TRY(look_ahead(ab, i, ab->side[i].pipeline, e));
    }
    return check_sizes(ab, e);
}

/* The reference of every prompt, then the output of every prompt. Of a folder only as it is needed. */
static Status run_apart(Ab *ab, Error *e) {
    AbSide *a = &ab->side[0], *b = &ab->side[1];
    int count = ab->scene.count;
    if (a->folder) TRY(ab_side_shoot(a, NULL, &ab->scene, 0, NULL, &ab->shot[0][0], e));
    if (!b->folder) TRY(look_at_both(ab, e));
    if (!a->folder) {
        close_pipeline(b);
        TRY(warm(ab, 0, a->pipeline, e));
        for (int k = 0; k < count; k++) TRY(ab_side_shoot(a, a->pipeline, &ab->scene, k, NULL, &ab->shot[0][k], e));
        close_pipeline(a);
        TRY(ab_side_open(b, ab->scene.interrupted, e));
    }
    TRY(warm(ab, 1, b->pipeline, e));
    for (int k = 0; k < count; k++) {
        if (a->folder && k) TRY(ab_side_shoot(a, NULL, &ab->scene, k, NULL, &ab->shot[0][k], e));
        TRY(ab_side_shoot(b, b->pipeline, &ab->scene, k, reference(ab, k), &ab->shot[1][k], e));
        TRY(compare(ab, k, e));
    }
    return OK;
}

/* --- all of it --- */

static Status run(Ab *ab, const HubEnv *env, FILE *out, Error *e) {
    int factor = 1;
    TRY(prepare(ab, env, e));
    ab->print.count = ab->scene.count;
    ab->print.stages = ab->scene.count == 1 || ab->cli->verbosity > 0;
    ab->print.warm = warmup(ab) > 0;
    TRY(ab->shared ? run_shared(ab, e) : run_apart(ab, e));
    if (ab->sheet.path) TRY(ab_sheet_write(&ab->sheet, ab->cli->overwrite, &factor, e));
    ab_print_end(&ab->print, ab->result, ab->sheet.path, factor);
    TRY(ab_print_flush(&ab->print, &ab->verdict, out, e));
    if (!ab->verdict.failed) return OK;
    return fail(e, ERR_SOME, "%s and %s differ: %s", ab->side[0].folder ? ab->side[0].folder : "a",
                ab->side[1].folder ? ab->side[1].folder : "b", ab->verdict.why);
}

Status ab_run(const Cli *cli, const HubEnv *env, FILE *out, FILE *err, bool terminal, const volatile int *interrupted, Error *e) {
    Ab ab = {.cli = cli,
             .scene = {.interrupted = interrupted},
             .print = {.sink = {.text = cli->json ? NULL : out, .json = cli->json ? cJSON_CreateObject() : NULL}},
             .sheet = {.path = cli->sheet},
             .verdict = {.equal = true},
             .line = {.out = cli->verbosity < 0 ? NULL : err, .terminal = terminal, .verbose = cli->verbosity > 0, .label = ""}};
    ab.scene.line = &ab.line;
    ab.scene.err = cli->verbosity < 0 ? NULL : err;
    ab.print.side = ab.side;
    Status status = cli->json && !ab.print.sink.json ? fail(e, ERR_MEMORY, "out of memory") : run(&ab, env, out, e);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; ab.shot[i] && k < ab.scene.count; k++) ab_shot_free(&ab.shot[i][k]);
        free(ab.shot[i]);
        ab_side_close(&ab.side[i]);
    }
    ab_sheet_free(&ab.sheet);
    free(ab.result);
    free(ab.prompt);
    batch_jobs_free(&ab.jobs);
    cJSON_Delete(ab.print.sink.json);
    if (status != OK && status != ERR_SOME && status != ERR_INTERRUPTED) {
        status = ERR_USAGE; /* the answers are yes, no and none */
        if (e) e->code = ERR_USAGE;
    }
    return status;
}
