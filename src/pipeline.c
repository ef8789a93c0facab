/* pipeline.c - see pipeline.h. The same run() executes twice: dry, on addresses that fault when touched, which gives
 * the exact peak of every arena; then for real, in arenas of that size.
 *
 * Easy to get wrong: a plan belongs to one job's shapes; a later job may reuse the arenas when they are large
 * enough, since every run starts at mark 0. */
#include "pipeline.h"

#include "core/device_cuda.h"
#include "core/file.h"
#include "kernels/cuda.h"
#include "kernels/unary.h"
#include "model.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const size_t DRY_CAPACITY = (size_t)1 << 42;

typedef struct PartPlan { size_t region, mapped; } PartPlan;
typedef struct Plan {
    PartPlan part[MODEL_MAX_PARTS];
    size_t work, scratch, result; /* result: the RGB picture on the host */
    size_t process;               /* resident before anything is allocated */
} Plan;

struct Pipeline {
    char *folder;
    Model *model;
    Device device, dry;
    Unary unary; /* cpu */
    Cuda *cuda;  /* cuda */
    Memo memo;
    Arena work, scratch;
    bool bound;
    const volatile int *interrupted;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- open and close --- */

void pipeline_close(Pipeline *p) {
    if (!p) return;
    arena_close(&p->work);
    arena_close(&p->scratch);
    if (p->model) p->model->ops->close(p->model);
    memo_free(&p->memo);
    unary_close(&p->unary);
    cuda_close(p->cuda);
    device_cuda_close(&p->device);
    free(p->folder);
    free(p);
}

static Status open_model(Pipeline *p, DType dtype, Error *e) {
    char *path = file_join(p->folder, "model_index.json");
    if (!path) return fail(e, ERR_MEMORY, "out of memory");
    Json *index = NULL;
    Status s = json_read(path, &index, e);
    free(path);
    TRY(s);
    const ModelOps *ops = NULL;
    s = model_find(p->folder, index, &ops, e);
    if (s == OK) s = ops->open(p->folder, index, dtype, &p->model, e);
    json_free(index);
    TRY(s);
    for (int i = 0; i < p->model->parts; i++) {
        if (p->cuda) ops_cuda(&p->model->part[i].ops);
        else ops_cpu(&p->model->part[i].ops);
    }
    return OK;
}

/* cuda when asked for, or when nothing was asked for and a usable GPU is there. */
static Status open_device(Pipeline *p, const char *name, Error *e) {
    if (name && strcmp(name, "cpu") && strcmp(name, "cuda"))
        return fail(e, ERR_USAGE, "--device %s: expected cpu or cuda", name);
    if (!name || !strcmp(name, "cuda")) {
        Error why = {0};
        Status s = device_cuda_open(&p->device, &why);
        if (s == OK) s = cuda_open(&p->device, &p->cuda, &why);
        if (s == OK) return OK;
        device_cuda_close(&p->device);
        if (name) return fail(e, s, "%s", why.text);
    }
    p->device = device_cpu();
    return OK;
}

Status pipeline_open(const PipelineOptions *options, Pipeline **out, Error *e) {
    *out = NULL;
    Pipeline *p = calloc(1, sizeof *p);
    if (!p) return fail(e, ERR_MEMORY, "out of memory");
    p->dry = device_dry();
    p->interrupted = options->interrupted;
    p->folder = strdup(options->model);
    Status s = p->folder ? open_device(p, options->device, e) : fail(e, ERR_MEMORY, "out of memory");
    if (s == OK) s = open_model(p, options->dtype == DTYPE_NONE ? BF16 : options->dtype, e);
    if (s != OK) pipeline_close(p);
    else *out = p;
    return s;
}

const char *pipeline_title(const Pipeline *p) { return p->model->ops->title(p->model); }
const char *pipeline_device(const Pipeline *p) { return p->device.name; }
DType pipeline_dtype(const Pipeline *p) { return p->model->dtype; }
Status pipeline_resolve(const Pipeline *p, Job *job, Error *e) { return p->model->ops->resolve(p->model, job, e); }

void media_free(Media *m) {
    free(m->rgb);
    free(m->latents);
    *m = (Media){0};
}

/* --- one job: the same code dry and for real --- */

typedef struct Prepared {
    Tokens tokens[2];
    Schedule schedule;
    const char *text[2];
    Run run;
} Prepared;

static void prepared_free(Prepared *r) {
    model_tokens_free(&r->tokens[0]);
    model_tokens_free(&r->tokens[1]);
    sched_free(&r->schedule);
}

/* Everything of a job that needs no device: tokens and sigmas. */
static Status prepare(Pipeline *p, const Job *job, Stages *stages, Prepared *r, Error *e) {
    const Model *m = p->model;
    *r = (Prepared){.text = {job->prompt, job->negative_prompt}};
    r->run = (Run){.job = job, .tokens = r->tokens, .schedule = &r->schedule, .text = r->text, .stages = stages,
                   .memo = &p->memo, .cfg = job->cfg_scale > 1 && job->negative_prompt};
    TRY(m->ops->schedule(m, job, &r->schedule, e));
    TRY(stages_host(stages, "sigmas", F32, 1, (int64_t[]){job->steps + 1}, r->schedule.sigmas, e));
    TRY(stages_host(stages, "timesteps", F32, 1, (int64_t[]){job->steps}, r->schedule.timesteps, e));
    for (int i = 0; i < (r->run.cfg ? 2 : 1); i++) {
        TRY(m->ops->tokenize(m, r->text[i], job, &r->tokens[i], e));
        for (int k = 0; k < r->tokens[i].rows; k++) {
            TokenRow *row = &r->tokens[i].row[k];
            char name[32];
            snprintf(name, sizeof name, "%sids_%s", i ? "negative_" : "", row->encoder);
            TRY(stages_host(stages, name, I32, 2, (int64_t[]){1, row->count}, row->ids, e));
            snprintf(name, sizeof name, "%smask_%s", i ? "negative_" : "", row->encoder);
            TRY(stages_host(stages, name, I32, 2, (int64_t[]){1, row->count}, row->mask, e));
        }
    }
    return OK;
}

static Status keep_latents(Exec *x, Tensor latents, int rank, const int64_t *shape, Media *out) {
    free(out->latents);
    out->latents = malloc(tensor_bytes(latents));
    if (!out->latents) return fail(x->error, ERR_MEMORY, "out of memory for latents");
    out->latents_dtype = latents.dtype;
    out->latents_rank = rank;
    memcpy(out->latents_shape, shape, sizeof out->latents_shape);
    return exec_download(x, out->latents, latents);
}

static Status step(Model *m, Exec *x, const Run *run, const StepParams *params, int i, Tensor latents, Tensor velocity,
                   int rank, const int64_t *shape) {
    float values[STEP_PARAMS];
    char name[32];
    m->ops->params(m, run, i, values);
    TRY(exec_upload(x, params->all, values));
    TRY(m->ops->velocity(m, x, run, params, latents, velocity));
    snprintf(name, sizeof name, "velocity_%03d", i);
    TRY(stages_pass(run->stages, x, name, velocity, rank, shape));
    TRY(exec_check_finite(x, velocity, name));
    TRY(m->ops->advance(m, x, params, latents, velocity));
    snprintf(name, sizeof name, "latents_%03d", i);
    return stages_pass(run->stages, x, name, latents, rank, shape);
}

static Status denoise(Model *m, Exec *x, const Run *run, const Progress *progress, Tensor latents, int rank,
                      const int64_t *shape, Media *out) {
    size_t mark = arena_mark(x->work);
    StepParams params = {.all = exec_new_as(x, F32, STEP_PARAMS)};
    params.t = tensor_slice(params.all, 0, STEP_T, 1);
    params.guidance = tensor_slice(params.all, 0, STEP_GUIDANCE, 1);
    params.dt = tensor_slice(params.all, 0, STEP_DT, 1);
    params.cfg_scale = tensor_slice(params.all, 0, STEP_CFG_SCALE, 1);
    Tensor velocity = exec_tensor(x, latents.dtype, latents.rank, latents.shape);
    int steps = x->dry ? 1 : run->job->steps; /* every step has the same shapes */
    for (int i = 0; i < steps; i++) {
        if (progress && progress->step) progress->step(progress->user, "denoise", i, steps);
        Status s = step(m, x, run, &params, i, latents, velocity, rank, shape);
        if (s == ERR_NAN) keep_latents(x, latents, rank, shape, out); /* untouched by the failed step */
        if (s != OK) return because(x->error, "step %d of %d", i + 1, run->job->steps);
    }
    if (progress && progress->step) progress->step(progress->user, "denoise", steps, steps);
    arena_reset(x->work, mark);
    return OK;
}

static Status run_job(Model *m, Exec *x, const Run *run, const Progress *progress, Media *out) {
    const Job *job = run->job;
    Tensor latents;
    int rank;
    int64_t shape[TENSOR_MAX_RANK] = {0};
    double start = now();
    if (progress && progress->step) progress->step(progress->user, "text", 0, 1);
    TRY(m->ops->encode(m, x, run));
    double encoded = now();
    TRY(m->ops->noise(m, x, run, &latents, &rank, shape));
    TRY(denoise(m, x, run, progress, latents, rank, shape, out));
    TRY(stages_pass(run->stages, x, "latents", latents, rank, shape));
    double denoised = now();
    if (progress && progress->step) progress->step(progress->user, "decode", 0, 1);
    Tensor rgb = exec_new_as(x, U8, job->height, job->width, 3);
    Status s = m->ops->decode(m, x, run, latents, rgb);
    if (s == ERR_NAN) keep_latents(x, latents, rank, shape, out);
    TRY(s);
    out->width = job->width, out->height = job->height;
    if (!x->dry) {
        out->rgb = malloc(tensor_bytes(rgb));
        if (!out->rgb) return fail(x->error, ERR_MEMORY, "out of memory for the picture");
        TRY(exec_download(x, out->rgb, rgb));
        TRY(stages_host(run->stages, "pixels", U8, 3, rgb.shape, out->rgb, x->error));
    }
    if (progress && progress->step) progress->step(progress->user, "decode", 1, 1);
    out->seconds_text = encoded - start;
    out->seconds_denoise = denoised - encoded;
    out->seconds_decode = now() - denoised;
    return OK;
}

/* --- the plan --- */

static size_t resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long total = 0, resident = 0;
    if (f) {
        if (fscanf(f, "%lu %lu", &total, &resident) != 2) resident = 0;
        fclose(f);
    }
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* plan NULL: as large a region as it takes, for a dry device. */
static Status bind_parts(Pipeline *p, Device *device, const Plan *plan, Error *e) {
    Model *m = p->model;
    for (int i = 0; i < m->parts; i++) {
        Part *part = &m->part[i];
        arena_close(&part->region);
        TRY(arena_open(&part->region, device, part->name, plan ? plan->part[i].region : DRY_CAPACITY, e));
        TRY(weights_bind(part->files, &part->bind, part->dtype, &part->region, part->ignore, e)); /* names the folder */
    }
    return OK;
}

static Status make_plan(Pipeline *p, Prepared *r, Plan *plan, Error *e) {
    Model *m = p->model;
    *plan = (Plan){.process = resident_bytes(), .result = (size_t)r->run.job->width * (size_t)r->run.job->height * 3};
    /* shapes and addresses, no bytes; first, since it names every missing, mis-shaped and surplus tensor at once */
    if (!p->bound) TRY(bind_parts(p, &p->dry, NULL, e));
    for (int i = 0; i < m->parts; i++) {
        Part *part = &m->part[i];
        TRY(weights_measure(part->files, &part->bind, part->dtype, &p->device, &plan->part[i].region,
                            &plan->part[i].mapped, e));
    }
    Arena work, scratch;
    TRY(arena_open(&work, &p->dry, "work", DRY_CAPACITY, e));
    Status s = arena_open(&scratch, &p->dry, "scratch", DRY_CAPACITY, e);
    if (s == OK) {
        Exec x = {.device = &p->dry, .work = &work, .scratch = &scratch, .error = e, .dry = true,
                  .interrupted = p->interrupted};
        Media none = {0};
        s = run_job(m, &x, &r->run, NULL, &none);
        media_free(&none);
    }
    plan->work = work.peak;
    plan->scratch = scratch.peak;
    arena_close(&work);
    arena_close(&scratch);
    return s;
}

static size_t plan_anonymous(const Plan *plan, const Model *m) {
    size_t n = plan->work + plan->scratch + plan->result;
    for (int i = 0; i < m->parts; i++) n += plan->part[i].region;
    return n;
}

static Status check_fits(const Plan *plan, const Model *m, Error *e) {
    size_t need = plan_anonymous(plan, m);
    size_t have = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (need <= have) return OK;
    return fail(e, ERR_MEMORY, "the plan needs %.2f GiB (work %.2f, scratch %.2f) beside mapped weights; this machine "
                "has %.2f GiB", (double)need / 0x1p30, (double)plan->work / 0x1p30, (double)plan->scratch / 0x1p30,
                (double)have / 0x1p30);
}

static Status grow(Arena *a, Device *d, const char *name, size_t capacity, Error *e) {
    if (a->device && a->capacity >= capacity) return OK;
    arena_close(a);
    return arena_open(a, d, name, capacity, e);
}

Status pipeline_describe(Pipeline *p, const Job *job, FILE *out, Error *e) {
    Model *m = p->model;
    Prepared r;
    Plan plan = {0};
    Status s = prepare(p, job, NULL, &r, e);
    if (s == OK) s = make_plan(p, &r, &plan, e);
    if (s == OK) {
        fprintf(out, "model          %s (%s), %s on %s\n", pipeline_title(p), p->folder, dtype_name(m->dtype), p->device.name);
        fprintf(out, "picture        %d x %d, %d steps, seed %llu\n", job->width, job->height, job->steps,
                (unsigned long long)job->seed);
        fprintf(out, "guidance       %g (distilled)%s\n", job->guidance,
                job->guidance_given ? "" : job->guidance > 0 ? ", default" : ", none in this model");
        fprintf(out, "cfg scale      %g%s\n", job->cfg_scale,
                r.run.cfg ? ", two passes: neg + scale (pos - neg)" : ", off (needs a scale above 1 and a negative prompt)");
        for (int i = 0; i < (r.run.cfg ? 2 : 1); i++)
            for (int k = 0; k < r.tokens[i].rows; k++) {
                const TokenRow *row = &r.tokens[i].row[k];
                fprintf(out, "tokens         %sencoder %s: %lld of %lld", i ? "negative, " : "", row->encoder,
                        (long long)row->used, (long long)row->count);
                if (row->lost_byte >= 0) {
                    const char *rest = r.text[i] + row->lost_byte;
                    rest += strspn(rest, " \t\r\n");
                    fprintf(out, "; cut: \"%.*s\" and all that follows is lost", (int)strcspn(rest, " \t\r\n"), rest);
                }
                fputc('\n', out);
            }
        fprintf(out, "sigmas        ");
        for (int i = 0; i <= job->steps; i++) fprintf(out, " %.9g", (double)r.schedule.sigmas[i]);
        fprintf(out, "\nmemory plan    part, copied MiB, mapped MiB\n");
        size_t mapped = 0;
        for (int i = 0; i < m->parts; i++) {
            mapped += plan.part[i].mapped;
            fprintf(out, "  %-16s %10.1f %10.1f\n", m->part[i].name, (double)plan.part[i].region / 0x1p20,
                    (double)plan.part[i].mapped / 0x1p20);
        }
        fprintf(out, "  %-16s %10.1f\n  %-16s %10.1f\n  %-16s %10.1f\n  %-16s %10.1f\n", "activations",
                (double)plan.work / 0x1p20, "scratch", (double)plan.scratch / 0x1p20, "picture",
                (double)plan.result / 0x1p20, "program", (double)plan.process / 0x1p20);
        fprintf(out, "  %-16s %10.1f\n", "peak",
                (double)(plan_anonymous(&plan, m) + plan.process + mapped) / 0x1p20);
    }
    prepared_free(&r);
    return s;
}

Status pipeline_tokens(Pipeline *p, const char *prompt, FILE *out, Error *e) {
    Job job = {.prompt = prompt};
    Tokens tokens;
    TRY(pipeline_resolve(p, &job, e));
    TRY(p->model->ops->tokenize(p->model, prompt, &job, &tokens, e));
    for (int k = 0; k < tokens.rows; k++) {
        fprintf(out, "{\"encoder\":\"%s\",\"used\":%lld,\"ids\":[", tokens.row[k].encoder, (long long)tokens.row[k].used);
        for (int64_t i = 0; i < tokens.row[k].count; i++) fprintf(out, i ? ",%d" : "%d", tokens.row[k].ids[i]);
        fprintf(out, "]}\n");
    }
    model_tokens_free(&tokens);
    return OK;
}

/* --- render --- */

static Status write_meta(Pipeline *p, const Job *job, Stages *stages, Error *e) {
    if (!job->dump) return OK;
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", pipeline_title(p));
    cJSON_AddStringToObject(j, "prompt", job->prompt);
    if (job->negative_prompt) cJSON_AddStringToObject(j, "negative_prompt", job->negative_prompt);
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)job->seed);
    cJSON_AddRawToObject(j, "seed", seed);
    cJSON_AddNumberToObject(j, "width", job->width);
    cJSON_AddNumberToObject(j, "height", job->height);
    cJSON_AddNumberToObject(j, "steps", job->steps);
    cJSON_AddNumberToObject(j, "guidance", job->guidance);
    cJSON_AddNumberToObject(j, "cfg_scale", job->cfg_scale);
    cJSON_AddNumberToObject(j, "max_sequence_length", job->max_sequence_length);
    cJSON_AddStringToObject(j, "device", p->device.name);
    cJSON_AddStringToObject(j, "dtype", dtype_name(p->model->dtype));
    cJSON_AddStringToObject(j, "unary_tables", unary_source());
    char *text = cJSON_Print(j);
    Status s = text ? stages_meta(stages, text, e) : fail(e, ERR_MEMORY, "out of memory");
    cJSON_free(text);
    cJSON_Delete(j);
    return s;
}

static Status render(Pipeline *p, const Job *job, Stages *stages, Prepared *r, const Progress *progress, Media *out,
                     Error *e) {
    Plan plan;
    TRY(prepare(p, job, stages, r, e));
    TRY(write_meta(p, job, stages, e));
    TRY(make_plan(p, r, &plan, e));
    TRY(check_fits(&plan, p->model, e));
    if (!p->cuda && !p->unary.table[0]) TRY(unary_open(&p->unary, e));
    if (!p->bound) {
        TRY(bind_parts(p, &p->device, &plan, e));
        p->bound = true;
    }
    TRY(grow(&p->work, &p->device, "work", plan.work, e));
    TRY(grow(&p->scratch, &p->device, "scratch", plan.scratch, e));
    p->work.used = p->scratch.used = 0;
    Exec x = {.device = &p->device, .work = &p->work, .scratch = &p->scratch, .error = e, .unary = &p->unary, .cuda = p->cuda,
              .interrupted = p->interrupted};
    TRY(run_job(p->model, &x, &r->run, progress, out));
    return stages_check_used(stages, e);
}

Status pipeline_render(Pipeline *p, const Job *job, const Progress *progress, Media *out, Error *e) {
    *out = (Media){0};
    Stages *stages = NULL;
    if (job->dump || job->inject_count) TRY(stages_open(job->dump, job->inject, job->inject_count, &stages, e));
    Prepared r = {0};
    Status s = render(p, job, stages, &r, progress, out, e);
    prepared_free(&r);
    stages_close(stages);
    return s;
}
