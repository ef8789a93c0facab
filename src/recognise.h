/* recognise.h - what a path given as a model really is. Everything that is not a diffusers folder of a supported pipeline
 * is refused in one line that says what it is and what to use instead.
 *
 * Looks at class names, configs and safetensors headers only; whether the folder is complete is hub.h's question, and
 * whether its tensors fit is the model's. A re-tuned model in the layout of a supported one is simply accepted.
 * Easy to get wrong: the same weights travel under several tensor namings (diffusers, BFL, ComfyUI prefixes). */
#ifndef RECOGNISE_H
#define RECOGNISE_H

#include "core/status.h"

/* The pipelines that are rendered, as the user would name them: "FluxPipeline (FLUX.1-dev, FLUX.1-schnell)". */
const char *recognise_supported(void);

/* OK when `path` can be a model folder, or LTX-2 in one file; ERR_MODEL otherwise. */
Status recognise_model(const char *path, Error *e);
/* The refusal for one file (safetensors, GGUF, LoRA, ...): never OK. */
Status recognise_file(const char *path, Error *e);

#endif
