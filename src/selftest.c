/* selftest.c - see selftest.h. The job: PROMPT, SIDE x SIDE pixels, one step, seed SEED, TEXT tokens of the long encoder.
 *
 * A record's lines: profile, stage, dtype, shape, SHA-256 of the values (little-endian, row-major), between tabs.
 * Easy to get wrong: change the job or what is hashed, and VERSION must change, or old records would accuse good
 * machines. */
#include "selftest.h"

#include "core/file.h"
#include "filesums.h"
#include "profile.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char VERSION[] = "# ditto selftest 1: profile, stage, dtype, shape, SHA-256";
static const char PROMPT[] = "a lighthouse at dusk, waves breaking below, the beam cutting through mist";
enum { SIDE = 256, SEED = 20, TEXT = 128, MOST = 512, COLUMNS = 5 };

typedef struct Stage {
    char profile[PROFILE_TEXT], name[40], dtype[8], shape[64], sum[SHA256_TEXT];
} Stage;

typedef struct Table {
    Stage stage[MOST];
    int count;
} Table;

typedef struct Test {
    const SelftestOptions *o;
    FILE *out, *err;
    char profile[PROFILE_TEXT];
    Table now, before;
} Test;

static Status path_of(const Test *t, const char *name, char **out, Error *e) {
    *out = file_join(t->o->folder, name);
    return *out ? OK : fail(e, ERR_MEMORY, "out of memory");
}

/* --- files --- */

static Status check_files(Test *t, FileSums *files, Error *e) {
    const SelftestOptions *o = t->o;
    char *own;
    TRY(path_of(t, FILESUMS_MANIFEST, &own, e));
    const char *manifest = o->manifest ? o->manifest : file_exists(own) ? own : NULL;
    Status status = filesums_list(o->folder, files, e);
    if (status == OK && manifest) status = filesums_manifest(files, manifest, e);
    if (status == OK && !o->quiet)
        fprintf(t->err, "reading %d files, %.3f GB\n", files->count, (double)filesums_bytes(files) * 1e-9);
    if (status == OK) status = filesums_hash(files, o->folder, o->interrupted, e);
    if (status == OK) {
        const FileSum *first = NULL;
        filesums_print(files, t->out);
        int faults = filesums_faults(files, &first);
        if (faults)
            status = fail(e, ERR_MODEL, "%s: %s: %s (%s); %d of %d files at fault", o->folder, first->name,
                          filesums_verdict(files, first), manifest, faults, files->count);
        else if (!o->quiet && !manifest)
            fprintf(t->err, "no manifest (%s): the sums above were compared with nothing\n", own);
    }
    if (status == OK && o->record && !manifest) {
        status = filesums_write(files, own, o->overwrite, e);
        if (status == OK && !o->quiet) fprintf(t->err, "written: %s\n", own);
    }
    free(own);
    return status;
}

/* --- stages --- */

static Status see(void *user, const char *name, DType dtype, int rank, const int64_t *shape, const void *values, Error *e) {
    Test *t = user;
    if (t->now.count == MOST) return fail(e, ERR_MODEL, "more than %d stages", (int)MOST);
    Stage *s = &t->now.stage[t->now.count++];
    snprintf(s->profile, sizeof s->profile, "%s", t->profile);
    snprintf(s->name, sizeof s->name, "%s", name);
    snprintf(s->dtype, sizeof s->dtype, "%s", dtype_name(dtype));
    for (int d = 0, at = 0; d < rank; d++)
        at += snprintf(s->shape + at, sizeof s->shape - (size_t)at, d ? ",%lld" : "%lld", (long long)shape[d]);
    sha256_memory(values, tensor_bytes(tensor_make(NULL, dtype, rank, shape)), s->sum);
    return OK;
}

static Status one_step(Test *t, Error *e) {
    const SelftestOptions *o = t->o;
    Pipeline *p = NULL;
    TRY(pipeline_open(&(PipelineOptions){.model = o->folder, .device = o->device, .dtype = o->dtype, .vram = o->vram,
                                         .sync = o->sync, .interrupted = o->interrupted}, &p, e));
    StageWatch watch = {see, t};
    Job job = {.prompt = PROMPT, .width = SIDE, .height = SIDE, .steps = 1, .max_sequence_length = TEXT, .seed = SEED,
               .watch = &watch};
    Media media = {0};
    Profile profile;
    Status status = pipeline_profile(p, &profile, e);
    if (status == OK) profile_text(&profile, t->profile);
    if (status == OK && !o->quiet) fprintf(t->err, "one step of %s on %s\n", pipeline_title(p), t->profile);
    if (status == OK) status = pipeline_resolve(p, &job, e);
    if (status == OK) status = pipeline_render(p, &job, NULL, &media, e);
    media_free(&media);
    pipeline_close(p);
    return status;
}

/* --- the record --- */

static Status read_line(Stage *s, char *line, const char *path, int number, Error *e) {
    const struct { char *to; size_t size; } column[COLUMNS] = {
        {s->profile, sizeof s->profile}, {s->name, sizeof s->name}, {s->dtype, sizeof s->dtype},
        {s->shape, sizeof s->shape}, {s->sum, sizeof s->sum}};
    for (int i = 0; i < COLUMNS; i++) {
        size_t n = strcspn(line, "\t");
        if (!n || n >= column[i].size || (line[n] != 0) != (i < COLUMNS - 1))
            return fail(e, ERR_MODEL, "%s:%d: expected profile, stage, dtype, shape and SHA-256 between tabs", path, number);
        memcpy(column[i].to, line, n);
        column[i].to[n] = 0;
        line += n + 1;
    }
    return OK;
}

static Status read_record(Table *table, const char *path, Error *e) {
    char *text;
    size_t size;
    TRY(file_read(path, &text, &size, e));
    Status status = OK;
    int number = 0;
    for (char *line = text, *next; status == OK && line && *line; line = next) {
        if ((next = strchr(line, '\n'))) *next++ = 0;
        if (!number++ && strcmp(line, VERSION))
            status = fail(e, ERR_MODEL, "%s: another version of the self-test wrote it; remove it and --record anew", path);
        else if (*line && *line != '#') {
            if (table->count == MOST) status = fail(e, ERR_MODEL, "%s: more than %d lines", path, (int)MOST);
            else status = read_line(&table->stage[table->count++], line, path, number, e);
        }
    }
    free(text);
    if (status == OK && !number) status = fail(e, ERR_MODEL, "%s: is empty", path);
    return status;
}

/* These are computed on the host, or drawn, in the same bits everywhere. */
static bool everywhere(const char *stage) {
    static const char *const NAMES[] = {"ids_", "mask_", "negative_ids_", "negative_mask_", "sigmas", "timesteps", "noise"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (!strncmp(stage, NAMES[i], strlen(NAMES[i]))) return true;
    return false;
}

/* What the record says of this stage; NULL: nothing that could be compared. */
static const Stage *recorded(const Test *t, const Stage *now) {
    const Stage *other = NULL;
    for (int i = 0; i < t->before.count; i++) {
        const Stage *b = &t->before.stage[i];
        if (strcmp(b->name, now->name)) continue;
        if (!strcmp(b->profile, now->profile)) return b;
        if (everywhere(now->name) && !strcmp(b->dtype, now->dtype)) other = b;
    }
    return other;
}

static bool same(const Stage *a, const Stage *b) {
    return !strcmp(a->dtype, b->dtype) && !strcmp(a->shape, b->shape) && !strcmp(a->sum, b->sum);
}

static Status compare(Test *t, const char *path, Error *e) {
    int compared = 0, differ = 0;
    const Stage *first = NULL;
    for (int i = 0; i < t->now.count; i++) {
        const Stage *s = &t->now.stage[i], *b = recorded(t, s);
        bool bad = b && !same(s, b);
        fprintf(t->out, "stage\t%s\t%s\t%s\t%s\t%s\n", s->name, s->dtype, s->shape, s->sum, !b ? "-" : bad ? "differs" : "ok");
        compared += b != NULL, differ += bad;
        if (bad && !first) first = s;
    }
    if (differ)
        return fail(e, ERR_SOME, "%s is the first of %d stages that differ from %s (%s)", first->name, differ, path,
                    t->profile);
    if (!t->o->quiet && compared == t->now.count) fprintf(t->err, "all %d stages as recorded in %s\n", compared, path);
    else if (!t->o->quiet)
        fprintf(t->err, "%d of %d stages compared: %s %s \"%s\"; --record adds it\n", compared, t->now.count, path,
                t->before.count ? "has no record for" : "does not exist, nothing is recorded for", t->profile);
    return OK;
}

/* The other profiles' lines, then ours. */
static Status write_record(const Test *t, const char *path, Error *e) {
    char *text = NULL;
    size_t size = 0;
    bool ours = false;
    FILE *out = open_memstream(&text, &size);
    if (!out) return fail(e, ERR_MEMORY, "%s: out of memory", path);
    fprintf(out, "%s\n", VERSION);
    for (int pass = 0; pass < 2; pass++) {
        const Table *table = pass ? &t->now : &t->before;
        for (int i = 0; i < table->count; i++) {
            const Stage *s = &table->stage[i];
            bool mine = !strcmp(s->profile, t->profile);
            ours |= mine && !pass;
            if (mine == (pass == 1))
                fprintf(out, "%s\t%s\t%s\t%s\t%s\n", s->profile, s->name, s->dtype, s->shape, s->sum);
        }
    }
    bool bad = ferror(out);
    Status status = fclose(out) || bad ? fail(e, ERR_MEMORY, "%s: out of memory", path) : OK;
    if (status == OK && ours && !t->o->overwrite)
        status = fail(e, ERR_USAGE, "%s: holds a record for \"%s\"; give -y to replace it", path, t->profile);
    if (status == OK) status = file_write_atomic(path, text, size, t->before.count > 0, e);
    free(text);
    return status;
}

static Status check_stages(Test *t, Error *e) {
    char *path;
    TRY(path_of(t, FILESUMS_STAGES, &path, e));
    Status status = file_exists(path) ? read_record(&t->before, path, e) : OK;
    if (status == OK) status = one_step(t, e);
    if (status == OK && t->o->record) {
        for (int i = 0; i < t->now.count; i++) {
            const Stage *s = &t->now.stage[i];
            fprintf(t->out, "stage\t%s\t%s\t%s\t%s\trecorded\n", s->name, s->dtype, s->shape, s->sum);
        }
        status = write_record(t, path, e);
        if (status == OK && !t->o->quiet) fprintf(t->err, "written: %s\n", path);
    } else if (status == OK) {
        status = compare(t, path, e);
    }
    free(path);
    return status;
}

Status selftest_run(const SelftestOptions *o, FILE *out, FILE *err, Error *e) {
    Test *t = calloc(1, sizeof *t);
    FileSums files = {0};
    if (!t) return fail(e, ERR_MEMORY, "out of memory");
    t->o = o, t->out = out, t->err = err;
    Status status = check_files(t, &files, e);
    if (status == OK) status = check_stages(t, e);
    filesums_free(&files);
    free(t);
    return status;
}
