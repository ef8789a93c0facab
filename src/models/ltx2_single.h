/* ltx2_single.h - LTX-2 as Lightricks publishes it: one safetensors file of all parts but the text encoder, its tokenizer and
 * the upsampler. Two translations: of the file's own config to those of the diffusers folder, and of diffusers' tensor names,
 * which the parts bind, to the file's. Not the opening of the parts (ltx2.c).
 *
 * The config is JSON text in __metadata__.config. What it does not state, the tensors' shapes say: the widths of the
 * autoencoder's levels. Whether the model is distilled no tensor and no published key tells: the word "distilled" in the
 * file's name, or in __metadata__.model_version, does. Formulas: scripts/convert_ltx2_to_diffusers.py of diffusers.
 * Easy to get wrong: "adaln_single" and "patchify_proj" are parts of other names too: whole path components are compared. */
#ifndef LTX2_SINGLE_H
#define LTX2_SINGLE_H

#include "core/json.h"
#include "core/weights.h"

/* diffusers' configs, malloc'd by cJSON. */
typedef struct Ltx2Single {
    Json *scheduler, *connectors, *transformer, *vae, *audio, *vocoder;
    const char *prefix; /* of the transformer's names: "model.diffusion_model.", "diffusion_model." or "" */
    int64_t downs;      /* levels of the autoencoder's encoder */
} Ltx2Single;

/* states: of the text encoder, layers and 1. ERR_MODEL names the key that is missing or of another model (LTX-2.3's). */
Status ltx2_single_read(const char *file, int64_t states, Ltx2Single *out, Error *e);
void ltx2_single_free(Ltx2Single *s);

typedef enum Ltx2SinglePart { LTX2_SINGLE_CONNECTORS, LTX2_SINGLE_DIT, LTX2_SINGLE_VAE, LTX2_SINGLE_AUDIO, LTX2_SINGLE_VOCODER }
    Ltx2SinglePart;
/* Gives every row of b the name that the file has for it. */
Status ltx2_single_rename(const Ltx2Single *s, Ltx2SinglePart part, Bind *b, Error *e);

#endif
