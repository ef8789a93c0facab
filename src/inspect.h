/* inspect.h - what a checkpoint holds: `ditto inspect` for a safetensors file, a component folder or a model folder.
 *
 * Prints into the given stream, never on its own; pictures are png.h's business. Knows no model: which tensors a model
 * would use comes in through InspectModel.
 * Text form: one line per tensor, tab-separated: name, shape as comma list ("" for a scalar), dtype, bytes, file, and with
 * a model: used, ignored or unused. Lines beginning with "# " are totals and findings. In a model folder, name and file
 * carry "COMPONENT/" in front. JSON form: one object with the same facts.
 * Easy to get wrong: a component that cannot be opened does not end the listing; the others still follow, and the call
 * fails at the end. */
#ifndef INSPECT_H
#define INSPECT_H

#include "core/weights.h"

#include <stdio.h>

/* How the model code tells what it wants of a component. */
typedef struct InspectModel {
    /* Rows of `component` ("transformer"; "" when only one folder or file was given), and in *ignore the prefixes that may
     * stay unused (NULL or NULL-ended); both stay the owner's, destinations are never written. NULL: not known. */
    const Bind *(*rows)(void *user, const char *component, const char *const **ignore);
    void *user;
} InspectModel;

/* model may be NULL: then nothing is said about use. ERR_MODEL when a file is bad or a component is unusable (missing or
 * mis-shaped tensors), after everything has been listed; ERR_IO when writing to `out` fails. */
Status inspect_path(const char *path, const InspectModel *model, FILE *out, bool json, Error *e);

#endif
