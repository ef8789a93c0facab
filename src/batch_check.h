/* batch_check.h - the pictures of a batch before any of them is made: defaults and refusals of their models, names that
 * are taken, what the journal shows as done, seeds that have to be drawn.
 *
 * Easy to get wrong: with --keep-going a refusal is one picture's line; without, it ends the batch before anything ran. */
#ifndef BATCH_CHECK_H
#define BATCH_CHECK_H

#include "batch_run.h"

/* Resolves every picture, puts them in order, looks them up in the journal; leaves the first pipeline open. Failures are lines
 * already; an error ends the batch. */
Status batch_check(Batch *b, Error *e);

#endif
