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

/* Maps read-only. ERR_IO with errno's text when the file cannot be opened; a folder is refused. ERR_MODEL for a Git-LFS pointer:
 * whoever reads a file here wants what it stands for. */
Status file_map(const char *path, FileMap *out, Error *e);
void file_unmap(FileMap *map);

/* Reads the whole file into malloc'd memory with a terminating NUL (not counted in *size). */
Status file_read(const char *path, char **data, size_t *size, Error *e);

/* Writes data to "PATH.tmp-PID", fsyncs, renames to PATH. Without overwrite an existing PATH is refused
 * (ERR_USAGE), also when it appeared meanwhile. ERR_IO names the path and errno's text; the temporary file
 * is removed on every failure. */
Status file_write_atomic(const char *path, const void *data, size_t size, bool overwrite, Error *e);

/* The two halves of it, for whoever has something to do between them: bytes under the temporary name, complete and flushed;
 * then the name itself. A draft is spent by publish, whatever it returns, and by drop, which removes the temporary file.
 * Several threads may have drafts at once. */
typedef struct FileDraft {
    char *path, *temporary; /* malloc'd */
    int slot;               /* for file_remove_partial; -1: it leaves this one alone */
} FileDraft;
Status file_draft(const char *path, const void *data, size_t size, FileDraft *out, Error *e);
Status file_draft_publish(FileDraft *d, bool overwrite, Error *e);
void file_draft_drop(FileDraft *d);
/* From here on file_remove_partial leaves it: somebody has written down that it is there. */
void file_draft_keep(FileDraft *d);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* Joins folder and name into malloc'd memory; NULL when out of memory. */
char *file_join(const char *folder, const char *name);

/* The temporary files being written now, removed from a signal handler: async-signal-safe. */
void file_remove_partial(void);

#endif
