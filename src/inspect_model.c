/* inspect_model.c - see inspect_model.h. The model is opened as for a dry run: configs, tokenizers and headers, no weights. */
#include "inspect_model.h"

#include "core/file.h"
#include "inspect.h"
#include "model.h"

#include <stdlib.h>

static const Bind *rows_of(void *user, const char *component, const char *const **ignore) {
    const Part *part = model_part(user, component);
    if (!part) return NULL;
    *ignore = part->ignore;
    return &part->bind;
}

/* *model stays NULL, without an error, where no opinion is to be had. */
static Status open_model(const char *path, const ModelOps **ops, Model **model, Error *e) {
    *model = NULL;
    char *file = file_join(path, "model_index.json");
    if (!file) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    Json *index = NULL;
    Status status = OK;
    Error unsupported = {0};
    if (file_is_dir(path) && file_exists(file)) status = json_read(file, &index, e);
    if (index && model_find(path, index, ops, &unsupported) == OK)
        status = (*ops)->open(path, index, BF16, model, e);
    json_free(index);
    free(file);
    return status;
}

Status inspect_model_path(const char *path, FILE *out, bool json, Error *e) {
    const ModelOps *ops = NULL;
    Model *model = NULL;
    Error opening = {0};
    Status opened = open_model(path, &ops, &model, &opening);
    if (opened != OK) model = NULL;
    InspectModel hook = {rows_of, model};
    Status status = inspect_path(path, model ? &hook : NULL, out, json, e);
    if (model) ops->close(model);
    if (status == OK && opened != OK) return fail(e, opened, "%s", opening.text);
    return status;
}
