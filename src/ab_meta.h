/* ab_meta.h - the parameters that a folder of stages records in meta.json, as defaults of a run that is compared with it, and
 * where those of two sides differ.
 *
 * Read are: prompt, negative_prompt, seed, width, height, steps, image_sha256, strength, guidance, cfg_scale,
 * cfg_normalization, cfg_truncation, max_sequence_length, dtype. Everything else there (versions) is ignored.
 * Easy to get wrong: a guidance of 0 is what models without the input record, so it is no parameter; an image is recorded by its
 * sum alone, so it cannot be a default. */
#ifndef AB_META_H
#define AB_META_H

#include "cli.h"
#include "core/json.h"

/* meta.json of the folder; *out NULL: there is none. ERR_MODEL when it is no JSON object. json_free it. */
Status ab_meta_read(const char *folder, Json **out, Error *e);
/* Sets what the command line has not given. Strings point into meta. where: names it in errors. ERR_USAGE: a value that the
 * option would refuse. */
Status ab_meta_defaults(const Json *meta, const char *where, Cli *cli, Error *e);
/* The same keys of a resolved job; NULL: out of memory. */
Json *ab_meta_job(const Job *job, DType dtype);
/* {"seed": [1, 2], ...}: keys whose values differ; NULL: out of memory. a, b: NULL: nothing known, nothing differs. */
Json *ab_meta_differences(const Json *a, const Json *b);

#endif
