/* test_feeder.c - the threads behind uploads (core/feeder.h), with a copy engine of our own in the GPU's place: one more
 * thread that copies late and in order, so that a buffer written again too early, a piece left out and an upload reported
 * before its last piece was queued all show in the bytes.
 *
 * Easy to get wrong: threads are few here; `nice` and a busy machine change the order of pieces, which is the point. */
#include "core/feeder.h"
#include "expect.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS = 3, PIECE = FILL_ALIGN, BUFFERS = THREADS * FEEDER_BUFFERS, MOST = 4096, RANGES = 4, SPAN = 37 * PIECE + 123 };

typedef struct Copy {
    void *to;
    int buffer;
    size_t size;
    Ticket done; /* nonzero: not a copy but the mark behind an upload */
} Copy;

typedef struct Engine {
    pthread_mutex_t lock;
    pthread_cond_t change;
    Copy queue[MOST];
    int queued, copied;
    int last_use[BUFFERS]; /* 1 + index of the last copy out of it */
    Ticket reached[FEEDER_QUEUE]; /* marks passed */
    bool stop;
    char *buffers;
    int begun, sends, fail_at; /* fail_at: the send with this number fails */
} Engine;

static Status begin(void *user, Error *e) {
    Engine *g = user;
    (void)e;
    pthread_mutex_lock(&g->lock);
    g->begun++;
    pthread_mutex_unlock(&g->lock);
    return OK;
}

static Status ready(void *user, int buffer, Error *e) {
    Engine *g = user;
    (void)e;
    pthread_mutex_lock(&g->lock);
    while (g->copied < g->last_use[buffer]) pthread_cond_wait(&g->change, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return OK;
}

static void put(Engine *g, Copy c) { /* lock held */
    if (g->queued == MOST) abort();
    g->queue[g->queued++] = c;
    pthread_cond_broadcast(&g->change);
}

static Status send(void *user, int buffer, void *to, size_t size, Error *e) {
    Engine *g = user;
    pthread_mutex_lock(&g->lock);
    Status s = ++g->sends == g->fail_at ? fail(e, ERR_DEVICE, "send %d fails", g->sends) : OK;
    if (s == OK) {
        put(g, (Copy){to, buffer, size, 0});
        g->last_use[buffer] = g->queued;
    }
    pthread_mutex_unlock(&g->lock);
    return s;
}

static Status sent(void *user, Ticket t, Error *e) {
    Engine *g = user;
    (void)e;
    pthread_mutex_lock(&g->lock);
    put(g, (Copy){.done = t});
    pthread_mutex_unlock(&g->lock);
    return OK;
}

static void *copy_engine(void *user) {
    Engine *g = user;
    pthread_mutex_lock(&g->lock);
    for (;;) {
        while (!g->stop && g->copied == g->queued) pthread_cond_wait(&g->change, &g->lock);
        if (g->copied == g->queued) break;
        Copy c = g->queue[g->copied];
        pthread_mutex_unlock(&g->lock);
        for (int i = 0; i < 3; i++) sched_yield(); /* late */
        if (!c.done) memcpy(c.to, g->buffers + (size_t)c.buffer * PIECE, c.size);
        pthread_mutex_lock(&g->lock);
        if (c.done) g->reached[c.done % FEEDER_QUEUE] = c.done;
        g->copied++;
        pthread_cond_broadcast(&g->change);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static unsigned char byte_of(unsigned seed, size_t at) {
    uint32_t v = (uint32_t)(at + 1) * 2654435761u + seed * 40503u;
    return (unsigned char)(v >> 13);
}

static void make(const void *source, size_t at, size_t size, void *out) {
    const unsigned *seed = source;
    unsigned char *to = out;
    for (size_t i = 0; i < size; i++) to[i] = byte_of(*seed, at + i);
}

typedef struct Rig { Engine engine; Feeder *feeder; pthread_t thread; Error e; } Rig;

static void rig_open(Rig *r, int fail_at) {
    *r = (Rig){.engine.fail_at = fail_at};
    Engine *g = &r->engine;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->change, NULL);
    g->buffers = malloc((size_t)BUFFERS * PIECE);
    FeederCalls calls = {g, begin, ready, send, sent};
    if (!g->buffers || pthread_create(&r->thread, NULL, copy_engine, g)) abort();
    expect_ok(feeder_open(THREADS, g->buffers, PIECE, &calls, &r->feeder, &r->e), &r->e);
    if (!r->feeder) exit(1);
}

static void rig_close(Rig *r) {
    Engine *g = &r->engine;
    feeder_close(r->feeder);
    pthread_mutex_lock(&g->lock);
    g->stop = true;
    pthread_cond_broadcast(&g->change);
    pthread_mutex_unlock(&g->lock);
    pthread_join(r->thread, NULL);
    free(g->buffers);
}

/* What a stream does that waits for the mark. */
static void pass_mark(Engine *g, Ticket t) {
    pthread_mutex_lock(&g->lock);
    bool queued = true; /* feeder_wait returned: the mark must have been passed or be on its way */
    while (queued && g->reached[t % FEEDER_QUEUE] < t) {
        queued = false;
        for (int i = g->copied; i < g->queued; i++) queued |= g->queue[i].done == t;
        if (queued) pthread_cond_wait(&g->change, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    expect(queued);
}

static void bytes(void) {
    Rig r;
    rig_open(&r, 0);
    unsigned char *memory = malloc((size_t)RANGES * SPAN);
    if (!memory) abort();
    memset(memory, 0, (size_t)RANGES * SPAN);
    unsigned seed[RANGES];
    Ticket ticket[RANGES];
    size_t size[RANGES];
    static const size_t SIZES[] = {SPAN, 1, PIECE, PIECE + 1, PIECE - 1, 5 * PIECE, 2 * PIECE + 77};
    int wrong = 0;
    for (int round = 0; round < 12; round++) {
        for (int k = 0; k < RANGES; k++) { /* several under way at once */
            seed[k] = (unsigned)(round * RANGES + k);
            size[k] = SIZES[seed[k] % (sizeof SIZES / sizeof *SIZES)];
            Fill f = {memory + (size_t)k * SPAN, size[k], make, &seed[k]};
            expect_ok(feeder_start(r.feeder, &f, &ticket[k], &r.e), &r.e);
        }
        for (int i = 0; i < RANGES; i++) {
            int k = round % 2 ? i : RANGES - 1 - i; /* waited for in any order */
            expect_ok(feeder_wait(r.feeder, ticket[k], &r.e), &r.e);
            pass_mark(&r.engine, ticket[k]);
            for (size_t at = 0; at < size[k]; at++) wrong += memory[(size_t)k * SPAN + at] != byte_of(seed[k], at);
        }
    }
    expect(wrong == 0);
    expect(r.engine.begun <= THREADS && r.engine.begun > 0);
    Ticket none = 1;
    Fill empty = {memory, 0, make, seed};
    expect_ok(feeder_start(r.feeder, &empty, &none, &r.e), &r.e);
    expect(none == 0);
    rig_close(&r);
    free(memory);
}

/* More than fit the queue: the start blocks, and all arrive. */
static void full_queue(void) {
    enum { UPLOADS = 3 * FEEDER_QUEUE };
    Rig r;
    rig_open(&r, 0);
    unsigned char *memory = malloc((size_t)UPLOADS * 3 * PIECE);
    if (!memory) abort();
    unsigned seed[UPLOADS];
    Ticket ticket[UPLOADS];
    for (int k = 0; k < UPLOADS; k++) {
        seed[k] = (unsigned)k;
        Fill f = {memory + (size_t)k * 3 * PIECE, 3 * PIECE, make, &seed[k]};
        expect_ok(feeder_start(r.feeder, &f, &ticket[k], &r.e), &r.e);
        expect(k == 0 || ticket[k] == ticket[k - 1] + 1);
    }
    for (int k = 0; k < UPLOADS; k++) expect_ok(feeder_wait(r.feeder, ticket[k], &r.e), &r.e);
    pass_mark(&r.engine, ticket[UPLOADS - 1]);
    rig_close(&r); /* copies what is queued */
    int wrong = 0;
    for (int k = 0; k < UPLOADS; k++)
        for (size_t at = 0; at < 3 * PIECE; at++) wrong += memory[(size_t)k * 3 * PIECE + at] != byte_of(seed[k], at);
    expect(wrong == 0);
    free(memory);
}

static void failures(void) {
    for (int at = 1; at <= 9; at += 4) {
        Rig r;
        rig_open(&r, at);
        unsigned char *memory = malloc((size_t)2 * SPAN);
        if (!memory) abort();
        unsigned seed = 1;
        Ticket t[2] = {0};
        char text[32];
        snprintf(text, sizeof text, "send %d fails", at);
        Fill f = {memory, SPAN, make, &seed};
        expect_ok(feeder_start(r.feeder, &f, &t[0], &r.e), &r.e);
        expect_status(feeder_wait(r.feeder, t[0], &r.e), ERR_DEVICE, text, &r.e);
        expect_status(feeder_start(r.feeder, &f, &t[1], &r.e), ERR_DEVICE, text, &r.e);
        rig_close(&r);
        free(memory);
    }
    /* closing with uploads under way ends */
    Rig r;
    rig_open(&r, 0);
    unsigned char *memory = malloc(SPAN);
    if (!memory) abort();
    unsigned seed = 1;
    Ticket t = 0;
    Fill f = {memory, SPAN, make, &seed};
    expect_ok(feeder_start(r.feeder, &f, &t, &r.e), &r.e);
    rig_close(&r);
    free(memory);
}

int main(void) {
    bytes();
    full_queue();
    failures();
    return expect_done();
}
