/* file.h - reading, mapping and atomically writing files.
 *
 * Every output of ditto goes through file_write_atomic(): bytes are written to a temporary name beside the
 * target, fsynced and renamed, so a file that carries its final name is complete. Not a VFS: local paths.
 * Easy to get wrong: a mapped file that is truncated by someone else later raises SIGBUS on access. */
#ifndef FILE_H
#define FILE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct FileMap {
    const unsigned char *data; /* NULL for an empty file */
    size_t size;
} FileMap;

/* Maps read-only. ERR_IO with errno's text when the file cannot be opened; a folder is refused. */
Status file_map(const char *path, FileMap *out, Error *e);
void file_unmap(FileMap *map);

/* Reads the whole file into malloc'd memory with a terminating NUL (not counted in *size). */
Status file_read(const char *path, char **data, size_t *size, Error *e);

/* Writes data to "PATH.tmp-PID", fsyncs, renames to PATH. Without overwrite an existing PATH is refused
 * (ERR_USAGE), also when it appeared meanwhile. ERR_IO names the path and errno's text; the temporary file
 * is removed on every failure. */
Status file_write_atomic(const char *path, const void *data, size_t size, bool overwrite, Error *e);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* Joins folder and name into malloc'd memory; NULL when out of memory. */
char *file_join(const char *folder, const char *name);

/* The temporary file being written now, if any, removed from a signal handler: async-signal-safe. */
void file_remove_partial(void);

#endif
