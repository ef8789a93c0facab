/* stages.h - named stages of a run leave as files (--dump) and enter from files (--inject).
 *
 * One file per stage, NAME.safetensors with one tensor NAME: ids_1, mask_1, ids_2, mask_2, pooled, prompt_embeds,
 * negative_pooled, negative_prompt_embeds, noise (unpacked), sigmas, timesteps, velocity_000.., latents_000.. (by the number
 * of the step), latents, pixels; of clips with sound also audio_prompt_embeds, audio_noise, audio_velocity_000..,
 * audio_latents_000.., audio_latents and audio, the wave; of a clip's second round the same from noise on as
 * stage2_noise ..; of a run that begins from an image also image (as resized), image_noise, image_latents.
 * Shapes are diffusers', batch dimension included. Also remembers text embeddings between jobs.
 * Not a cache on disk. Easy to get wrong: an injected tensor may have any float dtype and is rounded to the stage's;
 * its element count must match, leading extents of 1 are ignored. */
#ifndef STAGES_H
#define STAGES_H

#include "ops.h"
#include "pipeline.h"

typedef struct Stages Stages;

/* Creates the dump folder when given; opens every injected file. ERR_USAGE for an unknown stage name, ERR_IO or
 * ERR_MODEL naming the file. */
Status stages_open(const char *dump, const Inject *inject, int count, Stages **out, Error *e);
void stages_close(Stages *s);
void stages_watch(Stages *s, const StageWatch *watch); /* NULL: nobody; lives as long as s */
bool stages_injected(const Stages *s, const char *name);

/* Where a stage stands in a run, from 0; -1: no stage's name. *step: its step, -1 where it belongs to none. */
int stages_order(const char *name, int *step);

/* Passes a device tensor through a stage: overwritten when injected, written when dumping. shape is what the file
 * shows (same element count as t, which is contiguous). No-op when x->dry. */
Status stages_pass(Stages *s, Exec *x, const char *name, Tensor t, int rank, const int64_t *shape);
/* The same for values on the host. */
Status stages_host(Stages *s, const char *name, DType dtype, int rank, const int64_t *shape, void *values, Error *e);
/* For Exec.tap: what it is shown passes as a stage of that name. NULL without stages. */
Tap *stages_tap(Stages *s);
/* meta.json of the dump folder; a no-op without one. */
Status stages_meta(Stages *s, const char *json, Error *e);
/* ERR_USAGE names an injected stage that nothing took. */
Status stages_check_used(const Stages *s, Error *e);

/* One tensor as a safetensors file. */
Status stages_write_file(const char *path, const char *name, DType dtype, int rank, const int64_t *shape,
                         const void *values, bool overwrite, Error *e);
/* Latents as a file that enters with --inject: "latents", and "audio_latents" where there is sound. record: a text under "ditto"
 * in the file's metadata; NULL: none. */
Status stages_write_latents(const char *path, const char *record, DType dtype, const Streams *streams, const void *values,
                            bool overwrite, Error *e);

#endif
