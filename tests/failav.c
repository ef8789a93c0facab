/* failav.c - a preloaded library in which one function of libav, that the program looks up by name, fails at its N-th call. Used
 * by test_clip.sh.
 *
 * FAIL_SYMBOL is the function, FAIL_AT counts its calls from 1 (0: every call fails), FAIL_CODE is what it returns instead of
 * being called: 0 means swallowed, or NULL where it returns an address. With FAIL_SIGNAL it is called, after that signal.
 * Easy to get wrong: it stands in for functions of at most four arguments that are addresses or ints, and it takes dlsym's
 * place, so the real one must be asked for by its version. */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*Lookup)(void *, const char *);
typedef long (*Function)(void *, void *, void *, void *);

static Function real; /* lint: allow-static (preloaded library) */
static long calls;    /* lint: allow-static (preloaded library) */

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static long fake(void *a, void *b, void *c, void *d) {
    long at = number("FAIL_AT", 0), signal = number("FAIL_SIGNAL", 0);
    bool now = !at || ++calls == at;
    if (now && signal) raise((int)signal);
    return now && !signal ? number("FAIL_CODE", -5) : real(a, b, c, d);
}

void *dlsym(void *library, const char *name) {
    void *entry = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!entry) entry = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!entry) abort();
    Lookup look;
    memcpy(&look, &entry, sizeof look);
    void *found = look(library, name);
    const char *wanted = getenv("FAIL_SYMBOL");
    if (!wanted || strcmp(wanted, name)) return found;
    memcpy(&real, &found, sizeof real);
    Function instead = fake;
    memcpy(&found, &instead, sizeof found);
    return found;
}
