/* ab_test.h - what the tests of ditto ab share: the program's answer to a line of words, and pictures drawn by such a line.
 *
 * Not a framework; expectations are expect.h's. Easy to get wrong: state is per program, so include this in the one file with
 * main. */
#ifndef AB_TEST_H
#define AB_TEST_H

#include "ab.h"
#include "core/file.h"
#include "expect.h"

static char *printed, *said; /* lint: allow-static (test program) */
static Error error;          /* lint: allow-static (test program) */

static int words(char *line, char **argv, int most) {
    int argc = 0;
    for (char *word = line; word && argc < most;) {
        char *bar = strchr(word, '|');
        if (bar) *bar++ = 0;
        argv[argc++] = word;
        word = bar;
    }
    return argc;
}

/* ditto ab with these words, '|' between; what it prints is in `printed`, for people in `said`. */
static Status ab(const char *format, ...) __attribute__((format(printf, 1, 2)));
static Status ab(const char *format, ...) {
    char line[2000] = "ditto|ab|", *argv[60];
    va_list args;
    va_start(args, format);
    vsnprintf(line + strlen(line), sizeof line - strlen(line), format, args);
    va_end(args);
    const volatile int interrupted = 0;
    const HubEnv env = {0};
    Cli cli;
    size_t size[2];
    free(printed);
    free(said);
    FILE *out = open_memstream(&printed, &size[0]), *err = open_memstream(&said, &size[1]);
    error = (Error){0};
    Status status = cli_parse(words(line, argv, 60), argv, &cli, &error);
    if (status == OK) status = ab_run(&cli, &env, out, err, false, &interrupted, &error);
    cli_free(&cli);
    fclose(out);
    fclose(err);
    return status;
}

#define gives(code, part, ...) expect_status_at(ab(__VA_ARGS__), (code), (part), &error, #__VA_ARGS__, __FILE__, __LINE__)
#define says(part) expect_at(strstr(printed, (part)) != NULL, "output says " part, __FILE__, __LINE__)
#define silent(part) expect_at(strstr(printed, (part)) == NULL, "output does not say " part, __FILE__, __LINE__)

#endif
