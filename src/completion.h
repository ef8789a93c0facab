/* completion.h - completion scripts for shells, written from the option table: `ditto completion SHELL`.
 *
 * Commands, options and the values that an option spells out ("cpu|cuda") are completed; files and folders where the
 * argument is one. Hidden spellings are not offered.
 * Easy to get wrong: texts go into quotes of three languages; the table's are ASCII without control characters, and
 * completion.c quotes what each shell takes specially. */
#ifndef COMPLETION_H
#define COMPLETION_H

#include "core/status.h"

#include <stdio.h>

/* shell: bash, zsh or fish; ERR_USAGE for another. */
Status completion_print(const char *shell, FILE *out, Error *e);

#endif
