/* stages.c - see stages.h. */
#include "stages.h"

#include "core/convert.h"
#include "core/file.h"
#include "core/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

typedef struct Injected {
    const char *name, *path;
    Safetensors file;
    Tensor tensor;
    bool used;
} Injected;

struct Stages {
    Tap tap;
    const char *dump;
    const StageWatch *watch;
    Injected *injected;
    int count;
};

/* In the order of a run; those of each step stand between the two lists. */
static const char *const BEFORE[] = {"image", "ids_1", "mask_1", "ids_2", "mask_2", "negative_ids_1", "negative_mask_1",
                                     "negative_ids_2", "negative_mask_2", "sigmas", "timesteps", "pooled",
                                     "prompt_embeds", "audio_prompt_embeds", "negative_pooled", "negative_prompt_embeds",
                                     "negative_audio_prompt_embeds", "image_noise", "image_latents", "noise", "audio_noise"};
static const char *const STEP[] = {"velocity_", "audio_velocity_", "latents_", "audio_latents_"};
static const char *const AFTER[] = {"latents", "audio_latents", "pixels", "audio"};
enum {
    BEFORE_COUNT = (int)(sizeof BEFORE / sizeof *BEFORE),
    STEP_COUNT = (int)(sizeof STEP / sizeof *STEP),
    AFTER_COUNT = (int)(sizeof AFTER / sizeof *AFTER),
};

/* A second round's stages come behind the first one's, before what is last. */
static const char SECOND[] = "stage2_";
enum { STEPS_MOST = 1000000, ROUND_MOST = BEFORE_COUNT + STEPS_MOST * STEP_COUNT };

int stages_order(const char *name, int *step) {
    if (!strncmp(name, SECOND, sizeof SECOND - 1)) {
        int inner = stages_order(name + sizeof SECOND - 1, step);
        *step = -1; /* of the first round's numbers */
        return inner < 0 || inner >= ROUND_MOST ? -1 : ROUND_MOST + inner;
    }
    *step = -1;
    for (int i = 0; i < BEFORE_COUNT; i++)
        if (!strcmp(name, BEFORE[i])) return i;
    for (int i = 0; i < AFTER_COUNT; i++)
        if (!strcmp(name, AFTER[i])) return 2 * ROUND_MOST + i;
    for (int i = 0; i < STEP_COUNT; i++) {
        size_t n = strlen(STEP[i]), digits = strspn(name + (strncmp(name, STEP[i], n) ? strlen(name) : n), "0123456789");
        if (digits < 3 || digits > 6 || name[n + digits]) continue;
        *step = atoi(name + n);
        return BEFORE_COUNT + *step * STEP_COUNT + i;
    }
    return -1;
}

static Status open_one(Injected *in, Error *e) {
    int step;
    if (stages_order(in->name, &step) < 0)
        return fail(e, ERR_USAGE, "--inject %s: no such stage; stages are ids_1, mask_1, ids_2, mask_2, pooled, "
                    "prompt_embeds, negative_..., noise, sigmas, timesteps, image, image_noise, image_latents, "
                    "velocity_000, latents_000, latents, pixels; of sound audio_..., of a second round stage2_...",
                    in->name);
    TRY(safetensors_open(in->path, &in->file, e));
    const SafetensorsEntry *entry = safetensors_find(&in->file, in->name);
    if (!entry)
        return fail(e, ERR_MODEL, "%s: expected one tensor named %s, found %d others", in->path, in->name,
                    in->file.count);
    in->tensor = safetensors_tensor(&in->file, entry);
    if (!in->tensor.rank) return fail(e, ERR_MODEL, "%s: %s: too many dimensions", in->path, in->name);
    return OK;
}

Status stages_open(const char *dump, const Inject *inject, int count, Stages **out, Error *e) {
    *out = NULL;
    if (dump && mkdir(dump, 0777) && errno != EEXIST)
        return fail(e, ERR_IO, "--dump %s: cannot create: %s", dump, strerror(errno));
    if (dump && !file_is_dir(dump)) return fail(e, ERR_IO, "--dump %s: not a folder", dump);
    Stages *s = calloc(1, sizeof *s);
    if (s) s->injected = calloc(count ? (size_t)count : 1, sizeof *s->injected);
    if (!s || !s->injected) {
        free(s);
        return fail(e, ERR_MEMORY, "out of memory");
    }
    s->dump = dump;
    for (int i = 0; i < count; i++, s->count++) {
        s->injected[i] = (Injected){.name = inject[i].name, .path = inject[i].file};
        Status status = open_one(&s->injected[i], e);
        if (status != OK) {
            s->count++; /* its file may be open */
            stages_close(s);
            return status;
        }
    }
    *out = s;
    return OK;
}

void stages_close(Stages *s) {
    if (!s) return;
    for (int i = 0; i < s->count; i++) safetensors_close(&s->injected[i].file);
    free(s->injected);
    free(s);
}

void stages_watch(Stages *s, const StageWatch *watch) { s->watch = watch; }

static Injected *find(const Stages *s, const char *name) {
    for (int i = 0; s && i < s->count; i++)
        if (!strcmp(s->injected[i].name, name)) return &s->injected[i];
    return NULL;
}

bool stages_injected(const Stages *s, const char *name) { return find(s, name) != NULL; }

Status stages_check_used(const Stages *s, Error *e) {
    for (int i = 0; s && i < s->count; i++)
        if (!s->injected[i].used)
            return fail(e, ERR_USAGE, "--inject %s: this run has no such stage", s->injected[i].name);
    return OK;
}

/* --- element conversion between file and stage; integers stay integers --- */

static bool is_float(DType t) { return t == F32 || t == F64 || t == F16 || t == BF16; }

static void store(char *to, DType t, double value) {
    float f = (float)value;
    uint16_t h = t == F16 ? f16_from_f32(f) : bf16_from_f32(f);
    int32_t i = (int32_t)value;
    int64_t l = (int64_t)value;
    uint8_t u = (uint8_t)value;
    switch (t) {
    case F32: memcpy(to, &f, 4); break;
    case F16:
    case BF16: memcpy(to, &h, 2); break;
    case I32: memcpy(to, &i, 4); break;
    case I64: memcpy(to, &l, 8); break;
    default: *to = (char)u; break;
    }
}

static Status convert(Injected *in, DType dtype, int rank, const int64_t *shape, void *out, Error *e) {
    Tensor have = in->tensor, want = tensor_make(NULL, dtype, rank, shape);
    char a[128], b[128];
    Tensor h = have, w = want; /* compare shapes without leading ones */
    while (h.rank > 1 && h.shape[0] == 1) memmove(h.shape, h.shape + 1, (size_t)(--h.rank) * sizeof *h.shape);
    while (w.rank > 1 && w.shape[0] == 1) memmove(w.shape, w.shape + 1, (size_t)(--w.rank) * sizeof *w.shape);
    if (!tensor_same_shape(h, w))
        return fail(e, ERR_MODEL, "%s: %s has shape %s, expected %s", in->path, in->name,
                    tensor_shape_text(have, a, sizeof a), tensor_shape_text(want, b, sizeof b));
    bool integers = have.dtype == I32 || have.dtype == I64 || have.dtype == U8 || have.dtype == BOOL;
    if (!(is_float(dtype) ? is_float(have.dtype) : integers))
        return fail(e, ERR_MODEL, "%s: %s is %s, expected %s", in->path, in->name, dtype_name(have.dtype),
                    dtype_name(dtype));
    size_t n = (size_t)tensor_numel(want), from = dtype_size(have.dtype), to = dtype_size(dtype);
    if (have.dtype == dtype) memcpy(out, have.data, n * to);
    else
        for (size_t i = 0; i < n; i++)
            store((char *)out + i * to, dtype, convert_value((const char *)have.data + i * from, have.dtype));
    in->used = true;
    return OK;
}

/* {"__metadata__":{"ditto":"..."},"NAME":{...}}, cJSON's to free; NULL when out of memory. */
static char *header_of(const char *name, const char *record, DType dtype, const Streams *streams) {
    cJSON *o = cJSON_CreateObject(), *meta = record ? cJSON_AddObjectToObject(o, "__metadata__") : NULL;
    bool ok = o && (!record || (meta && cJSON_AddStringToObject(meta, "ditto", record)));
    for (int k = 0; ok && k < streams->count; k++) {
        const Stream *s = &streams->stream[k];
        char full[64];
        snprintf(full, sizeof full, "%s%s", s->prefix, name);
        cJSON *t = cJSON_AddObjectToObject(o, full);
        ok = t && cJSON_AddStringToObject(t, "dtype", dtype_name(dtype));
        cJSON *extents = ok ? cJSON_AddArrayToObject(t, "shape") : NULL;
        for (int d = 0; d < s->rank; d++)
            ok = ok && extents && cJSON_AddItemToArray(extents, cJSON_CreateNumber((double)s->shape[d]));
        cJSON *offsets = ok ? cJSON_AddArrayToObject(t, "data_offsets") : NULL;
        double size = (double)dtype_size(dtype), first = (double)s->first * size;
        ok = ok && offsets && cJSON_AddItemToArray(offsets, cJSON_CreateNumber(first)) &&
             cJSON_AddItemToArray(offsets, cJSON_CreateNumber(first + (double)s->count * size));
    }
    char *text = ok ? cJSON_PrintUnformatted(o) : NULL;
    cJSON_Delete(o);
    return text;
}

static Status write_streams(const char *path, const char *name, const char *record, DType dtype, const Streams *streams,
                            const void *values, bool overwrite, Error *e) {
    size_t bytes = 0;
    for (int k = 0; k < streams->count; k++) bytes += (size_t)streams->stream[k].count * dtype_size(dtype);
    char *header = header_of(name, record, dtype, streams);
    size_t used = header ? strlen(header) : 0, n = (used + 7) / 8 * 8; /* the payload starts aligned */
    char *file = header ? malloc(8 + n + bytes) : NULL;
    if (file) {
        for (int i = 0; i < 8; i++) file[i] = (char)((uint64_t)n >> (8 * i));
        memset(file + 8, ' ', n);
        memcpy(file + 8, header, used);
        memcpy(file + 8 + n, values, bytes);
    }
    cJSON_free(header);
    Status s = file ? file_write_atomic(path, file, 8 + n + bytes, overwrite, e)
                    : fail(e, ERR_MEMORY, "%s: out of memory for %zu bytes", path, bytes);
    free(file);
    return s;
}

Status stages_write_latents(const char *path, const char *record, DType dtype, const Streams *streams, const void *values,
                            bool overwrite, Error *e) {
    return write_streams(path, "latents", record, dtype, streams, values, overwrite, e);
}

Status stages_write_file(const char *path, const char *name, DType dtype, int rank, const int64_t *shape,
                         const void *values, bool overwrite, Error *e) {
    Streams one = {.count = 1, .stream = {{.prefix = "", .rank = rank}}};
    memcpy(one.stream[0].shape, shape, (size_t)rank * sizeof *shape);
    one.stream[0].count = tensor_numel(tensor_make(NULL, dtype, rank, shape));
    return write_streams(path, name, NULL, dtype, &one, values, overwrite, e);
}

Status stages_host(Stages *s, const char *name, DType dtype, int rank, const int64_t *shape, void *values, Error *e) {
    if (!s) return OK;
    Injected *in = find(s, name);
    if (in) TRY(convert(in, dtype, rank, shape, values, e));
    if (s->watch) TRY(s->watch->see(s->watch->user, name, dtype, rank, shape, values, e));
    if (!s->dump) return OK;
    char file[64];
    snprintf(file, sizeof file, "%s.safetensors", name);
    char *path = file_join(s->dump, file);
    if (!path) return fail(e, ERR_MEMORY, "out of memory");
    Status status = stages_write_file(path, name, dtype, rank, shape, values, true, e);
    free(path);
    return status;
}

Status stages_pass(Stages *s, Exec *x, const char *name, Tensor t, int rank, const int64_t *shape) {
    if (!s || x->dry || (!s->dump && !s->watch && !find(s, name))) return OK;
    void *host = malloc(tensor_bytes(t));
    if (!host) return fail(x->error, ERR_MEMORY, "stage %s: out of memory", name);
    bool injected = stages_injected(s, name);
    Status status = injected ? OK : exec_download(x, host, t);
    if (status == OK) status = stages_host(s, name, t.dtype, rank, shape, host, x->error);
    if (status == OK && injected) status = exec_upload(x, t, host);
    free(host);
    return status;
}

static Status see(Tap *tap, Exec *x, const char *name, Tensor t) {
    Stages *s = (Stages *)((char *)tap - offsetof(Stages, tap));
    return stages_pass(s, x, name, t, t.rank, t.shape);
}

Tap *stages_tap(Stages *s) {
    if (!s) return NULL;
    s->tap.see = see;
    return &s->tap;
}

Status stages_meta(Stages *s, const char *json, Error *e) {
    if (!s || !s->dump) return OK;
    char *path = file_join(s->dump, "meta.json");
    if (!path) return fail(e, ERR_MEMORY, "out of memory");
    Status status = file_write_atomic(path, json, strlen(json), true, e);
    free(path);
    return status;
}
