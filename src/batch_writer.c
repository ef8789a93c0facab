/* batch_writer.c - see batch_writer.h.
 * Easy to get wrong: signals belong to the main thread, which looks at the flag; the writers block them all. */
#include "batch_writer.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum { THREADS = 8 };

struct BatchWriter {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread[THREADS];
    int threads, waiting, first, count; /* queue: a ring of `waiting` */
    int busy;                           /* threads that handle one */
    bool closing;
    void (*handle)(void *user, BatchPicture *picture);
    void *user;
    BatchPicture queue[];
};

static void *work(void *user) {
    BatchWriter *w = user;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->count && !w->closing) pthread_cond_wait(&w->changed, &w->lock);
        if (!w->count) break;
        BatchPicture picture = w->queue[w->first];
        w->first = (w->first + 1) % w->waiting;
        w->count--;
        w->busy++;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        w->handle(w->user, &picture);
        pthread_mutex_lock(&w->lock);
        w->busy--;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

Status batch_writer_open(int threads, int waiting, void (*handle)(void *user, BatchPicture *picture),
                         void *user, BatchWriter **out, Error *e) {
    BatchWriter *w = calloc(1, sizeof *w + (size_t)waiting * sizeof *w->queue);
    *out = NULL;
    if (!w) return fail(e, ERR_MEMORY, "out of memory");
    w->waiting = waiting;
    w->handle = handle;
    w->user = user;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (w->threads < threads && w->threads < THREADS &&
           !pthread_create(&w->thread[w->threads], NULL, work, w))
        w->threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (w->threads) {
        *out = w;
        return OK;
    }
    batch_writer_close(w);
    return fail(e, ERR_MEMORY, "cannot start a thread");
}

void batch_writer_put(BatchWriter *w, const BatchPicture *picture) {
    pthread_mutex_lock(&w->lock);
    while (w->count == w->waiting) pthread_cond_wait(&w->changed, &w->lock);
    w->queue[(w->first + w->count++) % w->waiting] = *picture;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void batch_writer_wait(BatchWriter *w) {
    pthread_mutex_lock(&w->lock);
    while (w->count || w->busy) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void batch_writer_close(BatchWriter *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->threads; i++) pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
