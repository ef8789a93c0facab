/* failfile.c - a preloaded library for test_batch.sh: the program is killed right before its N-th call that changes files
 * (KILL_AT=N), or the disk is full after a number of bytes (FULL_AFTER=BYTES). FILE_COUNT=FILE writes how many there were.
 *
 * Counted are open with O_CREAT, write, fsync, fdatasync, ftruncate, link, rename and unlink, as the program calls them, and
 * write only on regular files, so that what goes to a terminal or pipe does not count. A full disk takes what fits of a write
 * and refuses the rest.
 * Easy to get wrong: the C library's own stdio does not come through here; a batch writes no file that way. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long counted, bytes;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : -1;
}

static void count(void) {
    if (atomic_fetch_add(&counted, 1) + 1 == number("KILL_AT")) kill(getpid(), SIGKILL);
}

__attribute__((destructor)) static void stop(void) {
    const char *path = getenv("FILE_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%ld %ld\n", (long)counted, (long)bytes);
    fclose(f);
}

static int regular(int fd) {
    struct stat st;
    return !fstat(fd, &st) && S_ISREG(st.st_mode);
}

int open(const char *path, int flags, ...) {
    __typeof__(&open) real;
    *(void **)&real = dlsym(RTLD_NEXT, "open");
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    if (flags & O_CREAT) count();
    return real(path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t size) {
    __typeof__(&write) real;
    *(void **)&real = dlsym(RTLD_NEXT, "write");
    if (!regular(fd)) return real(fd, data, size);
    count();
    long most = number("FULL_AFTER"), before = atomic_load(&bytes);
    if (most >= 0 && before + (long)size > most) {
        if (before >= most) return errno = ENOSPC, -1;
        size = (size_t)(most - before);
    }
    ssize_t n = real(fd, data, size);
    if (n > 0) atomic_fetch_add(&bytes, n);
    return n;
}

#define COUNTED(name, parameters, arguments)                                                                 \
    int name parameters {                                                                                    \
        __typeof__(&name) real;                                                                              \
        *(void **)&real = dlsym(RTLD_NEXT, #name);                                                           \
        count();                                                                                             \
        return real arguments;                                                                               \
    }

COUNTED(fsync, (int fd), (fd))
COUNTED(fdatasync, (int fd), (fd))
COUNTED(ftruncate, (int fd, off_t size), (fd, size))
COUNTED(link, (const char *from, const char *to), (from, to))
COUNTED(rename, (const char *from, const char *to), (from, to))
COUNTED(unlink, (const char *path), (path))
