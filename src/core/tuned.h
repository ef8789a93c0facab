/* tuned.h - what was found out about problems on this machine, between runs: a small text file. Which algorithm of a library
 * was the fastest (kernels/tune_cuda.h), which fused kernels showed the reference's bits (verdicts.h).
 *
 * A line an entry: machine, key and value as hexadecimal bytes, what it is in words, microseconds of the library's own first
 * choice and of the winner (0 where nothing was timed), a sum of the line; tabs between. The machine is GPU, driver and library
 * version in words: lines of others stay in the file and are never used. Not a trusted file: one damaged line and nothing of it
 * is used. The first line says the kind of file; another kind is damage.
 * Easy to get wrong: keys and values are bytes of structs of this build; another layout simply never matches. */
#ifndef CORE_TUNED_H
#define CORE_TUNED_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { TUNED_KEY = 192, TUNED_VALUE = 64 };

typedef struct TunedEntry {
    char *machine, *label;
    unsigned char key[TUNED_KEY], value[TUNED_VALUE];
    size_t key_size, value_size;
    double first, best; /* microseconds */
} TunedEntry;

typedef struct Tuned {
    const char *kind; /* a literal: "tuned" */
    char *machine; /* whose entries are found and added */
    TunedEntry *entry;
    int count, cap;
} Tuned;

Status tuned_open(Tuned *t, const char *kind, const char *machine, Error *e);
void tuned_close(Tuned *t);
void tuned_forget(Tuned *t); /* all entries */
/* Adds what the file holds, if there is one. A file that cannot be used leaves t empty and one line in note; "" otherwise. Only
 * ERR_MEMORY is an error. */
Status tuned_read(Tuned *t, const char *path, char *note, size_t size, Error *e);
/* Replaces the file, making its folder and the one above. */
Status tuned_write(const Tuned *t, const char *path, Error *e);
/* The file's folder and the one above are made if they are not there. */
Status tuned_make_folder(const char *path, Error *e);
/* Takes the oldest entries of other machines away until `most` are left, or only this machine's. */
void tuned_trim(Tuned *t, int most);
/* The entry of this machine, or NULL. */
const TunedEntry *tuned_find(const Tuned *t, const void *key, size_t size);
/* For this machine, in place of an older one; label without tabs or line ends. */
Status tuned_put(Tuned *t, const void *key, size_t key_size, const void *value, size_t value_size, const char *label,
                 double first, double best, Error *e);
/* Takes an older entry away: the library's own choice is the fastest. */
void tuned_drop(Tuned *t, const void *key, size_t size);

#endif
