/* filesums.h - the files of a folder, their sizes and SHA-256 sums, and a manifest to compare them with.
 *
 * Two forms of manifest are read, told apart by tabs: NAME, size, SHA-256 separated by tabs (as filesums_write makes
 * it), and SUM SIZE NAME separated by blanks (as scripts/fetch_weights.sh makes it). "-" stands for an unknown size or
 * sum; empty lines and lines that begin with '#' are skipped.
 * Easy to get wrong: links are followed (a hub snapshot is made of them); names that begin with a dot and the files that
 * ditto itself puts there are not the checkpoint's and are left out. */
#ifndef FILESUMS_H
#define FILESUMS_H

#include "core/sha256.h"

#include <stdbool.h>
#include <stdio.h>

/* What ditto puts into a model folder: this manifest, and the stages of selftest.h. */
#define FILESUMS_MANIFEST "ditto-manifest.tsv"
#define FILESUMS_STAGES "ditto-selftest.tsv"

typedef struct FileSum {
    char *name;          /* below the folder, with '/' */
    bool found, listed;  /* in the folder, in the manifest */
    uint64_t size;
    char sum[SHA256_TEXT];
    bool size_known, sum_known; /* of the manifest */
    uint64_t want_size;
    char want_sum[SHA256_TEXT];
} FileSum;

typedef struct FileSums {
    FileSum *file; /* by name */
    int count, cap;
} FileSums;

/* Every file below the folder. ERR_IO names what cannot be read, ERR_MODEL a name that no list can hold. */
Status filesums_list(const char *folder, FileSums *out, Error *e);
/* Marks what the manifest lists, and adds what it lists and the folder lacks. ERR_MODEL: "FILE:LINE: ...". */
Status filesums_manifest(FileSums *f, const char *path, Error *e);
/* Reads every file that was found, several at once. */
Status filesums_hash(FileSums *f, const char *folder, const volatile int *interrupted, Error *e);
void filesums_free(FileSums *f);

uint64_t filesums_bytes(const FileSums *f);
/* "ok", "missing", "size differs", "sum differs", "not listed"; "-" when nothing is listed at all. */
const char *filesums_verdict(const FileSums *f, const FileSum *file);
/* Files at fault: missing or different. *first (may be NULL): the first of them. */
int filesums_faults(const FileSums *f, const FileSum **first);
/* A line a file: "file", name, size, sum, verdict, separated by tabs. */
void filesums_print(const FileSums *f, FILE *out);
/* Their manifest, of what was found. */
Status filesums_write(const FileSums *f, const char *path, bool overwrite, Error *e);

#endif
