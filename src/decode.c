/* decode.c - see decode.h. */
#include "decode.h"

#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "generate.h"
#include "meta_read.h"
#include "output.h"
#include "profile.h"
#include "progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Decode {
    const Cli *cli;
    Pipeline *pipeline;
    MetaRecord record;
    bool recorded;
    Job job; /* resolved */
    Names names;
    FILE *out, *err;
    ProgressLine line;
    const volatile int *interrupted;
} Decode;

/* Whether the file carries a job at all; a fault of the file itself is the caller's to find again. */
static bool has_record(const char *path) {
    Safetensors file;
    if (safetensors_open(path, &file, NULL) != OK) return false;
    bool has = json_get(file.metadata, PNG_DITTO_KEY) != NULL;
    safetensors_close(&file);
    return has;
}

static Status read_job(Decode *d, Error *e) {
    const Cli *cli = d->cli;
    const char *path = cli->args[0];
    Safetensors file;
    TRY(safetensors_open(path, &file, e)); /* what is wrong with the file in its own words */
    safetensors_close(&file);
    d->recorded = has_record(path);
    d->job = (Job){.prompt = "", .width = cli->width, .height = cli->height, .frames = cli->frames, .fps = cli->fps};
    if (!d->recorded) return OK;
    TRY(meta_read_open(path, &d->record, e));
    TRY(meta_read_finished(&d->record, e));
    if (cli->width || cli->height || cli->frames || cli->fps.num)
        return fail(e, ERR_USAGE, "%s: says its sizes and rate itself; leave out --width, --height, --frames and --fps",
                    path);
    d->job = d->record.job;
    return OK;
}

/* The job as it will be told: with the picture that it began from. */
static Job told(const Decode *d) {
    Job job = d->job;
    const Job *was = &d->record.job;
    job.inject_count = 0;
    if (!d->recorded || !was->image) return job;
    job.image = was->image;
    job.strength = was->strength, job.strength_given = true;
    job.first_step = job.steps - d->record.steps_run;
    snprintf(job.image_sha256, sizeof job.image_sha256, "%s", d->record.image_sha256 ? d->record.image_sha256 : "");
    return job;
}

static Status resolve(Decode *d, Error *e) {
    Job *job = &d->job;
    bool clips = pipeline_makes_clips(d->pipeline);
    if (d->recorded && d->record.clip != clips)
        return fail(e, ERR_USAGE, "%s: are latents of a %s, but %s makes %s", d->cli->args[0],
                    clips ? "picture" : "clip", pipeline_title(d->pipeline), clips ? "clips" : "pictures");
    job->decode_only = true;
    job->image = NULL, job->strength_given = false;
    return pipeline_resolve(d->pipeline, job, e);
}

static Status result(Decode *d, const Meta *meta, const Media *media, Error *e) {
    char *json = d->cli->json ? meta_json(meta, d->names.path[0], media) : NULL;
    if (d->cli->json && !json) return fail(e, ERR_MEMORY, "%s: out of memory for its description", d->names.path[0]);
    fprintf(d->out, "%s\n", json ? json : d->names.path[0]);
    free(json);
    return fflush(d->out) || ferror(d->out) ? fail(e, ERR_IO, "standard output: cannot write: %s", strerror(errno))
                                            : OK;
}

static void on_step(void *user, const char *phase, int done, int total) {
    Decode *d = user;
    progress_step(&d->line, phase, done, total);
}

/* Where the sound's latents are: in the same file, or, of a --dump, in one beside it. */
static const char *sound_file(const char *path, char *beside, size_t size) {
    Safetensors file;
    if (safetensors_open(path, &file, NULL) != OK) return path;
    bool both = safetensors_find(&file, "audio_latents") != NULL;
    safetensors_close(&file);
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    int n = snprintf(beside, size, "%.*saudio_latents.safetensors", folder, path);
    return both || n < 0 || (size_t)n >= size || !file_exists(beside) ? path : beside;
}

static Status make(Decode *d, const OutputOptions *o, Error *e) {
    char beside[4096];
    const Inject latents[] = {{"latents", d->cli->args[0]},
                              {"audio_latents", sound_file(d->cli->args[0], beside, sizeof beside)}};
    Job job = d->job, said = told(d);
    job.inject = latents, job.inject_count = pipeline_makes_sound(d->pipeline) ? 2 : 1;
    Profile profile;
    char profile_line[PROFILE_TEXT];
    TRY(pipeline_profile(d->pipeline, &profile, e));
    profile_text(&profile, profile_line);
    const char *where = d->cli->model;
    if (!where && d->recorded) TRY(json_string(d->record.json, "model_path", &where, d->record.path, e));
    Meta meta = meta_of(d->pipeline, &said);
    meta.path = where, meta.profile = profile_line;
    Media media = {0};
    Progress progress = {on_step, d};
    Status s = pipeline_render(d->pipeline, &job, &progress, &media, e);
    progress_clear(&d->line);
    if (s == OK && *d->interrupted) s = fail(e, ERR_INTERRUPTED, "interrupted");
    if (s == OK) s = output_write(&d->names, 0, &meta, &media, o, e);
    if (s == OK && d->record.to_come && !d->cli->keep_latents) unlink(d->cli->args[0]);
    output_describe(d->names.kind, o, &meta);
    if (s == OK) s = result(d, &meta, &media, e);
    media_free(&media);
    return s;
}

/* Where the file goes: as told, else where the job that failed wanted it, which is beside its latents. malloc'd; NULL: nobody
 * says. */
static Status wanted_output(const Decode *d, char **out, Error *e) {
    const char *latents = d->cli->args[0], *slash = strrchr(latents, '/'), *name = d->record.to_name;
    int folder = slash && !d->cli->output ? (int)(slash - latents) + 1 : 0;
    if (d->cli->output) name = d->cli->output;
    *out = NULL;
    if (name && asprintf(out, "%.*s%s", folder, latents, name) < 0) {
        *out = NULL;
        return fail(e, ERR_MEMORY, "--output: out of memory");
    }
    return OK;
}

static Status run(Decode *d, Error *e) {
    const Cli *cli = d->cli;
    const bool as_left = d->record.to_come && !cli->output; /* another name may be of another kind */
    /* a record that is missing is not made up */
    OutputOptions o = {.codec = cli->codec || !as_left ? cli->codec : d->record.to_codec,
                       .crf = cli->crf >= 0 || cli->codec || !as_left ? cli->crf : d->record.to_crf,
                       .sound = pipeline_sound(d->pipeline),
                       .no_metadata = cli->no_metadata || !d->recorded || d->record.to_no_metadata,
                       .overwrite = cli->overwrite,
                       .interrupted = d->interrupted};
    char *output;
    bool clips = pipeline_makes_clips(d->pipeline);
    TRY(resolve(d, e));
    NamesWanted wanted = {.title = pipeline_title(d->pipeline),
                          .seed = d->job.seed,
                          .count = 1,
                          .of = clips ? NAMES_OF_CLIPS : NAMES_OF_PICTURES,
                          .frames = d->job.frames,
                          .suffix = clips && o.codec == MP4_FFV1 ? ".mkv" : NULL};
    TRY(wanted_output(d, &output, e));
    Status named = names_make(output, &wanted, &d->names, e);
    free(output);
    TRY(named);
    TRY(names_check(&d->names, o.overwrite, e));
    TRY(output_check(d->names.path[0], d->names.kind, clips, wanted.title, &d->job, &o, e));
    if (cli->verbosity >= 0)
        fprintf(d->err, "decoding %s with %s on %s: %dx%d, %d frame%s\n", cli->args[0], pipeline_title(d->pipeline),
                pipeline_device(d->pipeline), d->job.width, d->job.height, d->job.frames, d->job.frames > 1 ? "s" : "");
    return make(d, &o, e);
}

Status decode_run(const Cli *cli, const char *folder, FILE *out, FILE *err, bool terminal,
                  const volatile int *interrupted, Error *e) {
    Decode d = {.cli = cli, .out = out, .err = err, .interrupted = interrupted};
    d.line = (ProgressLine){
        .out = cli->verbosity < 0 ? NULL : err, .terminal = terminal, .verbose = cli->verbosity > 0, .label = ""};
    Status s = read_job(&d, e);
    PipelineOptions options = generate_pipeline(cli);
    options.model = folder;
    if (!options.device && d.recorded) options.device = d.record.device;
    if (!options.dtype) options.dtype = d.record.dtype;
    if (!options.vae_dtype) options.vae_dtype = d.record.vae_dtype;
    options.interrupted = interrupted;
    if (s == OK) s = pipeline_open(&options, &d.pipeline, e);
    if (s == OK) s = run(&d, e);
    names_free(&d.names);
    if (d.pipeline) pipeline_close(d.pipeline);
    meta_read_close(&d.record);
    return s;
}
