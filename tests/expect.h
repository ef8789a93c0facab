/* expect.h - counted expectations for plain C test programs, and helpers that write safetensors files to try.
 *
 * Not a framework: expect_*() counts and prints failures with file and line; main ends with `return expect_done();`.
 * Easy to get wrong: state is per program, so include this in the one file with main. */
#ifndef EXPECT_H
#define EXPECT_H

#include "core/status.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int expect_passed, expect_failed; /* lint: allow-static (test program) */

#define expect(condition) expect_at((condition), #condition, __FILE__, __LINE__)
/* The call must give `code`, and for a failure its text must contain `part`. */
#define expect_status(call, code, part, error)                                                               \
    do {                                                                                                     \
        *(error) = (Error){0};                                                                               \
        expect_status_at((call), (code), (part), (error), #call, __FILE__, __LINE__);                        \
    } while (0)
#define expect_ok(call, error) expect_status(call, OK, "", error)

static inline void expect_at(int good, const char *text, const char *file, int line) {
    if (good)
        expect_passed++;
    else
        expect_failed++, printf("%s:%d: failed: %s\n", file, line, text);
}

static inline void expect_status_at(Status got, Status want, const char *part, const Error *e,
                                    const char *text, const char *file, int line) {
    if (got == want && (got == OK || (strstr(e->text, part) && e->code == want && !strchr(e->text, '\n')))) {
        expect_passed++;
        return;
    }
    expect_failed++;
    printf("%s:%d: failed: %s gave %d \"%s\", expected %d with \"%s\"\n", file, line, text, got, e->text,
           want, part);
}

static inline int expect_done(void) {
    printf("%d passed, %d failed\n", expect_passed, expect_failed);
    return expect_failed != 0;
}

/* --- files ------------------------------------------------------------------------------------------------------ */

/* A fresh folder under $TMPDIR or /tmp, removed by expect_cleanup(). */
static inline const char *expect_folder(char *out, size_t size) {
    const char *base = getenv("TMPDIR");
    snprintf(out, size, "%s/ditto-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(out)) abort();
    return out;
}

static inline void expect_cleanup(const char *folder) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command)) printf("cannot remove %s\n", folder);
}

static inline void expect_mkdirs(const char *path) {
    char part[600];
    for (size_t i = 1; path[i] && i < sizeof part; i++)
        if (path[i] == '/') {
            memcpy(part, path, i);
            part[i] = 0;
            mkdir(part, 0777);
        }
}

/* Writes bytes to FOLDER/NAME, making folders on the way; returns a path that the next call overwrites. */
static inline const char *expect_write(const char *folder, const char *name, const void *bytes, size_t size) {
    static char path[600]; /* lint: allow-static (test program) */
    snprintf(path, sizeof path, "%s/%s", folder, name);
    expect_mkdirs(path);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) abort();
    return path;
}

static inline const char *expect_text(const char *folder, const char *name, const char *text) {
    return expect_write(folder, name, text, strlen(text));
}

/* A safetensors file in memory: header text as given, then `payload` bytes counting 0, 1, 2, ... malloc'd. */
static inline unsigned char *expect_safetensors(const char *header, size_t payload, size_t *size) {
    size_t n = strlen(header);
    unsigned char *bytes = malloc(8 + n + payload);
    if (!bytes) abort();
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < payload; i++) bytes[8 + n + i] = (unsigned char)i;
    *size = 8 + n + payload;
    return bytes;
}

static inline const char *expect_safetensors_file(const char *folder, const char *name, const char *header,
                                                  size_t payload) {
    size_t size;
    unsigned char *bytes = expect_safetensors(header, payload, &size);
    const char *path = expect_write(folder, name, bytes, size);
    free(bytes);
    return path;
}

#endif
