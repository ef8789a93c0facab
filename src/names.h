/* names.h - the file names of a run's pictures, decided and checked before any work is done.
 *
 * The rules (README, "Output names"), picture numbers K counting from 1:
 *   no -o                    ./TITLE-SEED.png
 *   an existing folder       FOLDER/TITLE-SEED.png    (a trailing slash says folder; a missing one is refused)
 *   NAME with %d or %03d     the number in its place, also for a single picture
 *   NAME.png                 NAME.png for one picture, NAME-K.png for several
 * Only the last part of the path is a pattern, and only %d and %0Nd (N one digit) are counters; any other '%' is a
 * plain character. Not the writer: that is file_write_atomic, which checks once more.
 * Easy to get wrong: SEED is the picture's own seed, so a folder run of several pictures needs no number. */
#ifndef NAMES_H
#define NAMES_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Names {
    char **path; /* count malloc'd paths */
    int count;
} Names;

/* output NULL: none given. title names the model; characters that a file name should not hold become '-'.
 * ERR_USAGE: not a .png name, two counters, several pictures with the same name. names_free in any case. */
Status names_make(const char *output, const char *title, uint64_t seed, int count, Names *out, Error *e);
void names_free(Names *names);

/* output with its counter replaced by the number, or as it is; malloc'd, NULL when out of memory. */
char *names_number(const char *output, int number);

/* Refuses what the writer would refuse later: an existing name without overwrite (ERR_USAGE), a missing or unwritable
 * folder, a name that is too long (ERR_IO). Proves it by creating and removing the temporary file of the longest name. */
Status names_check(const Names *names, bool overwrite, Error *e);

#endif
