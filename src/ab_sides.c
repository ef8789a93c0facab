/* ab_sides.c - see ab_sides.h. */
#include "ab_sides.h"

#include "ab_meta.h"
#include "generate.h"

#include <stdlib.h>
#include <string.h>

void ab_shot_free(AbShot *s) {
    ab_stages_free(&s->stages);
    json_free(s->meta);
    free(s->where);
    *s = (AbShot){0};
}

AbSize ab_size_of(const AbShot *s) {
    AbSize size = {.steps = s->stages.steps};
    const AbStage *pixels = ab_stages_find(&s->stages, "pixels");
    if (!pixels || pixels->entry.rank < 3) return size;
    const int64_t *shape = pixels->entry.shape + pixels->entry.rank - 3;
    size.height = (int)shape[0], size.width = (int)shape[1];
    return size;
}

Status ab_size_check(const AbSize size[2], const char *const name[2], Error *e) {
    const AbSize *a = &size[0], *b = &size[1];
    if (a->steps && a->steps != b->steps)
        return fail(e, ERR_USAGE, "%s has %d steps and %s has %d: only equal numbers can be compared", name[0], a->steps,
                    name[1], b->steps);
    if (a->width && (a->width != b->width || a->height != b->height))
        return fail(e, ERR_USAGE, "%s has %dx%d pixels and %s has %dx%d: only equal sizes can be compared", name[0], a->width,
                    a->height, name[1], b->width, b->height);
    return OK;
}

/* --- folders --- */

static char *numbered(const char *folder, int k) {
    char name[16];
    snprintf(name, sizeof name, "%04d", k + 1);
    return file_join(folder, name);
}

Status ab_side_folder(AbSide *s, const char *name, const char *folder, Error *e) {
    *s = (AbSide){.name = name, .folder = folder};
    if (!file_is_dir(folder)) return fail(e, ERR_IO, "%s: no such folder", folder);
    for (bool there = true; there; s->folders += there) {
        char *path = numbered(folder, s->folders);
        if (!path) return fail(e, ERR_MEMORY, "out of memory");
        there = file_is_dir(path);
        free(path);
    }
    s->many = s->folders > 0;
    return OK;
}

static Status read_folder(const AbSide *s, int k, AbShot *out, Error *e) {
    out->where = s->many ? numbered(s->folder, k) : strdup(s->folder);
    if (!out->where) return fail(e, ERR_MEMORY, "out of memory");
    TRY(ab_meta_read(out->where, &out->meta, e));
    return ab_stages_read(out->where, &out->stages, e);
}

/* --- options --- */

/* Words as a shell would split them: blanks between, '...' and "..." keep blanks, \ keeps the next character (not in '...').
 * In place. */
static Status split(char *text, char **word, int most, int *count, Error *e) {
    char *to = text;
    *count = 0;
    for (const char *at = text;;) {
        at += strspn(at, " \t\n");
        if (!*at) return OK;
        if (*count == most) return fail(e, ERR_USAGE, "more than %d words", most);
        word[(*count)++] = to;
        char quote = 0;
        for (; *at && (quote || !strchr(" \t\n", *at)); at++) {
            if (quote ? *at == quote : *at == '\'' || *at == '"')
                quote = quote ? 0 : *at;
            else {
                if (*at == '\\' && quote != '\'' && at[1]) at++;
                *to++ = *at;
            }
        }
        if (quote) return fail(e, ERR_USAGE, "%c is not closed", quote);
        bool more = *at; /* `to` may stand on it */
        at += more;
        *to++ = 0;
        if (!more) return OK;
    }
}

Status ab_side_run(AbSide *s, const char *name, const Cli *common, const char *options, Error *e) {
    enum { WORDS = 200 };
    char *word[WORDS];
    int count = 0;
    *s = (AbSide){.name = name, .cli = *common, .options = options, .inherited = common->inject_count};
    s->words = strdup(options ? options : "");
    if (!s->words) return fail(e, ERR_MEMORY, "out of memory");
    Status status = split(s->words, word, WORDS, &count, e);
    if (status == OK) status = cli_parse_set(count, word, &s->cli, e);
    if (status != OK) return because(e, "--%s", name);
    if (!s->cli.model) return fail(e, ERR_USAGE, "no model: give -m DIR");
    if (s->cli.tuned && !s->cli.tuned_file)
        return fail(e, ERR_USAGE, "--tuned: neither XDG_CACHE_HOME nor HOME says where the file is");
    if (s->cli.guidance >= 0 && s->cli.guidance_scale >= 0)
        return fail(e, ERR_USAGE, "--guidance and --guidance-scale are both given; expected one of them");
    return OK;
}

void ab_side_close(AbSide *s) {
    pipeline_close(s->pipeline);
    for (int i = s->inherited; i < s->cli.inject_count; i++) free((void *)(uintptr_t)s->cli.inject[i].name);
    free(s->words);
    free(s->model);
    *s = (AbSide){0};
}

/* --- pipelines --- */

Status ab_side_find(AbSide *s, const HubEnv *env, Error *e) { return hub_resolve(env, s->cli.model, &s->model, e); }

bool ab_sides_shared(const AbSide *a, const AbSide *b) {
    const PipelineOptions x = generate_pipeline(&a->cli), y = generate_pipeline(&b->cli);
    return !a->folder && !b->folder && a->model && b->model && !strcmp(a->model, b->model) && generate_same_pipeline(&x, &y);
}

Status ab_side_open(AbSide *s, const volatile int *interrupted, Error *e) {
    PipelineOptions options = generate_pipeline(&s->cli);
    options.model = s->model;
    options.interrupted = interrupted;
    return pipeline_open(&options, &s->pipeline, e);
}

/* --- runs --- */

static Status see(void *user, const char *name, DType dtype, int rank, const int64_t *shape, const void *values, Error *e) {
    return ab_stages_add(user, name, dtype, rank, shape, values, e);
}

Status ab_side_job(AbSide *s, const Pipeline *p, const AbScene *scene, int k, const AbShot *reference, Job *job, Error *e) {
    Cli c = s->cli;
    if (scene->prompt) c.prompt = scene->prompt[k];
    if (reference && reference->meta) TRY(ab_meta_defaults(reference->meta, reference->where, &c, e));
    if (!c.prompt) return fail(e, ERR_USAGE, "no prompt: give -p TEXT; %s records none", reference->where);
    if (!c.seed_given) c.seed = scene->seed;
    *job = generate_job(&c);
    job->inject = s->cli.inject; /* c ends here */
    job->fresh = true;
    return pipeline_resolve(p, job, e);
}

Status ab_side_warm(AbSide *s, Pipeline *p, const AbScene *scene, const AbShot *reference, Error *e) {
    Job job;
    Media media = {0};
    TRY(ab_side_job(s, p, scene, 0, reference, &job, e));
    job.dump = NULL;
    Progress progress = {progress_step, scene->line};
    Status status = pipeline_render(p, &job, &progress, &media, e);
    progress_clear(scene->line);
    media_free(&media);
    return status;
}

/* What a side could not keep of its word is said without being asked. */
static void say_warnings(const AbSide *s, const AbScene *scene, const Media *m, bool first) {
    if (!scene->err) return;
    if (m->warning[0]) fprintf(scene->err, "warning: %s: %s\n", s->name, m->warning);
    if (m->note[0]) fprintf(scene->err, "note: %s: %s\n", s->name, m->note);
    if (m->no_replay[0]) fprintf(scene->err, "warning: %s: %s\n", s->name, m->no_replay);
    for (int i = 0; first && i < m->families; i++)
        if (m->family[i].refused && strcmp(m->family[i].why, m->warning) != 0)
            fprintf(scene->err, "note: %s: %s\n", s->name, m->family[i].why);
}

static Status render(AbSide *s, Pipeline *p, const AbScene *scene, int k, const AbShot *reference, AbShot *out, Error *e) {
    Job job;
    Media media = {0};
    StageWatch watch = {see, &out->stages};
    Progress progress = {progress_step, scene->line};
    TRY(ab_side_job(s, p, scene, k, reference, &job, e));
    TRY(generate_check_job(&job, s->cli.overwrite, e));
    TRY(generate_make_dump(job.dump, e));
    job.watch = &watch;
    out->meta = ab_meta_job(&job, pipeline_dtype(p));
    if (!out->meta) return fail(e, ERR_MEMORY, "out of memory");
    Status status = pipeline_render(p, &job, &progress, &media, e);
    progress_clear(scene->line);
    say_warnings(s, scene, &media, k == 0);
    if (status == OK && *scene->interrupted) status = fail(e, ERR_INTERRUPTED, "interrupted");
    ab_stages_sort(&out->stages);
    out->timed = true;
    out->seconds[AB_TEXT] = media.seconds_text;
    out->seconds[AB_DENOISE] = media.seconds_denoise;
    out->seconds[AB_DECODE] = media.seconds_decode;
    out->seconds[AB_ALL] = media.seconds_text + media.seconds_denoise + media.seconds_decode;
    media_free(&media);
    return status;
}

Status ab_side_shoot(AbSide *s, Pipeline *p, const AbScene *scene, int k, const AbShot *reference, AbShot *out, Error *e) {
    *out = (AbShot){0};
    if (s->folder) return read_folder(s, k, out, e);
    char label[48];
    if (scene->count > 1)
        snprintf(label, sizeof label, "%d/%d %s ", k + 1, scene->count, s->name);
    else
        snprintf(label, sizeof label, "%s ", s->name);
    scene->line->label = label;
    scene->line->clock.phase[0] = 0;
    Status status = render(s, p, scene, k, reference, out, e);
    scene->line->label = "";
    return status == OK ? OK : because(e, "%s", s->name);
}
