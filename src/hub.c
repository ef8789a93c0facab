/* hub.c - see hub.h. The cache layout: CACHE/models--OWNER--NAME/refs/main holds a commit, snapshots/COMMIT/ holds links
 * into blobs/. The one include pattern works because every wanted name of these repositories begins with m, s, t or v,
 * and the single-file copies (flux1-dev.safetensors, ae.safetensors) do not. */
#include "hub.h"

#include "core/file.h"
#include "core/json.h"
#include "core/shards.h"
#include "recognise.h"

#include <ctype.h>
#include <dirent.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>

static Status no_memory(const char *what, Error *e) { return fail(e, ERR_MEMORY, "%s: out of memory", what); }

/* "~" or "~USER" in front replaced, as Python's expanduser does it. Takes path. */
static char *expand_user(const HubEnv *env, char *path) {
    if (!path || *path != '~') return path;
    size_t size = strcspn(path, "/");
    char *name = strndup(path + 1, size - 1), *out = NULL;
    const struct passwd *user = name && *name ? getpwnam(name) : NULL;
    const char *home = !name ? NULL : *name ? (user ? user->pw_dir : NULL) : env->home;
    free(name);
    if (!home || !*home) return path;
    size_t end = strlen(home);
    while (end > 1 && home[end - 1] == '/') end--;
    if (asprintf(&out, "%.*s%s", (int)end, home, path + size) < 0) out = NULL;
    free(path);
    return out;
}

/* The length of "$NAME" or "${NAME}" at text; *name and *size are the name's. 0: none stands there. */
static size_t variable_at(const char *text, const char **name, size_t *size) {
    bool braces = *text == '$' && text[1] == '{';
    *name = text + 1 + braces;
    *size = 0;
    if (*text != '$') return 0;
    if (braces) {
        *size = strcspn(*name, "}");
        return (*name)[*size] ? *size + 3 : 0;
    }
    while (isalnum((unsigned char)(*name)[*size]) || (*name)[*size] == '_') ++*size;
    return *size ? *size + 1 : 0;
}

/* Variables replaced by their values, which are not looked through again; unknown ones stay. Takes path. */
static char *expand_variables(const HubEnv *env, char *path) {
    for (size_t at = 0; path && env->variable && path[at]; at++) {
        const char *begin, *value;
        size_t size, length = variable_at(path + at, &begin, &size);
        char *name = length ? strndup(begin, size) : NULL, *out = NULL;
        if (!name || !(value = env->variable(name))) {
            free(name);
            continue;
        }
        if (asprintf(&out, "%.*s%s%s", (int)at, path, value, path + at + length) < 0) out = NULL;
        at += strlen(value) - 1; /* may wrap: the loop's increment brings it back */
        free(name);
        free(path);
        path = out;
    }
    return path;
}

static char *expanded(const HubEnv *env, char *path) { return expand_variables(env, expand_user(env, path)); }

static bool said(const char *value) { return value && *value; }

char *hub_cache_folder(const HubEnv *env) {
    if (said(env->hub_cache)) return expanded(env, strdup(env->hub_cache));
    if (said(env->old_cache)) return expanded(env, strdup(env->old_cache));
    char *home = said(env->hf_home)     ? strdup(env->hf_home)
                 : said(env->xdg_cache) ? file_join(env->xdg_cache, "huggingface")
                 : said(env->home)      ? file_join(env->home, ".cache/huggingface")
                                        : NULL;
    home = expanded(env, home);
    char *cache = home ? file_join(home, "hub") : NULL;
    free(home);
    return expanded(env, cache); /* they do it twice */
}

/* "OWNER/NAME": two parts of the characters the hub allows, neither beginning with a dot. */
static bool repository_name(const char *model) {
    const char *slash = strchr(model, '/');
    if (!slash || slash == model || !slash[1] || strchr(slash + 1, '/') || *model == '.' || slash[1] == '.')
        return false;
    for (const char *c = model; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-/", *c)) return false;
    return true;
}

static bool gated(const char *repository) {
    return !strncmp(repository, "black-forest-labs/", 18) && !strstr(repository, "schnell");
}

/* Writes the download line, with what a gated repository asks for first. */
static const char *download_line(const char *repository, const char *include, const char *local_dir,
                                 char *out, size_t size) {
    char to[600] = "", gate[400] = "";
    if (local_dir) snprintf(to, sizeof to, " --local-dir '%s'", local_dir);
    if (gated(repository))
        snprintf(gate, sizeof gate,
                 " (gated: first accept the licence at https://huggingface.co/%s and run `hf auth login`)",
                 repository);
    snprintf(out, size, "hf download %s --include \"%s\"%s%s", repository, include, to, gate);
    return out;
}

/* The snapshot of CACHE/models--...: what refs/main names, or the only one. */
static Status snapshot(const char *repository, char **path, Error *e) {
    char *ref = file_join(repository, "refs/main"), *folder = file_join(repository, "snapshots"),
         *commit = NULL;
    Status status = ref && folder ? OK : no_memory(repository, e);
    if (status == OK && file_exists(ref)) {
        status = file_read(ref, &commit, NULL, e);
        if (status == OK) commit[strcspn(commit, " \r\n\t")] = 0;
        if (status == OK && (!*commit || strchr(commit, '/') || *commit == '.'))
            status = fail(e, ERR_MODEL, "%s: expected a commit name", ref);
    } else if (status == OK) {
        DIR *d = opendir(folder);
        int found = 0;
        for (struct dirent *f; d && (f = readdir(d));)
            if (f->d_name[0] != '.' && !found++) commit = strdup(f->d_name);
        if (d) closedir(d);
        if (found != 1)
            status = fail(e, ERR_MODEL, "%s: no refs/main and %d snapshots; give one of them to -m",
                          repository, found);
        else if (!commit)
            status = no_memory(repository, e);
    }
    if (status == OK && !(*path = file_join(folder, commit))) status = no_memory(repository, e);
    free(ref);
    free(folder);
    free(commit);
    return status;
}

static Status find_cached(const HubEnv *env, const char *model, char **path, Error *e) {
    char *cache = hub_cache_folder(env), line[1024];
    const char *slash = strchr(model, '/');
    char name[512];
    snprintf(name, sizeof name, "models--%.*s--%s", (int)(slash - model), model, slash + 1);
    char *repository = cache ? file_join(cache, name) : NULL;
    Status status = OK;
    if (!repository || !file_is_dir(repository))
        status = fail(e, ERR_MODEL, "%s: no such folder, and not in the hub cache (%s); fetch it with: %s",
                      model, cache ? cache : "none: HOME is not set",
                      download_line(model, "[mstv]*", NULL, line, sizeof line));
    else
        status = snapshot(repository, path, e);
    if (status == OK && !file_is_dir(*path)) {
        status = fail(e, ERR_MODEL, "%s: %s is missing, an interrupted download; repeat: %s", model, *path,
                      download_line(model, "[mstv]*", NULL, line, sizeof line));
        free(*path);
        *path = NULL;
    }
    free(cache);
    free(repository);
    return status;
}

Status hub_find(const HubEnv *env, const char *model, char **path, Error *e) {
    *path = NULL;
    if (file_exists(model)) {
        char *inside = file_join(model, "snapshots"), *index = file_join(model, "model_index.json");
        Status status = OK;
        if (!inside || !index)
            status = no_memory(model, e);
        else if (file_is_dir(inside) && !file_exists(index))
            status = snapshot(model, path, e);
        else if (!(*path = strdup(model)))
            status = no_memory(model, e);
        free(inside);
        free(index);
        return status;
    }
    if (repository_name(model)) return find_cached(env, model, path, e);
    return fail(
        e, ERR_MODEL,
        "%s: no such folder; give a model folder or OWNER/NAME of a downloaded repository, for example "
        "black-forest-labs/FLUX.1-schnell",
        model);
}

/* --- completeness ---------------------------------------------------------------------------------------------- */

typedef struct Missing {
    char names[400]; /* the first few */
    char part[32];   /* component of the first */
    int count;
    bool several; /* more than one component */
} Missing;

static void missing_add(Missing *m, const char *part, const char *name) {
    size_t used = strlen(m->names);
    if (m->count < 3)
        snprintf(m->names + used, sizeof m->names - used, "%s%s/%.80s", m->count ? ", " : "", part, name);
    if (!m->count) snprintf(m->part, sizeof m->part, "%s", part);
    m->several |= strcmp(m->part, part) != 0;
    m->count++;
}

/* Allocates nothing: a file must not seem missing because memory is. */
static bool there(const char *folder, const char *name) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && file_exists(path); /* follows links: a dangling one is missing */
}

static Status need_weights(const char *folder, const char *part, Missing *m, Error *e) {
    char **names = NULL;
    int count = 0;
    TRY(shards_names(folder, &names, &count, e));
    if (!count)
        missing_add(m, part,
                    strstr(part, "text") ? "model.safetensors" : "diffusion_pytorch_model.safetensors");
    for (int i = 0; i < count; i++)
        if (!there(folder, names[i])) missing_add(m, part, names[i]);
    shards_names_free(names, count);
    return OK;
}

static Status need_part(const char *model, const char *part, Missing *m, Error *e) {
    char *folder = file_join(model, part);
    if (!folder) return no_memory(model, e);
    Status status = OK;
    if (!strcmp(part, "scheduler")) {
        if (!there(folder, "scheduler_config.json")) missing_add(m, part, "scheduler_config.json");
    } else if (!strncmp(part, "tokenizer", 9)) {
        bool clip = !strcmp(part, "tokenizer"),
             pair = there(folder, "vocab.json") && there(folder, "merges.txt");
        if (!there(folder, "tokenizer.json") && !(clip && pair))
            missing_add(m, part,
                        !clip                         ? "tokenizer.json"
                        : there(folder, "vocab.json") ? "merges.txt"
                                                      : "vocab.json");
    } else {
        if (!there(folder, "config.json")) missing_add(m, part, "config.json");
        status = need_weights(folder, part, m, e);
    }
    free(folder);
    return status;
}

/* "OWNER/NAME" out of a cache path .../models--OWNER--NAME/...; false when the path is none. */
static bool cached_repository(const char *folder, char *out, size_t size) {
    char *real = realpath(folder, NULL);
    const char *at = real ? strstr(real, "/models--") : NULL, *split = at ? strstr(at + 9, "--") : NULL;
    bool found = split != NULL;
    if (found)
        snprintf(out, size, "%.*s/%.*s", (int)(split - at - 9), at + 9, (int)strcspn(split + 2, "/"),
                 split + 2);
    free(real);
    return found;
}

typedef enum Kind { FLUX, ZIMAGE, SANA_VIDEO, LTX2 } Kind;

/* By the index. A folder whose index cannot be read is taken for FLUX's. */
static Kind kind_of(const char *folder) {
    char *path = file_join(folder, "model_index.json");
    Json *index = NULL;
    Error ignored = {0};
    const char *name = NULL;
    bool known = path && json_read(path, &index, &ignored) == OK &&
                 json_string(index, "_class_name", &name, path, &ignored) == OK && name;
    static const struct { const char *prefix; Kind kind; } NAMES[] = {
        {"ZImage", ZIMAGE}, {"SanaVideo", SANA_VIDEO}, {"LTX2", LTX2}};
    Kind kind = FLUX;
    for (size_t i = 0; known && i < sizeof NAMES / sizeof *NAMES; i++)
        if (!strncmp(name, NAMES[i].prefix, strlen(NAMES[i].prefix))) kind = NAMES[i].kind;
    json_free(index);
    free(path);
    return kind;
}

/* The base model that a plain folder looks like: by guidance embedding, else by its name. */
static const char *base_repository(const char *folder, Kind kind) {
    if (kind == LTX2) return "Lightricks/LTX-2";
    if (kind == SANA_VIDEO)
        return strstr(folder, "720p") ? "Efficient-Large-Model/SANA-Video_2B_720p_diffusers"
                                      : "Efficient-Large-Model/SANA-Video_2B_480p_diffusers";
    if (kind == ZIMAGE) return strstr(folder, "Turbo") ? "Tongyi-MAI/Z-Image-Turbo" : "Tongyi-MAI/Z-Image";
    char *path = file_join(folder, "transformer/config.json");
    Json *config = NULL;
    Error ignored = {0};
    bool guidance = !strstr(folder, "schnell");
    if (path && json_read(path, &config, &ignored) == OK)
        json_bool(config, "guidance_embeds", &guidance, path, &ignored);
    json_free(config);
    free(path);
    return guidance ? "black-forest-labs/FLUX.1-dev" : "black-forest-labs/FLUX.1-schnell";
}

Status hub_complete(const char *folder, Error *e) {
    static const char *const PARTS[] = {
        "scheduler", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "transformer", "vae",
        "connectors", "audio_vae", "vocoder"};
    enum { COMMON = 7, ALL = 10 };
    Missing m = {0};
    Kind kind = kind_of(folder);
    for (int i = 0; i < (kind == LTX2 ? ALL : COMMON); i++)
        if (kind == FLUX || !strstr(PARTS[i], "_2")) /* the others have one text encoder */
            TRY(need_part(folder, PARTS[i], &m, e));
    if (!m.count) return OK;
    char repository[300], line[1200], include[64] = "[mstv]*", more[40] = "";
    bool cached = cached_repository(folder, repository, sizeof repository);
    if (!cached) snprintf(repository, sizeof repository, "%s", base_repository(folder, kind));
    if (kind == LTX2) snprintf(include, sizeof include, "[acmstv]*"); /* not the single files beside them */
    if (!m.several) snprintf(include, sizeof include, "%s/*", m.part);
    if (m.count > 3) snprintf(more, sizeof more, " and %d more", m.count - 3);
    return fail(e, ERR_MODEL, "%s: missing %s%s; fetch%s with: %s", folder, m.names, more,
                cached ? "" : ", unless this folder came from elsewhere,",
                download_line(repository, include, cached ? NULL : folder, line, sizeof line));
}

Status hub_resolve(const HubEnv *env, const char *model, char **folder, Error *e) {
    TRY(hub_find(env, model, folder, e));
    Status status = recognise_model(*folder, e);
    if (status == OK && file_is_dir(*folder)) status = hub_complete(*folder, e);
    if (status != OK) {
        free(*folder);
        *folder = NULL;
    }
    return status;
}
