/* feeder.h - threads that make the bytes of uploads in fixed buffers and hand them to a copy engine, piece by piece.
 *
 * Not a copy engine, and no device is known here: what "sent" means is the caller's (calls.send queues an asynchronous copy
 * on a GPU, tests copy memory). Uploads are taken in the order of their tickets; their pieces are made by all threads at once.
 * Easy to get wrong: the last pieces of one upload and the first of the next may be sent in either order, so whatever must
 * lie between two uploads (waiting for a range to be free) belongs before feeder_start of the second. */
#ifndef FEEDER_H
#define FEEDER_H

#include "core/device.h"

enum { FEEDER_QUEUE = 8, FEEDER_BUFFERS = 2 }; /* uploads under way; buffers a thread */

/* Called by the feeder's threads, several at a time, never with a lock held. */
typedef struct FeederCalls {
    void *user;
    Status (*begin)(void *user, Error *e);             /* once in each thread */
    Status (*ready)(void *user, int buffer, Error *e); /* returns when what was sent from the buffer is no longer read */
    Status (*send)(void *user, int buffer, void *to, size_t size, Error *e);
    Status (*sent)(void *user, Ticket t, Error *e);    /* once per upload, after its last send returned */
} FeederCalls;

typedef struct Feeder Feeder;

/* buffers: threads * FEEDER_BUFFERS pieces of `piece` bytes (a multiple of FILL_ALIGN), kept until feeder_close. */
Status feeder_open(int threads, void *buffers, size_t piece, const FeederCalls *calls, Feeder **out, Error *e);
/* Blocks while FEEDER_QUEUE uploads are under way. fill.source lives until feeder_wait. */
Status feeder_start(Feeder *f, const Fill *fill, Ticket *out, Error *e);
/* Returns when calls.sent was called for t. After the first failure of a call every wait fails with its text. */
Status feeder_wait(Feeder *f, Ticket t, Error *e);
void feeder_close(Feeder *f); /* NULL is fine; uploads under way are left unfinished */

#endif
