/* batch_save.h - from a rendered picture to a finished file, on a writer thread.
 *
 * Easy to get wrong: the order. The bytes are on the disk under a temporary name, then the journal's line is, then the name is
 * given; whatever ends the program in between, the journal and the files tell what happened. */
#ifndef BATCH_SAVE_H
#define BATCH_SAVE_H

#include "batch_run.h"

/* For batch_writer_open; user is the Batch. */
void batch_save(void *user, BatchPicture *picture);

#endif
