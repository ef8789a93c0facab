/* pipeline.c - see pipeline.h. The same run() executes twice: dry, on addresses that fault when touched, which gives
 * the exact peak of every arena; then for real, in arenas of that size.
 *
 * Easy to get wrong: a plan belongs to one job's shapes; a later job may reuse the arenas when they are large
 * enough, since every run starts at mark 0. */
#include "pipeline_parts.h"

#include "clip.h"
#include "condition.h"
#include "core/clock.h"
#include "core/device_cuda.h"
#include "core/file.h"
#include "guiding.h"
#include "job.h"
#include "kernels/cuda_prepare.h"
#include "kernels/tune_cuda.h"
#include "media/image.h"
#include "profile.h"
#include "recognise.h"
#include "uses.h"

#include <stdlib.h>

/* --- open and close --- */

void pipeline_close(Pipeline *p) {
    if (!p) return;
    graphs_close(&p->graphs);
    arena_close(&p->work);
    arena_close(&p->scratch);
    residency_close(&p->pool);
    if (p->model) p->model->ops->close(p->model);
    verdicts_save(&p->verdicts);
    verdicts_close(&p->verdicts);
    free(p->verdict_file);
    gate_close(&p->gate);
    memo_free(&p->memo);
    unary_close(&p->unary);
    cuda_close(p->cuda);
    device_cuda_close(&p->own);
    free(p->folder);
    free(p->tuned);
    free(p);
}

/* Before anything of the weights is decided. */
static Status set_vae_dtype(Pipeline *p, DType dtype, Error *e) {
    Model *m = p->model;
    if (!dtype) return OK;
    if (!m->ops->own_vae_dtype)
        return fail(e, ERR_USAGE, "--vae-dtype: %s decodes in --dtype", m->ops->pipeline_class);
    for (int i = 0; i < m->parts; i++)
        if (m->part[i].decodes || m->part[i].encodes_image) m->part[i].dtype = dtype;
    return OK;
}

/* What model_index.json says lies in the folder. json_free(*index) in any case. */
static Status read_index(const char *folder, Json **index, const ModelOps **ops, Error *e) {
    char *path = file_join(folder, "model_index.json");
    *index = NULL;
    if (!path) return fail(e, ERR_MEMORY, "out of memory");
    Status s = json_read(path, index, e);
    free(path);
    return s == OK ? model_find(folder, *index, ops, e) : s;
}

static Status open_folder(Pipeline *p, DType dtype, Error *e) {
    const ModelOps *ops = NULL;
    Json *index;
    Status s = read_index(p->folder, &index, &ops, e);
    if (s == OK) s = ops->open(p->folder, index, dtype, &p->model, e);
    json_free(index);
    return s;
}

bool pipeline_would_make_clips(const char *path) {
    if (!file_is_dir(path)) return recognise_model(path, NULL) == OK; /* in one file there is LTX-2 alone */
    const ModelOps *ops = NULL;
    Json *index;
    bool clips = read_index(path, &index, &ops, NULL) == OK && ops->clip;
    json_free(index);
    return clips;
}

static Status open_file(Pipeline *p, const char *beside, DType dtype, Error *e) {
    const char *slash = strrchr(p->folder, '/');
    char *own = beside ? strdup(beside) : slash ? strndup(p->folder, (size_t)(slash - p->folder) + 1) : strdup(".");
    if (!own) return fail(e, ERR_MEMORY, "out of memory");
    Status s = MODEL_LTX2.open_file(p->folder, own, dtype, &p->model, e); /* recognise.h lets no other file pass */
    free(own);
    return s;
}

static Status open_model(Pipeline *p, const char *text_encoder, DType dtype, Error *e) {
    bool file = file_exists(p->folder) && !file_is_dir(p->folder);
    if (text_encoder && !file)
        return fail(e, ERR_USAGE, "--text-encoder: %s is a folder, which has its own text encoder", p->folder);
    TRY(file ? open_file(p, text_encoder, dtype, e) : open_folder(p, dtype, e));
    for (int i = 0; i < p->model->parts; i++) {
        if (p->cuda) ops_cuda(&p->model->part[i].ops);
        else ops_cpu(&p->model->part[i].ops);
        fusion_init(&p->model->part[i].fusion, p->model->part[i].name, &p->model->part[i].ops);
        gate_watch(&p->gate, &p->model->part[i].fusion);
    }
    return OK;
}

/* cuda when asked for, or when nothing was asked for and a usable GPU is there. */
static Status open_device(Pipeline *p, const char *name, Error *e) {
    p->device = &p->own;
    if (name && strcmp(name, "cpu") && strcmp(name, "cuda"))
        return fail(e, ERR_USAGE, "--device %s: expected cpu or cuda", name);
    if (!name || !strcmp(name, "cuda")) {
        Error why = {0};
        Status s = device_cuda_open(&p->own, &why);
        if (s == OK) s = cuda_open(&p->own, &p->cuda, &why);
        if (s == OK) return OK;
        device_cuda_close(&p->own);
        if (name) return fail(e, s, "%s", why.text);
    }
    p->own = device_cpu();
    return OK;
}

static Status open_tuned(Pipeline *p, const PipelineOptions *options, Error *e) {
    if (!options->tuned) return OK;
    if (!p->cuda && options->tune) return fail(e, ERR_USAGE, "--tune: products are tuned on a GPU; this is the cpu");
    if (!p->cuda) {
        snprintf(p->tuned_note, sizeof p->tuned_note, "--tuned has no effect on the cpu");
        return OK;
    }
    p->tuned = strdup(options->tuned);
    if (!p->tuned) return fail(e, ERR_MEMORY, "out of memory");
    return tune_cuda_open(p->cuda, options->tune ? TUNE_TRY : TUNE_USE, p->tuned, p->tuned_note, sizeof p->tuned_note, e);
}

Status pipeline_save_tuned(const Pipeline *p, Error *e) { return tune_cuda_save(p->cuda, p->tuned, e); }

static Status choose_verdicts(Pipeline *p, const PipelineOptions *options, Error *e) {
    if (!options->verdicts) return OK;
    if (options->tuned) { /* its products are others than those that were looked at */
        snprintf(p->no_verdicts, sizeof p->no_verdicts, "not with --tuned");
        return OK;
    }
    p->verdict_file = strdup(options->verdicts);
    return p->verdict_file ? OK : fail(e, ERR_MEMORY, "out of memory");
}

/* What the user would call the model: the folder's own name, or NAME of a hub snapshot, .../models--OWNER--NAME/
 * snapshots/HASH. Names say more than shapes: a re-tuned FLUX.1 is not FLUX.1-dev. */
static void name_model(Pipeline *p) {
    char *path = realpath(p->folder, NULL), *name = path ? strrchr(path, '/') : NULL;
    if (name && name > path + 10 && !strncmp(name - 10, "/snapshots", 10)) {
        name[-10] = 0;
        char *repository = strrchr(path, '/'), *last = repository;
        for (char *at = repository; at && (at = strstr(at, "--")); at += 2) last = at + 1;
        name = last;
    }
    char *suffix = name ? strstr(name, ".safetensors") : NULL;
    if (suffix && !suffix[12]) *suffix = 0;
    snprintf(p->title, sizeof p->title, "%s", name && name[1] ? name + 1 : p->model->ops->title(p->model));
    free(path);
}

Status pipeline_open(const PipelineOptions *options, Pipeline **out, Error *e) {
    *out = NULL;
    Pipeline *p = calloc(1, sizeof *p);
    if (!p) return fail(e, ERR_MEMORY, "out of memory");
    p->interrupted = options->interrupted;
    p->vram = options->vram;
    p->sync = options->sync;
    p->timer = options->timer;
    p->device = options->on;
    p->host = device_cpu();
    gate_open(&p->gate);
    p->folder = strdup(options->model);
    Status s = p->folder ? OK : fail(e, ERR_MEMORY, "out of memory");
    if (s == OK && !p->device) s = open_device(p, options->device, e);
    if (s == OK) {
        p->pool.device = p->device;
        p->room = p->device->room(p->device);
        graphs_open(&p->graphs, p->device, !options->no_graphs && !options->timer);
    }
    if (s == OK) s = open_model(p, options->text_encoder, options->dtype == DTYPE_NONE ? BF16 : options->dtype, e);
    if (s == OK) s = set_vae_dtype(p, options->vae_dtype, e);
    if (s == OK) name_model(p);
    if (s == OK) s = open_tuned(p, options, e);
    if (s == OK) s = choose_verdicts(p, options, e);
    if (s == OK) p->families = registry_families(p->cuda != NULL, &p->family_count);
    if (options->families) p->families = options->families, p->family_count = options->family_count;
    if (s != OK) pipeline_close(p);
    else *out = p;
    return s;
}

const char *pipeline_title(const Pipeline *p) { return p->title; }
const char *pipeline_sampler(const Pipeline *p) {
    return p->model->ops->sampler ? p->model->ops->sampler(p->model) : "Euler";
}
bool pipeline_makes_clips(const Pipeline *p) { return p->model->ops->clip != NULL; }
Sound pipeline_sound(const Pipeline *p) {
    Sound s = {0};
    if (p->model->ops->hears) p->model->ops->hears(p->model, &s.rate, &s.channels);
    return s;
}
bool pipeline_makes_sound(const Pipeline *p) { return p->model->ops->sound != NULL; }
const char *pipeline_device(const Pipeline *p) { return p->device->name; }
DType pipeline_dtype(const Pipeline *p) { return p->model->dtype; }
DType pipeline_vae_dtype(const Pipeline *p) {
    for (int i = 0; p->model->ops->own_vae_dtype && i < p->model->parts; i++)
        if (p->model->part[i].decodes) return p->model->part[i].dtype;
    return DTYPE_NONE;
}
Status pipeline_profile(const Pipeline *p, Profile *out, Error *e) {
    return profile_make(p->device, p->cuda, p->model->dtype, out, e);
}
PipelineFacts pipeline_facts(const Pipeline *p) {
    return (PipelineFacts){.model = p->model, .device = p->device, .work = &p->work, .scratch = &p->scratch,
                           .pool = &p->pool, .graphs = &p->graphs, .plan = p->planned ? &p->plan : NULL, .cuda = p->cuda,
                           .gate = &p->gate, .no_verdicts = p->no_verdicts, .tuned_note = p->tuned_note};
}

static Status resolve_image(const Pipeline *p, Job *job, Error *e) {
    Image image;
    if (!p->model->ops->takes_image)
        return fail(e, ERR_USAGE, "--image: %s makes pictures from text alone", p->model->ops->pipeline_class);
    if (p->model->ops->image_is_frame && job->strength_given && job->strength < 1) /* 1 is what its files say */
        return fail(e, ERR_USAGE, "--strength: %s takes an image as the first frame; all steps run", p->title);
    Condition c = {.strength = 1};
    if (p->model->ops->image_conditions) {
        TRY(condition_parse(job->image, &c, e));
        if (c.framed) job->image_frame = c.frame;
        if (!job->strength_given || c.firm) job->strength = c.strength;
    } else if (p->model->ops->image_is_frame) job->strength = 1;
    else if (!job->strength_given) job->strength = 0.6; /* the default of diffusers' image-to-image pipelines */
    if (!(job->strength >= 0 && job->strength <= 1))
        return fail(e, ERR_USAGE, "--strength: %g is out of range, expected 0 to 1", job->strength);
    if (image_probe(*c.path ? c.path : job->image, &image, job->image_sha256, e) != OK) return because(e, "--image");
    TRY(image_upright(&image, e));
    job->image_width = image.width, job->image_height = image.height;
    return OK;
}

/* get_timesteps() of diffusers' image-to-image pipelines: the last strength * steps of the steps, rounded up. */
static Status resolve_strength(Job *job, Error *e) {
    double steps = job->steps, most = steps * job->strength;
    double left_out = steps - (most < steps ? most : steps);
    job->first_step = (int)(left_out > 0 ? left_out : 0);
    if (job->first_step < job->steps) return OK;
    return fail(e, ERR_USAGE, "--strength: %g of %d steps leaves none to run; expected more than 0", job->strength, job->steps);
}

Status pipeline_resolve(const Pipeline *p, Job *job, Error *e) {
    uint32_t wanted;
    TRY(fusion_choose(p->families, p->family_count, job->quality == QUALITY_HIGH, job->families, &wanted, e));
    job->first_step = 0;
    if (job->image && job->decode_only) return fail(e, ERR_USAGE, "--image: these latents are finished");
    if (job->image) TRY(resolve_image(p, job, e));
    else if (job->strength_given) return fail(e, ERR_USAGE, "--strength: says how far to go from an image: give --image FILE");
    ClipRule clip;
    const ModelOps *ops = p->model->ops;
    /* latents say what their picture went through; they need none */
    if (job->image_crf > 0 && !ops->image_conditions)
        return fail(e, ERR_USAGE, "--image-crf: %s encodes no picture as video", p->title);
    if (job->image_crf > 0 && !job->image && !job->decode_only)
        return fail(e, ERR_USAGE, "--image-crf: says what an image goes through: give --image FILE");
    if (ops->clip) ops->clip(p->model, &clip);
    if (job->upscale && !ops->rounds) return fail(e, ERR_USAGE, "--upscale: %s has no second round", p->title);
    if (!ops->guides) TRY(guiding_refuse(job, p->title, e));
    if (job->motion_score && !ops->clip)
        return fail(e, ERR_USAGE, "--motion-score: %s makes pictures, nothing moves", ops->pipeline_class);
    TRY(clip_resolve(ops->clip ? &clip : NULL, ops->pipeline_class, job, e));
    if ((job->bin || job->layout) && !ops->bins)
        return fail(e, ERR_USAGE, "%s: %s has nothing to choose there", job->bin ? "--bin" : "--layout", ops->pipeline_class);
    if (job->match && strcmp(job->match, "diffusers") && !guiding_official(job))
        return fail(e, ERR_USAGE, "--match: found \"%s\", expected diffusers or official", job->match);
    if (guiding_official(job) && !ops->matches_official)
        return fail(e, ERR_USAGE, "--match official: %s has no second profile, only diffusers'", p->title);
    job->made_width = job->made_height = 0;
    TRY(ops->resolve(p->model, job, e));
    if (!job->made_width) job->made_width = job->width, job->made_height = job->height;
    return job->image && !ops->image_conditions ? resolve_strength(job, e) : OK;
}

bool pipeline_mounted(const Pipeline *p, const char *part, const char *family) {
    const Part *at = model_part(p->model, part);
    for (int i = 0; at && i < at->fusion.mounts; i++)
        if (at->fusion.mount[i].mounted && !strcmp(at->fusion.mount[i].family->name, family)) return true;
    return false;
}

void media_free(Media *m) {
    free(m->rgb);
    sound_free(&m->sound);
    free(m->latents);
    free(m->dispatch);
    free(m->family);
    *m = (Media){0};
}

/* --- verdicts --- */

static Status believe(Pipeline *p, const char *path, Error *e) {
    Profile profile;
    Error why = {0};
    char machine[PROFILE_MACHINE];
    if (pipeline_profile(p, &profile, &why) != OK) return OK; /* a missing library is said where it is needed */
    if (!profile_machine(&profile, p->device, machine)) {
        snprintf(p->no_verdicts, sizeof p->no_verdicts, "%s", machine);
        return OK;
    }
    TRY(verdicts_open(&p->verdicts, path, machine, e));
    snprintf(p->no_verdicts, sizeof p->no_verdicts, "%s", p->verdicts.note);
    p->gate.verdicts = &p->verdicts;
    for (int i = 0; i < p->model->parts; i++) p->model->part[i].fusion.verdicts = &p->verdicts;
    return OK;
}

/* Before the first plan: only then the libraries are needed, whose versions say which verdicts count. */
static Status open_verdicts(Pipeline *p, Error *e) {
    char *path = p->verdict_file;
    p->verdict_file = NULL;
    Status s = path ? believe(p, path, e) : OK;
    free(path);
    return s;
}

/* After a job: what it found, and the line that is said once. */
static void close_job(Pipeline *p, Media *out) {
    verdicts_save(&p->verdicts);
    if (p->verdicts.note[0] && !p->noted) {
        snprintf(out->note, sizeof out->note, "%s", p->verdicts.note);
        p->noted = true;
    }
}

/* --- the plan --- */

/* Every part's rows matched with its files; names every missing, mis-shaped and surplus tensor of a part at once. The last
 * parts wait for the first job that needs them, or one behind them: a folder may lack them. */
static Status add_parts(Pipeline *p, const Job *job, Error *e) {
    Model *m = p->model;
    int end = m->parts;
    while (end > p->pool.parts &&
           ((m->part[end - 1].encodes_image && !job->image) ||
            (m->part[end - 1].upscales && (!job->upscale || job->decode_only))))
        end--;
    for (int i = p->pool.parts; i < end; i++) {
        Part *part = &m->part[i];
        TRY(residency_add(&p->pool, part->name, part->files, &part->bind, part->ignore, part->dtype, part->repeats,
                          &part->residency, e)); /* errors name the folder */
    }
    return OK;
}

Status pipeline_make_plan(Pipeline *p, const Prepared *r, Plan *plan, Error *e) {
    TRY(add_parts(p, r->run.job, e));
    if (!p->cuda && !p->unary.table[0]) TRY(unary_open(&p->unary, e)); /* probes look things up */
    TRY(open_verdicts(p, e));
    return plan_make(p->model, &p->pool, &r->run, p->vram, p->room, p->interrupted, plan, e);
}

static size_t surplus(const Arena *a, size_t size) { return a->capacity > size ? a->capacity - size : 0; }

/* An arena of an earlier job stays where it is, and with it the graphs, if it is large enough and there is room for what it
 * has too much. */
static bool arena_suits(const Arena *a, size_t size, bool roomy) {
    return a->device && (a->capacity == size || (a->capacity > size && roomy));
}

static void lose_arena(Pipeline *p, Arena *a) {
    graphs_forget(&p->graphs);
    arena_close(a);
}

/* Makes the device look as the plan says: weights that must leave leave before the arenas grow. */
static Status carry_out(Pipeline *p, const Plan *plan, bool prefetch, Error *e) {
    bool first = prefetch && !p->pool.uploads;
    for (int i = 0; i < plan->parts; i++) residency_place(&p->pool.part[i], plan->part[i].stream);
    size_t over = surplus(&p->work, plan->work) + surplus(&p->scratch, plan->scratch);
    bool roomy = plan->limit == SIZE_MAX || (plan->peak <= plan->limit && over <= plan->limit - plan->peak);
    p->pool.room = plan_room(plan) - (plan->limit != SIZE_MAX && roomy ? over : 0);
    TRY(residency_shrink(&p->pool, e));
    bool work = arena_suits(&p->work, plan->work, roomy), scratch = arena_suits(&p->scratch, plan->scratch, roomy);
    if (!work) lose_arena(p, &p->work);
    if (!scratch) lose_arena(p, &p->scratch);
    if (!work) TRY(arena_open(&p->work, p->device, "work", plan->work, e));
    if (!scratch) TRY(arena_open(&p->scratch, p->device, "scratch", plan->scratch, e));
    p->work.used = p->scratch.used = 0;
    /* later jobs may find their texts remembered: they fetch what they enter */
    return first ? residency_prefetch(&p->pool, p->pool.order, p->pool.entries, e) : OK;
}

Status pipeline_plan(Pipeline *p, const Job *job, Plan *out, Error *e) {
    Prepared r = {0};
    Status s = pipeline_prepare(p, job, NULL, &r, e);
    if (s == OK) s = pipeline_make_plan(p, &r, out, e);
    pipeline_unprepare(&r);
    return s;
}

/* --- render --- */

/* The calls that the dry run has seen, for a thread that builds the plans of the libraries. Memory may fail: then the calls
 * build theirs. */
static void prepare_plans(Pipeline *p, const Prepared *r) {
    bool phases = false;
    int count = 0, most = 0;
    for (int k = 0; k < r->set.count; k++)
        for (int v = 0; r->set.wanted >> k & 1 && v < r->set.families[k].count; v++)
            phases |= r->set.families[k].impl[v].op == OP_upsample_conv;
    for (int i = 0; i < p->model->parts; i++) most += p->model->part[i].fusion.sites;
    CudaTask *tasks = calloc((size_t)most + 1, sizeof *tasks);
    for (int i = 0; tasks && i < p->model->parts; i++)
        for (int k = 0; k < p->model->part[i].fusion.sites; k++) {
            const Site *site = &p->model->part[i].fusion.site[k];
            count += cuda_prepare_task(&tasks[count], site->op, &site->args, phases);
        }
    if (tasks) cuda_prepare_start(p->cuda, tasks, count);
}

/* Tokens, plan, room for it. */
static Status make_ready(Pipeline *p, const Job *job, Stages *stages, Prepared *r, Exec *x, Error *e) {
    TRY(pipeline_prepare(p, job, stages, r, e));
    TRY(pipeline_write_meta(p, job, stages, e));
    TRY(pipeline_make_plan(p, r, &p->plan, e));
    TRY(plan_check(&p->plan, e));
    r->run.thrift = p->plan.thrift;
    TRY(carry_out(p, &p->plan, true, e));
    p->planned = true;
    *x = (Exec){.device = p->device, .work = &p->work, .scratch = &p->scratch, .error = e, .unary = &p->unary, .cuda = p->cuda,
                .sync = p->sync, .first = &p->gate.base, .timer = p->timer, .interrupted = p->interrupted};
    return OK;
}

static void begin_counts(Pipeline *p) {
    for (int i = 0; i < p->model->parts; i++) calls_free(&p->model->part[i].calls); /* a plan without a job leaves some */
}

static Status end_counts(Pipeline *p, Status s, Error *e) {
    for (int i = 0; i < p->model->parts; i++) {
        Status kept = calls_retire(&p->model->part[i].calls, &p->model->part[i].past, s == OK ? e : NULL);
        if (s == OK) s = kept;
    }
    return s;
}

static Status render(Pipeline *p, const Job *job, Stages *stages, Prepared *r, const Progress *progress, Media *out,
                     Error *e) {
    double start = clock_now();
    Exec x;
    TRY(make_ready(p, job, stages, r, &x, e));
    r->run.progress = progress;
    if (p->cuda) prepare_plans(p, r);
    out->seconds_plan = clock_now() - start;
    TRY(job_run(p->model, &x, &r->run, out));
    return stages_check_used(stages, e);
}

Status pipeline_render(Pipeline *p, const Job *job, const Progress *progress, Media *out, Error *e) {
    *out = (Media){0};
    Stages *stages = NULL;
    if (job->dump || job->inject_count || job->watch)
        TRY(stages_open(job->dump, job->inject, job->inject_count, &stages, e));
    if (stages) stages_watch(stages, job->watch);
    Prepared r = {0};
    begin_counts(p);
    p->gate.warning[0] = 0;
    p->graphs.warn = false;
    Status s = render(p, job, stages, &r, progress, out, e);
    snprintf(out->warning, sizeof out->warning, "%s", p->gate.warning);
    close_job(p, out);
    if (p->graphs.warn)
        snprintf(out->no_replay, sizeof out->no_replay, "every step runs call by call from here on: %s", p->graphs.stats.why);
    if (s == OK) s = uses_collect(p->model, out, e);
    s = end_counts(p, s, e);
    pipeline_unprepare(&r);
    stages_close(stages);
    return s;
}

/* --- texts ahead --- */

Status pipeline_encode(Pipeline *p, const Job *job, bool first, PipelineTexts *out, Error *e) {
    *out = (PipelineTexts){0};
    double start = clock_now();
    int most = MODEL_MAX_ENCODERS * (job->cfg ? 2 : 1);
    if (first) memo_group(&p->memo);
    if (job->inject_count) return OK;
    out->full = !first && memo_full(&p->memo, most);
    if (out->full) return OK;
    Prepared r = {0};
    Exec x;
    begin_counts(p);
    Status s = make_ready(p, job, NULL, &r, &x, e);
    double ready = clock_now();
    if (s == OK) s = p->model->ops->texts(p->model, &x, &r.run, &out->rows);
    out->encoders = clock_now() - ready;
    s = end_counts(p, s, e);
    pipeline_unprepare(&r);
    out->seconds = clock_now() - start;
    return s;
}

/* --- loading alone --- */

static Status load(Pipeline *p, const Prepared *r, const char *name, double *seconds, size_t *bytes, Error *e) {
    Part *part = model_part(p->model, name);
    Device *d = p->device;
    if (!part) return fail(e, ERR_MODEL, "%s: no such part", name);
    TRY(pipeline_make_plan(p, r, &p->plan, e));
    TRY(plan_check(&p->plan, e));
    TRY(carry_out(p, &p->plan, false, e));
    Exec x = {.device = d, .work = &p->work, .scratch = &p->scratch, .error = e, .cuda = p->cuda, .interrupted = p->interrupted};
    size_t before = p->pool.bytes;
    double start = clock_now();
    model_enter(&x, part);
    TRY(weights_enter(&x, WEIGHTS_PART));
    if (d->sync) TRY(d->sync(d, e));
    *seconds = clock_now() - start;
    *bytes = p->pool.bytes - before;
    TRY(weights_leave(&x, WEIGHTS_PART));
    p->pool.room = 0;
    return residency_shrink(&p->pool, e);
}

Status pipeline_load(Pipeline *p, const Job *job, const char *part, double *seconds, size_t *bytes, Error *e) {
    if (p->device->maps)
        return fail(e, ERR_USAGE, "%s: weights stay in their files here, there is nothing to load", p->device->name);
    Prepared r = {0};
    Status s = pipeline_prepare(p, job, NULL, &r, e);
    if (s == OK) s = load(p, &r, part, seconds, bytes, e);
    pipeline_unprepare(&r);
    return s;
}
