/* check_run.h - one backend opened for checkop, and one case run on it. Not for generators.
 *
 * Easy to get wrong: a GPU may only be touched after the fork, so backends are opened in the child. */
#ifndef CHECK_RUN_H
#define CHECK_RUN_H

#include "check.h"
#include "kernels/registry.h"

typedef struct Session {
    const char *backend;
    Device device;
    Arena memory, scratch;
    Ops ops;              /* the whole table of the backend, all families' variants first */
    Unary unary;          /* cpu */
    struct Cuda *cuda;    /* cuda */
    int threads;          /* OpenMP's own choice */
    Calls calls;
    Ops only;             /* ops, with one variant of the op at hand */
    Error error;
    Exec x;
} Session;

enum { RUN_BACKENDS = 2 };
const char *run_backend(int i);                              /* "cpu", "cuda" */
int run_variants(int backend, OpId op);                      /* how many the build has */
/* The variant's family; NULL: it is the table's own. */
const Family *run_family(const Session *t, OpId op, int variant);
/* ERR_DEVICE when this machine has no such device; the text says why. */
Status run_open(Session *t, int backend, int threads);
void run_close(Session *t);

int run_default_threads(void);
bool run_refuses(Session *t, const Case *c, int variant, char *why, size_t size);
/* All checks of a case with one variant. reference: outputs of the table's reference (its last variant), which the
 * others must match bit for bit when the op or their family is EXACT; filled when the variant is the reference. */
bool run_checks(Session *t, Case *c, int variant, float **reference, char *text, size_t size);
/* Sets t->x up: the table with this one variant of the op, for a call of these args (the reference: NULL will do). */
void run_choose(Session *t, OpId op, DType dtype, int variant, const void *args);

#endif
