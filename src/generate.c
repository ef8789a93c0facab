/* generate.c - see generate.h. Decides nothing about the picture itself: defaults and refusals that depend on the model
 * are pipeline_resolve's.
 * Easy to get wrong: a drawn seed must be fixed before names and metadata are made, since both carry it. */
#include "generate.h"

#include "clip.h"
#include "core/clock.h"
#include "core/file.h"
#include "meta.h"
#include "names.h"
#include "optimes.h"
#include "optrace.h"
#include "output.h"
#include "profile.h"
#include "progress.h"
#include "report.h"
#include "rng.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct Run {
    const Cli *cli;
    Pipeline *pipeline;
    Job job; /* resolved, with the first seed */
    Names names;
    FILE *out, *err;
    ProgressLine line;
    ProgressClock clock; /* of --json's events */
    int picture;         /* the one in hand, from 1 */
    ReportPicture *done; /* [names.count], for --report */
    OpTimes *ops;        /* --profile; NULL without */
    OpTrace *trace;      /* --trace; NULL without */
    double start, opened; /* monotonic seconds */
    const volatile int *interrupted;
} Run;

Job generate_job(const Cli *cli) {
    Job job = {
        .prompt = cli->prompt,
        .negative_prompt = cli->negative_prompt,
        .width = cli->width,
        .height = cli->height,
        .frames = cli->frames,
        .seconds = cli->seconds < 0 ? 0 : cli->seconds,
        .fps = cli->fps,
        .steps = cli->steps,
        .upscale = cli->upscale,
        .image = cli->image,
        .image_crf = cli->image_crf,
        .strength = cli->strength < 0 ? 0 : cli->strength,
        .strength_given = cli->strength >= 0,
        .guidance = cli->guidance,
        .guidance_given = cli->guidance >= 0,
        .cfg_scale = cli->cfg_scale < 0 ? 0 : cli->cfg_scale,
        .cfg_scale_given = cli->cfg_scale >= 0,
        .cfg_normalization = cli->cfg_normalization < 0 ? 0 : cli->cfg_normalization,
        .cfg_truncation = cli->cfg_truncation,
        .cfg_truncation_given = cli->cfg_truncation >= 0,
        .stg_blocks = cli->stg_blocks,
        .guidance_scale = cli->guidance_scale < 0 ? 0 : cli->guidance_scale,
        .guidance_scale_given = cli->guidance_scale >= 0,
        .max_sequence_length = cli->max_sequence_length,
        .motion_score = cli->motion_score,
        .bin = cli->bin,
        .match = cli->match,
        .layout = cli->layout,
        .seed = cli->seed,
        .quality = cli->quality,
        .families = cli->families,
        .dump = cli->dump,
        .taps = cli->taps,
        .inject = cli->inject,
        .inject_count = cli->inject_count,
    };
    for (int k = 0; k < GUIDE_KINDS; k++)
        if ((job.guide_given[k] = cli->guide[k] >= 0)) job.guide[k] = cli->guide[k];
    return job;
}

PipelineOptions generate_pipeline(const Cli *cli) {
    return (PipelineOptions){.text_encoder = cli->text_encoder,
                             .device = cli->device,
                             .dtype = cli->dtype,
                             .vae_dtype = cli->vae_dtype,
                             .vram = cli->vram,
                             .sync = cli->sync,
                             .no_graphs = cli->no_graphs,
                             .tuned = cli->tuned || cli->tune ? cli->tuned_file : NULL,
                             .verdicts = cli->no_verdicts ? NULL : cli->verdict_file};
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

bool generate_same_pipeline(const PipelineOptions *a, const PipelineOptions *b) {
    return same_text(a->text_encoder, b->text_encoder) && same_text(a->device, b->device) && a->dtype == b->dtype &&
           a->vae_dtype == b->vae_dtype && a->vram == b->vram && a->sync == b->sync &&
           a->no_graphs == b->no_graphs && same_text(a->tuned, b->tuned) &&
           same_text(a->verdicts, b->verdicts);
}

/* Results go to a file or a pipe that can be full or closed. */
static Status flush_results(FILE *out, Error *e) {
    if (fflush(out) || ferror(out))
        return fail(e, ERR_IO, "standard output: cannot write: %s", strerror(errno));
    return OK;
}

static OutputOptions output_options(const Run *r) {
    return (OutputOptions){.codec = r->cli->codec,
                           .crf = r->cli->crf,
                           .sound = pipeline_sound(r->pipeline),
                           .no_metadata = r->cli->no_metadata,
                           .overwrite = r->cli->overwrite,
                           .interrupted = r->interrupted};
}

static Status make_names(Run *r, Error *e) {
    const Cli *cli = r->cli;
    const OutputOptions o = output_options(r);
    bool clips = pipeline_makes_clips(r->pipeline);
    NamesWanted wanted = {.title = pipeline_title(r->pipeline),
                          .seed = r->job.seed,
                          .count = cli->count,
                          .of = clips ? NAMES_OF_CLIPS : NAMES_OF_PICTURES,
                          .frames = r->job.frames,
                          .suffix = clips && cli->codec == MP4_FFV1 ? ".mkv" : NULL};
    TRY(names_make(cli->output, &wanted, &r->names, e));
    TRY(names_check(&r->names, cli->overwrite, e));
    Status s = OK;
    for (int k = 0; s == OK && k < r->names.count; k++)
        s = output_check(r->names.path[k], r->names.kind, clips, wanted.title, &r->job, &o, e);
    if (s == ERR_IO && clips && !cli->output) because(e, "a video file by default (-o %%04d.png writes a PNG a frame)");
    return s;
}

static Status check_file(const char *option, const char *path, bool overwrite, Error *e) {
    char *name = (char *)(uintptr_t)path;
    if (!path) return OK;
    if (file_is_dir(path)) return fail(e, ERR_IO, "%s: %s is a folder", option, path);
    if (!overwrite && file_exists(path)) return fail(e, ERR_USAGE, "%s: %s exists; give -y to overwrite", option, path);
    return names_check(&(Names){.path = &name, .count = 1}, overwrite, e) == OK ? OK : because(e, "%s", option);
}

/* What would end as one file: the later one is refused, or replaces the first, when all the work is done. */
static Status check_apart(const Cli *cli, const Names *names, Error *e) {
    if (cli->report && cli->trace && !strcmp(cli->report, cli->trace))
        return fail(e, ERR_USAGE, "--report and --trace are both %s", cli->report);
    for (int k = 0; k < names->count; k++) {
        bool report = cli->report && !strcmp(cli->report, names->path[k]);
        if (report || (cli->trace && !strcmp(cli->trace, names->path[k])))
            return fail(e, ERR_USAGE, "--output and --%s are both %s", report ? "report" : "trace", names->path[k]);
    }
    return OK;
}

Status generate_check_side_files(const Cli *cli, Error *e) {
    TRY(check_file("--trace", cli->trace, cli->overwrite, e));
    return check_file("--report", cli->report, cli->overwrite, e);
}

Status generate_check_job(const Job *job, bool overwrite, Error *e) {
    for (int i = 0; i < job->inject_count; i++)
        if (!file_exists(job->inject[i].file))
            return fail(e, ERR_IO, "--inject: %s: no such file: %s", job->inject[i].name, job->inject[i].file);
    if (job->taps && !job->dump) return fail(e, ERR_USAGE, "--taps: needs --dump DIR to write to");
    if (!job->dump) return OK;
    if (file_exists(job->dump) && !file_is_dir(job->dump))
        return fail(e, ERR_IO, "--dump: %s is not a folder", job->dump);
    char *meta = file_join(job->dump, "meta.json");
    if (!meta) return fail(e, ERR_MEMORY, "--dump: out of memory");
    bool used = file_exists(meta);
    free(meta);
    if (used && !overwrite)
        return fail(e, ERR_USAGE, "--dump: %s holds a dump; give -y to overwrite", job->dump);
    return OK;
}

Status generate_make_dump(const char *folder, Error *e) {
    if (folder && mkdir(folder, 0777) && errno != EEXIST)
        return fail(e, ERR_IO, "--dump: cannot create %s: %s", folder, strerror(errno));
    return OK;
}

static Status report(Run *r, const Meta *meta, const char *path, const Media *media, Error *e) {
    if (r->cli->json) {
        char *json = meta_json(meta, path, media);
        if (!json) return fail(e, ERR_MEMORY, "%s: out of memory for its description", path);
        fprintf(r->out, "%s\n", json);
        free(json);
    } else {
        fprintf(r->out, "%s\n", path);
    }
    return flush_results(r->out, e);
}

/* What a quality could not keep of its word is said without being asked. */
static void say_families(const Run *r, const Media *m, bool first) {
    if (r->cli->verbosity < 0) return;
    if (m->warning[0]) fprintf(r->err, "warning: %s\n", m->warning);
    if (m->note[0]) fprintf(r->err, "note: %s\n", m->note);
    if (m->no_replay[0]) fprintf(r->err, "warning: %s\n", m->no_replay);
    for (int i = 0; first && i < m->families; i++) {
        const FamilyUse *use = &m->family[i];
        if (use->refused && strcmp(use->why, m->warning) != 0) fprintf(r->err, "note: %s\n", use->why);
    }
}

/* {"event":EVENT,"picture":K,"of":N}, the last two only when there are several. */
static cJSON *event(const Run *r, const char *name) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "event", name);
    if (r->names.count < 2) return o;
    cJSON_AddNumberToObject(o, "picture", r->picture);
    cJSON_AddNumberToObject(o, "of", r->names.count);
    return o;
}

/* Takes o. Without memory the line is lost, not the picture; whether the stream is well shows when the result is written. */
static void put_event(Run *r, cJSON *o) {
    char *line = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    progress_clear(&r->line);
    if (line) fprintf(r->out, "%s\n", line);
    fflush(r->out);
    cJSON_free(line);
}

/* The last line of a picture that is not there. */
static void put_failure(Run *r, const Error *why) {
    cJSON *o = event(r, "result");
    char *text = strdup(why->text);
    for (int64_t at; text && (at = cli_utf8_fault(text)) >= 0;) text[at] = '?';
    cJSON_AddStringToObject(o, "status", "failed");
    cJSON_AddNumberToObject(o, "code", why->code);
    if (text) cJSON_AddStringToObject(o, "error", text);
    free(text);
    put_event(r, o);
}

/* Phases as the pipeline reports them: "text", "denoise", "decode". */
static void on_step(void *user, const char *phase, int done, int total) {
    Run *r = user;
    if (r->ops) optimes_phase(r->ops, phase);
    if (r->trace) optrace_phase(r->trace, phase);
    if (r->cli->json) {
        cJSON *o = event(r, "progress");
        progress_event(o, phase, done, total, progress_seconds(&r->clock, phase));
        put_event(r, o);
    }
    progress_step(&r->line, phase, done, total);
}

/* Renders and writes file k; meta's job is its own. */
static Status make(Run *r, int k, const Meta *meta, Media *media, double *made, Error *e) {
    bool clip = pipeline_makes_clips(r->pipeline);
    Progress progress = {on_step, r};
    Job job = *meta->job;
    OutputOptions o = output_options(r);
    OutputLatents latents;
    TRY(output_latents_open(r->names.path[k], meta, &o, &latents, e));
    if (clip) job.keep = &latents.watch;
    Status status = pipeline_render(r->pipeline, &job, &progress, media, e);
    progress_clear(&r->line);
    say_families(r, media, k == 0);
    if (latents.why[0] && r->cli->verbosity >= 0)
        fprintf(r->err, "warning: should decoding fail, the latents are lost: %s\n", latents.why);
    if (status == OK && *r->interrupted) status = fail(e, ERR_INTERRUPTED, "interrupted");
    *made = clock_now();
    if (status == OK) status = output_write(&r->names, k, meta, media, &o, e);
    Error *why = status == OK ? NULL : e;
    output_latents_settle(output_latents_close(&latents, media, why), why);
    return status;
}

/* What the file of this job will say of itself, but for its encoding. line: profile_text's. */
static Status describe(const Run *r, const Job *job, char *line, Meta *meta, Error *e) {
    Profile profile;
    TRY(pipeline_profile(r->pipeline, &profile, e));
    profile_text(&profile, line);
    *meta = meta_of(r->pipeline, job);
    meta->path = r->cli->model, meta->profile = line;
    return OK;
}

static Status one_picture(Run *r, int k, Error *e) {
    Job job = r->job;
    job.seed += (uint64_t)k;
    char label[32] = "";
    if (r->names.count > 1) snprintf(label, sizeof label, "%d/%d ", k + 1, r->names.count);
    r->line.label = label;
    r->line.clock = r->clock = (ProgressClock){0};
    r->picture = k + 1;
    Media media = {0};
    double start = clock_now(), made = start;
    char profile_line[PROFILE_TEXT];
    Meta meta;
    TRY(describe(r, &job, profile_line, &meta, e));
    Status status = make(r, k, &meta, &media, &made, e);
    r->done[k] = (ReportPicture){.path = r->names.path[k],
                                 .seed = job.seed,
                                 .plan = media.seconds_plan,
                                 .text = media.seconds_text,
                                 .denoise = media.seconds_denoise,
                                 .decode = media.seconds_decode,
                                 .write = clock_now() - made};
    if (status == OK && r->cli->verbosity > 0)
        fprintf(r->err,
                "%sseed %" PRIu64
                ": text %.2f s, denoise %.2f s, decode %.2f s, all %.2f s, peak memory %.1f MiB\n",
                label, job.seed, media.seconds_text, media.seconds_denoise, media.seconds_decode,
                clock_now() - start, (double)report_host_peak() / 0x1p20);
    const OutputOptions o = output_options(r);
    output_describe(r->names.kind, &o, &meta);
    if (status == OK) status = report(r, &meta, r->names.path[k], &media, e);
    else if (r->cli->json) put_failure(r, e);
    media_free(&media);
    return status;
}

static void say_clip(const Run *r) {
    char rate[RATE_TEXT], rounded[200];
    if (!pipeline_makes_clips(r->pipeline)) return;
    fprintf(r->err, ", %d frames at %s a second", r->job.frames, rate_text(r->job.fps, rate));
    if (clip_rounded(&r->job, rounded, sizeof rounded)[0]) fprintf(r->err, " (%s)", rounded);
}

static void say_what(const Run *r) {
    if (r->cli->verbosity < 0) return;
    const Job *j = &r->job;
    fprintf(r->err, "%s on %s in %s: %dx%d, %d steps", pipeline_title(r->pipeline),
            pipeline_device(r->pipeline), pipeline_dtype(r->pipeline) == F32 ? "f32" : "bf16", j->width,
            j->height, j->steps);
    say_clip(r);
    if (j->image && j->first_step) fprintf(r->err, ", %d of them run (strength %g)", j->steps - j->first_step, j->strength);
    if (meta_has_guidance(j)) fprintf(r->err, ", guidance %g", j->guidance);
    fprintf(r->err, ", cfg-scale %g, seed %" PRIu64, j->cfg_scale, j->seed);
    if (r->names.count > 1) fprintf(r->err, " to %" PRIu64, j->seed + (uint64_t)(r->names.count - 1));
    fprintf(r->err, "\n");
    if (j->negative_prompt && j->negative_prompt[0] && !j->cfg)
        fprintf(r->err, "note: the negative prompt has no effect; it needs a larger --cfg-scale\n");
    if (r->cli->vram && !strcmp(pipeline_device(r->pipeline), "cpu"))
        fprintf(r->err, "note: --vram has no effect on the cpu, where weights stay in their files\n");
    const char *note = pipeline_facts(r->pipeline).tuned_note;
    if (*note) fprintf(r->err, "note: %s\n", note);
    if (r->cli->sync && !strcmp(pipeline_device(r->pipeline), "cpu"))
        fprintf(r->err, "note: --sync has no effect on the cpu, where every operation ends before the next begins\n");
}

static Status write_report(const Run *r, Error *e) {
    const OutputOptions o = output_options(r);
    char profile_line[PROFILE_TEXT];
    Meta meta;
    TRY(describe(r, &r->job, profile_line, &meta, e));
    output_describe(r->names.kind, &o, &meta);
    Report report = {.meta = &meta,
                     .open = r->opened - r->start,
                     .all = clock_now() - r->start,
                     .picture = r->done,
                     .count = r->names.count,
                     .ops = r->ops};
    char *text;
    TRY(report_json(&report, r->pipeline, &text, e));
    size_t size = strlen(text);
    text[size] = '\n'; /* in the NUL's place: the file needs none */
    Status status = file_write_atomic(r->cli->report, text, size + 1, r->cli->overwrite, e);
    free(text);
    return status;
}

static Status run(Run *r, Error *e) {
    const Cli *cli = r->cli;
    TRY(pipeline_resolve(r->pipeline, &r->job, e));
    TRY(make_names(r, e));
    TRY(generate_check_side_files(cli, e));
    TRY(check_apart(cli, &r->names, e));
    TRY(generate_check_job(&r->job, cli->overwrite, e));
    if (cli->dry_run) {
        TRY(pipeline_describe(r->pipeline, &r->job, r->out, e));
        for (int i = 0; i < r->names.count; i++) fprintf(r->out, "output %s\n", r->names.path[i]);
        if (cli->explain) TRY(report_explain(r->pipeline, r->err, e));
        return flush_results(r->out, e);
    }
    TRY(generate_make_dump(cli->dump, e));
    say_what(r);
    if (r->cli->verbosity >= 0) TRY(pipeline_note_cut(r->pipeline, &r->job, r->err, e));
    r->done = calloc((size_t)r->names.count, sizeof *r->done);
    if (!r->done) return fail(e, ERR_MEMORY, "out of memory for %d pictures", r->names.count);
    for (int k = 0; k < r->names.count; k++) TRY(one_picture(r, k, e));
    if (r->ops) {
        TRY(optimes_collect(r->ops, e));
        optimes_print(r->ops, r->names.count, r->err);
    }
    if (r->trace) TRY(optrace_write(r->trace, cli->trace, cli->overwrite, e));
    if (cli->explain) TRY(report_explain(r->pipeline, r->err, e));
    return cli->report ? write_report(r, e) : OK;
}

Status generate_run(const Cli *cli, const char *folder, FILE *out, FILE *err, bool terminal,
                    const volatile int *interrupted, Error *e) {
    Run r = {.start = clock_now(), .cli = cli, .out = out, .err = err, .interrupted = interrupted, .job = generate_job(cli)};
    r.line = (ProgressLine){.out = cli->verbosity < 0 ? NULL : err,
                            .terminal = terminal,
                            .verbose = cli->verbosity > 0,
                            .label = ""};
    if (cli->profile && cli->dry_run) return fail(e, ERR_USAGE, "--profile times what runs; --dry-run runs nothing");
    if (cli->trace && (cli->profile || cli->dry_run))
        return fail(e, ERR_USAGE, "--trace: does not go with --%s", cli->profile ? "profile" : "dry-run");
    if (!cli->seed_given) TRY(rng_random_seed(&r.job.seed, e));
    if (cli->json && cli->output && cli_utf8_fault(cli->output) >= 0)
        return fail(e, ERR_USAGE,
                    "--json: the name given to --output is not valid UTF-8, which JSON requires");
    PipelineOptions options = generate_pipeline(cli);
    options.model = folder;
    options.interrupted = interrupted;
    Status status = cli->profile ? optimes_open(&r.ops, e) : cli->trace ? optrace_open(&r.trace, e) : OK;
    if (status == OK) options.timer = r.ops ? optimes_timer(r.ops) : r.trace ? optrace_timer(r.trace) : NULL;
    if (status == OK) status = pipeline_open(&options, &r.pipeline, e);
    r.opened = clock_now();
    if (status == OK) status = run(&r, e);
    free(r.done);
    names_free(&r.names);
    if (r.pipeline) pipeline_close(r.pipeline);
    optimes_close(r.ops);
    optrace_close(r.trace);
    return status;
}
