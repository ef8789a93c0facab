/* failmalloc.c - a preloaded library in which the N-th allocation made by the program itself, and every later one when
 * FAIL_ALL is set, returns NULL. Used by test_alloc.sh.
 *
 * FAIL_AT=N counts from 1. Only calls whose return address lies in the main program count: what libgomp, the C library
 * or OpenBLAS do when memory is out is not ours to test, nor what runs before main (the CUDA runtime registers kernels).
 * FAIL_COUNT=FILE writes how many calls were counted.
 * Easy to get wrong: dlsym itself may allocate before the real functions are known; a small pool serves those calls. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t), *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static char pool[1 << 20]; /* for what other libraries allocate before start() */
static size_t pool_used;
static uintptr_t program_start, program_end;
static atomic_long counted;
static long fail_at = -1;
static int fail_all, started;

static int (*program_main)(int, char **, char **);

static int find_program(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size, (void)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        program_start = info->dlpi_addr + p->p_vaddr;
        program_end = program_start + p->p_memsz;
    }
    return 1; /* the first object is the program */
}

__attribute__((constructor)) static void start(void) {
    real_malloc = dlsym(RTLD_NEXT, "malloc");
    real_calloc = dlsym(RTLD_NEXT, "calloc");
    real_realloc = dlsym(RTLD_NEXT, "realloc");
    real_free = dlsym(RTLD_NEXT, "free");
    dl_iterate_phdr(find_program, NULL);
    const char *at = getenv("FAIL_AT");
    fail_all = getenv("FAIL_ALL") != NULL;
    if (at) fail_at = atol(at);
}

__attribute__((destructor)) static void stop(void) {
    const char *path = getenv("FAIL_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%ld\n", (long)counted);
    fclose(f);
}

static int fails(void *from) {
    uintptr_t a = (uintptr_t)from;
    if (!started || a < program_start || a >= program_end) return 0;
    long n = atomic_fetch_add(&counted, 1) + 1;
    if (fail_at < 0 || !(n == fail_at || (fail_all && n > fail_at))) return 0;
    errno = ENOMEM;
    return 1;
}

static int counted_main(int argc, char **argv, char **env) {
    started = 1;
    return program_main(argc, argv, env);
}

int __libc_start_main(int (*main_function)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end);
int __libc_start_main(int (*main_function)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end) {
    __typeof__(&__libc_start_main) real;
    *(void **)&real = dlsym(RTLD_NEXT, "__libc_start_main");
    program_main = main_function;
    return real(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

static void *from_pool(size_t size) {
    size_t at = pool_used;
    pool_used += (size + 15) / 16 * 16;
    return pool_used <= sizeof pool ? pool + at : NULL;
}

void *malloc(size_t size) {
    if (!real_malloc) return from_pool(size);
    return fails(__builtin_return_address(0)) ? NULL : real_malloc(size);
}

void *calloc(size_t count, size_t size) {
    if (!real_calloc) return from_pool(count * size);
    return fails(__builtin_return_address(0)) ? NULL : real_calloc(count, size);
}

void *realloc(void *p, size_t size) {
    if (!real_realloc) return from_pool(size);
    if ((char *)p >= pool && (char *)p < pool + sizeof pool) { /* its old size is unknown: copy what can be there */
        void *moved = real_malloc(size);
        size_t most = (size_t)(pool + sizeof pool - (char *)p);
        return moved ? memcpy(moved, p, size < most ? size : most) : NULL;
    }
    return fails(__builtin_return_address(0)) ? NULL : real_realloc(p, size);
}

void free(void *p) {
    if ((char *)p >= pool && (char *)p < pool + sizeof pool) return;
    if (real_free) real_free(p);
}
