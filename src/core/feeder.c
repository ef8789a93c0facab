/* feeder.c - see feeder.h. One lock guards the queue; threads hold it only to claim a piece and to book it as sent. */
#include "core/feeder.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct Upload {
    Fill fill;
    Ticket ticket;        /* 0: never used */
    size_t claimed, sent; /* bytes */
    bool finished;
} Upload;

struct Feeder {
    FeederCalls calls;
    char *buffers;
    size_t piece;
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    Upload queue[FEEDER_QUEUE]; /* of ticket t: t % FEEDER_QUEUE */
    Ticket last, claiming;      /* claiming: the oldest upload that may have unclaimed pieces */
    bool stop;
    Error error; /* the first one */
    pthread_t *thread;
    int threads, named; /* named: how many threads took their number */
};

static void note(Feeder *f, const Error *e) {
    if (f->error.code == OK) f->error = *e;
}

/* The next piece, or false when the feeder stops. Called and returns with the lock held. */
static bool claim(Feeder *f, Upload **out, size_t *at, size_t *size) {
    for (;;) {
        if (f->stop) return false;
        while (f->claiming <= f->last && f->queue[f->claiming % FEEDER_QUEUE].claimed ==
                                             f->queue[f->claiming % FEEDER_QUEUE].fill.size)
            f->claiming++;
        if (f->claiming <= f->last) break;
        pthread_cond_wait(&f->work, &f->lock);
    }
    Upload *u = &f->queue[f->claiming % FEEDER_QUEUE];
    *out = u;
    *at = u->claimed;
    *size = u->fill.size - u->claimed < f->piece ? u->fill.size - u->claimed : f->piece;
    u->claimed += *size;
    return true;
}

static Status one_piece(Feeder *f, const Fill *fill, int buffer, size_t at, size_t size, Error *e) {
    char *memory = f->buffers + (size_t)buffer * f->piece;
    TRY(f->calls.ready(f->calls.user, buffer, e));
    fill->make(fill->source, at, size, memory);
    return f->calls.send(f->calls.user, buffer, (char *)fill->to + at, size, e);
}

static void *run(void *feeder) {
    Feeder *f = feeder;
    Error e = {0};
    Status s = f->calls.begin(f->calls.user, &e);
    pthread_mutex_lock(&f->lock);
    if (s != OK) note(f, &e);
    int first = FEEDER_BUFFERS * f->named++, turn = 0;
    Upload *u;
    for (size_t at, size; claim(f, &u, &at, &size);) {
        bool broken = f->error.code != OK; /* then nothing is sent any more, only booked */
        pthread_mutex_unlock(&f->lock);
        e = (Error){0};
        s = broken ? OK : one_piece(f, &u->fill, first + turn, at, size, &e);
        turn = (turn + 1) % FEEDER_BUFFERS;
        pthread_mutex_lock(&f->lock);
        if (s != OK) note(f, &e);
        u->sent += size;
        if (u->sent < u->fill.size) continue;
        pthread_mutex_unlock(&f->lock);
        e = (Error){0};
        s = f->calls.sent(f->calls.user, u->ticket, &e);
        pthread_mutex_lock(&f->lock);
        if (s != OK) note(f, &e);
        u->finished = true;
        pthread_cond_broadcast(&f->finished);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

Status feeder_open(int threads, void *buffers, size_t piece, const FeederCalls *calls, Feeder **out, Error *e) {
    *out = NULL;
    Feeder *f = calloc(1, sizeof *f);
    if (f) f->thread = calloc((size_t)threads, sizeof *f->thread);
    if (!f || !f->thread) {
        free(f);
        return fail(e, ERR_MEMORY, "out of memory");
    }
    f->calls = *calls;
    f->buffers = buffers;
    f->piece = piece;
    f->claiming = 1;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->work, NULL);
    pthread_cond_init(&f->finished, NULL);
    while (f->threads < threads && !pthread_create(&f->thread[f->threads], NULL, run, f)) f->threads++;
    if (f->threads) {
        *out = f; /* fewer than asked for still do the work */
        return OK;
    }
    feeder_close(f);
    return fail(e, ERR_MEMORY, "cannot start a thread");
}

Status feeder_start(Feeder *f, const Fill *fill, Ticket *out, Error *e) {
    *out = 0;
    if (!fill->size) return OK;
    pthread_mutex_lock(&f->lock);
    Upload *u = &f->queue[(f->last + 1) % FEEDER_QUEUE];
    while (u->ticket && !u->finished) pthread_cond_wait(&f->finished, &f->lock);
    Status s = f->error.code == OK ? OK : fail(e, f->error.code, "%s", f->error.text);
    if (s == OK) {
        *u = (Upload){.fill = *fill, .ticket = ++f->last};
        *out = u->ticket;
        pthread_cond_broadcast(&f->work);
    }
    pthread_mutex_unlock(&f->lock);
    return s;
}

Status feeder_wait(Feeder *f, Ticket t, Error *e) {
    pthread_mutex_lock(&f->lock);
    Upload *u = &f->queue[t % FEEDER_QUEUE];
    while (u->ticket == t && !u->finished) pthread_cond_wait(&f->finished, &f->lock); /* another ticket: long finished */
    Status s = f->error.code == OK ? OK : fail(e, f->error.code, "%s", f->error.text);
    pthread_mutex_unlock(&f->lock);
    return s;
}

void feeder_close(Feeder *f) {
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_broadcast(&f->work);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < f->threads; i++) pthread_join(f->thread[i], NULL);
    pthread_cond_destroy(&f->work);
    pthread_cond_destroy(&f->finished);
    pthread_mutex_destroy(&f->lock);
    free(f->thread);
    free(f);
}
