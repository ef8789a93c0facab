/* graph.h - a step that repeats is captured once and replayed: which step that is, and how many graphs are kept.
 *
 * A step is first rehearsed (Rehearsal in ops.h): the model's code runs, and every call is resolved and shown, but none is
 * launched. What was seen is the key: of each call the implementation, the table's epoch, shapes, strides, scalars and
 * every address, weights and scratch included. A graph is replayed only for a step whose calls are the ones it holds, in
 * their order. So text length, branches of guidance, families, residency and where the arenas lie are parts of the key
 * without being named, and a graph of one epoch cannot run under another.
 * A step with a new key runs call by call, which is where first checks and library plans happen; its graph is then captured
 * while the device still works on it. Values that change between steps lie in StepParams on the device, never in arguments.
 * Not every step has a graph: see why[]. Not a scheduler.
 * Easy to get wrong: what a call launches must follow from its arguments and its table. Who changes that (another
 * algorithm in a library plan) or moves memory calls graphs_forget. */
#ifndef GRAPH_H
#define GRAPH_H

#include "ops.h"

enum { GRAPHS_MOST = 16 };

typedef struct Graph {
    uint64_t key;
    DeviceGraph *on_device;
    uint64_t used; /* clock of its last replay */
    int last;      /* Exec.last after it */
} Graph;

/* Counts of the whole life; why: the reason of the last step that could not be captured, "" when every one could. */
typedef struct GraphStats {
    uint64_t captured, replayed, eager; /* graphs made; steps replayed, and run call by call */
    char why[256];
} GraphStats;

typedef struct Graphs {
    Device *device;
    bool off;      /* nothing is captured or replayed any more; why says the reason */
    Graph graph[GRAPHS_MOST];
    int count;     /* kept now */
    uint64_t clock;
    GraphStats stats;
    bool warn;     /* a capture failed since this was cleared; why says how */
} Graphs;

/* wanted false, or a device that cannot: every step runs call by call. */
void graphs_open(Graphs *g, Device *d, bool wanted);
void graphs_close(Graphs *g);
/* Throws all graphs away. */
void graphs_forget(Graphs *g);

/* Runs a step on x: replayed, or call by call. step() must make the same calls whenever it is called with the same state, and
 * leave the arenas as it found them; it is called up to four times, but its calls run once. again: steps like it will
 * follow. g NULL or a dry run: plainly. Errors are the step's own: a capture that fails is none. */
Status graphs_run(Graphs *g, Exec *x, bool again, Status (*step)(void *user, Exec *x), void *user);

#endif
