/* ltx2.h - what the files of LTX-2 as a Model share: its parts, and what a job leaves in them. For ltx2*.c alone.
 *
 *   ltx2.c         opening, the vtable        ltx2_job.c    what a job resolves to, tokens, noise levels
 *   ltx2_text.c    contexts of the prompts    ltx2_step.c   noise, the passes of a step, guidance
 *   ltx2_decode.c  frames and sound           ltx2_image.c  a picture that the clip shall show
 *   ltx2_stage2.c  a clip drawn small, then large    ltx2_official.c  the authors' own code instead of diffusers
 *
 * Easy to get wrong: with classifier-free guidance sample 0 of a batch is the negative prompt's, as in diffusers; without it
 * the positive prompt is sample 0. The latents are one tensor of numbers: the clip's tokens, then the sound's. */
#ifndef LTX2_H
#define LTX2_H

#include "guiding.h"
#include "model.h"
#include "models/dit_ltx2.h"
#include "models/ltx2_connectors.h"
#include "rng.h"
#include "text/te_gemma3.h"
#include "text/tok.h"
#include "vae/vae_ltx2_audio.h"
#include "vae/vae_ltx2_encode.h"
#include "vae/vae_ltx2_upsample.h"
#include "vae/vocoder_ltx2.h"

/* Parts, in the order in which a job enters them; the last two wait for a job that needs them. */
enum { LTX2_TE, LTX2_CONNECTORS, LTX2_DIT, LTX2_VAE, LTX2_AUDIO_VAE, LTX2_VOCODER, LTX2_ENCODER, LTX2_UPSAMPLER };

typedef struct Ltx2 {
    Model base;
    SchedConfig sched;
    bool distilled; /* by its schedule, which shifts nothing: few steps, no guidance */
    Gemma te;
    Ltx2Connectors connectors;
    Ltx2Dit dit;
    VaeLtx2 vae;
    VaeLtx2Encoder encoder;
    VaeLtx2Audio audio;
    VocoderLtx2 vocoder;
    VaeLtx2Upsampler upsampler;
    bool upsamples; /* the folder has one */
    Tokenizer *tok;
    /* of the job in hand */
    Ltx2Prompt prompt;
    Ltx2Grid grid;
    Rng rng;             /* after what was drawn */
    VaeLtx2 measure;     /* mean and std of the autoencoder's latents, for its encoder's part */
    bool official;       /* --match official */
    bool finished;       /* all steps have run: the picture's own tokens are gone */
    Tensor given;        /* F32 [rows * cols, channels]: latents of the picture */
    Tensor clean, mask;  /* F32 [tokens, channels], [tokens, 1]: what conditions keep; absent without one */
} Ltx2;

/* Tokens of a job's latents, and values of each. */
typedef struct Ltx2Size {
    int64_t frames, rows, cols;               /* of the clip */
    int64_t extra;                            /* tokens of a picture beside the clip's, counted in tokens[LTX2_VIDEO] */
    int64_t tokens[LTX2_STREAMS], channels[LTX2_STREAMS];
    int64_t bins;                             /* of the sound: channels[LTX2_AUDIO] = its channels * bins */
} Ltx2Size;
Ltx2Size ltx2_size(const Ltx2 *z, const Job *job);
/* A stream's part of a flat tensor, [tokens, channels]. */
Tensor ltx2_stream(const Ltx2Size *s, Tensor flat, Ltx2Which which);

void ltx2_clip(const Model *m, ClipRule *out);
Status ltx2_resolve(const Model *m, Job *job, Error *e);
Status ltx2_tokenize(const Model *m, const char *text, const Job *job, Tokens *out, Error *e);
Status ltx2_schedule(const Model *m, const Job *job, Schedule *out, Error *e);

Status ltx2_encode(Model *m, Exec *x, const Run *run);
Status ltx2_texts(Model *m, Exec *x, const Run *run, int64_t *rows);

Status ltx2_noise(Model *m, Exec *x, const Run *run, Tensor *latents, int *rank, int64_t shape[TENSOR_MAX_RANK]);
void ltx2_streams(const Model *m, const Run *run, Streams *out);
void ltx2_params(const Model *m, const Run *run, int step, float params[STEP_PARAMS]);
Status ltx2_velocity(Model *m, Exec *x, const Run *run, const StepParams *p, Tensor latents, Tensor velocity);
Status ltx2_advance(Model *m, Exec *x, const StepParams *p, Tensor latents, Tensor velocity);

void ltx2_image_room(Ltx2 *z, Exec *x, const Ltx2Size *s);
Status ltx2_image(Ltx2 *z, Exec *x, const Run *run, const Ltx2Size *s);
void ltx2_image_places(const Ltx2 *z, const Run *run, const Ltx2Size *s, Ltx2Place *place);
void ltx2_image_spans(const Run *run, const Ltx2Size *s, Ltx2Grid *g);
Status ltx2_image_begin(Ltx2 *z, Exec *x, const Run *run, const Ltx2Size *s, Tensor video);

enum { LTX2_SECOND = -1 }; /* Job.upscale in the second of two rounds */
int ltx2_rounds(const Model *m, const Job *job);
void ltx2_round(const Model *m, const Job *job, int k, Job *out);
Status ltx2_second_schedule(const Ltx2 *z, Schedule *out, Error *e);
Status ltx2_again(Model *m, Exec *x, const Run *run, const Job *before_job, Tensor before, Tensor *latents);
Status ltx2_places(Ltx2 *z, Exec *x, const Run *run);

/* Of a job that is guiding_official(): its defaults; ERR_USAGE names what is not covered. */
Status ltx2_official_resolve(const Ltx2 *z, Job *job, Error *e);
Status ltx2_official_schedule(const Ltx2 *z, int steps, Schedule *out, Error *e);
/* to: values of both streams, one behind the other. */
Status ltx2_official_draw(Ltx2 *z, const Ltx2Size *s, const Run *run, float *to, Error *e);

Status ltx2_finish(Model *m, Exec *x, const Run *run, Tensor *latents);
Status ltx2_decode(Model *m, Exec *x, const Run *run, Tensor latents, Tensor rgb);
void ltx2_hears(const Model *m, int *rate, int *channels);
Status ltx2_sound(Model *m, Exec *x, const Run *run, Tensor latents, Tensor *wave, int *rate);

#endif
