/* model.h - what a pipeline needs to know of a model: a vtable, its parts (components) and how they are run.
 *
 * A model owns its configs, tokenizers, Weights and the state of the job in hand; the pipeline owns arenas, plan, loop
 * and files. Every function that takes an Exec is run twice: dry for the plan, then for real; it must push the same
 * tensors both times. Adding a model: one file with a ModelOps, one line in model.c.
 * Easy to get wrong: a part's op table and dtype are entered with model_enter() before its ops run, its weights with
 * weights_enter() (residency.h) before they are read. */
#ifndef MODEL_H
#define MODEL_H

#include "clip.h"
#include "core/json.h"
#include "fusion.h"
#include "memo.h"
#include "ops.h"
#include "pipeline.h"
#include "sched.h"
#include "sched_dpm.h"
#include "stages.h"

enum { MODEL_MAX_PARTS = 8, MODEL_MAX_ENCODERS = 2, MODEL_MAX_ROUNDS = 2 };

/* A component with weights of its own: "text_encoder", "transformer", "vae". */
typedef struct Part {
    const char *name;           /* its folder */
    WeightFiles *files;
    Bind bind;
    const char *const *ignore;  /* NULL-ended prefixes of tensors the model does not use; may be NULL */
    DType dtype;                /* compute dtype */
    bool repeats;               /* its blocks run once a step, not once a job */
    bool decodes;               /* runs in decode only: its families are mounted around that */
    bool upscales;              /* runs for jobs with upscale only: as encodes_image */
    bool encodes_image;         /* runs for jobs that begin from an image only: till then its files are not looked at */
    struct Residency *residency; /* its weights on the device; the pipeline's */
    Ops ops;
    Calls calls;
    Calls past;    /* counts of finished jobs */
    Fusion fusion; /* what is mounted on ops */
} Part;

typedef struct ModelOps ModelOps;
typedef struct Model {
    const ModelOps *ops;
    DType dtype;
    Part part[MODEL_MAX_PARTS];
    int parts;
    const char *unproven; /* why the last job's bits are not promised, whatever ran it; NULL: nothing of it */
} Model;

/* What one encoder sees of one text. */
typedef struct TokenRow {
    const char *encoder; /* "1", "2": suffix of the stage names */
    int32_t *ids, *mask; /* [count], malloc'd; mask 1 where a token is no padding */
    int64_t count;
    int64_t used;        /* tokens before padding, specials included */
    int64_t lost_byte;   /* where the text was cut, -1 when all of it fits */
} TokenRow;

typedef struct Tokens {
    TokenRow row[MODEL_MAX_ENCODERS];
    int rows;
} Tokens;

void model_tokens_free(Tokens *t);
/* Allocates row->count ids and mask and fills them, and used, by tok_encode_fixed (text/tok.h); *lost as it says. What stays in
 * row on failure is freed with it. */
struct Tokenizer;
Status model_row_encode(const struct Tokenizer *t, const char *text, size_t size, TokenRow *row, int64_t *lost, Error *e);

/* Values that change between steps, F32 [1] each unless said, in one device buffer. */
typedef struct StepParams {
    Tensor all; /* F32 [STEP_PARAMS] */
    Tensor t, guidance, dt, cfg_scale, sigma;
    Tensor times; /* F32 [STEP_TIMES_MOST], for models whose tokens have times of their own */
    Tensor dpm; /* F32 [DPM_COEFFICIENTS], for models whose schedule is a DPM-Solver's */
    int step; /* on the host: which kind of step runs (a truncated guidance), never a value of it */
} StepParams;
enum { STEP_TIMES_MOST = 8 };
enum {
    STEP_T, STEP_GUIDANCE, STEP_DT, STEP_CFG_SCALE, STEP_SIGMA, STEP_TIMES,
    STEP_DPM = STEP_TIMES + STEP_TIMES_MOST,
    STEP_PARAMS = STEP_DPM + DPM_COEFFICIENTS
};

/* What the job's quality wants mounted: bit i is families[i]. */
typedef struct FamilySet {
    const Family *families;
    int count;
    uint32_t wanted;
} FamilySet;

/* Bits of the wanted families that give other numbers than the reference: what a remembered value's key must name. */
static inline uint32_t model_bounded(const FamilySet *set) {
    uint32_t bits = 0;
    for (int i = 0; set && i < set->count; i++)
        if (set->families[i].promise == BOUNDED) bits |= set->wanted & 1u << i;
    return bits;
}

/* The job in hand, as a model's stages see it. tokens[1] is the negative prompt's, rows 0 without CFG. */
typedef struct Run {
    const Job *job;
    const Tokens *tokens; /* [2] */
    const Schedule *schedule;  /* the round's; of the whole job [rounds] */
    const char *prefix;        /* of this round's stages: "", "stage2_" */
    const char *const *text; /* [2]: the prompt, the negative prompt or NULL */
    Stages *stages;
    Memo *memo;                /* NULL: nothing is remembered */
    bool cfg;
    const uint8_t *image;      /* RGB [image_height][image_width][3] to begin from; NULL: from noise alone */
    int image_width, image_height; /* the job's, but of models whose image_conditions */
    const FamilySet *families; /* NULL: what is mounted stays */
    const Exec *device_exec;   /* for probes; not dry */
    struct Graphs *graphs;     /* of the steps (graph.h); NULL: every step runs call by call */
    const Progress *progress;  /* NULL: nobody looks. A decoder of several chunks may say model_decoded() after each */
    int thrift;                /* 0, or which of the model's ways to save memory (ModelOps.thrifts) the plan needs */
} Run;

struct ModelOps {
    const char *pipeline_class; /* of model_index.json */
    const char *scheduler_class;
    const char *cfg_formula, *cfg_off; /* for --dry-run: guidance as the model means it, and when it is off */
    bool guides;                       /* knows Job.guide and stg_blocks; resolve() fills them in */
    bool takes_image;                  /* jobs may begin from an image */
    bool own_vae_dtype;                /* its autoencoder may run in another dtype than the rest (Part.dtype) */
    bool bins;                         /* takes Job.bin and Job.layout */
    bool matches_official;             /* --match official: jobs may ask for the profile of the model's authors */
    bool image_conditions;             /* at any frame of a clip, as condition.h says: all steps run, run->image is as read */
    bool image_is_frame;               /* which is then the first frame: all steps run, no strength */
    /* Decodes that need less memory, Run.thrift 1 to thrifts, each less than the one before; the plan takes the first that
     * fits. 0: there are none. */
    int thrifts;
    /* Not NULL: the model makes clips, and these; job->frames, seconds and fps are resolved by it before resolve() runs.
     * NULL: it makes pictures, job->frames is 1. */
    void (*clip)(const Model *m, ClipRule *out);
    /* What its clips are heard with: samples a second, channels. NULL: they are silent. */
    void (*hears)(const Model *m, int *rate, int *channels);
    /* folder: the model's; configs, tokenizers and weight headers are read, binds made. */
    Status (*open)(const char *folder, const Json *index, DType dtype, Model **out, Error *e);
    /* One file that holds all of it but what `folder` has, a diffusers folder. NULL: there is no such form. */
    Status (*open_file)(const char *file, const char *folder, DType dtype, Model **out, Error *e);
    void (*close)(Model *m);
    const char *(*title)(const Model *m);
    const char *(*sampler)(const Model *m); /* what web UIs call its solver. NULL: "Euler" */
    Status (*resolve)(const Model *m, Job *job, Error *e);
    Status (*tokenize)(const Model *m, const char *text, const Job *job, Tokens *out, Error *e);
    /* The negative prompt, where it is written otherwise. NULL: as tokenize. */
    Status (*tokenize_negative)(const Model *m, const char *text, const Job *job, Tokens *out, Error *e);
    Status (*schedule)(const Model *m, const Job *job, Schedule *out, Error *e);
    /* A job may run in several rounds, the next one beginning from what the one before left: how many, each one's job (its sizes,
     * steps and guidance), and a later round's latents. Texts are encoded in the first. NULL: one round, the job itself. */
    int (*rounds)(const Model *m, const Job *job);
    void (*round)(const Model *m, const Job *job, int k, Job *out);
    Status (*again)(Model *m, Exec *x, const Run *run, const Job *before_job, Tensor before, Tensor *latents);
    /* Text encoders and all that a prompt and a size fix; results stay in the work arena for the job. */
    Status (*encode)(Model *m, Exec *x, const Run *run);
    /* Text encoders alone: what encode() will ask the memo for is then there. Takes no more of the arenas than encode(). rows:
     * equal for texts with which a step makes the same calls. */
    Status (*texts)(Model *m, Exec *x, const Run *run, int64_t *rows);
    /* Draws the noise, or noises run->image; latents stay in the work arena. latent_shape: as stage files show them, with the
     * same elements in the same order. Without run->image it runs without encode() too, for latents that come from a file. */
    Status (*noise)(Model *m, Exec *x, const Run *run, Tensor *latents, int *rank, int64_t latent_shape[5]);
    /* How the latents that noise() made divide into streams. NULL: they are one, of noise()'s shape. */
    void (*streams)(const Model *m, const Run *run, Streams *out);
    /* Before a step's velocity, and never part of a captured one: prepares what differs from step to step beside params.
     * NULL: nothing does. */
    Status (*begin)(Model *m, Exec *x, const Run *run, int step);
    /* params for step i (host), in the order of the STEP_ names; 0 where the model sets nothing. */
    void (*params)(const Model *m, const Run *run, int step, float params[STEP_PARAMS]);
    /* Called more than once a step, and run once (graph.h): it may leave nothing behind but velocity. What is to be
     * replayed must not touch the host. */
    Status (*velocity)(Model *m, Exec *x, const Run *run, const StepParams *p, Tensor latents, Tensor velocity);
    Status (*advance)(Model *m, Exec *x, const StepParams *p, Tensor latents, Tensor velocity);
    /* After the last step: what is decoded of the latents, in their place; streams() is asked again. NULL: all. */
    Status (*finish)(Model *m, Exec *x, const Run *run, Tensor *latents);
    /* rgb U8 [height, width, 3]; of a model with clips [frames, height, width, 3]. */
    Status (*decode)(Model *m, Exec *x, const Run *run, Tensor latents, Tensor rgb);
    /* After decode(), of the same latents: *wave F32 [samples, channels] in the work arena, *rate of them a second. NULL: the
     * model's clips are silent. */
    Status (*sound)(Model *m, Exec *x, const Run *run, Tensor latents, Tensor *wave, int *rate);
};

extern const ModelOps MODEL_FLUX, MODEL_ZIMAGE, MODEL_SANA_VIDEO, MODEL_LTX2;

int model_rounds(const Model *m, const Job *job);
/* The k-th round's job, and its run: r's with what is the round's own. */
void model_round(const Model *m, const struct Run *run, int k, Job *job, Run *out);

/* For --progress of a long decode: done of total chunks are decoded. 0 and total are said by the job itself. */
void model_decoded(const Exec *x, const Run *run, int done, int total);

/* model_index.json names a class for each component: the ones that are implemented here, other NULL or a second name. */
typedef struct ModelClass { const char *component, *name, *other; } ModelClass;
/* ERR_MODEL names the component, the class found and the one expected. An absent entry passes: its folder decides. */
Status model_check_classes(const char *folder, const Json *index, const ModelClass *classes, int count, Error *e);

/* Two configs' numbers that must be one: otherwise a wrong tensor shape would say it later. ERR_MODEL names the pair and both. */
typedef struct ModelFit { const char *what; int64_t a, b; } ModelFit;
Status model_check_fits(const char *folder, const ModelFit *fits, int count, Error *e);

/* Of --width or --height: a multiple of `grid`, at least `least` (grid or more), at most `most` pixels that there are positions
 * for (0: any number). ERR_USAGE names the two nearest. */
Status model_check_side(const char *option, int value, int64_t grid, int64_t least, int64_t most, Error *e);
/* ERR_MODEL names the tokenizer and the first id that the encoder has no embedding for. */
Status model_check_ids(const char *tokenizer, const int32_t *ids, int64_t count, int64_t vocab, Error *e);

/* By model_index.json's _class_name; ERR_MODEL names the class found and those supported. */
Status model_find(const char *folder, const Json *index, const ModelOps **out, Error *e);

/* Opens the files of part i; the model's open() then adds binds. ERR_MODEL with the part's folder. */
Status model_open_part(Model *m, const char *folder, const char *name, const char *const *ignore, Error *e);
/* The same of files that lie elsewhere: `path` as weights_open takes it. */
Status model_open_files(Model *m, const char *path, const char *name, const char *const *ignore, Error *e);
void model_close_parts(Model *m);
Part *model_part(Model *m, const char *name);
/* Makes x run on this part's table, in its dtype; weights_enter() then means this part. */
void model_enter(Exec *x, Part *p);

/* Families. Recording: x's dry run leaves its calls as the parts' sites; those of earlier jobs are forgotten. */
typedef struct ModelRecorder {
    Recorder base;
    Model *model;
} ModelRecorder;
void model_record(Model *m, ModelRecorder *out);
/* Makes the wanted families, and no others, be mounted on the parts that decode, or on all the other parts. */
Status model_mount(Model *m, const FamilySet *set, bool decoding, const Exec *device_exec, Error *e);
void model_unmount(Model *m, bool decoding);

#endif
