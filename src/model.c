/* model.c - the list of models and what their files have in common. */
#include "model.h"

#include "core/file.h"
#include "text/tok.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

static const ModelOps *const MODELS[] = {&MODEL_FLUX, &MODEL_ZIMAGE, &MODEL_SANA_VIDEO, &MODEL_LTX2};

Status model_find(const char *folder, const Json *index, const ModelOps **out, Error *e) {
    const char *class_name = NULL;
    TRY(json_string(index, "_class_name", &class_name, "model_index.json", e));
    char known[256] = "";
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
        if (class_name && !strcmp(MODELS[i]->pipeline_class, class_name)) {
            *out = MODELS[i];
            return OK;
        }
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, MODELS[i]->pipeline_class, sizeof known - strlen(known) - 1);
    }
    return fail(e, ERR_MODEL, "%s/model_index.json: _class_name: found %s, expected one of: %s", folder,
                class_name ? class_name : "nothing", known);
}

Status model_check_classes(const char *folder, const Json *index, const ModelClass *classes, int count, Error *e) {
    for (int i = 0; i < count; i++) {
        const cJSON *entry = json_get(index, classes[i].component), *name = cJSON_GetArrayItem(entry, 1);
        if (!cJSON_IsString(name) || !strcmp(name->valuestring, classes[i].name) ||
            (classes[i].other && !strcmp(name->valuestring, classes[i].other)))
            continue;
        return fail(e, ERR_MODEL, "%s/model_index.json: %s: found class %.80s, expected %s%s%s", folder, classes[i].component,
                    name->valuestring, classes[i].name, classes[i].other ? " or " : "",
                    classes[i].other ? classes[i].other : "");
    }
    return OK;
}

Status model_check_fits(const char *folder, const ModelFit *fits, int count, Error *e) {
    for (int i = 0; i < count; i++)
        if (fits[i].a != fits[i].b)
            return fail(e, ERR_MODEL, "%s: %s: found %lld and %lld, expected the same", folder, fits[i].what,
                        (long long)fits[i].a, (long long)fits[i].b);
    return OK;
}

Status model_check_side(const char *option, int value, int64_t grid, int64_t least, int64_t most, Error *e) {
    int64_t below = value / grid * grid;
    char at_least[40] = "";
    if (below < least) below = least;
    if (least > grid) snprintf(at_least, sizeof at_least, ", at least %lld", (long long)least);
    if (value < least || value % grid)
        return fail(e, ERR_USAGE, "%s %d: expected a multiple of %lld%s; the nearest are %lld and %lld", option, value,
                    (long long)grid, at_least, (long long)below, (long long)(below + grid));
    if (most && value > most)
        return fail(e, ERR_USAGE, "%s %d: the model has positions for %lld pixels", option, value, (long long)most);
    return OK;
}

Status model_check_ids(const char *tokenizer, const int32_t *ids, int64_t count, int64_t vocab, Error *e) {
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return fail(e, ERR_MODEL, "%s: id %d is outside the encoder's vocabulary of %lld", tokenizer, ids[i],
                        (long long)vocab);
    return OK;
}

Status model_open_files(Model *m, const char *path, const char *name, const char *const *ignore, Error *e) {
    if (m->parts == MODEL_MAX_PARTS) return fail(e, ERR_MODEL, "%s: too many components", path);
    Part *p = &m->part[m->parts];
    *p = (Part){.name = name, .ignore = ignore, .dtype = m->dtype, .bind.prefix = ""};
    TRY(weights_open(path, &p->files, e));
    m->parts++;
    return OK;
}

Status model_open_part(Model *m, const char *folder, const char *name, const char *const *ignore, Error *e) {
    char *path = file_join(folder, name);
    if (!path) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    Status s = model_open_files(m, path, name, ignore, e);
    free(path);
    return s;
}

void model_close_parts(Model *m) {
    for (int i = 0; i < m->parts; i++) {
        Part *p = &m->part[i];
        bind_free(&p->bind);
        calls_free(&p->calls);
        calls_free(&p->past);
        fusion_free(&p->fusion);
        weights_close(p->files);
    }
    m->parts = 0;
}

Part *model_part(Model *m, const char *name) {
    for (int i = 0; i < m->parts; i++)
        if (!strcmp(m->part[i].name, name)) return &m->part[i];
    return NULL;
}

void model_enter(Exec *x, Part *p) {
    x->ops = &p->ops;
    x->calls = &p->calls;
    x->dtype = p->dtype;
    x->residency = p->residency;
}

static Status record(Recorder *r, Exec *x, OpId op, const void *args, const char *site) {
    Model *m = ((ModelRecorder *)r)->model;
    for (int i = 0; i < m->parts; i++)
        if (x->ops == &m->part[i].ops) return fusion_record(&m->part[i].fusion, op, args, site, x->error);
    return OK;
}

void model_record(Model *m, ModelRecorder *out) {
    for (int i = 0; i < m->parts; i++) fusion_forget_sites(&m->part[i].fusion);
    *out = (ModelRecorder){.base = {record}, .model = m};
}

Status model_mount(Model *m, const FamilySet *set, bool decoding, const Exec *device_exec, Error *e) {
    for (int i = 0; i < m->parts; i++) {
        Fusion *f = &m->part[i].fusion;
        if (m->part[i].decodes != decoding) continue;
        for (int k = 0; k < set->count; k++) {
            if (set->wanted >> k & 1) TRY(fusion_mount(f, &set->families[k], device_exec, e));
            else fusion_unmount(f, &set->families[k]);
        }
    }
    return OK;
}

void model_unmount(Model *m, bool decoding) {
    for (int i = 0; i < m->parts; i++)
        if (m->part[i].decodes == decoding) fusion_unmount_all(&m->part[i].fusion);
}

int model_rounds(const Model *m, const Job *job) { return m->ops->rounds ? m->ops->rounds(m, job) : 1; }

void model_round(const Model *m, const Run *run, int k, Job *job, Run *out) {
    static const char *const PREFIX[MODEL_MAX_ROUNDS] = {"", "stage2_"};
    *job = *run->job;
    *out = *run;
    if (m->ops->round) m->ops->round(m, run->job, k, job);
    out->job = job;
    out->schedule = run->schedule ? run->schedule + k : NULL;
    out->prefix = PREFIX[k];
    out->cfg = run->cfg && job->cfg;
}

void model_decoded(const Exec *x, const Run *run, int done, int total) {
    if (x->dry || !run->progress || !run->progress->step || done <= 0 || done >= total) return;
    run->progress->step(run->progress->user, "decode", done, total);
}

Status model_row_encode(const Tokenizer *t, const char *text, size_t size, TokenRow *row, int64_t *lost, Error *e) {
    row->ids = malloc((size_t)row->count * sizeof *row->ids);
    row->mask = malloc((size_t)row->count * sizeof *row->mask);
    if (!row->ids || !row->mask) return fail(e, ERR_MEMORY, "out of memory for %lld tokens", (long long)row->count);
    return tok_encode_fixed(t, text, size, row->count, row->ids, row->mask, &row->used, lost, e);
}

void model_tokens_free(Tokens *t) {
    for (int i = 0; i < t->rows; i++) {
        free(t->row[i].ids);
        free(t->row[i].mask);
    }
    *t = (Tokens){0};
}
