/* inspect_model.h - `ditto inspect` with the model's own opinion: which tensors it uses, which are missing, unused or of
 * another shape.
 *
 * Only joins inspect.h and model.h. A folder of a pipeline that is not supported, a component folder and a single file are
 * listed without opinion. */
#ifndef INSPECT_MODEL_H
#define INSPECT_MODEL_H

#include "core/status.h"

#include <stdbool.h>
#include <stdio.h>

/* As inspect_path. When the folder's pipeline is supported but cannot be opened (a config or component is missing), the
 * listing carries no opinion and the call fails with that reason. */
Status inspect_model_path(const char *path, FILE *out, bool json, Error *e);

#endif
