/* manual.h - the manual page, written from the option table: `ditto man`.
 *
 * Every command, option and exit code comes from options.h; only what is in no table (environment, examples) stands in
 * manual.c. The page is a function of the program alone: no date, no path. */
#ifndef MANUAL_H
#define MANUAL_H

#include <stdio.h>

void manual_print(FILE *out); /* roff, man macros */

#endif
