/* av_libs.c - see av_libs.h. */
#include "media/av_libs.h"

#ifdef HAVE_LIBAV

#include <dlfcn.h>
#include <string.h>

#define SONAME(name, major) "lib" name ".so." AV_STRINGIFY(major)

static Status load(const char *soname, void **out, Error *e) {
    *out = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (*out) return OK;
    const char *why = dlerror();
    return fail(e, ERR_IO, "libav, the version that this ditto was built with, is not on this machine: %s",
                why ? why : soname);
}

static Status find(void *library, const char *name, void *slot, Error *e) {
    void *address = dlsym(library, name);
    if (!address) return fail(e, ERR_IO, "libav: %s is missing", name);
    memcpy(slot, &address, sizeof address); /* ISO C has no cast from an object's to a function's address */
    return OK;
}

static Status fill(AvLibs *out, Error *e) {
    void *library;
#define X(name) TRY(find(library, #name, &out->name##_, e));
    TRY(load(SONAME("avutil", LIBAVUTIL_VERSION_MAJOR), &library, e));
    AV_LIBS_UTIL(X)
    TRY(load(SONAME("avcodec", LIBAVCODEC_VERSION_MAJOR), &library, e));
    AV_LIBS_CODEC(X)
    TRY(load(SONAME("avformat", LIBAVFORMAT_VERSION_MAJOR), &library, e));
    AV_LIBS_FORMAT(X)
    TRY(load(SONAME("swscale", LIBSWSCALE_VERSION_MAJOR), &library, e));
    AV_LIBS_SCALE(X)
    TRY(load(SONAME("swresample", LIBSWRESAMPLE_VERSION_MAJOR), &library, e));
    AV_LIBS_RESAMPLE(X)
#undef X
    return OK;
}

Status av_libs_open(AvLibs *out, Error *e) {
    Status status = fill(out, e);
    if (status == OK) out->av_log_set_level_(AV_LOG_QUIET);
    else *out = (AvLibs){0};
    return status;
}

#else

typedef int AvLibsNothing; /* ISO C wants one declaration */

#endif
