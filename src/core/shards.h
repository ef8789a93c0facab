/* shards.h - the safetensors files of one component folder, found by name and cross-checked with their index.
 *
 * Not a name table: weights.h builds that. Which files are taken, first match wins:
 *   1. variant: plain names, then "bf16", then "fp16" (diffusion_pytorch_model.fp16.safetensors);
 *   2. within a variant, stems "diffusion_pytorch_model" (diffusers) and "model" (transformers). Where both are there the
 *      folder's config.json says whose class it is: "_class_name" is diffusers', "model_type" transformers' (LTX-2's published
 *      text encoder has a second set that nobody reads). Without such a word both are refused;
 *   3. within a stem, what the reference takes when both forms are there: diffusers prefers the index to the single
 *      file, transformers the single file to the index.
 * Index names: STEM.safetensors.index.json, STEM.safetensors.index.VARIANT.json, STEM.VARIANT.safetensors.index.json.
 * Links (hub snapshots) are followed like files.
 * Easy to get wrong: an index without its shards is an interrupted download, an index that disagrees with its shards is
 * stale; both are refused here with the first file or tensor named. */
#ifndef SHARDS_H
#define SHARDS_H

#include "core/safetensors.h"

typedef struct Shard {
    char *file; /* name within the folder */
    Safetensors tensors;
} Shard;

typedef struct Shards {
    char *index; /* index file name, or NULL for a single file */
    Shard *shard;
    int count;
} Shards;

/* `path`: a component folder, or one *.safetensors file. ERR_MODEL names what is missing or wrong. */
Status shards_open(const char *path, Shards *out, Error *e);
void shards_close(Shards *s);

/* The file names that shards_open would want, without opening or looking for them: for checks of completeness. None when
 * the folder has neither file nor index; ERR_MODEL when the index is bad. Free with shards_names_free. */
Status shards_names(const char *folder, char ***names, int *count, Error *e);
void shards_names_free(char **names, int count);

/* Checks the form of an index (weight_map: tensor -> plain file name) and lists its distinct files in strcmp order. */
Status shards_index_files(const Json *index, const char *where, char ***names, int *count, Error *e);

#endif
