/* status.h - how every function reports failure: a code, and one line of text written at the cause.
 *
 * fail() is called where the fault is found and names the file, tensor or option, what was found and
 * what was expected. Callers pass the code up with TRY() and may prepend context with because(); the
 * user reads one line, outermost context first. Nothing below main.c prints or exits.
 * Easy to get wrong: codes double as the process exit codes (README, "Exit codes"), so never renumber. */
#ifndef STATUS_H
#define STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum Status {
    OK = 0,
    ERR_SOME = 1,          /* compare: outputs differ; batch: some jobs failed */
    ERR_USAGE = 2,         /* bad option, bad value, file exists without -y */
    ERR_MODEL = 3,         /* bad weights, config or tokenizer */
    ERR_MEMORY = 4,        /* host or device memory exhausted, or the plan does not fit */
    ERR_NAN = 5,           /* NaN or Inf appeared; the text names the first stage */
    ERR_IO = 6,            /* reading or writing a file failed */
    ERR_DEVICE = 7,        /* no usable device, driver or library */
    ERR_INTERRUPTED = 130, /* SIGINT or SIGTERM */
} Status;

typedef struct Error {
    Status code;
    char text[2048];
} Error;

/* Writes the text and returns code. The first failure wins: a second fail() on the same Error while it
 * holds one is a bug in the caller. e may be NULL when nobody will read the text. */
Status fail(Error *e, Status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Prepends "context: " to the text already there and returns e->code. */
Status because(Error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define TRY(call)                                                                                        \
    do {                                                                                                 \
        Status try_status_ = (call);                                                                     \
        if (try_status_ != OK) return try_status_;                                                       \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
