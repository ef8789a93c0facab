/* names.c - see names.h. Plain byte strings: paths need not be UTF-8, and nothing is ever handed to printf as a format.
 * Easy to get wrong: lstat, not stat, decides whether a name exists, so that a dangling link counts as existing. */
#include "names.h"

#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TITLE_MAX = 100 }; /* bytes of the title in a file name */

typedef struct Suffix {
    const char *text;
    NamesKind kind;
} Suffix;
static const Suffix SUFFIXES[] = {{".png", NAMES_PNG}, {".mp4", NAMES_MP4}, {".mkv", NAMES_MKV}};

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The next counter at or after s: its start, or NULL; *size is its length, *digits its width. */
static const char *find_counter(const char *s, size_t *size, int *digits) {
    for (; *s; s++) {
        if (*s != '%') continue;
        if (s[1] == 'd') {
            *size = 2;
            *digits = 1;
            return s;
        }
        if (s[1] == '0' && s[2] >= '1' && s[2] <= '9' && s[3] == 'd') {
            *size = 4;
            *digits = s[2] - '0';
            return s;
        }
    }
    return NULL;
}

static char *join_number(const char *left, size_t left_size, const char *number, const char *right) {
    size_t n = strlen(number), m = strlen(right);
    char *out = malloc(left_size + n + m + 1);
    if (!out) return NULL;
    memcpy(out, left, left_size);
    memcpy(out + left_size, number, n);
    memcpy(out + left_size + n, right, m + 1);
    return out;
}

static char *title_name(const char *title, uint64_t seed, const char *suffix) {
    char text[TITLE_MAX + 40];
    size_t n = 0;
    for (const char *c = title; *c && n < TITLE_MAX; c++) {
        unsigned char b = (unsigned char)*c;
        text[n++] = b <= 0x20 || b == 0x7f || strchr("/\\:*?\"<>|%", b) ? '-' : (char)b;
    }
    if (title[n]) { /* cut: take a code point that began before the cut away with it */
        while (n && ((unsigned char)title[n] & 0xc0) == 0x80) n--;
    }
    if (!n || text[0] == '.' || text[0] == '-') { /* no hidden file, no option */
        memmove(text + 1, text, n);
        text[0] = '_';
        n++;
    }
    snprintf(text + n, sizeof text - n, "-%llu%s", (unsigned long long)seed, suffix);
    return strdup(text);
}

static bool has_counter(const char *output) {
    size_t size = 0;
    int digits = 0;
    return find_counter(last_part(output), &size, &digits) != NULL;
}

/* What the suffix of a given name says, held against what is made. */
static Status read_suffix(const char *output, const NamesWanted *w, NamesKind *kind, Error *e) {
    const char *name = last_part(output), *dot = strrchr(name, '.'), *expected = ".png";
    if (w->of != NAMES_OF_PICTURES) expected = ".mp4, .mkv or .png";
    if (!dot || dot == name)
        return fail(e, ERR_USAGE, "--output: %s has no %s suffix (a folder must exist or end with a slash)", output, expected);
    const Suffix *found = NULL;
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof *SUFFIXES; i++)
        if (!strcasecmp(dot, SUFFIXES[i].text)) found = &SUFFIXES[i];
    if (!found) return fail(e, ERR_USAGE, "--output: %s ends with %s, expected %s", output, dot, expected);
    if (w->of == NAMES_OF_PICTURES && found->kind != NAMES_PNG)
        return fail(e, ERR_USAGE, "--output: %s ends with %s, expected .png: %s makes pictures, no clips", output, dot,
                    w->title);
    *kind = found->kind;
    if (w->of != NAMES_OF_CLIPS || found->kind != NAMES_PNG || (w->frames == 1 && !has_counter(output))) return OK;
    *kind = NAMES_FRAMES;
    if (!has_counter(output))
        return fail(e, ERR_USAGE,
                    "--output: %s: %s makes clips: expected .mp4, .mkv, or a counter for the frames, such as %%04d.png", output,
                    w->title);
    if (w->count > 1)
        return fail(e, ERR_USAGE, "--output: %s counts the frames of one clip, but --count is %d", output, w->count);
    return OK;
}

char *names_number(const char *output, int number) {
    char text[24];
    size_t size = 0;
    int digits = 0;
    const char *counter = find_counter(last_part(output), &size, &digits);
    if (!counter) return strdup(output);
    snprintf(text, sizeof text, "%0*d", digits, number);
    return join_number(output, (size_t)(counter - output), text, counter + size);
}

char *names_sound(const char *output) {
    const char *name = last_part(output), *dot = strrchr(name, '.');
    size_t size = 0, head, rest, folder = (size_t)(name - output);
    int digits = 0;
    const char *counter = find_counter(name, &size, &digits);
    if (!dot || !counter || counter > dot) return NULL;
    head = (size_t)(counter - name), rest = (size_t)(dot - counter) - size;
    while (head && strchr("-_. ", name[head - 1])) head--;
    char *out = malloc(folder + head + rest + sizeof "sound.wav");
    if (!out) return NULL;
    memcpy(out, output, folder + head);
    memcpy(out + folder + head, counter + size, rest);
    strcpy(out + folder + head + rest, head + rest ? ".wav" : "sound.wav");
    return out;
}

static char *one_name(const char *output, const NamesWanted *w, const char *suffix, bool frames, int number) {
    char text[24];
    size_t length = output ? strlen(output) : 0;
    if (!output || output[length - 1] == '/' || file_is_dir(output)) {
        char *name = title_name(w->title, w->seed + (uint64_t)(number - 1), suffix);
        char *path = name ? file_join(output ? output : ".", name) : NULL;
        free(name);
        return path;
    }
    if (frames) return strdup(output);
    if (w->count == 1 || has_counter(output)) return names_number(output, number);
    const char *dot = strrchr(output, '.');
    snprintf(text, sizeof text, "-%d", number);
    return join_number(output, (size_t)(dot - output), text, dot);
}

static Status check_counters(const char *output, Error *e) {
    size_t size = 0;
    int digits = 0;
    const char *counter = find_counter(last_part(output), &size, &digits);
    if (!counter || !find_counter(counter + size, &size, &digits)) return OK;
    return fail(e, ERR_USAGE, "--output: %s holds two counters, expected at most one %%d or %%03d", output);
}

Status names_make(const char *output, const NamesWanted *w, Names *out, Error *e) {
    *out = (Names){.frames = 1};
    if (output && !output[0]) return fail(e, ERR_USAGE, "--output: the name is empty");
    if (output && !strcmp(output, "-"))
        return fail(e, ERR_USAGE, "--output: -: results are files, standard output tells their names; give a file's name");
    bool folder = !output || output[strlen(output) - 1] == '/' || file_is_dir(output);
    const char *suffix = w->suffix ? w->suffix : w->of == NAMES_OF_CLIPS ? ".mp4" : ".png";
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof *SUFFIXES; i++)
        if (!strcmp(suffix, SUFFIXES[i].text)) out->kind = SUFFIXES[i].kind;
    if (!folder) {
        TRY(read_suffix(output, w, &out->kind, e));
        TRY(check_counters(output, e));
    }
    if (out->kind == NAMES_FRAMES) out->frames = w->frames;
    out->path = calloc((size_t)w->count, sizeof *out->path);
    if (!out->path) return fail(e, ERR_MEMORY, "--output: out of memory for %d names", w->count);
    for (int i = 0; i < w->count; i++) {
        out->path[i] = one_name(output, w, suffix, out->kind == NAMES_FRAMES, i + 1);
        if (!out->path[i]) return fail(e, ERR_MEMORY, "--output: out of memory for %d names", w->count);
        out->count++;
    }
    return OK;
}

void names_free(Names *names) {
    for (int i = 0; i < names->count; i++) free(names->path[i]);
    free(names->path);
    *names = (Names){0};
}

static Status check_folder(const char *path, Error *e) {
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return OK;
    char *folder = strndup(path, (size_t)(slash - path));
    if (!folder) return fail(e, ERR_MEMORY, "--output: out of memory");
    struct stat st;
    Status status = OK;
    if (stat(folder, &st))
        status = fail(e, ERR_IO, "%s: no such folder to write to: %s", folder, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        status = fail(e, ERR_IO, "%s: not a folder", folder);
    free(folder);
    return status;
}

/* The temporary name of file_write_atomic, created and removed: rights, read-only file systems, name lengths. */
static Status probe(const char *path, Error *e) {
    char name[4096];
    if (snprintf(name, sizeof name, "%s.tmp-%ld", path, (long)getpid()) >= (int)sizeof name)
        return fail(e, ERR_IO, "%s: path is too long", path);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return fail(e, ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    close(fd);
    unlink(name);
    return OK;
}

static Status check_one(const char *path, bool overwrite, Error *e) {
    struct stat st;
    if (lstat(path, &st)) return OK;
    if (S_ISDIR(st.st_mode)) return fail(e, ERR_IO, "%s: is a folder, expected a file name", path);
    return overwrite ? OK : fail(e, ERR_USAGE, "%s: exists; give -y to overwrite", path);
}

/* All files of a clip of frames. */
static Status check_frames(const Names *names, bool overwrite, Error *e) {
    Status status = OK;
    for (int i = 1; status == OK && i <= names->frames; i++) {
        char *path = names_number(names->path[0], i);
        status = path ? check_one(path, overwrite, e) : fail(e, ERR_MEMORY, "--output: out of memory");
        if (status == OK && i == names->frames) status = probe(path, e);
        free(path);
    }
    return status;
}

Status names_check(const Names *names, bool overwrite, Error *e) {
    const char *longest = NULL;
    for (int i = 0; i < names->count; i++) {
        const char *path = names->path[i];
        if (!i) TRY(check_folder(path, e));
        if (names->kind == NAMES_FRAMES) return check_frames(names, overwrite, e);
        TRY(check_one(path, overwrite, e));
        if (!longest || strlen(path) > strlen(longest)) longest = path;
    }
    return longest ? probe(longest, e) : OK;
}
