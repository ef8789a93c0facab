/* batch_lines.h - what a batch says: a JSON object a picture on standard output, progress events between them when wanted,
 * and the progress line on a terminal.
 *
 *   {"event":"result","job":7,"line":9,"status":"done","seed":7,"path":"DIR/0007.png","sha256":SUM,"seconds":{...}}
 *   {"event":"result","job":8,"line":10,"status":"failed","code":2,"error":"..."}       kept, planned: see README
 *   {"event":"progress","job":7,"phase":"denoise","done":3,"total":28,...}       progress.h
 *
 * Any thread may call; a line is never mixed with another. Also counts what came out.
 * Easy to get wrong: results come as pictures are finished, not in the order of the file. */
#ifndef BATCH_LINES_H
#define BATCH_LINES_H

#include "batch_items.h"
#include "progress.h"

#include <pthread.h>

typedef struct BatchLines {
    FILE *out, *err;
    bool events, quiet;
    pthread_mutex_t lock;
    ProgressLine line;
    ProgressClock clock; /* of events */
    const BatchItem *at; /* whose phase it times */
    char label[48];
    int total, done, kept, failed; /* pictures */
    Error first;                   /* failure */
} BatchLines;

void batch_lines_open(BatchLines *l, FILE *out, FILE *err, bool terminal, int verbosity, bool events,
                      int total);
void batch_lines_close(BatchLines *l);
/* Sets the item's state: BATCH_DONE, BATCH_KEPT. planned: "planned", the state stays. */
void batch_lines_done(BatchLines *l, BatchItem *item, BatchState state);
void batch_lines_planned(BatchLines *l, const BatchItem *item);
/* Once an item; sets its state. */
void batch_lines_failed(BatchLines *l, BatchItem *item, const Error *why);
void batch_lines_step(BatchLines *l, const BatchItem *item, const char *phase, int done, int total);
/* A line for people. */
void batch_lines_say(BatchLines *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
int batch_lines_failures(BatchLines *l);
/* ERR_IO when standard output could not take a line. */
Status batch_lines_flush(BatchLines *l, Error *e);

#endif
