/* residency.h - which weights are on the device: the parts (components) that share its memory, each brought in when it is
 * entered and sent away when another one needs the room, and blocks that run through two slots.
 *
 * KEEP: all parts stay. SWAP: a part is whole while it works. STREAM: some of its blocks take turns in two slots, the next
 * one uploaded while the present one computes. Which it is was decided by the plan (plan.h); here it is carried out.
 * Models call weights_enter/weights_leave and never know. A part's address range is reserved once and its pages are given
 * back and brought back, so addresses survive.
 * Easy to get wrong: a part that is not entered may be gone. Rows bound with bind_block(i) are there only between
 * weights_enter(x, i) and weights_leave(x, i), the others after weights_enter(x, WEIGHTS_PART) until another part is
 * entered. Stream order keeps what is still computing safe: an upload starts after everything launched before it. */
#ifndef RESIDENCY_H
#define RESIDENCY_H

#include "core/layout.h"
#include "ops.h"

enum { RESIDENCY_PARTS = 8, RESIDENCY_ORDER = 64, WEIGHTS_PART = -1 };

/* A share of the device's memory; both the pool and the plan's simulation of it count with these. */
typedef struct Occupant {
    size_t size;   /* bytes when it is in */
    bool in;
    uint64_t used; /* clock of its last entry */
} Occupant;

/* The least recently entered occupant that is in, other than `not`; -1: none. */
int residency_victim(const Occupant *o, int count, int not);
/* Bytes of all that are in. */
size_t residency_occupied(const Occupant *o, int count);

typedef struct ResidencyPool ResidencyPool;
typedef struct Residency {
    ResidencyPool *pool;
    int index;             /* in the pool */
    const char *name;      /* the part's folder */
    Layout layout;
    bool repeats;          /* its blocks run more than once: after the last one the first is fetched again */
    void *nowhere;         /* whole bytes of addresses that fault: for the dry run before the first entry */
    void *base;            /* of the region; NULL until it was in for the first time */
    Ticket loading;        /* of the rows that stay */
    struct { int run; Ticket loading; } slot[2]; /* run 0: nothing */
} Residency;

struct ResidencyPool {
    Device *device;
    size_t room;           /* bytes that regions may take together */
    Residency part[RESIDENCY_PARTS];
    Occupant occupant[RESIDENCY_PARTS]; /* of part[i] */
    int parts;
    uint64_t clock;
    size_t peak;           /* most bytes that were in at once */
    uint64_t uploads, bytes; /* runs uploaded, and their bytes */
    int order[RESIDENCY_ORDER], entries; /* parts as a dry run entered them, repetitions left out */
};

/* Adds a part: matches its rows with its files (errors as weights_check), and points its weights at addresses that
 * fault when touched, until it comes in. */
Status residency_add(ResidencyPool *p, const char *name, const WeightFiles *files, const Bind *bind,
                     const char *const *ignore, DType dtype, bool repeats, Residency **out, Error *e);
/* streamed: [layout.blocks] or NULL. Keeps the part where it is when nothing changes; else it leaves and its addresses
 * will be new. */
void residency_place(Residency *r, const bool *streamed);
/* Sends parts away until those that are in fit the room. */
Status residency_shrink(ResidencyPool *p, Error *e);
/* Starts to bring parts in, in this order, as long as nothing must leave for it. */
Status residency_prefetch(ResidencyPool *p, const int *order, int count, Error *e);
void residency_close(ResidencyPool *p);

/* Around each use of the current part's weights (Exec.residency; NULL or a dry run: nothing happens). WEIGHTS_PART: the
 * rows without a block, and needed first; i: block i, which a rehearsal does not fetch. ERR_MEMORY, ERR_DEVICE name the part. */
Status weights_enter(Exec *x, int block);
Status weights_leave(Exec *x, int block);
/* True when nothing of the current part moves while it runs: what it launches may be captured and replayed. */
bool weights_static(const Exec *x);

#endif
