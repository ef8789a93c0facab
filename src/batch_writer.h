/* batch_writer.h - threads that turn rendered pictures into files while the next ones are being rendered, behind a queue of
 * bounded length.
 *
 * What is done with a picture is the caller's function. Not a pool for anything else.
 * Easy to get wrong: pictures that were put are always handled, also when the batch is ending: close waits for them. */
#ifndef BATCH_WRITER_H
#define BATCH_WRITER_H

#include "batch_items.h"
#include "picture.h"

typedef struct BatchPicture {
    BatchItem *item;
    Media media; /* with the pixels */
    PictureTexts texts;
    bool is_video; /* else a PNG */
    Mp4Options video;
    char *latents; /* their path, for output_latents_settle() */
} BatchPicture;

typedef struct BatchWriter BatchWriter;

/* handle: called on one of the threads, takes the picture over. waiting: most that wait. ERR_MEMORY when no thread starts. */
Status batch_writer_open(int threads, int waiting, void (*handle)(void *user, BatchPicture *picture),
                         void *user, BatchWriter **out, Error *e);
/* Takes the picture over; blocks while the queue is full. */
void batch_writer_put(BatchWriter *w, const BatchPicture *picture);
/* Returns when every picture that was put has been handled. */
void batch_writer_wait(BatchWriter *w);
/* The same, and ends the threads. NULL is fine. */
void batch_writer_close(BatchWriter *w);

#endif
