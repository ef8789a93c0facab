/* pipeline.h - a model folder made ready on a device, and jobs rendered with it: tokens, plan, text encoders, denoise
 * loop, VAE, RGB.
 *
 * Knows models through ModelOps (model.h) only. Prints nothing: progress goes through a callback, everything else is
 * returned. Defaults are the model's own (its diffusers pipeline's), filled in by pipeline_resolve.
 * Easy to get wrong: a Job's negative prompt NULL means "none given"; "" is a negative prompt. When classifier-free guidance
 * runs is the model's own rule (FLUX: cfg_scale > 1 and a negative prompt; Z-Image: cfg_scale > 0). */
#ifndef PIPELINE_H
#define PIPELINE_H

#include "core/status.h"
#include "core/tensor.h"
#include "media/rate.h"
#include "media/sound.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct Pipeline Pipeline;

typedef struct PipelineOptions {
    const char *model;  /* a model folder or file; hub.h finds it for -m */
    const char *text_encoder; /* of a model in one file: the folder that has its text encoder; NULL: the folder that it lies in */
    const char *device; /* NULL: chosen; "cpu", "cuda" */
    DType dtype;        /* DTYPE_NONE: chosen (BF16) */
    DType vae_dtype;    /* DTYPE_NONE: the model's; ERR_USAGE where its autoencoder has none of its own */
    size_t vram;        /* most bytes of device memory; 0: what is free. No effect on the cpu */
    bool sync;          /* wait after every op: finds the one at fault */
    bool no_graphs;     /* run every step call by call (graph.h) */
    /* Instead of the table's own families: tests. */
    const struct Family *families;
    int family_count;
    struct Device *on;  /* run the CPU table's ops on this device of host memory instead; it outlives the pipeline */
    const char *tuned;     /* file of tuned products (kernels/tune_cuda.h) to run by; NULL: none. No effect on the cpu */
    bool tune;             /* look for faster products instead, where ops run; pipeline_save_tuned keeps them */
    const char *verdicts;  /* file of what first sight found in earlier runs (verdicts.h), read and added to; NULL: none */
    struct OpTimer *timer; /* brackets every op of every job; NULL: none. No graph is captured or replayed with one */
    const volatile int *interrupted;
} PipelineOptions;

/* What may be mounted: families of the reference's bits, or also those that leave roundings out. */
typedef enum Quality { QUALITY_LOSSLESS, QUALITY_HIGH } Quality;

typedef struct Inject { const char *name, *file; } Inject;

/* Sees every stage (stages.h) on the host as it passes; values are contiguous and live until it returns. */
typedef struct StageWatch {
    Status (*see)(void *user, const char *name, DType dtype, int rank, const int64_t *shape, const void *values, Error *e);
    void *user;
} StageWatch;

/* How latents, one contiguous tensor, are made of what stage files show: a clip's alone, or its sound's behind them. */
enum { STREAMS_MOST = 2 };
typedef struct Stream {
    const char *prefix;   /* of the stages' names: "" or "audio_" */
    int64_t first, count; /* elements */
    int rank;
    int64_t shape[TENSOR_MAX_RANK]; /* of the stage file, with the same elements in the same order */
} Stream;
typedef struct Streams {
    int count;
    Stream stream[STREAMS_MOST];
} Streams;

/* Sees finished latents on the host; values as StageWatch's. */
typedef struct LatentsWatch {
    Status (*see)(void *user, DType dtype, const Streams *streams, const void *values, Error *e);
    void *user;
} LatentsWatch;

/* Guidance beside cfg_scale, and the sound's own (guiding.h). */
typedef enum GuideKind {
    GUIDE_STG,      /* away from a pass with perturbed self attention */
    GUIDE_MODALITY, /* away from a pass whose streams do not see each other */
    GUIDE_RESCALE,  /* how far the guided prediction's deviation is set back to the unguided one's, 0 to 1 */
    GUIDE_AUDIO_CFG,
    GUIDE_AUDIO_STG,
    GUIDE_AUDIO_MODALITY,
    GUIDE_AUDIO_RESCALE,
    GUIDE_KINDS
} GuideKind;

/* What to make. Zero-initialised fields take the model's default. */
typedef struct Job {
    const char *prompt;          /* UTF-8; "" allowed */
    const char *negative_prompt; /* NULL: none */
    int width, height;           /* 0: the model's default; multiples of what the model says */
    int frames;                  /* 0: the model's default. After pipeline_resolve: 1 where the model makes pictures */
    double seconds;              /* instead of frames: the nearest number of them that the model makes; 0: not given */
    Rate fps;                    /* num 0: the model's default; where it makes pictures it stays so */
    int steps;                   /* 0: default */
    int upscale;                 /* 2: drawn at half the size first (LTX-2); 0: not */
    const char *image;           /* PNG or JPEG to begin from, or a condition (condition.h); NULL: noise alone */
    int image_frame;             /* by pipeline_resolve: FRAME */
    int image_crf;               /* of the H.264 that a condition passes through; 0: it does not; < 0: the model's default */
    double strength;             /* share of the steps that run on the image, 0 to 1; default 0.6 */
    bool strength_given;
    int image_width, image_height; /* by pipeline_resolve: upright, before it is resized */
    char image_sha256[65];       /* by pipeline_resolve: of the file */
    int first_step;              /* by pipeline_resolve: the steps before it are left out; 0 without an image */
    double guidance;             /* distilled guidance; < 0: default; refused by models without it */
    bool guidance_given;
    double cfg_scale;            /* classifier-free, in the number and formula of the model's pipeline */
    bool cfg_scale_given;
    bool cfg;                    /* two passes a step; set by pipeline_resolve */
    double cfg_normalization;    /* most growth of the guided prediction's norm; 0: off. Z-Image */
    double cfg_truncation;       /* time after which guidance ends, 0 (noise) to 1. Z-Image; default 1: never */
    bool cfg_truncation_given;
    double guide[GUIDE_KINDS];   /* LTX-2; not given: the model's default */
    bool guide_given[GUIDE_KINDS];
    const char *stg_blocks;      /* "28": whose self attention is perturbed; NULL: the model's default, or it has no such pass */
    double guidance_scale;       /* diffusers' spelling: what the model's pipeline means by it */
    bool guidance_scale_given;
    int max_sequence_length;     /* 0: default (FLUX: 512) */
    int motion_score;            /* said behind the prompt of a clip; 0: nothing is. SANA-Video */
    bool bin;                    /* made in a trained size of nearly the same shape, then scaled and cropped. SANA-Video */
    const char *match;           /* whose code is the reference: NULL or "diffusers", "official". LTX-2 */
    const char *layout;          /* of the residual: NULL or "rows", "reference". SANA-Video */
    int made_width, made_height; /* by pipeline_resolve: what the model makes; width and height, unless binned */
    uint64_t seed;
    Quality quality;
    const char *families;        /* NULL or "all", "none", or names with commas between */
    const char *dump;            /* folder or NULL */
    bool taps;                   /* the decoder's inner tensors go there too */
    const Inject *inject;
    int inject_count;
    const StageWatch *watch;     /* NULL: nobody */
    bool fresh;                  /* uses nothing that earlier jobs left, and leaves nothing: text embeddings */
    const LatentsWatch *keep;    /* sees the latents before they are decoded; NULL: nobody */
    bool decode_only;            /* "latents" (and "audio_latents") are injected: no text encoder, no step runs. No image then */
} Job;

typedef struct Progress {
    void (*step)(void *user, const char *phase, int done, int total);
    void *user;
} Progress;

/* How often a variant ran; family NULL: a reference. */
typedef struct Dispatch {
    const char *part, *op, *impl, *family;
    uint64_t count;
} Dispatch;

/* What became of a wanted family in a component that calls its ops. */
typedef struct FamilyUse {
    const char *part, *family;
    bool mounted, refused; /* refused: by a site, or banned since a first check; else another family took its place */
    uint64_t count;        /* runs */
    char why[400];         /* one line when it was not mounted */
} FamilyUse;

/* What was made; rgb is malloc'd [frames][height][width][3]. */
typedef struct Media {
    uint8_t *rgb;
    int width, height;
    int frames; /* 1: a picture */
    Rate fps;   /* num 0: a picture */
    Sound sound; /* of a clip, as long as the model made it; rate 0: silent */
    double seconds_plan, seconds_text, seconds_denoise, seconds_decode; /* plan: tokens, plan, room for it */
    Dispatch *dispatch;    /* malloc'd, in the order of parts and ops */
    int dispatches;
    FamilyUse *family;     /* malloc'd */
    int families;
    char warning[400];     /* a family that failed its first check in this job; "": none */
    char note[700];        /* one line that is worth saying once: a file of verdicts that is not used; "": none */
    char no_replay[400];   /* steps could not be captured in this job, and why; "": none */
    /* The last finite latents when decoding or a step failed with ERR_NAN, malloc'd; else NULL. */
    void *latents;
    bool latents_finished; /* all steps have run: decoding failed */
    DType latents_dtype;
    Streams latents_streams;
} Media;

/* Opens configs, tokenizers and weight headers (maps files, reads no weights). ERR_MODEL names what is missing. */
Status pipeline_open(const PipelineOptions *options, Pipeline **out, Error *e);
void pipeline_close(Pipeline *p);
const char *pipeline_title(const Pipeline *p);       /* the folder's or the repository's name */
const char *pipeline_sampler(const Pipeline *p);     /* of the steps, by the web UIs' name: "Euler" */
const char *pipeline_device(const Pipeline *p);      /* "cpu" */
DType pipeline_dtype(const Pipeline *p);
DType pipeline_vae_dtype(const Pipeline *p); /* DTYPE_NONE: its autoencoder has none of its own */
/* What the pipeline computes with (profile.h). On a GPU this loads the libraries: ERR_DEVICE names a missing one. */
struct Profile;
Status pipeline_profile(const Pipeline *p, struct Profile *out, Error *e);

/* What there is to report of a pipeline. All of it is the pipeline's and changes with the next job. */
typedef struct Plan Plan;
typedef struct PipelineFacts {
    struct Model *model;       /* its parts hold the calls that ran */
    struct Device *device;
    const struct Arena *work, *scratch;
    const struct ResidencyPool *pool;
    const struct Graphs *graphs;
    const Plan *plan;          /* of the last picture; NULL: none yet */
    const struct Cuda *cuda;   /* NULL on the cpu */
    const struct Gate *gate;   /* what first sight did; its verdicts may be NULL */
    const char *no_verdicts;   /* why those of earlier runs are not used; "": they are, or were not asked for */
    const char *tuned_note;    /* why the file of tuned products is not used; "": nothing to say */
} PipelineFacts;
PipelineFacts pipeline_facts(const Pipeline *p);

/* Writes the products that opening with `tune` has found since. */
Status pipeline_save_tuned(const Pipeline *p, Error *e);

/* What there is to know of the model before a job. */
bool pipeline_makes_clips(const Pipeline *p);
/* The same of what lies at `path`, without opening it; false also where nobody can tell. */
bool pipeline_would_make_clips(const char *path);
Sound pipeline_sound(const Pipeline *p); /* of a clip: rate and channels alone; rate 0: silent */
bool pipeline_makes_sound(const Pipeline *p); /* with them */

/* Fills defaults into *job and refuses what the model cannot do (ERR_USAGE names option and values). */
Status pipeline_resolve(const Pipeline *p, Job *job, Error *e);
/* Writes what --dry-run shows: parameters, token counts and first lost word, sigmas, memory plan. Loads no weights.
 * ERR_MEMORY, after writing, when the plan does not fit. */
Status pipeline_describe(Pipeline *p, const Job *resolved, FILE *out, Error *e);
/* The memory plan alone (plan.h). A plan that does not fit is OK here. */
Status pipeline_plan(Pipeline *p, const Job *resolved, Plan *out, Error *e);
/* A line for every encoder that cannot read the whole of a text. */
Status pipeline_note_cut(Pipeline *p, const Job *resolved, FILE *out, Error *e);
/* What each encoder will see, for `ditto tokens -m`. */
Status pipeline_tokens(Pipeline *p, const char *prompt, FILE *out, Error *e);
/* Whether the family is mounted on the component at this moment. */
bool pipeline_mounted(const Pipeline *p, const char *part, const char *family);
/* Renders. Weights are bound on the first call and stay. ERR_NAN names the stage and leaves the
 * last finite latents in *out; free it in any case. */
Status pipeline_render(Pipeline *p, const Job *resolved, const Progress *progress, Media *out, Error *e);
void media_free(Media *m);

typedef struct PipelineTexts {
    bool full;      /* nothing was done: what the group has so far might not stay */
    int64_t rows;   /* equal for jobs of equal sizes whose steps make the same calls */
    double seconds; /* plan included */
    double encoders; /* of them what the encoders took, their embeddings' way to the host included */
} PipelineTexts;
/* Runs the job's text encoders now and keeps what they say on the host, bit for bit, so that rendering the job needs none of
 * them: texts of several jobs in a row, then their pictures, and encoders and transformer change places once. first: begins
 * a group; what a group has said stays until it is rendered (memo.h has the limits: 256 MiB in 512 values). A job that
 * injects stages keeps nothing and encodes when it is rendered. */
Status pipeline_encode(Pipeline *p, const Job *resolved, bool first, PipelineTexts *out, Error *e);
/* Brings one part's weights to the device as the plan of this job says, and sends them away again: the seconds until they are
 * all there, and their bytes (blocks that stream do not count). ERR_USAGE on a device that reads them where they are. */
Status pipeline_load(Pipeline *p, const Job *resolved, const char *part, double *seconds, size_t *bytes, Error *e);

#endif
